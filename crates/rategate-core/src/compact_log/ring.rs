//! The log on the heap: a ring of entries of one width, in one block.
//!
//! ```text
//!   word 0   oldest tick                     word 2   63 .. entries .. 32 | 31 .. first .. 0
//!   word 1   permits                         word 3   63 . capacity . 32 | 15 gap 8 | 7 count 0
//!   word 4.. the entries, bit by bit: each its gap and its count
//! ```
//!
//! The newest tick stands beside the block, since each grant asks for it. The gap of the oldest entry
//! is to one that is forgotten, and means nothing.
//!
//! An entry without permits is empty: in a histogram a cell that has none, elsewhere a skip on the way over
//! a gap wider than a field says. Where each entry is one permit, a gap of all ones is a skip. The
//! oldest and the newest entry are never empty.

use alloc::boxed::Box;
use alloc::vec;

use super::fields::{bits_of, mask, read, write};
use super::shape::{Entry, Pushed, Shape, bits};

/// How many words stand before the entries.
const HEAD_WORDS: usize = 4;

/// A ring with an entry in it at least.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    words: Box<[u64]>,
    newest: u64,
}

/// The words before the entries, read.
#[derive(Clone, Copy, Debug)]
struct Head {
    oldest: u64,
    permits: u64,
    len: u32,
    first: u32,
    shape: Shape,
}

impl Ring {
    /// The entries, the first of them at `first_tick`, in a shape that has a place for all of them.
    pub(super) fn of(first_tick: u64, entries: impl Iterator<Item = Entry>, shape: Shape) -> Self {
        let words = usize::try_from(shape.words()).unwrap_or(usize::MAX);
        let words = vec![0; words.saturating_add(HEAD_WORDS)].into_boxed_slice();
        let mut ring = Self { words, newest: first_tick };
        let oldest = first_tick;
        ring.set_head(Head { oldest, permits: 0, len: 0, first: 0, shape });
        for entry in entries {
            let pushed = ring.push(entry);
            debug_assert_ne!(pushed, Pushed::Full, "{entry:?} has no place in {shape:?}");
        }
        ring
    }

    pub(super) const fn newest(&self) -> u64 {
        self.newest
    }

    /// All permits, if they are in one cell.
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

    /// How many words the block has.
    pub(super) fn words(&self) -> usize {
        self.words.len()
    }

    /// How many bits it has for entries.
    pub(super) fn bits(&self) -> u64 {
        let words = self.words.len().saturating_sub(HEAD_WORDS);
        bits(u64::try_from(words).unwrap_or(u64::MAX), u64::BITS)
    }

    /// The most bits that another ring would need for the same entries.
    pub(super) fn bits_needed(&self) -> u64 {
        let head = self.head();
        let as_it_is = bits(head.len.into(), head.shape.entry_bits());
        let span = self.newest.wrapping_sub(head.oldest);
        as_it_is.min(bits(head.permits, bits_of(span).saturating_add(1)))
    }

    /// The entries, oldest first. Some may be empty, and some of the same cell.
    pub(super) fn entries(&self) -> Entries<'_> {
        let (head, fields) = (self.head(), self.fields());
        let (gap, _) = head.entry(fields, 0);
        Entries { fields, head, place: 0, tick: head.oldest.wrapping_sub(gap) }
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
        let (added, room) = (empty.saturating_add(full), capacity.wrapping_sub(head.len));
        let Some(added) = u32::try_from(added).ok().filter(|&added| added <= room) else {
            return Pushed::Full;
        };
        let ends_at = head.place(head.len);
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

    /// Forgets the entries up to the tick `gone`, which is before the newest, and empty ones behind
    /// them. Returns whether there were any.
    pub(super) fn forget(&mut self, gone: u64) -> bool {
        let mut head = self.head();
        let leaves = head.oldest <= gone;
        if leaves {
            head.drop_front(self.fields(), |oldest| oldest <= gone);
            self.set_head(head);
        }
        leaves
    }

    /// Takes up to `permits` out of a cell. `None` if the ring would need another shape for that.
    pub(super) fn take_back(&mut self, tick: u64, permits: u64) -> Option<u64> {
        let mut head = self.head();
        let Some(place) = head.find(self.fields(), self.newest, tick) else { return Some(0) };
        if head.shape.count_bits == 0 {
            return self.take_back_single(place, permits);
        }
        let fields = self.fields_mut();
        let (gap, count) = head.entry(fields, place);
        let permits = permits.min(count);
        head.write(fields, place, gap, count.wrapping_sub(permits));
        head.permits = head.permits.wrapping_sub(permits);
        head.drop_front(fields, |_| false);
        let back = head.drop_back(fields);
        self.newest = self.newest.wrapping_sub(back);
        self.set_head(head);
        Some(permits)
    }

