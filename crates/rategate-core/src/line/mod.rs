//! A limit and the callers that wait for it: first come, first granted.
//!
//! A line has a [`Ledger`] and its waiters, in order of joining, each with its permits and joining
//! time. Whoever decides while callers wait does so here. A line neither reads a clock nor wakes
//! threads: its owner passes the time and performs the wake-ups that it reports.
//!
//! ```text
//!   granted  |  booked: their starts are known   |  queued
//!   ---------+-----------------------------------+------------------> order of joining
//!           now    first ...
//! ```
//!
//! The start of the head of the queue is known; those of the other waiters usually are not.
//! Leaving from the middle therefore costs nothing but a slot. Some calls need a start further
//! behind: a deadline, a try, a reservation, or a thread that sleeps on its own. Then the starts
//! of all waiters before it are worked out too, on a forecast of the limit, or booked in it where
//! it promises instants. When the limit changes, or permits come back, all of them are worked out
//! anew.
//!
//! # Contract
//!
//! * **Order.** Grants come in the order of joining; no waiter overtakes another, however small
//!   its request. A try has to come behind all waiters.
//! * **Classes.** Within a class the order is the same. Among classes with waiters, permits are
//!   shared by weight at all times, to within one's weight and its largest request
//!   (docs/theory.md, section 2.8). The next waiter stays next. A grant made at once, while no
//!   caller waits, is charged to no class.
//! * **Real starts.** A waiter whose start has come has a provisional grant and
//!   [takes](Line::take) its permits when it runs. That instant decides what it books, so real
//!   starts obey the limit's bound. A waiter that does not take within the [grace
//!   period](Line::set_grace) loses its provisional grant to those behind, and is at the head of
//!   the queue when it comes. On a limit that promises instants, or [where
//!   requested](Line::set_promises_instants), it is granted its promised start instead. Serving
//!   late then delays callers, not the schedule. Where a schedule itself bounds what late callers
//!   may catch up on, a waiter served more than that and 10 ms late is booked anew, as a new caller.
//! * **Nothing lost.** A waiter that leaves frees everything that was set aside for it, and those
//!   behind it move up.
//! * **Deadlines.** A deadline that cannot be met ends the wait at once: at joining, and again
//!   whenever the limit has changed. Where the start cannot be foretold, because another caller
//!   must return permits first, the wait ends when the deadline has come. With several classes, a
//!   start that was in time may come to be too late when other waiters join. That too ends the
//!   wait when the deadline has come, if not before.
//! * **Bounds.** Each class has a maximum number of waiters, and of permits waited for. A full
//!   queue refuses a new caller or evicts its newest waiter.
//! * **Cost.** Joining, leaving and granting are O(1) and one call of the limit; with deadlines
//!   O(log n). Booking all waiters is O(n), once until the next change, and until a waiter leaves
//!   from the middle. Taking is O(m), with m due waiters that have not taken. With several
//!   classes a grant is O(classes), and any call that needs a start behind the first is O(n) each
//!   time. A waiter slot takes 40 bytes, with a waiter of 16.
//!
//! # Example
//!
//! ```
//! use rategate_core::gcra::Gcra;
//! use rategate_core::ledger::Ledger;
//! use rategate_core::line::{Joined, Line, Outcome, QueueBounds, Request, Wakes};
//!
//! /// Waiters are names, and waking appends them to a list.
//! #[derive(Default)]
//! struct Woken(Vec<&'static str>);
//! impl Wakes<&'static str> for Woken {
//!     fn settled(&mut self, name: &'static str) {
//!         self.0.push(name);
//!     }
//!     fn moved(&mut self, _name: &&'static str) {}
//! }
//!
//! let limit = Ledger::new(Gcra::per_second(1), 0);
//! let (mut line, mut woken) = (Line::new(limit, QueueBounds::default()), Woken::default());
//! let mut join = |now_ns, name| line.join(now_ns, Request::of(1), || name, &mut woken);
//! assert!(matches!(join(0, "a"), Ok(Joined::Granted(_))));
//! let Ok(Joined::Waits(b)) = join(0, "b") else { unreachable!() };
//! let Ok(Joined::Waits(c)) = join(5, "c") else { unreachable!() };
//!
//! assert_eq!(line.next_ns(None), Some(1_000_000_000));
//! line.leave(10, &b, &mut woken);
//! line.serve(1_000_000_000, &mut woken);
//! assert_eq!(woken.0, ["c"]);
//! // It wakes late; its start is the instant at which it takes.
//! let took = line.take(1_000_300_000, &c, || "c", &mut woken);
//! let Some(Outcome::Granted(grant)) = took else { unreachable!() };
//! assert_eq!((grant.promised_ns, grant.start_ns), (1_000_000_000, 1_000_300_000));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::num::NonZeroU64;

