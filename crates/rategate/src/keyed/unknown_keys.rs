//! The state that unknown keys start from: fresh, or fully used at an instant.

use std::num::NonZeroU64;

use rategate_core::policy::{Policy, Taken};

use crate::sync::{AtomicU64, Ordering};

/// The start state of unknown keys: one word for all of them, however many come.
#[derive(Debug, Default)]
pub(super) struct UnknownKeys {
    /// One more than the instant at which all had used everything; 0 if they have used nothing.
    charged_at_ns: AtomicU64,
}

impl UnknownKeys {
    pub(super) fn charge(&self, at_ns: u64) {
        self.charged_at_ns.fetch_max(at_ns.saturating_add(1), Ordering::Relaxed);
    }

    /// Returns the state of an unknown key.
    pub(super) fn state<P: Policy>(&self, policy: &P, now_ns: u64) -> P::State {
        let Some(at_ns) = self.charged_at_ns.load(Ordering::Relaxed).checked_sub(1) else {
            return policy.fresh(now_ns);
        };
        let charged = charged(policy, at_ns.min(now_ns));
        if policy.is_as_fresh(&charged, now_ns) { policy.fresh(now_ns) } else { charged }
    }
}

/// Returns a limit that had granted everything at an instant.
///
/// Operations in flight count as ended: no caller is left to end them.
fn charged<P: Policy>(policy: &P, at_ns: u64) -> P::State {
    let mut state = policy.fresh(at_ns);
    let permits = policy.remaining(&state, at_ns);
    // A limit without a bound cannot be used up.
    if let Some(permits) = NonZeroU64::new(permits).filter(|permits| permits.get() < u64::MAX) {
        policy.take(&mut state, Taken { from_ns: at_ns, start_ns: at_ns, permits });
        policy.release(&mut state, at_ns, permits.get());
    }
    state
}
