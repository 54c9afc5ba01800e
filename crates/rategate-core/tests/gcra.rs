//! Tests of the `gcra` contract, against a bucket of tokens counted in whole fractions.

use crate::common::{
    MS, RATES, S, bucket, fraction, granted, per, rate, retry, start, timeline, traffic,
};
use fastrand::Rng;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::error::{ExceedsCapacity, LimitError};
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::rate::Rate;
use rategate_core::two_timeline::Mode;
use rategate_core::verdict::Verdict;
use rategate_testkit::oracle::Grants;

/// A token bucket at `n` permits per `p` ns, in whole numbers.
///
/// Time is in `1 / n` ns and tokens in `1 / p` permits, so that one unit of time earns one unit
/// of tokens.
#[derive(Clone, Debug)]
struct Bucket {
    n: u128,
    p: u128,
    burst: u128,
    level: u128,
    /// The exact instant of the latest start, before which no call starts.
    at: u128,
}

impl Bucket {
    fn new(rate: Rate, burst: u64, now_ns: u64) -> Self {
        let (n, p) = fraction(rate);
        let burst = u128::from(burst);
        Self { n, p, burst, level: burst * p, at: u128::from(now_ns) * n }
    }

    fn level_at(&self, at: u128) -> u128 {
        (self.level + at.saturating_sub(self.at)).min(self.burst * self.p)
    }

    /// Returns the exact instant from `from_ns` on at which `permits` are available.
    fn opening(&self, from_ns: u64, permits: u64) -> u128 {
        let from = (u128::from(from_ns) * self.n).max(self.at);
        from + (u128::from(permits) * self.p).saturating_sub(self.level_at(from))
    }

    fn opening_ns(&self, from_ns: u64, permits: u64) -> u64 {
        u64::try_from(self.opening(from_ns, permits).div_ceil(self.n)).unwrap()
    }

    fn take(&mut self, at: u128, permits: u64) {
        self.level = self.level_at(at) - u128::from(permits) * self.p;
        self.at = at;
    }

    /// Converts what is left into parts of the new rate, rounded down. A larger burst adds nothing.
    fn change(&mut self, rate: Rate, burst: u64, now_ns: u64) {
        let left = self.level_at(u128::from(now_ns) * self.n);
        let was = self.p;
        *self = Self::new(rate, burst, now_ns);
        self.level = (left * self.p / was).min(self.level);
    }
}

fn random_rate(random: &mut Rng) -> Rate {
    per(random.u64(1..=40), random.u64(1..=300))
}

/// Units, Retry, Rounding, Change: every decision of a mixed sequence is the bucket's.
///
/// On a change the permits in use stay in use, and their fraction is right to less than a part of
/// the new rate, rounded against the caller.
#[test]
fn answers_are_those_of_an_exact_token_bucket() {
    for seed in 1..300 {
        let mut random = Rng::with_seed(seed);
        let (mut rate, mut burst) = (random_rate(&mut random), random.u64(1..=9));
        let mut now_ns = random.u64(0..=50);
        let mut limit = Ledger::new(Gcra::new(rate, burst).unwrap(), now_ns);
        let mut bucket = Bucket::new(rate, burst, now_ns);
        for step in 0..120 {
            now_ns += random.choice([0, 0, 1, 2, 3, 10, 100]).unwrap();
            // A promise is kept at any numbers, so a change waits for the last.
            if random.u64(..8) == 0 && bucket.at <= u128::from(now_ns) * bucket.n {
                (rate, burst) = (random_rate(&mut random), random.u64(1..=9));
                limit.reconfigure(now_ns, Gcra::new(rate, burst).unwrap()).unwrap();
                bucket.change(rate, burst, now_ns);
            }
            let what = format!("seed {seed}, step {step}: {rate}, burst {burst}");
            let permits = random.u64(1..=burst);
            let opens_ns = bucket.opening_ns(now_ns, permits);
            if random.u64(..2) == 0 {
                let answer = limit.reserve(now_ns, permits, None);
                assert_eq!(start(answer), opens_ns, "{what}");
                let at = bucket.opening(now_ns, permits);
                bucket.take(at, permits);
            } else {
                let answer = limit.try_acquire(now_ns, permits);
                if opens_ns <= now_ns {
                    assert_eq!(start(answer), now_ns, "{what}");
                    bucket.take(u128::from(now_ns) * bucket.n, permits);
                } else {
                    assert_eq!(retry(answer), opens_ns - now_ns, "{what}");
                }
            }
        }
    }
}

