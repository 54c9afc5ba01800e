//! Tests of the `warm_up` contract, against the published formula in exact fractions.

use std::cmp::Ordering;
use std::num::NonZeroU64;
use std::ops::{Add, Mul, Sub};
use std::time::Duration;

use crate::common::{MS, RATES, S, granted, ns, part, per, rate, retry, start};
use fastrand::Rng;
use rategate_core::error::{ExceedsCapacity, LimitError, RatioError};
use rategate_core::ledger::Ledger;
use rategate_core::policy::{Policy, Taken};
use rategate_core::rate::Rate;
use rategate_core::ratio::Ratio;
use rategate_core::saved::{RestoreContext, restore};
use rategate_core::verdict::{Denial, Verdict};
use rategate_core::warm_up::{State, WarmUp};
use rategate_testkit::oracle::Grants;

/// A fraction, reduced, with a positive denominator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fraction(i128, i128);

impl Fraction {
    fn new(numerator: i128, denominator: i128) -> Self {
        let (mut a, mut b) = (numerator.abs(), denominator);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        Self(numerator / a.max(1), denominator / a.max(1))
    }

    fn whole(number: u64) -> Self {
        Self(number.into(), 1)
    }

    fn over(self, other: Self) -> Self {
        self * Self::new(other.1, other.0)
    }

    fn ceil(self) -> u64 {
        u64::try_from((self.0 + self.1 - 1).div_euclid(self.1)).unwrap()
    }
}

impl Add for Fraction {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::new(self.0 * other.1 + other.0 * self.1, self.1 * other.1)
    }
}

impl Sub for Fraction {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self + Self(-other.0, other.1)
    }
}

impl Mul for Fraction {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Self::new(self.0 * other.0, self.1 * other.1)
    }
}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Fraction {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.0 * other.1).cmp(&(other.0 * self.1))
    }
}

/// The limit as it is published: stored permits, and the instant at which the next one is free.
#[derive(Clone, Copy, Debug)]
struct Oracle {
    interval: Fraction,
    period: Fraction,
    factor: Fraction,
    stored: Fraction,
    free: Fraction,
    last: Fraction,
}

impl Oracle {
    fn new(rate: Rate, period_ns: u64, factor: Ratio, now_ns: u64) -> Self {
        let (permits, per_ns) = rate.fraction().unwrap();
        let (numerator, denominator) = (factor.numerator().get(), factor.denominator().get());
        let zero = Fraction::whole(0);
        let mut oracle = Self {
            interval: Fraction::new(per_ns.into(), permits.into()),
            period: Fraction::whole(period_ns),
            factor: Fraction::new(numerator.into(), denominator.into()),
            stored: zero,
            free: Fraction::whole(now_ns),
            last: zero,
        };
        oracle.stored = oracle.max();
        oracle
    }

    fn threshold(&self) -> Fraction {
        self.period.over(Fraction::whole(2) * self.interval)
    }

    fn max(&self) -> Fraction {
        let sum = (Fraction::whole(1) + self.factor) * self.interval;
        self.threshold() + (Fraction::whole(2) * self.period).over(sum)
    }

    /// Returns what one permit costs: `T + (c^2 - 1) T^2 / 4P (x^2 - (x - k)^2)`.
    fn cost(&self) -> Fraction {
        let x = (self.stored - self.threshold()).max(Fraction::whole(0));
        let rest = x - x.min(Fraction::whole(1));
        let steepness = (self.factor * self.factor - Fraction::whole(1)) * self.interval;
        let steepness = (steepness * self.interval).over(Fraction::whole(4) * self.period);
        self.interval + steepness * (x * x - rest * rest)
    }

    /// Takes one permit that starts at `start_ns`.
    fn take(&mut self, start_ns: u64) {
        let due_ns = self.free.ceil();
        if start_ns > due_ns {
            let gap = Fraction::whole(start_ns - due_ns);
            if gap > self.last {
                let cooled = self.stored + gap * self.max().over(self.period);
                self.stored = cooled.min(self.max());
            }
            self.free = Fraction::whole(start_ns);
        }
        self.last = self.cost();
        self.free = self.free + self.last;
        self.stored = (self.stored - Fraction::whole(1)).max(Fraction::whole(0));
    }

    /// Returns the state before the last of `permits`, if the others have come when they were due.
    fn before_last(mut self, permits: u64) -> Self {
        (1..permits).for_each(|_| self.take(self.free.ceil()));
        self
    }

    fn due_ns(&self, permits: u64) -> u64 {
        self.before_last(permits).free.ceil()
    }

