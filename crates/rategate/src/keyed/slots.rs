//! A flat table of slots, each a key with its state in one word, that threads use without a
//! lock.
//!
//! # Layout
//!
//! ```text
//!   shard                | a power of two of slots, searched from a key's home on, round its end
//!   slot                 | state | key, or hash  ...     one word, and one or two
//!
//!   state   63 ........ 7 | 6 .... 1 | 0
//!           value         | policy   | sealed
//! ```
//!
//! A value is a bucket, a window or a log with one cell, in the [packed form](Packed) of its
//! policy. The policy index 0 names no policy: such words say that the slot has never been
//! used, is vacant, or is being written. A sealed slot stays reserved for its key; the state is
//! behind the shard's lock.
//!
//! # Writers, and why the orderings suffice
//!
//! * Any thread moves the value of an open slot by a swap of the state: that linearises a
//!   grant. A denial is linearised by its last read of the state.
//! * All other writes need the shard's lock: to seal and open a slot, to assign it to another
//!   key, to [sweep](Slots::sweep) a shard before its values become ambiguous.
//! * A slot is assigned to another key only when its limit has been fully recovered for some
//!   time. It is marked as being written, by a swap that makes all others fail; then the key is
//!   written, then the state. A thread that has read the old state and any part of the new key
//!   finds by its swap, or its second read, that the state has changed. States of a later owner
//!   are ahead of the clock at which the earlier one's were behind it, so no old state returns;
//!   and a new key that has used nothing gets a sealed slot. (The 57 bits of a value repeat
//!   after months, at odd rates after minutes; a thread would have to stand still between its
//!   read and its swap for as long, and find the very same word.)
//! * A key has at most one slot: it is searched for under the lock before it gets one. A thread
//!   that does not find it without the lock searches again under it.
//! * The parameters of a policy are written before any state names its index, and rewritten
//!   only when no state has named it for as long as a change of policy takes.

mod locked;

use std::iter::once;
use std::num::NonZeroU64;

use rategate_core::debt::{Charged, Debt};
use rategate_core::packed::{Packed, VALUE_BITS};

use super::key::private::Words;
use crate::sync::{AtomicU64, Ordering, fence, zeroed};

/// The number of slots that a search from a key's home examines.
#[cfg(not(loom))]
pub(super) const WINDOW: usize = 48;
#[cfg(loom)]
pub(super) const WINDOW: usize = 2;

/// The distance between two homes, in slots.
///
/// A search thus begins with a whole cache line ahead of it: five of six keys of two words are
/// found in it, and half of those of three.
#[cfg(not(loom))]
const BUCKET: usize = 4;
#[cfg(loom)]
const BUCKET: usize = 1;

/// The number of words in a cache line.
const CACHE_LINE: usize = 8;

/// The number of slots that a new key in a full table examines for one to free.
pub(super) const CHUNK: usize = 64;

/// The number of policy indices, including 0, which names no policy.
#[cfg(not(loom))]
pub(super) const MAX_VERSIONS: usize = 64;
#[cfg(loom)]
pub(super) const MAX_VERSIONS: usize = 4;

const VALUE_SHIFT: u32 = u64::BITS - VALUE_BITS;
const VERSION_SHIFT: u32 = 1;
const VERSION_MASK: u64 = 0x3f;
const SEALED: u64 = 1;

/// A slot that has never been used, where a search ends.
const EMPTY: u64 = 0;
const BEING_WRITTEN: u64 = 1 << VALUE_SHIFT;
const VACANT: u64 = 2 << VALUE_SHIFT;

/// The slots of all shards, and the parameters of all policies.
#[derive(Debug)]
pub(super) struct Slots {
    words: Box<[AtomicU64]>,
    /// The index of the first word that begins a cache line, where the first slot is.
    first: usize,
    /// The words of a slot: the state and the key's.
    stride: usize,
    /// The number of slots of a shard, a power of two, minus one.
    shard_mask: usize,
    /// The time of each shard's last sweep.
    swept_ns: Box<[AtomicU64]>,
    /// The longest time between two sweeps of a shard.
    validity_ns: AtomicU64,
    /// The instant before which no slot of a shard can be freed.
    ///
    /// Until then no key is anywhere but in a slot or in `outside`. A crowd of new keys in a full
    /// table reads it before it takes the lock.
    full_until_ns: Box<[AtomicU64]>,
    /// The marks of each shard's keys that have no slot, as none was free near their home.
    ///
    /// Other keys may share a mark with one of them, and then take the lock needlessly.
    outside: Box<[AtomicU64]>,
    policy_versions: Box<[[AtomicU64; VERSION_FIELDS]]>,
}

/// The words of a policy's parameters: one cache line, with some unused.
const VERSION_FIELDS: usize = 8;

