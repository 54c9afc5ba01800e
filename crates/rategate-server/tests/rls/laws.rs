//! Random sequences of calls, compared with a simple model of the protocol.

use std::collections::HashMap;

use proptest::prelude::*;
use rategate::Clock as _;
use rategate_server::engine::{Decided, EngineSettings, Override};
use rategate_server::protocol::rls::{Ask, Code, Descriptor, Line, ask};
use rategate_server::rule::Unit;

use crate::common::{engine, engine_with, rule};

/// A descriptor of a call: its rule, its value, its own hits, and `true` for a refund.
#[derive(Clone, Debug)]
struct Part {
    kind: usize,
    who: &'static str,
    hits: Option<u64>,
    refund: bool,
}

#[derive(Clone, Debug)]
struct Call {
    hits: u32,
    parts: Vec<Part>,
    then_ns: u64,
}

/// The limits per minute, by the key of the only entry. The last two come with the call, and
/// count every hit.
const LIMITS: [(&str, u64); 5] =
    [("few", 3), ("some", 7), ("none", 0), ("own", 5), ("own_none", 0)];
const MINUTE_NS: u64 = 60_000_000_000;

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let part = (0..6_usize, 0..3_usize, prop::option::of(0..5_u64), prop::bool::weighted(0.2));
    let part = part.prop_map(|(kind, who, hits, refund)| Part {
        kind,
        who: ["ann", "ben", "cleo"][who],
        hits,
        refund,
    });
    let parts = prop::collection::vec(part, 1..4);
    let call = (0..4_u32, parts, 0..20_000_000_000_u64);
    let call = call.prop_map(|(hits, parts, then_ns)| Call { hits, parts, then_ns });
    prop::collection::vec(call, 1..40)
}

/// The permits taken, by window and counter.
#[derive(Default)]
struct Model {
    taken: HashMap<(usize, &'static str), (u64, u64)>,
}

impl Model {
    fn taken(&mut self, window: u64, part: &Part) -> &mut u64 {
        let entry = self.taken.entry((part.kind, part.who)).or_default();
        if entry.0 != window {
            *entry = (window, 0);
        }
        &mut entry.1
    }

    /// Decides a call, each of whose counters is named once. Returns `true` if it is allowed.
    fn call(&mut self, window: u64, call: &Call) -> (bool, Vec<(Code, u64)>) {
        let hits = |part: &Part| part.hits.unwrap_or_else(|| u64::from(call.hits.max(1)));
        let limit = |part: &Part| LIMITS.get(part.kind).map(|(_, limit)| *limit);
        let mut codes = Vec::new();
        for part in &call.parts {
            let is_over = limit(part).is_some_and(|limit| match part.kind {
                3 | 4 => {
                    let taken = self.taken(window, part);
                    *taken += if part.refund { 0 } else { hits(part) };
                    !part.refund && *taken > limit
                }
                _ => limit == 0 || (!part.refund && *self.taken(window, part) + hits(part) > limit),
            });
            // A refund to a rule of 0 is lost, and denies nothing.
            let is_over = is_over && !(part.refund && part.kind == 2);
            codes.push(if is_over { Code::OverLimit } else { Code::Ok });
        }
        let allowed = codes.iter().all(|code| *code == Code::Ok);
        let mut told = Vec::new();
        for (part, code) in call.parts.iter().zip(codes) {
            let Some(limit) = limit(part) else {
                told.push((code, 0));
                continue;
            };
            let hits = hits(part);
            let taken = self.taken(window, part);
            // A denied caller may repeat the call, so nothing is refunded either.
            if allowed && part.refund {
                *taken = taken.saturating_sub(hits);
            } else if allowed && part.kind < 3 {
                *taken += hits;
            }
            told.push((code, limit.saturating_sub(*taken)));
        }
        (allowed, told)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn calls_are_answered_as_by_a_plain_model(calls in calls()) {
        let rules =
            LIMITS[..3].iter().map(|(key, limit)| rule(key, &[(key, "")], *limit)).collect();
        let room = EngineSettings {
            most_keys: 1000,
            inline_keys: 1000,
            inline_limits: 8,
            ..EngineSettings::default()
        };
        let (engine, clock) = engine_with(rules, room);
        let mut model = Model::default();
        for mut call in calls {
            let mut seen = Vec::new();
            call.parts.retain(|part| {
                let counter = (part.kind, part.who);
                !seen.contains(&counter) && { seen.push(counter); true }
            });
            let entries = |part: &Part| {
                let key = LIMITS.get(part.kind).map_or("unheard", |(key, _)| *key);
                [(key.as_bytes(), part.who.as_bytes())]
            };
            let descriptors = call.parts.iter().map(|part| Descriptor {
                entries: entries(part).into_iter().collect(),
                limit: match part.kind {
                    3 => Some(Override { permits: 5, unit: Unit::Minute }),
                    4 => Some(Override { permits: 0, unit: Unit::Minute }),
                    _ => None,
                },
                hits: part.hits,
                refund: part.refund,
            });
            let question =
                Ask { domain: "edge", descriptors: descriptors.collect(), hits: call.hits };
            let Ok(Decided::Now(Ok(answer))) = ask(&engine, &question) else { panic!() };
            let window = clock.now_ns() / MINUTE_NS;
            let (allowed, told) = model.call(window, &call);
            let lines: Vec<_> = answer.parts.iter().map(Line::of).collect();
            let lines: Vec<_> =
                lines.iter().map(|line| (line.code, u64::from(line.remaining))).collect();
            prop_assert_eq!(&lines, &told, "{:?}", call);
            prop_assert_eq!(answer.allowed, allowed);
            clock.advance(call.then_ns);
        }
    }
}

#[test]
fn a_reset_is_never_told_too_early() {
    let (engine, clock) = engine(vec![rule("few", &[("few", "")], 3)]);
    // Half a second past a whole one: 49.5 s are left.
    clock.advance(500_000_000);
    let entries = [(b"few".as_slice(), b"ann".as_slice())].into_iter().collect();
    let descriptors = [Descriptor { entries, ..Descriptor::default() }].into_iter().collect();
    let question = Ask { domain: "edge", descriptors, hits: 1 };
    let Ok(Decided::Now(Ok(answer))) = ask(&engine, &question) else { panic!() };
    assert_eq!(Line::of(&answer.parts[0]).reset_s, Some(50));
}
