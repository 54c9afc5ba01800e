//! The header words of a ring, which say where its entries are and how they are encoded.

use super::fields::{mask, read, write};
use super::shape::{Entry, Shape, bits};

/// The decoded header words of a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) oldest: u64,
    pub(super) permits: u64,
    pub(super) len: u32,
    pub(super) first: u32,
    pub(super) shape: Shape,
}

impl Head {
    /// Returns the index at which an entry is stored that has `entry` others before it.
    pub(super) fn position(self, entry: u32) -> u32 {
        let available = self.shape.capacity.wrapping_sub(self.first);
        if entry < available {
            self.first.wrapping_add(entry)
        } else {
            entry.wrapping_sub(available)
        }
    }

    fn at(self, entry: u32) -> u64 {
        bits(self.position(entry).into(), self.shape.entry_bits())
    }

    /// Returns how far an entry is after the one before it, and its number of permits.
    pub(super) fn entry(self, fields: &[u64], entry: u32) -> (u64, u64) {
        let (at, Shape { gap_bits, count_bits, .. }) = (self.at(entry), self.shape);
        let gap = if gap_bits == 0 { 1 } else { read(fields, at, gap_bits) };
        let count = if count_bits == 0 {
            u64::from(gap != mask(gap_bits))
        } else {
            read(fields, at.wrapping_add(gap_bits.into()), count_bits)
        };
        (gap, count)
    }

    pub(super) fn write(self, fields: &mut [u64], entry: u32, gap: u64, count: u64) {
        let (at, Shape { gap_bits, count_bits, .. }) = (self.at(entry), self.shape);
        if gap_bits > 0 {
            write(fields, at, gap_bits, gap);
        }
        if count_bits > 0 {
            write(fields, at.wrapping_add(gap_bits.into()), count_bits, count);
        }
    }

    pub(super) fn append(&mut self, fields: &mut [u64], gap: u64, count: u64) {
        self.write(fields, self.len, gap, count);
        self.len = self.len.wrapping_add(1);
    }

    /// Drops entries from the front while they are `expired` or empty.
    pub(super) fn drop_front(&mut self, fields: &[u64], expired: impl Fn(u64) -> bool) {
        while self.len > 0 {
            let (_, count) = self.entry(fields, 0);
            if count > 0 && !expired(self.oldest) {
                break;
            }
            self.permits = self.permits.wrapping_sub(count);
            self.first = self.position(1);
            self.len = self.len.wrapping_sub(1);
            if self.len > 0 {
                self.oldest = self.oldest.wrapping_add(self.entry(fields, 0).0);
            }
        }
    }

    /// Drops entries from the back while they are empty. Returns by how much the newest tick
    /// moves back.
    pub(super) fn drop_back(&mut self, fields: &[u64]) -> u64 {
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

    /// Returns the last entry of a cell, searching from the newest back, if the cell has permits.
    /// In a histogram it also returns the entry of a cell without permits.
    pub(super) fn find(self, fields: &[u64], newest: u64, tick: u64) -> Option<u32> {
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
    position: u32,
    tick: u64,
}

impl<'a> Entries<'a> {
    pub(super) fn of(head: Head, fields: &'a [u64]) -> Self {
        let (gap, _) = head.entry(fields, 0);
        Self { fields, head, position: 0, tick: head.oldest.wrapping_sub(gap) }
    }
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        if self.position >= self.head.len {
            return None;
        }
        let (gap, permits) = self.head.entry(self.fields, self.position);
        self.position = self.position.wrapping_add(1);
        self.tick = self.tick.wrapping_add(gap);
        Some(Entry { tick: self.tick, permits })
    }
}
