//! Several items: all or nothing.

use std::time::Duration;

use rategate_server::engine::{
    Decided, EngineError, Inline, Item, MAX_ITEMS, Override, Request, Target, Verb, Verdict,
};
use rategate_server::rule::{Enforcement, Rule, Unit};

use crate::engine::common::*;

#[test]
fn a_denied_request_takes_nothing_from_any_counter() {
    let (engine, _) = engine(vec![bucket("a", &["a"], 5), bucket("b", &["b"], 1)]);
    assert!(take(&engine, &[("a=1", 2), ("b=1", 1)]));
    let denied = ask(&engine, Verb::Take, &[("a=1", 2), ("b=1", 1)]);
    assert!(!denied.allowed);
    assert_eq!(denied.results[0].verdict, Verdict::Granted, "it would have fitted");
    assert!(denied.results[1].verdict.is_over());
    assert_eq!((remaining(&engine, "a=1"), remaining(&engine, "b=1")), (3, 0));
}

#[test]
fn a_counter_named_twice_is_charged_the_sum() {
    let (engine, _) = engine(vec![bucket("a", &["a"], 5)]);
    assert!(take(&engine, &[("a=1", 2), ("a=1", 2)]));
    assert_eq!(remaining(&engine, "a=1"), 1);
    let denied = ask(&engine, Verb::Take, &[("a=1", 1), ("a=1", 1)]);
    assert!(!denied.allowed && denied.results.iter().all(|result| result.verdict.is_over()));
    assert_eq!(remaining(&engine, "a=1"), 1);
}

#[test]
fn a_replaced_rule_is_neither_checked_nor_counted() {
    let mut stronger = bucket("stronger", &["a"], 5);
    stronger.replaces = vec!["weaker".into()];
    let (engine, _) = engine(vec![bucket("weaker", &["b"], 1), stronger]);
    for _ in 0..3 {
        let answer = ask(&engine, Verb::Take, &[("b=1", 1), ("a=1", 1)]);
        assert!(answer.allowed && answer.results[0].verdict == Verdict::Replaced);
    }
    for verb in [Verb::Peek, Verb::Refund] {
        let answer = ask(&engine, verb, &[("b=1", 1), ("a=1", 0)]);
        assert_eq!(answer.results[0].verdict, Verdict::Replaced, "{verb:?}");
    }
    assert_eq!((remaining(&engine, "b=1"), remaining(&engine, "a=1")), (1, 2));
    assert!(take(&engine, &[("b=1", 1)]) && !take(&engine, &[("b=1", 1)]));
}

#[test]
fn a_request_is_over_only_when_all_its_quotas_are() {
    let quota = |name: &str, key: &str, permits| {
        let mut rule = bucket(name, &[key], permits);
        rule.quota = true;
        rule
    };
    let rules = vec![quota("q", "q", 1), quota("r", "r", 2), bucket("hard", &["h"], 9)];
    let (engine, _) = engine(rules);
    let all = [("q=1", 1), ("r=1", 1), ("h=1", 1)];
    assert!(take(&engine, &all));
    let second = ask(&engine, Verb::Take, &all);
    assert!(second.allowed && second.results[0].verdict.is_over());
    assert_eq!((remaining(&engine, "r=1"), remaining(&engine, "h=1")), (0, 7));
    assert!(!take(&engine, &all));
    assert_eq!(remaining(&engine, "h=1"), 7, "nothing was taken from the others");
}

/// An allowed request takes: one quota of two is a shadow, so it is never over, nor is the
/// request.
#[test]
fn a_quota_in_shadow_is_never_over() {
    let quota = |name: &str, permits| {
        let mut rule = bucket(name, &[name], permits);
        rule.quota = true;
        rule
    };
    let shadow = Rule { enforcement: Enforcement::Shadow, ..quota("s", 2) };
    let (engine, _) = engine(vec![quota("q", 1), shadow, bucket("hard", &["h"], 9)]);
    let all = [("q=1", 1), ("s=1", 1), ("h=1", 1)];
    for left in [(0, 1, 8), (0, 0, 7), (0, 0, 6)] {
        assert!(take(&engine, &all));
        let seen = ["q=1", "s=1", "h=1"].map(|item| remaining(&engine, item));
        assert_eq!(seen, <[u64; 3]>::from(left));
    }
}

