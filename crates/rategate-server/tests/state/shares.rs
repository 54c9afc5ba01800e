//! Permits in flight of a rule with shares, after a restart.

use std::time::Duration;

use rategate_server::config::load_text;
use rategate_server::engine::{Cost, Item, OnCorruptSnapshot, Started, Target, UniqueId};
use rategate_server::rule::Rule;

use crate::engine::common::{SECOND, TestEngine, now};
use crate::state::{engine_at, engine_now, keeper};

const SHARES: &str = r#", { key = "priority", shares = { batch = "30%" } }"#;

fn rules(shares: &str, more: &str) -> Vec<Rule> {
    let text = format!(
        "[[rule]]\nname = \"s\"\nmatch = [\"who\"{shares}]\nalgorithm = \"concurrency\"\nlimit = 10\n\
         {more}"
    );
    load_text("a.toml", &text).unwrap().rules.rules.clone()
}

fn reserve(engine: &TestEngine, number: u8, values: &[&[u8]]) -> bool {
    let items = [Item::of(Target::Rule { name: "s", values }, 1)];
    let ttl = Duration::from_secs(100);
    now(engine.reserve(UniqueId([number; 16]), ttl, &items)).unwrap().answer.allowed
}

/// What is held goes on, also where the rule has got its shares meanwhile.
#[test]
fn what_is_held_fills_the_shares_after_a_restart() {
    let batch: &[&[u8]] = &[b"ann", b"batch"];
    for more in ["", "adaptive = { floor = 1, first = 10 }"] {
        for shares in [SHARES, ""] {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("state");
            let keeper = || keeper(&path, OnCorruptSnapshot::Refuse);
            let (before, _) = engine_now(rules(shares, more));
            let values = if shares.is_empty() { &batch[..1] } else { batch };
            assert!((1..=3).all(|number| reserve(&before, number, values)));
            keeper().save(&before).unwrap();
            let (after, _) = engine_at(rules(SHARES, more), 10 * SECOND);
            let Started::Restored(restored) = keeper().start(&after).unwrap() else { panic!() };
            assert!(restored.others.is_empty(), "{restored:?}");
            assert!(!reserve(&after, 4, batch) && reserve(&after, 4, &[b"ann", b"high"]));
            let target = Target::Rule { name: "s", values };
            let cost = Cost { target, permits: None, usage: None };
            for number in [1, 2] {
                let ended = now(after.commit(UniqueId([number; 16]), &[cost])).unwrap();
                assert!(ended.answer.allowed, "{ended:?}");
            }
            assert!(reserve(&after, 5, batch) && !reserve(&after, 6, batch), "three again");
        }
    }
}
