//! Looking for slots to vacate in a full shard, some at each newcomer's call, round and round: and once a whole
//! lap has found none, until when there will be none.

use super::slots::{CHUNK, Slots};

/// How far a lap has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lap {
    next: usize,
    /// How many slots have been looked at since the last one that was vacated.
    seen: usize,
    /// When the first of these will be full.
    next_ns: u64,
}

impl Default for Lap {
    fn default() -> Self {
        Self { next: 0, seen: 0, next_ns: u64::MAX }
    }
}

impl Lap {
    /// Looks at the next slots. Returns how many it has vacated.
    pub(super) fn go_on(&mut self, slots: &Slots, shard: usize, now_ns: u64) -> usize {
        let (vacated, next_ns) = slots.sweep_some(shard, self.next, now_ns);
        self.next = self.next.wrapping_add(CHUNK) & slots.slots_per_shard().wrapping_sub(1);
        if vacated > 0 {
            *self = Self { next: self.next, ..Self::default() };
        } else {
            self.seen = self.seen.saturating_add(CHUNK);
            self.next_ns = self.next_ns.min(next_ns);
        }
        vacated
    }

    /// A bucket that will be full then has been put into a slot that may have been looked at.
    pub(super) fn note(&mut self, full_ns: u64) {
        self.next_ns = self.next_ns.min(full_ns);
    }

    /// Until when there is nothing to vacate; 0 if the lap is not complete. The next one begins then.
    pub(super) fn nothing_until(&mut self, slots: &Slots) -> u64 {
        if self.seen < slots.slots_per_shard() {
            return 0;
        }
        let until_ns = self.next_ns;
        *self = Self { next: self.next, ..Self::default() };
        until_ns
    }
}
