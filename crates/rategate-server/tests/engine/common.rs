//! Short constructors of rules and requests.

use std::sync::Arc;
use std::time::Duration;

use rategate::policy::Anchor;
use rategate::{AnyPolicy, FixedWindow, Gcra, ManualClock};
use rategate_server::engine::{
    Answer, Decided, Engine, EngineError, EngineSettings, Item, Request, Target, Verb,
};
use rategate_server::rule::{
    CountedWindow, CounterLocation, DisplayLimit, Enforcement, Entry, HELD_NS, Limit,
    OnUnavailable, Origin, Rule, RuleSet, Unit, Value,
};

pub(crate) const SECOND: u64 = 1_000_000_000;
/// A Monday, 00:00 UTC.
pub(crate) const MONDAY: u64 = 1_760_313_600 * SECOND;

pub(crate) type TestEngine = Engine<ManualClock>;

/// Tables as large as most tests need: those of a service take a while to create.
pub(crate) const SMALL: EngineSettings = EngineSettings {
    max_keys: 10_000,
    inline_keys: 1_000,
    inline_limits: 62,
    max_reservations: 10_000,
    count_denied: false,
    counting: rategate_server::rule::Counting::All,
};

pub(crate) fn engine(rules: Vec<Rule>) -> (TestEngine, ManualClock) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_nanos(MONDAY));
    let engine = Engine::new(clock.clone(), SMALL);
    engine.load(RuleSet { rules, hash: "".into() }).unwrap();
    (engine, clock)
}

/// Returns a rule of domain `d` with a maximum in each minute of the clock, for each value of the
/// keys.
pub(crate) fn per_minute(name: &str, keys: &[&str], permits: u64) -> Rule {
    let window = FixedWindow::new(permits, Duration::from_nanos(60 * SECOND), Anchor::Epoch);
    rule(name, keys, window.into(), permits)
}

/// Returns a rule with a bucket of `burst` that refills one permit per second.
pub(crate) fn bucket(name: &str, keys: &[&str], burst: u64) -> Rule {
    rule(name, keys, Gcra::new("1/s".parse().unwrap(), burst).unwrap().into(), burst)
}

fn rule(name: &str, keys: &[&str], policy: AnyPolicy, permits: u64) -> Rule {
    let any = |key: &&str| Entry { key: (*key).into(), value: Value::Any };
    Rule {
        name: name.into(),
        envoy_name: name.into(),
        domain: "d".into(),
        entries: keys.iter().map(any).collect(),
        dimension: None,
        also: Vec::new(),
        counts: rategate_server::rule::Counts::Permits,
        limit: Limit::Policy(policy),
        display_limit: DisplayLimit { permits, multiplier: 1, unit: Unit::Minute },
        over: rategate_server::rule::Over::Refuse,
        debt: rategate::charge::Debt::FORGOTTEN,
        enforcement: Enforcement::All,
        quota: false,
        replaces: Vec::new(),
        metadata: None,
        detailed_metric: false,
        schedule: Vec::new(),
        location: CounterLocation::Here,
        held_ns: HELD_NS,
        hold_bounds: rategate_server::rule::HoldBounds::DEFAULT,
        on_unavailable: OnUnavailable::Local,
        look: rategate_server::rule::Look::Debt,
        max_keys: None,
        origin: Origin::default(),
    }
}

/// Returns the rule with a maximum in each minute of the clock that counts every hit.
pub(crate) fn counting(rule: Rule, permits: u32) -> Rule {
    Rule { limit: Limit::Counted(CountedWindow::new(permits, 60 * SECOND).unwrap()), ..rule }
}

pub(crate) fn with_value(mut rule: Rule, entry: usize, value: Value) -> Rule {
    rule.entries[entry].value = value;
    rule
}

pub(crate) fn exact(value: &str) -> Value {
    Value::Exact(value.into())
}

pub(crate) fn like(text: &str, shared: bool) -> Value {
    Value::Pattern { text: text.into(), shared }
}

/// Decides items, each a descriptor `key=value,key=value` of domain `d` and its permits.
pub(crate) fn ask(engine: &TestEngine, verb: Verb, items: &[(&str, u64)]) -> Answer {
    let descriptors: Vec<Vec<(&[u8], &[u8])>> = items
        .iter()
        .map(|(text, _)| {
            let pairs = text.split(',').filter(|pair| !pair.is_empty());
            pairs
                .map(|pair| pair.split_once('=').unwrap())
                .map(|(k, v)| (k.as_bytes(), v.as_bytes()))
                .collect()
        })
        .collect();
    let items: Vec<Item<'_>> = descriptors
        .iter()
        .zip(items)
        .map(|(entries, (_, permits))| {
            Item::of(Target::Descriptor { domain: "d", entries, limit: None }, *permits)
        })
        .collect();
    decide(engine, verb, &items)
}

pub(crate) fn decide(engine: &TestEngine, verb: Verb, items: &[Item<'_>]) -> Answer {
    now(engine.decide(&Request { verb, items, counts_denied: false })).unwrap()
}

/// Returns an answer that needs no store, or one that replies at once.
pub(crate) fn now<A>(decided: Decided<A>) -> Result<A, EngineError> {
    match decided {
        Decided::Now(answer) => answer,
        Decided::Later(_) => unreachable!("nothing is waited for"),
    }
}

pub(crate) fn take(engine: &TestEngine, items: &[(&str, u64)]) -> bool {
    ask(engine, Verb::Take, items).allowed
}

pub(crate) fn remaining(engine: &TestEngine, item: &str) -> u64 {
    ask(engine, Verb::Peek, &[(item, 1)]).results[0].remaining.unwrap()
}

pub(crate) fn rule_name(answer: &Answer, index: usize) -> Option<&str> {
    answer.results[index].rule.as_ref().map(|rule| &*rule.name)
}

pub(crate) fn set(rules: Vec<Rule>) -> RuleSet {
    RuleSet { rules, hash: Arc::from("") }
}