use crate::debt::Debt;
use crate::fair::{ClassId, Rounds, TooManyClasses};
use crate::holds::{Committed, Hold};
use crate::ledger::Ledger;
use crate::verdict;

pub use self::bounds::{MAX_WAITERS, QueueBounds, WhenFull};
use self::forecast::Forecast;
use self::grace::Grace;
pub use self::grace::{MAX_GRACE_NS, MIN_GRACE_NS};
use self::head::Head;
pub use self::head::Rousing;
pub use self::types::{Joined, LeaveOutcome, Outcome, QueueRejection, Request, WaiterId, Wakes};
use self::waiter_slab::{NONE, WaiterSlab};

mod booking;
mod bounds;
mod forecast;
mod grace;
mod head;
mod joining;
mod taking;
mod types;
mod waiter_slab;

/// A limit and the waiters for its permits, in order of joining, with a handle to wake each.
#[derive(Debug)]
pub struct Line<W> {
    limit: Ledger,
    waiter_slab: WaiterSlab<W>,
    /// The booked starts, in order: in the limit, or in a forecast where waiters take.
    booked: VecDeque<Booked>,
    /// The order among several classes. A class is charged when its waiter starts.
    rounds: Rounds,
    /// The order of classes behind all booked waiters, where those are more than the first.
    ///
    /// A later arrival may change it.
    ahead: Option<Rounds>,
    bounds: QueueBounds,
    by_deadline: BTreeSet<(u64, u32)>,
    deadlines: BTreeMap<u32, u64>,
    /// `true` if the limit has changed since the deadlines were last checked.
    is_changed: bool,
    /// `true` if waiters start at their promised instants, whatever the policy.
    promises_instants: bool,
    is_closed: bool,
    /// The waiters with provisional grants that they have not taken, by wake-up time.
    due: VecDeque<u32>,
    /// The waiters that came too late and are at the head of the queue again.
    returning: VecDeque<u32>,
    head: Option<Head>,
    /// The starts reported to waiters that keep their own time; `None` if none could be reported.
    reported_starts: BTreeMap<u32, Option<u64>>,
    forecast: Option<Forecast>,
    grace: Grace,
    /// The number of grants not yet collected, and the time of the last one.
    undelivered: u32,
    settled_ns: u64,
    /// The first waiter, and the next end of a hold that it knows.
    known_end: Option<(u32, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Booked {
    slot: u32,
    grant: verdict::Grant,
}

impl<W> Line<W> {
    /// Returns a line of a limit without waiters, with one class, of weight 1.
    #[must_use]
    pub fn new(limit: Ledger, bounds: QueueBounds) -> Self {
        let mut rounds = Rounds::new();
        // The first class always fits.
        let _ = rounds.add_class(NonZeroU64::MIN);
        Self {
            limit,
            waiter_slab: WaiterSlab::new(),
            booked: VecDeque::new(),
            rounds,
            ahead: None,
            bounds,
            by_deadline: BTreeSet::new(),
            deadlines: BTreeMap::new(),
            is_changed: false,
            promises_instants: false,
            is_closed: false,
            due: VecDeque::new(),
            returning: VecDeque::new(),
            head: None,
            reported_starts: BTreeMap::new(),
            forecast: None,
            grace: Grace::default(),
            undelivered: 0,
            settled_ns: 0,
            known_end: None,
        }
    }

    /// Returns the limit as it is.
    #[must_use]
    pub const fn limit(&self) -> &Ledger {
        &self.limit
    }

    /// Returns the limit, for what moves no start: to hold a grant that has started, to seal and
    /// open a lock-free form, or anything while no caller waits. All else is a
    /// [change](Self::change).
    pub const fn limit_mut(&mut self) -> &mut Ledger {
        &mut self.limit
    }

    /// Returns the limit without its waiters.
    #[must_use]
    pub fn into_limit(self) -> Ledger {
        self.limit
    }

    /// Sets whether waiters start at the instants that they were promised, whatever the policy.
    ///
    /// If so, the rate is kept and real starts obey `C(W + d)`, where `d` is the largest
    /// lateness.
    pub fn set_promises_instants(
        &mut self,
        now_ns: u64,
        promises_instants: bool,
        wakes: &mut impl Wakes<W>,
    ) {
        self.change_with(now_ns, wakes, |line, _| line.promises_instants = promises_instants);
    }

    /// Sets how long a waiter whose start has come may leave its permits untaken.
    ///
    /// With `None` the queue chooses: a few times the largest lateness seen, from
    /// [`MIN_GRACE_NS`] to [`MAX_GRACE_NS`].
    pub const fn set_grace(&mut self, grace_ns: Option<u64>) {
        self.grace.set(grace_ns);
    }

    /// Adds a class of callers with its own queue.
    ///
    /// While several classes have waiters, each is granted permits in proportion to its weight.
    ///
    /// # Errors
    ///
    /// [`TooManyClasses`].
    pub fn add_class(
        &mut self,
        now_ns: u64,
        weight: NonZeroU64,
        wakes: &mut impl Wakes<W>,
    ) -> Result<ClassId, TooManyClasses> {
        self.change_with(now_ns, wakes, |line, _| {
            let class = line.rounds.add_class(weight)?;
            line.waiter_slab.add_class_queue();
            Ok(class)
        })
    }

    /// Ends a hold of a caller of this class, which turned out to cost `actual` permits.
    ///
    /// The class is charged what it cost, or credited: but one without waiters can only be charged
    /// more.
    pub fn commit(
        &mut self,
        now_ns: u64,
        class: ClassId,
        (hold, actual, debt): (Hold, u64, Debt),
        wakes: &mut impl Wakes<W>,
    ) -> Committed {
        self.change_with(now_ns, wakes, |line, now_ns| {
            let committed = line.limit.commit(now_ns, hold, actual, debt);
            line.settle_class(class, hold.permits, actual);
            committed
        })
    }

    /// Corrects what a class was charged for a grant, once the true cost is known, as
    /// [`commit`](Self::commit) does.
    pub fn settle(
        &mut self,
        now_ns: u64,
        class: ClassId,
        (charged, actual): (u64, u64),
        wakes: &mut impl Wakes<W>,
    ) {
        self.change_with(now_ns, wakes, |line, _| line.settle_class(class, charged, actual));
    }

    fn settle_class(&mut self, class: ClassId, charged: u64, actual: u64) {
        if actual > charged || self.waiter_slab.class_queue(class).waiting > 0 {
            self.rounds.settle(class, charged, actual);
        }
    }

    /// Changes the limit, or credits it. All waiters are booked anew afterwards, so those that
    /// have to wait longer or start now do.
    pub fn change<T>(
        &mut self,
        now_ns: u64,
        wakes: &mut impl Wakes<W>,
        change: impl FnOnce(&mut Ledger, u64) -> T,
    ) -> T {
        self.change_with(now_ns, wakes, |line, now_ns| change(&mut line.limit, now_ns))
    }

    fn change_with<T>(
        &mut self,
        now_ns: u64,
        wakes: &mut impl Wakes<W>,
        change: impl FnOnce(&mut Self, u64) -> T,
    ) -> T {
        self.withdraw_starts(now_ns, wakes);
        let changed = change(self, now_ns);
        self.serve_waiters(now_ns, wakes);
        changed
    }

    /// Withdraws all booked starts that have not come by `now_ns`, before the limit changes.
    fn withdraw_starts(&mut self, now_ns: u64, wakes: &mut impl Wakes<W>) {
        if !self.takes() {
            // Starts that have come are those of before.
            self.serve_waiters(now_ns, wakes);
        }
        self.unbook(now_ns);
    }

    /// Ends the holds whose time is over, to the benefit of all waiters, who have to be served
    /// then. Returns `true` if there were any.
    fn end_holds(&mut self, now_ns: u64, wakes: &mut impl Wakes<W>) -> bool {
        let now_ns = self.limit.clamp(now_ns);
        let has_ended = self.limit.next_end_ns().is_some_and(|end_ns| end_ns <= now_ns);
        if has_ended {
            self.withdraw_starts(now_ns, wakes);
            self.limit.end_holds(now_ns);
        }
        has_ended
    }

    /// Tells the first waiter, if it does not know, which hold ends next: it has to serve the line
    /// then.
    pub fn announce_end(&mut self, wakes: &mut impl Wakes<W>) {
        let Some(end_ns) = self.limit.next_end_ns() else {
            self.known_end = None;
            return;
        };
        let slot = self.first_waiting();
        let first = self.waiter_slab.at(slot);
        let known = first.map(|_| (slot, end_ns));
        if self.known_end != known
            && let Some(waiting) = first
        {
            wakes.moved(&waiting.waiter);
        }
        self.known_end = known;
    }

    /// Replaces the bounds, for callers that join from now on.
    pub const fn set_bounds(&mut self, bounds: QueueBounds) {
        self.bounds = bounds;
    }

    /// Returns the number of waiters: those whose start has not come, and those that have not
    /// taken.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        let due = u32::try_from(self.due.len()).unwrap_or(u32::MAX);
        self.waiter_slab.waiting.saturating_add(due)
    }

    /// Returns `true` if no waiter waits for its start to come.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.waiter_slab.waiting == 0
    }

