//! Tests of the `commit_log` contract, against plain counts of held, cooling and promised slots.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::common::{MS, S, granted, part, retry, start};
use fastrand::Rng;
use rategate_core::commit_log::{CommitLog, MAX_PERMITS, State};
use rategate_core::concurrency::Concurrency;
use rategate_core::error::{ExceedsCapacity, LimitError};
use rategate_core::ledger::Ledger;
use rategate_core::policy::{Correction, Ended, Ending, Policy, Taken};
use rategate_core::sliding_log::SlidingLog;
use rategate_core::verdict::{Ticket, Verdict};
use rategate_testkit::oracle::Grants;

fn policy(permits: u64, period_ns: u64) -> CommitLog {
    CommitLog::new(permits, Duration::from_nanos(period_ns))
}

fn log(permits: u64, period_ns: u64) -> Ledger {
    Ledger::new(policy(permits, period_ns), 0)
}

/// The limit as plain counts. Openings are searched for, instant by instant.
struct Counts {
    max: u64,
    period_ns: u64,
    held: u64,
    /// The commits and their permits.
    commits: Vec<(u64, u64)>,
    /// The start, permits, ticket and earlier floor of each promise.
    promises: Vec<(u64, u64, Ticket, u64)>,
    floor_ns: u64,
}

impl Counts {
    fn new(max: u64, period_ns: u64) -> Self {
        let (commits, promises) = (Vec::new(), Vec::new());
        Self { max, period_ns, held: 0, commits, promises, floor_ns: 0 }
    }

    /// Holds the permits of all promises that have started by `now_ns`.
    fn pass_to(&mut self, now_ns: u64) {
        let has_started = |(start_ns, ..): &(u64, u64, Ticket, u64)| *start_ns <= now_ns;
        self.held += self.promised(now_ns);
        self.promises.retain(|promise| !has_started(promise));
    }

    fn promised(&self, by_ns: u64) -> u64 {
        let started = self.promises.iter().filter(|(start_ns, ..)| *start_ns <= by_ns);
        started.map(|(_, permits, ..)| permits).sum()
    }

    /// Returns how many slots are taken at `at_ns`.
    fn load(&self, at_ns: u64) -> u64 {
        let hot = self.commits.iter().filter(|(commit_ns, _)| commit_ns + self.period_ns > at_ns);
        self.held + hot.map(|(_, permits)| permits).sum::<u64>() + self.promised(at_ns)
    }

    /// Returns the first instant at which `permits` can be taken and every later promise still be
    /// kept.
    fn opening(&self, now_ns: u64, permits: u64) -> Option<u64> {
        let all_free_ns = self.commits.iter().map(|(commit_ns, _)| commit_ns + self.period_ns);
        let promised_ns = self.promises.iter().map(|(start_ns, ..)| *start_ns);
        let last_ns = all_free_ns.chain(promised_ns).chain([now_ns, self.floor_ns]).max().unwrap();
        (now_ns.max(self.floor_ns)..=last_ns).find(|&at_ns| {
            let behind = self.promises.iter().map(|(start_ns, ..)| *start_ns);
            let mut instants = behind.filter(|&start_ns| start_ns > at_ns).chain([at_ns]);
            instants.all(|instant_ns| self.load(instant_ns) + permits <= self.max)
        })
    }

    fn remaining(&self, now_ns: u64) -> u64 {
        let fits = |permits: &u64| self.opening(now_ns, *permits) == Some(now_ns);
        (1..=self.max).rev().find(fits).unwrap_or(0)
    }

    fn commit(&mut self, now_ns: u64, permits: u64) {
        let committed = permits.min(self.held);
        self.held -= committed;
        self.commits.push((now_ns, committed));
    }
}

