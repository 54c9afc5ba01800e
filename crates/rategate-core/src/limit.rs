//! The operations of every live limit: of one policy, or of several together.
//!
//! Time is an argument, and the clock is clamped: an older reading than the newest one seen
//! counts as the newest. Going backwards therefore earns nothing twice.

use core::num::NonZeroU64;

use crate::debt::{Charged, Debt};
use crate::error::{CountsInFlight, ExceedsCapacity};
use crate::outcome::Outcome;
use crate::refund::RefundEpoch;
use crate::share::Share;
use crate::verdict::{Denial, Grant, Opening, Refusal, Settled, Ticket, Verdict};

/// The number of parts of a debt that is kept as promises, if each part may pass at one instant; a
/// larger debt needs more.
const DEBT_PARTS: u64 = 64;
/// The maximum number of parts of such a debt. Each is a promise that the limit keeps until its
/// start.
pub const MAX_DEBT_PARTS: u64 = 4_096;

/// A live limit on a clock that its caller reads.
///
/// An implementation finds when a request could pass, books it, and takes it back. The other
/// operations follow from these.
pub trait Limit {
    /// Returns the newest reading of the clock, including `now_ns`.
    fn clamp(&self, now_ns: u64) -> u64;

    /// Returns when `permits` could start for a request at `now_ns`. Changes nothing.
    ///
    /// # Errors
    ///
    /// The [`Refusal`] that says why there is no such instant.
    fn opening(&self, now_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal>;

    /// Returns when a try for `permits` would pass at `now_ns`, if no other caller came and each
    /// [hold](crate::holds) ran to its end. Changes nothing.
    ///
    /// # Errors
    ///
    /// Those of [`opening`](Self::opening).
    fn opening_of_try(&self, now_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal> {
        self.opening(now_ns, permits)
    }

    /// Takes `permits` from `start_ns` on, an instant that [`Limit::opening`] has just returned.
    fn book(&mut self, now_ns: u64, start_ns: u64, permits: NonZeroU64) -> Ticket;

    /// Returns all permits of a grant to later calls, if it has not started by `now_ns`. Returns
    /// `true` if it had not.
    ///
    /// Later calls see the schedule as if the cancelled call had never been made, except that
    /// existing promises are kept. The freed interval goes to the next call that fits.
    fn cancel(&mut self, now_ns: u64, ticket: Ticket) -> bool;

    /// Records that the operation of a promise has started before its time, at `now_ns`. Returns
    /// `true` if there was such a promise.
    ///
    /// This happens to a sleeper of a [pacer](crate::pacer) that woke early and carries the rest
    /// into its next sleep.
    fn start_early(&mut self, now_ns: u64, ticket: Ticket) -> bool;

    /// Ends the [holds](crate::holds) whose time is over at `now_ns`.
    fn end_holds(&mut self, _now_ns: u64) {}

    /// Advances the clock to `now_ns`: what has started by then can no longer be cancelled.
    fn pass_to(&mut self, now_ns: u64);

    /// Takes back `permits` of a started grant that had no effect and will have none, and returns
    /// how many came back.
    ///
    /// Fewer may come back: only so many that the limit is at least as full as if they had never
    /// been taken.
    ///
    /// Each permit can come back once. For a grant that has not started, see [`Limit::cancel`].
    fn refund(&mut self, _now_ns: u64, _grant: &Grant, _permits: u64) -> u64 {
        0
    }

    /// Returns the maximum number of permits that a try at `now_ns` could take.
    fn remaining(&self, now_ns: u64) -> u64;

    /// Returns by how much a caller may be late, again and again, without any loss of the rate.
    fn slack_ns(&self) -> u64;

    /// Adds permits from outside. Returns `true` if any policy here takes them; only a [backfill
    /// pool](crate::backfill_pool) does.
    fn refill(&mut self, now_ns: u64, permits: u64) -> bool;

    /// Returns the maximum number of permits in flight at `now_ns`, if any policy here limits
    /// them.
    fn max_in_flight(&self, _now_ns: u64) -> Option<u64> {
        None
    }

    /// Returns how many permits a try within a [share](crate::share) of the limit could take at
    /// `now_ns`, as far as the share decides that. Returns `None` if no policy here limits permits
    /// in flight.
    fn room_in_share(&self, _now_ns: u64, _share: Share) -> Option<u64> {
        None
    }

    /// Records that operations have ended. Returns `true` if any policy here counts operations in
    /// flight; only [concurrency](crate::concurrency) and the [commit log](crate::commit_log) do.
    ///
    /// In the first, their permits are free again. In the second, they have committed: their
    /// effects have happened, and count for a period from now on.
    fn release(&mut self, now_ns: u64, permits: u64) -> bool;

    /// Records that the operations of a grant have ended in some way, with `permits` of it. Returns
    /// `true` if any policy here counts operations in flight, or follows their outcomes.
    ///
    /// It is a [release](Self::release) from which a limit [follows](crate::adaptive) what its
    /// server bears.
    fn release_with_outcome(
        &mut self,
        now_ns: u64,
        _grant: &Grant,
        permits: u64,
        _outcome: Outcome,
    ) -> bool {
        self.release(now_ns, permits)
    }

    /// Cancels operations in flight that provably had no effect and never will, so their permits
    /// are free at once. Returns `true` if any policy here counts operations in flight.
    ///
    /// It is not for operations that failed or were cut short: those may have had their effect
    /// nevertheless, and are [released](Self::release).
    fn abort(&mut self, now_ns: u64, permits: u64) -> bool;

    /// Grants `permits` at once, or denies them. Zero permits are always granted, and leave no
    /// trace.
    ///
    /// # Errors
    ///
    /// [`ExceedsCapacity`] for more permits than could ever pass together.
    fn try_acquire(&mut self, now_ns: u64, permits: u64) -> Result<Verdict, ExceedsCapacity> {
        let now_ns = self.clamp(now_ns);
        let Some(permits) = NonZeroU64::new(permits) else {
            return Ok(Verdict::Granted(nothing(self, now_ns)));
        };
        self.end_holds(now_ns);
        match self.opening_of_try(now_ns, permits) {
            Ok(opening) if opening.opens_ns <= now_ns => {
                Ok(Verdict::Granted(grant(self, now_ns, now_ns, opening, permits)))
            }
            Ok(opening) => Ok(denied(opening.opens_ns.saturating_sub(now_ns))),
            Err(refusal) => refused(refusal),
        }
    }

    /// Grants `permits` at once if the limit and a [share](crate::share) of it have room for them,
    /// or denies them. Returns `None` if no policy here limits permits in flight.
    ///
    /// # Errors
    ///
    /// [`ExceedsCapacity`] for more permits than could ever pass together in the whole limit.
    fn try_acquire_in_share(
        &mut self,
        now_ns: u64,
        permits: u64,
        share: Share,
    ) -> Result<Option<Verdict>, ExceedsCapacity> {
        let now_ns = self.clamp(now_ns);
        self.end_holds(now_ns);
        let Some(room) = self.room_in_share(now_ns, share) else { return Ok(None) };
        let Some(over) = NonZeroU64::new(permits).filter(|_| permits > room) else {
            let mut verdict = self.try_acquire(now_ns, permits)?;
            if let Verdict::Granted(grant) = &mut verdict {
                grant.ticket.fills_share = permits == room;
            }
            return Ok(Some(verdict));
        };
        match self.opening_of_try(now_ns, over) {
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
    fn reserve(
        &mut self,
        now_ns: u64,
        permits: u64,
        max_wait_ns: Option<u64>,
    ) -> Result<Verdict, ExceedsCapacity> {
        let now_ns = self.clamp(now_ns);
        let Some(permits) = NonZeroU64::new(permits) else {
            return Ok(Verdict::Granted(nothing(self, now_ns)));
        };
        self.end_holds(now_ns);
        let opening = match self.opening(now_ns, permits) {
            Ok(opening) => opening,
            // Beyond the clock, but with a bound: the wait is too long by what exceeds the bound.
            Err(Refusal::BeyondClock { wait_ns }) => {
                return Ok(denied(wait_ns.saturating_sub(max_wait_ns.unwrap_or(0))));
            }
            Err(refusal) => return refused(refusal),
        };
        let wait_ns = opening.start_ns.saturating_sub(now_ns);
        match max_wait_ns {
            Some(max_wait_ns) if wait_ns > max_wait_ns => {
                let soon_enough_ns = wait_ns.saturating_sub(max_wait_ns);
                let at_latest_ns = soon_enough_ns.min(opening.opens_ns.saturating_sub(now_ns));
                Ok(denied(self.soonest_ns(now_ns, at_latest_ns, permits, max_wait_ns)))
            }
            _ => Ok(Verdict::Granted(grant(self, now_ns, opening.start_ns, opening, permits))),
        }
    }

    /// Promises `permits` the first possible start, now or later, to a caller whose request came
    /// at `requested_ns`, which may be long ago.
    ///
    /// # Errors
    ///
    /// The [`Refusal`] that says why there is none. Nothing is taken then.
    fn promise(&mut self, requested_ns: u64, permits: NonZeroU64) -> Result<Grant, Refusal> {
        let now_ns = self.clamp(requested_ns);
        self.end_holds(now_ns);
        let opening = self.opening(now_ns, permits)?;
        // The wait counts from the request, not from this decision.
        let scheduled_ns = opening.scheduled_ns.or(Some(requested_ns));
        let opening = Opening { scheduled_ns, ..opening };
        Ok(grant(self, now_ns, opening.start_ns, opening, permits))
    }

    /// Returns how long until a reservation with `max_wait_ns` is accepted, at most
    /// `at_latest_ns`. One limit accepts exactly then. Several of which one is a pacer may agree
    /// sooner.
    fn soonest_ns(
        &self,
        _now_ns: u64,
        at_latest_ns: u64,
        _permits: NonZeroU64,
        _max_wait_ns: u64,
    ) -> u64 {
        at_latest_ns
    }

    /// Books permits that have been used already, whether they fit or not; see
    /// [`debt`](crate::debt).
    ///
    /// # Errors
    ///
    /// [`CountsInFlight`] if the limit counts operations in flight and nothing else.
    fn charge(&mut self, now_ns: u64, permits: u64, debt: Debt) -> Result<Charged, CountsInFlight>;

    /// Returns by how many permits the limit is exceeded at `now_ns`, those of a debt that is held
    /// as promises among them.
    fn debt(&self, now_ns: u64) -> u64;

    /// Returns the time until the limit is not exceeded any more; zero if it is not. `None` if time
    /// alone cannot help.
    fn debt_ends_in_ns(&self, now_ns: u64) -> Option<u64>;

    /// Corrects an estimate once the operation of `grant` is known to have taken `actual` permits.
    ///
    /// An excess comes back as by [`refund`](Self::refund), a shortfall is
    /// [charged](Self::charge). Call it once for each grant.
    ///
    /// # Errors
    ///
    /// [`CountsInFlight`] for a shortfall, as [`charge`](Self::charge).
    fn settle(
        &mut self,
        now_ns: u64,
        grant: &Grant,
        actual: u64,
        debt: Debt,
    ) -> Result<Settled, CountsInFlight> {
        if let Some(over) = grant.permits.checked_sub(actual).filter(|&over| over > 0) {
            return Ok(Settled::Back { permits: self.refund(now_ns, grant, over) });
        }
        match actual.saturating_sub(grant.permits) {
            0 => Ok(Settled::Even),
            short => {
                let Charged { booked: permits, forgiven, .. } = self.charge(now_ns, short, debt)?;
                Ok(Settled::Owed { permits, forgiven })
            }
        }
    }

    /// Returns how long until a try for `permits` would pass if no other caller comes: zero if it
    /// would pass now, `None` where time alone cannot help. Takes nothing.
    ///
    /// # Errors
    ///
    /// [`ExceedsCapacity`] for more permits than could ever pass together.
    fn peek(&self, now_ns: u64, permits: u64) -> Result<Option<u64>, ExceedsCapacity> {
        let now_ns = self.clamp(now_ns);
        let Some(permits) = NonZeroU64::new(permits) else { return Ok(Some(0)) };
        match self.opening_of_try(now_ns, permits) {
            Ok(opening) => Ok(Some(opening.opens_ns.saturating_sub(now_ns))),
            Err(Refusal::BeyondClock { wait_ns }) => Ok(Some(wait_ns)),
            Err(Refusal::TimeCannotHelp | Refusal::Held) => Ok(None),
            Err(Refusal::Exceeds(error)) => Err(error),
        }
    }
}

/// Charges `permits` as promises of later starts for which no caller waits, where the states cannot
/// hold a debt.
///
/// They are cut into parts small enough to pass at one instant, and each gets the first start.
/// The schedule is that of a caller who requests them one after the other.
pub(crate) fn charge_as_promises<L: Limit>(
    limit: &mut L,
    now_ns: u64,
    permits: u64,
    debt: Debt,
) -> Charged {
    let now_ns = limit.clamp(now_ns);
    let (mut left, mut owed) = (permits, 0_u64);
    let max = NonZeroU64::new(permits).and_then(|all| max_at_once(limit, now_ns, all));
    let max = max.map_or(0, NonZeroU64::get);
    let part = permits.div_ceil(DEBT_PARTS).min(max);
    for _ in 0..MAX_DEBT_PARTS {
        let Some(part) = NonZeroU64::new(left.min(part)) else { break };
        let Ok(opening) = limit.opening(now_ns, part) else { break };
        let wait_ns = opening.start_ns.saturating_sub(now_ns);
        if wait_ns > debt.max_ns() {
            break;
        }
        limit.book(now_ns, opening.start_ns, part);
        left = left.saturating_sub(part.get());
        owed = owed.saturating_add(if wait_ns > 0 { part.get() } else { 0 });
    }
    Charged::of(permits, permits.saturating_sub(left), owed)
}

/// Returns how many of `permits` can pass at one instant at most.
fn max_at_once<L: Limit + ?Sized>(
    limit: &L,
    now_ns: u64,
    permits: NonZeroU64,
) -> Option<NonZeroU64> {
    let mut max = permits;
    // Several limits name their maximum one after the other, each time a lower one.
    while let Err(Refusal::Exceeds(error)) = limit.opening(now_ns, max) {
        max = NonZeroU64::new(error.max.min(max.get().saturating_sub(1)))?;
    }
    Some(max)
}

fn grant<L: Limit + ?Sized>(
    limit: &mut L,
    now_ns: u64,
    start_ns: u64,
    opening: Opening,
    permits: NonZeroU64,
) -> Grant {
    let ticket = limit.book(now_ns, start_ns, permits);
    Grant {
        start_ns,
        promised_ns: start_ns,
        scheduled_ns: opening.scheduled_ns.unwrap_or(now_ns),
        permits: permits.get(),
        remaining: limit.remaining(now_ns),
        ticket,
    }
}

/// Returns a grant of zero permits: it starts at once, and cannot be cancelled.
pub(crate) fn nothing<L: Limit + ?Sized>(limit: &L, now_ns: u64) -> Grant {
    let ticket = Ticket::booked(now_ns, now_ns, RefundEpoch::UNKNOWN);
    let remaining = limit.remaining(now_ns);
    let (start_ns, promised_ns, scheduled_ns) = (now_ns, now_ns, now_ns);
    Grant { start_ns, promised_ns, scheduled_ns, permits: 0, remaining, ticket }
}

fn denied(retry_after_ns: u64) -> Verdict {
    Verdict::Denied(Denial { retry_after_ns: NonZeroU64::new(retry_after_ns) })
}

fn refused(refusal: Refusal) -> Result<Verdict, ExceedsCapacity> {
    match refusal {
        Refusal::Exceeds(error) => Err(error),
        Refusal::TimeCannotHelp | Refusal::Held => {
            Ok(Verdict::Denied(Denial { retry_after_ns: None }))
        }
        Refusal::BeyondClock { wait_ns } => Ok(denied(wait_ns)),
    }
}
