//! A policy's live limit: its state, its promised starts, and a clock that never goes back.
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
//! policy.

mod foretold;
mod holds;
mod leads;
mod limit;
mod promises;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use self::holds::Holds;
use crate::limit::Limit;
use crate::policy::{Policy, Taken};
use crate::refund::{Refund, RefundEpoch};
use crate::verdict::Grant;

/// A live limit of one policy.
#[derive(Clone, Debug)]
pub struct Ledger<P: Policy> {
    policy: P,
    /// The state of all grants that have started.
    started: P::State,
    /// The state with the first promises taken, up to the newest booking. Absent before the first
    /// promise, when `started` says the same, and after a cancel or a change until the next
    /// booking.
    booked: Option<Box<Booked<P::State>>>,
    /// The grants that have not started, by start and then in the order of their requests.
    promises: VecDeque<Promise>,
    /// Permits of waiters whose start has come and who have not taken them.
    held: u64,
    /// Estimates that are held until the cost is known.
    holds: Option<Box<Holds>>,
    /// The earliest instant at which a new call may start.
    floor_ns: u64,
    latest_ns: u64,
    next_serial: u64,
    /// The serial number below which grants were decided under other numbers.
    changed_from: u64,
    /// The serial number from which on all grants have been cancelled.
    undone_from: u64,
    /// The count of the permits that have come back and of the changes of the numbers so far.
    epoch: RefundEpoch,
    /// The instant by which the limit would have fully recovered after the last grant, had
    /// nothing come back. Until then earlier grants must be told apart from those of a newly
    /// created limit.
    busy_until_ns: u64,
    /// The number of bookings in a row that have left no promise.
    calm: u64,
}

/// A state with the first `promises` promises taken.
#[derive(Clone, Debug)]
struct Booked<S> {
    promises: usize,
    state: S,
}

#[derive(Clone, Copy, Debug)]
struct Promise {
    serial: u64,
    taken: Taken,
    /// The floor before this promise was booked.
    floor_ns: u64,
    /// Set if the permits are held from their start until the waiter takes them.
    is_provisional: bool,
    /// Set if it is a part of a debt, and no caller waits for it.
    is_owed: bool,
}

impl<P: Policy> Ledger<P> {
    /// Creates a fresh limit whose clock shows `now_ns`.
    #[must_use]
    pub fn new(policy: P, now_ns: u64) -> Self {
        let started = policy.fresh(now_ns);
        Self::with_state(policy, started, now_ns)
    }

    /// Creates a limit that continues from `state` at `now_ns`.
    #[must_use]
    pub fn with_state(policy: P, state: P::State, now_ns: u64) -> Self {
        Self::resumed(policy, state, RefundEpoch::NONE, now_ns)
    }

    /// Creates a limit that continues from `state` at `now_ns`, with the refund epoch `epoch`. It
    /// serves callers that keep states without their ledgers; see
    /// [`Ledger::quiescent_state`].
    #[must_use]
    pub fn resumed(policy: P, state: P::State, epoch: RefundEpoch, now_ns: u64) -> Self {
        let busy_until_ns = policy.fresh_at_ns(&state).unwrap_or(0);
        Self {
            policy,
            started: state,
            booked: None,
            promises: VecDeque::new(),
            held: 0,
            holds: None,
            floor_ns: now_ns,
            latest_ns: now_ns,
            next_serial: 1,
            changed_from: 1,
            undone_from: 1,
            epoch,
            busy_until_ns,
            calm: u64::MAX,
        }
    }

    /// Creates a limit that continues from `state` at `now_ns` and starts no new call before
    /// `floor_ns`.
    pub(crate) fn with_floor(policy: P, state: P::State, floor_ns: u64, now_ns: u64) -> Self {
        // Tickets of the previous limit are no longer valid.
        let epoch = RefundEpoch::NONE.and_changed();
        Self { floor_ns, epoch, ..Self::with_state(policy, state, now_ns) }
    }

    /// Returns the limit in force.
    #[must_use]
    pub const fn policy(&self) -> &P {
        &self.policy
    }

    /// Returns the state without the promises.
    #[must_use]
    pub const fn state(&self) -> &P::State {
        &self.started
    }

    /// Returns the number of promises whose start has not come.
    #[must_use]
    pub fn promised(&self) -> usize {
        self.promises.len()
    }

    /// Returns `true` if there are no promises, no holds and no held permits, so that state and
    /// floor alone determine each decision.
    fn is_quiescent(&self) -> bool {
        self.promises.is_empty() && self.held == 0 && !self.has_holds()
    }

