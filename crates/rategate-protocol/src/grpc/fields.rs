//! The values of header fields that gRPC defines.

use std::time::Duration;

/// The timeout that a caller states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timeout {
    /// None is stated.
    #[default]
    Absent,
    /// The stated time.
    Of(Duration),
    /// The field is not a time.
    Nonsense,
}

/// The accepted message encoding.
pub const ENCODING: &str = "identity";

impl Timeout {
    /// Reads a `grpc-timeout` field.
    #[must_use]
    pub fn of(field: &[u8]) -> Self {
        time_of(field).map_or(Self::Nonsense, Self::Of)
    }
}

/// Returns `true` if a `grpc-encoding` field means that messages are compressed.
#[must_use]
pub fn is_compressed(field: &[u8]) -> bool {
    field != ENCODING.as_bytes()
}

/// Returns `true` if a content type is that of gRPC with messages in protocol buffers.
#[must_use]
pub fn is_grpc(content_type: &[u8]) -> bool {
    let Some(rest) = content_type.strip_prefix(b"application/grpc") else { return false };
    let rest = rest.strip_prefix(b"+proto").unwrap_or(rest);
    matches!(rest.first(), None | Some(b';' | b' '))
}

/// Parses a duration in gRPC's format: at most eight digits and a unit.
fn time_of(field: &[u8]) -> Option<Duration> {
    let (unit, digits) = field.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = std::str::from_utf8(digits).ok()?.parse::<u64>().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(count.saturating_mul(3600)),
        b'M' => Duration::from_secs(count.saturating_mul(60)),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(time_of(b"20m"), Some(Duration::from_millis(20)));
        assert_eq!(time_of(b"99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        for invalid in [&b""[..], b"m", b"20", b"-1m", b"123456789n", b"1x", b"+1m"] {
            assert_eq!(time_of(invalid), None, "{invalid:?}");
        }
    }

    #[test]
    fn content_types() {
        for right in ["application/grpc", "application/grpc+proto", "application/grpc;x=y"] {
            assert!(is_grpc(right.as_bytes()), "{right}");
        }
        for invalid in ["", "application/grpc-web", "application/grpc+json", "application/json"] {
            assert!(!is_grpc(invalid.as_bytes()), "{invalid}");
        }
    }
}
