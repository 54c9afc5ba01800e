//! `POST /v1/check`.

use std::time::Duration;

use serde_json::{Value as Json, json};

use rategate_server::protocol::http::Options;

use crate::http::common::{SECOND, Service, plain, service};

#[test]
fn an_answer_says_all_there_is_to_say() {
    let service = plain();
    assert_eq!(
        service.check(r#"{"rule":"per_user","key":"42","permits":2}"#),
        json!({"allowed": true, "items": [{
            "rule": "per_user", "verdict": "granted", "allowed": true, "limit": 3, "remaining": 1,
            "retry_after_ms": 0, "retry_after_ns": 0,
            "reset_after_ms": 2000, "reset_after_ns": 2_000_000_000_u64, "shadow": false,
        }]})
    );
    service.clock.advance(Duration::from_nanos(1));
    let denied = service.check(r#"{"rule":"per_user","key":"42","permits":2}"#);
    assert_eq!(denied["allowed"], false);
    assert_eq!(denied["items"][0]["verdict"], "denied");
    assert_eq!(denied["items"][0]["retry_after_ns"], 999_999_999);
    assert_eq!(denied["items"][0]["retry_after_ms"], 1000);
    service.clock.advance(Duration::from_nanos(SECOND - 2));
    assert_eq!(service.check(r#"{"rule":"per_user","key":"42","permits":2}"#)["allowed"], false);
    service.clock.advance(Duration::from_nanos(1));
    assert_eq!(service.check(r#"{"rule":"per_user","key":"42","permits":2}"#)["allowed"], true);
}

#[test]
fn the_same_counter_by_any_name_and_key() {
    let service = plain();
    let requests = [
        r#"{"rule":"per_path","key":["42","/a"]}"#,
        r#"{"rule":"per_path","key":{"path":"/a","user":"42"}}"#,
        r#"{"rule":"per_path","key":["42",{"base64":"L2E="}]}"#,
        r#"{"domain":"edge","descriptor":{"user":"42","path":"/a"}}"#,
        r#"{"domain":"edge","descriptor":[["user","42"],["path","\/\u0061"]]}"#,
    ];
    for (request, left) in requests.into_iter().zip((5..10).rev()) {
        let answer = service.check(request);
        assert_eq!(answer["items"][0]["remaining"], left, "{request}");
        assert_eq!(answer["items"][0]["rule"], "per_path", "{request}");
    }
    let other = service.check(r#"{"rule":"per_path","key":["/a","42"]}"#);
    assert_eq!(other["items"][0]["remaining"], 9);
}

#[test]
fn keys_are_any_bytes() {
    let service = plain();
    let left = |key: &str| {
        let body = format!(r#"{{"rule":"per_user","key":{key}}}"#);
        service.check(&body)["items"][0]["remaining"].as_u64().unwrap()
    };
    assert_eq!((left(r#"{"base64":"AP8="}"#), left(r#"{"base64":"AP4="}"#)), (2, 2));
    assert_eq!((left(r#""\u0000""#), left(r#"{"base64":"AA=="}"#)), (2, 1));
    assert_eq!((left(r#""""#), left(r#"{"base64":""}"#)), (2, 1));
}

#[test]
fn limits_that_come_with_the_call() {
    let service = plain();
    let ask = |limit: &str| service.check(&format!(r#"{{"limit":{limit},"key":"k"}}"#));
    assert_eq!(ask(r#""2/min""#)["items"][0]["limit"], 2);
    assert_eq!(ask(r#""2/min","burst":1"#)["items"][0]["limit"], 1);
    assert_eq!(ask(r#""2/min","burst":1"#)["allowed"], false);
    assert_eq!(ask(r#""2/min""#)["allowed"], true);
    assert_eq!(ask(r#""2/min""#)["allowed"], false);
    assert_eq!(ask(r#""2/min""#)["items"][0]["rule"], json!(null));
}

#[test]
fn several_pass_together_or_not_at_all() {
    let service = plain();
    let both =
        r#"{"items":[{"rule":"per_user","key":"1","permits":2},{"rule":"all","permits":1}]}"#;
    let first = service.check(both);
    assert_eq!(first["allowed"], true);
    assert_eq!(first["items"].as_array().unwrap().len(), 2);
    let second = service.check(both);
    assert_eq!(second["allowed"], false);
    assert_eq!(second["items"][0]["allowed"], false);
    // Nothing was taken from the second.
    assert_eq!(service.check(r#"{"rule":"all","verb":"peek"}"#)["items"][0]["remaining"], 4);
}

#[test]
fn verbs() {
    let service = plain();
    let ask = |verb: &str, permits: u64| {
        let body =
            format!(r#"{{"verb":"{verb}","rule":"per_user","key":"1","permits":{permits}}}"#);
        service.check(&body)
    };
    assert_eq!(ask("peek", 3)["allowed"], true);
    assert_eq!(ask("take", 3)["allowed"], true);
    assert_eq!(ask("peek", 1)["allowed"], false);
    assert_eq!(ask("peek", 1)["items"][0]["remaining"], 0);
    let back = ask("refund", 1);
    assert_eq!(
        (&back["items"][0]["verdict"], &back["items"][0]["refunded"]),
        (&json!("refunded"), &json!(1))
    );
    assert_eq!(ask("peek", 1)["allowed"], true);
    assert_eq!(ask("reset", 1)["items"][0]["verdict"], "reset");
    assert_eq!(ask("peek", 3)["allowed"], true);
    // 0 permits are a peek.
    assert_eq!(ask("take", 0)["items"][0]["remaining"], 3);
}

/// An operation on the reservation with this id, of two rules.
fn estimate(service: &Service, verb: &str, id: &str, users: u64) -> Json {
    let path = json!({ "rule": "per_path", "key": ["1", "/a"] });
    let items = [json!({ "rule": "per_user", "key": "1", "permits": users }), path];
    service.check(&json!({ "verb": verb, "id": id, "items": items }).to_string())
}

#[test]
fn a_reservation_is_made_and_settled_once() {
    let service = plain();
    let id = "FFEEDDCCBBAA99887766554433221100";
    let held = estimate(&service, "reserve", id, 3);
    let reservation = &held["reservation"];
    assert_eq!((&held["allowed"], &held["repeated"]), (&json!(true), &json!(false)));
    assert_eq!(reservation["id"], id.to_lowercase());
    assert_eq!(reservation["ends_after_ns"], 60_000_000_000_u64);
    assert_eq!(held["items"][0]["remaining"], 0);
    let again = estimate(&service, "reserve", id, 3);
    assert_eq!((&again["allowed"], &again["repeated"]), (&json!(true), &json!(true)));
    let denied = estimate(&service, "reserve", "00112233445566778899aabbccddeeff", 1);
    assert_eq!(
        (&denied["allowed"], &denied["items"][0]["allowed"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(denied["reservation"]["ends_after_ms"], Json::Null);
    for repeated in [false, true, true] {
        let committed = estimate(&service, "commit", id, 5);
        assert_eq!(committed["repeated"], repeated);
        let user = &committed["items"][0];
        assert_eq!((&user["verdict"], &user["charged"]), (&json!("committed"), &json!(2)));
        assert_eq!(user["debt"], 2, "counted once");
        assert_eq!(committed["items"][1]["remaining"], 9);
    }
    // Without an id, the answer has a new one; without permits, what was held was used.
    let one = r#"{"verb":"reserve","ttl":"1500ms","rule":"all","permits":4}"#;
    let reservation = &service.check(one)["reservation"];
    assert_eq!(reservation["ends_after_ms"], 1_500);
    let id = reservation["id"].as_str().unwrap();
    let used = json!({ "verb": "commit", "id": id, "rule": "all" });
    assert_eq!(service.check(&used.to_string())["items"][0]["remaining"], 1);
    let denied = service.check(one);
    let end = |verb: &str, id: &Json| json!({ "verb": verb, "id": id, "rule": "all" }).to_string();
    let unknown = end("cancel", &denied["reservation"]["id"]);
    let answer = service.check(&unknown);
    let item = (&answer["items"][0]["verdict"], &answer["items"][0]["allowed"]);
    assert_eq!(item, (&json!("unknown"), &json!(false)), "it was denied");
    // A commit of what was cancelled counts nothing, and so it is not allowed. None of these is a
    // denial, whose status would say that waiting helps.
    let reserved = service.check(r#"{"verb":"reserve","rule":"all"}"#);
    let id = &reserved["reservation"]["id"];
    assert_eq!(service.check(&end("cancel", id))["allowed"], true);
    assert_eq!(service.check(&end("cancel", id))["allowed"], true);
    let again = json!({ "verb": "reserve", "id": id, "rule": "all" }).to_string();
    for body in [end("commit", id), unknown, again] {
        let answer = service.call("POST", "/v1/check?status=429", &[], &body);
        let json = answer.json();
        assert_eq!((answer.status.as_u16(), &json["allowed"]), (200, &json!(false)), "{body}");
        assert_eq!(json["items"][0]["allowed"], false, "{body}");
    }
}

/// Sent again under its id, a request changes nothing, whatever was lost in between.
#[test]
fn what_is_made_once_counts_once() {
    let service = plain();
    let body = |verb: &str, once: char, permits: u64| {
        let once = String::from(once).repeat(32);
        json!({ "verb": verb, "once": once, "rule": "per_user", "key": "1", "permits": permits })
    };
    let send = |body: &Json| service.check(&body.to_string());
    let left =
        || send(&json!({ "verb": "peek", "rule": "per_user", "key": "1" }))["items"][0].clone();
    for (verb, once, permits, verdict, remaining, debt) in [
        ("take", 'a', 2, "granted", 1, Json::Null),
        ("charge", 'b', 4, "charged", 0, json!(3)),
        ("refund", 'c', 5, "refunded", 2, Json::Null),
    ] {
        for sent in 0..5 {
            let answer = send(&body(verb, once, permits));
            assert_eq!(answer["repeated"], sent > 0, "{verb}");
            assert_eq!(
                (&answer["allowed"], &answer["items"][0]["verdict"]),
                (&json!(true), &json!(verdict))
            );
            assert_eq!(
                (&left()["remaining"], &left()["debt"]),
                (&json!(remaining), &debt),
                "{verb}"
            );
        }
    }
    // A denial leaves its id unused.
    assert_eq!(send(&body("take", 'd', 3))["allowed"], false);
    service.clock.advance(Duration::from_nanos(SECOND));
    let passes = send(&body("take", 'd', 3));
    assert_eq!((&passes["allowed"], &passes["repeated"]), (&json!(true), &json!(false)));
    let refused = [
        (body("take", 'd', 2), 409, "/once"),
        (body("charge", 'd', 3), 409, "/once"),
        (body("peek", 'e', 3), 400, "/once"),
        (
            json!({ "verb": "commit", "id": "d".repeat(32), "rule": "per_user", "key": "1" }),
            409,
            "/id",
        ),
        (json!({ "once": "e", "rule": "all" }), 400, "/once"),
    ];
    for (body, status, pointer) in refused {
        let answer = service.call("POST", "/v1/check", &[], &body.to_string());
        assert_eq!(answer.status.as_u16(), status, "{body}");
        assert_eq!(answer.json()["errors"][0]["pointer"], pointer, "{body}: {answer:?}");
    }
}

#[test]
fn reservations_that_are_none_say_what_would_be_right() {
    let service = plain();
    let id = r#""id":"ffeeddccbbaa99887766554433221100""#;
    let reserve = format!(r#"{{"verb":"reserve",{id},"rule":"per_user","key":"1"}}"#);
    assert_eq!(service.check(&reserve)["allowed"], true);
    let cases: [(&str, u16, &str, &str); 10] = [
        (r#"{"verb":"commit","rule":"all"}"#, 400, "/id", "missing"),
        (r#"{"verb":"cancel","rule":"all"}"#, 400, "/id", "missing"),
        (r#"{"id":"ffeeddccbbaa99887766554433221100","rule":"all"}"#, 400, "/id", "only for"),
        (r#"{"ttl":"1s","rule":"all"}"#, 400, "/ttl", "only for the verb `reserve`"),
        (r#"{"verb":"reserve","ttl":"0s","rule":"all"}"#, 400, "/ttl", "600s at most"),
        (r#"{"verb":"reserve","ttl":"11min","rule":"all"}"#, 400, "/ttl", "of rule `all` is 660s"),
        (r#"{"verb":"reserve","ttl":"-1s","rule":"all"}"#, 400, "/ttl", "\"-1s\": not a duration"),
        (
            r#"{"verb":"reserve","rule":"ovens","key":"1","permits":0}"#,
            400,
            "/permits",
            "rule `ovens` holds at least 1 permit",
        ),
        (
            r#"{"verb":"reserve","items":[{"rule":"all"},{"rule":"ovens","key":"1","permits":0}]}"#,
            400,
            "/items/1/permits",
            "rule `ovens` holds at least 1 permit",
        ),
        (
            r#"{"verb":"lease","rule":"ovens","key":"1","permits":0}"#,
            400,
            "/permits",
            "rule `ovens` holds at least 1 permit",
        ),
    ];
    let other = format!(r#"{{"verb":"commit",{id},"rule":"per_user","key":"2"}}"#);
    let twice = r#"{"verb":"reserve","items":[{"rule":"all"},{"rule":"all"}]}"#;
    let more =
        [(&*other, 409, "/id", "other items"), (twice, 400, "/items/1", "name the same counter")];
    for (body, status, pointer, detail) in cases.into_iter().chain(more) {
        let answer = service.call("POST", "/v1/check", &[], body);
        assert_eq!(answer.status.as_u16(), status, "{body}: {answer:?}");
        let problem = answer.json();
        let error = if pointer.is_empty() { &problem } else { &problem["errors"][0] };
        assert!(pointer.is_empty() || error["pointer"] == pointer, "{body}: {error}");
        assert!(error["detail"].as_str().unwrap().contains(detail), "{body}: {error}");
    }
}

/// The reply says what is held, also that to the same call again.
#[test]
fn a_reservation_says_what_it_holds() {
    let service = plain();
    let reserve = |id: &str, permits: u64| {
        let item = json!({"rule": "per_user", "key": "9", "permits": permits});
        service.check(&json!({"verb": "reserve", "id": id, "items": [item]}).to_string())
    };
    let id = "0123456789abcdef0123456789abcdef";
    let first = reserve(id, 3);
    assert_eq!((&first["allowed"], &first["items"][0]["held"]), (&json!(true), &json!(3)));
    assert_eq!(first["reservation"]["ends_after_ms"], 60_000);
    let again = reserve(id, 3);
    assert_eq!((&again["repeated"], &again["items"][0]["held"]), (&json!(true), &json!(3)));
    let denied = reserve("0123456789abcdef0123456789abcdee", 1);
    assert_eq!((&denied["allowed"], &denied["items"][0]["held"]), (&json!(false), &Json::Null));
    let cancel = json!({"verb": "cancel", "id": id, "rule": "per_user", "key": "9"});
    let cancelled = service.check(&cancel.to_string());
    assert_eq!(cancelled["items"][0]["refunded"], 3);
    assert_eq!(cancelled["items"][0]["held"], Json::Null);
}

/// Takes, renews or releases a lease of that many ovens.
fn ovens(service: &Service, verb: &str, name: Option<&str>, permits: u64) -> Json {
    let mut body = json!({ "verb": verb, "rule": "ovens", "key": "a", "permits": permits });
    if let Some(name) = name {
        body["lease"] = name.into();
    }
    service.check(&body.to_string())
}

#[test]
fn a_lease_is_taken_renewed_and_released() {
    let service = plain();
    let taken = ovens(&service, "lease", None, 2);
    assert_eq!((&taken["allowed"], &taken["items"][0]["remaining"]), (&json!(true), &json!(1)));
    let lease = &taken["lease"];
    assert_eq!(lease["ends_after_ms"], 30_000);
    assert_eq!(lease["ends_after_ns"], 30_000_000_000_u64);
    let name = lease["name"].as_str().unwrap();
    assert_eq!(name.len(), 32);
    // Other clients find what is left, and learn when more is available unless it is renewed.
    let denied = ovens(&service, "lease", None, 2);
    assert_eq!((&denied["allowed"], &denied["lease"]), (&json!(false), &Json::Null));
    assert_eq!(denied["items"][0]["retry_after_ms"], 30_000);
    service.clock.advance(Duration::from_nanos(20 * SECOND));
    assert_eq!(ovens(&service, "renew", Some(name), 2)["lease"], *lease);
    service.clock.advance(Duration::from_nanos(20 * SECOND));
    assert_eq!(ovens(&service, "lease", None, 2)["allowed"], false, "it lasts");
    let back = ovens(&service, "release", Some(name), 2);
    assert_eq!((&back["allowed"], &back["lease"]), (&json!(true), &Json::Null));
    assert_eq!(back["items"][0]["refunded"], 2);
    assert_eq!(ovens(&service, "release", Some(name), 2)["items"][0]["refunded"], 0);
    let ended = ovens(&service, "renew", Some(name), 2);
    assert_eq!((&ended["allowed"], &ended["lease"]), (&json!(false), &Json::Null));
}

/// A dead holder blocks permits no longer than its time. A holder that lost the answer can repeat
/// the request.
#[test]
fn a_lease_ends_by_itself_and_has_one_name() {
    let service = plain();
    let name = "00112233445566778899aabbccddeeff";
    for _ in 0..3 {
        let taken = ovens(&service, "lease", Some(name), 3);
        assert_eq!(taken["lease"]["name"], name);
        assert_eq!(taken["lease"]["ends_after_ms"], 30_000);
        service.clock.advance(Duration::from_nanos(10 * SECOND));
    }
    service.clock.advance(Duration::from_nanos(20 * SECOND - 1));
    assert_eq!(ovens(&service, "lease", None, 1)["allowed"], false);
    service.clock.advance(Duration::from_nanos(1));
    assert_eq!(ovens(&service, "lease", None, 1)["allowed"], true);
    assert_eq!(ovens(&service, "renew", Some(name), 3)["allowed"], false);
}

#[test]
fn what_is_no_lease_says_what_would_be() {
    let service = plain();
    let name = "0".repeat(32);
    let table = [
        (json!({"verb":"renew","rule":"ovens","key":"a"}), "/lease", "write the `name`"),
        (json!({"verb":"release","rule":"ovens","key":"a"}), "/lease", "write the `name`"),
        (json!({"rule":"ovens","key":"a","lease":name}), "/lease", "only for the verbs"),
        (json!({"verb":"lease","items":[{"rule":"ovens","key":"a"}]}), "/items", "one rule"),
        (json!({"verb":"lease","limit":"1/s","key":"a"}), "", "one rule"),
        (json!({"verb":"lease","domain":"edge","descriptor":{"site":"a"}}), "", "one rule"),
        (json!({"verb":"lease","rule":"per_user","key":"a"}), "/rule", "concurrency"),
        (json!({"verb":"lease","rule":"ovens","key":"a","permits":0}), "/permits", "1 permit, as"),
    ];
    for (body, pointer, detail) in table {
        let answer = service.post("/v1/check", &body.to_string());
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        let problem = answer.json();
        let reported = format!("{}{}", problem["detail"], problem["errors"]);
        assert!(reported.contains(detail), "{body}: {problem}");
        let at = problem["errors"][0]["pointer"].as_str().unwrap_or_default();
        assert_eq!(at, pointer, "{body}: {problem}");
    }
    let unknown = service.post("/v1/check", r#"{"verb":"lease","rule":"none","key":"a"}"#);
    assert_eq!(unknown.status, 404);
}

#[test]
fn what_is_not_counted_has_no_numbers() {
    let service = plain();
    let ask = |body: &str| {
        let answer = service.check(body);
        let item = &answer["items"][0];
        assert_eq!((&item["limit"], &item["remaining"]), (&json!(null), &json!(null)), "{body}");
        (answer["allowed"].as_bool().unwrap(), item["verdict"].as_str().unwrap().to_owned())
    };
    let unmatched = ask(r#"{"domain":"edge","descriptor":{"unknown":"1"}}"#);
    assert_eq!(unmatched, (true, "unmatched".to_owned()));
    assert_eq!(ask(r#"{"rule":"free","key":"1"}"#), (true, "unlimited".to_owned()));
}

/// Permits in flight have no window.
#[test]
fn a_policy_of_permits_in_flight_has_no_window() {
    let service = plain();
    let take = r#"{"rule":"ovens","key":"1","permits":3}"#;
    assert_eq!(service.check(take)["allowed"], true);
    let denied = service.post("/v1/check?status=429", take);
    let policy = r#""ovens";q=3;qu="concurrent-requests""#;
    assert_eq!((denied.status.as_u16(), denied.field("ratelimit-policy")), (429, policy));
    assert_eq!(denied.field("ratelimit"), r#""ovens";r=0;t=30"#);
}

/// A key of a call is as long as its request may be. That of a rule, in the configuration, is
/// bounded by itself.
#[test]
fn a_key_is_as_long_as_its_request() {
    let options = Options { max_body_bytes: 1 << 20, ..Options::default() };
    let service = service(options);
    for bytes in [4_096, 4_097, 5_000, 65_536, 100_000] {
        for (last, left) in [("a", 2), ("b", 2), ("a", 1)] {
            let key = "k".repeat(bytes - 1) + last;
            let taken = service.check(&json!({ "rule": "per_user", "key": key }).to_string());
            assert_eq!(taken["items"][0]["remaining"], left, "{bytes} bytes");
        }
    }
}

#[test]
fn shadows_take_note_and_let_pass() {
    let service = plain();
    let body = r#"{"rule":"shadow","key":"1"}"#;
    assert_eq!(service.check(body)["items"][0]["shadow"], false);
    let over = service.check(body);
    assert_eq!((&over["allowed"], &over["items"][0]["shadow"]), (&json!(true), &json!(true)));
    assert_eq!(over["items"][0]["verdict"], "denied");
}

#[test]
fn a_denial_may_have_a_status_of_its_own() {
    let service = plain();
    let body = r#"{"rule":"per_user","key":"1","permits":3}"#;
    let granted = service.post("/v1/check?status=429", body);
    assert_eq!((granted.status.as_u16(), granted.field("retry-after")), (200, ""));
    assert_eq!(granted.field("ratelimit"), r#""per_user";r=0;t=3"#);
    service.clock.advance(Duration::from_nanos(SECOND / 2));
    let by_address = service.post("/v1/check?status=429", body);
    let by_field = service.call("POST", "/v1/check", &[("prefer", "wait=1, Status=429")], body);
    for answer in [by_address, by_field] {
        assert_eq!(answer.status, 429);
        assert_eq!(answer.field("retry-after"), "3");
        assert_eq!(answer.field("content-type"), "application/problem+json");
        assert_eq!(answer.field("ratelimit-policy"), r#""per_user";q=60;w=60"#);
        assert_eq!(answer.field("ratelimit"), r#""per_user";r=0;t=3"#);
        assert_eq!(answer.field("preference-applied"), "status=429");
        assert_eq!(
            answer.json(),
            json!({
                "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
                "title": "Quota Exceeded", "status": 429, "detail": "The limit is reached.",
                "code": "over_limit", "retry-after-ms": 2500, "retry-after-ns": 2_500_000_000_u64,
                "violated-policies": ["per_user"],
            })
        );
    }
    assert_eq!(service.post("/v1/check", body).status, 200);
    assert_eq!(service.post("/v1/check?status=418", body).problem().1, "invalid_request");
}

#[test]
fn of_several_denials_the_longest_wait_counts() {
    let service = plain();
    let both = r#"{"items":[{"limit":"1/min","key":"1"},{"limit":"1/s","key":"1"}]}"#;
    assert_eq!(service.post("/v1/check?status=429", both).status, 200);
    let denied = service.post("/v1/check?status=429", both);
    assert_eq!((denied.status.as_u16(), denied.field("retry-after")), (429, "60"));
    assert_eq!(denied.json()["retry-after-ms"], 60_000);
}

#[test]
fn what_never_fits_has_no_time() {
    let service = plain();
    for body in [r#"{"rule":"per_user","key":"1","permits":4}"#, r#"{"rule":"closed","key":"1"}"#] {
        let answer = service.check(body);
        assert_eq!(answer["allowed"], false);
        assert_eq!(answer["items"][0]["retry_after_ms"], json!(null), "{body}");
        let answer = service.post("/v1/check?status=429", body);
        assert_eq!((answer.status.as_u16(), answer.field("retry-after")), (429, ""));
        assert!(answer.json().get("retry-after-ms").is_none());
    }
}

#[test]
fn bodies_have_a_bound() {
    let service = plain();
    let fits = format!(r#"{{"rule":"per_user","key":"{}"}}"#, "k".repeat(65_507));
    assert_eq!(fits.len(), 64 * 1024 - 1);
    assert_eq!(service.post("/v1/check", &fits).status, 200);
    let longer = format!(r#"{{"rule":"per_user","key":"{}"}}"#, "k".repeat(65_509));
    assert_eq!(service.post("/v1/check", &longer).problem().1, "body_too_long");
}

#[test]
fn no_field_repeats_what_a_caller_sends() {
    let service = plain();
    let word = "Zzyzx";
    let body = format!(r#"{{"limit":"1/s","key":"{word}","permits":2}}"#);
    for answer in [
        service.post("/v1/check?status=429", &body),
        service.post("/v1/check", &format!(r#"{{"rule":"{word}"}}"#)),
        service.call(
            "GET",
            &format!("/v1/auth?limit=1/s&permits=2&key={word}"),
            &[("x", word)],
            "",
        ),
        service.call("GET", &format!("/{word}"), &[], ""),
    ] {
        for value in answer.headers.values() {
            assert!(!value.to_str().unwrap().contains(word), "{answer:?}");
        }
    }
}
