//! Callers whose clocks disagree, as the counters of a machine's cores do by tenths of a
//! microsecond.
//!
//! A call may read an earlier time than one that was decided before it, but no caller's own
//! readings go back. Whatever the callers try, refund and withdraw, the starts keep the bound of
//! their limit.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use rategate::keyed::Capacity;
use rategate::keyed::Hashing;
use rategate::keyed::Overflow;
use rategate::policy::Anchor;
use rategate::policy::Mode;
use rategate::policy::Ratio;
use rategate::wait::CancelToken;
use rategate::wait::Wake;
use rategate::{
    AnyPolicy, Clock, Decision, FixedWindow, Gcra, Grant, Keyed, Limiter, ManualClock, Rate,
    SlidingLog, TwoTimeline,
};
use rategate_testkit::ns;

const CALLERS: usize = 3;
const STEPS: usize = 30;
const PERIOD_NS: u64 = 1_000;
const PERMITS: u64 = 4;

/// A clock that advances with each reading, and that each caller sees up to `apart_ns` late.
#[derive(Clone)]
struct SkewedClock(Arc<Mutex<Readings>>);

struct Readings {
    random: Rng,
    apart_ns: u64,
    true_ns: u64,
    caller: usize,
    latest_ns: [u64; CALLERS],
}

impl SkewedClock {
    fn new(seed: u64, apart_ns: u64) -> Self {
        let (random, true_ns) = (Rng::with_seed(seed), 1_000_000 + apart_ns);
        let latest_ns = [0; CALLERS];
        Self(Arc::new(Mutex::new(Readings { random, apart_ns, true_ns, caller: 0, latest_ns })))
    }

    /// Makes `caller` the reader from now on, `later_ns` later.
    fn next(&self, caller: usize, later_ns: u64) {
        let mut readings = self.0.lock().unwrap();
        readings.caller = caller;
        readings.true_ns += later_ns;
    }
}

impl Clock for SkewedClock {
    fn now_ns(&self) -> u64 {
        let mut readings = self.0.lock().unwrap();
        let Readings { random, apart_ns, true_ns, caller, latest_ns } = &mut *readings;
        *true_ns += random.u64(..3);
        let latest_ns = &mut latest_ns[*caller];
        *latest_ns = (*latest_ns).max(*true_ns - random.u64(..=*apart_ns));
        *latest_ns
    }

    fn now_in_order_ns(&self) -> u64 {
        let mut readings = self.0.lock().unwrap();
        let Readings { true_ns, caller, latest_ns, .. } = &mut *readings;
        latest_ns[*caller] = *true_ns;
        *true_ns
    }

    /// No reading of one caller does, and that is all that a counter promises.
    fn may_go_back(&self) -> bool {
        false
    }

    fn wait(&self, _until_ns: u64, _cancel: &CancelToken) -> Wake {
        unreachable!("no call here waits")
    }
}

/// Plays calls on one key of a table, and checks the starts. The first policy applies at first;
/// if there are several, the next one replaces it now and then.
fn play(
    policies: &[impl Into<AnyPolicy> + Copy + Debug],
    law: impl Fn(&[u64]) -> Result<(), String>,
    (seed, apart_ns): (u64, u64),
) {
    let mut random = Rng::with_seed(seed);
    let clock = SkewedClock::new(seed + 1, apart_ns);
    let capacity = Capacity::for_keys(1).or_else(Overflow::Refuse);
    let keyed: Keyed<u64, SkewedClock> =
        Keyed::with_hashing(policies[0], capacity, Hashing::Fast, clock.clone());
    let mut limiters: [Option<Limiter<SkewedClock>>; CALLERS] =
        std::array::from_fn(|_| keyed.limiter(&7).ok().filter(|_| random.u64(..2) == 0));
    let mut grants: Vec<(usize, Grant)> = Vec::new();
    let mut history = Vec::new();
    for _ in 0..STEPS {
        let caller = random.usize(..CALLERS);
        clock.next(caller, random.u64(..PERIOD_NS / PERMITS));
        let mut note = |what: &str, decision: Decision| {
            if let Decision::Granted(grant) = decision {
                history.push(format!("{caller} {what} {}", ns(grant.released_at())));
                grants.push((caller, grant));
            } else {
                history.push(format!("{caller} {what} denied"));
            }
        };
        match random.u64(..12) {
            0..=3 => note("table", keyed.try_acquire(&7, 1).unwrap()),
            4..=5 => {
                if let Some(limiter) = &limiters[caller] {
                    note("limiter", limiter.try_acquire(1).unwrap());
                }
            }
            6..=7 => {
                limiters[caller] = match limiters[caller].take() {
                    Some(_) => None,
                    None => keyed.limiter(&7).ok(),
                };
                history.push(format!("{caller} has {}", limiters[caller].is_some()));
            }
            8 => {
                let held = match &limiters[caller] {
                    Some(limiter) => limiter.try_hold(1, Duration::MAX).unwrap().ok(),
                    None => keyed.try_hold(&7, 1, Duration::MAX).unwrap().ok(),
                };
                history.push(format!("{caller} cancels a hold: {}", held.is_some()));
            }
            9 if policies.len() > 1 => {
                let next = random.usize(..policies.len());
                history.push(format!("{caller} changes to {next}"));
                keyed.reconfigure(policies[next]).unwrap();
            }
            _ => drop((keyed.remaining(&7), keyed.peek(&7, 1), keyed.release(&7, 1))),
        }
    }
    let mut starts: Vec<u64> = grants.iter().map(|(_, grant)| ns(grant.released_at())).collect();
    starts.sort_unstable();
    if let Err(fault) = law(&starts) {
        panic!("{fault}: {policies:?}, seed {seed}, {apart_ns} ns apart:\n{}", history.join("\n"));
    }
}

