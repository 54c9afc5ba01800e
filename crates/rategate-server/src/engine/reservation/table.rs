//! The reservations that are open, and those that have ended and are remembered.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;
use rategate::Clock;
use rategate_core::span::whole_ns;
use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

use super::digests::Digests;
use super::held_item::{EndedHold, HeldItem, Holds};
use super::in_progress::InProgress;
use super::settlements::{Outcome, Settlements};
use super::{MEMORY, NOT_HELD};
use crate::engine::answer::Verdict;
use crate::engine::error::EngineError;
use crate::engine::request::{Item, Target, Verb};
use crate::engine::unique_id::UniqueId;
use crate::rule::Usage;

/// The number of locks that callers of different ids share.
const SHARDS: usize = 16;

/// The maximum number of reservations that are looked at under one lock.
pub(super) const BATCH: usize = 256;

/// All reservations of an engine.
pub(in crate::engine) struct Reservations<C: Clock> {
    pub(super) shards: [Mutex<Shard<C>>; SHARDS],
    pub(super) digests: Digests,
    pub(super) known: AtomicUsize,
    max: usize,
    pub(super) counts: Counts,
    /// The ids whose operations wait for a store.
    pub(super) in_progress: InProgress,
}

/// The number of places that a shard keeps while none is taken.
const FEW: usize = 32;

/// The reservations among which one id is, behind their lock.
pub(super) struct LockedId<'a, C: Clock> {
    shard: MutexGuard<'a, Shard<C>>,
    id: UniqueId,
    digest: u64,
}

/// Reservations by id.
pub(super) struct Shard<C: Clock> {
    /// Those that have not been settled, at places that others take later.
    pub(super) entries: Vec<Option<(UniqueId, Entry<C>)>>,
    free: Vec<u32>,
    /// Their places, by the digests of their ids.
    index: HashTable<u32>,
    pub(super) settlements: Settlements,
    /// The settlement that was asked for last.
    remade: Option<Entry<C>>,
    digests: Digests,
}

/// A reservation.
pub(super) struct Entry<C: Clock> {
    /// A digest of its counters, and of the verb of a request that is made once, of 32 bits.
    pub(super) names: u64,
    /// The permits of its items.
    pub(super) permits: SmallVec<[u64; 1]>,
    /// The units that its items used, in place of permits.
    pub(super) usages: Usages,
    /// The verdicts of the rules of items that come under several, or are saturated.
    pub(super) parts: Vec<PartVerdict>,
    pub(super) state: State<C>,
    /// The instant at which it ends by itself, with the first of its holds to end, or is
    /// forgotten.
    pub(super) due_ns: u64,
    pub(super) ttl_ns: u64,
}

/// The usages of the items, or none if no item states any.
pub(in crate::engine) type Usages = Box<[Option<OwnedUsage>]>;

/// A usage that outlives its request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::engine) struct OwnedUsage {
    model: Option<Box<str>>,
    counts: Box<[(Box<str>, u64)]>,
}

/// The verdict of one rule of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PartVerdict {
    /// The index of the item.
    pub(super) at: usize,
    pub(super) rule: Arc<str>,
    pub(super) verdict: Verdict,
    /// `true` if it was charged less than was used because its state can count no more.
    pub(super) saturated: bool,
}

/// A model, and counts by unit.
pub(super) type Units<'a> = (Option<&'a str>, SmallVec<[(&'a str, u64); 4]>);

impl OwnedUsage {
    /// Returns the usages of items.
    pub(super) fn of_all<'a>(items: impl Iterator<Item = &'a Item<'a>> + Clone) -> Usages {
        if items.clone().all(|item| item.usage.is_none()) {
            return Box::default();
        }
        items.map(|item| item.usage.as_ref().map(Self::of)).collect()
    }

    fn of(Usage { counts, model }: &Usage<'_>) -> Self {
        let counts = counts.iter().map(|(unit, count)| ((*unit).into(), *count)).collect();
        Self { model: model.map(Into::into), counts }
    }

    /// Returns its model and counts.
    pub(super) fn units(&self) -> Units<'_> {
        let counts = self.counts.iter().map(|(unit, count)| (&**unit, *count)).collect();
        (self.model.as_deref(), counts)
    }
}

