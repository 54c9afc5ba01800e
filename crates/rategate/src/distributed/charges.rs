//! Charges of what nodes used beyond their borrowed permits: sent to the store under an id, again
//! until it has replied, and kept until it can be reached.
//!
//! One charge of a key is on its way at a time, and what comes meanwhile is merged. The store
//! remembers an id for ten minutes. A charge without a reply for so long may have been booked, so
//! it is dropped and counted: sent again, it could count twice.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::inner::{BackgroundWork, Inner};
use crate::clock::Clock;
use crate::store::{Key, ReservationId, Store, StoreError, StoreRequest};

/// The maximum number of keys whose charges wait for the store.
const MAX_WAITING_KEYS: usize = 65_536;
/// The maximum number of charges that one round of background work sends.
const SENT_AT_ONCE: usize = 64;
/// The time after which a charge is not sent again. The store has remembered its id until then,
/// whenever it came; a tenth of the ten minutes is for the last sending, and for clocks that drift.
const SENT_AGAIN_FOR_NS: u64 = 540_000_000_000;

/// The charges of a limiter that wait for the store, merged by key.
#[derive(Debug, Default)]
pub(super) struct Charges {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    by_key: BTreeMap<Key, Waiting>,
    /// The keys whose charge is to be sent.
    ready: VecDeque<Key>,
    /// The permits of charges that were not booked, as far as is known.
    dropped: u64,
    /// Set while a round is scheduled.
    is_scheduled: bool,
}

/// The permits that one key owes the store.
#[derive(Debug, Default)]
struct Waiting {
    sent: Option<Sent>,
    /// The permits that have not been sent.
    more: u64,
}

/// A charge that may have been booked.
#[derive(Clone, Copy, Debug)]
struct Sent {
    id: ReservationId,
    permits: u64,
    /// The instant of its first sending.
    since_ns: u64,
}

impl Queue {
    fn drop_permits(&mut self, permits: u64) {
        self.dropped = self.dropped.saturating_add(permits);
    }

    /// Returns the charge of a key to be sent next: the one before again, unless it is too old.
    fn next(&mut self, key: &Key, now_ns: u64) -> Option<Sent> {
        let waiting = self.by_key.get_mut(key)?;
        let is_over = |sent: &Sent| now_ns.saturating_sub(sent.since_ns) >= SENT_AGAIN_FOR_NS;
        let too_old = waiting.sent.take_if(|sent| is_over(sent));
        if waiting.sent.is_none() && waiting.more > 0 {
            let permits = std::mem::take(&mut waiting.more);
            let id = ReservationId::random();
            waiting.sent = Some(Sent { id, permits, since_ns: now_ns });
        }
        let next = waiting.sent;
        if next.is_none() {
            self.by_key.remove(key);
        }
        self.drop_permits(too_old.map_or(0, |sent| sent.permits));
        next
    }

    /// Forgets the charge of a key that was on its way.
    fn settled(&mut self, key: Key) {
        let Some(waiting) = self.by_key.get_mut(&key) else { return };
        waiting.sent = None;
        if waiting.more > 0 {
            self.ready.push_back(key);
        } else {
            self.by_key.remove(&key);
        }
    }
}

