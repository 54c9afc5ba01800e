//! The operations on slots that need the shard's lock.

use super::{BEING_WRITTEN, CHUNK, EMPTY, Home, SEALED, Seen, SlotIndex, Slots, VACANT, key_words};
use crate::keyed::key::private::Words;
use crate::sync::{Ordering, fence};

impl Slots {
    /// Takes the state out of a slot, which stays reserved for the key.
    pub(in crate::keyed) fn seal(&self, at: SlotIndex) -> Option<Seen> {
        loop {
            let seen = self.load(at);
            if !seen.is_open() {
                return None;
            }
            if self.swap(at, seen, SEALED) {
                return Some(seen);
            }
        }
    }

    /// Stores a state in a sealed slot.
    pub(in crate::keyed) fn open(&self, at: SlotIndex, value: u64, version: u8) {
        self.store(at, Seen::of(value, version).0);
    }

    /// Frees the slot of its key, which has none from now on.
    pub(in crate::keyed) fn clear_slot(&self, at: SlotIndex) {
        self.store(at, VACANT);
    }

    fn store(&self, at: SlotIndex, state: u64) {
        if let Some(word) = self.state(at) {
            word.store(state, Ordering::Release);
        }
    }

    /// Reserves a slot for a new key: one whose limit has recovered, or if `may_grow` an unused
    /// one.
    ///
    /// It belongs to no key until it is [assigned](Self::assign).
    pub(in crate::keyed) fn reserve_slot(
        &self,
        home: Home,
        now_ns: u64,
        may_grow: impl FnOnce() -> bool,
    ) -> Option<SlotIndex> {
        let mut unused = None;
        for step in 0..self.window() {
            let at = self.at(home, step);
            let seen = self.load(at);
            if self.is_stale(seen, now_ns) && self.swap(at, seen, BEING_WRITTEN) {
                return Some(at);
            }
            if matches!(seen.0, EMPTY | VACANT) {
                unused = unused.or(Some((at, seen)));
            }
            if seen.0 == EMPTY {
                break;
            }
        }
        let (at, seen) = unused?;
        (may_grow() && self.swap(at, seen, BEING_WRITTEN)).then_some(at)
    }

    /// Assigns a reserved slot to a key. The state is sealed if there is no value.
    pub(in crate::keyed) fn assign(&self, at: SlotIndex, id: impl Words, state: Option<(u64, u8)>) {
        // A thread that reads a part of this key sees that the state is no longer the old one.
        fence(Ordering::Release);
        let SlotIndex(first) = at;
        for (word, index) in
            self.words.iter().skip(first.wrapping_add(1)).zip(0..).take(key_words(self.stride))
        {
            word.store(id.word(index), Ordering::Relaxed);
        }
        self.store(at, state.map_or(SEALED, |(value, version)| Seen::of(value, version).0));
    }

    fn is_stale(&self, seen: Seen, now_ns: u64) -> bool {
        seen.is_open() && self.version(seen.version_index()).numbers.is_full(seen.value(), now_ns)
    }

    /// Returns `true` if the shard must be swept before its values can be judged at `now_ns`.
    pub(in crate::keyed) fn needs_sweep(&self, shard: usize, now_ns: u64) -> bool {
        self.clamp(shard, now_ns).is_none()
    }

    /// Returns the clock, or the time of the shard's last sweep if that is later.
    pub(in crate::keyed) fn not_before_sweep(&self, shard: usize, now_ns: u64) -> u64 {
        self.swept_ns.get(shard).map_or(now_ns, |swept| now_ns.max(swept.load(Ordering::Relaxed)))
    }

    /// Frees all slots of a shard whose limits have recovered. Returns their number.
    pub(in crate::keyed) fn sweep(&self, shard: usize, now_ns: u64) -> usize {
        let Some(swept) = self.swept_ns.get(shard) else { return 0 };
        let since_ns = now_ns.saturating_sub(swept.load(Ordering::Relaxed));
        let slots = 0..=self.shard_mask;
        let evicted = slots.filter(|&slot| {
            let at = self.at(Home { shard, slot, mark: 0 }, 0);
            let seen = self.load(at);
            // The last grant was made before the values became ambiguous, and no burst lasts twice
            // that time.
            let validity_ns = self.version(seen.version_index()).numbers.validity_ns();
            let is_long_ago = seen.is_open() && since_ns / 3 > validity_ns;
            (is_long_ago || self.is_stale(seen, now_ns)) && self.swap(at, seen, VACANT)
        });
        let evicted = evicted.count();
        swept.fetch_max(now_ns, Ordering::Relaxed);
        evicted
    }

