//! The calls of an event loop that wait for a store or a load, and such a wait of the main thread.

use std::collections::HashMap;
#[cfg(unix)]
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use rategate_ffi::{Later, Replies, Reply, SharedDecision};

use crate::error::raised_by_shared;
use crate::load::{OpenLoop, Release};
use crate::number::{Span, permits_of, timeout_of};
use crate::shared::{Ended, Key, Shared, decision, key_of};
use crate::watched::{Watched, new_signal, wait};

/// The calls of one event loop that wait for a store or a load, which calls `drain` when
/// the file descriptor is readable, or when a thread that calls `raised` tells it to.
#[pyclass(frozen, module = "pyrategate", name = "_Replies")]
#[derive(Debug)]
pub(crate) struct LoopReplies {
    decisions: Replies<Ended>,
    pending: Mutex<HashMap<u64, Pending>>,
    releases: Replies<Option<rategate::pace::Release>>,
    /// The futures that wake the tasks of `releases`.
    wakes: Mutex<HashMap<u64, Py<PyAny>>>,
    watched: Watched,
}

/// A call of a store whose reply has not been delivered.
#[derive(Debug)]
struct Pending {
    future: Py<PyAny>,
    shared: rategate_ffi::Shared,
    key: Vec<u8>,
    permits: u64,
}

#[pymethods]
impl LoopReplies {
    #[new]
    fn new() -> PyResult<Self> {
        let watched = Watched::new()?;
        Ok(Self {
            decisions: Replies::new(watched.raise()),
            pending: Mutex::default(),
            releases: Replies::new(watched.raise()),
            wakes: Mutex::default(),
            watched,
        })
    }

    /// Returns the file descriptor that is readable when there is something to drain.
    #[cfg(unix)]
    fn fileno(&self) -> i32 {
        self.watched.signal.as_raw_fd()
    }

    /// Blocks the thread until there is something to drain. Returns False once this is closed.
    fn raised(&self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| self.watched.raised())
    }

    /// The number of calls whose replies have not been delivered.
    #[getter]
    fn waiting(&self) -> usize {
        self.decisions.waiting().saturating_add(self.releases.waiting())
    }

    /// Begins a call that waits until its permits are granted. Returns the decision where it is
    /// there, or the id of the call, whose reply `future` will have.
    fn acquire<'py>(
        &self,
        shared: PyRef<'py, Shared>,
        #[pyo3(from_py_with = key_of)] key: Key,
        #[pyo3(from_py_with = permits_of)] permits: u64,
        #[pyo3(from_py_with = timeout_of)] timeout: Option<Span>,
        make_future: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let timeout = timeout.map(|Span(timeout)| timeout);
        let reply = shared.inner()?.acquire(&key.0, permits, timeout);
        self.begin(reply, (&shared, key, permits), &make_future)
    }

    /// Begins a call that is decided at once, by the store or without it, as `acquire` does.
    fn check<'py>(
        &self,
        shared: PyRef<'py, Shared>,
        #[pyo3(from_py_with = key_of)] key: Key,
        #[pyo3(from_py_with = permits_of)] permits: u64,
        make_future: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reply = shared.inner()?.decide(&key.0, permits);
        self.begin(reply, (&shared, key, permits), &make_future)
    }

    /// Returns the most permits that a call could take now, as `acquire` does.
    fn peek<'py>(
        &self,
        shared: PyRef<'py, Shared>,
        #[pyo3(from_py_with = key_of)] key: Key,
        make_future: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reply = shared.inner()?.peek(&key.0, 1);
        self.begin(reply, (&shared, key, 0), &make_future)
    }

    /// Gives up a call of a store. What it is granted later goes back.
    fn cancel(&self, id: u64) -> bool {
        let pending = locked(&self.pending).remove(&id);
        let is_pending = self.decisions.cancel(id);
        drop(pending);
        is_pending
    }

    /// Waits for the next operation of a load. Returns its release where it is due, or None at the
    /// end of the load; else a future that wakes the task, and the id with which it then calls
    /// `collect`.
    fn release<'py>(
        &self,
        open_loop: PyRef<'py, OpenLoop>,
        make_future: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let begun = self.releases.begin(open_loop.inner.wait_later());
        match begun.ok_or_else(of_the_parent)? {
            Ok(ended) => released(&open_loop, ended),
            Err(id) => self.wake_by(id, &make_future),
        }
    }

    /// Releases the operation of a task that was woken, as it runs. Returns as `release` does.
    fn collect<'py>(
        &self,
        open_loop: PyRef<'py, OpenLoop>,
        id: u64,
        make_future: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self.releases.collect(id) {
            Some(ended) => released(&open_loop, ended),
            None => self.wake_by(id, &make_future),
        }
    }

    /// Gives up a wait for an operation, which goes to the next call.
    fn leave(&self, id: u64) -> bool {
        let wake = locked(&self.wakes).remove(&id);
        let is_pending = self.releases.cancel(id);
        drop(wake);
        is_pending
    }

    /// Ends the futures of the calls whose replies have come, in order.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        self.watched.signal.lower();
        let mut failed = None;
        self.decisions.drain(|id, ended| {
            let pending = locked(&self.pending).remove(&id);
            if let Some(Err(error)) = pending.map(|pending| pending.end(py, ended)) {
                failed = Some(error);
            }
        });
        self.releases.wake(|id| {
            let future = locked(&self.wakes).remove(&id);
            if let Some(Err(error)) = future.map(|future| wake(future.bind(py))) {
                failed = Some(error);
            }
        });
        failed.map_or(Ok(()), Err)
    }

    /// Gives up all calls, for a loop that is closed.
    fn close(&self) {
        let ids: Vec<u64> = locked(&self.pending).keys().copied().collect();
        for id in ids {
            self.cancel(id);
        }
        let ids: Vec<u64> = locked(&self.wakes).keys().copied().collect();
        for id in ids {
            self.leave(id);
        }
        self.watched.close();
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Ok(pending) = self.pending.try_lock() {
            for call in pending.values() {
                visit.call(&call.future)?;
            }
        }
        if let Ok(wakes) = self.wakes.try_lock() {
            for future in wakes.values() {
                visit.call(future)?;
            }
        }
        Ok(())
    }
}

