//! Real threads on one limiter, on the real clock: in any mix of calls, all grants keep the laws.
//! No timing is checked.
//!
//! A round is short and its grants are kept in preallocated lists, so that memory stays bounded
//! over any number of rounds. `cargo xtask test --long` plays them for minutes.

mod keyed;

use rategate_testkit::ns;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rategate::policy::Anchor;
use rategate::policy::{Mode, Ratio};
use rategate::{AllOf, AnyPolicy, Clock, Decision, FixedWindow, Gcra, Grant, Limiter};
use rategate::{Local, MonotonicClock, Rate, SlidingLog, TwoTimeline};
use rategate_testkit::oracle::Grants;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// The bound on catching up of the bounded schedules.
const CATCH_UP_NS: u64 = 5 * US;
const MAX_GRANTS: usize = 1 << 17;

/// A permit: its real start, its promised start, and its scheduled time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Start {
    start_ns: u64,
    promised_ns: u64,
    scheduled_ns: u64,
}

impl Start {
    fn of(grant: &Grant) -> Self {
        Self {
            start_ns: ns(grant.released_at()),
            promised_ns: ns(grant.promised_at()),
            scheduled_ns: ns(grant.scheduled_at()),
        }
    }

    /// Returns a start that was on time.
    fn at(start_ns: u64) -> Self {
        Self { start_ns, promised_ns: start_ns, scheduled_ns: start_ns }
    }
}

/// A law over all that a limit has granted since `origin_ns`, sorted.
type Law<P> = fn(policy: &P, origin_ns: u64, starts: &[Start]);

/// The parameters of a round.
#[derive(Clone, Copy, Debug)]
struct Round {
    seed: u64,
    threads: u64,
    actions: u64,
}

/// Plays a round with `policies`, of which the first applies at first. With more than one they
/// replace each other, and all starts are judged by `judge`, whose ceiling is no lower than any
/// of theirs.
fn play<P>(round: Round, policies: &[P], judge: &P, law: Law<P>)
where
    P: Into<AnyPolicy> + Copy + Sync,
{
    let clock = MonotonicClock::new();
    let origin_ns = clock.now_ns();
    let limiter = Limiter::with_clock(policies[0].into(), clock);
    let starts = played(round, &limiter, |random| {
        if let Some(next) = next_of(policies, random) {
            limiter.reconfigure((*next).into()).unwrap();
        }
    });
    law(judge, origin_ns, &starts);
}

/// Returns the next numbers to apply, if there are several.
fn next_of<'a, T>(numbers: &'a [T], random: &mut Rng) -> Option<&'a T> {
    random.choice(numbers).filter(|_| numbers.len() > 1)
}

