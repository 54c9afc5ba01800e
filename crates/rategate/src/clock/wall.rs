//! The wall clock, which outlives the process and can be set.
//!
//! No limit reads it. It shows how long a process was stopped, and when an entry of a deny list
//! ends.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the nanoseconds since 1970; zero before, and the end of 64 bits after the year 2554.
pub(crate) fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
