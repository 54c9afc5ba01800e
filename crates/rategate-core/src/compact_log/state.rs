//! What a key remembers: nothing on the heap for a grant or two, a ring beyond that.

use core::iter;

use super::ring::{Pushed, Ring};
use super::shape::{Caps, Entry, Stats, bits};

/// The permits granted within the last period. The default has granted none.
#[derive(Clone, Debug, Default)]
pub struct State(Kept);

// What a million keys cost before they are busy.
const _: () = assert!(size_of::<State>() <= 24);

/// How the state of a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// One or two cells, or none, beside the limit's other words: nothing on the heap.
    Inline,
    /// For each cell with permits in it, its distance from the one before it and its count.
    Runs,
    /// For each permit, its distance from the one before it.
    Gaps,
    /// For each cell, its count.
    Histogram,
}

#[derive(Clone, Debug)]
enum Kept {
    Few(Few),
    Ring(Ring),
}

/// Two cells at most, so that a key that is asked for now and then needs nothing else.
#[derive(Clone, Copy, Debug, Default)]
struct Few {
    newest: u64,
    /// With two cells how far the older lies before the newest; with one, how many permits it has.
    gap_or_permits: u32,
    /// With two cells.
    in_newest: u16,
    /// Zero: there is one cell at most.
    in_older: u16,
}

impl Default for Kept {
    fn default() -> Self {
        Self::Few(Few::default())
    }
}

impl State {
    /// How many bytes it has on the heap, beside its own 24.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Kept::Few(_) => 0,
            Kept::Ring(ring) => ring.words().saturating_mul(size_of::<u64>()),
        }
    }

    /// How it is written: whichever way takes the least memory for what is in it.
    #[must_use]
    pub fn form(&self) -> Form {
        match &self.0 {
            Kept::Few(_) => Form::Inline,
            Kept::Ring(ring) => match ring.shape() {
                shape if shape.gap_bits == 0 => Form::Histogram,
                shape if shape.count_bits == 0 => Form::Gaps,
                _ => Form::Runs,
            },
        }
    }

    /// Entries in order, in the form that takes the least memory. Those of one cell may come in parts.
    pub(super) fn of(entries: impl Iterator<Item = Entry> + Clone, caps: Caps) -> Self {
        let entries = entries.filter(|entry| entry.permits > 0);
        let Some(first) = entries.clone().next() else { return Self::default() };
        let mut few = Few::default();
        if entries.clone().all(|entry| few.push(entry) == Pushed::In) {
            return Self(Kept::Few(few));
        }
        let shape = Stats::of(entries.clone()).best_shape(caps);
        Self(Kept::Ring(Ring::of(first.tick, entries, shape)))
    }

    pub(super) fn permits(&self) -> u64 {
        match &self.0 {
            Kept::Few(few) => {
                few.cells().iter().fold(0, |sum, cell| cell.permits.saturating_add(sum))
            }
            Kept::Ring(ring) => ring.permits(),
        }
    }

    /// The newest tick with permits in it; if there is none, any.
    pub(super) fn newest(&self) -> u64 {
        match &self.0 {
            Kept::Few(few) => few.newest,
            Kept::Ring(ring) => ring.newest(),
        }
    }

    /// The entries, oldest first. Some may be empty, and some of the same cell.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> + Clone {
        let (few, ring) = match &self.0 {
            Kept::Few(few) => (*few, None),
            Kept::Ring(ring) => (Few::default(), Some(ring.entries())),
        };
        few.cells().into_iter().chain(ring.into_iter().flatten())
    }

    /// The cells with permits in them, oldest first.
    fn cells(&self) -> impl Iterator<Item = Entry> {
        let mut entries = self.entries().filter(|entry| entry.permits > 0).peekable();
        iter::from_fn(move || {
            let mut cell = entries.next()?;
            while let Some(more) = entries.next_if(|entry| entry.tick == cell.tick) {
                cell.permits = cell.permits.saturating_add(more.permits);
            }
            Some(cell)
        })
    }

    /// Adds permits at a tick that is not before the newest.
    pub(super) fn push(&mut self, entry: Entry, caps: Caps) {
        let pushed = match &mut self.0 {
            Kept::Few(few) => few.push(entry),
            Kept::Ring(ring) => ring.push(entry),
        };
        match pushed {
            Pushed::In => self.shrink(caps),
            Pushed::Full => *self = Self::of(self.entries().chain([entry]), caps),
            Pushed::Lapped => self.review(caps),
        }
    }

    /// Forgets the permits up to the tick `gone`.
    pub(super) fn forget(&mut self, gone: u64) {
        if self.newest() <= gone {
            *self = Self::default();
            return;
        }
        match &mut self.0 {
            Kept::Few(few) => few.forget(gone),
            Kept::Ring(ring) => ring.forget(gone),
        }
        self.settle();
    }

    /// Takes up to `permits` out of a cell. Returns how many there were to be taken.
    pub(super) fn take_back(&mut self, tick: u64, permits: u64, caps: Caps) -> u64 {
        if permits == 0 {
            return 0;
        }
        let taken = match &mut self.0 {
            Kept::Few(few) => Some(few.take_back(tick, permits)),
            Kept::Ring(ring) => ring.take_back(tick, permits),
        };
        let taken = taken.unwrap_or_else(|| {
            let mut left = permits;
            let rest = self.entries().map(move |entry| {
                let taken = if entry.tick == tick { left.min(entry.permits) } else { 0 };
                left = left.wrapping_sub(taken);
                Entry { permits: entry.permits.wrapping_sub(taken), ..entry }
            });
            let rest = Self::of(rest, caps);
            let taken = self.permits().saturating_sub(rest.permits());
            *self = rest;
            taken
        });
        if self.permits() == 0 {
            *self = Self::default();
        }
        self.settle();
        self.shrink(caps);
        taken
    }

    /// Gives up a block that has become four times too large.
    pub(super) fn shrink(&mut self, caps: Caps) {
        let Kept::Ring(ring) = &self.0 else { return };
        let has = bits(ring.shape().words(), u64::BITS);
        // The slack keeps a ring that has just been made from being too large at once.
        if ring.bits_needed().saturating_mul(4).saturating_add(512) < has {
            *self = Self::of(self.entries(), caps);
        }
    }

    /// Takes another shape if that saves a quarter.
    fn review(&mut self, caps: Caps) {
        let Kept::Ring(ring) = &self.0 else { return };
        let best = Stats::of(ring.entries()).best_shape(caps);
        if best.words().saturating_mul(4) <= ring.shape().words().saturating_mul(3) {
            *self = Self::of(self.entries(), caps);
        }
    }

    /// Goes without a block once all permits are in one cell: in one, not in two, so that a key
    /// between two and three cells does not come and go.
    fn settle(&mut self) {
        let Kept::Ring(ring) = &self.0 else { return };
        let mut few = Few::default();
        let only = Entry { tick: ring.newest(), permits: ring.permits() };
        if ring.oldest() == ring.newest() && few.push(only) == Pushed::In {
            self.0 = Kept::Few(few);
        }
    }
}