/// Each answer is that of the counts, for any sequence of calls.
///
/// Calls request, commit, abort, cancel and change, on a clock that goes back now and then.
#[test]
fn answers_are_those_of_the_counts() {
    for seed in 1..400 {
        let mut random = Rng::with_seed(seed);
        let mut counts = Counts::new(random.u64(1..=6), random.u64(1..=30));
        let (mut limit, mut newest_ns) = (log(counts.max, counts.period_ns), 0_u64);
        for step in 0..150 {
            let what = format!("seed {seed}, step {step}");
            newest_ns += random.choice([0, 0, 1, 2, 5, 25]).unwrap();
            let (now_ns, requested_ns) =
                (newest_ns, newest_ns.saturating_sub(random.choice([0, 0, 0, 9]).unwrap()));
            counts.pass_to(now_ns);
            assert_eq!(limit.clamp(now_ns), now_ns);
            // A reading that goes back counts as the newest, and that has to be seen first.
            let _ = limit.release(now_ns, 0);
            let permits = random.u64(1..=counts.max);
            match random.u64(0..=11) {
                0..=2 => {
                    assert!(limit.release(requested_ns, permits), "{what}");
                    counts.commit(now_ns, permits);
                }
                3 => {
                    assert!(limit.abort(requested_ns, permits), "{what}");
                    counts.held = counts.held.saturating_sub(permits);
                    counts.floor_ns = now_ns;
                }
                4 if random.u64(..3) == 0 => {
                    counts.commits.retain(|&(at_ns, _)| at_ns + counts.period_ns > now_ns);
                    (counts.max, counts.period_ns) = (random.u64(1..=6), random.u64(1..=30));
                    limit.reconfigure(requested_ns, policy(counts.max, counts.period_ns)).unwrap();
                    counts.floor_ns = now_ns;
                }
                5 if !counts.promises.is_empty() => {
                    let index = usize::try_from(random.u64(0..=99)).unwrap();
                    let (_, _, ticket, floor_ns) =
                        counts.promises.remove(index % counts.promises.len());
                    assert!(limit.cancel(requested_ns, ticket), "{what}");
                    counts.floor_ns = counts.floor_ns.min(floor_ns);
                }
                _ => request(&mut limit, &mut counts, &mut random, (requested_ns, now_ns), &what),
            }
            assert_eq!(limit.remaining(requested_ns), counts.remaining(now_ns), "{what}");
            assert_eq!(part::<State>(&limit).held(), counts.held, "{what}");
        }
    }
}

fn request(
    limit: &mut Ledger,
    counts: &mut Counts,
    random: &mut Rng,
    (requested_ns, now_ns): (u64, u64),
    what: &str,
) {
    let (permits, reserves) = (random.u64(1..=counts.max), random.u64(..2) == 0);
    let opens_ns = counts.opening(now_ns, permits);
    assert_eq!(
        limit.peek(requested_ns, permits),
        Ok(opens_ns.map(|at_ns| at_ns - now_ns)),
        "{what}"
    );
    let answer = if reserves {
        limit.reserve(requested_ns, permits, None)
    } else {
        limit.try_acquire(requested_ns, permits)
    };
    match opens_ns {
        None => {
            let Ok(Verdict::Denied(denial)) = answer else { panic!("{what}: {answer:?}") };
            assert_eq!(denial.retry_after_ns, None, "{what}: time alone cannot help");
        }
        Some(opens_ns) if reserves || opens_ns == now_ns => {
            let grant = granted(answer).unwrap();
            assert_eq!(grant.start_ns, opens_ns, "{what}");
            let floor_ns = std::mem::replace(&mut counts.floor_ns, opens_ns);
            counts.promises.push((opens_ns, permits, grant.ticket, floor_ns));
            counts.pass_to(now_ns);
        }
        Some(opens_ns) => assert_eq!(retry(answer), opens_ns - now_ns, "{what}"),
    }
}

