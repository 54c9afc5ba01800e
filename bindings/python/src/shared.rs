//! One limit that several processes keep together, in Redis or Valkey.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};
use rategate::distributed::DecidedBy;
use rategate_ffi::{
    DEFAULT_SHARED_BUDGET, Leases, Mode, OnUnavailable, Policies, Receipt, Reply, SharedConfig,
    SharedDecision as Decided, SharedError,
};

use crate::error::{not_returned, raised_by_shared, seconds};
use crate::keyed::report;
use crate::limiter::{is_main_thread, policies};
use crate::number::{
    Span, bounded_timeout_of, budget_of, lease_of, ns, permits_of, timeout_of, within,
};
use crate::replies::wait_with_signals;

pub(crate) type Ended = Result<Decided, SharedError>;

/// A limit for each key that all processes with the same store keep together. The class of users
/// adds to it what Python does as well.
#[pyclass(frozen, subclass, module = "pyrategate")]
#[derive(Debug)]
pub(crate) struct Shared {
    /// Empty until `__init__`, as of a limiter.
    made: OnceLock<Made>,
}

#[derive(Debug)]
struct Made {
    inner: rategate_ffi::Shared,
    policies: Policies,
    mode: &'static str,
}

/// The decision of a shared limit.
#[pyclass(frozen, module = "pyrategate", name = "SharedDecision")]
#[derive(Debug)]
pub(crate) struct Decision {
    decided: Decided,
    permits: u64,
    /// Of all objects of the grant.
    receipt: Arc<Mutex<Receipt>>,
}

/// Permits that a shared limit has granted, to be refunded if they have no effect.
#[pyclass(frozen, module = "pyrategate", name = "SharedGrant")]
#[derive(Debug)]
pub(crate) struct Grant {
    inner: rategate_ffi::SharedGrant,
    permits: u64,
    receipt: Arc<Mutex<Receipt>>,
}

