//! One word that is a state, and beside it the numbers that say what it means.
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
//! * Anybody moves the value of an open word, by [`Word::swap`] or [`Word::add`].
//! * Only the holder of the ledger's lock seals, opens and writes numbers; and writes them only
//!   into the slot that the word does not name.
//!
//! # Why a swap that succeeds has read the numbers in force
//!
//! A value belongs to one configuration: with new numbers the values go on *above* all values that
//! there have been ([`free_base`]). So if the word is what it was, the configuration is what
//! it was, and its slot has not been written since. The one exception: values start again when 62
//! bits are used up, after decades at round rates and some seconds at the worst; a thread would have to
//! stand still between its load and its swap for that long, and find the very same value.

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

/// A word as somebody has read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen(u64);

impl Seen {
    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    /// Whether these are the bits of no word in use.
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

    /// The same word with another value. What does not fit is cut off; callers see to that.
    #[inline]
    pub(super) const fn with_value(self, value: u64) -> Self {
        Self((value << VALUE_SHIFT) | (self.0 & (SEALED | WHICH)))
    }
}

/// The base of a new configuration that needs `room` of the `span` values: above `used`, which is the
/// highest that there has been or more, or zero if too few are left there.
pub(super) const fn free_base(used: u64, room: u64, span: u64) -> u64 {
    let above = used.saturating_add(1);
    if above <= span.saturating_sub(room) { above } else { 0 }
}

impl<const F: usize> Word<F> {
    /// A sealed word.
    pub(super) fn sealed() -> Self {
        let slot = || core::array::from_fn(|_| AtomicU64::new(0));
        Self { word: AtomicU64::new(SEALED), slots: [slot(), slot()] }
    }

    /// `Acquire`: whoever sees a word sees the numbers it names.
    #[inline]
    pub(super) fn load(&self) -> Seen {
        Seen(self.word.load(Ordering::Acquire))
    }

    /// The numbers that `seen` names. They may be torn, unless the word is still the same
    /// afterwards.
    #[inline]
    pub(super) fn numbers(&self, seen: Seen) -> [u64; F] {
        let [even, odd] = &self.slots;
        let slot = if seen.0 & WHICH == 0 { even } else { odd };
        core::array::from_fn(|field| {
            slot.get(field).map_or(0, |number| number.load(Ordering::Relaxed))
        })
    }

    /// Returns the numbers that `seen` does not name: those of before, unless others have been written
    /// there since. Only by the holder of the ledger's lock.
    pub(super) fn other_numbers(&self, seen: Seen) -> [u64; F] {
        self.numbers(Seen(seen.0 ^ WHICH))
    }

    /// Whether the word is what it was, and so whatever was read meanwhile is whole.
    ///
    /// The fence makes sure of it: had one of the numbers come from a later writer, who fenced
    /// before writing it, the word that this writer had found in force would be seen here too.
    #[inline]
    pub(super) fn is_still(&self, seen: Seen) -> bool {
        fence(Ordering::Acquire);
        self.word.load(Ordering::Relaxed) == seen.0
    }

    /// Moves the value, if the word is still the same: the step that linearises a grant.
    ///
    /// `AcqRel`: what the winner has read before, the next one sees after. The fence keeps the
    /// reading of the numbers on this side.
    #[inline]
    pub(super) fn swap(&self, seen: Seen, value: u64) -> bool {
        fence(Ordering::Acquire);
        let new = seen.with_value(value).0;
        self.word.compare_exchange_weak(seen.0, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Adds to the value whatever it is, and says what it was. What is added to a sealed word is
    /// lost: it is only ever overwritten.
    #[inline]
    pub(super) fn add(&self, amount: u64) -> Seen {
        fence(Ordering::Acquire);
        Seen(self.word.fetch_add(amount << VALUE_SHIFT, Ordering::AcqRel))
    }

    /// Takes back what was added.
    pub(super) fn subtract(&self, amount: u64) {
        self.word.fetch_sub(amount << VALUE_SHIFT, Ordering::AcqRel);
    }

    /// Ends all swaps. Returns the last word, or `None` if it was sealed before.
    pub(super) fn seal(&self) -> Option<Seen> {
        let last = Seen(self.word.fetch_or(SEALED, Ordering::AcqRel));
        (!last.is_sealed()).then_some(last)
    }

    /// Opens a sealed word at `value`, which keeps the numbers of before.
    pub(super) fn reopen(&self, value: u64) {
        let last = Seen(self.load().0 & !SEALED);
        self.word.store(last.with_value(value).0, Ordering::Release);
    }

    /// Opens a sealed word at `value` with new numbers.
    pub(super) fn open(&self, numbers: [u64; F], value: u64) {
        let other = self.write_other(self.load(), numbers);
        self.word.store(other.with_value(value).0, Ordering::Release);
    }

    /// Puts new numbers and a new value in place of the old ones at one stroke, if the word is still
    /// the same. Only by the holder of the ledger's lock.
    pub(super) fn replace(&self, seen: Seen, numbers: [u64; F], value: u64) -> bool {
        let new = self.write_other(seen, numbers).with_value(value).0;
        self.word.compare_exchange(seen.0, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Writes numbers into the slot that `seen` does not name, and answers an open word that does.
    ///
    /// The fence is one half of a pair, [`Word::is_still`] and [`Word::swap`] have the other: a
    /// reader who sees a new number sees that the word has changed since it named this slot. The
    /// numbers are released to [`Word::load`] by whoever writes the word.
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