    /// Returns `true` if at `now_ns` the queue has no waiters, due waiters or undelivered grants.
    ///
    /// A grant that is not collected within the grace period no longer counts as undelivered.
    #[must_use]
    pub fn is_idle(&self, now_ns: u64) -> bool {
        self.is_empty() && self.due.is_empty() && !self.has_undelivered(now_ns)
    }

    fn has_undelivered(&self, now_ns: u64) -> bool {
        self.undelivered > 0 && now_ns < self.settled_ns.saturating_add(self.grace.ns())
    }

    /// Returns when to [serve](Self::serve) next: the first start, deadline, or end of a hold. The
    /// head may be [roused](Self::rouse) some time before its start.
    ///
    /// `None` if that depends on an act of a caller.
    #[must_use]
    pub fn next_ns(&self, rousing: Option<Rousing>) -> Option<u64> {
        let booked = self.booked.front().filter(|_| self.forecast.is_none());
        let start_ns = booked.map(|booked| booked.grant.start_ns);
        let head_ns = self.head.and_then(|head| head.serve_ns(rousing));
        let withdrawal_ns = self.withdrawal_ns().filter(|_| !self.is_empty());
        let deadline_ns = self.by_deadline.first().map(|&(deadline_ns, _)| deadline_ns);
        let end_ns = self.limit.next_end_ns().filter(|_| !self.is_empty());
        [start_ns, head_ns, withdrawal_ns, deadline_ns, end_ns].into_iter().flatten().min()
    }

