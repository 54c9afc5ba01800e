//! All or nothing, in every combination: quotas, shadow rules, peeks, refunds, and one counter
//! twice.

use proptest::prelude::*;
use rategate_server::engine::{Answer, Item, Target, Verb, Verdict};
use rategate_server::rule::{Enforcement, Rule};

use crate::engine::common::*;

/// One rule of each kind.
const NAMES: [&str; 6] = ["a", "b", "q", "r", "s", "t"];

fn rules() -> Vec<Rule> {
    let quota = |rule: Rule| Rule { quota: true, ..rule };
    let shadow = |rule: Rule| Rule { enforcement: Enforcement::Shadow, ..rule };
    vec![
        bucket("a", &["a"], 5),
        bucket("b", &["b"], 3),
        quota(bucket("q", &["q"], 3)),
        quota(bucket("r", &["r"], 2)),
        shadow(bucket("s", &["s"], 2)),
        quota(shadow(bucket("t", &["t"], 2))),
    ]
}

/// An item: the index of its rule, permits, and `true` for a refund.
type RequestedItem = (usize, u64, bool);

fn ask_for(engine: &TestEngine, items: &[RequestedItem]) -> Answer {
    let entries = NAMES.map(|name| [(name.as_bytes(), b"1".as_slice())]);
    let items: Vec<Item<'_>> = items
        .iter()
        .map(|&(rule, permits, refund)| {
            let target = Target::Descriptor { domain: "d", entries: &entries[rule], limit: None };
            Item { refund, ..Item::of(target, permits) }
        })
        .collect();
    decide(engine, Verb::Take, &items)
}

fn left(engine: &TestEngine) -> [u64; 6] {
    NAMES.map(|name| remaining(engine, &format!("{name}=1")))
}

proptest! {
    #[test]
    fn all_is_taken_or_nothing(
        requests in prop::collection::vec(
            prop::collection::vec((0..6_usize, 0..4_u64, prop::bool::weighted(0.15)), 1..6), 1..30),
    ) {
        let (engine, _) = engine(rules());
        for items in requests {
            let before = left(&engine);
            let answer = ask_for(&engine, &items);
            let after = left(&engine);
            if !answer.allowed {
                prop_assert_eq!(before, after, "denied: {:?} {:?}", &items, &answer);
                continue;
            }
            for (rule, name) in NAMES.iter().enumerate() {
                let of_rule =
                    || items.iter().zip(&answer.results).filter(|((at, ..), _)| *at == rule);
                let takes =
                    || of_rule().filter(|((_, permits, refund), _)| *permits > 0 && !refund);
                let is_over =
                    takes().any(|(_, result)| matches!(result.verdict, Verdict::Denied { .. }));
                let can_be_over = !matches!(*name, "a" | "b");
                prop_assert!(can_be_over || !is_over, "{} is over: {:?} \
                    {:?}", name, &items, &answer);
                let taken: u64 =
                    if is_over { 0 } else { takes().map(|((_, permits, _), _)| permits).sum() };
                let back = of_rule().map(|(_, result)| match result.verdict {
                    Verdict::Refunded(permits) => permits,
                    _ => 0,
                });
                let back: u64 = back.sum();
                prop_assert_eq!(
                    before[rule] + back,
                    after[rule] + taken,
                    "{}: {:?} {:?}",
                    name,
                    &items,
                    &answer
                );
            }
        }
    }
}

/// A shadow quota never makes a request take less from the others than the answer says.
#[test]
fn a_quota_is_never_over() {
    let (engine, _) = engine(rules());
    assert!(ask_for(&engine, &[(2, 3, false)]).allowed, "q is full from now on");
    for other in [(5, 1, false), (3, 0, false), (3, 1, true)] {
        let before = left(&engine);
        let answer = ask_for(&engine, &[other, (2, 1, false), (0, 1, false)]);
        assert!(answer.allowed, "{other:?}: one quota is not over");
        assert_eq!(before[0] - left(&engine)[0], 1, "{other:?}: and what passes is counted");
    }
}

/// A denied client may repeat the request, refunds included.
#[test]
fn a_denied_request_refunds_nothing() {
    let (engine, _) = engine(rules());
    assert!(ask_for(&engine, &[(0, 4, false), (1, 3, false)]).allowed);
    for _ in 0..2 {
        let answer = ask_for(&engine, &[(0, 2, true), (1, 1, false)]);
        assert!(!answer.allowed);
        let result = &answer.results[0];
        assert_eq!((result.verdict, result.remaining), (Verdict::Refunded(0), Some(1)));
        assert_eq!(left(&engine)[..2], [1, 0]);
    }
}

/// The refunds of two items of one counter are reported separately.
#[test]
fn refunds_of_one_counter_are_split() {
    let (engine, _) = engine(rules());
    assert!(ask_for(&engine, &[(0, 4, false)]).allowed);
    let verdicts = |answer: &Answer| [0, 1].map(|result| answer.results[result].verdict);
    let answer = ask_for(&engine, &[(0, 1, true), (0, 2, true)]);
    assert_eq!(verdicts(&answer), [Verdict::Refunded(1), Verdict::Refunded(2)]);
    let answer = ask_for(&engine, &[(0, 2, true), (0, 2, true)]);
    assert_eq!(
        verdicts(&answer),
        [Verdict::Refunded(1), Verdict::Refunded(0)],
        "no more than was out"
    );
}

/// A denied request counts only if its client has enabled that.
#[test]
fn what_is_denied_is_counted_by_request() {
    let (engine, _) = engine(rules());
    let entries = NAMES.map(|name| [(name.as_bytes(), b"1".as_slice())]);
    let target =
        |rule: usize| Target::Descriptor { domain: "d", entries: &entries[rule], limit: None };
    let items = [Item::of(target(0), 1), Item::of(target(1), 4)];
    for (counts_denied, is_left) in [(false, 5), (true, 4), (false, 4), (true, 3)] {
        let request =
            rategate_server::engine::Request { verb: Verb::Take, items: &items, counts_denied };
        let rategate_server::engine::Decided::Now(Ok(answer)) = engine.decide(&request) else {
            panic!()
        };
        assert!(!answer.allowed);
        assert_eq!(left(&engine)[..2], [is_left, 3]);
    }
}