/// X1.5, X1.6: any window of M contains at most N effects, and some window contains N.
///
/// This holds for any time between grant and effect and between effect and commit, and in
/// whatever order operations overtake each other.
#[test]
fn no_delay_puts_more_effects_into_a_window() {
    let mut reached = 0;
    for seed in 1..300 {
        let mut random = Rng::with_seed(seed);
        let (max, period_ns) = (random.u64(1..=8), random.u64(1..=60));
        let max_ns = random.choice([0, 3, 40, 400]).unwrap();
        let mut limit = log(max, period_ns);
        let (mut now_ns, mut effects) = (0, Grants::default());
        // The commit time of each operation in flight, and its permits.
        let mut under_way: Vec<(u64, u64)> = Vec::new();
        for _ in 0..200 {
            now_ns += random.choice([0, 0, 1, 4, 50]).unwrap();
            under_way.sort_unstable();
            while let Some(&(commit_ns, permits)) = under_way.first().filter(|at| at.0 <= now_ns) {
                under_way.remove(0);
                limit.release(commit_ns, permits);
            }
            let permits = random.u64(1..=max);
            if granted(limit.try_acquire(now_ns, permits)).is_some() {
                // Each permit has its own effect, and they commit one by one.
                for _ in 0..permits {
                    let commit_ns = now_ns + random.u64(0..=max_ns);
                    effects.add(random.u64(now_ns..=commit_ns), 1);
                    under_way.push((commit_ns, 1));
                }
            }
        }
        assert!(effects.fullest_window(period_ns).0 <= max, "seed {seed}");
        reached += u32::from(effects.fullest_window(period_ns).0 == max);
    }
    assert!(reached > 200, "the ceiling is no higher than it must be: {reached}");
}

/// A log whose permits commit as they start is a sliding log, grant by grant.
#[test]
fn an_effect_at_the_start_makes_it_a_sliding_log() {
    for seed in 1..200 {
        let mut random = Rng::with_seed(seed);
        let (max, period_ns) = (random.u64(1..=8), random.u64(1..=60));
        let guard_ns = random.choice([0, 7]).unwrap();
        let commits = policy(max, period_ns).with_guard(Duration::from_nanos(guard_ns)).unwrap();
        let starts = SlidingLog::new(max, Duration::from_nanos(period_ns))
            .with_guard(Duration::from_nanos(guard_ns))
            .unwrap();
        let (mut commits, mut starts) = (Ledger::new(commits, 0), Ledger::new(starts, 0));
        let mut now_ns = 0;
        for step in 0..150 {
            now_ns += random.choice([0, 0, 1, 5, 90]).unwrap();
            let permits = random.u64(1..=max);
            let (ours, theirs) =
                (commits.try_acquire(now_ns, permits), starts.try_acquire(now_ns, permits));
            let begun = granted(ours).map(|grant| grant.start_ns);
            assert_eq!(begun, granted(theirs).map(|grant| grant.start_ns));
            assert_eq!(commits.remaining(now_ns), starts.remaining(now_ns));
            if begun.is_some() {
                commits.release(now_ns, permits);
            } else {
                assert_eq!(ours, theirs, "seed {seed}, step {step}");
            }
        }
    }
}

/// Rate: under lasting demand with a steady delay, N operations each `M + delay`.
#[test]
fn the_rate_is_that_of_period_and_delay_together() {
    for (max, period_ns, delay_ns) in [(1, 100, 0), (3, 100, 40), (51, S, 30 * MS), (4, 10, 500)] {
        let mut limit = log(max, period_ns);
        let (mut now_ns, mut starts) = (0, Vec::new());
        for _ in 0..5 {
            for _ in 0..max {
                starts.push(start(limit.try_acquire(now_ns, 1)));
            }
            assert!(granted(limit.try_acquire(now_ns, 1)).is_none());
            limit.release(now_ns + delay_ns, max);
            assert_eq!(retry(limit.try_acquire(now_ns + delay_ns, 1)), period_ns);
            now_ns += delay_ns + period_ns;
        }
        let lap_ns = |index| u64::try_from(index).unwrap() / max * (period_ns + delay_ns);
        assert!(starts.iter().enumerate().all(|(index, &at_ns)| at_ns == lap_ns(index)));
    }
}