    fn take_all(&mut self, permits: u64, start_ns: u64) {
        *self = self.before_last(permits);
        self.take(start_ns);
    }
}

fn factor(text: &str) -> Ratio {
    text.parse().unwrap()
}

fn warm_up(rate: Rate, period_ns: u64) -> WarmUp {
    WarmUp::new(rate, ns(period_ns)).unwrap()
}

fn starts(limit: &mut Ledger, now_ns: u64, calls: usize) -> Vec<u64> {
    (0..calls).map(|_| start(limit.reserve(now_ns, 1, None))).collect()
}

/// Each instant is that of the published formula in exact fractions, rounded up once: of calls
/// for one permit and for several, on time and late, denied, reserved and tried.
#[test]
fn instants_are_those_of_exact_fractions() {
    let (mut rested, mut paced, mut several, mut denied) = (0, 0, 0, 0);
    for seed in 0..6_000 {
        let mut random = Rng::with_seed(seed);
        let rate = per(random.u64(1..=9), random.u64(1..=60));
        let factor = factor(random.choice(["1", "1.5", "2", "3", "3.25", "10"]).unwrap());
        let period_ns = random.choice([1, 2, 30, 100, 400]).unwrap();
        let policy = warm_up(rate, period_ns).with_cold_factor(factor).unwrap();
        let policy = policy.with_max_request(3).unwrap();
        let mut now_ns = random.u64(0..=9);
        let mut limit = Ledger::new(policy, now_ns);
        let mut oracle = Oracle::new(rate, period_ns, factor, now_ns);
        for call in 0..30 {
            let step_ns = random.choice([2, 20, 90]).unwrap();
            now_ns += random.u64(0..=step_ns);
            let permits = random.u64(1..=3);
            let due_ns = oracle.due_ns(permits);
            let what = format!("seed {seed}, call {call}: {permits} at {now_ns} of {policy:?}");
            let remaining = (1..=3).filter(|&permits| oracle.due_ns(permits) <= now_ns).count();
            assert_eq!(limit.remaining(now_ns), u64::try_from(remaining).unwrap(), "{what}");
            if due_ns > now_ns && random.bool() {
                assert_eq!(retry(limit.try_acquire(now_ns, permits)), due_ns - now_ns, "{what}");
                denied += 1;
                continue;
            }
            let start_ns = start(limit.reserve(now_ns, permits, None));
            assert_eq!(start_ns, due_ns.max(now_ns), "{what}");
            let gap = Fraction::whole(start_ns - due_ns);
            let last = oracle.before_last(permits).last;
            rested += u32::from(gap > last);
            paced += u32::from(gap <= last && gap > Fraction::whole(0));
            several += u32::from(permits > 1);
            oracle.take_all(permits, start_ns);
            now_ns = start_ns;
        }
    }
    assert!(rested > 10_000 && paced > 10_000, "{rested} {paced}");
    assert!(several > 50_000 && denied > 10_000, "{several} {denied}");
}

/// A request for several permits leaves the state that as many requests for one leave, of which
/// all but the last come when they are due: at any rate, to the last part of a nanosecond.
#[test]
fn several_permits_are_as_many_single_ones() {
    for seed in 0..4_000 {
        let mut random = Rng::with_seed(seed);
        let rate = rate(random.choice(RATES).unwrap());
        let period_ns = random.choice([1, 999, 77 * MS, 4 * S, 86_400 * S]).unwrap();
        let factor = factor(random.choice(["1", "1.25", "3", "10", "1000"]).unwrap());
        let policy = warm_up(rate, period_ns).with_cold_factor(factor).unwrap();
        let policy = policy.with_max_request(1_000).unwrap();
        let mut at_once = policy.fresh(0);
        let mut one_by_one = at_once;
        for _ in 0..10 {
            let max = random.choice([3, 1_000]).unwrap();
            let permits = random.u64(1..=max);
            // A thousand permits of a year each lie beyond the clock's end.
            let Ok(opening) = policy.opening(&at_once, 0, NonZeroU64::new(permits).unwrap()) else {
                continue;
            };
            let from_ns = opening.start_ns + random.u64(0..=2) * random.u64(..=S);
            take(&policy, &mut at_once, from_ns, permits);
            for _ in 1..permits {
                let due = policy.opening(&one_by_one, 0, NonZeroU64::MIN).unwrap();
                take(&policy, &mut one_by_one, due.start_ns, 1);
            }
            take(&policy, &mut one_by_one, from_ns, 1);
            assert_eq!(at_once, one_by_one, "seed {seed}, {permits} of {policy:?}");
        }
    }
}

