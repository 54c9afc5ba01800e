//! Limits with the line of those who wait for them: what a limiter is without its clock and its lock.
//!
//! Whatever is asked of the limits is asked here, so that it stands behind all who wait, and whatever
//! changes them is seen by those who wait.

use std::collections::BTreeMap;

use rategate_core::any_policy::AnyPolicy;
use rategate_core::error::{DebtError, ExceedsCapacity, LimitError};
use rategate_core::fair::ClassId;
use rategate_core::queue::{Bounds, Joined, Left, Outcome, Place, Queue, Request, Turned, Wakes};
use rategate_core::verdict::{Denial, Grant, Settled, Ticket, Verdict};

use crate::scenario::Class;
use crate::world::Subject;

/// Who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Waiter {
    /// The step of that index.
    Step(usize),
    /// The operation of a thread or an arrival.
    Asker(Asker),
}

/// Who asks for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Asker {
    Thread(usize),
    Arrival(usize),
}

/// Limits, and the line before them.
pub(crate) struct Lined<L> {
    limits: L,
    queue: Queue<Waiter, L>,
    places: BTreeMap<Waiter, Place>,
    woken: Woken,
    /// Waits that had ended when their waiter left.
    ended: Vec<(Waiter, Outcome)>,
}

/// The waiters that have been woken and not told why, in order.
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

/// Why a waiter was woken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wake {
    /// The wait has ended.
    Ended(Outcome),
    /// The waiter may take its permits.
    Due,
    /// The start may have become another one.
    Moved,
}

impl<L: Subject> Lined<L> {
    pub(crate) fn new(limits: L, bounds: Bounds, classes: &[Class]) -> Self {
        let mut queue = Queue::new(bounds);
        for class in classes {
            // Reading the file has shown that there are not too many.
            let _ = queue.add_class(class.weight);
        }
        let (places, woken, ended) = (BTreeMap::new(), Woken::default(), Vec::new());
        Self { limits, queue, places, woken, ended }
    }

    pub(crate) fn clamp(&self, now_ns: u64) -> u64 {
        self.limits.clamp(now_ns)
    }

    /// Whether waiters take their permits when they come, and have not been granted an instant.
    pub(crate) fn takes(&self) -> bool {
        !self.limits.keeps_schedule()
    }

    /// The most permits that a try could take: none before those who wait.
    pub(crate) fn remaining(&mut self, now_ns: u64) -> u64 {
        self.serve(now_ns);
        if self.queue.is_empty() { self.limits.remaining(now_ns) } else { 0 }
    }

    pub(crate) fn try_acquire(
        &mut self,
        now_ns: u64,
        permits: u64,
    ) -> Result<Verdict, ExceedsCapacity> {
        match self.behind_all(now_ns, permits, |limits, now_ns| limits.try_acquire(now_ns, permits))
        {
            Some(tried) => tried,
            None => self.held(now_ns, permits),
        }
    }

    pub(crate) fn reserve(
        &mut self,
        now_ns: u64,
        permits: u64,
        max_wait_ns: Option<u64>,
    ) -> Result<Verdict, ExceedsCapacity> {
        self.serve(now_ns);
        let Self { limits, queue, woken, .. } = self;
        if permits == 0 {
            return limits.reserve(now_ns, permits, max_wait_ns);
        }
        match queue.reserve(limits, now_ns, permits, max_wait_ns, woken) {
            Some(reserved) => reserved,
            None => self.held(now_ns, permits),
        }
    }

    pub(crate) fn peek(
        &mut self,
        now_ns: u64,
        permits: u64,
    ) -> Result<Option<u64>, ExceedsCapacity> {
        match self.behind_all(now_ns, permits, |limits, now_ns| limits.peek(now_ns, permits)) {
            Some(peeked) => peeked,
            None => self.limits.peek(now_ns, permits).map(|_| None),
        }
    }

    pub(crate) fn cancel(&mut self, now_ns: u64, ticket: Ticket) -> bool {
        self.change(now_ns, |limits, _| limits.cancel(now_ns, ticket))
    }

    pub(crate) fn start_early(&mut self, now_ns: u64, ticket: Ticket) -> bool {
        self.change(now_ns, |limits, _| limits.start_early(now_ns, ticket))
    }

    pub(crate) fn reconfigure(
        &mut self,
        now_ns: u64,
        policies: &[AnyPolicy],
    ) -> Result<(), LimitError> {
        self.change(now_ns, |limits, _| limits.reconfigure(now_ns, policies))
    }

    pub(crate) fn refill(&mut self, now_ns: u64, permits: u64) -> bool {
        self.change(now_ns, |limits, _| limits.refill(now_ns, permits))
    }

    pub(crate) fn release(&mut self, now_ns: u64, permits: u64) -> bool {
        self.limits.counts_in_flight()
            && self.change(now_ns, |limits, _| limits.release(now_ns, permits))
    }

    /// Takes permits of a grant back, for the good of whoever waits and of the class that had them.
    pub(crate) fn refund(
        &mut self,
        now_ns: u64,
        class: ClassId,
        grant: &Grant,
        permits: u64,
    ) -> u64 {
        self.change(now_ns, |limits, queue| {
            let back = limits.refund(now_ns, grant, permits);
            queue.settle(class, back, 0);
            back
        })
    }