    /// Returns the state with all promises taken, and the instant before which no new call
    /// starts. Free intervals between promises are lost.
    pub(crate) fn with_promises(&self) -> (P::State, u64) {
        let last_ns = self.promises.back().map_or(0, |last| last.taken.start_ns);
        (self.all_booked(), self.floor_ns.max(last_ns))
    }

    /// Returns the clock's reading if this ledger differs from one created now only in what has
    /// started.
    pub(crate) fn pristine_at_ns(&self) -> Option<u64> {
        let is_fresh = self.is_quiescent()
            && self.booked.is_none()
            && self.floor_ns <= self.latest_ns
            && self.busy_until_ns <= self.latest_ns
            && (self.next_serial, self.undone_from, self.changed_from) == (1, 1, 1)
            && self.first_on_time() == 0
            && self.epoch == RefundEpoch::NONE
            && self.calm == u64::MAX;
        is_fresh.then_some(self.latest_ns)
    }

    /// Continues from a state that was kept elsewhere and decided on until `newest_ns`.
    pub(crate) fn resume(&mut self, state: P::State, newest_ns: u64) {
        self.latest_ns = self.latest_ns.max(newest_ns);
        self.started = state;
        self.booked = None;
        self.calm = 0;
        self.note_grants();
    }

    /// Returns the clock's reading at `now_ns` if the state alone decides from then on: there are
    /// no promises, and `patience` calls in a row have not needed one.
    pub(crate) fn at_rest(&mut self, now_ns: u64, patience: u64) -> Option<u64> {
        self.pass_to(now_ns);
        self.calm = self.calm.saturating_add(1);
        let rests = self.is_quiescent() && self.floor_ns <= self.latest_ns;
        if !rests {
            self.calm = 0;
        }
        (rests && self.calm >= patience).then_some(self.latest_ns)
    }

    /// Returns the state if from `now_ns` on it alone determines each decision and refund.
    ///
    /// That takes four things: there are no promises, the refund epoch is `epoch`, no grant has
    /// started early, and once the state has fully recovered no earlier grant can be refunded.
    pub fn quiescent_state(&mut self, epoch: RefundEpoch, now_ns: u64) -> Option<&P::State> {
        self.pass_to(now_ns);
        let rests = self.is_quiescent() && self.floor_ns <= self.latest_ns;
        // After a change of the numbers a state may recover long before the earlier grants would
        // have let it.
        let fresh_ns = self.policy.fresh_at_ns(&self.started).unwrap_or(u64::MAX);
        let is_complete = self.busy_until_ns <= fresh_ns.max(self.latest_ns);
        // No ticket may name a later start than the real one.
        let on_time = self.first_on_time() == 0;
        (rests && self.epoch == epoch && is_complete && on_time).then_some(&self.started)
    }

    /// Returns `true` if at `now_ns` no decision could tell this limit from a fresh one.
    /// Refunding an earlier grant might.
    pub fn is_as_fresh(&mut self, now_ns: u64) -> bool {
        self.pass_to(now_ns);
        self.is_quiescent()
            && self.floor_ns <= self.latest_ns
            && self.policy.is_as_fresh(&self.started, self.latest_ns)
    }

    /// Returns `true` if at `now_ns` the limit can be evicted: neither a decision nor the refund
    /// of an earlier grant could tell it from a fresh one.
    pub fn may_be_evicted(&mut self, now_ns: u64) -> bool {
        self.pass_to(now_ns);
        self.is_quiescent()
            && self.busy_until_ns <= self.latest_ns
            && self.policy.is_as_fresh(&self.started, self.latest_ns)
    }

    /// Takes back started permits for which the caller has no grant, and returns how many came
    /// back.
    ///
    /// These are at most as many as the limit has granted and not yet earned again; see
    /// [`Policy::credit`]. Promises are [cancelled](Limit::cancel) instead.
    pub fn credit(&mut self, now_ns: u64, permits: u64) -> u64 {
        self.pass_to(now_ns);
        let before = self.bucket_with_holds();
        let back = self.policy.credit(&mut self.started, self.latest_ns, permits).min(permits);
        self.note_credit(before);
        self.note_return(back);
        back
    }

    /// Returns the instant from which no decision can tell this limit from a fresh one if no
    /// calls come, not before `now_ns`. Returns `None` if time alone never restores it.
    #[must_use]
    pub fn fresh_at_ns(&self, now_ns: u64) -> Option<u64> {
        if self.has_holds() {
            self.fresh_foretold_ns(now_ns)
        } else {
            self.fresh_while_held_ns(now_ns)
        }
    }

