//! The head of the queue, and its wake before its start.
//!
//! ```text
//!             lead          patience
//!          |<-------->|<------------------>|
//!        roused     start          served, if it has not taken
//! ```
//!
//! A waiter that is woken when its start has come runs later by the time of the wake-up. On a
//! limit that makes up for no lateness, the rate loses that time. So its owner may have the head
//! roused before its start: it runs, waits for the instant by itself, and takes.

use super::{Line, WaiterId, Wakes};

/// The delay of a start up to which a roused head is not roused again.
const SLIGHTLY_NS: u64 = 10_000;

/// The times before and after its start at which the head of the queue is woken and served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rousing {
    /// The time before its start at which the head is roused.
    pub lead_ns: u64,
    /// The time after its start at which a roused head that has not taken is made due.
    pub patience_ns: u64,
}

/// The first waiter whose start has not come, and its earliest start as things stand.
///
/// The start is `None` where no clock can foretell it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) slot: u32,
    pub(super) start_ns: Option<u64>,
    /// `true` if nothing has happened since that could change the start.
    pub(super) is_current: bool,
    /// `true` if the waiter has been roused for this start.
    pub(super) is_roused: bool,
}

impl Head {
    /// Returns the instant at which to serve the queue for this waiter.
    pub(super) fn serve_ns(&self, rousing: Option<Rousing>) -> Option<u64> {
        let start_ns = self.start_ns?;
        Some(match rousing {
            None => start_ns,
            Some(rousing) if self.is_roused => start_ns.saturating_add(rousing.patience_ns),
            Some(rousing) => start_ns.saturating_sub(rousing.lead_ns),
        })
    }

    /// Returns `true` if this waiter has been roused for a start that is now `start_ns`.
    pub(super) fn is_roused_for(&self, start_ns: Option<u64>) -> bool {
        let known_ns = self.start_ns.unwrap_or(0).saturating_add(SLIGHTLY_NS);
        self.is_roused && start_ns.is_some_and(|start_ns| start_ns <= known_ns)
    }
}

impl<W> Line<W> {
    /// Wakes the head of the queue by [`Wakes::roused`] if its start is `by_ns` or before.
    ///
    /// This happens once for each start. The waiter then runs when its start comes, and takes
    /// without another wake-up. Returns `true` if it was woken now.
    pub fn rouse(&mut self, by_ns: u64, wakes: &mut impl Wakes<W>) -> bool {
        let Some(head) = &mut self.head else { return false };
        if head.is_roused || head.start_ns.is_none_or(|start_ns| start_ns > by_ns) {
            return false;
        }
        head.is_roused = true;
        if let Some(waiting) = self.waiter_slab.at(head.slot) {
            wakes.roused(&waiting.waiter);
        }
        true
    }

    /// Returns the start of a waiter that is the head of the queue.
    #[must_use]
    pub fn head_start_ns(&self, waiter_id: &WaiterId) -> Option<u64> {
        self.head.filter(|head| head.slot == waiter_id.0)?.start_ns
    }
}
