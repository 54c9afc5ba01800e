//! Results of calls, as immutable Python objects.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use rategate::charge;
use rategate_ffi::Receipt;

use crate::error::seconds;
use crate::number::ns;

/// The limiter of a copy, which can be returned to none.
const COPY: u64 = 0;

/// The fields of a decision: granted, remaining, retry after, reset after and the grant.
type Fields<G> = (bool, u64, Option<u64>, Option<u64>, Option<G>);

/// The decision of a limit about a try.
#[pyclass(frozen, eq, hash, module = "pyrategate")]
pub(crate) struct Decision {
    /// True if the permits were taken.
    #[pyo3(get)]
    granted: bool,
    /// The most permits that one more try could take now.
    #[pyo3(get)]
    remaining: u64,
    /// The nanoseconds after which the same try would pass, if no other comes first, or after which
    /// the first hold ends, if that is sooner. None if it was granted, or no time helps.
    #[pyo3(get)]
    retry_after_ns: Option<u64>,
    /// The nanoseconds until the limit is as fresh, if no other call comes. None if that does not
    /// come about by time alone.
    #[pyo3(get)]
    reset_after_ns: Option<u64>,
    /// The grant, and the id of its limiter.
    inner: Option<(rategate::Grant, u64)>,
    /// The one object of the grant, made when it is first read: it remembers what came back.
    grant: PyOnceLock<Py<Grant>>,
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.__repr__())
    }
}

impl PartialEq for Decision {
    fn eq(&self, other: &Self) -> bool {
        self.fields() == other.fields()
    }
}

impl Eq for Decision {}

impl Hash for Decision {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.granted.hash(state);
        self.remaining.hash(state);
        self.retry_after_ns.hash(state);
        self.reset_after_ns.hash(state);
    }
}

impl Decision {
    pub(crate) fn new(
        decision: &rategate::Decision,
        limiter: u64,
        remaining: u64,
        reset_after_ns: Option<u64>,
    ) -> Self {
        Self {
            granted: decision.is_granted(),
            remaining,
            retry_after_ns: decision.retry_after().map(ns),
            reset_after_ns,
            inner: decision.granted().map(|grant| (grant, limiter)),
            grant: PyOnceLock::new(),
        }
    }

    fn fields(&self) -> Fields<rategate::Grant> {
        let Self { granted, remaining, retry_after_ns, reset_after_ns, .. } = *self;
        let grant = self.inner.map(|(grant, _)| grant);
        (granted, remaining, retry_after_ns, reset_after_ns, grant)
    }
}

#[pymethods]
impl Decision {
    /// The seconds after which the same try would pass.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.retry_after_ns.map(|ns| seconds(std::time::Duration::from_nanos(ns)))
    }

    /// Creates a decision, for pickles and for tests.
    #[new]
    #[pyo3(signature = (
        granted, remaining, retry_after_ns=None, reset_after_ns=None, grant=None
    ))]
    fn made(
        py: Python<'_>,
        granted: bool,
        remaining: u64,
        retry_after_ns: Option<u64>,
        reset_after_ns: Option<u64>,
        grant: Option<Py<Grant>>,
    ) -> Self {
        let inner = grant.as_ref().map(|grant| (grant.get().inner, COPY));
        let handle = PyOnceLock::new();
        if let Some(grant) = grant {
            // It is empty.
            let _ = handle.set(py, grant);
        }
        Self { granted, remaining, retry_after_ns, reset_after_ns, inner, grant: handle }
    }

    fn __getnewargs__(&self, py: Python<'_>) -> PyResult<Fields<Py<Grant>>> {
        let grant = self.grant(py)?;
        Ok((self.granted, self.remaining, self.retry_after_ns, self.reset_after_ns, grant))
    }

    /// The grant.
    #[getter]
    fn grant(&self, py: Python<'_>) -> PyResult<Option<Py<Grant>>> {
        let Some((grant, limiter)) = self.inner else { return Ok(None) };
        let grant = self.grant.get_or_try_init(py, || Py::new(py, Grant::new(grant, limiter)))?;
        Ok(Some(grant.clone_ref(py)))
    }

    fn __bool__(&self) -> bool {
        self.granted
    }

    fn __repr__(&self) -> String {
        let Self { remaining, retry_after_ns, reset_after_ns, .. } = *self;
        let shown = |ns: Option<u64>| ns.map_or_else(|| "None".to_owned(), |ns| ns.to_string());
        format!(
            "Decision(granted={}, remaining={remaining}, retry_after_ns={}, reset_after_ns={})",
            if self.granted { "True" } else { "False" },
            shown(retry_after_ns),
            shown(reset_after_ns)
        )
    }
}

