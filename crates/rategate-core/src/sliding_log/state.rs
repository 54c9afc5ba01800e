//! The permits in a log, by grid point: nothing on the heap while all are at one point, a byte for
//! each point of a dense log, sixteen for each of a sparse one.
//!
//! ```text
//!   grid points     0   1   2   3   4   5   6   7   8   9
//!   permits         3               1   1           1
//!
//!   (gap, permits)  0 3             4 1 1 1         3 1
//! ```
//!
//! A byte has some bits for the gap to the point before, and the rest for the permits. A longer
//! gap takes bytes without permits in front, more permits take bytes without a gap behind. The
//! log is written anew, in the form that is smaller for what it contains, when it is full and
//! when it has fallen to a quarter. No decision depends on the form.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// The permits granted within the last period. The default has granted none.
#[derive(Clone, Debug)]
pub struct State(Repr);

// The memory of a million keys before they are busy.
const _: () = assert!(size_of::<State>() <= 24);

#[derive(Clone, Debug)]
enum Repr {
    One(Cell),
    Many(Box<Many>),
}

/// The permits that count as granted at one point of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) tick: u64,
    pub(super) permits: u64,
}

/// The permits of several points. The last entry is never without permits, nor is the first.
#[derive(Clone, Debug)]
struct Many {
    oldest: u64,
    newest: u64,
    permits: u64,
    entries: Entries,
}

/// The gap before each entry, and its permits. That of the first entry says nothing.
#[derive(Clone, Debug)]
enum Entries {
    Bytes { bytes: VecDeque<u8>, gap_bits: u32 },
    Words(VecDeque<(u64, u64)>),
}

/// The bits of a byte.
const BITS: u32 = u8::BITS;

/// The bytes of an entry in words.
const ENTRY_BYTES: u64 = 16;

/// The entries by which a log may be too large without being written anew.
const SLACK: usize = 16;

impl Default for State {
    fn default() -> Self {
        Self(Repr::One(Cell { tick: 0, permits: 0 }))
    }
}

impl State {
    /// Creates a log of these cells, which are in order; several may be of one point.
    pub(super) fn of(cells: impl Iterator<Item = Cell> + Clone) -> Self {
        let cells = joined(cells);
        let Some(first) = cells.clone().next() else { return Self::default() };
        let (mut points, mut permits, mut newest) = (0_u64, 0_u64, first.tick);
        for cell in cells.clone() {
            points = points.saturating_add(1);
            permits = permits.saturating_add(cell.permits);
            newest = cell.tick;
        }
        if points == 1 {
            return Self(Repr::One(first));
        }
        let length = newest.saturating_sub(first.tick);
        let gaps = cells.scan(first.tick, |last, Cell { tick, permits }| {
            let gap = tick.saturating_sub(core::mem::replace(last, tick));
            Some((gap, permits))
        });
        let mut entries = Entries::fitting(gaps.clone(), points, length, permits);
        gaps.for_each(|(gap, permits)| entries.extend(gap, permits));
        Self(Repr::Many(Box::new(Many { oldest: first.tick, newest, permits, entries })))
    }

