//! A state of several words that threads replace as a whole.
//!
//! ```text
//!   word    63 ................... 7 | 6 .... 1 | 0         which slot is in force
//!           sequence                 | slot     | sealed
//!
//!   slots   [ 0 ][ 1 ][ 2 ] ...       a row of words each: a state
//!   free    a bit for each slot that is not in use
//!   numbers one row                   the configuration that goes with every state
//!
//!   row     head | W words | W words | ...            up to P parts
//! ```
//!
//! A thread that changes the state copies it, decides on the copy and writes the new state into a
//! slot of its own. Then it swaps the word to that slot: the whole state takes effect at once, or
//! nothing does.
//!
//! # Who writes what
//!
//! * A slot is named by the word, or free (its bit is set), or owned by one thread that has
//!   [claimed](Claim) it. Only that thread writes it. The thread that swaps the word receives the
//!   previous slot in exchange, and frees it.
//! * Only the thread that holds the ledger's lock seals, opens and writes numbers. It writes
//!   them, and the word's own slot, only while the word is sealed.
//!
//! # Why a copy is whole
//!
//! A slot is written again only after the word has left it. The thread that swapped the word
//! freed the bit (`Release`), and the next writer claimed it (`Acquire`) before its fence. So a
//! reader that has copied even one new word, and then fences, sees that the word has changed: a
//! sequence number never comes again. The same holds for what is written under a sealed word. The
//! sequence has 57 bits: at a hundred million grants a second they last 45 years.
//!
//! # Why a swap loses nothing
//!
//! It succeeds only if the word is the one that was copied, so the copy is the state that is
//! replaced. Sealing is one step on the same word: a swap happens before it, or fails.
//!
//! # Bounds
//!
//! Each thread between its decision and its swap owns one slot. When all slots are owned, a
//! further thread finds none, and the ledger decides for it.

use alloc::boxed::Box;

use super::sync::{AtomicU64, Ordering, Padded, SLOTS, back_off, fence};

const SEALED: u64 = 1;
const SLOT_SHIFT: u32 = 1;
const SLOT_MASK: u64 = 63;
const SEQUENCE_SHIFT: u32 = 7;

/// A state of up to `P` parts of `W` words each, and its configuration of as many.
#[derive(Debug)]
pub(super) struct Cell<const P: usize, const W: usize> {
    word: Padded<AtomicU64>,
    free: Padded<AtomicU64>,
    numbers: Padded<Row<P, W>>,
    /// The states.
    slots: Box<[Padded<Row<P, W>>]>,
}

/// Words that are written together.
#[derive(Debug)]
struct Row<const P: usize, const W: usize> {
    head: AtomicU64,
    entries: [[AtomicU64; W]; P],
}

/// The words of a row: the head, and the first `L` parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<const L: usize, const W: usize> {
    pub(super) head: u64,
    pub(super) entries: [[u64; W]; L],
}

/// A copy of a cell's contents at one instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied<const L: usize, const W: usize> {
    seen: Seen,
    pub(super) numbers: Words<L, W>,
    pub(super) state: Words<L, W>,
}

impl<const P: usize, const W: usize> Row<P, W> {
    fn new() -> Self {
        let word = || AtomicU64::new(0);
        let entry = || core::array::from_fn(|_| word());
        Self { head: word(), entries: core::array::from_fn(|_| entry()) }
    }

    #[inline]
    fn read<const L: usize>(&self) -> Words<L, W> {
        let word = |entry: usize, word: usize| {
            let word = self.entries.get(entry).and_then(|entry| entry.get(word));
            word.map_or(0, |word| word.load(Ordering::Relaxed))
        };
        Words {
            head: self.head.load(Ordering::Relaxed),
            entries: core::array::from_fn(|at| core::array::from_fn(|index| word(at, index))),
        }
    }

    #[inline]
    fn write<const L: usize>(&self, words: &Words<L, W>) {
        self.head.store(words.head, Ordering::Relaxed);
        let targets = self.entries.iter().flatten();
        let words = words.entries.iter().flatten();
        targets.zip(words).for_each(|(target, &word)| target.store(word, Ordering::Relaxed));
    }

    /// Writes only the words that changed, so that unchanged cache lines stay with their readers.
    fn renew(&self, words: &Words<P, W>) {
        let targets = core::iter::once(&self.head).chain(self.entries.iter().flatten());
        let words = core::iter::once(&words.head).chain(words.entries.iter().flatten());
        for (target, &word) in targets.zip(words) {
            if target.load(Ordering::Relaxed) != word {
                target.store(word, Ordering::Relaxed);
            }
        }
    }
}

/// The result of an attempt to replace a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replaced {
    Yes,
    /// Another thread was faster.
    No,
    /// Other threads own all slots.
    NoSlot,
}

/// A word as a thread has read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen(u64);

impl Seen {
    const fn is_sealed(self) -> bool {
        self.0 & SEALED != 0
    }

    const fn slot(self) -> u64 {
        (self.0 >> SLOT_SHIFT) & SLOT_MASK
    }

    /// Returns the open word that comes after this one.
    const fn followed_by(self, slot: u64) -> Self {
        let sequence = (self.0 >> SEQUENCE_SHIFT).wrapping_add(1);
        Self((sequence << SEQUENCE_SHIFT) | (slot << SLOT_SHIFT))
    }
}

