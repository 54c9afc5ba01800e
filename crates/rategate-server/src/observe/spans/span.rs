//! A decision as a span.

use std::num::NonZeroU64;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceState};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{
    IdGenerator as _, RandomIdGenerator, SpanData, SpanEvents, SpanLinks,
};
use smallvec::SmallVec;

use super::super::Protocol;
use crate::engine::{Answer, Outcome, Span, Verb, Verdict};
use crate::rule::CounterLocation;

/// The maximum number of rules that a span names.
const MAX_SPAN_RULES: usize = 8;

/// Returns the span of a decision that has ended, with a new identifier.
pub(super) fn data(protocol: Protocol, span: &Span<'_>, ended: SystemTime) -> SpanData {
    let ids = RandomIdGenerator::default();
    let trace_id = span.caller.map(SpanContext::trace_id);
    let parent = span.caller.map(SpanContext::span_id);
    let mut attributes = vec![
        KeyValue::new("rategate.protocol", protocol.name()),
        KeyValue::new("rategate.verb", word(span.verb)),
    ];
    let status = match span.outcome {
        Outcome::Answered(answer) => {
            attributes.extend(of_answer(answer));
            Status::Unset
        }
        Outcome::Failed(fault) => Status::error(fault.to_string()),
        Outcome::GivenUp => Status::error("the caller did not wait"),
    };
    let scope = InstrumentationScope::builder(env!("CARGO_PKG_NAME"));
    SpanData {
        span_context: SpanContext::new(
            trace_id.unwrap_or_else(|| ids.new_trace_id()),
            ids.new_span_id(),
            TraceFlags::SAMPLED,
            false,
            TraceState::NONE,
        ),
        parent_span_id: parent.unwrap_or(SpanId::INVALID),
        parent_span_is_remote: parent.is_some(),
        span_kind: SpanKind::Server,
        name: "rategate.decide".into(),
        start_time: ended.checked_sub(Duration::from_nanos(span.took_ns)).unwrap_or(ended),
        end_time: ended,
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status,
        instrumentation_scope: scope.with_version(env!("CARGO_PKG_VERSION")).build(),
    }
}

/// Returns what a span tells of an answer. A denial is an answer and no error.
fn of_answer(answer: &Answer) -> Vec<KeyValue> {
    let rules = || answer.results.iter().filter_map(|result| result.rule.as_ref());
    let names = rules().take(MAX_SPAN_RULES).map(|rule| StringValue::from(rule.name.to_string()));
    let is_out = |verdict: &Verdict| matches!(verdict, Verdict::Unavailable { .. });
    // Of several places, the furthest.
    let store = if answer.results.iter().any(|result| is_out(&result.verdict)) {
        "unavailable"
    } else if rules().any(|rule| rule.location != CounterLocation::Here) {
        "used"
    } else {
        "none"
    };
    let names = Value::Array(Array::String(names.collect()));
    let mut attributes = vec![
        KeyValue::new("rategate.rules", names),
        KeyValue::new("rategate.allowed", answer.allowed),
        KeyValue::new("rategate.store", store),
    ];
    if let Some(wait_ns) = wait_ns(answer).filter(|_| !answer.allowed) {
        let wait_ns = i64::try_from(wait_ns).unwrap_or(i64::MAX);
        attributes.push(KeyValue::new("rategate.wait_ns", wait_ns));
    }
    attributes
}

/// Returns the time until all denied items fit, if it is known.
fn wait_ns(answer: &Answer) -> Option<u64> {
    let denied = answer.results.iter().filter(|result| result.verdict.is_over());
    let waits = denied.map(|result| match result.verdict {
        Verdict::Denied { retry_after_ns, .. } => retry_after_ns.map(NonZeroU64::get),
        _ => None,
    });
    // If one item never fits, neither does the whole.
    waits.collect::<Option<SmallVec<[u64; 2]>>>()?.into_iter().max()
}

