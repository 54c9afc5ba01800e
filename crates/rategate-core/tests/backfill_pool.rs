//! Tests of the `backfill_pool` contract, against the three rules of a refill written out.

use crate::common::{MS, RATES, S, fraction, granted, part, per, rate, retry, start};
use fastrand::Rng;
use rategate_core::backfill_pool::{BackfillPool, MAX_POOL, State};
use rategate_core::error::{ExceedsCapacity, LimitError};
use rategate_core::ledger::Ledger;
use rategate_core::policy::Policy;
use rategate_core::rate::Rate;
use rategate_core::ratio::Ratio;
use rategate_core::verdict::Verdict;
use rategate_testkit::oracle::Grants;

fn by_hand(pool: u64, ratio: &str) -> (BackfillPool, State) {
    let pool = BackfillPool::new(pool, ratio.parse().unwrap(), None).unwrap();
    let state = pool.fresh(0);
    (pool, state)
}

fn both(pool: &BackfillPool, state: &State) -> (u64, u64) {
    (pool.active(state), pool.waiting(state))
}

/// Takes up to `permits`. Returns how many there were.
fn take_up_to(limit: &mut Ledger, permits: u64) -> u64 {
    let permits = permits.min(limit.remaining(0));
    assert!(granted(limit.try_acquire(0, permits)).is_some());
    permits
}

/// S2.18: pool 1000, ratio 1.25: a refill of 500 adds up to 500 unless 1000 are active, and up to
/// 125 from waiting; never more than 1250 are active.
#[test]
fn the_worked_example() {
    let (pool, mut state) = by_hand(1_000, "1.25");
    pool.refill(&mut state, 0, 500);
    assert_eq!(both(&pool, &state), (500, 0));
    pool.refill(&mut state, 0, 500);
    assert_eq!(both(&pool, &state), (1_000, 0));
    pool.refill(&mut state, 0, 500);
    assert_eq!(both(&pool, &state), (1_125, 375));
    pool.refill(&mut state, 0, 500);
    assert_eq!(both(&pool, &state), (1_250, 750));
    pool.refill(&mut state, 0, 500);
    assert_eq!(both(&pool, &state), (1_250, 1_250));
}

/// S2.19, X2.3: two refills of 500 into a full pool bring the whole burst of 250, although both
/// overflow.
#[test]
fn two_half_refills_bring_the_whole_burst() {
    let (pool, mut state) = by_hand(1_000, "1.25");
    pool.refill(&mut state, 0, 1_000);
    pool.refill(&mut state, 0, 500);
    pool.refill(&mut state, 0, 500);
    assert_eq!(both(&pool, &state), (1_250, 750));
}

/// S2.20: without a backlog there is no burst.
#[test]
fn no_backlog_no_burst() {
    let (pool, mut state) = by_hand(1_000, "1.5");
    for _ in 0..10 {
        pool.refill(&mut state, 0, 100);
    }
    assert_eq!(both(&pool, &state), (1_000, 0));
}

/// X2.4: ten refills of a tenth move as much as one full refill, and refills of one permit move
/// their share in the end (docs/theory.md, section 4.4).
#[test]
fn ten_tenths_are_one_whole() {
    for (parts, size) in [(10, 100), (1_000, 1), (8, 125)] {
        let (pool, mut whole) = by_hand(1_000, "1.1");
        let mut pieces = whole;
        for state in [&mut whole, &mut pieces] {
            pool.refill(state, 0, 1_000);
        }
        pool.refill(&mut whole, 0, 1_000);
        for _ in 0..parts {
            pool.refill(&mut pieces, 0, size);
        }
        assert_eq!(both(&pool, &whole), (1_100, 900));
        assert_eq!(both(&pool, &pieces), both(&pool, &whole), "{parts} of {size}");
    }
}

/// The figures of the original pool's test (docs/theory.md, section 4.6).
#[test]
fn the_figures_of_a_million() {
    let policy = BackfillPool::new(1_000_000, "1.1".parse().unwrap(), None).unwrap();
    let mut limit = Ledger::new(policy, 0);
    for (refill, total, waiting) in
        [(1_000_000, 1_000_000, 0), (100, 1_000_100, 90), (10, 1_000_110, 99), (10, 1_000_120, 108)]
    {
        assert!(limit.refill(0, refill));
        let (active, held) = both(&policy, part(&limit));
        assert_eq!((active + held, held), (total, waiting), "after {refill}");
    }
    assert_eq!(take_up_to(&mut limit, 100), 100);
    assert_eq!(both(&policy, part(&limit)), (1_000_012 - 100, 108));
}

