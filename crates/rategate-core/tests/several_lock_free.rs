//! Tests that the lock-free form of several limits decides as they do alone, in every number.
//!
//! Both receive the same stories, on a clock that also goes back.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::common::{MS, S, US};
use fastrand::Rng;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::concurrency::Concurrency;
use rategate_core::concurrent::several::MAX_LIMITS;
use rategate_core::concurrent::{Fast, LockFreeVerdict};
use rategate_core::debt::Debt;
use rategate_core::error::{ExceedsCapacity, LimitError};
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::refund::RefundEpoch;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::verdict::{Denial, Grant, Ticket, Verdict};

fn gcra(rate: &str, burst: u64) -> AnyPolicy {
    Gcra::new(rate.parse().unwrap(), burst).unwrap().into()
}

fn window(permits: u64, period_ns: u64, anchor: Anchor) -> AnyPolicy {
    FixedWindow::new(permits, Duration::from_nanos(period_ns), anchor).into()
}

/// The limits alone, and the same limits behind their lock-free form.
struct Pair {
    plain: Ledger,
    limit: Ledger,
    lock_free: Fast,
    /// The number of calls that the lock-free form has decided.
    lock_free_count: u64,
    /// The number of permits credited.
    back: u64,
}

/// Returns the reported part of a grant, which does not depend on the form that made it.
fn visible(grant: &Grant) -> impl PartialEq + std::fmt::Debug + use<> {
    let Grant { start_ns, scheduled_ns, permits, .. } = *grant;
    (start_ns, scheduled_ns, permits)
}

impl Pair {
    fn new(policies: &[AnyPolicy], now_ns: u64) -> Self {
        let plain = Ledger::new(policies, now_ns);
        let mut limit = plain.clone();
        let lock_free = limit.lock_free(now_ns);
        Self { plain, limit, lock_free, lock_free_count: 0, back: 0 }
    }

    /// Acts under the lock, as a limiter does.
    fn locked<T>(&mut self, now_ns: u64, act: impl Fn(&mut Ledger) -> T) -> (T, T) {
        self.limit.seal(&self.lock_free);
        let own = act(&mut self.limit);
        self.limit.open(&self.lock_free, now_ns);
        let ideal = act(&mut self.plain);
        self.plain.pass_to(now_ns);
        (ideal, own)
    }

    /// Tries both. Returns their grants, if they are granted.
    fn tried(&mut self, what: &str, now_ns: u64, permits: u64) -> Option<(Grant, Grant)> {
        let own = match self.lock_free.try_acquire(|| now_ns, permits) {
            LockFreeVerdict::Granted { start_ns, scheduled_ns } => {
                let ticket = Ticket::booked(start_ns, 0, RefundEpoch::UNKNOWN);
                let promised_ns = start_ns;
                Verdict::Granted(Grant { start_ns, promised_ns, scheduled_ns, permits, ticket })
            }
            LockFreeVerdict::Denied { retry_after_ns } => {
                Verdict::Denied(Denial { retry_after_ns: Some(retry_after_ns) })
            }
            LockFreeVerdict::Sealed => {
                let (ideal, own) = self.locked(now_ns, |limit| limit.try_acquire(now_ns, permits));
                return same(what, ideal, own);
            }
        };
        self.lock_free_count += 1;
        same(what, self.plain.try_acquire(now_ns, permits), Ok(own))
    }

    /// Cancels both grants. Returns both results, if they differ.
    fn cancel(&mut self, now_ns: u64, ideal: &Grant, own: &Grant) -> Option<(bool, bool)> {
        self.limit.seal(&self.lock_free);
        let own = self.limit.cancel(now_ns, own.ticket);
        self.limit.open(&self.lock_free, now_ns);
        let ideal = self.plain.cancel(now_ns, ideal.ticket);
        self.plain.pass_to(now_ns);
        (own != ideal).then_some((ideal, own))
    }

    fn credit(&mut self, what: &str, now_ns: u64, permits: u64) {
        let (ideal, own) = self.locked(now_ns, |limit| limit.credit(now_ns, permits));
        assert_eq!(own, ideal, "{what}");
        self.back += ideal;
    }

    fn compare_status(&mut self, what: &str, now_ns: u64, permits: u64) {
        if let Some(wait_ns) = self.lock_free.peek(now_ns, permits) {
            self.lock_free_count += 1;
            assert_eq!(self.plain.peek(now_ns, permits), Ok(Some(wait_ns)), "{what}");
        } else {
            let (ideal, own) = self.locked(now_ns, |limit| limit.peek(now_ns, permits));
            assert_eq!(own, ideal, "{what}");
        }
        if let Some(left) = self.lock_free.remaining(now_ns) {
            assert_eq!(left, self.plain.remaining(now_ns), "{what}");
        } else {
            let (ideal, own) = self.locked(now_ns, |limit| limit.remaining(now_ns));
            assert_eq!(own, ideal, "{what}");
        }
    }