/// X1.2: windows are half-open: a slot committed at `t` is free at `t + M`, and not 1 ns sooner.
#[test]
fn a_slot_is_free_a_period_after_its_commit() {
    let mut limit = log(2, 100);
    assert!(granted(limit.try_acquire(0, 2)).is_some());
    limit.release(30, 1);
    limit.release(50, 1);
    assert_eq!(retry(limit.try_acquire(60, 1)), 70);
    assert_eq!(retry(limit.try_acquire(60, 2)), 90);
    assert_eq!((limit.remaining(129), limit.remaining(130), limit.remaining(150)), (0, 1, 2));
    assert_eq!(retry(limit.try_acquire(129, 1)), 1);
    assert_eq!(start(limit.try_acquire(130, 1)), 130);
}

/// X1.5: by a peer's clock that is slower than ours by as much as the guard allows for, windows
/// contain at most N; with a smaller guard, more.
#[test]
fn a_guard_makes_up_for_a_slower_clock() {
    assert_eq!(policy(1, S).with_clock_error_ppm(200).unwrap().cools_for_ns(), S + 200_000);
    assert_eq!(policy(1, 3).with_clock_error_ppm(1).unwrap().cools_for_ns(), 4, "rounded up");
    assert_eq!(policy(1, 3).with_clock_error_ppm(0).unwrap().cools_for_ns(), 3);
    for parts in [1_u64, 50, 200, 9_999] {
        let seen = |guarded: u64| {
            let mut random = Rng::with_seed(parts);
            let (max, period_ns) = (4, 1_000_003);
            let policy = policy(max, period_ns).with_clock_error_ppm(guarded).unwrap();
            let (mut limit, mut effects, mut now_ns) =
                (Ledger::new(policy, 0), Grants::default(), 0);
            for _ in 0..300 {
                now_ns = start(limit.reserve(now_ns, 1, None)) + random.u64(0..=5);
                limit.release(now_ns, 1);
                // While ours shows a million and `parts` more, the peer's shows a million.
                effects.add(now_ns * 1_000_000 / (1_000_000 + parts), 1);
            }
            effects.fullest_window(period_ns).0 > max
        };
        assert!(!seen(parts), "{parts} ppm");
        assert!(seen(parts / 2), "a guard for half of {parts} ppm");
    }
}

/// Promises: a reservation has its slot from the booking on, and frees it if it is cancelled
/// before its start. Commits are of started operations.
#[test]
fn a_promise_holds_its_slot() {
    let mut limit = log(1, 100);
    assert_eq!(start(limit.try_acquire(0, 1)), 0);
    limit.release(10, 1);
    let promised = granted(limit.reserve(20, 1, None)).unwrap();
    assert_eq!(promised.start_ns, 110);
    // No call comes behind it until it has committed, and it cannot before it has started.
    assert_eq!(limit.peek(20, 1), Ok(None));
    assert!(limit.release(30, 1));
    assert_eq!(limit.peek(109, 1), Ok(None));
    assert!(limit.clone().cancel(109, promised.ticket));
    assert!(!limit.cancel(110, promised.ticket));
    assert_eq!(part::<State>(&limit).held(), 1);

    let mut limit = log(1, 100);
    assert_eq!(start(limit.try_acquire(0, 1)), 0);
    limit.release(10, 1);
    let promised = granted(limit.reserve(20, 1, None)).unwrap();
    assert!(limit.cancel(30, promised.ticket));
    assert_eq!(start(limit.reserve(30, 1, None)), 110);
}

/// Abort: an operation without an effect leaves no trace, and what has been committed stays.
#[test]
fn what_is_aborted_is_free_at_once() {
    let mut limit = log(3, 100);
    assert!(granted(limit.try_acquire(0, 3)).is_some());
    assert!(limit.abort(5, 1));
    assert_eq!(limit.remaining(5), 1);
    limit.release(6, 1);
    // An abort of more than is held aborts what is held.
    assert!(limit.abort(7, 10));
    assert_eq!((limit.remaining(7), limit.remaining(105), limit.remaining(106)), (2, 2, 3));
    assert!(limit.abort(7, u64::MAX));
    assert_eq!(limit.remaining(7), 2);

    // A slot that it frees before a promise goes to the next call that fits.
    let mut limit = log(2, 100);
    assert!(granted(limit.try_acquire(0, 2)).is_some());
    limit.release(10, 1);
    assert_eq!(start(limit.reserve(20, 1, None)), 110);
    assert!(limit.abort(30, 1));
    let one = NonZeroU64::MIN;
    assert_eq!(limit.opening_from(200, one).unwrap().start_ns, 200, "and behind it there is one");
    assert_eq!(start(limit.try_acquire(30, 1)), 30);
    assert_eq!(limit.peek(30, 1), Ok(None));
}

