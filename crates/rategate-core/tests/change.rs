//! Tests of the rule for a change of numbers: permits in use stay in use, and the rest of the new
//! allowance is available at once.
use std::time::Duration;

use crate::common::limits::{Kind, Scale, limit_of};
use crate::common::played::{Played, Step, VERBS};
use crate::common::{S, granted, log, ns, rate, retry, start, window, window_of_first_call};
use fastrand::Rng;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::commit_log::CommitLog;
use rategate_core::concurrency::Concurrency;
use rategate_core::error::LimitError;
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::rate::Rate;
use rategate_core::two_timeline::{Mode, TwoTimeline};

const HOUR: u64 = 3_600 * S;

/// Returns each policy that has an allowance, with `permits` of it an hour.
fn hourly(permits: u64) -> Vec<(&'static str, AnyPolicy)> {
    let rate = Rate::new(permits, Duration::from_secs(3_600)).unwrap();
    vec![
        ("gcra", Gcra::new(rate, permits).unwrap().into()),
        ("sliding-log", log(permits, HOUR).into()),
        ("compact-log", log(permits, HOUR).compact().into()),
        ("fixed-window", window(permits, HOUR).into()),
        ("first call", window_of_first_call(permits, HOUR).into()),
        ("commit-log", CommitLog::new(permits, ns(HOUR)).into()),
        ("concurrency", Concurrency::new(permits).into()),
    ]
}

/// An operator who changes `was` an hour to `is` while `used` are in use: windows, logs and
/// permits in flight count what is used, and a bucket has what it had left.
#[test]
fn what_is_left_follows_from_what_is_in_use_and_in_a_bucket_stays() {
    for (was, used, is) in
        [(5, 5, 10), (5, 3, 10), (5, 0, 10), (10, 4, 6), (10, 6, 6), (10, 8, 6), (7, 7, 7)]
    {
        for ((name, old), (_, new)) in hourly(was).into_iter().zip(hourly(is)) {
            let what = format!("{name}: {used} of {was} in use, then {is}");
            let mut limit = Ledger::new(old, 0);
            assert!(used == 0 || granted(limit.try_acquire(0, used)).is_some(), "{what}");
            assert_eq!(limit.remaining(0), was - used, "{what}");
            limit.reconfigure(0, new).unwrap();
            let left = if name == "gcra" { is.min(was - used) } else { is.saturating_sub(used) };
            assert_eq!(limit.remaining(0), left, "{what}");
            if left > 0 {
                assert_eq!(start(limit.try_acquire(0, left)), 0, "{what}");
            }
            assert!(granted(limit.try_acquire(0, 1)).is_none(), "{what}");
        }
    }
}

/// A denied caller's wait after a change follows the new numbers.
#[test]
fn who_is_denied_after_a_change_waits_by_the_new_numbers() {
    let minutes = |limit: &mut Ledger, now_ns| retry(limit.try_acquire(now_ns, 1)) / S / 60;
    let changed = |name: &str, was, is, now_ns| {
        let of = |permits| hourly(permits).into_iter().find(|(each, _)| *each == name).unwrap().1;
        let mut limit = Ledger::new(of(was), 0);
        assert!(granted(limit.try_acquire(0, was)).is_some());
        limit.reconfigure(now_ns, of(is)).unwrap();
        limit
    };
    // A bucket has earned a tenth of a permit by the old numbers, and earns the rest by the new.
    for (was, is) in [(5, 10), (10, 5), (1_000, 100), (100, 1_000)] {
        let tenth_ns = HOUR / was / 10;
        let mut bucket = changed("gcra", was, is, tenth_ns);
        assert_eq!(retry(bucket.try_acquire(tenth_ns, 1)), HOUR / is * 9 / 10, "{was} to {is}");
    }
    for name in ["sliding-log", "compact-log", "fixed-window"] {
        let mut lowered = changed(name, 10, 5, 60 * S);
        assert_eq!(minutes(&mut lowered, 60 * S), 59, "{name}");
    }
}

/// A schedule has no allowance: the elapsed part of an interval counts, and the rest follows the
/// new one.
#[test]
fn a_schedule_goes_on_with_the_rest_of_an_interval_of_the_new_rate() {
    for mode in [Mode::Strict, Mode::Average] {
        let of = |text| TwoTimeline::new(rate(text), mode, None);
        let mut limit = Ledger::new(of("5/h"), 0);
        assert_eq!(start(limit.reserve(0, 1, None)), 0);
        limit.reconfigure(72 * S, of("10/h")).unwrap();
        assert_eq!(start(limit.reserve(72 * S, 1, None)), 72 * S + 324 * S, "{mode:?}");
    }
}

/// Another policy begins as used up as the one before it, rounded against the callers; to and from
/// operations in flight there is no way.
#[test]
fn another_policy_begins_as_used_up() {
    for (was, used, is) in [(10, 4, 5), (10, 10, 7), (3, 1, 10), (7, 0, 3), (3, 2, 2)] {
        for (old_name, old) in hourly(was) {
            for (new_name, new) in hourly(is) {
                let what = format!("{used} of {was}: {old_name} to {new_name}");
                let mut limit = Ledger::new(old, 0);
                assert!(used == 0 || granted(limit.try_acquire(0, used)).is_some(), "{what}");
                let changed = limit.reconfigure(0, new);
                if old.counts_in_flight() != new.counts_in_flight() {
                    assert_eq!(changed, Err(LimitError::OtherPolicy), "{what}");
                    assert_eq!(limit.remaining(0), was - used, "{what}");
                } else if !old.counts_in_flight() && !old.is_like(&new) {
                    assert_eq!(limit.remaining(0), is - (is * used).div_ceil(was), "{what}");
                    assert_eq!(limit.peek(2 * HOUR, is), Ok(Some(0)), "{what}");
                }
            }
        }
    }
}

/// Whatever a limit becomes while calls are promised, held, charged and given back, it never has
/// more than it grants at once, keeps its promises, and recovers.
#[test]
fn changes_of_the_policy_keep_the_promises() {
    let kinds = [
        Kind::Bucket,
        Kind::Log,
        Kind::WindowOfFirstCall,
        Kind::BoundedAverage,
        Kind::Strict,
        Kind::SlowLog,
    ];
    for seed in 0..2_000 {
        let mut random = Rng::with_seed(seed);
        let mut in_force = limit_of(&kinds, Scale::Of(S / 30), &mut random);
        let mut played = Played::new(in_force);
        let mut now_ns = 0;
        for step in 0..60 {
            let what = format!("seed {seed}, step {step}: {in_force:?}");
            now_ns += random.choice([0, 0, S / 10, S, 3 * S]).unwrap();
            if random.u64(..8) == 0 {
                in_force = limit_of(&kinds, Scale::Of(S / 30), &mut random);
                played.ledger.reconfigure(now_ns, in_force).unwrap();
            }
            played.step(&Step::random(now_ns, &VERBS, (4, S), &mut random));
            // A schedule catches up on more than it grants at first.
            let catches_up = matches!(in_force, AnyPolicy::TwoTimeline(_));
            let most = if catches_up { u64::MAX } else { in_force.max_at_once() };
            assert!(played.ledger.remaining(now_ns) <= most, "{what}");
            let waits = played.ledger.peek(now_ns, 1).unwrap();
            assert!(waits.is_some_and(|wait_ns| wait_ns < 1_000 * S), "{what}: {waits:?}");
        }
        // What is promised can be cancelled to the end.
        for grant in played.grants.iter().filter(|grant| grant.start_ns > now_ns) {
            assert!(played.ledger.cancel(now_ns, grant.ticket), "seed {seed}");
        }
    }
}
