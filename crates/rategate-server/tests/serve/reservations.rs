//! Answers about reservations over HTTP and RESP, and what the metrics count of them.

use serde_json::{Value as Json, json};

use crate::serve::clients::{Resp, Service, until};

const RULES: &str = r#"
[[rule]]
name = "tokens"
match = ["user"]
limit = "1000/h"

[[rule]]
name = "slots"
match = ["user"]
limit = 3
algorithm = "concurrency"

[[rule]]
name = "seats"
match = ["user"]
limit = 3
algorithm = "concurrency"

[[rule]]
name = "shadow"
match = ["user"]
limit = 1
algorithm = "concurrency"
enforce = "shadow"

[[rule]]
name = "words"
match = ["user"]
# A permit comes back in 86 s, so that tests see none, however slow they are.
limit = "1000/d"
weights = { input = 1, output = 6 }
"#;

fn id(number: u8) -> String {
    format!("{number:032x}")
}

fn item(rule: &str, permits: u64) -> Json {
    json!({ "rule": rule, "key": "ann", "permits": permits })
}

/// Sends a request, and returns the status and the answer.
fn send(service: &Service, body: &Json) -> (u16, Json) {
    let (status, answer) = service.http().post("/v1/check", &body.to_string());
    (status, serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{status}: {answer}")))
}

/// Sends an operation on a reservation, which must have an answer.
fn operate(service: &Service, verb: &str, number: u8, items: &[Json]) -> Json {
    let body = json!({ "verb": verb, "id": id(number), "items": items });
    let (status, answer) = send(service, &body);
    assert_eq!(status, 200, "{body}: {answer}");
    answer
}

fn verdicts(answer: &Json) -> Vec<&str> {
    let items = answer["items"].as_array().unwrap();
    items.iter().map(|item| item["verdict"].as_str().unwrap()).collect()
}

fn outcomes(service: &Service, rule: &str, outcome: &str) -> u64 {
    let name = format!("rategate_reservations_total{{rule=\"{rule}\",outcome=\"{outcome}\"}}");
    service.metric(&name).map_or(0, |count| count.parse().unwrap())
}

/// A look at permits in flight, and a request for none, say how many are left.
#[test]
fn a_request_for_no_permits_in_flight_says_how_many_are_left() {
    let service = Service::of(RULES);
    for (held, left) in [(0, 3), (2, 1), (1, 0)] {
        if held > 0 {
            let answer = operate(&service, "reserve", held, &[item("slots", held.into())]);
            assert_eq!(answer["allowed"], true, "{answer}");
        }
        for verb in ["peek", "take"] {
            let body = json!({ "verb": verb, "rule": "slots", "key": "ann", "permits": 0 });
            let (status, answer) = send(&service, &body);
            assert_eq!(status, 200, "{answer}");
            let item = &answer["items"][0];
            let shown = (&item["verdict"], &item["remaining"]);
            assert_eq!(shown, (&json!("granted"), &json!(left)), "{verb}: {answer}");
        }
    }
}

/// Tokens and the slots beside them have the verdict of the end.
#[test]
fn a_reservation_that_has_ended_says_how() {
    let service = Service::of(RULES);
    let both = [item("tokens", 5), item("slots", 1)];
    let ends = [("commit", "committed"), ("cancel", "cancelled")];
    for (number, (end, verdict)) in (1..).zip(ends) {
        assert_eq!(operate(&service, "reserve", number, &both)["allowed"], true);
        operate(&service, end, number, &both);
        let again = operate(&service, "reserve", number, &both);
        assert_eq!((&again["allowed"], &again["repeated"]), (&json!(false), &json!(true)));
        assert_eq!(verdicts(&again), [verdict; 2], "{again}");
    }
    let short = json!({ "verb": "reserve", "id": id(3), "ttl": "1ms", "items": both });
    assert_eq!(send(&service, &short).1["allowed"], true);
    std::thread::sleep(std::time::Duration::from_millis(5));
    let again = send(&service, &short).1;
    assert_eq!((&again["allowed"], &again["repeated"]), (&json!(false), &json!(true)));
    assert_eq!(verdicts(&again), ["late", "late"]);
    let words = ["RATEGATE.RESERVE", &id(1), "60000", "ITEMS", "2", "tokens", "5", "1", "ann"];
    let again = service.resp().ask(&[&words[..], &["slots", "1", "1", "ann"]].concat());
    assert_eq!(Resp::field(&again, "verdict"), "committed", "{again:?}");
}

/// A rule that is not enforced changes no answer: its reservation is known, and decided once.
#[test]
fn a_shadow_rule_of_permits_in_flight_changes_no_answer() {
    let service = Service::of(RULES);
    let shadow = [item("shadow", 1)];
    let denied = || {
        let name = "rategate_decisions_total{rule=\"shadow\",outcome=\"shadow_denied\"}";
        service.metric(name).unwrap().parse::<u64>().unwrap()
    };
    let beside = [item("tokens", 5), item("shadow", 1)];
    for (number, items, before) in [(2, &beside[..], 0), (3, &shadow[..], 1)] {
        let (full, later) = (10 * number, 10 * number + 1);
        assert_eq!(operate(&service, "reserve", full, &shadow)["allowed"], true);
        assert_eq!(denied(), before);
        for sent in 0..3 {
            // What was not held at first is not held when it would fit.
            if sent == 2 {
                operate(&service, "commit", full, &shadow);
            }
            let held = operate(&service, "reserve", number, items);
            assert_eq!((&held["allowed"], &held["repeated"]), (&json!(true), &json!(sent > 0)));
            assert!(
                held["reservation"]["ends_after_ms"].as_u64().is_some_and(|ms| ms > 50_000),
                "{held}"
            );
            let own = held["items"].as_array().unwrap().last().unwrap();
            assert_eq!((&own["shadow"], &own["held"]), (&json!(true), &json!(0)), "{held}");
        }
        assert_eq!(denied(), before + 1, "{number} is decided once");
        for sent in 0..2 {
            let ended = operate(&service, "commit", number, items);
            assert_eq!(verdicts(&ended), vec!["committed"; items.len()], "{ended}");
            assert_eq!((&ended["allowed"], &ended["repeated"]), (&json!(true), &json!(sent > 0)));
        }
        // It is full again for the next.
        operate(&service, "reserve", later, &shadow);
        let again = operate(&service, "reserve", number, items);
        assert_eq!((&again["allowed"], &again["repeated"]), (&json!(false), &json!(true)));
        operate(&service, "commit", later, &shadow);
    }
}

/// An id is of its items, also where permits in flight of this process are all of them.
#[test]
fn an_id_of_other_permits_in_flight_is_a_conflict() {
    let service = Service::of(RULES);
    let slots = [item("slots", 1)];
    operate(&service, "reserve", 1, &slots);
    let others = [
        ("reserve", vec![item("seats", 1)]),
        ("reserve", vec![item("slots", 1), item("seats", 1)]),
        ("reserve", vec![item("slots", 2)]),
        ("commit", vec![item("seats", 1)]),
        ("cancel", vec![json!({ "rule": "slots", "key": "bob" })]),
    ];
    for (verb, items) in &others {
        let body = json!({ "verb": verb, "id": id(1), "items": items });
        let (status, problem) = send(&service, &body);
        assert_eq!((status, &problem["code"]), (409, &json!("other_items")), "{body}");
        let detail = problem["detail"].as_str().unwrap();
        let says = detail.starts_with("the id is of 1 item, and 2 are given; send what it was");
        assert_eq!(says, items.len() == 2, "{detail}");
    }
    let free = send(&service, &json!({ "verb": "peek", "rule": "seats", "key": "ann" })).1;
    assert_eq!(free["items"][0]["remaining"], 3, "nothing was held");
    let words = ["RATEGATE.COMMIT", &id(1), "seats", "1", "ann"];
    let error = &service.resp().ask(&words)[0];
    assert!(error.starts_with("ERR the id is of another operation"), "{error}");
    assert_eq!(verdicts(&operate(&service, "commit", 1, &slots)), ["committed"]);
    // Of an operation under the id of what has ended, too.
    let (status, _) =
        send(&service, &json!({ "verb": "commit", "id": id(1), "items": others[0].1 }));
    assert_eq!(status, 409);
}

/// An end by time is counted, also of permits in flight, and of limits of the call in one row.
#[test]
fn what_expires_is_counted_in_each_rule() {
    let service = Service::of(RULES);
    let inline = json!({ "limit": "100/h", "key": "ann", "permits": 5 });
    let items = json!([item("slots", 1), inline, item("tokens", 7)]);
    let reserve = |number: u8, ttl: &str| {
        let body = json!({ "verb": "reserve", "id": id(number), "ttl": ttl, "items": items });
        assert_eq!(send(&service, &body).1["allowed"], true);
    };
    reserve(1, "60s");
    let held = |rule: &str| service.metric(&format!("rategate_held_permits{{rule=\"{rule}\"}}"));
    assert_eq!(held("*inline").as_deref(), Some("5"));
    operate(&service, "commit", 1, items.as_array().unwrap());
    reserve(2, "1ms");
    let all = |outcome: &str| {
        ["slots", "*inline", "tokens"].map(|rule| outcomes(&service, rule, outcome))
    };
    until("the end is noticed", || all("expired") == [1; 3]);
    assert_eq!((all("held"), all("committed"), all("late")), ([2; 3], [1; 3], [0; 3]));
    operate(&service, "commit", 2, items.as_array().unwrap());
    assert_eq!((all("expired"), all("late")), ([1; 3], [1; 3]), "not twice");
    let too_many = json!({ "limit": "100/h", "key": "ann", "permits": 101 });
    let denied = operate(&service, "reserve", 3, &[too_many]);
    assert_eq!((&denied["allowed"], all("denied")), (&json!(false), [0, 1, 0]));
}

/// An error of a usage names the item that is at fault.
#[test]
fn an_invalid_usage_is_named_at_its_item() {
    let service = Service::of(RULES);
    let of = |usage: Json| json!({ "rule": "words", "key": "ann", "usage": usage });
    let held = json!({ "verb": "reserve", "id": id(1), "rule": "words", "key": "ann",
        "permits": 60 });
    assert_eq!(send(&service, &held).1["allowed"], true);
    let null = json!({ "verb": "commit", "id": id(1), "rule": "words", "key": "ann",
        "usage": null });
    let (status, problem) = send(&service, &null);
    assert_eq!((status, &problem["code"]), (400, &json!("invalid_request")), "{problem}");
    assert_eq!(problem["errors"][0]["pointer"], "/usage");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with("invalid type: null, expected an object like"), "{detail}");
    let left = send(&service, &json!({ "rule": "words", "key": "ann", "permits": 0 })).1;
    assert_eq!(left["items"][0]["remaining"], 940, "it is still held");
    let (status, problem) = send(&service, &json!({ "verb": "charge", "items": [of(Json::Null)] }));
    assert_eq!((status, &problem["errors"][0]["pointer"]), (400, &json!("/items/0/usage")));
    for verb in ["charge", "reserve", "commit", "take"] {
        let items =
            json!([item("tokens", 1), of(json!({ "input": 5 })), of(json!({ "inptu": 5 }))]);
        let mut body = json!({ "verb": verb, "items": items });
        if verb == "commit" {
            body["id"] = json!(id(7));
        }
        let (status, problem) = send(&service, &body);
        assert_eq!((status, &problem["code"]), (400, &json!("invalid_usage")), "{verb}: {problem}");
        assert_eq!(problem["errors"][0]["pointer"], "/items/2/usage", "{verb}");
    }
}

