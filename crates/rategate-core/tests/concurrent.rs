//! Tests that lock-free forms keep their policies' contracts, with the ledger as the oracle. The
//! scenario files are played on limiters, whose tries take the lock-free forms too.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::time::Duration;

use crate::common::with_lock_free::{Open, WithLockFree};
use crate::common::{MS, S, US, bucket, log, ns, rate, window, window_of_first_call};
use fastrand::Rng;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::calendar::{Calendar, Grid, Window};
use rategate_core::concurrent::LockFreeVerdict;
use rategate_core::concurrent::two_timeline::{MARGIN, REFRESH};
use rategate_core::fixed_window::FixedWindow;
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::verdict::Verdict;

/// Applies the same calls to both limits and checks that the results agree.
fn assert_same_history<P: Copy + Into<AnyPolicy>>(
    seed: u64,
    start_ns: u64,
    policies: &[P],
    steps_ns: &[u64],
) -> u64 {
    let mut random = Rng::with_seed(seed);
    let policies: Vec<AnyPolicy> = policies.iter().map(|&policy| policy.into()).collect();
    let mut plain = Ledger::new(policies[0], start_ns);
    let mut with_lock_free = WithLockFree::new(policies[0].into(), start_ns);
    let mut now_ns = start_ns;
    let mut tickets = Vec::new();
    for step in 0..300 {
        let context = format!("seed {seed} step {step} at {now_ns}: {:?}", policies[0]);
        let permits = random.choice([1, 1, 1, 1, 1, 2, 3, 0]).unwrap();
        match random.u64(1..=20) {
            1..=11 => {
                let ideal = plain.try_acquire(now_ns, permits);
                same(&context, ideal, with_lock_free.try_acquire(now_ns, permits));
            }
            12..=14 => {
                let bound_ns = random.choice([None, Some(0), Some(steps_ns[0])]).unwrap();
                let ideal = plain.reserve(now_ns, permits, bound_ns);
                let answer = with_lock_free.reserve(now_ns, permits, bound_ns);
                same(&context, ideal, answer);
                if let (Ok(Verdict::Granted(ideal)), Ok(Verdict::Granted(own))) = (ideal, answer) {
                    tickets.push((ideal.ticket, own.ticket));
                }
            }
            15 if !tickets.is_empty() => {
                let (ideal, own) = tickets.pop().unwrap();
                let ideal = plain.cancel(now_ns, ideal);
                assert_eq!(with_lock_free.cancel(now_ns, own), ideal, "{context}");
            }
            16 => {
                let policy = random.choice([0, policies.len() - 1]).unwrap();
                plain.reconfigure(now_ns, policies[policy]).unwrap();
                with_lock_free.set(now_ns, policies[policy]);
            }
            17 | 18 => {
                assert_eq!(
                    with_lock_free.peek(now_ns, permits),
                    plain.peek(now_ns, permits),
                    "{context}"
                );
                assert_eq!(with_lock_free.remaining(now_ns), plain.remaining(now_ns), "{context}");
            }
            _ => now_ns += random.choice(steps_ns).copied().unwrap(),
        }
        now_ns += random.choice([0, 0, 1, steps_ns[0]]).unwrap();
    }
    with_lock_free.lock_free_count
}

fn same<E: std::fmt::Debug + PartialEq>(
    context: &str,
    ideal: Result<Verdict, E>,
    seen: Result<Verdict, E>,
) {
    match (ideal, seen) {
        (Ok(Verdict::Granted(ideal)), Ok(Verdict::Granted(seen))) => {
            // The cached clock may report a start too early, but never before it was due.
            let reported_ns = seen.scheduled_ns..=ideal.start_ns;
            assert!(reported_ns.contains(&seen.start_ns), "{context}: {seen:?} {ideal:?}");
            assert_eq!(seen.scheduled_ns, ideal.scheduled_ns, "{context}");
        }
        (ideal, seen) => assert_eq!(seen, ideal, "{context}"),
    }
}

/// Plays each pair of limits from a number of seeds, with a first step between a nanosecond and a
/// second, divided by `over`. Returns how many tries were decided without the lock.
fn agree<P: Copy + Into<AnyPolicy>>(
    seeds: u64,
    (over, steps_ns): (u64, &[u64]),
    pairs: &[[P; 2]],
) -> u64 {
    let mut lock_free_count = 0;
    for seed in 1..=seeds {
        let first_ns = 10_u64.pow(u32::try_from(seed % 10).unwrap()) / over;
        let steps_ns = [&[first_ns], steps_ns].concat();
        for policies in pairs {
            lock_free_count += assert_same_history(seed, seed * 1_000, policies, &steps_ns);
        }
    }
    lock_free_count
}

