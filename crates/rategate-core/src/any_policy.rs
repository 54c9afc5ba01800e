//! One type for all policies, for limits chosen at run time from a file, a flag or a form.

use core::num::NonZeroU64;

use crate::adaptive::{self, AdaptiveConcurrency, AdaptiveRate, RateState};
use crate::backfill_pool::{self, BackfillPool};
use crate::calendar::{self, Calendar};
use crate::commit_log::{self, CommitLog};
use crate::compact_log::{self, CompactLog};
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
use crate::two_timeline::{self, TwoTimeline};
use crate::verdict::{Opening, Refusal};
use crate::warm_up::{self, WarmUp};

macro_rules! any_policy {
    ($($name:ident($($tag:ident),+): $state:ty, $what:literal;)*) => {
        /// Any of the policies.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum AnyPolicy { $(#[doc = $what] $name($name),)* }

        /// The state of any of the policies.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum AnyState { $(#[doc = $what] $name($state),)* }

        $(impl From<$name> for AnyPolicy {
            fn from(policy: $name) -> Self {
                Self::$name(policy)
            }
        })*

        impl AnyPolicy {
            /// Checks that a live limit can change from `old` to `self`: the numbers may differ,
            /// the policy must be the same.
            ///
            /// # Errors
            ///
            /// [`LimitError::OtherPolicy`] if the policies differ.
            pub const fn can_follow(&self, old: &Self) -> Result<(), LimitError> {
                match (self, old) {
                    $((Self::$name(_), Self::$name(_)) => Ok(()),)*
                    _ => Err(LimitError::OtherPolicy),
                }
            }
        }

        impl Policy for AnyPolicy {
            type State = AnyState;

            fn fresh(&self, now_ns: u64) -> AnyState {
                match self { $(Self::$name(policy) => AnyState::$name(policy.fresh(now_ns)),)* }
            }

            fn opening(
                &self,
                state: &AnyState,
                from_ns: u64,
                permits: NonZeroU64,
            ) -> Result<Opening, Refusal> {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => {
                        policy.opening(state, from_ns, permits)
                    })*
                    // The state belongs to another policy and says nothing of this one.
                    _ => Err(Refusal::TimeCannotHelp),
                }
            }

            fn opening_behind(
                &self,
                state: &AnyState,
                from_ns: u64,
                held: Held,
                permits: NonZeroU64,
            ) -> Result<Opening, Refusal> {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => {
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

            fn take(&self, state: &mut AnyState, grant: Taken) {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => policy.take(state, grant),)*
                    _ => {}
                }
            }

            fn remaining(&self, state: &AnyState, now_ns: u64) -> u64 {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => {
                        policy.remaining(state, now_ns)
                    })*
                    _ => 0,
                }
            }

            fn fresh_at_ns(&self, state: &AnyState) -> Option<u64> {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => policy.fresh_at_ns(state),)*
                    _ => None,
                }
            }

            fn heap_bytes(&self, state: &AnyState) -> usize {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => policy.heap_bytes(state),)*
                    _ => 0,
                }
            }

            /// Carries the state over; from another policy it starts afresh.
            fn rebase(&self, state: &mut AnyState, old: &Self, now_ns: u64) {
                match (self, old, &mut *state) {
                    $((Self::$name(policy), Self::$name(old), AnyState::$name(state)) => {
                        policy.rebase(state, old, now_ns);
                    })*
                    _ => *state = self.fresh(now_ns),
                }
            }

            fn slack_ns(&self) -> u64 {
                match self { $(Self::$name(policy) => policy.slack_ns(),)* }
            }

            fn refill(&self, state: &mut AnyState, now_ns: u64, permits: u64) -> bool {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => {
                        policy.refill(state, now_ns, permits)
                    })*
                    _ => false,
                }
            }

            fn busy_until_ns(&self, state: &AnyState, grant: Taken) -> u64 {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => {
                        policy.busy_until_ns(state, grant)
                    })*
                    _ => 0,
                }
            }

            fn refund(&self, state: &mut AnyState, refund: Refund) -> u64 {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => {
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

            fn bucket(&self, state: &AnyState) -> Option<Bucket> {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => policy.bucket(state),)*
                    _ => None,
                }
            }

            fn set_bucket(&self, state: &mut AnyState, bucket: Bucket) {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => {
                        policy.set_bucket(state, bucket);
                    })*
                    _ => {}
                }
            }

            fn credit(&self, state: &mut AnyState, now_ns: u64, permits: u64) -> u64 {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => {
                        policy.credit(state, now_ns, permits)
                    })*
                    _ => 0,
                }
            }

            fn charge(&self, state: &mut AnyState, charge: Charge) -> Option<Charged> {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => {
                        policy.charge(state, charge)
                    })*
                    _ => None,
                }
            }

            fn debt(&self, state: &AnyState, now_ns: u64) -> u64 {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => {
                        policy.debt(state, now_ns)
                    })*
                    _ => 0,
                }
            }

            fn debt_ends_ns(&self, state: &AnyState, from_ns: u64) -> Option<u64> {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => {
                        policy.debt_ends_ns(state, from_ns)
                    })*
                    _ => Some(from_ns),
                }
            }

            fn max_in_flight(&self, state: &AnyState, now_ns: u64) -> Option<u64> {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => {
                        policy.max_in_flight(state, now_ns)
                    })*
                    _ => None,
                }
            }

            fn in_flight(&self, state: &AnyState) -> u64 {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => policy.in_flight(state),)*
                    _ => 0,
                }
            }

            fn release_with_outcome(&self, state: &mut AnyState, ended: Ended) -> bool {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => {
                        policy.release_with_outcome(state, ended)
                    })*
                    _ => false,
                }
            }

            fn release(&self, state: &mut AnyState, now_ns: u64, permits: u64) -> bool {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => {
                        policy.release(state, now_ns, permits)
                    })*
                    _ => false,
                }
            }

            fn abort(&self, state: &mut AnyState, now_ns: u64, permits: u64) -> bool {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => {
                        policy.abort(state, now_ns, permits)
                    })*
                    _ => false,
                }
            }
        }

        impl Portable for AnyPolicy {
            fn tag(&self) -> u16 {
                match self { $(Self::$name(policy) => policy.tag(),)* }
            }

            fn write_numbers(&self, words: &mut Writer) {
                match self { $(Self::$name(policy) => policy.write_numbers(words),)* }
            }

            fn read_numbers(tag: u16, words: &mut Reader<'_>) -> Result<Self, WordsError> {
                match tag {
                    $($(tag::$tag)|+ => $name::read_numbers(tag, words).map(Self::$name),)*
                    _ => Err(WordsError::OtherPolicy { tag }),
                }
            }

            fn write_state(&self, state: &AnyState, words: &mut Writer) {
                match (self, state) {
                    $((Self::$name(policy), AnyState::$name(state)) => {
                        policy.write_state(state, words);
                    })*
                    // The state belongs to another policy and says nothing of this one.
                    _ => self.write_state(&self.fresh(words.now_ns()), words),
                }
            }

            fn read_state(&self, words: &mut Reader<'_>) -> Result<AnyState, WordsError> {
                match self {
                    $(Self::$name(policy) => policy.read_state(words).map(AnyState::$name),)*
                }
            }
        }
    };
}

