//! Charges of rules with counters in a store: the same answers as in this process, on every wire.

use std::time::Duration;

use fastrand::Rng;
use rategate::calendar::CalendarSpec;
use rategate::charge::Debt;
use rategate::policy::Anchor;
use rategate::{AnyPolicy, Clock as _, FixedWindow, Gcra, ManualClock, SlidingLog};
use rategate_server::config::{load, load_text};
use rategate_server::engine::{Decided, Engine, Verb, Verdict};
use rategate_server::rule::{CounterLocation, Limit, Look, OnUnavailable, Over, Rule};
use rategate_testkit::redis::{Brand, Server};
use serde_json::{Value, json};

use crate::engine::common::{SECOND, SMALL, bucket};
use crate::serve::clients::{Resp, Service, envoy, until};
use crate::stores::{World, decided, rule_set};

fn of(name: &str, policy: impl Into<AnyPolicy>) -> Rule {
    Rule { limit: Limit::Policy(policy.into()), ..bucket(name, &["who"], 1) }
}

/// Limits of each kind that refuse what is over, and limits that charge it.
fn rules(location: CounterLocation) -> Vec<Rule> {
    let (minute, rate) = (Duration::from_secs(60), "1/s".parse().unwrap());
    let window = FixedWindow::new(5, minute, Anchor::Epoch);
    let days = CalendarSpec::new("day", "Asia/Tokyo").unwrap().quota(5).unwrap();
    let carried = Debt::CARRIED.at_most(Duration::from_secs(200));
    let plain = [
        of("b", Gcra::new(rate, 5).unwrap()),
        of("w", window),
        Rule { debt: carried, ..of("c", window) },
        of("l", SlidingLog::new(5, minute)),
        of("k", SlidingLog::new(5, minute).with_resolution(Duration::from_millis(60)).unwrap()),
        of("d", days),
        Rule { debt: Debt::CARRIED, ..of("e", days) },
    ];
    let charging = plain.clone().map(|rule| {
        let name = format!("over {}", rule.name).into();
        Rule { name, over: Over::Charge, ..rule }
    });
    let roomy = plain.clone().map(|rule| {
        let name = format!("room {}", rule.name).into();
        Rule { name, look: Look::Room, ..rule }
    });
    let all = plain.into_iter().chain(charging).chain(roomy);
    all.map(|rule| Rule { location, on_unavailable: OnUnavailable::Deny, ..rule }).collect()
}

const NAMES: [&str; 19] = [
    "b", "w", "c", "l", "k", "d", "e", "over b", "over w", "over c", "over l", "over k", "over d",
    "over e", "room b", "room w", "room c", "room l", "room k",
];

/// Random takes, peeks, charges and refunds of single items, at random instants.
#[test]
fn a_store_charges_as_this_process_does() {
    let world = World::new();
    let stored = world.server(rules(CounterLocation::StoreExact));
    let here: Engine<ManualClock> = Engine::new(world.clock.clone(), SMALL);
    here.load(rule_set(rules(CounterLocation::Here))).unwrap();
    let random = &mut Rng::with_seed(8);
    let (mut debts, mut denials, mut grants) = (0, 0, 0);
    for step in 0..30_000 {
        let verb = random.choice([Verb::Take, Verb::Take, Verb::Peek, Verb::Charge, Verb::Refund]);
        let verb = verb.unwrap();
        let permits = random.choice([0, 0, 1, 1, 1, 2, 5, 7]).unwrap();
        // A store takes back as much as one call can take, and an item of no permits nothing.
        let permits = if verb == Verb::Refund { permits.clamp(1, 5) } else { permits };
        let item = [(random.choice(NAMES).unwrap(), "ann", permits)];
        let (answer, _) = world.ask(&stored, verb, &item);
        let Decided::Now(expected) = decided(&here, verb, &item) else { panic!("not here") };
        let expected = expected.unwrap();
        let (ours, theirs) = (&answer.results[0], &expected.results[0]);
        let seen = (ours.verdict, ours.remaining, ours.debt);
        let wanted = (theirs.verdict, theirs.remaining, theirs.debt);
        assert_eq!(seen, wanted, "step {step}: {verb:?} {item:?}");
        assert_eq!(answer.allowed, expected.allowed, "step {step}: {verb:?} {item:?}");
        debts += u64::from(ours.debt > 0);
        denials += u64::from(ours.verdict.is_over());
        grants += u64::from(ours.verdict == Verdict::Granted);
        if let (Some(wait), true) = (ours.verdict.retry_after_ns(), random.u8(..3) == 0) {
            // The same call passes then, and not a nanosecond sooner.
            let then_ns = world.clock.now_ns() + wait.get();
            world.clock.set(Duration::from_nanos(then_ns - 1));
            assert!(!world.ask(&stored, Verb::Peek, &item).0.allowed, "step {step}: sooner");
            world.clock.set(Duration::from_nanos(then_ns));
            assert!(world.ask(&stored, Verb::Peek, &item).0.allowed, "step {step}: then");
        } else if random.u8(..3) == 0 {
            let ns = random.u64(..20 * SECOND);
            world.clock.set(Duration::from_nanos(world.clock.now_ns() + ns));
        }
    }
    assert!(debts > 2_000 && denials > 2_000 && grants > 2_000, "{debts} {denials} {grants}");
}

