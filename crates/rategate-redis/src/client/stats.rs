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

#[derive(Debug, Default)]
pub(crate) struct Counters {
    connected: AtomicU64,
    rounds: AtomicU64,
    calls: AtomicU64,
    questions: AtomicU64,
    largest_call: AtomicU64,
    late: AtomicU64,
    shed: AtomicU64,
    returned: AtomicU64,
    refused: AtomicU64,
    resent: AtomicU64,
    lost: AtomicU64,
    connections: AtomicU64,
    loads: AtomicU64,
    searches: AtomicU64,
    dials: AtomicU64,
    revivals: AtomicU64,
    panics: AtomicU64,
    corrected: AtomicU64,
}

impl Counters {
    pub(crate) fn round(&self) {
        add(&self.rounds, 1);
    }

    pub(crate) fn call(&self, questions: usize) {
        let questions = u64::try_from(questions).unwrap_or(u64::MAX);
        add(&self.calls, 1);
        add(&self.questions, questions);
        self.largest_call.fetch_max(questions, Ordering::Relaxed);
    }

    pub(crate) fn connected(&self, servers: usize) {
        self.connected.store(u64::try_from(servers).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn late(&self) {
        add(&self.late, 1);
    }

    pub(crate) fn shed(&self) {
        add(&self.shed, 1);
    }

    pub(crate) fn returned(&self) {
        add(&self.returned, 1);
    }

    pub(crate) fn refused(&self) {
        add(&self.refused, 1);
    }

    pub(crate) fn resent(&self) {
        add(&self.resent, 1);
    }

    pub(crate) fn lost(&self) {
        add(&self.lost, 1);
    }

    pub(crate) fn connection(&self) {
        add(&self.connections, 1);
    }

    pub(crate) fn dial(&self) {
        add(&self.dials, 1);
    }

    pub(crate) fn revival(&self) {
        add(&self.revivals, 1);
    }

    pub(crate) fn revivals(&self) -> u64 {
        self.revivals.load(Ordering::Relaxed)
    }

    pub(crate) fn panic(&self) {
        add(&self.panics, 1);
    }

    pub(crate) fn load(&self) {
        add(&self.loads, 1);
    }

    pub(crate) fn search(&self) {
        add(&self.searches, 1);
    }

    pub(crate) fn corrected(&self, states: u64) {
        if states > 0 {
            add(&self.corrected, states);
        }
    }

    pub(crate) fn read(&self, open: usize) -> Stats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            connected: of(&self.connected),
            open: u64::try_from(open).unwrap_or(u64::MAX),
            rounds: of(&self.rounds),
            calls: of(&self.calls),
            questions: of(&self.questions),
            largest_call: of(&self.largest_call),
            shed: of(&self.shed),
            late: of(&self.late),
            returned: of(&self.returned),
            refused: of(&self.refused),
            resent: of(&self.resent),
            lost: of(&self.lost),
            connections: of(&self.connections),
            loads: of(&self.loads),
            searches: of(&self.searches),
            dials: of(&self.dials),
            revivals: of(&self.revivals),
            panics: of(&self.panics),
            corrected: of(&self.corrected),
        }
    }
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}