/// The state of a reservation.
pub(super) enum State<C: Clock> {
    /// Its permits are held.
    Open { holds: Holds<C> },
    /// Its time has ended. A commit charges the limits in which it held.
    Ended { held: SmallVec<[EndedHold; 1]> },
    /// It was committed or cancelled.
    Settled(SmallVec<[Verdict; 1]>),
}

/// The numbers of reservations that last, and of operations without an effect in any rule. Those
/// with one are reported to the watchers of the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservationCounts {
    /// Those of which permits of this process are held now.
    pub open: u64,
    /// Those that are known by their id, open or ended.
    pub known: u64,
    /// Operations that had been answered before.
    pub repeated: u64,
    /// Ends of reservations that are unknown.
    pub unknown: u64,
    /// Operations without the reply of a store.
    pub unavailable: u64,
}

/// Counters of operations.
#[derive(Debug, Default)]
pub(super) struct Counts {
    repeated: AtomicU64,
    unknown: AtomicU64,
    unavailable: AtomicU64,
    /// Those with permits of this process.
    opened: AtomicU64,
    closed: AtomicU64,
}

impl<C: Clock> Reservations<C> {
    pub(in crate::engine) fn new(max: usize) -> Self {
        let digests = Digests::default();
        Self {
            shards: std::array::from_fn(|_| Mutex::new(Shard::new(digests.clone()))),
            digests,
            known: AtomicUsize::new(0),
            max,
            counts: Counts::default(),
            in_progress: InProgress::default(),
        }
    }

