//! Configurations of a control plane are read as a third-party implementation reads them.

#![no_main]

#[path = "../../crates/rategate-protocol/tests/laws/xds.rs"]
mod laws;

use rategate_protocol::xds::DiscoveryResponse;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    laws::check(bytes);
    // A response carries configurations as bytes.
    if let Ok(response) = DiscoveryResponse::read(bytes) {
        response.resources.iter().for_each(|resource| laws::check(resource.value));
    }
});
