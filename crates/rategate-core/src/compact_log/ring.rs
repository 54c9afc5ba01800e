//! The log on the heap: a ring of entries of equal width, in one block.
//!
//! ```text
//!   word 0   oldest tick                     word 2   63 .. entries .. 32 | 31 .. first .. 0
//!   word 1   permits                         word 3   63 . capacity . 32 | 15 gap 8 | 7 count 0
//!   word 4.. the entries, bit by bit: each its gap and its count
//! ```
//!
//! The newest tick is stored next to the block, since each grant needs it. The gap of the oldest
//! entry leads to a dropped entry, and means nothing.
//!
//! An entry without permits is empty. In a histogram it is a cell without permits; elsewhere it
//! is a skip over a part of a gap too wide for one field. Where each entry is one permit, a gap
//! of all ones is a skip. The oldest and the newest entry are never empty.

use alloc::boxed::Box;
use alloc::vec;

use super::fields::{bits_of, mask};
use super::head::{Entries, Head};
use super::shape::{Entry, Pushed, Shape, bits};

/// The number of header words before the entries.
const HEAD_WORDS: usize = 4;

/// A ring with at least one entry.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    words: Box<[u64]>,
    newest: u64,
}

impl Ring {
    /// Creates a ring of the entries, the first of them at `first_tick`, in a shape that fits all
    /// of them.
    pub(super) fn of(first_tick: u64, entries: impl Iterator<Item = Entry>, shape: Shape) -> Self {
        let words = usize::try_from(shape.words()).unwrap_or(usize::MAX);
        let words = vec![0; words.saturating_add(HEAD_WORDS)].into_boxed_slice();
        let mut ring = Self { words, newest: first_tick };
        let oldest = first_tick;
        ring.set_head(Head { oldest, permits: 0, len: 0, first: 0, shape });
        for entry in entries {
            let pushed = ring.push(entry);
            debug_assert_ne!(pushed, Pushed::Full, "{entry:?} does not fit {shape:?}");
        }
        ring
    }

    pub(super) fn oldest(&self) -> u64 {
        self.head().oldest
    }

    pub(super) const fn newest(&self) -> u64 {
        self.newest
    }

    /// Returns all permits, if they are in one cell.
    pub(super) fn only_cell(&self) -> Option<Entry> {
        let Head { oldest, permits, .. } = self.head();
        (oldest == self.newest).then_some(Entry { tick: oldest, permits })
    }

    pub(super) fn permits(&self) -> u64 {
        self.head().permits
    }

    pub(super) fn shape(&self) -> Shape {
        self.head().shape
    }

    /// Returns the number of words of the block.
    pub(super) fn words(&self) -> usize {
        self.words.len()
    }

    /// Returns the number of bits for entries.
    pub(super) fn bits(&self) -> u64 {
        let words = self.words.len().saturating_sub(HEAD_WORDS);
        bits(u64::try_from(words).unwrap_or(u64::MAX), u64::BITS)
    }

    /// Returns the most bits that another ring would need for the same entries.
    pub(super) fn bits_needed(&self) -> u64 {
        let head = self.head();
        let as_it_is = bits(head.len.into(), head.shape.entry_bits());
        let span = self.newest.wrapping_sub(head.oldest);
        as_it_is.min(bits(head.permits, bits_of(span).saturating_add(1)))
    }

