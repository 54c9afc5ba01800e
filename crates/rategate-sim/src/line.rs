//! Limits with the line of those who wait for them: what a limiter is without its clock and its lock.
//!
//! Whatever is asked of the limits is asked here, so that it stands behind all who wait, and whatever
//! changes them is seen by those who wait.

use std::collections::BTreeMap;

use rategate_core::any_policy::AnyPolicy;
use rategate_core::error::{DebtError, ExceedsCapacity, LimitError};
use rategate_core::fair::ClassId;
use rategate_core::queue::{Bounds, Joined, Outcome, Place, Queue, Request, Turned, Wakes};
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
    queue: Queue<Waiter>,
    places: BTreeMap<Waiter, Place>,
    ended: Ended,
}

/// Whose waits have ended, in order, and who has not been told.
#[derive(Default)]
struct Ended(Vec<Waiter>);

impl Wakes<Waiter> for Ended {
    fn settled(&mut self, waiter: Waiter) {
        self.0.push(waiter);
    }

    /// Nobody here has been told a start that might become another.
    fn moved(&mut self, _waiter: &Waiter) {}
}

impl<L: Subject> Lined<L> {
    pub(crate) fn new(limits: L, bounds: Bounds, classes: &[Class]) -> Self {
        let mut queue = Queue::new(bounds);
        for class in classes {
            // Reading the file has shown that there are not too many.
            let _ = queue.add_class(class.weight);
        }
        Self { limits, queue, places: BTreeMap::new(), ended: Ended::default() }
    }

    pub(crate) fn clamp(&self, now_ns: u64) -> u64 {
        self.limits.clamp(now_ns)
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
        if self.is_held_for(now_ns, permits) {
            return self.held(now_ns, permits);
        }
        self.limits.try_acquire(now_ns, permits)
    }

    pub(crate) fn reserve(
        &mut self,
        now_ns: u64,
        permits: u64,
        max_wait_ns: Option<u64>,
    ) -> Result<Verdict, ExceedsCapacity> {
        if self.is_held_for(now_ns, permits) {
            return self.held(now_ns, permits);
        }
        self.limits.reserve(now_ns, permits, max_wait_ns)
    }

    pub(crate) fn peek(
        &mut self,
        now_ns: u64,
        permits: u64,
    ) -> Result<Option<u64>, ExceedsCapacity> {
        let held = self.is_held_for(now_ns, permits);
        let wait_ns = self.limits.peek(now_ns, permits)?;
        Ok(wait_ns.filter(|_| !held))
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
        self.change(now_ns, |limits, _| limits.release(now_ns, permits))
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

    /// Stands in line, unless the permits are there. What comes of it is among those who have
    /// [ended](Self::ended).
    pub(crate) fn wait(
        &mut self,
        now_ns: u64,
        request: Request,
        waiter: Waiter,
    ) -> Result<Option<Grant>, Turned> {
        self.serve(now_ns);
        let Self { limits, queue, places, ended } = self;
        match queue.join(limits, now_ns, request, || waiter, ended)? {
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
        if self.ended.0.contains(&waiter) {
            return false;
        }
        let Some(place) = self.places.remove(&waiter) else { return false };
        self.queue.leave(&mut self.limits, now_ns, &place, &mut self.ended).is_some()
    }

    /// Grants all whose starts have come.
    pub(crate) fn serve(&mut self, now_ns: u64) {
        self.queue.serve(&mut self.limits, now_ns, &mut self.ended);
    }

    /// When to serve next, as far as a clock can tell.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.queue.next_ns()
    }

    /// Whose waits have ended since the last call, in order, and how.
    pub(crate) fn ended(&mut self) -> Vec<(Waiter, Outcome)> {
        let ended = std::mem::take(&mut self.ended.0).into_iter();
        ended
            .filter_map(|waiter| {
                let place = self.places.remove(&waiter)?;
                Some((waiter, self.queue.collect(&place)?))
            })
            .collect()
    }

    /// Who waits still.
    pub(crate) fn waiting(&self) -> Vec<Waiter> {
        self.places.keys().copied().collect()
    }

    /// Whether somebody who asks for `permits` now stands behind one who waits for an act that no
    /// clock foretells. Otherwise all who wait are booked, and he stands behind them.
    fn is_held_for(&mut self, now_ns: u64, permits: u64) -> bool {
        self.serve(now_ns);
        let Self { limits, queue, ended, .. } = self;
        permits > 0 && !queue.is_empty() && queue.is_held(limits, ended)
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
        change: impl FnOnce(&mut L, &mut Queue<Waiter>) -> T,
    ) -> T {
        self.serve(now_ns);
        self.queue.unbook(&mut self.limits, now_ns);
        let changed = change(&mut self.limits, &mut self.queue);
        self.serve(now_ns);
        changed
    }
}
