//! Tests of credits: permits that callers return without a grant.
//!
//! They are accepted up to a full limit, never more than were taken. In any window, grants are at
//! most the limit's bound and the permits credited in it.

use std::time::Duration;

use crate::common::{MS, S, pacer, policy, rate as rate_of};
use fastrand::Rng;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::backfill_pool::BackfillPool;
use rategate_core::commit_log::CommitLog;
use rategate_core::concurrency::Concurrency;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::rate::Rate;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::slow_start::SlowStart;
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::verdict::{Grant, Verdict};

const PERIOD_NS: u64 = 1_000;
const MAX_PERMITS: u64 = 6;

fn granted(limit: &mut Ledger, now_ns: u64, permits: u64) -> Option<Grant> {
    match limit.try_acquire(now_ns, permits) {
        Ok(Verdict::Granted(grant)) => Some(grant),
        _ => None,
    }
}

/// Returns every policy, large enough for several permits at once.
fn policies() -> Vec<AnyPolicy> {
    let rate: Rate = "6/1us".parse().unwrap();
    vec![
        Gcra::new(rate, MAX_PERMITS).unwrap().into(),
        Gcra::new(Rate::NEVER, MAX_PERMITS).unwrap().into(),
        SlidingLog::new(MAX_PERMITS, Duration::from_nanos(PERIOD_NS)).into(),
        SlidingLog::new(MAX_PERMITS, Duration::from_nanos(PERIOD_NS))
            .with_resolution(Duration::from_nanos(7))
            .unwrap()
            .into(),
        SlidingLog::new(MAX_PERMITS, Duration::from_nanos(PERIOD_NS)).compact().into(),
        SlidingLog::new(MAX_PERMITS, Duration::from_nanos(PERIOD_NS))
            .with_parts(10)
            .unwrap()
            .into(),
        FixedWindow::new(MAX_PERMITS, Duration::from_nanos(PERIOD_NS), Anchor::Epoch).into(),
        FixedWindow::new(MAX_PERMITS, Duration::from_nanos(PERIOD_NS), Anchor::FirstCall).into(),
        Concurrency::new(MAX_PERMITS).into(),
        CommitLog::new(MAX_PERMITS, Duration::from_nanos(PERIOD_NS)).into(),
        pacer(rate, Duration::from_nanos(0), None).into(),
        pacer(rate, Duration::from_nanos(0), Some(Duration::from_nanos(2 * PERIOD_NS))).into(),
        TwoTimeline::new(rate, Mode::Average, None).into(),
        TwoTimeline::new(rate, Mode::Average, Some(Duration::from_nanos(2 * PERIOD_NS))).into(),
        TwoTimeline::new(rate, Mode::Strict, None).into(),
        slow(Gcra::new(rate, MAX_PERMITS).unwrap()),
        slow(SlidingLog::new(MAX_PERMITS, Duration::from_nanos(PERIOD_NS)).compact()),
        slow(pacer(rate, Duration::from_nanos(0), None)),
    ]
}

fn slow(policy: impl Into<AnyPolicy>) -> AnyPolicy {
    SlowStart::new(policy, Duration::from_nanos(PERIOD_NS)).unwrap().into()
}

/// A fresh limit has no permits out, and stays fresh.
#[test]
fn a_fresh_limit_takes_nothing_back() {
    for policy in policies() {
        for now_ns in [0, 5 * S] {
            let mut limit = Ledger::new(policy, now_ns);
            let (state, max) = (limit.limits().only().cloned(), limit.remaining(now_ns));
            assert_eq!(limit.credit(now_ns, 3), 0, "{policy:?}");
            assert_eq!(limit.limits().only(), state.as_ref(), "{policy:?}");
            assert_eq!(limit.remaining(now_ns), max, "{policy:?}");
        }
    }
}

