//! A state in one atomic word, with the numbers that give it its meaning.
//!
//! ```text
//!   word    63 ........................ 2 | 1      | 0
//!           value                         | which  | sealed
//!
//!   numbers [ which = 0 ][ which = 1 ]    F fields each
//! ```
//!
//! # Who writes what
//!
//! * Any thread moves the value of an open word, by [`Word::swap`] or [`Word::add`].
//! * Only the thread that holds the ledger's lock seals, opens and writes numbers. It writes them
//!   only into the slot that the word does not name.
//!
//! # Why a swap that succeeds has read the numbers in force
//!
//! A value belongs to one configuration: new numbers continue with values *above* all earlier
//! ones ([`free_base`]). So if the word is unchanged, the configuration is unchanged, and its
//! slot has not been written since. There is one exception: values start again when 62 bits are
//! used up, after decades at round rates and some seconds at the worst. A thread would have to
//! stall between its load and its swap for that long, and find the very same value.

use super::sync::{AtomicU64, Ordering, fence};

const SEALED: u64 = 1;
const WHICH: u64 = 2;
const VALUE_SHIFT: u32 = 2;

/// The largest value of a word.
pub(super) const SPAN: u64 = u64::MAX >> VALUE_SHIFT;

/// A word and two slots of `F` numbers.
///
/// They are not padded: each call reads the numbers only together with the word, so a cache line
/// that holds both is fetched once for both.
#[derive(Debug)]
pub(super) struct Word<const F: usize> {
    word: AtomicU64,
    slots: [[AtomicU64; F]; 2],
}

/// A word as a thread has read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen(u64);

impl Seen {
    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    /// Returns `true` if these are the bits of no word in use.
    pub(super) const fn is_nothing(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(super) const fn is_sealed(self) -> bool {
        self.0 & SEALED != 0
    }

    #[inline]
    pub(super) const fn value(self) -> u64 {
        self.0 >> VALUE_SHIFT
    }

    /// Returns this word with another value. Callers make sure that it fits; excess bits are cut
    /// off.
    #[inline]
    pub(super) const fn with_value(self, value: u64) -> Self {
        Self((value << VALUE_SHIFT) | (self.0 & (SEALED | WHICH)))
    }
}

/// Returns the base of a new configuration that needs `needed` of the `span` values.
///
/// It lies above `used`, which is at least the highest value so far, or is zero if too few values
/// are left there.
pub(super) const fn free_base(used: u64, needed: u64, span: u64) -> u64 {
    let above = used.saturating_add(1);
    if above <= span.saturating_sub(needed) { above } else { 0 }
}

impl<const F: usize> Word<F> {
    /// Returns a sealed word.
    pub(super) fn sealed() -> Self {
        let slot = || core::array::from_fn(|_| AtomicU64::new(0));
        Self { word: AtomicU64::new(SEALED), slots: [slot(), slot()] }
    }

    /// Loads the word. `Acquire`: a thread that sees a word sees the numbers it names.
    #[inline]
    pub(super) fn load(&self) -> Seen {
        Seen(self.word.load(Ordering::Acquire))
    }

    /// Returns the numbers that `seen` names. They may be torn, unless the word is unchanged
    /// afterwards.
    #[inline]
    pub(super) fn numbers(&self, seen: Seen) -> [u64; F] {
        let [even, odd] = &self.slots;
        let slot = if seen.0 & WHICH == 0 { even } else { odd };
        core::array::from_fn(|field| {
            slot.get(field).map_or(0, |number| number.load(Ordering::Relaxed))
        })
    }

    /// Returns `true` if the word is unchanged, so that everything read meanwhile is whole.
    ///
    /// The fence ensures this. Suppose one of the numbers came from a later writer, which fenced
    /// before writing it. Then the word that this writer found in force would be seen here too.
    #[inline]
    pub(super) fn is_still(&self, seen: Seen) -> bool {
        fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) == seen.0
    }

    /// Moves the value, if the word is unchanged: the step that linearises a grant.
    ///
    /// `AcqRel`: the next winner sees all that this one has read. The fence keeps the reading of
    /// the numbers before the swap.
    #[inline]
    pub(super) fn swap(&self, seen: Seen, value: u64) -> bool {
        fence(Ordering::Acquire);
        let new = seen.with_value(value).0;
        self.word.compare_exchange_weak(seen.0, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Adds to the value unconditionally and returns the word before.
    ///
    /// An addition to a sealed word is lost: such a word is only ever overwritten.
    #[inline]
    pub(super) fn add(&self, amount: u64) -> Seen {
        fence(Ordering::Acquire);
        Seen(self.word.fetch_add(amount << VALUE_SHIFT, Ordering::AcqRel))
    }

    /// Undoes an addition.
    pub(super) fn subtract(&self, amount: u64) {
        self.word.fetch_sub(amount << VALUE_SHIFT, Ordering::AcqRel);
    }

    /// Ends all swaps. Returns the last word, or `None` if it was sealed before.
    pub(super) fn seal(&self) -> Option<Seen> {
        let last = Seen(self.word.fetch_or(SEALED, Ordering::AcqRel));
        (!last.is_sealed()).then_some(last)
    }

    /// Opens a sealed word at `value` with the previous numbers.
    pub(super) fn reopen(&self, value: u64) {
        let last = Seen(self.load().0 & !SEALED);
        self.word.store(last.with_value(value).0, Ordering::Release);
    }

    /// Opens a sealed word at `value` with new numbers.
    pub(super) fn open(&self, numbers: [u64; F], value: u64) {
        let other = self.write_other(self.load(), numbers);
        self.word.store(other.with_value(value).0, Ordering::Release);
    }

    /// Replaces the numbers and the value in one step, if the word is unchanged.
    ///
    /// Only by the thread that holds the ledger's lock.
    pub(super) fn replace(&self, seen: Seen, numbers: [u64; F], value: u64) -> bool {
        let new = self.write_other(seen, numbers).with_value(value).0;
        self.word.compare_exchange(seen.0, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Writes numbers into the slot that `seen` does not name. Returns an open word that names
    /// it.
    ///
    /// The fence is one half of a pair; [`Word::is_still`] and [`Word::swap`] have the other. A
    /// reader that sees a new number sees that the word has changed since it named this slot. The
    /// later write of the word releases the numbers to [`Word::load`].
    fn write_other(&self, seen: Seen, numbers: [u64; F]) -> Seen {
        let other = (seen.0 ^ WHICH) & WHICH;
        fence(Ordering::Release);
        let [even, odd] = &self.slots;
        let slot = if other == 0 { even } else { odd };
        for (field, number) in slot.iter().zip(numbers) {
            field.store(number, Ordering::Relaxed);
        }
        Seen(other)
    }
}