/// Cost: the log forgets slots that were free long ago, and takes no memory for commits at one
/// instant.
#[test]
fn the_log_holds_no_more_commits_than_slots() {
    let (mut limit, mut random) = (log(5, 100), Rng::with_seed(5));
    for now_ns in 0..5_000 {
        let _ = limit.try_acquire(now_ns, 1);
        if random.u64(..3) == 0 {
            limit.release(now_ns, random.u64(1..=2));
        }
        assert!(limit.limits().heap_bytes() <= 200, "at {now_ns}");
    }
    let mut limit = log(5, 100);
    assert!(granted(limit.try_acquire(0, 5)).is_some());
    for _ in 0..5 {
        limit.release(7, 1);
    }
    assert_eq!(limit.limits().heap_bytes(), 0);
}

/// Commit: committing more than are held commits those held, and earns nothing.
#[test]
fn releasing_more_than_are_held_does_nothing_wrong() {
    let mut limit = log(2, 100);
    for now_ns in [0, 5] {
        assert!(limit.release(now_ns, 7));
        assert_eq!(limit.remaining(now_ns), 2);
    }
    assert!(granted(limit.try_acquire(10, 1)).is_some());
    assert!(limit.release(20, u64::MAX));
    assert_eq!((limit.remaining(20), limit.remaining(119), limit.remaining(120)), (1, 1, 2));
}

/// S3.12: commits stay with their instants, free slots stay free, and fewer slots take effect as
/// slots become free.
#[test]
fn a_change_of_the_limit_keeps_the_commits() {
    let mut limit = log(3, 100);
    assert!(granted(limit.try_acquire(0, 3)).is_some());
    limit.release(10, 1);
    limit.release(20, 1);
    limit.reconfigure(20, policy(5, 100)).unwrap();
    assert_eq!(limit.remaining(20), 2);
    limit.reconfigure(20, policy(2, 100)).unwrap();
    assert_eq!(
        retry(limit.try_acquire(20, 1)),
        100,
        "one is held, and one of the others has to go"
    );
    limit.reconfigure(20, policy(1, 100)).unwrap();
    assert_eq!(limit.peek(20, 1), Ok(None), "the one that is held stands in the way");
    limit.release(30, 1);
    assert_eq!(limit.peek(30, 1), Ok(Some(100)));
    limit.reconfigure(30, policy(1, 200)).unwrap();
    assert_eq!(limit.peek(30, 1), Ok(Some(200)));
    limit.reconfigure(30, policy(3, 15)).unwrap();
    assert_eq!(limit.peek(30, 3), Ok(Some(15)));
    // The first two have left a log of 15 ns, and a longer period brings back neither.
    limit.reconfigure(36, policy(3, 1_000)).unwrap();
    assert_eq!((limit.remaining(36), limit.peek(36, 3)), (2, Ok(Some(994))));
}

/// S3.12: windows of effects after a change contain the new N, however the changes and the
/// commits fall.
#[test]
fn windows_of_effects_after_a_change_hold_the_new_limit() {
    for seed in 1..300 {
        let mut random = Rng::with_seed(seed);
        let (mut limit, mut now_ns) = (log(4, 30), 0);
        for _ in 0..6 {
            let (max, period_ns) = (random.u64(1..=8), random.u64(5..=60));
            limit.reconfigure(now_ns, policy(max, period_ns)).unwrap();
            let (held, mut all) = (part::<State>(&limit).held(), Grants::default());
            for _ in 0..40 {
                now_ns += random.u64(0..=6);
                let open = part::<State>(&limit).held() > 0 && random.u64(..2) == 0;
                if open {
                    // Operations granted by the old limit may come at any rate; the rest may not.
                    limit.release(now_ns, 1);
                    all.add(now_ns, 1);
                }
                let _ = limit.try_acquire(now_ns, random.u64(1..=max));
            }
            assert!(all.fullest_window(period_ns).0 <= max.max(held), "seed {seed}");
        }
    }
}

