//! A node's recent demand, which determines how much it borrows next.
//!
//! Time is cut into slots of a quarter of a lease's usable time. The demand is what was used in
//! two of them. It rises at once, and falls to zero three slots after the last use.

/// The recent use of a key, in whole permits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    slot_ns: u64,
    /// The start of the current slot.
    begun_ns: u64,
    /// The permits used in the current slot, the one before, and the one before that.
    used: [u64; 3],
    /// The number of calls in these slots.
    calls: [u64; 3],
}

impl Demand {
    pub(super) fn new(usable_ns: u64) -> Self {
        let slot_ns = usable_ns.checked_div(4).unwrap_or(0).max(1);
        Self { slot_ns, begun_ns: 0, used: [0; 3], calls: [0; 3] }
    }

    /// Advances the time to `now_ns`.
    #[inline]
    pub(super) fn pass_to(&mut self, now_ns: u64) {
        let into_ns = now_ns.saturating_sub(self.begun_ns);
        if into_ns >= self.slot_ns {
            self.rotate(now_ns, into_ns);
        }
    }

    #[cold]
    fn rotate(&mut self, now_ns: u64, into_ns: u64) {
        let slots = into_ns.checked_div(self.slot_ns).unwrap_or(0);
        for counts in [&mut self.used, &mut self.calls] {
            let [current, last, _] = *counts;
            *counts = match slots {
                0 => *counts,
                1 => [0, current, last],
                2 => [0, 0, current],
                _ => [0; 3],
            };
        }
        let rest_ns = into_ns.checked_rem(self.slot_ns).unwrap_or(0);
        self.begun_ns = now_ns.saturating_sub(rest_ns);
    }

    #[inline]
    pub(super) fn count(&mut self, permits: u64) {
        let ([used, ..], [calls, ..]) = (&mut self.used, &mut self.calls);
        *used = used.saturating_add(permits);
        *calls = calls.saturating_add(1);
    }

    /// Returns the permits used in half a lease, which is how many a node should have.
    pub(super) fn lately(&self) -> u64 {
        in_two(self.used)
    }

    /// Returns `true` if another call is expected soon, because there was more than one.
    pub(super) fn is_ongoing(&self) -> bool {
        in_two(self.calls) > 1
    }

    /// Returns the end of the current slot.
    pub(super) const fn slot_ends_ns(&self) -> u64 {
        self.begun_ns.saturating_add(self.slot_ns)
    }

    pub(super) const fn slot_ns(&self) -> u64 {
        self.slot_ns
    }
}

/// Adds the last whole slot to the larger of the current one and the one before the last.
fn in_two([current, last, before]: [u64; 3]) -> u64 {
    last.saturating_add(current.max(before))
}
