//! The debug form of limiters: one line that says what the limit is and where it stands.

use std::fmt::{self, Debug};
use std::sync::TryLockError;

use rategate_core::concurrent::{Concurrent, Twin};

use super::Shared;
use super::locked::Locked;
use crate::clock::Clock;

impl<L: Concurrent, C: Clock> Shared<L, C> {
    /// Writes a debug form of one line, for a handle with such a name and such fields of its own: with
    /// the policy, what remains and how many wait. It does not wait for the lock. While another thread
    /// holds that, only what can be read besides is said.
    pub(crate) fn fmt_as(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        own: &[(&str, &dyn Debug)],
    ) -> fmt::Result {
        let mut shown = f.debug_struct(name);
        for (name, value) in own {
            shown.field(name, value);
        }
        let now_ns = self.clock.now_ns();
        let free = self.twins.current().remaining(now_ns);
        let locked = match self.state.try_lock() {
            Ok(locked) => Some(locked),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        // Written down under the lock, and handed on without it: a formatter may run anything.
        let seen = locked.map(|locked| (format!("{:?}", PolicyOf(&locked)), locked.seen(now_ns)));
        if let Some((policy, _)) = &seen {
            shown.field("policy", &format_args!("{policy}"));
        }
        if let Some(remaining) =
            free.or_else(|| seen.as_ref().map(|(_, (remaining, _))| *remaining))
        {
            shown.field("remaining", &remaining);
        }
        if let Some((_, (_, waiting))) = &seen {
            shown.field("waiting", waiting);
        }
        if self.is_closed() {
            shown.field("closed", &true);
        }
        if seen.is_some() { shown.finish() } else { shown.finish_non_exhaustive() }
    }
}

impl<L: Concurrent, C: Clock> Debug for Shared<L, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(f, "Limiter", &[])
    }
}

/// The numbers in force, to be shown.
struct PolicyOf<'a, L: Concurrent>(&'a Locked<L>);

impl<L: Concurrent> Debug for PolicyOf<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Locked::Seed(seed) => seed.fmt(f),
            Locked::Grown(state) => state.limit.fmt_policy(f),
        }
    }
}
