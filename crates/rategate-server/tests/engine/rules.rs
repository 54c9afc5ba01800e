//! The rule that a descriptor comes under, and its decisions.

use std::num::NonZeroU64;
use std::time::Duration;

use rategate_server::engine::{
    Decided, EngineError, Item, LoadError, Request, Target, Verb, Verdict,
};
use rategate_server::rule::{Enforcement, Limit, Value, is_like};

use crate::engine::common::*;

#[test]
fn exact_beats_a_pattern_and_a_pattern_beats_any() {
    let rules = vec![
        per_minute("any", &["path"], 3),
        with_value(per_minute("like", &["path"], 2), 0, like("/api/*/action", true)),
        with_value(per_minute("one", &["path"], 1), 0, exact("/api/7/action")),
    ];
    let (engine, _) = engine(rules);
    let name = |path: &str| {
        let answer = ask(&engine, Verb::Peek, &[(path, 1)]);
        rule_name(&answer, 0).map(str::to_owned)
    };
    assert_eq!(name("path=/api/7/action").as_deref(), Some("one"));
    assert_eq!(name("path=/api/8/action").as_deref(), Some("like"));
    assert_eq!(name("path=/api//action").as_deref(), Some("like"));
    assert_eq!(name("path=/api/8/actions").as_deref(), Some("any"));
    assert_eq!(name("other=1"), None);
    assert_eq!(name("path=/x,user=1"), None, "the depth has to match");
}

#[test]
fn what_is_decided_at_an_entry_is_not_reconsidered() {
    let nested = with_value(per_minute("free_user", &["plan", "user"], 5), 0, exact("free"));
    let (engine, _) = engine(vec![nested, per_minute("plan", &["plan"], 1)]);
    assert!(rule_name(&ask(&engine, Verb::Peek, &[("plan=free", 1)]), 0).is_none());
    assert_eq!(rule_name(&ask(&engine, Verb::Peek, &[("plan=paid", 1)]), 0), Some("plan"));
    assert_eq!(
        rule_name(&ask(&engine, Verb::Peek, &[("plan=free,user=1", 1)]), 0),
        Some("free_user")
    );
}

#[test]
fn values_are_counted_apart_and_never_meet() {
    let (engine, _) = engine(vec![per_minute("r", &["a", "b"], 1)]);
    assert!(take(&engine, &[("a=x,b=yz", 1)]));
    assert!(!take(&engine, &[("a=x,b=yz", 1)]));
    assert!(take(&engine, &[("a=xy,b=z", 1)]));
    assert!(take(&engine, &[("a=,b=xyz", 1)]));
}

#[test]
fn a_shared_pattern_has_one_counter_and_another_one_for_each_value() {
    let shared = with_value(per_minute("shared", &["p"], 1), 0, like("/a/*", true));
    let apart = with_value(per_minute("apart", &["p"], 1), 0, like("/b/*", false));
    let (engine, _) = engine(vec![shared, apart]);
    assert!(take(&engine, &[("p=/a/1", 1)]));
    assert!(!take(&engine, &[("p=/a/2", 1)]));
    assert!(take(&engine, &[("p=/b/1", 1)]));
    assert!(take(&engine, &[("p=/b/2", 1)]));
    assert!(!take(&engine, &[("p=/b/2", 1)]));
}

#[test]
fn windows_are_those_of_the_wall_clock_and_a_denial_says_when_they_end() {
    let (engine, clock) = engine(vec![per_minute("r", &["u"], 1)]);
    clock.advance(Duration::from_millis(59_250));
    assert!(take(&engine, &[("u=1", 1)]));
    let denied = ask(&engine, Verb::Take, &[("u=1", 1)]);
    let retry_after_ns = NonZeroU64::new(750_000_000);
    assert_eq!(denied.results[0].verdict, Verdict::Denied { retry_after_ns, enforced: true });
    assert_eq!((denied.results[0].remaining, denied.results[0].limit), (Some(0), 1));
    assert_eq!(denied.results[0].reset_after_ns, 750_000_000);
    clock.advance(Duration::from_millis(750));
    assert!(take(&engine, &[("u=1", 1)]));
}

#[test]
fn more_than_ever_fits_is_denied_for_good() {
    let (engine, _) = engine(vec![bucket("r", &["u"], 3)]);
    for permits in [4, u64::MAX] {
        let denied = ask(&engine, Verb::Take, &[("u=1", permits)]);
        assert_eq!(
            denied.results[0].verdict,
            Verdict::Denied { retry_after_ns: None, enforced: true }
        );
    }
    assert_eq!(remaining(&engine, "u=1"), 3);
}

#[test]
fn unlimited_passes_uncounted_and_nothing_denies_all() {
    let mut open = per_minute("open", &["a"], 1);
    open.limit = Limit::Unlimited;
    let mut shut = per_minute("shut", &["b"], 1);
    shut.limit = Limit::Nothing;
    let (engine, _) = engine(vec![open, shut]);
    let answer = ask(&engine, Verb::Take, &[("a=1", u64::MAX)]);
    assert!(answer.allowed && answer.results[0].verdict == Verdict::Unlimited);
    let answer = ask(&engine, Verb::Take, &[("b=1", 1)]);
    assert_eq!(answer.results[0].verdict, Verdict::Denied { retry_after_ns: None, enforced: true });
    assert!(!take(&engine, &[("a=1", 1), ("b=1", 1)]));
}

