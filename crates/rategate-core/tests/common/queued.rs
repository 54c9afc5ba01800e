//! A queue with its limit, as the law tests drive it: waiters are numbers, and wake-ups are
//! recorded.

use std::collections::BTreeMap;

use rategate_core::provisional::Provisional;
use rategate_core::queue::{Bounds, Joined, Left, Outcome, Place, Queue, Request, Turned, Wakes};
use rategate_core::verdict::Verdict;

/// The recorded wake-ups, by the numbers of the waiters.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    pub(crate) settled: Vec<u32>,
    pub(crate) moved: Vec<u32>,
}

impl Wakes<u32> for Woken {
    fn settled(&mut self, id: u32) {
        self.settled.push(id);
    }

    fn moved(&mut self, id: &u32) {
        self.moved.push(*id);
    }
}

/// The starts and permits of requests, by number.
pub(crate) type Starts = BTreeMap<u32, (u64, u64)>;

/// The queue, its limit, and the starts it has granted so far.
pub(crate) struct Queued<L> {
    pub(crate) limit: L,
    pub(crate) queue: Queue<u32, L>,
    pub(crate) woken: Woken,
    pub(crate) places: BTreeMap<u32, (Place, u64)>,
    pub(crate) starts: Starts,
    pub(crate) in_order: Vec<u32>,
}

impl<L: Provisional> Queued<L> {
    /// Returns a queue whose waiters start at their promised instants, however late they are.
    pub(crate) fn new(limit: L) -> Self {
        let mut queued = Self::taking(limit);
        queued.queue.set_promises_instants(true);
        queued
    }

    /// Returns a queue whose waiters take, if the limit bounds starts.
    pub(crate) fn taking(limit: L) -> Self {
        Self {
            limit,
            queue: Queue::new(Bounds::default()),
            woken: Woken::default(),
            places: BTreeMap::new(),
            starts: Starts::new(),
            in_order: Vec::new(),
        }
    }

    pub(crate) fn serve(&mut self, now_ns: u64) {
        self.queue.serve(&mut self.limit, now_ns, &mut self.woken);
        self.gather();
    }

    /// Serves the queue at each due instant up to `now_ns`, and lets each waiter take at once.
    pub(crate) fn pass(&mut self, now_ns: u64) {
        while let Some(next_ns) = self.queue.next_ns().filter(|&next_ns| next_ns < now_ns) {
            self.take_due(next_ns);
        }
        self.take_due(now_ns);
    }

    /// Serves the queue at `now_ns`, and lets each waiter take whose start has come.
    pub(crate) fn take_due(&mut self, now_ns: u64) {
        self.queue.serve(&mut self.limit, now_ns, &mut self.woken);
        while !self.woken.settled.is_empty() {
            for id in std::mem::take(&mut self.woken.settled) {
                let ended = self.take(now_ns, id);
                assert!(ended.is_some(), "{id} came at once");
            }
            self.queue.serve(&mut self.limit, now_ns, &mut self.woken);
        }
    }

    /// Lets a waiter take, and records its start.
    pub(crate) fn take(&mut self, now_ns: u64, id: u32) -> Option<Outcome> {
        let (place, permits) = self.places.get(&id)?;
        let permits = *permits;
        let Self { queue, limit, woken, .. } = self;
        let outcome = queue.take(limit, now_ns, place, || id, woken)?;
        if let Outcome::Granted(grant) = outcome {
            self.starts.insert(id, (grant.start_ns, permits));
            self.in_order.push(id);
        }
        self.places.remove(&id);
        Some(outcome)
    }

    pub(crate) fn gather(&mut self) {
        for id in std::mem::take(&mut self.woken.settled) {
            let (place, permits) = self.places.remove(&id).unwrap();
            if self.queue.is_due(&place) {
                // It takes when it comes.
                self.places.insert(id, (place, permits));
                self.woken.settled.push(id);
                continue;
            }
            match self.queue.collect(&place) {
                Some(Outcome::Granted(grant)) => {
                    self.starts.insert(id, (grant.start_ns, permits));
                    self.in_order.push(id);
                }
                other => panic!("{id}: {other:?}"),
            }
            assert_eq!(self.queue.collect(&place), None, "only once");
        }
    }

    pub(crate) fn join(
        &mut self,
        now_ns: u64,
        id: u32,
        permits: u64,
        max_wait_ns: Option<u64>,
    ) -> Result<(), Turned> {
        self.ask(now_ns, id, Request::of(permits).within(max_wait_ns))
    }

    /// Promises one permit, for which its owner will wait.
    ///
    /// Returns the promised start, if there is one that has not come.
    pub(crate) fn promise(&mut self, now_ns: u64, id: u32) -> Option<u64> {
        let Self { queue, limit, woken, .. } = self;
        let Some(Ok(Verdict::Granted(grant))) = queue.reserve(limit, now_ns, 1, None, woken) else {
            return None;
        };
        let Some(place) = queue.wait_for_promise(limit, now_ns, now_ns, &grant) else {
            self.starts.insert(id, (grant.start_ns, 1));
            return None;
        };
        self.places.insert(id, (place, 1));
        Some(grant.start_ns)
    }

    pub(crate) fn ask(&mut self, now_ns: u64, id: u32, request: Request) -> Result<(), Turned> {
        let joined = self.queue.join(&mut self.limit, now_ns, request, || id, &mut self.woken);
        match joined? {
            Joined::Granted(grant) => {
                self.starts.insert(id, (grant.start_ns, request.permits));
                self.in_order.push(id);
            }
            Joined::Waits(place) => drop(self.places.insert(id, (place, request.permits))),
        }
        Ok(())
    }

    pub(crate) fn leave(&mut self, now_ns: u64, id: u32) -> bool {
        let Some((place, _)) = self.places.remove(&id) else { return false };
        // Both calls have the same effect where the second one suffices.
        if id.is_multiple_of(2)
            && let Some(left) = self.queue.leave_from_behind(&place)
        {
            assert_eq!(left, id);
            return true;
        }
        let left = self.queue.leave(&mut self.limit, now_ns, &place, &mut self.woken);
        self.gather();
        matches!(left, Some(Left::InTime(left)) if left == id) || left == Some(Left::Untaken)
    }
}