impl<const P: usize, const W: usize> Cell<P, W> {
    /// Returns a sealed cell.
    pub(super) fn sealed() -> Self {
        // The word owns the first slot.
        let free = (1_u64 << SLOTS).saturating_sub(2);
        Self {
            word: Padded(AtomicU64::new(SEALED)),
            free: Padded(AtomicU64::new(free)),
            numbers: Padded(Row::new()),
            slots: (0..SLOTS).map(|_| Padded(Row::new())).collect(),
        }
    }

    /// Copies the first `L` parts and calls `meanwhile` before confirming that the copy is whole.
    ///
    /// The state was in force at that confirmation. Returns `None` if sealed.
    #[inline]
    pub(super) fn read<T, const L: usize>(
        &self,
        meanwhile: impl Fn() -> T,
    ) -> Option<(Copied<L, W>, T)> {
        loop {
            // Acquire: a thread that sees a word sees the state it names.
            let seen = Seen(self.word.0.load(Ordering::Acquire));
            if seen.is_sealed() {
                return None;
            }
            let copied = self.copy(seen)?;
            let reading = meanwhile();
            // One half of a pair of fences; writers have the other.
            fence(Ordering::Acquire);
            if self.word.0.load(Ordering::Relaxed) == seen.0 {
                return Some((copied, reading));
            }
            back_off();
        }
    }

    /// Returns a claim that owns no slot yet.
    #[inline]
    pub(super) const fn claim(&self) -> Claim<'_, P, W> {
        Claim { cell: self, slot: None }
    }

    /// Ends all swaps and takes the state out. Returns `None` if the cell was sealed before.
    pub(super) fn seal(&self) -> Option<Copied<P, W>> {
        let last = Seen(self.word.0.fetch_or(SEALED, Ordering::AcqRel));
        // No thread writes the slot of a sealed word.
        if last.is_sealed() { None } else { self.copy(last) }
    }

    /// Opens a sealed cell.
    pub(super) fn open(&self, numbers: &Words<P, W>, state: &Words<P, W>) {
        let last = Seen(self.word.0.load(Ordering::Acquire));
        let Some(slot) = self.slot(last.slot()) else { return };
        // A thread that sees a new word sees that the old one was sealed.
        fence(Ordering::Release);
        self.numbers.0.renew(numbers);
        slot.renew(state);
        self.word.0.store(last.followed_by(last.slot()).0, Ordering::Release);
    }

    #[inline]
    fn copy<const L: usize>(&self, seen: Seen) -> Option<Copied<L, W>> {
        let slot = self.slot(seen.slot())?;
        Some(Copied { seen, numbers: self.numbers.0.read(), state: slot.read() })
    }

    #[inline]
    fn slot(&self, slot: u64) -> Option<&Row<P, W>> {
        self.slots.get(usize::try_from(slot).ok()?).map(|slot| &slot.0)
    }

    /// Takes a free slot.
    #[inline]
    fn take_free(&self) -> Option<u64> {
        let mut free = self.free.0.load(Ordering::Relaxed);
        loop {
            let slot = free.trailing_zeros();
            let left = free & !1_u64.checked_shl(slot)?;
            // Acquire: the word has left this slot, and earlier readers of it have to notice.
            let swapped =
                self.free.0.compare_exchange_weak(free, left, Ordering::Acquire, Ordering::Relaxed);
            match swapped {
                Ok(_) => return Some(slot.into()),
                Err(now) => free = now,
            }
        }
    }
}

/// A thread's ownership of one slot.
///
/// The slot is freed when the claim is dropped, also if a clock panics.
#[derive(Debug)]
pub(super) struct Claim<'a, const P: usize, const W: usize> {
    cell: &'a Cell<P, W>,
    slot: Option<u64>,
}

impl<const P: usize, const W: usize> Claim<'_, P, W> {
    /// Replaces the state that was copied by a new one, if it is still in force.
    ///
    /// This is the step that linearises a grant. After a failure the claim keeps its slot for
    /// another attempt.
    #[inline]
    pub(super) fn replace<const L: usize>(
        &mut self,
        copied: &Copied<L, W>,
        state: &Words<L, W>,
    ) -> Replaced {
        let cell = self.cell;
        if self.slot.is_none() {
            self.slot = cell.take_free();
        }
        let Some((index, slot)) = self.slot.and_then(|index| Some((index, cell.slot(index)?)))
        else {
            return Replaced::NoSlot;
        };
        // A thread that sees a new word in this slot sees that the cell's word has left it.
        fence(Ordering::Release);
        slot.write(state);
        let (old, new) = (copied.seen, copied.seen.followed_by(index));
        // Release: publishes the new state to threads that see this word.
        let swapped =
            cell.word.0.compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Relaxed);
        if swapped.is_err() {
            return Replaced::No;
        }
        self.slot = Some(old.slot());
        Replaced::Yes
    }
}

impl<const P: usize, const W: usize> Drop for Claim<'_, P, W> {
    #[inline]
    fn drop(&mut self) {
        if let Some(bit) = self.slot.and_then(|slot| 1_u64.checked_shl(u32::try_from(slot).ok()?)) {
            // Release: the next owner sees that the word has left the slot.
            self.cell.free.0.fetch_or(bit, Ordering::Release);
        }
    }
}
