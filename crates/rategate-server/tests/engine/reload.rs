//! Reloads of rules.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rategate_server::engine::{Engine, EngineSettings, ItemResult, Observer, Verb, Verdict, Watch};
use rategate_server::rule::{CounterLocation, DisplayLimit, Limit, Rule, Scheduled, Unit};

use crate::engine::common::*;

#[test]
fn counters_are_carried_over_by_the_rules_name() {
    let (engine, _) = engine(vec![bucket("kept", &["a"], 5), bucket("gone", &["b"], 5)]);
    assert!(take(&engine, &[("a=1", 4)]) && take(&engine, &[("b=1", 4)]));
    let loaded =
        engine.load(set(vec![bucket("new", &["c"], 5), bucket("kept", &["a"], 7)])).unwrap();
    let names = |names: &[Arc<str>]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names(&loaded.changed), ["kept"]);
    assert_eq!(
        (names(&loaded.added), names(&loaded.removed)),
        (vec!["new".to_owned()], vec!["gone".to_owned()])
    );
    assert_eq!(remaining(&engine, "a=1"), 1, "what is left stays left");
    assert!(rule_name(&ask(&engine, Verb::Peek, &[("b=1", 1)]), 0).is_none());
    // A rule that was removed starts afresh.
    engine.load(set(vec![bucket("kept", &["a"], 7), bucket("gone", &["b"], 5)])).unwrap();
    assert_eq!(remaining(&engine, "b=1"), 5);
}

#[test]
fn a_limit_below_what_is_used_frees_nothing() {
    let (engine, clock) = engine(vec![per_minute("r", &["a"], 10)]);
    assert!(take(&engine, &[("a=1", 8)]));
    engine.load(set(vec![per_minute("r", &["a"], 3)])).unwrap();
    assert!(!take(&engine, &[("a=1", 1)]));
    engine.load(set(vec![per_minute("r", &["a"], 9)])).unwrap();
    assert!(take(&engine, &[("a=1", 1)]) && !take(&engine, &[("a=1", 1)]));
    clock.advance(Duration::from_nanos(60 * SECOND));
    assert!(take(&engine, &[("a=1", 9)]));
}

#[test]
fn other_entries_begin_anew_and_say_so_and_another_kind_of_limit_does_not() {
    let (engine, _) = engine(vec![bucket("r", &["a"], 5), bucket("s", &["b"], 5)]);
    assert!(take(&engine, &[("a=1", 4)]) && take(&engine, &[("b=1", 4)]));
    let loaded =
        engine.load(set(vec![per_minute("r", &["a"], 5), bucket("s", &["c"], 5)])).unwrap();
    let why: Vec<_> = loaded.restarted.iter().map(|it| (&*it.rule, &*it.why)).collect();
    assert_eq!(why, [("s", "the keys of its entries change")]);
    assert_eq!((remaining(&engine, "a=1"), remaining(&engine, "c=1")), (1, 5));
}

#[test]
fn a_rule_that_was_opened_for_a_while_still_knows() {
    let (engine, _) = engine(vec![bucket("r", &["a"], 5)]);
    assert!(take(&engine, &[("a=1", 4)]));
    let mut open = bucket("r", &["a"], 5);
    open.limit = Limit::Unlimited;
    engine.load(set(vec![open])).unwrap();
    assert!(take(&engine, &[("a=1", 1000)]));
    engine.load(set(vec![bucket("r", &["a"], 5)])).unwrap();
    assert_eq!(remaining(&engine, "a=1"), 1);
}