fn take(policy: &WarmUp, state: &mut State, start_ns: u64, permits: u64) {
    let permits = NonZeroU64::new(permits).unwrap();
    policy.take(state, Taken { from_ns: start_ns, start_ns, permits });
}

/// No window sees more than `ceil((W + (m - 1) T) / T)` permits, however callers come, and a warm
/// limit in full use reaches it (docs/theory.md, section 1.5).
#[test]
fn the_ceiling_is_reached_and_never_passed() {
    for seed in 0..3_000 {
        let mut random = Rng::with_seed(seed);
        let (permits, per_ns) = (random.u64(1..=9), random.u64(10..=60));
        let rate = per(permits, per_ns);
        let max_request = random.choice([1, 1, 4]).unwrap();
        let policy = warm_up(rate, random.choice([1, 50, 300]).unwrap());
        let policy = policy.with_max_request(max_request).unwrap();
        let (mut limit, mut grants, mut now_ns) = (Ledger::new(policy, 0), Grants::default(), 0);
        let is_idle = random.bool();
        for _ in 0..700 {
            now_ns += if is_idle { random.u64(0..=40) } else { 0 };
            let permits = random.u64(1..=max_request);
            if let Some(grant) = granted(limit.reserve(now_ns, permits, Some(200))) {
                grants.add(grant.start_ns, permits);
                now_ns = grant.start_ns;
            } else {
                now_ns += 1;
            }
        }
        for window_ns in [1, 7, per_ns, 3 * per_ns, 500] {
            let ceiling = (window_ns * permits).div_ceil(per_ns) + max_request - 1;
            let most = grants.fullest_window(window_ns).0;
            assert!(most <= ceiling, "seed {seed}: {most} in {window_ns} of {policy:?}");
            if !is_idle && max_request == 1 {
                assert_eq!(most, ceiling, "seed {seed}: in {window_ns} of {policy:?}");
            }
        }
    }
}

/// From cold exactly `2P / ((1 + c) T)` permits start in the first period, and then one each `T`.
#[test]
fn a_cold_limit_is_warm_after_its_period() {
    for (rate_text, interval_ns, cold_factor, sum) in
        [("2/s", S / 2, "3", 4), ("100/s", S / 100, "2", 3), ("1/5s", 5 * S, "10", 11)]
    {
        for permits in [1, 2, 17, 400] {
            let period_ns = permits * sum * interval_ns / 2;
            let policy = warm_up(rate(rate_text), period_ns);
            let policy = policy.with_cold_factor(factor(cold_factor)).unwrap();
            let mut limit = Ledger::new(policy, 0);
            let starts = starts(&mut limit, 0, usize::try_from(permits).unwrap() + 3);
            let in_period = starts.iter().filter(|&&start_ns| start_ns < period_ns).count();
            assert_eq!(u64::try_from(in_period).unwrap(), permits, "{policy:?}");
            let warm: Vec<u64> = (0..3).map(|nth| period_ns + nth * interval_ns).collect();
            assert_eq!(starts[in_period..], warm, "{policy:?}");
            assert!(starts.windows(3).all(|of| of[1] - of[0] + 1 >= of[2] - of[1]), "{policy:?}");
        }
    }
}

/// A gap as long as the interval before it is pacing and cools nothing. A gap that is a nanosecond
/// longer is rest, all of it.
#[test]
fn short_gaps_do_not_cool_and_longer_ones_count_in_full() {
    // At 2/s the first interval of a cold limit is 1375 ms.
    let policy = warm_up(rate("2/s"), 4 * S);
    for (gap_ns, warmth_ns, next_ns) in [
        (0, S, 1_125 * MS),
        (1_375 * MS, S, 1_125 * MS),
        // As cold as at the begin: of two permits, rest has made up for almost three.
        (1_375 * MS + 1, 500 * MS, 1_375 * MS),
    ] {
        let mut limit = Ledger::new(policy, 0);
        assert_eq!(start(limit.try_acquire(0, 1)), 0);
        let late_ns = 1_375 * MS + gap_ns;
        assert_eq!(start(limit.try_acquire(late_ns, 1)), late_ns);
        assert_eq!(policy.warmth_ns(part(&limit), late_ns), warmth_ns, "{gap_ns}");
        assert_eq!(retry(limit.try_acquire(late_ns, 1)), next_ns, "{gap_ns}");
    }
}

