//! The event queue: events by their instants, and at one instant in the order of their causes.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::store::{Reply, Request};

/// An event of a run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A node begins, for the first time or again.
    Start { node: u32 },
    /// Calls come to a node.
    Calls { node: u32, calls: u32 },
    /// A node runs its timers.
    Wake { node: u32 },
    /// A request reaches the store.
    AtStore { node: u32, number: u64, request: Request },
    /// A reply reaches its node.
    AtNode { node: u32, number: u64, reply: Reply },
    /// A node stops waiting for a reply.
    GiveUp { node: u32, number: u64 },
    /// A fault of the plan begins.
    Begins { fault: usize },
    /// A fault of the plan ends.
    Ends { fault: usize },
}

/// The events to come.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: BinaryHeap<Reverse<Entry>>,
    caused: u64,
}

#[derive(Debug)]
struct Entry {
    at_ns: u64,
    number: u64,
    event: Event,
}

impl Queue {
    pub(super) fn push(&mut self, at_ns: u64, event: Event) {
        self.caused = self.caused.saturating_add(1);
        self.entries.push(Reverse(Entry { at_ns, number: self.caused, event }));
    }

    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        self.entries.pop().map(|Reverse(entry)| (entry.at_ns, entry.event))
    }

    /// Returns the number of events so far.
    pub(super) const fn caused(&self) -> u64 {
        self.caused
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}
