//! Real servers that end with this process: the very files of the tests of `rategate-redis`.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "tests use what is not used here, and fail by panics"
)]

#[path = "../../../crates/rategate-redis/tests/common/client.rs"]
pub(crate) mod client;
#[path = "../../../crates/rategate-redis/tests/common/server.rs"]
pub(crate) mod server;
