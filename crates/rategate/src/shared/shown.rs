//! The debug form of limiters: one line that states the policy and the limit's status.

use std::fmt::{self, Debug};
use std::sync::TryLockError;

use super::Shared;
use super::locked::Locked;
use crate::clock::Clock;

impl<C: Clock> Shared<C> {
    /// Writes a debug form of one line, for a handle with this name and its own fields.
    ///
    /// It shows the policy, what remains and the number of waiters. It does not wait for the
    /// lock: while another thread holds that, it shows only what can be read without it.
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
        let free = self.lock_free().remaining(now_ns);
        let locked = match self.state.try_lock() {
            Ok(locked) => Some(locked),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        // Formatted under the lock, and written without it: a formatter may run any code.
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

impl<C: Clock> Debug for Shared<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as(f, "Limiter", &[])
    }
}

/// The debug form of the numbers in force.
struct PolicyOf<'a>(&'a Locked);

impl Debug for PolicyOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Locked::Seed(seed) => seed.fmt(f),
            Locked::Grown(state) => state.limit().fmt_policies(f),
        }
    }
}
