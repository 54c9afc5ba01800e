//! Requests without exactly one field `Host`.

use crate::serve::clients::{Service, closing_response, until};

#[test]
fn a_request_of_http_1_1_has_one_host() {
    let service = Service::of("[[rule]]\nname = \"api\"\nlimit = \"5/h\"\n");
    let target = service.at("http");
    let respond = |fields: &str| {
        let lines = [
            "GET /healthz HTTP/1.1\r\n",
            fields,
            "\r\nGET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
        ];
        closing_response(&target, lines.concat().as_bytes())
    };
    let two = ["", "host: a\r\nhost: b\r\n", "host: a\r\nHost: a\r\n"];
    let hosts = ["a b", "a/b", "user@host", "a?b", "a#b", "a\\b", "ä"];
    let hosts = hosts.map(|host| format!("host: {host}\r\n"));
    for fields in two.into_iter().chain(hosts.iter().map(String::as_str)) {
        let response = respond(fields);
        assert!(
            response.starts_with("HTTP/1.1 400 ") && response.contains("\"no_host\""),
            "{fields}: {response}"
        );
        // The following request is not answered.
        assert_eq!(response.matches("content-length: ").count(), 1, "{fields}: {response}");
    }
    for host in ["localhost", "127.0.0.1:80", "[::1]:80", "a_b.example", "", "%41.example"] {
        let response = respond(&format!("host: {host}\r\n"));
        assert_eq!(response.matches("HTTP/1.1 200 ").count(), 2, "{host}: {response}");
    }
    let old = closing_response(&target, b"GET /healthz HTTP/1.0\r\n\r\n");
    assert!(old.starts_with("HTTP/1.0 200 "), "{old}");
    let counted = "rategate_calls_refused_total{protocol=\"http\",reason=\"malformed\"}";
    assert_eq!(service.metric(counted).unwrap(), "10");
    // Input that is not HTTP is counted too.
    closing_response(&target, b"\x01\x02\x03\r\n\r\n");
    // Counted once its connection has ended at both ends.
    until("it is counted", || service.metric(counted).unwrap() == "11");
}

/// Over HTTP/2, invalid input is counted by its reason, and a connection that its peer ends is
/// not.
#[test]
fn what_is_no_http_2_is_counted() {
    let service = Service::of("[[rule]]\nname = \"api\"\nlimit = \"5/h\"\n");
    let target = service.at("http");
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let counted = "rategate_calls_refused_total{protocol=\"http\",reason=\"malformed\"}";
    let farewell = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";
    closing_response(&target, &[&preface[..], farewell].concat());
    // Data on a stream that never began; a ping of five bytes; fields that no table has.
    for (nth, malformed) in [
        &b"\0\0\x01\0\0\0\0\0\x01x"[..],
        b"\0\0\x05\x06\0\0\0\0\0hello",
        b"\0\0\x01\x01\x05\0\0\0\x01\xff",
    ]
    .into_iter()
    .enumerate()
    {
        closing_response(&target, &[&preface[..], malformed].concat());
        until("it is counted", || service.metric(counted).unwrap() == (nth + 1).to_string());
    }
}