/// The parameters of a policy, as read without a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotVersion {
    pub(super) numbers: Packed,
    pub(super) tier: u64,
}

/// The start of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Home {
    pub(super) shard: usize,
    slot: usize,
    /// One of 64 bits, chosen by bits of the hash that decide nothing else.
    mark: u64,
}

/// The position of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotIndex(usize);

/// A state word as a thread has read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen(u64);

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Open(SlotIndex, Seen),
    Sealed(SlotIndex),
    KeyAbsent,
}

/// The result of a try without a lock.
#[derive(Clone, Copy, Debug)]
pub(super) enum SlotDecision<T> {
    Granted(u64, T),
    Denied(NonZeroU64, T),
    /// The key is unknown, and if the table is full, this shard has no capacity for it.
    KeyAbsent,
    /// The try needs the lock.
    Unknown,
}

impl Seen {
    const fn of(value: u64, version: u8) -> Self {
        #[expect(clippy::as_conversions, reason = "widening, in a constant")]
        let version = version as u64 & VERSION_MASK;
        Self((value << VALUE_SHIFT) | (version << VERSION_SHIFT))
    }

    #[inline]
    const fn version_index(self) -> usize {
        #[expect(clippy::as_conversions, reason = "six bits")]
        let version = ((self.0 >> VERSION_SHIFT) & VERSION_MASK) as usize;
        version
    }

    /// Returns the policy index of an open state.
    pub(super) fn version(self) -> u8 {
        u8::try_from(self.version_index()).unwrap_or(0)
    }

    pub(super) const fn value(self) -> u64 {
        self.0 >> VALUE_SHIFT
    }

    #[inline]
    const fn is_open(self) -> bool {
        self.0 & SEALED == 0 && self.version_index() != 0
    }

    /// Returns `true` if the slot belongs to a key.
    const fn has_key(self) -> bool {
        self.0 & SEALED != 0 || self.version_index() != 0
    }
}

impl Slots {
    /// Allocates unused slots for keys of `key_words` words, or returns `None` without the memory.
    ///
    /// `slots_per_shard` is a power of two.
    pub(super) fn new(shards: usize, slots_per_shard: usize, key_words: usize) -> Option<Self> {
        let stride = key_words.saturating_add(1);
        let words = shards.saturating_mul(slots_per_shard).saturating_mul(stride);
        let words = zeroed(words.saturating_add(CACHE_LINE.saturating_sub(1)))?;
        let before = words.as_ptr().addr().checked_div(size_of::<u64>()).unwrap_or(0);
        let fields = || std::array::from_fn(|_| AtomicU64::new(0));
        Some(Self {
            first: before.wrapping_neg() % CACHE_LINE,
            words,
            stride,
            shard_mask: slots_per_shard.saturating_sub(1),
            swept_ns: zeroed(shards)?,
            validity_ns: AtomicU64::new(u64::MAX),
            full_until_ns: zeroed(shards)?,
            outside: zeroed(shards)?,
            policy_versions: (0..MAX_VERSIONS).map(|_| fields()).collect(),
        })
    }

    /// Returns the start of the search for a hash.
    ///
    /// The upper half of the hash chooses the shard, the lower half the slot.
    #[inline]
    pub(super) fn home(&self, shard: usize, hash: u64) -> Home {
        let buckets = (self.shard_mask / BUCKET).saturating_add(1);
        let slot = scaled(hash & u64::from(u32::MAX), buckets).wrapping_mul(BUCKET);
        Home { shard, slot, mark: mark(hash) }
    }

    /// Loads a home that is needed soon, which may span two cache lines, into the cache.
    #[inline]
    pub(super) fn touch(&self, home: Home) -> u64 {
        let [first, last] = [0, BUCKET.wrapping_sub(1)].map(|step| self.load(self.at(home, step)));
        first.0 ^ last.0
    }

    #[inline]
    fn at(&self, home: Home, step: usize) -> SlotIndex {
        let slot = home.slot.wrapping_add(step) & self.shard_mask;
        let first = home.shard.wrapping_mul(self.shard_mask.wrapping_add(1));
        SlotIndex(first.wrapping_add(slot).wrapping_mul(self.stride).wrapping_add(self.first))
    }

    #[inline]
    fn state(&self, SlotIndex(at): SlotIndex) -> Option<&AtomicU64> {
        self.words.get(at)
    }

    #[inline]
    fn load(&self, at: SlotIndex) -> Seen {
        Seen(self.state(at).map_or(EMPTY, |state| state.load(Ordering::Acquire)))
    }

    /// Returns the number of slots that a search examines.
    #[inline]
    fn window(&self) -> usize {
        WINDOW.min(self.shard_mask.saturating_add(1))
    }