    /// Returns the number of bytes on the heap, besides its own 24.
    pub(super) fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::One(_) => 0,
            Repr::Many(many) => size_of::<Many>().saturating_add(many.entries.heap_bytes()),
        }
    }

    pub(super) fn permits(&self) -> u64 {
        match &self.0 {
            Repr::One(cell) => cell.permits,
            Repr::Many(many) => many.permits,
        }
    }

    /// Returns the oldest point with permits, or any point if there is none.
    pub(super) fn oldest(&self) -> u64 {
        match &self.0 {
            Repr::One(cell) => cell.tick,
            Repr::Many(many) => many.oldest,
        }
    }

    /// Returns the newest point with permits, or any point if there is none.
    pub(super) fn newest(&self) -> u64 {
        match &self.0 {
            Repr::One(cell) => cell.tick,
            Repr::Many(many) => many.newest,
        }
    }

    /// Returns the cells, oldest first. Some may be without permits, and some of the same point.
    fn parts(&self) -> impl Iterator<Item = Cell> + Clone {
        let (one, many) = match &self.0 {
            Repr::One(cell) => (Some(*cell), None),
            Repr::Many(many) => (None, Some(many.cells())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Returns the points with permits, oldest first.
    pub(super) fn cells(&self) -> impl Iterator<Item = Cell> + Clone {
        joined(self.parts())
    }

    /// Returns the newest point whose permits must leave for at most `available` to be left, or
    /// `None` if there are no more than that.
    pub(super) fn last_to_leave(&self, available: u64) -> Option<u64> {
        let mut held = self.permits();
        if held <= available {
            return None;
        }
        let leaves = |cell: &Cell| {
            held = held.saturating_sub(cell.permits);
            held <= available
        };
        self.parts().find(leaves).map(|cell| cell.tick)
    }

    /// Returns the number of permits after the point `expired`.
    pub(super) fn permits_after(&self, expired: u64) -> u64 {
        if self.newest() <= expired {
            return 0;
        }
        let over = self.parts().take_while(|cell| cell.tick <= expired);
        over.fold(self.permits(), |held, cell| held.saturating_sub(cell.permits))
    }

    /// Adds permits at a point. Before the newest, that writes the whole log anew.
    pub(super) fn push(&mut self, cell: Cell) {
        if self.permits() > 0 && cell.tick < self.newest() {
            let before = self.parts().filter(|other| other.tick <= cell.tick);
            let after = self.parts().filter(|other| other.tick > cell.tick);
            *self = Self::of(before.chain([cell]).chain(after));
            return;
        }
        let is_in = match &mut self.0 {
            Repr::One(only) if only.permits == 0 => {
                *only = cell;
                true
            }
            Repr::One(only) if only.tick == cell.tick => {
                only.permits = only.permits.saturating_add(cell.permits);
                true
            }
            Repr::One(_) => false,
            Repr::Many(many) => many.push(cell),
        };
        if !is_in {
            *self = Self::of(self.parts().chain([cell]));
        }
    }

    /// Drops the permits up to the point `expired`.
    pub(super) fn expire(&mut self, expired: u64) {
        if self.newest() <= expired {
            *self = Self::default();
        } else if let Repr::Many(many) = &mut self.0 {
            many.drop_front(|tick| tick <= expired);
            self.shrink();
        }
    }

    /// Removes up to `permits` from a point. Returns how many were removed.
    pub(super) fn take_back(&mut self, tick: u64, permits: u64) -> u64 {
        let back = match &mut self.0 {
            Repr::One(only) if only.tick == tick => {
                let back = permits.min(only.permits);
                only.permits = only.permits.saturating_sub(back);
                back
            }
            Repr::One(_) => 0,
            Repr::Many(many) => many.take_back(tick, permits),
        };
        if self.permits() == 0 {
            *self = Self::default();
        }
        self.shrink();
        back
    }

    /// Writes a log anew that has become four times too large, or has all permits at one point.
    fn shrink(&mut self) {
        let Repr::Many(many) = &self.0 else { return };
        let (len, capacity) = (many.entries.len(), many.entries.capacity());
        let is_too_large = len.saturating_mul(4).saturating_add(SLACK) < capacity;
        if many.oldest == many.newest || is_too_large {
            *self = Self::of(self.parts());
        }
    }
}

/// Two states are equal if they hold the same permits, in whatever form.
impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.cells().eq(other.cells())
    }
}

impl Eq for State {}

impl Many {
    fn cells(&self) -> impl Iterator<Item = Cell> + Clone {
        let mut tick = self.oldest;
        (0..self.entries.len()).map(move |index| {
            let (gap, permits) = self.entries.get(index);
            if index > 0 {
                tick = tick.saturating_add(gap);
            }
            Cell { tick, permits }
        })
    }

    /// Adds permits, unless there is no room for them.
    fn push(&mut self, Cell { tick, permits }: Cell) -> bool {
        let gap = tick.saturating_sub(self.newest);
        let has_room = self.entries.needed(gap, permits) <= self.entries.room();
        if has_room {
            self.entries.extend(gap, permits);
            self.newest = tick;
            self.permits = self.permits.saturating_add(permits);
        }
        has_room
    }

    /// Drops entries from the front while they are `expired` or without permits.
    fn drop_front(&mut self, expired: impl Fn(u64) -> bool) {
        while self.entries.len() > 0 {
            let (_, permits) = self.entries.get(0);
            if permits > 0 && !expired(self.oldest) {
                break;
            }
            self.permits = self.permits.saturating_sub(permits);
            self.entries.pop_front();
            if self.entries.len() > 0 {
                self.oldest = self.oldest.saturating_add(self.entries.get(0).0);
            }
        }
    }

