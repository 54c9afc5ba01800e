//! Laws of waiters that take: those in time start as promised, and lateness costs little.
//!
//! No caller overtakes a due waiter, and a waiter that never comes costs one grace period.

use crate::common::bounds::{Bound, bounds};
use crate::common::queued::Queued;
use std::num::NonZeroU64;

use crate::common::{MS, S, bucket, log, rate, start};
use fastrand::Rng;
use rategate_core::backfill_pool::BackfillPool;
use rategate_core::concurrency::Concurrency;
use rategate_core::ledger::Ledger;
use rategate_core::line::{MIN_GRACE_NS, Outcome, Request};
use rategate_core::ratio::Ratio;
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::verdict::Verdict;

/// The woken waiters, and when each comes.
type Coming = Vec<(u64, u32)>;

/// Waiters that come in time start exactly at their promised starts, with no loss.
#[test]
fn waiters_in_time_start_as_promised() {
    for seed in 0..1_000 {
        let mut random = Rng::with_seed(seed);
        let Bound { policies, .. } = bounds(&mut random);
        let limit = Ledger::new(policies.as_slice(), 0);
        let (mut taking, mut promised) = (Queued::taking(limit.clone()), Queued::new(limit));
        let mut now_ns = 0;
        for id in 0..80 {
            now_ns += random.u64(0..=MS / 3);
            taking.pass(now_ns);
            promised.serve(now_ns);
            if random.u64(..8) == 0 {
                let id = u32::try_from(random.u64(0..=u64::from(id))).unwrap();
                assert_eq!(taking.leave(now_ns, id), promised.leave(now_ns, id), "seed {seed}");
                continue;
            }
            let max_wait_ns = random.choice([None, None, Some(2 * MS)]).unwrap();
            let one = taking.join(now_ns, id, 1, max_wait_ns);
            assert_eq!(one, promised.join(now_ns, id, 1, max_wait_ns), "seed {seed}: {policies:?}");
            taking.pass(now_ns);
        }
        taking.pass(now_ns + 10 * S);
        promised.serve(now_ns + 10 * S);
        assert_eq!(taking.starts, promised.starts, "seed {seed}: {policies:?}");
    }
}

/// A bucket of burst `B` loses nothing of its rate while waiters are less than `(B - 1) T` late.
///
/// One of burst 1 loses the lateness (docs/theory.md, section 10.4).
#[test]
fn a_bucket_makes_up_for_lateness_within_its_burst() {
    let rate_with = |burst, late_ns| {
        let limit = Ledger::new(bucket("1000/s", burst), 0);
        let mut harness = Queued::taking(limit);
        (0..1_200).for_each(|id| harness.join(0, id, 1, None).unwrap());
        let (mut now_ns, mut coming) = (0, Coming::new());
        while now_ns < S {
            harness.line.serve(now_ns, &mut harness.woken);
            let woken = std::mem::take(&mut harness.woken.settled);
            coming.extend(woken.into_iter().map(|id| (now_ns + late_ns, id)));
            let due = coming.extract_if(.., |come| come.0 <= now_ns).collect::<Vec<_>>();
            for (_, id) in due {
                assert!(harness.take(now_ns, id).is_some());
            }
            harness.line.serve(now_ns, &mut harness.woken);
            let next_ns = harness.line.next_ns(None).into_iter();
            let next_ns = next_ns.chain(coming.iter().map(|come| come.0)).min().unwrap();
            now_ns = next_ns.max(now_ns + 1);
        }
        harness.starts.len()
    };
    assert_eq!(rate_with(3, 0), 1_002);
    assert!(rate_with(3, 2 * MS - 1) >= 1_000, "{}", rate_with(3, 2 * MS - 1));
    assert!((900..=912).contains(&rate_with(1, MS / 10)), "{}", rate_with(1, MS / 10));
}

