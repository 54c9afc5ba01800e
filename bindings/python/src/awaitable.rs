//! The awaitable of a wait.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;

use crate::decision::Grant;
use crate::error::raised;
use crate::limiter::Limiter;
use crate::stop;

/// Permits that are taken, or waited for, once it is awaited; until then it holds nothing.
///
/// It has the methods of a coroutine, so that `asyncio.create_task` takes it. Where the permits are
/// free it ends at once; otherwise a coroutine of Python goes on.
#[pyclass(frozen, module = "pyrategate")]
#[derive(Debug)]
pub(crate) struct Acquire {
    limiter: Py<Limiter>,
    permits: u64,
    timeout: Option<Py<PyAny>>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    New,
    Waits(Py<PyAny>),
    Ended,
}

impl Acquire {
    pub(crate) fn new(limiter: Py<Limiter>, permits: u64, timeout: Option<Py<PyAny>>) -> Self {
        Self { limiter, permits, timeout, state: Mutex::new(State::New) }
    }

    /// Returns the coroutine that goes on, or the grant if the permits were free.
    fn begin<'py>(&self, py: Python<'py>) -> PyResult<Result<Bound<'py, PyAny>, Grant>> {
        let limiter = self.limiter.bind(py);
        let inner = limiter.get().inner()?;
        match inner.take_at_once(self.permits) {
            Ok(Some(grant)) => Ok(Err(Grant::new(grant, inner.id()))),
            Ok(None) => {
                let arguments = (self.permits, self.timeout.as_ref());
                let waits = limiter.call_method1(intern!(py, "_wait"), arguments)?;
                self.set(State::Waits(waits.clone().unbind()));
                Ok(Ok(waits))
            }
            Err(error) => Err(raised(py, error)),
        }
    }

    /// Goes on to the next object that the loop gets, or to the grant if the permits were free.
    fn step<'py>(&self, value: Bound<'py, PyAny>) -> PyResult<Result<Bound<'py, PyAny>, Grant>> {
        let py = value.py();
        let waits = match self.set(State::Ended) {
            State::New => match self.begin(py)? {
                Ok(waits) => waits,
                Err(grant) => return Ok(Err(grant)),
            },
            State::Waits(waits) => {
                let waits = waits.into_bound(py);
                self.set(State::Waits(waits.clone().unbind()));
                waits
            }
            State::Ended => {
                return Err(PyRuntimeError::new_err("this wait has been awaited already"));
            }
        };
        let step = waits.call_method1(intern!(py, "send"), (value,));
        if step.is_err() {
            self.set(State::Ended);
        }
        step.map(Ok)
    }

    fn set(&self, state: State) -> State {
        let mut now = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut now, state)
    }
}

#[pymethods]
impl Acquire {
    const fn __await__(acquire: PyRef<'_, Self>) -> PyRef<'_, Self> {
        acquire
    }

    const fn __iter__(acquire: PyRef<'_, Self>) -> PyRef<'_, Self> {
        acquire
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.step(py.None().into_bound(py))? {
            Ok(next) => Ok(Some(next)),
            Err(grant) => {
                stop::set(&Bound::new(py, grant)?);
                Ok(None)
            }
        }
    }

    fn send<'py>(&self, value: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.step(value)?.map_err(|grant| PyStopIteration::new_err((grant,)))
    }

    #[pyo3(signature = (kind, value=None, traceback=None))]
    fn throw<'py>(
        &self,
        py: Python<'py>,
        kind: Bound<'py, PyAny>,
        value: Option<Bound<'py, PyAny>>,
        traceback: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let State::Waits(waits) = self.set(State::Ended) else {
            return Err(PyErr::from_value(value.unwrap_or(kind)));
        };
        let waits = waits.into_bound(py);
        let step = match (value, traceback) {
            (None, None) => waits.call_method1(intern!(py, "throw"), (kind,)),
            (value, traceback) => {
                waits.call_method1(intern!(py, "throw"), (kind, value, traceback))
            }
        };
        if step.is_ok() {
            self.set(State::Waits(waits.unbind()));
        }
        step
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.set(State::Ended) {
            State::Waits(waits) => waits.call_method0(py, intern!(py, "close")).map(drop),
            State::New | State::Ended => Ok(()),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.limiter)?;
        if let Some(timeout) = &self.timeout {
            visit.call(timeout)?;
        }
        if let Ok(state) = self.state.try_lock()
            && let State::Waits(waits) = &*state
        {
            visit.call(waits)?;
        }
        Ok(())
    }
}

/// The awaitable of the end of an `async with`, which has nothing to wait for. One object serves
/// all.
#[pyclass(frozen, module = "pyrategate")]
#[derive(Debug)]
pub(crate) struct Left;

#[pymethods]
impl Left {
    const fn __await__(left: PyRef<'_, Self>) -> PyRef<'_, Self> {
        left
    }

    const fn __iter__(left: PyRef<'_, Self>) -> PyRef<'_, Self> {
        left
    }

    const fn __next__(&self) -> Option<()> {
        None
    }
}
