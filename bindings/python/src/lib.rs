//! The extension module of the Python package `pyrategate`.
//!
//! It turns Python's objects into those of `rategate-ffi` and back. Whatever is as fast in Python
//! is in Python, in `python/pyrategate`.

mod awaitable;
mod clock;
mod decision;
mod error;
mod hold;
mod http;
mod hub;
mod keyed;
mod limiter;
mod load;
mod number;
mod outcome;
mod replies;
mod reservation;
mod shared;
mod stop;
mod watched;

use pyo3::prelude::*;

#[pymodule]
mod _core {
    use pyo3::prelude::*;
    use rategate_ffi::http::{DEFAULT_BACKOFF, MAX_HOLD};

    #[pymodule_export]
    use super::awaitable::{Acquire, Left};
    #[pymodule_export]
    use super::clock::ManualClock;
    #[pymodule_export]
    use super::decision::{Charged, Decision, Grant, Settled};
    #[pymodule_export]
    use super::hold::Hold;
    #[pymodule_export]
    use super::http::{ClientNames, PacedRequest, Pacing, ServerHints, ServerLimit, parse_hints};
    #[pymodule_export]
    use super::hub::Hub;
    #[pymodule_export]
    use super::keyed::{_quota, Keyed};
    #[pymodule_export]
    use super::limiter::Limiter;
    #[pymodule_export]
    use super::load::{OpenLoop, Release};
    #[pymodule_export]
    use super::outcome::outcome_of_response;
    #[pymodule_export]
    use super::replies::LoopReplies;
    #[pymodule_export]
    use super::reservation::Reservation;
    #[pymodule_export]
    use super::shared::{Decision as SharedDecision, Grant as SharedGrant, Shared};
    use crate::number::ns;

    /// Keeps other threads out of limiters until `_after_fork`.
    #[pyfunction]
    fn _before_fork() {
        rategate_ffi::fork::before_fork();
    }

    /// Lets other threads enter limiters again.
    #[pyfunction]
    fn _after_fork(is_child: bool) {
        rategate_ffi::fork::after_fork(is_child);
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("DEFAULT_BACKOFF_NS", ns(DEFAULT_BACKOFF))?;
        module.add("MAX_HOLD_NS", ns(MAX_HOLD))?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