/// A waiter that does not take loses its provisional grant after the grace period, once, whether it
/// joined or waits for a promise.
///
/// It is first again when it comes (docs/theory.md, section 10.7).
#[test]
fn a_waiter_that_never_comes_costs_one_grace_period() {
    for is_promised in [false, true] {
        let mut harness = Queued::taking(Ledger::new(log(1, S), 0));
        harness.join(0, 0, 1, None).unwrap();
        if is_promised {
            harness.promise(0, 1).unwrap();
        } else {
            harness.join(0, 1, 1, None).unwrap();
        }
        (2..4).for_each(|id| harness.join(0, id, 1, None).unwrap());
        harness.take_due(0);
        harness.line.serve(S, &mut harness.woken);
        let woken = std::mem::take(&mut harness.woken.settled);
        assert!(is_promised || woken == [1], "woken, and it does not come: {woken:?}");
        assert_eq!(harness.line.next_ns(None), Some(S + MIN_GRACE_NS));
        harness.line.serve(S + MIN_GRACE_NS - 1, &mut harness.woken);
        assert!(harness.woken.settled.is_empty());
        // The next waiter has the grant at once, and the one behind a period after that one's
        // start.
        harness.pass(S + MIN_GRACE_NS);
        assert_eq!(harness.starts[&2], (S + MIN_GRACE_NS, 1));
        // It comes at last: head of the queue, behind no other waiter, and exact.
        assert_eq!(harness.take(S + 2 * MIN_GRACE_NS, 1), None);
        harness.pass(5 * S);
        assert_eq!(harness.starts[&1], (2 * S + MIN_GRACE_NS, 1));
        assert_eq!(harness.starts[&3], (3 * S + MIN_GRACE_NS, 1));
        assert!(harness.line.is_idle(5 * S));
    }
}

/// Each of several due waiters takes when it comes; a late one occupies only its own slot of the
/// limit (docs/theory.md, section 10.6).
#[test]
fn one_late_waiter_holds_one_slot() {
    let limit = Ledger::new(log(3, S), 0);
    let mut harness = Queued::taking(limit);
    (0..9).for_each(|id| harness.join(0, id, 1, None).unwrap());
    harness.take_due(0);
    harness.line.serve(S, &mut harness.woken);
    assert_eq!(std::mem::take(&mut harness.woken.settled), [3, 4, 5]);
    // The first of them is late.
    for id in [5, 4] {
        assert!(harness.take(S + 7, id).is_some());
    }
    harness.line.serve(S + 7, &mut harness.woken);
    assert_eq!(
        harness.line.next_ns(None),
        Some(S + MIN_GRACE_NS),
        "then its slot goes to the next"
    );
    assert!(harness.take(S + 9 * MS, 3).is_some());
    harness.line.serve(S + 9 * MS, &mut harness.woken);
    assert_eq!(harness.line.next_ns(None), Some(2 * S + 7), "the others' slots");
    harness.pass(2 * S + 7);
    assert_eq!(harness.starts.len(), 8);
    harness.pass(3 * S);
    assert_eq!(harness.starts[&8], (2 * S + 9 * MS, 1));
}

/// A change of the numbers between waking and taking applies to the waiter that takes.
#[test]
fn a_change_between_waking_and_taking_holds() {
    let mut harness = Queued::taking(Ledger::new(bucket("1/s", 1), 0));
    (0..2).for_each(|id| harness.join(0, id, 1, None).unwrap());
    harness.take_due(0);
    harness.line.serve(S, &mut harness.woken);
    assert_eq!(std::mem::take(&mut harness.woken.settled), [1]);
    harness.change(S, |limit| limit.reconfigure(S, bucket("never", 1)).unwrap());
    assert_eq!(harness.take(S, 1), None, "decided again");
    harness.line.serve(S, &mut harness.woken);
    assert_eq!(harness.woken.settled, [1], "and settled, because it never will");

    // Permits in flight are provisional for the woken waiter, too.
    let mut harness = Queued::taking(Ledger::new(Concurrency::new(1), 0));
    (0..3).for_each(|id| harness.join(0, id, 1, None).unwrap());
    harness.change(5, |limit| limit.release(5, 1));
    assert_eq!(std::mem::take(&mut harness.woken.settled), [1]);
    let Queued { line, woken, .. } = &mut harness;
    let tried = line.behind_all(6, woken, |limit, now_ns| limit.try_acquire(now_ns, 1));
    assert!(tried.is_none(), "behind one that waits for an act");
    assert!(harness.take(7, 1).is_some());
}

