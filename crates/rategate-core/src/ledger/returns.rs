//! What comes back to a ledger or is corrected: cancelled promises, refunds, credits, charges, the
//! ends of operations in flight, refills.

use core::num::NonZeroU64;

use super::{Floor, Ledger, Promise};
use crate::any_policy::Member;
use crate::debt::{Charge, Charged, Debt};
use crate::error::CountsInFlight;
use crate::policy::{Correction, Ended, Ending, Taken};
use crate::refund::Refund;
use crate::verdict::{Grant, Refusal, Ticket};

/// The number of parts of a debt that is kept as promises, if each part may pass at one instant; a
/// larger debt needs more.
const DEBT_PARTS: u64 = 64;
/// The maximum number of parts of such a debt. Each is a promise that the limit keeps until its
/// start.
pub const MAX_DEBT_PARTS: u64 = 4_096;

impl Ledger {
    /// Returns all permits of a grant to later calls, if it has not started by `now_ns`. Returns
    /// `true` if it had not.
    ///
    /// Later calls see the schedule as if the cancelled call had never been made, except that
    /// existing promises are kept. The freed interval goes to the next call that fits.
    pub fn cancel(&mut self, now_ns: u64, ticket: Ticket) -> bool {
        self.pass_to(now_ns);
        let Some(promise) = self.withdraw(ticket) else { return false };
        if self.reached_ns(promise.floor, None) < self.floor_ns() {
            self.floor = promise.floor;
        }
        if promise.serial.saturating_add(1) == self.undone_from {
            // No remaining grant was made after it, so their tickets hold as if it had never been.
            self.undone_from = promise.serial;
        } else {
            self.epoch = self.epoch.and_returned(promise.taken.permits.get());
        }
        true
    }

    /// Records that the operation of a promise has started before its time, at `now_ns`. Returns
    /// `true` if there was such a promise.
    ///
    /// This happens to a sleeper of a [batched schedule](crate::two_timeline::Mode::Batched) that woke early and carries the rest
    /// into its next sleep.
    pub fn start_early(&mut self, now_ns: u64, ticket: Ticket) -> bool {
        self.pass_to(now_ns);
        let Some(promise) = self.withdraw(ticket) else { return false };
        let start_ns = self.latest_ns;
        self.take_started(promise.owed_by, Taken { start_ns, ..promise.taken });
        self.floor = Floor::new(start_ns, self.next_serial);
        true
    }

    /// Takes back `permits` of a started grant that had no effect and will have none, and returns
    /// how many came back.
    ///
    /// Fewer may come back: only so many that the limit is at least as full as if they had never
    /// been taken. Several limits take back alike.
    ///
    /// Each permit can come back once. For a grant that has not started, see
    /// [`cancel`](Self::cancel).
    pub fn refund(&mut self, now_ns: u64, grant: &Grant, permits: u64) -> u64 {
        self.pass_to(now_ns);
        let Ticket { start_ns, serial, busy_until_ns, epoch, .. } = grant.ticket;
        let permits = permits.min(grant.permits);
        if start_ns > self.latest_ns || permits == 0 {
            return 0;
        }
        let returned = self.epoch.returned_since(epoch);
        let (now_ns, granted) = (self.latest_ns, grant.permits);
        let refund = Refund { now_ns, start_ns, granted, permits, busy_until_ns, returned };
        self.apply(refund, Some(serial))
    }

    /// Takes back permits for which it has been proven that the limit is then as if they had
    /// never been taken.
    pub(crate) fn restore(&mut self, now_ns: u64, permits: u64) {
        self.pass_to(now_ns);
        self.apply(Refund::proven(self.latest_ns, permits), None);
    }

    /// Takes back permits of the grant `serial`, or of an unknown one.
    fn apply(&mut self, refund: Refund, serial: Option<u64>) -> u64 {
        let before = self.buckets_with_holds();
        let permits = if self.started.as_slice().is_empty() {
            refund.permits
        } else {
            self.correct_alike(refund.permits, |permits| {
                Correction::Back(Refund { permits, ..refund })
            })
        };
        self.note_refund(&before, serial);
        self.note_return(permits);
        permits
    }

    /// Takes back permits from all limits alike: as many as each of them can.
    fn correct_alike(&mut self, permits: u64, by: impl Fn(u64) -> Correction) -> u64 {
        let back = |limit: &mut Member, permits| limit.correct(by(permits)).unwrap_or(0);
        match self.started.as_mut_slice() {
            [only] => back(only, permits).min(permits),
            limits => {
                let each = limits.iter().map(|limit| back(&mut limit.clone(), permits));
                let fewest = each.min().unwrap_or(0).min(permits);
                for limit in limits.iter_mut() {
                    back(limit, fewest);
                }
                fewest
            }
        }
    }

