//! Scenario files: what is not one has an error that names a place.

#![no_main]

use rategate_testkit::scenario::{Scenario, policy_from};

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(error) = Scenario::parse(text) {
        assert!(!error.to_string().is_empty());
    }
    if let Err(error) = policy_from(text) {
        assert!(!error.to_string().is_empty());
    }
});
