//! The recorder of arrivals, for replays against other limits: all arrivals of a sample of keys.
//!
//! A limit by key can only be replayed with whole keys, so keys are sampled and not calls: a key
//! is recorded if the low bits of its hash are zero. The number of bits follows from the traffic.
//! When a recorder is full of arrivals younger than its reach, it drops half of its keys if
//! enough remain. With few keys it keeps them all, and reduces the resolution of instants.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rategate::stats::{Lanes, OwnLane};

use crate::observe::{MAX_LANES, lock};

/// The length of history that a recorder should keep, in nanoseconds.
const RETENTION_NS: u64 = 900 * SECOND_NS;
const SECOND_NS: u64 = 1_000_000_000;
/// The resolution of instants: arrivals of a key on a thread within it become one entry at the
/// first one's instant. A full recorder of few keys doubles it, up to a maximum.
const RESOLUTION_NS: u64 = 1_000_000;
const MAX_RESOLUTION_NS: u64 = 128 * RESOLUTION_NS;
/// The number of entries that are searched for the same key: more than the keys of a recorder
/// that cannot halve them.
const LOOKBACK: usize = 2 * MIN_KEYS;
/// The maximum number of entries in a thread's buffer.
const MAX_ENTRIES: usize = 65_536;
/// The number of entries by which a buffer grows.
const STEP: usize = 1_024;
/// The minimum number of keys that must remain after halving.
const MIN_KEYS: usize = 16;
/// The maximum number of bits: one key in 2^16.
const MAX_BITS: u32 = 16;

/// Arrivals of one key at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) at_ns: u64,
    /// The hash of the key.
    pub(super) id: u64,
    /// The permits of each arrival, capped at 2^32 - 1.
    pub(super) permits: u32,
    pub(super) calls: u32,
}

/// The contents of a recorder.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    /// The instant since which the sampled keys are complete.
    pub(super) from_ns: u64,
    /// The sampling: one key in this many.
    pub(super) every: u64,
    /// The resolution of instants.
    pub(super) grain_ns: u64,
    /// The arrivals, in the order of their instants.
    pub(super) arrivals: Vec<Arrival>,
}

/// The number of entries that all recorders together may still allocate.
#[derive(Clone, Debug)]
pub(in crate::observe) struct Budget(Arc<AtomicUsize>);

/// The recorder of a rule.
#[derive(Debug)]
pub(in crate::observe) struct Recorder {
    bits: AtomicU32,
    buffers: Lanes<Mutex<ArrivalBuffer>>,
    budget: Budget,
}

/// The buffer of a thread.
#[derive(Debug)]
struct ArrivalBuffer {
    entries: VecDeque<Arrival>,
    /// The capacity in entries.
    capacity: usize,
    /// The number of lowest bits of a hash that must be zero.
    bits: u32,
    grain_ns: u64,
    /// The instant since which it is complete.
    from_ns: u64,
    /// The number of entries to drop before it checks again if half of its keys are enough.
    patience: usize,
}

impl Budget {
    /// Creates a budget for entries of 24 bytes each.
    pub(in crate::observe) fn new(entries: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(entries)))
    }

    fn take(&self) -> usize {
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(STEP));
        taken.map_or(0, |_| STEP)
    }

    fn release(&self, entries: usize) {
        self.0.fetch_add(entries, Ordering::Relaxed);
    }
}

impl Recorder {
    /// Creates an empty recorder that begins at `now_ns`.
    pub(in crate::observe) fn new(budget: Budget, now_ns: u64) -> Self {
        let buffer = || Mutex::new(ArrivalBuffer::new(now_ns));
        Self { bits: AtomicU32::new(0), buffers: Lanes::new(MAX_LANES, buffer), budget }
    }

    /// Records an arrival if its key is sampled.
    #[inline]
    pub(in crate::observe) fn note(&self, now_ns: u64, id: u64, permits: u64) {
        if is_sampled(id, self.bits.load(Ordering::Relaxed)) {
            self.write(now_ns, id, permits);
        }
    }

