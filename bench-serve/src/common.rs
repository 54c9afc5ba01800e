//! Files that other packages of this repository have already.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "others use what is not used here, and fail by panics"
)]

#[path = "../../crates/rategate-redis/tests/common/client.rs"]
pub(crate) mod client;
#[path = "../../bench-store/src/clock.rs"]
pub(crate) mod clock;
#[path = "../../bench-store/src/report.rs"]
pub(crate) mod report;