    /// Returns what [`fresh_at_ns`](Self::fresh_at_ns) does, where nothing that is held comes back.
    fn fresh_while_held_ns(&self, now_ns: u64) -> Option<u64> {
        if self.held > 0 {
            return None;
        }
        let now_ns = self.clamp(now_ns);
        if self.promises.is_empty() {
            let fresh_ns = self.policy.fresh_at_ns(&self.started)?;
            return Some(fresh_ns.max(self.floor_ns).max(now_ns));
        }
        let (booked, floor_ns) = self.with_promises();
        Some(self.policy.fresh_at_ns(&booked)?.max(floor_ns).max(now_ns))
    }

    /// Returns the refund epoch: the count of what has come back and changed so far.
    #[must_use]
    pub const fn epoch(&self) -> RefundEpoch {
        self.epoch
    }

    /// Returns the serial number of the next booking.
    pub(crate) const fn next_serial(&self) -> u64 {
        self.next_serial
    }

    /// Leaves serial numbers out, so that the next booking has this one, or a later one.
    pub fn skip_serials_to(&mut self, serial: u64) {
        self.next_serial = self.next_serial.max(serial);
    }

    /// Sets the refund epoch to that of the others in a set of limits.
    pub(crate) const fn set_epoch(&mut self, epoch: RefundEpoch) {
        self.epoch = epoch;
    }

    /// Records a change of a limit's numbers: what earlier tickets say about this limit no longer
    /// holds.
    pub(crate) fn note_change(&mut self) {
        self.epoch = self.epoch.and_changed();
    }

    /// Records how long the grants in `started`, or else in `booked`, can still affect a refund.
    fn note_grants(&mut self) {
        let fresh_ns = match &self.booked {
            Some(booked) if booked.promises == self.promises.len() => {
                self.policy.fresh_at_ns(&booked.state)
            }
            _ if self.promises.is_empty() => self.policy.fresh_at_ns(&self.started),
            _ => self.policy.fresh_at_ns(&self.all_booked()),
        };
        let fresh_ns = fresh_ns.unwrap_or(0);
        self.busy_until_ns = self.busy_until_ns.max(fresh_ns);
    }

    /// Takes back permits for which it has been proven that the limit is then as if they had
    /// never been taken.
    pub(crate) fn restore(&mut self, now_ns: u64, permits: u64) {
        self.pass_to(now_ns);
        self.apply(Refund::proven(self.latest_ns, permits), None);
    }

    /// Returns the number of permits that [`Limit::refund`] would take back.
    pub(crate) fn refundable(&self, now_ns: u64, grant: &Grant, permits: u64) -> u64 {
        let mut after = self.clone();
        after.refund(now_ns, grant, permits)
    }

    /// Takes back permits of the grant `serial`, or of an unknown one.
    fn apply(&mut self, refund: Refund, serial: Option<u64>) -> u64 {
        let before = self.bucket_with_holds();
        let permits = self.policy.refund(&mut self.started, refund).min(refund.permits);
        self.note_refund(before, serial);
        self.note_return(permits);
        permits
    }

    /// Records permits that have come back to the started state.
    fn note_return(&mut self, permits: u64) {
        if permits > 0 {
            self.epoch = self.epoch.and_returned(permits);
            // A call may now fit before a promise.
            self.booked = None;
            self.floor_ns = self.latest_ns;
        }
    }

    /// Puts `policy` into force at `now_ns`. A bucket keeps what it has left, everything else keeps
    /// what is used, and promises are kept.
    pub fn reconfigure(&mut self, now_ns: u64, policy: P) {
        self.pass_to(now_ns);
        let before = self.bucket_with_holds();
        policy.rebase(&mut self.started, &self.policy, self.latest_ns);
        if policy != self.policy {
            self.changed_from = self.next_serial;
        }
        self.policy = policy;
        self.note_rebase(before);
        self.note_change();
        // A call under the new limit may fit before a promise of the old one.
        self.booked = None;
        self.floor_ns = self.latest_ns;
    }

    /// Drops all state and all promises, as if the limit were created at `now_ns`.
    pub fn restart(&mut self, now_ns: u64) {
        self.restart_as(now_ns, self.policy.clone());
    }

    /// Drops all state and all promises, and continues with `policy` from `now_ns` on.
    pub fn restart_as(&mut self, now_ns: u64, policy: P) {
        let now_ns = self.clamp(now_ns);
        let (next_serial, epoch) = (self.next_serial, self.epoch.and_changed());
        let (undone_from, changed_from, busy_until_ns) =
            (next_serial, next_serial, self.busy_until_ns);
        // Waiters that have not taken their permits may still do so.
        let provisional = self.promises.iter().filter(|promise| promise.is_provisional);
        let held = provisional
            .fold(self.held, |held, promise| held.saturating_add(promise.taken.permits.get()));
        let fresh = Self::new(policy, now_ns);
        *self =
            Self { held, next_serial, changed_from, undone_from, epoch, busy_until_ns, ..fresh };
    }
}
