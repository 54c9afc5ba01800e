//! The limiter.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple, PyType};
use rategate::charge::Debt;
use rategate::wait::{QueueBounds, WhenFull};
use rategate::{AcquireError, AnyPolicy};
use rategate_core::line::MAX_WAITERS;
use rategate_ffi::{Begun, Policies, Taken};

use crate::awaitable::{Acquire, Left};
use crate::clock::{ManualClock, clock_of};
use crate::decision::{Charged, Decision, Grant};
use crate::error::{not_returned, raised, too_soon};
use crate::hold::Hold;
use crate::number::{
    Span, max_debt_of, max_downtime_of, ns, permits_of, timeout_of, ttl_of, within,
};
use crate::outcome::outcome_of;
use crate::reservation::Reservation;
use crate::watched::{new_signal, wait};

/// A limiter for threads and tasks. The class of users adds to it what Python does as well.
#[pyclass(frozen, subclass, module = "pyrategate")]
#[derive(Debug)]
pub(crate) struct Limiter {
    /// Empty until `__init__`, whose arguments are those of a subclass until it calls ours.
    made: OnceLock<Made>,
    /// The state that `__init__` continues from, until it does.
    saved: Mutex<Option<Saved>>,
    left: Py<Left>,
}

#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) inner: rategate_ffi::Limiter,
    /// The limit as it prints, or as it was given.
    pub(crate) limit: String,
    pub(crate) clock: Option<Py<ManualClock>>,
    pub(crate) name: Option<String>,
    /// True if the limit counts operations in flight, which end with the block of a `with`.
    pub(crate) counts_in_flight: bool,
}

#[derive(Debug)]
struct Saved {
    bytes: PyBackedBytes,
    max_downtime: Option<Duration>,
}

