//! The list as readers find it: two tables of words, one in use and one to be filled.
//!
//! # The words
//!
//! `head` is `replacements << 6 | bits`: the table in use is the one of the lowest bit of `replacements`, and has `2^bits`
//! slots of three words each, of which at least half are empty. A slot is a caller's id in two words, and when its entry
//! ends; 0 is an empty slot. A caller's slot is the first one from its home on that is its own or empty.
//!
//! # Who writes
//!
//! Whoever replaces holds `filling`. He fills the table that is not in use, and then stores `head`, which is the step
//! that counts. Readers only load.
//!
//! # Why a reader sees one list
//!
//! A reader loads `head`, looks into that table, and loads `head` again: if it is the same, the table was not written to
//! meanwhile. For whoever writes to it has stored the next `head` before (that of the replacement in between), and there
//! is a release fence between that store and the first word written: a reader that has seen such a word sees
//! at its second look, behind an acquire fence, that `head` too. A reader that finds another `head` looks again; that
//! takes a whole replacement during each of its looks, so it does not go on.

use std::hint::spin_loop;
use std::marker::PhantomData;
use std::sync::PoisonError;

use super::Replaced;
use crate::keyed::{Id, Seeds};
use crate::sync::{AtomicU64, Mutex, Ordering, fence, zeroed};

/// The words of a slot.
const WIDTH: usize = 3;
/// The bits of `head` that say how large the table in use is.
const BITS: u32 = 6;
const BITS_MASK: u64 = (1 << BITS) - 1;
/// The smallest table has so many bits.
const FEWEST_BITS: u32 = 3;

pub(super) struct Table<I> {
    head: AtomicU64,
    sides: [Box<[AtomicU64]>; 2],
    most: usize,
    /// How many callers are listed.
    filling: Mutex<usize>,
    ids: PhantomData<fn(I)>,
}

impl<I: Id> Table<I> {
    pub(super) fn new(most: usize) -> Self {
        let slots = 1_usize << bits_for(most);
        let words = slots.saturating_mul(WIDTH);
        let sides = zeroed(words).zip(zeroed(words));
        let most = if sides.is_some() { most } else { 0 };
        let (first, second) = sides.unwrap_or_default();
        let head = AtomicU64::new(u64::from(FEWEST_BITS));
        Self { head, sides: [first, second], most, filling: Mutex::new(0), ids: PhantomData }
    }

    /// When the caller's entry ends; 0 if there is none.
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
        // User code, so nobody holds the lock.
        let mut replaced = Replaced::default();
        let mut kept = Vec::new();
        for (id, until_ns) in entries {
            if until_ns == 0 {
                continue;
            }
            if kept.len() < self.most {
                kept.push((id, until_ns));
            } else {
                replaced.left_out = replaced.left_out.saturating_add(1);
            }
        }
        let mut listed = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let head = self.head.load(Ordering::Relaxed);
        let next = (head >> BITS).wrapping_add(1) << BITS;
        let bits = bits_for(kept.len());
        let side = self.side(next);
        // What is written from here on is not seen without the head before.
        fence(Ordering::Release);
        let words = (1_usize << bits).saturating_mul(WIDTH);
        for word in side.iter().take(words) {
            word.store(0, Ordering::Relaxed);
        }
        replaced.listed =
            kept.into_iter().map(|(id, until_ns)| put(side, id, until_ns, seeds, bits)).sum();
        *listed = replaced.listed;
        // Release: all that was written above.
        self.head.store(next | u64::from(bits), Ordering::Release);
        replaced
    }

    pub(super) fn len(&self) -> usize {
        *self.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) const fn most(&self) -> usize {
        self.most
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

/// So many that at least half of the slots are empty.
fn bits_for(count: usize) -> u32 {
    let slots = count.saturating_mul(2).checked_next_power_of_two().unwrap_or(usize::MAX / 2 + 1);
    slots.trailing_zeros().max(FEWEST_BITS)
}

#[inline]
fn bits_of(head: u64) -> u32 {
    // It has six bits.
    u32::try_from(head & BITS_MASK).unwrap_or(FEWEST_BITS)
}

/// The slots that a caller's entry can be in, in their order: all of the table.
#[inline]
fn slots(side: &[AtomicU64], home: u64, bits: u32) -> impl Iterator<Item = &[AtomicU64; WIDTH]> {
    let mask = (1_usize << bits).wrapping_sub(1);
    // Any part of a hash does.
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

/// Returns how many callers the list has more for it.
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
