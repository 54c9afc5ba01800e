//! The limits that there are: a closed set of policies, for limits chosen at run time from a file,
//! a flag or a form, and each of them with its state.

pub mod slow_start;

use alloc::boxed::Box;
#[cfg(feature = "serde")]
use alloc::vec::Vec;
use core::fmt;
use core::mem;
use core::num::NonZeroU64;

use self::slow_start::SlowStart;
use crate::adaptive::{self, AdaptiveConcurrency, AdaptiveRate, RateState};
use crate::backfill_pool::{self, BackfillPool};
use crate::commit_log::{self, CommitLog};
use crate::concurrency::{self, Concurrency};
use crate::error::LimitError;
use crate::fixed_window::{self, FixedWindow};
use crate::gcra::{self, Gcra};
use crate::policy::{Bucket, Correction, Held, Policy, Taken};
#[cfg(feature = "serde")]
use crate::portable::{self, Portable, SavedError, Shift};
use crate::sliding_log::{self, SlidingLog};
use crate::two_timeline::{self, TwoTimeline};
use crate::verdict::{Opening, Refusal};
use crate::warm_up::{self, WarmUp};

macro_rules! policies {
    ($($name:ident: $kept:ty, $state:ty, $word:literal, $what:literal;)*) => {
        /// Any of the policies.
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
        #[non_exhaustive]
        pub enum AnyPolicy { $(#[doc = $what] $name($name),)* }

        /// One limit: a policy and its state, so that neither can be another one's.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Member { $(#[doc = $what] $name($kept, $state),)* }

        $(impl From<$name> for AnyPolicy {
            fn from(policy: $name) -> Self {
                Self::$name(policy)
            }
        }
)*

        macro_rules! of_policy {
            ($any:expr, $numbers:ident => $call:expr) => {
                match $any { $(AnyPolicy::$name($numbers) => $call,)* }
            };
        }

        macro_rules! of_member {
            ($any:expr, ($numbers:ident, $memory:ident) => $call:expr) => {
                match $any { $(Member::$name($numbers, $memory) => $call,)* }
            };
        }

        impl AnyPolicy {
            /// Returns the name of the policy.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => $word,)* }
            }
        }

        impl Member {
            /// Returns a limit that is fresh at `now_ns`.
            #[must_use]
            pub fn fresh(policy: AnyPolicy, now_ns: u64) -> Self {
                match policy {
                    $(AnyPolicy::$name(policy) => {
                        Self::$name(policy.into(), policy.fresh(now_ns).into())
                    })*
                }
            }

            /// Reads a limit with these numbers.
            #[cfg(feature = "serde")]
            pub(crate) fn load(
                policy: AnyPolicy,
                bytes: &[u8],
                since: Shift,
            ) -> Result<Self, SavedError> {
                Ok(match policy {
                    $(AnyPolicy::$name(policy) => {
                        let state = policy.load(portable::read(bytes)?, since)?;
                        Self::$name(policy.into(), state.into())
                    })*
                })
            }

            /// Returns the policy in force.
            #[must_use]
            pub fn policy(&self) -> AnyPolicy {
                match self { $(Self::$name(policy, _) => AnyPolicy::$name($name::clone(policy)),)* }
            }

            /// Carries the state over to other numbers of the same policy. Returns `false` for
            /// another policy.
            fn follow(&mut self, new: AnyPolicy, now_ns: u64) -> bool {
                match (self, new) {
                    $((Self::$name(old, state), AnyPolicy::$name(new)) => {
                        new.rebase(state, old, now_ns);
                        *old = new.into();
                        true
                    })*
                    _ => false,
                }
            }

            /// Returns the bytes that the limit takes on the heap.
            #[must_use]
            pub fn heap_bytes(&self) -> usize {
                match self {
                    $(Self::$name(policy, state) => {
                        let boxes = const {
                            boxed_bytes::<$kept, $name>()
                                + boxed_bytes::<$state, <$name as Policy>::State>()
                        };
                        policy.heap_bytes(state).saturating_add(boxes)
                    })*
                }
            }
        }
    };
}

// Large ones are in boxes, as they would make all others larger.
policies! {
    Gcra: Gcra, gcra::State, "gcra", "A continuous token bucket.";
    SlidingLog: SlidingLog, sliding_log::State, "sliding log", "A sliding log: at most N in any window.";
    FixedWindow: FixedWindow, fixed_window::State, "fixed window", "A fixed window: at most N in each, or in each day, week or month.";
    TwoTimeline: Box<TwoTimeline>, Box<two_timeline::State>, "two timelines", "An ideal schedule with exact wait times.";
    WarmUp: WarmUp, Box<warm_up::State>, "warm-up", "A rate that a limit at rest reaches over a period.";
    BackfillPool: BackfillPool, backfill_pool::State, "backfill pool", "A token bucket that loses nothing.";
    AdaptiveConcurrency: AdaptiveConcurrency, adaptive::State, "concurrency that follows measurements", "A bound on operations in flight that follows measurements.";
    AdaptiveRate: AdaptiveRate, Box<RateState>, "rate that follows refusals", "A rate that follows refusals.";
    Concurrency: Concurrency, concurrency::State, "concurrency", "A bound on operations in flight.";
    CommitLog: CommitLog, commit_log::State, "commit log", "A commit log: at most N effects in any window.";
    SlowStart: Box<SlowStart>, Box<slow_start::State>, "slow start", "A limit that begins at a part of its rate.";
}

/// The numbers of the policy, as that one shows them.
impl fmt::Debug for AnyPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        of_policy!(self, policy => policy.fmt(f))
    }
}