/// Checks that at most `max_within` starts are within `window_ns`.
fn at_most(max_within: u64, window_ns: u64, starts: &[u64]) -> Result<(), String> {
    for (at, start_ns) in starts.iter().enumerate() {
        let within = starts[at..].iter().take_while(|later_ns| *later_ns - start_ns < window_ns);
        let within = u64::try_from(within.count()).unwrap();
        if within > max_within {
            return Err(format!("{within} starts from {start_ns} on within {window_ns} ns"));
        }
    }
    Ok(())
}

/// Checks the maximum of a bucket with 4 permits per us, in windows of several lengths.
fn bucket_law(burst: u64, starts: &[u64]) -> Result<(), String> {
    (1..10).try_for_each(|n| {
        let window_ns = n * 170;
        at_most((window_ns + (burst - 1) * 250).div_ceil(250), window_ns, starts)
    })
}

fn for_all_seeds(mut play: impl FnMut((u64, u64))) {
    for seed in 0..10_000 {
        for apart_ns in [30, 300, 900] {
            play((seed, apart_ns));
        }
    }
}

#[test]
fn sliding_log() {
    let log = SlidingLog::new(PERMITS, Duration::from_nanos(PERIOD_NS));
    let law = |starts: &[u64]| at_most(PERMITS, PERIOD_NS, starts);
    for_all_seeds(|case| play(&[log], law, case));
}

/// A slot of the table knows the time only to the resolution of the grid.
#[test]
fn log_on_a_grid() {
    for resolution_ns in [2, 250] {
        let log = SlidingLog::new(PERMITS, Duration::from_nanos(PERIOD_NS));
        let log = log.with_resolution(Duration::from_nanos(resolution_ns)).unwrap();
        for_all_seeds(|case| {
            let law = |starts: &[u64]| at_most(PERMITS, PERIOD_NS - case.1, starts);
            play(&[log], law, case);
        });
    }
}

#[test]
fn fixed_window() {
    let window = FixedWindow::new(PERMITS, Duration::from_nanos(PERIOD_NS), Anchor::Epoch);
    let law = |starts: &[u64]| {
        for starts in starts.chunk_by(|a, b| a / PERIOD_NS == b / PERIOD_NS) {
            at_most(PERMITS, PERIOD_NS, starts)?;
        }
        Ok(())
    };
    for_all_seeds(|case| play(&[window], law, case));
}

#[test]
fn gcra() {
    for burst in [1, 3] {
        let rate: Rate = "4/us".parse().unwrap();
        let bucket = Gcra::new(rate, burst).unwrap();
        for_all_seeds(|case| play(&[bucket], |starts| bucket_law(burst, starts), case));
    }
}

/// The first numbers are the judge, since the others are stricter.
#[test]
fn numbers_that_change() {
    let bucket = |rate: &str, burst| Gcra::new(rate.parse().unwrap(), burst).unwrap();
    let buckets = [bucket("4/us", 3), bucket("1/us", 1), bucket("2/us", 2)];
    for_all_seeds(|case| {
        play(&buckets, |starts| bucket_law(3, starts), case);
    });
}

#[test]
fn strict_and_burst_schedules() {
    let rate: Rate = "4/us".parse().unwrap();
    for (mode, spacing_ns) in [(Mode::Strict, 250), (Mode::Burst(Ratio::new(2, 1).unwrap()), 124)] {
        let policy = TwoTimeline::new(rate, mode, None);
        let law = |starts: &[u64]| at_most(1, spacing_ns, starts);
        for_all_seeds(|case| play(&[policy], law, case));
    }
}

/// A time that a key's limiter has seen holds for the table as well, even once the key is
/// evicted.
#[test]
fn the_table_goes_on_from_a_limiters_time() {
    let clock = ManualClock::new();
    let bucket = Gcra::new("4/us".parse().unwrap(), 1).unwrap();
    let keyed: Keyed<u64, ManualClock> =
        Keyed::with_clock(bucket, Capacity::default(), clock.clone());
    clock.set(Duration::from_nanos(800));
    let limiter = keyed.limiter(&7).unwrap();
    assert!(limiter.try_acquire(1).unwrap().is_granted());
    clock.set(Duration::from_nanos(1_300));
    limiter.reconfigure(bucket).unwrap();
    drop(limiter);
    clock.set(Duration::from_nanos(900));
    assert_eq!(keyed.remaining(&7), Ok(1), "fully recovered at 1300");
    assert_eq!(keyed.len(), 0);
    clock.set(Duration::from_nanos(950));
    let Decision::Granted(grant) = keyed.try_acquire(&7, 1).unwrap() else { unreachable!() };
    assert_eq!(ns(grant.released_at()), 1_300);
}