/// An item of 0 permits is a peek. If it is over, so is the request, which then takes nothing.
#[test]
fn a_peeked_item_over_its_limit_denies_the_request() {
    let (engine, _) = engine(vec![bucket("a", &["a"], 1), bucket("b", &["b"], 5)]);
    assert!(take(&engine, &[("a=1", 0), ("b=1", 1)]));
    let nothing = Override { permits: 0, unit: Unit::Hour };
    let (a, b) = ([(b"a".as_slice(), b"1".as_slice())], [(b"b".as_slice(), b"1".as_slice())]);
    let target = |entries, limit| Target::Descriptor { domain: "d", entries, limit };
    let items = [Item::of(target(&a, Some(nothing)), 1), Item::of(target(&b, None), 1)];
    assert!(!decide(&engine, Verb::Take, &items).allowed);
    assert_eq!(remaining(&engine, "b=1"), 4, "a limit of nothing that came along");
}

#[test]
fn refunds_go_beside_takes() {
    let (engine, _) = engine(vec![bucket("a", &["a"], 5), bucket("b", &["b"], 5)]);
    assert!(take(&engine, &[("a=1", 4), ("b=1", 4)]));
    let entry = |key: &'static str| [(key.as_bytes(), b"1".as_slice())];
    let (a, b) = (entry("a"), entry("b"));
    let target = |entries| Target::Descriptor { domain: "d", entries, limit: None };
    let items = [Item { refund: true, ..Item::of(target(&a), 3) }, Item::of(target(&b), 1)];
    let answer = decide(&engine, Verb::Take, &items);
    assert!(answer.allowed);
    assert_eq!(answer.results[0].verdict, Verdict::Refunded(3));
    assert_eq!((remaining(&engine, "a=1"), remaining(&engine, "b=1")), (4, 0));
}

#[test]
fn limits_that_come_with_the_call_are_taken_together_with_rules() {
    let (engine, _) = engine(vec![bucket("a", &["a"], 5)]);
    let limit = Inline { capacity: 2, count: 1, period_ns: SECOND };
    let entries = [(b"a".as_slice(), b"1".as_slice())];
    let window = Override { permits: 3, unit: Unit::Hour };
    let items = [
        Item::of(Target::Descriptor { domain: "d", entries: &entries, limit: None }, 1),
        Item::of(Target::Inline { limit, key: b"k" }, 1),
        Item::of(Target::Descriptor { domain: "d", entries: &entries, limit: Some(window) }, 1),
    ];
    let allowed: Vec<bool> = (0..3).map(|_| decide(&engine, Verb::Take, &items).allowed).collect();
    assert_eq!(allowed, [true, true, false]);
    assert_eq!(remaining(&engine, "a=1"), 3);
    let peeked = decide(&engine, Verb::Peek, &items);
    assert_eq!(peeked.results[2].remaining, Some(0), "a window that comes along counts every hit");
    assert_eq!(peeked.results[2].display_limit.unwrap().to_string(), "3 per hour");
}

#[test]
fn a_request_has_a_bound() {
    let (engine, _) = engine(vec![bucket("a", &["a"], 100)]);
    let entries = [(b"a".as_slice(), b"1".as_slice())];
    let item = Item::of(Target::Descriptor { domain: "d", entries: &entries, limit: None }, 1);
    let max = vec![item; MAX_ITEMS];
    assert!(decide(&engine, Verb::Take, &max).allowed);
    let more = vec![item; MAX_ITEMS + 1];
    let Decided::Now(refused) =
        engine.decide(&Request { verb: Verb::Take, items: &more, counts_denied: false })
    else {
        unreachable!()
    };
    assert_eq!(refused, Err(EngineError::TooManyItems { given: 65, max: 64 }));
    assert_eq!(remaining(&engine, "a=1"), 36);
}