    /// Takes back started permits for which the caller has no grant, as many as every limit here
    /// can, and returns how many came back.
    ///
    /// These are at most as many as the limit has granted and not yet earned again; see
    /// [`Correction::Credit`]. Promises are [cancelled](Self::cancel)
    /// instead.
    pub fn credit(&mut self, now_ns: u64, permits: u64) -> u64 {
        self.pass_to(now_ns);
        let (now_ns, before) = (self.latest_ns, self.buckets_with_holds());
        let back = self.correct_alike(permits, |permits| Correction::Credit { now_ns, permits });
        self.note_credit(&before);
        self.note_return(back);
        back
    }

    /// Books permits that have been used already, whether they fit or not; see
    /// [`debt`](crate::debt). Each limit here books them on its own, and those on operations in
    /// flight are left out.
    ///
    /// # Errors
    ///
    /// [`CountsInFlight`] if the limit counts operations in flight and nothing else.
    pub fn charge(
        &mut self,
        now_ns: u64,
        permits: u64,
        debt: Debt,
    ) -> Result<Charged, CountsInFlight> {
        self.pass_to(now_ns);
        let charge = Charge { now_ns: self.latest_ns, permits, debt };
        let before = self.buckets_with_holds();
        let limits = self.policies().len();
        let mut all = (limits == 0).then(|| Charged::of(permits, permits, 0));
        for at in 0..limits {
            let Some(limit) = self.started.as_mut_slice().get_mut(at) else { continue };
            if limit.policy().counts_in_flight() {
                continue;
            }
            let charged = match limit.correct(Correction::Charge(charge)) {
                None => self.charge_as_promises(at, permits, debt),
                Some(booked) => {
                    let charged = Charged::of(permits, booked, limit.debt(charge.now_ns));
                    if booked > 0 {
                        self.note_charge(at, &before);
                        self.booked = None;
                    }
                    charged
                }
            };
            all = Some(all.map_or(charged, |all| all.and(charged)));
        }
        all.ok_or(CountsInFlight)
    }

    /// Charges `permits` to a limit whose state cannot hold a debt, as promises of later starts for
    /// which no caller waits.
    ///
    /// They are cut into parts small enough to pass at one instant, and each gets the first start.
    /// The schedule is that of a caller who requests them one after the other.
    fn charge_as_promises(&mut self, at: usize, permits: u64, debt: Debt) -> Charged {
        let first = self.next_serial;
        let mut alone = self.alone(at);
        let now_ns = alone.latest_ns;
        let (mut left, max) =
            (permits, NonZeroU64::new(permits).and_then(|all| alone.max_at_once(all)));
        let part = permits.div_ceil(DEBT_PARTS).min(max.map_or(0, NonZeroU64::get));
        for _ in 0..MAX_DEBT_PARTS {
            let Some(part) = NonZeroU64::new(left.min(part)) else { break };
            let Ok(opening) = alone.opening(now_ns, part) else { break };
            if opening.start_ns.saturating_sub(now_ns) > debt.max_ns() {
                break;
            }
            alone.book(now_ns, opening.start_ns, part);
            left = left.saturating_sub(part.get());
        }
        self.take_over(at, alone, first);
        Charged::of(permits, permits.saturating_sub(left), self.debt_of(at, now_ns))
    }

    /// Returns one of the limits, with the promises that are its own.
    fn alone(&self, at: usize) -> Self {
        let limit = self.started.as_slice().get(at).cloned();
        let own = |promise: &&Promise| promise.owed_by.is_none_or(|by| by == at);
        Self {
            started: limit.into_iter().collect(),
            booked: None,
            promises: self
                .promises
                .iter()
                .filter(own)
                .map(|&promise| Promise { owed_by: None, ..promise })
                .collect(),
            holds: None,
            floor: Floor::new(self.reached_ns(self.floor, Some(at)), self.next_serial),
            ..*self
        }
    }

