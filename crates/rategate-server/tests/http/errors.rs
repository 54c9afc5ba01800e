//! Errors that say where the fault is, what was sent, and what would be right.

use rategate_server::protocol::http::Options;

use crate::http::common::{Service, plain, service, with_text};
use crate::serve::clients::Answer;

/// Checks that a problem has one error at a pointer, with all these parts in its text.
fn assert_reported(answer: &Answer, status: u16, pointer: &str, parts: &[&str]) {
    assert_eq!(answer.status, status, "{answer:?}");
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

/// The place of a fault in a body, and what the text says of it.
#[test]
fn a_fault_is_reported_at_its_place() {
    let service = plain();
    let key = "a text, bytes like {\"base64\": \"AP8=\"}, a list of values, or values by name";
    let number = "expected a whole number from 0 to 18446744073709551615 at line 1";
    let no_object = "not a JSON object";
    let one_form = "an item has `rule`";
    let verbs = "`take`, `peek`, `charge`, `refund`, `reset`, `lease`, `renew`, `release`, \
                 `reserve`, `commit`, `cancel`";
    let table: &[(&[u8], &str, &str)] = &[
        // No object.
        (b"", "", no_object),
        (b"\n ", "", no_object),
        (b"[]", "", no_object),
        (b"null", "", no_object),
        (b"5", "", no_object),
        (b"{", "", "line 1 column"),
        (b"{} x", "", "trailing characters"),
        // Text that is none.
        (b"{\"rule\":\"per_user\",\"key\":\"a\xff\"}", "/key", "invalid unicode"),
        (b"{\"rule\":\"\xff\"}", "/rule", "invalid unicode"),
        (br#"{"rule":"r","key":"\ud800"}"#, "/key", "hex escape"),
        (br#"{"rule":"a\ud800\u0041"}"#, "/rule", "hex escape"),
        // Names.
        (br#"{"rule":"r","permit":1}"#, "/permit", "unknown field `permit`"),
        (br#"{"rule":"r","rule":"s"}"#, "", "duplicate field `rule`"),
        (br#"{"items":[{"rule":"r","key":"1","key":"1"}]}"#, "/items/0", "duplicate field `key`"),
        (br#"{"rule":"r","key":{"user":"1","user":"2"}}"#, "/key", key),
        (br#"{"domain":"edge","descriptor":{"a":"1","a":"2"}}"#, "/descriptor", "an object like"),
        (br#"{"verb":"charge","rule":"r","usage":{"in":1,"in":2}}"#, "/usage", "\"in\""),
        // Verbs.
        (br#"{"rule":"r","verb":"steal"}"#, "/verb", verbs),
        (br#"{"rule":"r","verb":1}"#, "/verb", "expected a text"),
        (br#"{"rule":"r","verb":null}"#, "/verb", "expected a text"),
        (br#"{"rule":"r","verb":{"take":null}}"#, "/verb", "expected a text"),
        // Numbers.
        (br#"{"rule":"r","permits":-1}"#, "/permits", number),
        (br#"{"rule":"r","permits":1.5}"#, "/permits", number),
        (br#"{"rule":"r","permits":1.0}"#, "/permits", number),
        (br#"{"rule":"r","permits":"1"}"#, "/permits", number),
        (br#"{"rule":"r","permits":true}"#, "/permits", number),
        (br#"{"rule":"r","permits":18446744073709551616}"#, "/permits", number),
        (br#"{"rule":"r","permits":1e400}"#, "/permits", "number out of range"),
        (br#"{"rule":"r","permits":NaN}"#, "/permits", "expected value"),
        (br#"{"items":[{"rule":"r"},{"rule":"s","permits":-1}]}"#, "/items/1/permits", number),
        (br#"{"verb":"charge","rule":"r","usage":{"in":-1}}"#, "/usage/in", number),
        // A null would be another request.
        (br#"{"rule":"r","permits":null}"#, "/permits", "null"),
        (br#"{"items":[{"rule":"r","permits":null}]}"#, "/items/0/permits", "null"),
        (br#"{"items":[{"rule":"r","usage":null}]}"#, "/items/0/usage", "null"),
        (br#"{"rule":"r","verb":"reserve","id":null}"#, "/id", "null"),
        (br#"{"rule":"r","verb":"charge","once":null}"#, "/once", "null"),
        (br#"{"rule":"r","verb":"reserve","ttl":null}"#, "/ttl", "null"),
        // Texts, keys and descriptors.
        (br#"{"rule":7}"#, "/rule", "expected a text"),
        (br#"{"rule":"per_user","key":1}"#, "/key", key),
        (br#"{"rule":"per_path","key":["1",null]}"#, "/key", key),
        (br#"{"rule":"per_user","key":{"base64":"*"}}"#, "/key", "not base64"),
        (br#"{"rule":"r","key":{"a":{"b":"c"}}}"#, "/key", "base64"),
        (br#"{"rule":"r","key":{"a":{"base64":"AA==","c":"d"}}}"#, "/key", "base64"),
        (br#"{"limit":"1/s","key":["a"]}"#, "/key", "one key"),
        (br#"{"domain":"edge","descriptor":{"user":1}}"#, "/descriptor", "bytes like"),
        (br#"{"domain":"edge","descriptor":[["user"]]}"#, "/descriptor", "[[\"user\", \"42\"]]"),
        (br#"{"domain":"edge","descriptor":[["a","1","2"]]}"#, "/descriptor", "[[\"user\""),
        (br#"{"domain":"edge","descriptor":{}}"#, "", "1 to 32 entries"),
        // Ids and times.
        (br#"{"rule":"r","verb":"reserve","id":"x1"}"#, "/id", "\"x1\" is none; an id is 32"),
        (br#"{"rule":"r","verb":"renew","lease":"x1"}"#, "/lease", "\"x1\" is none"),
        (br#"{"rule":"r","once":"x1"}"#, "/once", "\"x1\" is none"),
        (br#"{"rule":"r","verb":"reserve","ttl":30}"#, "/ttl", "integer `30`, expected a text"),
        (br#"{"rule":"r","verb":"reserve","ttl":"soon"}"#, "/ttl", "write a time like \"30s\""),
        (br#"{"verb":"reserve","rule":"r","usage":{}}"#, "/usage", "it names no unit"),
        // Members that do not go together.
        (b"{}", "", one_form),
        (br#"{"items":[{"rule":"r"},{}]}"#, "/items/1", one_form),
        (br#"{"items":[["r",null,null,null,null,"k"]]}"#, "/items/0", "expected an object"),
        (br#"{"items":["r"]}"#, "/items/0", "expected an object"),
        (br#"{"rule":"r","limit":"1/s","key":"a"}"#, "", one_form),
        (br#"{"descriptor":{"user":"a"}}"#, "", "`domain` is missing"),
        (br#"{"items":[{"domain":"d"}]}"#, "/items/0", "`descriptor` is missing"),
        (br#"{"items":[]}"#, "/items", "1 to 64"),
        (br#"{"items":[{"rule":"r"}],"key":"k"}"#, "", "use one or the other"),
        // Limits of a call.
        (br#"{"limit":"0/h","key":"a"}"#, "/limit", "\"0/h\": a limit that comes with the call"),
        // Keys of a rule.
        (br#"{"rule":"per_path","key":{"user":"1"}}"#, "/key", "user, path"),
        (br#"{"rule":"per_path","key":{"user":"1","path":"2","x":"3"}}"#, "/key", "user, path"),
    ];
    for (body, pointer, part) in table {
        let answer = service.post_bytes("/v1/check", body.to_vec());
        assert_reported(&answer, 400, pointer, &[part]);
        assert_eq!(answer.problem().1, "invalid_request");
    }
    let many = format!(r#"{{"items":[{}]}}"#, vec![r#"{"rule":"all"}"#; 65].join(","));
    assert_invalid(&service, &many, "/items", &["1 to 64"]);
    let many = format!(r#"{{"rule":"r","key":[{}]}}"#, vec![r#""x""#; 33].join(","));
    assert_invalid(&service, &many, "/key", &["more than 32 values"]);
    let long = format!(r#"{{"rule":"all","verb":"{}"}}"#, "v".repeat(1_000));
    assert_invalid(&service, &long, "/verb", &["vvv..."]);
}

#[test]
fn the_engine_s_faults_have_codes() {
    plain().play(
        "
        {rule: per_usr, key: '1'}
            => 404 & {code: no_such_rule, errors: [{pointer: /rule}]} & ~ `per_usr`; known: `
        {verb: peek, rule: per_usr, key: {user: '1'}}
            => 404 & {code: no_such_rule, errors: [{pointer: /rule}]} & ~ there is no rule `
        {items: [{rule: all}, {rule: none}]}
            => 404 & {code: no_such_rule, errors: [{pointer: /items/1/rule}]}
        {rule: per_user}
            => 400 & {code: invalid_values, errors: [{pointer: /key}]} & ~ needs 1 value
        {rule: per_user, key: ['1', '2']}
            => 400 & {code: invalid_values, errors: [{pointer: /key}]} & ~ 2 are given
        GET /v1/check => 405 & {code: other_method} & allow: POST
        GET /nowhere => 404 & {code: no_such_path}
        // A burst of nothing is at the burst.
        {limit: 1/s, burst: 0, key: '1'} => 400 & {errors: [{pointer: /burst}]} & ~ at least 1
        {items: [{rule: all}, {limit: 1/s, burst: 0, key: '1'}]}
            => 400 & {errors: [{pointer: /items/1/burst}]} & ~ 0:
        GET /v1/auth?limit=1/s&burst=0&key=1 => 400 & {errors: [{pointer: '?burst'}]} & ~ at least 1
        GET /v1/auth?limit=0/s&key=1 => 400 & {errors: [{pointer: '?limit'}]} & ~ 100/min
        ",
    );
    let short = service(Options { max_body_bytes: 100, ..Options::default() });
    let long = format!(r#"{{"rule":"per_user","key":"{}"}}"#, "k".repeat(100));
    assert_reported(&short.post("/v1/check", &long), 413, "", &["longer than 100 bytes"]);
}

/// The item, whose rule takes no charges, no ids or no leases, is named.
#[test]
fn a_verb_that_a_rule_does_not_support_is_reported_at_its_item() {
    let service = plain();
    let ovens = "{rule: ovens, key: '1'}";
    let site = "{domain: edge, descriptor: {site: '1'}}";
    for (body, pointer) in [
        ("verb: charge, rule: ovens, key: '1'".to_owned(), "/rule"),
        ("verb: charge, once: $1, rule: ovens, key: '1'".to_owned(), "/rule"),
        ("once: $1, rule: ovens, key: '1'".to_owned(), "/rule"),
        (format!("verb: charge, items: [{{rule: all}}, {ovens}]"), "/items/1/rule"),
        (format!("once: $1, items: [{{rule: all}}, {ovens}]"), "/items/1/rule"),
        (format!("verb: charge, items: [{{rule: all}}, {site}]"), "/items/1/descriptor"),
    ] {
        service.play(&format!(
            "{{{body}}} => 400 & {{code: not_for_this_limit, errors: [{{pointer: {pointer}}}]}}
                & ~ rule `ovens` counts permits in flight"
        ));
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
    with_text(rules).play(
        "
        {verb: charge, items: [{rule: calls, key: '1'}, {rule: ovens}]}
            => 400 & {errors: [{pointer: /items/1/rule}]} & ~ rule `ovens`
        {verb: charge, once: $1, items: [{rule: calls, key: '1'}, {rule: ovens}]}
            => 400 & {errors: [{pointer: /items/1/rule}]} & ~ rule `ovens`
        {verb: lease, rule: calls, key: '1'}
            => 400 & {errors: [{pointer: /rule}]} & ~ several limits
        ",
    );
}
