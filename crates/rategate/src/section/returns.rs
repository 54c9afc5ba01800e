//! Permits that come back to the limit and its waiters, of holds.

use std::sync::OnceLock;

use rategate_core::debt::Debt;
use rategate_core::fair::ClassId;
use rategate_core::holds::{Committed, Hold};
use rategate_core::line::Outcome;
use rategate_core::verdict::Grant;

use super::{Collected, CriticalSection};

/// An estimate that a waiter holds from its grant on.
#[derive(Debug)]
pub(crate) struct Estimate {
    pub(crate) ttl_ns: u64,
    /// Set under the lock, with the grant.
    pub(crate) held: OnceLock<Hold>,
}

impl Estimate {
    pub(crate) const fn new(ttl_ns: u64) -> Self {
        Self { ttl_ns, held: OnceLock::new() }
    }
}

impl CriticalSection<'_> {
    /// Holds the permits of a grant of this critical section, if its caller wants that.
    pub(crate) fn hold_granted(&mut self, grant: &Grant, estimate: Option<&Estimate>) {
        if let Some(Estimate { ttl_ns, held }) = estimate {
            let end_ns = grant.start_ns.saturating_add(*ttl_ns);
            // A wait ends once.
            let _ = held.set(self.state.limit_mut().hold_grant(self.now_ns, grant, end_ns));
        }
    }

    /// Holds the permits of a wait that has ended in a grant, if its caller wants that.
    pub(crate) fn hold_collected(&mut self, collected: &Collected, estimate: Option<&Estimate>) {
        if let Collected::Taken(grant) | Collected::Ended(Outcome::Granted(grant)) = collected {
            self.hold_granted(grant, estimate);
        }
    }

    /// Ends a hold of a caller of this class, which turned out to cost `actual` permits.
    pub(crate) fn commit(
        &mut self,
        class: ClassId,
        hold: Hold,
        actual: u64,
        debt: Debt,
    ) -> Committed {
        if actual > hold.permits {
            // The line records what the class owes, even where other classes come later.
            self.state.in_line();
        }
        self.with(
            |limit, now_ns| limit.commit(now_ns, hold, actual, debt),
            |line, now_ns, woken| line.commit(now_ns, class, (hold, actual, debt), woken),
        )
    }
}
