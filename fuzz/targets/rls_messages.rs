//! Requests of Envoy's service are read as a third-party implementation reads them.

#![no_main]

#[path = "../../crates/rategate-protocol/tests/laws/rls.rs"]
mod laws;

use rategate_protocol::rls::{MalformedRequest, RlsRequest};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // The other one has no bound.
    if !matches!(RlsRequest::read(bytes), Err(MalformedRequest::TooMany { .. })) {
        laws::check(bytes);
    }
});
