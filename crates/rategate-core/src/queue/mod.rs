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
//! The first in line has its start booked in the limit, the others as a rule have not: so whoever
//! leaves from the middle costs nothing but his place. All get the starts that they would have got
//! had each booked when he asked, because time is an argument: a start is worked out from the
//! instant of asking, whenever that is done. Only where somebody wants to know a start further
//! behind (a deadline, a try, a reservation) is everybody before him booked too. When the limit
//! changes, or a place comes back, all of it is worked out anew.
//!
//! # Contract
//!
//! * **Order.** Grants come in the order of joining; nobody overtakes, however small. A try has to
//!   stand behind all who wait.
//! * **Classes.** Within a class the order is that. Among classes that wait, permits are shared by
//!   weight at all times, to within one's weight and its largest request (theory 2.8). Whoever is
//!   next stays next. What is granted at once, while nobody waits, is charged to no class.
//! * **Nothing lost.** Whoever leaves before his start gives back all that he held, and those
//!   behind him move up. Serving late delays callers, not the schedule.
//! * **Deadlines.** One that cannot be met ends the wait at once: at joining, and again whenever
//!   the limit has changed. One that nobody can foretell, because permits come back by somebody's
//!   act, ends it when it has come.
//!   With several classes, a start that was in time may come to be too late when others come; that
//!   too ends the wait when the deadline has come, if not before.
//! * **Bounds.** At most so many waiters, and so many permits waited for, in each class. A line that
//!   is full refuses the newcomer or sends its newest away.
//! * **Cost.** Joining, leaving and granting are O(1) and one question to the limit; with deadlines
//!   O(log n). Booking all who wait is O(n), once until the next change. With several classes a grant
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
//! // Served late, it is still the place that was free at one second.
//! queue.serve(&mut limit, 1_500_000_000, &mut woken);
//! assert_eq!(woken.0, ["c"]);
//! let Some(Outcome::Granted(grant)) = queue.collect(&c) else { unreachable!() };
//! assert_eq!(grant.start_ns, 1_000_000_000);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::num::NonZeroU64;

use crate::fair::{ClassId, Rounds, TooManyClasses};
use crate::limit::{self, Limit};
use crate::verdict::{self, Refusal};

pub use self::bounds::{Bounds, MAX_WAITERS, WhenFull};
use self::seats::{NONE, Seats, Waiting};

mod bounds;
mod seats;

/// Whoever passes a queue's word on to those who wait.
pub trait Wakes<W> {
    /// This one waits no more: its [outcome](Queue::collect) is there.
    fn settled(&mut self, waiter: W);

    /// This one was turned away, which its caller is told. It is handed over for nothing but to be
    /// dropped where that does no harm.
    fn turned_away(&mut self, _waiter: W) {}

    /// This one's start, which it may have been told, has become another.
    fn moved(&mut self, waiter: &W);
}

/// What somebody asks for who may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// How many permits.
    pub permits: u64,
    /// The longest wait that the caller accepts.
    pub max_wait_ns: Option<u64>,
    /// The class whose line to stand in.
    pub class: ClassId,
}

impl Request {
    /// For `permits`, however long it takes, in the first class.
    #[must_use]
    pub const fn of(permits: u64) -> Self {
        Self { permits, max_wait_ns: None, class: ClassId::FIRST }
    }

    /// The same within `max_wait_ns`, if that is given.
    #[must_use]
    pub const fn within(self, max_wait_ns: Option<u64>) -> Self {
        Self { max_wait_ns, ..self }
    }

    /// The same in another class.
    #[must_use]
    pub const fn in_class(self, class: ClassId) -> Self {
        Self { class, ..self }
    }
}

/// A place in the queue. Its holder has to [collect](Queue::collect) what came of it or to
/// [leave](Queue::leave).
#[derive(Debug, PartialEq, Eq)]
pub struct Place(u32);

/// What became of a call that may wait.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub enum Joined {
    /// It starts at once.
    Granted(verdict::Grant),
    /// It stands in line.
    Waits(Place),
}

