//! The wall clock, which outlives the process and can be set. No decision reads it: it only tells how long a limit
//! has been away.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970; zero before, and the end of 64 bits, which is in the year 2554, after it.
pub(crate) fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
