//! Rules in the format of envoyproxy/ratelimit count as that project does, for every sequence of
//! calls: see [`oracle`](crate::rls::oracle).

use std::time::Duration;

use rategate::{Clock as _, ManualClock};
use rategate_server::config::load_text;
use rategate_server::engine::{Answer, Decided, Engine, EngineSettings, Override};
use rategate_server::messages::rls::rate_limit_response::Code;
use rategate_server::protocol::rls::{Descriptor, Options, RlsRequest, ask, descriptor_status};
use rategate_server::rule::Unit;

use crate::engine::common::SMALL;
use crate::rls::oracle::{ModelDescriptor, Status};
use crate::rls::wires::status_of;

const SECOND: u64 = 1_000_000_000;

fn ask_engine(engine: &Engine<ManualClock>, requested: &[ModelDescriptor], hits: u32) -> Answer {
    let descriptors = requested.iter().map(|requested| Descriptor {
        entries: requested
            .entries
            .iter()
            .map(|(key, value)| (key.as_bytes(), value.as_bytes()))
            .collect(),
        limit: requested.own.map(|(permits, unit)| Override { permits: permits.into(), unit }),
        hits: requested.hits,
        refund: false,
    });
    let question = RlsRequest { domain: "d", descriptors: descriptors.collect(), hits };
    let Ok(Decided::Now(Ok(answer))) = ask(engine, &question, &Options::default()) else {
        panic!("no answer")
    };
    answer
}

fn outcome(answer: &Answer) -> (bool, Vec<Status>) {
    let statuses = answer.results.iter().map(|result| status_of(&descriptor_status(result)));
    (Options::default().code(answer) == Code::OverLimit, statuses.collect())
}

pub(crate) fn engine_of(
    text: &str,
    settings: EngineSettings,
) -> (Engine<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    clock.set(Duration::from_nanos(1_700_000_050 * SECOND));
    let engine = Engine::new(clock.clone(), settings);
    let loaded = load_text("d.yaml", text).unwrap_or_else(|error| panic!("{}", error.report()));
    engine.load_compiled(&loaded.rules).unwrap();
    (engine, clock)
}

/// A token limit behind a gateway that charges afterwards: usage counts, however large it is.
#[test]
fn a_charge_over_the_limit_is_counted() {
    let text =
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1000}}]";
    let (engine, clock) = engine_of(text, SMALL);
    let charge = |hits| {
        let requested = ModelDescriptor { entries: vec![("a", "x")], own: None, hits: Some(hits) };
        let (is_over, statuses) = outcome(&ask_engine(&engine, &[requested], 0));
        (is_over, statuses[0].remaining)
    };
    assert_eq!([900, 400, 0].map(charge), [(false, 100), (true, 0), (true, 0)]);
    clock.advance(Duration::from_nanos(86_400 * SECOND));
    assert_eq!(
        [999, 0, 1, 0, 1].map(charge),
        [(false, 1), (false, 1), (false, 0), (false, 0), (true, 0)]
    );
}

/// Hits of 2^63 and more break the counter of that project. Here they are over the limit until
/// the window ends.
#[test]
fn no_number_of_hits_spoils_a_counter() {
    let text = "domain: d\ndescriptors: [{key: a, rate_limit: {unit: minute, \
                requests_per_unit: 4294967295}}]";
    let (engine, clock) = engine_of(text, SMALL);
    let charge = |hits| {
        let requested = ModelDescriptor { entries: vec![("a", "x")], own: None, hits: Some(hits) };
        outcome(&ask_engine(&engine, &[requested], 0)).0
    };
    for hits in [1 << 63, u64::MAX, u64::MAX, 1, 0] {
        assert!(charge(hits), "{hits}");
    }
    clock.advance(Duration::from_nanos(60 * SECOND));
    assert!(!charge(1));
}

/// Quotas next to hard limits, as in the model: a quota that is over and the only one denies,
/// whatever is left of a hard limit.
#[test]
fn quotas_stand_beside_limits_as_there() {
    let text = "domain: d\ndescriptors: [{key: q, quota_mode: true, rate_limit: {unit: day, \
                requests_per_unit: 1}}, {key: r, quota_mode: true, rate_limit: {unit: day, \
                requests_per_unit: 2}}, {key: u, quota_mode: true, \
                rate_limit: {unlimited: true}}, {key: h, rate_limit: {unit: day, \
                requests_per_unit: 100}}]";
    let (engine, _) = engine_of(text, SMALL);
    let is_over = |keys: &[&'static str]| {
        let requested = keys.iter().map(|key| ModelDescriptor {
            entries: vec![(key, "x")],
            own: None,
            hits: None,
        });
        outcome(&ask_engine(&engine, &requested.collect::<Vec<_>>(), 0)).0
    };
    assert!(!is_over(&["q", "h"]));
    assert!(is_over(&["q", "h"]), "the only quota is over");
    assert!(!is_over(&["q", "r"]), "one of two is not over");
    assert!(!is_over(&["q", "r"]));
    assert!(is_over(&["q", "r"]), "none has");
    assert!(is_over(&["q", "u"]), "what is unlimited is no quota");
}