/// Ceiling: `ceil((W + tau) / T)` in any half-open window, with weights, tries and reservations.
#[test]
fn no_window_holds_more_than_the_ceiling() {
    for seed in 1..150 {
        let mut random = Rng::with_seed(seed);
        let (rate, burst) = (random_rate(&mut random), random.u64(1..=8));
        let mut limit = Ledger::new(Gcra::new(rate, burst).unwrap(), 0);
        let grants = traffic(&mut limit, &mut random, (120, &[0, 0, 1, 5, 30, 200], burst));
        let (n, p) = fraction(rate);
        // (W + (burst - 1) p / n) / (p / n), rounded up.
        let ceiling = |window_ns: u128| (window_ns * n).div_ceil(p) + u128::from(burst) - 1;
        // With a T that does not divide W the two roundings are one: tau / T is whole.
        grants.assert_ceiling(&format!("seed {seed}: {rate}, burst {burst}"), ceiling);
    }
}

/// Ceiling, reached: a burst after silence and then one permit every T.
#[test]
fn the_ceiling_is_reached() {
    let (interval_ns, burst) = (10, 4);
    let rate = per(1, interval_ns);
    let mut limit = Ledger::new(Gcra::new(rate, burst).unwrap(), 0);
    let mut grants = Grants::default();
    for now_ns in 1_000..1_200 {
        while granted(limit.try_acquire(now_ns, 1)).is_some() {
            grants.add(now_ns, 1);
        }
    }
    for window_ns in 1..150 {
        let tau_ns = (burst - 1) * interval_ns;
        assert_eq!(grants.fullest_window(window_ns).0, (window_ns + tau_ns).div_ceil(interval_ns));
    }
}

/// X4.5: a bucket as deep as the limit grants 2N - 1 in one period, a bucket of one never more
/// than N.
#[test]
fn a_deep_bucket_exceeds_the_period_and_a_shallow_one_does_not() {
    let (permits, period_ns) = (5, 1_000);
    let rate = per(permits, period_ns);
    for (burst, max) in [(permits, 2 * permits - 1), (1, permits)] {
        let mut limit = Ledger::new(Gcra::new(rate, burst).unwrap(), 0);
        let mut grants = Grants::default();
        for now_ns in 5_000..9_000 {
            while granted(limit.try_acquire(now_ns, 1)).is_some() {
                grants.add(now_ns, 1);
            }
        }
        assert_eq!(grants.fullest_window(period_ns).0, max, "burst {burst}");
    }
}

/// Retry: one nanosecond before `retry_after` a call is denied, and at it granted, at every rate.
#[test]
fn retry_after_is_exact_at_every_rate() {
    for text in RATES {
        for burst in [1, 2, 1_000] {
            for permits in [1, 2, burst] {
                let mut limit = Ledger::new(bucket(text, burst), 12_345);
                if permits > burst {
                    continue;
                }
                let _ = limit.try_acquire(12_345, burst).unwrap();
                while granted(limit.try_acquire(12_345, permits)).is_some() {}
                let after_ns = retry(limit.try_acquire(12_345, permits));
                let (n, p) = fraction(rate(text));
                let exact_ns = (u128::from(permits) * p).div_ceil(n);
                assert!(u128::from(after_ns) <= exact_ns, "{text}");
                let Some(opens_ns) = after_ns.checked_add(12_345) else { continue };
                assert!(granted(limit.clone().try_acquire(opens_ns - 1, permits)).is_none());
                assert!(granted(limit.try_acquire(opens_ns, permits)).is_some(), "{text}");
            }
        }
    }
}

/// Rounding: with whole days taken at once, back to back for a year, the K-th permit after the
/// first burst starts at exactly `K p / n`, rounded up once and for all.
#[test]
fn reservations_lose_nothing_in_a_year() {
    for text in RATES {
        let (n, p) = fraction(rate(text));
        let day_ns = 86_400 * u128::from(S);
        let burst = u64::try_from((day_ns * n / p).max(1)).unwrap();
        let mut limit = Ledger::new(bucket(text, burst), 0);
        let mut taken = 0_u128;
        let mut random = Rng::with_seed(5);
        for _ in 0..365 {
            let permits = burst - random.u64(0..=(burst - 1).min(3));
            taken += u128::from(permits);
            let owed = taken.saturating_sub(burst.into());
            let grant = granted(limit.reserve(0, permits, None)).unwrap();
            assert_eq!(u128::from(grant.start_ns), (owed * p).div_ceil(n), "{text}");
        }
    }
}

