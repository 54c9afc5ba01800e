//! One type for all policies, for limits chosen at run time from a file, a flag or a form.

use alloc::boxed::Box;
use core::num::NonZeroU64;

use crate::adaptive::{self, AdaptiveConcurrency, AdaptiveRate, RateState};
use crate::backfill_pool::{self, BackfillPool};
use crate::calendar::{self, Calendar};
use crate::commit_log::{self, CommitLog};
use crate::concurrency::{self, Concurrency};
use crate::debt::{Charge, Charged};
use crate::error::LimitError;
use crate::fixed_window::{self, FixedWindow};
use crate::gcra::{self, Gcra};
use crate::pacer::{self, Pacer};
use crate::policy::{Bucket, Ended, Held, Policy, Taken};
use crate::portable::{Portable, Reader, WordsError, Writer, tag};
use crate::refund::Refund;
use crate::sliding_log::{self, SlidingLog};
use crate::slow_start::{self, Timed};
use crate::two_timeline::{self, TwoTimeline};
use crate::verdict::{Opening, Refusal};
use crate::warm_up::{self, WarmUp};

macro_rules! any_policy {
    (
        $(#[$policy_doc:meta])* $any:ident,
        $(#[$state_doc:meta])* $any_state:ident:
        $($name:ident($tags:pat): $state:ty, $what:literal;)*
    ) => {
        $(#[$policy_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $any { $(#[doc = $what] $name($name),)* }

        $(#[$state_doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $any_state { $(#[doc = $what] $name($state),)* }

        $(impl From<$name> for $any {
            fn from(policy: $name) -> Self {
                Self::$name(policy)
            }
        })*

        impl $any {
            /// Returns `true` if both are the same policy, with whatever numbers.
            const fn is_like(&self, other: &Self) -> bool {
                matches!((self, other), $((Self::$name(_), Self::$name(_)))|*)
            }
        }

        impl Policy for $any {
            type State = $any_state;

            fn fresh(&self, now_ns: u64) -> $any_state {
                match self {
                    $(Self::$name(policy) => $any_state::$name(policy.fresh(now_ns).into()),)*
                }
            }

            fn opening(
                &self,
                state: &$any_state,
                from_ns: u64,
                permits: NonZeroU64,
            ) -> Result<Opening, Refusal> {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => {
                        policy.opening(state, from_ns, permits)
                    })*
                    // The state belongs to another policy and says nothing of this one.
                    _ => Err(Refusal::TimeCannotHelp),
                }
            }

            fn opening_behind(
                &self,
                state: &$any_state,
                from_ns: u64,
                held: Held,
                permits: NonZeroU64,
            ) -> Result<Opening, Refusal> {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => {
                        policy.opening_behind(state, from_ns, held, permits)
                    })*
                    _ => Err(Refusal::TimeCannotHelp),
                }
            }

            fn counts_in_flight(&self) -> bool {
                match self { $(Self::$name(policy) => policy.counts_in_flight(),)* }
            }

            fn follows_outcomes(&self) -> bool {
                match self { $(Self::$name(policy) => policy.follows_outcomes(),)* }
            }

            fn keeps_schedule(&self) -> bool {
                match self { $(Self::$name(policy) => policy.keeps_schedule(),)* }
            }

            fn take(&self, state: &mut $any_state, grant: Taken) {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => {
                        policy.take(state, grant);
                    })*
                    _ => {}
                }
            }

            fn remaining(&self, state: &$any_state, now_ns: u64) -> u64 {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => {
                        policy.remaining(state, now_ns)
                    })*
                    _ => 0,
                }
            }

            fn fresh_at_ns(&self, state: &$any_state) -> Option<u64> {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => {
                        policy.fresh_at_ns(state)
                    })*
                    _ => None,
                }
            }

            fn heap_bytes(&self, state: &$any_state) -> usize {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => {
                        let boxed = boxed_bytes::<$state, <$name as Policy>::State>();
                        policy.heap_bytes(state).saturating_add(boxed)
                    })*
                    _ => 0,
                }
            }

            /// Carries the state over; from another policy it starts afresh.
            fn rebase(&self, state: &mut $any_state, old: &Self, now_ns: u64) {
                match (self, old, &mut *state) {
                    $((Self::$name(policy), Self::$name(old), $any_state::$name(state)) => {
                        policy.rebase(state, old, now_ns);
                    })*
                    _ => *state = self.fresh(now_ns),
                }
            }

            fn slack_ns(&self) -> u64 {
                match self { $(Self::$name(policy) => policy.slack_ns(),)* }
            }

            fn refill(&self, state: &mut $any_state, now_ns: u64, permits: u64) -> bool {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => {
                        policy.refill(state, now_ns, permits)
                    })*
                    _ => false,
                }
            }

            fn busy_until_ns(&self, state: &$any_state, grant: Taken) -> u64 {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => {
                        policy.busy_until_ns(state, grant)
                    })*
                    _ => 0,
                }
            }

            fn refund(&self, state: &mut $any_state, refund: Refund) -> u64 {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => {
                        policy.refund(state, refund)
                    })*
                    _ => 0,
                }
            }

            fn is_bucket(&self) -> bool {
                match self {
                    $(Self::$name(policy) => policy.is_bucket(),)*
                }
            }

            fn bucket(&self, state: &$any_state) -> Option<Bucket> {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => policy.bucket(state),)*
                    _ => None,
                }
            }

            fn set_bucket(&self, state: &mut $any_state, bucket: Bucket) {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => {
                        policy.set_bucket(state, bucket);
                    })*
                    _ => {}
                }
            }

            fn credit(&self, state: &mut $any_state, now_ns: u64, permits: u64) -> u64 {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => {
                        policy.credit(state, now_ns, permits)
                    })*
                    _ => 0,
                }
            }

            fn charge(&self, state: &mut $any_state, charge: Charge) -> Option<Charged> {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => {
                        policy.charge(state, charge)
                    })*
                    _ => None,
                }
            }

            fn debt(&self, state: &$any_state, now_ns: u64) -> u64 {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => {
                        policy.debt(state, now_ns)
                    })*
                    _ => 0,
                }
            }

            fn debt_ends_ns(&self, state: &$any_state, from_ns: u64) -> Option<u64> {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => {
                        policy.debt_ends_ns(state, from_ns)
                    })*
                    _ => Some(from_ns),
                }
            }

            fn max_in_flight(&self, state: &$any_state, now_ns: u64) -> Option<u64> {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => {
                        policy.max_in_flight(state, now_ns)
                    })*
                    _ => None,
                }
            }

            fn in_flight(&self, state: &$any_state) -> u64 {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => policy.in_flight(state),)*
                    _ => 0,
                }
            }

            fn release_with_outcome(&self, state: &mut $any_state, ended: Ended) -> bool {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => {
                        policy.release_with_outcome(state, ended)
                    })*
                    _ => false,
                }
            }

            fn release(&self, state: &mut $any_state, now_ns: u64, permits: u64) -> bool {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => {
                        policy.release(state, now_ns, permits)
                    })*
                    _ => false,
                }
            }

            fn abort(&self, state: &mut $any_state, now_ns: u64, permits: u64) -> bool {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => {
                        policy.abort(state, now_ns, permits)
                    })*
                    _ => false,
                }
            }
        }

        impl Portable for $any {
            fn tag(&self) -> u16 {
                match self { $(Self::$name(policy) => policy.tag(),)* }
            }

            fn write_numbers(&self, words: &mut Writer) {
                match self { $(Self::$name(policy) => policy.write_numbers(words),)* }
            }

            fn read_numbers(tag: u16, words: &mut Reader<'_>) -> Result<Self, WordsError> {
                match tag {
                    $($tags => $name::read_numbers(tag, words).map(Self::$name),)*
                    _ => Err(WordsError::OtherPolicy { tag }),
                }
            }

            fn write_state(&self, state: &$any_state, words: &mut Writer) {
                match (self, state) {
                    $((Self::$name(policy), $any_state::$name(state)) => {
                        policy.write_state(state, words);
                    })*
                    // The state belongs to another policy and says nothing of this one.
                    _ => self.write_state(&self.fresh(words.now_ns()), words),
                }
            }

            fn read_state(&self, words: &mut Reader<'_>) -> Result<$any_state, WordsError> {
                match self {
                    $(Self::$name(policy) => {
                        Ok($any_state::$name(policy.read_state(words)?.into()))
                    })*
                }
            }
        }
    };
}

