//! The choice of the form that holds the same log in the fewest words.
//!
//! All three forms are rings of entries of equal width. An entry says how many cells of the grid
//! it lies after the one before it, and how many permits it has. Each form omits what it need not
//! say:
//!
//! | form | the gap | the count | entries |
//! |---|---|---|---|
//! | gaps | said | 1 | one for each permit |
//! | runs | said | said | one for each cell with permits in it |
//! | histogram | 1 | said | one for each cell from the oldest to the newest |
//!
//! The widths follow from the current contents of the log, not from what it could hold. A few
//! gaps may be wider than a field: entries without a permit are put in between, and *skip* as far
//! as a field can say. So one quiet stretch does not widen ten thousand fields.

use core::num::NonZeroU64;

use super::fields::{bits_of, mask};

/// The permits that count as granted in one cell of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) tick: u64,
    pub(super) permits: u64,
}

/// The outcome of adding an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// The entry was added.
    In,
    /// The entry was added, and the ring has gone round once more: a good time to review its shape.
    Lapped,
    /// The ring is full, or its shape cannot encode the entry; nothing has changed.
    Full,
}

/// The bounds on what a log under some numbers can have to hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caps {
    pub(super) permits: u64,
    pub(super) window_ns: u64,
    pub(super) cell_ns: NonZeroU64,
}

impl Caps {
    /// Returns how many cells can have permits in them together: those of the window, and the one
    /// that counts as granted later.
    fn cells(self) -> u64 {
        self.window_ns.div_ceil(self.cell_ns.get()).saturating_add(1)
    }
}

/// The encoding of the entries of a ring, and how many of them fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// The width of a gap. Zero: each entry is the cell after the one before it.
    pub(super) gap_bits: u32,
    /// The width of a count. Zero: each entry is one permit.
    pub(super) count_bits: u32,
    /// The number of entries that fit, at least one.
    pub(super) capacity: u32,
}

impl Shape {
    /// Returns the number of bits of an entry.
    pub(super) const fn entry_bits(self) -> u32 {
        self.gap_bits.wrapping_add(self.count_bits)
    }

    /// Returns the number of words that the entries take.
    pub(super) fn words(self) -> u64 {
        bits(self.capacity.into(), self.entry_bits()).div_ceil(64)
    }

    /// Returns how an entry `gap` after the newest is written: the number of empty entries before
    /// it, and its own gap. In a histogram it must not be in the newest cell.
    #[inline]
    pub(super) fn steps(self, gap: u64) -> (u64, u64) {
        if self.gap_bits == 0 {
            return (gap.wrapping_sub(1), 1);
        }
        let widest = mask(self.gap_bits);
        // With a count, a gap of all ones is a gap like any other.
        if gap < widest || (gap == widest && self.count_bits > 0) {
            return (0, gap);
        }
        let skips = gap.checked_div(widest).unwrap_or(u64::MAX);
        (skips, gap.wrapping_sub(skips.wrapping_mul(widest)))
    }

    /// Returns a shape for `entries`, of which some are `skips`, and a quarter more. The capacity
    /// is at most `max`, unless there are more entries already. Returns `None` if there are too
    /// many to count.
    fn with_capacity(entries: u64, skips: u64, max: u64, widths: (u32, u32)) -> Option<Self> {
        u32::try_from(entries).ok()?;
        let wanted = entries.saturating_add(entries >> 2).saturating_add(4);
        // Where there are skips there may be a few more.
        let more_skips = if skips > 0 { skips.saturating_add(entries >> 5) } else { 0 };
        let max = max.max(entries).saturating_add(more_skips);
        let capacity = u32::try_from(wanted.min(max)).unwrap_or(u32::MAX);
        let (gap_bits, count_bits) = widths;
        let shape = Self { gap_bits, count_bits, capacity };
        // The last word is allocated in any case, so its bits are used.
        let fitting = shape.words().saturating_mul(64).checked_div(shape.entry_bits().into())?;
        Some(Self { capacity: u32::try_from(fitting).unwrap_or(u32::MAX), ..shape })
    }
}

/// Returns the number of bits that `entries` entries take.
pub(super) fn bits(entries: u64, entry_bits: u32) -> u64 {
    entries.saturating_mul(entry_bits.into())
}

/// The statistics of a log on which the choice of a form depends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stats {
    permits: u64,
    /// The number of cells with permits in them.
    cells: u64,
    /// The sums of the gaps that need a field of each number of bits.
    gaps: [u64; 66],
    /// The maximum number of permits in one cell.
    fullest_cell: u64,
    oldest: u64,
    newest: u64,
    /// The permits in the newest cell.
    in_newest: u64,
}

impl Stats {
    const NONE: Self = Self {
        permits: 0,
        cells: 0,
        gaps: [0; 66],
        fullest_cell: 0,
        oldest: 0,
        newest: 0,
        in_newest: 0,
    };

    /// Returns the statistics of entries in order; those of one cell may come in parts.
    pub(super) fn of(entries: impl Iterator<Item = Entry>) -> Self {
        let mut stats = Self::NONE;
        for Entry { tick, permits } in entries.filter(|entry| entry.permits > 0) {
            if stats.cells == 0 || tick > stats.newest {
                stats.begin_cell(tick);
            }
            stats.permits = stats.permits.saturating_add(permits);
            stats.in_newest = stats.in_newest.saturating_add(permits);
            stats.fullest_cell = stats.fullest_cell.max(stats.in_newest);
        }
        stats
    }

