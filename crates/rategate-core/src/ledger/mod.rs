//! A live limit: the states of one policy or several, promised starts, what is held, and a clock
//! that never goes back.
//!
//! Time is an argument, and the clock is clamped: an older reading than the newest one seen counts
//! as the newest. Going backwards therefore earns nothing twice.
//!
//! Grants whose start has come are folded into the state and are no longer known one by one. A
//! promise of a later start stays on a list until then, so that it can be cancelled and a change
//! of the limit keeps it.
//!
//! ```text
//!   started grants | promises, in the order of their starts
//!   ===============+----------o------o----x----o------------> time
//!    state        now                     ^ cancelled: the next call that fits starts here
//! ```
//!
//! New calls start after all promises, in the order of their requests. Only a cancelled call or a
//! change of the limit leaves a free interval between promises. A later call may then start
//! before a promise: at the first instant at which it and every promise after it conform to the
//! policies.

mod holds;
mod leads;
mod promises;
mod requests;
mod returns;
mod waiters;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use self::holds::Holds;
pub use self::returns::MAX_DEBT_PARTS;
use crate::all_of::AllOf;
use crate::any_policy::AnyPolicy;
use crate::error::LimitError;
use crate::members::Members;
use crate::policy::Taken;
use crate::refund::RefundEpoch;

/// A live limit, which its caller tells the time.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// The limits with all grants that have started.
    started: Members,
    /// The limits with the first promises taken, up to the newest booking. Absent before the first
    /// promise, when `started` says the same, and after a cancel or a change until the next
    /// booking.
    booked: Option<Box<Booked>>,
    /// The grants that have not started, by start and then in the order of their requests.
    promises: VecDeque<Promise>,
    /// Permits of waiters whose start has come and who have not taken them.
    held: u64,
    /// Estimates that are held until the cost is known.
    holds: Option<Box<Holds>>,
    floor: Floor,
    /// Set if any of the promises are a debt.
    owes: bool,
    latest_ns: u64,
    next_serial: u64,
    /// The serial number below which grants were decided under other numbers.
    changed_from: u64,
    /// The serial number from which on all grants have been cancelled.
    undone_from: u64,
    /// The count of the permits that have come back and of the changes of the numbers so far. Of
    /// several limits it counts the most that came back to one of them: one ticket serves all.
    epoch: RefundEpoch,
    /// The number of bookings in a row that have left no promise.
    calm: u64,
}

/// Limits with the first `promises` promises taken.
#[derive(Clone, Debug)]
struct Booked {
    promises: usize,
    limits: Members,
}

#[derive(Clone, Copy, Debug)]
struct Promise {
    serial: u64,
    taken: Taken,
    /// The floor before this promise was booked.
    floor: Floor,
    /// Set if the permits are held from their start until the waiter takes them.
    is_provisional: bool,
    /// Set if it is a part of a debt, and no caller waits for it. Then it is one of this limit
    /// alone.
    owed_by: Option<usize>,
}

/// The earliest instant at which a new call may start: not before `ns`, nor before what a limit
/// owes by bookings whose serial numbers are within these.
#[derive(Clone, Copy, Debug)]
struct Floor {
    ns: u64,
    from: u64,
    to: u64,
}

impl Floor {
    /// Returns the floor of calls that come after a booking before the serial number `from`.
    const fn new(ns: u64, from: u64) -> Self {
        Self { ns, from, to: u64::MAX }
    }
}

impl Ledger {
    /// Creates a fresh limit whose clock shows `now_ns`.
    #[must_use]
    pub fn new(limits: impl Into<AllOf>, now_ns: u64) -> Self {
        Self::with_state(Members::fresh(&limits.into(), now_ns), now_ns)
    }

    /// Creates a limit that continues from its state at `now_ns`.
    #[must_use]
    pub fn with_state(started: impl Into<Members>, now_ns: u64) -> Self {
        Self {
            started: started.into(),
            booked: None,
            promises: VecDeque::new(),
            held: 0,
            holds: None,
            floor: Floor::new(now_ns, 1),
            owes: false,
            latest_ns: now_ns,
            next_serial: 1,
            changed_from: 1,
            undone_from: 1,
            epoch: RefundEpoch::NONE,
            calm: u64::MAX,
        }
    }