/// A credit at the very instant of the grant leaves the limit as if it had never been taken.
#[test]
fn what_comes_back_at_once_was_never_taken() {
    for policy in policies() {
        let now_ns = 10 * PERIOD_NS + 500;
        let mut limit = Ledger::new(policy, 10 * PERIOD_NS);
        let max = limit.remaining(now_ns);
        let permits = max.min(2);
        assert!(granted(&mut limit, now_ns, permits).is_some(), "{policy:?}");
        assert_eq!(limit.remaining(now_ns), max - permits, "{policy:?}");
        assert_eq!(limit.credit(now_ns, permits + 5), permits, "{policy:?}: up to full");
        assert_eq!(limit.remaining(now_ns), max, "{policy:?}");
        assert_eq!(limit.credit(now_ns, 1), 0, "{policy:?}: once");
    }
}

/// A simple model of the permits out: a bucket's level in parts, a window's count, a log's list.
#[derive(Debug)]
enum Model {
    /// The level in units of 1/6 ns, of which a permit is 1000.
    Bucket {
        parts: u64,
        at_ns: u64,
    },
    Window {
        number: u64,
        used: u64,
    },
    Log(Vec<u64>),
}

impl Model {
    const FULL: u64 = MAX_PERMITS * PERIOD_NS;

    fn pass(&mut self, now_ns: u64) {
        match self {
            Self::Bucket { parts, at_ns } => {
                *parts = Self::FULL.min(*parts + (now_ns - *at_ns) * 6);
                *at_ns = now_ns;
            }
            Self::Window { number, used } => {
                if *number < now_ns / PERIOD_NS {
                    (*number, *used) = (now_ns / PERIOD_NS, 0);
                }
            }
            Self::Log(log) => log.retain(|at_ns| at_ns + PERIOD_NS > now_ns),
        }
    }

    fn remaining(&self) -> u64 {
        match self {
            Self::Bucket { parts, .. } => parts / PERIOD_NS,
            Self::Window { used, .. } => MAX_PERMITS - used,
            Self::Log(log) => MAX_PERMITS - u64::try_from(log.len()).unwrap(),
        }
    }

    fn take(&mut self, now_ns: u64, permits: u64) {
        match self {
            Self::Bucket { parts, .. } => *parts -= permits * PERIOD_NS,
            Self::Window { used, .. } => *used += permits,
            Self::Log(log) => log.extend((0..permits).map(|_| now_ns)),
        }
    }

    fn credit(&mut self, permits: u64) -> u64 {
        match self {
            Self::Bucket { parts, .. } => {
                let back = permits.min((Self::FULL - *parts).div_ceil(PERIOD_NS));
                *parts = Self::FULL.min(*parts + back * PERIOD_NS);
                back
            }
            Self::Window { used, .. } => {
                let back = permits.min(*used);
                *used -= back;
                back
            }
            Self::Log(log) => {
                let back = permits.min(u64::try_from(log.len()).unwrap());
                log.truncate(log.len() - usize::try_from(back).unwrap());
                back
            }
        }
    }

    /// Returns the instant from which no permits are out.
    fn fresh_at_ns(&self) -> u64 {
        match self {
            Self::Bucket { parts, at_ns } => at_ns + (Self::FULL - parts).div_ceil(6),
            Self::Window { number, used } => {
                if *used > 0 {
                    (number + 1) * PERIOD_NS
                } else {
                    0
                }
            }
            Self::Log(log) => log.last().map_or(0, |at_ns| at_ns + PERIOD_NS),
        }
    }
}