    /// Returns a digest of an operation: its verb, unless it is on a reservation, and its counters
    /// in their order.
    pub(super) fn digest<'a>(
        &self,
        verb: Option<Verb>,
        targets: impl Iterator<Item = &'a Target<'a>>,
    ) -> u64 {
        self.digests.of_operation(verb, targets)
    }

    /// Locks the reservations among which the id is.
    pub(super) fn lock(&self, id: UniqueId) -> LockedId<'_, C> {
        let digest = self.digests.of_id(id);
        LockedId { shard: self.lock_digest(digest), id, digest }
    }

    /// Locks the reservations among which the id of this digest is.
    pub(super) fn lock_digest(&self, id: u64) -> MutexGuard<'_, Shard<C>> {
        let at = usize::try_from(id).unwrap_or(0) % SHARDS;
        let [first, ..] = &self.shards;
        self.shards.get(at).unwrap_or(first).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that another reservation can be remembered.
    pub(super) fn check_capacity(&self) -> Result<(), EngineError> {
        if self.known.load(Ordering::Relaxed) >= self.max {
            return Err(EngineError::TooManyReservations { max: self.max });
        }
        Ok(())
    }

    pub(super) fn add(
        &self,
        LockedId { shard, id, digest }: &mut LockedId<'_, C>,
        entry: Entry<C>,
    ) {
        if shard.add(*id, *digest, entry) {
            self.known.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends the reservations whose time is over, and forgets those that ended long ago.
    /// Calls `expired` with what each has held.
    pub(in crate::engine) fn tick(&self, now_ns: u64, expired: impl Fn(&HeldItem<C>)) {
        for shard in &self.shards {
            // Few at a time, so that no caller waits for a million.
            let mut from = Some(0);
            while let Some(place) = from {
                from = self.end_some(shard, place, now_ns, &expired);
            }
            while self.forget_some(shard, now_ns) {}
        }
    }

    /// Looks at the entries at some places. Returns the next place, if there is one.
    fn end_some(
        &self,
        shard: &Mutex<Shard<C>>,
        from: usize,
        now_ns: u64,
        expired: impl Fn(&HeldItem<C>),
    ) -> Option<usize> {
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ended = Vec::new();
        let until = from.saturating_add(BATCH).min(shard.entries.len());
        for place in from..until {
            let Some(Some((id, entry))) = shard.entries.get_mut(place) else { continue };
            if entry.due_ns > now_ns {
                continue;
            }
            if let Some(holds) = entry.expire() {
                ended.push(holds);
                add(&self.counts.closed);
            } else {
                let id = *id;
                shard.remove(id, self.digests.of_id(id));
                self.known.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let next = (until < shard.entries.len()).then_some(until);
        // Holds take the locks of their limiters.
        drop(shard);
        ended.iter().flatten().for_each(expired);
        next
    }

    fn forget_some(&self, shard: &Mutex<Shard<C>>, now_ns: u64) -> bool {
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let (forgotten, is_more) = shard.settlements.forget(now_ns, BATCH);
        self.known.fetch_sub(forgotten, Ordering::Relaxed);
        is_more
    }

    pub(super) fn counts(&self) -> ReservationCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counts { repeated, unknown, unavailable, opened, closed } = &self.counts;
        let closed = of(closed);
        ReservationCounts {
            open: of(opened).saturating_sub(closed),
            known: u64::try_from(self.known.load(Ordering::Relaxed)).unwrap_or(u64::MAX),
            repeated: of(repeated),
            unknown: of(unknown),
            unavailable: of(unavailable),
        }
    }
}

impl<C: Clock> Shard<C> {
    fn new(digests: Digests) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            settlements: Settlements::default(),
            remade: None,
            digests,
        }
    }

    fn entry(&mut self, id: UniqueId, digest: u64, now_ns: u64) -> Option<&mut Entry<C>> {
        if let Some((names, due_ns, outcome)) = self.settlements.get(digest, now_ns) {
            let Outcome { permits, usages, verdicts, parts } = outcome;
            let (state, ttl_ns) = (State::Settled(verdicts), 0);
            let entry = Entry { names, permits, usages, parts, state, due_ns, ttl_ns };
            return Some(self.remade.insert(entry));
        }
        let place = self.place(id, digest)?;
        let (_, entry) = self.entries.get_mut(place)?.as_mut()?;
        let is_open = matches!(entry.state, State::Open { .. });
        (is_open || now_ns < entry.due_ns).then_some(entry)
    }

    /// Adds an entry in the place of one that was to be forgotten. Returns `true` if there was
    /// none.
    fn add(&mut self, id: UniqueId, digest: u64, entry: Entry<C>) -> bool {
        let is_unknown = self.remove(id, digest).is_none();
        let Entry { names, permits, usages, parts, state, due_ns, ttl_ns } = entry;
        if let State::Settled(verdicts) = state {
            let outcome = Outcome { permits, usages, verdicts, parts };
            return self.settlements.add(digest, names, due_ns, outcome) && is_unknown;
        }
        let is_unknown = !self.settlements.remove(digest) && is_unknown;
        let entry = Some((id, Entry { names, permits, usages, parts, state, due_ns, ttl_ns }));
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            u32::try_from(self.entries.len().saturating_sub(1)).unwrap_or(u32::MAX)
        });
        if let Some(slot) = self.entries.get_mut(at(place)) {
            *slot = entry;
        }
        let (entries, digests) = (&self.entries, &self.digests);
        self.index.insert_unique(digest, place, |&place| {
            entries.get(at(place)).and_then(Option::as_ref).map_or(0, |(id, _)| digests.of_id(*id))
        });
        is_unknown
    }

    fn place(&self, id: UniqueId, digest: u64) -> Option<usize> {
        self.index.find(digest, |&place| is_of(&self.entries, place, id)).map(|&place| at(place))
    }

    fn remove(&mut self, id: UniqueId, digest: u64) -> Option<Entry<C>> {
        let is_it = |&place: &u32| is_of(&self.entries, place, id);
        let (place, _) = self.index.find_entry(digest, is_it).ok()?.remove();
        self.free.push(place);
        let (_, entry) = self.entries.get_mut(at(place))?.take()?;
        if self.index.is_empty() && self.entries.len() > FEW {
            // What many have needed at once is not kept.
            (self.entries, self.free) = (Vec::new(), Vec::new());
            self.index = HashTable::new();
        }
        Some(entry)
    }
}

fn at(place: u32) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}

/// Returns `true` if the reservation at a place has this id.
fn is_of<C: Clock>(entries: &[Option<(UniqueId, Entry<C>)>], place: u32, id: UniqueId) -> bool {
    let entry = entries.get(at(place)).and_then(Option::as_ref);
    entry.is_some_and(|(known, _)| *known == id)
}

