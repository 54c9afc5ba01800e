//! A table with a limit for each key.

use std::sync::OnceLock;
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyString, PyTuple};
use rategate::AnyPolicy;
use rategate::keyed::MAX_KEYS;
use rategate_ffi::{Capacity, Clock, KeyRef, Overflow, Policies};

use crate::clock::{ManualClock, clock_of};
use crate::decision::Decision;
use crate::error::raised;
use crate::limiter::{Limiter, Made as MadeLimiter, policies};
use crate::number::{ns, permits_of, within};
use crate::shared::Shared;

/// The largest integer of a structured field (RFC 9651, 3.3.1).
const MAX_INTEGER: u64 = 999_999_999_999_999;
const NS_PER_SECOND: u64 = 1_000_000_000;

/// A limit for each of many keys, in bounded memory. A key is a str, bytes or an int of 64 bits.
// A mapping has no slots of a sequence: `iter` and `in` would try 0, 1 and so on without end.
#[pyclass(frozen, mapping, subclass, module = "pyrategate")]
#[derive(Debug)]
pub(crate) struct Keyed {
    /// Empty until `__init__`, as of a limiter.
    made: OnceLock<Made>,
}

#[derive(Debug)]
struct Made {
    table: rategate_ffi::Keyed,
    limit: String,
    clock: Option<Py<ManualClock>>,
}

#[pymethods]
impl Keyed {
    #[new]
    #[pyo3(
        signature = (*_args, **_kwargs),
        text_signature = "(limit, *, max_keys=None, max_bytes=None, when_full='share', clock=None)"
    )]
    const fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self { made: OnceLock::new() }
    }

    #[pyo3(signature = (limit, *, max_keys=None, max_bytes=None, when_full="share", clock=None))]
    fn __init__(
        &self,
        limit: Bound<'_, PyAny>,
        max_keys: Option<Bound<'_, PyAny>>,
        max_bytes: Option<Bound<'_, PyAny>>,
        when_full: &str,
        clock: Option<Py<ManualClock>>,
    ) -> PyResult<()> {
        let policies = policies(&limit)?;
        let policy = one_of(&policies)?;
        let overflow = match when_full {
            "share" => Overflow::Share,
            "refuse" => Overflow::Refuse,
            "admit" => Overflow::Admit,
            other => {
                return Err(PyValueError::new_err(format!(
                    "when_full is \"share\", \"refuse\" or \"admit\", not {other:?}"
                )));
            }
        };
        let mut capacity = Capacity::default().or_else(overflow);
        if let Some(given) = max_keys {
            capacity.max_keys = up_to("max_keys", MAX_KEYS, &given)?;
        }
        if let Some(given) = max_bytes {
            capacity.max_bytes = up_to("max_bytes", isize::MAX.unsigned_abs(), &given)?;
        }
        let table = rategate_ffi::Keyed::new(policy, capacity, clock_of(clock.as_ref()));
        let made = Made { table, limit: policies.to_string(), clock };
        self.made.set(made).map_err(|_| {
            PyTypeError::new_err("the table has been made; reconfigure() changes its numbers")
        })
    }

    /// Takes permits for a key at once, or not at all.
    #[pyo3(signature = (key, permits=1))]
    fn try_acquire(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
    ) -> PyResult<bool> {
        let table = self.table()?;
        with_key(key, |key| match table.try_acquire(key, permits) {
            Ok(decision) => Ok(decision.is_granted()),
            Err(error) => Err(raised(py, error)),
        })
    }

    /// Takes permits for a key at once, or says when to come again.
    #[pyo3(signature = (key, permits=1))]
    fn check(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
    ) -> PyResult<Decision> {
        let table = self.table()?;
        with_key(key, |key| match table.try_acquire_with_status(key, permits) {
            Ok((decision, status)) => {
                let reset_after_ns = status.fresh_in.map(ns);
                // It is needed for a grant alone.
                let limiter = if decision.is_granted() { table.id_of(key) } else { 0 };
                Ok(Decision::new(&decision, limiter, status.remaining, reset_after_ns))
            }
            Err(error) => Err(raised(py, error)),
        })
    }

    /// Takes permits for a key, for a server that reports what is left of `quota` permits.
    ///
    /// Returns that report, an item of the field `RateLimit`; and of a denial also the time until
    /// the same call passes. One call, as the code around has filled the processor's caches: two
    /// more, and a text made in Python, took 3 us there, and 1 us in a loop of their own.
    fn _decide(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
        quoted_name: &str,
        quota: u64,
    ) -> PyResult<(bool, String, Option<u64>)> {
        let table = self.table()?;
        with_key(key, |key| {
            let decided = table.try_acquire_with_status(key, permits);
            let (decision, status) = decided.map_err(|error| raised(py, error))?;
            let left = status.remaining;
            let more_after = match decision.retry_after() {
                None if decision.is_granted() && left < quota => {
                    table.peek(key, left.saturating_add(1)).map_err(|error| raised(py, error))?
                }
                wait => wait,
            };
            let report = report(quoted_name, left, more_after);
            Ok((decision.is_granted(), report, decision.retry_after().map(ns)))
        })
    }

    /// Returns the nanoseconds that a call of a key would have to wait now. None if no time helps.
    #[pyo3(signature = (key, permits=1))]
    fn peek(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
    ) -> PyResult<Option<u64>> {
        let table = self.table()?;
        with_key(key, |key| match table.peek(key, permits) {
            Ok(wait) => Ok(wait.map(ns)),
            Err(error) => Err(raised(py, error)),
        })
    }

    /// Ends operations in flight of a key. Returns False if the limit counts none.
    #[pyo3(signature = (key, permits=1))]
    fn release(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
    ) -> PyResult<bool> {
        let table = self.table()?;
        with_key(key, |key| table.release(key, permits).map_err(|error| raised(py, error)))
    }

    /// Forgets what a key was granted. Returns True if that changes anything.
    fn reset(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let table = self.table()?;
        with_key(key, |key| table.reset(key).map_err(|error| raised(py, error)))
    }

    /// Puts another limit into force, for all keys.
    fn reconfigure(&self, py: Python<'_>, limit: Bound<'_, PyAny>) -> PyResult<()> {
        let policies = policies(&limit)?;
        self.table()?.reconfigure(one_of(&policies)?).map_err(|error| raised(py, error))
    }

    /// Returns the limiter of a key, with all verbs. It has the key's counts.
    fn __getitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let Made { table, limit, clock } = self.made()?;
        let inner = with_key(key, |key| table.limiter(key).map_err(|error| raised(py, error)))?;
        let made = MadeLimiter {
            inner,
            limit: limit.clone(),
            clock: clock.as_ref().map(|clock| clock.clone_ref(py)),
            name: None,
            counts_in_flight: table.needs_ends(),
        };
        Limiter::of(py, made)
    }

    /// The calls with a new key that found the table full.
    #[getter]
    fn overflows(&self) -> PyResult<u64> {
        Ok(self.table()?.overflows())
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.table()?.len())
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a table cannot be pickled: another process would get a copy that limits by itself. \
             Make one there, or take Shared, by which a store decides for all",
        ))
    }

    fn __repr__(&self) -> String {
        match self.made.get() {
            Some(made) => format!("Keyed({:?})", made.limit),
            None => "Keyed(without a limit)".to_owned(),
        }
    }
}

