//! Helpers shared by the law tests: limits of a few numbers, calls, accessors of verdicts, rates,
//! and a changing rate.

pub(crate) mod bounds;
pub(crate) mod limits;
pub(crate) mod played;
pub(crate) mod queue_oracle;
pub(crate) mod queued;
#[cfg(not(loom))]
pub(crate) mod with_lock_free;

use std::borrow::Borrow;
use std::time::Duration;

use fastrand::Rng;
use rategate_core::adaptive::Outcome;
use rategate_core::any_policy::{AnyPolicy, Member};
use rategate_core::error::ExceedsCapacity;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::policy::Ending;
use rategate_core::rate::Rate;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::slow_start::SlowStart;
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::verdict::{Grant, Verdict};
use rategate_testkit::oracle::Grants;

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const S: u64 = 1_000_000_000;

pub(crate) type Answer = Result<Verdict, ExceedsCapacity>;

/// A policy or a state, as a part of a limit.
pub(crate) trait Part: Sized {
    fn of(limit: &Member) -> Option<&Self>;
}

macro_rules! parts {
    ($($name:ident: $policy:ty, $state:ty;)*) => {
        $(impl Part for $policy {
            fn of(limit: &Member) -> Option<&Self> {
                if let Member::$name(policy, _) = limit { Some(policy) } else { None }
            }
        }

        impl Part for $state {
            fn of(limit: &Member) -> Option<&Self> {
                if let Member::$name(_, state) = limit { Some(state) } else { None }
            }
        })*
    };
}

parts! {
    Gcra: Gcra, rategate_core::gcra::State;
    SlidingLog: SlidingLog, rategate_core::sliding_log::State;
    FixedWindow: FixedWindow, rategate_core::fixed_window::State;
    TwoTimeline: TwoTimeline, rategate_core::two_timeline::State;
    WarmUp: rategate_core::warm_up::WarmUp, rategate_core::warm_up::State;
    BackfillPool: rategate_core::backfill_pool::BackfillPool, rategate_core::backfill_pool::State;
    AdaptiveConcurrency: rategate_core::adaptive::AdaptiveConcurrency, rategate_core::adaptive::State;
    AdaptiveRate: rategate_core::adaptive::AdaptiveRate, rategate_core::adaptive::RateState;
    Concurrency: rategate_core::concurrency::Concurrency, rategate_core::concurrency::State;
    CommitLog: rategate_core::commit_log::CommitLog, rategate_core::commit_log::State;
    SlowStart: SlowStart, rategate_core::slow_start::State;
}

/// Returns a schedule in batches worth at least this sleep.
pub(crate) fn pacer(rate: Rate, min_sleep: Duration, catch_up: Option<Duration>) -> TwoTimeline {
    let min_sleep_ns = min_sleep.as_nanos().try_into().unwrap();
    TwoTimeline::new(rate, Mode::Batched { min_sleep_ns }, catch_up)
}

/// Returns the policy, or the state, of a limit that is not several.
pub(crate) fn part<T: Part>(limit: &impl Borrow<Ledger>) -> &T {
    T::of(limit.borrow().limits().only().expect("one limit")).expect("of this policy")
}

/// Returns the policy in force of a limit that is not several.
pub(crate) fn policy(limit: &impl Borrow<Ledger>) -> AnyPolicy {
    limit.borrow().limits().only().expect("one limit").policy()
}

