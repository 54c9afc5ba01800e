//! The waits of an event loop.
//!
//! A loop cannot block, and no other thread may call it. So it begins a wait here and goes on. When
//! the wait may have ended, the thread that finds out puts it on a list and notifies the loop, once
//! for all that are on it. The loop then [drains](Hub::drain) the list.
//!
//! ```text
//!   loop            begin ............................... drain -> (id, grant), in order
//!                     |                                     ^
//!   limiter's queue   o--- waits --- due: wake --> list --- | notify, if the list was empty
//! ```
//!
//! # Order
//!
//! A loop that was busy learns late which of its waits were granted, and their callers go on later
//! still. A call that is granted permits at once meanwhile would go on before them. So it is put on
//! the list behind them ([`Begun::Waits`]), and is delivered in order.
//!
//! A loop may also be busy for longer than the [grace period](rategate::Limiter::with_grace), after
//! which a waiter's permits go to the next. So a grant goes to the first caller of the hub that
//! waits for as many permits of that limiter, and that caller's place in the queue to the one
//! whose grant it was. A caller with a timeout keeps its place, which is made for that timeout.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::mem::{forget, swap, take};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use rategate::{AcquireError, Grant};

use crate::limiter::{Limiter, Waiting};

/// A wait of a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaitId(pub u64);

/// The result of a call that takes permits or waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// The permits were free.
    Granted(Grant),
    /// The hub will deliver the end of the wait.
    Waits(WaitId),
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
    limiter: Limiter,
    /// Absent with a timeout.
    same: Option<Same>,
}

/// A place in a limiter's queue, which callers that wait for the same may change with each other.
struct Place {
    state: State,
    mark: Arc<Mark>,
}

enum State {
    Waiting(Waiting),
    /// Granted at once, behind others whose callers have not gone on.
    Granted(Grant),
    /// Delivered to the loop, and the caller has not gone on.
    Delivered(Grant),
}

/// The state of a caller whose grant has been delivered to its loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// The caller has gone on.
    Taken,
    /// The caller will go on later, and the loop calls [`Hub::taken`] then.
    Later,
}

/// The waits that may have ended.
struct List {
    ready: Mutex<Vec<Arc<Mark>>>,
    /// Called after the first was put on an empty list, by whichever thread did.
    notify: Box<dyn Fn() + Send + Sync>,
}

/// The waker of a wait, and the mark that its caller should go on.
struct Mark {
    /// The caller that has the place now. Changed with the waits locked.
    id: AtomicU64,
    /// Weak: a list has marks, and may be dropped with some on it.
    list: Weak<List>,
    /// `true` from when the wait may have ended until it is seen that it has not. It stays so for
    /// a wait that has ended.
    is_set: AtomicBool,
    /// The limiter's count of marks that are set, of waits whose callers have not gone on.
    untaken: Arc<AtomicUsize>,
}

impl Hub {
    /// Creates a hub, which calls `notify` when its loop should [drain](Self::drain) it.
    ///
    /// Any thread may call `notify`, also the one that calls the hub. It must not block, nor call
    /// the hub, and is called once until the next drain.
    pub fn new(notify: impl Fn() + Send + Sync + 'static) -> Self {
        let list = List { ready: Mutex::default(), notify: Box::new(notify) };
        Self { list: Arc::new(list), waits: Mutex::default(), made_in: process::id() }
    }

