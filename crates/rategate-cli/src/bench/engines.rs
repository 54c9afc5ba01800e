//! The limiters under test, each set up so that every request is granted, or none is.

use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rategate::policy::{AllOfLedger, Limit as _, LimiterPolicy, Mode};
use rategate::{
    AllOf, Clock, Decision, Gcra, Limiter, MonotonicClock, Rate, SlidingLog, TwoTimeline,
};
use rategate_core::verdict::Verdict;

use super::harness::Contender;

/// A rate of one permit each quarter of a nanosecond, so that a permit is always available.
pub const PLENTY_PER_S: u64 = 4_000_000_000;

/// The window of a log for each of its slots, in nanoseconds.
///
/// No machine grants faster than that, so a slot is always free; yet each grant finds older
/// entries to drop.
pub const SLOT_NS: u64 = 4;

/// Twice the time the default clock takes to calibrate the processor's counter.
const SETTLED_NS: u64 = 1_500_000_000;

const HOUR_NS: u64 = 3_600_000_000_000;

/// A limiter behind the handle that threads share.
pub type Shared<P> = Limiter<P>;

/// The result of building a limiter. The numbers here are valid; the error is for future changes.
pub type Made<T> = Result<T, Box<dyn Error>>;

/// The decision that all requests receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All requests are granted.
    Granted,
    /// All requests are denied.
    Denied,
}

/// The limiter that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The token bucket.
    Gcra,
    /// The sliding log with this many slots.
    Log(u64),
    /// Two timelines in this mode.
    TwoTimeline(Mode),
    /// Two token buckets, which a call has to pass together.
    TwoRates,
}

impl Answer {
    /// Returns the name for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Denied => "denied",
        }
    }
}

impl Engine {
    /// All limiters with figures of their own.
    pub const ALL: [Self; 6] = [
        Self::Gcra,
        Self::Log(100),
        Self::Log(10_000),
        Self::TwoTimeline(Mode::Average),
        Self::TwoTimeline(Mode::Strict),
        Self::TwoRates,
    ];

    /// Returns the name for tables.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Gcra => "gcra".to_owned(),
            Self::Log(slots) => format!("sliding log of {slots}"),
            Self::TwoTimeline(Mode::Average) => "two-timeline average".to_owned(),
            Self::TwoTimeline(Mode::Strict) => "two-timeline strict".to_owned(),
            Self::TwoTimeline(mode) => format!("two-timeline {mode:?}"),
            Self::TwoRates => "two rates".to_owned(),
        }
    }

    /// Returns a contender whose threads share one limiter and request one permit at a time.
    ///
    /// # Errors
    ///
    /// An error if the numbers of this file are invalid.
    pub fn trying(self, answer: Answer) -> Made<Contender<'static>> {
        Ok(match self {
            Self::Gcra => trying(self.name(), gcra(answer)?),
            Self::Log(slots) => trying(self.name(), log(slots, answer)?),
            Self::TwoTimeline(mode) => trying(self.name(), two_timeline(mode, answer)?),
            Self::TwoRates => trying(self.name(), two_rates(answer)?),
        })
    }
}

/// Reads the default clock until its calibration is done. Before, it reads the system's clock.
pub fn settle_clock() {
    let clock = MonotonicClock::new();
    while clock.now_ns() < SETTLED_NS {}
}

/// Returns a token bucket that is never empty, or empty for an hour.
///
/// # Errors
///
/// An error if the numbers of this file are invalid.
pub fn gcra(answer: Answer) -> Made<Shared<Gcra>> {
    Ok(match answer {
        Answer::Granted => Limiter::new(plenty()?),
        Answer::Denied => exhausted(Limiter::new(Gcra::new(Rate::per_hour(1), 1)?)),
    })
}

/// Returns the bucket that is never empty.
///
/// # Errors
///
/// An error if the numbers of this file are invalid.
pub fn plenty() -> Made<Gcra> {
    Ok(Gcra::new(Rate::per_second(PLENTY_PER_S), PLENTY_PER_S)?)
}

