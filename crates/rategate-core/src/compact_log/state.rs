//! The state of a key: nothing on the heap for one or two grants, a ring beyond that.
//!
//! A ring is replaced when an entry does not fit, when it has become four times too large, or when
//! another form saves a quarter.

use core::iter;

use super::few::Few;
use super::ring::Ring;
use super::shape::{Caps, Entry, Pushed, Stats};

/// The permits granted within the last period. The default has granted none.
#[derive(Clone, Debug, Default)]
pub struct State(Repr);

// The memory of a million keys before they are busy.
const _: () = assert!(size_of::<State>() <= 24);

/// The form in which the state of a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// At most two cells in the state itself: nothing on the heap.
    Inline,
    /// A distance from the one before it and a count, for each cell with permits.
    Runs,
    /// A distance from the one before it, for each permit.
    Gaps,
    /// A count for each cell.
    Histogram,
}

/// The bits by which a block may be too large without being replaced.
const SLACK_BITS: u64 = 512;

#[derive(Clone, Debug)]
enum Repr {
    Few(Few),
    Ring(Ring),
}

impl Default for Repr {
    fn default() -> Self {
        Self::Few(Few::default())
    }
}

impl State {
    /// Returns the number of bytes on the heap, besides its own 24.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::Few(_) => 0,
            Repr::Ring(ring) => ring.words().saturating_mul(size_of::<u64>()),
        }
    }

    /// Returns the form in use: the one that takes the least memory for the contents.
    #[must_use]
    pub fn form(&self) -> Form {
        match &self.0 {
            Repr::Few(_) => Form::Inline,
            Repr::Ring(ring) => match ring.shape() {
                shape if shape.gap_bits == 0 => Form::Histogram,
                shape if shape.count_bits == 0 => Form::Gaps,
                _ => Form::Runs,
            },
        }
    }

    /// Creates a state of entries in order, in the form that takes the least memory. Those of one
    /// cell may come in parts.
    pub(super) fn of(entries: impl Iterator<Item = Entry> + Clone, caps: Caps) -> Self {
        let entries = entries.filter(|entry| entry.permits > 0);
        let Some(first) = entries.clone().next() else { return Self::default() };
        let mut few = Few::default();
        if entries.clone().all(|entry| few.push(entry) == Pushed::In) {
            return Self(Repr::Few(few));
        }
        let shape = Stats::of(entries.clone()).best_shape(caps);
        Self(Repr::Ring(Ring::of(first.tick, entries, shape)))
    }

    pub(super) fn permits(&self) -> u64 {
        match &self.0 {
            Repr::Few(few) => {
                few.cells().iter().fold(0, |sum, cell| cell.permits.saturating_add(sum))
            }
            Repr::Ring(ring) => ring.permits(),
        }
    }

    /// Returns the oldest tick with permits in it, or any tick if there is none.
    pub(super) fn oldest(&self) -> u64 {
        match &self.0 {
            Repr::Few(few) => few.cells()[0].tick,
            Repr::Ring(ring) => ring.oldest(),
        }
    }

    /// Returns the newest tick with permits in it, or any tick if there is none.
    pub(super) fn newest(&self) -> u64 {
        match &self.0 {
            Repr::Few(few) => few.newest(),
            Repr::Ring(ring) => ring.newest(),
        }
    }

    /// Returns the newest tick whose permits must leave for at most `available` to be left, or
    /// `None` if there are no more than that.
    pub(super) fn last_to_leave(&self, available: u64) -> Option<u64> {
        let held = self.permits();
        if held <= available {
            return None;
        }
        Some(match &self.0 {
            Repr::Few(few) => last_to_leave(few.cells().into_iter(), held, available),
            Repr::Ring(ring) => last_to_leave(ring.entries(), held, available),
        })
    }

    /// Returns the number of permits after the tick `expired`.
    pub(super) fn permits_after(&self, expired: u64) -> u64 {
        if self.newest() <= expired {
            return 0;
        }
        match &self.0 {
            Repr::Few(few) => permits_after(few.cells().into_iter(), self.permits(), expired),
            Repr::Ring(ring) => permits_after(ring.entries(), ring.permits(), expired),
        }
    }

    /// Returns the entries, oldest first. Some may be empty, and some of the same cell.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> + Clone {
        let (few, ring) = match &self.0 {
            Repr::Few(few) => (*few, None),
            Repr::Ring(ring) => (Few::default(), Some(ring.entries())),
        };
        few.cells().into_iter().chain(ring.into_iter().flatten())
    }

    /// Returns the cells with permits in them, oldest first.
    pub(super) fn cells(&self) -> impl Iterator<Item = Entry> {
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
            Repr::Few(few) => few.push(entry),
            Repr::Ring(ring) => ring.push(entry),
        };
        match pushed {
            Pushed::In => {}
            Pushed::Full => *self = Self::of(self.entries().chain([entry]), caps),
            Pushed::Lapped => self.reshape_if_smaller(caps),
        }
    }

    /// Adds permits at any tick. Before the newest, that writes the whole log anew.
    pub(super) fn insert(&mut self, entry: Entry, caps: Caps) {
        if self.permits() == 0 || entry.tick >= self.newest() {
            return self.push(entry, caps);
        }
        let before = self.entries().filter(|held| held.tick <= entry.tick);
        let after = self.entries().filter(|held| held.tick > entry.tick);
        *self = Self::of(before.chain([entry]).chain(after), caps);
    }

    /// Drops the permits up to the tick `expired`.
    pub(super) fn expire(&mut self, expired: u64, caps: Caps) {
        if self.newest() <= expired {
            *self = Self::default();
            return;
        }
        match &mut self.0 {
            Repr::Few(few) => few.expire(expired),
            Repr::Ring(ring) => {
                if ring.expire(expired) {
                    self.shrink(caps);
                }
            }
        }
    }

    /// Removes up to `permits` from a cell. Returns how many were removed.
    pub(super) fn take_back(&mut self, tick: u64, permits: u64, caps: Caps) -> u64 {
        if permits == 0 {
            return 0;
        }
        let taken = match &mut self.0 {
            Repr::Few(few) => few.take_back(tick, permits),
            Repr::Ring(ring) => ring.take_back(tick, permits),
        };
        if self.permits() == 0 {
            *self = Self::default();
        }
        self.shrink(caps);
        taken
    }

    /// Replaces a block that has become four times too large, and drops it once all permits are
    /// in one cell. In one, not in two, so that a key between two and three cells does not
    /// alternate.
    fn shrink(&mut self, caps: Caps) {
        let Repr::Ring(ring) = &self.0 else { return };
        if let Some(only) = ring.only_cell().and_then(Few::one) {
            self.0 = Repr::Few(only);
            return;
        }
        // The slack keeps a ring that has just been made from being too large at once.
        if ring.bits_needed().saturating_mul(4).saturating_add(SLACK_BITS) < ring.bits() {
            *self = Self::of(self.entries(), caps);
        }
    }

    /// Takes another shape if that saves a quarter, and the ring is large enough to be worth it.
    fn reshape_if_smaller(&mut self, caps: Caps) {
        let Repr::Ring(ring) = &self.0 else { return };
        if ring.bits() < SLACK_BITS {
            return;
        }
        let best = Stats::of(ring.entries()).best_shape(caps);
        if best.words().saturating_mul(4) <= ring.shape().words().saturating_mul(3) {
            *self = Self::of(self.entries(), caps);
        }
    }
}

