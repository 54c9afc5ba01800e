//! Quota policies for clients: a name, a quota and a window.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use http::HeaderValue;

use super::seconds::{sf_integer, whole_seconds};

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
    sf_name: Box<str>,
    quota: u64,
    window_s: u64,
    value: HeaderValue,
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
    /// up. Numbers over 999 999 999 999 999 are sent as that number.
    ///
    /// # Errors
    ///
    /// [`PolicyError`], if a header field could not hold it.
    pub fn new(name: &str, quota: u64, window: Duration) -> Result<Self, PolicyError> {
        if name.is_empty() {
            return Err(PolicyError::EmptyName);
        }
        if name.len() > MAX_NAME_BYTES {
            return Err(PolicyError::NameTooLong);
        }
        if window.is_zero() {
            return Err(PolicyError::ZeroWindow);
        }
        let sf_name = sf_string(name).ok_or(PolicyError::NameCharacter)?;
        let seconds = sf_integer(whole_seconds(window));
        let line = format!("{sf_name};q={};w={seconds}", sf_integer(quota));
        let value = HeaderValue::try_from(line).map_err(|_| PolicyError::NameCharacter)?;
        Ok(Self { name: name.into(), sf_name: sf_name.into(), quota, window_s: seconds, value })
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(&self) -> &str {
        &self.name
    }

    pub(super) const fn quota(&self) -> u64 {
        self.quota
    }

    /// Returns the window in whole seconds.
    pub(super) const fn window_s(&self) -> u64 {
        self.window_s
    }

    /// Returns the value of the policy's field: `"default";q=100;w=60`.
    pub(super) fn value(&self) -> HeaderValue {
        self.value.clone()
    }

    /// Returns the name in quotes.
    pub(super) const fn sf_name(&self) -> &str {
        &self.sf_name
    }
}

/// Quotes a string of a structured field (RFC 9651, 3.3.3): printable ASCII, with quotes and
/// backslashes escaped.
fn sf_string(text: &str) -> Option<String> {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            ' '..='~' => quoted.push(character),
            _ => return None,
        }
    }
    quoted.push('"');
    Some(quoted)
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

    use super::{MAX_NAME_BYTES, PolicyError, QuotaPolicy};

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
            policy.value().to_str().unwrap().to_owned()
        };
        assert_eq!(value("daily", 1000, Duration::from_secs(86_400)), r#""daily";q=1000;w=86400"#);
        assert_eq!(value("a b", 0, Duration::from_millis(1500)), r#""a b";q=0;w=2"#);
        assert_eq!(value(r#"q";q=9\"#, 1, Duration::from_nanos(1)), r#""q\";q=9\\";q=1;w=1"#);
    }
}
