//! Interleaved timing of contenders, so that disturbances of the machine affect all of them
//! alike.
//!
//! A round times every contender once, one after another. A ratio is taken within its round, and
//! the median of those is reported: figures of different rounds are never compared.

use std::fmt;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The number of calls at which the search for a run's length begins.
const FIRST_CALLS: u32 = 64;

/// The share of processor time from which a run counts as undisturbed.
const UNDISTURBED: f64 = 0.95;
const RETRIES: u32 = 3;

/// The extent of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The number of times each contender is timed.
    pub rounds: u32,
    /// The approximate duration of each run.
    pub lap: Duration,
    /// Returns the processor time of this process so far, where the system reports it. A run that
    /// was disturbed by other work on the threads' cores is then repeated.
    pub cpu_used: Option<fn() -> Duration>,
}

/// One of the alternatives compared in a race.
pub struct Contender<'a> {
    name: String,
    run: Box<Run<'a>>,
}

/// The figures of a contender over all rounds.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The name of the contender.
    pub name: String,
    /// The median time of a call, in nanoseconds, as one thread sees it.
    pub ns: f64,
    /// The median rate of all threads together, in calls per second.
    pub per_s: f64,
    /// The median, over the rounds, of this contender's rate relative to the first one's.
    pub ratio: f64,
    /// The minimum of these ratios.
    pub min_ratio: f64,
    /// The share of calls that were granted, from 0 to 1.
    pub granted: f64,
    /// The median share of time that its threads ran, where the system reports it.
    pub running: Option<f64>,
}

/// Times each contender in each round, on `threads` threads. The outcomes keep the order of the
/// contenders.
#[must_use]
pub fn race(plan: Plan, threads: u32, contenders: &[Contender<'_>]) -> Vec<Outcome> {
    let calls: Vec<u32> =
        contenders.iter().map(|contender| contender.calls_in(plan, threads)).collect();
    let mut laps: Vec<Vec<Lap>> = vec![Vec::new(); contenders.len()];
    for round in 0..plan.rounds {
        let mut order: Vec<_> = contenders.iter().zip(&calls).zip(&mut laps).collect();
        // The order alternates, so that no contender always runs on the caches another left.
        if round % 2 == 1 {
            order.reverse();
        }
        for ((contender, &calls), laps) in order {
            laps.push(contender.settled_lap(plan, threads, calls));
        }
    }
    let first = laps.first().cloned().unwrap_or_default();
    let outcome = |(contender, laps): (&Contender<'_>, &Vec<Lap>)| {
        outcome(contender.name.clone(), &first, laps)
    };
    contenders.iter().zip(&laps).map(outcome).collect()
}

/// Returns the median, the upper one of two; NaN for no numbers.
#[must_use]
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

impl<'a> Contender<'a> {
    /// Creates a contender whose threads share all state.
    pub fn new(name: impl Into<String>, call: impl Fn() -> bool + Send + Sync + 'a) -> Self {
        Self::with_state(name, || (), move |()| call())
    }

    /// Creates a contender with a state for each thread, made before the clock starts.
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
            ThreadResult { took: began.elapsed(), granted }
        };
        Self { name: name.into(), run: Box::new(run) }
    }

    /// Returns the number of calls for each thread that take about `lap`.
    fn calls_in(&self, plan: Plan, threads: u32) -> u32 {
        let mut calls = FIRST_CALLS;
        loop {
            // The best of three: one interruption would make a contender look slow.
            let walls_s = (0..3).map(|_| self.lap(plan, threads, calls).wall_s);
            let took_ns = walls_s.fold(f64::INFINITY, f64::min) * 1e9;
            let lap_ns = plan.lap.as_secs_f64() * 1e9;
            if took_ns * 4.0 >= lap_ns || calls > u32::MAX / 4 {
                return calls.saturating_mul(times(lap_ns / took_ns.max(1.0)));
            }
            calls = calls.saturating_mul(2);
        }
    }

    /// Returns the first undisturbed run, or the least disturbed of a few. Threads that sleep for
    /// a lock never count as undisturbed, and make all runs.
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
        let results: Vec<ThreadResult> = thread::scope(|scope| {
            let run = || (self.run)(&start, calls);
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            // A contender that panics has no figures; the panic is its message.
            running.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let used = plan.cpu_used.zip(used_before).map(|(now, before)| now().saturating_sub(before));
        let seconds: Vec<f64> = results.iter().map(|result| result.took.as_secs_f64()).collect();
        let all_calls = f64::from(calls) * f64::from(threads);
        let wall_s = seconds.iter().copied().fold(0.0, f64::max);
        let granted: f64 = results.iter().map(|result| f64::from(result.granted)).sum();
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

type Run<'a> = dyn Fn(&Start, u32) -> ThreadResult + Send + Sync + 'a;

/// One thread's part of a run.
struct ThreadResult {
    took: Duration,
    granted: u32,
}

/// One run of a contender.
#[derive(Clone, Copy)]
struct Lap {
    ns: f64,
    per_s: f64,
    wall_s: f64,
    granted: f64,
    running: Option<f64>,
}

/// A barrier at the start of a run. Threads spin: one that slept would wake late, and the others
/// would make the first calls alone.
struct Start {
    missing: AtomicU32,
}

impl Start {
    fn wait(&self) {
        self.missing.fetch_sub(1, Ordering::AcqRel);
        let mut spins = 0_u32;
        while self.missing.load(Ordering::Acquire) != 0 {
            spins = spins.wrapping_add(1);
            // On a machine of one core the missing thread needs the core.
            if spins.is_multiple_of(1024) {
                thread::yield_now();
            }
            spin_loop();
        }
    }
}

fn outcome(name: String, first: &[Lap], laps: &[Lap]) -> Outcome {
    let of = |figure: fn(&Lap) -> f64| median(laps.iter().map(figure).collect());
    // The ratio uses the rate of all threads together, so a contender gains nothing by starving a
    // thread.
    let by_throughput = |(first, lap): (&Lap, &Lap)| lap.per_s / first.per_s;
    let ratios: Vec<f64> = first.iter().zip(laps).map(by_throughput).collect();
    Outcome {
        name,
        ns: of(|lap| lap.ns),
        per_s: of(|lap| lap.per_s),
        min_ratio: ratios.iter().copied().fold(f64::INFINITY, f64::min),
        ratio: median(ratios),
        granted: of(|lap| lap.granted),
        running: laps.iter().map(|lap| lap.running).collect::<Option<_>>().map(median),
    }
}

/// Returns the factor that calibration still lacks: `ratio` as a whole number from 1 to 4.
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
