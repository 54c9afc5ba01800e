//! Counters after a restart.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use rategate::Clock as _;
use rategate_server::engine::{EngineError, Item, NotRestored, Override, Target, Verb};
use rategate_server::rule::{Limit, Scheduled, Unit};

use crate::engine::common::{
    MONDAY, SECOND, TestEngine, bucket, decide, per_minute, remaining, take,
};
use crate::state::{burst, engine_at, engine_now, keeper, left};

fn of_window(engine: &TestEngine, verb: Verb, permits: u64) -> u64 {
    let entries = [(&b"own"[..], &b"x"[..])];
    let limit = Some(Override { permits: 10, unit: Unit::Hour });
    let target = Target::Descriptor { domain: "d", entries: &entries, limit };
    decide(engine, verb, &[Item::of(target, permits)]).results[0].remaining.unwrap()
}

/// Permits granted before are not granted again, and those that have returned are there, to the
/// nanosecond.
#[test]
fn counters_go_on() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("state");
    let rules = || vec![bucket("b", &["who"], 10), per_minute("w", &["user", "path"], 5)];
    let (before, clock) = engine_now(rules());
    clock.advance(Duration::from_nanos(20 * SECOND));
    assert!(take(&before, &[("who=ann", 7), ("user=ann,path=/", 4)]));
    assert!(take(&before, &[("who=bob", 10)]));
    let _ = before.inline(burst(8), b"x", Verb::Take, 8).unwrap();
    let _ = before.inline(burst(9), b"x", Verb::Take, 2).unwrap();
    let _ = of_window(&before, Verb::Take, 6);
    let saved_at_ns = clock.now_ns();
    let saved = keeper(&path).save(&before).unwrap();
    assert_eq!(saved.keys, 6);
    assert_eq!(saved.bytes, std::fs::metadata(&path).unwrap().len());

    let (after, clock) = engine_at(rules(), 23 * SECOND);
    let reported = keeper(&path).start(&after).unwrap().unwrap();
    assert_eq!((reported.keys, reported.rules.len(), reported.others.len()), (6, 2, 0));
    assert!(reported.is_same_config);
    assert_eq!(reported.saved_at_ns, saved_at_ns);
    assert_eq!(remaining(&after, "who=ann"), 6);
    assert_eq!(remaining(&after, "who=bob"), 3);
    assert_eq!(remaining(&after, "user=ann,path=/"), 1);
    assert_eq!((left(&after, burst(8), "x"), left(&after, burst(9), "x")), (3, 9));
    assert_eq!(left(&after, burst(8), "y"), 8);
    assert_eq!(of_window(&after, Verb::Peek, 1), 4);
    // The window ends with the minute, not a minute after the restart.
    clock.advance(Duration::from_nanos(37 * SECOND - 1));
    assert_eq!(remaining(&after, "user=ann,path=/"), 1);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(remaining(&after, "user=ann,path=/"), 5);
}

/// Rules are known by name; one of another kind or with other keys starts afresh, and is
/// reported.
#[test]
fn rules_that_have_changed() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("state");
    let (before, _) = engine_now(vec![
        bucket("larger", &["a"], 10),
        bucket("kind", &["b"], 10),
        bucket("keys", &["c"], 10),
        bucket("gone", &["d"], 10),
    ]);
    for item in ["a=x", "b=x", "c=x", "d=x"] {
        assert!(take(&before, &[(item, 10)]));
    }
    let _ = keeper(&path).save(&before).unwrap();
    let (after, _) = engine_at(
        vec![
            bucket("larger", &["a"], 20),
            per_minute("kind", &["b"], 10),
            bucket("keys", &["c", "c2"], 10),
        ],
        0,
    );
    let reported = keeper(&path).start(&after).unwrap().unwrap();
    assert_eq!(reported.rules, [Arc::<str>::from("larger")]);
    let why = |name: &str| &reported.others.iter().find(|(of, _)| **of == *name).unwrap().1;
    assert!(matches!(why("kind"), NotRestored::OtherPolicy));
    assert!(matches!(why("keys"), NotRestored::OtherEntries));
    assert!(matches!(why("gone"), NotRestored::NoSuchRule));
    assert_eq!(remaining(&after, "a=x"), 0, "nothing was left");
    assert_eq!(remaining(&after, "b=x"), 10);
    assert_eq!(remaining(&after, "c=x,c2=y"), 10);
}

