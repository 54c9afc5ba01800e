//! The wall clock, which outlives the process and can be set. No limit reads it: it tells how long one has been away,
//! and when an entry of a deny list ends.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970; zero before, and the end of 64 bits, which is in the year 2554, after it.
pub(crate) fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
