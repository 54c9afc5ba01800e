//! Operations that entries of descriptors state: `rategate.id`, `rategate.verb`, `rategate.ttl`.

use std::time::Duration;

use prost::Message;
use rategate_server::engine::Engine;
use rategate_server::messages::descriptor::RateLimitDescriptor;
use rategate_server::messages::descriptor::rate_limit_descriptor as v3;
use rategate_server::messages::rls::{RateLimitRequest, RateLimitResponse};
use rategate_server::messages::units::RateLimitUnit;
use rategate_server::protocol::grpc::Settings;
use rategate_server::protocol::rls::{Options, json};
use serde_json::json;
use tonic::{Code, Status};

use crate::rls::common::{Clock, Server, engine, rule, runtime};
use crate::rls::unary::{Client, descriptor, left};

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const UUID: &str = "3f2504e0-4f89-41d3-9a0c-0305e82c3301";
const DIGITS: &str = "3F2504E04F8941D39A0C0305E82C3301";

const OK: Result<bool, Code> = Ok(true);
const OVER_LIMIT: Result<bool, Code> = Ok(false);

fn options() -> Options {
    Options { verbs: true, ..Options::default() }
}

/// A proxy that asks about one user's tokens.
struct Proxy {
    client: Client,
}

impl Proxy {
    fn new(server: &Server) -> Self {
        Self { client: Client::new(server.address) }
    }

    /// Sends an operation, and returns whether the call may proceed.
    fn send(&mut self, stated: &[(&str, &str)], hits: Option<u64>) -> Result<bool, Code> {
        self.full(vec![of(stated, hits)]).map_err(|status| status.code())
    }

    fn full(&mut self, descriptors: Vec<RateLimitDescriptor>) -> Result<bool, Status> {
        let domain = "edge".to_owned();
        let message = RateLimitRequest { domain, descriptors, hits_addend: 0 };
        let reply = self.client.call(PATH, message.encode_to_vec())?;
        Ok(RateLimitResponse::decode(reply).unwrap().overall_code == 1)
    }
}

/// Returns a descriptor of a user that states an operation, its entries before and behind.
fn of(stated: &[(&str, &str)], hits: Option<u64>) -> RateLimitDescriptor {
    let (first, rest) = stated.split_at(stated.len().min(1));
    let entries = [first, &[("user", "a")], rest].concat();
    RateLimitDescriptor { hits_addend: hits, ..descriptor(&entries) }
}

fn served(permits: u64) -> (Engine<Clock>, Clock, Server) {
    let (engine, clock) = engine(vec![rule("tokens", &[("user", "")], permits)]);
    let settings = Settings { options: options(), ..Settings::default() };
    let server = Server::start(engine.clone(), settings);
    (engine, clock, server)
}

/// Each operation counts once, however often it is sent, and in whichever form its id is.
#[test]
fn operations_that_are_sent_several_times_count_once() {
    for times in 1..=5 {
        let (engine, _, server) = served(1_000);
        let mut proxy = Proxy::new(&server);
        let mut repeat = |verb, id: fn(usize) -> &'static str, hits, expected| {
            for nth in 0..times {
                let sent = proxy.send(&[("rategate.id", id(nth)), ("rategate.verb", verb)], hits);
                assert_eq!(sent, OK, "{verb}");
                assert_eq!(left(&engine, "tokens", "a"), expected, "{verb}, {nth} times before");
            }
        };
        let either = |nth: usize| if nth.is_multiple_of(2) { UUID } else { DIGITS };
        repeat("reserve", either, Some(800), (200, 0));
        repeat("commit", either, Some(650), (350, 0));
        repeat("reserve", |_| "00000000000000000000000000000001", Some(300), (50, 0));
        repeat("cancel", |_| "00000000000000000000000000000001", None, (350, 0));
        repeat("take", |_| "00000000000000000000000000000002", Some(100), (250, 0));
        repeat("charge", |_| "00000000000000000000000000000003", Some(400), (0, 150));
    }
}

#[test]
fn an_estimate_that_does_not_fit_is_denied_and_leaves_its_id_unused() {
    let (engine, clock, server) = served(100);
    let mut proxy = Proxy::new(&server);
    let reserve = [("rategate.id", UUID), ("rategate.verb", "reserve"), ("rategate.ttl", "20s")];
    assert_eq!(proxy.send(&reserve, Some(101)), OVER_LIMIT);
    assert_eq!(proxy.send(&reserve, Some(100)), OK);
    assert_eq!(left(&engine, "tokens", "a"), (0, 0));
    clock.advance(Duration::from_secs(20));
    assert_eq!(left(&engine, "tokens", "a"), (100, 0), "it has ended by itself");
    // The call has been made all the same: what was used is charged, once.
    for _ in 0..2 {
        let commit = [("rategate.id", UUID), ("rategate.verb", "commit")];
        assert_eq!(proxy.send(&commit, Some(30)), OK);
        assert_eq!(left(&engine, "tokens", "a"), (70, 0));
    }
}

