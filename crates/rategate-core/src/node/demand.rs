//! How much a node has used lately, and so how much it should borrow next.
//!
//! Time is cut in slots of a quarter of a lease's usable time; the demand is what was used in two of them. It is
//! known at once when it rises, and it is forgotten three slots after the last use.

/// What was used of late, in whole permits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    slot_ns: u64,
    /// When the current slot began.
    begun_ns: u64,
    /// What was used in the current slot, the one before, and the one before that.
    used: [u64; 3],
    /// How much more than the demand is borrowed, since what was borrowed ran out.
    boost: u64,
}

impl Demand {
    pub(super) fn new(usable_ns: u64) -> Self {
        let slot_ns = usable_ns.checked_div(4).unwrap_or(0).max(1);
        Self { slot_ns, begun_ns: 0, used: [0; 3], boost: 0 }
    }

    /// Lets the time pass to `now_ns`.
    #[inline]
    pub(super) fn pass_to(&mut self, now_ns: u64) {
        let into_ns = now_ns.saturating_sub(self.begun_ns);
        if into_ns >= self.slot_ns {
            self.turn(now_ns, into_ns);
        }
    }

    #[cold]
    fn turn(&mut self, now_ns: u64, into_ns: u64) {
        let slots = into_ns.checked_div(self.slot_ns).unwrap_or(0);
        let [current, last, _] = self.used;
        self.used = match slots {
            0 => self.used,
            1 => [0, current, last],
            2 => [0, 0, current],
            _ => [0; 3],
        };
        let halvings = u32::try_from(slots).unwrap_or(u32::MAX);
        self.boost = self.boost.checked_shr(halvings).unwrap_or(0);
        let rest_ns = into_ns.checked_rem(self.slot_ns).unwrap_or(0);
        self.begun_ns = now_ns.saturating_sub(rest_ns);
    }

    #[inline]
    pub(super) fn count(&mut self, permits: u64) {
        let [current, ..] = &mut self.used;
        *current = current.saturating_add(permits);
    }

    /// What was borrowed did not last: twice as much, the next time.
    pub(super) fn ran_out(&mut self, most: u64) {
        self.boost = self.boost.max(self.lately()).saturating_mul(2).min(most);
    }

    /// What is used in half a lease.
    pub(super) fn lately(&self) -> u64 {
        let [current, last, before] = self.used;
        last.saturating_add(current.max(before))
    }

    /// How much it is good to have: nothing where nothing was used.
    pub(super) fn wanted(&self) -> u64 {
        match self.lately() {
            0 => 0,
            lately => lately.max(self.boost),
        }
    }

    /// When the current slot ends.
    pub(super) const fn turns_at_ns(&self) -> u64 {
        self.begun_ns.saturating_add(self.slot_ns)
    }

    pub(super) const fn slot_ns(&self) -> u64 {
        self.slot_ns
    }
}
