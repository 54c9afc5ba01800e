//! The scenario files, run through each protocol: a limit decides the same through all of them.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that cannot go on should panic, and say what it sees"
)]

mod carrier;
mod engine;
mod http;
mod resp;
mod rls;

/// Runs every file that a store can execute: tries and peeks, and retries in order.
fn play<W: carrier::Carrier>(carry: impl Fn(carrier::TestEngine) -> W) -> usize {
    let played = rategate_conformance::scenarios::suite(&carrier::Served::new(carry));
    played.played.len()
}

#[test]
fn the_engine_itself_decides_as_the_files_say() {
    assert_eq!(play(engine::Directly), 8);
}

#[test]
fn http_decides_as_the_files_say() {
    assert_eq!(play(http::OverHttp::new), 8);
}

#[test]
fn envoys_protocol_decides_as_the_files_say() {
    assert_eq!(play(rls::OverRls::new), 8);
}

#[test]
fn redis_protocol_decides_as_the_files_say() {
    assert_eq!(play(resp::OverResp::new), 7);
}