/// A limit that comes with the descriptor is reserved, whether a rule is for it or not.
#[test]
fn limits_of_descriptors_are_reserved() {
    let (engine, _, server) = served(1_000);
    let mut proxy = Proxy::new(&server);
    let mut send = |user: &str, id: &str, verb: &str, hits| {
        let stated = [("rategate.id", id), ("user", user), ("rategate.verb", verb)];
        let own = v3::RateLimitOverride { requests_per_unit: 10, unit: RateLimitUnit::Hour.into() };
        let hits_addend = Some(hits);
        let limit = Some(own);
        let own = RateLimitDescriptor { hits_addend, limit, ..descriptor(&stated) };
        proxy.full(vec![own]).map_err(|status| status.code())
    };
    for (nth, user) in ["a", "other"].into_iter().enumerate() {
        let [id, other, third, last] = [0, 1, 2, 3].map(|of| format!("{nth}{of:031}"));
        for _ in 0..2 {
            assert_eq!(send(user, &id, "reserve", 8), OK);
        }
        assert_eq!(send(user, &other, "reserve", 3), OVER_LIMIT);
        for _ in 0..2 {
            assert_eq!(send(user, &id, "commit", 7), OK);
        }
        assert_eq!(send(user, &other, "reserve", 4), OVER_LIMIT);
        assert_eq!(send(user, &other, "reserve", 3), OK);
        assert_eq!(send(user, &other, "cancel", 0), OK);
        assert_eq!(send(user, &third, "take", 3), OK);
        assert_eq!(send(user, &last, "take", 1), OVER_LIMIT);
    }
    assert_eq!(left(&engine, "tokens", "a"), (1_000, 0), "its windows are of another unit");
}

/// A proxy that knows no number holds what there is, and commits what was used.
#[test]
fn a_proxy_reserves_as_many_as_there_are() {
    let (engine, _, server) = served(100);
    let mut proxy = Proxy::new(&server);
    let of =
        |id, most| [("rategate.id", id), ("rategate.verb", "reserve"), ("rategate.at_most", most)];
    for _ in 0..2 {
        assert_eq!(proxy.send(&of(UUID, "60"), Some(10)), OK);
        assert_eq!(left(&engine, "tokens", "a"), (40, 0));
    }
    let other = "00000000000000000000000000000001";
    for _ in 0..2 {
        assert_eq!(proxy.send(&of(other, "5000"), Some(10)), OK);
        assert_eq!(left(&engine, "tokens", "a"), (0, 0));
    }
    let denied = of("00000000000000000000000000000002", "5000");
    assert_eq!(proxy.send(&denied, Some(1)), OVER_LIMIT);
    assert_eq!(proxy.send(&[("rategate.id", other), ("rategate.verb", "commit")], Some(45)), OK);
    assert_eq!(left(&engine, "tokens", "a"), (0, 5));
}

#[test]
fn a_commit_without_hits_used_what_was_held_and_one_of_no_hits_nothing() {
    let (engine, _, server) = served(100);
    let mut proxy = Proxy::new(&server);
    for (id, hits, after) in [(UUID, None, 40), ("00000000000000000000000000000001", Some(0), 40)] {
        let id = ("rategate.id", id);
        let estimate = Some(if hits.is_none() { 60 } else { 30 });
        assert_eq!(proxy.send(&[id, ("rategate.verb", "reserve")], estimate), OK);
        assert_eq!(proxy.send(&[id, ("rategate.verb", "commit")], hits), OK);
        assert_eq!(left(&engine, "tokens", "a"), (after, 0));
    }
}

