//! The hub of an event loop of asyncio.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rategate_ffi::{Begun, Taken, WaitId};
#[cfg(unix)]
use std::os::fd::AsRawFd;

use crate::decision::Grant;
use crate::error::raised;
use crate::hold::Hold;
use crate::limiter::Limiter;
use crate::number::{Span, optional_ttl_of, permits_of, timeout_of};
use crate::watched::Watched;

/// The waits of one event loop, which calls `wake` when the file descriptor is readable, or when a
/// thread that calls `raised` tells it to.
#[pyclass(frozen, module = "pyrategate")]
#[derive(Debug)]
pub(crate) struct Hub {
    inner: rategate_ffi::Hub,
    watched: Watched,
    /// The futures of the waits, by id. A Python object, so that the garbage collector sees the
    /// cycle from the loop to them and back.
    futures: Py<PyDict>,
}

#[pymethods]
impl Hub {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let watched = Watched::new()?;
        let hub = rategate_ffi::Hub::new(watched.raise());
        Ok(Self { inner: hub, watched, futures: PyDict::new(py).unbind() })
    }

    /// Returns the file descriptor that is readable when there are tasks to wake.
    #[cfg(unix)]
    fn fileno(&self) -> i32 {
        self.watched.signal.as_raw_fd()
    }

    /// Blocks the thread until there are tasks to wake. Returns False once the hub is closed.
    fn raised(&self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| self.watched.raised())
    }

    /// The number of waits whose tasks have not gone on.
    #[getter]
    fn waiting(&self) -> usize {
        self.inner.waiting()
    }

    /// Begins a wait whose task is woken by `future`, to hold what it takes for `ttl` if there is
    /// one. Returns its id, or what it took where the permits were free.
    #[pyo3(signature = (limiter, permits, timeout, future, ttl=None))]
    fn begin<'py>(
        &self,
        py: Python<'py>,
        limiter: PyRef<'py, Limiter>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
        #[pyo3(from_py_with = timeout_of)] timeout: Option<Span>,
        future: Bound<'py, PyAny>,
        #[pyo3(from_py_with = optional_ttl_of)] ttl: Option<Span>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let timeout = timeout.map(|Span(timeout)| timeout);
        let begun = match ttl {
            None => self.inner.begin(limiter.inner()?, permits, timeout),
            Some(Span(ttl)) => self.inner.begin_hold(limiter.inner()?, permits, ttl, timeout),
        };
        match begun {
            Ok(Begun::Taken(taken)) => taken_as_object(py, taken, limiter.inner()?.id()),
            Ok(Begun::Waits(WaitId(id))) => {
                self.futures.bind(py).set_item(id, future)?;
                Ok(id.into_pyobject(py)?.into_any())
            }
            Err(error) => Err(raised(py, error)),
        }
    }

    /// Returns what a wait for a limiter has taken, as its task runs: it takes the permits now.
    /// `None` while the wait lasts.
    fn collect<'py>(
        &self,
        py: Python<'py>,
        limiter: PyRef<'py, Limiter>,
        id: u64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(end) = self.inner.collect(WaitId(id)) else { return Ok(None) };
        self.forget(py, id)?;
        let taken = end.map_err(|error| raised(py, error))?;
        taken_as_object(py, taken, limiter.inner()?.id()).map(Some)
    }

    /// Has another future wake the task of a wait that lasts.
    fn wait_on(&self, py: Python<'_>, id: u64, future: Bound<'_, PyAny>) -> PyResult<()> {
        self.futures.bind(py).set_item(id, future)
    }

    /// Withdraws a wait. What was held for it goes to the next.
    fn cancel(&self, py: Python<'_>, id: u64) -> PyResult<bool> {
        self.forget(py, id)?;
        Ok(self.inner.cancel(WaitId(id)))
    }

    /// Wakes the tasks whose waits may have ended, in order.
    fn wake(&self, py: Python<'_>) -> PyResult<()> {
        self.watched.signal.lower();
        let mut woken = Ok(());
        self.inner.wake(|WaitId(id)| {
            if let Err(error) = self.wake_task(py, id) {
                woken = Err(error);
            }
        });
        woken
    }

    /// Withdraws all waits, for a loop that is closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let ids: Vec<u64> =
            self.futures.bind(py).keys().iter().map(|id| id.extract()).collect::<PyResult<_>>()?;
        for id in ids {
            self.cancel(py, id)?;
        }
        self.watched.close();
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.futures)
    }
}

impl Hub {
    fn wake_task(&self, py: Python<'_>, id: u64) -> PyResult<()> {
        let Some(future) = self.futures.bind(py).get_item(id)? else { return Ok(()) };
        // The task will run anyway, or was cancelled and will withdraw its wait when it runs.
        if !future.call_method0(intern!(py, "done"))?.is_truthy()? {
            future.call_method1(intern!(py, "set_result"), (py.None(),))?;
        }
        Ok(())
    }

    fn forget(&self, py: Python<'_>, id: u64) -> PyResult<()> {
        let futures = self.futures.bind(py);
        if futures.contains(id)? {
            futures.del_item(id)?;
        }
        Ok(())
    }
}

fn taken_as_object(py: Python<'_>, taken: Taken, limiter: u64) -> PyResult<Bound<'_, PyAny>> {
    Ok(match taken {
        Taken::Granted(grant) => Bound::new(py, Grant::new(grant, limiter))?.into_any(),
        Taken::Held(held) => Bound::new(py, Hold::new(held))?.into_any(),
    })
}
