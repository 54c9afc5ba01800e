//! Several limits at once: a call passes only if all of them grant it, and otherwise takes
//! nothing from any.
//!
//! The start is the first instant at which all of them agree. The wait is therefore the longest
//! of all, and a denial takes no permit.
//!
//! ```
//! use std::time::Duration;
//!
//! use rategate_core::all_of::{AllOf, AllOfLedger};
//! use rategate_core::gcra::Gcra;
//! use rategate_core::limit::Limit;
//! use rategate_core::sliding_log::SlidingLog;
//! use rategate_core::verdict::Verdict;
//!
//! // Ten a second on average, and never more than 12 within any 2 seconds.
//! let rate = Gcra::per_second(10).burst(10);
//! let window = SlidingLog::new(12, Duration::from_secs(2));
//! let mut both = AllOfLedger::new(AllOf::default().and(rate).and(window), 0);
//! let passed = (0..30).filter(|_| {
//!     matches!(both.try_acquire(500_000_000, 1), Ok(Verdict::Granted(_)))
//! });
//! assert_eq!(passed.count(), 10);
//! assert_eq!(both.remaining(1_000_000_000), 2, "five earned back, but the window allows 2");
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use alloc::vec::{self, Vec};
use core::num::NonZeroU64;

use crate::agree::{self, Member};
use crate::any_policy::{AnyPolicy, AnyState};
use crate::debt::{Charged, Debt};
use crate::error::{CountsInFlight, LimitError};
use crate::holds::{Hold, Holding, opening_after_ends, soonest_after_ends};
use crate::ledger::Ledger;
use crate::limit::Limit;
use crate::outcome::Outcome;
use crate::provisional::Provisional;
use crate::refund::RefundEpoch;
use crate::share::Share;
use crate::verdict::{Grant, Opening, Refusal, Ticket};

/// Several policies that a call must pass together. Without any, everything passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllOf(Vec<AnyPolicy>);

impl AllOf {
    /// Collects policies, in order.
    #[must_use]
    pub fn new(policies: impl IntoIterator<Item = impl Into<AnyPolicy>>) -> Self {
        Self(policies.into_iter().map(Into::into).collect())
    }

    /// Adds a policy.
    ///
    /// ```
    /// use core::time::Duration;
    /// use rategate_core::all_of::AllOf;
    /// use rategate_core::gcra::Gcra;
    /// use rategate_core::sliding_log::SlidingLog;
    ///
    /// // Ten a second on average, and never more than 12 within any 2 seconds.
    /// let both = AllOf::default()
    ///     .and(Gcra::per_second(10).burst(10))
    ///     .and(SlidingLog::new(12, Duration::from_secs(2)));
    /// assert_eq!(both, "10/s burst 10; 12 per any 2s".parse()?);
    /// # Ok::<(), rategate_core::error::PolicyTextError>(())
    /// ```
    #[must_use]
    pub fn and(mut self, policy: impl Into<AnyPolicy>) -> Self {
        self.0.push(policy.into());
        self
    }

    /// Returns the policies, in order.
    #[must_use]
    pub fn policies(&self) -> &[AnyPolicy] {
        &self.0
    }
}

impl IntoIterator for AllOf {
    type Item = AnyPolicy;
    type IntoIter = vec::IntoIter<AnyPolicy>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl FromIterator<AnyPolicy> for AllOf {
    fn from_iter<I: IntoIterator<Item = AnyPolicy>>(policies: I) -> Self {
        Self::new(policies)
    }
}

/// The live form of [`AllOf`]: limits that decide together.
#[derive(Clone, Debug)]
pub struct AllOfLedger {
    /// The limits, which book the same calls in the same order, so their tickets are the same.
    limits: Vec<Ledger<AnyPolicy>>,
    latest_ns: u64,
    next_serial: u64,
}

impl AllOfLedger {
    /// Creates fresh limits whose clock shows `now_ns`.
    #[must_use]
    pub fn new(policies: impl IntoIterator<Item = AnyPolicy>, now_ns: u64) -> Self {
        let limits = policies.into_iter().map(|policy| Ledger::new(policy, now_ns));
        Self::of(limits.collect(), now_ns)
    }