/// Returns all starts of a round, sorted. `change` applies other numbers.
fn played<C>(round: Round, limiter: &Limiter<C>, change: impl Fn(&mut Rng) + Sync) -> Vec<Start>
where
    C: Clock,
    Limiter<C>: Sync,
{
    let barrier = Barrier::new(usize::try_from(round.threads).unwrap());
    let mut starts: Vec<Start> = thread::scope(|scope| {
        let threads: Vec<_> = (1..=round.threads)
            .map(|thread| {
                let (barrier, change) = (&barrier, &change);
                scope.spawn(move || {
                    let mut random = Rng::with_seed(round.seed * 64 + thread);
                    let mut starts = Vec::with_capacity(MAX_GRANTS);
                    barrier.wait();
                    for _ in 0..round.actions {
                        act(limiter, change, &mut random, &mut starts);
                        if starts.len() + 8 > MAX_GRANTS {
                            break;
                        }
                    }
                    starts
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    starts.sort_unstable();
    assert!(!starts.is_empty(), "{round:?}");
    starts
}

/// Makes one random call. Most are single tries, which use the lock-free state.
fn act<C: Clock>(
    limiter: &Limiter<C>,
    change: impl Fn(&mut Rng),
    random: &mut Rng,
    starts: &mut Vec<Start>,
) {
    let mut note = |grant: Grant, permits: u64| {
        starts.extend((0..permits).map(|_| Start::of(&grant)));
    };
    let shortly = Duration::from_nanos(random.u64(..20 * US));
    match random.u64(..400) {
        0..=1 => {
            if let Ok(grant) = limiter.acquire_within(1, shortly) {
                note(grant, 1);
            }
        }
        2 => {
            if let Ok(reservation) = limiter.reserve_within(1, shortly) {
                note(reservation.keep(), 1);
            }
        }
        3 => {
            // The reservation is cancelled in time, or used up at its promised instant.
            if let Ok(reservation) = limiter.reserve_within(1, shortly) {
                let start_ns = ns(reservation.promised_at());
                if !reservation.cancel() {
                    starts.push(Start::at(start_ns));
                }
            }
        }
        4..=5 => {
            if let Ok(Decision::Granted(grant)) = limiter.try_acquire(2) {
                note(grant, 2);
            }
        }
        6..=9 => drop(limiter.peek(1)),
        10..=13 => drop(limiter.remaining()),
        14 => change(random),
        _ => {
            if let Ok(Decision::Granted(grant)) = limiter.try_acquire(1) {
                note(grant, 1);
            }
        }
    }
}

/// Returns the most permits in any half-open window.
fn max_in(starts: &[Start], window_ns: u64) -> u64 {
    let starts = starts.iter().map(|start| (start.start_ns, 1));
    Grants(starts.collect()).fullest_window(window_ns).0
}

/// Checks that any window has at most `ceil((W + tau) / T)` starts.
fn bucket_law(policy: &Gcra, _origin_ns: u64, starts: &[Start]) {
    let (permits, period_ns) = policy.rate().fraction().unwrap();
    for window_ns in [1, 100, US, 10 * US, 137 * US, MS, 10 * MS] {
        let earned = u128::from(window_ns) * u128::from(permits)
            + u128::from(policy.burst_size().get() - 1) * u128::from(period_ns);
        let max_starts = earned.div_ceil(period_ns.into());
        let seen = max_in(starts, window_ns);
        assert!(
            u128::from(seen) <= max_starts,
            "{seen} > {max_starts} in {window_ns} ns: {policy:?}"
        );
    }
}

/// Checks that any window of `M` has at most `N` starts.
fn log_law(policy: &SlidingLog, _origin_ns: u64, starts: &[Start]) {
    let seen = max_in(starts, policy.held_for_ns());
    assert!(seen <= policy.permits(), "{seen} permits: {policy:?}");
}

/// Checks that no operation starts before it is due: by any instant no more have started than the
/// schedule holds.
fn average_law(policy: &TwoTimeline, origin_ns: u64, starts: &[Start]) {
    let (permits, period_ns) = policy.rate().fraction().unwrap();
    for (before, start) in starts.iter().enumerate() {
        assert!(start.scheduled_ns <= start.start_ns, "{start:?}");
        let since_ns = u128::from(start.start_ns - origin_ns.min(start.start_ns));
        // The clock of the limit starts a little after the origin.
        let due = since_ns * u128::from(permits) / u128::from(period_ns) + 1;
        assert!((u128::try_from(before).unwrap()) < due, "{before} before {start:?}: {policy:?}");
    }
}

/// Checks that starts are at least `spacing_ns` apart, and no more than the schedule holds.
fn spaced_law(policy: &TwoTimeline, spacing_ns: u64, origin_ns: u64, starts: &[Start]) {
    for pair in starts.windows(2) {
        let apart_ns = pair[1].start_ns - pair[0].start_ns;
        assert!(apart_ns >= spacing_ns, "{apart_ns} ns: {pair:?} {policy:?}");
    }
    average_law(policy, origin_ns, starts);
}

/// Checks that starts are a slice apart.
fn strict_law(policy: &TwoTimeline, origin_ns: u64, starts: &[Start]) {
    let (permits, period_ns) = policy.rate().fraction().unwrap();
    spaced_law(policy, period_ns / permits, origin_ns, starts);
}

/// Checks that starts are `slice / 1.5` apart, or up to two nanoseconds less.
fn burst_law(policy: &TwoTimeline, origin_ns: u64, starts: &[Start]) {
    let (permits, period_ns) = policy.rate().fraction().unwrap();
    spaced_law(policy, (period_ns * 2 / (permits * 3)).saturating_sub(2), origin_ns, starts);
}

/// Checks that any window has at most `ceil((W + catch_up) / T)` promised starts, with the bound
/// of [`bounded`]. A schedule keeps its promises, however late the threads are.
fn bounded_law(policy: &TwoTimeline, origin_ns: u64, starts: &[Start]) {
    let mut starts: Vec<Start> =
        starts.iter().map(|start| Start { start_ns: start.promised_ns, ..*start }).collect();
    starts.sort_unstable();
    let (permits, period_ns) = policy.rate().fraction().unwrap();
    for window_ns in [1, 100, US, 10 * US, 137 * US, MS] {
        let max_starts = ((window_ns + CATCH_UP_NS) * permits).div_ceil(period_ns);
        let seen = max_in(&starts, window_ns);
        assert!(seen <= max_starts, "{seen} > {max_starts} in {window_ns} ns: {policy:?}");
    }
    average_law(policy, origin_ns, &starts);
}

fn gcra(permits: u64, period_ns: u64, burst: u64) -> Gcra {
    Gcra::new(Rate::new(permits, Duration::from_nanos(period_ns)).unwrap(), burst).unwrap()
}

fn log(permits: u64, period_ns: u64) -> SlidingLog {
    SlidingLog::new(permits, Duration::from_nanos(period_ns))
}

fn timeline(permits: u64, period_ns: u64, mode: Mode, catch_up_ns: Option<u64>) -> TwoTimeline {
    let rate = Rate::new(permits, Duration::from_nanos(period_ns)).unwrap();
    TwoTimeline::new(rate, mode, catch_up_ns.map(Duration::from_nanos))
}

fn average(permits: u64, period_ns: u64) -> TwoTimeline {
    timeline(permits, period_ns, Mode::Average, None)
}

fn bounded(permits: u64, period_ns: u64, mode: Mode) -> TwoTimeline {
    timeline(permits, period_ns, mode, Some(CATCH_UP_NS))
}

/// Plays the modes that space operations or forfeit time, alone and in alternation.
fn play_spaced(round: Round) {
    let strict = |permits, period_ns| timeline(permits, period_ns, Mode::Strict, None);
    let burst = Mode::Burst(Ratio::new(3, 2).unwrap());
    let damped = Mode::from_compensation(0.25).unwrap();
    for (permits, period_ns) in [(1, 100), (1, 1_000), (7, 2_000)] {
        let policy = strict(permits, period_ns);
        play(round, &[policy], &policy, strict_law);
        let policy = timeline(permits, period_ns, burst, None);
        play(round, &[policy], &policy, burst_law);
        let policy = timeline(permits, period_ns, damped, None);
        play(round, &[policy], &policy, average_law);
        for mode in [Mode::Average, damped] {
            let policy = bounded(permits, period_ns, mode);
            play(round, &[policy], &policy, bounded_law);
        }
    }
    let stricts = [strict(1, 100), strict(1, 1_000), strict(1, 300)];
    play(round, &stricts, &stricts[0], strict_law);
    let modes = [
        average(1, 50),
        strict(1, 70),
        timeline(1, 60, burst, None),
        timeline(3, 1_000, damped, None),
        bounded(1, 80, Mode::Average),
    ];
    play(round, &modes, &modes[0], average_law);
}

/// Plays rounds with a local handle for each thread, next to the limiter itself. Any window has
/// at most `C(W) + h m` permits, by the instants of their use. The first policy also has the
/// largest batch.
fn play_local(round: Round, policies: &[Gcra]) {
    let limiter = Limiter::new(policies[0]);
    let batch = limiter.local().unwrap().batch();
    assert!(batch > 1, "{policies:?}");
    let barrier = Barrier::new(usize::try_from(round.threads).unwrap());
    let mut starts: Vec<Start> = thread::scope(|scope| {
        let threads: Vec<_> = (1..=round.threads)
            .map(|thread| {
                let (limiter, barrier) = (&limiter, &barrier);
                scope.spawn(move || {
                    let mut random = Rng::with_seed(round.seed * 64 + thread);
                    let mut starts = Vec::with_capacity(MAX_GRANTS);
                    let mut local = limiter.local().unwrap();
                    barrier.wait();
                    for _ in 0..round.actions {
                        act_locally(limiter, &mut local, policies, &mut random, &mut starts);
                        if starts.len() + 8 > MAX_GRANTS {
                            break;
                        }
                    }
                    starts
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    starts.sort_unstable();
    assert!(!starts.is_empty(), "{round:?}");
    let (permits, period_ns) = policies[0].rate().fraction().unwrap();
    let in_batches = round.threads * batch;
    for window_ns in [1, 100, US, 10 * US, 137 * US, MS, 10 * MS] {
        let earned = window_ns * permits + (policies[0].burst_size().get() - 1) * period_ns;
        let max_starts = earned.div_ceil(period_ns) + in_batches;
        let seen = max_in(&starts, window_ns);
        assert!(
            seen <= max_starts,
            "{seen} > {max_starts} in {window_ns} ns: {round:?} {policies:?}"
        );
    }
}

/// Makes one call by a handle or directly. Permits of a batch count at a reading after their use:
/// those that a thread has taken and not yet recorded are of one batch.
fn act_locally(
    limiter: &Limiter,
    local: &mut Local,
    policies: &[Gcra],
    random: &mut Rng,
    starts: &mut Vec<Start>,
) {
    let permits = if random.u64(..100) == 0 { 3 } else { 1 };
    match random.u64(..1_000) {
        0..=3 => *local = limiter.local().unwrap(),
        4 if policies.len() > 1 => {
            limiter.reconfigure(*random.choice(policies).unwrap()).unwrap();
        }
        5..=14 => {
            if let Decision::Granted(grant) = limiter.try_acquire(1).unwrap() {
                starts.push(Start::of(&grant));
            }
        }
        _ => {
            if local.try_acquire(permits).unwrap().is_granted() {
                let start = Start::at(ns(limiter.now()));
                starts.extend((0..permits).map(|_| start));
            }
        }
    }
}

/// Plays a bucket and a grid of windows together, while the bucket's numbers change. All starts
/// keep the laws of both.
fn play_several(round: Round, buckets: &[Gcra], permits: u64, period_ns: u64) {
    let window = FixedWindow::new(permits, Duration::from_nanos(period_ns), Anchor::Epoch);
    let limiter = Limiter::new(AllOf::default().and(buckets[0]).and(window));
    let starts = played(round, &limiter, |random| {
        if let Some(&next) = next_of(buckets, random) {
            limiter.reconfigure(AllOf::default().and(next).and(window)).unwrap();
        }
    });
    bucket_law(&buckets[0], 0, &starts);
    for starts in starts.chunk_by(|a, b| a.start_ns / period_ns == b.start_ns / period_ns) {
        let seen = u64::try_from(starts.len()).unwrap();
        assert!(seen <= permits, "{seen} permits: {window:?} {buckets:?}");
    }
}

/// Plays each lock-free form with constant numbers, and with changing ones. The judge of the
/// latter has the highest rate and the largest burst, or the shortest window and the largest
/// number.
fn play_all(round: Round) {
    for policy in [gcra(1, 100, 10), gcra(3, 1_000, 1), gcra(7, MS, 100)] {
        play(round, &[policy], &policy, bucket_law);
    }
    for policy in [log(1, 10 * US), log(8, 100 * US), log(20, 10 * US), log(5_000, MS)] {
        play(round, &[policy], &policy, log_law);
    }
    for policy in [average(1, 50), average(1, 1_000), average(1, 2)] {
        play(round, &[policy], &policy, average_law);
    }
    let buckets = [gcra(1, 100, 10), gcra(1, 1_000, 1), gcra(1, 300, 4)];
    play(round, &buckets, &buckets[0], bucket_law);
    // All logs hold a permit for equal times, so that what one lets go the others would too.
    let logs = [log(50, 100 * US), log(3, 100 * US), log(20, 100 * US)];
    play(round, &logs, &logs[0], log_law);
    let averages = [average(1, 50), average(1, 1_000), average(3, 1_000)];
    play(round, &averages, &averages[0], average_law);
    play_spaced(round);
    play_several(round, &[gcra(1, 100, 10)], 60, 10 * US);
    play_several(round, &[gcra(7, 1_000, 100)], 5_000, MS);
    play_several(round, &buckets, 8, US);
    for policy in [gcra(1, 100, 64_000), gcra(1, 1_000, 640), gcra(1, 500, 256)] {
        play_local(round, &[policy]);
    }
    play_local(round, &[gcra(1, 100, 6_400), gcra(1, 500, 640), gcra(1, 10_000, 100)]);
    keyed::play_all(round);
}

/// The short form plays a few seconds of it.
#[test]
fn grants_of_many_threads_keep_every_law() {
    for seed in 1..=3 {
        play_all(Round { seed, threads: 4, actions: 4_000 });
    }
}

/// The long form is one of those of `cargo xtask test --long`.
#[test]
#[ignore = "runs for minutes"]
fn for_the_configured_duration() {
    let minutes = std::env::var("RATEGATE_STRESS_MINUTES").map_or(10, |text| text.parse().unwrap());
    let started = Instant::now();
    let mut rounds = 0;
    while started.elapsed() < Duration::from_secs(60 * minutes) {
        rounds += 1;
        play_all(Round { seed: rounds, threads: 8, actions: 100_000 });
        eprintln!("{rounds} rounds in {} s", started.elapsed().as_secs());
    }
}
