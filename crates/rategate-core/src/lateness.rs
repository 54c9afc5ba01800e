//! What a caller that comes late may still catch up on.

use crate::schedule::DueAt;

/// Idle time that a late call gives up for good: it is `gap` behind its first permit's instant and
/// `late` behind its last, and may catch up `bound_ns` at the most.
pub(crate) fn forfeit(first: DueAt, last: DueAt, at_ns: u128, bound_ns: Option<u64>) -> u128 {
    let Some(bound_ns) = bound_ns else { return 0 };
    let gap_ns = at_ns.saturating_sub(first.ceil_ns());
    let late_ns = at_ns.saturating_sub(last.ceil_ns());
    gap_ns.saturating_sub(bound_ns.into()).min(late_ns)
}

/// The same instant, moved by the idle time given up so far.
pub(crate) fn delayed(due: DueAt, idle_ns: u128) -> DueAt {
    DueAt { floor_ns: due.floor_ns.saturating_add(idle_ns), ..due }
}