/// A quota that another caller has used up meanwhile is over, whatever an earlier peek returned.
#[test]
fn threads_pass_no_more_than_their_quotas_have() {
    let quota = |name: &str| Rule { quota: true, ..bucket(name, &[name], 1) };
    let (engine, _) = engine(vec![quota("q"), quota("r")]);
    for round in 0..500 {
        let (q, r) = (format!("q={round}"), format!("r={round}"));
        let begin = std::sync::Barrier::new(3);
        let passed: usize = std::thread::scope(|scope| {
            let calls: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        begin.wait();
                        usize::from(take(&engine, &[(&q, 1), (&r, 1)]))
                    })
                })
                .collect();
            calls.into_iter().map(|call| call.join().unwrap()).sum()
        });
        // Both quotas may be taken by one call, or one by each of two calls.
        assert!((1..=2).contains(&passed), "{passed} in round {round}");
        assert_eq!((remaining(&engine, &q), remaining(&engine, &r)), (0, 0));
    }
}

#[test]
fn threads_pass_exactly_the_limit_between_them() {
    let (engine, _) = engine(vec![per_minute("a", &["a"], 100), per_minute("b", &["b"], 1000)]);
    let passed: usize = std::thread::scope(|scope| {
        let calls = (0..4).map(|caller| {
            let engine = &engine;
            scope.spawn(move || {
                let both = [("a=1", 1), ("b=1", 1)];
                (0..200).filter(|call| take(engine, &both[..=(call + caller) % 2])).count()
            })
        });
        let calls: Vec<_> = calls.collect();
        calls.into_iter().map(|calls| calls.join().unwrap()).sum()
    });
    assert_eq!(passed, 100);
}

/// Two rates for the same calls: a call takes from both or from none, and reports the one that
/// denies it.
#[test]
fn two_rates_on_one_match_both_apply() {
    let rules = || vec![bucket("burst", &["u"], 2), per_minute("daily", &["u"], 3)];
    let (engine, clock) = engine(rules());
    let ask = |permits| {
        let entries = [(b"u".as_slice(), b"1".as_slice())];
        let target = Target::Descriptor { domain: "d", entries: &entries, limit: None };
        let answer = decide(&engine, Verb::Take, &[Item::of(target, permits)]);
        assert_eq!(answer.results.len(), 1, "one part for one item");
        let result = &answer.results[0];
        (answer.allowed, result.rule.as_ref().unwrap().name.to_string(), result.remaining)
    };
    let expected = |allowed, rule: &str, left| (allowed, rule.to_owned(), Some(left));
    assert_eq!(ask(1), expected(true, "burst", 1));
    assert_eq!(ask(3), expected(false, "burst", 1), "neither has taken any of it");
    assert_eq!(ask(1), expected(true, "burst", 0));
    clock.advance(Duration::from_nanos(2 * SECOND));
    assert_eq!(ask(1), expected(true, "daily", 0));
    assert_eq!(ask(1), expected(false, "daily", 0));
    // By its name a rule is decided alone.
    let values: [&[u8]; 1] = [b"1"];
    let burst = Target::Rule { name: "burst", values: &values };
    assert!(decide(&engine, Verb::Take, &[Item::of(burst, 1)]).allowed);
    // Together with other items of the request, all or nothing.
    let (a, b) = ([(b"u".as_slice(), b"2".as_slice())], [(b"none".as_slice(), b"x".as_slice())]);
    let target = |entries| Target::Descriptor { domain: "d", entries, limit: None };
    let items = [Item::of(target(&b), 1), Item::of(target(&a), 1), Item::of(target(&a), 2)];
    let answer = decide(&engine, Verb::Take, &items);
    assert!(!answer.allowed && answer.results.len() == 3);
    assert_eq!(answer.results[0].verdict, Verdict::Unmatched);
    assert!(answer.results[1].verdict.is_over() && answer.results[2].verdict.is_over());
    let answer = decide(&engine, Verb::Take, &items[..2]);
    assert!(answer.allowed);
    assert_eq!(answer.results[1].remaining, Some(1));
}
