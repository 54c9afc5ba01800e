//! Tests of costs that are known only afterwards: estimates that are held, and debts.

use std::time::Duration;

use crate::common::{MS, S, granted, rate, start};
use fastrand::Rng;
use rategate_core::backfill_pool::BackfillPool;
use rategate_core::concurrency::Concurrency;
use rategate_core::debt::Debt;
use rategate_core::error::CountsInFlight;
use rategate_core::gcra::Gcra;
use rategate_core::holds::Committed;
use rategate_core::ledger::Ledger;
use rategate_core::ledger::MAX_DEBT_PARTS;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::verdict::Settled;
use rategate_testkit::oracle::Grants;

/// S4.17: pages of unknown size under a limit on bytes. Each is granted as an estimate, fetched,
/// and committed when its size is known; effects in a window exceed the limit by the
/// under-estimates at most.
#[test]
fn pages_of_unknown_size_keep_the_limit_on_bytes() {
    const N: u64 = 1_000;
    for seed in 1..120 {
        let debt = if seed < 60 { Debt::CARRIED } else { Debt::FORGOTTEN };
        let mut random = Rng::with_seed(seed);
        let mut limit = Ledger::new(SlidingLog::new(N, Duration::from_nanos(S)), 0);
        let (mut now_ns, mut bytes, mut under) = (0, Grants::default(), Grants::default());
        for _ in 0..60 {
            let estimate = random.u64(1..=200);
            let grant = granted(limit.reserve(now_ns, estimate, None)).unwrap();
            now_ns = grant.start_ns;
            let size = random.u64(0..=300);
            bytes.add(now_ns, size);
            let (started_ns, hold) = (now_ns, limit.hold_grant(now_ns, &grant, u64::MAX));
            now_ns += random.u64(0..=40) * MS;
            let Committed::InTime(settled) = limit.commit(now_ns, hold, size, debt) else {
                panic!("it has no end")
            };
            match settled {
                Settled::Even => assert_eq!(size, estimate),
                Settled::Back { permits } => assert_eq!(permits, estimate - size),
                Settled::Owed { permits, forgiven } => {
                    assert_eq!((permits, forgiven), (size - estimate, 0));
                    under.add(started_ns, permits);
                }
            }
        }
        let allowed = N + under.fullest_window(S).0;
        assert!(
            bytes.fullest_window(S).0 <= allowed,
            "seed {seed}: {} > {allowed}",
            bytes.fullest_window(S).0
        );
        // In the long run a debt that is carried adds nothing to the rate.
        assert!(
            !debt.is_carried()
                || u128::from(bytes.total()) <= u128::from(N) * (u128::from(now_ns / S) + 2)
        );
    }
}

/// Later calls wait behind a debt, exactly as behind a caller that requested as much.
#[test]
fn later_calls_wait_behind_a_debt() {
    let bucket = Gcra::new(rate("10/s"), 5).unwrap();
    let (mut debtor, mut requester) = (Ledger::new(bucket, 0), Ledger::new(bucket, 0));
    debtor.charge(0, 23, Debt::CARRIED).unwrap();
    for _ in 0..23 {
        start(requester.reserve(0, 1, None));
    }
    assert_eq!(debtor.peek(0, 1), requester.peek(0, 1));
    assert_eq!(debtor.peek(0, 1), Ok(Some(1_900 * MS)));
    assert_eq!(start(debtor.reserve(0, 1, None)), 1_900 * MS);
}

/// A debt that is kept as promises is cut into parts that may pass at one instant. What exceeds
/// their number is forgiven.
#[test]
fn a_debt_of_promises_has_a_bound() {
    let log = SlidingLog::new(10, Duration::from_nanos(S));
    let mut limit = Ledger::new(log, 0);
    let max = 10 * MAX_DEBT_PARTS;
    let charged = limit.charge(0, max + 1, Debt::CARRIED).unwrap();
    assert_eq!((charged.booked, charged.forgiven), (max, 1));
    assert_eq!(start(limit.reserve(0, 10, None)), MAX_DEBT_PARTS * S);

    let strict = TwoTimeline::new(rate("1000/s"), Mode::Strict, None);
    let mut limit = Ledger::new(strict, 0);
    let charged = limit.charge(0, u64::MAX, Debt::CARRIED).unwrap();
    assert_eq!(charged.booked, MAX_DEBT_PARTS);
    let mut limit = Ledger::new(strict, 0);
    assert_eq!(limit.charge(0, 500, Debt::CARRIED).unwrap().booked, 500);
    assert_eq!(start(limit.reserve(0, 1, None)), 500 * MS);
    let mut limit = Ledger::new(log, 0);
    let two_windows = Debt::CARRIED.at_most(Duration::from_nanos(2 * S));
    assert_eq!(limit.charge(0, 1_000, two_windows).unwrap().booked, 30);
}

/// The parts of a debt that is kept as promises are its number until they start. What callers
/// reserve is no debt.
#[test]
fn a_debt_of_promises_is_a_number_and_has_an_end() {
    let mut limit = Ledger::new(SlidingLog::new(10, Duration::from_nanos(S)), 0);
    assert_eq!(limit.charge(0, 10, Debt::CARRIED).unwrap().debt, 0, "full is no debt");
    assert_eq!((limit.debt(0), limit.debt_ends_in_ns(0)), (0, Some(0)));
    assert_eq!(limit.charge(0, 14, Debt::CARRIED).unwrap().debt, 14);
    assert_eq!(limit.charge(0, 1, Debt::CARRIED).unwrap().debt, 15, "with that of before");
    assert_eq!(start(limit.reserve(0, 1, None)), 2 * S);
    let seen = [0, S - 1, S, 2 * S - 1, 2 * S];
    let debts = seen.map(|now_ns| (limit.debt(now_ns), limit.debt_ends_in_ns(now_ns)));
    let ends = [(15, 2 * S), (15, S + 1), (5, S), (5, 1), (0, 0)];
    assert_eq!(debts, ends.map(|(debt, ends_in_ns)| (debt, Some(ends_in_ns))));
    // The same once time has passed for the limit itself.
    assert_eq!(limit.charge(S, 0, Debt::CARRIED).unwrap().debt, 5);
    assert_eq!((limit.debt(S), limit.debt_ends_in_ns(S)), (5, Some(S)));
}

/// A debt that no time can pay ends without a loop or a wait: it stays owed, or is forgiven.
#[test]
fn a_debt_that_cannot_be_paid_ends_at_once() {
    let mut never = Ledger::new(Gcra::new(rate("never"), 5).unwrap(), 0);
    assert_eq!(never.charge(0, 7, Debt::CARRIED).unwrap().debt, 2);
    assert_eq!(never.debt(100 * S), 2);
    let mut oven = Ledger::new(Concurrency::new(2), 0);
    assert_eq!(oven.charge(0, 3, Debt::CARRIED), Err(CountsInFlight));
    let mut pool = Ledger::new(BackfillPool::new(4, "1".parse().unwrap(), None).unwrap(), 0);
    assert_eq!(pool.charge(0, 3, Debt::CARRIED).unwrap().forgiven, 3);
    let mut late = Ledger::new(SlidingLog::new(1, Duration::from_nanos(u64::MAX / 2)), 0);
    assert_eq!(late.charge(u64::MAX / 2, 3, Debt::CARRIED).unwrap().forgiven, 1);
    assert_eq!(late.charge(u64::MAX / 2, 0, Debt::CARRIED).unwrap().booked, 0);
}
