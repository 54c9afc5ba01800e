//! Real servers that end with this process: the files of the tests of `rategate-redis`.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "tests use what is not used here, and fail by panics"
)]

#[path = "../../../rategate-redis/tests/common/client.rs"]
pub(crate) mod client;
#[path = "../../../rategate-redis/tests/common/server.rs"]
pub(crate) mod server;