/// With other limits: commits and aborted operations reach the limits that count them.
#[test]
fn several_limits_commit_together() {
    let both = [policy(2, 100).into(), Concurrency::new(2).into()];
    let mut limit = Ledger::new(both, 0);
    assert!(granted(limit.try_acquire(0, 2)).is_some());
    assert!(limit.release(10, 1));
    assert_eq!(limit.peek(10, 1), Ok(Some(100)), "the one is free, the other cools");
    assert!(limit.abort(20, 1));
    assert_eq!(start(limit.try_acquire(20, 1)), 20);
    assert_eq!(limit.clamp(0), 20);
    let mut windows = Ledger::new([SlidingLog::new(1, Duration::from_nanos(10)).into()], 0);
    assert!(!windows.abort(30, 1));
    assert_eq!(windows.clamp(0), 30);
}

#[test]
fn misuse_is_an_error() {
    assert_eq!(CommitLog::try_new(0, Duration::from_nanos(S)), Err(LimitError::ZeroPermits));
    assert_eq!(CommitLog::try_new(1, Duration::from_nanos(0)), Err(LimitError::ZeroPeriod));
    let max = MAX_PERMITS;
    assert_eq!(
        CommitLog::try_new(max + 1, Duration::from_nanos(S)),
        Err(LimitError::TooManyPermits { max })
    );
    assert_eq!(policy(max, S).permits(), max);
    assert_eq!(
        policy(1, S).with_guard(Duration::from_nanos(u64::MAX - S + 1)),
        Err(LimitError::PeriodTooLong)
    );
    assert!(policy(1, S).with_guard(Duration::from_nanos(u64::MAX - S)).is_ok());
    assert_eq!(policy(1, S).with_clock_error_ppm(u64::MAX), Err(LimitError::PeriodTooLong));
    assert_eq!(policy(1, u64::MAX).with_clock_error_ppm(1), Err(LimitError::PeriodTooLong));
    let mut limit = log(2, S);
    assert_eq!(limit.try_acquire(0, 3), Err(ExceedsCapacity::new(3, 2)));
    assert_eq!(limit.remaining(0), 2);
    assert!(!limit.refill(0, 1));
}

/// Clock: one that goes back commits as of its newest reading; at the end of 64 bits nothing
/// wraps.
#[test]
fn a_bad_clock_gains_nothing() {
    let mut limit = log(2, 1_000);
    assert!(granted(limit.try_acquire(5_000, 2)).is_some());
    limit.release(4_000, 1);
    assert_eq!(retry(limit.try_acquire(0, 1)), 1_000);
    assert!(granted(limit.try_acquire(5_999, 1)).is_none());
    assert!(granted(limit.try_acquire(6_000, 1)).is_some());

    // A state that is driven without a ledger still keeps its order.
    let limit = policy(3, 100);
    let mut state = limit.fresh(0);
    let permits = NonZeroU64::new(3).unwrap();
    limit.take(&mut state, Taken { from_ns: 50, start_ns: 50, permits });
    for now_ns in [60, 55] {
        let ended = Ended { now_ns, permits: 1, how: Ending::Released };
        assert_eq!(limit.correct(&mut state, Correction::End(ended)), Some(1));
    }
    assert_eq!((limit.remaining(&state, 159), limit.remaining(&state, 160)), (0, 2));

    let begin_ns = 18_446_744_073 * S;
    let mut limit = Ledger::new(policy(1, S), begin_ns);
    assert!(granted(limit.try_acquire(u64::MAX, 1)).is_some());
    limit.release(u64::MAX, 1);
    assert!(granted(limit.try_acquire(u64::MAX, 1)).is_none());
    assert_eq!(retry(limit.reserve(u64::MAX, 1, None)), S);
    assert_eq!(limit.promised(), 0);
}
