//! Tests of the contract of a rate that follows refusals, against a plain list of starts and of
//! rates.

use crate::common::played::{Played, Step, Verb};
use crate::common::{MS, S, end, granted, part, per};
use fastrand::Rng;
use rategate_core::adaptive::{AdaptiveRate, Outcome};
use rategate_core::error::LimitError;
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::policy::Ending;
use rategate_core::rate::Rate;
use rategate_core::saved::{RestoreContext, restore};
use rategate_core::verdict::{Denial, Grant, Verdict};

/// A millionth of a permit per second makes up for one of these in a nanosecond.
const PERMIT: u128 = 1_000_000_000_000_000;

fn millionths(rate: Rate) -> u128 {
    let (permits, period_ns) = rate.fraction().unwrap();
    u128::from(permits) * PERMIT / u128::from(period_ns)
}

/// All that has started, and all rates, each since an instant.
#[derive(Default)]
struct Plain {
    starts: Vec<(u64, u64)>,
    rates: Vec<(u64, u128)>,
}

impl Plain {
    /// Returns the parts that are earned in a time.
    fn earned(&self, from_ns: u64, to_ns: u64) -> u128 {
        let ends = self.rates.iter().skip(1).map(|&(since_ns, _)| since_ns).chain([u64::MAX]);
        let parts = self.rates.iter().zip(ends).map(|(&(since_ns, rate), end_ns)| {
            let (from_ns, to_ns) = (since_ns.max(from_ns), end_ns.min(to_ns));
            u128::from(to_ns.saturating_sub(from_ns)) * rate
        });
        parts.sum()
    }

    /// Returns `true` if so many permits may start: together with those of any window before, they
    /// are at most the burst and what has been earned in it.
    fn fits(&self, now_ns: u64, permits: u64, burst: u64) -> bool {
        let mut sum = u128::from(permits);
        self.starts.iter().rev().all(|&(start_ns, permits)| {
            sum += u128::from(permits);
            sum * PERMIT <= u128::from(burst) * PERMIT + self.earned(start_ns, now_ns)
        })
    }
}

fn outcome(random: &mut Rng) -> Outcome {
    [Outcome::Served, Outcome::Served, Outcome::Dropped, Outcome::Ignored][random.usize(..4)]
}

/// A call passes if and only if it fits under the rates so far, a denial names the instant at which
/// it passes, and the rate is within its bounds, whatever was reported.
#[test]
fn a_rate_is_exact_while_it_changes() {
    let (mut grown, mut cut, mut denied) = (0, 0, 0);
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let burst = random.u64(1..=5);
        let ceiling = Rate::new(random.u64(7..=900), std::time::Duration::from_secs(7)).unwrap();
        let floor = Rate::new(1, std::time::Duration::from_secs(random.u64(1..=100))).unwrap();
        let policy = AdaptiveRate::new(floor, ceiling).burst(burst);
        let mut limit = Ledger::new(policy, 0);
        let mut plain = Plain::default();
        plain.rates.push((0, millionths(policy.ceiling())));
        let (mut out, mut now_ns): (Vec<Grant>, u64) = (Vec::new(), 0);
        for _ in 0..300 {
            now_ns += random.u64(0..=100 * MS);
            let before = millionths(policy.rate(part(&limit)));
            if !out.is_empty() && random.u64(..3) == 0 {
                let grant = out.swap_remove(random.usize(..out.len()));
                end(&mut limit, now_ns, &grant, outcome(&mut random));
            } else {
                let permits = random.u64(1..=burst);
                let fits = plain.fits(now_ns, permits, burst);
                match limit.try_acquire(now_ns, permits).unwrap() {
                    Verdict::Granted(grant) => {
                        assert!(fits, "seed {seed}: {now_ns}");
                        plain.starts.push((now_ns, permits));
                        out.push(grant);
                    }
                    Verdict::Denied(Denial { retry_after_ns }) => {
                        assert!(!fits, "seed {seed}: {now_ns}");
                        let opens_ns = now_ns + retry_after_ns.unwrap().get();
                        assert!(plain.fits(opens_ns, permits, burst), "seed {seed}");
                        assert!(!plain.fits(opens_ns - 1, permits, burst), "seed {seed}");
                        denied += 1;
                    }
                }
            }
            let rate = millionths(policy.rate(part(&limit)));
            let bounds = millionths(policy.floor())..=millionths(policy.ceiling());
            assert!(bounds.contains(&rate), "seed {seed}: {rate}");
            if rate != before {
                plain.rates.push((now_ns, rate));
            }
            grown += u64::from(rate > before);
            cut += u64::from(rate < before);
        }
    }
    assert!(grown > 1_000 && cut > 1_000 && denied > 10_000, "{grown} {cut} {denied}");
}

