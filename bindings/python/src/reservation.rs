//! Promised starts.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use crate::decision::Grant;
use crate::number::ns;

/// A promised start. The caller waits for it on its own, or cancels it before.
#[pyclass(frozen, module = "pyrategate")]
#[derive(Debug)]
pub(crate) struct Reservation {
    /// The instant from which the operation may start, in nanoseconds on the limiter's clock.
    #[pyo3(get)]
    promised_at_ns: u64,
    /// The id of the limiter.
    limiter: u64,
    /// None once it is kept or cancelled.
    reserved: Mutex<Option<rategate_ffi::Reservation>>,
}

impl Reservation {
    pub(crate) fn new(reserved: rategate_ffi::Reservation, limiter: u64) -> Self {
        let promised_at_ns = ns(reserved.promised_at());
        Self { promised_at_ns, limiter, reserved: Mutex::new(Some(reserved)) }
    }

    fn take(&self) -> Option<rategate_ffi::Reservation> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl Reservation {
    /// Takes the permits for good. Returns None if it was kept or cancelled before.
    fn keep(&self) -> Option<Grant> {
        self.take().map(|reserved| Grant::new(reserved.keep(), self.limiter))
    }

    /// Returns the permits. False if the start has come, or it was kept or cancelled before.
    fn cancel(&self) -> bool {
        self.take().is_some_and(rategate_ffi::Reservation::cancel)
    }

    fn __repr__(&self) -> String {
        format!("Reservation(promised_at_ns={})", self.promised_at_ns)
    }
}
