//! Requests to a ledger: tries, reservations, and what they find.

use core::num::NonZeroU64;

use super::Ledger;
use crate::error::ExceedsCapacity;
use crate::policy::Taken;
use crate::refund::RefundEpoch;
use crate::share::Share;
use crate::verdict::{Denial, Grant, Opening, Refusal, Ticket, Verdict};

impl Ledger {
    /// Returns when `permits` could start for a request at `now_ns`. Changes nothing.
    ///
    /// # Errors
    ///
    /// The [`Refusal`] that says why there is no such instant.
    pub fn opening(&self, now_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal> {
        match self.caught_up(now_ns) {
            Some(caught_up) => caught_up.opening(now_ns, permits),
            None => self.opening_behind_floor(now_ns, now_ns, self.floor_ns(), permits),
        }
    }

    /// Takes `permits` from `start_ns` on, an instant that [`opening`](Self::opening) has just
    /// returned.
    pub fn book(&mut self, now_ns: u64, start_ns: u64, permits: NonZeroU64) -> Ticket {
        self.pass_to(now_ns);
        self.record(Taken { from_ns: self.latest_ns, start_ns, permits })
    }

    /// Grants `permits` at once, or denies them. Zero permits are always granted, and leave no
    /// trace.
    ///
    /// # Errors
    ///
    /// [`ExceedsCapacity`] for more permits than could ever pass together.
    pub fn try_acquire(&mut self, now_ns: u64, permits: u64) -> Result<Verdict, ExceedsCapacity> {
        let now_ns = self.clamp(now_ns);
        let Some(permits) = NonZeroU64::new(permits) else {
            return Ok(Verdict::Granted(Self::nothing(now_ns)));
        };
        self.end_holds(now_ns);
        Ok(match self.judge(now_ns, permits)? {
            Ok(opening) => Verdict::Granted(self.grant(now_ns, now_ns, opening, permits)),
            Err(denial) => Verdict::Denied(denial),
        })
    }

    /// Grants `permits` at once if the limit and a [share](crate::share) of it have room for them,
    /// or denies them. Returns `None` if no policy here limits permits in flight.
    ///
    /// # Errors
    ///
    /// [`ExceedsCapacity`] for more permits than could ever pass together in the whole limit.
    pub fn try_acquire_in_share(
        &mut self,
        now_ns: u64,
        permits: u64,
        share: Share,
    ) -> Result<Option<Verdict>, ExceedsCapacity> {
        let now_ns = self.clamp(now_ns);
        self.end_holds(now_ns);
        let Some(room) = self.room_in_share(now_ns, share) else { return Ok(None) };
        let Some(over) = NonZeroU64::new(permits).filter(|_| permits > room) else {
            let verdict = self.try_acquire(now_ns, permits)?;
            if permits == room && matches!(verdict, Verdict::Granted(_)) {
                self.started.fill_share(now_ns);
            }
            return Ok(Some(verdict));
        };
        match self.opening(now_ns, over) {
            Err(Refusal::Exceeds(error)) => Err(error),
            _ => Ok(Some(Verdict::Denied(Denial { retry_after_ns: None }))),
        }
    }

    /// Promises `permits` a start, now or later, unless they would wait longer than `max_wait_ns`.
    ///
    /// In that case nothing is taken, and the denial says how long until the same call would be
    /// accepted.
    ///
    /// # Errors
    ///
    /// [`ExceedsCapacity`] for more permits than could ever pass together.
    pub fn reserve(
        &mut self,
        now_ns: u64,
        permits: u64,
        max_wait_ns: Option<u64>,
    ) -> Result<Verdict, ExceedsCapacity> {
        let now_ns = self.clamp(now_ns);
        let Some(permits) = NonZeroU64::new(permits) else {
            return Ok(Verdict::Granted(Self::nothing(now_ns)));
        };
        self.end_holds(now_ns);
        let opening = match self.opening(now_ns, permits) {
            Ok(opening) => opening,
            // Beyond the clock, but with a bound: the wait is too long by what exceeds the bound.
            Err(Refusal::BeyondClock { wait_ns }) => {
                let retry_after_ns = wait_ns.saturating_sub(max_wait_ns.unwrap_or(0));
                return Ok(Verdict::Denied(self.denial(now_ns, Some(retry_after_ns))));
            }
            Err(Refusal::Exceeds(error)) => return Err(error),
            // Nothing that ends makes a start known.
            Err(_) => return Ok(Verdict::Denied(Denial { retry_after_ns: None })),
        };
        let wait_ns = opening.start_ns.saturating_sub(now_ns);
        match max_wait_ns {
            Some(max_wait_ns) if wait_ns > max_wait_ns => {
                let soon_enough_ns = wait_ns.saturating_sub(max_wait_ns);
                let at_latest_ns = soon_enough_ns.min(opening.opens_ns.saturating_sub(now_ns));
                let retry_after_ns = self.soonest_ns(now_ns, at_latest_ns, permits, max_wait_ns);
                Ok(Verdict::Denied(Denial { retry_after_ns: NonZeroU64::new(retry_after_ns) }))
            }
            _ => Ok(Verdict::Granted(self.grant(now_ns, opening.start_ns, opening, permits))),
        }
    }

    /// Promises `permits` the first possible start, now or later, to a caller whose request came
    /// at `requested_ns`, which may be long ago.
    ///
    /// # Errors
    ///
    /// The [`Refusal`] that says why there is none. Nothing is taken then.
    pub fn promise(&mut self, requested_ns: u64, permits: NonZeroU64) -> Result<Grant, Refusal> {
        let now_ns = self.clamp(requested_ns);
        self.end_holds(now_ns);
        let opening = self.opening(now_ns, permits)?;
        // The wait counts from the request, not from this decision.
        let scheduled_ns = opening.scheduled_ns.or(Some(requested_ns));
        let opening = Opening { scheduled_ns, ..opening };
        Ok(self.grant(now_ns, opening.start_ns, opening, permits))
    }

    /// Returns how long until a reservation with `max_wait_ns` is accepted, at most
    /// `at_latest_ns`, or until a hold ends. One limit accepts exactly then. Several of which one is
    /// a pacer may agree sooner.
    pub(crate) fn soonest_ns(
        &self,
        now_ns: u64,
        at_latest_ns: u64,
        permits: NonZeroU64,
        max_wait_ns: u64,
    ) -> u64 {
        let at_latest_ns = self.or_end_of_hold(now_ns, Some(at_latest_ns)).unwrap_or(at_latest_ns);
        if self.policies().len() == 1 {
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

    /// Returns what a [denial](Denial::retry_after_ns) of a try for `permits` would say: zero if it
    /// would pass now. Takes nothing.
    ///
    /// # Errors
    ///
    /// [`ExceedsCapacity`] for more permits than could ever pass together.
    pub fn peek(&self, now_ns: u64, permits: u64) -> Result<Option<u64>, ExceedsCapacity> {
        let now_ns = self.clamp(now_ns);
        let Some(permits) = NonZeroU64::new(permits) else { return Ok(Some(0)) };
        Ok(match self.judge(now_ns, permits)? {
            Ok(_) => Some(0),
            Err(denial) => denial.retry_after_ns.map(NonZeroU64::get),
        })
    }

    /// Returns the maximum number of permits that a try at `now_ns` could take.
    #[must_use]
    pub fn remaining(&self, now_ns: u64) -> u64 {
        if let Some(caught_up) = self.caught_up(now_ns) {
            return caught_up.remaining(now_ns);
        }
        let now_ns = self.clamp(now_ns);
        if self.promises.front().is_some_and(|first| first.taken.start_ns <= now_ns) {
            // What has been promised by now may have kept time from being forfeited.
            let mut caught_up = self.clone();
            caught_up.pass_to(now_ns);
            return caught_up.remaining(now_ns);
        }
        let passes = |permits: u64| {
            NonZeroU64::new(permits).is_none_or(|permits| {
                self.opening(now_ns, permits).is_ok_and(|opening| opening.opens_ns <= now_ns)
            })
        };
        match self.promises.back() {
            _ if self.floor_ns() > now_ns => 0,
            None => self.started.remaining(now_ns).saturating_sub(self.held),
            Some(_) => {
                // Between promises: as many permits as still fit.
                let (mut low, mut high) = (0, self.started.remaining(now_ns));
                while low < high {
                    let middle = high.saturating_sub(high.saturating_sub(low).wrapping_div(2));
                    if passes(middle) {
                        low = middle;
                    } else {
                        high = middle.saturating_sub(1);
                    }
                }
                low
            }
        }
    }

    /// Returns the maximum number of permits in flight at `now_ns`, if any limit here bounds them.
    #[must_use]
    pub fn max_in_flight(&self, now_ns: u64) -> Option<u64> {
        let now_ns = self.clamp(now_ns);
        self.started.as_slice().iter().filter_map(|limit| limit.max_in_flight(now_ns)).min()
    }

    /// Returns how many permits a try within a [share](crate::share) of the limit could take at
    /// `now_ns`, as far as the share decides that. Returns `None` if no limit here bounds permits in
    /// flight.
    fn room_in_share(&self, now_ns: u64, share: Share) -> Option<u64> {
        let now_ns = self.clamp(now_ns);
        let rooms = self.started.as_slice().iter().filter_map(|limit| {
            let in_share = share.of(limit.max_in_flight(now_ns)?);
            Some(in_share.saturating_sub(limit.in_flight().saturating_add(self.held)))
        });
        rooms.min()
    }

    /// Returns the opening for a try that passes now, or the denial.
    fn judge(
        &self,
        now_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Result<Opening, Denial>, ExceedsCapacity> {
        Ok(match self.opening(now_ns, permits) {
            Ok(opening) => match opening.opens_ns.saturating_sub(now_ns) {
                0 => Ok(opening),
                wait_ns => Err(self.denial(now_ns, Some(wait_ns))),
            },
            Err(Refusal::Exceeds(error)) => return Err(error),
            Err(Refusal::TimeCannotHelp | Refusal::Held) => Err(self.denial(now_ns, None)),
            Err(Refusal::BeyondClock { wait_ns }) => Err(self.denial(now_ns, Some(wait_ns))),
        })
    }

    /// Returns the denial of a request that passes after `wait_ns`, where time alone can help.
    fn denial(&self, now_ns: u64, wait_ns: Option<u64>) -> Denial {
        let retry_after_ns = self.or_end_of_hold(now_ns, wait_ns).and_then(NonZeroU64::new);
        Denial { retry_after_ns }
    }

    /// Returns the wait of a denied request, or that for the first end of a hold, if it is shorter:
    /// the request may pass then.
    pub(super) fn or_end_of_hold(&self, now_ns: u64, wait_ns: Option<u64>) -> Option<u64> {
        [wait_ns, self.hold_ends_in_ns(now_ns)].into_iter().flatten().min()
    }

    fn grant(
        &mut self,
        now_ns: u64,
        start_ns: u64,
        opening: Opening,
        permits: NonZeroU64,
    ) -> Grant {
        let ticket = self.book(now_ns, start_ns, permits);
        Grant {
            start_ns,
            promised_ns: start_ns,
            scheduled_ns: opening.scheduled_ns.unwrap_or(now_ns),
            permits: permits.get(),
            ticket,
        }
    }

    /// Returns a grant of zero permits: it starts at once, and cannot be cancelled.
    pub(crate) const fn nothing(now_ns: u64) -> Grant {
        let ticket = Ticket::booked(now_ns, now_ns, RefundEpoch::UNKNOWN);
        let (start_ns, promised_ns, scheduled_ns) = (now_ns, now_ns, now_ns);
        Grant { start_ns, promised_ns, scheduled_ns, permits: 0, ticket }
    }
}