/// Without room between its bounds it answers as a bucket of that rate: tries, promises, what is
/// cancelled, charged and credited.
#[test]
fn one_rate_is_a_bucket() {
    use Verb::{Cancel, Charge, Credit, Reserve, Try};
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let (burst, permits) = (random.u64(1..=5), random.u64(1..=90));
        let rate = per(permits, MS << random.u64(0..=9));
        let mut adaptive = Played::new(AdaptiveRate::new(rate, rate).burst(burst));
        let mut bucket = Played::new(Gcra::new(rate, burst).unwrap());
        let mut now_ns = 0;
        for _ in 0..200 {
            now_ns += random.u64(0..=20 * MS);
            let verbs = [Cancel, Charge, Credit, Reserve, Reserve, Reserve, Try, Try];
            let step = Step::random(now_ns, &verbs, (burst, S), &mut random);
            assert_eq!(adaptive.step(&step), bucket.step(&step), "seed {seed}: {step:?}");
            assert_eq!(adaptive.seen(now_ns), bucket.seen(now_ns), "seed {seed}: {step:?}");
        }
    }
}

/// No sequence of samples passes the ceiling's bound, and equal ones lead to equal rates. Samples
/// come from the future, twice, out of order, and with the largest numbers.
///
/// `RATEGATE_SAMPLES` says how many sequences.
#[test]
fn hostile_samples_stay_under_the_ceiling() {
    let said = std::env::var("RATEGATE_SAMPLES").ok();
    let sequences = said.map_or(400, |said| said.parse().expect("RATEGATE_SAMPLES is a number"));
    for seed in 0..sequences {
        let mut random = Rng::with_seed(seed);
        let burst = random.u64(1..=3);
        let [floor, ceiling] = [1, random.u64(1..=200)].map(Rate::per_second);
        let policy = AdaptiveRate::new(floor, ceiling).burst(burst);
        let t_ns = S.div_ceil(ceiling.fraction().unwrap().0 * S / ceiling.fraction().unwrap().1);
        let mut limits = [Ledger::new(policy, 0), Ledger::new(policy, 0)];
        let (mut now_ns, mut starts): (u64, Vec<u64>) = (0, Vec::new());
        let mut newest: Option<Grant> = None;
        for _ in 0..400 {
            now_ns += random.u64(0..=2 * t_ns / 3);
            let lie = [now_ns, 0, u64::MAX, random.u64(..)][random.usize(..4)];
            let (what, outcome) = (random.u64(..8), outcome(&mut random));
            let promised = random.u64(0..=S);
            let answers = limits.each_mut().map(|limit| match (what, &newest) {
                (0 | 1, Some(_)) => {
                    let permits = if what == 0 { u64::MAX } else { 1 };
                    limit.end(now_ns, permits, Ending::Of { start_ns: lie, outcome });
                    None
                }
                (2, _) => granted(limit.reserve(now_ns, 1, Some(promised))),
                _ => granted(limit.try_acquire(now_ns, 1)),
            });
            let rates = limits.each_ref().map(|limit| policy.rate(part(&limit)));
            assert_eq!(rates[0], rates[1], "seed {seed}: equal samples");
            assert_eq!(answers[0].map(|it| it.start_ns), answers[1].map(|it| it.start_ns));
            if let Some(grant) = answers[0] {
                newest = Some(grant);
                starts.push(grant.start_ns);
            }
        }
        starts.sort_unstable();
        let rate = millionths(ceiling);
        for (first, &from_ns) in starts.iter().enumerate() {
            for (count, &to_ns) in (1_u128..).zip(&starts[first..]) {
                // A half-open window that ends just after this start.
                let earned = u128::from(to_ns - from_ns + 1) * rate;
                let most = (earned + u128::from(burst - 1) * PERMIT).div_ceil(PERMIT);
                assert!(count <= most, "seed {seed}: {count} in {} ns", to_ns - from_ns + 1);
            }
        }
    }
}

