//! The waits of an event loop.
//!
//! A loop cannot block, and no other thread may call it. So it begins a wait here and goes on. When
//! the wait may have ended, the thread that finds out puts it on a list and notifies the loop. The
//! loop then wakes the callers on the list, and each takes its permits as it runs.
//!
//! ```text
//!   loop            begin ......................... wake --> collect, as the caller runs
//!                     |                               ^
//!   limiter's queue   o--- waits --- due --> list ----| notify, unless the loop is looking
//! ```
//!
//! The instant of the call that returns the permits is the one that the limit counts. A caller
//! that runs late, because its loop is busy, so delays its successors and shortens no window.
//!
//! # Order
//!
//! A caller whose start has come has its permits held until it runs, and later ones wait behind it.
//! A loop may be busy for longer than the [grace period](rategate::Limiter::with_grace), after
//! which held permits go to the next. So the first of the callers that wait for the same takes
//! what is held for any of them, and those between move up. The same is as many permits of one
//! limiter, for good and without a timeout: a place of any other is made for that.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::mem::{forget, replace, swap, take};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use rategate::AcquireError;

use crate::limiter::{Limiter, Start, Taken, Waiting};

/// A wait of a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitId(pub u64);

/// The result of a call that takes permits or waits for them.
#[derive(Debug)]
pub enum Begun {
    /// The permits were free.
    Taken(Taken),
    /// The hub will wake the caller.
    Waits(WaitId),
}

/// A wait that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The wait.
    pub wait: WaitId,
    /// The result.
    pub end: Result<Taken, AcquireError>,
}

/// The waits of one event loop.
///
/// Any thread may call it, but the order in which waits end is that of one loop. Dropped, it
/// withdraws its waits.
pub struct Hub {
    list: Arc<List>,
    waits: Mutex<Waits>,
    made_in: u32,
}

#[derive(Default)]
struct Waits {
    last_id: u64,
    by_id: HashMap<u64, Wait>,
    /// The callers that wait for the same, in order.
    alike: HashMap<Same, BTreeSet<u64>>,
}

/// A limiter, by the address of its count, and a number of permits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Same(usize, u64);

/// A wait whose caller has not gone on.
struct Wait {
    place: Place,
    /// Absent with a timeout, and for a hold.
    same: Option<Same>,
}

/// A place in a limiter's queue, which callers that wait for the same may change with each other.
/// Dropped, it leaves the queue, and what was held for it goes to the next.
struct Place {
    waiting: Waiting,
    mark: Arc<Mark>,
    /// The error that the wait ended with, if another caller found that out.
    failed: Option<AcquireError>,
}

/// The waits that may have ended.
struct List {
    ready: Mutex<Ready>,
    /// Called after the first was put on the list of a loop that has looked, by whichever thread
    /// did.
    notify: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Ready {
    marks: VecDeque<Arc<Mark>>,
    /// `true` from a notification until the loop has found the list empty.
    is_notified: bool,
}

/// The waker of a wait, and the mark that its caller should run.
struct Mark {
    /// The caller that has the place now. Changed with the waits locked.
    id: AtomicU64,
    /// Weak: a list has marks, and may be dropped with some on it.
    list: Weak<List>,
    /// `true` from when the wait may have ended until its caller looks, or leaves.
    is_set: AtomicBool,
    /// `true` from when its caller looked before the first did, until it looks again.
    was_put_off: AtomicBool,
    /// The limiter's count of marks that are set.
    untaken: Arc<AtomicUsize>,
}

impl Hub {
    /// Creates a hub, which calls `notify` when its loop should look at the list, by
    /// [`wake`](Self::wake) or [`next`](Self::next).
    ///
    /// Any thread may call `notify`, also the one that calls the hub. It must not block, nor call
    /// the hub, and is called once until the loop has found the list empty.
    pub fn new(notify: impl Fn() + Send + Sync + 'static) -> Self {
        let list = List { ready: Mutex::default(), notify: Box::new(notify) };
        Self { list: Arc::new(list), waits: Mutex::default(), made_in: process::id() }
    }