    #[inline(never)]
    fn write(&self, at_ns: u64, id: u64, permits: u64) {
        let Some(OwnLane { lane, .. }) = self.buffers.own() else { return };
        let mut buffer = lock(lane);
        buffer.follow(self.bits.load(Ordering::Relaxed));
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        if buffer.joins(at_ns, id, permits) {
            return;
        }
        if buffer.entries.len() >= buffer.capacity {
            self.free_capacity(&mut buffer, at_ns);
            if !is_sampled(id, buffer.bits) {
                return;
            }
        }
        if buffer.capacity > 0 {
            buffer.entries.push_back(Arrival { at_ns, id, permits, calls: 1 });
        } else {
            buffer.from_ns = at_ns.saturating_add(1);
        }
    }

    /// Makes capacity for an entry: by growing, by dropping keys, or by dropping the oldest
    /// entry.
    fn free_capacity(&self, buffer: &mut ArrivalBuffer, now_ns: u64) {
        buffer.drop_before(now_ns.saturating_sub(RETENTION_NS));
        if buffer.entries.len() < buffer.capacity {
            return;
        }
        if buffer.capacity < MAX_ENTRIES {
            let more = self.budget.take();
            buffer.capacity = buffer.capacity.saturating_add(more);
            if more > 0 {
                return;
            }
        }
        buffer.patience = buffer.patience.saturating_sub(1);
        if buffer.patience == 0 {
            buffer.patience = buffer.capacity.max(1);
            if buffer.bits < MAX_BITS && buffer.keys_after_halving() >= MIN_KEYS {
                let bits = buffer.bits.saturating_add(1);
                self.bits.fetch_max(bits, Ordering::Relaxed);
                buffer.follow(bits);
                buffer.patience = 1;
            } else {
                buffer.grain_ns = buffer.grain_ns.saturating_mul(2).min(MAX_RESOLUTION_NS);
            }
        }
        if buffer.entries.len() >= buffer.capacity
            && let Some(oldest) = buffer.entries.pop_front()
        {
            buffer.from_ns = buffer.from_ns.max(oldest.at_ns.saturating_add(1));
        }
    }

    /// Drops old entries, and starts again with twice the keys if it is nearly empty. Called once
    /// a second.
    pub(in crate::observe) fn tick(&self, now_ns: u64) {
        let (mut entries, mut is_coarse) = (0_usize, false);
        for buffer in self.buffers.all() {
            let mut buffer = lock(buffer);
            buffer.drop_before(now_ns.saturating_sub(RETENTION_NS));
            is_coarse |= buffer.grain_ns > RESOLUTION_NS;
            entries = entries.saturating_add(buffer.entries.len());
        }
        let bits = self.bits.load(Ordering::Relaxed);
        if (bits > 0 || is_coarse) && entries < STEP / 8 {
            let bits = bits.saturating_sub(1);
            self.bits.store(bits, Ordering::Relaxed);
            for buffer in self.buffers.all() {
                let mut buffer = lock(buffer);
                let capacity = buffer.capacity;
                *buffer = ArrivalBuffer { capacity, bits, ..ArrivalBuffer::new(now_ns) };
            }
        }
    }

    /// Returns the contents.
    pub(super) fn read(&self) -> Recorded {
        let (mut arrivals, mut from_ns, mut grain_ns) = (Vec::new(), 0, RESOLUTION_NS);
        for buffer in self.buffers.all() {
            let buffer = lock(buffer);
            from_ns = buffer.from_ns.max(from_ns);
            grain_ns = buffer.grain_ns.max(grain_ns);
            arrivals.extend(buffer.entries.iter().copied());
        }
        // A thread raises the bits before it drops any entries.
        let bits = self.bits.load(Ordering::Relaxed);
        arrivals.retain(|arrival| arrival.at_ns >= from_ns && is_sampled(arrival.id, bits));
        arrivals.sort_by_key(|arrival| arrival.at_ns);
        let every = 1_u64.checked_shl(bits).unwrap_or(u64::MAX);
        Recorded { from_ns, every, grain_ns, arrivals }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let capacity = self
            .buffers
            .all()
            .fold(0_usize, |sum, buffer| sum.saturating_add(lock(buffer).capacity));
        self.budget.release(capacity);
    }
}

