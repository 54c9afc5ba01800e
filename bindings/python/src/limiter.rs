//! The limiter.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyString};
use rategate::adaptive::Outcome;
use rategate::charge::Debt;
use rategate::wait::{QueueBounds, WhenFull};
use rategate::{AcquireError, AnyPolicy};
use rategate_core::queue::MAX_WAITERS;
use rategate_ffi::{Begun, Clock, Policies, Signal};

use crate::awaitable::{Acquire, Left};
use crate::clock::ManualClock;
use crate::decision::{Charged, Decision, Grant, Settled};
use crate::error::{raised, too_soon};
use crate::hold::Hold;
use crate::number::{Span, ns, permits_of, within};
use crate::reservation::Reservation;

/// A limiter for threads and tasks. The class of users adds to it what Python does as well.
#[pyclass(frozen, subclass, module = "pyrategate", name = "_Limiter")]
#[derive(Debug)]
pub(crate) struct Limiter {
    pub(crate) inner: rategate_ffi::Limiter,
    /// The limit as it prints, or as it was given.
    limit: String,
    clock: Option<Py<ManualClock>>,
    name: Option<String>,
    left: Py<Left>,
    /// True if the limit counts operations in flight, which end with the block of a `with`.
    counts_in_flight: bool,
}

#[pymethods]
impl Limiter {
    #[new]
    #[pyo3(signature = (
        limit, *, clock=None, max_waiting=None, max_waiting_permits=None, when_full="refuse",
        debt="forget", max_debt=None, name=None, _saved=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn new(
        py: Python<'_>,
        limit: Bound<'_, PyAny>,
        clock: Option<Py<ManualClock>>,
        max_waiting: Option<Bound<'_, PyAny>>,
        max_waiting_permits: Option<Bound<'_, PyAny>>,
        when_full: &str,
        debt: &str,
        max_debt: Option<Span>,
        name: Option<String>,
        _saved: Option<(Bound<'_, PyAny>, Option<Span>)>,
    ) -> PyResult<Self> {
        let policies = policies(&limit)?;
        let on = clock
            .as_ref()
            .map_or_else(Clock::real, |clock| Clock::Manual(clock.get().clock.clone()));
        let limiter = match _saved {
            None => rategate_ffi::Limiter::new(&policies, on),
            Some((saved, max_downtime)) => restored(&policies, on, &saved, max_downtime)?,
        };
        let limiter = limiter.with_debt(debts(debt, max_debt)?);
        let bounds = bounds(max_waiting, max_waiting_permits, when_full)?;
        limiter.bound_queue(bounds).map_err(|error| raised(py, error))?;
        let limiter = match &name {
            Some(name) => limiter.with_stats(name),
            None => limiter,
        };
        let counts_in_flight = policies.policies().iter().any(|policy| {
            matches!(
                policy,
                AnyPolicy::Concurrency(_)
                    | AnyPolicy::AdaptiveConcurrency(_)
                    | AnyPolicy::CommitLog(_)
            )
        });
        let (limit, left) = (policies.to_string(), Py::new(py, Left)?);
        Ok(Self { inner: limiter, limit, clock, name, left, counts_in_flight })
    }

    /// Takes permits at once, or not at all.
    #[pyo3(signature = (permits=1))]
    fn try_acquire(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
    ) -> PyResult<bool> {
        match self.inner.try_acquire(permits) {
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
        let decision = self.inner.try_acquire(permits).map_err(|error| raised(py, error))?;
        let status = self.inner.status().map_err(|error| raised(py, error))?;
        let remaining = match (decision.granted(), status) {
            (Some(grant), _) => grant.remaining(),
            (None, Some(status)) => status.remaining,
            (None, None) => self.inner.remaining().map_err(|error| raised(py, error))?,
        };
        let reset_after_ns = status.and_then(|status| status.fresh_in).map(ns);
        Ok(Decision::new(&decision, remaining, reset_after_ns))
    }

    /// Returns the nanoseconds that a call would have to wait now. None if no time helps.
    #[pyo3(signature = (permits=1))]
    fn peek(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
    ) -> PyResult<Option<u64>> {
        let wait = self.inner.peek(permits).map_err(|error| raised(py, error))?;
        Ok(wait.map(ns))
    }

    /// Takes permits, and blocks the thread until they may start.
    #[pyo3(signature = (permits=1, *, timeout=None))]
    fn acquire(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
        timeout: Option<Span>,
    ) -> PyResult<Grant> {
        if let Some(grant) = self.inner.take_at_once(permits).map_err(|error| raised(py, error))? {
            return Ok(Grant(grant));
        }
        let timeout = timeout.map(|Span(timeout)| timeout);
        let loops = py.import(intern!(py, "pyrategate._loop"))?;
        let blocks_a_loop = !loops.call_method0(intern!(py, "library"))?.is_none();
        let ended = if blocks_a_loop || is_main_thread(py)? {
            self.acquire_with_signals(py, permits, timeout, &loops)?
        } else {
            py.detach(|| self.inner.acquire(permits, timeout))
        };
        ended.map(Grant).map_err(|error| raised(py, error))
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
        timeout: Option<Span>,
    ) -> PyResult<Reservation> {
        let reserved = self.inner.reserve(permits, timeout.map(|Span(timeout)| timeout));
        reserved.map(Reservation::new).map_err(|error| raised(py, error))
    }

    /// Holds an estimate until its true cost is known, for `ttl` at most.
    ///
    /// Raises `RateLimited` if it does not fit now.
    fn try_hold(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
        ttl: Span,
    ) -> PyResult<Hold> {
        match self.inner.try_hold(permits, ttl.0).map_err(|error| raised(py, error))? {
            Ok(held) => Ok(Hold::new(held)),
            Err(denial) => Err(too_soon(py, permits, denial.retry_after())),
        }
    }

    /// Brings back permits of a grant, all by default. Returns the number that came back.
    #[pyo3(signature = (grant, permits=None))]
    fn refund(
        &self,
        py: Python<'_>,
        grant: Grant,
        permits: Option<Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let permits = match permits {
            Some(permits) => permits_of(&permits)?,
            None => grant.0.permits(),
        };
        self.inner.refund(&grant.0, permits).map_err(|error| raised(py, error))
    }

    /// Corrects a grant to the number of permits that were really used.
    fn settle(
        &self,
        py: Python<'_>,
        grant: Grant,
        #[pyo3(from_py_with = permits_of)] actual: u64,
    ) -> PyResult<Settled> {
        let settled = self.inner.settle(&grant.0, actual);
        settled.map(Into::into).map_err(|error| raised(py, error))
    }

    /// Counts permits that have been used already, whether they fit or not.
    fn charge(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
    ) -> PyResult<Charged> {
        self.inner.charge(permits).map(Into::into).map_err(|error| raised(py, error))
    }

    /// Ends operations in flight. Returns False if the limit counts none.
    #[pyo3(signature = (permits=1))]
    fn release(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
    ) -> PyResult<bool> {
        self.inner.release(permits).map_err(|error| raised(py, error))
    }

    /// Ends the operations in flight of a grant, whose outcome an adaptive limit follows. Returns
    /// False if the limit counts none.
    fn release_with_outcome(&self, py: Python<'_>, grant: Grant, outcome: &str) -> PyResult<bool> {
        let outcome = outcome_of(outcome)?;
        self.inner.release_with_outcome(&grant.0, outcome).map_err(|error| raised(py, error))
    }

    /// The most operations in flight that the limit allows now, or None if it counts none.
    #[getter]
    fn max_in_flight(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.inner.max_in_flight().map_err(|error| raised(py, error))
    }

    /// Adds permits to a pool that is refilled from outside. Returns False if there is none.
    fn refill(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
    ) -> PyResult<bool> {
        self.inner.refill(permits).map_err(|error| raised(py, error))
    }

    /// Forgets all that was granted. Returns True if that changes anything.
    fn reset(&self, py: Python<'_>) -> PyResult<bool> {
        self.inner.reset().map_err(|error| raised(py, error))
    }

    /// Returns the limit's numbers and its state as bytes, for `restore`.
    ///
    /// Permits that are promised or held count as taken. Waiters are not saved, and operations in
    /// flight have ended when it is restored.
    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let saved = py.detach(|| self.inner.save());
        let saved = saved.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(PyBytes::new(py, &saved))
    }

    /// Puts other numbers of the same policies into force. Waiters stay.
    fn reconfigure(&self, py: Python<'_>, limit: Bound<'_, PyAny>) -> PyResult<()> {
        let policies = policies(&limit)?;
        self.inner.reconfigure(&policies).map_err(|error| raised(py, error))
    }

    /// Closes the limiter: it grants nothing any more, and all waits end.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.inner.close());
    }