    /// The same where each entry is one permit, and `last` the last of the cell.
    fn take_back_single(&mut self, last: u32, permits: u64) -> Option<u64> {
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
        // The next entry lies behind the one before the first from now on.
        if first == 0 && next < end {
            head.oldest = head.oldest.wrapping_add(head.entry(fields, next).0);
        } else if next == end {
            back = gap;
        } else if gap > 0 {
            let joined = head.entry(fields, next).0.checked_add(gap)?;
            if joined >= mask(head.shape.gap_bits) {
                return None;
            }
            head.write(fields, next, joined, 1);
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
        Some(found)
    }

    fn head(&self) -> Head {
        let (mut oldest, mut permits, mut places, mut shape) = (0, 0, 0, 0);
        if let [word_0, word_1, word_2, word_3, ..] = *self.words {
            (oldest, permits, places, shape) = (word_0, word_1, word_2, word_3);
        }
        let high = |word: u64| u32::try_from(word >> 32).unwrap_or(0);
        let low = |word: u64, bits: u32| u32::try_from(word & mask(bits)).unwrap_or(0);
        let shape = Shape {
            gap_bits: low(shape >> 8, 8),
            count_bits: low(shape, 8),
            capacity: high(shape),
        };
        Head { oldest, permits, len: high(places), first: low(places, 32), shape }
    }

    fn set_head(&mut self, head: Head) {
        let Head { oldest, permits, len, first, shape } = head;
        let places = (u64::from(len) << 32) | u64::from(first);
        let widths = (u64::from(shape.gap_bits) << 8) | u64::from(shape.count_bits);
        let shape = (u64::from(shape.capacity) << 32) | widths;
        if let Some(words) = self.words.first_chunk_mut() {
            *words = [oldest, permits, places, shape];
        }
    }

    fn fields(&self) -> &[u64] {
        self.words.get(HEAD_WORDS..).unwrap_or_default()
    }

    fn fields_mut(&mut self) -> &mut [u64] {
        self.words.get_mut(HEAD_WORDS..).unwrap_or_default()
    }
}

impl Head {
    /// Where the entry is that has so many before it.
    fn place(self, entry: u32) -> u32 {
        let room = self.shape.capacity.wrapping_sub(self.first);
        if entry < room { self.first.wrapping_add(entry) } else { entry.wrapping_sub(room) }
    }

    fn at(self, entry: u32) -> u64 {
        bits(self.place(entry).into(), self.shape.entry_bits())
    }

    /// How far an entry is behind the one before it, and how many permits it is of.
    fn entry(self, fields: &[u64], entry: u32) -> (u64, u64) {
        let (at, Shape { gap_bits, count_bits, .. }) = (self.at(entry), self.shape);
        let gap = if gap_bits == 0 { 1 } else { read(fields, at, gap_bits) };
        let count = if count_bits == 0 {
            u64::from(gap != mask(gap_bits))
        } else {
            read(fields, at.wrapping_add(gap_bits.into()), count_bits)
        };
        (gap, count)
    }

    fn write(self, fields: &mut [u64], entry: u32, gap: u64, count: u64) {
        let (at, Shape { gap_bits, count_bits, .. }) = (self.at(entry), self.shape);
        if gap_bits > 0 {
            write(fields, at, gap_bits, gap);
        }
        if count_bits > 0 {
            write(fields, at.wrapping_add(gap_bits.into()), count_bits, count);
        }
    }

    fn append(&mut self, fields: &mut [u64], gap: u64, count: u64) {
        self.write(fields, self.len, gap, count);
        self.len = self.len.wrapping_add(1);
    }

    /// Drops entries from the front while they are `gone` or empty.
    fn drop_front(&mut self, fields: &[u64], gone: impl Fn(u64) -> bool) {
        while self.len > 0 {
            let (_, count) = self.entry(fields, 0);
            if count > 0 && !gone(self.oldest) {
                break;
            }
            self.permits = self.permits.wrapping_sub(count);
            self.first = self.place(1);
            self.len = self.len.wrapping_sub(1);
            if self.len > 0 {
                self.oldest = self.oldest.wrapping_add(self.entry(fields, 0).0);
            }
        }
    }

    /// Drops entries from the back while they are empty. Returns how far the newest is back by that.
    fn drop_back(&mut self, fields: &[u64]) -> u64 {
        let mut back = 0_u64;
        while let Some(last) = self.len.checked_sub(1) {
            let (gap, count) = self.entry(fields, last);
            if count > 0 {
                break;
            }
            back = back.wrapping_add(gap);
            self.len = last;
        }
        back
    }

    /// The last entry of a cell, if it has permits, from the newest back.
    fn find(self, fields: &[u64], newest: u64, tick: u64) -> Option<u32> {
        let mut at = newest;
        let mut last = self.len.checked_sub(1)?;
        if self.shape.gap_bits == 0 {
            let back = u32::try_from(newest.checked_sub(tick)?).ok()?;
            return last.checked_sub(back);
        }
        while at > tick {
            at = at.checked_sub(self.entry(fields, last).0)?;
            last = last.checked_sub(1)?;
        }
        (at == tick && self.entry(fields, last).1 > 0).then_some(last)
    }
}

/// The entries of a ring, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Entries<'a> {
    fields: &'a [u64],
    head: Head,
    place: u32,
    tick: u64,
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        if self.place >= self.head.len {
            return None;
        }
        let (gap, permits) = self.head.entry(self.fields, self.place);
        self.place = self.place.wrapping_add(1);
        self.tick = self.tick.wrapping_add(gap);
        Some(Entry { tick: self.tick, permits })
    }
}