    /// Searches for a key.
    ///
    /// Without the lock, a key that is found may have moved since, and one that is not found may
    /// have been added.
    #[inline]
    pub(super) fn find<I: Words>(&self, home: Home, id: I) -> Found {
        // In locals: fields read through `self` would be reloaded after each load of a state.
        let (words, mask) = (&*self.words, self.shard_mask);
        let stride = I::WORDS.wrapping_add(1);
        let SlotIndex(first) = self.at(Home { slot: 0, ..home }, 0);
        let guess = guess(words, first.wrapping_add(home.slot.wrapping_mul(stride)), id);
        for step in once(guess).chain(0..self.window()) {
            let slot = home.slot.wrapping_add(step) & mask;
            let at = first.wrapping_add(slot.wrapping_mul(stride));
            let Some([state, key @ ..]) = words.get(at..) else { break };
            let seen = Seen(state.load(Ordering::Acquire));
            let is = |index: usize| {
                key.get(index).is_some_and(|word| word.load(Ordering::Relaxed) == id.word(index))
            };
            // Most slots that a search examines belong to another key.
            if is(0) && (I::WORDS < 2 || is(1)) && seen.has_key() {
                let at = SlotIndex(at);
                return if seen.is_open() { Found::Open(at, seen) } else { Found::Sealed(at) };
            }
            // A guess may be wrong, but not at the home itself.
            if seen.0 == EMPTY && (step == 0 || step != guess) {
                break;
            }
        }
        Found::KeyAbsent
    }

    /// Returns the parameters that a state names. They may be torn unless the state is unchanged
    /// afterwards.
    #[inline]
    pub(super) fn version(&self, version: usize) -> SlotVersion {
        let fields = self
            .policy_versions
            .get(version)
            .map(|fields| fields.each_ref().map(|field| field.load(Ordering::Relaxed)));
        let [form, a, b, c, d, tier, ..] = fields.unwrap_or_default();
        SlotVersion { numbers: Packed::from_fields([form, a, b, c, d]), tier }
    }

    /// Writes the parameters of a policy index that no state names.
    pub(super) fn write_version(&self, version: u8, info: SlotVersion) {
        let [form, a, b, c, d] = info.numbers.to_fields();
        let fields = [form, a, b, c, d, info.tier, 0, 0];
        // Before the states that name it: a thread that has read one of these fields, but not the
        // state of the earlier fields, sees that the state has changed.
        fence(Ordering::Release);
        if let Some(version) = self.policy_versions.get(usize::from(version)) {
            for (field, number) in version.iter().zip(fields) {
                field.store(number, Ordering::Relaxed);
            }
        }
        self.validity_ns.fetch_min(info.numbers.validity_ns(), Ordering::Relaxed);
    }

    /// Returns `true` if the state is unchanged, so that all reads in between belong to it.
    #[inline]
    fn is_still(&self, at: SlotIndex, seen: Seen) -> bool {
        fence(Ordering::Acquire);
        self.state(at).is_some_and(|state| state.load(Ordering::Relaxed) == seen.0)
    }