    /// Takes `permits`, or begins to wait for them; refuses at once if they could start only after
    /// `timeout`.
    ///
    /// Free permits are for a caller that goes on at once. While earlier ones have not, it waits
    /// behind them.
    ///
    /// # Errors
    ///
    /// As of [`rategate::AsyncLimiter::acquire_within`].
    pub fn begin(
        &self,
        limiter: &Limiter,
        permits: u64,
        timeout: Option<Duration>,
    ) -> Result<Begun, AcquireError> {
        let start = if limiter.has_untaken() { Start::Later } else { Start::AtOnce };
        let waiting = limiter.wait(permits, timeout, start);
        self.begin_to(waiting, limiter, timeout.is_none().then_some(permits))
    }

    /// Begins to wait until an estimate of `permits` fits, and to hold it from then on, for a caller
    /// that goes on later.
    ///
    /// # Errors
    ///
    /// As of [`begin`](Self::begin).
    pub fn begin_hold(
        &self,
        limiter: &Limiter,
        permits: u64,
        ttl: Duration,
        timeout: Option<Duration>,
    ) -> Result<Begun, AcquireError> {
        self.begin_to(limiter.wait_to_hold(permits, ttl, timeout), limiter, None)
    }

    /// Begins to wait for `permits`, even where they are free, for a caller that goes on later.
    ///
    /// It does not notify where they are: once it waits, the loop calls [`next`](Self::next)
    /// anyway.
    ///
    /// # Errors
    ///
    /// As of [`begin`](Self::begin).
    pub fn begin_later(
        &self,
        limiter: &Limiter,
        permits: u64,
        timeout: Option<Duration>,
    ) -> Result<Begun, AcquireError> {
        let was_notified = self.list.hush();
        let waiting = limiter.wait(permits, timeout, Start::Later);
        let begun = self.begin_to(waiting, limiter, timeout.is_none().then_some(permits));
        if !was_notified && !matches!(begun, Ok(Begun::Waits(_))) {
            // There is nothing for which the loop would look.
            self.list.unhush();
        }
        begun
    }

    /// Begins a wait. Those for the same number of permits, if there is one, take each other's.
    fn begin_to(
        &self,
        mut waiting: Waiting,
        limiter: &Limiter,
        alike: Option<u64>,
    ) -> Result<Begun, AcquireError> {
        let mut waits = self.waits();
        waits.last_id = waits.last_id.wrapping_add(1);
        let id = waits.last_id;
        let mark = Arc::new(Mark {
            id: AtomicU64::new(id),
            list: Arc::downgrade(&self.list),
            is_set: AtomicBool::new(false),
            was_put_off: AtomicBool::new(false),
            untaken: Arc::clone(limiter.untaken()),
        });
        match waiting.poll(&Waker::from(Arc::clone(&mark))) {
            Poll::Ready(end) => return end.map(Begun::Taken),
            Poll::Pending => {}
        }
        let same = alike.map(|permits| Same(Arc::as_ptr(limiter.untaken()).addr(), permits));
        if let Some(same) = same {
            waits.alike.entry(same).or_default().insert(id);
        }
        let place = Place { waiting, mark, failed: None };
        waits.by_id.insert(id, Wait { place, same });
        Ok(Begun::Waits(WaitId(id)))
    }

    /// Withdraws a wait. What was held for it goes to the next. Returns `false` if the wait has
    /// ended.
    pub fn cancel(&self, id: WaitId) -> bool {
        // Dropped once the lock is free: the drop wakes others.
        let wait = self.waits().remove(id.0);
        wait.is_some()
    }

    /// Reports the callers to wake, in order, and some of them more than once. Each then
    /// [collects](Self::collect) as it runs, and waits on if it gets nothing.
    pub fn wake(&self, mut wake: impl FnMut(WaitId)) {
        let mut last = None;
        for mark in self.list.take() {
            let id = mark.id.load(Ordering::Relaxed);
            // Threads may have put them on the list in another order than that of the queue. The
            // first of those that wait for the same runs first, and takes what is held for any.
            let first = self.waits().first_to_run(id);
            if last.replace(first) != Some(first) {
                wake(WaitId(first));
            }
            if id != first {
                wake(WaitId(id));
            }
        }
    }

