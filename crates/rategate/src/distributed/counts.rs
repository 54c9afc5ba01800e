//! How many calls were decided by whom.

use std::sync::atomic::{AtomicU64, Ordering};

use super::decision::{By, Decision};

/// How many calls were decided by whom, and how: what a limiter is in the habit of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By the store.
    pub store: Calls,
    /// With borrowed permits, or by a denial that was remembered.
    pub lease: Calls,
    /// With this node's share.
    pub share: Calls,
    /// Without the store, as was said for that.
    pub fallback: Calls,
    /// How often what is in force has changed.
    pub changes: u64,
}

/// Calls of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// How many were granted.
    pub granted: u64,
    /// How many were denied.
    pub denied: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    granted: [AtomicU64; 5],
    denied: [AtomicU64; 5],
    changes: AtomicU64,
}

impl Counters {
    pub(super) fn add(&self, decision: &Decision) {
        let counters = if decision.is_granted() { &self.granted } else { &self.denied };
        if let Some(counter) = counters.get(place(decision.by())) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Counts {
        let calls = |by| Calls {
            granted: read(&self.granted, place(by)),
            denied: read(&self.denied, place(by)),
        };
        Counts {
            store: calls(By::Store),
            lease: calls(By::Lease),
            share: calls(By::Share),
            fallback: calls(By::Fallback),
            changes: self.changes.load(Ordering::Relaxed),
        }
    }
}

const fn place(by: By) -> usize {
    match by {
        By::Store => 0,
        By::Lease => 1,
        By::Share => 2,
        By::Fallback => 3,
        By::Nobody => 4,
    }
}

fn read(counters: &[AtomicU64], place: usize) -> u64 {
    counters.get(place).map_or(0, |counter| counter.load(Ordering::Relaxed))
}