    /// Creates a set from limits that have a state but no bookings, on a clock that shows `now_ns`.
    #[must_use]
    pub const fn of(limits: Vec<Ledger<AnyPolicy>>, now_ns: u64) -> Self {
        Self { limits, latest_ns: now_ns, next_serial: 1 }
    }

    /// Returns the policies in force, in order.
    pub fn policies(&self) -> impl Iterator<Item = &AnyPolicy> {
        self.limits.iter().map(Ledger::policy)
    }

    /// Drops all state and all promises from `now_ns` on. Returns `true` if that changes anything
    /// observable.
    pub fn reset(&mut self, now_ns: u64) -> bool {
        self.advance(now_ns);
        let mut was_used = false;
        for limit in &mut self.limits {
            was_used |= !limit.is_as_fresh(now_ns);
            limit.restart(now_ns);
        }
        was_used
    }

    /// Puts new numbers into force for all policies, in their order, at `now_ns`.
    ///
    /// # Errors
    ///
    /// [`LimitError::OtherPolicy`] unless they are as many and of the same kinds. Nothing changes
    /// in that case.
    pub fn reconfigure(&mut self, now_ns: u64, policies: &[AnyPolicy]) -> Result<(), LimitError> {
        if policies.len() != self.limits.len() {
            return Err(LimitError::OtherPolicy);
        }
        for (limit, policy) in self.limits.iter().zip(policies) {
            policy.can_follow(limit.policy())?;
        }
        self.advance(now_ns);
        for (limit, policy) in self.limits.iter_mut().zip(policies) {
            if limit.policy() == policy {
                limit.note_change();
            } else {
                limit.reconfigure(self.latest_ns, *policy);
            }
        }
        Ok(())
    }

    /// Returns the clock's reading at `now_ns` if there are no promises then, so that the states
    /// alone decide.
    pub(crate) fn at_rest(&mut self, now_ns: u64) -> Option<u64> {
        self.advance(now_ns);
        let mut rest = true;
        for limit in &mut self.limits {
            match limit.at_rest(self.latest_ns, 0) {
                Some(latest_ns) => self.latest_ns = latest_ns,
                None => rest = false,
            }
        }
        rest.then_some(self.latest_ns)
    }

    /// Returns the refund epoch, which is the same for all limits.
    pub(crate) fn epoch(&self) -> RefundEpoch {
        self.limits.first().map_or(RefundEpoch::NONE, Ledger::epoch)
    }

    /// Returns the limits, in order.
    pub(crate) fn ledgers(&self) -> &[Ledger<AnyPolicy>] {
        &self.limits
    }

    /// Returns the policies in force and their states, promises left out.
    pub(crate) fn started(&self) -> impl Iterator<Item = (&AnyPolicy, &AnyState)> {
        self.limits.iter().map(|limit| (limit.policy(), limit.state()))
    }

    /// Books in all limits by `book`, under one serial number.
    fn book_in_all(
        &mut self,
        now_ns: u64,
        start_ns: u64,
        book: impl Fn(&mut Ledger<AnyPolicy>) -> Ticket,
    ) -> Ticket {
        self.advance(now_ns);
        let serial = self.next_serial;
        self.next_serial = self.next_serial.saturating_add(1);
        let mut ticket = Ticket { serial, ..Ticket::booked(start_ns, u64::MAX, RefundEpoch::NONE) };
        for limit in &mut self.limits {
            let booked = book(limit);
            // What has come back is the same for all of them. An earlier instant is always true
            // as well.
            let busy_until_ns = ticket.busy_until_ns().min(booked.busy_until_ns());
            let in_flight = ticket.in_flight.max(booked.in_flight);
            let booked = Ticket::booked(start_ns, busy_until_ns, booked.epoch());
            ticket = Ticket { serial, in_flight, ..booked };
        }
        ticket
    }

    /// Returns the limits as they are at `now_ns`, if a hold has ended since they were last used.
    fn caught_up(&self, now_ns: u64) -> Option<Self> {
        self.next_end_ns().filter(|&end_ns| end_ns <= self.clamp(now_ns))?;
        let mut copy = self.clone();
        copy.advance(now_ns);
        Some(copy)
    }

