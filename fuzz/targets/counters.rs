//! Files of counters and reservations: what is restored can be saved and restored again, and its
//! reservations end.

#![no_main]

#[path = "../../crates/rategate-server/tests/state/laws.rs"]
mod laws;

// The checksum of a file stops a fuzzer, so the head and the checksum are added to each input.
libfuzzer_sys::fuzz_target!(|inner: &[u8]| laws::hold(inner));