impl ArrivalBuffer {
    fn new(from_ns: u64) -> Self {
        let entries = VecDeque::new();
        Self { entries, capacity: 0, bits: 0, grain_ns: RESOLUTION_NS, from_ns, patience: 0 }
    }

    /// Drops keys if another thread has reduced the sampling.
    fn follow(&mut self, bits: u32) {
        if self.bits < bits {
            self.bits = bits;
            self.entries.retain(|arrival| is_sampled(arrival.id, bits));
        }
    }

    /// Adds an arrival to an earlier entry with equal key and permits at about the same time.
    fn joins(&mut self, at_ns: u64, id: u64, permits: u32) -> bool {
        let mut last = self.entries.iter_mut().rev().take(LOOKBACK);
        // The key first: it differs nearly always.
        let same =
            last.find(|entry| entry.id == id && entry.permits == permits && entry.calls < u32::MAX);
        let near = same.filter(|entry| at_ns.saturating_sub(entry.at_ns) < self.grain_ns);
        near.map(|entry| entry.calls = entry.calls.saturating_add(1)).is_some()
    }

    fn drop_before(&mut self, from_ns: u64) {
        while self.entries.front().is_some_and(|oldest| oldest.at_ns < from_ns) {
            self.entries.pop_front();
        }
        self.from_ns = self.from_ns.max(from_ns);
    }

    /// Returns the number of keys that would remain, counted up to the required minimum.
    fn keys_after_halving(&self) -> usize {
        let bits = self.bits.saturating_add(1);
        let mut keys = HashSet::new();
        for arrival in self.entries.iter().filter(|arrival| is_sampled(arrival.id, bits)) {
            keys.insert(arrival.id);
            if keys.len() >= MIN_KEYS {
                break;
            }
        }
        keys.len()
    }
}

