//! `POST /throttle`.

use std::time::Duration;

use serde_json::json;

use crate::http::common::{SECOND, plain};

#[test]
fn answers_as_throttlecrab_does() {
    let service = plain();
    let body = r#"{"key":"k","max_burst":2,"count_per_period":1,"period":10,"quantity":1}"#;
    let ask = || {
        let answer = service.post("/throttle", body);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.field("content-type"), "application/json");
        String::from_utf8(answer.body).unwrap()
    };
    assert_eq!(
        ask(),
        r#"{"allowed":true,"limit":2,"remaining":1,"reset_after":10,"retry_after":0}"#
    );
    assert_eq!(
        ask(),
        r#"{"allowed":true,"limit":2,"remaining":0,"reset_after":20,"retry_after":0}"#
    );
    assert_eq!(
        ask(),
        r#"{"allowed":false,"limit":2,"remaining":0,"reset_after":20,"retry_after":10}"#
    );
    service.clock.advance(Duration::from_nanos(SECOND));
    assert_eq!(
        ask(),
        r#"{"allowed":false,"limit":2,"remaining":0,"reset_after":19,"retry_after":9}"#
    );
}

#[test]
fn a_quantity_is_one_if_none_is_given_and_nothing_if_it_is_zero() {
    let service = plain();
    let left = |quantity: &str| {
        let body =
            format!(r#"{{"key":"k","max_burst":9,"count_per_period":1,"period":60{quantity}}}"#);
        let answer = service.post("/throttle", &body).json();
        (answer["allowed"].as_bool().unwrap(), answer["remaining"].as_u64().unwrap())
    };
    assert_eq!(left(r#","quantity":0"#), (true, 9));
    assert_eq!(left(""), (true, 8));
    assert_eq!(left(r#","quantity":null"#), (true, 7));
    assert_eq!(left(r#","quantity":3"#), (true, 4));
    assert_eq!(left(r#","quantity":0"#), (true, 4));
    let never = r#"{"key":"k","max_burst":9,"count_per_period":1,"period":60,"quantity":10}"#;
    let never = service.post("/throttle", never).json();
    assert_eq!((&never["allowed"], &never["retry_after"]), (&json!(false), &json!(-1)));
}

#[test]
fn shares_its_counters_with_the_same_limit_elsewhere() {
    let service = plain();
    let throttle = r#"{"key":"k","max_burst":20,"count_per_period":100,"period":60}"#;
    assert_eq!(service.post("/throttle", throttle).json()["remaining"], 19);
    let check = service.check(r#"{"limit":"100/min","burst":20,"key":"k"}"#);
    assert_eq!(check["items"][0]["remaining"], 18);
}

#[test]
fn invalid_numbers_are_reported() {
    let service = plain();
    let table = [
        (r#""max_burst":0,"count_per_period":1,"period":60"#, "/max_burst"),
        (r#""max_burst":1,"count_per_period":0,"period":60"#, "/count_per_period"),
        (r#""max_burst":1,"count_per_period":1,"period":0"#, "/period"),
        (r#""max_burst":-1,"count_per_period":1,"period":60"#, "/max_burst"),
        (r#""max_burst":1,"count_per_period":1.5,"period":60"#, "/count_per_period"),
        (r#""max_burst":1,"count_per_period":1,"period":18446744074"#, "/period"),
        (r#""max_burst":1,"count_per_period":1,"period":60,"quantity":-1"#, "/quantity"),
        (r#""max_burst":1,"count_per_period":1"#, ""),
        (r#""max_burst":1,"max_burst":1,"count_per_period":1,"period":60"#, "/max_burst"),
    ];
    for (numbers, pointer) in table {
        let body = format!(r#"{{"key":"k",{numbers}}}"#);
        let (status, _, reported_pointer, reported) = service.post("/throttle", &body).problem();
        assert_eq!((status, &*reported_pointer), (400, pointer), "{body}: {reported}");
    }
    // The members have names: a list of their values is none.
    for body in [r#"["k",1,1,60]"#, "[]", "null", "5"] {
        let (status, code, _, detail) = service.post("/throttle", body).problem();
        assert_eq!((status, &*code), (400, "invalid_request"), "{body}");
        assert!(detail.contains("expected an object with named members"), "{body}: {detail}");
    }
    let huge = r#"{"key":"k","max_burst":18446744073709551615,"count_per_period":18446744073709551615,"period":1}"#;
    let status = service.post("/throttle", huge).status.as_u16();
    assert!(status == 200 || status == 400, "{status}");
}