#[test]
fn a_limit_is_as_full_as_what_is_out_says() {
    let rate: Rate = "6/1us".parse().unwrap();
    for seed in 0..600 {
        let mut random = Rng::with_seed(seed);
        let mut now_ns = 5 * PERIOD_NS;
        let log = SlidingLog::new(MAX_PERMITS, Duration::from_nanos(PERIOD_NS));
        let cases: [(AnyPolicy, Model); 3] = [
            (
                Gcra::new(rate, MAX_PERMITS).unwrap().into(),
                Model::Bucket { parts: Model::FULL, at_ns: now_ns },
            ),
            (
                FixedWindow::new(MAX_PERMITS, Duration::from_nanos(PERIOD_NS), Anchor::Epoch)
                    .into(),
                Model::Window { number: 0, used: 0 },
            ),
            (log.into(), Model::Log(Vec::new())),
        ];
        let mut limits = cases.map(|(policy, model)| (Ledger::new(policy, now_ns), model));
        for call in 0..60 {
            now_ns += random.choice([0, 1, 40, 170, 600, 1_300]).unwrap();
            let (permits, gives) = (random.u64(1..=4), random.u64(0..=2) == 0);
            for (limit, model) in &mut limits {
                let context = format!("seed {seed}, call {call}, {:?}: {model:?}", policy(&limit));
                model.pass(now_ns);
                if gives {
                    assert_eq!(limit.credit(now_ns, permits), model.credit(permits), "{context}");
                } else if granted(limit, now_ns, permits).is_some() {
                    assert!(permits <= model.remaining(), "{context}");
                    model.take(now_ns, permits);
                }
                assert_eq!(limit.remaining(now_ns), model.remaining(), "{context}");
                let fresh_ns = model.fresh_at_ns().max(now_ns);
                assert_eq!(limit.fresh_at_ns(now_ns), Some(fresh_ns), "{context}");
            }
        }
    }
}

/// The remaining bound: grants less credits, in any window.
#[test]
fn no_window_holds_more_than_came_back_in_it() {
    for seed in 0..2_000 {
        let mut random = Rng::with_seed(seed);
        let policy = random
            .choice([
                AnyPolicy::from(SlidingLog::new(MAX_PERMITS, Duration::from_nanos(PERIOD_NS))),
                SlidingLog::new(MAX_PERMITS, Duration::from_nanos(PERIOD_NS))
                    .with_parts(20)
                    .unwrap()
                    .into(),
                Gcra::new("6/1us".parse().unwrap(), MAX_PERMITS).unwrap().into(),
            ])
            .unwrap();
        let (mut limit, mut now_ns) = (Ledger::new(policy, 0), 0);
        // When, and how many: grants above zero, credits below.
        let mut course: Vec<(u64, i64)> = Vec::new();
        let (mut out, mut back) = (0, 0);
        for _ in 0..80 {
            now_ns += random.choice([0, 0, 3, 80, 400]).unwrap();
            let permits = random.u64(1..=4);
            if random.u64(0..=3) == 0 {
                let came = limit.credit(now_ns, permits);
                back += came;
                course.push((now_ns, -i64::try_from(came).unwrap()));
            } else if granted(&mut limit, now_ns, permits).is_some() {
                out += permits;
                course.push((now_ns, i64::try_from(permits).unwrap()));
            }
            assert!(back <= out, "seed {seed}: nothing comes back that was not taken");
        }
        let is_bucket = matches!(policy, AnyPolicy::Gcra(_));
        for (first, &(from_ns, _)) in course.iter().enumerate() {
            let mut sum = 0;
            for &(at_ns, change) in course.iter().skip(first) {
                if at_ns >= from_ns + PERIOD_NS {
                    break;
                }
                sum += change;
                let earned = if is_bucket {
                    i64::try_from((at_ns - from_ns) * 6 / 1_000).unwrap()
                } else {
                    0
                };
                assert!(sum <= 6 + earned, "seed {seed}: {sum} from {from_ns} to {at_ns}");
            }
        }
    }
}

/// A credit without a grant counts for the grants, whose refunds then return no more than is
/// correct.
#[test]
fn a_grant_knows_of_what_came_back_without_one() {
    let mut limit = Ledger::new(Gcra::new("1/s".parse().unwrap(), 3).unwrap(), 0);
    let _first = granted(&mut limit, 0, 1).unwrap();
    let second = granted(&mut limit, 0, 1).unwrap();
    assert_eq!(limit.credit(0, 1), 1, "the first");
    let _third = granted(&mut limit, S / 2, 1).unwrap();
    // Without the second, the bucket would have been full until the third took its permit.
    let now_ns = S - 100 * MS;
    let mut without = Ledger::new(Gcra::new("1/s".parse().unwrap(), 3).unwrap(), 0);
    let _ = granted(&mut without, S / 2, 1).unwrap();
    let _ = limit.refund(now_ns, &second, 1);
    for wait_ns in [0, 100 * MS, S / 4, S] {
        assert!(limit.remaining(now_ns + wait_ns) <= without.remaining(now_ns + wait_ns));
    }
}

