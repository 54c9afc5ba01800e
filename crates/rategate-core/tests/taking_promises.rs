//! Laws of reservations with waiters: in time they start as promised.
//!
//! Late, they take when they come, and never at the cost of promises to other callers.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

mod common;

use common::S;
use common::queued::Queued;
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit;
use rategate_core::queue::{Bounds, MIN_GRACE_NS, Outcome};
use rategate_core::sliding_log::SlidingLog;
use rategate_core::verdict::Verdict;

/// Returns a queue with one in any second, of which the first has been taken.
fn used_up() -> Queued<Ledger<SlidingLog>> {
    let mut line = Queued::taking(Ledger::new(SlidingLog::new(1, S).unwrap(), 0));
    line.join(0, 0, 1, None).unwrap();
    line
}

/// Reservations that are waited for start as promised, in any order of coming, and not a
/// nanosecond sooner.
#[test]
fn waiters_in_time_start_as_promised() {
    let mut line = used_up();
    assert_eq!([1, 2, 3].map(|id| line.promise(0, id)), [Some(S), Some(2 * S), Some(3 * S)]);
    assert_eq!(line.take(S - 1, 1), None, "not sooner");
    for id in 1..4 {
        // Those behind it have been promised later starts, which it does not disturb.
        let at_ns = u64::from(id) * S;
        let Some(Outcome::Granted(grant)) = line.take(at_ns, id) else { panic!("{id}") };
        assert_eq!((grant.start_ns, grant.promised_ns), (at_ns, at_ns));
    }
    assert!(line.queue.is_idle(3 * S));
}

/// Earlier promises start in time as well: the ones behind them are not disturbed.
#[test]
fn promises_of_before_are_taken_in_time() {
    let mut line = used_up();
    let promised = [1, 2].map(|_| {
        let Ok(Verdict::Granted(grant)) = line.limit.reserve(0, 1, None) else {
            panic!("it waits")
        };
        grant
    });
    for (grant, at_ns) in promised.iter().zip([S, 2 * S]) {
        let Queued { queue, limit, woken, .. } = &mut line;
        let place = queue.wait_for_promise(limit, 5, 0, grant).unwrap();
        let Some(Outcome::Granted(grant)) = queue.take(limit, at_ns, &place, || 7, woken) else {
            panic!("in time")
        };
        assert_eq!((grant.start_ns, grant.promised_ns), (at_ns, at_ns));
    }
}

/// Reservations while as many are due as could ever start together also come behind each other.
#[test]
fn reservations_behind_a_full_hold_keep_the_limit() {
    let mut line = Queued::taking(Ledger::new(SlidingLog::new(2, 20).unwrap(), 0));
    line.join(0, 0, 2, None).unwrap();
    for id in 1..3 {
        line.join(0, id, 1, None).unwrap();
    }
    line.serve(20);
    let Queued { queue, limit, woken, .. } = &mut line;
    let mut promised_ns: Vec<u64> = Vec::new();
    for _ in 0..7 {
        let reserved = queue.reserve(limit, 20, 1, None, woken);
        let Some(Ok(Verdict::Granted(grant))) = reserved else { panic!("{reserved:?}") };
        promised_ns.push(grant.start_ns);
    }
    promised_ns.sort_unstable();
    assert!(promised_ns[0] >= 40, "behind those that are due");
    assert!(promised_ns.windows(3).all(|three| three[2] - three[0] >= 20), "{promised_ns:?}");
}

/// The bounds of a queue apply to waiting callers only: one that may start at once needs no free
/// slot, also while another is due.
#[test]
fn a_newcomer_that_starts_at_once_needs_no_room_in_line() {
    let bucket = Gcra::new("10/s".parse().unwrap(), 50).unwrap();
    let mut line = Queued::taking(Ledger::new(bucket, 0));
    line.queue.set_bounds(Bounds::default().with_permits(4));
    line.join(0, 0, 50, None).unwrap();
    line.join(0, 1, 1, None).unwrap();
    line.serve(3 * S);
    line.join(3 * S, 2, 5, None).unwrap();
    assert!(matches!(line.take(3 * S, 2), Some(Outcome::Granted(_))));
}

