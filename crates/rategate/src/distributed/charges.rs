//! Charges of what nodes used beyond their borrowed permits: sent to the store, or kept until it
//! can be reached.
//!
//! A charge is sent once. One whose outcome is unknown may have been booked, so it is dropped and
//! counted: sent again, it could count twice.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::inner::{BackgroundWork, Inner};
use crate::clock::Clock;
use crate::store::{Key, Store, StoreRequest};

/// The maximum number of keys whose charges wait for the store.
const MAX_WAITING_KEYS: usize = 65_536;
/// The maximum number of charges that one round of background work sends.
const SENT_AT_ONCE: usize = 64;

/// The charges of a limiter that wait for the store, merged by key.
#[derive(Debug, Default)]
pub(super) struct Charges {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    by_key: BTreeMap<Key, u64>,
    /// The permits of charges that were not booked, as far as is known.
    dropped: u64,
    /// Set while a round is scheduled.
    is_scheduled: bool,
}

impl Charges {
    /// Returns the permits that wait, and those that were dropped.
    pub(super) fn counts(&self) -> (u64, u64) {
        let queue = self.queue();
        (queue.by_key.values().fold(0, |sum, permits| sum.saturating_add(*permits)), queue.dropped)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds permits to the charge of a key. Returns `true` if a round has to be scheduled.
    fn keep(&self, key: Key, permits: u64) -> bool {
        let mut queue = self.queue();
        let is_full = queue.by_key.len() >= MAX_WAITING_KEYS;
        match queue.by_key.entry(key) {
            Entry::Occupied(mut known) => {
                *known.get_mut() = known.get().saturating_add(permits);
            }
            Entry::Vacant(_) if is_full => queue.dropped = queue.dropped.saturating_add(permits),
            Entry::Vacant(free) => {
                free.insert(permits);
            }
        }
        !std::mem::replace(&mut queue.is_scheduled, true)
    }

    fn drop_permits(&self, permits: u64) {
        let mut queue = self.queue();
        queue.dropped = queue.dropped.saturating_add(permits);
    }

    /// Takes some of the charges, for a round.
    fn take_some(&self) -> Vec<(Key, u64)> {
        let mut queue = self.queue();
        queue.is_scheduled = false;
        let mut taken = Vec::new();
        while taken.len() < SENT_AT_ONCE
            && let Some(first) = queue.by_key.pop_first()
        {
            taken.push(first);
        }
        taken
    }

    /// Returns `true` if charges wait and no round is scheduled, which one is from now on.
    fn needs_round(&self) -> bool {
        let mut queue = self.queue();
        !queue.by_key.is_empty() && !std::mem::replace(&mut queue.is_scheduled, true)
    }
}

impl<S: Store, C: Clock + 'static> Inner<S, C> {
    /// Charges permits to the store, now or once it can be reached.
    pub(super) fn charge_later(self: &Arc<Self>, key: Key, permits: u64) {
        if permits == 0 {
            return;
        }
        let now_ns = self.clock.now_ns();
        let backend = self.store.backend_of(&key);
        if let Err(for_ns) = self.watch.pass(backend, now_ns, self.store.revivals(backend)) {
            if self.charges.keep(key, permits) {
                let wait_ns = for_ns.map_or(self.budget_ns, std::num::NonZeroU64::get).max(1);
                self.rounds.add(now_ns.saturating_add(wait_ns), BackgroundWork::Charges);
            }
            return;
        }
        let (plan, debt) = (Arc::clone(&self.store_plan), self.debt);
        let inner = Arc::clone(self);
        let request = StoreRequest::Charge { plan, key, permits, debt };
        self.store.submit(
            request,
            Box::new(move |answer| {
                let is_booked = answer.is_ok();
                let now_then_ns = inner.clock.now_ns();
                let (_, change) = inner.watch.received(backend, now_ns, now_then_ns, answer);
                inner.report_change(change);
                if !is_booked {
                    inner.charges.drop_permits(permits);
                } else if inner.charges.needs_round() {
                    inner.rounds.add(now_then_ns, BackgroundWork::Charges);
                }
            }),
        );
    }

    /// Sends charges that have waited.
    pub(super) fn charge_round(self: &Arc<Self>) {
        for (key, permits) in self.charges.take_some() {
            self.charge_later(key, permits);
        }
        if self.charges.needs_round() {
            self.rounds.add(self.clock.now_ns().saturating_add(1), BackgroundWork::Charges);
        }
    }
}