#[test]
fn a_schedule_is_in_force_at_its_time() {
    let mut rule = per_minute("r", &["a"], 1);
    let Limit::Policy(_) = rule.limit else { unreachable!() };
    let busy = per_minute("r", &["a"], 3);
    rule.schedule.push(Scheduled {
        days: [true, true, true, true, true, false, false],
        from_s: 22 * 3600,
        until_s: 6 * 3600,
        zone: "Europe/Berlin".into(),
        limit: busy.limit,
        display_limit: DisplayLimit { permits: 3, multiplier: 1, unit: Unit::Minute },
    });
    let (engine, clock) = engine(vec![rule.clone()]);
    // Monday 00:00 UTC is 02:00 in Berlin, and Sunday night is not in the schedule.
    let at = |hours: u64| rule.at(MONDAY + hours * 3600 * SECOND).1.permits;
    assert_eq!([at(0), at(3), at(19), at(20), at(23)], [1, 1, 1, 3, 3]);
    assert_eq!(
        [at(24 + 3), at(24 + 4), at(5 * 24 + 3), at(5 * 24 + 4), at(5 * 24 + 21)],
        [3, 1, 3, 1, 1]
    );
    assert!(take(&engine, &[("a=1", 1)]) && !take(&engine, &[("a=1", 1)]));
    clock.advance(Duration::from_nanos(20 * 3600 * SECOND));
    engine.tick(MONDAY + 20 * 3600 * SECOND);
    assert!(take(&engine, &[("a=1", 3)]) && !take(&engine, &[("a=1", 1)]));
    assert_eq!(
        ask(&engine, Verb::Peek, &[("a=1", 1)]).results[0].display_limit.unwrap().permits,
        3
    );
}

#[test]
fn ten_thousand_rules_are_loaded_and_loaded_again() {
    let rules = |burst| {
        (0..10_000)
            .map(|i| bucket(&format!("r{i}"), &[&format!("k{i}")], burst))
            .collect::<Vec<_>>()
    };
    let (engine, _) = engine(rules(5));
    assert!(take(&engine, &[("k77=1", 4)]));
    let loaded = engine.load(set(rules(6))).unwrap();
    assert_eq!(loaded.changed.len(), 10_000);
    assert_eq!(remaining(&engine, "k77=1"), 1);
}

#[test]
fn a_small_capacity_is_respected() {
    for keys in [0, 1, 1000] {
        let settings = EngineSettings { max_keys: keys, inline_keys: keys, ..SMALL };
        let engine = Engine::new(rategate::ManualClock::new(), settings);
        engine.load(set(vec![bucket("r", &["a"], 5)])).unwrap();
        assert!(take(&engine, &[("a=1", 5)]) && !take(&engine, &[("a=1", 1)]));
    }
}

/// Rules that are loaded while wall clock and engine clock differ follow the wall clock.
#[test]
fn a_reload_goes_by_the_wall_clock() {
    let (engine, clock) = engine(Vec::new());
    let mut rule = bucket("b", &["who"], 10);
    let evening = bucket("evening", &["who"], 3);
    rule.schedule.push(Scheduled {
        days: [true; 7],
        from_s: 20 * 3600,
        until_s: 24 * 3600,
        zone: "UTC".into(),
        limit: evening.limit,
        display_limit: evening.display_limit,
    });
    engine.tick(MONDAY + 20 * 3600 * SECOND);
    clock.advance(Duration::from_nanos(SECOND / 2));
    engine.load(set(vec![rule])).unwrap();
    assert_eq!(remaining(&engine, "who=ann"), 3, "it is evening");
}

/// A rule with a larger capacity uses it if no keys are in memory yet, and else reports it.
#[test]
fn capacity_changes_before_the_first_key() {
    let with =
        |name: &str, entry: &str, keys| Rule { max_keys: Some(keys), ..bucket(name, &[entry], 1) };
    let (engine, _) = engine(vec![with("new", "a", 2), with("used", "b", 2)]);
    assert!(take(&engine, &[("b=1", 1)]));
    let loaded = engine.load(set(vec![with("new", "a", 50), with("used", "b", 50)])).unwrap();
    assert_eq!(loaded.kept.len(), 2);
    assert_eq!(loaded.pending_capacity.iter().map(|name| &**name).collect::<Vec<_>>(), ["used"]);
    for key in 0..50 {
        assert!(take(&engine, &[(&format!("a={key}"), 1)]), "{key}");
    }
    assert_eq!(engine.table_usage("new"), Some((50, 0)));
}

