//! Keys of calls: any bytes, as long as a request may be.

use serde_json::{Value as Json, json};

use crate::serve::clients::{Resp, Service, closing_response};

const RULES: &str = "[[rule]]\nname = \"api\"\nmatch = [\"user\"]\nlimit = \"5/h\"\n";

/// Takes a permit over HTTP, and returns how many are left.
fn left(service: &Service, key: &Json) -> Json {
    let body = json!({ "rule": "api", "key": key }).to_string();
    let (status, answer) = service.http().post("/v1/check", &body);
    assert_eq!(status, 200, "{answer}");
    let answer: Json = serde_json::from_str(&answer).unwrap();
    answer["items"][0]["remaining"].clone()
}

/// No key, a long one, and one that is no text: each has a counter of its own, the same over every
/// protocol.
#[test]
fn keys_are_any_bytes_over_every_protocol() {
    let service = Service::of(RULES);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for key in [String::new(), "\0".to_owned(), "ann".to_owned(), "k".repeat(60_000)] {
        assert_eq!(left(&service, &json!(key)), 4, "{} bytes", key.len());
        let reply = service.resp().ask(&["RATEGATE.CHECK", "api", "1", &key]);
        assert_eq!(Resp::field(&reply, "remaining"), "3");
        let envoy = crate::serve::clients::envoy(service.at("grpc"), "user", &key, 4);
        assert_eq!(runtime.block_on(envoy), 3, "{} bytes", key.len());
        assert_eq!(left(&service, &json!(key)), 0);
    }
    let (status, _) = service.http().get("/v1/auth?rule=api&key=");
    assert_eq!(status, 429, "no key is that of the first round");
    // Of Envoy's, half a character is the bytes that UTF-8 would have for it.
    let half =
        r#"{"domain":"default","descriptors":[{"entries":[{"key":"user","value":"\ud800"}]}]}"#;
    assert_eq!(service.http().post("/json", half).0, 200);
    assert_eq!(left(&service, &json!({ "base64": "7aCA" })), 3);
}

/// The bound is that of the request, and an error says it.
#[test]
fn a_key_beyond_its_request_is_refused_with_the_bound() {
    let service = Service::of(&format!("[server.limits]\nbody = 4096\n{RULES}"));
    let around = json!({ "rule": "api", "key": "" }).to_string().len();
    assert_eq!(left(&service, &json!("k".repeat(4_096 - around))), 4);
    let longer = json!({ "rule": "api", "key": "k".repeat(4_097 - around) }).to_string();
    let (status, problem) = service.http().post("/v1/check", &longer);
    let problem: Json = serde_json::from_str(&problem).unwrap();
    assert_eq!((status, &problem["code"]), (413, &json!("body_too_long")));
    let says = "The body is longer than 4096 bytes, as many as are read.";
    assert_eq!(problem["detail"], says);
    // A command of RESP has 64 KiB.
    let key = "k".repeat(65_537);
    let command =
        format!("*4\r\n$14\r\nRATEGATE.CHECK\r\n$3\r\napi\r\n$1\r\n1\r\n$65537\r\n{key}\r\n");
    let reply = closing_response(&service.at("resp"), command.as_bytes());
    assert_eq!(reply, "-ERR Protocol error: invalid bulk length\r\n");
    service.play(
        "
        rategate_calls_refused_total{protocol=\"http\",reason=\"too_long\"} => 1
        rategate_calls_refused_total{protocol=\"resp\",reason=\"malformed\"} => 1
        ",
    );
}
