//! Conversion of times to whole seconds, rounded up so that a client that follows them is never
//! early.

use std::time::Duration;

/// The largest integer of a structured field (RFC 9651, 3.3.1).
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// Returns the number, or the largest that a structured field can hold.
pub(super) const fn sf_integer(number: u64) -> u64 {
    if number > MAX_INTEGER { MAX_INTEGER } else { number }
}

/// Returns the time in seconds, rounded up.
pub(crate) const fn whole_seconds(time: Duration) -> u64 {
    let is_begun = time.subsec_nanos() > 0;
    if is_begun { time.as_secs().saturating_add(1) } else { time.as_secs() }
}

/// Returns the seconds of a `Retry-After` field, rounded up and at least one: a client that
/// receives 0 returns at once.
pub(crate) fn retry_seconds(time: Duration) -> u64 {
    sf_integer(whole_seconds(time).max(1))
}