    /// Creates a limit that continues from its state at `now_ns` and starts no new call before
    /// `floor_ns`.
    pub(crate) fn with_floor(started: Members, floor_ns: u64, now_ns: u64) -> Self {
        // Tickets of the previous limit are no longer valid.
        let epoch = RefundEpoch::NONE.and_changed();
        Self { floor: Floor::new(floor_ns, 1), epoch, ..Self::with_state(started, now_ns) }
    }

    /// Returns the newest reading of the clock, including `now_ns`.
    #[must_use]
    pub fn clamp(&self, now_ns: u64) -> u64 {
        self.latest_ns.max(now_ns)
    }

    /// Returns the policies in force, in order.
    #[must_use]
    pub fn policies(&self) -> impl ExactSizeIterator<Item = AnyPolicy> + Clone {
        self.started.policies()
    }

    /// Returns the limits without the promises.
    #[must_use]
    pub const fn limits(&self) -> &Members {
        &self.started
    }

    /// Returns the limits, without the promises.
    #[must_use]
    pub fn into_limits(self) -> Members {
        self.started
    }

    /// Returns the number of promises whose start has not come.
    #[must_use]
    pub fn promised(&self) -> usize {
        self.promises.len()
    }

    /// Writes the numbers in force: those of the policy, or a list.
    ///
    /// # Errors
    ///
    /// Those of the formatter.
    pub fn fmt_policies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.started.only() {
            Some(only) => fmt::Debug::fmt(&only.policy(), f),
            None => f.debug_list().entries(self.policies()).finish(),
        }
    }

    /// Returns `true` if there are no promises, no holds and no held permits, so that states and
    /// floor alone determine each decision.
    fn is_quiescent(&self) -> bool {
        self.promises.is_empty() && self.held == 0 && !self.has_holds()
    }

    /// Returns the limits with all promises taken, and the instant before which no new call
    /// starts. Free intervals between promises are lost.
    pub(crate) fn with_promises(&self) -> (Members, u64) {
        let last_ns = self.promises.back().map_or(0, |last| last.taken.start_ns);
        (self.all_booked(), self.floor_ns().max(last_ns))
    }

    /// Returns the clock's reading if this ledger differs from one created now only in what has
    /// started.
    pub(crate) fn pristine_at_ns(&self) -> Option<u64> {
        let is_fresh = self.is_quiescent()
            && self.booked.is_none()
            && self.floor_ns() <= self.latest_ns
            && (self.next_serial, self.undone_from, self.changed_from) == (1, 1, 1)
            && self.epoch == RefundEpoch::NONE
            && self.calm == u64::MAX;
        is_fresh.then_some(self.latest_ns)
    }

    /// Continues from states that were kept elsewhere and decided on until `newest_ns`.
    pub(crate) fn resume(&mut self, started: Members, newest_ns: u64) {
        self.latest_ns = self.latest_ns.max(newest_ns);
        self.started = started;
        self.booked = None;
        self.calm = 0;
    }

    /// Returns the clock's reading at `now_ns` if the states alone decide from then on: there are
    /// no promises, and `patience` calls in a row have not needed one.
    pub(crate) fn at_rest(&mut self, now_ns: u64, patience: u64) -> Option<u64> {
        self.pass_to(now_ns);
        self.calm = self.calm.saturating_add(1);
        let rests = self.is_quiescent() && self.floor_ns() <= self.latest_ns;
        if !rests {
            self.calm = 0;
        }
        (rests && self.calm >= patience).then_some(self.latest_ns)
    }

    /// Returns the limits if from `now_ns` on their states alone determine each decision.
    pub fn quiescent_state(&mut self, now_ns: u64) -> Option<&Members> {
        self.pass_to(now_ns);
        let rests = self.is_quiescent() && self.floor_ns() <= self.latest_ns;
        rests.then_some(&self.started)
    }

    /// Returns `true` if at `now_ns` no decision could tell this limit from a fresh one, so that it
    /// can be evicted. Refunding an earlier grant might.
    pub fn is_as_fresh(&mut self, now_ns: u64) -> bool {
        self.pass_to(now_ns);
        self.is_quiescent()
            && self.floor_ns() <= self.latest_ns
            && self.started.is_as_fresh(self.latest_ns)
    }

    /// Returns the instant from which no decision can tell this limit from a fresh one if no
    /// calls come and all that is held is used, not before `now_ns`. Returns `None` if time alone
    /// never restores it.
    #[must_use]
    pub fn fresh_at_ns(&self, now_ns: u64) -> Option<u64> {
        if let Some(caught_up) = self.caught_up(now_ns) {
            return caught_up.fresh_at_ns(now_ns);
        }
        // Operations in flight end with their holds.
        if self.counts_in_flight()
            && let Some(last_ns) = self.holds.as_ref().and_then(|holds| holds.last_end_ns())
        {
            let mut after = self.clone();
            after.pass_to(last_ns);
            return after.fresh_at_ns(last_ns);
        }
        if self.held > 0 {
            return None;
        }
        let now_ns = self.clamp(now_ns);
        if self.promises.is_empty() {
            return Some(self.started.fresh_at_ns()?.max(self.floor_ns()).max(now_ns));
        }
        let (booked, floor_ns) = self.with_promises();
        Some(booked.fresh_at_ns()?.max(floor_ns).max(now_ns))
    }

    /// Returns the refund epoch: the count of what has come back and changed so far.
    pub(crate) const fn epoch(&self) -> RefundEpoch {
        self.epoch
    }

    /// Leaves serial numbers out, so that the next booking has this one, or a later one.
    pub fn skip_serials_to(&mut self, serial: u64) {
        self.next_serial = self.next_serial.max(serial);
    }

    /// Records a change of the numbers: what earlier tickets say no longer holds.
    fn note_change(&mut self) {
        self.epoch = self.epoch.and_changed();
    }

    /// Records permits that have come back to the started states.
    fn note_return(&mut self, permits: u64) {
        if permits > 0 {
            self.epoch = self.epoch.and_returned(permits);
            self.note_room();
        }
    }

    /// Records that a call may now fit before a promise.
    fn note_room(&mut self) {
        self.booked = None;
        self.floor = Floor::new(self.latest_ns, self.next_serial);
    }

    /// Puts other numbers into force at `now_ns`, for each policy those in its place. A bucket
    /// keeps what it has left, everything else keeps what is used, and promises are kept. Another
    /// policy begins as used up as the one before it was.
    ///
    /// # Errors
    ///
    /// [`LimitError::OtherPolicy`] unless they [can follow](AllOf::can_follow). Nothing changes in
    /// that case.
    pub fn reconfigure(&mut self, now_ns: u64, limits: impl Into<AllOf>) -> Result<(), LimitError> {
        let limits = limits.into();
        limits.can_follow(self.policies())?;
        self.pass_to(now_ns);
        let before = self.buckets_with_holds();
        let now_ns = self.latest_ns;
        let mut others = Vec::new();
        for (at, (member, policy)) in self.started.as_mut_slice().iter_mut().zip(limits).enumerate()
        {
            let in_force = member.policy();
            if in_force != policy {
                member.change(policy, now_ns);
                self.changed_from = self.next_serial;
                others.extend((!policy.is_like(&in_force)).then_some(at));
            }
        }
        for at in others {
            self.note_other_policy(at);
        }
        self.note_rebase(&before);
        self.note_change();
        self.note_room();
        Ok(())
    }

    /// Drops all state and all promises, as if the limit were created at `now_ns`. Returns `true`
    /// if that changes anything observable.
    pub fn restart(&mut self, now_ns: u64) -> bool {
        let was_used = !self.is_as_fresh(now_ns);
        let limits = self.policies().collect::<AllOf>();
        self.restart_as(now_ns, limits);
        was_used
    }

    /// Drops all state and all promises, and continues with other numbers from `now_ns` on.
    pub fn restart_as(&mut self, now_ns: u64, limits: impl Into<AllOf>) {
        let now_ns = self.clamp(now_ns);
        let (next_serial, epoch) = (self.next_serial, self.epoch.and_changed());
        let (undone_from, changed_from) = (next_serial, next_serial);
        // Waiters that have not taken their permits may still do so.
        let provisional = self.promises.iter().filter(|promise| promise.is_provisional);
        let held = provisional
            .fold(self.held, |held, promise| held.saturating_add(promise.taken.permits.get()));
        let fresh = Self::new(limits, now_ns);
        *self = Self { held, next_serial, changed_from, undone_from, epoch, ..fresh };
    }
}
