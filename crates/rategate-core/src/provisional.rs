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
//!   [`keeps_schedule`](Provisional::keeps_schedule).

use core::num::NonZeroU64;

use crate::limit::Limit;
use crate::verdict::{Grant, Opening, Refusal, Ticket};

/// A live limit that can hold permits for a waiter until it takes them.
pub trait Provisional: Limit + Clone {
    /// Returns `true` if all policies here promise instants on an open schedule.
    fn keeps_schedule(&self) -> bool;

    /// Returns `true` if any policy here counts operations in flight.
    fn counts_in_flight(&self) -> bool;

    /// Returns `true` if a limit here moves by the outcomes of operations.
    fn follows_outcomes(&self) -> bool {
        false
    }

    /// Returns how long the newest grant will count, as far as the policy knows; zero where it
    /// does not. A waiter derives from it which lateness is negligible.
    fn counts_for_ns(&self) -> u64 {
        0
    }

    /// Holds permits for a waiter whose start has come.
    fn hold(&mut self, permits: NonZeroU64);

    /// Drops held permits: their waiter takes them, or has gone away.
    fn release_hold(&mut self, permits: NonZeroU64);

    /// Makes a promise that has not started provisional: when its start comes, its permits are
    /// held instead of booked. Returns `true` if there was such a promise.
    fn hold_promise(&mut self, now_ns: u64, ticket: Ticket) -> bool;

    /// Keeps every later call from starting before `start_ns`.
    fn not_before(&mut self, start_ns: u64);

    /// Takes permits from `start_ns` on, an instant that [`Limit::opening`] has just returned,
    /// without keeping later calls behind it.
    fn book_before_promises(&mut self, now_ns: u64, start_ns: u64, permits: NonZeroU64) -> Ticket;

    /// Returns a copy in which all held permits start at `now_ns`, to compute later starts from.
    #[must_use]
    fn forecast(&self, now_ns: u64) -> Self;

    /// Returns when `permits` could start from `from_ns` on, for a request at `now_ns`, even
    /// before promises to others where that disturbs none of them.
    ///
    /// # Errors
    ///
    /// Those of [`Limit::opening`].
    fn opening_before_promises(
        &self,
        now_ns: u64,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal>;

    /// Returns `true` if the numbers have changed since `ticket` was issued.
    fn has_changed_since(&self, ticket: Ticket) -> bool;

    /// Books permits that were held until now, for a waiter that made its request at
    /// `requested_ns`, was promised `promised_ns` and starts now. Returns `None` and changes
    /// nothing if they may not start now.
    ///
    /// A promise made by `ticket` under other numbers is not decided again under these.
    fn take(
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
            remaining: self.remaining(now_ns),
            ticket,
        })
    }
}
