//! The scenario files and denials in debt, through each protocol: a limit decides the same through
//! all of them.

mod carrier;
mod debts;
mod engine;
mod http;
mod resp;
mod rls;

use rategate_testkit::conformance::scenarios;

/// Runs every file that a store can execute: tries and peeks, and retries in order.
fn play<W: carrier::Carrier>(protocol: &str, carry: impl Fn(carrier::TestEngine) -> W) -> usize {
    let played = scenarios::suite(
        &carrier::Served::new(carry),
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/scenarios"),
    );
    played.record(protocol).unwrap();
    played.played.len()
}

#[test]
fn the_engine_itself_decides_as_the_files_say() {
    assert_eq!(play("engine", engine::Directly), 8);
}

#[test]
fn http_decides_as_the_files_say() {
    assert_eq!(play("http", http::OverHttp::new), 8);
}

#[test]
fn envoys_protocol_decides_as_the_files_say() {
    assert_eq!(play("grpc", rls::OverRls::new), 8);
}

#[test]
fn redis_protocol_decides_as_the_files_say() {
    assert_eq!(play("resp", resp::OverResp::new), 7);
}