    fn take_back(&mut self, tick: u64, permits: u64) -> u64 {
        let (mut at, mut left) = (self.newest, permits);
        for index in (0..self.entries.len()).rev() {
            if at < tick || left == 0 {
                break;
            }
            let (gap, count) = self.entries.get(index);
            if at == tick {
                let taken = left.min(count);
                self.entries.set(index, gap, count.saturating_sub(taken));
                left = left.saturating_sub(taken);
            }
            at = at.saturating_sub(gap);
        }
        let back = permits.saturating_sub(left);
        self.permits = self.permits.saturating_sub(back);
        while let Some(last) = self.entries.len().checked_sub(1) {
            let (gap, count) = self.entries.get(last);
            if count > 0 {
                break;
            }
            self.newest = self.newest.saturating_sub(gap);
            self.entries.pop_back();
        }
        self.drop_front(|_| false);
        back
    }
}

impl Entries {
    /// Creates room for these gaps and permits, with some to grow into: in bytes, cut so that they
    /// are few, unless words take less.
    fn fitting(
        gaps: impl Iterator<Item = (u64, u64)>,
        points: u64,
        length: u64,
        permits: u64,
    ) -> Self {
        let extra = |gap_bits: u32| {
            let (longest, most) = cut(gap_bits);
            let [skips, full] = [length.checked_div(longest), permits.checked_div(most)];
            (skips.unwrap_or(0).saturating_add(full.unwrap_or(0)), gap_bits)
        };
        let (_, gap_bits) = (2..BITS).map(extra).fold(extra(1), core::cmp::min);
        let bytes = Self::Bytes { bytes: VecDeque::new(), gap_bits };
        let needed = gaps.map(|(gap, permits)| bytes.needed(gap, permits));
        let needed = needed.fold(0, u64::saturating_add);
        let room = |entries: u64| usize::try_from(entries).unwrap_or(usize::MAX);
        if needed < points.saturating_mul(ENTRY_BYTES) {
            // Little to grow into: a log that is written anew with each eighth stays small.
            let room = room(needed.saturating_add(needed >> 3).saturating_add(8));
            Self::Bytes { bytes: VecDeque::with_capacity(room), gap_bits }
        } else {
            let room = room(points.saturating_add(points >> 1).saturating_add(1));
            Self::Words(VecDeque::with_capacity(room))
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::Bytes { bytes, .. } => bytes.capacity(),
            Self::Words(words) => words.capacity().saturating_mul(size_of::<(u64, u64)>()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Bytes { bytes, .. } => bytes.len(),
            Self::Words(words) => words.len(),
        }
    }

    fn capacity(&self) -> usize {
        match self {
            Self::Bytes { bytes, .. } => bytes.capacity(),
            Self::Words(words) => words.capacity(),
        }
    }

    fn room(&self) -> u64 {
        u64::try_from(self.capacity().saturating_sub(self.len())).unwrap_or(u64::MAX)
    }

    /// Returns the longest gap of an entry, and its maximum number of permits.
    fn max(&self) -> (u64, u64) {
        match *self {
            Self::Bytes { gap_bits, .. } => cut(gap_bits),
            Self::Words(_) => (u64::MAX, u64::MAX),
        }
    }

    /// Returns the number of entries that permits behind a gap take.
    fn needed(&self, gap: u64, permits: u64) -> u64 {
        let (longest, most) = self.max();
        let skips = gap.saturating_sub(1).checked_div(longest).unwrap_or(0);
        skips.saturating_add(permits.div_ceil(most))
    }

    /// Returns the gap before an entry, and its permits.
    fn get(&self, index: usize) -> (u64, u64) {
        match self {
            Self::Bytes { bytes, gap_bits } => {
                let byte = bytes.get(index).copied().map_or(0, u64::from);
                let permit_bits = BITS.saturating_sub(*gap_bits);
                (byte >> permit_bits, byte & mask(permit_bits))
            }
            Self::Words(words) => words.get(index).copied().unwrap_or_default(),
        }
    }

    fn set(&mut self, index: usize, gap: u64, permits: u64) {
        match self {
            Self::Bytes { bytes, gap_bits } => {
                if let Some(byte) = bytes.get_mut(index) {
                    *byte = byte_of(gap, permits, *gap_bits);
                }
            }
            Self::Words(words) => {
                if let Some(word) = words.get_mut(index) {
                    *word = (gap, permits);
                }
            }
        }
    }

    fn push_back(&mut self, gap: u64, permits: u64) {
        match self {
            Self::Bytes { bytes, gap_bits } => bytes.push_back(byte_of(gap, permits, *gap_bits)),
            Self::Words(words) => words.push_back((gap, permits)),
        }
    }

    fn pop_front(&mut self) {
        match self {
            Self::Bytes { bytes, .. } => drop(bytes.pop_front()),
            Self::Words(words) => drop(words.pop_front()),
        }
    }

    fn pop_back(&mut self) {
        match self {
            Self::Bytes { bytes, .. } => drop(bytes.pop_back()),
            Self::Words(words) => drop(words.pop_back()),
        }
    }

    /// Adds permits behind a gap, in as many entries as they take.
    fn extend(&mut self, mut gap: u64, mut permits: u64) {
        let (longest, most) = self.max();
        if let Some(last) = self.len().checked_sub(1).filter(|_| gap == 0) {
            let (before, count) = self.get(last);
            let more = permits.min(most.saturating_sub(count));
            self.set(last, before, count.saturating_add(more));
            permits = permits.saturating_sub(more);
        }
        while gap > longest {
            self.push_back(longest, 0);
            gap = gap.saturating_sub(longest);
        }
        while permits > 0 {
            let count = permits.min(most);
            self.push_back(gap, count);
            (gap, permits) = (0, permits.saturating_sub(count));
        }
    }
}

/// Returns the longest gap of a byte with so many bits for it, and the most permits.
const fn cut(gap_bits: u32) -> (u64, u64) {
    (mask(gap_bits), mask(BITS.saturating_sub(gap_bits)))
}

const fn mask(bits: u32) -> u64 {
    (1_u64 << (bits & 63)).wrapping_sub(1)
}

fn byte_of(gap: u64, permits: u64, gap_bits: u32) -> u8 {
    let permit_bits = BITS.saturating_sub(gap_bits);
    u8::try_from((gap << (permit_bits & 63)) | permits).unwrap_or(u8::MAX)
}

/// Joins the cells of each point, and drops those without permits.
fn joined(cells: impl Iterator<Item = Cell> + Clone) -> impl Iterator<Item = Cell> + Clone {
    let mut cells = cells.filter(|cell| cell.permits > 0).peekable();
    core::iter::from_fn(move || {
        let mut cell = cells.next()?;
        while let Some(more) = cells.next_if(|more| more.tick == cell.tick) {
            cell.permits = cell.permits.saturating_add(more.permits);
        }
        Some(cell)
    })
}

#[cfg(test)]
mod tests {
    use super::{Cell, Entries, Repr, State};

