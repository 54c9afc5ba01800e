//! Charges of what nodes used beyond their borrowed permits: sent to the store under an id, again
//! until it has replied, and kept until it can be reached.
//!
//! One charge of a key is on its way at a time, and what comes meanwhile is merged. The store
//! remembers an id for ten minutes. A charge without a reply for so long may have been booked, so
//! it is dropped and counted: sent again, it could count twice.
//!
//! Each key waits on its own: as long as its part of the store is known to be closed, or a time
//! that doubles while the store refuses it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{BackgroundWork, Inner};
use crate::clock::Clock;
use crate::store::{Key, ReservationId, Store, StoreError, StoreRequest};

/// The maximum number of keys whose charges wait for the store.
const MAX_WAITING_KEYS: usize = 65_536;
/// The maximum number of charges that one round of background work sends.
const SENT_AT_ONCE: usize = 64;
/// The time after which a charge is not sent again. The store has remembered its id until then,
/// whenever it came; a tenth of the ten minutes is for the last sending, and for clocks that drift.
const SENT_AGAIN_FOR_NS: u64 = 540_000_000_000;
/// The maximum time between two sendings of a charge that the store refuses.
const MAX_WAIT_NS: u64 = 5_000_000_000;

/// The charges of a limiter that wait for the store, merged by key.
#[derive(Debug, Default)]
pub(in crate::distributed) struct Charges {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    by_key: BTreeMap<Key, Waiting>,
    /// The keys whose charge is to be sent, by the instants from which on.
    ready: BTreeSet<(u64, Key)>,
    /// The permits of charges that were not booked, as far as is known.
    dropped: u64,
    /// The instants for which rounds are scheduled.
    scheduled: BTreeSet<u64>,
}

/// The permits that one key owes the store.
#[derive(Debug, Default)]
struct Waiting {
    sent: Option<Sent>,
    /// The permits that have not been sent.
    more: u64,
    /// The last time between two sendings, since the store refuses the charge.
    wait_ns: u64,
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

    /// Returns the time to wait before a refused charge is sent again: twice the last one.
    fn wait_ns(&mut self, key: &Key, budget_ns: u64) -> u64 {
        let Some(waiting) = self.by_key.get_mut(key) else { return budget_ns };
        let longer_ns = waiting.wait_ns.saturating_mul(2).min(MAX_WAIT_NS);
        waiting.wait_ns = longer_ns.max(budget_ns);
        waiting.wait_ns
    }

    /// Forgets the charge of a key that was on its way.
    fn settled(&mut self, key: Key, now_ns: u64) {
        let Some(waiting) = self.by_key.get_mut(&key) else { return };
        (waiting.sent, waiting.wait_ns) = (None, 0);
        if waiting.more > 0 {
            self.ready.insert((now_ns, key));
        } else {
            self.by_key.remove(&key);
        }
    }

    /// Schedules a round for the charge that is due first, and returns its instant, unless another
    /// is by then.
    fn schedule_next(&mut self) -> Option<u64> {
        let due_ns = self.ready.first().map(|&(due_ns, _)| due_ns)?;
        let is_scheduled = self.scheduled.first().is_some_and(|&first_ns| first_ns <= due_ns);
        (!is_scheduled && self.scheduled.insert(due_ns)).then_some(due_ns)
    }
}

impl Charges {
    /// Returns the permits that wait for a reply, and those that were dropped.
    pub(in crate::distributed) fn counts(&self) -> (u64, u64) {
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
                free.insert(Waiting { more: permits.get(), ..Waiting::default() });
                true
            }
        }
    }

    /// Keeps a charge that is to be sent from an instant on.
    fn keep(&self, key: Key, due_ns: u64) {
        self.queue().ready.insert((due_ns, key));
    }

    /// Takes some of the keys whose charge is to be sent by now, for a round.
    fn take_some(&self, now_ns: u64) -> Vec<Key> {
        let mut queue = self.queue();
        queue.scheduled.retain(|&at_ns| at_ns > now_ns);
        let mut some = Vec::new();
        while some.len() < SENT_AT_ONCE
            && queue.ready.first().is_some_and(|&(due_ns, _)| due_ns <= now_ns)
        {
            some.extend(queue.ready.pop_first().map(|(_, key)| key));
        }
        some
    }
}

