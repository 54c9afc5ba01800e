//! Random requests, compared with a trivial model: counts in a map.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use rategate_server::engine::Verb;

use crate::engine::common::*;

/// A rule, a key, and permits.
type Item = (u8, u8, u64);

/// Generates requests of up to four items of three rules and two keys each, for up to four
/// permits; or time steps.
fn steps() -> impl Strategy<Value = Vec<(Vec<Item>, u64)>> {
    let item = (0..3_u8, 0..2_u8, 0..4_u64);
    prop::collection::vec((prop::collection::vec(item, 1..5), 0..40_u64), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn requests_decide_as_plain_counts_do(steps in steps()) {
        let limits = [4, 7, 12];
        let names = ["a", "b", "c"];
        let rules = names.iter().zip(limits).map(|(name, limit)| per_minute(name, &[name], limit));
        let (engine, clock) = engine(rules.collect());
        let (mut used, mut now_s, mut window) = (HashMap::<(u8, u8), u64>::new(), 0, 0);
        for (items, wait_s) in steps {
            now_s += wait_s;
            clock.advance(Duration::from_nanos(wait_s * SECOND));
            if now_s / 60 != window {
                used.clear();
                window = now_s / 60;
            }
            let mut wanted = HashMap::<(u8, u8), u64>::new();
            for (rule, key, permits) in &items {
                *wanted.entry((*rule, *key)).or_default() += permits;
            }
            let fits = |(at, permits): (&(u8, u8), &u64)| {
                used.get(at).copied().unwrap_or(0) + permits <= limits[usize::from(at.0)]
            };
            let expected = wanted.iter().all(fits);
            if expected {
                for (at, permits) in wanted {
                    *used.entry(at).or_default() += permits;
                }
            }
            let texts: Vec<(String, u64)> = items
                .iter()
                .map(|(rule, key, permits)|
                    (format!("{}={key}", names[usize::from(*rule)]), *permits))
                .collect();
            let requested: Vec<(&str, u64)> =
                texts.iter().map(|(text, permits)| (text.as_str(), *permits)).collect();
            prop_assert_eq!(
                ask(&engine, Verb::Peek, &requested).allowed || requested.len() > 1,
                expected || requested.len() > 1
            );
            prop_assert_eq!(take(&engine, &requested), expected);
            for (rule, key) in (0..3_u8).flat_map(|rule| (0..2_u8).map(move |key| (rule, key))) {
                let left = limits[usize::from(rule)] - used.get(&(rule, key)).copied().unwrap_or(0);
                prop_assert_eq!(
                    remaining(&engine, &format!("{}={key}", names[usize::from(rule)])),
                    left
                );
            }
        }
    }
}
