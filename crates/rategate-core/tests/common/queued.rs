//! A line as the law tests drive it: waiters are numbers, and wake-ups are recorded.

use std::collections::BTreeMap;

use rategate_core::ledger::Ledger;
use rategate_core::line::{
    Joined, LeaveOutcome, Line, Outcome, QueueBounds, QueueRejection, Request, WaiterId, Wakes,
};
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

/// The line, and the starts it has granted so far.
pub(crate) struct Queued {
    pub(crate) line: Line<u32>,
    pub(crate) woken: Woken,
    pub(crate) waiter_ids: BTreeMap<u32, (WaiterId, u64)>,
    pub(crate) starts: Starts,
    pub(crate) in_order: Vec<u32>,
}

impl Queued {
    /// Returns a queue whose waiters start at their promised instants, however late they are.
    pub(crate) fn new(limit: Ledger) -> Self {
        let mut queued = Self::taking(limit);
        queued.line.set_promises_instants(0, true, &mut queued.woken);
        queued
    }

    /// Returns a queue whose waiters take, if the limit bounds starts.
    pub(crate) fn taking(limit: Ledger) -> Self {
        Self {
            line: Line::new(limit, QueueBounds::default()),
            woken: Woken::default(),
            waiter_ids: BTreeMap::new(),
            starts: Starts::new(),
            in_order: Vec::new(),
        }
    }

    /// Changes the limit.
    pub(crate) fn change<T>(&mut self, now_ns: u64, change: impl FnOnce(&mut Ledger) -> T) -> T {
        self.line.change(now_ns, &mut self.woken, |limit, _| change(limit))
    }

    pub(crate) fn limit(&self) -> &Ledger {
        self.line.limit()
    }

    pub(crate) fn serve(&mut self, now_ns: u64) {
        self.line.serve(now_ns, &mut self.woken);
        self.gather();
    }

    /// Serves the queue at each due instant up to `now_ns`, and lets each waiter take at once.
    pub(crate) fn pass(&mut self, now_ns: u64) {
        while let Some(next_ns) = self.line.next_ns(None).filter(|&next_ns| next_ns < now_ns) {
            self.take_due(next_ns);
        }
        self.take_due(now_ns);
    }

    /// Serves the queue at `now_ns`, and lets each waiter take whose start has come.
    pub(crate) fn take_due(&mut self, now_ns: u64) {
        self.line.serve(now_ns, &mut self.woken);
        while !self.woken.settled.is_empty() {
            for id in std::mem::take(&mut self.woken.settled) {
                let ended = self.take(now_ns, id);
                assert!(ended.is_some(), "{id} came at once");
            }
        }
    }

    /// Lets a waiter take, and records its start.
    pub(crate) fn take(&mut self, now_ns: u64, id: u32) -> Option<Outcome> {
        let (waiter_id, permits) = self.waiter_ids.get(&id)?;
        let permits = *permits;
        let outcome = self.line.take(now_ns, waiter_id, || id, &mut self.woken)?;
        if let Outcome::Granted(grant) = outcome {
            self.starts.insert(id, (grant.start_ns, permits));
            self.in_order.push(id);
        }
        self.waiter_ids.remove(&id);
        Some(outcome)
    }

    pub(crate) fn gather(&mut self) {
        for id in std::mem::take(&mut self.woken.settled) {
            let (waiter_id, permits) = self.waiter_ids.remove(&id).unwrap();
            if self.line.is_due(&waiter_id) {
                // It takes when it comes.
                self.waiter_ids.insert(id, (waiter_id, permits));
                self.woken.settled.push(id);
                continue;
            }
            match self.line.collect(&waiter_id) {
                Some(Outcome::Granted(grant)) => {
                    self.starts.insert(id, (grant.start_ns, permits));
                    self.in_order.push(id);
                }
                other => panic!("{id}: {other:?}"),
            }
            assert_eq!(self.line.collect(&waiter_id), None, "only once");
        }
    }

    pub(crate) fn join(
        &mut self,
        now_ns: u64,
        id: u32,
        permits: u64,
        max_wait_ns: Option<u64>,
    ) -> Result<(), QueueRejection> {
        self.request(now_ns, id, Request::of(permits).within(max_wait_ns))
    }

    /// Promises one permit, for which its owner will wait.
    ///
    /// Returns the promised start, if there is one that has not come.
    pub(crate) fn promise(&mut self, now_ns: u64, id: u32) -> Option<u64> {
        let Self { line, woken, .. } = self;
        let Ok(Some(Verdict::Granted(grant))) = line.reserve(now_ns, 1, None, woken) else {
            return None;
        };
        let Some(waiter_id) = line.wait_for_promise(now_ns, now_ns, &grant) else {
            self.starts.insert(id, (grant.start_ns, 1));
            return None;
        };
        self.waiter_ids.insert(id, (waiter_id, 1));
        Some(grant.start_ns)
    }

    pub(crate) fn request(
        &mut self,
        now_ns: u64,
        id: u32,
        request: Request,
    ) -> Result<(), QueueRejection> {
        let joined = self.line.join(now_ns, request, || id, &mut self.woken);
        match joined? {
            Joined::Granted(grant) => {
                self.starts.insert(id, (grant.start_ns, request.permits));
                self.in_order.push(id);
            }
            Joined::Waits(waiter_id) => {
                self.waiter_ids.insert(id, (waiter_id, request.permits));
            }
        }
        Ok(())
    }

    pub(crate) fn leave(&mut self, now_ns: u64, id: u32) -> bool {
        let Some((waiter_id, _)) = self.waiter_ids.remove(&id) else { return false };
        // Both calls have the same effect where the second one suffices.
        if id.is_multiple_of(2)
            && let Some(left) = self.line.leave_from_behind(&waiter_id)
        {
            assert_eq!(left, id);
            return true;
        }
        let left = self.line.leave(now_ns, &waiter_id, &mut self.woken);
        self.gather();
        matches!(left, Some(LeaveOutcome::InTime(left)) if left == id)
            || left == Some(LeaveOutcome::Untaken)
    }
}