/// Closing ends the waits of due waiters, and their provisional permits are free.
#[test]
fn closing_ends_the_waits_of_those_that_are_due() {
    let mut harness = Queued::taking(Ledger::new(log(2, S), 0));
    (0..5).for_each(|id| harness.join(0, id, 1, None).unwrap());
    harness.take_due(0);
    harness.line.serve(S, &mut harness.woken);
    harness.line.close(S, &mut harness.woken);
    for id in 2..5 {
        assert_eq!(harness.take(S, id), Some(Outcome::Closed), "{id}");
    }
    assert_eq!(harness.limit().remaining(S), 2);
}

/// A waiter whose grant was withdrawn, and that comes after the closing, learns of the closing.
#[test]
fn closing_ends_the_wait_of_one_that_is_withdrawn() {
    let mut harness = Queued::taking(Ledger::new(log(1, S), 0));
    (0..2).for_each(|id| harness.join(0, id, 1, None).unwrap());
    harness.line.serve(S, &mut harness.woken);
    harness.line.serve(S + MIN_GRACE_NS, &mut harness.woken);
    assert_eq!(harness.limit().remaining(S + MIN_GRACE_NS), 1, "withdrawn");
    harness.line.close(S + MIN_GRACE_NS, &mut harness.woken);
    assert_eq!(harness.take(2 * S, 1), Some(Outcome::Closed));
    assert!(harness.line.is_idle(2 * S));
}

/// Waiters that are all later than the shortest grace period do not take the grant from each
/// other for ever: the period follows their lateness.
#[test]
fn waiters_that_are_all_late_get_on() {
    let period_ns = 50 * MS;
    let mut harness = Queued::taking(Ledger::new(log(1, period_ns), 0));
    (0..8).for_each(|id| harness.join(0, id, 1, None).unwrap());
    let late_ns = 3 * MIN_GRACE_NS;
    let (mut now_ns, mut coming) = (0, Coming::new());
    while harness.starts.len() < 8 {
        harness.line.serve(now_ns, &mut harness.woken);
        let woken = std::mem::take(&mut harness.woken.settled);
        coming.extend(woken.into_iter().map(|id| (now_ns + late_ns, id)));
        for (_, id) in coming.extract_if(.., |come| come.0 <= now_ns).collect::<Vec<_>>() {
            let _ = harness.take(now_ns, id);
        }
        harness.line.serve(now_ns, &mut harness.woken);
        let next_ns = harness.line.next_ns(None).into_iter();
        let next_ns = next_ns.chain(coming.iter().map(|come| come.0)).min();
        now_ns = next_ns.unwrap_or(now_ns).max(now_ns + 1);
        // Each window, each lateness, and what the first ones lose to the short period.
        assert!(now_ns < 8 * (period_ns + late_ns) + 4 * late_ns, "{:?}", harness.starts);
    }
}

/// Permits provisional for a late waiter are not granted to a call in a gap before a promise.
#[test]
fn a_gap_before_a_promise_is_kept_for_what_is_held() {
    let mut harness = Queued::taking(Ledger::new(log(4, S), 0));
    harness.join(0, 0, 4, None).unwrap();
    (1..4).for_each(|id| harness.join(0, id, 1, None).unwrap());
    harness.line.serve(S, &mut harness.woken);
    (1..3).for_each(|id| assert!(harness.take(S, id).is_some()));
    let Queued { line, woken, .. } = &mut harness;
    let reserved = line.reserve(S, 3, None, woken);
    assert!(matches!(reserved, Ok(Some(Verdict::Granted(grant))) if grant.start_ns == 2 * S));
    let tried = line.behind_all(S + 5, woken, |limit, now_ns| limit.try_acquire(now_ns, 1));
    assert!(matches!(tried, Some(Ok(Verdict::Denied(_)))), "{tried:?}");
    assert!(matches!(harness.take(S + 9, 3), Some(Outcome::Granted(_))));
}