#[pymethods]
impl Shared {
    #[new]
    #[pyo3(
        signature = (*_args, **_kwargs),
        text_signature = "(url, limit, *, mode='exact', when_gone='deny', processes=None, \
                          name=None, prefix=None, budget=None, lease=None, lease_permits=None, \
                          guard=False, quarantine=False)"
    )]
    const fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self { made: OnceLock::new() }
    }

    #[pyo3(signature = (
        url, limit, *, mode="exact", when_gone="deny", processes=None, name=None, prefix=None,
        budget=None, lease=None, lease_permits=None, guard=false, quarantine=false
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn __init__(
        &self,
        py: Python<'_>,
        url: String,
        limit: Bound<'_, PyAny>,
        mode: &str,
        when_gone: &str,
        processes: Option<Bound<'_, PyAny>>,
        name: Option<String>,
        prefix: Option<String>,
        #[pyo3(from_py_with = budget_of)] budget: Option<Span>,
        #[pyo3(from_py_with = lease_of)] lease: Option<Span>,
        lease_permits: Option<Bound<'_, PyAny>>,
        guard: bool,
        quarantine: bool,
    ) -> PyResult<()> {
        let policies = policies(&limit)?;
        let processes = processes
            .map(|given| within("processes", 1, u32::MAX.into(), &given))
            .transpose()?
            .and_then(|given| NonZeroU32::new(u32::try_from(given).unwrap_or(u32::MAX)));
        let (mode, shown) = match mode {
            "exact" if lease.is_some() || lease_permits.is_some() || guard => {
                return Err(PyValueError::new_err(
                    "lease, lease_permits and guard are of mode=\"leased\"",
                ));
            }
            "exact" => (Mode::Exact, "exact"),
            "leased" => {
                let mut leases = Leases { guard, ..Leases::default() };
                if let Some(Span(ttl)) = lease {
                    leases.ttl = ttl;
                }
                if let Some(permits) = lease_permits {
                    leases.max_permits = within("lease_permits", 1, u64::MAX, &permits)?;
                }
                (Mode::Leased(leases), "leased")
            }
            other => {
                return Err(PyValueError::new_err(format!(
                    "mode is \"exact\" or \"leased\", not {other:?}"
                )));
            }
        };
        let when_gone = match (when_gone, processes) {
            ("local", Some(nodes)) => OnUnavailable::Local { nodes },
            ("local", None) => {
                return Err(PyValueError::new_err(
                    "when_gone=\"local\" needs processes, the most that share the limit: each \
                     keeps that part of it",
                ));
            }
            ("deny" | "allow", Some(_)) => {
                return Err(PyValueError::new_err("processes are of when_gone=\"local\""));
            }
            ("deny", None) => OnUnavailable::Deny,
            ("allow", None) => OnUnavailable::Admit,
            (other, _) => {
                return Err(PyValueError::new_err(format!(
                    "when_gone is \"deny\", \"allow\" or \"local\", not {other:?}"
                )));
            }
        };
        let budget = budget.map_or(DEFAULT_SHARED_BUDGET, |Span(budget)| budget);
        let has_quarantine = quarantine;
        let config = SharedConfig { url, prefix, name, mode, when_gone, has_quarantine, budget };
        let inner = rategate_ffi::Shared::new(&policies, &config);
        let inner = inner.map_err(|error| raised_by_shared(py, &error))?;
        self.made
            .set(Made { inner, policies, mode: shown })
            .map_err(|_| PyTypeError::new_err("the shared limit has been made"))
    }

    /// Takes permits for a key, or not at all. Blocks the thread for the store's reply.
    #[pyo3(signature = (key=Key::default(), permits=1), text_signature = "($self, key='', permits=1)")]
    fn try_acquire(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = key_of)] key: Key,
        #[pyo3(from_py_with = permits_of)] permits: u64,
    ) -> PyResult<bool> {
        Ok(self.check(py, key, permits)?.decided.is_granted())
    }

    /// Takes permits for a key, or says when to come again. Blocks the thread for the reply.
    #[pyo3(signature = (key=Key::default(), permits=1), text_signature = "($self, key='', permits=1)")]
    fn check(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = key_of)] key: Key,
        #[pyo3(from_py_with = permits_of)] permits: u64,
    ) -> PyResult<Decision> {
        let limiter = self.inner()?;
        let decided = py.detach(|| limiter.decide_blocking(&key.0, permits));
        decision(py, decided, permits, self.inner()?.id_of(&key.0))
    }

    /// Takes permits for a key, and blocks the thread until they may start.
    #[pyo3(signature = (key=Key::default(), permits=1, *, timeout=None), text_signature = "($self, key='', permits=1, *, timeout=None)")]
    fn acquire(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = key_of)] key: Key,
        #[pyo3(from_py_with = permits_of)] permits: u64,
        #[pyo3(from_py_with = timeout_of)] timeout: Option<Span>,
    ) -> PyResult<Option<Grant>> {
        let timeout = timeout.map(|Span(timeout)| timeout);
        let ended = match self.inner()?.acquire(&key.0, permits, timeout) {
            Reply::Now(ended) => ended,
            Reply::Later(later) if is_main_thread(py)? => wait_with_signals(py, later, || Ok(()))?,
            later @ Reply::Later(_) => py.detach(|| later.wait()),
        };
        Ok(decision(py, ended, permits, self.inner()?.id_of(&key.0))?.grant())
    }

    /// Returns the most permits that a call of a key could take now, as far as the store knows.
    #[pyo3(signature = (key=Key::default()), text_signature = "($self, key='')")]
    fn remaining(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = key_of)] key: Key,
    ) -> PyResult<Option<u64>> {
        let limiter = self.inner()?;
        let peeked = py.detach(|| limiter.peek(&key.0, 1).wait());
        Ok(decision(py, peeked, 0, 0)?.remaining())
    }

    /// Brings back permits of a grant that had no effect, all by default. The request is sent in
    /// the background.
    #[pyo3(signature = (grant, key=Key::default(), permits=None), text_signature = "($self, grant, key='', permits=None)")]
    fn refund(
        &self,
        py: Python<'_>,
        grant: PyRef<'_, Grant>,
        #[pyo3(from_py_with = key_of)] key: Key,
        permits: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let permits = permits.map_or(Ok(grant.permits), |permits| permits_of(&permits))?;
        let limiter = self.inner()?;
        let refund = || limiter.refund(&key.0, permits, grant.inner.clone()).map(|()| permits);
        let mut receipt = grant.receipt.lock().unwrap_or_else(PoisonError::into_inner);
        let refunded = receipt.refund(limiter.id_of(&key.0), grant.permits, permits, refund);
        refunded.map_err(not_returned)?.map_err(|error| raised_by_shared(py, &error))?;
        Ok(())
    }

    /// Blocks the thread until the store has replied once. Raises `Unavailable` after the timeout,
    /// and at once where only an operator can help, as with a wrong password.
    #[pyo3(signature = (timeout=Span(Duration::from_secs(5))), text_signature = "($self, timeout=5)")]
    fn ready(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = bounded_timeout_of)] timeout: Span,
    ) -> PyResult<()> {
        let limiter = self.inner()?;
        let ready = py.detach(|| limiter.ready(timeout.0));
        ready.map_err(|error| raised_by_shared(py, &error))
    }

    /// Returns True if this limit and another one have no name and count together.
    fn _counts_with(&self, other: &Bound<'_, Self>) -> PyResult<bool> {
        Ok(self.inner()?.counts_with(other.get().inner()?))
    }

    /// The store's status for this process: "healthy", "quarantined" or "unavailable".
    ///
    /// It is "healthy" until five calls in a row fail, also before the first. `ready` changes
    /// nothing of it.
    #[getter]
    fn status(&self) -> PyResult<String> {
        Ok(self.inner()?.health().store_status.to_string())
    }

    /// The store's latest failure, or None.
    #[getter]
    fn last_failure(&self) -> PyResult<Option<String>> {
        Ok(self.inner()?.health().last_unavailable.map(|failure| failure.to_string()))
    }

    /// The calls of this process by who decided them: pairs of granted and denied.
    #[getter]
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = self.inner()?.counts();
        let by = PyDict::new(py);
        for (name, calls) in
            [("store", counts.store), ("lease", counts.lease), ("fallback", counts.fallback)]
        {
            by.set_item(name, (calls.granted, calls.denied))?;
        }
        Ok(by)
    }

    /// Returns the number of callers of this process that wait for a key.
    #[pyo3(signature = (key=Key::default()), text_signature = "($self, key='')")]
    fn waiting(&self, #[pyo3(from_py_with = key_of)] key: Key) -> PyResult<usize> {
        Ok(self.inner()?.waiting(&key.0))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a shared limit cannot be pickled: make it in each process, of the same arguments",
        ))
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (_seen))]
    fn __deepcopy__(slf: Py<Self>, _seen: Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    /// Omits the address, which may hold a password.
    fn __repr__(&self) -> String {
        match self.made.get() {
            Some(Made { policies, mode, .. }) => {
                format!("Shared({:?}, mode={mode:?})", policies.to_string())
            }
            None => "Shared(without a limit)".to_owned(),
        }
    }
}