    fn form(state: &State) -> &'static str {
        match &state.0 {
            Repr::One(_) => "one",
            Repr::Many(many) => match many.entries {
                Entries::Bytes { .. } => "bytes",
                Entries::Words(_) => "words",
            },
        }
    }

    /// On average a call writes some entries anew, however many there are and whatever comes, and
    /// each form becomes each other one on the way.
    #[test]
    fn writing_anew_is_paid_for_by_what_came() {
        let mut changes = alloc::collections::BTreeSet::new();
        for seed in 1..30_u64 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut below = move |end: u64| random.u64(..end);
            let window = [1_000, 65_535, 1_000_000_000][usize::try_from(seed % 3).unwrap()];
            let (mut state, mut tick, mut mood) = (State::default(), 0, 0);
            let (calls, mut written) = (20_000_u64, 0);
            for _ in 0..calls {
                if below(400) == 0 {
                    mood = below(6);
                }
                let (mean, length) = (window / 3_000 + 1, below(12));
                tick += match mood {
                    0 => 0,
                    1 => below(2 * mean),
                    // Gaps and counts of all lengths, to outgrow every cut.
                    2 => below((window >> length).max(1)),
                    3 => mean,
                    // All but the newest point leave.
                    4 => window - 1,
                    _ => below(3) * mean,
                };
                let before = (form(&state), state.heap_bytes());
                if let Some(expired) = tick.checked_sub(window) {
                    state.expire(expired);
                }
                let permits = if mood == 2 { 1 + below(1 << length) } else { 1 };
                if state.permits() + permits <= 3_000 {
                    state.push(Cell { tick, permits });
                } else if below(2) == 0 {
                    state.take_back(tick, 1);
                }
                if (form(&state), state.heap_bytes()) != before {
                    written += u64::try_from(state.parts().count()).unwrap();
                    changes.insert((before.0, form(&state)));
                }
            }
            assert!(written < 16 * calls, "seed {seed}: {written} entries in {calls} calls");
        }
        changes.retain(|(before, after)| before != after);
        assert_eq!(changes.len(), 6, "{changes:?}");
    }
}