    /// Returns `true` if a new caller can only be added at the end of the queue, which has a free
    /// slot.
    ///
    /// That takes other waiters, a single class and a request without a deadline.
    fn can_only_enqueue(&self, request: Request) -> bool {
        let Request { permits, max_wait_ns, class, .. } = request;
        let is_last = max_wait_ns.is_none() && !self.has_classes();
        is_last && !self.is_empty() && self.has_capacity(class, permits)
    }

    /// Grants a request now, or gives the caller a slot in the queue.
    ///
    /// Waiters are [served](Self::serve) first, unless the caller can only be added behind them:
    /// their own threads or a timer do that.
    ///
    /// # Errors
    ///
    /// [`QueueRejection`]. Nothing is taken in that case.
    pub fn join(
        &mut self,
        now_ns: u64,
        request: Request,
        waiter: impl FnOnce() -> W,
        wakes: &mut impl Wakes<W>,
    ) -> Result<Joined, QueueRejection> {
        if self.end_holds(now_ns, wakes) || !self.can_only_enqueue(request) {
            self.serve_waiters(now_ns, wakes);
        }
        let now_ns = self.limit.clamp(now_ns);
        let Request { permits, max_wait_ns, .. } = request;
        let Some(permits) = NonZeroU64::new(permits) else {
            // No waiter is in the way of a request for nothing.
            return Ok(Joined::Granted(Ledger::nothing(now_ns)));
        };
        if max_wait_ns.is_some() {
            self.book_all(wakes);
        }
        let was_empty = self.is_empty();
        if was_empty {
            self.drop_forecast();
        }
        let joined = match self.can_start_now(now_ns, permits, max_wait_ns) {
            Ok(true) if self.is_idle(now_ns) && !request.is_provisional => {
                let promised = self.limit.promise(now_ns, permits);
                return promised.map(Joined::Granted).map_err(QueueRejection::Refused);
            }
            Ok(starts_now) => {
                // It only passes through the queue, whose bounds are for callers that wait in it.
                if !(starts_now && was_empty && self.waiter_slab.has_free()) {
                    self.ensure_capacity(now_ns, request.class, permits, wakes)?;
                }
                self.enqueue(now_ns, permits, request, waiter, wakes)
            }
            Err(rejection) => {
                // Before any waiter is evicted for it.
                let waiter =
                    self.check_in_class_order(now_ns, request, rejection, waiter, wakes)?;
                self.ensure_capacity(now_ns, request.class, permits, wakes)?;
                self.enqueue(now_ns, permits, request, || waiter, wakes)
            }
        };
        // The evicted waiter may have been the first.
        let is_first = was_empty || (self.head.is_none() && self.takes());
        if is_first {
            // Works out the next start. It may have come, behind grants not yet delivered.
            self.serve_waiters(now_ns, wakes);
        }
        Ok(joined)
    }