/// Returns the grant, if the verdict is one.
pub(crate) fn granted(answer: Answer) -> Option<Grant> {
    match answer {
        Ok(Verdict::Granted(grant)) => Some(grant),
        Ok(Verdict::Denied(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Returns the start of a verdict that must be a grant.
pub(crate) fn start(answer: Answer) -> u64 {
    granted(answer).expect("a grant").start_ns
}

/// Returns the wait of a verdict that must be a denial.
pub(crate) fn retry(answer: Answer) -> u64 {
    match answer {
        Ok(Verdict::Denied(denial)) => denial.retry_after_ns.expect("a wait").get(),
        other => panic!("not a denial: {other:?}"),
    }
}

/// Asserts that a denied call passes at the end of its wait, equality included, and not a
/// nanosecond sooner. Returns the wait.
#[track_caller]
pub(crate) fn exact_retry(limit: &Ledger, now_ns: u64, permits: u64, what: &str) -> u64 {
    let at = |now_ns: u64| limit.clone().try_acquire(now_ns, permits);
    let wait_ns = retry(at(now_ns));
    assert!(granted(at(now_ns + wait_ns - 1)).is_none(), "{what}: sooner than {wait_ns}");
    let grant = granted(at(now_ns + wait_ns));
    assert_eq!(grant.map(|grant| grant.start_ns), Some(now_ns + wait_ns), "{what}");
    wait_ns
}

/// Ends the operation of a grant.
pub(crate) fn end(limit: &mut Ledger, now_ns: u64, grant: &Grant, outcome: Outcome) {
    assert!(limit.end(now_ns, grant.permits, Ending::Of { start_ns: grant.start_ns, outcome }));
}

/// Reserves, or tries.
pub(crate) fn call(limit: &mut Ledger, reserves: bool, now_ns: u64, permits: u64) -> Answer {
    if reserves { limit.reserve(now_ns, permits, None) } else { limit.try_acquire(now_ns, permits) }
}

/// Plays `calls` for up to `most` permits each, of which a third reserve, after random pauses.
/// Returns what was granted.
pub(crate) fn traffic(
    limit: &mut Ledger,
    random: &mut Rng,
    (calls, pauses, most): (u32, &[u64], u64),
) -> Grants {
    let (mut grants, mut now_ns) = (Grants::default(), limit.clamp(0));
    for _ in 0..calls {
        now_ns += random.choice(pauses).unwrap();
        let permits = random.u64(1..=most);
        let answer = call(limit, random.u64(..3) == 0, now_ns, permits);
        if let Ok(Verdict::Granted(grant)) = answer {
            grants.add(grant.start_ns, permits);
        }
    }
    grants
}

pub(crate) const fn ns(count: u64) -> Duration {
    Duration::from_nanos(count)
}

pub(crate) fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

/// Returns a rate of so many permits in so many nanoseconds.
pub(crate) fn per(permits: u64, period_ns: u64) -> Rate {
    Rate::new(permits, ns(period_ns)).unwrap()
}

pub(crate) fn bucket(text: &str, burst: u64) -> Gcra {
    Gcra::new(rate(text), burst).unwrap()
}

pub(crate) fn log(permits: u64, period_ns: u64) -> SlidingLog {
    SlidingLog::new(permits, ns(period_ns))
}

/// Returns windows on the clock's grid.
pub(crate) fn window(permits: u64, period_ns: u64) -> FixedWindow {
    FixedWindow::new(permits, ns(period_ns), Anchor::Epoch)
}

pub(crate) fn window_of_first_call(permits: u64, period_ns: u64) -> FixedWindow {
    FixedWindow::new(permits, ns(period_ns), Anchor::FirstCall)
}

pub(crate) fn timeline(rate: Rate, mode: Mode, catch_up_ns: Option<u64>) -> TwoTimeline {
    TwoTimeline::new(rate, mode, catch_up_ns.map(ns))
}

/// Returns the numerator and the denominator of a rate, wide enough to multiply.
pub(crate) fn fraction(rate: Rate) -> (u128, u128) {
    let (permits, period_ns) = rate.fraction().unwrap();
    (permits.into(), period_ns.into())
}

/// Rates from one a year to ten thousand million a second, with and without a remainder.
pub(crate) const RATES: [&str; 14] = [
    "1/365d",
    "1/d",
    "7/h",
    "100/min",
    "1/s",
    "3/s",
    "7/s",
    "999983/s",
    "30000000/s",
    "600000000/s",
    "2000000000/s",
    "3000000007/s",
    "4000000000/s",
    "10000000000/s",
];

/// A changing rate: the sixtieths of a permit per nanosecond, and since when.
///
/// It is the oracle of every change, kept in whole numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Profile(pub(crate) Vec<(u64, u128)>);

impl Profile {
    /// Draws a rate that divides into whole sixtieths and puts it into the profile from
    /// `since_ns` on.
    pub(crate) fn draw(&mut self, random: &mut Rng, since_ns: u64) -> Rate {
        let period_ns = random.choice([1, 2, 3, 5, 10, 12, 20, 30, 60, 60]).unwrap();
        let permits = random.u64(1..=9);
        self.0.push((since_ns, u128::from(permits * (60 / period_ns))));
        Rate::new(permits, Duration::from_nanos(period_ns)).unwrap()
    }

    /// Returns the sixtieths earned from `from_ns` to `to_ns`; none before the first rate.
    pub(crate) fn integral(&self, from_ns: u64, to_ns: u64) -> u128 {
        let ends = self.0.iter().skip(1).map(|&(since_ns, _)| since_ns).chain([u64::MAX]);
        let pieces = self.0.iter().zip(ends);
        let piece = |(&(since_ns, rate), end_ns): (&(u64, u128), u64)| {
            u128::from(end_ns.min(to_ns).saturating_sub(since_ns.max(from_ns))) * rate
        };
        pieces.map(piece).sum()
    }
}