#[test]
fn a_rule_is_named_with_the_values_that_vary_and_has_tiers() {
    let tier =
        with_value(bucket("user/gold", &["user"], 9), 0, Value::OneOf(["ann".into()].into()));
    let plan = with_value(bucket("free", &["plan", "user"], 2), 0, exact("free"));
    let (engine, _) = engine(vec![bucket("user", &["user"], 3), tier, plan]);
    let named = |name: &str, values: &[&[u8]]| {
        let items = [Item::of(Target::Rule { name, values }, 1)];
        match engine.decide(&Request { verb: Verb::Take, items: &items, counts_denied: false }) {
            Decided::Now(answer) => answer.map(|answer| answer.results[0].limit),
            Decided::Later(_) => unreachable!(),
        }
    };
    assert_eq!(named("user", &[b"ann"]), Ok(9));
    assert_eq!(named("user", &[b"bob"]), Ok(3));
    assert_eq!(named("user", &[b"\xff\x00"]), Ok(3), "any bytes");
    assert_eq!(named("free", &[b"ann"]), Ok(2));
    assert_eq!(remaining(&engine, "user=ann"), 8, "of the same counter as the descriptor's");
    assert_eq!(remaining(&engine, "plan=free,user=ann"), 1);
    let none = named("none", &[]).unwrap_err();
    assert!(matches!(&none, EngineError::NoSuchRule { name, .. } if &**name == "none"));
    assert!(none.to_string().contains("known: "), "{none}");
    let values = EngineError::Values { rule: "user".into(), needed: 1, given: 2 };
    assert_eq!(named("user", &[b"a", b"b"]), Err(values));
    let other = EngineError::OtherValue { rule: "user/gold".into(), entry: "user".into() };
    assert_eq!(named("user/gold", &[b"bob"]), Err(other));
}

#[test]
fn a_shadow_rule_counts_and_is_never_over() {
    let mut shadow = per_minute("shadow", &["u"], 1);
    shadow.enforcement = Enforcement::Shadow;
    let (engine, _) = engine(vec![shadow, per_minute("real", &["v"], 1)]);
    assert!(take(&engine, &[("u=1", 1)]));
    let answer = ask(&engine, Verb::Take, &[("u=1", 1)]);
    assert!(answer.allowed);
    assert!(matches!(answer.results[0].verdict, Verdict::Denied { enforced: false, .. }));
    // A shadow rule takes nothing for a call that another rule denies, and denies no call that
    // others allow.
    assert!(take(&engine, &[("u=1", 1), ("v=1", 1)]));
    assert!(!take(&engine, &[("u=2", 1), ("v=1", 1)]));
    assert_eq!(remaining(&engine, "u=2"), 1);
}

#[test]
fn rules_that_contradict_each_other_are_refused() {
    let (engine, _) = engine(vec![bucket("before", &["u"], 1)]);
    let same_name = vec![bucket("r", &["a"], 1), bucket("r", &["b"], 1)];
    assert!(matches!(engine.load(set(same_name)), Err(LoadError::SameName { .. })));
    let many = |rules: u32| (0..rules).map(|nth| bucket(&format!("r{nth}"), &["a"], 1)).collect();
    assert!(matches!(engine.load(set(many(9))), Err(LoadError::SameDescriptor { .. })));
    let mut selfish = bucket("r", &["a"], 1);
    selfish.replaces = vec!["r".into()];
    assert_eq!(engine.load(set(vec![selfish])), Err(LoadError::ReplacesItself("r".into())));
    assert_eq!(rule_name(&ask(&engine, Verb::Peek, &[("u=1", 1)]), 0), Some("before"));
}

#[test]
fn patterns_are_what_a_plain_search_says() {
    fn plainly(value: &[u8], pattern: &[u8]) -> bool {
        match pattern.split_first() {
            None => value.is_empty(),
            Some((b'*', rest)) => (0..=value.len()).any(|skip| plainly(&value[skip..], rest)),
            Some((byte, rest)) => {
                value.split_first().is_some_and(|(v, more)| v == byte && plainly(more, rest))
            }
        }
    }
    let words = |letters: &[u8], max_length: u32| {
        let mut all: Vec<Vec<u8>> = vec![Vec::new()];
        let mut last = all.clone();
        for _ in 0..max_length {
            last = last
                .iter()
                .flat_map(|word| letters.iter().map(|l| [word.as_slice(), &[*l]].concat()))
                .collect();
            all.extend(last.iter().cloned());
        }
        all
    };
    for pattern in words(b"ab*", 5) {
        for value in words(b"ab", 5) {
            assert_eq!(
                is_like(&value, &pattern),
                plainly(&value, &pattern),
                "{value:?} {pattern:?}"
            );
        }
    }
}