/// Classes whose waiters take share by weight, each start charged once.
#[test]
fn classes_share_by_weight_where_waiters_take() {
    let mut harness = Queued::taking(Ledger::new(log(1, MS), 0));
    let heavy = harness.line.add_class(0, 3.try_into().unwrap(), &mut harness.woken).unwrap();
    for id in 0..400 {
        let request = Request::of(1);
        let request = if id % 2 == 0 { request } else { request.in_class(heavy) };
        harness.request(0, id, request).unwrap();
    }
    harness.pass(200 * MS);
    let of_heavy = harness.in_order.iter().filter(|&id| id % 2 == 1).count();
    assert!((149..=152).contains(&of_heavy), "{of_heavy} of {}", harness.in_order.len());
}

/// A waiter that came too late is charged when it is due, and not again when it comes back.
#[test]
fn one_that_comes_back_is_charged_once() {
    let mut harness = Queued::taking(Ledger::new(log(1, S), 0));
    let other = harness.line.add_class(0, 1.try_into().unwrap(), &mut harness.woken).unwrap();
    harness.join(0, 0, 1, None).unwrap();
    // In order: 1 and 3 of the first class, 2 and 4 of the other.
    for id in 1..7 {
        let request = Request::of(1);
        harness
            .request(0, id, if id % 2 == 1 { request } else { request.in_class(other) })
            .unwrap();
    }
    harness.line.serve(S, &mut harness.woken);
    let late = std::mem::take(&mut harness.woken.settled);
    let [late] = late[..] else { panic!("{late:?}") };
    harness.pass(S + MIN_GRACE_NS);
    assert_eq!(harness.take(S + MIN_GRACE_NS + 5, late), None);
    harness.pass(9 * S);
    let classes: Vec<u32> = harness.in_order.iter().skip(1).map(|id| id % 2).collect();
    let first = late % 2;
    // The other class used the start that was lost; from then on they alternate.
    assert_eq!(classes, [1 - first, first, first, 1 - first, first, 1 - first]);
}

/// A pool and a schedule that keeps its promises, for contrast: only the schedule is not shifted.
#[test]
fn a_schedule_promises_instants() {
    let pool = BackfillPool::new(5, "1.5".parse().unwrap(), Some("1/s".parse().unwrap())).unwrap();
    assert!(!Ledger::new(pool, 0).keeps_schedule());
    for (mode, keeps) in [(Mode::Average, true), (Mode::Strict, false)] {
        let limit = Ledger::new(TwoTimeline::new(rate("1/s"), mode, None), 0);
        assert_eq!(limit.keeps_schedule(), keeps);
        let mut harness = Queued::taking(limit);
        (0..3).for_each(|id| harness.join(0, id, 1, None).unwrap());
        harness.line.serve(0, &mut harness.woken);
        harness.line.serve(S + 9, &mut harness.woken);
        let Some(Outcome::Granted(grant)) = harness.take(S + 9, 1) else { panic!("{mode:?}") };
        let start_ns = if keeps { S } else { S + 9 };
        assert_eq!((grant.promised_ns, grant.start_ns, grant.scheduled_ns), (S, start_ns, S));
    }
}

/// Reservations behind a due waiter keep their distance from each other, whenever they are
/// requested.
#[test]
fn promises_behind_what_is_held_keep_their_steps() {
    for (mode, step_ns) in [(Mode::Strict, 1_000), (Mode::Burst(Ratio::new(3, 2).unwrap()), 666)] {
        for later_ns in [0, 1, 100, 500, 665] {
            let mut limit = Ledger::new(TwoTimeline::new(rate("1000000/s"), mode, None), 0);
            limit.pass_to(MS);
            limit.hold(NonZeroU64::MIN);
            let first_ns = start(limit.reserve(MS, 1, None));
            let second_ns = start(limit.reserve(MS + later_ns, 1, None));
            let apart_ns = second_ns - first_ns;
            assert!(apart_ns >= step_ns, "{mode:?}: {apart_ns} ns, requested {later_ns} ns later");
        }
    }
}