    #[inline]
    fn swap(&self, at: SlotIndex, seen: Seen, new: u64) -> bool {
        fence(Ordering::Acquire);
        self.state(at).is_some_and(|state| {
            state.compare_exchange(seen.0, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    }

    /// Returns the clock, not before the shard's last sweep, or `None` if the shard must be swept
    /// first.
    #[inline]
    fn clamp(&self, shard: usize, now_ns: u64) -> Option<u64> {
        let swept_ns = self.swept_ns.get(shard)?.load(Ordering::Relaxed);
        let since_ns = now_ns.saturating_sub(swept_ns);
        (since_ns <= self.validity_ns.load(Ordering::Relaxed)).then_some(now_ns.max(swept_ns))
    }

    /// Tries to take permits of a key of `tier`, at the instant that `read_ns` returns.
    ///
    /// `visit` receives the parameters, the value after the decision, and that instant.
    #[inline]
    pub(super) fn try_acquire<T>(
        &self,
        home: Home,
        id: impl Words,
        tier: u64,
        read_ns: impl Fn() -> u64,
        permits: u64,
        visit: impl Fn(Packed, u64, u64) -> T,
    ) -> SlotDecision<T> {
        loop {
            let (at, seen) = match self.find(home, id) {
                Found::Open(at, seen) => (at, seen),
                Found::KeyAbsent if self.full_until_for(home) > read_ns() => {
                    return SlotDecision::KeyAbsent;
                }
                Found::Sealed(_) | Found::KeyAbsent => return SlotDecision::Unknown,
            };
            let version = self.version(seen.version_index());
            let Some(now_ns) = self.clamp(home.shard, read_ns()) else {
                return SlotDecision::Unknown;
            };
            if version.tier != tier {
                return SlotDecision::Unknown;
            }
            match version.numbers.decide(seen.value(), now_ns, permits) {
                None => return SlotDecision::Unknown,
                Some(Ok(value)) => {
                    if self.swap(at, seen, Seen::of(value, seen.version()).0) {
                        let info = visit(version.numbers, value, now_ns);
                        let start_ns = version.numbers.start_ns(value, now_ns);
                        return SlotDecision::Granted(start_ns, info);
                    }
                }
                Some(Err(retry_after_ns)) => {
                    if self.is_still(at, seen) {
                        let info = visit(version.numbers, seen.value(), now_ns);
                        return SlotDecision::Denied(retry_after_ns, info);
                    }
                }
            }
        }
    }

    /// Charges a key of `tier`, at the instant that `read_ns` returns.
    ///
    /// Returns `None` if the lock is needed.
    ///
    /// `visit` receives the parameters, the value after the charge, and that instant.
    #[inline]
    pub(super) fn charge<T>(
        &self,
        home: Home,
        id: impl Words,
        tier: u64,
        read_ns: impl Fn() -> u64,
        (permits, debt): (u64, Debt),
        visit: impl Fn(Packed, u64, u64) -> T,
    ) -> Option<(Charged, T)> {
        while let Found::Open(at, seen) = self.find(home, id) {
            let version = self.version(seen.version_index());
            let now_ns = self.clamp(home.shard, read_ns())?;
            if version.tier != tier {
                return None;
            }
            let (value, charged) = version.numbers.charge(seen.value(), now_ns, permits, debt)?;
            if self.swap(at, seen, Seen::of(value, seen.version()).0) {
                return Some((charged, visit(version.numbers, value, now_ns)));
            }
        }
        None
    }

    /// Returns the instant before which a new key finds no slot, as far as is known.
    ///
    /// It is 0 if the key may be one without a slot.
    #[inline]
    fn full_until_for(&self, home: Home) -> u64 {
        // Before the marks: they include at least those that were there when the instant was set.
        let until_ns = self.full_until(home.shard);
        let marks = self.outside.get(home.shard).map_or(0, |marks| marks.load(Ordering::Relaxed));
        if marks & home.mark == 0 { until_ns } else { 0 }
    }

    /// Returns the instant before which a shard is full, for a thread that holds the lock and has
    /// searched all entries.
    #[inline]
    pub(super) fn full_until(&self, shard: usize) -> u64 {
        self.full_until_ns.get(shard).map_or(0, |until| until.load(Ordering::Acquire))
    }

    /// Reads a key's open state by `status`, which also receives the clock. Returns `None` if the
    /// lock is needed.
    pub(super) fn status<T>(
        &self,
        home: Home,
        id: impl Words,
        tier: u64,
        now_ns: u64,
        status: impl Fn(Packed, u64, u64) -> T,
    ) -> Option<T> {
        while let Found::Open(at, seen) = self.find(home, id) {
            let version = self.version(seen.version_index());
            let now_ns = self.clamp(home.shard, now_ns)?;
            let info = status(version.numbers, seen.value(), now_ns);
            if self.is_still(at, seen) {
                return (version.tier == tier).then_some(info);
            }
        }
        None
    }
}

/// Returns the slot at a home, at word `at`, that seems to be the key's, or the first.
///
/// A search that looked at one slot after the other would branch on where the key is, which
/// no processor can predict, and wait for the memory each time. Only the state can tell if the key
/// is still there, so the search checks the guess as it does any other slot.
#[inline]
fn guess<I: Words>(words: &[AtomicU64], at: usize, id: I) -> usize {
    let stride = I::WORDS.wrapping_add(1);
    let Some(home) = words.get(at..at.wrapping_add(BUCKET.wrapping_mul(stride))) else { return 0 };
    (1..BUCKET).fold(0, |guess, step| {
        let word = home.get(step.wrapping_mul(stride).wrapping_add(1));
        let is = word.is_some_and(|word| word.load(Ordering::Relaxed) == id.word(0));
        if is { step } else { guess }
    })
}

/// Returns one of 64 bits for a hash.
///
/// The hash's lowest bits choose it; the higher bits choose the home.
#[inline]
pub(super) const fn mark(hash: u64) -> u64 {
    1 << (hash & 63)
}

const fn key_words(stride: usize) -> usize {
    stride.saturating_sub(1)
}

/// Returns a 32-bit part of a hash scaled to a number below `n`.
#[inline]
pub(super) fn scaled(fraction: u64, n: usize) -> usize {
    let n = u64::try_from(n).unwrap_or(u64::MAX);
    usize::try_from(fraction.wrapping_mul(n) >> 32).unwrap_or(0)
}