/// A configuration is refused where it asks for charges that a store cannot book.
#[test]
fn a_configuration_says_what_a_store_cannot_charge() {
    let load = |keys: &str| {
        let text = format!(
            "[store]\nurl = \"redis://127.0.0.1:1\"\n[[rule]]\nname = \"a\"\nmatch = [\"user\"]\n\
             limit = \"5/min\"\n{keys}"
        );
        load_text("a.toml", &text).map(|_| ()).map_err(|error| error.report())
    };
    for keys in [
        "store = \"exact\"\nover = \"charge\"",
        "store = \"exact\"\nmost_debt = \"1h\"",
        "store = \"exact\"\nalgorithm = \"fixed-window\"\nover = \"charge\"\ndebt = \"carry\"",
        "store = \"exact\"\nalgorithm = \"sliding-log\"\nover = \"charge\"\ndebt = \"forget\"",
        "store = \"leased\"\nover = \"refuse\"",
    ] {
        assert_eq!(load(keys), Ok(()), "{keys}");
    }
    let logs_forget = "a sliding log in a store forgets its debts";
    for (keys, message) in [
        ("store = \"exact\"\nalgorithm = \"sliding-log\"\ndebt = \"carry\"", logs_forget),
        ("store = \"exact\"\nalgorithm = \"compact-log\"\ndebt = \"carry\"", logs_forget),
        ("store = \"leased\"\nover = \"charge\"", "permits leased from a store are not charged"),
        ("store = \"leased\"\nmost_debt = \"1h\"", "permits leased from a store are not charged"),
        ("store = \"exact\"\nalgorithm = \"concurrency\"\nover = \"charge\"", "in flight"),
    ] {
        let report = load(keys).unwrap_err();
        assert!(report.contains(message), "{keys}: {report}");
    }
    // The engine's own rules meet the same check.
    let world = World::new();
    let log = SlidingLog::new(5, Duration::from_secs(1)).compact();
    let carried = Rule { debt: Debt::CARRIED, ..of("l", log) };
    let location = CounterLocation::StoreExact;
    let engine = world.server(Vec::new());
    let refused = engine.load(rule_set(vec![Rule { location, ..carried }])).unwrap_err();
    assert!(refused.to_string().contains("forgets its debts"), "{refused}");
}