    fn changes(&mut self, what: &str, now_ns: u64, policies: &[AnyPolicy]) {
        let own = self.limit.change(&self.lock_free, || now_ns, policies);
        assert_eq!(own, self.plain.reconfigure(now_ns, policies), "{what}");
        self.plain.pass_to(now_ns);
    }
}

fn same(
    what: &str,
    ideal: Result<Verdict, ExceedsCapacity>,
    own: Result<Verdict, ExceedsCapacity>,
) -> Option<(Grant, Grant)> {
    match (ideal, own) {
        (Ok(Verdict::Granted(ideal)), Ok(Verdict::Granted(own))) => {
            assert_eq!(visible(&own), visible(&ideal), "{what}");
            Some((ideal, own))
        }
        (ideal, own) => {
            assert_eq!(own, ideal, "{what}");
            None
        }
    }
}

/// Plays tries, peeks, reservations, cancels, credits, debts and changes, in any order.
fn run(seed: u64, start_ns: u64, policies: &[Vec<AnyPolicy>], steps_ns: &[u64]) -> Pair {
    let mut random = Rng::with_seed(seed);
    let mut pair = Pair::new(&policies[0], start_ns);
    let mut now_ns = start_ns;
    let mut grants = Vec::new();
    for step in 0..300 {
        let what = format!("seed {seed} step {step} at {now_ns}: {policies:?}");
        let permits = random.choice([1, 1, 1, 1, 2, 3, 5, 0]).unwrap();
        match random.u64(1..=24) {
            1..=12 => grants.extend(pair.tried(&what, now_ns, permits)),
            13 => {
                let bound_ns = random.choice([None, Some(0), Some(steps_ns[0])]).unwrap();
                let (ideal, own) =
                    pair.locked(now_ns, |limit| limit.reserve(now_ns, permits, bound_ns));
                grants.extend(same(&what, ideal, own));
            }
            14 | 15 if !grants.is_empty() => {
                let (ideal, own) = grants.pop().unwrap();
                assert_eq!(pair.cancel(now_ns, &ideal, &own), None, "{what}");
            }
            16 | 17 => pair.credit(&what, now_ns, permits),
            18 => pair.changes(
                &what,
                now_ns,
                &policies[random.choice([0, policies.len() - 1]).unwrap()],
            ),
            19 => {
                let debt = random.choice([Debt::FORGOTTEN, Debt::CARRIED]).unwrap();
                let (ideal, own) = pair.locked(now_ns, |limit| limit.charge(now_ns, permits, debt));
                assert_eq!(own, ideal, "{what}");
            }
            20 | 21 => pair.compare_status(&what, now_ns, permits),
            22 => now_ns = now_ns.saturating_sub(random.choice(steps_ns).copied().unwrap()),
            _ => now_ns = now_ns.saturating_add(random.choice(steps_ns).copied().unwrap()),
        }
        now_ns = now_ns.saturating_add(random.choice([0, 0, 1, steps_ns[0]]).unwrap());
    }
    pair
}

/// S1.7: two to four of both kinds, round rates and fractions, changes to all of them, to the
/// ends of the scale and back.
#[test]
fn a_bundle_answers_as_its_limits_alone() {
    let (mut lock_free_count, mut back) = (0, 0);
    for seed in 1..=150 {
        for policies in [
            vec![vec![gcra("1000/s", 3), gcra("9/s", 20)], vec![gcra("1/ms", 9), gcra("30/s", 10)]],
            vec![
                vec![gcra("999983/s", 10), window(20, 3 * MS, Anchor::Epoch)],
                vec![gcra("0.25/s", 4), window(5, 7 * MS, Anchor::FirstCall)],
            ],
            vec![
                vec![window(5, MS, Anchor::FirstCall), window(9, 10 * MS, Anchor::Epoch)],
                vec![window(4, MS, Anchor::FirstCall), window(18, 8 * MS, Anchor::Epoch)],
            ],
            vec![
                vec![gcra("10000000000/s", 4), gcra("7/3ns", 90), gcra("2/7d", 50)],
                vec![gcra("never", 2), gcra("unlimited", 90), gcra("3/7d", 50)],
            ],
            vec![
                vec![
                    gcra("1/s", 100),
                    gcra("123456789.7/s", 8),
                    window(50, S, Anchor::Epoch),
                    window(8, 1_000, Anchor::Epoch),
                ],
                vec![
                    gcra("100/s", 100),
                    gcra("123456789.7/s", 4),
                    window(50, S, Anchor::FirstCall),
                    window(9, 1_000, Anchor::Epoch),
                ],
            ],
        ] {
            let steps_ns = [10_u64.pow(u32::try_from(seed % 10).unwrap()), 100, US, MS, 37 * MS, S];
            let pair = run(seed, seed * 1_000, &policies, &steps_ns);
            lock_free_count += pair.lock_free_count;
            back += pair.back;
        }
    }
    assert!(lock_free_count > 50_000 && back > 2_000, "{lock_free_count} {back}");
}