#[test]
fn what_was_found_is_forgotten_after_ten_minutes_and_kept_over_a_restart() {
    const MINUTE: u64 = 60 * S;
    let policy = AdaptiveRate::new(Rate::per_second(1), Rate::per_second(64));
    let mut limit = Ledger::new(policy, 0);
    assert_eq!(limit.fresh_at_ns(7), Some(7));
    for second in 0..4 {
        let grant = granted(limit.try_acquire(second * S, 1)).unwrap();
        end(&mut limit, second * S + MS, &grant, Outcome::Dropped);
    }
    let (end_ns, found) = (3 * S + MS, policy.rate(part(&limit)));
    assert!(millionths(found) < millionths(Rate::per_second(38)), "{found}");
    let fresh_ns = end_ns + 10 * MINUTE;
    assert_eq!(limit.fresh_at_ns(end_ns), Some(fresh_ns));
    let rate_at = |limit: &Ledger, now_ns| {
        let mut later = limit.clone();
        assert!(granted(later.try_acquire(now_ns, 1)).is_some());
        policy.rate(part(&later))
    };
    assert_eq!(rate_at(&limit, fresh_ns - 1), found);
    assert_eq!(rate_at(&limit, fresh_ns), Rate::per_second(64));
    let saved = limit.save(end_ns);
    for (minutes, expected) in [(9, found), (10, Rate::per_second(64))] {
        let since = RestoreContext { now_ns: 20 * MINUTE, elapsed_ns: minutes * MINUTE };
        let restored = restore(policy, &saved, since).unwrap();
        assert_eq!(rate_at(&restored, 20 * MINUTE), expected);
    }
    // A cut leaves what is in use, and so does a change of the bounds.
    let mut limit = restore(policy, &saved, RestoreContext { now_ns: 0, elapsed_ns: 0 }).unwrap();
    let lower = AdaptiveRate::new(Rate::per_second(1), Rate::per_second(2));
    limit.reconfigure(0, lower).unwrap();
    assert!(millionths(lower.rate(part(&limit))) <= millionths(Rate::per_second(2)));
}

/// An outcome that says nothing teaches nothing, and does not keep what was found any longer.
#[test]
fn an_ignored_outcome_changes_nothing() {
    let policy = AdaptiveRate::new(Rate::per_second(1), Rate::per_second(64));
    let mut limit = Ledger::new(policy, 0);
    let grant = granted(limit.try_acquire(0, 1)).unwrap();
    let other = granted(limit.try_acquire(S, 1)).unwrap();
    end(&mut limit, S + MS, &grant, Outcome::Dropped);
    let (found, fresh_ns) = (policy.rate(part(&limit)), limit.fresh_at_ns(S + MS));
    end(&mut limit, 9 * S, &other, Outcome::Ignored);
    assert_eq!((policy.rate(part(&limit)), limit.fresh_at_ns(9 * S)), (found, fresh_ns));
}

#[test]
fn bounds_that_are_none_are_an_error() {
    for (floor, ceiling) in [
        (Rate::NEVER, Rate::per_second(1)),
        (Rate::per_second(1), Rate::UNLIMITED),
        (Rate::per_second(2), Rate::per_second(1)),
        (Rate::per_day(1), Rate::new(1, std::time::Duration::from_secs(1_000_001)).unwrap()),
    ] {
        assert_eq!(AdaptiveRate::try_new(floor, ceiling), Err(LimitError::RateBounds));
    }
    let daily = AdaptiveRate::new(Rate::per_day(1), Rate::per_day(1));
    assert_eq!(daily.floor().to_string(), "11/1000000s", "a millionth, rounded down");
}
