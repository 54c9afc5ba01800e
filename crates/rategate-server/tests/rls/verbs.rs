//! Operations that entries of descriptors state: `rategate.id`, `rategate.verb`, `rategate.ttl`.

use std::time::Duration;

use rategate_server::engine::Engine;
use rategate_server::messages::descriptor::RateLimitDescriptor;
use rategate_server::messages::descriptor::rate_limit_descriptor as v3;
use rategate_server::messages::units::RateLimitUnit;
use rategate_server::protocol::grpc::Settings;
use rategate_server::protocol::rls::{Options, json};
use serde_json::json;
use tonic::{Code, Status};

use crate::rls::common::{Clock, Server, engine, left, rule, runtime};
use crate::serve::clients::{Rls, descriptor};

const UUID: &str = "3f2504e0-4f89-41d3-9a0c-0305e82c3301";
const DIGITS: &str = "3F2504E04F8941D39A0C0305E82C3301";

const OK: Result<bool, Code> = Ok(true);
const OVER_LIMIT: Result<bool, Code> = Ok(false);

fn options() -> Options {
    Options { verbs: true, ..Options::default() }
}

/// Returns a descriptor of a user that states an operation, its entries before and behind.
fn of(stated: &[(&str, &str)], hits: Option<u64>) -> RateLimitDescriptor {
    let (first, rest) = stated.split_at(stated.len().min(1));
    let entries = [first, &[("user", "a")], rest].concat();
    RateLimitDescriptor { hits_addend: hits, ..descriptor(&entries) }
}

/// A service with rules of tokens and calls, and a client of it.
fn served() -> (Engine<Clock>, Clock, Rls) {
    let rules = vec![rule("tokens", &[("user", "")], 1_000), rule("calls", &[("path", "")], 30)];
    let (engine, clock) = engine(rules);
    let settings = Settings { options: options(), ..Settings::default() };
    let server = Server::start(engine.clone(), settings);
    (engine, clock, Rls::at(&server.address.to_string()))
}

/// Returns whether a call may proceed.
fn send(rls: &Rls, descriptors: &[RateLimitDescriptor]) -> Result<bool, Status> {
    Ok(rls.ask("edge", descriptors, 0)?.overall_code == 1)
}

/// Plays lines like `reserve 1/20s tokens:9 calls:1 => ok 91 0`: the verb or `-`, the id with the
/// time of the reservation or `-`, each descriptor with its hits, the code, and what remains of each
/// rule, with a minus where it owes. Each operation with an id is sent three times and counts once.
fn play(text: &str) {
    let (engine, clock, rls) = served();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(seconds) = line.strip_prefix("pass ") {
            clock.advance(Duration::from_secs(seconds.parse().unwrap()));
            continue;
        }
        let (call, expected) = line.split_once(" => ").unwrap();
        let words: Vec<&str> = call.split(' ').collect();
        let (id, ttl) = words[1].split_once('/').unwrap_or((words[1], ""));
        let times = if id == "-" { 1 } else { 3 };
        for nth in 0..times {
            // In either form of an id.
            let id = match id {
                "1" if nth == 1 => UUID.to_owned(),
                "1" => DIGITS.to_owned(),
                other => format!("{other:0>32}"),
            };
            let descriptors = words[2..].iter().map(|word| {
                let (rule, hits) = word.split_once(':').unwrap_or((word, ""));
                let key = if rule == "calls" { ("path", "/") } else { ("user", "a") };
                let stated = [
                    ("rategate.id", if times == 1 { "" } else { &id }),
                    key,
                    ("rategate.verb", words[0].trim_matches('-')),
                    ("rategate.ttl", ttl),
                ];
                let stated: Vec<_> = stated.into_iter().filter(|(_, it)| !it.is_empty()).collect();
                RateLimitDescriptor { hits_addend: hits.parse().ok(), ..descriptor(&stated) }
            });
            let code = match send(&rls, &descriptors.collect::<Vec<_>>()) {
                Ok(true) => "ok".to_owned(),
                Ok(false) => "over".to_owned(),
                Err(status) => format!("{:?}", status.code()),
            };
            let left = [("tokens", "a"), ("calls", "/")].map(|(name, value)| {
                let (left, debt) = left(&engine, name, value);
                if debt > 0 { format!("-{debt}") } else { left.to_string() }
            });
            assert_eq!(format!("{code} {}", left.join(" ")), expected, "{line}, {nth} before");
        }
    }
}