    /// Takes `permits`, or begins to wait for them; refuses at once if they could start only after
    /// `timeout`.
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
        let mut waits = self.waits();
        waits.last_id = waits.last_id.wrapping_add(1);
        let id = waits.last_id;
        let mut waiting = limiter.wait(permits, timeout);
        let mark = Arc::new(Mark {
            id: AtomicU64::new(id),
            list: Arc::downgrade(&self.list),
            is_set: AtomicBool::new(false),
            untaken: Arc::clone(limiter.untaken()),
        });
        let waker = Waker::from(Arc::clone(&mark));
        let state = match waiting.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(Ok(grant)) if !limiter.has_untaken() => return Ok(Begun::Granted(grant)),
            Poll::Ready(Ok(grant)) => State::Granted(grant),
            Poll::Ready(Err(error)) => return Err(error),
            Poll::Pending => State::Waiting(waiting),
        };
        if matches!(state, State::Granted(_)) {
            mark.put();
        }
        let same = timeout.is_none().then(|| Same(Arc::as_ptr(limiter.untaken()).addr(), permits));
        if let Some(same) = same {
            waits.alike.entry(same).or_default().insert(id);
        }
        let wait = Wait { place: Place { state, mark }, limiter: limiter.clone(), same };
        waits.by_id.insert(id, wait);
        Ok(Begun::Waits(WaitId(id)))
    }

    /// Withdraws a wait. What it held, or was granted and its caller has not taken, is refunded;
    /// those behind it move up. Returns `false` if the wait has ended.
    pub fn cancel(&self, id: WaitId) -> bool {
        let wait = self.waits().remove(id.0);
        wait.is_some_and(|wait| {
            wait.withdraw();
            true
        })
    }

    /// Records that the caller of a delivered grant has gone on: the permits are its own.
    pub fn taken(&self, id: WaitId) {
        if let Some(wait) = self.waits().remove(id.0) {
            wait.place.mark.withdraw();
        }
    }

    /// Delivers the ends of the waits that are on the list now, in order. Those that come meanwhile
    /// notify again.
    ///
    /// `deliver` may begin and cancel waits, and says whether the caller goes on at once. A wait
    /// that is cancelled before that is refunded, and is not delivered any more.
    pub fn drain(&self, deliver: impl FnMut(WaitId, Result<Grant, AcquireError>) -> Delivered) {
        self.drain_up_to(usize::MAX, deliver);
    }

    /// Delivers at most `max` ends, as [`drain`](Self::drain) does. Returns `true` if it has
    /// delivered as many: the list may have more then, of which nothing notifies.
    pub fn drain_up_to(
        &self,
        max: usize,
        mut deliver: impl FnMut(WaitId, Result<Grant, AcquireError>) -> Delivered,
    ) -> bool {
        // One pass: at a high rate each wait that ends makes the next one due, and the loop has
        // more to do.
        let mut delivered = 0_usize;
        let mut ready = take(&mut *self.list.ready()).into_iter();
        while delivered < max {
            let Some(mark) = ready.next() else { return false };
            let Some((id, end)) = self.check(&mark) else { continue };
            delivered = delivered.saturating_add(1);
            let then = deliver(id, end);
            if end.is_ok() && then == Delivered::Taken {
                self.taken(id);
            }
        }
        // Those that came meanwhile are behind.
        self.list.ready().splice(..0, ready);
        true
    }

    /// Returns the number of waits whose callers have not gone on.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waits().by_id.len()
    }

    /// Looks at a place from the list. Returns the caller that goes on, if there is one, and why.
    fn check(&self, mark: &Arc<Mark>) -> Option<(WaitId, Result<Grant, AcquireError>)> {
        let mut waits = self.waits();
        let id = mark.id.load(Ordering::Relaxed);
        let wait = waits.by_id.get_mut(&id)?;
        let end = match &mut wait.place.state {
            State::Delivered(_) => return None,
            State::Granted(grant) => Ok(*grant),
            State::Waiting(waiting) => {
                // Before the poll: a wake from then on puts the place on the list again.
                mark.unset();
                let waker = Waker::from(Arc::clone(mark));
                match waiting.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(end) => end,
                    Poll::Pending => return None,
                }
            }
        };
        mark.set();
        let Ok(grant) = end else {
            waits.remove(id)?.place.mark.withdraw();
            return Some((WaitId(id), end));
        };
        wait.place.state = State::Delivered(grant);
        Some((WaitId(waits.hand_to_first(id)), end))
    }

    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // In a forked child a lock that another thread held stays locked, and the waits are copies.
        if self.made_in != process::id() {
            forget(take(&mut self.waits.get_mut().unwrap_or_else(PoisonError::into_inner).by_id));
            return;
        }
        for (_, wait) in take(&mut *self.waits()).by_id {
            wait.withdraw();
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
        self.no_longer_waits(id, wait.same);
        Some(wait)
    }

    fn no_longer_waits(&mut self, id: u64, same: Option<Same>) {
        let Some(same) = same else { return };
        if let Some(alike) = self.alike.get_mut(&same)
            && alike.remove(&id)
            && alike.is_empty()
        {
            self.alike.remove(&same);
        }
    }

    /// Has the grant of a caller go to the first that waits for the same. Returns that caller.
    fn hand_to_first(&mut self, id: u64) -> u64 {
        let Some(wait) = self.by_id.get(&id) else { return id };
        let same = wait.same;
        let alike = same.and_then(|same| self.alike.get(&same));
        let first = alike.and_then(|alike| alike.first().copied()).unwrap_or(id);
        self.no_longer_waits(first, same);
        if first != id
            && let [Some(one), Some(other)] = self.by_id.get_disjoint_mut([&id, &first])
        {
            swap(&mut one.place, &mut other.place);
            one.place.mark.id.store(id, Ordering::Relaxed);
            other.place.mark.id.store(first, Ordering::Relaxed);
        }
        first
    }
}

impl Wait {
    fn withdraw(self) {
        self.place.mark.withdraw();
        match self.place.state {
            // Its drop leaves the wait queue, and refunds what was held.
            State::Waiting(waiting) => drop(waiting),
            // A closed limiter needs nothing back.
            State::Granted(grant) | State::Delivered(grant) => {
                let _ = self.limiter.refund(&grant, grant.permits());
            }
        }
    }
}

impl List {
    fn ready(&self) -> MutexGuard<'_, Vec<Arc<Mark>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, mark: Arc<Mark>) {
        let mut ready = self.ready();
        let is_first = ready.is_empty();
        ready.push(mark);
        drop(ready);
        if is_first {
            (self.notify)();
        }
    }
}

impl Mark {
    /// Puts the wait on the list, unless it is there.
    fn put(self: &Arc<Self>) {
        if self.set()
            && let Some(list) = self.list.upgrade()
        {
            list.put(Arc::clone(self));
        }
    }

    /// Returns `true` if it was not set.
    fn set(&self) -> bool {
        let is_first = !self.is_set.swap(true, Ordering::AcqRel);
        if is_first {
            self.untaken.fetch_add(1, Ordering::Relaxed);
        }
        is_first
    }

    fn unset(&self) {
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
