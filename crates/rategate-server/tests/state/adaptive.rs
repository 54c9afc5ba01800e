//! Limits that were found, after a restart.

use std::time::Duration;

use rategate::adaptive::Outcome;
use rategate_server::config::load_text;
use rategate_server::engine::{
    Cost, Item, Lease, LeaseVerb, NotRestored, OnCorruptSnapshot, Restored, Started, Target,
    UniqueId,
};
use rategate_server::rule::Rule;

use crate::engine::common::{SECOND, TestEngine, now};
use crate::state::{engine_at, engine_now, keeper};

fn rules(adaptive: &str) -> Vec<Rule> {
    let text = format!(
        "[[rule]]\nname = \"s\"\nmatch = [\"who\"]\nalgorithm = \"concurrency\"\nlimit = 50\n\
         adaptive = {adaptive}"
    );
    load_text("a.toml", &text).unwrap().rules.rules.clone()
}

const AIMD: &str = r#"{ floor = 2, first = 10, method = "aimd" }"#;

fn found(engine: &TestEngine, who: &str) -> (u64, u64) {
    let status = engine.adaptive("s", &[who.as_bytes()]).unwrap();
    (status.limit, status.in_flight)
}

fn lease(engine: &TestEngine, verb: LeaseVerb, number: u8, who: &str) -> bool {
    let values: &[&[u8]] = &[who.as_bytes()];
    let lease = Lease { name: UniqueId([number; 16]), rule: "s", values, permits: 1 };
    now(engine.lease(verb, &lease)).unwrap().allowed
}

fn target() -> Target<'static> {
    Target::Rule { name: "s", values: &[b"ann"] }
}

fn commit(engine: &TestEngine, number: u8, outcome: Outcome) -> bool {
    let id = UniqueId([number; 16]);
    engine.expect_outcome(id, &[target()], outcome);
    let cost = Cost { target: target(), permits: None, usage: None };
    now(engine.commit(id, &[cost])).unwrap().answer.allowed
}

fn restored(started: Started) -> Restored {
    match started {
        Started::Restored(restored) => restored,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_found_and_what_is_held_go_on() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("state");
    let keeper = || keeper(&path, OnCorruptSnapshot::Refuse);
    let (before, clock) = engine_now(rules(AIMD));
    // Six are reserved, and then the limit falls to 4: they stay.
    for number in 1..=6 {
        let items = [Item::of(target(), 1)];
        let ttl = Duration::from_secs(100);
        assert!(now(before.reserve(UniqueId([number; 16]), ttl, &items)).unwrap().answer.allowed);
    }
    for _ in 0..4 {
        assert!(lease(&before, LeaseVerb::Take, 50, "ann"));
        clock.advance(Duration::from_millis(1));
        assert!(lease(&before, LeaseVerb::Release(Outcome::Dropped), 50, "ann"));
    }
    assert!(!lease(&before, LeaseVerb::Take, 50, "ann"));
    assert!(lease(&before, LeaseVerb::Take, 60, "bob"));
    assert_eq!((found(&before, "ann"), found(&before, "bob")), ((6, 6), (10, 1)));
    keeper().save(&before).unwrap();

    let (after, clock) = engine_at(rules(AIMD), 10 * SECOND);
    let reported = restored(keeper().start(&after).unwrap());
    assert!(reported.others.is_empty(), "{reported:?}");
    // A lease ends with the process.
    assert_eq!((found(&after, "ann"), found(&after, "bob")), ((6, 6), (10, 0)));
    assert!(!lease(&after, LeaseVerb::Take, 50, "ann"));
    // The starts of what is held again are unknown, so their ends are no samples.
    assert!(commit(&after, 1, Outcome::Dropped) && commit(&after, 2, Outcome::Served));
    assert_eq!(found(&after, "ann"), (6, 4));
    assert!(lease(&after, LeaseVerb::Take, 50, "ann"));
    assert!(lease(&after, LeaseVerb::Release(Outcome::Served), 50, "ann"));
    assert_eq!(found(&after, "ann"), (7, 4), "it goes on from there");
    clock.advance(Duration::from_secs(90));
    assert_eq!(found(&after, "ann"), (7, 0), "nor are their ends by time");

    // Under another method and other bounds the limit is as near as they allow.
    let knee = "{ floor = 7, first = 20 }";
    let (other, _) = engine_at(rules(knee), 10 * SECOND);
    assert!(restored(keeper().start(&other).unwrap()).others.is_empty());
    assert_eq!(found(&other, "ann"), (7, 6));
    // Ten minutes later nothing of it is known.
    let (late, _) = engine_at(rules(AIMD), 601 * SECOND);
    assert!(restored(keeper().start(&late).unwrap()).others.is_empty());
    assert_eq!(found(&late, "ann"), (10, 0));
    // A rule with other entries begins anew, and says so.
    let mut renamed = rules(AIMD);
    renamed[0].entries[0].key = "whom".into();
    let (renamed, _) = engine_at(renamed, 10 * SECOND);
    let reported = restored(keeper().start(&renamed).unwrap());
    assert!(matches!(&reported.others[0], (_, NotRestored::OtherEntries)), "{reported:?}");
    assert_eq!(found(&renamed, "ann"), (10, 0));
}