impl<C: Clock> LockedId<'_, C> {
    /// Returns the reservation of the id, unless it is to be forgotten. Changes of one that is
    /// settled have no effect.
    pub(super) fn entry(&mut self, now_ns: u64) -> Option<&mut Entry<C>> {
        self.shard.entry(self.id, self.digest, now_ns)
    }

    /// Remembers the verdicts of the reservation, which is settled.
    pub(super) fn settled(
        &mut self,
        (verdicts, parts): (SmallVec<[Verdict; 1]>, Vec<PartVerdict>),
        now_ns: u64,
    ) {
        let Self { shard, id, digest } = self;
        let Some(entry) = shard.remove(*id, *digest) else { return };
        let (names, due_ns) = (entry.names, now_ns.saturating_add(entry.memory_ns()));
        let Entry { permits, usages, .. } = entry;
        let outcome = Outcome { permits, usages, verdicts, parts };
        shard.settlements.add(*digest, names, due_ns, outcome);
    }
}

impl<C: Clock> Entry<C> {
    pub(super) fn open(
        names: u64,
        (permits, usages): (SmallVec<[u64; 1]>, Usages),
        holds: Holds<C>,
        due_ns: u64,
        ttl_ns: u64,
    ) -> Self {
        let (state, parts) = (State::Open { holds }, Vec::new());
        Self { names, permits, usages, parts, state, due_ns, ttl_ns }
    }

    /// Creates the entry of a request that has been made.
    pub(super) fn made(
        names: u64,
        (permits, usages): (SmallVec<[u64; 1]>, Usages),
        (verdicts, parts): (SmallVec<[Verdict; 1]>, Vec<PartVerdict>),
        now_ns: u64,
    ) -> Self {
        let (state, due_ns) = (State::Settled(verdicts), now_ns.saturating_add(whole_ns(MEMORY)));
        Self { names, permits, usages, parts, state, due_ns, ttl_ns: 0 }
    }

    /// Returns the verdicts for the same reservation again, and the time for which it lasts.
    pub(super) fn repeated_reserve(
        &self,
        now_ns: u64,
    ) -> (SmallVec<[Verdict; 1]>, Option<NonZeroU64>) {
        let all = |verdict: Verdict| smallvec![verdict; self.permits.len()];
        match &self.state {
            State::Open { holds } => match NonZeroU64::new(self.due_ns.saturating_sub(now_ns)) {
                Some(left_ns) => {
                    let mut verdicts = all(NOT_HELD);
                    for held in holds {
                        if let Some(verdict) = verdicts.get_mut(held.at()) {
                            *verdict = Verdict::Granted;
                        }
                    }
                    (verdicts, Some(left_ns))
                }
                None => (all(Verdict::Late(0)), None),
            },
            State::Ended { .. } => (all(Verdict::Late(0)), None),
            State::Settled(verdicts) => (verdicts.clone(), None),
        }
    }

    /// Ends it by its time, and returns what it held. Returns `None` if it has ended before.
    pub(super) fn expire(&mut self) -> Option<Holds<C>> {
        let State::Open { holds } = &mut self.state else { return None };
        let holds = std::mem::take(holds);
        let held = holds.iter().filter_map(HeldItem::ended).collect();
        self.due_ns = self.due_ns.saturating_add(self.memory_ns());
        self.state = State::Ended { held };
        Some(holds)
    }

    /// Returns `true` if it has ended by its time, and that was noticed.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.state, State::Ended { .. })
    }

    /// Returns what it holds, while it lasts.
    pub(super) fn held(&self) -> SmallVec<[EndedHold; 1]> {
        match &self.state {
            State::Open { holds } => holds.iter().filter_map(HeldItem::ended).collect(),
            _ => SmallVec::new(),
        }
    }

    fn memory_ns(&self) -> u64 {
        whole_ns(MEMORY).max(self.ttl_ns)
    }
}

impl Counts {
    pub(super) fn repeated(&self) {
        add(&self.repeated);
    }

    pub(super) fn unknown(&self) {
        add(&self.unknown);
    }

    pub(super) fn unavailable(&self) {
        add(&self.unavailable);
    }

    pub(super) fn opened(&self) {
        add(&self.opened);
    }

    pub(super) fn closed(&self) {
        add(&self.closed);
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