/// A caller's own limit and the rule of the same descriptor and unit share a count.
#[test]
fn limits_of_one_unit_share_the_count_of_a_descriptor() {
    let text =
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 10}}]";
    let (engine, _) = engine_of(text, SMALL);
    let remaining = |own| {
        let requested = ModelDescriptor { entries: vec![("a", "x")], own, hits: Some(2) };
        outcome(&ask_engine(&engine, &[requested], 0)).1[0].remaining
    };
    assert_eq!(remaining(None), 8);
    assert_eq!(remaining(Some((5, Unit::Hour))), 1);
    assert_eq!(remaining(Some((100, Unit::Hour))), 94);
    assert_eq!(remaining(None), 2);
    assert_eq!(remaining(Some((5, Unit::Day))), 3, "another unit, another count");
}

/// Limits from 2^27 on are counted in their own windows, next to a smaller rule in the same unit.
#[test]
fn a_very_large_limit_of_a_callers_own_has_a_count_of_its_own() {
    let text =
        "domain: d\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 10}}]";
    let (engine, _) = engine_of(text, SMALL);
    let remaining = |own| {
        let requested = ModelDescriptor { entries: vec![("a", "x")], own, hits: Some(2) };
        outcome(&ask_engine(&engine, &[requested], 0)).1[0].remaining
    };
    let (less, large) = ((1 << 27) - 1, 1 << 27);
    assert_eq!(remaining(None), 8);
    assert_eq!(remaining(Some((less, Unit::Hour))), less - 4, "it shares the rule's");
    assert_eq!(remaining(Some((large, Unit::Hour))), large - 2, "it has its own");
    assert_eq!(remaining(Some((large, Unit::Hour))), large - 4);
    assert_eq!(remaining(None), 4, "and the rule's goes on");
}

/// A value that equals a rule's pattern comes under the first pattern that matches.
#[test]
fn a_value_that_is_a_pattern_comes_under_the_first_that_fits() {
    let limit = |name: &str, permits| {
        format!(
            "{{key: path, value: \"{name}\", rate_limit: {{unit: hour, \
             requests_per_unit: {permits}}}}}"
        )
    };
    let text = format!("domain: d\ndescriptors: [{}, {}]", limit("/a/*", 5), limit("/*", 9));
    let (engine, _) = engine_of(&text, SMALL);
    let remaining = |value| {
        let requested = ModelDescriptor { entries: vec![("path", value)], own: None, hits: None };
        outcome(&ask_engine(&engine, &[requested], 0)).1[0].remaining
    };
    assert_eq!(remaining("/a/*"), 4, "its own is the first that fits");
    assert_eq!(remaining("/*"), 8);
    let text = format!("domain: d\ndescriptors: [{}, {}]", limit("/*", 9), limit("/a/*", 5));
    let (engine, _) = engine_of(&text, SMALL);
    let requested = ModelDescriptor { entries: vec![("path", "/a/*")], own: None, hits: None };
    let statuses = outcome(&ask_engine(&engine, &[requested], 0)).1;
    assert_eq!(statuses[0].remaining, 8, "an earlier one fits, too");
}

/// A file without descriptors creates no domain: everything passes, a caller's own limit too.
#[test]
fn a_file_without_descriptors_knows_no_domain() {
    let (engine, _) = engine_of("domain: d\ndescriptors: []", SMALL);
    for own in [None, Some((0, Unit::Hour)), Some((1, Unit::Hour))] {
        let requested = ModelDescriptor { entries: vec![("a", "x")], own, hits: Some(5) };
        let (is_over, statuses) = outcome(&ask_engine(&engine, &[requested], 0));
        assert!(!is_over && statuses[0].limit.is_none(), "{own:?}");
    }
}

