//! The calls of an event loop that wait for replies of a store, or for operations of a load.
//!
//! A [`Hub`](crate::Hub) is for waits in a limiter's own queue. Here any future may end when
//! another thread wakes it, and ends are delivered in the order of the wakes.
//!
//! A reply of a store may be [drained](Replies::drain) before its caller runs. An operation of a
//! load is released by a poll, so its caller is [woken](Replies::wake) and then
//! [collects](Replies::collect).

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::mem::{replace, take};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use rategate::store::ProcessBound;

/// A call whose reply will come.
pub type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The calls of one event loop, whose replies other threads bring.
///
/// Dropped, it gives up the calls. In a forked child it has none, and takes none.
pub struct Replies<T> {
    list: Arc<List>,
    calls: ProcessBound<Mutex<Calls<T>>>,
}

struct Calls<T> {
    last_id: u64,
    by_id: HashMap<u64, Call<T>>,
}

struct Call<T> {
    future: Later<T>,
    mark: Arc<Mark>,
}

/// The calls that may have ended, in order.
struct List {
    ready: Mutex<Ready>,
    /// Called after the first was put on the list of a loop that has looked, by whichever thread
    /// did.
    notify: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Ready {
    ids: VecDeque<u64>,
    /// `true` from a notification until the loop has taken all, or found that there are none.
    is_notified: bool,
}

/// The waker of a call.
struct Mark {
    id: u64,
    /// Weak: a store has wakers of calls that it has not replied to.
    list: Weak<List>,
    is_listed: AtomicBool,
}

impl<T> Replies<T> {
    /// Creates a list without calls, which calls `notify` when its loop should
    /// [drain](Self::drain) it, take what is [next](Self::next) until there is none, or
    /// [wake](Self::wake) its callers.
    ///
    /// Any thread may call `notify`. It must not block, nor call this list, and is called once
    /// until the loop does that.
    pub fn new(notify: impl Fn() + Send + Sync + 'static) -> Self {
        let list = Arc::new(List { ready: Mutex::default(), notify: Box::new(notify) });
        let calls = Calls { last_id: 0, by_id: HashMap::new() };
        Self { list, calls: ProcessBound::new(Mutex::new(calls)) }
    }

    /// Begins a call. Returns its id, or the reply where it is there and no other has come before
    /// it. `None` in a forked child.
    pub fn begin(&self, mut future: Later<T>) -> Option<Result<T, u64>> {
        let mut calls = self.calls()?;
        calls.last_id = calls.last_id.wrapping_add(1);
        let id = calls.last_id;
        let list = Arc::downgrade(&self.list);
        // What has come and was not delivered may be an earlier caller's, which goes on first.
        let is_behind = !self.list.ready().ids.is_empty();
        let mark = Arc::new(Mark { id, list, is_listed: AtomicBool::new(is_behind) });
        if is_behind {
            calls.by_id.insert(id, Call { future, mark });
            self.list.put(id);
            return Some(Err(id));
        }
        // With the calls locked, so that a wake meanwhile finds the call among them.
        match poll(&mut future, &mark) {
            Poll::Ready(reply) => Some(Ok(reply)),
            Poll::Pending => {
                calls.by_id.insert(id, Call { future, mark });
                Some(Err(id))
            }
        }
    }

    /// Gives up a call. Returns `false` if it has ended.
    pub fn cancel(&self, id: u64) -> bool {
        // Dropped without the lock: it returns permits to the store.
        let call = self.calls().and_then(|mut calls| calls.by_id.remove(&id));
        call.is_some()
    }

    /// Delivers the replies that have come, in order. Those that come meanwhile notify again.
    ///
    /// `deliver` may begin and cancel calls.
    pub fn drain(&self, mut deliver: impl FnMut(u64, T)) {
        self.wake(|id| {
            if let Some(reply) = self.collect(id) {
                deliver(id, reply);
            }
        });
    }

    /// Reports the calls whose replies may have come, in order, for callers that
    /// [collect](Self::collect) as they run.
    pub fn wake(&self, wake: impl FnMut(u64)) {
        let ready = take(&mut *self.list.ready());
        ready.ids.into_iter().for_each(wake);
    }

    /// Returns the next call that has ended and its reply, once, in order. `None` when all have
    /// been delivered; until then no others notify.
    pub fn next(&self) -> Option<(u64, T)> {
        loop {
            let id = self.list.pop()?;
            if let Some(reply) = self.collect(id) {
                return Some((id, reply));
            }
        }
    }

    /// Returns the reply of a call, once, as its caller runs. `None` while it has not come: then
    /// the caller is woken again.
    pub fn collect(&self, id: u64) -> Option<T> {
        // The call is dropped without the lock.
        let (_ended, reply) = self.poll(id)?;
        Some(reply)
    }

    /// Returns the number of calls whose replies have not been delivered.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.calls().map_or(0, |calls| calls.by_id.len())
    }

    /// Polls a call. Returns it with its reply, if that has come.
    fn poll(&self, id: u64) -> Option<(Call<T>, T)> {
        let mut calls = self.calls()?;
        let call = calls.by_id.get_mut(&id)?;
        // Before the poll: a wake from then on puts the call on the list again.
        call.mark.is_listed.store(false, Ordering::Release);
        match poll(&mut call.future, &call.mark) {
            Poll::Ready(reply) => Some((calls.by_id.remove(&id)?, reply)),
            Poll::Pending => None,
        }
    }

    fn calls(&self) -> Option<MutexGuard<'_, Calls<T>>> {
        Some(self.calls.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn poll<T>(future: &mut Later<T>, mark: &Arc<Mark>) -> Poll<T> {
    let waker = Waker::from(Arc::clone(mark));
    future.as_mut().poll(&mut Context::from_waker(&waker))
}

impl<T> fmt::Debug for Replies<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl List {
    fn ready(&self) -> MutexGuard<'_, Ready> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, id: u64) {
        let mut ready = self.ready();
        ready.ids.push_back(id);
        let was_notified = replace(&mut ready.is_notified, true);
        drop(ready);
        if !was_notified {
            (self.notify)();
        }
    }

    fn pop(&self) -> Option<u64> {
        let mut ready = self.ready();
        let next = ready.ids.pop_front();
        ready.is_notified = next.is_some();
        next
    }
}

impl Wake for Mark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_listed.swap(true, Ordering::AcqRel)
            && let Some(list) = self.list.upgrade()
        {
            list.put(self.id);
        }
    }
}
