//! The head of the queue, and its wake before its start.
//!
//! ```text
//!             lead          patience
//!          |<-------->|<------------------>|
//!        roused     start          served, if it has not taken
//! ```
//!
//! A waiter that is woken when its start has come runs later by what the wake takes. On a limit that makes
//! up for no lateness that is lost to the rate. So its owner may have the head roused before: it runs, waits
//! for the instant by itself, and takes.

use super::{Place, Queue, Wakes};
use crate::provisional::Provisional;

/// A head that has been roused is not roused anew for a start that is later by no more than this.
const SLIGHTLY_NS: u64 = 10_000;

/// How long before its start the head is roused, and for how long after its start it is left alone then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rousing {
    /// How long before its start.
    pub lead_ns: u64,
    /// How long after its start a head that has been roused is made due in its absence.
    pub patience_ns: u64,
}

/// The first waiter whose start has not come, and when that will be as things stand: not sooner.
/// `None` where no clock can tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) seat: u32,
    pub(super) start_ns: Option<u64>,
    /// Whether nothing has happened since that could make it another.
    pub(super) is_current: bool,
    /// Whether it has been roused for this start.
    pub(super) is_roused: bool,
}

impl Head {
    /// Returns when to serve the queue for its sake.
    pub(super) fn serve_ns(&self, rousing: Option<Rousing>) -> Option<u64> {
        let start_ns = self.start_ns?;
        Some(match rousing {
            None => start_ns,
            Some(rousing) if self.is_roused => start_ns.saturating_add(rousing.patience_ns),
            Some(rousing) => start_ns.saturating_sub(rousing.lead_ns),
        })
    }

    /// Whether the same waiter has been roused for a start that is `start_ns` now.
    pub(super) fn is_roused_for(&self, start_ns: Option<u64>) -> bool {
        let known_ns = self.start_ns.unwrap_or(0).saturating_add(SLIGHTLY_NS);
        self.is_roused && start_ns.is_some_and(|start_ns| start_ns <= known_ns)
    }
}

impl<W, L: Provisional> Queue<W, L> {
    /// Wakes the head of the queue by [`Wakes::roused`] if its start is `by_ns` or before, once for each
    /// start: it runs then when its start comes, and takes without being told again. Returns whether it
    /// does so now.
    pub fn rouse(&mut self, by_ns: u64, wakes: &mut impl Wakes<W>) -> bool {
        let Some(head) = &mut self.head else { return false };
        if head.is_roused || head.start_ns.is_none_or(|start_ns| start_ns > by_ns) {
            return false;
        }
        head.is_roused = true;
        if let Some(waiting) = self.seats.at(head.seat) {
            wakes.roused(&waiting.waiter);
        }
        true
    }

    /// Returns the start of a waiter that is the head of the queue.
    #[must_use]
    pub fn head_start_ns(&self, place: &Place) -> Option<u64> {
        self.head.filter(|head| head.seat == place.0)?.start_ns
    }
}
