//! Rules with several limits, and rules that take from others in the same step.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use rategate::ManualClock;
use rategate::charge::Settled;
use rategate_server::config::load_text;
use rategate_server::engine::{
    Answer, Cost, Engine, EngineError, EngineSettings, Item, ItemResult, Lease, LeaseVerb, Request,
    Target, UniqueId, Verb, Verdict,
};
use rategate_server::rule::{CostError, RuleSet, Usage};

use crate::engine::common::{MONDAY, SECOND, SMALL, TestEngine, decide, now};

const TTL: Duration = Duration::from_secs(30);

fn rules(text: &str) -> RuleSet {
    let loaded = load_text("rules.toml", text).unwrap_or_else(|error| panic!("{}", error.report()));
    RuleSet { rules: loaded.rules.rules.clone(), hash: "".into() }
}

fn engine(text: &str) -> (TestEngine, ManualClock) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_nanos(MONDAY));
    let settings = EngineSettings { max_keys: 4_096, ..SMALL };
    let engine = Engine::new(clock.clone(), settings);
    engine.load(rules(text)).unwrap();
    (engine, clock)
}

/// Requests and tokens of a user.
const BOTH: &str = r#"
[[rule]]
name = "tokens"
domain = "d"
match = ["user"]
algorithm = "fixed-window"
limits = [
    { name = "rpm", limit = "3/min", counts = "requests" },
    { name = "tpm", limit = "1000/min" },
]
"#;

fn of(name: &str, permits: u64) -> Item<'_> {
    Item::of(Target::Rule { name, values: &[b"ann"] }, permits)
}

fn ask(engine: &TestEngine, verb: Verb, name: &str, permits: u64) -> ItemResult {
    let answer = decide(engine, verb, &[of(name, permits)]);
    let [result] = answer.results.into_iter().collect::<Vec<_>>().try_into().unwrap();
    assert!(verb != Verb::Take || answer.allowed != result.verdict.is_over());
    result
}

/// Returns the names of the parts of an item with what remains of each.
fn parts(result: &ItemResult) -> Vec<(&str, u64)> {
    let part = |part: &'_ ItemResult| part.remaining.unwrap();
    let name = |part: &'_ ItemResult| Arc::clone(&part.rule.as_ref().unwrap().name);
    let names = ["tokens/rpm", "tokens/tpm", "team", "org", "user"];
    let known = |result: &ItemResult| names.into_iter().find(|it| **it == *name(result)).unwrap();
    result.parts().iter().map(|result| (known(result), part(result))).collect()
}

fn binding(result: &ItemResult) -> &str {
    &result.rule.as_ref().unwrap().name
}

#[test]
fn a_call_takes_from_all_limits_or_from_none() {
    let (engine, _) = engine(BOTH);
    let both = |verb, permits| ask(&engine, verb, "tokens", permits);
    let taken = both(Verb::Take, 600);
    assert_eq!(parts(&taken), [("tokens/rpm", 2), ("tokens/tpm", 400)]);
    assert_eq!((taken.verdict, binding(&taken)), (Verdict::Granted, "tokens/rpm"));
    let denied = both(Verb::Take, 401);
    assert!(denied.verdict.is_over());
    assert_eq!(binding(&denied), "tokens/tpm", "the one that binds");
    assert_eq!(denied.rule.as_ref().unwrap().dimension.as_ref().unwrap().name, "tpm".into());
    assert_eq!(parts(&denied), [("tokens/rpm", 2), ("tokens/tpm", 400)], "nothing was taken");
    // A look counts no request, and neither does a refund return one.
    assert_eq!(parts(&both(Verb::Take, 0)), [("tokens/rpm", 2), ("tokens/tpm", 400)]);
    assert_eq!(parts(&both(Verb::Peek, 100)), [("tokens/rpm", 2), ("tokens/tpm", 400)]);
    assert_eq!(parts(&both(Verb::Refund, 100)), [("tokens/rpm", 2), ("tokens/tpm", 500)]);
    assert_eq!(parts(&both(Verb::Charge, 700)), [("tokens/rpm", 1), ("tokens/tpm", 0)]);
    assert_eq!(binding(&both(Verb::Take, 1)), "tokens/tpm");
    // One limit alone, by its name.
    assert_eq!(ask(&engine, Verb::Take, "tokens/rpm", 1).verdict, Verdict::Granted);
    assert_eq!(ask(&engine, Verb::Refund, "tokens/tpm", 1_000).verdict, Verdict::Refunded(1_000));
    assert_eq!(binding(&both(Verb::Take, 1)), "tokens/rpm");
    assert_eq!(parts(&both(Verb::Reset, 0)), [("tokens/rpm", 3), ("tokens/tpm", 1_000)]);
}

