//! Provisional grants: permits held for a waiter until it takes them.
//!
//! A waiter that may start at `s` runs at `r`, later than `s` by as much as it was woken late. A
//! bound that holds for promised instants `s` says nothing of the real ones. So a grant to a
//! waiter is held until the waiter takes it: taking decides again at `r` and books there. Until
//! then the permits count, for every other decision at time `t`, as if they started at `t`.
//!
//! ```text
//!   held:   s ~~~~~~~~~~~ r            a decision at t counts the permits as starting at t
//!           |      t      |
//!           due           taken: decided again, and booked at r
//! ```
//!
//! # Contract
//!
//! * **Ceiling.** Real starts obey the policy's bound, however late each waiter is: every instant
//!   that is booked was decided at that instant.
//! * **Nothing lost.** A bucket loses no rate while lateness stays below `(burst - 1) T`. A log
//!   or a bucket of burst 1 loses the lateness itself: `N / (M + d)`.
//! * **Promises.** A reservation whose owner sleeps by itself keeps its instant. A waiter that
//!   comes too late to fit before it starts after it.
//! * **Schedules.** A policy that promises instants on an open schedule needs none of this: see
//!   [`keeps_schedule`](Ledger::keeps_schedule).

use core::num::NonZeroU64;

use super::Ledger;
use crate::policy::Taken;
use crate::verdict::{Grant, Opening, Refusal, Ticket};

/// What a queue of waiters needs of its limit.
impl Ledger {
    /// Returns `true` if all policies here promise instants on an open schedule.
    #[must_use]
    pub fn keeps_schedule(&self) -> bool {
        self.started.keeps_schedule()
    }

    /// Returns `true` if a promise for `start_ns` that a waiter has not taken at `now_ns` is not
    /// kept, because a new caller could not catch up on it either.
    #[must_use]
    pub(crate) fn forfeits(&self, start_ns: u64, now_ns: u64) -> bool {
        let late_ns = now_ns.saturating_sub(start_ns);
        // What the limit's own clock has passed counts as started.
        self.latest_ns < start_ns
            && self.started.most_late_ns().is_some_and(|most_late_ns| late_ns > most_late_ns)
    }

    /// Returns `true` if any policy here counts operations in flight.
    #[must_use]
    pub fn counts_in_flight(&self) -> bool {
        self.started.counts_in_flight()
    }

    /// Returns `true` if a limit here moves by the outcomes of operations.
    #[must_use]
    pub fn follows_outcomes(&self) -> bool {
        self.started.follows_outcomes()
    }

    /// Returns by how much a caller may be late, again and again, without any loss of the rate.
    #[must_use]
    pub fn slack_ns(&self) -> u64 {
        self.started.slack_ns()
    }

    /// Returns `true` if the numbers have changed since `ticket` was issued.
    const fn has_changed_since(&self, ticket: Ticket) -> bool {
        ticket.serial < self.changed_from
    }

    /// Returns how long the newest grant will count, as far as is known; zero where it is not. A
    /// waiter derives from it which lateness is negligible. Of several limits it is the shortest
    /// time, so that the others lose no more by it.
    #[must_use]
    pub fn counts_for_ns(&self) -> u64 {
        let next_ns = |at| {
            let next = self.started.opening(Some(at), self.latest_ns, None, NonZeroU64::MIN).ok();
            next.map_or(0, |next| next.start_ns)
        };
        let spans_ns = self.started.as_slice().iter().enumerate().map(|(at, limit)| {
            // A schedule never fully recovers: what it has started keeps the next one from
            // starting.
            let until_ns = limit.fresh_at_ns().unwrap_or_else(|| next_ns(at));
            until_ns.saturating_sub(self.latest_ns)
        });
        spans_ns.filter(|&span_ns| span_ns > 0).min().unwrap_or(0)
    }

    /// Ends the [holds](crate::holds) whose time is over at `now_ns`.
    pub fn end_holds(&mut self, now_ns: u64) {
        if self.next_end_ns().is_some_and(|end_ns| end_ns <= now_ns) {
            self.pass_to(now_ns);
        }
    }

