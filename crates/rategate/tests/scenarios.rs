//! The scenario files with waits, settlements, refunds, holds or outcomes, played on real limiters.

use std::fs;
use std::path::PathBuf;

use rategate::{AllOf, AnyPolicy, Limiter};
use rategate_sim::scenario::{Call, Scenario};
use rategate_testkit::scenario::{self, play};

/// Plays the scenario on all limits together, with a ledger each, and on a single limit with a
/// lock-free form.
fn assert_same_everywhere(about: &str, scenario: &Scenario) {
    let limits = scenario.limits.clone();
    play(about, scenario, |clock| Limiter::with_clock(AllOf::new(limits), clock));
    match scenario.limits.as_slice() {
        [AnyPolicy::Gcra(policy)] => {
            play(about, scenario, |clock| Limiter::with_clock(*policy, clock));
        }
        [AnyPolicy::SlidingLog(policy)] => {
            play(about, scenario, |clock| Limiter::with_clock(*policy, clock));
        }
        [AnyPolicy::TwoTimeline(policy)] => {
            play(about, scenario, |clock| Limiter::with_clock(*policy, clock));
        }
        [AnyPolicy::AdaptiveConcurrency(policy)] => {
            play(about, scenario, |clock| Limiter::with_clock(*policy, clock));
        }
        [AnyPolicy::AdaptiveRate(policy)] => {
            play(about, scenario, |clock| Limiter::with_clock(*policy, clock));
        }
        _ => {}
    }
}

#[test]
fn every_queue_refund_and_hold_scenario_passes_on_limiters() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/scenarios");
    let mut played = 0;
    for file in fs::read_dir(folder).unwrap() {
        let file = file.unwrap().path();
        let scenario = Scenario::parse(&fs::read_to_string(&file).unwrap()).unwrap();
        let is_ours = |call: &Call| {
            use Call::{End, Hold, Refund, Settle, Wait};
            matches!(call, Wait { .. } | Settle { .. } | Refund { .. } | Hold { .. } | End { .. })
        };
        let is_ours = scenario.steps.iter().any(|step| is_ours(&step.call));
        if is_ours && scenario.callers.is_empty() && scenario.arrivals.is_empty() {
            played += 1;
            assert_same_everywhere(&file.display().to_string(), &scenario);
        }
    }
    assert!(played > 25, "{played}");
}

#[test]
fn random_lines_pass_on_limiters() {
    for seed in 0..1_500 {
        let text = scenario::random(seed);
        let scenario = Scenario::parse(&text).unwrap();
        assert_same_everywhere(&format!("seed {seed}\n{text}"), &scenario);
    }
}

/// Requests beyond the capacity have the outcome `never`, with or without waiters.
#[test]
fn impossible_requests_are_errors() {
    let never = |call| format!("[[step]]\nat = \"0s\"\ncall = \"{call}\"\npermits = 2\n");
    let text = format!(
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\n[[step]]\nat = \"0s\"\ncall = \"wait\"\n{}{}{}",
        never("try"),
        never("peek"),
        never("reserve")
    );
    assert_same_everywhere(&text, &Scenario::parse(&text).unwrap());
}