impl Keyed {
    #[inline]
    fn table(&self) -> PyResult<&rategate_ffi::Keyed> {
        self.made().map(|made| &made.table)
    }

    #[inline]
    fn made(&self) -> PyResult<&Made> {
        self.made.get().ok_or_else(not_made)
    }
}

#[cold]
fn not_made() -> PyErr {
    PyRuntimeError::new_err("the table has no limit yet: call super().__init__(limit) first")
}

/// Returns the permits that an unused limit of one policy grants at once, and the nanoseconds in
/// which they come back. None if time alone does not restore them.
///
/// A limit that has not been used says its numbers best, of whatever policy it is.
#[pyfunction]
pub(crate) fn _quota(py: Python<'_>, limit: &Bound<'_, PyAny>) -> PyResult<(u64, Option<u64>)> {
    let policy = match limit.cast::<Shared>() {
        Ok(shared) => one_of(shared.get().policies()?)?,
        Err(_) => one_of(&policies(limit)?)?,
    };
    let clock = Clock::Manual(rategate::ManualClock::new());
    let unused = rategate_ffi::Keyed::new(policy, Capacity::for_keys(1), clock);
    let quota = unused.status(KeyRef::Number(0)).map_err(|error| raised(py, error))?.remaining;
    let all = unused.try_acquire_with_status(KeyRef::Number(0), quota);
    let (_, status) = all.map_err(|error| raised(py, error))?;
    Ok((quota, status.fresh_in.map(ns).filter(|_| quota > 0)))
}

fn one_of(policies: &Policies) -> PyResult<AnyPolicy> {
    match policies.policies() {
        &[policy] => Ok(policy),
        several => Err(PyValueError::new_err(format!(
            "a table of keys has one policy, not {}: \"{policies}\"",
            several.len()
        ))),
    }
}

/// Writes what remains, and the seconds until there is more, as an item of `RateLimit`.
pub(crate) fn report(quoted_name: &str, remaining: u64, more_after: Option<Duration>) -> String {
    let remaining = remaining.min(MAX_INTEGER);
    match more_after {
        // A client takes 0 for no time at all.
        Some(wait) => {
            let seconds = ns(wait).div_ceil(NS_PER_SECOND).max(1);
            format!("{quoted_name};r={remaining};t={seconds}")
        }
        None => format!("{quoted_name};r={remaining}"),
    }
}

fn up_to(name: &str, most: usize, given: &Bound<'_, PyAny>) -> PyResult<usize> {
    let most = u64::try_from(most).unwrap_or(u64::MAX);
    Ok(usize::try_from(within(name, 1, most, given)?).unwrap_or(usize::MAX))
}

fn with_key<T>(key: &Bound<'_, PyAny>, run: impl FnOnce(KeyRef<'_>) -> PyResult<T>) -> PyResult<T> {
    if let Ok(text) = key.cast::<PyString>() {
        return run(KeyRef::Text(&text.to_cow()?));
    }
    if let Ok(bytes) = key.cast::<PyBytes>() {
        return run(KeyRef::Bytes(bytes.as_bytes()));
    }
    run(KeyRef::Number(number_of(key)?))
}

/// Reads a key that is neither a text nor bytes.
pub(crate) fn number_of(key: &Bound<'_, PyAny>) -> PyResult<i64> {
    if let Ok(number) = key.extract() {
        return Ok(number);
    }
    let shown = key.repr()?;
    Err(if key.is_instance_of::<PyInt>() {
        PyValueError::new_err(format!(
            "a key that is an int is from -2**63 to 2**63 - 1, not {shown}"
        ))
    } else {
        PyTypeError::new_err(format!("a key is a str, bytes or an int of 64 bits, not {shown}"))
    })
}
