//! Permits that come back to the limit and its waiters, of holds.

use std::sync::OnceLock;

use rategate_core::debt::Debt;
use rategate_core::fair::ClassId;
use rategate_core::holds::{Committed, Hold};
use rategate_core::ledger::Ledger;
use rategate_core::queue::Outcome;
use rategate_core::verdict::Grant;

use super::{Collected, CriticalSection, State};

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
            let _ = held.set(self.state.limit.hold_grant(self.now_ns, grant, end_ns));
        }
    }

    /// Holds the permits of a wait that has ended in a grant, if its caller wants that.
    pub(crate) fn hold_collected(&mut self, collected: &Collected, estimate: Option<&Estimate>) {
        if let Collected::Taken(grant) | Collected::Ended(Outcome::Granted(grant)) = collected {
            self.hold_granted(grant, estimate);
        }
    }

    /// Ends the holds whose time is over, to the benefit of all waiters.
    pub(super) fn end_holds(&mut self) {
        let now_ns = self.now_ns;
        if self.state.limit.next_end_ns().is_some_and(|end_ns| end_ns <= now_ns) {
            // Starts that have come are those of before.
            if let State { limit, waits: Some(waits) } = &mut *self.state
                && !waits.queue.takes(limit)
            {
                waits.queue.serve(limit, now_ns, self.woken);
            }
            self.change(Ledger::end_holds);
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
            // The queue records what the class owes, even where other classes come later.
            self.state.with_queue();
        }
        self.change_with(|limit, queue, now_ns| {
            let committed = limit.commit(now_ns, hold, actual, debt);
            if let Some(queue) = queue {
                queue.settle(class, hold.permits, actual);
            }
            committed
        })
    }
}
