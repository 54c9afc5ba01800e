//! Times as whole seconds, rounded up: whoever obeys is never early.

use std::time::{Duration, SystemTime};

/// The largest integer of a structured field (RFC 9651, 3.3.1).
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// A number that a structured field can hold.
pub(super) const fn sf_integer(number: u64) -> u64 {
    if number > MAX_INTEGER { MAX_INTEGER } else { number }
}

/// Seconds, rounded up.
pub(crate) const fn whole_seconds(time: Duration) -> u64 {
    let is_begun = time.subsec_nanos() > 0;
    if is_begun { time.as_secs().saturating_add(1) } else { time.as_secs() }
}

/// Seconds as in `Retry-After`, rounded up and at least one: a client told 0 comes again at once.
pub(crate) fn retry_seconds(time: Duration) -> u64 {
    sf_integer(whole_seconds(time).max(1))
}

/// The Unix time in `time` from now, rounded up. A clock before 1970 counts as then.
pub(super) fn unix_seconds(now: SystemTime, time: Duration) -> u64 {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    whole_seconds(since.saturating_add(time))
}
