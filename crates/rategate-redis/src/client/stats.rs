//! Counters of a store's driver.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a store's driver since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The number of servers that are connected and ready now.
    pub connected: u64,
    /// The number of requests without a reply now.
    pub open: u64,
    /// The number of writes sent, each a pipeline of one call or more.
    pub rounds: u64,
    /// The number of calls sent.
    pub calls: u64,
    /// The number of requests carried by those calls.
    pub requests: u64,
    /// The largest number of requests that one call carried.
    pub largest_call: u64,
    /// The number of requests that received no reply within the budget.
    pub late: u64,
    /// The number of late requests that were not sent, since no reply could have come in time.
    pub shed: u64,
    /// The number of refunds and releases sent for late grants.
    pub returned: u64,
    /// The number of requests refused because too many awaited a reply.
    pub refused: u64,
    /// The number of requests sent again: after a refusal without effect, or, where a request
    /// counts once under its id, after its reply was lost.
    pub resent: u64,
    /// The number of replies lost with their connection.
    pub lost: u64,
    /// The number of connections made.
    pub connections: u64,
    /// The number of times the functions were loaded.
    pub loads: u64,
    /// The number of searches for the primary, or for the owners of the slots.
    pub searches: u64,
    /// The number of connection attempts.
    pub dials: u64,
    /// The number of times a server was found to answer again: by a new connection, or after a
    /// silence.
    pub revivals: u64,
    /// The number of panics of the driver, after each of which it restarted. Its stderr names the
    /// location.
    pub panics: u64,
    /// The number of states that lay too far ahead of the store's clock. They count as if all
    /// permits had just been taken.
    pub corrected: u64,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn one(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, number: u64) {
        if number > 0 {
            self.0.fetch_add(number, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    connected: AtomicU64,
    largest_call: AtomicU64,
    calls: Counter,
    requests: Counter,
    pub(crate) rounds: Counter,
    pub(crate) late: Counter,
    pub(crate) shed: Counter,
    pub(crate) returned: Counter,
    pub(crate) refused: Counter,
    pub(crate) resent: Counter,
    pub(crate) lost: Counter,
    pub(crate) connections: Counter,
    pub(crate) loads: Counter,
    pub(crate) searches: Counter,
    pub(crate) dials: Counter,
    pub(crate) revivals: Counter,
    pub(crate) panics: Counter,
    pub(crate) corrected: Counter,
}

impl Counters {
    pub(crate) fn call(&self, requests: usize) {
        let requests = u64::try_from(requests).unwrap_or(u64::MAX);
        self.calls.one();
        self.requests.add(requests);
        self.largest_call.fetch_max(requests, Ordering::Relaxed);
    }

    pub(crate) fn connected(&self, servers: usize) {
        self.connected.store(u64::try_from(servers).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn read(&self, open: usize) -> Stats {
        Stats {
            connected: self.connected.load(Ordering::Relaxed),
            open: u64::try_from(open).unwrap_or(u64::MAX),
            rounds: self.rounds.get(),
            calls: self.calls.get(),
            requests: self.requests.get(),
            largest_call: self.largest_call.load(Ordering::Relaxed),
            late: self.late.get(),
            shed: self.shed.get(),
            returned: self.returned.get(),
            refused: self.refused.get(),
            resent: self.resent.get(),
            lost: self.lost.get(),
            connections: self.connections.get(),
            loads: self.loads.get(),
            searches: self.searches.get(),
            dials: self.dials.get(),
            revivals: self.revivals.get(),
            panics: self.panics.get(),
            corrected: self.corrected.get(),
        }
    }
}
