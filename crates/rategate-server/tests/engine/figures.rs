//! Reports to watchers: each take, denial and refund once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rategate::ManualClock;
use rategate_server::engine::{Engine, Item, ItemResult, Observer, Target, Verb, Verdict, Watch};
use rategate_server::rule::Rule;

use crate::engine::common::*;

/// The reports: the rule, the permits and the verdict of each.
type Recorded = Arc<Mutex<Vec<(String, u64, Verdict)>>>;

#[derive(Debug)]
struct Noted(Recorded);

#[derive(Debug)]
struct RuleObserver(String, Recorded);

impl Observer for Noted {
    fn of_rule(&self, rule: Option<&Arc<Rule>>) -> Arc<dyn Watch> {
        let name = rule.map_or_else(String::new, |rule| rule.name.to_string());
        Arc::new(RuleObserver(name, Arc::clone(&self.0)))
    }
}

impl Watch for RuleObserver {
    fn decided(&self, _: u64, _: &[u8], permits: u64, result: &ItemResult) {
        self.1.lock().unwrap().push((self.0.clone(), permits, result.verdict));
    }
}

fn observed(rules: Vec<Rule>) -> (TestEngine, Recorded) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_nanos(MONDAY));
    let recorded = Recorded::default();
    let observer: Arc<dyn Observer> = Arc::new(Noted(Arc::clone(&recorded)));
    let engine = Engine::with_observer(clock, SMALL, Some(observer));
    engine.load(set(rules)).unwrap();
    (engine, recorded)
}

fn drain(recorded: &Recorded) -> Vec<(String, u64, Verdict)> {
    std::mem::take(&mut *recorded.lock().unwrap())
}

#[test]
fn items_of_denied_requests_that_would_pass_are_not_recorded() {
    let (engine, recorded) = observed(vec![bucket("l", &["l"], 9), bucket("h", &["h"], 1)]);
    assert!(take(&engine, &[("l=1", 2), ("h=1", 1)]));
    assert_eq!(drain(&recorded).len(), 2);
    assert!(!take(&engine, &[("l=1", 2), ("h=1", 1)]));
    let recorded = drain(&recorded);
    assert_eq!(recorded.len(), 1, "{recorded:?}");
    assert!(recorded[0].0 == "h" && recorded[0].1 == 1 && recorded[0].2.is_over());
}

#[test]
fn items_of_one_counter_are_recorded_once_for_the_sum() {
    let (engine, recorded) = observed(vec![bucket("a", &["a"], 9)]);
    assert!(take(&engine, &[("a=1", 2), ("a=1", 3)]));
    assert_eq!(drain(&recorded), [("a".to_owned(), 5, Verdict::Granted)]);
    assert!(!take(&engine, &[("a=1", 2), ("a=1", 3)]));
    let denied = drain(&recorded);
    assert!(denied.len() == 1 && denied[0].1 == 5 && denied[0].2.is_over(), "{denied:?}");
    let entries = [(b"a".as_slice(), b"1".as_slice())];
    let target = Target::Descriptor { domain: "d", entries: &entries, limit: None };
    let back = |permits| Item { refund: true, ..Item::of(target, permits) };
    assert!(decide(&engine, Verb::Take, &[back(1), back(2)]).allowed);
    assert_eq!(drain(&recorded), [("a".to_owned(), 3, Verdict::Refunded(3))]);
}