/// S2.11, S2.12, S2.13, S2.14, S2.15, S2.16, S2.17, X2.1, X2.2: each refill first fills the pool,
/// spills the rest, and moves back the minimum of three limits. Permits are not created,
/// destroyed or moved otherwise.
#[test]
fn a_refill_follows_its_three_limits() {
    for seed in 1..300 {
        let mut random = Rng::with_seed(seed);
        let size = random.u64(1..=200);
        let (up, down) = (random.u64(4..=12), 4);
        let policy = BackfillPool::new(size, Ratio::new(up, down).unwrap(), None).unwrap();
        let mut limit = Ledger::new(policy, 0);
        let (mut active, mut waiting, mut carry) = (0_u64, 0_u64, 0_u64);
        let (mut refilled, mut consumed) = (0, 0);
        for step in 0..100 {
            if random.u64(..2) == 0 {
                let refill = random.choice([1, 2, size / 3, size, 3 * size]).unwrap();
                assert!(limit.refill(0, refill));
                refilled += refill;
                let fits = refill.min(size.saturating_sub(active));
                active += fits;
                waiting += refill - fits;
                // In quarters: up to pool x ratio, and a share of the refill, never above one
                // pool, with the fraction carried.
                let available = (size * up / down).saturating_sub(active);
                let quarters = refill.min(size) * (up - down) + carry;
                carry = quarters % down;
                let moved = available.min(quarters / down).min(waiting);
                waiting -= moved;
                active += moved;
            } else {
                let permits = random.u64(1..=size);
                let passes = granted(limit.try_acquire(0, permits)).is_some();
                assert_eq!(passes, permits <= active, "seed {seed}");
                if passes {
                    active -= permits;
                    consumed += permits;
                }
            }
            let what = format!("seed {seed}, step {step}: pool {size} x {up}/{down}");
            assert_eq!(both(&policy, part(&limit)), (active, waiting), "{what}");
            assert_eq!(active + waiting + consumed, refilled, "{what}");
            assert!(active <= size * up / down, "{what}");
        }
    }
}

/// Without a rate a denial names no wait; with one the wait is exact.
#[test]
fn only_a_rate_gives_a_wait() {
    let (pool, _) = by_hand(10, "1.5");
    let mut limit = Ledger::new(pool, 0);
    let Ok(Verdict::Denied(denial)) = limit.reserve(0, 1, None) else { panic!("empty") };
    assert_eq!((denial.retry_after_ns, limit.peek(S, 1)), (None, Ok(None)));
    for text in RATES {
        let pool = BackfillPool::new(5, "1.5".parse().unwrap(), Some(rate(text))).unwrap();
        let mut limit = Ledger::new(pool, 3);
        assert_eq!(start(limit.try_acquire(3, 1)), 3, "the first passes at once");
        let (n, p) = fraction(rate(text));
        for permits in [1, 5] {
            let after_ns = retry(limit.try_acquire(3, permits));
            assert_eq!(u128::from(after_ns), (u128::from(permits) * p).div_ceil(n), "{text}");
            assert!(granted(limit.clone().try_acquire(3 + after_ns - 1, permits)).is_none());
            assert!(granted(limit.clone().try_acquire(3 + after_ns, permits)).is_some());
        }
    }
}

/// Conservation, from the clock: at each grant, active, waiting and consumed permits are the
/// first permit and the rate's earnings, to less than one permit each, at every rate.
#[test]
fn the_clock_earns_exactly_the_rate() {
    for text in RATES {
        let (n, p) = fraction(rate(text));
        let policy = BackfillPool::new(1_000, "1.25".parse().unwrap(), Some(rate(text))).unwrap();
        let mut limit = Ledger::new(policy, 0);
        let mut random = Rng::with_seed(2);
        let (mut now_ns, mut consumed) = (0_u64, 0_u128);
        for _ in 0..300 {
            now_ns = now_ns.saturating_add(random.u64(0..=3 * u64::try_from(p / n).unwrap() + 5));
            let remaining = limit.remaining(now_ns);
            if remaining == 0 {
                continue;
            }
            let permits = random.u64(1..=remaining);
            assert!(granted(limit.try_acquire(now_ns, permits)).is_some());
            consumed += u128::from(permits);
            let (active, waiting) = both(&policy, part(&limit));
            let held = consumed + u128::from(active) + u128::from(waiting);
            let earned = u128::from(now_ns) * n / p + 1;
            assert!((held..=held + 1).contains(&earned), "{text}: {held} and not {earned}");
        }
    }
}

/// Ceiling: `ratio (pool + (W + r) rate)` in any window, r the longest time between grants
/// (docs/theory.md, section 4.2).
#[test]
fn no_window_holds_more_than_the_ceiling() {
    for seed in 1..150 {
        let mut random = Rng::with_seed(seed);
        let pace = per(random.u64(1..=9), random.u64(1..=60));
        let (n, p) = fraction(pace);
        let (size, up) = (random.u64(1..=9), random.u64(4..=12));
        let policy = BackfillPool::new(size, Ratio::new(up, 4).unwrap(), Some(pace)).unwrap();
        let mut limit = Ledger::new(policy, 0);
        let (mut grants, mut now_ns, mut rest) = (Grants::default(), 0, 0);
        for _ in 0..150 {
            now_ns += random.choice([0, 0, 1, 5, 30, 400]).unwrap();
            let permits = random.u64(1..=size);
            if let Some(grant) = granted(limit.reserve(now_ns, permits, None)) {
                rest = rest.max(grant.start_ns - grants.0.last().map_or(0, |last| last.0));
                grants.add(grant.start_ns, permits);
            }
        }
        let (up, size) = (u128::from(up), u128::from(size));
        let ceiling =
            |window_ns: u128| up * (size * p + (window_ns + u128::from(rest)) * n) / (4 * p);
        grants.assert_ceiling(&format!("seed {seed}: {policy:?}"), ceiling);
    }
}