impl AnyPolicy {
    /// Returns `true` if both are the same policy, with whatever numbers.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::SlowStart(own), Self::SlowStart(other)) => own.policy().is_like(&other.policy()),
            _ => mem::discriminant(self) == mem::discriminant(other),
        }
    }

    /// Returns `true` if both have the same numbers. The rules of a calendar's zone may differ.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::FixedWindow(own), Self::FixedWindow(other)) => own.is_same_as(other),
            _ => self == other,
        }
    }

    /// Returns `true` if the policy counts operations in flight.
    #[must_use]
    pub fn counts_in_flight(&self) -> bool {
        of_policy!(self, policy => policy.counts_in_flight())
    }

    pub(crate) fn is_bucket(&self) -> bool {
        of_policy!(self, policy => policy.is_bucket())
    }

    pub(crate) fn keeps_schedule(&self) -> bool {
        of_policy!(self, policy => policy.keeps_schedule())
    }

    pub(crate) fn most_late_ns(&self) -> Option<u64> {
        of_policy!(self, policy => policy.most_late_ns())
    }

    /// Returns `true` if the policy moves by the outcomes of operations.
    #[must_use]
    pub fn follows_outcomes(&self) -> bool {
        of_policy!(self, policy => policy.follows_outcomes())
    }

    pub(crate) fn slack_ns(&self) -> u64 {
        of_policy!(self, policy => policy.slack_ns())
    }

    /// Returns the maximum number of permits that an unused limit grants at one instant.
    #[must_use]
    pub fn max_at_once(&self) -> u64 {
        Member::fresh(*self, 0).remaining(0)
    }

    /// Checks that a live limit can change from `old` to `self`.
    ///
    /// # Errors
    ///
    /// [`LimitError::OtherPolicy`] for a change to or from a limit on operations in flight, whose
    /// permits come back by another way than those of all others.
    pub fn can_follow(&self, old: &Self) -> Result<(), LimitError> {
        let counts_in_flight = self.counts_in_flight() || old.counts_in_flight();
        if self.is_like(old) || !counts_in_flight { Ok(()) } else { Err(LimitError::OtherPolicy) }
    }
}

