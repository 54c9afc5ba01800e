//! Configurations of a control plane are rules, or are refused.

#![no_main]

use prost_types::Any;
use rategate_server::config::{CONFIG_TYPE, load_resources};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let resource = Any { type_url: CONFIG_TYPE.to_owned(), value: bytes.to_vec() };
    let _ = load_resources(&[resource], false);
});