    /// Takes what has been booked in a limit alone from the serial number `first` on.
    fn take_over(&mut self, at: usize, alone: Self, first: u64) {
        if let (Some(limit), Some(only)) =
            (self.started.as_mut_slice().get_mut(at), alone.started.only())
        {
            limit.clone_from(only);
        }
        for promise in alone.promises.into_iter().filter(|promise| promise.serial >= first) {
            let start_ns = promise.taken.start_ns;
            let index = self.promises.partition_point(|known| known.taken.start_ns <= start_ns);
            self.promises.insert(index, Promise { owed_by: Some(at), ..promise });
            self.owes = true;
        }
        self.next_serial = alone.next_serial;
        self.undone_from = alone.undone_from;
        if self.floor.to < u64::MAX {
            // What was owed before a cancelled call bounds nothing, and what is owed now does.
            self.floor = Floor::new(self.floor.ns, first);
        }
        self.booked = None;
    }

    /// Returns how many of `permits` can pass at one instant at most.
    fn max_at_once(&self, permits: NonZeroU64) -> Option<NonZeroU64> {
        let mut max = permits;
        while let Err(Refusal::Exceeds(error)) = self.opening(self.latest_ns, max) {
            max = NonZeroU64::new(error.max.min(max.get().saturating_sub(1)))?;
        }
        Some(max)
    }

    /// Returns by how many permits the limit is exceeded at `now_ns`, those of a debt that is held
    /// as promises among them.
    #[must_use]
    pub fn debt(&self, now_ns: u64) -> u64 {
        if let Some(caught_up) = self.caught_up(now_ns) {
            return caught_up.debt(now_ns);
        }
        let now_ns = self.clamp(now_ns);
        (0..self.policies().len()).map(|at| self.debt_of(at, now_ns)).max().unwrap_or(0)
    }

    fn debt_of(&self, at: usize, now_ns: u64) -> u64 {
        let debt = self.started.as_slice().get(at).map_or(0, |limit| limit.debt(now_ns));
        let owed = self.owed(at, now_ns).map(|taken| taken.permits.get());
        owed.fold(debt, u64::saturating_add)
    }

    /// Returns the time until the limit is not exceeded any more, or may not be as a hold has ended;
    /// zero if it is not. `None` if time alone cannot help.
    #[must_use]
    pub fn debt_ends_in_ns(&self, now_ns: u64) -> Option<u64> {
        if let Some(caught_up) = self.caught_up(now_ns) {
            return caught_up.debt_ends_in_ns(now_ns);
        }
        let now_ns = self.clamp(now_ns);
        let mut limits = self.started.as_slice().iter().enumerate();
        let end_ns = limits.try_fold(now_ns, |end_ns, (at, limit)| {
            let last = self.owed(at, now_ns).next_back();
            let last_ns = last.map_or(now_ns, |taken| taken.start_ns);
            Some(end_ns.max(limit.debt_ends_ns(now_ns)?).max(last_ns))
        });
        match end_ns {
            Some(end_ns) if end_ns <= now_ns => Some(0),
            _ => self.or_end_of_hold(now_ns, end_ns.map(|end_ns| end_ns.saturating_sub(now_ns))),
        }
    }

    /// Adds permits from outside. Returns `true` if any limit here takes them; only a [backfill
    /// pool](crate::backfill_pool) does.
    pub fn refill(&mut self, now_ns: u64, permits: u64) -> bool {
        self.pass_to(now_ns);
        let now_ns = self.latest_ns;
        let has_taken = self.started.correct(Correction::Refill { now_ns, permits });
        // The refill may have filled a limit that an earlier ticket says was not full.
        self.note_change();
        if has_taken {
            self.booked = None;
        }
        has_taken
    }

    /// Records that operations have ended. Returns `true` if any limit here counts operations in
    /// flight or follows this end.
    ///
    /// Of limits on operations in flight their permits are free again, but a
    /// [commit log](crate::commit_log) counts the effects that they may have had for a period from
    /// now on. [Adaptive](crate::adaptive) limits follow outcomes.
    pub fn end(&mut self, now_ns: u64, permits: u64, how: Ending) -> bool {
        self.pass_to(now_ns);
        let ended = Ended { now_ns: self.latest_ns, permits, how };
        let counts = self.started.correct(Correction::End(ended));
        if counts {
            self.booked = None;
            if how == Ending::Aborted {
                // As after a cancel, a call may now fit before a promise.
                self.note_room();
            }
        }
        counts
    }

    /// Records that operations have [ended](Self::end) and may have had their effect.
    pub fn release(&mut self, now_ns: u64, permits: u64) -> bool {
        self.end(now_ns, permits, Ending::Released)
    }

    /// Records that operations have [ended](Self::end) that had no effect and never will.
    pub fn abort(&mut self, now_ns: u64, permits: u64) -> bool {
        self.end(now_ns, permits, Ending::Aborted)
    }
}
