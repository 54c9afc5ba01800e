//! Parts of servers and clients of HTTP: names of clients, hints of responses, paced requests.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use rategate_ffi::http::{self, MAX_HOLD, QuotaUnit, Refill, Tokens, Trust};

use crate::number::{ns, within};

/// The names of a server's clients, by their addresses.
#[pyclass(frozen, module = "pyrategate", name = "_ClientNames")]
#[derive(Debug)]
pub(crate) struct ClientNames(http::ClientNames);

#[pymethods]
impl ClientNames {
    /// Creates names by the client's address behind so many hops, or behind proxies in networks.
    /// Without either it is the address of the peer.
    #[new]
    #[pyo3(signature = (group_v4, group_v6, field="x-forwarded-for", hops=None, networks=None))]
    fn new(
        group_v4: &Bound<'_, PyAny>,
        group_v6: &Bound<'_, PyAny>,
        field: &str,
        hops: Option<u8>,
        networks: Option<Vec<String>>,
    ) -> PyResult<Self> {
        let bits = |name, most: u8, given| {
            within(name, 0, most.into(), given).map(|bits| u8::try_from(bits).unwrap_or(most))
        };
        let groups = [bits("group_v4", 32, group_v4)?, bits("group_v6", 128, group_v6)?];
        let trust = match hops {
            Some(hops) => Ok(Trust::Hops(hops)),
            None => http::trusted_networks(networks.iter().flatten().map(String::as_str)),
        };
        let names = trust.and_then(|trust| http::ClientNames::behind(trust, field, groups));
        names.map(Self).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Returns the name of a request's client, by its peer and the lines of the field.
    #[pyo3(signature = (peer, lines=Vec::new()))]
    fn name(&self, peer: Option<&str>, lines: Vec<Bound<'_, PyString>>) -> Option<String> {
        let lines: Vec<_> = lines.iter().map(|line| line.to_string_lossy()).collect();
        self.0.name(peer, lines.iter().map(|line| line.as_bytes()))
    }
}

/// A limit as a server reports it.
#[pyclass(frozen, eq, hash, from_py_object, module = "pyrategate.hints")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerLimit(http::ServerLimit);

impl std::hash::Hash for ServerLimit {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.0.name, self.0.remaining, self.0.reset).hash(state);
    }
}

#[pymethods]
impl ServerLimit {
    /// Creates a limit, for pickles and for tests.
    #[new]
    #[pyo3(signature = (name, unit, quota, window_ns, remaining, reset_ns, is_gradual=false))]
    fn new(
        name: &str,
        unit: Option<&str>,
        quota: Option<u64>,
        window_ns: Option<u64>,
        remaining: u64,
        reset_ns: u64,
        is_gradual: bool,
    ) -> PyResult<Self> {
        let mut limit = http::ServerLimit::new(name, remaining, Duration::from_nanos(reset_ns));
        let known = |unit| {
            QuotaUnit::of_name(unit).ok_or_else(|| {
                PyValueError::new_err(format!(
                    "a unit is None or a name such as 'requests' or 'tokens', not {unit:?}"
                ))
            })
        };
        limit.unit = unit.map(known).transpose()?;
        limit.quota = quota;
        limit.window = window_ns.map(Duration::from_nanos);
        limit.refill = if is_gradual { Refill::Gradual } else { Refill::AtReset };
        Ok(Self(limit))
    }