/// Rounding: a poller that takes all available permits, often enough never to find the bucket
/// full, gets the burst and then `floor(t n / p)`: less than one permit of error at any time. A
/// schedule has one at first.
#[test]
fn polling_loses_nothing() {
    for text in RATES {
        let (n, p) = fraction(rate(text));
        for slices in [1, 3, 7] {
            // An interval in which about one permit, or a millisecond's worth, is earned.
            let interval_ns =
                u64::try_from((p / n / slices).max(u128::from(MS) / slices)).unwrap() + 1;
            let burst = u64::try_from(u128::from(interval_ns) * n / p).unwrap() + 2;
            let schedule = timeline(rate(text), Mode::Average, None);
            let limits: [(AnyPolicy, u64); 2] =
                [(bucket(text, burst).into(), burst), (schedule.into(), 1)];
            for (policy, first) in limits {
                let (mut limit, mut random) = (Ledger::new(policy, 0), Rng::with_seed(9));
                let (mut taken, mut now_ns) = (0, 0);
                for poll in 0..400 {
                    let free = limit.remaining(now_ns);
                    if free > 0 {
                        assert!(granted(limit.try_acquire(now_ns, free)).is_some());
                    }
                    taken += u128::from(free);
                    let earned = u128::from(now_ns) * n / p;
                    assert_eq!(taken, u128::from(first) + earned, "{policy:?}, poll {poll}");
                    now_ns += random.u64(0..=interval_ns);
                }
            }
        }
    }
}

/// Clock: at the end of 64 bits nothing wraps, for any call; a wait past the end is reported.
#[test]
fn the_end_of_the_clock_wraps_nothing() {
    for text in RATES {
        let begin_ns = 18_446_744_073 * S;
        let mut limit = Ledger::new(bucket(text, 2), begin_ns);
        assert_eq!(start(limit.try_acquire(begin_ns, 2)), begin_ns);
        for now_ns in [begin_ns, begin_ns + 1, u64::MAX - 1, u64::MAX, u64::MAX, begin_ns] {
            let before = format!("{limit:?}");
            match limit.reserve(now_ns, 2, None).unwrap() {
                Verdict::Granted(grant) => assert!(grant.start_ns >= limit.clamp(now_ns)),
                Verdict::Denied(denial) => {
                    let wait_ns = denial.retry_after_ns.expect("time would help").get();
                    let from_ns = limit.clamp(now_ns);
                    assert!(u128::from(from_ns) + u128::from(wait_ns) > u128::from(u64::MAX));
                    assert_eq!(before, format!("{limit:?}"));
                }
            }
        }
    }
}

/// Change to never and back: nothing is earned in between, and the state is kept.
#[test]
fn never_stops_the_clock_of_the_bucket() {
    let (paced, never) = (bucket("1/s", 3), Gcra::new(Rate::NEVER, 3).unwrap());
    let mut limit = Ledger::new(paced, 0);
    assert!(granted(limit.try_acquire(0, 3)).is_some());
    limit.reconfigure(S + S / 4, never).unwrap();
    assert_eq!(limit.remaining(9 * S), 0);
    assert_eq!(limit.peek(9 * S, 1), Ok(None));
    assert_eq!(limit.peek(9 * S, 4), Err(ExceedsCapacity::new(4, 3)));
    limit.reconfigure(100 * S, paced).unwrap();
    assert_eq!(limit.remaining(100 * S), 1);
    assert_eq!(limit.peek(100 * S, 2), Ok(Some(S - S / 4)));

    limit.reconfigure(100 * S, Gcra::new(Rate::UNLIMITED, 3).unwrap()).unwrap();
    assert_eq!(start(limit.reserve(100 * S, u64::MAX, None)), 100 * S);
    assert_eq!(limit.remaining(100 * S), u64::MAX);
    limit.reconfigure(100 * S, paced).unwrap();
    assert_eq!(limit.remaining(100 * S), 3);
}

#[test]
fn misuse_is_an_error() {
    assert_eq!(Gcra::new(rate("1/s"), 0), Err(LimitError::ZeroPermits));
    let gcra = bucket("1/s", 2);
    assert_eq!((gcra.rate(), gcra.burst_size().get()), (rate("1/s"), 2));
    assert_eq!(Ledger::new(gcra, 0).try_acquire(0, 3), Err(ExceedsCapacity::new(3, 2)));
}