    /// Returns the result of a wait, once, as its caller runs: it takes the permits now. `None`
    /// while the wait lasts, and after its end.
    ///
    /// The first of those that wait for the same may have looked a moment before the start, and a
    /// later one may look a moment after it. The later one then gets nothing, and the hub wakes
    /// both again. If the first has still not looked by then, the later one goes on.
    pub fn collect(&self, wait: WaitId) -> Option<Result<Taken, AcquireError>> {
        let WaitId(id) = wait;
        let mark = {
            let waits = self.waits();
            let later = waits.by_id.get(&id).filter(|_| waits.first_to_run(id) != id);
            later.map(|wait| Arc::clone(&wait.place.mark))
        };
        if mark.is_some_and(|mark| mark.puts_off()) {
            return None;
        }
        Some(self.end(wait)?.end)
    }

    fn end(&self, wait: WaitId) -> Option<Ended> {
        let WaitId(id) = wait;
        let mut waits = self.waits();
        let (end, place) = match waits.by_id.get_mut(&id)?.place.end() {
            Some(end) => (end, waits.remove(id)?.place),
            None => waits.take_of_later(id)?,
        };
        // Dropped once the lock is free: the drop wakes others.
        drop(waits);
        drop(place);
        Some(Ended { wait, end })
    }

    /// Returns the next wait on the list that has ended, as [`collect`](Self::collect) does, for a
    /// loop that has its caller run before it looks for another. `None` once the list is empty.
    pub fn next(&self) -> Option<Ended> {
        loop {
            let mark = self.list.pop()?;
            let id = mark.id.load(Ordering::Relaxed);
            // As in `wake`.
            let first = self.waits().first_to_run(id);
            if let Some(ended) = self.end(WaitId(first)) {
                if first != id && mark.is_set.load(Ordering::Acquire) {
                    self.list.put_first(mark);
                }
                return Some(ended);
            }
            // The look at the first may have found that this one has failed.
            if first != id
                && self.waits().first_to_run(id) == id
                && let Some(ended) = self.end(WaitId(id))
            {
                return Some(ended);
            }
        }
    }

