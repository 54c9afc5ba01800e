//! Random sequences of calls, compared with a simple model of the protocol.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use rategate::Clock as _;
use rategate_server::engine::{Decided, EngineSettings, Override};
use rategate_server::messages::rls::rate_limit_response::Code;
use rategate_server::protocol::rls::{Descriptor, Options, RlsRequest, ask, descriptor_status};
use rategate_server::rule::Unit;

use crate::rls::common::{engine, engine_with, rule};

/// A descriptor of a call: its rule, its value, its own hits, and `true` for a refund.
#[derive(Clone, Debug)]
struct Hit {
    kind: usize,
    who: &'static str,
    hits: Option<u64>,
    refund: bool,
}

#[derive(Clone, Debug)]
struct Call {
    hits: u32,
    results: Vec<Hit>,
    then_ns: u64,
}

/// The limits per minute, by the key of the only entry. The last two come with the call, and
/// count every hit.
const LIMITS: [(&str, u64); 5] =
    [("few", 3), ("some", 7), ("none", 0), ("own", 5), ("own_none", 0)];
const MINUTE_NS: u64 = 60_000_000_000;

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let hit = (0..6_usize, 0..3_usize, prop::option::of(0..5_u64), prop::bool::weighted(0.2));
    let hit = hit.prop_map(|(kind, who, hits, refund)| Hit {
        kind,
        who: ["ann", "ben", "cleo"][who],
        hits,
        refund,
    });
    let results = prop::collection::vec(hit, 1..4);
    let call = (0..4_u32, results, 0..20_000_000_000_u64);
    let call = call.prop_map(|(hits, results, then_ns)| Call { hits, results, then_ns });
    prop::collection::vec(call, 1..40)
}

/// The permits taken, by window and counter.
#[derive(Default)]
struct Model {
    taken: HashMap<(usize, &'static str), (u64, u64)>,
}

impl Model {
    fn taken(&mut self, window: u64, hit: &Hit) -> &mut u64 {
        let entry = self.taken.entry((hit.kind, hit.who)).or_default();
        if entry.0 != window {
            *entry = (window, 0);
        }
        &mut entry.1
    }

    /// Decides a call, each of whose counters is named once. Returns `true` if it is allowed.
    fn call(&mut self, window: u64, call: &Call) -> (bool, Vec<(Code, u64)>) {
        let hits = |hit: &Hit| hit.hits.unwrap_or_else(|| u64::from(call.hits.max(1)));
        let limit = |hit: &Hit| LIMITS.get(hit.kind).map(|(_, limit)| *limit);
        let mut codes = Vec::new();
        for hit in &call.results {
            let is_over = limit(hit).is_some_and(|limit| match hit.kind {
                3 | 4 => {
                    let taken = self.taken(window, hit);
                    *taken += if hit.refund { 0 } else { hits(hit) };
                    !hit.refund && *taken > limit
                }
                _ => limit == 0 || (!hit.refund && *self.taken(window, hit) + hits(hit) > limit),
            });
            // A refund to a rule of 0 is lost, and denies nothing.
            let is_over = is_over && !(hit.refund && hit.kind == 2);
            codes.push(if is_over { Code::OverLimit } else { Code::Ok });
        }
        let allowed = codes.iter().all(|code| *code == Code::Ok);
        let mut expected = Vec::new();
        for (hit, code) in call.results.iter().zip(codes) {
            let Some(limit) = limit(hit) else {
                expected.push((code, 0));
                continue;
            };
            let hits = hits(hit);
            let taken = self.taken(window, hit);
            // A denied caller may repeat the call, so nothing is refunded either.
            if allowed && hit.refund {
                *taken = taken.saturating_sub(hits);
            } else if allowed && hit.kind < 3 {
                *taken += hits;
            }
            expected.push((code, limit.saturating_sub(*taken)));
        }
        (allowed, expected)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn calls_are_answered_as_by_a_plain_model(calls in calls()) {
        let rules =
            LIMITS[..3].iter().map(|(key, limit)| rule(key, &[(key, "")], *limit)).collect();
        let settings = EngineSettings {
            max_keys: 1000,
            inline_keys: 1000,
            inline_limits: 8,
            ..EngineSettings::default()
        };
        let (engine, clock) = engine_with(rules, settings);
        let mut model = Model::default();
        for mut call in calls {
            let mut seen = Vec::new();
            call.results.retain(|hit| {
                let counter = (hit.kind, hit.who);
                !seen.contains(&counter) && { seen.push(counter); true }
            });
            let entries = |hit: &Hit| {
                let key = LIMITS.get(hit.kind).map_or("unheard", |(key, _)| *key);
                [(key.as_bytes(), hit.who.as_bytes())]
            };
            let descriptors = call.results.iter().map(|hit| Descriptor {
                entries: entries(hit).into_iter().collect(),
                limit: match hit.kind {
                    3 => Some(Override { permits: 5, unit: Unit::Minute }),
                    4 => Some(Override { permits: 0, unit: Unit::Minute }),
                    _ => None,
                },
                hits: hit.hits,
                refund: hit.refund,
            });
            let question =
                RlsRequest { domain: "edge", descriptors: descriptors.collect(), hits: call.hits };
            let decided = ask(&engine, &question, &Options::default());
            let Ok(Decided::Now(Ok(answer))) = decided else { panic!() };
            let window = clock.now_ns() / MINUTE_NS;
            let (allowed, expected) = model.call(window, &call);
            let statuses: Vec<_> = answer.results.iter().map(descriptor_status).collect();
            let statuses: Vec<_> =
                statuses.iter().map(|it| (it.code(), u64::from(it.limit_remaining))).collect();
            prop_assert_eq!(&statuses, &expected, "{:?}", call);
            prop_assert_eq!(answer.allowed, allowed);
            clock.advance(Duration::from_nanos(call.then_ns));
        }
    }
}

#[test]
fn a_reset_is_never_reported_too_early() {
    let (engine, clock) = engine(vec![rule("few", &[("few", "")], 3)]);
    // Half a second past a whole one: 49.5 s are left.
    clock.advance(Duration::from_millis(500));
    let entries = [(b"few".as_slice(), b"ann".as_slice())].into_iter().collect();
    let descriptors = [Descriptor { entries, ..Descriptor::default() }].into_iter().collect();
    let question = RlsRequest { domain: "edge", descriptors, hits: 1 };
    let Ok(Decided::Now(Ok(answer))) = ask(&engine, &question, &Options::default()) else {
        panic!()
    };
    let reset = descriptor_status(&answer.results[0]).duration_until_reset.unwrap();
    assert_eq!(reset.seconds, 50);
}