const fn word(verb: Verb) -> &'static str {
    match verb {
        Verb::Take => "take",
        Verb::Peek => "peek",
        Verb::Charge => "charge",
        Verb::Refund => "refund",
        Verb::Reset => "reset",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use smallvec::smallvec;

    use super::*;
    use crate::engine::ItemResult;
    use crate::rule::Rule;

    fn result(name: &str, location: CounterLocation, verdict: Verdict) -> ItemResult {
        let text = format!("[[rule]]\nname = \"{name}\"\nlimit = \"never\"\n");
        let loaded = crate::config::load_text("a.toml", &text).unwrap();
        let rule = Rule { location, ..loaded.rules.rules[0].clone() };
        ItemResult { rule: Some(Arc::new(rule)), verdict, ..ItemResult::WITHOUT_CAPACITY }
    }

    fn denied(wait_ns: u64, enforced: bool) -> Verdict {
        Verdict::Denied { retry_after_ns: NonZeroU64::new(wait_ns), enforced }
    }

    /// Returns the rules, the time to wait and the store in a span's attributes, and checks that
    /// it tells if the answer is allowed.
    fn exported(
        allowed: bool,
        results: impl IntoIterator<Item = ItemResult>,
    ) -> (String, String, String) {
        let attributes = of_answer(&Answer { allowed, results: results.into_iter().collect() });
        let of = |name: &str| {
            let found = attributes.iter().find(|pair| pair.key.as_str() == name);
            found.map_or_else(|| "-".to_owned(), |pair| pair.value.to_string())
        };
        assert_eq!(of("rategate.allowed"), allowed.to_string());
        (of("rategate.rules"), of("rategate.wait_ns"), of("rategate.store"))
    }

    fn expected(rules: &str, wait_ns: &str, store: &str) -> (String, String, String) {
        (rules.to_owned(), wait_ns.to_owned(), store.to_owned())
    }

    #[test]
    fn a_wait_is_until_all_of_it_fits() {
        let here = |verdict| result("r", CounterLocation::Here, verdict);
        let two = r#"["r","r"]"#;
        let both = exported(false, [here(denied(5, true)), here(denied(7, true))]);
        assert_eq!(both, expected(two, "7", "none"));
        let one = exported(false, [here(denied(5, true)), here(Verdict::Granted)]);
        assert_eq!(one, expected(two, "5", "none"));
        let never = exported(false, [here(denied(5, true)), here(denied(0, true))]);
        assert_eq!(never, expected(two, "-", "none"));
        // Shadow rules, and quotas while one is not over, do not cause a wait.
        let shadow = exported(false, [here(denied(5, true)), here(denied(9, false))]);
        assert_eq!(shadow, expected(two, "5", "none"));
        assert_eq!(exported(true, [here(denied(5, true))]), expected(r#"["r"]"#, "-", "none"));
        assert_eq!(exported(true, []), expected("[]", "-", "none"));
    }

    #[test]
    fn the_store_is_where_the_furthest_counters_are() {
        let here = || result("a", CounterLocation::Here, Verdict::Granted);
        let there = |verdict| result("b", CounterLocation::StoreExact, verdict);
        let names = r#"["a","b"]"#;
        assert_eq!(exported(true, [here(), there(Verdict::Granted)]), expected(names, "-", "used"));
        let unavailable = exported(
            true,
            [there(Verdict::Unavailable { admitted: true, retry_after_ns: None }), here()],
        );
        assert_eq!(unavailable, expected(r#"["b","a"]"#, "-", "unavailable"));
        let leased = result("c", CounterLocation::StoreLeased { lease_ns: 1 }, Verdict::Granted);
        assert_eq!(exported(true, [leased]).2, "used");
    }

    #[test]
    fn so_many_rules_are_named_and_no_more() {
        let results =
            (0..64).map(|nth| result(&format!("r{nth}"), CounterLocation::Here, Verdict::Granted));
        let (rules, ..) = exported(true, results);
        assert!(rules.contains("r7") && !rules.contains("r8"), "{rules}");
    }

    #[test]
    fn a_span_ends_when_its_answer_was_there_and_lasts_as_long_as_that_took() {
        let ended = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let answer = Answer { allowed: true, results: smallvec![] };
        let span = Span {
            caller: None,
            verb: Verb::Take,
            took_ns: 1_500_000_000,
            outcome: Outcome::Answered(&answer),
        };
        let data = data(Protocol::Resp, &span, ended);
        assert_eq!(data.end_time, ended);
        assert_eq!(data.start_time, ended - Duration::from_millis(1_500));
        let given_up = Span { outcome: Outcome::GivenUp, ..span };
        let data = super::data(Protocol::Resp, &given_up, ended);
        assert!(matches!(data.status, Status::Error { .. }));
    }
}