fn last_to_leave(entries: impl Iterator<Item = Entry>, mut held: u64, available: u64) -> u64 {
    let mut last = u64::MAX;
    for oldest in entries {
        held = held.saturating_sub(oldest.permits);
        last = oldest.tick;
        if held <= available {
            break;
        }
    }
    last
}

fn permits_after(entries: impl Iterator<Item = Entry>, held: u64, expired: u64) -> u64 {
    let over = entries.take_while(|oldest| oldest.tick <= expired);
    over.fold(held, |held, oldest| held.saturating_sub(oldest.permits))
}

/// Two states are equal if they hold the same permits, in whatever form.
impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.cells().eq(other.cells())
    }
}

impl Eq for State {}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU64;

    use super::{Caps, Entry, Repr, State};

    /// Returns the address of the block: a log written anew has another one before the old one is
    /// freed.
    fn block(state: &State) -> Option<*const u64> {
        match &state.0 {
            Repr::Few(_) => None,
            Repr::Ring(ring) => Some(ring.block()),
        }
    }

    /// On average a call writes a few entries anew, however many there are and whatever comes.
    #[test]
    fn writing_anew_is_paid_for_by_what_came() {
        for seed in 1..30_u64 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut below = move |end: u64| random.u64(..end);
            let window = [1_000, 65_535, 1_000_000_000][usize::try_from(seed % 3).unwrap()];
            let caps = Caps { permits: 3_000, window_ns: window, cell_ns: NonZeroU64::MIN };
            let (mut state, mut tick, mut mood) = (State::default(), 0, 0);
            let (calls, mut written) = (20_000_u64, 0);
            for _ in 0..calls {
                if below(400) == 0 {
                    mood = below(5);
                }
                let (mean, length) = (window / 3_000 + 1, below(12));
                tick += match mood {
                    0 => 0,
                    1 => below(2 * mean),
                    // Gaps and counts of all lengths, to outgrow every field.
                    2 => below((window >> length).max(1)),
                    3 => mean,
                    _ => below(3) * mean,
                };
                let before = block(&state);
                if let Some(expired) = tick.checked_sub(window) {
                    state.expire(expired, caps);
                }
                let permits = if mood == 2 { 1 + below(1 << length) } else { 1 };
                if state.permits() + permits <= caps.permits {
                    state.push(Entry { tick, permits }, caps);
                } else if below(2) == 0 {
                    state.take_back(tick, 1, caps);
                }
                if block(&state) != before {
                    written += u64::try_from(state.entries().count()).unwrap();
                }
            }
            assert!(written < 5 * calls, "seed {seed}: {written} entries in {calls} calls");
        }
    }
}