    /// Ends the holds whose time is over, and starts all waiters whose starts have come by `now_ns`,
    /// in order.
    ///
    /// Each may [take](Self::take) its permits, or is granted them at its own start. Ends the
    /// waits whose deadlines have come. Then works out the start of the new head.
    pub fn serve(&mut self, now_ns: u64, wakes: &mut impl Wakes<W>) {
        self.end_holds(now_ns, wakes);
        self.serve_waiters(now_ns, wakes);
    }

    fn serve_waiters(&mut self, now_ns: u64, wakes: &mut impl Wakes<W>) {
        self.serve_at_most(now_ns, usize::MAX, wakes);
    }

    /// Serves as [`serve`](Self::serve) does, for at most `max` starts, besides those that had come
    /// on a schedule before a hold ended. Returns `true` if more may remain.
    pub fn serve_some(&mut self, now_ns: u64, max: usize, wakes: &mut impl Wakes<W>) -> bool {
        self.end_holds(now_ns, wakes);
        self.serve_at_most(now_ns, max, wakes)
    }

    fn serve_at_most(&mut self, now_ns: u64, max: usize, wakes: &mut impl Wakes<W>) -> bool {
        let has_more = self.serve_due(now_ns, max, wakes);
        if !has_more {
            // The order among classes is not known as long as others may join.
            if self.is_changed && !self.deadlines.is_empty() && !self.has_classes() {
                self.book_all(wakes);
            }
            self.is_changed = false;
        }
        has_more
    }

    fn serve_due(&mut self, now_ns: u64, max: usize, wakes: &mut impl Wakes<W>) -> bool {
        let now_ns = self.limit.clamp(now_ns);
        if self.takes() {
            return self.serve_taking(now_ns, max, wakes);
        }
        self.unbook_ahead();
        // They may have become due before the limit became one that promises instants.
        self.withdraw_overdue(now_ns);
        (0..max).all(|_| self.serve_one(now_ns, wakes))
    }

    /// Returns the outcome of a wait, once.
    ///
    /// `None` while the wait lasts, also for a waiter that may [take](Self::take) its permits.
    #[must_use = "the outcome is returned only once"]
    pub fn collect(&mut self, waiter_id: &WaiterId) -> Option<Outcome> {
        let outcome = self.waiter_slab.collect(waiter_id.0)?;
        if matches!(outcome, Outcome::Granted(_)) {
            self.undelivered = self.undelivered.saturating_sub(1);
        }
        Some(outcome)
    }

    /// Returns the outcome of a wait that has ended, and leaves it to be
    /// [collected](Self::collect).
    #[must_use]
    pub fn outcome(&self, waiter_id: &WaiterId) -> Option<&Outcome> {
        self.waiter_slab.outcome(waiter_id.0)
    }

    /// Returns the handle by which to wake a waiter, as long as it waits.
    pub fn waiter_mut(&mut self, waiter_id: &WaiterId) -> Option<&mut W> {
        self.waiter_slab.at_mut(waiter_id.0).map(|waiting| &mut waiting.waiter)
    }

    /// Leaves the queue, if the waiter is still in it. The queue must have been
    /// [served](Self::serve) at `now_ns`.
    pub fn leave(
        &mut self,
        now_ns: u64,
        waiter_id: &WaiterId,
        wakes: &mut impl Wakes<W>,
    ) -> Option<LeaveOutcome<W>> {
        if let Some(outcome) = self.collect(waiter_id) {
            return Some(LeaveOutcome::Settled(outcome));
        }
        if self.leave_due(now_ns, waiter_id.0) {
            self.serve_waiters(now_ns, wakes);
            return Some(LeaveOutcome::Untaken);
        }
        self.unbook_slot(now_ns, waiter_id.0);
        self.remove_deadline(waiter_id.0);
        let waiter = self.free(waiter_id.0)?;
        if !self.takes() {
            self.block_starts_before(now_ns);
        }
        self.serve_waiters(now_ns, wakes);
        Some(LeaveOutcome::InTime(waiter))
    }

