//! Contenders timed in turn, so that what disturbs the machine disturbs all of them alike.
//!
//! A round times every contender once, one after the other. A ratio is taken within its round, and
//! what is reported is the median of those: figures of different rounds are never compared.

use std::fmt;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Where the search for a lap's number of calls begins.
const FIRST_CALLS: u32 = 64;

/// Threads that ran for this part of the time had the machine for themselves.
const UNDISTURBED: f64 = 0.95;
const RETRIES: u32 = 3;

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How often each contender is timed.
    pub rounds: u32,
    /// About how long it runs each time.
    pub lap: Duration,
    /// The processor time that this process has used so far, where somebody can tell. A lap in
    /// which the machine had other work for the threads' cores is then run again.
    pub cpu_used: Option<fn() -> Duration>,
}

/// One way of doing what a race is about.
pub struct Contender<'a> {
    name: String,
    run: Box<Run<'a>>,
}

/// What a contender took and did, over all rounds.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The contender.
    pub name: String,
    /// Nanoseconds for each call, as one thread sees it: the median.
    pub ns: f64,
    /// Calls a second of all threads together: the median.
    pub per_s: f64,
    /// The first contender's time for each unit of this one's: the median of the rounds' ratios.
    pub ratio: f64,
    /// The least of the same ratios.
    pub least_ratio: f64,
    /// Which part of the calls was answered with a yes, from 0 to 1.
    pub granted: f64,
    /// Which part of the time its threads ran, as far as somebody can tell: the median.
    pub running: Option<f64>,
}