/// A credit does not cancel promises, and an opening before one is there for any call that fits.
#[test]
fn promises_stay() {
    let mut limit = Ledger::new(SlidingLog::new(2, Duration::from_nanos(S)), 0);
    let _ = granted(&mut limit, 0, 2).unwrap();
    let Ok(Verdict::Granted(promise)) = limit.reserve(10, 2, None) else { panic!() };
    assert_eq!(promise.start_ns, S);
    assert_eq!(limit.fresh_at_ns(10), Some(2 * S));
    assert_eq!(limit.credit(20, 5), 2, "what has started");
    assert_eq!(limit.promised(), 1);
    assert_eq!(limit.remaining(20), 0, "two would be within a second of the promise");
    assert!(limit.cancel(20, promise.ticket));
    assert_eq!(limit.remaining(20), 2);
}

/// A pool accepts credits up to its capacity, also a pool that never refills itself.
#[test]
fn a_pool_fills_up() {
    for rate in [None, Some("1/h".parse().unwrap())] {
        let pool = BackfillPool::new(4, rategate_core::ratio::Ratio::ONE, rate).unwrap();
        let mut limit = Ledger::new(pool, 0);
        limit.refill(0, 4);
        let max = limit.remaining(0);
        assert!(granted(&mut limit, 0, 3).is_some());
        assert_eq!(limit.credit(0, 2), 2);
        assert_eq!(limit.remaining(0), max - 1);
        assert_eq!(limit.credit(0, 9), 1);
        assert_eq!(limit.remaining(0), max);
    }
}

/// A credit to a bucket without a rate is available once it has a rate.
#[test]
fn a_bucket_that_earns_nothing() {
    let bucket = |rate: Rate| Gcra::new(rate, 3).unwrap();
    let rate: Rate = "1/s".parse().unwrap();
    let mut limit = Ledger::new(bucket(rate), 0);
    assert!(granted(&mut limit, 0, 3).is_some());
    limit.reconfigure(0, bucket(Rate::NEVER)).unwrap();
    assert_eq!(limit.fresh_at_ns(5 * S), None);
    assert_eq!(limit.credit(5 * S, 2), 2);
    limit.reconfigure(9 * S, bucket(rate)).unwrap();
    assert_eq!(limit.remaining(9 * S), 2);
    assert_eq!(limit.credit(9 * S + S / 2, 2), 1, "half of the permit still fits");
    assert_eq!(limit.fresh_at_ns(9 * S + S / 2), Some(9 * S + S / 2));
    assert_eq!(limit.remaining(9 * S + S / 2), 3);
}

/// Where an ideal timeline still has operations of an earlier rate, none of this one come back to
/// it. Batches have none.
#[test]
fn what_is_due_at_an_earlier_rate_comes_first() {
    for (mode, back) in [(Mode::Average, 0), (Mode::Batched { min_sleep_ns: 0 }, 1)] {
        let of = |text| TwoTimeline::new(rate_of(text), mode, Some(Duration::from_secs(1)));
        let mut limit = Ledger::new(of("1000/s"), 0);
        limit.reconfigure(10 * S, of("1/s")).unwrap();
        let due = limit.remaining(10 * S);
        assert!(due > 1_000 && granted(&mut limit, 10 * S, due).is_some(), "{due}");
        assert!(granted(&mut limit, 11 * S, 1).is_some());
        assert_eq!(limit.credit(11 * S, 1), back, "{mode:?}");
    }
}