any_policy! {
    /// Any of the policies.
    AnyPolicy,
    /// The state of any of the policies.
    AnyState:
    Gcra(tag::GCRA): gcra::State, "A continuous token bucket.";
    SlidingLog(tag::SLIDING_LOG): sliding_log::State, "A sliding log: at most N in any window.";
    FixedWindow(tag::FIXED_WINDOW): fixed_window::State, "A fixed window: at most N in each.";
    Pacer(tag::PACER): pacer::State, "Batched average pacing.";
    TwoTimeline(tag::TWO_TIMELINE): two_timeline::State, "An ideal schedule with exact wait times.";
    WarmUp(tag::WARM_UP): warm_up::State, "A rate that a limit at rest reaches over a period.";
    BackfillPool(tag::BACKFILL_POOL): backfill_pool::State, "A token bucket that loses nothing.";
    AdaptiveConcurrency(tag::ADAPTIVE_CONCURRENCY): adaptive::State, "A bound on operations in flight that follows measurements.";
    AdaptiveRate(tag::ADAPTIVE_RATE): RateState, "A rate that follows refusals.";
    Concurrency(tag::CONCURRENCY): concurrency::State, "A bound on operations in flight.";
    CommitLog(tag::COMMIT_LOG): commit_log::State, "A commit log: at most N effects in any window.";
    Calendar(tag::CALENDAR): calendar::State, "A calendar quota: at most N in each day, week or month.";
    // In a box, as a state with another one in it would make all others larger.
    SlowStart(tag::SLOW_START..=tag::LAST_SLOW_START):
        Box<slow_start::State<AnyTimedState>>, "A limit that begins at a part of its rate.";
}