/// Two states are the same if they hold the same permits, however written.
impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.cells().eq(other.cells())
    }
}

impl Eq for State {}

impl Few {
    fn one(entry: Entry) -> Option<Self> {
        let permits = u32::try_from(entry.permits).ok()?;
        Some(Self { newest: entry.tick, gap_or_permits: permits, in_newest: 0, in_older: 0 })
    }

    fn two(older: Entry, newest: Entry) -> Option<Self> {
        Some(Self {
            newest: newest.tick,
            gap_or_permits: u32::try_from(newest.tick.wrapping_sub(older.tick)).ok()?,
            in_newest: u16::try_from(newest.permits).ok()?,
            in_older: u16::try_from(older.permits).ok()?,
        })
    }

    /// The older cell, which may be empty, and the newest, which is empty if there is none.
    fn cells(self) -> [Entry; 2] {
        let cell = |tick, permits| Entry { tick, permits };
        if self.in_older == 0 {
            return [cell(self.newest, 0), cell(self.newest, self.gap_or_permits.into())];
        }
        let older = self.newest.wrapping_sub(self.gap_or_permits.into());
        [cell(older, self.in_older.into()), cell(self.newest, self.in_newest.into())]
    }

    fn push(&mut self, entry: Entry) -> Pushed {
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

    /// Forgets the older cell, if it is not after `gone`.
    fn forget(&mut self, gone: u64) {
        let [older, newest] = self.cells();
        if older.tick <= gone {
            *self = Self::one(newest).unwrap_or(*self);
        }
    }

    fn take_back(&mut self, tick: u64, permits: u64) -> u64 {
        let (mut taken, mut left) = (0, Self::default());
        for mut cell in self.cells() {
            if cell.tick == tick && cell.permits > 0 {
                taken = permits.min(cell.permits);
                cell.permits = cell.permits.wrapping_sub(taken);
            }
            if cell.permits > 0 {
                // What is left has room where all of it had.
                let _ = left.push(cell);
            }
        }
        *self = left;
        taken
    }
}