    /// True if the limiter is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.inner.is_closed()
    }

    /// The number of threads and tasks that wait.
    #[getter]
    fn waiting(&self, py: Python<'_>) -> PyResult<u32> {
        self.inner.waiting().map_err(|error| raised(py, error))
    }

    /// True while a wait of a loop may have ended, and its task has not gone on: for tests.
    #[getter]
    fn _untaken(&self) -> bool {
        self.inner.has_untaken()
    }

    /// The most permits that a try could take now.
    #[getter]
    fn remaining(&self, py: Python<'_>) -> PyResult<u64> {
        self.inner.remaining().map_err(|error| raised(py, error))
    }

    /// The nanoseconds on the limiter's clock.
    #[getter]
    fn now_ns(&self) -> u64 {
        ns(self.inner.now())
    }

    /// The name under which the limit counts, or None.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The clock that the limiter was made with, or None for real time.
    #[getter]
    fn clock(&self, py: Python<'_>) -> Option<Py<ManualClock>> {
        self.clock.as_ref().map(|clock| clock.clone_ref(py))
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
        format!("Limiter({:?})", self.limit)
    }
}

impl Limiter {
    /// Ends the operation of a `with`, where the limit counts those in flight.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        if !self.counts_in_flight || self.inner.is_closed() {
            return Ok(());
        }
        self.release(py, 1).map(drop)
    }

    /// Waits in such a way that Ctrl-C ends the wait, and the place in the queue with it.
    ///
    /// Warns where it blocks an event loop.
    fn acquire_with_signals(
        &self,
        py: Python<'_>,
        permits: u64,
        timeout: Option<Duration>,
        loops: &Bound<'_, PyModule>,
    ) -> PyResult<Result<rategate::Grant, AcquireError>> {
        let signal = Signal::new().map_err(|error| PyOSError::new_err(error.to_string()))?;
        let signal = Arc::new(signal);
        let raise = Arc::clone(&signal);
        let hub = rategate_ffi::Hub::new(move || raise.raise());
        match hub.begin(&self.inner, permits, timeout) {
            Ok(Begun::Granted(grant)) => return Ok(Ok(grant)),
            Ok(Begun::Waits(_)) => {
                loops.call_method0(intern!(py, "warn_where_a_loop_blocks"))?;
            }
            Err(error) => return Ok(Err(error)),
        }
        loop {
            match py.detach(|| signal.wait()) {
                // Raises KeyboardInterrupt. The hub is dropped, and the wait leaves with it.
                Err(error) if error.kind() == ErrorKind::Interrupted => py.check_signals()?,
                Err(error) => return Err(PyOSError::new_err(error.to_string())),
                Ok(()) => {}
            }
            signal.lower();
            if let Some((_, end)) = hub.next() {
                return Ok(end);
            }
        }
    }
}