    /// Advances the clock to `now_ns`: what has started by then can no longer be cancelled.
    pub fn pass_to(&mut self, now_ns: u64) {
        let now_ns = self.clamp(now_ns);
        while let Some(end_ns) = self.next_end_ns().filter(|&end_ns| end_ns <= now_ns) {
            self.start_promises(end_ns);
            self.expire_first();
        }
        self.start_promises(now_ns);
    }

    /// Holds permits for a waiter whose start has come.
    pub fn hold(&mut self, permits: NonZeroU64) {
        self.held = self.held.saturating_add(permits.get());
    }

    /// Drops held permits: their waiter takes them, or has gone away.
    pub fn release_hold(&mut self, permits: NonZeroU64) {
        self.held = self.held.saturating_sub(permits.get());
    }

    /// Makes a promise that has not started provisional: when its start comes, its permits are
    /// held instead of booked. Returns `true` if there was such a promise.
    pub fn hold_promise(&mut self, now_ns: u64, ticket: Ticket) -> bool {
        self.pass_to(now_ns);
        let Some(index) = self.index_of(ticket) else { return false };
        if let Some(promise) = self.promises.get_mut(index) {
            promise.is_provisional = true;
        }
        true
    }

    /// Keeps every later call from starting before `start_ns`.
    pub fn not_before(&mut self, start_ns: u64) {
        self.floor.ns = self.floor.ns.max(start_ns);
    }

    /// Returns when `permits` could start from `from_ns` on, for a request at `now_ns`, even
    /// before promises to others where that disturbs none of them.
    ///
    /// # Errors
    ///
    /// Those of [`opening`](Self::opening).
    pub fn opening_before_promises(
        &self,
        now_ns: u64,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        self.opening_behind_floor(now_ns, from_ns, 0, permits)
    }

    /// Takes permits from `start_ns` on, an instant that [`opening`](Self::opening) has just
    /// returned, without keeping later calls behind it.
    pub fn book_before_promises(
        &mut self,
        now_ns: u64,
        start_ns: u64,
        permits: NonZeroU64,
    ) -> Ticket {
        self.pass_to(now_ns);
        let floor = self.floor;
        // The waiter has waited for the promise: taken in time, it continues from the exact
        // instant that was rounded up.
        let from_ns = self.latest_ns.min(start_ns.saturating_sub(1));
        let ticket = self.record(Taken { from_ns, start_ns, permits });
        self.floor = floor;
        ticket
    }

    /// Books permits that were held until now, for a waiter that made its request at
    /// `requested_ns`, was promised `promised_ns` and starts now. Returns `None` and changes
    /// nothing if they may not start now.
    ///
    /// A promise made by `ticket` under other numbers is not decided again under these.
    pub fn take(
        &mut self,
        now_ns: u64,
        requested_ns: u64,
        promised_ns: u64,
        permits: NonZeroU64,
        ticket: Option<Ticket>,
    ) -> Option<Grant> {
        let now_ns = self.clamp(now_ns);
        let opening = self.opening_before_promises(now_ns, now_ns, permits);
        let opening = match opening.ok().filter(|opening| opening.start_ns <= now_ns) {
            Some(opening) => opening,
            None if ticket.is_some_and(|ticket| self.has_changed_since(ticket)) => {
                Opening::at(now_ns)
            }
            None => return None,
        };
        let ticket = self.book_before_promises(now_ns, now_ns, permits);
        Some(Grant {
            start_ns: now_ns,
            promised_ns: promised_ns.min(now_ns),
            scheduled_ns: opening.scheduled_ns.unwrap_or(requested_ns),
            permits: permits.get(),
            ticket,
        })
    }

    /// Returns a copy in which all held permits start at `now_ns`, to compute later starts from.
    #[must_use]
    pub fn forecast(&self, now_ns: u64) -> Self {
        let mut copy = self.clone();
        // The forecast assumes that all waiters come on time.
        copy.promises.iter_mut().for_each(|promise| promise.is_provisional = false);
        copy.pass_to(now_ns);
        if let Some(permits) = NonZeroU64::new(copy.held) {
            copy.held = 0;
            let start_ns = copy.latest_ns;
            copy.take_started(None, Taken { from_ns: start_ns, start_ns, permits });
            copy.booked = None;
        }
        copy
    }
}