    /// The name of the policy or of GitHub's resource; without one, that of a header field.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// The unit, such as ``requests`` or ``input-tokens``; None for one that is not known.
    #[getter]
    fn unit(&self) -> Option<&'static str> {
        self.0.unit.map(QuotaUnit::name)
    }

    /// The number that is available at most, where the server says so.
    #[getter]
    fn quota(&self) -> Option<u64> {
        self.0.quota
    }

    /// The time for which the quota is, where the server says so.
    #[getter]
    fn window_ns(&self) -> Option<u64> {
        self.0.window.map(ns)
    }

    /// The number that was available when the response was sent.
    #[getter]
    fn remaining(&self) -> u64 {
        self.0.remaining
    }

    /// The time until the limit is reset.
    #[getter]
    fn reset_ns(&self) -> u64 {
        ns(self.0.reset)
    }

    /// True if it refills evenly until the reset, as a token bucket does.
    #[getter]
    fn is_gradual(&self) -> bool {
        self.0.refill == Refill::Gradual
    }

    /// True for a limit of a language model's tokens.
    #[getter]
    fn counts_tokens(&self) -> bool {
        self.0.counts_tokens()
    }

    /// Returns the time until so much, or the whole quota, is available.
    fn opens_after_ns(&self, amount: u64) -> u64 {
        ns(self.0.opens_after(amount))
    }

    fn __getnewargs__(
        &self,
    ) -> (&str, Option<&'static str>, Option<u64>, Option<u64>, u64, u64, bool) {
        let Self(limit) = self;
        let (window_ns, reset_ns) = (self.window_ns(), self.reset_ns());
        let (quota, remaining) = (limit.quota, limit.remaining);
        (&limit.name, self.unit(), quota, window_ns, remaining, reset_ns, self.is_gradual())
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        shown(slf, &["name", "unit", "quota", "window_ns", "remaining", "reset_ns", "is_gradual"])
    }
}

/// The hints of a response.
#[pyclass(frozen, eq, module = "pyrategate.hints")]
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServerHints(http::ServerHints);

#[pymethods]
impl ServerHints {
    /// Creates hints, for pickles and for tests.
    #[new]
    #[pyo3(signature = (hold_ns=0, is_guess=false, limits=Vec::new()))]
    fn new(hold_ns: u64, is_guess: bool, limits: Vec<ServerLimit>) -> Self {
        let mut hints = http::ServerHints::default();
        hints.hold = Duration::from_nanos(hold_ns);
        hints.is_guess = is_guess;
        hints.limits = limits.into_iter().map(|limit| limit.0).collect();
        Self(hints)
    }

    /// The time in which nothing should be sent.
    #[getter]
    fn hold_ns(&self) -> u64 {
        ns(self.0.hold)
    }

    /// True if the server refused the request and did not say until when.
    #[getter]
    fn is_guess(&self) -> bool {
        self.0.is_guess
    }

    /// The limits under which the response was sent.
    #[getter]
    fn limits(&self) -> Vec<ServerLimit> {
        self.0.limits.iter().cloned().map(ServerLimit).collect()
    }

    fn __getnewargs__(&self) -> (u64, bool, Vec<ServerLimit>) {
        (self.hold_ns(), self.is_guess(), self.limits())
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        shown(slf, &["hold_ns", "is_guess", "limits"])
    }
}

/// Returns an object as the call of its class.
fn shown(object: &Bound<'_, PyAny>, names: &[&str]) -> PyResult<String> {
    let field = |name: &&str| Ok(format!("{name}={}", object.getattr(*name)?.repr()?));
    let fields = names.iter().map(field).collect::<PyResult<Vec<_>>>()?;
    Ok(format!("{}({})", object.get_type().name()?, fields.join(", ")))
}

