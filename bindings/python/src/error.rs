//! Exceptions. Their classes are in Python (`pyrategate/_errors.py`), where users read them.

use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use rategate::{AcquireError, Error};
use rategate_ffi::{Code, ReturnError, SharedError};

use crate::number::ns;

struct Classes {
    rate_limited: Py<PyType>,
    too_long: Py<PyType>,
    deadline_passed: Py<PyType>,
    time_cannot_help: Py<PyType>,
    full: Py<PyType>,
    evicted: Py<PyType>,
    closed: Py<PyType>,
    exceeds_capacity: Py<PyType>,
    unavailable: Py<PyType>,
    invalid: Py<PyType>,
}

fn classes(py: Python<'_>) -> PyResult<&Classes> {
    static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();
    CLASSES.get_or_try_init(py, || {
        let module = py.import("pyrategate._errors")?;
        let class = |name: &str| -> PyResult<Py<PyType>> {
            Ok(module.getattr(name)?.cast_into::<PyType>()?.unbind())
        };
        Ok(Classes {
            rate_limited: class("RateLimited")?,
            too_long: class("TooLong")?,
            deadline_passed: class("DeadlinePassed")?,
            time_cannot_help: class("TimeCannotHelp")?,
            full: class("Full")?,
            evicted: class("Evicted")?,
            closed: class("Closed")?,
            exceeds_capacity: class("ExceedsCapacity")?,
            unavailable: class("Unavailable")?,
            invalid: py.get_type::<PyValueError>().unbind(),
        })
    })
}

/// Returns the exception of an error.
pub(crate) fn raised(py: Python<'_>, error: impl Into<Error>) -> PyErr {
    let error = error.into();
    let classes = match classes(py) {
        Ok(classes) => classes,
        Err(failed) => return failed,
    };
    let class = match (&error, Code::of(&error)) {
        (Error::Acquire(AcquireError::DeadlinePassed), _) => &classes.deadline_passed,
        (Error::Acquire(AcquireError::TimeCannotHelp | AcquireError::Held), _) => {
            &classes.time_cannot_help
        }
        (Error::Acquire(AcquireError::Evicted), _) => &classes.evicted,
        (_, Code::TooLong) => {
            let retry_after_ns = error.retry_after().map(ns);
            let class = classes.too_long.bind(py).clone();
            return PyErr::from_type(class, (error.to_string(), retry_after_ns));
        }
        (_, Code::Full) => &classes.full,
        (_, Code::Closed) => &classes.closed,
        (_, Code::Never) => &classes.exceeds_capacity,
        _ => &classes.invalid,
    };
    PyErr::from_type(class.bind(py).clone(), error.to_string())
}

/// Returns the exception of an estimate that cannot be held now.
pub(crate) fn too_soon(py: Python<'_>, permits: u64, retry_after: Option<Duration>) -> PyErr {
    let class = match classes(py) {
        Ok(classes) => classes.rate_limited.bind(py).clone(),
        Err(failed) => return failed,
    };
    let when = retry_after
        .map_or_else(|| "no time helps".to_owned(), |after| format!("retry in {after:?}"));
    let text = format!("{permits} permits cannot be held now: {when}");
    PyErr::from_type(class, (text, retry_after.map(ns)))
}

/// Returns the exception of a grant that cannot be returned.
pub(crate) fn not_returned(error: ReturnError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Returns the exception of an error of a shared limit.
pub(crate) fn raised_by_shared(py: Python<'_>, error: &SharedError) -> PyErr {
    let classes = match classes(py) {
        Ok(classes) => classes,
        Err(failed) => return failed,
    };
    let message = error.to_string();
    let with_retry = |class: &Py<PyType>, retry_after: &Option<Duration>| {
        PyErr::from_type(class.bind(py).clone(), (message.clone(), retry_after.map(ns)))
    };
    let class = match (error, error.code()) {
        (SharedError::TooLong { retry_after }, _) => {
            return with_retry(&classes.too_long, retry_after);
        }
        (SharedError::Unavailable { retry_after, .. }, _) => {
            return with_retry(&classes.unavailable, retry_after);
        }
        (SharedError::TimeCannotHelp, _) => &classes.time_cannot_help,
        (_, Code::Never) => &classes.exceeds_capacity,
        (_, Code::Closed) => &classes.closed,
        (_, Code::Failed) => return PyOSError::new_err(message),
        _ => &classes.invalid,
    };
    PyErr::from_type(class.bind(py).clone(), message)
}

/// Returns seconds as a float, the nearest there is.
pub(crate) fn seconds(span: Duration) -> f64 {
    span.as_secs_f64()
}
