//! The queue of those who wait: first come, first granted.
//!
//! A queue stands before a [`Limit`] and knows who waits for how much since when. It neither
//! reads a clock nor wakes anybody: its owner tells it the time, and is told whom to wake.
//!
//! ```text
//!   granted  |  booked: their starts are known   |  waiting in line
//!   ---------+-----------------------------------+------------------> order of asking
//!           now    first ...
//! ```
//!
//! The start of the first in line is known, those of the others as a rule are not: so leaving from
//! the middle costs nothing but a slot. Only where a start further behind is asked for (a deadline, a
//! try, a reservation, a thread that sleeps for itself) are all before it worked out too: on a
//! forecast of the limit, or booked in it where it promises instants. When the limit changes, or
//! permits come back, all of it is worked out anew.
//!
//! # Contract
//!
//! * **Order.** Grants come in the order of joining; nobody overtakes, however small. A try has to
//!   stand behind all who wait.
//! * **Classes.** Within a class the order is that. Among classes that wait, permits are shared by
//!   weight at all times, to within one's weight and its largest request (theory 2.8). Whoever is
//!   next stays next. What is granted at once, while nobody waits, is charged to no class.
//! * **Real starts.** A waiter whose start has come holds its permits and [takes](Queue::take) them when it
//!   runs; what it books is decided at that instant, so real starts obey the limit's bound. One that does not
//!   come within the [grace period](Queue::set_grace) loses its hold to those behind, and is first in line when
//!   it does. On a limit that promises instants, or [where asked for](Queue::set_promises_instants), it is
//!   granted its start instead, and serving late delays callers, not the schedule.
//! * **Nothing lost.** A waiter that leaves gives back all that it held, and those behind it move up.
//! * **Deadlines.** One that cannot be met ends the wait at once: at joining, and again whenever
//!   the limit has changed. One that nobody can foretell, because permits come back by somebody's
//!   act, ends it when it has come.
//!   With several classes, a start that was in time may come to be too late when others come; that
//!   too ends the wait when the deadline has come, if not before.
//! * **Bounds.** At most so many waiters, and so many permits waited for, in each class. A line that
//!   is full refuses the newcomer or sends its newest away.
//! * **Cost.** Joining, leaving and granting are O(1) and one question to the limit; with deadlines
//!   O(log n). Booking all who wait is O(n), once until the next change, and until one of them leaves from the
//!   middle. Taking is O(m), m waiters being due that have not taken. With several classes a grant
//!   is O(classes), and whatever needs to know a start behind the first, O(n) each time. 40 bytes for
//!   each place, with a waiter of 16.
//!
//! # Example
//!
//! ```
//! use rategate_core::gcra::Gcra;
//! use rategate_core::ledger::Ledger;
//! use rategate_core::queue::{Bounds, Joined, Outcome, Queue, Request, Wakes};
//!
//! /// Waiters are names, and waking is writing them down.
//! #[derive(Default)]
//! struct Woken(Vec<&'static str>);
//! impl Wakes<&'static str> for Woken {
//!     fn settled(&mut self, name: &'static str) {
//!         self.0.push(name);
//!     }
//!     fn moved(&mut self, _name: &&'static str) {}
//! }
//!
//! let mut limit = Ledger::new(Gcra::new("1/s".parse()?, 1)?, 0);
//! let (mut queue, mut woken) = (Queue::new(Bounds::default()), Woken::default());
//! let mut join = |now_ns, name| {
//!     queue.join(&mut limit, now_ns, Request::of(1), || name, &mut woken)
//! };
//! assert!(matches!(join(0, "a"), Ok(Joined::Granted(_))));
//! let Ok(Joined::Waits(b)) = join(0, "b") else { unreachable!() };
//! let Ok(Joined::Waits(c)) = join(5, "c") else { unreachable!() };
//!
//! assert_eq!(queue.next_ns(), Some(1_000_000_000));
//! queue.leave(&mut limit, 10, &b, &mut woken);
//! queue.serve(&mut limit, 1_000_000_000, &mut woken);
//! assert_eq!(woken.0, ["c"]);
//! // It wakes late, and counts from when it takes.
//! let took = queue.take(&mut limit, 1_000_300_000, &c, || "c", &mut woken);
//! let Some(Outcome::Granted(grant)) = took else { unreachable!() };
//! assert_eq!((grant.promised_ns, grant.start_ns), (1_000_000_000, 1_000_300_000));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::num::NonZeroU64;

