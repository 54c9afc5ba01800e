//! The page over a small engine with traffic of its own, for a minute or as many seconds as are
//! given: `cargo run -p rategate-server --example observe -- 600`.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::unwrap_used,
    reason = "a test that cannot go on should panic, and say what it sees"
)]

#[path = "../tests/observe/common.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
mod common;

#[path = "../tests/engine"]
#[allow(dead_code, clippy::indexing_slicing, reason = "as above")]
mod engine {
    pub(crate) mod common;
}

#[allow(clippy::print_stdout, reason = "it says where to look")]
fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(60);
    let site = common::Site::start(None);
    println!("http://{}/", site.address);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    while std::time::Instant::now() < until {
        std::thread::park_timeout(std::time::Duration::from_secs(1));
    }
}