any_policy! {
    Gcra(GCRA): gcra::State, "A continuous token bucket.";
    SlidingLog(SLIDING_LOG): sliding_log::State, "A sliding log: at most N in any window.";
    CompactLog(COMPACT_LOG): compact_log::State, "A sliding log on a grid, in little memory.";
    FixedWindow(FIXED_WINDOW, WINDOW_WITH_CREDITS): fixed_window::State, "A fixed window: at most N in each.";
    Pacer(PACER): pacer::State, "Batched average pacing.";
    TwoTimeline(TWO_TIMELINE): two_timeline::State, "An ideal schedule with exact wait times.";
    WarmUp(WARM_UP): warm_up::State, "A rate that a limit at rest reaches over a period.";
    BackfillPool(BACKFILL_POOL): backfill_pool::State, "A token bucket that loses nothing.";
    AdaptiveConcurrency(ADAPTIVE_CONCURRENCY): adaptive::State, "A bound on operations in flight that follows measurements.";
    AdaptiveRate(ADAPTIVE_RATE): RateState, "A rate that follows refusals.";
    Concurrency(CONCURRENCY): concurrency::State, "A bound on operations in flight.";
    CommitLog(COMMIT_LOG): commit_log::State, "A commit log: at most N effects in any window.";
    Calendar(CALENDAR, CALENDAR_WITH_CREDITS): calendar::State, "A calendar quota: at most N in each day, week or month.";
}