/// Why a call may not wait. Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// The queue is full.
    Full,
    /// The limit will never grant it.
    Refused(Refusal),
    /// It would be granted, but past its deadline.
    TooLong {
        /// How long it would have to wait.
        wait_ns: u64,
        /// How long until the same call would be accepted.
        retry_after_ns: u64,
    },
}

/// How a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The permits are the caller's.
    Granted(verdict::Grant),
    /// The deadline has come, or can no longer be met.
    DeadlinePassed,
    /// The queue was full, and somebody newer has the place.
    Evicted,
    /// The limit has changed, and will never grant it.
    Refused(Refusal),
    /// The queue was closed.
    Closed,
}

/// What had become of a place when its holder left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left<W> {
    /// It was still waiting, with this to wake it by; all that it held has gone back.
    InTime(W),
    /// It had been settled. If it was granted, the permits are spent.
    Settled(Outcome),
}

/// Who waits for a limit's permits, in order of joining, with something to wake each by.
#[derive(Debug)]
pub struct Queue<W> {
    seats: Seats<W>,
    /// The starts that are booked, in order.
    booked: VecDeque<Booked>,
    /// Whose turn it is, among several classes. It is charged when it starts.
    rounds: Rounds,
    /// Whose turn it would be behind all who are booked, where those are more than the first. With
    /// whatever comes next, it may be another's.
    ahead: Option<Rounds>,
    bounds: Bounds,
    by_deadline: BTreeSet<(u64, u32)>,
    deadlines: BTreeMap<u32, u64>,
    /// How many of the next to be booked have been before, and may have been told another start.
    rebooked: u32,
    /// Whether the limit has changed since deadlines were looked at.
    is_changed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Booked {
    seat: u32,
    grant: verdict::Grant,
}

impl<W> Queue<W> {
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
            rebooked: 0,
            is_changed: false,
        }
    }

    /// One more class of callers, with its own line. While several wait, each is granted permits in
    /// proportion to its weight.
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

    /// How many wait.
    #[must_use]
    pub const fn waiting(&self) -> u32 {
        self.seats.waiting
    }

    /// Whether nobody waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.seats.waiting == 0
    }

    /// When to [serve](Self::serve) next: the first start or deadline. `None` if that is up to
    /// somebody's act.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        let start_ns = self.booked.front().map(|booked| booked.grant.start_ns);
        let deadline_ns = self.by_deadline.first().map(|&(deadline_ns, _)| deadline_ns);
        start_ns.into_iter().chain(deadline_ns).min()
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
    pub fn join<L: Limit>(
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
        match self.look_ahead(limit, now_ns, permits, max_wait_ns) {
            Ok(true) if self.is_empty() => {
                let promised = limit.promise(now_ns, permits);
                promised.map(Joined::Granted).map_err(Turned::Refused)
            }
            Err(turned) => {
                // Before anybody makes room for him.
                let waiter = self.judge_by_turn(limit, now_ns, request, turned, waiter, wakes)?;
                self.sit_down(limit, now_ns, request, || waiter, wakes)
            }
            Ok(_) => self.sit_down(limit, now_ns, request, waiter, wakes),
        }
    }

    /// Grants all whose starts have come by `now_ns`, in order, each at its own start; ends the waits
    /// whose deadlines have. Books the start of whoever is first then.
    pub fn serve<L: Limit>(&mut self, limit: &mut L, now_ns: u64, wakes: &mut impl Wakes<W>) {
        let now_ns = limit.clamp(now_ns);
        self.forget_ahead(limit);
        while self.serve_one(limit, now_ns, wakes) {}
        // The turns of classes are not known as long as others may come.
        if self.is_changed && !self.deadlines.is_empty() && !self.has_classes() {
            self.book_all(limit, wakes);
        }
        self.is_changed = false;
    }

    /// The same for at most `most` grants. Returns whether it may not have been all.
    pub fn serve_some<L: Limit>(
        &mut self,
        limit: &mut L,
        now_ns: u64,
        most: usize,
        wakes: &mut impl Wakes<W>,
    ) -> bool {
        let now_ns = limit.clamp(now_ns);
        self.forget_ahead(limit);
        (0..most).all(|_| self.serve_one(limit, now_ns, wakes))
    }

    /// What came of a wait, once. `None` while it lasts.
    #[must_use = "it is gone afterwards"]
    pub fn collect(&mut self, place: &Place) -> Option<Outcome> {
        self.seats.collect(place.0)
    }

    /// What to wake the holder of a place by, as long as it waits.
    pub fn waiter_mut(&mut self, place: &Place) -> Option<&mut W> {
        self.seats.at_mut(place.0).map(|waiting| &mut waiting.waiter)
    }

    /// Gives a place up, if it has not been. The queue must have been [served](Self::serve) at
    /// `now_ns`.
    pub fn leave<L: Limit>(
        &mut self,
        limit: &mut L,
        now_ns: u64,
        place: &Place,
        wakes: &mut impl Wakes<W>,
    ) -> Option<Left<W>> {
        if let Some(outcome) = self.collect(place) {
            return Some(Left::Settled(outcome));
        }
        self.unbook_from(limit, now_ns, place.0);
        self.forget_deadline(place.0);
        let waiter = self.seats.free(place.0)?;
        self.let_nobody_start_before(limit, now_ns);
        self.serve(limit, now_ns, wakes);
        Some(Left::InTime(waiter))
    }

    /// Gives up a place behind somebody whose start is known, whatever the time is: as a rule that is
    /// any but the first, and needs no more than this. `None` if it needs a [`leave`](Self::leave).
    pub fn leave_from_behind(&mut self, place: &Place) -> Option<W> {
        let is_first = |booked: &Booked| booked.seat == place.0;
        if self.booked.len() != 1 || self.booked.front().is_none_or(is_first) {
            return None;
        }
        self.forget_deadline(place.0);
        self.seats.free(place.0)
    }

    /// Whether nobody who comes now can be granted anything, because somebody waits for an act
    /// that no clock foretells. Books all others.
    pub fn is_held<L: Limit>(&mut self, limit: &mut L, wakes: &mut impl Wakes<W>) -> bool {
        self.book_all(limit, wakes);
        self.has_unbooked()
    }

    /// Until when the holder of a place has to wait, as things stand: its start or its deadline.
    /// `None` where that is up to somebody's act. Books all before it, and ends the waits that turn
    /// out to be in vain, which may be this one's.
    pub fn due_ns<L: Limit>(
        &mut self,
        limit: &mut L,
        place: &Place,
        wakes: &mut impl Wakes<W>,
    ) -> Option<u64> {
        self.book_all(limit, wakes);
        let ours = self.booked.iter().rfind(|booked| booked.seat == place.0);
        let start_ns = ours.map(|booked| booked.grant.start_ns);
        start_ns.or_else(|| self.deadlines.get(&place.0).copied())
    }

    /// Books all who wait, as far as their starts can be known, so that whatever the limit is asked
    /// next stands behind them.
    pub fn book_all<L: Limit>(&mut self, limit: &mut L, wakes: &mut impl Wakes<W>) {
        self.forget_ahead(limit);
        while self.book_next(limit, wakes) {}
    }

    /// Takes all starts back that are booked. To be called before the limit is changed, or gets
    /// something back, at `now_ns`, at which the queue must have been served. Afterwards it has to be
    /// [served](Self::serve) again.
    pub fn unbook<L: Limit>(&mut self, limit: &mut L, now_ns: u64) {
        self.is_changed = true;
        while self.unbook_last(limit, now_ns) {}
    }

    /// Ends all waits.
    pub fn close<L: Limit>(&mut self, limit: &mut L, now_ns: u64, wakes: &mut impl Wakes<W>) {
        self.unbook(limit, now_ns);
        while let Some(seat) = self.seats.anybody() {
            self.end(seat, Outcome::Closed, wakes);
        }
    }

    /// Whether the limit would grant a newcomer at once; an error if it never will, or not in time.
    fn look_ahead<L: Limit>(
        &self,
        limit: &L,
        now_ns: u64,
        permits: NonZeroU64,
        max_wait_ns: Option<u64>,
    ) -> Result<bool, Turned> {
        let opening = match limit.opening(now_ns, permits) {
            Err(Refusal::Held) => return Ok(false),
            Err(Refusal::BeyondClock { wait_ns }) if max_wait_ns.is_some() => Err(wait_ns),
            Err(refusal) => return Err(Turned::Refused(refusal)),
            Ok(opening) => Ok(opening),
        };
        let wait_ns = match opening {
            Ok(opening) => opening.start_ns.saturating_sub(now_ns),
            Err(wait_ns) => wait_ns,
        };
        match max_wait_ns {
            // Behind somebody whose start nobody knows, no start is known.
            Some(max_wait_ns) if wait_ns > max_wait_ns && !self.has_unbooked() => {
                let soon_enough_ns = wait_ns.saturating_sub(max_wait_ns);
                let opens_ns = opening.map_or(u64::MAX, |opening| opening.opens_ns);
                let at_latest_ns = soon_enough_ns.min(opens_ns.saturating_sub(now_ns));
                let retry_after_ns = limit.soonest_ns(now_ns, at_latest_ns, permits, max_wait_ns);
                Err(Turned::TooLong { wait_ns, retry_after_ns })
            }
            _ => Ok(wait_ns == 0),
        }
    }

    /// Whether a newcomer who would be too late at the end of all lines is in time in the turn of his
    /// class.
    fn judge_by_turn<L: Limit>(
        &mut self,
        limit: &mut L,
        now_ns: u64,
        Request { permits, max_wait_ns, class }: Request,
        turned: Turned,
        waiter: impl FnOnce() -> W,
        wakes: &mut impl Wakes<W>,
    ) -> Result<W, Turned> {
        let (Turned::TooLong { retry_after_ns, .. }, Some(max_wait_ns), Some(permits)) =
            (turned, max_wait_ns, NonZeroU64::new(permits))
        else {
            return Err(turned);
        };
        if !self.has_classes() || self.is_empty() {
            return Err(turned);
        }
        if !self.seats.has_free() || !self.could_make_room(class, permits.get()) {
            return Err(Turned::Full);
        }
        let seat = self.seats.sit_down(class, waiter(), now_ns, permits);
        let start_ns = self.due_ns(limit, &Place(seat), wakes);
        let wait_ns = start_ns.map_or(0, |start_ns| start_ns.saturating_sub(now_ns));
        self.unbook_from(limit, now_ns, seat);
        let waiter = self.seats.free(seat).ok_or(turned)?;
        if wait_ns <= max_wait_ns {
            return Ok(waiter);
        }
        wakes.turned_away(waiter);
        Err(Turned::TooLong { wait_ns, retry_after_ns })
    }

    fn sit_down<L: Limit>(
        &mut self,
        limit: &mut L,
        now_ns: u64,
        request: Request,
        waiter: impl FnOnce() -> W,
        wakes: &mut impl Wakes<W>,
    ) -> Result<Joined, Turned> {
        let Request { permits, max_wait_ns, class } = request;
        let Some(permits) = NonZeroU64::new(permits) else { return Ok(nothing(limit, now_ns)) };
        self.make_room(limit, now_ns, class, permits, wakes)?;
        let seat = self.seats.sit_down(class, waiter(), now_ns, permits);
        if let Some(max_wait_ns) = max_wait_ns {
            let deadline_ns = now_ns.saturating_add(max_wait_ns);
            self.deadlines.insert(seat, deadline_ns);
            self.by_deadline.insert((deadline_ns, seat));
        }
        if self.booked.is_empty() || (max_wait_ns.is_some() && !self.has_classes()) {
            self.book_next(limit, wakes);
        }
        Ok(Joined::Waits(Place(seat)))
    }

    fn serve_one<L: Limit>(
        &mut self,
        limit: &mut L,
        now_ns: u64,
        wakes: &mut impl Wakes<W>,
    ) -> bool {
        if self.booked.is_empty() && self.book_next(limit, wakes) {
            // Whoever waits by himself has been told another start, or none.
            let first = self.booked.front().and_then(|booked| self.seats.at(booked.seat));
            if let Some(first) = first {
                wakes.moved(&first.waiter);
            }
            return true;
        }
        match self.booked.front().copied() {
            Some(Booked { seat, grant }) if grant.start_ns <= now_ns => {
                self.booked.pop_front();
                self.charge(seat);
                // What starts in the same nanosecond must not look late to the limit.
                limit.pass_to(grant.start_ns.saturating_sub(1));
                self.end(seat, Outcome::Granted(grant), wakes);
                true
            }
            _ => self.expire_one(limit, now_ns, wakes),
        }
    }

    /// Ends a wait whose deadline has come. Its start has not, or it would have been granted; so
    /// nothing is booked for it that could have come in time.
    fn expire_one<L: Limit>(
        &mut self,
        limit: &mut L,
        now_ns: u64,
        wakes: &mut impl Wakes<W>,
    ) -> bool {
        let Some(&(deadline_ns, seat)) = self.by_deadline.first() else { return false };
        if deadline_ns > now_ns {
            return false;
        }
        self.end(seat, Outcome::DeadlinePassed, wakes);
        self.let_nobody_start_before(limit, deadline_ns);
        true
    }

    /// Somebody who is not booked has gone. If he was in the way of all others, they may start from now
    /// on, and not since when they asked.
    fn let_nobody_start_before<L: Limit>(&self, limit: &mut L, now_ns: u64) {
        if self.booked.is_empty() {
            limit.pass_to(now_ns);
        }
    }

    /// Books the next whose start is not known, or finds that it never will be. Returns whether there
    /// may be another one to book.
    fn book_next<L: Limit>(&mut self, limit: &mut L, wakes: &mut impl Wakes<W>) -> bool {
        let seat = self.next_to_book();
        let Some(&Waiting { asked_ns, permits, .. }) = self.seats.at(seat) else { return false };
        // What is only a guess at its turn ends no wait.
        let by_ns = self.deadlines.get(&seat).filter(|_| self.ahead.is_none());
        let too_late = by_ns.is_some_and(|&by_ns| {
            let opening = limit.opening(limit.clamp(asked_ns), permits);
            opening.is_ok_and(|opening| opening.start_ns > by_ns)
        });
        if too_late {
            self.end(seat, Outcome::DeadlinePassed, wakes);
            return true;
        }
        let promised = limit.promise(asked_ns, permits);
        match promised {
            Ok(grant) => {
                self.seats.set_booked(seat, true);
                if let Some(waiting) = self.seats.at(seat) {
                    if let Some(ahead) = &mut self.ahead {
                        ahead.charge(waiting.class(), permits);
                    }
                    if self.rebooked > 0 {
                        wakes.moved(&waiting.waiter);
                    }
                }
                self.rebooked = self.rebooked.saturating_sub(1);
                self.booked.push_back(Booked { seat, grant });
                true
            }
            Err(Refusal::Held) => false,
            Err(refusal) => {
                self.end(seat, Outcome::Refused(refusal), wakes);
                true
            }
        }
    }

    /// Whose turn it is to be booked.
    fn next_to_book(&mut self) -> u32 {
        if let [only] = self.seats.lines() {
            return only.unbooked;
        }
        if self.ahead.is_none()
            && let Some(first) = self.booked.front()
        {
            let mut ahead = self.rounds.clone();
            if let Some(waiting) = self.seats.at(first.seat) {
                ahead.charge(waiting.class(), waiting.permits);
            }
            self.ahead = Some(ahead);
        }
        let seats = &self.seats;
        let head_cost = |class| seats.at(seats.line(class).unbooked).map(|waiting| waiting.permits);
        let rounds = self.ahead.as_mut().unwrap_or(&mut self.rounds);
        let class = rounds.pick(head_cost);
        class.map_or(NONE, |class| seats.line(class).unbooked)
    }

    /// Charges the class of somebody who starts.
    fn charge(&mut self, seat: u32) {
        if self.has_classes()
            && let Some(waiting) = self.seats.at(seat)
        {
            self.rounds.charge(waiting.class(), waiting.permits);
        }
    }

    /// Takes the starts back that were no more than a guess at the turns of classes.
    fn forget_ahead<L: Limit>(&mut self, limit: &mut L) {
        if self.ahead.take().is_some() {
            // None of them has come by the limit's own clock.
            let now_ns = limit.clamp(0);
            while self.booked.len() > 1 {
                self.unbook_last(limit, now_ns);
            }
        }
    }

    /// Takes the last start back that is booked.
    fn unbook_last<L: Limit>(&mut self, limit: &mut L, now_ns: u64) -> bool {
        let Some(Booked { seat, grant }) = self.booked.pop_back() else { return false };
        limit.cancel(now_ns, grant.ticket);
        self.seats.set_booked(seat, false);
        self.rebooked = self.rebooked.saturating_add(1);
        true
    }

    /// Takes somebody's start back, which may be booked. Those behind him will be booked anew.
    fn unbook_from<L: Limit>(&mut self, limit: &mut L, now_ns: u64, seat: u32) {
        self.forget_ahead(limit);
        let is_at = |booked: Option<&Booked>| booked.is_some_and(|booked| booked.seat == seat);
        if is_at(self.booked.back()) {
            self.unbook_last(limit, now_ns);
        } else {
            let keep = usize::from(!is_at(self.booked.front()));
            while self.booked.len() > keep {
                self.unbook_last(limit, now_ns);
            }
        }
    }

    /// Makes room for somebody who has to wait, or says that there is none.
    fn make_room<L: Limit>(
        &mut self,
        limit: &mut L,
        now_ns: u64,
        class: ClassId,
        permits: NonZeroU64,
        wakes: &mut impl Wakes<W>,
    ) -> Result<(), Turned> {
        while !self.has_room(class, permits.get()) {
            if !self.could_make_room(class, permits.get()) {
                return Err(Turned::Full);
            }
            let newest = self.seats.line(class).last;
            self.unbook_from(limit, now_ns, newest);
            self.end(newest, Outcome::Evicted, wakes);
        }
        Ok(())
    }

    /// Whether there is room in a line, or somebody to send away for it.
    fn could_make_room(&self, class: ClassId, permits: u64) -> bool {
        let evicts = self.bounds.on_full() == WhenFull::EvictNewest;
        let is_hopeless = self.seats.line(class).last == NONE || permits > self.bounds.permits();
        self.has_room(class, permits) || (evicts && !is_hopeless)
    }

    fn has_room(&self, class: ClassId, permits: u64) -> bool {
        let line = self.seats.line(class);
        let within = line.permits.checked_add(permits);
        class.index() < self.seats.lines().len()
            && line.waiting < self.bounds.waiters()
            && self.seats.has_free()
            && within.is_some_and(|within| within <= self.bounds.permits())
    }

    const fn has_classes(&self) -> bool {
        self.rounds.classes() > 1
    }

    fn has_unbooked(&self) -> bool {
        self.seats.lines().iter().any(|line| line.unbooked != NONE)
    }

    /// Ends the wait of somebody whose start is not booked any more, and tells him.
    fn end(&mut self, seat: u32, outcome: Outcome, wakes: &mut impl Wakes<W>) {
        self.forget_deadline(seat);
        if let Some(waiter) = self.seats.settle(seat, outcome) {
            wakes.settled(waiter);
        }
    }

    fn forget_deadline(&mut self, seat: u32) {
        if let Some(deadline_ns) = self.deadlines.remove(&seat) {
            self.by_deadline.remove(&(deadline_ns, seat));
        }
    }
}

/// A grant of nothing, to whom nobody is in the way.
fn nothing<L: Limit>(limit: &L, now_ns: u64) -> Joined {
    Joined::Granted(limit::nothing(limit, now_ns))
}