    /// Advances the clock to `now_ns`, and ends the holds whose time is over.
    fn advance(&mut self, now_ns: u64) {
        self.latest_ns = self.clamp(now_ns);
        let now_ns = self.latest_ns;
        if self.next_end_ns().is_some_and(|end_ns| end_ns <= now_ns) {
            self.with_returns(|limits| limits.iter_mut().for_each(|limit| limit.pass_to(now_ns)));
        }
    }

    /// Takes back started permits for which the caller has no grant, as many as every limit can,
    /// and returns how many came back; see [`Ledger::credit`].
    pub fn credit(&mut self, now_ns: u64, permits: u64) -> u64 {
        self.advance(now_ns);
        let all = self.limits.iter().map(|limit| limit.clone().credit(now_ns, permits));
        let min = all.min().unwrap_or(0);
        self.with_returns(|limits| {
            for limit in limits {
                limit.credit(now_ns, min);
            }
        });
        min
    }

    /// Lets permits come back to each limit on its own. What has come back is then counted alike
    /// for all of them, as the most: one ticket serves all.
    fn with_returns<T>(&mut self, give: impl FnOnce(&mut [Ledger<AnyPolicy>]) -> T) -> T {
        let before = self.epoch();
        let given = give(&mut self.limits);
        let returned = self.limits.iter().filter_map(|limit| limit.epoch().returned_since(before));
        let epoch = before.and_returned(returned.max().unwrap_or(0));
        self.limits.iter_mut().for_each(|limit| limit.set_epoch(epoch));
        given
    }

    /// Continues at `now_ns` from states that were kept elsewhere for a while.
    pub(crate) fn resume(&mut self, now_ns: u64, states: impl Iterator<Item = AnyState>) {
        for (limit, state) in self.limits.iter_mut().zip(states) {
            limit.resume(state, now_ns);
        }
        self.pass_to(now_ns);
    }
}

impl Holding for AllOfLedger {
    fn hold_grant(&mut self, now_ns: u64, grant: &Grant, end_ns: u64) -> Hold {
        self.advance(now_ns);
        for limit in &mut self.limits {
            limit.hold_grant(now_ns, grant, end_ns);
        }
        Hold { serial: grant.ticket.serial, permits: grant.permits, end_ns }
    }

    /// Ends the hold in each limit on its own, and returns the fewest permits that came back.
    fn end_hold(&mut self, now_ns: u64, hold: Hold, actual: u64) -> Option<u64> {
        self.advance(now_ns);
        let fewest = |limits: &mut [Ledger<AnyPolicy>]| {
            limits.iter_mut().try_fold(u64::MAX, |back, limit| {
                Some(back.min(limit.end_hold(now_ns, hold, actual)?))
            })
        };
        let back = self.with_returns(fewest)?;
        Some(back.min(hold.permits.saturating_sub(actual)))
    }

    fn next_end_ns(&self) -> Option<u64> {
        self.limits.first()?.next_end_ns()
    }
}

impl Member for Ledger<AnyPolicy> {
    fn opening_from(
        &self,
        now_ns: u64,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        self.opening_requested_at(now_ns, from_ns, permits)
    }
}

/// One of the limits, whose openings may lie before what was promised to others.
struct BeforePromises<'a>(&'a Ledger<AnyPolicy>);

impl Member for BeforePromises<'_> {
    fn opening_from(
        &self,
        now_ns: u64,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        self.0.opening_before_promises(now_ns, from_ns, permits)
    }
}

impl Limit for AllOfLedger {
    fn clamp(&self, now_ns: u64) -> u64 {
        self.latest_ns.max(now_ns)
    }

