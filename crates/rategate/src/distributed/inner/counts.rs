//! Counts of calls by the party that decided them.

use std::sync::atomic::{AtomicU64, Ordering};

use super::decision::{DecidedBy, Decision};

/// The calls of a limiter, by the party that decided them and by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Decided by the store.
    pub store: Calls,
    /// Decided with borrowed permits, or by a remembered denial.
    pub lease: Calls,
    /// Decided without the store, by the fallback.
    pub fallback: Calls,
    /// The number of changes of the store's status.
    pub changes: u64,
    /// The permits used beyond a reservation that wait to be charged to the store.
    pub waiting_charges: u64,
    /// The permits used beyond a reservation that the store was not charged, as far as is known.
    pub dropped_charges: u64,
}

/// The calls that one party decided, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Calls {
    /// The number granted.
    pub granted: u64,
    /// The number denied.
    pub denied: u64,
}

#[derive(Debug, Default)]
pub(in crate::distributed) struct Counters {
    granted: [AtomicU64; 4],
    denied: [AtomicU64; 4],
    changes: AtomicU64,
}

impl Counters {
    pub(in crate::distributed) fn add(&self, decision: &Decision) {
        let counters = if decision.is_granted() { &self.granted } else { &self.denied };
        if let Some(counter) = counters.get(index(decision.by())) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(in crate::distributed) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::distributed) fn read(
        &self,
        (waiting_charges, dropped_charges): (u64, u64),
    ) -> Counts {
        let calls = |by| Calls {
            granted: read(&self.granted, index(by)),
            denied: read(&self.denied, index(by)),
        };
        Counts {
            store: calls(DecidedBy::Store),
            lease: calls(DecidedBy::Lease),
            fallback: calls(DecidedBy::Fallback),
            changes: self.changes.load(Ordering::Relaxed),
            waiting_charges,
            dropped_charges,
        }
    }
}

const fn index(by: DecidedBy) -> usize {
    match by {
        DecidedBy::Store => 0,
        DecidedBy::Lease => 1,
        DecidedBy::Fallback => 2,
        DecidedBy::NoPermits => 3,
    }
}

fn read(counters: &[AtomicU64], index: usize) -> u64 {
    counters.get(index).map_or(0, |counter| counter.load(Ordering::Relaxed))
}
