//! Charges of what was used already, and rules whose takes count although they do not fit.

use std::num::NonZeroU64;
use std::time::Duration;

use fastrand::Rng;
use rategate::charge::Debt;
use rategate::policy::Anchor;
use rategate::{AnyPolicy, Concurrency, FixedWindow, Gcra, SlidingLog};
use rategate_server::engine::{Decided, EngineError, Inline, Item, Request, Target, Verb, Verdict};
use rategate_server::rule::{Limit, Look, Over, Rule};

use crate::engine::common::*;

fn of(name: &str, policy: impl Into<AnyPolicy>) -> Rule {
    Rule { limit: Limit::Policy(policy.into()), ..bucket(name, &[name], 1) }
}

fn charging(rule: Rule) -> Rule {
    Rule { over: Over::Charge, ..rule }
}

fn charged(engine: &TestEngine, item: &str, permits: u64) -> (Verdict, u64, u64) {
    let answer = ask(engine, Verb::Charge, &[(item, permits)]);
    assert!(answer.allowed);
    let result = &answer.results[0];
    (result.verdict, result.remaining.unwrap(), result.debt)
}

/// A denial that is enforced, with the time until the same call passes.
fn denied(seconds: u64) -> Verdict {
    Verdict::Denied { retry_after_ns: NonZeroU64::new(seconds * SECOND), enforced: true }
}

/// A rule that looks for room answers a call for no permits as one for a permit, and takes nothing.
#[test]
fn a_look_for_room_asks_for_one_permit() {
    let minute = Duration::from_secs(60);
    let room = |rule: Rule| Rule { look: Look::Room, ..rule };
    let rules = vec![
        room(bucket("b", &["b"], 5)),
        room(charging(bucket("o", &["o"], 5))),
        room(of("w", FixedWindow::new(5, minute, Anchor::Epoch))),
        room(of("l", SlidingLog::new(5, minute))),
        room(counting(bucket("c", &["c"], 1), 5)),
    ];
    let (engine, clock) = engine(rules);
    clock.set(minute);
    for item in ["b=1", "o=1", "w=1", "l=1", "c=1"] {
        for used in 0..7 {
            let looks = [(Verb::Take, 0), (Verb::Peek, 0), (Verb::Peek, 1)];
            let answers = looks.map(|(verb, permits)| ask(&engine, verb, &[(item, permits)]));
            let [take, peek, one] = answers.map(|answer| (answer.allowed, answer.results));
            assert_eq!(take.0, used < 5, "{item}: {used} used");
            assert_eq!((&take, &peek), (&one, &one), "{item}: {used} used");
            charged(&engine, item, 1);
        }
        // Together with others it denies the call, too.
        assert!(!take(&engine, &[(item, 0), ("unmatched=1", 1)]));
    }
}

#[test]
fn a_charge_counts_whether_it_fits_or_not() {
    let minute = Duration::from_secs(60);
    let window = FixedWindow::new(5, minute, Anchor::Epoch);
    let rules = vec![bucket("b", &["b"], 5), of("w", window), of("l", SlidingLog::new(5, minute))];
    let (engine, clock) = engine(rules);
    for (item, wait_s) in [("b=1", 3), ("w=1", 60), ("l=1", 60)] {
        assert_eq!(charged(&engine, item, 3), (Verdict::Charged(3), 2, 0));
        assert_eq!(charged(&engine, item, 2), (Verdict::Charged(2), 0, 0), "full is no debt");
        let peek = ask(&engine, Verb::Peek, &[(item, 0)]);
        assert_eq!(peek.results[0].verdict, Verdict::Granted, "{item}: full is no debt");
        assert_eq!(charged(&engine, item, 2), (Verdict::Charged(2), 0, 2));
        let take = ask(&engine, Verb::Take, &[(item, 1)]);
        assert_eq!(take.results[0].verdict, denied(wait_s), "{item}");
        assert!(!take.allowed);
        assert_eq!(take.results[0].debt, 2);
    }
    // Even a request for no permits is denied in debt, until the debt has ended.
    assert_eq!(ask(&engine, Verb::Take, &[("b=1", 0)]).results[0].verdict, denied(2));
    clock.advance(Duration::from_secs(2));
    assert!(take(&engine, &[("b=1", 0)]) && !take(&engine, &[("b=1", 1)]));
    assert!(!take(&engine, &[("w=1", 0)]) && !take(&engine, &[("l=1", 0)]));
    clock.advance(Duration::from_secs(58));
    assert!(take(&engine, &[("w=1", 5), ("l=1", 5), ("b=1", 5)]));
}

#[test]
fn charges_of_one_request_are_all_made() {
    let (engine, _) = engine(vec![bucket("a", &["a"], 5), bucket("b", &["b"], 3)]);
    let items = [("a=1", 4), ("b=1", 9), ("a=1", 3), ("unknown=1", 7)];
    let answer = ask(&engine, Verb::Charge, &items);
    assert!(answer.allowed);
    let verdicts: Vec<_> = answer.results.iter().map(|result| result.verdict).collect();
    let expected =
        [Verdict::Charged(4), Verdict::Charged(9), Verdict::Charged(3), Verdict::Unmatched];
    assert_eq!(verdicts, expected);
    assert_eq!((answer.results[0].debt, answer.results[1].debt), (2, 6));
}

