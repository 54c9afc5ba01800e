//! The log of a rarely used key: two cells, in two words.

use super::shape::{Entry, Pushed};

/// A log of at most two cells, so that a rarely used key needs no heap.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Few {
    newest: u64,
    /// The distance from the older to the newest of two cells, or the permits of a single one.
    gap_or_permits: u32,
    /// The permits in the newest cell, if there are two cells.
    in_newest: u16,
    /// The permits in the older cell; zero if there is at most one cell.
    in_older: u16,
}

impl Few {
    /// Returns a log with all permits in one cell, if they fit.
    pub(super) fn one(entry: Entry) -> Option<Self> {
        let permits = u32::try_from(entry.permits).ok()?;
        Some(Self { newest: entry.tick, gap_or_permits: permits, in_newest: 0, in_older: 0 })
    }

    /// Returns a log with two cells, if they fit.
    fn two(older: Entry, newest: Entry) -> Option<Self> {
        Some(Self {
            newest: newest.tick,
            gap_or_permits: u32::try_from(newest.tick.wrapping_sub(older.tick)).ok()?,
            in_newest: u16::try_from(newest.permits).ok()?,
            in_older: u16::try_from(older.permits).ok()?,
        })
    }

    pub(super) const fn newest(self) -> u64 {
        self.newest
    }

    /// Returns the older cell, which may be empty, and the newest, which is empty if there is none.
    pub(super) fn cells(self) -> [Entry; 2] {
        let cell = |tick, permits| Entry { tick, permits };
        if self.in_older == 0 {
            return [cell(self.newest, 0), cell(self.newest, self.gap_or_permits.into())];
        }
        let older = self.newest.wrapping_sub(self.gap_or_permits.into());
        [cell(older, self.in_older.into()), cell(self.newest, self.in_newest.into())]
    }

    /// Adds permits at a tick that is not before the newest.
    pub(super) fn push(&mut self, entry: Entry) -> Pushed {
        let [older, mut newest] = self.cells();
        let next = if newest.permits == 0 {
            Self::one(entry)
        } else if newest.tick < entry.tick {
            Some(newest).filter(|_| older.permits == 0).and_then(|older| Self::two(older, entry))
        } else {
            newest.permits = newest.permits.saturating_add(entry.permits);
            if older.permits == 0 { Self::one(newest) } else { Self::two(older, newest) }
        };
        let Some(next) = next else { return Pushed::Full };
        *self = next;
        Pushed::In
    }

    /// Drops the older cell, if it is not after `expired`.
    pub(super) fn expire(&mut self, expired: u64) {
        let [older, newest] = self.cells();
        if older.tick <= expired {
            *self = Self::one(newest).unwrap_or(*self);
        }
    }

    /// Removes up to `permits` from a cell. Returns how many were removed.
    pub(super) fn take_back(&mut self, tick: u64, permits: u64) -> u64 {
        let (mut taken, mut left) = (0, Self::default());
        for mut cell in self.cells() {
            if cell.tick == tick && cell.permits > 0 {
                taken = permits.min(cell.permits);
                cell.permits = cell.permits.wrapping_sub(taken);
            }
            if cell.permits > 0 {
                // The rest fits where all of it did.
                let _ = left.push(cell);
            }
        }
        *self = left;
        taken
    }
}
