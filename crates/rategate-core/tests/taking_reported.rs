//! Laws of the starts that are reported to waiters.
//!
//! A waiter that sleeps until its reported start is woken where it may start sooner; one without
//! a reported start is woken when it is the head.

use crate::common::queued::Queued;
use crate::common::{S, log};
use rategate_core::ledger::Ledger;
use rategate_core::line::MIN_GRACE_NS;
use rategate_core::verdict::{Grant, Verdict};

/// Returns a queue of one in any second: the first has been taken, and `waiters` more wait.
fn harness_with(waiters: u32) -> Queued {
    let mut harness = Queued::taking(Ledger::new(log(1, S), 0));
    (0..=waiters).for_each(|id| harness.join(0, id, 1, None).unwrap());
    harness
}

fn reported_start(harness: &mut Queued, id: u32) -> Option<u64> {
    let Queued { line, woken, waiter_ids, .. } = harness;
    line.due_ns(&waiter_ids[&id].0, woken)
}

/// Serves the queue. Returns the waiters woken to take, and those woken to check their starts.
fn served(harness: &mut Queued, now_ns: u64) -> (Vec<u32>, Vec<u32>) {
    harness.line.serve(now_ns, &mut harness.woken);
    (std::mem::take(&mut harness.woken.settled), std::mem::take(&mut harness.woken.moved))
}

/// A due waiter that leaves or does not come frees its start: those behind it sleep no longer
/// than necessary.
#[test]
fn those_behind_one_that_left_are_notified_again() {
    for does_leave in [true, false] {
        let mut harness = harness_with(3);
        let starts = [1, 2, 3].map(|id| reported_start(&mut harness, id));
        assert_eq!(starts, [Some(S), Some(2 * S), Some(3 * S)]);
        assert_eq!(served(&mut harness, S).0, [1]);
        let left_ns = S + MIN_GRACE_NS;
        if does_leave {
            let (waiter_id, _) = harness.waiter_ids.remove(&1).unwrap();
            let Queued { line, woken, .. } = &mut harness;
            line.leave(left_ns, &waiter_id, woken).unwrap();
        }
        let (woken, moved) = served(&mut harness, left_ns);
        assert_eq!((woken, moved), (vec![2], vec![3]), "leaves: {does_leave}");
        assert!(harness.take(left_ns, 2).is_some());
        assert_eq!(reported_start(&mut harness, 3), Some(left_ns + S));
    }
}

/// A waiter whose start would come before the head's, because those before it are late, receives
/// no start.
///
/// It is woken when it is the head. This holds in a long queue; in a short one all starts are
/// reported anew.
#[test]
fn one_without_a_reported_start_is_woken_as_the_head() {
    let mut harness = harness_with(20);
    let starts = [1, 2, 3].map(|id| reported_start(&mut harness, id));
    assert_eq!(starts, [Some(S), Some(2 * S), Some(3 * S)]);
    harness.line.set_grace(Some(10 * S));
    assert_eq!(served(&mut harness, S).0, [1]);
    let late_ns = 2 * S + S / 2;
    assert!(harness.take(late_ns, 1).is_some());
    assert!(served(&mut harness, late_ns).0.is_empty());
    assert_eq!(
        (reported_start(&mut harness, 2), reported_start(&mut harness, 3)),
        (Some(late_ns + S), None)
    );
    assert_eq!(served(&mut harness, late_ns + S), (vec![2], vec![3]), "it waits for a word");
    assert!(harness.take(late_ns + S, 2).is_some());
    assert_eq!(reported_start(&mut harness, 3), Some(late_ns + 2 * S));
    // No other waiter is woken needlessly.
    assert_eq!(served(&mut harness, late_ns + S), (vec![], vec![]));
}

/// Several waiters that came too late are at the head of the queue in the order of coming.
#[test]
fn those_that_come_back_are_served_in_the_order_of_coming() {
    let mut harness = harness_with(4);
    for (id, step) in [(1, 0), (2, 1)] {
        assert_eq!(served(&mut harness, S + step * MIN_GRACE_NS).0, [id]);
    }
    let now_ns = S + 2 * MIN_GRACE_NS;
    harness.pass(now_ns);
    assert_eq!(harness.starts[&3], (now_ns, 1));
    assert!([1, 2].iter().all(|&id| harness.take(now_ns + 5, id).is_none()));
    harness.pass(9 * S);
    let starts = [1, 2, 4].map(|id| harness.starts[&id].0);
    assert_eq!(starts, [1, 2, 3].map(|seconds| now_ns + seconds * S));
}

/// A reservation comes behind all waiters, and the next one behind it.
#[test]
fn reservations_stand_behind_the_waiters() {
    let mut harness = harness_with(2);
    let Queued { line, woken, .. } = &mut harness;
    for start_ns in [3 * S, 4 * S] {
        let reserved = line.reserve(5, 1, None, woken);
        let is_next = |grant: Grant| grant.start_ns == start_ns;
        assert!(matches!(reserved, Ok(Some(Verdict::Granted(grant))) if is_next(grant)));
    }
    let tried = line.behind_all(5, woken, |limit, now_ns| limit.peek(now_ns, 1));
    assert_eq!(tried, Some(Ok(Some(5 * S - 5))));
    harness.pass(2 * S);
    assert_eq!([1, 2].map(|id| harness.starts[&id].0), [S, 2 * S]);
}
