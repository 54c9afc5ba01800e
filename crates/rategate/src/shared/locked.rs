//! What is behind a limiter's lock, made when a decision first needs it.

use rategate_core::concurrent::Concurrent;

use crate::turn::State;

/// What is behind the lock: from the first decision there on all of it, before that no more than the
/// twin does not have.
pub(super) enum Locked<L: Concurrent> {
    Seed(L::Seed),
    Grown(Box<State<L>>),
}

impl<L: Concurrent> Locked<L> {
    pub(super) fn new(limit: L, twin: &L::Twin) -> Self {
        match limit.seed(twin) {
            Some(seed) => Self::Seed(seed),
            None => Self::Grown(Box::new(State::new(limit))),
        }
    }

    pub(super) fn state(&mut self) -> &mut State<L> {
        loop {
            match self {
                Self::Grown(state) => return state,
                Self::Seed(seed) => {
                    *self = Self::Grown(Box::new(State::new(L::grown(seed))));
                }
            }
        }
    }

    /// Returns how many permits remain by what is here, and how many callers wait.
    pub(super) fn seen(&self, now_ns: u64) -> (u64, u32) {
        match self {
            Self::Grown(state) if state.is_line_empty() => {
                (state.limit.remaining(now_ns), state.waiting())
            }
            Self::Grown(state) => (0, state.waiting()),
            // The twin has it.
            Self::Seed(_) => (0, 0),
        }
    }
}
