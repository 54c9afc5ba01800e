//! Rates and policies as text: what is read is printed so that it reads as the same.

#![no_main]

use rategate_core::all_of::AllOf;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::rate::Rate;

libfuzzer_sys::fuzz_target!(|text: &str| {
    match text.parse::<Rate>() {
        Ok(rate) => assert_eq!(rate.to_string().parse(), Ok(rate), "{text:?}: {rate}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match text.parse::<AnyPolicy>() {
        Ok(policy) => assert_eq!(policy.to_string().parse(), Ok(policy), "{text:?}: {policy}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(all) = text.parse::<AllOf>() {
        let again: AllOf = all.to_string().parse().unwrap();
        assert_eq!(again.policies(), all.policies(), "{text:?}: {all}");
    }
});