#[pymethods]
impl Limiter {
    #[new]
    #[pyo3(
        signature = (*_args, **_kwargs),
        text_signature = "(limit, *, clock=None, max_waiting=None, max_waiting_permits=None, \
                          when_full='refuse', debt='forget', max_debt=None, name=None)"
    )]
    fn new(
        py: Python<'_>,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Ok(Self { made: OnceLock::new(), saved: Mutex::default(), left: Py::new(py, Left)? })
    }

    #[pyo3(signature = (
        limit, *, clock=None, max_waiting=None, max_waiting_permits=None, when_full="refuse",
        debt="forget", max_debt=None, name=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn __init__(
        &self,
        py: Python<'_>,
        limit: Bound<'_, PyAny>,
        clock: Option<Py<ManualClock>>,
        max_waiting: Option<Bound<'_, PyAny>>,
        max_waiting_permits: Option<Bound<'_, PyAny>>,
        when_full: &str,
        debt: &str,
        #[pyo3(from_py_with = max_debt_of)] max_debt: Option<Span>,
        name: Option<String>,
    ) -> PyResult<()> {
        let policies = policies(&limit)?;
        let debt = debts(debt, max_debt)?;
        let bounds = bounds(max_waiting, max_waiting_permits, when_full)?;
        let on = clock_of(clock.as_ref());
        let mut saved = self.saved();
        let limiter = match &*saved {
            None => rategate_ffi::Limiter::new(&policies, on),
            Some(Saved { bytes, max_downtime }) => {
                rategate_ffi::Limiter::restore(&policies, on, bytes, *max_downtime)
                    .map_err(|error| PyValueError::new_err(error.to_string()))?
            }
        };
        let limiter = limiter.with_debt(debt);
        limiter.bound_queue(bounds).map_err(|error| raised(py, error))?;
        let limiter = match &name {
            Some(name) => limiter.with_stats(name),
            None => limiter,
        };
        let counts_in_flight = counts_in_flight(&policies);
        let limit = policies.to_string();
        self.set(Made { inner: limiter, limit, clock, name, counts_in_flight })?;
        // Not before: an `__init__` that failed may be called again.
        *saved = None;
        Ok(())
    }

    /// Has `__init__` continue from the bytes of `save`, in whichever way a subclass calls it.
    fn _continue_from(
        &self,
        saved: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = max_downtime_of)] max_downtime: Option<Span>,
    ) -> PyResult<()> {
        let Ok(bytes) = saved.extract::<PyBackedBytes>() else {
            return Err(PyTypeError::new_err(format!(
                "saved is the bytes of Limiter.save(), not {}",
                saved.repr()?
            )));
        };
        if self.made.get().is_some() {
            return Err(has_been_made());
        }
        let max_downtime = max_downtime.map(|Span(max)| max);
        *self.saved() = Some(Saved { bytes, max_downtime });
        Ok(())
    }

    /// Takes permits at once, or not at all.
    #[pyo3(signature = (permits=1))]
    fn try_acquire(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
    ) -> PyResult<bool> {
        match self.inner()?.try_acquire(permits) {
            Ok(decision) => Ok(decision.is_granted()),
            Err(error) => Err(raised(py, error)),
        }
    }

    /// Takes permits at once, or says when to come again.
    #[pyo3(signature = (permits=1))]
    fn check(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
    ) -> PyResult<Decision> {
        let decision = self.inner()?.try_acquire(permits).map_err(|error| raised(py, error))?;
        let status = self.inner()?.status().map_err(|error| raised(py, error))?;
        let reset_after_ns = status.fresh_in.map(ns);
        Ok(Decision::new(&decision, self.inner()?.id(), status.remaining, reset_after_ns))
    }

    /// Returns the nanoseconds that a call would have to wait now. None if no time helps.
    #[pyo3(signature = (permits=1))]
    fn peek(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
    ) -> PyResult<Option<u64>> {
        let wait = self.inner()?.peek(permits).map_err(|error| raised(py, error))?;
        Ok(wait.map(ns))
    }

    /// Takes permits, and blocks the thread until they may start.
    #[pyo3(signature = (permits=1, *, timeout=None))]
    fn acquire(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
        #[pyo3(from_py_with = timeout_of)] timeout: Option<Span>,
    ) -> PyResult<Grant> {
        if let Some(grant) =
            self.inner()?.take_at_once(permits).map_err(|error| raised(py, error))?
        {
            return Ok(Grant::new(grant, self.inner()?.id()));
        }
        let timeout = timeout.map(|Span(timeout)| timeout);
        let limiter = self.inner()?;
        let ended = self.block(
            py,
            |hub| hub.begin(limiter, permits, timeout),
            || limiter.acquire(permits, timeout).map(Taken::Granted),
            ("acquire()", "await acquire_async(), or use `async with`"),
        )?;
        match ended.map_err(|error| raised(py, error))? {
            Taken::Granted(grant) => Ok(Grant::new(grant, limiter.id())),
            // A wait for permits ends with them.
            Taken::Held(_) => Err(PyRuntimeError::new_err("nothing is granted")),
        }
    }

    /// Returns what a task awaits to take permits as soon as they may start.
    #[pyo3(signature = (permits=1, *, timeout=None))]
    fn acquire_async(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
        timeout: Option<Py<PyAny>>,
    ) -> Acquire {
        Acquire::new(slf.clone().unbind(), permits, timeout)
    }

    /// Takes permits for the first instant at which they may start, and does not wait for it.
    #[pyo3(signature = (permits=1, *, timeout=None))]
    fn reserve(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
        #[pyo3(from_py_with = timeout_of)] timeout: Option<Span>,
    ) -> PyResult<Reservation> {
        let reserved = self.inner()?.reserve(permits, timeout.map(|Span(timeout)| timeout));
        let reserved = reserved.map_err(|error| raised(py, error))?;
        Ok(Reservation::new(reserved, self.inner()?.id()))
    }

    /// Holds an estimate until its true cost is known, for `ttl` at most.
    ///
    /// Raises `RateLimited` if it does not fit now.
    fn try_hold(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
        #[pyo3(from_py_with = ttl_of)] ttl: Span,
    ) -> PyResult<Hold> {
        match self.inner()?.try_hold(permits, ttl.0).map_err(|error| raised(py, error))? {
            Ok(held) => Ok(Hold::new(held)),
            Err(denial) => Err(too_soon(py, permits, denial.retry_after())),
        }
    }

    /// Holds an estimate as soon as it fits, and blocks the thread until then.
    #[pyo3(signature = (permits, ttl, *, timeout=None))]
    fn hold(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
        #[pyo3(from_py_with = ttl_of)] ttl: Span,
        #[pyo3(from_py_with = timeout_of)] timeout: Option<Span>,
    ) -> PyResult<Hold> {
        if let Some(held) = self.hold_at_once(py, permits, ttl)? {
            return Ok(held);
        }
        let (Span(ttl), timeout) = (ttl, timeout.map(|Span(timeout)| timeout));
        let limiter = self.inner()?;
        let ended = self.block(
            py,
            |hub| hub.begin_hold(limiter, permits, ttl, timeout),
            || limiter.hold(permits, ttl, timeout).map(Taken::Held),
            ("hold()", "await hold_async()"),
        )?;
        match ended.map_err(|error| raised(py, error))? {
            Taken::Held(held) => Ok(Hold::new(held)),
            // A wait for a hold ends with one.
            Taken::Granted(_) => Err(PyRuntimeError::new_err("nothing is held")),
        }
    }

    /// Holds an estimate that fits now. None if the call has to wait.
    #[pyo3(name = "_hold_at_once")]
    fn hold_at_once(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
        #[pyo3(from_py_with = ttl_of)] ttl: Span,
    ) -> PyResult<Option<Hold>> {
        let held = self.inner()?.hold_at_once(permits, ttl.0).map_err(|error| raised(py, error))?;
        Ok(held.map(Hold::new))
    }

    /// Counts permits that have been used already, whether they fit or not.
    fn charge(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
    ) -> PyResult<Charged> {
        self.inner()?.charge(permits).map(Into::into).map_err(|error| raised(py, error))
    }

    /// Ends operations in flight. Returns False if the limit counts none.
    #[pyo3(signature = (permits=1))]
    fn release(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
    ) -> PyResult<bool> {
        self.inner()?.release(permits).map_err(|error| raised(py, error))
    }

    /// Ends the operations in flight of a grant, whose outcome an adaptive limit follows. Returns
    /// False if the limit counts none.
    fn release_with_outcome(
        &self,
        py: Python<'_>,
        grant: PyRef<'_, Grant>,
        outcome: &str,
    ) -> PyResult<bool> {
        let outcome = outcome_of(outcome)?;
        let limiter = self.inner()?;
        let release = || limiter.release_with_outcome(&grant.inner, outcome);
        let released = grant.receipt().end(limiter.id(), release).map_err(not_returned)?;
        released.map_err(|error| raised(py, error))
    }

    /// The most operations in flight that the limit allows now, or None if it counts none or is
    /// closed.
    #[getter]
    fn max_in_flight(&self) -> PyResult<Option<u64>> {
        Ok(self.inner()?.max_in_flight().ok().flatten())
    }

    /// True if the limit moves by outcomes, and is not closed.
    #[getter]
    fn _follows_outcomes(&self) -> PyResult<bool> {
        Ok(self.inner()?.follows_outcomes().unwrap_or(false))
    }

    /// Adds permits to a pool that is refilled from outside. Returns False if there is none.
    fn refill(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
    ) -> PyResult<bool> {
        self.inner()?.refill(permits).map_err(|error| raised(py, error))
    }

    /// Forgets all that was granted. Returns True if that changes anything.
    fn reset(&self, py: Python<'_>) -> PyResult<bool> {
        self.inner()?.reset().map_err(|error| raised(py, error))
    }

    /// Returns the limit's numbers and its state as bytes, for `restore`.
    ///
    /// Permits that are promised or held count as taken. Waiters are not saved, and operations in
    /// flight have ended when it is restored.
    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let inner = self.inner()?;
        let saved = py.detach(|| inner.save());
        let saved = saved.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(PyBytes::new(py, &saved))
    }

    /// Replaces the limit. Waiters stay.
    fn reconfigure(&self, py: Python<'_>, limit: Bound<'_, PyAny>) -> PyResult<()> {
        let policies = policies(&limit)?;
        self.inner()?.reconfigure(&policies).map_err(|error| raised(py, error))
    }

    /// Closes the limiter: it grants nothing any more, and all waits end.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let limiter = self.inner()?;
        py.detach(|| limiter.close());
        Ok(())
    }

    /// True if the limiter is closed.
    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.inner()?.is_closed())
    }

    /// The number of threads and tasks that wait. 0 if the limiter is closed.
    #[getter]
    fn waiting(&self) -> PyResult<u32> {
        Ok(self.inner()?.waiting().unwrap_or(0))
    }

    /// True while a wait of a loop may have ended, and its task has not gone on: for tests.
    #[getter]
    fn _untaken(&self) -> PyResult<bool> {
        Ok(self.inner()?.has_untaken())
    }

    /// The most permits that a try could take now. 0 if the limiter is closed.
    #[getter]
    fn remaining(&self) -> PyResult<u64> {
        // An error would end whatever prints it.
        Ok(self.inner()?.remaining().unwrap_or(0))
    }

    /// The nanoseconds on the limiter's clock.
    #[getter]
    fn now_ns(&self) -> PyResult<u64> {
        Ok(ns(self.inner()?.now()))
    }

    /// The name under which the limit counts, or None.
    #[getter]
    fn name(&self) -> PyResult<Option<&str>> {
        Ok(self.made()?.name.as_deref())
    }

    /// The clock that the limiter was made with, or None for real time.
    #[getter]
    fn clock(&self, py: Python<'_>) -> PyResult<Option<Py<ManualClock>>> {
        Ok(self.made()?.clock.as_ref().map(|clock| clock.clone_ref(py)))
    }

    fn __enter__(&self, py: Python<'_>) -> PyResult<Grant> {
        self.acquire(py, 1, None)
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: Bound<'_, PyAny>) -> PyResult<()> {
        self.leave(py)
    }

    fn __aenter__(slf: &Bound<'_, Self>) -> Acquire {
        Self::acquire_async(slf, 1, None)
    }

    #[pyo3(signature = (*_raised))]
    fn __aexit__(&self, py: Python<'_>, _raised: Bound<'_, PyAny>) -> PyResult<Py<Left>> {
        self.leave(py)?;
        Ok(self.left.clone_ref(py))
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (_seen))]
    fn __deepcopy__(slf: Py<Self>, _seen: Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a limiter cannot be pickled: another process would get a copy that limits by itself. \
             Make one there, take Shared, by which a store decides for all, or save() this one as it \
             ends and Limiter.restore() it there",
        ))
    }

    fn __repr__(&self) -> String {
        match self.made.get() {
            Some(made) => format!("Limiter({:?})", made.limit),
            None => "Limiter(without a limit)".to_owned(),
        }
    }
}