any_policy! {
    /// Any of the policies whose permits come with time, inside a
    /// [`SlowStart`](slow_start::SlowStart).
    AnyTimed,
    /// The state of any of the policies whose permits come with time.
    AnyTimedState:
    Gcra(tag::GCRA): gcra::State, "A continuous token bucket.";
    SlidingLog(tag::SLIDING_LOG): sliding_log::State, "A sliding log: at most N in any window.";
    FixedWindow(tag::FIXED_WINDOW): fixed_window::State, "A fixed window: at most N in each.";
    Pacer(tag::PACER): pacer::State, "Batched average pacing.";
    TwoTimeline(tag::TWO_TIMELINE): two_timeline::State, "An ideal schedule with exact wait times.";
    BackfillPool(tag::BACKFILL_POOL): backfill_pool::State, "A token bucket that loses nothing.";
}

/// A slow start of any of the policies that can have one.
type SlowStart = slow_start::SlowStart<AnyTimed>;

impl AnyPolicy {
    /// Checks that a live limit can change from `old` to `self`: the numbers may differ, the policy
    /// must be the same.
    ///
    /// # Errors
    ///
    /// [`LimitError::OtherPolicy`] if the policies differ.
    pub const fn can_follow(&self, old: &Self) -> Result<(), LimitError> {
        let can_follow = match (self, old) {
            (Self::SlowStart(new), Self::SlowStart(old)) => new.policy().is_like(old.policy()),
            _ => self.is_like(old),
        };
        if can_follow { Ok(()) } else { Err(LimitError::OtherPolicy) }
    }
}

impl Timed for AnyTimed {
    fn check_timed(&self) -> Result<(), LimitError> {
        match self {
            Self::FixedWindow(policy) => policy.check_timed(),
            _ => Ok(()),
        }
    }
}

impl From<AnyTimed> for AnyPolicy {
    fn from(policy: AnyTimed) -> Self {
        match policy {
            AnyTimed::Gcra(policy) => policy.into(),
            AnyTimed::SlidingLog(policy) => policy.into(),
            AnyTimed::FixedWindow(policy) => policy.into(),
            AnyTimed::Pacer(policy) => policy.into(),
            AnyTimed::TwoTimeline(policy) => policy.into(),
            AnyTimed::BackfillPool(policy) => policy.into(),
        }
    }
}

impl TryFrom<AnyPolicy> for AnyTimed {
    type Error = LimitError;

    /// Returns the policy, or [`LimitError::NotTimed`] for one whose permits do not come with
    /// time.
    fn try_from(policy: AnyPolicy) -> Result<Self, LimitError> {
        Ok(match policy {
            AnyPolicy::Gcra(policy) => policy.into(),
            AnyPolicy::SlidingLog(policy) => policy.into(),
            AnyPolicy::FixedWindow(policy) => policy.into(),
            AnyPolicy::Pacer(policy) => policy.into(),
            AnyPolicy::TwoTimeline(policy) => policy.into(),
            AnyPolicy::BackfillPool(policy) => policy.into(),
            _ => return Err(LimitError::NotTimed),
        })
    }
}

/// Returns the bytes of a state that is kept in a box, or zero for all others.
const fn boxed_bytes<Kept, S>() -> usize {
    if size_of::<Kept>() < size_of::<S>() { size_of::<S>() } else { 0 }
}
