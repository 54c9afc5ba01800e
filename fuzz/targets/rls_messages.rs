//! Requests of Envoy's service, and of Kuadrant's, are read as a third-party implementation reads
//! them.

#![no_main]

#[path = "../../crates/rategate-protocol/tests/laws/rls.rs"]
mod laws;

#[path = "../../crates/rategate-protocol/tests/laws/kuadrant.rs"]
mod kuadrant;

use rategate_protocol::rls::{MalformedRequest, RlsRequest};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // The other one has no bounds, or wider ones.
    match RlsRequest::read(bytes) {
        Err(MalformedRequest::TooMany { .. }) => {}
        Err(MalformedRequest::Malformed("groups are nested too deep")) => {}
        _ => laws::check(bytes),
    }
    kuadrant::check(bytes);
});
