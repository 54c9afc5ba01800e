//! The oracle of a queue: lists of waiters, and everything worked out anew at each step.

use std::num::NonZeroU64;

use super::queued::{Queued, Starts};
use rategate_core::fair::{ClassId, Rounds};
use rategate_core::ledger::Ledger;

pub(crate) fn n(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

/// A waiter in the oracle: number, instant of joining, permits.
pub(crate) type Waiter = (u32, u64, u64);

/// The oracle: a list for each class, the order of classes, and a limit in which only started
/// requests are booked.
#[derive(Clone)]
pub(crate) struct OracleQueues {
    pub(crate) limit: Ledger,
    pub(crate) rounds: Rounds,
    pub(crate) waiting: Vec<Vec<Waiter>>,
    pub(crate) starts: Starts,
    pub(crate) in_order: Vec<u32>,
}

impl OracleQueues {
    pub(crate) fn new(limit: Ledger, rounds: Rounds) -> Self {
        let waiting = vec![Vec::new(); rounds.classes()];
        Self { limit, rounds, waiting, starts: Starts::new(), in_order: Vec::new() }
    }

    /// Returns the number of waiters.
    pub(crate) fn waiters(&self) -> usize {
        self.waiting.iter().map(Vec::len).sum()
    }

    /// Returns the queues with all waiters started, if no other waiter joins or leaves.
    pub(crate) fn with_all(&self) -> Self {
        let mut all = self.clone();
        all.pass_to(u64::MAX);
        all
    }

    /// Returns the next waiter, as things stand.
    pub(crate) fn next(&mut self) -> Option<(ClassId, Waiter)> {
        let waiting = &self.waiting;
        let first = |class: ClassId| waiting[class.index()].first().copied();
        let class = self.rounds.pick(|class| first(class).map(|(_, _, permits)| n(permits)))?;
        first(class).map(|waiter| (class, waiter))
    }

    /// Joins a waiter. A grant made at once, while no caller waits, is charged to no class.
    pub(crate) fn join(&mut self, now_ns: u64, class: ClassId, (id, permits): (u32, u64)) {
        let is_free = self.waiting.iter().all(Vec::is_empty);
        let opening = self.limit.opening(now_ns, n(permits)).unwrap();
        if is_free && opening.start_ns == now_ns {
            self.limit.promise(now_ns, n(permits)).unwrap();
            self.starts.insert(id, (now_ns, permits));
            self.in_order.push(id);
        } else {
            self.waiting[class.index()].push((id, now_ns, permits));
            self.pass_to(now_ns);
        }
    }

    pub(crate) fn pass_to(&mut self, now_ns: u64) {
        while let Some((class, (id, requested_ns, permits))) = self.next() {
            let mut limit = self.limit.clone();
            let start_ns = limit.promise(requested_ns, n(permits)).unwrap().start_ns;
            if start_ns > now_ns {
                break;
            }
            self.limit = limit;
            self.rounds.charge(class, n(permits));
            self.waiting[class.index()].remove(0);
            self.starts.insert(id, (start_ns, permits));
            self.in_order.push(id);
        }
    }

    /// Returns the start of a waiter if no other waiter joins or leaves.
    pub(crate) fn start_of(&self, id: u32) -> u64 {
        self.with_all().starts[&id].0
    }

    /// Removes a waiter. The limit knows the next waiter, so its leaving is no sooner than now.
    pub(crate) fn leave(&mut self, now_ns: u64, id: u32) -> bool {
        if self.next().is_some_and(|(_, waiter)| waiter.0 == id) {
            self.limit.pass_to(now_ns);
        }
        let before = self.waiters();
        for class in &mut self.waiting {
            class.retain(|waiter| waiter.0 != id);
        }
        self.waiters() < before
    }
}

/// A queue, and its oracle.
pub(crate) struct Both {
    pub(crate) queued: Queued,
    pub(crate) oracle: OracleQueues,
    pub(crate) classes: Vec<ClassId>,
}

impl Both {
    /// Returns the queues of a class of weight 1, and of classes of these weights.
    pub(crate) fn new(limit: Ledger, weights: &[u64]) -> Self {
        let mut queued = Queued::new(limit.clone());
        let mut rounds = Rounds::new();
        let mut classes = vec![rounds.add_class(n(1)).unwrap()];
        for &weight in weights {
            let class = rounds.add_class(n(weight)).unwrap();
            let added = queued.line.add_class(0, n(weight), &mut queued.woken);
            assert_eq!(added, Ok(class));
            classes.push(class);
        }
        Self { queued, oracle: OracleQueues::new(limit, rounds), classes }
    }

    pub(crate) fn pass_to(&mut self, now_ns: u64) {
        self.queued.serve(now_ns);
        self.oracle.pass_to(now_ns);
    }

    /// Lets any of the first callers leave. Returns `true` if it was waiting.
    pub(crate) fn leave(&mut self, now_ns: u64, id: u32) -> bool {
        let has_left = self.queued.leave(now_ns, id);
        assert_eq!(self.oracle.leave(now_ns, id), has_left);
        self.oracle.pass_to(now_ns);
        has_left
    }

    /// Lets all start. They have started when the oracle says, and in its order.
    pub(crate) fn end(&mut self, end_ns: u64, what: &str) {
        self.pass_to(end_ns);
        assert_eq!(self.queued.starts, self.oracle.starts, "{what}");
        assert_eq!(self.queued.in_order, self.oracle.in_order, "{what}");
        assert!(self.queued.line.is_empty(), "{what}");
    }
}
