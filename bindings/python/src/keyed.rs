//! A table with a limit for each key.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyString};
use rategate::keyed::MAX_KEYS;
use rategate_ffi::{Capacity, KeyRef, Overflow};

use crate::clock::{ManualClock, clock_of};
use crate::decision::Decision;
use crate::error::raised;
use crate::limiter::{Limiter, Made, counts_in_flight, policies};
use crate::number::{ns, permits_of, within};

/// A limit for each of many keys, in bounded memory. A key is a str, bytes or an int of 64 bits.
// A mapping has no slots of a sequence: `iter` and `in` would try 0, 1 and so on without end.
#[pyclass(frozen, mapping, module = "pyrategate")]
#[derive(Debug)]
pub(crate) struct Keyed {
    table: rategate_ffi::Keyed,
    limit: String,
    clock: Option<Py<ManualClock>>,
    counts_in_flight: bool,
}

#[pymethods]
impl Keyed {
    #[new]
    #[pyo3(signature = (limit, *, max_keys=None, max_bytes=None, when_full="share", clock=None))]
    fn new(
        limit: Bound<'_, PyAny>,
        max_keys: Option<Bound<'_, PyAny>>,
        max_bytes: Option<Bound<'_, PyAny>>,
        when_full: &str,
        clock: Option<Py<ManualClock>>,
    ) -> PyResult<Self> {
        let policies = policies(&limit)?;
        let &[policy] = policies.policies() else {
            return Err(PyValueError::new_err(format!(
                "a table of keys has one policy, not {}: \"{policies}\"",
                policies.policies().len()
            )));
        };
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
        let counts_in_flight = counts_in_flight(&policies);
        Ok(Self { table, limit: policies.to_string(), clock, counts_in_flight })
    }

    /// Takes permits for a key at once, or not at all.
    #[pyo3(signature = (key, permits=1))]
    fn try_acquire(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = permits_of)] permits: u64,
    ) -> PyResult<bool> {
        with_key(key, |key| match self.table.try_acquire(key, permits) {
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
        with_key(key, |key| match self.table.try_acquire_with_status(key, permits) {
            Ok((decision, status)) => {
                let reset_after_ns = status.fresh_in.map(ns);
                // It is needed for a grant alone.
                let limiter = if decision.is_granted() { self.table.id_of(key) } else { 0 };
                Ok(Decision::new(&decision, limiter, status.remaining, reset_after_ns))
            }
            Err(error) => Err(raised(py, error)),
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
        with_key(key, |key| match self.table.peek(key, permits) {
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
        with_key(key, |key| self.table.release(key, permits).map_err(|error| raised(py, error)))
    }

    /// Forgets what a key was granted. Returns True if that changes anything.
    fn reset(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        with_key(key, |key| self.table.reset(key).map_err(|error| raised(py, error)))
    }

    /// Puts other numbers of the same policy into force, for all keys.
    fn reconfigure(&self, py: Python<'_>, limit: Bound<'_, PyAny>) -> PyResult<()> {
        let policies = policies(&limit)?;
        let changed = match policies.policies() {
            &[policy] => self.table.reconfigure(policy),
            _ => None,
        };
        match changed {
            Some(changed) => changed.map_err(|error| raised(py, error)),
            None => Err(PyValueError::new_err(format!(
                "\"{policies}\" is not the policy of this table, \"{}\", with other numbers",
                self.limit
            ))),
        }
    }

    /// Returns the limiter of a key, with all verbs. It has the key's counts.
    fn __getitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let limiter =
            with_key(key, |key| self.table.limiter(key).map_err(|error| raised(py, error)))?;
        let made = Made {
            inner: limiter,
            limit: self.limit.clone(),
            clock: self.clock.as_ref().map(|clock| clock.clone_ref(py)),
            name: None,
            counts_in_flight: self.counts_in_flight,
        };
        Limiter::of(py, made)
    }

    /// The calls with a new key that found the table full.
    #[getter]
    fn overflows(&self) -> u64 {
        self.table.overflows()
    }

    fn __len__(&self) -> usize {
        self.table.len()
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
        format!("Keyed({:?})", self.limit)
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
