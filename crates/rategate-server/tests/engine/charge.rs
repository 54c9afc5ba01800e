//! Looks for room, and rules whose takes count although they do not fit.

use std::time::Duration;

use fastrand::Rng;
use rategate::policy::Anchor;
use rategate::{AnyPolicy, FixedWindow, Gcra, SlidingLog};
use rategate_server::engine::Verb;
use rategate_server::rule::{Limit, Look, Over, Rule};

use crate::engine::common::*;

fn of(name: &str, policy: impl Into<AnyPolicy>) -> Rule {
    Rule { limit: Limit::Policy(policy.into()), ..bucket(name, &[name], 1) }
}

fn charging(rule: Rule) -> Rule {
    Rule { over: Over::Charge, ..rule }
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
            ask(&engine, Verb::Charge, &[(item, 1)]);
        }
        // Together with others it denies the call, too.
        assert!(!take(&engine, &[(item, 0), ("unmatched=1", 1)]));
    }
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