    /// Returns the entries, oldest first. Some may be empty, and some of the same cell.
    pub(super) fn entries(&self) -> Entries<'_> {
        Entries::of(self.head(), self.fields())
    }

    /// Adds an entry that is not before the newest.
    pub(super) fn push(&mut self, entry: Entry) -> Pushed {
        let mut head = self.head();
        let Shape { gap_bits, count_bits, capacity } = head.shape;
        let gap = entry.tick.wrapping_sub(self.newest);
        let (is_first, fields) = (head.len == 0, self.fields_mut());
        if gap == 0 && !is_first && count_bits > 0 {
            let last = head.len.wrapping_sub(1);
            let (gap, count) = head.entry(fields, last);
            let count = count.saturating_add(entry.permits);
            if count > mask(count_bits) {
                return Pushed::Full;
            }
            head.write(fields, last, gap, count);
            head.permits = head.permits.saturating_add(entry.permits);
            self.set_head(head);
            return Pushed::In;
        }
        if count_bits > 0 && entry.permits > mask(count_bits) {
            return Pushed::Full;
        }
        let (empty, gap) = if is_first { (0, 0) } else { head.shape.steps(gap) };
        let full = if count_bits == 0 { entry.permits } else { 1 };
        let (added, available) = (empty.saturating_add(full), capacity.wrapping_sub(head.len));
        let Some(added) = u32::try_from(added).ok().filter(|&added| added <= available) else {
            return Pushed::Full;
        };
        let ends_at = head.position(head.len);
        for _ in 0..empty {
            head.append(fields, mask(gap_bits), 0);
        }
        head.append(fields, gap, entry.permits);
        for _ in 1..full {
            head.append(fields, 0, 1);
        }
        head.permits = head.permits.saturating_add(entry.permits);
        self.newest = entry.tick;
        self.set_head(head);
        let laps = u64::from(ends_at).saturating_add(added.into()) >= capacity.into();
        if laps { Pushed::Lapped } else { Pushed::In }
    }

    /// Drops the entries up to the tick `expired`, which is before the newest, and empty ones after
    /// them. Returns `true` if there were any.
    pub(super) fn expire(&mut self, expired: u64) -> bool {
        let mut head = self.head();
        let leaves = head.oldest <= expired;
        if leaves {
            head.drop_front(self.fields(), |oldest| oldest <= expired);
            self.set_head(head);
        }
        leaves
    }

    /// Removes up to `permits`, at least one, from a cell. Returns how many were removed.
    pub(super) fn take_back(&mut self, tick: u64, permits: u64) -> u64 {
        let mut head = self.head();
        let Some(position) = head.find(self.fields(), self.newest, tick) else { return 0 };
        if head.shape.count_bits == 0 {
            return self.take_back_single(position, permits);
        }
        let fields = self.fields_mut();
        let (gap, count) = head.entry(fields, position);
        let permits = permits.min(count);
        head.write(fields, position, gap, count.wrapping_sub(permits));
        head.permits = head.permits.wrapping_sub(permits);
        head.drop_front(fields, |_| false);
        let back = head.drop_back(fields);
        self.newest = self.newest.wrapping_sub(back);
        self.set_head(head);
        permits
    }

    /// Removes permits where each entry is one permit, and `last` the last of the cell.
    fn take_back_single(&mut self, last: u32, permits: u64) -> u64 {
        let mut head = self.head();
        let newest = self.newest;
        let fields = self.fields_mut();
        // Back to the first of the cell, or far enough.
        let (mut first, mut found) = (last, 1);
        let (mut gap, _) = head.entry(fields, first);
        while let (true, 0, Some(before)) = (found < permits, gap, first.checked_sub(1)) {
            let (gap_before, 1..) = head.entry(fields, before) else { break };
            (first, found, gap) = (before, found.wrapping_add(1), gap_before);
        }
        let (next, end) = (last.wrapping_add(1), head.len);
        let mut back = 0;
        if next == end {
            back = gap;
        } else if first == 0 {
            head.oldest = head.oldest.wrapping_add(head.entry(fields, next).0);
        } else if gap > 0 {
            // From now on the next permit follows the entry before the first. If that is too far
            // for one gap, a freed entry holds the skip.
            let widest = mask(head.shape.gap_bits);
            let is_permit = |entry: &u32| head.entry(fields, *entry).1 > 0;
            let onto = (next..end).find(is_permit).unwrap_or(next);
            let mut joined = head.entry(fields, onto).0.wrapping_add(gap);
            if joined >= widest {
                joined = joined.wrapping_sub(widest);
                head.write(fields, first, widest, 0);
                first = first.wrapping_add(1);
            }
            head.write(fields, onto, joined, 1);
        }
        for (to, from) in (first..).zip(next..end) {
            let (gap, count) = head.entry(fields, from);
            head.write(fields, to, gap, count);
        }
        head.len = first.wrapping_add(end.wrapping_sub(next));
        head.permits = head.permits.wrapping_sub(found);
        head.drop_front(fields, |_| false);
        back = head.drop_back(fields).wrapping_add(back);
        self.newest = newest.wrapping_sub(back);
        self.set_head(head);
        found
    }

    #[cfg(test)]
    pub(super) fn block(&self) -> *const u64 {
        self.words.as_ptr()
    }

    fn head(&self) -> Head {
        let (mut oldest, mut permits, mut extent, mut shape) = (0, 0, 0, 0);
        if let [word_0, word_1, word_2, word_3, ..] = *self.words {
            (oldest, permits, extent, shape) = (word_0, word_1, word_2, word_3);
        }
        let high = |word: u64| u32::try_from(word >> 32).unwrap_or(0);
        let low = |word: u64, bits: u32| u32::try_from(word & mask(bits)).unwrap_or(0);
        let shape = Shape {
            gap_bits: low(shape >> 8, 8),
            count_bits: low(shape, 8),
            capacity: high(shape),
        };
        Head { oldest, permits, len: high(extent), first: low(extent, 32), shape }
    }

    fn set_head(&mut self, head: Head) {
        let Head { oldest, permits, len, first, shape } = head;
        let extent = (u64::from(len) << 32) | u64::from(first);
        let widths = (u64::from(shape.gap_bits) << 8) | u64::from(shape.count_bits);
        let shape = (u64::from(shape.capacity) << 32) | widths;
        if let Some(words) = self.words.first_chunk_mut() {
            *words = [oldest, permits, extent, shape];
        }
    }

    fn fields(&self) -> &[u64] {
        self.words.get(HEAD_WORDS..).unwrap_or_default()
    }

    fn fields_mut(&mut self) -> &mut [u64] {
        self.words.get_mut(HEAD_WORDS..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::super::shape::{Entry, Pushed, Shape};
    use super::Ring;

    /// Every permit of every cell, one by one: the contents of any ring.
    type Plain = Vec<u64>;

    fn plain(ring: &Ring) -> Plain {
        let each = |entry: Entry| (0..entry.permits).map(move |_| entry.tick);
        ring.entries().flat_map(each).collect()
    }

    /// Calls `what` with pseudo-random numbers up to the given ones.
    fn at_random(seed: u64, times: usize, mut what: impl FnMut(&mut dyn FnMut(u64) -> u64)) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut below = move |end: u64| random.u64(..end);
        (0..times).for_each(|_| what(&mut below));
    }

    /// A ring of any shape is the list of its permits, its ends are never empty, and a push that
    /// does not fit changes nothing.
    #[test]
    fn a_ring_of_any_shape_is_the_list_of_its_permits() {
        for seed in 0..2_000_u32 {
            let (gap_bits, count_bits) = (seed % 5, seed / 5 % 4);
            if gap_bits + count_bits == 0 {
                continue;
            }
            let shape = Shape { gap_bits, count_bits, capacity: 1 + seed % 23 };
            let first = Entry { tick: 100, permits: 1 };
            let mut ring = Ring::of(first.tick, [first].into_iter(), shape);
            let mut list: Plain = [first.tick].into();
            at_random(seed.into(), 120, |below| {
                let (oldest, newest) = (list[0], list[list.len() - 1]);
                match below(4) {
                    0 if oldest < newest => {
                        let expired = oldest + below(newest - oldest);
                        assert!(ring.expire(expired));
                        list.retain(|&tick| tick > expired);
                    }
                    1 => {
                        let (tick, permits) = (oldest + below(newest - oldest + 2), 1 + below(4));
                        let there = list.iter().filter(|&&known| known == tick).count();
                        let there = permits.min(u64::try_from(there).unwrap());
                        // A log without permits is no ring.
                        if there < u64::try_from(list.len()).unwrap() {
                            assert_eq!(ring.take_back(tick, permits), there);
                            for _ in 0..there {
                                let at = list.iter().position(|&known| known == tick);
                                list.remove(at.unwrap());
                            }
                        }
                    }
                    _ => {
                        let tick = newest + below(3) * below(20);
                        let entry = Entry { tick, permits: 1 + below(3) * below(4) };
                        if ring.push(entry) != Pushed::Full {
                            list.extend((0..entry.permits).map(|_| tick));
                        }
                    }
                }
                assert_eq!(plain(&ring), list, "seed {seed}, {shape:?}");
                assert_eq!(ring.permits(), u64::try_from(list.len()).unwrap());
                assert_eq!(ring.newest(), list[list.len() - 1], "seed {seed}, {shape:?}");
                let ends = [ring.entries().next(), ring.entries().last()];
                assert!(ends.iter().flatten().all(|end| end.permits > 0), "seed {seed}, {shape:?}");
            });
        }
    }
}