/// Rest is not lost on a change of the numbers in the middle of it.
#[test]
fn rest_before_a_change_cools() {
    let (policy, faster) = (warm_up(rate("2/s"), 4 * S), warm_up(rate("4/s"), 4 * S));
    let mut limit = Ledger::new(policy, 0);
    let _ = starts(&mut limit, 0, 8);
    let free_ns = 6 * S;
    assert_eq!(policy.warmth_ns(part(&limit), free_ns), 0, "its promises have not started");
    limit.pass_to(free_ns);
    assert_eq!(policy.warmth_ns(part(&limit), free_ns), 4 * S);
    limit.reconfigure(free_ns + 3 * S, faster).unwrap();
    assert_eq!(faster.warmth_ns(part(&limit), free_ns + 3 * S), S);
    // After a rest of more than an interval, all that follows is rest too.
    assert_eq!(faster.warmth_ns(part(&limit), free_ns + 3 * S + 1), S - 1);
    // Rest before another period counts by the old one, three quarters of it.
    let mut limit = Ledger::new(policy, 0);
    let _ = starts(&mut limit, 0, 8);
    let longer = warm_up(rate("2/s"), 40 * S);
    limit.reconfigure(free_ns + 3 * S, longer).unwrap();
    assert_eq!(longer.warmth_ns(part(&limit), free_ns + 3 * S), 10 * S);
    // A pause within the interval is none, whether the numbers change or not.
    let mut limit = Ledger::new(policy, 0);
    let _ = starts(&mut limit, 0, 8);
    limit.reconfigure(free_ns + S / 4, faster).unwrap();
    assert_eq!(faster.warmth_ns(part(&limit), free_ns + S / 2), 4 * S);
}

/// Another period keeps the share by which the limit is cold.
#[test]
fn another_period_keeps_the_share_of_coldness() {
    let policy = warm_up(rate("2/s"), 4 * S);
    let mut limit = Ledger::new(policy, 0);
    let _ = start(limit.try_acquire(0, 1));
    assert_eq!(policy.warmth_ns(part(&limit), 0), S / 2);
    let longer = warm_up(rate("2/s"), 40 * S);
    limit.reconfigure(0, longer).unwrap();
    assert_eq!(longer.warmth_ns(part(&limit), 0), 5 * S);
    assert_eq!(retry(limit.try_acquire(0, 1)), 1_375 * MS, "due when it was");
    // Another cold factor keeps it, too.
    let colder = longer.with_cold_factor(factor("10")).unwrap();
    limit.reconfigure(0, colder).unwrap();
    assert_eq!(colder.warmth_ns(part(&limit), 0), 5 * S);
}

/// At the rate never nothing passes, what was due waits as long afterwards, and the limit cools.
/// At an unlimited rate all passes, and the limit is warm afterwards.
#[test]
fn never_and_unlimited() {
    let (policy, never) = (warm_up(rate("2/s"), 4 * S), warm_up(Rate::NEVER, 4 * S));
    let mut limit = Ledger::new(policy, 0);
    let _ = start(limit.try_acquire(0, 1));
    limit.reconfigure(S, never).unwrap();
    assert_eq!(limit.try_acquire(2 * S, 1), Ok(Verdict::Denied(Denial { retry_after_ns: None })));
    assert_eq!(limit.try_acquire(2 * S, 2), Err(ExceedsCapacity::new(2, 1)));
    assert_eq!((limit.remaining(2 * S), limit.fresh_at_ns(2 * S)), (0, None));
    limit.reconfigure(2 * S, warm_up(Rate::NEVER, 8 * S)).unwrap();
    limit.reconfigure(2 * S, policy).unwrap();
    assert_eq!(retry(limit.try_acquire(2 * S, 1)), 375 * MS, "as long as at 1 s");
    assert_eq!(policy.warmth_ns(part(&limit), 2 * S), 0, "half a second has been made up for");

    let unlimited = warm_up(Rate::UNLIMITED, 4 * S);
    let mut limit = Ledger::new(unlimited, 0);
    assert_eq!(start(limit.try_acquire(0, u64::MAX)), 0);
    assert_eq!((limit.remaining(0), limit.fresh_at_ns(5)), (u64::MAX, Some(5)));
    limit.reconfigure(S, policy).unwrap();
    assert_eq!(policy.warmth_ns(part(&limit), S), 4 * S);
    assert_eq!(starts(&mut limit, S, 3), [S, S + S / 2, 2 * S]);
    let fresh = Ledger::new(never, 7);
    assert_eq!(fresh.fresh_at_ns(7), Some(7));
}

