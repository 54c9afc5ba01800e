//! Limits of permits in flight that follow how their holders end.

use std::collections::VecDeque;
use std::ops::Deref;
use std::time::Duration;

use rategate::ManualClock;
use rategate::adaptive::Outcome;
use rategate_server::config::load_text;
use rategate_server::engine::{
    AdaptiveStatus, Decided, Engine, EngineSettings, Lease, LeaseVerb, UniqueId,
};
use rategate_server::protocol::http::{Api, Caller, Options};
use serde_json::{Value as Json, json};

use super::common::{Service, on_monday};

const ID: &str = "00112233445566778899aabbccddeeff";

/// `calls` by AIMD, which begins with 4; `users` with a counter for each of them; `knee`.
fn rules(calls: &str) -> String {
    format!(
        r#"
        [[rule]]
        name = "calls"
        algorithm = "concurrency"
        limit = 100
        lease = "30s"
        adaptive = {calls}

        [[rule]]
        name = "users"
        match = ["user"]
        algorithm = "concurrency"
        limit = 8
        adaptive = {{ floor = 2, first = 4, method = "aimd" }}

        [[rule]]
        name = "knee"
        algorithm = "concurrency"
        limit = 200
        adaptive = {{}}
        "#
    )
}

const CALLS: &str = r#"{ floor = 2, first = 4, method = "aimd" }"#;

/// An API and its engine.
struct World {
    service: Service,
    engine: Engine<ManualClock>,
}

impl Deref for World {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}

fn service() -> World {
    let clock = on_monday();
    let engine = Engine::new(clock.clone(), EngineSettings::default());
    let rules = load_text("a.toml", &rules(CALLS)).unwrap().rules;
    engine.load(rules.set().as_ref().clone()).unwrap();
    let api = Api::new(engine.clone(), Options::default());
    World { service: Service { api, clock, caller: Caller::default() }, engine }
}

fn advance(service: &Service, ms: u64) {
    service.clock.advance(Duration::from_millis(ms));
}

