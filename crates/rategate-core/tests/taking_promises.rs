//! Laws of reservations with waiters: in time they start as promised.
//!
//! Late, they take when they come, and never at the cost of promises to other callers.

use crate::common::queued::Queued;
use crate::common::{S, bucket, log};
use rategate_core::ledger::Ledger;
use rategate_core::line::{Outcome, QueueBounds};
use rategate_core::verdict::Verdict;

/// Returns a queue with one in any second, of which the first has been taken.
fn used_up() -> Queued {
    let mut harness = Queued::taking(Ledger::new(log(1, S), 0));
    harness.join(0, 0, 1, None).unwrap();
    harness
}

/// Reservations that are waited for start as promised, in any order of coming, and not a
/// nanosecond sooner.
#[test]
fn waiters_in_time_start_as_promised() {
    let mut harness = used_up();
    assert_eq!([1, 2, 3].map(|id| harness.promise(0, id)), [Some(S), Some(2 * S), Some(3 * S)]);
    assert_eq!(harness.take(S - 1, 1), None, "not sooner");
    for id in 1..4 {
        // Those behind it have been promised later starts, which it does not disturb.
        let at_ns = u64::from(id) * S;
        let Some(Outcome::Granted(grant)) = harness.take(at_ns, id) else { panic!("{id}") };
        assert_eq!((grant.start_ns, grant.promised_ns), (at_ns, at_ns));
    }
    assert!(harness.line.is_idle(3 * S));
}

/// Earlier promises start in time as well: the ones behind them are not disturbed.
#[test]
fn promises_of_before_are_taken_in_time() {
    let mut harness = used_up();
    let promised = [1, 2].map(|_| {
        let Ok(Verdict::Granted(grant)) = harness.line.limit_mut().reserve(0, 1, None) else {
            panic!("it waits")
        };
        grant
    });
    for (grant, at_ns) in promised.iter().zip([S, 2 * S]) {
        let Queued { line, woken, .. } = &mut harness;
        let waiter_id = line.wait_for_promise(5, 0, grant).unwrap();
        let Some(Outcome::Granted(grant)) = line.take(at_ns, &waiter_id, || 7, woken) else {
            panic!("in time")
        };
        assert_eq!((grant.start_ns, grant.promised_ns), (at_ns, at_ns));
    }
}

/// Reservations while as many are due as could ever start together also come behind each other.
#[test]
fn reservations_behind_a_full_hold_keep_the_limit() {
    let mut harness = Queued::taking(Ledger::new(log(2, 20), 0));
    harness.join(0, 0, 2, None).unwrap();
    for id in 1..3 {
        harness.join(0, id, 1, None).unwrap();
    }
    harness.serve(20);
    let Queued { line, woken, .. } = &mut harness;
    let mut promised_ns: Vec<u64> = Vec::new();
    for _ in 0..7 {
        let reserved = line.reserve(20, 1, None, woken);
        let Ok(Some(Verdict::Granted(grant))) = reserved else { panic!("{reserved:?}") };
        promised_ns.push(grant.start_ns);
    }
    promised_ns.sort_unstable();
    assert!(promised_ns[0] >= 40, "behind those that are due");
    assert!(promised_ns.windows(3).all(|three| three[2] - three[0] >= 20), "{promised_ns:?}");
}

/// The bounds of a queue apply to waiting callers only: one that may start at once needs no free
/// slot, also while another is due.
#[test]
fn a_caller_that_starts_at_once_needs_no_capacity_in_the_queue() {
    let bucket = bucket("10/s", 50);
    let mut harness = Queued::taking(Ledger::new(bucket, 0));
    harness.line.set_bounds(QueueBounds::default().with_permits(4));
    harness.join(0, 0, 50, None).unwrap();
    harness.join(0, 1, 1, None).unwrap();
    harness.serve(3 * S);
    harness.join(3 * S, 2, 5, None).unwrap();
    assert!(matches!(harness.take(3 * S, 2), Some(Outcome::Granted(_))));
}

/// A late waiter keeps its provisional permits meanwhile, and counts from when it comes.
///
/// A promise that its owner keeps alone stays unchanged: the late one starts behind it.
#[test]
fn a_late_waiter_starts_behind_a_kept_promise() {
    let mut harness = used_up();
    harness.promise(0, 1).unwrap();
    let Queued { line, woken, .. } = &mut harness;
    let reserved = line.reserve(0, 1, None, woken);
    assert!(matches!(reserved, Ok(Some(Verdict::Granted(grant))) if grant.start_ns == 2 * S));
    assert_eq!(harness.take(S + 5, 1), None, "less than a second before that");
    harness.pass(2 * S);
    assert!(!harness.starts.contains_key(&1));
    harness.pass(3 * S);
    assert_eq!(harness.starts[&1], (3 * S, 1));
}

/// Without a promise in its way it takes when it comes, and the next start is a second later.
#[test]
fn a_late_waiter_counts_from_when_it_comes() {
    let mut harness = used_up();
    harness.promise(0, 1).unwrap();
    harness.join(0, 2, 1, None).unwrap();
    harness.line.serve(S + 5, &mut harness.woken);
    assert_eq!(harness.limit().remaining(S + 5), 0, "held");
    let Some(Outcome::Granted(grant)) = harness.take(S + 5, 1) else { panic!("it fits") };
    assert_eq!((grant.start_ns, grant.promised_ns), (S + 5, S));
    harness.pass(2 * S + 4);
    assert!(!harness.starts.contains_key(&2));
    harness.pass(2 * S + 5);
    assert_eq!(harness.starts[&2], (2 * S + 5, 1));
}

/// A promise under other numbers is kept under the new ones.
#[test]
fn a_change_of_the_numbers_keeps_the_promise() {
    let mut harness = Queued::taking(Ledger::new(bucket("1/s", 1), 0));
    harness.join(0, 0, 1, None).unwrap();
    harness.promise(0, 1).unwrap();
    harness.change(5, |limit| limit.reconfigure(5, bucket("1/h", 1)).unwrap());
    let Some(Outcome::Granted(grant)) = harness.take(S + 7, 1) else { panic!("it was promised") };
    assert_eq!((grant.start_ns, grant.promised_ns), (S + 7, S));
}

/// A waiter that leaves before its start frees its promise, and after it its provisional permits.
#[test]
fn one_that_leaves_returns_all() {
    for left_ns in [S / 2, S + 5] {
        let mut harness = used_up();
        harness.promise(0, 1).unwrap();
        harness.join(0, 2, 1, None).unwrap();
        harness.line.serve(left_ns, &mut harness.woken);
        assert!(harness.leave(left_ns, 1));
        harness.pass(left_ns.max(S));
        assert_eq!(harness.starts[&2], (left_ns.max(S), 1), "left at {left_ns}");
        assert!(harness.line.is_idle(2 * S));
    }
}