    /// Returns the number of waits whose callers have not gone on.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waits().by_id.len()
    }

    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let waits = take(&mut self.waits.get_mut().unwrap_or_else(PoisonError::into_inner).by_id);
        // In a forked child a lock that another thread held stays locked, and the waits are copies.
        if self.made_in != process::id() {
            forget(waits);
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl Waits {
    fn remove(&mut self, id: u64) -> Option<Wait> {
        let wait = self.by_id.remove(&id)?;
        if let Some(same) = wait.same
            && let Some(alike) = self.alike.get_mut(&same)
            && alike.remove(&id)
            && alike.is_empty()
        {
            self.alike.remove(&same);
        }
        Some(wait)
    }

    /// Returns the first of those that wait for the same as a caller whose wait may have ended; the
    /// caller itself if that was by an error.
    fn first_to_run(&self, id: u64) -> u64 {
        let Some(Wait { place, same: Some(same), .. }) = self.by_id.get(&id) else { return id };
        if place.failed.is_some() || place.waiting.has_failed() {
            return id;
        }
        self.alike.get(same).and_then(|alike| alike.first().copied()).unwrap_or(id)
    }

    /// Takes what is held for later callers, for the first of those that wait for the same: its
    /// own went on to them, because it did not run in time. All move up by a place.
    ///
    /// Returns the grant, and the place that is left over.
    fn take_of_later(&mut self, id: u64) -> Option<(Result<Taken, AcquireError>, Place)> {
        let wait = self.by_id.get(&id)?;
        let untaken = Arc::clone(&wait.place.mark.untaken);
        let mut alike = self.alike.get(&wait.same?)?.iter();
        if alike.next() != Some(&id) {
            return None;
        }
        let mut later = Vec::new();
        for &other in alike {
            // Usually at once.
            if untaken.load(Ordering::Relaxed) == 0 {
                return None;
            }
            later.push(other);
            let place = &mut self.by_id.get_mut(&other)?.place;
            if !place.mark.is_set.load(Ordering::Acquire) {
                continue;
            }
            match place.end() {
                Some(Ok(taken)) => {
                    let mut place = self.remove(id)?.place;
                    for other in later {
                        let wait = self.by_id.get_mut(&other)?;
                        swap(&mut wait.place, &mut place);
                        wait.place.mark.id.store(other, Ordering::Relaxed);
                    }
                    return Some((Ok(taken), place));
                }
                failed => place.failed = failed.and_then(Result::err),
            }
        }
        None
    }
}

impl Place {
    /// Returns how the wait has ended, if it has.
    fn end(&mut self) -> Option<Result<Taken, AcquireError>> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        // Before the poll: a wake from then on puts the place on the list again.
        self.mark.unset();
        match self.waiting.poll(&Waker::from(Arc::clone(&self.mark))) {
            Poll::Ready(end) => Some(end),
            Poll::Pending => None,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // First: those that its leaving wakes are not behind it any more.
        self.mark.withdraw();
    }
}

impl List {
    fn ready(&self) -> MutexGuard<'_, Ready> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies of nothing until the loop has found the list empty. Returns `true` if it has been
    /// notified already.
    fn hush(&self) -> bool {
        replace(&mut self.ready().is_notified, true)
    }

    /// Notifies again, and of what was put on the list meanwhile.
    fn unhush(&self) {
        let mut ready = self.ready();
        ready.is_notified = !ready.marks.is_empty();
        let is_missed = ready.is_notified;
        drop(ready);
        if is_missed {
            (self.notify)();
        }
    }

    fn take(&self) -> VecDeque<Arc<Mark>> {
        take(&mut *self.ready()).marks
    }

    fn pop(&self) -> Option<Arc<Mark>> {
        let mut ready = self.ready();
        let next = ready.marks.pop_front();
        ready.is_notified = next.is_some();
        next
    }

    /// Puts a mark back that was taken from the front, while the loop looks.
    fn put_first(&self, mark: Arc<Mark>) {
        self.ready().marks.push_front(mark);
    }

    fn put(&self, mark: Arc<Mark>) {
        let mut ready = self.ready();
        ready.marks.push_back(mark);
        let was_notified = ready.is_notified;
        ready.is_notified = true;
        drop(ready);
        if !was_notified {
            (self.notify)();
        }
    }
}

impl Mark {
    /// Puts the wait on the list, unless its caller has not looked since it was last put there.
    fn put(self: &Arc<Self>) {
        if self.is_set.swap(true, Ordering::AcqRel) {
            return;
        }
        self.untaken.fetch_add(1, Ordering::Relaxed);
        if let Some(list) = self.list.upgrade() {
            list.put(Arc::clone(self));
        }
    }

    /// Returns `true` if its caller has to wait until the first has looked, at most once until it
    /// looks itself.
    fn puts_off(self: &Arc<Self>) -> bool {
        if !self.is_set.load(Ordering::Acquire) {
            return true;
        }
        if self.was_put_off.swap(true, Ordering::Relaxed) {
            return false;
        }
        if let Some(list) = self.list.upgrade() {
            list.put(Arc::clone(self));
        }
        true
    }

    fn unset(&self) {
        self.was_put_off.store(false, Ordering::Relaxed);
        if self.is_set.swap(false, Ordering::AcqRel) {
            self.untaken.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Makes further wakes count for nothing.
    fn withdraw(&self) {
        if self.is_set.swap(true, Ordering::AcqRel) {
            self.untaken.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Wake for Mark {
    fn wake(self: Arc<Self>) {
        self.put();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.put();
    }
}