/// S3.8: the words of a bucket decide as its ledger does.
#[test]
fn the_bucket_answers_as_the_ledger_alone() {
    let pairs = [
        [bucket("1000/s", 3), bucket("1/ms", 9)],
        [bucket("3/s", 1), bucket("7/s", 2)],
        [bucket("999983/s", 10), bucket("0.25/s", 4)],
        [bucket("10000000000/s", 4), bucket("never", 2)],
        [bucket("unlimited", 2), bucket("2/7d", 50)],
    ];
    let count = agree(300, (1, &[100, US, MS, 37 * MS, 3 * S]), &pairs);
    assert!(count > 100_000, "{count}");
}

#[test]
fn the_ring_answers_as_the_ledger_alone() {
    let pairs = [
        [log(1, 1_000), log(1, 500)],
        [log(3, MS), log(2, MS)],
        [log(20, MS), log(20, 3 * MS).with_guard(ns(17)).unwrap()],
        [log(9, 10_000).with_resolution(ns(700)).unwrap(), log(5, 10_000)],
    ];
    let count = agree(300, (10, &[1, 10, 300, 10_000, MS]), &pairs);
    assert!(count > 50_000, "{count}");
}

/// Days of two windows, of one third and two thirds.
#[derive(Debug)]
struct Shifts;

const DAY: u64 = 3_000;

impl Grid for Shifts {
    fn text(&self) -> &'static str {
        "a third and two thirds"
    }

    fn window(&self, at_ns: u64) -> Window {
        let (day, is_late) = (at_ns / DAY, at_ns % DAY >= DAY / 3);
        let (start_ns, end_ns) = if is_late { (DAY / 3, DAY) } else { (0, DAY / 3) };
        let number = day * 2 + u64::from(is_late);
        Window { start_ns: day * DAY + start_ns, end_ns: day * DAY + end_ns, number }
    }

    fn start_of(&self, number: u64) -> Option<u64> {
        Some(number / 2 * DAY + number % 2 * (DAY / 3))
    }
}

#[test]
fn the_calendar_answers_as_the_ledger_alone() {
    let pair =
        [5, 2].map(|permits| FixedWindow::of_calendar(permits, Calendar::new(&Shifts)).unwrap());
    let count = agree(300, (100, &[1, 10, 300, 1_000, 10_000]), &[pair]);
    assert!(count > 10_000, "{count}");
}

#[test]
fn the_window_answers_as_the_ledger_alone() {
    let pairs = [
        [window(3, 1_000), window(1, 700)],
        [window_of_first_call(9, MS), window_of_first_call(4, MS)],
        [window(20, MS), window_of_first_call(20, 3 * MS)],
    ];
    let count = agree(300, (10, &[1, 10, 300, 10_000, MS]), &pairs);
    assert!(count > 50_000, "{count}");
}

/// S2.42, X2.8: the cached clock grants the same as a fresh reading, in average mode.
#[test]
fn the_schedule_answers_as_the_ledger_alone() {
    let average = |rate: &str| TwoTimeline::new(rate.parse().unwrap(), Mode::Average, None);
    let strict = TwoTimeline::new(rate("5000/s"), Mode::Strict, None);
    let pairs = [
        [average("1000/s"), average("3000/s")],
        [average("7/s"), average("7000000/s")],
        [average("1000000000/s"), average("3/s")],
        [average("4000000000/s"), average("8000000000/s")],
        [average("1000/s"), strict],
    ];
    let count = agree(150, (1, &[10, US, 20 * US, MS, 50 * MS]), &pairs);
    assert!(count > 20_000, "{count}");
}

/// S2.26, S2.37: spaced modes, and their exact waits.
#[test]
fn the_spaced_timelines_answer_as_the_ledger_alone() {
    let with = |rate: &str, mode: f64, catch_up_ns: Option<u64>| {
        let mode = Mode::from_compensation(mode).unwrap();
        TwoTimeline::new(rate.parse().unwrap(), mode, catch_up_ns.map(ns))
    };
    let pairs = [
        [with("1000/s", 1.0, None), with("3/ms", 1.0, None)],
        [with("7/s", 1.0, None), with("999983/s", 1.0, Some(5 * MS))],
        [with("1000/s", 0.25, None), with("1000/s", 0.5, Some(20 * MS))],
        [with("3000/s", 0.0, Some(10 * MS)), with("3000/s", 0.0, None)],
        [with("1000/s", 1.5, None), with("1000/s", 1.1, None)],
        [with("1000000000/s", 1.25, None), with("70000/s", 2.0, None)],
        [with("3000/s", 1.1, Some(10 * MS)), with("3000/s", 1.1, None)],
    ];
    let count = agree(160, (1, &[1, 333, US, 300 * US, MS, 30 * MS]), &pairs);
    assert!(count > 50_000, "{count}");
}