/// S2.11: at the end of the clock nothing wraps, and the ledgers decide beyond it.
#[test]
fn at_the_end_of_the_clock_too() {
    let mut lock_free_count = 0;
    for seed in 1..=150 {
        let policies = [
            vec![gcra("1/s", 4), gcra("1/h", 60), window(9, 10 * S, Anchor::FirstCall)],
            vec![gcra("2/s", 4), gcra("1/d", 60), window(8, 9 * S, Anchor::Epoch)],
        ];
        lock_free_count +=
            run(seed, u64::MAX - 30 * S, &policies, &[S / 3, 1, MS, S, 2 * S]).lock_free_count;
    }
    assert!(lock_free_count > 1_000, "{lock_free_count}");
}

/// Limits that a bundle cannot hold stay with the ledgers, with the same results.
#[test]
fn what_has_no_lock_free_form_is_the_ledgers() {
    let log: AnyPolicy = SlidingLog::new(9, Duration::from_nanos(MS)).into();
    let strict: AnyPolicy = TwoTimeline::new("1000/s".parse().unwrap(), Mode::Strict, None).into();
    for policies in [
        vec![],
        vec![gcra("1000/s", 3), log],
        vec![strict, gcra("1000/s", 3)],
        vec![gcra("1000/s", 3), gcra("never", 3)],
        vec![gcra("1000/s", 3); MAX_LIMITS + 1],
    ] {
        for seed in 1..20 {
            let pair = run(seed, 0, std::slice::from_ref(&policies), &[MS, 100, US]);
            assert_eq!(pair.lock_free_count, 0, "{policies:?}");
        }
    }
}

/// New numbers of other kinds change nothing, and the lock-free form stays open.
#[test]
fn a_change_that_does_not_fit_leaves_the_lock_free_form_open() {
    let mut pair = Pair::new(&[gcra("10/s", 2), gcra("1/s", 9)], 0);
    for mismatched in [vec![gcra("1/s", 1)], vec![Concurrency::new(1).into(), gcra("1/s", 1)]] {
        let refused = pair.limit.change(&pair.lock_free, || 5, mismatched);
        assert_eq!(refused, Err(LimitError::OtherPolicy));
        assert_eq!(pair.lock_free.peek(5, 1), Some(0));
    }
}

/// A denial by one limit takes nothing from the others.
#[test]
fn nothing_is_taken_from_one_alone() {
    let mut limit = Ledger::new([gcra("1/s", 5), gcra("1/h", 2)], 0);
    let lock_free = limit.lock_free(0);
    assert!(matches!(lock_free.try_acquire(|| 0, 2), LockFreeVerdict::Granted { .. }));
    let hour = LockFreeVerdict::Denied { retry_after_ns: NonZeroU64::new(3_600 * S).unwrap() };
    for _ in 0..100 {
        assert_eq!(lock_free.try_acquire(|| 0, 1), hour);
    }
    limit.seal(&lock_free);
    limit.reconfigure(0, [gcra("1/s", 5), gcra("unlimited", 2)]).unwrap();
    assert_eq!(limit.remaining(0), 3);
}

/// A reading before the newest start counts as that start, and the grant reports it.
#[test]
fn a_late_reading_counts_in_the_newest_window() {
    let lock_free = Ledger::new([window(2, 100, Anchor::Epoch), gcra("1/ns", 99)], 0).lock_free(0);
    let starts = [199, 200, 150, 150].map(|now_ns| match lock_free.try_acquire(|| now_ns, 1) {
        LockFreeVerdict::Granted { start_ns, .. } => Ok(start_ns),
        LockFreeVerdict::Denied { retry_after_ns } => Err(retry_after_ns.get()),
        LockFreeVerdict::Sealed => unreachable!("nothing is out"),
    });
    assert_eq!(starts, [Ok(199), Ok(200), Ok(200), Err(100)]);
}

/// A clock that panics keeps no slot.
#[test]
fn a_clock_that_panics_costs_no_slot() {
    let lock_free = Ledger::new([gcra("1000000/s", 1_000); 2], 0).lock_free(0);
    for _ in 0..100 {
        let read = std::cell::Cell::new(0);
        let torn = || {
            read.set(read.get() + 1);
            // Another caller is faster the first time, so the claim owns a slot the second time.
            if read.get() == 1 {
                assert!(matches!(lock_free.try_acquire(|| 0, 1), LockFreeVerdict::Granted { .. }));
                return 0;
            }
            panic!("a clock may do this");
        };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = lock_free.try_acquire(torn, 1);
        }));
        assert!(result.is_err());
    }
    assert!(matches!(lock_free.try_acquire(|| 0, 1), LockFreeVerdict::Granted { .. }));
}

/// A lock-free grant has started, so it cannot be cancelled.
#[test]
fn a_bundles_grant_has_started() {
    let mut limit = Ledger::new([gcra("1/s", 5); 2], 0);
    let lock_free = limit.lock_free(0);
    let LockFreeVerdict::Granted { start_ns, .. } = lock_free.try_acquire(|| 7, 2) else {
        panic!()
    };
    let ticket = Ticket::booked(start_ns, 0, RefundEpoch::UNKNOWN);
    limit.seal(&lock_free);
    assert!(!limit.cancel(7, ticket), "it has started");
}