/// Twice the limit passes around a border of windows, unless the rule has another algorithm.
#[test]
fn around_a_border_twice_the_limit_passes_unless_another_algorithm_is_set() {
    for (algorithm, around) in
        [("", 20), ("algorithm: gcra, burst: 5", 5), ("algorithm: sliding-log", 10)]
    {
        let text = format!(
            "domain: d\ndescriptors: [{{key: a, rate_limit: {{unit: hour, requests_per_unit: 10, \
             {algorithm}}}}}]"
        );
        let (engine, clock) = engine_of(&text, SMALL);
        let border_ns = clock.now_ns() / (3_600 * SECOND) * 3_600 * SECOND + 3_600 * SECOND;
        let mut passed = 0;
        for at_ns in [border_ns - 1, border_ns] {
            clock.set(Duration::from_nanos(at_ns));
            for _ in 0..30 {
                let requested =
                    ModelDescriptor { entries: vec![("a", "x")], own: None, hits: None };
                passed += u32::from(!outcome(&ask_engine(&engine, &[requested], 0)).0);
            }
        }
        assert_eq!(passed, around, "{algorithm}");
    }
}

/// Rules of another kind in the same call are all or nothing: windows that count every hit still
/// count, and the others take nothing.
#[test]
fn other_limits_beside_counted_ones_take_all_or_nothing() {
    let text = "domain: d\ndescriptors: [{key: a, rate_limit: {unit: hour, \
                requests_per_unit: 1}}, {key: b, rate_limit: {unit: hour, requests_per_unit: 9, \
                algorithm: fixed-window}}]";
    let (engine, _) = engine_of(text, SMALL);
    let both =
        ["a", "b"].map(|key| ModelDescriptor { entries: vec![(key, "x")], own: None, hits: None });
    let remaining = || {
        let (is_over, statuses) = outcome(&ask_engine(&engine, &both, 0));
        (is_over, statuses.iter().map(|status| status.remaining).collect::<Vec<_>>())
    };
    assert_eq!(remaining(), (false, vec![0, 8]));
    assert_eq!(remaining(), (true, vec![0, 8]));
    assert_eq!(remaining(), (true, vec![0, 8]));
}

/// A global shadow: the descriptors report that they are over, and the call passes.
#[test]
fn a_global_shadow_lets_every_call_pass() {
    let text = "domain: d\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 0}}]";
    let (engine, _) = engine_of(text, SMALL);
    let requested = ModelDescriptor { entries: vec![("a", "x")], own: None, hits: None };
    let answer = ask_engine(&engine, &[requested], 0);
    let options = Options { shadow: true, ..Options::default() };
    assert_eq!(options.code(&answer), Code::Ok);
    assert_eq!(Options::default().code(&answer), Code::OverLimit);
    assert!(outcome(&answer).1[0].is_over);
    let question =
        br#"{"domain": "d", "descriptors": [{"entries": [{"key": "a", "value": "x"}]}]}"#;
    let json = |options: Options| {
        crate::rls::common::runtime()
            .block_on(rategate_server::protocol::rls::json(question, &engine, &options, true))
    };
    let answer = json(options);
    let body = answer.body;
    assert_eq!(answer.status, 200, "{body}");
    assert!(body.starts_with(r#"{"overallCode":"OK","statuses":[{"code":"OVER_LIMIT""#), "{body}");
    assert_eq!(json(Options::default()).status, 429);
}

/// A reload with another number keeps the count, as counters in Redis do; another unit is another
/// window.
#[test]
fn a_change_of_the_number_keeps_what_was_counted() {
    let text =
        |limit: &str| format!("domain: d\ndescriptors: [{{key: a, rate_limit: {{{limit}}}}}]");
    let (engine, _) = engine_of(&text("unit: day, requests_per_unit: 1000"), SMALL);
    let remaining = |hits| {
        let requested = ModelDescriptor { entries: vec![("a", "x")], own: None, hits: Some(hits) };
        outcome(&ask_engine(&engine, &[requested], 0)).1[0].remaining
    };
    let load = |limit: &str| {
        engine.load_compiled(&load_text("d.yaml", &text(limit)).unwrap().rules).unwrap();
    };
    assert_eq!(remaining(900), 100);
    load("unit: day, requests_per_unit: 950");
    assert_eq!(remaining(0), 50);
    load("unit: day, requests_per_unit: 100");
    assert_eq!(remaining(0), 0);
    load("unit: day, requests_per_unit: 2000");
    assert_eq!(remaining(0), 1100);
    load("unit: month, requests_per_unit: 2000");
    assert_eq!(remaining(0), 2000);
}