#[test]
fn the_end_of_nothing_or_of_what_ended_otherwise_is_an_error() {
    let (engine, _, server) = served(100);
    let mut proxy = Proxy::new(&server);
    let id = ("rategate.id", UUID);
    assert_eq!(proxy.send(&[id, ("rategate.verb", "commit")], Some(5)), Err(Code::NotFound));
    assert_eq!(proxy.send(&[id, ("rategate.verb", "cancel")], None), Err(Code::NotFound));
    assert_eq!(proxy.send(&[id, ("rategate.verb", "reserve")], Some(5)), OK);
    assert_eq!(proxy.send(&[id, ("rategate.verb", "cancel")], None), OK);
    let commit = proxy.send(&[id, ("rategate.verb", "commit")], Some(5));
    assert_eq!(commit, Err(Code::FailedPrecondition));
    // An id has one operation.
    assert_eq!(proxy.send(&[id, ("rategate.verb", "take")], None), Err(Code::InvalidArgument));
    assert_eq!(left(&engine, "tokens", "a"), (100, 0));
}

#[test]
fn without_an_id_calls_are_as_before() {
    let (engine, _, server) = served(100);
    let mut proxy = Proxy::new(&server);
    for (stated, hits, after) in [
        (&[][..], Some(10), (90, 0)),
        (&[("rategate.verb", "take")], Some(10), (80, 0)),
        (&[("rategate.verb", "take")], Some(0), (80, 0)),
        (&[("rategate.verb", "charge")], Some(100), (0, 20)),
    ] {
        assert_eq!(proxy.send(stated, hits), OK);
        assert_eq!(left(&engine, "tokens", "a"), after, "{stated:?}");
    }
}

/// A wrong entry is refused by its name, and nothing is counted.
#[test]
fn entries_that_are_wrong_are_named() {
    let (engine, _, server) = served(100);
    let mut proxy = Proxy::new(&server);
    let (id, reserve) = (("rategate.id", UUID), ("rategate.verb", "reserve"));
    let mut refused = |descriptors: Vec<RateLimitDescriptor>, nth: usize, entry: &str| {
        let status = proxy.full(descriptors.clone()).expect_err(entry);
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        let named = format!("descriptor {nth}: `{entry}`: ");
        assert!(status.message().starts_with(&named), "{}", status.message());
        assert!(status.message().len() > named.len() + 10, "{}", status.message());
    };
    for (stated, entry) in [
        (vec![("rategate.id", ""), reserve], "rategate.id"),
        (vec![("rategate.id", "abc"), reserve], "rategate.id"),
        (vec![("rategate.id", &UUID[1..]), reserve], "rategate.id"),
        (vec![reserve], "rategate.id"),
        (vec![("rategate.verb", "commit")], "rategate.id"),
        (vec![id, ("rategate.verb", "")], "rategate.verb"),
        (vec![id, ("rategate.verb", "Reserve")], "rategate.verb"),
        (vec![id, reserve, ("rategate.ttl", "30")], "rategate.ttl"),
        (vec![id, reserve, ("rategate.ttl", "0s")], "rategate.ttl"),
        (vec![id, reserve, ("rategate.ttl", "11min")], "rategate.ttl"),
        (vec![id, ("rategate.verb", "commit"), ("rategate.ttl", "1s")], "rategate.ttl"),
        (vec![id, ("rategate.ttl", "1s")], "rategate.ttl"),
        (vec![id, reserve, ("rategate.ttl", "25h")], "rategate.ttl"),
        (vec![id, reserve, ("rategate.at_most", "")], "rategate.at_most"),
        (vec![id, reserve, ("rategate.at_most", "0")], "rategate.at_most"),
        (vec![id, reserve, ("rategate.at_most", "-5")], "rategate.at_most"),
        (vec![id, reserve, ("rategate.at_most", "NaN")], "rategate.at_most"),
        (vec![id, reserve, ("rategate.at_most", "4")], "rategate.at_most"),
        (vec![id, ("rategate.verb", "commit"), ("rategate.at_most", "9")], "rategate.at_most"),
        (vec![id, ("rategate.at_most", "9")], "rategate.at_most"),
        (vec![id, reserve, reserve], "rategate.verb"),
        (vec![id, reserve, ("rategate.tll", "1s")], "rategate.tll"),
    ] {
        refused(vec![of(&stated, Some(5))], 0, entry);
        // A ttl without a verb is wrong where the call is a take; here the verbs differ first.
        let entry = if stated.len() == 2 && stated[1].0 == entry && entry != reserve.0 {
            reserve.0
        } else {
            entry
        };
        refused(vec![of(&[id, reserve], Some(5)), of(&stated, Some(5))], 1, entry);
    }
    // A call is one operation.
    let whole = of(&[id, reserve], Some(5));
    refused(vec![whole.clone(), of(&[], Some(5))], 1, "rategate.id");
    let other = [("rategate.id", "00000000000000000000000000000001"), reserve];
    refused(vec![whole.clone(), of(&other, Some(5))], 1, "rategate.id");
    let negative = RateLimitDescriptor { is_negative_hits: true, ..whole };
    refused(vec![negative], 0, "is_negative_hits");
    assert_eq!(left(&engine, "tokens", "a"), (100, 0));
}