#[test]
fn operations_count_once_however_often_they_are_sent() {
    play(
        "
        reserve 1 tokens:800 => ok 200 30
        commit 1 tokens:650 => ok 350 30
        reserve 2 tokens:300 => ok 50 30
        cancel 2 tokens => ok 350 30
        take 3 tokens:100 => ok 250 30
        charge 4 tokens:400 => ok -150 30
        ",
    );
    // Estimates are held or denied, and end.
    play(
        "
        reserve 1/20s tokens:1001 => over 1000 30
        reserve 1/20s tokens:1000 => ok 0 30
        pass 20
        commit 1 tokens:30 => ok 970 30
        reserve 2 tokens:60 => ok 910 30
        reserve 3 tokens:910 => ok 0 30
        reserve 4 tokens:1 => over 0 30
        commit 3 tokens:950 => ok -40 30
        cancel 2 tokens => ok 20 30
        ",
    );
    // Without hits, what was held was used; with no hits, nothing.
    play(
        "
        reserve 1 tokens:60 => ok 940 30
        commit 1 tokens => ok 940 30
        reserve 2 tokens:30 => ok 910 30
        commit 2 tokens:0 => ok 940 30
        reserve 3 tokens:500 calls:5 => ok 440 25
        commit 3 tokens calls:1 => ok 440 29
        reserve 4 tokens:300 calls:5 => ok 140 24
        commit 4 tokens:100 calls => ok 340 24
        reserve 5 tokens:1 calls:25 => over 340 24
        ",
    );
    // The end of nothing, or of what ended otherwise, is an error. Without an id calls are as
    // before.
    play(
        "
        commit 1 tokens:5 => NotFound 1000 30
        cancel 1 tokens => NotFound 1000 30
        reserve 1 tokens:5 => ok 995 30
        cancel 1 tokens => ok 1000 30
        commit 1 tokens:5 => FailedPrecondition 1000 30
        take 1 tokens => InvalidArgument 1000 30
        - - tokens:10 => ok 990 30
        take - tokens:10 => ok 980 30
        take - tokens:0 => ok 980 30
        charge - tokens:1000 => ok -20 30
        ",
    );
}

/// A limit that comes with the descriptor is reserved, whether a rule is for it or not.
#[test]
fn limits_of_descriptors_are_reserved() {
    let (engine, _, rls) = served();
    let send = |user: &str, id: &str, verb: &str, hits| {
        let stated = [("rategate.id", id), ("user", user), ("rategate.verb", verb)];
        let own = v3::RateLimitOverride { requests_per_unit: 10, unit: RateLimitUnit::Hour.into() };
        let hits_addend = Some(hits);
        let limit = Some(own);
        let own = RateLimitDescriptor { hits_addend, limit, ..descriptor(&stated) };
        send(&rls, &[own]).map_err(|status| status.code())
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

/// A wrong entry is refused by its name, and nothing is counted.
#[test]
fn entries_that_are_wrong_are_named() {
    let (engine, _, rls) = served();
    let (id, reserve) = (("rategate.id", UUID), ("rategate.verb", "reserve"));
    let refused = |descriptors: Vec<RateLimitDescriptor>, nth: usize, entry: &str| {
        let status = send(&rls, &descriptors).expect_err(entry);
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
    assert_eq!(left(&engine, "tokens", "a"), (1_000, 0));
}

#[test]
fn unless_it_is_configured_the_entries_are_like_others() {
    let (engine, _) = engine(vec![rule("tokens", &[("user", "")], 100)]);
    let server = Server::start(engine.clone(), Settings::default());
    // No rule has such entries, so nothing is limited, and nothing is refused.
    let stated = [("rategate.id", "none"), ("rategate.verb", "reserve")];
    let rls = Rls::at(&server.address.to_string());
    assert!(send(&rls, &[of(&stated, Some(1_000))]).unwrap());
    assert_eq!(left(&engine, "tokens", "a"), (100, 0));
}

#[test]
fn operations_are_stated_in_json_too() {
    let (engine, ..) = served();
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