#[test]
fn an_inline_limit_is_charged() {
    let (engine, _) = engine(Vec::new());
    let limit = Inline { capacity: 5, count: 1, period_ns: SECOND };
    let item = |permits| Item::of(Target::Inline { limit, key: b"k" }, permits);
    let answer = decide(&engine, Verb::Charge, &[item(8)]);
    let result = &answer.results[0];
    assert_eq!((result.verdict, result.debt), (Verdict::Charged(8), 3));
    let one = engine.inline(limit, b"k", Verb::Take, 1).unwrap();
    assert_eq!(one.verdict, denied(4));
}

#[test]
fn what_takes_no_charge_says_so() {
    let unlimited = Rule { limit: Limit::Unlimited, ..bucket("u", &["u"], 1) };
    let nothing = Rule { limit: Limit::Nothing, ..bucket("n", &["n"], 1) };
    let (engine, _) = engine(vec![of("c", Concurrency::new(2)), unlimited, nothing]);
    for (item, verdict) in [("u=1", Verdict::Charged(0)), ("n=1", Verdict::Charged(0))] {
        assert_eq!(ask(&engine, Verb::Charge, &[(item, 3)]).results[0].verdict, verdict);
    }
    let entries: [(&[u8], &[u8]); 1] = [(b"c", b"1")];
    let target = Target::Descriptor { domain: "d", entries: &entries, limit: None };
    let items = [Item::of(target, 1)];
    let request = Request { verb: Verb::Charge, items: &items, counts_denied: false };
    let Decided::Now(Err(error)) = engine.decide(&request) else { panic!("it is refused") };
    assert!(matches!(error, EngineError::NotForItem { item: 0, .. }), "{error:?}");
}

/// The most that a rule may owe is forgiven, and the answer says how much was counted.
#[test]
fn a_bounded_debt_is_forgiven() {
    let debt = Debt::CARRIED.at_most(Duration::from_secs(10));
    let (engine, _) = engine(vec![Rule { debt, ..bucket("b", &["b"], 5) }]);
    assert_eq!(charged(&engine, "b=1", 100), (Verdict::Charged(15), 0, 10));
    assert_eq!(charged(&engine, "b=1", 100), (Verdict::Charged(0), 0, 10));
}

/// A reload keeps debts, and another way for them to end holds for later ones.
#[test]
fn a_reload_keeps_debts() {
    let window = FixedWindow::new(5, Duration::from_secs(60), Anchor::Epoch);
    let (engine, clock) = engine(vec![of("w", window)]);
    assert_eq!(charged(&engine, "w=1", 7).2, 2);
    engine.load(set(vec![Rule { debt: Debt::CARRIED, ..of("w", window) }])).unwrap();
    assert_eq!(ask(&engine, Verb::Peek, &[("w=1", 1)]).results[0].debt, 2);
    clock.advance(Duration::from_secs(60));
    assert_eq!(charged(&engine, "w=1", 7), (Verdict::Charged(7), 0, 2));
    clock.advance(Duration::from_secs(60));
    assert_eq!(remaining(&engine, "w=1"), 3, "the window pays two");
}

/// A rule that charges what is over answers by the count after the addition, whatever its
/// algorithm is, and a denial says exactly when the same call passes.
#[test]
fn a_rule_that_charges_is_a_count() {
    for seed in 0..300 {
        let random = &mut Rng::with_seed(seed);
        let (permits, period) = (random.u64(1..=9), Duration::from_secs(random.u64(1..=9)));
        let window = FixedWindow::new(permits, period, Anchor::Epoch);
        let rate = format!("{permits}/{}s", period.as_secs());
        let policies: [AnyPolicy; 3] = [
            window.into(),
            SlidingLog::new(permits, period).into(),
            Gcra::new(rate.parse().unwrap(), permits).unwrap().into(),
        ];
        let policy = policies[usize::try_from(seed % 3).unwrap()];
        let (engine, clock) = engine(vec![charging(of("r", policy)), of("plain", policy)]);
        for _ in 0..60 {
            clock.advance(Duration::from_millis(random.u64(0..2_000) * random.u64(0..=1)));
            let hits = random.u64(0..=permits + 1);
            let before = ask(&engine, Verb::Peek, &[("r=1", 0)]).results[0].clone();
            let used = permits - before.remaining.unwrap() + before.debt;
            let result = ask(&engine, Verb::Take, &[("r=1", hits)]).results[0].clone();
            assert_eq!(result.verdict.is_over(), used + hits > permits, "seed {seed}");
            // Charged through the verb, a rule that refuses counts the same.
            ask(&engine, Verb::Charge, &[("plain=1", hits)]);
            let plain = ask(&engine, Verb::Peek, &[("plain=1", 0)]).results[0].clone();
            assert_eq!((plain.remaining, plain.debt), (result.remaining, result.debt));
            let Some(wait) = result.verdict.retry_after_ns() else {
                assert!(!result.verdict.is_over() || hits > permits, "seed {seed}");
                continue;
            };
            let wait = Duration::from_nanos(wait.get());
            clock.advance(wait.checked_sub(Duration::from_nanos(1)).unwrap());
            let peek = |engine| ask(engine, Verb::Peek, &[("r=1", hits)]).allowed;
            assert!(!peek(&engine), "seed {seed}: a nanosecond sooner");
            clock.advance(Duration::from_nanos(1));
            assert!(peek(&engine), "seed {seed}: {hits} of {permits}");
        }
    }
}
