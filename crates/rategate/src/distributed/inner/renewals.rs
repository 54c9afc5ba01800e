//! Renews permits in flight beyond their lease time, as long as their holder has a guard.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{BackgroundWork, Inner};
use crate::clock::Clock;
use crate::distributed::Distributed;
use crate::process::ProcessBound;
use crate::store::{Key, LeaseId, Store, StoreRequest};

/// A guard that renews permits in flight at each third of their time, and releases them on
/// drop.
///
/// The next renewal makes up for a lost one. If the store stays unavailable for the whole time,
/// the permits have ended, as those of a process that died have.
#[must_use = "dropped, it releases the permits"]
pub struct LeaseGuard<S: Store, C: Clock + Clone + 'static> {
    limiter: Distributed<S, C>,
    serial: u64,
    held: Held,
    /// The creating process: in a forked child the permits are the parent's, and stay held.
    made_here: ProcessBound<()>,
}

/// The lease of a guard.
#[derive(Clone, Debug)]
struct Held {
    key: Key,
    permits: NonZeroU64,
    lease: LeaseId,
}

/// The leases of all guards of a limiter, and the time of each one's next renewal.
#[derive(Debug, Default)]
pub(in crate::distributed) struct Renewals {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: BTreeMap<u64, (u64, Held)>,
    /// The instants and serials of all leases.
    due: BTreeSet<(u64, u64)>,
    next_serial: u64,
    /// The instant scheduled in the rounds.
    round_ns: Option<u64>,
}

impl State {
    fn add(&mut self, at_ns: u64, serial: u64, held: Held) {
        self.held.insert(serial, (at_ns, held));
        self.due.insert((at_ns, serial));
    }

    fn remove(&mut self, serial: u64) {
        if let Some((at_ns, _)) = self.held.remove(&serial) {
            self.due.remove(&(at_ns, serial));
        }
    }

    /// Removes and returns the leases that are due.
    fn take_due(&mut self, now_ns: u64) -> Vec<(u64, Held)> {
        let later = self.due.split_off(&(now_ns.saturating_add(1), 0));
        let due = std::mem::replace(&mut self.due, later);
        due.into_iter()
            .filter_map(|(_, serial)| Some((serial, self.held.remove(&serial)?.1)))
            .collect()
    }

    /// Returns the round to schedule, unless one that is soon enough is known.
    fn next_round(&mut self) -> Option<u64> {
        let first_ns = self.due.first()?.0;
        if self.round_ns.is_some_and(|round_ns| round_ns <= first_ns) {
            return None;
        }
        self.round_ns = Some(first_ns);
        self.round_ns
    }
}

impl Renewals {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store, C: Clock + 'static> Inner<S, C> {
    fn keep(&self, held: Held) -> u64 {
        let at_ns = self.next_renewal_ns();
        let mut state = self.renewals.state();
        let serial = state.next_serial;
        state.next_serial = serial.saturating_add(1);
        state.add(at_ns, serial, held);
        let round_ns = state.next_round();
        drop(state);
        self.add_renewal_round(round_ns);
        serial
    }

    /// Renews the leases that are due.
    pub(in crate::distributed) fn renewal_round(self: &Arc<Self>) {
        let mut state = self.renewals.state();
        state.round_ns = None;
        let due = state.take_due(self.clock.now_ns());
        let next_ns = self.next_renewal_ns();
        for (serial, held) in &due {
            state.add(next_ns, *serial, held.clone());
        }
        let round_ns = state.next_round();
        drop(state);
        self.add_renewal_round(round_ns);
        for (_, Held { key, permits, lease }) in due {
            let plan = Arc::clone(&self.store_plan);
            self.store.submit(StoreRequest::Renew { plan, key, permits, lease }, Box::new(|_| ()));
        }
    }

    fn next_renewal_ns(&self) -> u64 {
        let held_ns = self.held_ns.map_or(u64::MAX, NonZeroU64::get);
        self.clock.now_ns().saturating_add((held_ns / 3).max(1))
    }

    fn add_renewal_round(&self, at_ns: Option<u64>) {
        if let Some(at_ns) = at_ns {
            self.rounds.add(at_ns, BackgroundWork::Renewals);
        }
    }
}

impl<S: Store, C: Clock + Clone + 'static> Distributed<S, C> {
    /// Keeps [held](Self::hold) permits for as long as the guard lives.
    ///
    /// It renews them at each third of their time, and releases them when it is dropped. The first
    /// guard starts the limiter's thread, unless it is [unattended](crate::distributed::Builder::unattended).
    pub fn keep(&self, key: &[u8], permits: NonZeroU64, lease: LeaseId) -> LeaseGuard<S, C> {
        self.attend_in_background();
        let held = Held { key: Key::from(key), permits, lease };
        let serial = self.inner().keep(held.clone());
        LeaseGuard { limiter: self.clone(), serial, held, made_here: ProcessBound::new(()) }
    }
}

impl<S: Store, C: Clock + Clone + 'static> Drop for LeaseGuard<S, C> {
    fn drop(&mut self) {
        if self.made_here.get().is_none() {
            return;
        }
        self.limiter.inner().renewals.state().remove(self.serial);
        let Held { key, permits, lease } = &self.held;
        // Sent, and not awaited. If the request is lost, the lease expires by itself.
        drop(self.limiter.release(key, *permits, *lease));
    }
}

impl<S: Store, C: Clock + Clone + 'static> fmt::Debug for LeaseGuard<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseGuard").field("held", &self.held).finish_non_exhaustive()
    }
}