/// Returns a log that always has a free slot, or none for an hour.
///
/// # Errors
///
/// An error if the numbers of this file are invalid, or `slots` is too large.
pub fn log(slots: u64, answer: Answer) -> Made<Shared<SlidingLog>> {
    Ok(match answer {
        Answer::Granted => Limiter::new(SlidingLog::try_new(
            slots,
            Duration::from_nanos(slots.saturating_mul(SLOT_NS)),
        )?),
        Answer::Denied => {
            exhausted(Limiter::new(SlidingLog::try_new(slots, Duration::from_nanos(HOUR_NS))?))
        }
    })
}

/// Returns a schedule that is always behind its callers, or ahead of them for an hour.
///
/// # Errors
///
/// An error if the numbers of this file are invalid.
#[allow(clippy::unnecessary_wraps, reason = "the benches make all engines alike")]
pub fn two_timeline(mode: Mode, answer: Answer) -> Made<Shared<TwoTimeline>> {
    Ok(match answer {
        Answer::Granted => {
            Limiter::new(TwoTimeline::new(Rate::per_second(PLENTY_PER_S), mode, None))
        }
        Answer::Denied => exhausted(Limiter::new(TwoTimeline::new(Rate::per_hour(1), mode, None))),
    })
}

/// Returns the buckets of [`Engine::TwoRates`]: never empty, or both empty for an hour.
fn two_buckets(answer: Answer) -> Made<[Gcra; 2]> {
    Ok(match answer {
        Answer::Granted => [plenty()?, Gcra::new(Rate::per_second(1_000_000_000), PLENTY_PER_S)?],
        Answer::Denied => [Gcra::new(Rate::per_hour(1), 1)?, Gcra::new(Rate::per_day(1), 1)?],
    })
}

/// Returns two rates that always let one more pass, or none for an hour.
///
/// # Errors
///
/// An error if the numbers of this file are invalid.
pub fn two_rates(answer: Answer) -> Made<Limiter<AllOf>> {
    let limiter = Limiter::new(AllOf::new(two_buckets(answer)?));
    Ok(if answer == Answer::Denied { exhausted(limiter) } else { limiter })
}

/// Returns the same two rates behind a mutex, as an application might write it.
///
/// # Errors
///
/// An error if the numbers of this file are invalid.
pub fn locked_two_rates(answer: Answer) -> Made<Contender<'static>> {
    let clock = MonotonicClock::new();
    let limit = AllOfLedger::new(two_buckets(answer)?.map(Into::into), clock.now_ns());
    let limit = Mutex::new(limit);
    let try_one = move || {
        let mut limit = limit.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ns = clock.now_ns();
        matches!(limit.try_acquire(now_ns, 1), Ok(Verdict::Granted(_)))
    };
    while answer == Answer::Denied && try_one() {}
    Ok(Contender::new("two rates, mutex", try_one))
}

/// Requests one permit, and returns `true` if it was granted.
#[allow(clippy::must_use_candidate, reason = "called for the taking")]
pub fn try_one<P: LimiterPolicy, C: Clock>(limiter: &Limiter<P, C>) -> bool {
    matches!(limiter.try_acquire(1), Ok(Decision::Granted(_)))
}

/// Returns a contender whose threads share `limiter`.
pub fn trying<'a, P>(name: impl Into<String>, limiter: Limiter<P>) -> Contender<'a>
where
    P: LimiterPolicy + 'a,
    Limiter<P>: Send + Sync,
{
    Contender::new(name, move || try_one(&limiter))
}

/// Returns a contender whose threads each use a local handle, all on one bucket.
///
/// # Errors
///
/// An error if the numbers of this file are invalid.
pub fn local(answer: Answer) -> Made<Contender<'static>> {
    let limiter = gcra(answer)?;
    Ok(Contender::with_state(
        "gcra, local",
        move || limiter.local(),
        |handle| {
            let Ok(handle) = handle else { return false };
            matches!(handle.try_acquire(1), Ok(Decision::Granted(_)))
        },
    ))
}

/// Takes all permits of a limiter.
fn exhausted<P: LimiterPolicy>(limiter: Limiter<P>) -> Limiter<P> {
    while try_one(&limiter) {}
    limiter
}