/// The whole service with a real store: charges over HTTP, RESP and both forms of Envoy's
/// protocol count in one place, and each wire answers with the debt.
#[test]
fn every_wire_charges_in_a_real_store() {
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let service = Service::of(&format!(
            "[store]\nurl = \"redis://127.0.0.1:{}\"\nbudget = \"5s\"\n\
             [[rule]]\nname = \"tokens\"\nmatch = [\"user\"]\nlimit = \"10/d\"\nburst = 10\n\
             store = \"exact\"\non_unavailable = \"deny\"\n\
             [[rule]]\nname = \"daily\"\nmatch = [\"who\"]\nlimit = \"10/365d\"\n\
             algorithm = \"sliding-log\"\nover = \"charge\"\nstore = \"exact\"\n\
             on_unavailable = \"deny\"\n",
            server.port()
        ));
        let (mut http, mut resp) = (service.http(), service.resp());
        let mut check = |body: Value| -> Value {
            let (status, answer) = http.post("/v1/check", &body.to_string());
            let answer: Value = serde_json::from_str(&answer).unwrap();
            json!([status, answer["allowed"], answer["items"][0]])
        };
        let charge = |rule: &str, permits: u64| json!({"verb": "charge", "rule": rule, "key": "ann", "permits": permits});
        until("the store replies", || check(charge("tokens", 0))[2]["verdict"] == "charged");
        let charged = check(charge("tokens", 14));
        assert_eq!((&charged[0], &charged[1]), (&json!(200), &json!(true)), "{charged}");
        let item = &charged[2];
        assert_eq!((&item["charged"], &item["debt"]), (&json!(14), &json!(4)), "{item}");
        assert_eq!(item["remaining"], 0);
        let response = resp.ask(&["RATEGATE.CHARGE", "tokens", "3", "ann"]);
        assert_eq!(Resp::field(&response, "verdict"), "charged");
        assert_eq!(Resp::field(&response, "permits"), "3");
        assert_eq!(Resp::field(&response, "debt"), "7");
        // No wire passes a request in debt, not even one for nothing.
        assert_eq!(check(json!({"rule": "tokens", "key": "ann", "permits": 0}))[1], false);
        let response = resp.ask(&["RATEGATE.CHECK", "tokens", "1", "ann"]);
        assert_eq!(Resp::field(&response, "allowed"), "0");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let rls = |key: &str, calls: usize| {
            runtime.block_on(envoy(service.at("grpc"), key, "ann", calls))
        };
        assert_eq!(rls("user", 1), 0);
        // A rule that charges what is over counts the hits of Envoy's protocol in any case.
        assert_eq!(rls("who", 12), 10);
        let envoys_json = |hits: u64| {
            let entries = json!([{"key": "who", "value": "ann"}]);
            let descriptor = json!({"entries": entries, "hitsAddend": hits});
            let body = json!({"domain": "default", "descriptors": [descriptor]});
            service.http().post("/json", &body.to_string()).0
        };
        assert_eq!((envoys_json(0), envoys_json(100)), (429, 429));
        let status = check(json!({"verb": "peek", "rule": "daily", "key": "ann"}));
        assert_eq!(status[2]["debt"], 102, "{status}");
        let response = resp.ask(&["RATEGATE.CHARGE", "daily", "5", "ann"]);
        assert_eq!(Resp::field(&response, "debt"), "107");
        // Another key owes nothing, and the debt is in the store alone.
        assert_eq!(check(json!({"rule": "tokens", "key": "bob"}))[1], true);
        let over = service.metric("rategate_charged_over_total{rule=\"tokens\"}");
        assert_eq!(over.as_deref(), Some("2"));
    }
}

/// Rules in Envoy's format, which count every hit, take charges in a store too.
#[test]
fn envoys_rules_are_charged_in_a_store() {
    let text = "domain: default\ndescriptors: [{key: who, rate_limit: {unit: year, \
                requests_per_unit: 10, store: exact, on_unavailable: deny}}]";
    let folder = tempfile::tempdir().unwrap();
    let store = "[store]\nurl = \"redis://127.0.0.1:1\"\n";
    std::fs::write(folder.path().join("settings.toml"), store).unwrap();
    std::fs::write(folder.path().join("rules.yaml"), text).unwrap();
    let loaded = load(folder.path()).unwrap_or_else(|error| panic!("{}", error.report()));
    let rule = loaded.rules.rules[0].clone();
    assert!(matches!(rule.limit, Limit::Counted(_)), "{rule:?}");
    let (world, name) = (World::new(), rule.name.to_string());
    let server = world.server(vec![rule]);
    let (answer, _) = world.ask(&server, Verb::Charge, &[(&name, "x", 14)]);
    assert_eq!((answer.results[0].verdict, answer.results[0].debt), (Verdict::Charged(14), 4));
    assert!(!world.ask(&server, Verb::Take, &[(&name, "x", 1)]).0.allowed);
    let (answer, _) = world.ask(&server, Verb::Peek, &[(&name, "x", 0)]);
    assert_eq!(answer.results[0].debt, 5);
}
