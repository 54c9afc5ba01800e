//! The list in memory: two tables of words, one in use and one to be filled.
//!
//! # The words
//!
//! `head` is `replacements << 6 | bits`. The lowest bit of `replacements` selects the table in
//! use, which has `2^bits` slots of three words each, of which at least half are empty. A slot
//! is a client's id in two words, and the end of its entry; 0 is an empty slot. A client's slot
//! is the first one from its home on that is its own or empty.
//!
//! # Writers
//!
//! A replacing thread holds `filling`. It fills the table that is not in use, and then stores
//! `head`, which publishes the new list. Readers only load.
//!
//! # Why a reader sees one list
//!
//! A reader loads `head`, searches that table, and loads `head` again: if it is unchanged, the
//! table was not written to meanwhile. A thread that writes to this table has stored the next
//! `head` before (that of the replacement in between), and a release fence stands between that
//! store and the first word written. A reader that has seen such a word therefore sees that
//! `head` too, at its second load, behind an acquire fence. A reader that finds another `head`
//! searches again. Each retry requires a whole replacement during the search, so retries are
//! few.

use std::hint::spin_loop;
use std::marker::PhantomData;
use std::sync::PoisonError;

use super::Replaced;
use crate::keyed::{Id, Seeds};
use crate::sync::{AtomicU64, Mutex, Ordering, fence, zeroed};

/// The words of a slot.
const WIDTH: usize = 3;
/// The bits of `head` that hold the size of the table in use.
const BITS: u32 = 6;
const BITS_MASK: u64 = (1 << BITS) - 1;
/// The size of the smallest table, in bits.
const MIN_BITS: u32 = 3;

pub(super) struct Table<I> {
    head: AtomicU64,
    sides: [Box<[AtomicU64]>; 2],
    max_entries: usize,
    /// The lock of a replacing thread, with the number of clients listed.
    filling: Mutex<usize>,
    ids: PhantomData<fn(I)>,
}

impl<I: Id> Table<I> {
    pub(super) fn new(max_entries: usize) -> Self {
        let slots = 1_usize << bits_for(max_entries);
        let words = slots.saturating_mul(WIDTH);
        let sides = zeroed(words).zip(zeroed(words));
        let max_entries = if sides.is_some() { max_entries } else { 0 };
        let (first, second) = sides.unwrap_or_default();
        let head = AtomicU64::new(u64::from(MIN_BITS));
        Self { head, sides: [first, second], max_entries, filling: Mutex::new(0), ids: PhantomData }
    }

    /// Returns the end of the client's entry, or 0 if there is none.
    #[inline]
    pub(super) fn until_ns(&self, id: I, seeds: &Seeds) -> u64 {
        let home = id.home(seeds);
        loop {
            let head = self.head.load(Ordering::Acquire);
            let until_ns = find(self.side(head), id, home, bits_of(head));
            fence(Ordering::Acquire);
            if self.head.load(Ordering::Relaxed) == head {
                return until_ns;
            }
            spin_loop();
        }
    }

    pub(super) fn replace(
        &self,
        entries: impl IntoIterator<Item = (I, u64)>,
        seeds: &Seeds,
    ) -> Replaced {
        // User code, so it runs outside the lock.
        let mut replaced = Replaced::default();
        let mut live_entries = Vec::new();
        for (id, until_ns) in entries {
            if until_ns == 0 {
                continue;
            }
            if live_entries.len() < self.max_entries {
                live_entries.push((id, until_ns));
            } else {
                replaced.left_out = replaced.left_out.saturating_add(1);
            }
        }
        let mut listed = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let head = self.head.load(Ordering::Relaxed);
        let next = (head >> BITS).wrapping_add(1) << BITS;
        let bits = bits_for(live_entries.len());
        let side = self.side(next);
        // A reader that sees any of the following writes also sees the previous head.
        fence(Ordering::Release);
        let words = (1_usize << bits).saturating_mul(WIDTH);
        for word in side.iter().take(words) {
            word.store(0, Ordering::Relaxed);
        }
        replaced.listed = live_entries
            .into_iter()
            .map(|(id, until_ns)| put(side, id, until_ns, seeds, bits))
            .sum();
        *listed = replaced.listed;
        // Release: publishes all writes above.
        self.head.store(next | u64::from(bits), Ordering::Release);
        replaced
    }

    pub(super) fn len(&self) -> usize {
        *self.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) const fn max_entries(&self) -> usize {
        self.max_entries
    }

    pub(super) fn replacements(&self) -> u64 {
        self.head.load(Ordering::Relaxed) >> BITS
    }

    #[inline]
    fn side(&self, head: u64) -> &[AtomicU64] {
        let [even, odd] = &self.sides;
        if (head >> BITS) & 1 == 0 { even } else { odd }
    }
}

/// Returns the bits of a table in which at least half of the slots stay empty.
fn bits_for(count: usize) -> u32 {
    let slots = count.saturating_mul(2).checked_next_power_of_two().unwrap_or(usize::MAX / 2 + 1);
    slots.trailing_zeros().max(MIN_BITS)
}

#[inline]
fn bits_of(head: u64) -> u32 {
    // It has six bits.
    u32::try_from(head & BITS_MASK).unwrap_or(MIN_BITS)
}

/// Returns the slots that a client's entry can be in, in search order: all of the table.
#[inline]
fn slots(side: &[AtomicU64], home: u64, bits: u32) -> impl Iterator<Item = &[AtomicU64; WIDTH]> {
    let mask = (1_usize << bits).wrapping_sub(1);
    // Any part of a hash suffices.
    let home = usize::try_from(home & u64::from(u32::MAX)).unwrap_or(0);
    (0..=mask).map_while(move |step| {
        let start = (home.wrapping_add(step) & mask).wrapping_mul(WIDTH);
        side.get(start..)?.first_chunk()
    })
}

#[inline]
fn find<I: Id>(side: &[AtomicU64], id: I, home: u64, bits: u32) -> u64 {
    for [first, second, until_ns] in slots(side, home, bits) {
        let until_ns = until_ns.load(Ordering::Relaxed);
        let is_own = first.load(Ordering::Relaxed) == id.word(0)
            && second.load(Ordering::Relaxed) == id.word(1);
        if until_ns == 0 || is_own {
            return until_ns;
        }
    }
    0
}

/// Stores an entry. Returns the number of clients added: 0 or 1.
fn put<I: Id>(side: &[AtomicU64], id: I, until_ns: u64, seeds: &Seeds, bits: u32) -> usize {
    for [first, second, until] in slots(side, id.home(seeds), bits) {
        let known_ns = until.load(Ordering::Relaxed);
        if known_ns == 0 {
            first.store(id.word(0), Ordering::Relaxed);
            second.store(id.word(1), Ordering::Relaxed);
            until.store(until_ns, Ordering::Relaxed);
            return 1;
        }
        let is_own = first.load(Ordering::Relaxed) == id.word(0)
            && second.load(Ordering::Relaxed) == id.word(1);
        if is_own {
            until.store(known_ns.max(until_ns), Ordering::Relaxed);
            return 0;
        }
    }
    0
}