fn take(service: &Service, rule: &str) -> Json {
    service.check(&format!(r#"{{"verb":"lease",{rule}}}"#))
}

/// Takes a lease, which must be granted, and returns its name.
fn held(service: &Service, rule: &str) -> String {
    let taken = take(service, rule);
    assert_eq!(taken["allowed"], true, "{taken}");
    taken["lease"]["name"].as_str().unwrap().to_owned()
}

fn release(service: &Service, rule: &str, name: &str, outcome: &str) -> Json {
    service.check(&format!(r#"{{"verb":"release","lease":"{name}",{rule}{outcome}}}"#))
}

fn limit(service: &Service) -> u64 {
    service.check(r#"{"verb":"peek","rule":"calls"}"#)["items"][0]["limit"].as_u64().unwrap()
}

const RULE: &str = r#""rule":"calls""#;
const SERVED: &str = r#","outcome":"served""#;
const DROPPED: &str = r#","outcome":"dropped""#;

#[test]
fn it_grows_with_what_is_served_and_falls_with_what_is_dropped() {
    let service = service();
    let names: Vec<String> = (0..4).map(|_| held(&service, RULE)).collect();
    let denied = take(&service, RULE);
    assert_eq!((&denied["allowed"], &denied["lease"]), (&false.into(), &Json::Null));
    assert_eq!(denied["items"][0]["limit"], 4, "{denied}");
    advance(&service, 10);
    for name in &names[1..] {
        let released = release(&service, RULE, name, SERVED);
        assert_eq!(released["allowed"], true, "{released}");
    }
    assert_eq!(limit(&service), 7, "the first began with 2 in flight");
    let result = &release(&service, RULE, &names[0], DROPPED)["items"][0];
    assert_eq!((&result["limit"], &result["remaining"]), (&6.into(), &6.into()), "a tenth less");
    // Releasing it again is no sample.
    release(&service, RULE, &names[0], DROPPED);
    assert_eq!(limit(&service), 6);
}

#[test]
fn a_release_that_says_nothing_teaches_nothing() {
    let service = service();
    for outcome in ["", r#","outcome":"ignored""#] {
        let names: Vec<String> = (0..4).map(|_| held(&service, RULE)).collect();
        advance(&service, 10);
        for name in &names {
            release(&service, RULE, name, outcome);
        }
        assert_eq!(limit(&service), 4);
    }
}

#[test]
fn a_lease_that_ends_by_its_time_counts_as_dropped() {
    let service = service();
    let names: Vec<String> = (0..3).map(|_| held(&service, RULE)).collect();
    advance(&service, 29_000);
    let renew = format!(r#"{{"verb":"renew","lease":"{}",{RULE}}}"#, names[2]);
    assert_eq!(service.check(&renew)["allowed"], true);
    advance(&service, 1_000);
    assert_eq!(limit(&service), 2, "two are over, and the floor is 2");
    assert_eq!(release(&service, RULE, &names[0], SERVED)["items"][0]["limit"], 2);
    // The renewed one lasts, and its whole life is its latency: more than AIMD bears.
    assert_eq!(take(&service, RULE)["allowed"], true, "one in flight");
    assert_eq!(take(&service, RULE)["allowed"], false, "two in flight");
    let tally = service.api_tally("calls");
    assert_eq!(tally, [("served", 0), ("dropped", 2), ("ignored", 0)]);
}

/// A take without a lease has no name by which it could end, so its end says nothing.
#[test]
fn a_plain_take_that_ends_by_its_time_is_ignored() {
    let service = service();
    assert_eq!(service.check(r#"{"rule":"calls","permits":2}"#)["allowed"], true);
    assert_eq!(service.check(r#"{"rule":"calls","permits":3}"#)["allowed"], false, "the floor");
    advance(&service, 30_000);
    assert_eq!(limit(&service), 4);
    assert_eq!(service.api_tally("calls"), [("served", 0), ("dropped", 0), ("ignored", 1)]);
}

#[test]
fn a_reservation_ends_with_an_outcome_too() {
    let service = service();
    let reserve = |nth: u32| {
        let id = format!("{nth:032x}");
        let body = format!(r#"{{"verb":"reserve","id":"{id}",{RULE},"permits":2}}"#);
        (id, service.check(&body)["allowed"].clone())
    };
    let end = |verb: &str, id: &str, outcome: &str| {
        service.check(&format!(r#"{{"verb":"{verb}","id":"{id}",{RULE}{outcome}}}"#))
    };
    let (first, allowed) = reserve(1);
    assert_eq!(allowed, true);
    assert_eq!((reserve(2).1, reserve(3).1), (true.into(), false.into()), "4 at a time");
    advance(&service, 10);
    assert_eq!(end("commit", &first, SERVED)["allowed"], true);
    assert_eq!(limit(&service), 5);
    assert_eq!(end("commit", &first, DROPPED)["allowed"], true, "again, which changes nothing");
    assert_eq!(limit(&service), 5);
    assert_eq!(end("cancel", &format!("{:032x}", 2), DROPPED)["allowed"], true);
    assert_eq!(limit(&service), 4);
    // One that is denied leaves its id unused, and none in flight.
    assert_eq!(reserve(3).1, true);
    advance(&service, 60_000);
    assert_eq!(limit(&service), 3, "one whose time is over counts as dropped");
    let samples = [("served", 1), ("dropped", 2), ("ignored", 0)];
    assert_eq!(service.api_tally("calls"), samples);
}

/// The server works on 40 calls at once, and can do 2 in a millisecond; 3 are tried.
#[test]
fn the_knee_is_found_from_how_long_leases_last() {
    let service = service();
    let lease = |verb, name| {
        let lease = Lease { name, rule: "knee", values: &[], permits: 1 };
        match service.engine.lease(verb, &lease) {
            Decided::Now(answer) => answer.unwrap().allowed,
            Decided::Later(_) => panic!("it is in this process"),
        }
    };
    let (mut queue, mut last_us) = (VecDeque::new(), 0);
    for ms in 0..10_000 {
        let now_us = ms * 1_000;
        while let Some((_, name)) = queue.pop_front_if(|(end_us, _)| *end_us <= now_us) {
            lease(LeaseVerb::Release(Outcome::Served), name);
        }
        for _ in 0..3 {
            let name = UniqueId::random();
            if lease(LeaseVerb::Take, name) {
                last_us = (now_us + 20_000).max(last_us + 500);
                queue.push_back((last_us, name));
            }
        }
        advance(&service, 1);
    }
    let found = service.adaptive("knee").unwrap();
    assert!((40..=60).contains(&found.limit), "{found:?}");
    let base_ms = found.base_ns.unwrap() / 1_000_000;
    assert!((19..=21).contains(&base_ms), "{found:?}");
}

#[test]
fn each_key_has_a_limit_of_its_own() {
    let service = service();
    let (one, other) = (r#""rule":"users","key":"a""#, r#""rule":"users","key":"b""#);
    for _ in 0..4 {
        let name = held(&service, one);
        release(&service, one, &name, DROPPED);
    }
    assert_eq!(take(&service, one)["items"][0]["limit"], 2);
    assert_eq!(take(&service, other)["items"][0]["limit"], 4);
    let reset = service.check(&format!(r#"{{"verb":"reset",{one}}}"#));
    assert_eq!(reset["allowed"], true, "{reset}");
    let item = &reset["items"][0];
    assert_eq!((&item["limit"], &item["remaining"]), (&json!(4), &json!(4)), "{reset}");
    assert_eq!(take(&service, one)["items"][0]["limit"], 4, "what was learned is gone");
}

/// Holders and the limit that was found stay under other numbers.
#[test]
fn a_reload_keeps_what_was_found() {
    let service = service();
    let names: Vec<String> = (0..4).map(|_| held(&service, RULE)).collect();
    release(&service, RULE, &names[3], SERVED);
    assert_eq!(limit(&service), 5);
    let reload = |calls: &str| {
        let loaded = load_text("a.toml", &rules(calls)).unwrap();
        service.engine.load(loaded.rules.set().as_ref().clone()).unwrap()
    };
    let loaded = reload(r#"{ floor = 1, first = 9, method = "aimd" }"#);
    assert_eq!(loaded.changed, ["calls".into()], "{loaded:?}");
    let result = &take(&service, RULE)["items"][0];
    assert_eq!((&result["limit"], &result["remaining"]), (&5.into(), &1.into()), "{result}");
    reload(r#"{ floor = 7, first = 9, method = "aimd" }"#);
    assert_eq!(limit(&service), 7, "within the bounds");
    let last = service.adaptive("calls").unwrap().last.unwrap().0;
    assert_eq!((last.reason.name(), last.from, last.to), ("bounds", 5, 7));
    let released = release(&service, RULE, &names[0], SERVED);
    assert_eq!(released["items"][0]["verdict"], "refunded", "{released}");
}

#[test]
fn nonsense_is_refused_with_what_is_accepted() {
    let service = service();
    for (body, pointer, detail) in [
        (
            format!(r#"{{"verb":"release","lease":"{ID}",{RULE},"outcome":"ok"}}"#),
            "/outcome",
            "`served`, `dropped` or `ignored`",
        ),
        (
            format!(r#"{{"verb":"release","lease":"{ID}",{RULE},"outcome":7}}"#),
            "/outcome",
            "`served`, `dropped` or `ignored`",
        ),
        (
            format!(r#"{{"verb":"lease",{RULE},"outcome":"served"}}"#),
            "/outcome",
            "only for the verbs `release`",
        ),
        (format!(r#"{{{RULE},"outcome":"served"}}"#), "/outcome", "only for the verbs `release`"),
    ] {
        let (status, _, at, text) = service.post("/v1/check", &body).problem();
        assert_eq!((status, &*at), (400, pointer), "{body}: {text}");
        assert!(text.contains(detail), "{body}: {text}");
    }
}

impl World {
    fn adaptive(&self, rule: &str) -> Option<AdaptiveStatus> {
        self.engine.adaptive(rule, &[])
    }

    fn api_tally(&self, rule: &str) -> Vec<(&'static str, u64)> {
        self.engine.adaptive_tally(rule).unwrap().samples().collect()
    }
}
