//! Errors that say where the fault is, what was sent, and what would be right.

use rategate_server::protocol::http::Options;

use crate::http::common::{Answer, Service, plain, service, with_rules};

/// Checks that a problem has one error at a pointer, with all these parts in its text.
fn assert_reported(answer: &Answer, status: u16, pointer: &str, parts: &[&str]) {
    assert_eq!(answer.status.as_u16(), status, "{answer:?}");
    let problem = answer.json();
    let [error] = problem["errors"].as_array().map_or(&[][..], Vec::as_slice) else {
        panic!("{problem}: not one error")
    };
    assert_eq!(error["pointer"], pointer, "{problem}");
    for part in parts {
        assert!(error["detail"].as_str().unwrap().contains(part), "{part}: {problem}");
    }
}

fn assert_invalid(service: &Service, body: &str, pointer: &str, parts: &[&str]) {
    assert_reported(&service.post("/v1/check", body), 400, pointer, parts);
}

#[test]
fn a_verb_that_is_none_is_shown_the_verbs() {
    let service = plain();
    let every = "`take`, `peek`, `charge`, `refund`, `reset`, `lease`, `renew`, `release`, \
                 `reserve`, `commit`, `cancel`";
    for (verb, sent) in [
        ("1", "integer `1`"),
        ("true", "boolean `true`"),
        ("null", "null"),
        ("{}", "map"),
        (r#"["take"]"#, "sequence"),
        (r#""steal""#, "\"steal\""),
        (r#""\n\"""#, r#""\n\"""#),
    ] {
        let body = format!(r#"{{"rule":"per_user","key":"1","verb":{verb}}}"#);
        assert_invalid(&service, &body, "/verb", &[every, sent]);
    }
    let long = format!(r#"{{"rule":"per_user","key":"1","verb":"{}"}}"#, "v".repeat(1_000));
    assert_invalid(&service, &long, "/verb", &[every, "vvv\"..."]);
}

#[test]
fn a_value_that_is_no_text_is_reported_with_its_type() {
    let service = plain();
    for (body, pointer, sent) in [
        (r#"{"rule":"per_user","key":1}"#, "/key", "integer `1`"),
        (r#"{"rule":"per_user","key":false}"#, "/key", "boolean `false`"),
        (r#"{"rule":"per_user","key":{"user":1.5}}"#, "/key/user", "floating point `1.5`"),
        (r#"{"rule":"per_path","key":["1",null]}"#, "/key/1", "null"),
        (r#"{"items":[{"rule":"all"},{"limit":"1/s","key":2}]}"#, "/items/1/key", "integer `2`"),
        (r#"{"domain":"edge","descriptor":{"user":1}}"#, "/descriptor/user", "integer `1`"),
        (r#"{"domain":"edge","descriptor":[["user",[]]]}"#, "/descriptor/0/1", "sequence"),
    ] {
        assert_invalid(&service, body, pointer, &[sent, "expected a text", "{\"base64\": a text}"]);
    }
}

#[test]
fn bytes_that_are_no_text_are_shown_their_form() {
    let service = plain();
    for (body, pointer, sent) in [
        (&b"{\"rule\":\"per_user\",\"key\":\"a\xff\"}"[..], "/key", "byte 0xff"),
        (b"{\"rule\":\"per_path\",\"key\":[\"1\",\"\xc3\"]}", "/key/1", "byte 0xc3"),
        (b"{\"domain\":\"edge\",\"descriptor\":{\"user\":\"\xfe\"}}", "/descriptor/user", "0xfe"),
        (b"{\"rule\":\"\xff\"}", "/rule", "byte 0xff"),
    ] {
        let parts = [sent, "UTF-8", r#"{"base64": "AP8="}"#];
        assert_reported(&service.post_bytes("/v1/check", body.to_vec()), 400, pointer, &parts);
    }
}

/// Half a character, as programs that count in UTF-16 cut them, is a value like any other in a key,
/// and nowhere else.
#[test]
fn half_a_character_is_reported_as_what_it_is() {
    let service = plain();
    for (body, pointer) in [
        (r#"{"rule":"\ud800"}"#, "/rule"),
        (r#"{"rule":"\udc00x","key":"\ud800"}"#, "/rule"),
        (r#"{"rule":"a\ud800\u0041"}"#, "/rule"),
        (r#"{"verb":"\ud800"}"#, "/verb"),
        (r#"{"verb":"reserve","ttl":"\ud800","rule":"all"}"#, "/ttl"),
        (r#"{"items":[{"rule":"all"},{"domain":"\ud800"}]}"#, "/items/1/domain"),
        (r#"{"\ud800":"1"}"#, ""),
    ] {
        assert_invalid(&service, body, pointer, &["half a character", "\\ud800"]);
    }
    let fault = r#"{"rule":"per_user","key":"\ud800","permits":-1}"#;
    assert_invalid(&service, fault, "/permits", &["integer `-1`"]);
    service.check(r#"{"rule":"per_user","key":"\ud800"}"#);
}

#[test]
fn a_member_that_comes_twice_is_the_place() {
    let service = plain();
    for (body, pointer, name) in [
        (r#"{"rule":"all","rule":"all"}"#, "/rule", "`rule`"),
        (r#"{"verb":"take","rule":"all","verb":"take"}"#, "/verb", "`verb`"),
        (
            r#"{"items":[{"rule":"all"},{"rule":"all","key":"1","key":"1"}]}"#,
            "/items/1/key",
            "`key`",
        ),
        (r#"{"rule":"per_user","key":{"user":"1","user":"2"}}"#, "/key/user", "\"user\""),
        (r#"{"domain":"edge","descriptor":{"a/b":"1","a/b":"2"}}"#, "/descriptor/a~1b", "\"a/b\""),
        (r#"{"verb":"charge","rule":"all","usage":{"in":1,"in":2}}"#, "/usage/in", "\"in\""),
    ] {
        assert_invalid(&service, body, pointer, &["duplicate", name]);
    }
}

#[test]
fn a_burst_of_nothing_is_at_the_burst() {
    let service = plain();
    for (item, pointer) in [("", "/burst"), (r#"{"rule":"all"},"#, "/items/1/burst")] {
        let limit = r#"{"limit":"1/s","burst":0,"key":"1"}"#;
        let list = format!(r#"{{"items":[{item}{limit}]}}"#);
        let body = if item.is_empty() { limit } else { &list };
        assert_invalid(&service, body, pointer, &["0: ", "at least 1"]);
    }
    let auth = service.get("/v1/auth?limit=1/s&burst=0&key=1");
    assert_reported(&auth, 400, "?burst", &["0: ", "at least 1"]);
    let auth = service.get("/v1/auth?limit=0/s&key=1");
    assert_reported(&auth, 400, "?limit", &["\"0/s\"", "100/min"]);
}

/// The item, whose rule takes no charges, no ids or no leases, is named.
#[test]
fn a_verb_that_a_rule_does_not_support_is_reported_at_its_item() {
    let service = plain();
    let id = "0".repeat(32);
    let once = format!(r#""once":"{id}""#);
    let ovens = r#"{"rule":"ovens","key":"1"}"#;
    let by_descriptor = r#"{"domain":"edge","descriptor":{"site":"1"}}"#;
    let in_flight = ["rule `ovens` counts permits in flight", "reserve or lease them"];
    for (body, pointer) in [
        (r#"{"verb":"charge","rule":"ovens","key":"1"}"#.to_owned(), "/rule"),
        (format!(r#"{{"verb":"charge",{once},"rule":"ovens","key":"1"}}"#), "/rule"),
        (format!(r#"{{{once},"rule":"ovens","key":"1"}}"#), "/rule"),
        (format!(r#"{{"verb":"charge","items":[{{"rule":"all"}},{ovens}]}}"#), "/items/1/rule"),
        (format!(r#"{{{once},"items":[{{"rule":"all"}},{ovens}]}}"#), "/items/1/rule"),
        (
            format!(r#"{{"verb":"charge","items":[{{"rule":"all"}},{by_descriptor}]}}"#),
            "/items/1/descriptor",
        ),
    ] {
        let answer = service.post("/v1/check", &body);
        assert_reported(&answer, 400, pointer, &in_flight);
        assert_eq!(answer.problem().1, "not_for_this_limit", "{body}");
    }
    let lease = r#"{"verb":"lease","rule":"per_user","key":"1"}"#;
    assert_invalid(&service, lease, "/rule", &["rule `per_user`", "\"concurrency\""]);
}

/// An item of a rule with several limits is decided as several, and counts as one.
#[test]
fn an_item_behind_several_limits_has_its_own_number() {
    let rules = r#"
        [[rule]]
        name = "calls"
        match = ["user"]
        limits = [{ name = "rpm", limit = "3/min" }, { name = "rph", limit = "9/h" }]

        [[rule]]
        name = "ovens"
        limit = 2
        algorithm = "concurrency"
    "#;
    let rules = rategate_server::config::load_text("rules.toml", rules).unwrap().rules;
    let service = with_rules(rules.set().as_ref().clone());
    let items = r#""items":[{"rule":"calls","key":"1"},{"rule":"ovens"}]"#;
    for verb in ["charge".to_owned(), format!(r#"charge","once":"{}"#, "0".repeat(32))] {
        let body = format!(r#"{{"verb":"{verb}",{items}}}"#);
        assert_invalid(&service, &body, "/items/1/rule", &["rule `ovens`"]);
    }
    let lease = r#"{"verb":"lease","rule":"calls","key":"1"}"#;
    assert_invalid(&service, lease, "/rule", &["rule `calls`", "several limits"]);
}

#[test]
fn a_body_that_is_too_long_is_the_place() {
    let service = service(Options { max_body_bytes: 100, ..Options::default() });
    let long = format!(r#"{{"rule":"per_user","key":"{}"}}"#, "k".repeat(100));
    assert_reported(&service.post("/v1/check", &long), 413, "", &["longer than 100 bytes"]);
}