impl Limiter {
    /// Creates a limiter of the class of users.
    pub(crate) fn of(py: Python<'_>, made: Made) -> PyResult<Py<PyAny>> {
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let class = CLASS.import(py, "pyrategate._limiter", "Limiter")?;
        // Without `__init__`, which would make another limit.
        let limiter = class.call_method1(intern!(py, "__new__"), (class,))?;
        limiter.cast::<Self>()?.get().set(made)?;
        Ok(limiter.unbind())
    }

    fn set(&self, made: Made) -> PyResult<()> {
        self.made.set(made).map_err(|_| has_been_made())
    }

    /// Locks the state to continue from. No Python code runs under the lock.
    fn saved(&self) -> MutexGuard<'_, Option<Saved>> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn inner(&self) -> PyResult<&rategate_ffi::Limiter> {
        self.made().map(|made| &made.inner)
    }

    #[inline]
    fn made(&self) -> PyResult<&Made> {
        self.made.get().ok_or_else(not_made)
    }

    /// Ends the operation of a `with`, where the limit counts those in flight.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        if !self.made()?.counts_in_flight || self.inner()?.is_closed() {
            return Ok(());
        }
        self.release(py, 1).map(drop)
    }

    /// Waits in a hub where signals have to be handled meanwhile, or else in the limiter.
    fn block(
        &self,
        py: Python<'_>,
        begin: impl FnOnce(&rategate_ffi::Hub) -> Result<Begun, AcquireError>,
        wait_there: impl FnOnce() -> Result<Taken, AcquireError> + Send,
        (call, instead): (&str, &str),
    ) -> PyResult<Result<Taken, AcquireError>> {
        let loops = py.import(intern!(py, "pyrategate._loop"))?;
        let blocks_a_loop = !loops.call_method0(intern!(py, "library"))?.is_none();
        if !blocks_a_loop && !is_main_thread(py)? {
            return Ok(py.detach(wait_there));
        }
        let signal = new_signal()?;
        let raise = Arc::clone(&signal);
        let hub = rategate_ffi::Hub::new(move || raise.raise());
        match begin(&hub) {
            Ok(Begun::Taken(taken)) => return Ok(Ok(taken)),
            Ok(Begun::Waits(_)) => {}
            Err(error) => return Ok(Err(error)),
        }
        // What is free is taken by a look of its own.
        if let Some(ended) = hub.next() {
            return Ok(ended.end);
        }
        loops.call_method1(intern!(py, "warn_where_a_loop_blocks"), (call, instead))?;
        loop {
            // After an interrupt the hub is dropped, and the wait leaves with it.
            wait(py, &signal)?;
            if let Some(ended) = hub.next() {
                return Ok(ended.end);
            }
        }
    }
}

