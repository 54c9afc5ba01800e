//! Loads whose operations are released at their due instants.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use rategate_ffi::Clock;

use crate::clock::ManualClock;
use crate::error::seconds;
use crate::limiter::is_main_thread;
use crate::number::{ns, within};
use crate::replies::wait_with_signals;

/// The operations of a load. The class of users adds to it what Python does as well.
#[pyclass(frozen, subclass, module = "pyrategate")]
#[derive(Debug)]
pub(crate) struct OpenLoop {
    pub(crate) inner: rategate_ffi::OpenLoop,
    load: String,
}

/// An operation that may start now. Instants count from the start of the load.
#[pyclass(frozen, eq, hash, get_all, module = "pyrategate")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Release {
    /// The number of the operation in the load, counted from 0.
    number: u64,
    /// The nanoseconds at which the operation was due.
    scheduled_at_ns: u64,
    /// The nanoseconds at which its caller really went on.
    released_at_ns: u64,
}

#[pymethods]
impl OpenLoop {
    #[new]
    #[pyo3(signature = (load, *, part=None, clock=None))]
    fn new(
        load: String,
        part: Option<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
        clock: Option<PyRef<'_, ManualClock>>,
    ) -> PyResult<Self> {
        let part = match part {
            Some((part, parts)) => Some((
                within("part", 0, u64::MAX, &part)?,
                within("the number of parts", 0, u64::MAX, &parts)?,
            )),
            None => None,
        };
        let clock = clock.map_or_else(Clock::real, |clock| Clock::Manual(clock.clock.clone()));
        let inner = rategate_ffi::OpenLoop::new(&load, part, clock);
        let inner = inner.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { inner, load })
    }

    /// The seconds since the start of the load.
    #[getter]
    fn now(&self) -> f64 {
        seconds(self.inner.now())
    }

    /// The nanoseconds since the start of the load.
    #[getter]
    fn now_ns(&self) -> u64 {
        ns(self.inner.now())
    }

    /// Ends all waits: no operation is released any more.
    fn close(&self) {
        self.inner.close();
    }

    const fn __iter__(open_loop: PyRef<'_, Self>) -> PyRef<'_, Self> {
        open_loop
    }

    /// Blocks the thread until the next operation is due.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Release>> {
        let loops = py.import(intern!(py, "pyrategate._loop"))?;
        let blocks_a_loop = !loops.call_method0(intern!(py, "library"))?.is_none();
        let ended = if blocks_a_loop || is_main_thread(py)? {
            wait_with_signals(py, self.inner.wait_later(), || {
                let call = ("`for` over an OpenLoop", "use `async for`");
                loops.call_method1(intern!(py, "warn_where_a_loop_blocks"), call).map(drop)
            })?
        } else {
            py.detach(|| self.inner.wait())
        };
        Ok(ended.map(|release| Release::now(&self.inner, &release)))
    }

    fn __repr__(&self) -> String {
        format!("OpenLoop({:?})", self.load)
    }
}

impl Release {
    /// Returns a release whose caller goes on now: a thread has had to wait for the interpreter.
    pub(crate) fn now(open_loop: &rategate_ffi::OpenLoop, of: &rategate::pace::Release) -> Self {
        Self {
            number: of.number(),
            scheduled_at_ns: ns(of.scheduled_at()),
            released_at_ns: ns(of.released_at().max(open_loop.now())),
        }
    }
}

#[pymethods]
impl Release {
    /// Creates a release, for pickles and for tests.
    #[new]
    const fn made(number: u64, scheduled_at_ns: u64, released_at_ns: u64) -> Self {
        Self { number, scheduled_at_ns, released_at_ns }
    }

    const fn __getnewargs__(&self) -> (u64, u64, u64) {
        (self.number, self.scheduled_at_ns, self.released_at_ns)
    }

    /// The seconds at which the operation was due.
    #[getter]
    fn scheduled_at(&self) -> f64 {
        seconds(Duration::from_nanos(self.scheduled_at_ns))
    }

    /// The seconds at which its caller really went on.
    #[getter]
    fn released_at(&self) -> f64 {
        seconds(Duration::from_nanos(self.released_at_ns))
    }

    /// The nanoseconds by which the operation is late.
    #[getter]
    const fn wait_ns(&self) -> u64 {
        self.released_at_ns.saturating_sub(self.scheduled_at_ns)
    }

    /// The seconds by which the operation is late.
    #[getter]
    fn wait(&self) -> f64 {
        seconds(Duration::from_nanos(self.wait_ns()))
    }

    fn __repr__(&self) -> String {
        let Self { number, scheduled_at_ns, released_at_ns } = self;
        format!(
            "Release(number={number}, scheduled_at_ns={scheduled_at_ns}, \
             released_at_ns={released_at_ns})"
        )
    }
}
