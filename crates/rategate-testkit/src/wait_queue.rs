//! Limits and the line of their waiters: a limiter without its clock and its lock.

use std::collections::BTreeMap;

use rategate_core::all_of::AllOf;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::debt::{Charged, Debt};
use rategate_core::error::{CountsInFlight, ExceedsCapacity, LimitError};
use rategate_core::fair::ClassId;
use rategate_core::holds::{Committed, Hold, HoldVerdict};
use rategate_core::ledger::Ledger;
use rategate_core::line::{
    Joined, LeaveOutcome, Line, Outcome, QueueBounds, QueueRejection, Request, WaiterId, Wakes,
};
use rategate_core::policy::Ending;
use rategate_core::verdict::{Denial, Grant, Ticket, Verdict};

use crate::scenario::Class;

/// A waiter in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Waiter {
    /// The step with this index.
    Step(usize),
    /// The operation of a thread or an arrival.
    Requester(Requester),
}

/// The source of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Requester {
    Thread(usize),
    Arrival(usize),
}

/// Limits, and the line of their waiters.
pub(crate) struct QueuedLimits {
    line: Line<Waiter>,
    waiter_ids: BTreeMap<Waiter, WaiterId>,
    woken: Woken,
    /// Waits that had already ended when their waiter left.
    ended: Vec<(Waiter, Outcome)>,
    debt: Debt,
}

/// The waiters that were woken and have not been reported yet, in order.
#[derive(Default)]
struct Woken(Vec<Waiter>);

impl Wakes<Waiter> for Woken {
    fn settled(&mut self, waiter: Waiter) {
        self.0.push(waiter);
    }

    fn moved(&mut self, waiter: &Waiter) {
        self.0.push(*waiter);
    }
}

/// The reason why a waiter was woken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wake {
    /// The end of the wait.
    Ended(Outcome),
    /// A start that has come: the waiter may take its permits.
    Due,
    /// A start that may have moved.
    Moved,
}

impl QueuedLimits {
    pub(crate) fn new(limits: Ledger, bounds: QueueBounds, classes: &[Class], debt: Debt) -> Self {
        let (mut line, mut woken) = (Line::new(limits, bounds), Woken::default());
        for class in classes {
            // The reader of the file has checked the number of classes.
            let _ = line.add_class(0, class.weight, &mut woken);
        }
        Self { line, waiter_ids: BTreeMap::new(), woken, ended: Vec::new(), debt }
    }

    pub(crate) fn clamp(&self, now_ns: u64) -> u64 {
        self.line.limit().clamp(now_ns)
    }

    /// Returns `true` if waiters take their permits when they come, instead of being granted an
    /// instant ahead.
    pub(crate) fn takes(&self) -> bool {
        self.line.takes()
    }

    /// Returns the most permits that a try could take, which is 0 while there are waiters.
    pub(crate) fn remaining(&mut self, now_ns: u64) -> u64 {
        self.serve(now_ns);
        if self.line.is_empty() { self.line.limit().remaining(now_ns) } else { 0 }
    }

    pub(crate) fn try_acquire(
        &mut self,
        now_ns: u64,
        permits: u64,
    ) -> Result<Verdict, ExceedsCapacity> {
        self.behind_all(now_ns, permits, Verdict::Denied, |limits, now_ns| {
            limits.try_acquire(now_ns, permits)
        })
    }

    pub(crate) fn try_hold(
        &mut self,
        now_ns: u64,
        permits: u64,
        ttl_ns: u64,
    ) -> Result<HoldVerdict, ExceedsCapacity> {
        self.behind_all(now_ns, permits, HoldVerdict::Denied, |limits, now_ns| {
            limits.try_hold(now_ns, permits, ttl_ns)
        })
    }

    pub(crate) fn reserve(
        &mut self,
        now_ns: u64,
        permits: u64,
        max_wait_ns: Option<u64>,
    ) -> Result<Verdict, ExceedsCapacity> {
        self.serve(now_ns);
        let reserved = self.line.reserve(now_ns, permits, max_wait_ns, &mut self.woken)?;
        Ok(reserved.unwrap_or(Verdict::Denied(Denial { retry_after_ns: None })))
    }

    pub(crate) fn peek(
        &mut self,
        now_ns: u64,
        permits: u64,
    ) -> Result<Option<u64>, ExceedsCapacity> {
        self.behind_all(now_ns, permits, |_| None, |limits, now_ns| limits.peek(now_ns, permits))
    }

    pub(crate) fn cancel(&mut self, now_ns: u64, ticket: Ticket) -> bool {
        self.change(now_ns, |limits| limits.cancel(now_ns, ticket))
    }

    pub(crate) fn start_early(&mut self, now_ns: u64, ticket: Ticket) -> bool {
        self.change(now_ns, |limits| limits.start_early(now_ns, ticket))
    }

    pub(crate) fn reconfigure(
        &mut self,
        now_ns: u64,
        policies: &[AnyPolicy],
    ) -> Result<(), LimitError> {
        self.change(now_ns, |limits| {
            limits.reconfigure(now_ns, AllOf::new(policies.iter().copied()))
        })
    }

    pub(crate) fn refill(&mut self, now_ns: u64, permits: u64) -> bool {
        self.change(now_ns, |limits| limits.refill(now_ns, permits))
    }