/// A late waiter keeps its provisional permits meanwhile, and counts from when it comes.
///
/// A promise that its owner keeps alone stays unchanged: the late one starts behind it.
#[test]
fn a_late_waiter_starts_behind_a_kept_promise() {
    let mut line = used_up();
    line.promise(0, 1).unwrap();
    let Queued { queue, limit, woken, .. } = &mut line;
    let reserved = queue.reserve(limit, 0, 1, None, woken);
    assert!(matches!(reserved, Some(Ok(Verdict::Granted(grant))) if grant.start_ns == 2 * S));
    assert_eq!(line.take(S + 5, 1), None, "less than a second before that");
    line.pass(2 * S);
    assert!(!line.starts.contains_key(&1));
    line.pass(3 * S);
    assert_eq!(line.starts[&1], (3 * S, 1));
}

/// Without a promise in its way it takes when it comes, and the next start is a second later.
#[test]
fn a_late_waiter_counts_from_when_it_comes() {
    let mut line = used_up();
    line.promise(0, 1).unwrap();
    line.join(0, 2, 1, None).unwrap();
    line.queue.serve(&mut line.limit, S + 5, &mut line.woken);
    assert_eq!(line.limit.remaining(S + 5), 0, "held");
    let Some(Outcome::Granted(grant)) = line.take(S + 5, 1) else { panic!("it fits") };
    assert_eq!((grant.start_ns, grant.promised_ns), (S + 5, S));
    line.pass(2 * S + 4);
    assert!(!line.starts.contains_key(&2));
    line.pass(2 * S + 5);
    assert_eq!(line.starts[&2], (2 * S + 5, 1));
}

/// A promise under other numbers is kept under the new ones.
#[test]
fn a_change_of_the_numbers_keeps_the_promise() {
    let bucket = |rate: &str| Gcra::new(rate.parse().unwrap(), 1).unwrap();
    let mut line = Queued::taking(Ledger::new(bucket("1/s"), 0));
    line.join(0, 0, 1, None).unwrap();
    line.promise(0, 1).unwrap();
    line.queue.unbook(&mut line.limit, 5);
    line.limit.reconfigure(5, bucket("1/h"));
    line.queue.serve(&mut line.limit, 5, &mut line.woken);
    let Some(Outcome::Granted(grant)) = line.take(S + 7, 1) else { panic!("it was promised") };
    assert_eq!((grant.start_ns, grant.promised_ns), (S + 7, S));
}

/// A waiter that never comes costs a grace period, and is at the head of the queue when it does.
#[test]
fn one_that_never_comes_costs_a_grace_period() {
    let mut line = used_up();
    line.promise(0, 1).unwrap();
    line.join(0, 2, 1, None).unwrap();
    line.pass(S + MIN_GRACE_NS - 1);
    assert!(!line.starts.contains_key(&2));
    line.pass(S + MIN_GRACE_NS);
    assert_eq!(line.starts[&2], (S + MIN_GRACE_NS, 1));
    line.join(S + MIN_GRACE_NS, 3, 1, None).unwrap();
    assert_eq!(line.take(S + 2 * MIN_GRACE_NS, 1), None);
    line.pass(5 * S);
    assert_eq!(line.starts[&1], (2 * S + MIN_GRACE_NS, 1));
    assert_eq!(line.starts[&3], (3 * S + MIN_GRACE_NS, 1));
}

/// A waiter that leaves before its start frees its promise, and after it its provisional permits.
#[test]
fn one_that_leaves_gives_all_back() {
    for left_ns in [S / 2, S + 5] {
        let mut line = used_up();
        line.promise(0, 1).unwrap();
        line.join(0, 2, 1, None).unwrap();
        line.queue.serve(&mut line.limit, left_ns, &mut line.woken);
        assert!(line.leave(left_ns, 1));
        line.pass(left_ns.max(S));
        assert_eq!(line.starts[&2], (left_ns.max(S), 1), "left at {left_ns}");
        assert!(line.queue.is_idle(2 * S));
    }
}
