//! A limit of at most N operations in flight. A permit comes back when its operation ends, not
//! when time passes: a pizza oven with unknown baking times. Where N is not known, it can [follow
//! measurements](crate::adaptive).
//!
//! ```text
//!   N = 2    1 |=========|
//!            2    |==============|
//!            3           |=====|            the third starts as the first ends
//!            ------------+-----------> time
//! ```
//!
//! # Contract
//!
//! * **Ceiling.** At most N permits taken and not yet released, at any instant.
//! * **Retry.** None: time alone cannot help, so a denial carries no wait.
//! * **Refund.** Equal to a release, for an operation that never started.
//! * **Change.** A lower N takes effect as operations end; operations in flight keep their permits.
//! * **Cost.** 8 bytes.
//!
//! # Example
//!
//! ```
//! use rategate_core::concurrency::Concurrency;
//! use rategate_core::ledger::Ledger;
//! use rategate_core::verdict::Verdict;
//!
//! let mut oven = Ledger::new(Concurrency::new(1), 0);
//! assert!(matches!(oven.try_acquire(0, 1)?, Verdict::Granted(_)));
//! assert!(matches!(oven.try_acquire(1_000, 1)?, Verdict::Denied(_)));
//! oven.release(1_800, 1);
//! assert!(matches!(oven.try_acquire(1_800, 1)?, Verdict::Granted(_)));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use core::num::NonZeroU64;

use crate::error::{LimitError, or_panic};
use crate::policy::{Correction, Ended, Policy, Taken};
#[cfg(feature = "serde")]
use crate::portable::{Portable, SavedError, Shift};
use crate::verdict::{Opening, Refusal};

/// A limit of at most `permits` operations in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct Concurrency {
    permits: NonZeroU64,
}

/// The number of operations in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    in_flight: u64,
}

impl Concurrency {
    /// Creates a limit of at most `permits` in flight.
    ///
    /// # Panics
    ///
    /// Panics if `permits` is zero.
    #[must_use]
    #[track_caller]
    pub const fn new(permits: u64) -> Self {
        or_panic(Self::try_new(permits))
    }

    /// Creates a limit of at most `permits` in flight.
    ///
    /// # Errors
    ///
    /// [`LimitError::ZeroPermits`] if `permits` is zero.
    pub const fn try_new(permits: u64) -> Result<Self, LimitError> {
        match NonZeroU64::new(permits) {
            Some(permits) => Ok(Self { permits }),
            None => Err(LimitError::ZeroPermits),
        }
    }

    /// Returns the maximum number of permits in flight.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.permits.get()
    }
}

impl Policy for Concurrency {
    type State = State;

    fn fresh(&self, _now_ns: u64) -> State {
        State::default()
    }

    fn opening(
        &self,
        state: &State,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        if permits > self.permits {
            return Err(Refusal::exceeds(permits, self.permits.get()));
        }
        if permits.get() > self.remaining(state, from_ns) {
            return Err(Refusal::Held);
        }
        Ok(Opening::at(from_ns))
    }

    fn take(&self, state: &mut State, grant: Taken) {
        state.in_flight = state.in_flight.saturating_add(grant.permits.get());
    }

    fn remaining(&self, state: &State, _now_ns: u64) -> u64 {
        self.permits.get().saturating_sub(state.in_flight)
    }

    fn fresh_at_ns(&self, state: &State) -> Option<u64> {
        (state.in_flight == 0).then_some(0)
    }

    fn rebase(&self, _state: &mut State, _old: &Self, _now_ns: u64) {}

    fn counts_in_flight(&self) -> bool {
        true
    }

    fn max_in_flight(&self, _state: &State, _now_ns: u64) -> Option<u64> {
        Some(self.permits())
    }

    fn in_flight(&self, state: &State) -> u64 {
        state.in_flight
    }

    fn correct(&self, state: &mut State, correction: Correction) -> Option<u64> {
        let Ended { permits, .. } = correction.as_end(state.in_flight)?;
        state.in_flight = state.in_flight.saturating_sub(permits);
        Some(permits)
    }
}

#[cfg(feature = "serde")]
impl Portable for Concurrency {
    type Saved = ();

    fn save(&self, _state: &State, _now_ns: u64) {}

    /// Restores an idle limit: what was in flight has ended, since no holder is left to release it.
    fn load(&self, (): (), _since: Shift) -> Result<State, SavedError> {
        Ok(State::default())
    }
}