    /// Ends operations in some way. Returns `true` if the limits count those in flight, or follow
    /// this end.
    pub(crate) fn end(&mut self, now_ns: u64, permits: u64, how: Ending) -> bool {
        let follows = matches!(how, Ending::Of { .. });
        (follows || self.line.limit().counts_in_flight())
            && self.change(now_ns, |limits| limits.end(now_ns, permits, how))
    }

    /// Holds the permits of a grant that has started, until `end_ns`.
    pub(crate) fn hold_grant(&mut self, now_ns: u64, grant: &Grant, end_ns: u64) -> Hold {
        self.line.limit_mut().hold_grant(now_ns, grant, end_ns)
    }

    pub(crate) fn charge(&mut self, now_ns: u64, permits: u64) -> Result<Charged, CountsInFlight> {
        let debt = self.debt;
        self.change(now_ns, |limits| limits.charge(now_ns, permits, debt))
    }

    /// Ends a hold of a caller of `class`, of which `actual` permits were used.
    pub(crate) fn commit(
        &mut self,
        now_ns: u64,
        class: ClassId,
        hold: Hold,
        actual: u64,
    ) -> Committed {
        self.serve(now_ns);
        self.line.commit(now_ns, class, (hold, actual, self.debt), &mut self.woken)
    }

    /// Joins the queue, unless the permits are granted at once. [`wakes`](Self::wakes) reports the
    /// outcome.
    pub(crate) fn wait(
        &mut self,
        now_ns: u64,
        request: Request,
        waiter: Waiter,
    ) -> Result<Option<Grant>, QueueRejection> {
        self.serve(now_ns);
        match self.line.join(now_ns, request, || waiter, &mut self.woken)? {
            Joined::Granted(grant) => Ok(Some(grant)),
            Joined::Waits(waiter_id) => {
                self.waiter_ids.insert(waiter, waiter_id);
                Ok(None)
            }
        }
    }

    /// Withdraws a wait. Returns `true` if it had not ended.
    pub(crate) fn leave(&mut self, now_ns: u64, waiter: Waiter) -> bool {
        self.serve(now_ns);
        let Some(waiter_id) = self.waiter_ids.get(&waiter) else { return false };
        match self.line.leave(now_ns, waiter_id, &mut self.woken) {
            Some(LeaveOutcome::InTime(_) | LeaveOutcome::Untaken) => {
                self.waiter_ids.remove(&waiter);
                true
            }
            Some(LeaveOutcome::Settled(outcome)) => {
                self.waiter_ids.remove(&waiter);
                self.ended.push((waiter, outcome));
                false
            }
            None => false,
        }
    }

    /// Ends the holds whose time is over, and starts every waiter whose start has come.
    pub(crate) fn serve(&mut self, now_ns: u64) {
        self.line.serve(now_ns, &mut self.woken);
    }

    /// Takes the permits of a waiter whose start has come. Returns `None` if it has to wait on.
    pub(crate) fn take(&mut self, now_ns: u64, waiter: Waiter) -> Option<Outcome> {
        self.serve(now_ns);
        let waiter_id = self.waiter_ids.get(&waiter)?;
        let outcome = self.line.take(now_ns, waiter_id, || waiter, &mut self.woken);
        if outcome.is_some() {
            self.waiter_ids.remove(&waiter);
        }
        outcome
    }

    /// Returns the instant until which a waiter has to wait, as far as a clock can tell.
    pub(crate) fn due_ns(&mut self, waiter: Waiter) -> Option<u64> {
        self.line.due_ns(self.waiter_ids.get(&waiter)?, &mut self.woken)
    }

    /// Returns the instant of the next service, as far as a clock can tell.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.line.next_ns(None)
    }

    /// Returns the waiters woken since the last call, in order, each with the reason.
    pub(crate) fn wakes(&mut self) -> Vec<(Waiter, Wake)> {
        let woken = std::mem::take(&mut self.woken.0).into_iter();
        let ended = std::mem::take(&mut self.ended).into_iter();
        ended
            .map(|(waiter, outcome)| (waiter, Wake::Ended(outcome)))
            .chain(woken.filter_map(|waiter| {
                let waiter_id = self.waiter_ids.get(&waiter)?;
                let wake = match self.line.collect(waiter_id) {
                    Some(outcome) => Wake::Ended(outcome),
                    None if self.line.is_due(waiter_id) => Wake::Due,
                    None => Wake::Moved,
                };
                if matches!(wake, Wake::Ended(_)) {
                    self.waiter_ids.remove(&waiter);
                }
                Some((waiter, wake))
            }))
            .collect()
    }

    /// Returns the waiters still in the queue.
    pub(crate) fn waiting(&self) -> Vec<Waiter> {
        self.waiter_ids.keys().copied().collect()
    }

    /// Decides behind all waiters. Denies if one of them waits for an act that no clock foretells.
    fn behind_all<T>(
        &mut self,
        now_ns: u64,
        permits: u64,
        denied: impl FnOnce(Denial) -> T,
        decide: impl FnOnce(&mut Ledger, u64) -> Result<T, ExceedsCapacity>,
    ) -> Result<T, ExceedsCapacity> {
        self.serve(now_ns);
        let decided = self.line.decide(now_ns, permits, &mut self.woken, decide)?;
        Ok(decided.unwrap_or_else(|| denied(Denial { retry_after_ns: None })))
    }

    /// Changes the limits, or returns permits to them.
    fn change<T>(&mut self, now_ns: u64, change: impl FnOnce(&mut Ledger) -> T) -> T {
        self.serve(now_ns);
        self.line.change(now_ns, &mut self.woken, |limits, _| change(limits))
    }
}
