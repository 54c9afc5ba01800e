//! Configurations in Envoy's format: one that loads can be written and loaded again, and
//! any other has a report.

#![no_main]

#[path = "../../crates/rategate-server/tests/config/laws.rs"]
mod laws;

libfuzzer_sys::fuzz_target!(|text: &str| laws::hold("a.yaml", text));