/// A change to another kind starts as used up as the old one was, behind the lock until a new form
/// is made.
#[test]
fn a_policy_chosen_at_run_time_answers_as_the_ledger_alone() {
    let gcra = |text, burst| AnyPolicy::from(bucket(text, burst));
    let log = |permits| AnyPolicy::from(log(permits, MS));
    let average =
        |rate: &str| AnyPolicy::from(TwoTimeline::new(rate.parse().unwrap(), Mode::Average, None));
    let pairs: [[AnyPolicy; 2]; 5] = [
        [gcra("1000/s", 3), gcra("1/ms", 9)],
        [log(3), log(20)],
        [average("1000/s"), average("3000/s")],
        [gcra("1000/s", 3), log(3)],
        [average("1000/s"), gcra("2000/s", 1)],
    ];
    for pair in pairs {
        let count = agree(100, (1, &[100, US, MS, 37 * MS]), &[pair]);
        assert!(count > 500, "{pair:?}: {count}");
    }
}

/// Returns how often `tries` at one reading each read the clock.
fn readings(policy: TwoTimeline, start_ns: u64, now_ns: u64, tries: u64) -> u64 {
    let lock_free = Ledger::new(policy, start_ns).lock_free(start_ns);
    let read = Cell::new(0);
    for _ in 0..tries {
        let clock = || {
            read.set(read.get() + 1);
            now_ns
        };
        assert!(matches!(lock_free.try_acquire(clock, 1), LockFreeVerdict::Granted { .. }));
    }
    read.get()
}

/// S2.9, S2.21, S2.42, S2.43, X2.6: a caller that is late by the cached reading needs none of its
/// own, except one in so many. A caller that comes early reads the clock, and its denial follows
/// that reading.
#[test]
fn the_kept_reading_is_used_and_renewed() {
    let average = TwoTimeline::new(rate("1000000000/s"), Mode::Average, None);
    let read = readings(average, 0, 100_000, 64_000);
    assert!((64_000 / REFRESH..64_000 / REFRESH + 64).contains(&read), "{read}");

    // On the schedule, or just behind it, each caller reads the clock.
    assert_eq!(readings(average, 0, 2 * MARGIN, 1_000), 1_000);

    // An early caller reads the clock, however far ahead the others were.
    let lock_free = Ledger::new(average, 0).lock_free(0);
    for _ in 0..=100_000 {
        assert!(matches!(lock_free.try_acquire(|| 100_000, 1), LockFreeVerdict::Granted { .. }));
    }
    let read = Cell::new(0);
    let clock = || {
        read.set(read.get() + 1);
        100_000
    };
    let denied = LockFreeVerdict::Denied { retry_after_ns: Some(NonZeroU64::MIN) };
    assert_eq!((lock_free.try_acquire(clock, 1), read.get()), (denied, 1));
}

/// X2.8: where starts are spaced, each is stamped with its own reading, so no two are closer than
/// allowed.
#[test]
fn spaced_starts_are_stamped_afresh() {
    for mode in [1.0, 1.5] {
        let mode = Mode::from_compensation(mode).unwrap();
        let policy = TwoTimeline::new(rate("1000000/s"), mode, None);
        let lock_free = Ledger::new(policy, 0).lock_free(0);
        let step_ns = if mode == Mode::Strict { 1_000 } else { 666 };
        let mut last_ns = None;
        for now_ns in (1_000_000_000..1_000_100_000).step_by(7) {
            if let LockFreeVerdict::Granted { start_ns, .. } = lock_free.try_acquire(|| now_ns, 1) {
                assert_eq!(start_ns, now_ns);
                assert!(last_ns.is_none_or(|last_ns| now_ns - last_ns >= step_ns));
                last_ns = Some(now_ns);
            }
        }
        assert!(last_ns.is_some());
    }
}

