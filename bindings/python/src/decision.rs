//! Results of calls, as immutable Python objects.

use pyo3::prelude::*;
use rategate::charge;

use crate::error::seconds;
use crate::number::ns;

/// The decision of a limit about a try.
#[pyclass(frozen, eq, hash, get_all, module = "pyrategate")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Decision {
    /// True if the permits were taken.
    granted: bool,
    /// The most permits that one more try could take now.
    remaining: u64,
    /// The nanoseconds after which the same try would pass, if no other comes first. None if it
    /// was granted, or no time helps.
    retry_after_ns: Option<u64>,
    /// The nanoseconds until the limit is as fresh, if no other call comes. None if that does not
    /// come about by time alone, and for several limits together.
    reset_after_ns: Option<u64>,
    /// The grant, which can be refunded or settled.
    grant: Option<Grant>,
}

impl Decision {
    pub(crate) fn new(
        decision: &rategate::Decision,
        remaining: u64,
        reset_after_ns: Option<u64>,
    ) -> Self {
        Self {
            granted: decision.is_granted(),
            remaining,
            retry_after_ns: decision.retry_after().map(ns),
            reset_after_ns,
            grant: decision.granted().map(Grant),
        }
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
    const fn made(
        granted: bool,
        remaining: u64,
        retry_after_ns: Option<u64>,
        reset_after_ns: Option<u64>,
        grant: Option<Grant>,
    ) -> Self {
        Self { granted, remaining, retry_after_ns, reset_after_ns, grant }
    }

    fn __getnewargs__(&self) -> (bool, u64, Option<u64>, Option<u64>, Option<Grant>) {
        (self.granted, self.remaining, self.retry_after_ns, self.reset_after_ns, self.grant)
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
#[pyclass(frozen, eq, hash, from_py_object, module = "pyrategate")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant(pub(crate) rategate::Grant);

impl std::hash::Hash for Grant {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.released_at().hash(state);
    }
}

#[pymethods]
impl Grant {
    /// Creates a grant from what a pickle keeps of it, for the limiter that it is of.
    #[new]
    #[pyo3(signature = (words, /))]
    const fn made(words: [u64; 9]) -> Self {
        Self(rategate::Grant::from_words(words))
    }

    const fn __getnewargs__(&self) -> ([u64; 9],) {
        (self.0.words(),)
    }

    /// The number of permits.
    #[getter]
    fn permits(&self) -> u64 {
        self.0.permits()
    }

    /// The most permits that one more try could have taken at that instant.
    #[getter]
    fn remaining(&self) -> u64 {
        self.0.remaining()
    }

    /// The instant at which the caller really passed.
    #[getter]
    fn released_at_ns(&self) -> u64 {
        ns(self.0.released_at())
    }

    /// The first instant at which the caller could have started.
    #[getter]
    fn promised_at_ns(&self) -> u64 {
        ns(self.0.promised_at())
    }

    /// The instant of the start if every operation before it had been on time.
    #[getter]
    fn scheduled_at_ns(&self) -> u64 {
        ns(self.0.scheduled_at())
    }

    /// The nanoseconds from the scheduled time to the release.
    #[getter]
    fn wait_ns(&self) -> u64 {
        ns(self.0.wait())
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

/// The result of a settlement, in permits.
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