#[cold]
fn not_made() -> PyErr {
    PyRuntimeError::new_err("the limiter has no limit yet: call super().__init__(limit) first")
}

fn has_been_made() -> PyErr {
    PyTypeError::new_err("the limiter has been made; reconfigure() changes its numbers")
}

/// Returns `true` if one of the limits counts operations in flight.
pub(crate) fn counts_in_flight(policies: &Policies) -> bool {
    policies.policies().iter().any(|policy| {
        matches!(
            policy,
            AnyPolicy::Concurrency(_) | AnyPolicy::AdaptiveConcurrency(_) | AnyPolicy::CommitLog(_)
        )
    })
}

fn bounds(
    waiters: Option<Bound<'_, PyAny>>,
    permits: Option<Bound<'_, PyAny>>,
    when_full: &str,
) -> PyResult<QueueBounds> {
    let bounds = match waiters {
        None => QueueBounds::default(),
        Some(most) => {
            let most = within("max_waiting", 1, MAX_WAITERS.into(), &most)?;
            QueueBounds::new(u32::try_from(most).unwrap_or(u32::MAX))
        }
    };
    let bounds = match permits {
        None => bounds,
        Some(most) => bounds.with_permits(within("max_waiting_permits", 0, u64::MAX, &most)?),
    };
    match when_full {
        "refuse" => Ok(bounds),
        "evict-newest" => Ok(bounds.when_full(WhenFull::EvictNewest)),
        other => Err(PyValueError::new_err(format!(
            "when_full is \"refuse\" or \"evict-newest\", not {other:?}"
        ))),
    }
}

