//! The eviction cursor: a rotating search for slots to free in a full shard.
//!
//! Each call of a new key examines some slots. A full pass that has freed none also yields the
//! instant before which there will be none.

use super::slots::{CHUNK, Slots};

/// The progress of the pass over a shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct EvictionCursor {
    next: usize,
    /// The number of slots examined since the last one that was freed.
    seen: usize,
    /// The instant when the first of these will have recovered.
    next_ns: u64,
}

impl Default for EvictionCursor {
    fn default() -> Self {
        Self { next: 0, seen: 0, next_ns: u64::MAX }
    }
}

impl EvictionCursor {
    /// Examines the next slots. Returns the number freed.
    pub(super) fn go_on(&mut self, slots: &Slots, shard: usize, now_ns: u64) -> usize {
        let (evicted, next_ns) = slots.sweep_some(shard, self.next, now_ns);
        self.next = self.next.wrapping_add(CHUNK) & slots.slots_per_shard().wrapping_sub(1);
        if evicted > 0 {
            *self = Self { next: self.next, ..Self::default() };
        } else {
            self.seen = self.seen.saturating_add(CHUNK);
            self.next_ns = self.next_ns.min(next_ns);
        }
        evicted
    }

    /// Records a limit, recovered at `full_ns`, that was put into a slot which may have been
    /// examined.
    pub(super) fn note(&mut self, full_ns: u64) {
        self.next_ns = self.next_ns.min(full_ns);
    }

    /// Returns the instant before which no slot can be freed, and begins the next pass.
    ///
    /// It is 0 if the pass is not complete.
    pub(super) fn nothing_until(&mut self, slots: &Slots) -> u64 {
        if self.seen < slots.slots_per_shard() {
            return 0;
        }
        let until_ns = self.next_ns;
        *self = Self { next: self.next, ..Self::default() };
        until_ns
    }
}