    fn begin_cell(&mut self, tick: u64) {
        if self.cells == 0 {
            self.oldest = tick;
        } else {
            let gap = tick.wrapping_sub(self.newest);
            // All ones are a skip, so a gap needs as many bits as the next number.
            let bits = gap.checked_add(1).map_or(65, bits_of);
            let sum = usize::try_from(bits).ok().and_then(|bits| self.gaps.get_mut(bits));
            if let Some(sum) = sum {
                *sum = sum.saturating_add(gap);
            }
        }
        self.cells = self.cells.saturating_add(1);
        self.newest = tick;
        self.in_newest = 0;
    }

    /// Returns the shape that takes the fewest words.
    pub(super) fn best_shape(&self, caps: Caps) -> Shape {
        let count_bits = bits_of(self.fullest_cell).max(1);
        let shape_for = |entries: u64, max: u64, count_bits| {
            let (gap_bits, skips) = self.best_gap_bits(entries, count_bits);
            Shape::with_capacity(entries.saturating_add(skips), skips, max, (gap_bits, count_bits))
        };
        let cells = caps.cells();
        let gaps = shape_for(self.permits, caps.permits, 0);
        let runs = shape_for(self.cells, caps.permits.min(cells), count_bits);
        let span = self.newest.wrapping_sub(self.oldest).saturating_add(1);
        let histogram = Shape::with_capacity(span, 0, cells, (0, count_bits));
        let best = [gaps, runs, histogram].into_iter().flatten().min_by_key(|shape| shape.words());
        // Over 2^32 cells with permits in them: more than fits into any memory.
        best.unwrap_or(Shape { gap_bits: 64, count_bits, capacity: u32::MAX })
    }

    /// Returns the width of a gap for which so many entries and the skips between them take the
    /// fewest bits, and the most skips that takes.
    fn best_gap_bits(&self, entries: u64, count_bits: u32) -> (u32, u64) {
        let (mut best, mut min_bits, mut wider) = ((64, 0), u64::MAX, 0_u64);
        for (gap_bits, sum) in (0..66_u32).zip(self.gaps).rev() {
            // Neither wider than any gap, nor so narrow that most entries are skips. The widest
            // possible gap needs a bit more than 64, so one skip.
            let is_worth_it = wider > 0 || sum > 0 || gap_bits == 1;
            if is_worth_it && (1..=64).contains(&gap_bits) {
                let skips = wider.checked_div(mask(gap_bits)).unwrap_or(u64::MAX);
                let all = entries.saturating_add(skips);
                let needed = bits(all, gap_bits.wrapping_add(count_bits));
                if needed < min_bits {
                    (best, min_bits) = ((gap_bits, skips), needed);
                } else if skips > entries {
                    break;
                }
            }
            wider = wider.saturating_add(sum);
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::num::NonZeroU64;

    use super::{Caps, Entry, Shape, Stats};

    const fn caps(permits: u64, window_ns: u64) -> Caps {
        Caps { permits, window_ns, cell_ns: NonZeroU64::MIN }
    }

    fn best(entries: &[(u64, u64)], caps: Caps) -> Shape {
        let entries = entries.iter().map(|&(tick, permits)| Entry { tick, permits });
        Stats::of(entries).best_shape(caps)
    }

    #[test]
    fn the_form_is_that_of_the_least_words() {
        let caps = caps(100_000, 1_000);
        // 200 bursts of 500, 5 cells apart: 3 + 9 bits for each, or 1 cell in 5 with 9 bits.
        let bursts: Vec<_> = (0..200).map(|burst| (burst * 5, 500)).collect();
        assert_eq!((best(&bursts, caps).gap_bits, best(&bursts, caps).count_bits), (3, 9));
        // 200 single permits, 5 cells apart: 3 bits for each.
        let singles: Vec<_> = (0..200).map(|burst| (burst * 5, 1)).collect();
        assert_eq!((best(&singles, caps).gap_bits, best(&singles, caps).count_bits), (3, 0));
        // 15 permits in each of 1000 cells: 4 bits for each, and 4 more for the one cell to come.
        let dense: Vec<_> = (0..1_000).map(|cell| (cell, 15)).collect();
        let shape = best(&dense, caps);
        assert_eq!((shape.gap_bits, shape.count_bits, shape.words()), (0, 4, 63));
        assert_eq!(shape.capacity, 1_008, "as many as the words hold");
    }

    #[test]
    fn parts_of_a_cell_count_together_and_empty_entries_not_at_all() {
        let stats = Stats::of(
            [(3, 0), (7, 4), (7, 5), (9, 0), (19, 1)]
                .map(|(tick, permits)| Entry { tick, permits })
                .into_iter(),
        );
        assert_eq!((stats.permits, stats.cells, stats.fullest_cell), (10, 2, 9));
        assert_eq!((stats.oldest, stats.newest, stats.gaps[4]), (7, 19, 12));
    }

    #[test]
    fn one_wide_gap_widens_no_field() {
        let caps = caps(1_000, 1_000_000);
        let mut entries: Vec<_> = (0..1_000).map(|cell| (cell * 6, 1)).collect();
        let shape = best(&entries, caps);
        assert_eq!((shape.gap_bits, shape.count_bits, shape.words()), (3, 0, 47));
        // 106 cells, of which a field of 3 bits skips 7 at a time.
        entries[999].0 += 100;
        let shape = best(&entries, caps);
        assert_eq!((shape.gap_bits, shape.count_bits), (3, 0));
        assert!((1_015..1_100).contains(&shape.capacity), "{shape:?}");
    }

    #[test]
    fn the_whole_clock_in_one_gap_has_a_shape() {
        let caps = caps(3, u64::MAX);
        let shape = best(&[(0, 1), (u64::MAX, 1)], caps);
        assert_eq!((shape.gap_bits, shape.count_bits, shape.capacity), (64, 0, 4));
    }
}