use crate::fair::{ClassId, Rounds, TooManyClasses};
use crate::limit::{self, Limit};
use crate::provisional::Provisional;
use crate::verdict;

pub use self::bounds::{Bounds, MAX_WAITERS, WhenFull};
use self::forecast::Forecast;
use self::grace::Grace;
pub use self::grace::{MAX_GRACE_NS, MIN_GRACE_NS};
use self::head::Head;
pub use self::head::Rousing;
use self::seats::{NONE, Seats};
pub use self::words::{Joined, Left, Outcome, Place, Request, Turned, Wakes};

mod booking;
mod bounds;
mod forecast;
mod grace;
mod head;
mod joining;
mod seats;
mod taking;
mod words;

/// Who waits for a limit's permits, in order of joining, with something to wake each by.
#[derive(Debug)]
pub struct Queue<W, L> {
    seats: Seats<W>,
    /// The starts that are booked, in order: in the limit, or in a forecast where waiters take.
    booked: VecDeque<Booked>,
    /// Whose turn it is, among several classes. It is charged when it starts.
    rounds: Rounds,
    /// Whose turn it would be behind all who are booked, where those are more than the first. With
    /// whatever comes next, it may be another's.
    ahead: Option<Rounds>,
    bounds: Bounds,
    by_deadline: BTreeSet<(u64, u32)>,
    deadlines: BTreeMap<u32, u64>,
    /// Whether the limit has changed since deadlines were looked at.
    is_changed: bool,
    /// Whether waiters start at the instants that they were promised, whatever the policy.
    promises_instants: bool,
    is_closed: bool,
    /// The waiters that hold permits which they have not taken, by when they were woken.
    due: VecDeque<u32>,
    /// The waiters that came too late, first in line again.
    returning: VecDeque<u32>,
    head: Option<Head>,
    /// The starts that waiters have been told which look after themselves; `None` if none could be told.
    told: BTreeMap<u32, Option<u64>>,
    forecast: Option<Forecast<L>>,
    grace: Grace,
    /// How many grants have not been collected, and when the last of them was made.
    undelivered: u32,
    settled_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Booked {
    seat: u32,
    grant: verdict::Grant,
}

impl<W, L: Provisional> Queue<W, L> {
    /// An empty queue with one class, of weight 1.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        let mut rounds = Rounds::new();
        // There is room for the first.
        let _ = rounds.add_class(NonZeroU64::MIN);
        Self {
            seats: Seats::new(),
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
            told: BTreeMap::new(),
            forecast: None,
            grace: Grace::default(),
            undelivered: 0,
            settled_ns: 0,
        }
    }

    /// Sets whether waiters start at the instants that they were promised, whatever the policy: the
    /// rate is kept then, and real starts obey `C(W + d)`, `d` being the largest lateness. This
    /// comes after [`unbook`](Self::unbook), like a change of the limit.
    pub const fn set_promises_instants(&mut self, promises_instants: bool) {
        self.promises_instants = promises_instants;
    }

    /// Sets how long a waiter whose start has come may leave its permits untaken. `None` chooses: a few
    /// times the largest lateness seen, from [`MIN_GRACE_NS`] to [`MAX_GRACE_NS`].
    pub const fn set_grace(&mut self, grace_ns: Option<u64>) {
        self.grace.set(grace_ns);
    }

    /// One more class of callers, with its own line. While several wait, each is granted permits in
    /// proportion to its weight. From then on turns are taken, so this comes after
    /// [`unbook`](Self::unbook), like a change of the limit.
    ///
    /// # Errors
    ///
    /// [`TooManyClasses`].
    pub fn add_class(&mut self, weight: NonZeroU64) -> Result<ClassId, TooManyClasses> {
        let class = self.rounds.add_class(weight)?;
        self.seats.add_line();
        Ok(class)
    }