    /// Makes good for an estimate of somebody of this class.
    pub(crate) fn settle(
        &mut self,
        now_ns: u64,
        class: ClassId,
        grant: &Grant,
        actual: u64,
    ) -> Result<Settled, DebtError> {
        self.change(now_ns, |limits, queue| {
            let settled = limits.settle(now_ns, grant, actual)?;
            queue.settle(class, grant.permits, actual);
            Ok(settled)
        })
    }

    /// Stands in line, unless the permits are there. What comes of it is [told](Self::told).
    pub(crate) fn wait(
        &mut self,
        now_ns: u64,
        request: Request,
        waiter: Waiter,
    ) -> Result<Option<Grant>, Turned> {
        self.serve(now_ns);
        let Self { limits, queue, places, woken, .. } = self;
        match queue.join(limits, now_ns, request, || waiter, woken)? {
            Joined::Granted(grant) => Ok(Some(grant)),
            Joined::Waits(place) => {
                places.insert(waiter, place);
                Ok(None)
            }
        }
    }

    /// Gives a wait up. Returns whether it had not ended.
    pub(crate) fn leave(&mut self, now_ns: u64, waiter: Waiter) -> bool {
        self.serve(now_ns);
        let Some(place) = self.places.get(&waiter) else { return false };
        match self.queue.leave(&mut self.limits, now_ns, place, &mut self.woken) {
            Some(Left::InTime(_) | Left::Untaken) => {
                self.places.remove(&waiter);
                true
            }
            Some(Left::Settled(outcome)) => {
                self.places.remove(&waiter);
                self.ended.push((waiter, outcome));
                false
            }
            None => false,
        }
    }

    /// Lets all start whose starts have come.
    pub(crate) fn serve(&mut self, now_ns: u64) {
        self.queue.serve(&mut self.limits, now_ns, &mut self.woken);
    }

    /// Takes the permits of a waiter whose start has come. `None` if it has to wait on.
    pub(crate) fn take(&mut self, now_ns: u64, waiter: Waiter) -> Option<Outcome> {
        self.serve(now_ns);
        let Self { limits, queue, places, woken, .. } = self;
        let outcome = queue.take(limits, now_ns, places.get(&waiter)?, || waiter, woken);
        if outcome.is_some() {
            places.remove(&waiter);
        }
        self.serve(now_ns);
        outcome
    }

    /// Until when a waiter has to wait, as far as a clock can tell.
    pub(crate) fn due_ns(&mut self, waiter: Waiter) -> Option<u64> {
        let Self { limits, queue, places, woken, .. } = self;
        queue.due_ns(limits, places.get(&waiter)?, woken)
    }

    /// When to serve next, as far as a clock can tell.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.queue.next_ns()
    }

    /// The waiters that have been woken since the last call, in order, and why.
    pub(crate) fn told(&mut self) -> Vec<(Waiter, Wake)> {
        let woken = std::mem::take(&mut self.woken.0).into_iter();
        let ended = std::mem::take(&mut self.ended).into_iter();
        ended
            .map(|(waiter, outcome)| (waiter, Wake::Ended(outcome)))
            .chain(woken.filter_map(|waiter| {
                let place = self.places.get(&waiter)?;
                let wake = match self.queue.collect(place) {
                    Some(outcome) => Wake::Ended(outcome),
                    None if self.queue.is_due(place) => Wake::Due,
                    None => Wake::Moved,
                };
                if matches!(wake, Wake::Ended(_)) {
                    self.places.remove(&waiter);
                }
                Some((waiter, wake))
            }))
            .collect()
    }

    /// Who waits still.
    pub(crate) fn waiting(&self) -> Vec<Waiter> {
        self.places.keys().copied().collect()
    }

    /// Decides something behind all who wait. `None` if one of them waits for an act that no clock
    /// foretells.
    fn behind_all<T>(
        &mut self,
        now_ns: u64,
        permits: u64,
        decide: impl FnOnce(&mut L, u64) -> T,
    ) -> Option<T> {
        self.serve(now_ns);
        let Self { limits, queue, woken, .. } = self;
        if permits == 0 {
            return Some(decide(limits, now_ns));
        }
        queue.behind_all(limits, now_ns, woken, decide)
    }

    fn held(&self, now_ns: u64, permits: u64) -> Result<Verdict, ExceedsCapacity> {
        // More than could ever pass will not pass later either.
        self.limits.peek(now_ns, permits)?;
        Ok(Verdict::Denied(Denial { retry_after_ns: None }))
    }

    /// Changes the limits, or gives them something back. Whoever waits is booked anew.
    fn change<T>(
        &mut self,
        now_ns: u64,
        change: impl FnOnce(&mut L, &mut Queue<Waiter, L>) -> T,
    ) -> T {
        self.serve(now_ns);
        self.queue.unbook(&mut self.limits, now_ns);
        let changed = change(&mut self.limits, &mut self.queue);
        self.serve(now_ns);
        changed
    }
}
