//! Outcomes of operations, which adaptive limits follow.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rategate::adaptive::Outcome;
use rategate_ffi::http::{ServerHints, outcome};

/// Reads an outcome.
pub(crate) fn outcome_of(outcome: &str) -> PyResult<Outcome> {
    match outcome {
        "served" => Ok(Outcome::Served),
        "dropped" => Ok(Outcome::Dropped),
        "ignored" => Ok(Outcome::Ignored),
        other => Err(PyValueError::new_err(format!(
            "outcome is \"served\", \"dropped\" or \"ignored\", not {other:?}"
        ))),
    }
}

/// Returns the outcome of a request, by the status of its response and the hold of its hints.
#[pyfunction(name = "_outcome_of")]
pub(crate) fn outcome_of_response(status: u16, hold_ns: u64) -> &'static str {
    let mut hints = ServerHints::default();
    hints.hold = Duration::from_nanos(hold_ns);
    match outcome(status, &hints) {
        Outcome::Served => "served",
        Outcome::Dropped => "dropped",
        Outcome::Ignored => "ignored",
    }
}