impl Shared {
    pub(crate) fn inner(&self) -> PyResult<&rategate_ffi::Shared> {
        self.made().map(|made| &made.inner)
    }

    pub(crate) fn policies(&self) -> PyResult<&Policies> {
        self.made().map(|made| &made.policies)
    }

    fn made(&self) -> PyResult<&Made> {
        self.made.get().ok_or_else(|| {
            PyRuntimeError::new_err(
                "the shared limit is not made yet: call super().__init__(url, limit) first",
            )
        })
    }
}

#[pymethods]
impl Decision {
    /// True if the permits were taken.
    #[getter]
    fn granted(&self) -> bool {
        self.decided.is_granted()
    }

    /// The permits that one more call could take, as far as is known.
    #[getter]
    fn remaining(&self) -> Option<u64> {
        self.decided.remaining()
    }

    /// The nanoseconds after which the same call would pass, if no other comes first; while the
    /// store is gone, those until a call may go to it. None if it was granted, or no time is known.
    #[getter]
    fn retry_after_ns(&self) -> Option<u64> {
        self.retry().map(ns)
    }

    /// The seconds of `retry_after_ns`.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.retry().map(seconds)
    }

    /// The party that decided: "store", "lease" for permits that this process had borrowed,
    /// "fallback" while the store is gone, or "none" for no permits.
    #[getter]
    fn by(&self) -> &'static str {
        match self.decided.by() {
            DecidedBy::Store => "store",
            DecidedBy::Lease => "lease",
            DecidedBy::Fallback => "fallback",
            _ => "none",
        }
    }

    /// The grant, which can be refunded.
    #[getter]
    fn grant(&self) -> Option<Grant> {
        match &self.decided {
            Decided::Granted(grant) => Some(Grant {
                inner: grant.clone(),
                permits: self.permits,
                receipt: Arc::clone(&self.receipt),
            }),
            Decided::Denied(_) => None,
        }
    }

    /// Reports to a client what is left, as an item of the field `RateLimit`. None where that is
    /// not known.
    fn _report(&self, quoted_name: &str) -> Option<String> {
        let remaining = self.remaining()?;
        // A denial says that the permits are not free, so it cannot report as many.
        let most = if self.granted() { u64::MAX } else { self.permits.saturating_sub(1) };
        Some(report(quoted_name, remaining.min(most), self.retry()))
    }

    fn __bool__(&self) -> bool {
        self.granted()
    }

    fn __repr__(&self) -> String {
        let shown = |number: Option<u64>| number.map_or("None".to_owned(), |n| n.to_string());
        format!(
            "SharedDecision(granted={}, remaining={}, retry_after_ns={}, by={:?})",
            if self.granted() { "True" } else { "False" },
            shown(self.remaining()),
            shown(self.retry_after_ns()),
            self.by()
        )
    }
}

