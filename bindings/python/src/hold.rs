//! Estimates that a limiter holds.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rategate::charge::Committed;

use crate::decision::{Charged, Settled};
use crate::error::raised;
use crate::number::{ns, permits_of};

/// An estimate that is held until its true cost is known. Left alone, it ends by itself.
#[pyclass(frozen, module = "pyrategate")]
#[derive(Debug)]
pub(crate) struct Hold {
    /// The number of permits held.
    #[pyo3(get)]
    permits: u64,
    /// The instant at which the hold ends by itself, in nanoseconds on the limiter's clock.
    #[pyo3(get)]
    ends_at_ns: u64,
    /// None once it is committed or cancelled.
    held: Mutex<Option<rategate_ffi::Hold>>,
}

impl Hold {
    pub(crate) fn new(held: rategate_ffi::Hold) -> Self {
        let (permits, ends_at_ns) = (held.permits(), ns(held.ends_at()));
        Self { permits, ends_at_ns, held: Mutex::new(Some(held)) }
    }

    fn take(&self) -> Option<rategate_ffi::Hold> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl Hold {
    /// Ends the hold with the number of permits that were really used. Returns a `Settled`, or a
    /// `Charged` if the hold had ended by itself.
    fn commit(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = permits_of)] actual: u64,
    ) -> PyResult<Py<PyAny>> {
        let held = self.take().ok_or_else(|| {
            PyValueError::new_err("the hold has been committed or cancelled; it ends only once")
        })?;
        match held.commit(actual).map_err(|error| raised(py, error))? {
            Committed::InTime(settled) => Ok(Py::new(py, Settled::from(settled))?.into_any()),
            Committed::Late(charged) => Ok(Py::new(py, Charged::from(charged))?.into_any()),
        }
    }

    /// Ends the hold, all of which was used. Does nothing if it had ended before.
    fn keep(&self) {
        if let Some(held) = self.take() {
            held.keep();
        }
    }

    /// Ends the hold, of which nothing was used. Returns False if it had ended before.
    fn cancel(&self) -> bool {
        self.take().is_some_and(rategate_ffi::cancel)
    }

    const fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, _raised: Bound<'_, PyAny>) {
        self.cancel();
    }

    fn __repr__(&self) -> String {
        format!("Hold(permits={}, ends_at_ns={})", self.permits, self.ends_at_ns)
    }
}
