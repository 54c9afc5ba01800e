//! What a store's driver has done, in a few counters.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a store's driver has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Servers that are connected and ready now.
    pub connected: u64,
    /// Questions without an answer now.
    pub open: u64,
    /// Writes that were sent, each a pipeline of one call or more.
    pub rounds: u64,
    /// Calls that were sent.
    pub calls: u64,
    /// Questions that those carried.
    pub questions: u64,
    /// The most questions in one call.
    pub largest_call: u64,
    /// Questions that heard nothing within the budget.
    pub late: u64,
    /// Questions of these that were not even sent, for no answer could have come in time.
    pub shed: u64,
    /// Permits of late grants, and leases, that were sent back.
    pub returned: u64,
    /// Questions refused because too many were without an answer.
    pub refused: u64,
    /// Questions that went out again after a refusal without effect.
    pub resent: u64,
    /// Answers that were lost with their connection.
    pub lost: u64,
    /// Connections made.
    pub connections: u64,
    /// How often the functions were loaded.
    pub loads: u64,
    /// How often the primary, or the slots, were looked for.
    pub searches: u64,
    /// Connections that were tried.
    pub dials: u64,
    /// How often a server was found to answer again: a new connection, or an old one after a silence.
    pub revivals: u64,
    /// Panics of the driver's, after each of which it went on: its stderr says where.
    pub panics: u64,
    /// States that lay too far ahead of the store's clock and count as if everything had just been taken.
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

/// The counters of [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    connected: AtomicU64,
    largest_call: AtomicU64,
    calls: Counter,
    questions: Counter,
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
    pub(crate) fn call(&self, questions: usize) {
        let questions = u64::try_from(questions).unwrap_or(u64::MAX);
        self.calls.one();
        self.questions.add(questions);
        self.largest_call.fetch_max(questions, Ordering::Relaxed);
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
            questions: self.questions.get(),
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