/// The recovery of restored keys is unknown, so their limits keep their tiers for the longest
/// time.
#[test]
fn limits_that_came_with_calls_keep_their_places() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("state");
    let (before, _) = engine_now(Vec::new());
    for nth in 0..62 {
        let _ = before.inline(burst(100 + nth), b"x", Verb::Take, 100).unwrap();
    }
    let _ = keeper(&path).save(&before).unwrap();
    let (after, clock) = engine_at(Vec::new(), 10 * SECOND);
    let _ = keeper(&path).start(&after).unwrap().unwrap();
    let one_more = || after.inline(burst(1), b"x", Verb::Take, 1);
    clock.advance(Duration::from_nanos(80 * SECOND));
    assert_eq!(one_more(), Err(EngineError::TooManyLimits { max: 62 }));
    for nth in 0..62 {
        assert_eq!(left(&after, burst(100 + nth), "x"), 90 + nth);
    }
    clock.advance(Duration::from_nanos(100 * SECOND));
    assert!(one_more().is_ok());
}

/// Counters in use are not replaced.
#[test]
fn calls_before_the_restart_count() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("state");
    let rules = || vec![bucket("b", &["who"], 10)];
    let (before, _) = engine_now(rules());
    assert!(take(&before, &[("who=ann", 10)]));
    let _ = keeper(&path).save(&before).unwrap();
    let (after, _) = engine_at(rules(), 0);
    assert!(take(&after, &[("who=ann", 1)]));
    let reported = keeper(&path).start(&after).unwrap().unwrap();
    assert!(matches!(reported.others[..], [(_, NotRestored::InUse)]));
}

/// Saved at intervals, and at the end.
#[test]
fn a_thread_saves() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("state");
    let (engine, _) = engine_now(vec![bucket("b", &["who"], 10)]);
    let keeper = Arc::new(keeper(&path));
    assert!(keeper.start(&engine).unwrap().is_none());
    let (sender, reported) = mpsc::channel();
    let on_saved = move |saved: &Result<_, _>| {
        let _ = sender.send(saved.is_ok());
    };
    let saver = keeper.run(&engine, Duration::from_millis(1), on_saved.clone()).unwrap();
    assert!(reported.recv().unwrap() && reported.recv().unwrap());
    drop(saver);
    let _ = reported.try_iter().count();
    let last = keeper.run(&engine, Duration::from_secs(3_600), on_saved).unwrap();
    assert!(reported.recv_timeout(Duration::from_secs(10)).unwrap(), "at once, too");
    assert!(take(&engine, &[("who=ann", 10)]));
    last.stop();
    assert_eq!(keeper.stats().keys, 1);
    assert_eq!(keeper.stats().saved_at_ns, MONDAY);
    let (after, _) = engine_at(vec![bucket("b", &["who"], 10)], 0);
    let _ = keeper.start(&after).unwrap().unwrap();
    assert_eq!(remaining(&after, "who=ann"), 0);
}

/// A rule that is unlimited at the hour of the restart keeps its earlier counters.
#[test]
fn a_limit_of_other_hours_is_kept() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("state");
    let rules = || {
        let mut rule = bucket("b", &["who"], 10);
        let (limit, display_limit) =
            (std::mem::replace(&mut rule.limit, Limit::Unlimited), rule.display_limit);
        rule.schedule.push(Scheduled {
            days: [true; 7],
            from_s: 0,
            until_s: 60,
            zone: "UTC".into(),
            limit,
            display_limit,
        });
        vec![rule]
    };
    let (before, clock) = engine_now(rules());
    clock.advance(Duration::from_nanos(58 * SECOND));
    before.tick(clock.now_ns());
    assert!(take(&before, &[("who=ann", 10)]));
    clock.advance(Duration::from_nanos(4 * SECOND));
    before.tick(clock.now_ns());
    assert!(take(&before, &[("who=ann", 10)]), "free");
    let _ = keeper(&path).save(&before).unwrap();
    let (after, clock) = engine_at(rules(), 62 * SECOND);
    let reported = keeper(&path).start(&after).unwrap().unwrap();
    assert!(reported.others.is_empty(), "{reported:?}");
    // Its hour, by a wall clock that was set back.
    after.tick(MONDAY + SECOND);
    assert_eq!(remaining(&after, "who=ann"), 4);
    clock.advance(Duration::from_nanos(SECOND));
    assert_eq!(remaining(&after, "who=ann"), 5);
}