fn debts(debt: &str, max: Option<Span>) -> PyResult<Debt> {
    let debt = match debt {
        "forget" => Debt::FORGOTTEN,
        "carry" => Debt::CARRIED,
        other => {
            return Err(PyValueError::new_err(format!(
                "debt is \"forget\" or \"carry\", not {other:?}"
            )));
        }
    };
    Ok(max.map_or(debt, |Span(max)| debt.at_most(max)))
}

/// Returns `true` in the thread that handles signals.
pub(crate) fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import(intern!(py, "threading"))?;
    let main = threading.call_method0(intern!(py, "main_thread"))?;
    let current = threading.call_method0(intern!(py, "get_ident"))?;
    main.getattr(intern!(py, "ident"))?.eq(current)
}

/// Reads a limit: a text, a `Policy`, or several of them.
pub(crate) fn policies(limit: &Bound<'_, PyAny>) -> PyResult<Policies> {
    let mut all = Vec::new();
    collect(limit, &mut all)?;
    Policies::new(all).ok_or_else(|| {
        PyValueError::new_err("a limit needs at least one policy, such as \"10/s burst 5\"")
    })
}

fn collect(limit: &Bound<'_, PyAny>, all: &mut Vec<AnyPolicy>) -> PyResult<()> {
    if let Ok(text) = limit.cast::<PyString>() {
        let text = text.to_cow()?;
        let read = text.parse::<Policies>();
        let read =
            read.map_err(|error| PyValueError::new_err(format!("the limit {text:?}: {error}")))?;
        all.extend_from_slice(read.policies());
        return Ok(());
    }
    if let Some(table) = limit.getattr_opt("_table")? {
        let table: String = table.extract()?;
        // A policy has no lines.
        let shown = limit.repr()?;
        let read = Policies::from_table(&table).map_err(|error| {
            PyValueError::new_err(format!("the limit {shown}: {}", error.message))
        })?;
        all.extend_from_slice(read.policies());
        return Ok(());
    }
    let several = if limit.is_instance_of::<PyBytes>() { None } else { limit.try_iter().ok() };
    let Some(several) = several else {
        return Err(PyTypeError::new_err(format!(
            "a limit is a text such as \"10/s burst 5\", a Policy, or several of them, not {}",
            limit.repr()?
        )));
    };
    for one in several {
        collect(&one?, all)?;
    }
    Ok(())
}
