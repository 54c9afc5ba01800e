//! Limits with the line of those who wait for them: what a limiter is without its clock and its lock.
//!
//! Whatever is asked of the limits is asked here, so that it stands behind all who wait, and whatever
//! changes them is seen by those who wait.

use std::collections::BTreeMap;

use rategate_core::any_policy::AnyPolicy;
use rategate_core::error::{ExceedsCapacity, LimitError};
use rategate_core::queue::{Bounds, Joined, Outcome, Place, Queue, Request, Turned, Wakes};
use rategate_core::verdict::{Denial, Grant, Ticket, Verdict};

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
    settled: Settled,
}

/// Whose waits have ended, in order, and who has not been told.
#[derive(Default)]
struct Settled(Vec<Waiter>);

impl Wakes<Waiter> for Settled {
    fn settled(&mut self, waiter: Waiter) {
        self.0.push(waiter);
    }

    /// Nobody here has been told a start that might become another.
    fn moved(&mut self, _waiter: &Waiter) {}
}

impl<L: Subject> Lined<L> {
    pub(crate) fn new(limits: L, bounds: Bounds) -> Self {
        let (places, settled) = (BTreeMap::new(), Settled::default());
        Self { limits, queue: Queue::new(bounds), places, settled }
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
        self.change(now_ns, |limits| limits.reconfigure(now_ns, policies))
    }

    pub(crate) fn refill(&mut self, now_ns: u64, permits: u64) -> bool {
        self.change(now_ns, |limits| limits.refill(now_ns, permits))
    }

    pub(crate) fn release(&mut self, now_ns: u64, permits: u64) -> bool {
        self.change(now_ns, |limits| limits.release(now_ns, permits))
    }

    /// Stands in line, unless the permits are there. What comes of it is among those who have
    /// [ended](Self::ended).
    pub(crate) fn wait(
        &mut self,
        now_ns: u64,
        permits: u64,
        max_wait_ns: Option<u64>,
        waiter: Waiter,
    ) -> Result<Option<Grant>, Turned> {
        self.serve(now_ns);
        let Self { limits, queue, places, settled } = self;
        let request = Request::of(permits).within(max_wait_ns);
        match queue.join(limits, now_ns, request, || waiter, settled)? {
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
        if self.settled.0.contains(&waiter) {
            return false;
        }
        let Some(place) = self.places.remove(&waiter) else { return false };
        self.queue.leave(&mut self.limits, now_ns, &place, &mut self.settled).is_some()
    }

    /// Grants all whose starts have come.
    pub(crate) fn serve(&mut self, now_ns: u64) {
        self.queue.serve(&mut self.limits, now_ns, &mut self.settled);
    }

    /// When to serve next, as far as a clock can tell.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.queue.next_ns()
    }

    /// Whose waits have ended since the last call, in order, and how.
    pub(crate) fn ended(&mut self) -> Vec<(Waiter, Outcome)> {
        let settled = std::mem::take(&mut self.settled.0).into_iter();
        settled
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
        let Self { limits, queue, settled, .. } = self;
        permits > 0 && !queue.is_empty() && queue.is_held(limits, settled)
    }

    fn held(&self, now_ns: u64, permits: u64) -> Result<Verdict, ExceedsCapacity> {
        // More than could ever pass will not pass later either.
        self.limits.peek(now_ns, permits)?;
        Ok(Verdict::Denied(Denial { retry_after_ns: None }))
    }

    /// Changes the limits, or gives them something back. Whoever waits is booked anew.
    fn change<T>(&mut self, now_ns: u64, change: impl FnOnce(&mut L) -> T) -> T {
        self.serve(now_ns);
        self.queue.unbook(&mut self.limits, now_ns);
        let changed = change(&mut self.limits);
        self.serve(now_ns);
        changed
    }
}