/// Keys of rules with their own capacity are no part of the share of the others.
#[test]
fn rules_share_what_is_left() {
    let clock = rategate::ManualClock::new();
    let settings = EngineSettings { max_keys: 10_000, ..SMALL };
    let engine = Engine::new(clock, settings);
    let rules =
        vec![Rule { max_keys: Some(8_000), ..bucket("own", &["a"], 1) }, bucket("rest", &["b"], 1)];
    engine.load(set(rules)).unwrap();
    for key in 0..4_000 {
        take(&engine, &[(&format!("b={key}"), 1)]);
    }
    let (keys, overflows) = engine.table_usage("rest").unwrap();
    assert!((1_900..=2_100).contains(&keys) && overflows > 1_000, "{keys} {overflows}");
}

/// An observer that records the rules for which it was called.
#[derive(Clone, Debug, Default)]
struct WatchedRules(Arc<Mutex<Vec<String>>>);

impl Observer for WatchedRules {
    fn of_rule(&self, rule: Option<&Arc<Rule>>) -> Arc<dyn Watch> {
        self.0.lock().unwrap().extend(rule.map(|rule| rule.name.to_string()));
        Arc::new(self.clone())
    }
}

impl Watch for WatchedRules {
    fn decided(&self, _: u64, _: &[u8], _: u64, _: &ItemResult) {}
}

/// A rule that cannot be loaded prevents all, including those before it.
#[test]
fn what_is_refused_leaves_no_trace() {
    let watched = WatchedRules::default();
    let (clock, observer) = (rategate::ManualClock::new(), Arc::new(watched.clone()));
    let engine = Engine::with_observer(clock, SMALL, Some(observer));
    let roomy = |keys| Rule { max_keys: Some(keys), ..bucket("r", &["a"], 1) };
    engine.load(set(vec![roomy(2)])).unwrap();
    assert_eq!(*watched.0.lock().unwrap(), ["r"]);
    // There is no store.
    let elsewhere =
        Rule { location: CounterLocation::StoreExact, ..bucket("elsewhere", &["b"], 5) };
    engine.load(set(vec![roomy(50), bucket("new", &["c"], 5), elsewhere])).unwrap_err();
    assert_eq!(*watched.0.lock().unwrap(), ["r"], "rules that are not in force have no watcher");
    for key in 0..50 {
        take(&engine, &[(&format!("a={key}"), 1)]);
    }
    assert_eq!(engine.table_usage("r"), Some((2, 48)), "the capacity is the previous one");
    assert_eq!(engine.table_usage("new"), None);
}

/// A key that has used 10 permits, while its limit changes from 10 to 1000 and back. None of the
/// old limit is left, and 990 of the new. No answer mixes the two.
#[test]
fn an_answer_during_a_reload_is_of_one_state() {
    let rules = |burst| Rule { max_keys: Some(100_000), ..bucket("r", &["a"], burst) };
    let (engine, _) = engine(vec![rules(10)]);
    for key in 0..200 {
        assert!(take(&engine, &[(&format!("a={key}"), 10)]));
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asker = scope.spawn(|| {
            let (mut seen, mut key) = ([0_u32; 2], 0);
            while !is_over.load(Ordering::Relaxed) {
                key = (key + 1) % 200;
                for verb in [Verb::Peek, Verb::Take] {
                    // More than remains of the small limit, and more than the large one can ever
                    // grant.
                    let answer = ask(&engine, verb, &[(&format!("a={key}"), 991)]);
                    let result = &answer.results[0];
                    let display_limit =
                        result.display_limit.map(|display_limit| display_limit.permits);
                    let (at, retries) = match (result.limit, result.remaining) {
                        (10, Some(0)) => (0, false),
                        (1000, Some(0)) => (1, true),
                        _ => panic!("{verb:?}: {result:?}"),
                    };
                    assert_eq!(display_limit, Some(result.limit), "{verb:?}: {result:?}");
                    let Verdict::Denied { retry_after_ns, .. } = result.verdict else {
                        panic!("{verb:?}: {result:?}");
                    };
                    assert_eq!(retry_after_ns.is_some(), retries, "{verb:?}: {result:?}");
                    seen[at] += 1;
                }
            }
            seen
        });
        for _ in 0..150 {
            engine.load(set(vec![rules(1000)])).unwrap();
            engine.load(set(vec![rules(10)])).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        let seen = asker.join().unwrap();
        assert!(seen[0] > 100 && seen[1] > 100, "{seen:?}");
    });
}