impl Decision {
    fn retry(&self) -> Option<Duration> {
        match &self.decided {
            Decided::Granted(_) => None,
            Decided::Denied(denial) => denial.retry_after,
        }
    }
}

#[pymethods]
impl Grant {
    /// The number of permits.
    #[getter]
    const fn permits(&self) -> u64 {
        self.permits
    }

    /// The permits that one more call could take then, as far as is known.
    #[getter]
    const fn remaining(&self) -> Option<u64> {
        self.inner.remaining
    }

    fn __repr__(&self) -> String {
        format!("SharedGrant(permits={})", self.permits)
    }
}

/// A key as the store has it: the bytes of a text, bytes, or the digits of a number.
#[derive(Default)]
pub(crate) struct Key(pub(crate) Vec<u8>);

pub(crate) fn key_of(given: &Bound<'_, PyAny>) -> PyResult<Key> {
    if let Ok(text) = given.cast::<PyString>() {
        return Ok(Key(text.to_cow()?.as_bytes().to_vec()));
    }
    if let Ok(bytes) = given.cast::<PyBytes>() {
        return Ok(Key(bytes.as_bytes().to_vec()));
    }
    Ok(Key(crate::keyed::number_of(given)?.to_string().into_bytes()))
}

pub(crate) fn decision(
    py: Python<'_>,
    ended: Ended,
    permits: u64,
    limiter: u64,
) -> PyResult<Decision> {
    match ended {
        Ok(decided) => {
            let receipt = Arc::new(Mutex::new(Receipt::new(limiter)));
            Ok(Decision { decided, permits, receipt })
        }
        Err(error) => Err(raised_by_shared(py, &error)),
    }
}
