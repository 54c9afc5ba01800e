//! Quota policies for clients: a name, a quota in a unit, and a window.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use http::HeaderValue;

use super::draft;
use super::unit::QuotaUnit;

/// The maximum length of a policy's name, in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// A limit as clients see it: a number of requests per number of seconds, under a name.
///
/// These numbers are informative. The application chooses them, because not every limit has that
/// form. For a token bucket, the burst and the time in which it fills are a good choice.
///
/// They are sent as long as the limit behind a [`RateLimitLayer`](crate::RateLimitLayer) is
/// unchanged since the layer received the policy. Once that limit is reconfigured, its new numbers
/// are sent under the same name:
///
/// * of a token bucket the burst and the time in which it fills,
/// * of a log or a fixed window the permits and the period,
/// * of [`Concurrency`](rategate::Concurrency) the permits,
/// * of several limits together those of the one with the fewest permits.
///
/// A limit of another kind, or in a store, keeps the configured numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaPolicy {
    name: Box<str>,
    quota: u64,
    /// The window; `None` for permits in flight.
    window: Option<Duration>,
    unit: QuotaUnit,
    /// The policy as an item of the draft's field.
    item: HeaderValue,
}

/// The reason why a policy cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// The name is empty.
    EmptyName,
    /// The name is longer than [`MAX_NAME_BYTES`].
    NameTooLong,
    /// A character of the name is not printable ASCII. A header field could not hold it, and a
    /// line break would begin another field.
    NameCharacter,
    /// The window has no length.
    ZeroWindow,
}

impl QuotaPolicy {
    /// Creates a policy of `quota` permits per `window`, which is sent in whole seconds, rounded
    /// up. A permit is a request, unless [`unit`](Self::unit) says otherwise. Numbers over
    /// 999 999 999 999 999 are sent as that number.
    ///
    /// # Errors
    ///
    /// [`PolicyError`], if a header field could not hold it.
    pub fn new(name: &str, quota: u64, window: Duration) -> Result<Self, PolicyError> {
        Self::with(name, quota, Some(window), QuotaUnit::Requests)
    }

    /// Creates a policy of `quota` permits in flight, which has no window. A permit is a concurrent
    /// request, unless [`unit`](Self::unit) says otherwise.
    ///
    /// # Errors
    ///
    /// [`PolicyError`], if a header field could not hold it.
    pub fn in_flight(name: &str, quota: u64) -> Result<Self, PolicyError> {
        Self::with(name, quota, None, QuotaUnit::ConcurrentRequests)
    }

    fn with(
        name: &str,
        quota: u64,
        window: Option<Duration>,
        unit: QuotaUnit,
    ) -> Result<Self, PolicyError> {
        if name.is_empty() {
            return Err(PolicyError::EmptyName);
        }
        if name.len() > MAX_NAME_BYTES {
            return Err(PolicyError::NameTooLong);
        }
        if window.is_some_and(|window| window.is_zero()) {
            return Err(PolicyError::ZeroWindow);
        }
        let item = draft::policy(name, quota, window, unit).ok_or(PolicyError::NameCharacter)?;
        Ok(Self { name: name.into(), quota, window, unit, item })
    }

    /// Returns the policy with another quota, and with another window if there is one.
    pub(super) fn changed(&self, quota: u64, window: Option<Duration>) -> Option<Self> {
        Self::with(&self.name, quota, window.or(self.window), self.unit).ok()
    }

    /// Sets the unit of the quota: requests by default.
    #[must_use]
    pub fn unit(mut self, unit: QuotaUnit) -> Self {
        if let Some(item) = draft::policy(&self.name, self.quota, self.window, unit) {
            (self.unit, self.item) = (unit, item);
        }
        self
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(&self) -> &str {
        &self.name
    }

    pub(super) const fn quota(&self) -> u64 {
        self.quota
    }

    pub(super) const fn window(&self) -> Option<Duration> {
        self.window
    }

    /// Returns the policy as an item of the draft's field: `"default";q=100;w=60`.
    pub(super) fn item(&self) -> HeaderValue {
        self.item.clone()
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyName => f.write_str("the name is empty"),
            Self::NameTooLong => write!(f, "the name is longer than {MAX_NAME_BYTES} bytes"),
            Self::NameCharacter => f.write_str("the name is not all printable ASCII"),
            Self::ZeroWindow => f.write_str("the window has no length"),
        }
    }
}

impl Error for PolicyError {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{MAX_NAME_BYTES, PolicyError, QuotaPolicy, QuotaUnit};

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn names_are_validated_when_built() {
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        let table = [
            ("", PolicyError::EmptyName),
            (long.as_str(), PolicyError::NameTooLong),
            ("a\r\nSet-Cookie: b=c", PolicyError::NameCharacter),
            ("a\0", PolicyError::NameCharacter),
            ("a\t", PolicyError::NameCharacter),
            ("tägl", PolicyError::NameCharacter),
            ("\u{7f}", PolicyError::NameCharacter),
        ];
        for (name, expected) in table {
            assert_eq!(QuotaPolicy::new(name, 1, MINUTE), Err(expected), "{name:?}");
        }
        assert_eq!(QuotaPolicy::new("p", 1, Duration::ZERO), Err(PolicyError::ZeroWindow));
    }

    #[test]
    fn golden_values() {
        let value = |name, quota, window| {
            let policy = QuotaPolicy::new(name, quota, window).unwrap();
            policy.item().to_str().unwrap().to_owned()
        };
        assert_eq!(value("daily", 1000, Duration::from_secs(86_400)), r#""daily";q=1000;w=86400"#);
        assert_eq!(value("a b", 0, Duration::from_millis(1500)), r#""a b";q=0;w=2"#);
        assert_eq!(value(r#"q";q=9\"#, 1, Duration::from_nanos(1)), r#""q\";q=9\\";q=1;w=1"#);
        let minute = QuotaPolicy::new("tpm", 90_000, MINUTE).unwrap().unit(QuotaUnit::InputTokens);
        assert_eq!(minute.item(), r#""tpm";q=90000;w=60;qu="input-tokens""#);
    }
}