/// Times each contender in each round, on `threads` threads. The outcomes are in their order.
#[must_use]
pub fn race(plan: Plan, threads: u32, contenders: &[Contender<'_>]) -> Vec<Outcome> {
    let calls: Vec<u32> =
        contenders.iter().map(|contender| contender.calls_in(plan, threads)).collect();
    let mut laps: Vec<Vec<Lap>> = vec![Vec::new(); contenders.len()];
    for round in 0..plan.rounds {
        let mut turns: Vec<_> = contenders.iter().zip(&calls).zip(&mut laps).collect();
        // Nobody is always the one who runs on what another left in the caches.
        if round % 2 == 1 {
            turns.reverse();
        }
        for ((contender, &calls), laps) in turns {
            laps.push(contender.settled_lap(plan, threads, calls));
        }
    }
    let first = laps.first().cloned().unwrap_or_default();
    let outcome = |(contender, laps): (&Contender<'_>, &Vec<Lap>)| {
        outcome(contender.name.clone(), &first, laps)
    };
    contenders.iter().zip(&laps).map(outcome).collect()
}

/// The middle of some numbers, the upper one of two; nothing is as good as not a number.
#[must_use]
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

impl<'a> Contender<'a> {
    /// One whose threads share all they have.
    pub fn new(name: impl Into<String>, call: impl Fn() -> bool + Send + Sync + 'a) -> Self {
        Self::with_state(name, || (), move |()| call())
    }

    /// One that gives each thread something of its own, made before the clock starts.
    pub fn with_state<S>(
        name: impl Into<String>,
        make: impl Fn() -> S + Send + Sync + 'a,
        call: impl Fn(&mut S) -> bool + Send + Sync + 'a,
    ) -> Self {
        let run = move |start: &Start, calls: u32| {
            let mut own = make();
            start.wait();
            let began = Instant::now();
            let mut granted = 0_u32;
            for _ in 0..calls {
                granted = granted.wrapping_add(u32::from(black_box(call(&mut own))));
            }
            Part { took: began.elapsed(), granted }
        };
        Self { name: name.into(), run: Box::new(run) }
    }

    /// As many calls for each thread as take about `lap`.
    fn calls_in(&self, plan: Plan, threads: u32) -> u32 {
        let mut calls = FIRST_CALLS;
        loop {
            // The best of three: one interruption would pass for a slow contender.
            let walls_s = (0..3).map(|_| self.lap(plan, threads, calls).wall_s);
            let took_ns = walls_s.fold(f64::INFINITY, f64::min) * 1e9;
            let lap_ns = plan.lap.as_secs_f64() * 1e9;
            if took_ns * 4.0 >= lap_ns || calls > u32::MAX / 4 {
                return calls.saturating_mul(times(lap_ns / took_ns.max(1.0)));
            }
            calls = calls.saturating_mul(2);
        }
    }

    /// The least disturbed of a few laps, or the first that had the machine for itself. Who sleeps
    /// for a lock never seems to have it, and runs them all.
    fn settled_lap(&self, plan: Plan, threads: u32, calls: u32) -> Lap {
        let mut best = self.lap(plan, threads, calls);
        for _ in 0..RETRIES {
            if best.running.is_none_or(|running| running >= UNDISTURBED) {
                break;
            }
            let again = self.lap(plan, threads, calls);
            if again.running > best.running {
                best = again;
            }
        }
        best
    }

    fn lap(&self, plan: Plan, threads: u32, calls: u32) -> Lap {
        let used_before = plan.cpu_used.map(|cpu_used| cpu_used());
        let start = Start { missing: AtomicU32::new(threads) };
        let parts: Vec<Part> = thread::scope(|scope| {
            let run = || (self.run)(&start, calls);
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            // A contender that panics has no figures; the panic is its message.
            running.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let used = plan.cpu_used.zip(used_before).map(|(now, before)| now().saturating_sub(before));
        let seconds: Vec<f64> = parts.iter().map(|part| part.took.as_secs_f64()).collect();
        let all_calls = f64::from(calls) * f64::from(threads);
        let wall_s = seconds.iter().copied().fold(0.0, f64::max);
        let granted: f64 = parts.iter().map(|part| f64::from(part.granted)).sum();
        let all_s: f64 = seconds.iter().sum();
        Lap {
            ns: all_s * 1e9 / all_calls,
            per_s: all_calls / wall_s,
            wall_s,
            granted: granted / all_calls,
            running: used.map(|used| (used.as_secs_f64() / all_s).min(1.0)),
        }
    }
}

impl fmt::Debug for Contender<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender").field("name", &self.name).finish_non_exhaustive()
    }
}

type Run<'a> = dyn Fn(&Start, u32) -> Part + Send + Sync + 'a;

/// One thread's share of a lap.
struct Part {
    took: Duration,
    granted: u32,
}

/// One contender in one round.
#[derive(Clone, Copy)]
struct Lap {
    ns: f64,
    per_s: f64,
    wall_s: f64,
    granted: f64,
    running: Option<f64>,
}

/// Where threads wait for the last of them. They spin: a thread that slept would wake late, and the
/// others would have the first calls to themselves.
struct Start {
    missing: AtomicU32,
}

impl Start {
    fn wait(&self) {
        self.missing.fetch_sub(1, Ordering::AcqRel);
        let mut spins = 0_u32;
        while self.missing.load(Ordering::Acquire) != 0 {
            spins = spins.wrapping_add(1);
            // On a machine of one core the missing thread needs it.
            if spins.is_multiple_of(1024) {
                thread::yield_now();
            }
            spin_loop();
        }
    }
}

fn outcome(name: String, first: &[Lap], laps: &[Lap]) -> Outcome {
    let of = |figure: fn(&Lap) -> f64| median(laps.iter().map(figure).collect());
    // By what all threads together reach: who lets one of them starve the other gains nothing by it.
    let by_throughput = |(first, lap): (&Lap, &Lap)| lap.per_s / first.per_s;
    let ratios: Vec<f64> = first.iter().zip(laps).map(by_throughput).collect();
    Outcome {
        name,
        ns: of(|lap| lap.ns),
        per_s: of(|lap| lap.per_s),
        least_ratio: ratios.iter().copied().fold(f64::INFINITY, f64::min),
        ratio: median(ratios),
        granted: of(|lap| lap.granted),
        running: laps.iter().map(|lap| lap.running).collect::<Option<_>>().map(median),
    }
}

/// `ratio` as a whole number from 1 to 4: what calibration still lacks.
fn times(ratio: f64) -> u32 {
    (1..4_u32).find(|&whole| f64::from(whole) >= ratio).unwrap_or(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan { rounds: 3, lap: Duration::from_micros(200), cpu_used: None };

    #[test]
    fn a_race_reports_each_contender_and_ratios_to_the_first() {
        let contenders = [Contender::new("yes", || true), Contender::new("no", || false)];
        let outcomes = race(PLAN, 2, &contenders);
        let names: Vec<&str> = outcomes.iter().map(|outcome| outcome.name.as_str()).collect();
        assert_eq!(names, ["yes", "no"]);
        assert!((outcomes[0].ratio - 1.0).abs() < f64::EPSILON);
        assert!((outcomes[0].granted - 1.0).abs() < f64::EPSILON);
        assert!(outcomes[1].granted.abs() < f64::EPSILON);
        assert!(outcomes.iter().all(|outcome| outcome.ns > 0.0 && outcome.per_s > 0.0));
    }

    #[test]
    fn each_thread_gets_a_state_of_its_own() {
        let contenders = [Contender::with_state(
            "first call only",
            || true,
            |first| std::mem::replace(first, false),
        )];
        let granted = race(PLAN, 2, &contenders)[0].granted;
        assert!(granted > 0.0 && granted < 0.1, "{granted}");
    }

    #[test]
    fn the_median_of_nothing_is_no_number() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!(median(Vec::new()).is_nan());
    }
}
