//! The state behind a limiter's lock, made when a decision first needs it.

use rategate_core::concurrent::{Fast, Seed};
use rategate_core::ledger::Ledger;

use crate::section::State;

/// The state behind the lock.
///
/// From the first decision there it is all of the state, before that only what the lock-free form
/// lacks.
pub(super) enum Locked {
    Seed(Seed),
    Grown(State),
}

impl Locked {
    pub(super) fn new(limit: Ledger, lock_free: &Fast) -> Self {
        match limit.seed(lock_free) {
            Some(seed) => Self::Seed(seed),
            None => Self::Grown(State::new(limit)),
        }
    }

    pub(super) fn state(&mut self) -> &mut State {
        loop {
            match self {
                Self::Grown(state) => return state,
                Self::Seed(seed) => *self = Self::Grown(State::new(seed.grown())),
            }
        }
    }

    /// Returns how many permits remain by this state, and the number of waiters.
    pub(super) fn seen(&self, now_ns: u64) -> (u64, u32) {
        match self {
            Self::Grown(state) if state.is_queue_empty() => {
                (state.limit().remaining(now_ns), state.waiting())
            }
            Self::Grown(state) => (0, state.waiting()),
            // The lock-free form has it.
            Self::Seed(_) => (0, 0),
        }
    }
}