/// In each process and each rule, what was held has ended in one of three ways, or is held still.
#[test]
fn what_was_held_is_what_has_ended_and_what_is_open_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let rules = format!("[snapshot]\npath = {:?}\n{RULES}", folder.path().join("counters"));
    let mut service = Service::of(&rules);
    let inline = json!({ "limit": "100/h", "key": "ann", "permits": 5 });
    let items = [item("tokens", 7), item("slots", 1), inline];
    let names = ["tokens", "slots", "*inline"];
    let reserve = |service: &Service, number: u8, ttl: &str| {
        let body = json!({ "verb": "reserve", "id": id(number), "ttl": ttl, "items": items });
        assert_eq!(send(service, &body).1["allowed"], true);
    };
    let count =
        |service: &Service, outcome: &str| names.map(|rule| outcomes(service, rule, outcome));
    let state = |service: &Service, state: &str| {
        let name = format!("rategate_reservations{{state=\"{state}\"}}");
        service.metric(&name).unwrap().parse::<u64>().unwrap()
    };
    // What has ended, of three kinds, and what is open.
    let adds_up = |service: &Service, ended: [u64; 3], open: u64| {
        let all = ["committed", "cancelled", "expired"].map(|outcome| count(service, outcome));
        assert_eq!(all, ended.map(|count| [count; 3]));
        assert_eq!(state(service, "open"), open);
        assert_eq!(count(service, "held"), [ended.iter().sum::<u64>() + open; 3]);
        let held = |rule: &str| {
            let name = format!("rategate_held_permits{{rule=\"{rule}\"}}");
            service.metric(&name).map_or(0, |held| held.parse::<u64>().unwrap())
        };
        assert_eq!(["tokens", "*inline"].map(held), [7 * open, 5 * open]);
    };
    for number in 1..=2 {
        reserve(&service, number, "60s");
    }
    operate(&service, "commit", 1, &items);
    operate(&service, "cancel", 2, &items);
    reserve(&service, 3, "1ms");
    until("an end is noticed", || count(&service, "expired") == [1; 3]);
    reserve(&service, 4, "60s");
    adds_up(&service, [1, 1, 1], 1);
    reserve(&service, 5, "1s");
    service.restart();
    // The third is over, the fifth ends by its time, and the fourth is open.
    until("another end is noticed", || count(&service, "expired") == [1; 3]);
    adds_up(&service, [0, 0, 1], 1);
    operate(&service, "commit", 3, &items);
    assert_eq!(count(&service, "late"), [1, 0, 1]);
    operate(&service, "commit", 4, &items);
    adds_up(&service, [1, 0, 1], 0);
    reserve(&service, 6, "60s");
    adds_up(&service, [1, 0, 1], 1);
    service.restart();
    adds_up(&service, [0, 0, 0], 1);
    operate(&service, "cancel", 6, &items);
    adds_up(&service, [0, 1, 0], 0);
}