#[test]
fn several_descriptors_are_reserved_together_or_not_at_all() {
    let rules = vec![rule("tokens", &[("user", "")], 100), rule("calls", &[("path", "")], 1)];
    let (engine, _) = engine(rules);
    let settings = Settings { options: options(), ..Settings::default() };
    let server = Server::start(engine.clone(), settings);
    let mut proxy = Proxy::new(&server);
    let both = |id: &'static str, verb: &'static str, tokens| {
        let stated = [("rategate.id", id), ("rategate.verb", verb)];
        let calls = [("path", "/"), stated[0], stated[1]];
        let calls = RateLimitDescriptor { hits_addend: Some(1), ..descriptor(&calls) };
        vec![of(&stated, Some(tokens)), calls]
    };
    let now = || (left(&engine, "tokens", "a").0, left(&engine, "calls", "/").0);
    assert!(proxy.full(both(UUID, "reserve", 60)).unwrap());
    assert_eq!(now(), (40, 0));
    assert!(!proxy.full(both("00000000000000000000000000000001", "reserve", 10)).unwrap());
    assert_eq!(now(), (40, 0));
    assert!(proxy.full(both(UUID, "commit", 25)).unwrap());
    assert_eq!(now(), (75, 0));
}

/// A descriptor without hits used what was held, whatever the others of its call say.
#[test]
fn a_commit_of_some_hits_used_what_was_held_of_the_others() {
    let rules = vec![rule("tokens", &[("user", "")], 1_000), rule("calls", &[("path", "")], 30)];
    let (engine, _) = engine(rules);
    let settings = Settings { options: options(), ..Settings::default() };
    let server = Server::start(engine.clone(), settings);
    let mut proxy = Proxy::new(&server);
    let mut full = |id, verb, tokens, calls: Option<u64>| {
        let stated = [("rategate.id", id), ("rategate.verb", verb)];
        let calls = RateLimitDescriptor {
            hits_addend: calls,
            ..descriptor(&[("path", "/"), stated[0], stated[1]])
        };
        assert!(proxy.full(vec![of(&stated, tokens), calls]).unwrap());
        (left(&engine, "tokens", "a").0, left(&engine, "calls", "/").0)
    };
    let other = "00000000000000000000000000000001";
    assert_eq!(full(UUID, "reserve", Some(500), Some(5)), (500, 25));
    assert_eq!(full(UUID, "commit", None, Some(1)), (500, 29));
    assert_eq!(full(other, "reserve", Some(300), Some(5)), (200, 24));
    assert_eq!(full(other, "commit", Some(100), None), (400, 24));
}

#[test]
fn unless_it_is_configured_the_entries_are_like_others() {
    let (engine, _) = engine(vec![rule("tokens", &[("user", "")], 100)]);
    let server = Server::start(engine.clone(), Settings::default());
    let mut proxy = Proxy::new(&server);
    // No rule has such entries, so nothing is limited, and nothing is refused.
    let stated = [("rategate.id", "none"), ("rategate.verb", "reserve")];
    assert_eq!(proxy.send(&stated, Some(1_000)), OK);
    assert_eq!(left(&engine, "tokens", "a"), (100, 0));
}

#[test]
fn operations_are_stated_in_json_too() {
    let (engine, _, _server) = served(1_000);
    let send = |verb: &str, hits: u64| {
        let entries = json!([
            {"key": "rategate.id", "value": UUID},
            {"key": "rategate.verb", "value": verb},
            {"key": "user", "value": "a"},
        ]);
        let descriptors = json!([{"entries": entries, "hitsAddend": hits}]);
        let text = json!({"domain": "edge", "descriptors": descriptors}).to_string();
        let answer = runtime().block_on(json(text.as_bytes(), &engine, &options(), true));
        (answer.status, answer.body)
    };
    for _ in 0..3 {
        assert_eq!(send("reserve", 800).0, 200);
        assert_eq!(left(&engine, "tokens", "a"), (200, 0));
    }
    for _ in 0..3 {
        assert_eq!(send("commit", 650).0, 200);
        assert_eq!(left(&engine, "tokens", "a"), (350, 0));
    }
    let (status, body) = send("reverse", 1);
    assert_eq!(status, 400);
    assert!(body.starts_with("descriptor 0: `rategate.verb`: "), "{body}");
}