    fn opening(&self, now_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal> {
        if let Some(caught_up) = self.caught_up(now_ns) {
            return caught_up.opening(now_ns, permits);
        }
        let now_ns = self.clamp(now_ns);
        agree::opening(&self.limits, now_ns, now_ns, permits)
    }

    fn opening_of_try(&self, now_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal> {
        match self.caught_up(now_ns) {
            Some(caught_up) => caught_up.opening_of_try(now_ns, permits),
            None => opening_after_ends(self, now_ns, permits, self.opening(now_ns, permits)),
        }
    }

    fn book(&mut self, now_ns: u64, start_ns: u64, permits: NonZeroU64) -> Ticket {
        self.book_in_all(now_ns, start_ns, |limit| limit.book(now_ns, start_ns, permits))
    }

    fn refund(&mut self, now_ns: u64, grant: &Grant, permits: u64) -> u64 {
        self.advance(now_ns);
        let all = self.limits.iter().map(|limit| limit.refundable(now_ns, grant, permits));
        let min = all.min().unwrap_or_else(|| permits.min(grant.permits));
        for limit in &mut self.limits {
            limit.refund(now_ns, grant, min);
        }
        min
    }

    /// Charges each limit on its own: in one the debt may be in the state, and in another a row of
    /// promises. Limits on operations in flight are left out.
    fn charge(&mut self, now_ns: u64, permits: u64, debt: Debt) -> Result<Charged, CountsInFlight> {
        self.advance(now_ns);
        let mut all = self.limits.is_empty().then(|| Charged::of(permits, permits, 0));
        for limit in self.limits.iter_mut().filter(|limit| !limit.counts_in_flight()) {
            let charged = limit.charge(self.latest_ns, permits, debt)?;
            all = Some(all.map_or(charged, |all| all.and(charged)));
            self.next_serial = self.next_serial.max(limit.next_serial());
        }
        for limit in &mut self.limits {
            limit.skip_serials_to(self.next_serial);
        }
        all.ok_or(CountsInFlight)
    }

    fn debt(&self, now_ns: u64) -> u64 {
        self.limits.iter().map(|limit| limit.debt(self.clamp(now_ns))).max().unwrap_or(0)
    }

    fn debt_ends_in_ns(&self, now_ns: u64) -> Option<u64> {
        let now_ns = self.clamp(now_ns);
        self.limits
            .iter()
            .try_fold(0, |last_ns: u64, limit| Some(last_ns.max(limit.debt_ends_in_ns(now_ns)?)))
    }

    fn cancel(&mut self, now_ns: u64, ticket: Ticket) -> bool {
        self.advance(now_ns);
        let mut cancelled = false;
        for limit in &mut self.limits {
            cancelled |= limit.cancel(now_ns, ticket);
        }
        cancelled
    }

    fn soonest_ns(
        &self,
        now_ns: u64,
        at_latest_ns: u64,
        permits: NonZeroU64,
        max_wait_ns: u64,
    ) -> u64 {
        let at_latest_ns = soonest_after_ends(self, now_ns, at_latest_ns, permits, max_wait_ns);
        if self.limits.len() == 1 || self.next_end_ns().is_some() {
            return at_latest_ns;
        }
        let accepts = |after_ns: u64| {
            let at_ns = now_ns.saturating_add(after_ns);
            let opening = self.opening(at_ns, permits);
            opening.is_ok_and(|opening| opening.start_ns.saturating_sub(at_ns) <= max_wait_ns)
        };
        // The request is denied now, and accepted at `at_latest_ns` at the latest.
        let (mut low, mut high) = (0, at_latest_ns);
        while high.saturating_sub(low) > 1 {
            let middle = low.midpoint(high);
            if accepts(middle) { high = middle } else { low = middle }
        }
        high
    }

    fn start_early(&mut self, now_ns: u64, ticket: Ticket) -> bool {
        self.advance(now_ns);
        let limits = self.limits.iter_mut();
        limits.fold(false, |found, limit| limit.start_early(now_ns, ticket) | found)
    }

    fn end_holds(&mut self, now_ns: u64) {
        if self.next_end_ns().is_some_and(|end_ns| end_ns <= now_ns) {
            self.advance(now_ns);
        }
    }

    fn pass_to(&mut self, now_ns: u64) {
        self.advance(now_ns);
        self.limits.iter_mut().for_each(|limit| limit.pass_to(now_ns));
    }

    fn remaining(&self, now_ns: u64) -> u64 {
        let now_ns = self.clamp(now_ns);
        self.limits.iter().map(|limit| limit.remaining(now_ns)).min().unwrap_or(u64::MAX)
    }

    fn slack_ns(&self) -> u64 {
        self.limits.iter().map(Limit::slack_ns).min().unwrap_or(0)
    }

    fn refill(&mut self, now_ns: u64, permits: u64) -> bool {
        self.advance(now_ns);
        self.limits.iter_mut().fold(false, |taken, limit| limit.refill(now_ns, permits) | taken)
    }

    fn release(&mut self, now_ns: u64, permits: u64) -> bool {
        self.advance(now_ns);
        self.limits.iter_mut().fold(false, |taken, limit| limit.release(now_ns, permits) | taken)
    }

    fn max_in_flight(&self, now_ns: u64) -> Option<u64> {
        self.limits.iter().filter_map(|limit| limit.max_in_flight(now_ns)).min()
    }

    fn room_in_share(&self, now_ns: u64, share: Share) -> Option<u64> {
        self.limits.iter().filter_map(|limit| limit.room_in_share(now_ns, share)).min()
    }

    fn release_with_outcome(
        &mut self,
        now_ns: u64,
        grant: &Grant,
        permits: u64,
        outcome: Outcome,
    ) -> bool {
        self.advance(now_ns);
        self.limits.iter_mut().fold(false, |taken, limit| {
            limit.release_with_outcome(now_ns, grant, permits, outcome) | taken
        })
    }

    fn abort(&mut self, now_ns: u64, permits: u64) -> bool {
        self.advance(now_ns);
        self.limits.iter_mut().fold(false, |taken, limit| limit.abort(now_ns, permits) | taken)
    }
}

impl Provisional for AllOfLedger {
    /// Returns `true` if all keep a schedule: one limit that bounds starts is enough for starts
    /// to count when they happen.
    fn keeps_schedule(&self) -> bool {
        self.limits.iter().all(Provisional::keeps_schedule)
    }

    fn has_changed_since(&self, ticket: Ticket) -> bool {
        self.limits.iter().any(|limit| limit.has_changed_since(ticket))
    }

    fn counts_in_flight(&self) -> bool {
        self.limits.iter().any(Provisional::counts_in_flight)
    }

    fn follows_outcomes(&self) -> bool {
        self.limits.iter().any(Provisional::follows_outcomes)
    }

    /// Returns the shortest time, so that the other limits lose no more by it.
    fn counts_for_ns(&self) -> u64 {
        let spans_ns = self.limits.iter().map(Provisional::counts_for_ns);
        spans_ns.filter(|&span_ns| span_ns > 0).min().unwrap_or(0)
    }

    fn hold(&mut self, permits: NonZeroU64) {
        self.limits.iter_mut().for_each(|limit| limit.hold(permits));
    }

    fn release_hold(&mut self, permits: NonZeroU64) {
        self.limits.iter_mut().for_each(|limit| limit.release_hold(permits));
    }

    fn hold_promise(&mut self, now_ns: u64, ticket: Ticket) -> bool {
        self.advance(now_ns);
        let limits = self.limits.iter_mut();
        limits.fold(false, |found, limit| limit.hold_promise(now_ns, ticket) | found)
    }

    fn not_before(&mut self, start_ns: u64) {
        self.limits.iter_mut().for_each(|limit| limit.not_before(start_ns));
    }

    fn opening_before_promises(
        &self,
        now_ns: u64,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        let now_ns = self.clamp(now_ns);
        let apart: Vec<BeforePromises<'_>> = self.limits.iter().map(BeforePromises).collect();
        agree::opening(&apart, now_ns, from_ns.max(now_ns), permits)
    }

    fn book_before_promises(&mut self, now_ns: u64, start_ns: u64, permits: NonZeroU64) -> Ticket {
        self.book_in_all(now_ns, start_ns, |limit| {
            limit.book_before_promises(now_ns, start_ns, permits)
        })
    }

    fn forecast(&self, now_ns: u64) -> Self {
        let now_ns = self.clamp(now_ns);
        let limits = self.limits.iter().map(|limit| limit.forecast(now_ns)).collect();
        Self { limits, latest_ns: now_ns, next_serial: self.next_serial }
    }
}