/// A denial writes nothing and is exact: repeated, it is the same, and a nanosecond before its
/// end the call is still denied.
#[test]
fn a_lock_free_retry_is_exact_at_any_rate() {
    fn check(policy: impl Into<AnyPolicy>) {
        let policy = policy.into();
        let context = format!("{policy:?}");
        let lock_free = Ledger::new(policy, 0).lock_free(0);
        let mut now_ns = 10_000_000_000;
        let mut denied = 0;
        for _ in 0..2_000 {
            match lock_free.try_acquire(|| now_ns, 1) {
                LockFreeVerdict::Granted { .. } => {}
                LockFreeVerdict::Sealed => unreachable!("{context}"),
                LockFreeVerdict::Denied { retry_after_ns } => {
                    denied += 1;
                    let again_ns = now_ns + retry_after_ns.unwrap().get();
                    let one = LockFreeVerdict::Denied { retry_after_ns: Some(NonZeroU64::MIN) };
                    assert_eq!(lock_free.try_acquire(|| again_ns - 1, 1), one, "{context}");
                    assert_eq!(lock_free.peek(again_ns, 1), Some(0), "{context}");
                    now_ns = again_ns;
                }
            }
        }
        assert!(denied > 50, "{context}: {denied}");
    }
    for rate in ["1/d", "7/h", "3/s", "999983/s", "30000000/s", "600000000/s", "1000000000/s"] {
        let rate = rate.parse().unwrap();
        check(Gcra::new(rate, 3).unwrap());
        check(TwoTimeline::new(rate, Mode::Strict, None));
        check(TwoTimeline::new(rate, Mode::Average, Some(Duration::from_micros(1))));
    }
    check(log(7, 1_234));
}

/// A step back of the clock earns nothing, and the ledger decides for a reading before the form
/// was made.
#[test]
fn a_step_back_earns_nothing() {
    let lock_free = Ledger::new(bucket("1000/s", 2), S).lock_free(S);
    assert!(matches!(lock_free.try_acquire(|| 2 * S, 2), LockFreeVerdict::Granted { .. }));
    for back_ns in [1, MS, 500 * MS] {
        let LockFreeVerdict::Denied { retry_after_ns } =
            lock_free.try_acquire(|| 2 * S - back_ns, 1)
        else {
            panic!("{back_ns}")
        };
        assert_eq!(retry_after_ns.unwrap().get(), back_ns + MS);
    }
    assert_eq!(lock_free.try_acquire(|| S - 1, 1), LockFreeVerdict::Sealed);
    assert!(matches!(lock_free.try_acquire(|| 2 * S + MS, 1), LockFreeVerdict::Granted { .. }));
}

/// A grant during a change of the numbers makes the change read the clock again.
///
/// By the earlier reading, the permit in use would count as five, and be earned back long ago by
/// the new numbers.
#[test]
fn a_change_reads_the_clock_behind_all_grants() {
    let mut ledger = Ledger::new(bucket("1/us", 10), 0);
    let lock_free = ledger.lock_free(0);
    let is_first = Cell::new(true);
    let read_ns = || {
        if !is_first.replace(false) {
            return 5_000;
        }
        assert!(matches!(lock_free.try_acquire(|| 5_000, 1), LockFreeVerdict::Granted { .. }));
        1_000
    };
    ledger.change(&lock_free, read_ns, bucket("10/us", 10)).unwrap();
    assert_eq!(lock_free.remaining(5_000), Some(9));
}

/// A caller with a late clock finds no free slot for permits that had left the log by its newest
/// grant.
///
/// That holds also after a credit of that grant.
#[test]
fn what_has_left_a_log_is_not_found_by_an_earlier_reading() {
    let mut ledger = Ledger::new(log(2, 100), 0);
    let lock_free = ledger.lock_free(0);
    for now_ns in [0, 0, 105] {
        assert!(matches!(lock_free.try_acquire(|| now_ns, 1), LockFreeVerdict::Granted { .. }));
    }
    ledger.seal(&lock_free);
    assert_eq!(ledger.credit(99, 1), 1);
    let Ok(Verdict::Granted(grant)) = ledger.try_acquire(99, 1) else { unreachable!() };
    assert_eq!(grant.start_ns, 105);
}

/// The lock-free form is open again with the next operation, however much time was forfeited, and
/// reports the whole wait.
#[test]
fn forfeited_time_costs_no_lock_free_form() {
    let strict = TwoTimeline::new(rate("1000003/s"), Mode::Strict, None);
    let mut with_lock_free = WithLockFree::new(strict.into(), 0);
    let day_ns = 86_400 * S;
    for day in 1..=40 {
        let Ok(Verdict::Granted(grant)) = with_lock_free.try_acquire(day * day_ns, 1) else {
            panic!("a day late")
        };
        assert!(grant.wait_ns() > day * day_ns - S, "day {day}: {grant:?}");
    }
    let before = with_lock_free.lock_free_count;
    for step in 1..=1_000 {
        assert!(with_lock_free.try_acquire(40 * day_ns + step * US, 1).is_ok());
    }
    assert_eq!(with_lock_free.lock_free_count - before, 1_000);
}
