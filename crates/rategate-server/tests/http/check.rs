//! `POST /v1/check`.

use std::time::Duration;

use rategate_server::protocol::http::Options;
use serde_json::json;

use crate::http::common::{SECOND, plain, service};

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
    service.play(
        "
        pass 1ns
        {rule: per_user, key: '42', permits: 2} => {allowed: false}
            & [{verdict: denied, retry_after_ns: 999999999, retry_after_ms: 1000}]
        pass 999999998ns
        {rule: per_user, key: '42', permits: 2} => {allowed: false}
        pass 1ns
        {rule: per_user, key: '42', permits: 2} => {allowed: true}
        ",
    );
}

/// By any name and any form of the key, and any bytes.
#[test]
fn the_same_key_is_the_same_counter() {
    let service = plain();
    service.play(
        "
        {rule: per_path, key: ['42', /a]} => [{rule: per_path, remaining: 9}]
        {rule: per_path, key: {path: /a, user: '42'}} => [{rule: per_path, remaining: 8}]
        {rule: per_path, key: ['42', {base64: L2E=}]} => [{rule: per_path, remaining: 7}]
        {domain: edge, descriptor: [[user, '42'], [path, /a]]} => [{rule: per_path, remaining: 6}]
        {rule: per_path, key: [/a, '42']} => [{remaining: 9}]
        {rule: per_user, key: {base64: AP8=}} => [{remaining: 2}]
        {rule: per_user, key: {base64: AP8}} => [{remaining: 1}]
        {rule: per_user, key: {base64: _-8}} => [{remaining: 2}]
        {rule: per_user, key: {base64: /+8=}} => [{remaining: 1}]
        {rule: per_user, key: {base64: AP4=}} => [{remaining: 2}]
        {rule: per_user, key: \"\\0\"} => [{remaining: 2}]
        {rule: per_user, key: {base64: AA==}} => [{remaining: 1}]
        {rule: per_user, key: ''} => [{remaining: 2}]
        {rule: per_user, key: {base64: ''}} => [{remaining: 1}]
        ",
    );
    // In the order in which they are written, and with escapes.
    for (descriptor, left) in
        [(r#"{"user":"42","path":"/a"}"#, 5), (r#"[["user","42"],["path","\/\u0061"]]"#, 4)]
    {
        let body = format!(r#"{{"domain":"edge","descriptor":{descriptor}}}"#);
        assert_eq!(service.check(&body)["items"][0]["remaining"], left, "{body}");
    }
}

#[test]
fn items_pass_together_or_not_at_all() {
    plain().play(
        "
        {items: [{rule: per_user, key: '1', permits: 2}, {rule: all}]} => {allowed: true} & [{}, {}]
        {items: [{rule: per_user, key: '1', permits: 2}, {rule: all}]}
            => {allowed: false} & [{allowed: false}, {}]
        // Nothing was taken from the second.
        {rule: all, verb: peek} => [{remaining: 4}]
        ",
    );
}

#[test]
fn verbs_and_limits_of_the_call() {
    plain().play(
        "
        {limit: 2/min, key: k} => [{limit: 2, rule: null}]
        {limit: 2/min, key: k, burst: 1} => [{limit: 1}]
        {limit: 2/min, key: k, burst: 1} => {allowed: false}
        {limit: 2/min, key: k} => {allowed: true}
        {limit: 2/min, key: k} => {allowed: false}
        {verb: peek, rule: per_user, key: '1', permits: 3} => {allowed: true}
        {verb: take, rule: per_user, key: '1', permits: 3} => {allowed: true}
        {verb: peek, rule: per_user, key: '1', permits: 1} => {allowed: false} & [{remaining: 0}]
        {verb: refund, rule: per_user, key: '1', permits: 1} => [{verdict: refunded, refunded: 1}]
        {verb: peek, rule: per_user, key: '1', permits: 1} => {allowed: true}
        {verb: reset, rule: per_user, key: '1'} => [{verdict: reset}]
        {verb: peek, rule: per_user, key: '1', permits: 3} => {allowed: true}
        // 0 permits are a peek.
        {rule: per_user, key: '1', permits: 0} => [{remaining: 3}]
        // What is not counted has no numbers.
        {domain: edge, descriptor: {unknown: '1'}} => {allowed: true}
            & [{verdict: unmatched, limit: null, remaining: null}]
        {rule: free, key: '1'} => {allowed: true}
            & [{verdict: unlimited, limit: null, remaining: null}]
        // A shadow takes note, and lets pass.
        {rule: shadow, key: '1'} => {allowed: true} & [{shadow: false}]
        {rule: shadow, key: '1'} => {allowed: true} & [{shadow: true, verdict: denied}]
        ",
    );
}

#[test]
fn a_reservation_is_made_and_settled_once() {
    let service = plain();
    let both = "items: [{rule: per_user, key: '1', permits: N}, {rule: per_path, key: ['1', /a]}]";
    let story = "
        {verb: reserve, id: $A, N=3} => {allowed: true, repeated: false, reservation: {id: $a}}
            & {reservation: {ends_after_ns: 60000000000}} & [{remaining: 0, held: 3}, {held: 1}]
        {verb: reserve, id: $a, N=3} => {allowed: true, repeated: true} & [{held: 3}, {held: 1}]
        {verb: reserve, id: $b, N=1}
            => {allowed: false, reservation: {ends_after_ms: null}}
            & [{allowed: false, held: null}, {}]
        {verb: commit, id: $a, N=5} => {repeated: false}
            & [{verdict: committed, charged: 2, debt: 2}, {remaining: 9}]
        {verb: commit, id: $a, N=5} => {repeated: true}
            & [{verdict: committed, charged: 2, debt: 2}, {remaining: 9}]
        // Without permits, what was held was used.
        {verb: reserve, id: $c, ttl: 1500ms, rule: all, permits: 4}
            => {reservation: {ends_after_ms: 1500}}
        {verb: commit, id: $c, rule: all} => [{remaining: 1}]
        {verb: reserve, id: $d, rule: all, permits: 4} => {allowed: false}
        // A commit of what was cancelled counts nothing, and so it is not allowed. Nothing of this is
        // a denial, whose status would say that waiting helps.
        POST /v1/check?status=429 {verb: cancel, id: $d, rule: all}
            => {allowed: false} & [{verdict: unknown, allowed: false}]
        {verb: reserve, id: $e, rule: all} => {allowed: true}
        {verb: cancel, id: $e, rule: all} => {allowed: true}
        {verb: cancel, id: $e, rule: all} => {allowed: true}
        POST /v1/check?status=429 {verb: commit, id: $e, rule: all}
            => {allowed: false} & [{allowed: false}]
        POST /v1/check?status=429 {verb: reserve, id: $e, rule: all}
            => {allowed: false} & [{allowed: false}]
    ";
    let permits = |story: String, n: u32| {
        story.replace(&format!("N={n}"), &both.replace('N', &n.to_string()))
    };
    service.play(&[1, 3, 5].into_iter().fold(story.to_owned(), permits));
    let drawn = plain().check(r#"{"verb":"reserve","rule":"all"}"#);
    assert_eq!(drawn["reservation"]["id"].as_str().map(str::len), Some(32), "{drawn}");
}

/// Sent again under its id, a request changes nothing, whatever was lost in between.
#[test]
fn what_is_made_once_counts_once() {
    let service = plain();
    let sent = |verb: &str, id: char, permits: u64, verdict: &str, left: u64, debt: &str| {
        for sent in 0..5 {
            let repeated = sent > 0;
            service.play(&format!(
                "{{verb: {verb}, once: ${id}, rule: per_user, key: '1', permits: {permits}}}
                    => {{allowed: true, repeated: {repeated}}} & [{{verdict: {verdict}}}]
                {{verb: peek, rule: per_user, key: '1'}} => [{{remaining: {left}, debt: {debt}}}]"
            ));
        }
    };
    sent("take", 'a', 2, "granted", 1, "null");
    sent("charge", 'b', 4, "charged", 0, "3");
    sent("refund", 'c', 5, "refunded", 2, "null");
    // A denial leaves its id unused.
    service.play(
        "
        {once: $d, rule: per_user, key: '1', permits: 3} => {allowed: false}
        pass 1s
        {once: $d, rule: per_user, key: '1', permits: 3} => {allowed: true, repeated: false}
        {once: $d, rule: per_user, key: '1', permits: 2} => 409 & {errors: [{pointer: /once}]}
        {verb: charge, once: $d, rule: per_user, key: '1', permits: 3}
            => 409 & {errors: [{pointer: /once}]}
        {verb: peek, once: $e, rule: per_user, key: '1'} => 400 & {errors: [{pointer: /once}]}
        {verb: commit, id: $d, rule: per_user, key: '1'} => 409 & {errors: [{pointer: /id}]}
        {once: e, rule: all} => 400 & {errors: [{pointer: /once}]}
        ",
    );
}

#[test]
fn reservations_and_leases_that_are_none_say_what_would_be_right() {
    plain().play(
        "
        {verb: reserve, id: $1, rule: per_user, key: '1'} => {allowed: true}
        {verb: commit, id: $1, rule: per_user, key: '2'}
            => 409 & {errors: [{pointer: /id}]} & ~ other items
        {verb: reserve, items: [{rule: all}, {rule: all}]}
            => 400 & {errors: [{pointer: /items/1}]} & ~ name the same counter
        {verb: commit, rule: all} => 400 & {errors: [{pointer: /id}]} & ~ missing
        {verb: cancel, rule: all} => 400 & {errors: [{pointer: /id}]} & ~ missing
        {id: $1, rule: all} => 400 & {errors: [{pointer: /id}]} & ~ only for
        {ttl: 1s, rule: all} => 400 & {errors: [{pointer: /ttl}]} & ~ only for the verb `reserve`
        {verb: reserve, ttl: 0s, rule: all} => 400 & {errors: [{pointer: /ttl}]} & ~ 600s at most
        {verb: reserve, ttl: 11min, rule: all}
            => 400 & {errors: [{pointer: /ttl}]} & ~ of rule `all` is 660s
        {verb: reserve, ttl: -1s, rule: all}
            => 400 & {errors: [{pointer: /ttl}]} & ~ -1s\\\": not a duration
        {verb: reserve, rule: ovens, key: '1', permits: 0}
            => 400 & {errors: [{pointer: /permits}]} & ~ rule `ovens` holds at least 1 permit
        {verb: reserve, items: [{rule: all}, {rule: ovens, key: '1', permits: 0}]}
            => 400 & {errors: [{pointer: /items/1/permits}]} & ~ holds at least 1 permit
        {verb: lease, rule: ovens, key: '1', permits: 0}
            => 400 & {errors: [{pointer: /permits}]} & ~ rule `ovens` holds at least 1 permit, as
        {verb: renew, rule: ovens, key: a} => 400 & {errors: [{pointer: /lease}]} & ~ the `name`
        {verb: release, rule: ovens, key: a} => 400 & {errors: [{pointer: /lease}]} & ~ the `name`
        {rule: ovens, key: a, lease: $1}
            => 400 & {errors: [{pointer: /lease}]} & ~ only for the verbs
        {verb: lease, items: [{rule: ovens, key: a}]}
            => 400 & {errors: [{pointer: /items}]} & ~ one rule
        {verb: lease, limit: 1/s, key: a} => 400 & ~ one rule
        {verb: lease, domain: edge, descriptor: {site: a}} => 400 & ~ one rule
        {verb: lease, rule: per_user, key: a} => 400 & {errors: [{pointer: /rule}]} & ~ concurrency
        {verb: lease, rule: none, key: a} => 404
        ",
    );
}

/// A dead holder blocks permits no longer than its time. A holder that lost the answer can repeat
/// the request.
#[test]
fn a_lease_is_taken_renewed_and_released() {
    let service = plain();
    service.play(
        "
        {verb: lease, rule: ovens, key: a, permits: 2, lease: $1} => {allowed: true}
            & [{remaining: 1}] & {lease: {name: $1, ends_after_ms: 30000, ends_after_ns: 30000000000}}
        {verb: lease, rule: ovens, key: a, permits: 2, lease: $1} => {allowed: true} & [{remaining: 1}]
        // Other clients find what is left, and learn when more is available unless it is renewed.
        {verb: lease, rule: ovens, key: a, permits: 2} => {allowed: false, lease: null}
            & [{retry_after_ms: 30000}]
        pass 20s
        {verb: renew, rule: ovens, key: a, permits: 2, lease: $1}
            => {lease: {name: $1, ends_after_ms: 30000}}
        pass 20s
        {verb: lease, rule: ovens, key: a, permits: 2} => {allowed: false}
        {verb: release, rule: ovens, key: a, permits: 2, lease: $1}
            => {allowed: true, lease: null} & [{refunded: 2}]
        {verb: release, rule: ovens, key: a, permits: 2, lease: $1} => [{refunded: 0}]
        {verb: renew, rule: ovens, key: a, permits: 2, lease: $1} => {allowed: false, lease: null}
        {verb: lease, rule: ovens, key: a, permits: 3, lease: $2} => {allowed: true}
        pass 29999999999ns
        {verb: lease, rule: ovens, key: a} => {allowed: false}
        pass 1ns
        {verb: lease, rule: ovens, key: a} => {allowed: true}
        {verb: renew, rule: ovens, key: a, permits: 3, lease: $2} => {allowed: false}
        // Permits in flight have no window.
        {rule: ovens, key: '1', permits: 3} => {allowed: true}
        POST /v1/check?status=429 {rule: ovens, key: '1', permits: 3} => 429
            & ratelimit-policy: \"ovens\";q=3;qu=\"concurrent-requests\" & ratelimit: \"ovens\";r=0;t=30
        ",
    );
    let drawn = service.check(r#"{"verb":"lease","rule":"ovens","key":"b"}"#);
    assert_eq!(drawn["lease"]["name"].as_str().map(str::len), Some(32), "{drawn}");
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
fn a_denial_may_have_a_status_of_its_own() {
    let service = plain();
    let body = r#"{"rule":"per_user","key":"1","permits":3}"#;
    let granted = service.post("/v1/check?status=429", body);
    assert_eq!((granted.status, granted.field("retry-after")), (200, ""));
    assert_eq!(granted.field("ratelimit"), r#""per_user";r=0;t=3"#);
    service.clock.advance(Duration::from_nanos(SECOND / 2));
    let by_address = service.post("/v1/check?status=429", body);
    let by_field = service.call("POST", "/v1/check", &[("prefer", "wait=1, Status=429")], body);
    for answer in [by_address, by_field] {
        assert_eq!(answer.status, 429);
        for (name, value) in [
            ("retry-after", "3"),
            ("content-type", "application/problem+json"),
            ("ratelimit-policy", r#""per_user";q=60;w=60"#),
            ("ratelimit", r#""per_user";r=0;t=3"#),
            ("preference-applied", "status=429"),
        ] {
            assert_eq!(answer.field(name), value);
        }
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
    service.play(
        "
        {rule: per_user, key: '1', permits: 3} => {allowed: false}
        POST /v1/check?status=418 {rule: per_user, key: '1'} => 400 & {code: invalid_request}
        // Of several denials the longest wait counts.
        POST /v1/check?status=429 {items: [{limit: 1/min, key: '1'}, {limit: 1/s, key: '1'}]} => 200
        POST /v1/check?status=429 {items: [{limit: 1/min, key: '1'}, {limit: 1/s, key: '1'}]}
            => 429 & retry-after: 60 & {retry-after-ms: 60000}
        // What never fits has no time.
        {rule: per_user, key: '1', permits: 4} => {allowed: false} & [{retry_after_ms: null}]
        POST /v1/check?status=429 {rule: per_user, key: '1', permits: 4}
            => 429 & retry-after: & {retry-after-ms: null}
        {rule: closed, key: '1'} => {allowed: false} & [{retry_after_ms: null}]
        POST /v1/check?status=429 {rule: closed, key: '1'}
            => 429 & retry-after: & {retry-after-ms: null}
        ",
    );
}

#[test]
fn no_field_repeats_what_a_caller_sends() {
    let service = plain();
    let word = "Zzyzx";
    let body = format!(r#"{{"limit":"1/s","key":"{word}","permits":2}}"#);
    let auth = format!("/v1/auth?limit=1/s&permits=2&key={word}");
    for answer in [
        service.post("/v1/check?status=429", &body),
        service.post("/v1/check", &format!(r#"{{"rule":"{word}"}}"#)),
        service.call("GET", &auth, &[("x", word)], ""),
        service.get(&format!("/{word}")),
    ] {
        for value in answer.headers.values() {
            assert!(!value.to_str().unwrap().contains(word), "{answer:?}");
        }
    }
}