/// Permits that were granted. Instants are nanoseconds on the limiter's clock.
#[pyclass(frozen, eq, hash, module = "pyrategate")]
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) inner: rategate::Grant,
    receipt: Mutex<Receipt>,
}

impl PartialEq for Grant {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl Eq for Grant {}

impl Hash for Grant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.released_at().hash(state);
    }
}

impl Grant {
    #[inline]
    pub(crate) const fn new(inner: rategate::Grant, limiter: u64) -> Self {
        Self { inner, receipt: Mutex::new(Receipt::new(limiter)) }
    }

    pub(crate) fn receipt(&self) -> MutexGuard<'_, Receipt> {
        self.receipt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Grant {
    /// Creates a grant from what a pickle keeps of it. It cannot be released.
    #[new]
    #[pyo3(signature = (words, /))]
    const fn made(words: [u64; 4]) -> Self {
        Self::new(rategate::Grant::from_words(words), COPY)
    }

    const fn __getnewargs__(&self) -> ([u64; 4],) {
        (self.inner.words(),)
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (_seen))]
    fn __deepcopy__(slf: Py<Self>, _seen: Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    /// The number of permits.
    #[getter]
    fn permits(&self) -> u64 {
        self.inner.permits()
    }

    /// The instant at which the caller really passed.
    #[getter]
    fn released_at_ns(&self) -> u64 {
        ns(self.inner.released_at())
    }

    /// The first instant at which the caller could have started.
    #[getter]
    fn promised_at_ns(&self) -> u64 {
        ns(self.inner.promised_at())
    }

    /// The instant of the start if every operation before it had been on time.
    #[getter]
    fn scheduled_at_ns(&self) -> u64 {
        ns(self.inner.scheduled_at())
    }

    /// The nanoseconds from the scheduled time to the release.
    #[getter]
    fn wait_ns(&self) -> u64 {
        ns(self.inner.wait())
    }

    fn __repr__(&self) -> String {
        let (permits, released_at_ns) = (self.permits(), self.released_at_ns());
        format!("Grant(permits={permits}, released_at_ns={released_at_ns})")
    }
}

/// The result of a charge, in permits.
#[pyclass(frozen, eq, hash, get_all, module = "pyrategate")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Charged {
    /// The permits booked.
    booked: u64,
    /// The permits not booked, because a debt has a bound.
    forgiven: u64,
    /// The permits by which the limit is exceeded now.
    debt: u64,
}

impl From<charge::Charged> for Charged {
    fn from(charge::Charged { booked, forgiven, debt }: charge::Charged) -> Self {
        Self { booked, forgiven, debt }
    }
}

#[pymethods]
impl Charged {
    #[new]
    const fn made(booked: u64, forgiven: u64, debt: u64) -> Self {
        Self { booked, forgiven, debt }
    }

    const fn __getnewargs__(&self) -> (u64, u64, u64) {
        (self.booked, self.forgiven, self.debt)
    }

    fn __repr__(&self) -> String {
        let Self { booked, forgiven, debt } = self;
        format!("Charged(booked={booked}, forgiven={forgiven}, debt={debt})")
    }
}

/// The result of a commit, in permits.
#[pyclass(frozen, eq, hash, get_all, module = "pyrategate")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Settled {
    /// The permits that came back.
    refunded: u64,
    /// The permits charged besides.
    charged: u64,
    /// The permits not charged, because a debt has a bound.
    forgiven: u64,
}

impl From<charge::Settled> for Settled {
    fn from(settled: charge::Settled) -> Self {
        match settled {
            charge::Settled::Even => Self::default(),
            charge::Settled::Back { permits } => Self { refunded: permits, ..Self::default() },
            charge::Settled::Owed { permits, forgiven } => {
                Self { charged: permits, forgiven, ..Self::default() }
            }
        }
    }
}

#[pymethods]
impl Settled {
    #[new]
    const fn made(refunded: u64, charged: u64, forgiven: u64) -> Self {
        Self { refunded, charged, forgiven }
    }

    const fn __getnewargs__(&self) -> (u64, u64, u64) {
        (self.refunded, self.charged, self.forgiven)
    }

    fn __repr__(&self) -> String {
        let Self { refunded, charged, forgiven } = self;
        format!("Settled(refunded={refunded}, charged={charged}, forgiven={forgiven})")
    }
}