    /// Corrects what a class was charged for a grant, once the true cost is known. A class in which
    /// nobody waits can only be charged more. It may be another's turn then, so this goes with a change
    /// of the limit: after [`unbook`](Self::unbook), and before the queue is served again.
    pub fn settle(&mut self, class: ClassId, charged: u64, actual: u64) {
        if actual > charged || self.seats.line(class).waiting > 0 {
            self.rounds.settle(class, charged, actual);
        }
    }

    /// Other bounds, for those who come from now on.
    pub const fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// How many wait: for their start to come, or with permits that they have not taken.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        let due = u32::try_from(self.due.len()).unwrap_or(u32::MAX);
        self.seats.waiting.saturating_add(due)
    }

    /// Whether nobody waits for a start to come.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.seats.waiting == 0
    }

    /// Whether at `now_ns` nobody waits, no waiter has permits to take, and no grant is on its way to its
    /// waiter. A grant that is not collected within the grace period is not waited for.
    #[must_use]
    pub fn is_idle(&self, now_ns: u64) -> bool {
        self.is_empty() && self.due.is_empty() && !self.has_undelivered(now_ns)
    }

    fn has_undelivered(&self, now_ns: u64) -> bool {
        self.undelivered > 0 && now_ns < self.settled_ns.saturating_add(self.grace.ns())
    }

    /// When to [serve](Self::serve) next: the first start or deadline. `None` if that is up to
    /// somebody's act.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.next_ns_with(None)
    }

    /// The same where the head is [roused](Self::rouse) some time before its start.
    #[must_use]
    pub fn next_ns_with(&self, rousing: Option<Rousing>) -> Option<u64> {
        let booked = self.booked.front().filter(|_| self.forecast.is_none());
        let start_ns = booked.map(|booked| booked.grant.start_ns);
        let head_ns = self.head.and_then(|head| head.serve_ns(rousing));
        let withdrawal_ns = self.withdrawal_ns().filter(|_| !self.is_empty());
        let deadline_ns = self.by_deadline.first().map(|&(deadline_ns, _)| deadline_ns);
        [start_ns, head_ns, withdrawal_ns, deadline_ns].into_iter().flatten().min()
    }

    /// Whether a newcomer can do nothing but stand in line, at its end for good, and there is room for
    /// him. For him the queue need not be served before he [joins](Self::join).
    #[must_use]
    pub fn has_line_for(&self, request: Request) -> bool {
        let Request { permits, max_wait_ns, class } = request;
        let is_last = max_wait_ns.is_none() && !self.has_classes();
        is_last && !self.is_empty() && self.has_room(class, permits)
    }

    /// Grants a request now, or gives the caller a place in line. The queue must have been
    /// [served](Self::serve) at `now_ns`.
    ///
    /// # Errors
    ///
    /// [`Turned`]. Nothing is taken then.
    pub fn join(
        &mut self,
        limit: &mut L,
        now_ns: u64,
        request: Request,
        waiter: impl FnOnce() -> W,
        wakes: &mut impl Wakes<W>,
    ) -> Result<Joined, Turned> {
        let now_ns = limit.clamp(now_ns);
        let Request { permits, max_wait_ns, .. } = request;
        let Some(permits) = NonZeroU64::new(permits) else { return Ok(nothing(limit, now_ns)) };
        if max_wait_ns.is_some() {
            self.book_all(limit, wakes);
        }
        let was_empty = self.is_empty();
        if was_empty {
            self.drop_forecast();
        }
        let joined = match self.look_ahead(limit, now_ns, permits, max_wait_ns) {
            Ok(true) if self.is_idle(now_ns) => {
                let promised = limit.promise(now_ns, permits);
                return promised.map(Joined::Granted).map_err(Turned::Refused);
            }
            Ok(starts_now) => {
                // It only passes through the line, whose bounds are for those that stand in it.
                if !(starts_now && was_empty && self.seats.has_free()) {
                    self.make_room(limit, now_ns, request.class, permits, wakes)?;
                }
                self.sit_down(limit, now_ns, permits, request, waiter, wakes)
            }
            Err(turned) => {
                // Before any waiter makes room for it.
                let waiter = self.judge_by_turn(limit, now_ns, request, turned, waiter, wakes)?;
                self.make_room(limit, now_ns, request.class, permits, wakes)?;
                self.sit_down(limit, now_ns, permits, request, || waiter, wakes)
            }
        };
        // One that was sent away for it may have been the first.
        let is_first = was_empty || (self.head.is_none() && self.takes(limit));
        if is_first {
            // The next start is to be known; it may have come, behind grants that are on their way.
            self.serve(limit, now_ns, wakes);
        }
        Ok(joined)
    }

    /// Lets all start whose starts have come by `now_ns`, in order: each may [take](Self::take) its
    /// permits, or is granted them at its own start. Ends the waits whose deadlines have come. Works
    /// out the start of whoever is first then.
    pub fn serve(&mut self, limit: &mut L, now_ns: u64, wakes: &mut impl Wakes<W>) {
        self.serve_some(limit, now_ns, usize::MAX, wakes);
        // The turns of classes are not known as long as others may come.
        if self.is_changed && !self.deadlines.is_empty() && !self.has_classes() {
            self.book_all(limit, wakes);
        }
        self.is_changed = false;
    }

    /// The same for at most `most` starts. Returns whether it may not have been all.
    pub fn serve_some(
        &mut self,
        limit: &mut L,
        now_ns: u64,
        most: usize,
        wakes: &mut impl Wakes<W>,
    ) -> bool {
        let now_ns = limit.clamp(now_ns);
        if self.takes(limit) {
            return self.serve_taking(limit, now_ns, most, wakes);
        }
        self.forget_ahead(limit);
        // They may have become due before the limit was one that promises instants.
        self.withdraw_overdue(limit, now_ns);
        (0..most).all(|_| self.serve_one(limit, now_ns, wakes))
    }

    /// What came of a wait, once. `None` while it lasts, also for a waiter that may
    /// [take](Self::take) its permits.
    #[must_use = "it is gone afterwards"]
    pub fn collect(&mut self, place: &Place) -> Option<Outcome> {
        let outcome = self.seats.collect(place.0)?;
        if matches!(outcome, Outcome::Granted(_)) {
            self.undelivered = self.undelivered.saturating_sub(1);
        }
        Some(outcome)
    }

    /// What to wake the holder of a place by, as long as it waits.
    pub fn waiter_mut(&mut self, place: &Place) -> Option<&mut W> {
        self.seats.at_mut(place.0).map(|waiting| &mut waiting.waiter)
    }

    /// Gives a place up, if it has not been. The queue must have been [served](Self::serve) at
    /// `now_ns`.
    pub fn leave(
        &mut self,
        limit: &mut L,
        now_ns: u64,
        place: &Place,
        wakes: &mut impl Wakes<W>,
    ) -> Option<Left<W>> {
        if let Some(outcome) = self.collect(place) {
            return Some(Left::Settled(outcome));
        }
        if self.leave_due(limit, now_ns, place.0) {
            self.serve(limit, now_ns, wakes);
            return Some(Left::Untaken);
        }
        self.unbook_seat(limit, now_ns, place.0);
        self.forget_deadline(place.0);
        let waiter = self.free(place.0)?;
        if !self.takes(limit) {
            self.let_nobody_start_before(limit, now_ns);
        }
        self.serve(limit, now_ns, wakes);
        Some(Left::InTime(waiter))
    }

    /// Gives up a place behind somebody whose start is known, whatever the time is: as a rule that is
    /// any but the first, and needs no more than this. `None` if it needs a [`leave`](Self::leave).
    pub fn leave_from_behind(&mut self, place: &Place) -> Option<W> {
        let is_first = |booked: &Booked| booked.seat == place.0;
        let is_behind = match self.head {
            Some(head) => head.seat != place.0 && self.booked.is_empty(),
            None => self.booked.len() == 1 && !self.booked.front().is_none_or(is_first),
        };
        if !is_behind {
            return None;
        }
        self.forget_deadline(place.0);
        self.free(place.0)
    }

    /// Whether nobody who comes now can be granted anything, because somebody waits for an act
    /// that no clock foretells. Books all others.
    pub fn is_held(&mut self, limit: &mut L, wakes: &mut impl Wakes<W>) -> bool {
        self.book_all(limit, wakes);
        self.has_unbooked()
    }

    /// Until when the holder of a place has to wait, as things stand: its start or its deadline.
    /// `None` where that is up to somebody's act. Books all before it, and ends the waits that turn
    /// out to be in vain, which may be this one's.
    ///
    /// Where waiters take, it is the soonest that may be; those before may come late.
    pub fn due_ns(
        &mut self,
        limit: &mut L,
        place: &Place,
        wakes: &mut impl Wakes<W>,
    ) -> Option<u64> {
        if let Some((due, _)) = self.seats.due(place.0) {
            return Some(due.promised_ns);
        }
        let takes = self.takes(limit);
        let was_head = self.head.is_some_and(|head| head.seat == place.0);
        if !takes || !was_head {
            self.book_all(limit, wakes);
        }
        self.seats.at(place.0)?;
        // Those before it may have turned out to wait in vain.
        let head = self.head.filter(|_| takes);
        let booked_ns = |queue: &Self| {
            let ours = queue.booked.iter().rfind(|booked| booked.seat == place.0);
            ours.map(|booked| booked.grant.start_ns)
        };
        let start_ns = match head {
            None => booked_ns(self),
            Some(head) if was_head => {
                [head.start_ns, self.withdrawal_ns()].into_iter().flatten().min()
            }
            Some(head) if head.seat == place.0 => head.start_ns.or_else(|| self.withdrawal_ns()),
            // One that was to start before the head does has been overtaken by lateness. It is told when
            // it is the head itself: all such would wake at each of the starts before.
            Some(head) => {
                booked_ns(self).filter(|start_ns| head.start_ns.is_some_and(|ns| *start_ns >= ns))
            }
        };
        self.told.insert(place.0, start_ns);
        let deadline_ns = self.deadlines.get(&place.0).copied();
        if takes { start_ns.into_iter().chain(deadline_ns).min() } else { start_ns.or(deadline_ns) }
    }

    /// Books all who wait, as far as their starts can be known, so that whatever the limit is asked
    /// next stands behind them: [`behind_all`](Self::behind_all).
    pub fn book_all(&mut self, limit: &mut L, wakes: &mut impl Wakes<W>) {
        if self.takes(limit) {
            if self.ahead.is_some() {
                self.drop_forecast();
            }
            if !self.is_empty() {
                self.forecast_all(limit, wakes);
            }
            if self.head.is_none() && !self.is_empty() {
                // The first turned out to wait in vain.
                self.serve_taking(limit, limit.clamp(0), usize::MAX, wakes);
            }
            return;
        }
        self.forget_ahead(limit);
        while self.book_next(limit, wakes) {}
    }

    /// Takes all starts back that are booked. To be called before the limit is changed, or gets
    /// something back, at `now_ns`, at which the queue must have been served. Afterwards it has to be
    /// [served](Self::serve) again.
    pub fn unbook(&mut self, limit: &mut L, now_ns: u64) {
        self.is_changed = true;
        if self.takes(limit) {
            self.drop_forecast();
            self.head = None;
        } else {
            while self.unbook_last(limit, now_ns) {}
        }
    }

    /// Ends all waits.
    pub fn close(&mut self, limit: &mut L, now_ns: u64, wakes: &mut impl Wakes<W>) {
        self.unbook(limit, now_ns);
        self.close_due(limit, now_ns);
        while let Some(seat) = self.seats.anybody() {
            self.end(seat, Outcome::Closed, wakes);
        }
    }

    const fn has_classes(&self) -> bool {
        self.rounds.classes() > 1
    }

    fn has_unbooked(&self) -> bool {
        self.seats.lines().iter().any(|line| line.unbooked != NONE)
    }
}

/// A grant of nothing, to whom nobody is in the way.
fn nothing<L: Limit>(limit: &L, now_ns: u64) -> Joined {
    Joined::Granted(limit::nothing(limit, now_ns))
}