    /// Sweeps the next [`CHUNK`] slots of a shard.
    ///
    /// Returns the number freed, and the instant when the first of the others will have recovered.
    pub(in crate::keyed) fn sweep_some(
        &self,
        shard: usize,
        first: usize,
        now_ns: u64,
    ) -> (usize, u64) {
        let home = Home { shard, slot: first, mark: 0 };
        let (mut evicted, mut next_ns) = (0_usize, u64::MAX);
        for step in 0..CHUNK.min(self.slots_per_shard()) {
            let at = self.at(home, step);
            let seen = self.load(at);
            if self.is_stale(seen, now_ns) && self.swap(at, seen, VACANT) {
                evicted = evicted.saturating_add(1);
            } else if seen.is_open() {
                let numbers = self.version(seen.version_index()).numbers;
                next_ns = next_ns.min(numbers.full_after(seen.value(), now_ns));
            }
        }
        (evicted, next_ns)
    }

    pub(in crate::keyed) const fn slots_per_shard(&self) -> usize {
        self.shard_mask.saturating_add(1)
    }

    /// Sets the instant before which no slot of a shard can be freed, or 0 if it is not known.
    ///
    /// `outside` are the marks of all keys without a slot.
    pub(in crate::keyed) fn set_full_until(&self, shard: usize, until_ns: u64, outside: u64) {
        if let (Some(until), Some(marks)) = (self.full_until_ns.get(shard), self.outside.get(shard))
        {
            marks.store(outside, Ordering::Relaxed);
            until.store(until_ns, Ordering::Release);
        }
    }

    /// Records a key that has no slot.
    pub(in crate::keyed) fn note_outside(&self, home: Home) {
        if let Some(marks) = self.outside.get(home.shard) {
            marks.fetch_or(home.mark, Ordering::Relaxed);
        }
    }

    /// Clears the instant before which a shard is full.
    pub(in crate::keyed) fn clear_full_until(&self, shard: usize) {
        self.lower_full_until(shard, 0);
    }

    /// Lowers that instant, because a slot added since will have recovered at `until_ns`.
    pub(in crate::keyed) fn lower_full_until(&self, shard: usize, until_ns: u64) {
        if let Some(until) = self.full_until_ns.get(shard) {
            until.fetch_min(until_ns, Ordering::Relaxed);
        }
    }

    /// Passes every open state of a shard that names policy index `version` to `change`, sealed,
    /// with its key.
    ///
    /// A slot for which it returns a state is opened again; the others stay sealed.
    pub(in crate::keyed) fn change_all<I: Words>(
        &self,
        shard: usize,
        version: u8,
        mut change: impl FnMut(I, u64) -> Option<(u64, u8)>,
    ) {
        for slot in 0..=self.shard_mask {
            let at = self.at(Home { shard, slot, mark: 0 }, 0);
            if self.load(at).is_open() && self.load(at).version() == version {
                let Some(seen) = self.seal(at) else { continue };
                if let Some((value, version)) = change(self.id(at), seen.value()) {
                    self.open(at, value, version);
                }
            }
        }
    }

    /// Visits each open state of a shard, with its key and policy index. The shard must not need
    /// a [sweep](Self::sweep).
    pub(in crate::keyed) fn each<I: Words>(&self, shard: usize, mut visit: impl FnMut(I, u8, u64)) {
        for slot in 0..=self.shard_mask {
            let at = self.at(Home { shard, slot, mark: 0 }, 0);
            let seen = self.load(at);
            if seen.is_open() {
                visit(self.id(at), seen.version(), seen.value());
            }
        }
    }

    fn id<I: Words>(&self, SlotIndex(at): SlotIndex) -> I {
        let word = |index: usize| {
            let word = self.words.get(at.wrapping_add(index).wrapping_add(1));
            word.map_or(0, |word| word.load(Ordering::Relaxed))
        };
        I::of([word(0), if I::WORDS > 1 { word(1) } else { 0 }])
    }

    /// Returns the bytes that all slots take, used or not.
    pub(in crate::keyed) fn bytes(&self) -> usize {
        let times = self.swept_ns.len().saturating_add(self.full_until_ns.len());
        let words = self.words.len().saturating_add(times);
        words.saturating_mul(size_of::<u64>()).saturating_add(size_of_val(&*self.policy_versions))
    }
}