#[inline]
const fn is_sampled(id: u64, bits: u32) -> bool {
    id.trailing_zeros() >= bits
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const MS: u64 = 1_000_000;

    /// A hash that is good enough for these tests.
    fn mixed(key: u64) -> u64 {
        let mixed = (key ^ 0x5851_F42D_4C95_7F2D).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9).rotate_right(17)
    }

    /// The recording is complete: each sampled key has all its calls since the recording's
    /// beginning, and other keys have none.
    #[test]
    fn a_sampled_key_has_all_its_calls() {
        for (keys, calls) in [(3_u64, 50_000_u64), (500, 60_000), (20_000, 200_000)] {
            let budget = Budget::new(8 * STEP);
            let recorder = Recorder::new(budget, 0);
            let call = |number: u64| (number * 3 * MS, mixed(mixed(number) % keys));
            for (at_ns, id) in (0..calls).map(call) {
                recorder.note(at_ns, id, 1);
            }
            let history = recorder.read();
            assert!(history.arrivals.len() <= 8 * STEP);
            assert!(history.arrivals.len() > 500, "{keys}: {}", history.arrivals.len());
            let mut noted = HashMap::<u64, u64>::new();
            for arrival in &history.arrivals {
                *noted.entry(arrival.id).or_default() += u64::from(arrival.calls);
            }
            let mut since = [HashMap::<u64, u64>::new(), HashMap::new()];
            let begins = [history.from_ns, history.from_ns + history.grain_ns];
            for (at_ns, id) in (0..calls).map(call).filter(|(_, id)| id % history.every == 0) {
                for (count, begin) in since.iter_mut().zip(begins) {
                    *count.entry(id).or_default() += u64::from(at_ns >= begin);
                }
            }
            // Calls that joined an entry at an instant before the beginning are not included.
            let [all, at_least] = since;
            for (id, calls) in all {
                let noted = noted.remove(&id).unwrap_or(0);
                assert!((at_least[&id]..=calls).contains(&noted), "{keys}: {noted} of {calls}");
            }
            assert!(noted.is_empty(), "{keys}: keys that were not sampled");
            assert_eq!(history.every == 1, keys == 3, "{keys} keys, one in {}", history.every);
        }
    }

    #[test]
    fn calls_of_one_millisecond_are_one_entry() {
        let recorder = Recorder::new(Budget::new(STEP), 0);
        for at_ns in (0..10 * MS).step_by(1_000) {
            recorder.note(at_ns, 64, 2);
        }
        let history = recorder.read();
        assert_eq!(history.arrivals.len(), 10);
        assert!(
            history.arrivals.iter().all(|arrival| arrival.calls == 1_000 && arrival.permits == 2)
        );
    }

    /// A few keys that are always active are kept for minutes at any rate.
    #[test]
    fn few_keys_take_little_memory() {
        let recorder = Recorder::new(Budget::new(8 * STEP), 0);
        let calls = 3_000_000_u64;
        for call in 0..calls {
            // Thirty thousand a second, of twenty keys in rotation.
            recorder.note(call * 33_333, mixed(call % 20), 1);
        }
        let history = recorder.read();
        let reach_ns = calls * 33_333 - history.from_ns;
        assert!(reach_ns > 40 * SECOND_NS, "{reach_ns} ns at {} ns", history.grain_ns);
        assert!(history.arrivals.len() <= 8 * STEP && history.grain_ns <= MAX_RESOLUTION_NS);
        let noted: u64 = history.arrivals.iter().map(|arrival| u64::from(arrival.calls)).sum();
        let expected = (0..calls).filter(|call| {
            call * 33_333 >= history.from_ns && mixed(call % 20).is_multiple_of(history.every)
        });
        let expected = u64::try_from(expected.count()).unwrap();
        // At the very beginning an entry may stand for calls since then.
        assert!(noted.abs_diff(expected) < 20 * 128 * 30, "{noted} {expected}");
    }

    #[test]
    fn the_memory_of_recorders_is_bounded_and_returned() {
        let budget = Budget::new(3 * STEP);
        let first = Recorder::new(budget.clone(), 0);
        for call in 0..10_000 {
            first.note(call * MS, 1, 1);
        }
        assert_eq!(first.read().arrivals.len(), 3 * STEP);
        let second = Recorder::new(budget.clone(), 0);
        second.note(7, 1, 1);
        assert_eq!((second.read().arrivals.len(), second.read().from_ns), (0, 8), "and says so");
        drop(first);
        second.note(9, 1, 1);
        assert_eq!(second.read().arrivals.len(), 1);
    }

    /// A key sample that was reduced under load grows again.
    #[test]
    fn a_recorder_of_little_traffic_takes_more_keys_again() {
        let recorder = Recorder::new(Budget::new(STEP), 0);
        for call in 0..200_000_u64 {
            recorder.note(call * MS, mixed(call), 1);
        }
        assert!(recorder.read().every > 1);
        for second in 0..20 {
            recorder.tick(RETENTION_NS * 2 + second * SECOND_NS);
        }
        assert_eq!(recorder.read().every, 1);
        assert_eq!(recorder.read().from_ns / SECOND_NS, 1_800 + 7, "{}", recorder.read().from_ns);
    }

    /// A resolution that was reduced under load improves again.
    #[test]
    fn a_recorder_of_little_traffic_is_exact_again() {
        let recorder = Recorder::new(Budget::new(STEP), 0);
        for call in 0..10_000_u64 {
            recorder.note(call * MS, 64 * (call % 3), 1);
        }
        let history = recorder.read();
        assert!(history.every == 1 && history.grain_ns > RESOLUTION_NS, "{}", history.grain_ns);
        recorder.tick(RETENTION_NS * 2);
        assert_eq!(recorder.read().grain_ns, RESOLUTION_NS);
    }
}