impl<S: Store, C: Clock + 'static> Inner<S, C> {
    /// Charges permits to the store, now or once it can be reached.
    pub(in crate::distributed) fn charge_later(self: &Arc<Self>, key: Key, permits: u64) {
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
                    let closed_for_ns = inner.watch.closed_for_ns(backend, then_ns);
                    let refused_for_ns = inner.charges.queue().wait_ns(&key, inner.budget_ns);
                    let for_ns = closed_for_ns.or(NonZeroU64::new(refused_for_ns));
                    return inner.send_charge_in(key, for_ns);
                }
                let mut queue = inner.charges.queue();
                if error.is_some() {
                    // It will get no other reply.
                    queue.drop_permits(permits);
                }
                queue.settled(key, then_ns);
                drop(queue);
                inner.schedule_charges();
            }),
        );
    }

    /// Keeps a charge for a later round, of which the time is known or one budget away.
    fn send_charge_in(&self, key: Key, for_ns: Option<NonZeroU64>) {
        let wait_ns = for_ns.map_or(self.budget_ns, NonZeroU64::get).max(1);
        self.charges.keep(key, self.clock.now_ns().saturating_add(wait_ns));
        self.schedule_charges();
    }

    /// Sends charges that have waited.
    pub(in crate::distributed) fn charge_round(self: &Arc<Self>) {
        for key in self.charges.take_some(self.clock.now_ns()) {
            self.send_charge(key);
        }
        self.schedule_charges();
    }

    /// Schedules a round for the charge that is to be sent first, unless one is by then.
    fn schedule_charges(&self) {
        let at_ns = self.charges.queue().schedule_next();
        if let Some(at_ns) = at_ns {
            self.rounds.add(at_ns, BackgroundWork::Charges);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn key(name: &str) -> Key {
        name.as_bytes().into()
    }

    /// A part of the store that is closed for long does not delay charges of the others.
    #[test]
    fn rounds_are_scheduled_for_the_charge_that_is_due_first() {
        let charges = Charges::default();
        let keep = |name, due_ns| {
            charges.keep(key(name), due_ns);
            charges.queue().schedule_next()
        };
        assert_eq!(keep("far", 9_000), Some(9_000));
        assert_eq!(keep("as far", 9_000), None, "one round is for both");
        assert_eq!(keep("near", 20), Some(20));
        assert_eq!(keep("later", 30), None, "the round before schedules the next");
        assert_eq!(charges.take_some(19), []);
        assert_eq!(charges.take_some(20), [key("near")]);
        assert_eq!(charges.queue().schedule_next(), Some(30));
        assert_eq!(charges.take_some(35), [key("later")]);
        assert_eq!(charges.queue().schedule_next(), None, "the far one still is");
        assert_eq!(charges.take_some(9_000), [key("as far"), key("far")]);
        assert_eq!(charges.queue().schedule_next(), None);
        // What is left of a full round has another.
        (0..=SENT_AT_ONCE).for_each(|number| charges.keep(key(&number.to_string()), 9_001));
        assert_eq!(charges.queue().schedule_next(), Some(9_001));
        assert_eq!(charges.take_some(9_001).len(), SENT_AT_ONCE);
        assert_eq!(charges.queue().schedule_next(), Some(9_001));
        assert_eq!(charges.take_some(9_001).len(), 1);
    }

    #[test]
    fn a_refused_charge_is_sent_again_less_and_less_often() {
        let charges = Charges::default();
        let (one, other) = (key("one"), key("other"));
        for key in [&one, &other] {
            assert!(charges.add(key, NonZeroU64::MIN));
        }
        let mut queue = charges.queue();
        for expected_ms in [20, 40, 80, 160, 320, 640, 1_280, 2_560, 5_000, 5_000] {
            assert_eq!(queue.wait_ns(&one, 20 * MS), expected_ms * MS);
        }
        assert_eq!(queue.wait_ns(&other, 20 * MS), 20 * MS, "each key for itself");
        assert_eq!(queue.wait_ns(&one, 9_000 * MS), 9_000 * MS, "a budget at least");
        queue.settled(Key::clone(&one), 1);
        assert_eq!(queue.wait_ns(&one, 20 * MS), 20 * MS, "the store has replied since");
    }
}