impl Charges {
    /// Returns the permits that wait for a reply, and those that were dropped.
    pub(super) fn counts(&self) -> (u64, u64) {
        let queue = self.queue();
        let sent = |waiting: &Waiting| waiting.sent.map_or(0, |sent| sent.permits);
        let waiting = |waiting: &Waiting| waiting.more.saturating_add(sent(waiting));
        let sum = queue.by_key.values().map(waiting).fold(0, u64::saturating_add);
        (sum, queue.dropped)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds permits to the charge of a key. Returns `true` if it is to be sent: no other of the key
    /// is on its way or waits to be sent.
    fn add(&self, key: &Key, permits: NonZeroU64) -> bool {
        let mut queue = self.queue();
        let is_full = queue.by_key.len() >= MAX_WAITING_KEYS;
        match queue.by_key.entry(Key::clone(key)) {
            Entry::Occupied(mut known) => {
                let waiting = known.get_mut();
                waiting.more = waiting.more.saturating_add(permits.get());
                false
            }
            Entry::Vacant(_) if is_full => {
                queue.drop_permits(permits.get());
                false
            }
            Entry::Vacant(free) => {
                free.insert(Waiting { sent: None, more: permits.get() });
                true
            }
        }
    }

    /// Keeps a charge that is to be sent. Returns `true` if a round has to be scheduled.
    fn keep(&self, key: Key) -> bool {
        let mut queue = self.queue();
        queue.ready.push_back(key);
        !std::mem::replace(&mut queue.is_scheduled, true)
    }

    /// Takes some of the keys whose charge is to be sent, for a round.
    fn take_some(&self) -> Vec<Key> {
        let mut queue = self.queue();
        queue.is_scheduled = false;
        let some = queue.ready.len().min(SENT_AT_ONCE);
        queue.ready.drain(..some).collect()
    }

    /// Returns `true` if charges are to be sent and no round is scheduled, which one is from now
    /// on.
    fn needs_round(&self) -> bool {
        let mut queue = self.queue();
        !queue.ready.is_empty() && !std::mem::replace(&mut queue.is_scheduled, true)
    }
}

impl<S: Store, C: Clock + 'static> Inner<S, C> {
    /// Charges permits to the store, now or once it can be reached.
    pub(super) fn charge_later(self: &Arc<Self>, key: Key, permits: u64) {
        if NonZeroU64::new(permits).is_some_and(|permits| self.charges.add(&key, permits)) {
            self.send_charge(key);
        }
    }

    fn send_charge(self: &Arc<Self>, key: Key) {
        let now_ns = self.clock.now_ns();
        let backend = self.store.backend_of(&key);
        if let Err(for_ns) = self.watch.pass(backend, now_ns, self.store.revivals(backend)) {
            return self.send_charge_in(key, for_ns);
        }
        let Some(Sent { id, permits, .. }) = self.charges.queue().next(&key, now_ns) else {
            return;
        };
        let (plan, debt, once) = (Arc::clone(&self.store_plan), self.debt, Some(id));
        let inner = Arc::clone(self);
        let request = StoreRequest::Charge { plan, key: Key::clone(&key), permits, debt, once };
        self.store.submit(
            request,
            Box::new(move |answer| {
                let then_ns = inner.clock.now_ns();
                let error = answer.as_ref().err().cloned();
                let (_, change) = inner.watch.received(backend, now_ns, then_ns, answer);
                inner.report_change(change);
                if let Some(StoreError::Unavailable(_)) = error {
                    let for_ns = inner.watch.closed_for_ns(backend, then_ns);
                    return inner.send_charge_in(key, for_ns);
                }
                let mut queue = inner.charges.queue();
                if error.is_some() {
                    // It will get no other reply.
                    queue.drop_permits(permits);
                }
                queue.settled(key);
                drop(queue);
                if inner.charges.needs_round() {
                    inner.rounds.add(then_ns, BackgroundWork::Charges);
                }
            }),
        );
    }

    /// Keeps a charge for a later round, of which the time is known or one budget away.
    fn send_charge_in(&self, key: Key, for_ns: Option<NonZeroU64>) {
        if self.charges.keep(key) {
            let wait_ns = for_ns.map_or(self.budget_ns, NonZeroU64::get).max(1);
            let at_ns = self.clock.now_ns().saturating_add(wait_ns);
            self.rounds.add(at_ns, BackgroundWork::Charges);
        }
    }

    /// Sends charges that have waited.
    pub(super) fn charge_round(self: &Arc<Self>) {
        for key in self.charges.take_some() {
            self.send_charge(key);
        }
        if self.charges.needs_round() {
            self.rounds.add(self.clock.now_ns().saturating_add(1), BackgroundWork::Charges);
        }
    }
}