#[test]
fn a_descriptor_comes_under_all_limits() {
    let (engine, _) = engine(BOTH);
    let entries: [(&[u8], &[u8]); 1] = [(b"user", b"ann")];
    let target = Target::Descriptor { domain: "d", entries: &entries, limit: None };
    let take = |permits| decide(&engine, Verb::Take, &[Item::of(target, permits)]);
    let first = take(1_000);
    assert_eq!(parts(&first.results[0]), [("tokens/rpm", 2), ("tokens/tpm", 0)]);
    let denied = take(1);
    assert_eq!((denied.allowed, denied.results.len()), (false, 1));
    assert_eq!(binding(&denied.results[0]), "tokens/tpm");
}

fn id(number: u64) -> UniqueId {
    UniqueId(u128::from(number).to_be_bytes())
}

fn cost(permits: Option<u64>) -> [Cost<'static>; 1] {
    [Cost { target: Target::Rule { name: "tokens", values: &[b"ann"] }, permits, usage: None }]
}

#[test]
fn a_reservation_holds_of_all_limits_and_settles_each_by_itself() {
    let (engine, clock) = engine(BOTH);
    let held = now(engine.reserve(id(1), TTL, &[of("tokens", 800)])).unwrap();
    assert_eq!(parts(&held.answer.results[0]), [("tokens/rpm", 2), ("tokens/tpm", 200)]);
    let denied = now(engine.reserve(id(2), TTL, &[of("tokens", 201)])).unwrap();
    assert_eq!(binding(&denied.answer.results[0]), "tokens/tpm");
    assert_eq!(parts(&denied.answer.results[0]), [("tokens/rpm", 2), ("tokens/tpm", 200)]);
    for is_repeated in [false, true] {
        let committed = now(engine.commit(id(1), &cost(Some(650)))).unwrap();
        assert_eq!((committed.is_repeated, committed.answer.allowed), (is_repeated, true));
        let result = &committed.answer.results[0];
        assert_eq!(parts(result), [("tokens/rpm", 2), ("tokens/tpm", 350)]);
        let verdicts: Vec<_> = result.parts().iter().map(|part| part.verdict).collect();
        let settled = [Settled::Even, Settled::Back { permits: 150 }];
        assert_eq!(verdicts, settled.map(Verdict::Committed));
    }
    // A cancellation returns the request too.
    assert!(now(engine.reserve(id(3), TTL, &[of("tokens", 350)])).unwrap().answer.allowed);
    let cancelled = now(engine.cancel(id(3), &[cost(None)[0].target])).unwrap();
    assert_eq!(parts(&cancelled.answer.results[0]), [("tokens/rpm", 2), ("tokens/tpm", 350)]);
    // A late commit charges all limits, the request once.
    assert!(now(engine.reserve(id(4), TTL, &[of("tokens", 350)])).unwrap().answer.allowed);
    clock.advance(TTL);
    engine.tick(MONDAY + 30 * SECOND);
    let late = now(engine.commit(id(4), &cost(None))).unwrap();
    let verdicts: Vec<_> = late.answer.results[0].parts().iter().map(|part| part.verdict).collect();
    assert_eq!(verdicts, [Verdict::Late(1), Verdict::Late(350)]);
    assert_eq!(parts(&late.answer.results[0]), [("tokens/rpm", 1), ("tokens/tpm", 0)]);
    // A commit of nothing leaves the request.
    ask(&engine, Verb::Reset, "tokens", 0);
    now(engine.reserve(id(5), TTL, &[of("tokens", 10)])).unwrap();
    let empty = now(engine.commit(id(5), &cost(Some(0)))).unwrap();
    assert_eq!(parts(&empty.answer.results[0]), [("tokens/rpm", 2), ("tokens/tpm", 1_000)]);
}