fn restored(
    policies: &Policies,
    clock: Clock,
    saved: &Bound<'_, PyAny>,
    max_downtime: Option<Span>,
) -> PyResult<rategate_ffi::Limiter> {
    let Ok(bytes) = saved.extract::<PyBackedBytes>() else {
        return Err(PyTypeError::new_err(format!(
            "saved is the bytes of Limiter.save(), not {}",
            saved.repr()?
        )));
    };
    let max_downtime = max_downtime.map(|Span(max)| max);
    rategate_ffi::Limiter::restore(policies, clock, &bytes, max_downtime)
        .map_err(|error| PyValueError::new_err(error.to_string()))
}

fn outcome_of(outcome: &str) -> PyResult<Outcome> {
    match outcome {
        "served" => Ok(Outcome::Served),
        "dropped" => Ok(Outcome::Dropped),
        "ignored" => Ok(Outcome::Ignored),
        other => Err(PyValueError::new_err(format!(
            "outcome is \"served\", \"dropped\" or \"ignored\", not {other:?}"
        ))),
    }
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
        let read = Policies::from_table(&table);
        let read = read.map_err(|error| PyValueError::new_err(error.to_string()))?;
        all.extend_from_slice(read.policies());
        return Ok(());
    }
    let Ok(several) = limit.try_iter() else {
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