/// Returns the hints of a response's status and header fields, of any text.
///
/// After a 429, 403 or 503 the hold is ``Retry-After``, or else the reset of an exhausted limit;
/// a 429 without either is a second, or GitHub's minute. After any other status it is the time
/// until an exhausted limit has something again, and ``Retry-After`` has another meaning. An
/// exhausted limit of tokens is no hold: it depends on what the next request takes.
///
/// The limits are those of ``RateLimit``, ``RateLimit-*``, ``X-RateLimit-*``, and the fields of
/// OpenAI, Anthropic and Shopify. Dates count from the response's own ``Date``. A response from a
/// cache has no limits. No hold is longer than ``max_hold_ns``, by default ``MAX_HOLD_NS``.
#[pyfunction]
#[pyo3(signature = (status, headers, now_unix_ns=None, max_hold_ns=None))]
pub(crate) fn parse_hints(
    status: &Bound<'_, PyAny>,
    headers: &Bound<'_, PyAny>,
    now_unix_ns: Option<&Bound<'_, PyAny>>,
    max_hold_ns: Option<&Bound<'_, PyAny>>,
) -> PyResult<ServerHints> {
    let span = |name, given: Option<&Bound<'_, PyAny>>| {
        let ns = given.map(|given| within(name, 0, u64::MAX, given)).transpose()?;
        PyResult::Ok(ns.map(Duration::from_nanos))
    };
    let status = u16::try_from(within("status", 0, 999, status)?).unwrap_or_default();
    let mut fields = Vec::new();
    for field in headers.try_iter()? {
        let (name, value): (Bound<'_, PyString>, Bound<'_, PyString>) = field?.extract()?;
        fields.push((name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
    }
    let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let now = span("now_unix_ns", now_unix_ns)?
        .and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since))
        .unwrap_or_else(SystemTime::now);
    let max_hold = span("max_hold_ns", max_hold_ns)?.unwrap_or(MAX_HOLD);
    Ok(ServerHints(http::hints(status, fields, now, max_hold)))
}

/// The instants at which the requests to one server may start, by what it reports.
#[pyclass(frozen, module = "pyrategate", name = "_Pacing")]
#[derive(Debug)]
pub(crate) struct Pacing(http::Pacing);

#[pymethods]
impl Pacing {
    #[new]
    #[pyo3(signature = (*, spreads=true, jitter_ns=None, max_waiting=None))]
    fn new(spreads: bool, jitter_ns: Option<u64>, max_waiting: Option<usize>) -> Self {
        let mut pacing = http::Pacing::new();
        if !spreads {
            pacing = pacing.without_spreading();
        }
        if let Some(ns) = jitter_ns {
            pacing = pacing.jitter(Duration::from_nanos(ns));
        }
        Self(max_waiting.into_iter().fold(pacing, http::Pacing::bound_queue))
    }

    /// Returns the pacing as one in which each request knows its tokens.
    fn with_tokens(&self) -> Self {
        Self(self.0.clone().with_tokens())
    }

    /// Adds a request, unless as many as may wait do already.
    fn join(
        &self,
        input: &Bound<'_, PyAny>,
        output: &Bound<'_, PyAny>,
    ) -> PyResult<Option<PacedRequest>> {
        let tokens = |name, given| within(name, 0, u64::MAX, given);
        let input = tokens("the number of input tokens", input)?;
        let output = tokens("the number of output tokens", output)?;
        let joined = self.0.join(Tokens { input, output });
        Ok(joined.map(|request| PacedRequest(Mutex::new(Some(request)))))
    }
}

/// A request from its arrival to its response. Instants are nanoseconds of any one clock.
#[pyclass(frozen, module = "pyrategate", name = "_PacedRequest")]
#[derive(Debug)]
pub(crate) struct PacedRequest(Mutex<Option<http::PacedRequest>>);

impl PacedRequest {
    /// Locks the request, which is `None` once it has ended. No Python code runs under the lock.
    fn request(&self) -> MutexGuard<'_, Option<http::PacedRequest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PacedRequest {
    /// Starts the request. Returns the instant of its next attempt, if it has to wait.
    fn start(&self, now_ns: u64) -> Option<u64> {
        self.request().as_mut()?.start(now_ns).err()
    }

    /// Records that the request is sent. Returns False if a hold has begun: it waits again.
    fn send(&self, now_ns: u64) -> bool {
        self.request().as_mut().is_some_and(|request| request.send(now_ns))
    }

    /// Follows the hints of the response, once.
    fn follow(&self, now_ns: u64, hints: &ServerHints) {
        if let Some(request) = &mut *self.request() {
            request.follow(now_ns, &hints.0);
        }
    }

    /// Ends the request: it leaves the line, or is lost if there was no response.
    fn close(&self) {
        drop(self.request().take());
    }
}