/// A limit is as fresh once it is cold, and not a nanosecond sooner.
#[test]
fn a_limit_is_as_fresh_once_it_is_cold() {
    let policy = warm_up(rate("2/s"), 4 * S);
    let mut limit = Ledger::new(policy, 0);
    assert_eq!(limit.fresh_at_ns(0), Some(0));
    let _ = start(limit.try_acquire(0, 1));
    // A permit takes off half a second of rest; the gap must be longer than the interval.
    assert_eq!(limit.fresh_at_ns(0), Some(2 * 1_375 * MS + 1));
    let _ = starts(&mut limit, 0, 8);
    assert_eq!(limit.fresh_at_ns(0), Some(10_500 * MS));
    // Two thirds of a second of rest round up, after 7/6 s, which do so too.
    let mut thirds = Ledger::new(warm_up(rate("3/s"), S), 0);
    let _ = starts(&mut thirds, 0, 2);
    assert_eq!(thirds.fresh_at_ns(0), Some(1_166_666_667 + 666_666_667));
    let several = Ledger::new(policy.with_max_request(2).unwrap(), 0);
    assert_eq!(several.fresh_at_ns(0), None, "rest pays for the first of two");
}

/// Rest before the zero of a new clock cools as well, at the rate never too.
#[test]
fn rest_counts_across_a_restart() {
    let (policy, never) = (warm_up(rate("2/s"), 4 * S), warm_up(Rate::NEVER, 4 * S));
    let mut limit = Ledger::new(policy, 0);
    let _ = starts(&mut limit, 0, 8);
    limit.pass_to(6 * S);
    let since = RestoreContext { now_ns: 0, elapsed_ns: 3 * S };
    let restored = restore(policy, &limit.save(6 * S), since).unwrap();
    assert_eq!(policy.warmth_ns(part(&restored), 0), S);
    assert_eq!(policy.warmth_ns(part(&restored), S / 10), S - S / 10, "it still rests");

    limit.reconfigure(6 * S, never).unwrap();
    let mut restored = restore(never, &limit.save(6 * S + S / 2), since).unwrap();
    restored.reconfigure(S / 4, policy).unwrap();
    assert_eq!(policy.warmth_ns(part(&restored), S / 4), S / 4);
}

/// A period of zero is an error, and one of a nanosecond is no unlimited rate.
#[test]
fn numbers_that_make_no_limit_are_errors() {
    let second = Duration::from_secs(1);
    let ten = rate("10/s");
    assert_eq!(WarmUp::new(ten, Duration::ZERO), Err(LimitError::ZeroPeriod));
    assert_eq!(WarmUp::new(ten, Duration::MAX), Err(LimitError::PeriodTooLong));
    let policy = WarmUp::new(ten, second).unwrap();
    assert_eq!(policy.with_max_request(0), Err(LimitError::ZeroPermits));
    assert_eq!("0.5".parse::<Ratio>(), Err(RatioError::BelowOne));
    let fine = factor("1.000000000001");
    assert_eq!(policy.with_cold_factor(fine), Err(LimitError::WarmUpTooLong));
    assert!(warm_up(Rate::NEVER, S).with_cold_factor(fine).is_ok(), "nothing is computed");
    let numbers = (policy.rate(), policy.period_ns(), policy.max_request());
    assert_eq!((numbers, policy.cold_factor()), ((ten, S, 1), factor("3")));
    for period_ns in [1, 999] {
        let mut limit = Ledger::new(warm_up(ten, period_ns), 0);
        let starts = starts(&mut limit, 0, 4);
        assert!(
            starts.windows(2).all(|of| (S / 10..=S / 10 + period_ns).contains(&(of[1] - of[0])))
        );
    }
}

/// At the ends of 64 bits nothing wraps, and no instant comes early.
#[test]
fn periods_and_rates_of_any_size() {
    let longest = warm_up(rate("1000/s"), u64::MAX);
    let mut limit = Ledger::new(longest, 0);
    assert_eq!(starts(&mut limit, 0, 3), [0, 3 * MS, 6 * MS], "cold for centuries");
    for text in RATES {
        let (permits, per_ns) = rate(text).fraction().unwrap();
        let policy = warm_up(rate(text), 365 * 86_400 * S).with_cold_factor(factor("10")).unwrap();
        let mut limit = Ledger::new(policy, 0);
        let first_ns = starts(&mut limit, 0, 2)[1];
        let (cold_ns, warm_ns) = (10 * per_ns / permits + 1, per_ns.div_ceil(permits));
        assert!((warm_ns..=cold_ns).contains(&first_ns), "{text}: {first_ns}");
        let late_ns = u64::MAX - 1;
        assert_eq!(start(limit.try_acquire(late_ns, 1)), late_ns, "{text}");
        assert!(granted(limit.try_acquire(late_ns, 1)).is_none() || permits > per_ns, "{text}");
    }
}
