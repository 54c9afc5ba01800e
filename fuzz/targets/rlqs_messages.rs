//! Reports of Envoy's quota service are read as a third-party implementation reads them.

#![no_main]

#[path = "../../crates/rategate-protocol/tests/laws/rlqs.rs"]
mod laws;

use rategate_protocol::rlqs::{MalformedReport, UsageReport};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // The other one has no bounds, or wider ones.
    match UsageReport::read(bytes) {
        Err(MalformedReport::TooMany { .. }) => {}
        Err(MalformedReport::Malformed("groups are nested too deep")) => {}
        _ => laws::check(bytes),
    }
});