/// What a [policy](crate::policy::Policy) says of its own state. Instants are nanoseconds.
impl Member {
    /// Returns the first instant, not before `from_ns`, at which `permits` may start together.
    ///
    /// # Errors
    ///
    /// The [`Refusal`] that says why there is no such instant.
    #[inline]
    pub fn opening(&self, from_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal> {
        of_member!(self, (policy, state) => policy.opening(state, from_ns, permits))
    }

    pub(crate) fn opening_behind(
        &self,
        from_ns: u64,
        held: Held,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        of_member!(self, (policy, state) => policy.opening_behind(state, from_ns, held, permits))
    }

    /// Records a grant. Starts never decrease from one call to the next.
    #[inline]
    pub fn take(&mut self, grant: Taken) {
        of_member!(self, (policy, state) => policy.take(state, grant));
    }

    /// Returns the maximum number of permits that one request at `now_ns` could take.
    #[must_use]
    #[inline]
    pub fn remaining(&self, now_ns: u64) -> u64 {
        of_member!(self, (policy, state) => policy.remaining(state, now_ns))
    }

    /// Returns the instant from which no decision can tell this limit from a fresh one if no calls
    /// come. `None` if time alone never restores it, or the policy does not know.
    #[must_use]
    pub fn fresh_at_ns(&self) -> Option<u64> {
        of_member!(self, (policy, state) => policy.fresh_at_ns(state))
    }

    /// Returns `true` if that instant has come.
    #[must_use]
    pub fn is_as_fresh(&self, now_ns: u64) -> bool {
        of_member!(self, (policy, state) => policy.is_as_fresh(state, now_ns))
    }

    /// Puts other numbers into force at `now_ns`. Another policy begins as used up as this one is,
    /// rounded up.
    pub fn change(&mut self, new: AnyPolicy, now_ns: u64) {
        if self.follow(new, now_ns) {
            return;
        }
        let (all, left) = (self.policy().max_at_once(), self.remaining(now_ns));
        let used = all.saturating_sub(left);
        *self = Self::fresh(new, now_ns);
        let most = self.remaining(now_ns);
        // A limit that grants nothing at all has nothing left either.
        let permits = match NonZeroU64::new(all) {
            None => u128::from(most),
            Some(all) => u128::from(most).saturating_mul(used.into()).div_ceil(all.get().into()),
        };
        let permits = u64::try_from(permits).unwrap_or(u64::MAX);
        if let Some(permits) = NonZeroU64::new(permits) {
            self.take(Taken { from_ns: now_ns, start_ns: now_ns, permits });
        }
    }

    /// Corrects what has been taken. Returns the number of permits by which it did, or that ended;
    /// `None` where the policy knows no such correction.
    pub fn correct(&mut self, correction: Correction) -> Option<u64> {
        of_member!(self, (policy, state) => policy.correct(state, correction))
    }

    /// Returns by how many permits the limit is exceeded at `now_ns`.
    #[must_use]
    pub fn debt(&self, now_ns: u64) -> u64 {
        of_member!(self, (policy, state) => policy.debt(state, now_ns))
    }

    pub(crate) fn debt_ends_ns(&self, from_ns: u64) -> Option<u64> {
        of_member!(self, (policy, state) => policy.debt_ends_ns(state, from_ns))
    }

    pub(crate) fn busy_until_ns(&self, grant: Taken) -> u64 {
        of_member!(self, (policy, state) => policy.busy_until_ns(state, grant))
    }

    pub(crate) fn bucket(&self) -> Option<Bucket> {
        of_member!(self, (policy, state) => policy.bucket(state))
    }

    pub(crate) fn set_bucket(&mut self, bucket: Bucket) {
        of_member!(self, (policy, state) => policy.set_bucket(state, bucket));
    }

    pub(crate) fn in_flight(&self) -> u64 {
        of_member!(self, (policy, state) => policy.in_flight(state))
    }

    pub(crate) fn max_in_flight(&self, now_ns: u64) -> Option<u64> {
        of_member!(self, (policy, state) => policy.max_in_flight(state, now_ns))
    }

    /// Appends the state at `now_ns`.
    #[cfg(feature = "serde")]
    pub(crate) fn save(&self, now_ns: u64, bytes: Vec<u8>) -> Vec<u8> {
        of_member!(self, (policy, state) => {
            portable::appended(&policy.save(state, now_ns), bytes)
        })
    }
}

/// Returns the bytes of a `T` that is kept as `Kept`, if that is a box.
const fn boxed_bytes<Kept, T>() -> usize {
    if size_of::<Kept>() < size_of::<T>() { size_of::<T>() } else { 0 }
}