#[test]
fn once_repeats_the_verdict_of_each_limit() {
    let (engine, _) = engine(BOTH);
    let items = [of("tokens", 300)];
    let request = Request { verb: Verb::Charge, items: &items, counts_denied: false };
    for is_repeated in [false, true] {
        let made = now(engine.once(id(9), &request)).unwrap();
        assert_eq!(made.is_repeated, is_repeated);
        let verdicts: Vec<_> =
            made.answer.results[0].parts().iter().map(|part| part.verdict).collect();
        assert_eq!(verdicts, [Verdict::Charged(1), Verdict::Charged(300)]);
    }
    assert_eq!(ask(&engine, Verb::Peek, "tokens/tpm", 0).remaining, Some(700));
}

#[test]
fn faults_are_typed() {
    let (engine, _) = engine(BOTH);
    let error = |items: &[Item<'_>]| {
        let request = Request { verb: Verb::Take, items, counts_denied: false };
        match engine.decide(&request) {
            rategate_server::engine::Decided::Now(answer) => answer.unwrap_err(),
            later @ rategate_server::engine::Decided::Later(_) => panic!("{later:?}"),
        }
    };
    let none = Item::of(Target::Rule { name: "tokens", values: &[] }, 1);
    assert!(matches!(error(&[none]), EngineError::Values { needed: 1, given: 0, .. }));
    let usage = Usage { counts: &[("input", 1)], model: None };
    let target = Target::Rule { name: "tokens", values: &[b"ann"] };
    let why = CostError::NoWeights;
    let rule = "tokens/tpm".into();
    assert_eq!(error(&[Item::of_usage(target, usage)]), EngineError::Cost { item: 0, rule, why });
    let lease = Lease { name: id(1), rule: "tokens", values: &[b"ann"], permits: 1 };
    match engine.lease(LeaseVerb::Take, &lease) {
        rategate_server::engine::Decided::Now(Err(EngineError::NotForItem { .. })) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(ask(&engine, Verb::Peek, "tokens/rpm", 1).remaining, Some(3));
}

#[test]
fn a_reload_keeps_the_counters_of_each_limit() {
    let (engine, _) = engine(BOTH);
    ask(&engine, Verb::Take, "tokens", 600);
    let loaded = engine.load(rules(&BOTH.replace("1000/min", "2000/min"))).unwrap();
    assert_eq!(
        (loaded.kept, loaded.changed),
        (vec!["tokens/rpm".into()], vec!["tokens/tpm".into()])
    );
    let after = ask(&engine, Verb::Peek, "tokens", 0);
    assert_eq!(parts(&after), [("tokens/rpm", 2), ("tokens/tpm", 1_400)]);
}

/// After the end of its time a reservation is charged as it was held, by its usage.
#[test]
fn a_late_commit_as_held_charges_the_usage_that_was_held() {
    let weighted = BOTH.replace("match", "weights = { input = 1, output = 6 }\nmatch");
    let (engine, clock) = engine(&weighted);
    let target = Target::Rule { name: "tokens", values: &[b"ann"] };
    let usage = Usage { counts: &[("input", 10), ("output", 5)], model: None };
    let held = now(engine.reserve(id(1), TTL, &[Item::of_usage(target, usage)])).unwrap();
    assert_eq!(parts(&held.answer.results[0]), [("tokens/rpm", 2), ("tokens/tpm", 960)]);
    assert_eq!(held.answer.results[0].parts()[1].cost(), Some(40));
    clock.advance(TTL);
    engine.tick(MONDAY + 30 * SECOND);
    assert_eq!(parts(&ask(&engine, Verb::Peek, "tokens", 0))[1], ("tokens/tpm", 1_000));
    for is_repeated in [false, true] {
        let late = now(engine.commit(id(1), &cost(None))).unwrap();
        assert_eq!(late.is_repeated, is_repeated);
        let result = &late.answer.results[0];
        let verdicts: Vec<_> = result.parts().iter().map(|part| part.verdict).collect();
        assert_eq!(verdicts, [Verdict::Late(1), Verdict::Late(40)]);
        assert_eq!(parts(result), [("tokens/rpm", 2), ("tokens/tpm", 960)]);
    }
}

/// Returns an item of 100 permits of a user.
fn of_user<'a>(values: &'a [&'a [u8]]) -> Item<'a> {
    Item::of(Target::Rule { name: "user", values }, 100)
}

/// A user within a team within an organization.
const TREE: &str = r#"
[[rule]]
name = "user"
match = ["org", "team", "user"]
limit = "100/min"
algorithm = "fixed-window"
also = ["team"]

[[rule]]
name = "team"
match = ["org", "team"]
limit = "150/min"
algorithm = "fixed-window"
also = ["org"]

[[rule]]
name = "org"
match = ["org"]
limit = "160/min"
algorithm = "fixed-window"
"#;

#[test]
fn a_call_takes_from_its_team_and_organization_too() {
    let (engine, _) = engine(TREE);
    let take = |values: &[&[u8]]| {
        let answer = decide(&engine, Verb::Take, &[of_user(values)]);
        (answer.allowed, answer.results[0].clone())
    };
    let (allowed, first) = take(&[b"o", b"t", b"ann"]);
    assert!(allowed);
    assert_eq!(parts(&first), [("user", 0), ("team", 50), ("org", 60)]);
    let (allowed, second) = take(&[b"o", b"t", b"bob"]);
    assert_eq!((allowed, binding(&second)), (false, "team"));
    assert_eq!(parts(&second), [("user", 100), ("team", 50), ("org", 60)]);
    let (allowed, third) = take(&[b"o", b"u", b"bob"]);
    assert_eq!((allowed, binding(&third)), (false, "org"));
    assert!(take(&[b"p", b"t", b"ann"]).0, "another organization");
    // The team by itself takes from the organization too.
    let team = Item::of(Target::Rule { name: "team", values: &[b"o", b"v"] }, 10);
    let answer = decide(&engine, Verb::Take, &[team]);
    assert_eq!(parts(&answer.results[0]), [("team", 140), ("org", 50)]);
    // Two items of one team are decided together.
    let items = [of_user(&[b"q", b"t", b"ann"]), of_user(&[b"q", b"t", b"bob"])];
    assert!(!decide(&engine, Verb::Take, &items).allowed, "200 do not fit in 150");
    let twice = now(engine.reserve(id(1), TTL, &items)).unwrap_err();
    assert_eq!(twice, EngineError::DuplicateItem { first: 0, second: 1 });
}

/// The plainest model of rules in a tree: what is used of each by key.
struct Model {
    /// The limit, the number of entries, whether it counts requests, and the rules it takes from.
    rules: Vec<(u64, usize, bool, Vec<usize>)>,
    used: HashMap<(usize, Vec<u8>), u64>,
    /// The holds of each open reservation.
    held: HashMap<u64, Vec<((usize, Vec<u8>), u64)>>,
}

impl Model {
    fn all(&self, rule: usize) -> Vec<usize> {
        let mut all = vec![rule];
        let mut next = 0;
        while let Some(rule) = all.get(next).copied() {
            let more = self.rules[rule].3.iter().copied().filter(|it| !all.contains(it));
            let more: Vec<_> = more.collect();
            all.extend(more);
            next += 1;
        }
        all
    }

    fn amounts(&self, items: &[(usize, Vec<u8>, u64)]) -> Vec<((usize, Vec<u8>), u64)> {
        let mut sums: Vec<((usize, Vec<u8>), u64)> = Vec::new();
        for (rule, values, permits) in items {
            for at in self.all(*rule) {
                let (_, entries, is_requests, _) = self.rules[at];
                let key = (at, values[..entries].to_vec());
                let amount = if is_requests { (*permits).min(1) } else { *permits };
                match sums.iter_mut().find(|(other, _)| *other == key) {
                    Some((_, sum)) => *sum += amount,
                    None => sums.push((key, amount)),
                }
            }
        }
        sums
    }

    fn take(&mut self, items: &[(usize, Vec<u8>, u64)]) -> bool {
        let amounts = self.amounts(items);
        let fits = |(key, amount): &((usize, Vec<u8>), u64)| {
            self.used.get(key).copied().unwrap_or(0) + amount <= self.rules[key.0].0
        };
        let fits = amounts.iter().all(fits);
        for (key, amount) in amounts.into_iter().filter(|_| fits) {
            *self.used.entry(key).or_default() += amount;
        }
        fits
    }
}

/// Random trees of rules over prefixes of four entries, and random calls on them.
#[test]
fn random_trees_equal_a_plain_model() {
    for seed in 0..40 {
        let mut rng = Rng::with_seed(seed);
        let count = rng.usize(2..8);
        let mut rules: Vec<(u64, usize, bool, Vec<usize>)> = Vec::new();
        let mut text = String::new();
        for at in 0..count {
            // Rules take from earlier ones, over fewer entries or as many.
            let (entries, is_requests) = (rng.usize(0..5), rng.u8(0..4) == 0);
            let others = (0..at).filter(|other| rules[*other].1 <= entries && rng.bool());
            let also: Vec<usize> = others.take(3).collect();
            let limit = if is_requests { rng.u64(1..12) } else { rng.u64(20..300) };
            let keys: Vec<String> = (0..entries).map(|nth| format!("\"e{nth}\"")).collect();
            let names: Vec<String> = also.iter().map(|other| format!("\"r{other}\"")).collect();
            let counts = if is_requests { "counts = \"requests\"\n" } else { "" };
            text += &format!(
                "[[rule]]\nname = \"r{at}\"\ndomain = \"d{at}\"\nmatch = [{}]\nalso = [{}]\nlimit = \
                 \"{limit}/d\"\nalgorithm = \"fixed-window\"\n{counts}",
                keys.join(", "),
                names.join(", "),
            );
            rules.push((limit, entries, is_requests, also));
        }
        let (engine, _) = engine(&text);
        let mut model = Model { rules, used: HashMap::new(), held: HashMap::new() };
        for step in 0..200 {
            let items: Vec<(usize, Vec<u8>, u64)> = (0..rng.usize(1..4))
                .map(|_| {
                    let values = (0..4).map(|_| rng.u8(b'a'..b'c')).collect();
                    (rng.usize(0..count), values, rng.u64(1..40))
                })
                .collect();
            play(&engine, &mut model, &items, step, &mut rng);
        }
        for ((rule, values), used) in &model.used {
            let name = format!("r{rule}");
            let values: Vec<&[u8]> = values.iter().map(std::slice::from_ref).collect();
            let peek = Item::of(Target::Rule { name: &name, values: &values }, 0);
            let result = decide(&engine, Verb::Peek, &[peek]).results[0].clone();
            let own = result.parts().iter().find(|part| *binding(part) == name).unwrap_or(&result);
            let limit = model.rules[*rule].0;
            let (left, debt) = (limit.saturating_sub(*used), used.saturating_sub(limit));
            assert_eq!((own.remaining, own.debt), (Some(left), debt), "seed {seed} {name}");
        }
    }
}

fn play(
    engine: &TestEngine,
    model: &mut Model,
    items: &[(usize, Vec<u8>, u64)],
    step: u64,
    rng: &mut Rng,
) {
    let names: Vec<String> = items.iter().map(|(rule, ..)| format!("r{rule}")).collect();
    let values: Vec<Vec<&[u8]>> = items
        .iter()
        .map(|(rule, values, _)| {
            values[..model.rules[*rule].1].iter().map(std::slice::from_ref).collect()
        })
        .collect();
    let wanted: Vec<Item<'_>> = items
        .iter()
        .enumerate()
        .map(|(at, item)| Item::of(Target::Rule { name: &names[at], values: &values[at] }, item.2))
        .collect();
    let check = |answer: &Answer, fits: bool| {
        assert_eq!(answer.allowed, fits, "step {step}: {items:?}");
        let names_the_binding =
            answer.results.iter().any(|result| result.verdict.is_over() && result.rule.is_some());
        assert!(fits || names_the_binding, "{answer:?}");
    };
    if rng.bool() || items.len() > 1 {
        check(&decide(engine, Verb::Take, &wanted), model.take(items));
        return;
    }
    let held = now(engine.reserve(id(step), TTL, &wanted)).unwrap();
    let fits = model.take(items);
    check(&held.answer, fits);
    if !fits {
        return;
    }
    model.held.insert(step, model.amounts(items));
    let (target, used) = (wanted[0].target, rng.u64(0..40));
    let is_commit = rng.bool();
    if is_commit {
        let cost = Cost { target, permits: Some(used), usage: None };
        assert!(now(engine.commit(id(step), &[cost])).unwrap().answer.allowed);
    } else {
        assert!(now(engine.cancel(id(step), &[target])).unwrap().answer.allowed);
    }
    for (key, held) in model.held.remove(&step).unwrap() {
        let actual = match (is_commit, model.rules[key.0].2) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => used,
        };
        let sum = model.used.get_mut(&key).unwrap();
        *sum = *sum - held + actual;
    }
}