/// Recovery: a backlog w of a saturated consumer clears in w / (ratio - 1) at the rate; without a
/// burst it stays (docs/theory.md, section 4.3). A pool of a second's worth grants a second's
/// worth at once (section 4.2).
#[test]
fn a_backlog_clears_at_the_burst_share() {
    for (ratio, cleared_ms) in [("1.1", Some(100_000_u64)), ("2", Some(10_000)), ("1", None)] {
        let policy =
            BackfillPool::new(1_000, ratio.parse().unwrap(), Some(rate("1000/s"))).unwrap();
        let mut limit = Ledger::new(policy, 0);
        assert!(granted(limit.try_acquire(11 * S, 1_000)).is_some());
        let backlog = policy.waiting(part(&limit)) + policy.active(part(&limit));
        assert_eq!(backlog, 10_001);
        let mut clear_ms = None;
        for ms in 1..=120_000 {
            let now_ns = 11 * S + ms * MS;
            let free = limit.remaining(now_ns);
            if free > 0 {
                assert!(granted(limit.try_acquire(now_ns, free)).is_some());
            }
            if clear_ms.is_none() && policy.waiting(part(&limit)) == 0 {
                clear_ms = Some(ms);
            }
        }
        match (clear_ms, cleared_ms) {
            (Some(ms), Some(expected)) => {
                assert!(expected.abs_diff(ms) * 100 <= expected * 11, "{ratio}: {ms} ms");
            }
            (clear, expected) => assert_eq!(clear, expected, "{ratio}"),
        }
    }
}

/// Change: permits stay permits at the new rate, and a smaller pool moves its excess to the
/// backlog.
#[test]
fn a_change_loses_nothing() {
    let policy = |pool, ratio: &str, pace: &str| {
        BackfillPool::new(pool, ratio.parse().unwrap(), Some(rate(pace))).unwrap()
    };
    let mut limit = Ledger::new(policy(1_000, "1.5", "1000/s"), 0);
    assert!(granted(limit.try_acquire(3 * S, 1)).is_some());
    let (active, waiting) = both(part(&limit), part(&limit));
    assert_eq!((active, waiting), (1_499, 1_501));
    limit.reconfigure(3 * S, policy(100, "1.5", "7/s")).unwrap();
    assert_eq!(both(part(&limit), part(&limit)), (150, active + waiting - 150));
    limit.reconfigure(4 * S, policy(10_000, "1", "3/s")).unwrap();
    let (active, waiting) = both(part(&limit), part(&limit));
    assert_eq!(active + waiting, 3_007, "seven more, earned at the old rate");
    limit.reconfigure(5 * S, policy(10_000, "1", "1000/s")).unwrap();
    let (active, waiting) = both(part(&limit), part(&limit));
    // Parts that the new rate cannot represent are rounded down, by less than a permit.
    assert!((3_009..=3_010).contains(&(active + waiting)));
}

#[test]
fn misuse_is_an_error() {
    let one = Ratio::ONE;
    assert_eq!(BackfillPool::new(0, one, None), Err(LimitError::ZeroPermits));
    let max = MAX_POOL;
    assert_eq!(BackfillPool::new(max + 1, one, None), Err(LimitError::TooManyPermits { max }));
    assert!(BackfillPool::new(max, one, None).is_ok());
    let wide = Ratio::new(1_000_000_000_001, 1_000_000_000_000).unwrap();
    let slow = rate("1/200000d");
    assert!(matches!(
        BackfillPool::new(max, wide, Some(slow)),
        Err(LimitError::TooManyPermits { max }) if max > 0
    ));

    let (pool, _) = by_hand(10, "1.25");
    // Ten and a quarter of ten: twelve whole permits.
    assert_eq!(Ledger::new(pool, 0).try_acquire(0, 13), Err(ExceedsCapacity::new(13, 12)));
    let never = BackfillPool::new(10, one, Some(Rate::NEVER)).unwrap();
    assert_eq!(Ledger::new(never, 0).peek(0, 1), Ok(None));
    let unlimited = BackfillPool::new(10, one, Some(Rate::UNLIMITED)).unwrap();
    assert_eq!(start(Ledger::new(unlimited, 0).reserve(4, u64::MAX, None)), 4);
}
