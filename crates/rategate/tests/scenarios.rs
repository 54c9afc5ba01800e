//! The scenario files of single calls, played on real limiters.

use rategate::{AllOf, AnyPolicy, Limiter};
use rategate_testkit::player::{self, LeftOut, play};
use rategate_testkit::scenario::Scenario;
use rategate_testkit::suite;

const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/scenarios");

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
fn every_scenario_of_single_calls_passes_on_limiters() {
    let played = suite::each(SCENARIOS, |name, scenario| {
        if !scenario.callers.is_empty() || !scenario.arrivals.is_empty() {
            return Err(LeftOut::Callers);
        }
        assert_same_everywhere(name, &scenario);
        Ok(())
    });
    let played = played.unwrap();
    assert_eq!(played.played.len(), 60, "{played:?}");
    played.record("limiter").unwrap();
}

#[test]
fn random_lines_pass_on_limiters() {
    for seed in 0..1_500 {
        let text = player::random(seed);
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