    /// Leaves the queue from behind a waiter whose start is known, at any time.
    ///
    /// Usually that is any waiter but the first, and it needs no more than this. Returns `None`
    /// if it needs a [`leave`](Self::leave).
    pub fn leave_from_behind(&mut self, waiter_id: &WaiterId) -> Option<W> {
        let is_first = |booked: &Booked| booked.slot == waiter_id.0;
        let is_behind = match self.head {
            Some(head) => head.slot != waiter_id.0 && self.booked.is_empty(),
            None => self.booked.len() == 1 && !self.booked.front().is_none_or(is_first),
        };
        if !is_behind {
            return None;
        }
        self.remove_deadline(waiter_id.0);
        self.free(waiter_id.0)
    }

    /// Returns the instant until which a waiter has to wait, as things stand: its start or
    /// deadline.
    ///
    /// `None` where that depends on an act of a caller. Books all waiters before it, and ends the
    /// waits that turn out to be in vain, which may include this one.
    ///
    /// Where waiters take, it is the earliest possible instant; those before may come late.
    pub fn due_ns(&mut self, waiter_id: &WaiterId, wakes: &mut impl Wakes<W>) -> Option<u64> {
        if let Some((due, _)) = self.waiter_slab.due(waiter_id.0) {
            return Some(due.promised_ns);
        }
        let takes = self.takes();
        let was_head = self.head.is_some_and(|head| head.slot == waiter_id.0);
        if !takes || !was_head {
            self.book_all(wakes);
        }
        self.waiter_slab.at(waiter_id.0)?;
        // Waiters before it may have turned out to wait in vain.
        let head = self.head.filter(|_| takes);
        let booked_ns = |line: &Self| {
            let ours = line.booked.iter().rfind(|booked| booked.slot == waiter_id.0);
            ours.map(|booked| booked.grant.start_ns)
        };
        let start_ns = match head {
            None => booked_ns(self),
            Some(head) if was_head => {
                [head.start_ns, self.withdrawal_ns()].into_iter().flatten().min()
            }
            Some(head) if head.slot == waiter_id.0 => {
                head.start_ns.or_else(|| self.withdrawal_ns())
            }
            // A waiter that was to start before the head does has been overtaken by lateness. It
            // learns its start when it is the head itself: otherwise all such waiters would wake
            // at each of the starts before.
            Some(head) => {
                booked_ns(self).filter(|start_ns| head.start_ns.is_some_and(|ns| *start_ns >= ns))
            }
        };
        self.reported_starts.insert(waiter_id.0, start_ns);
        let deadline_ns = self.deadlines.get(&waiter_id.0).copied();
        if takes { start_ns.into_iter().chain(deadline_ns).min() } else { start_ns.or(deadline_ns) }
    }

    /// Books all waiters, as far as their starts can be known.
    ///
    /// The next decision of the limit then comes behind them: [`behind_all`](Self::behind_all).
    fn book_all(&mut self, wakes: &mut impl Wakes<W>) {
        if self.takes() {
            if self.ahead.is_some() {
                self.drop_forecast();
            }
            if !self.is_empty() {
                self.forecast_all(wakes);
            }
            if self.head.is_none() && !self.is_empty() {
                // The first turned out to wait in vain.
                self.serve_taking(self.limit.clamp(0), usize::MAX, wakes);
            }
            return;
        }
        self.unbook_ahead();
        while self.book_next(wakes) {}
    }

    /// Withdraws all booked starts, before the limit changes at `now_ns`.
    fn unbook(&mut self, now_ns: u64) {
        self.is_changed = true;
        if self.takes() {
            self.drop_forecast();
            self.head = None;
        } else {
            while self.unbook_last(now_ns) {}
        }
    }

    /// Ends all waits.
    pub fn close(&mut self, now_ns: u64, wakes: &mut impl Wakes<W>) {
        self.unbook(now_ns);
        self.close_due(now_ns);
        while let Some(slot) = self.waiter_slab.any_waiter() {
            self.end(slot, Outcome::Closed, wakes);
        }
    }

    const fn has_classes(&self) -> bool {
        self.rounds.classes() > 1
    }

    fn has_unbooked(&self) -> bool {
        self.waiter_slab.class_queues().iter().any(|class_queue| class_queue.unbooked != NONE)
    }
}
