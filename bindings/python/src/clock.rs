//! A clock that tests move.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rategate_ffi::Clock;
use rategate_ffi::fork::within;

use crate::number::{Span, ns};

/// A clock that stands still until it is moved, for tests that take no time.
#[pyclass(frozen, subclass, module = "pyrategate")]
#[derive(Debug)]
pub(crate) struct ManualClock {
    pub(crate) clock: rategate::ManualClock,
}

#[pymethods]
impl ManualClock {
    /// The arguments are those of a subclass.
    #[new]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "()")]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self { clock: rategate::ManualClock::stepped() }
    }

    const fn __init__(&self) {}

    /// The nanoseconds since the clock was made.
    #[getter]
    fn now_ns(&self) -> u64 {
        ns(self.clock.now())
    }

    /// Lets a span of time pass, and wakes what is due by then.
    #[pyo3(signature = (span, /))]
    fn advance(&self, py: Python<'_>, span: Span) {
        // Wakers run in this call, and a waiting thread needs the interpreter to go on.
        py.detach(|| within(|| self.clock.advance(span.0)));
    }

    /// Sets the time since the clock was made, back if need be.
    #[pyo3(signature = (now_ns, /))]
    fn set_ns(&self, py: Python<'_>, now_ns: u64) {
        py.detach(|| within(|| self.clock.set(Duration::from_nanos(now_ns))));
    }

    /// Moves the clock to the nearest instant at which a limiter has to look, and returns it in
    /// nanoseconds. Limiters also look before a start, and after a caller that was due, so that a
    /// wait may take several steps.
    fn step(&self, py: Python<'_>) -> Option<u64> {
        py.detach(|| within(|| self.clock.step())).map(ns)
    }

    /// The number of threads that wait on this clock.
    #[getter]
    fn waiting_threads(&self) -> usize {
        self.clock.waiting()
    }

    fn __repr__(&self) -> String {
        format!("ManualClock(now_ns={})", self.now_ns())
    }
}

/// Returns the clock of a limit: real time without one.
pub(crate) fn clock_of(clock: Option<&Py<ManualClock>>) -> Clock {
    clock.map_or_else(Clock::real, |clock| Clock::Manual(clock.get().clock.clone()))
}