impl LoopReplies {
    /// Begins a call. Returns its decision, or its future and its id.
    fn begin<'py>(
        &self,
        reply: Reply,
        (shared, key, permits): (&PyRef<'py, Shared>, Key, u64),
        make_future: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = make_future.py();
        let begun = match reply {
            Reply::Now(ended) => Ok(ended),
            Reply::Later(later) => self.decisions.begin(later).ok_or_else(of_the_parent)?,
        };
        match begun {
            Ok(ended) => {
                let limiter = shared.inner()?.id_of(&key.0);
                Ok(Bound::new(py, decision(py, ended, permits, limiter)?)?.into_any())
            }
            Err(id) => {
                let future = make_future.call0()?;
                let (pending, Key(key)) = (future.clone().unbind(), key);
                let pending =
                    Pending { future: pending, shared: shared.inner()?.clone(), key, permits };
                locked(&self.pending).insert(id, pending);
                Ok((future, id).into_pyobject(py)?.into_any())
            }
        }
    }

    fn wake_by<'py>(
        &self,
        id: u64,
        make_future: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let future = make_future.call0()?;
        locked(&self.wakes).insert(id, future.clone().unbind());
        Ok((future, id).into_pyobject(make_future.py())?.into_any())
    }
}

impl Pending {
    fn end(self, py: Python<'_>, ended: Ended) -> PyResult<()> {
        let future = self.future.bind(py);
        // Its task was cancelled, and does not get what was granted.
        if future.call_method0(intern!(py, "done"))?.is_truthy()? {
            if let Ok(SharedDecision::Granted(grant)) = ended {
                let refunded = self.shared.refund(&self.key, self.permits, grant);
                refunded.map_err(|error| raised_by_shared(py, &error))?;
            }
            return Ok(());
        }
        match decision(py, ended, self.permits, self.shared.id_of(&self.key)) {
            Ok(decided) => future.call_method1(intern!(py, "set_result"), (decided,))?,
            Err(error) => {
                future.call_method1(intern!(py, "set_exception"), (error.into_value(py),))?
            }
        };
        Ok(())
    }
}

/// Waits in such a way that Ctrl-C ends the wait, and the place in the line with it. Calls `waits`
/// if the reply is not there.
pub(crate) fn wait_with_signals<T>(
    py: Python<'_>,
    later: Later<T>,
    waits: impl FnOnce() -> PyResult<()>,
) -> PyResult<T> {
    let signal = new_signal()?;
    let raise = Arc::clone(&signal);
    let replies = Replies::new(move || raise.raise());
    if let Ok(ended) = replies.begin(later).ok_or_else(of_the_parent)? {
        return Ok(ended);
    }
    waits()?;
    loop {
        // After an interrupt the call is given up with the list.
        wait(py, &signal)?;
        let mut end = None;
        replies.drain(|_, ended| end = Some(ended));
        if let Some(ended) = end {
            return Ok(ended);
        }
    }
}

/// Has a task run, unless it will anyway.
fn wake(future: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    if !future.call_method0(intern!(py, "done"))?.is_truthy()? {
        future.call_method1(intern!(py, "set_result"), (py.None(),))?;
    }
    Ok(())
}

/// Returns what a wait for an operation has ended with.
fn released<'py>(
    open_loop: &PyRef<'py, OpenLoop>,
    ended: Option<rategate::pace::Release>,
) -> PyResult<Bound<'py, PyAny>> {
    let released = ended.map(|release| Release::now(&open_loop.inner, &release));
    Ok(released.into_pyobject(open_loop.py())?.into_any())
}

fn of_the_parent() -> PyErr {
    PyRuntimeError::new_err("this event loop is the parent's; run another in a forked child")
}

fn locked<T>(map: &Mutex<T>) -> MutexGuard<'_, T> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}
