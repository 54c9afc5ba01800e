//! Refused calls, over every protocol: counted by reason, logged, and delayed for clients that
//! guess.

use std::time::{Duration, Instant};

use crate::serve::clients::{Http, Resp, Service, closing_response};

const RULE: &str = "[[rule]]\nname = \"api\"\nmatch = [\"user\"]\nlimit = \"5/h\"\n";

/// Starts a service that requires the token at all listeners, or for changes only.
fn guarded(auth: bool) -> Service {
    let server = format!("token = \"s3cret\"\nauth = {auth}\n");
    Service::of(&format!("{server}{RULE}"))
}

fn refused(http: &mut Http, protocol: &str, reason: &str) -> u64 {
    let name =
        format!("rategate_calls_refused_total{{protocol=\"{protocol}\",reason=\"{reason}\"}} ");
    let (status, text) = http.get_with("/metrics", RIGHT);
    assert_eq!(status, 200);
    let figure = text.lines().find_map(|line| line.strip_prefix(&name));
    figure.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

const RIGHT: &str = "authorization: Bearer s3cret\r\n";

/// A connection that has shown the token: guesses of other clients never delay it.
fn known(service: &Service) -> Http {
    let mut http = service.http();
    assert_eq!(http.get_with("/v1/rules", RIGHT).0, 200);
    http
}

#[test]
fn calls_without_the_token_are_counted_by_protocol_and_reason() {
    let service = guarded(true);
    let post =
        |fields: &str, body: &str| {
            let length = body.len();
            service.http().call(&format!(
            "POST /v1/check HTTP/1.1\r\nhost: localhost\r\n{fields}content-length: {length}\r\n\
             \r\n{body}"
        )).0
        };
    let ask = "{\"rule\":\"api\",\"key\":\"ann\"}";
    let right = "authorization: Bearer s3cret\r\n";
    assert_eq!(post("", ask), 401);
    assert_eq!(post("authorization: Bearer other\r\n", ask), 401);
    assert_eq!(post(right, "{}"), 400);
    assert_eq!(post(right, "{\"rule\":\"none\"}"), 404);
    assert_eq!(post(right, ask), 200);
    let mut resp = service.resp();
    assert!(resp.ask(&["PING"])[0].starts_with("NOAUTH"));
    assert!(resp.ask(&["AUTH", "other"])[0].starts_with("WRONGPASS"));
    assert_eq!(resp.ask(&["AUTH", "s3cret"]), ["OK"]);
    for malformed in [
        &["CL.THROTTLE", "k", "x", "1", "1"][..],
        &["NONSENSE"],
        &["RATEGATE.CHECK", "api", "many"],
        &["RATEGATE.LEASE", "KEEP"],
        &["RATEGATE.RESERVE", "*", "never", "api", "1", "ann"],
        &["PING", "a", "b"],
    ] {
        assert!(resp.ask(malformed)[0].starts_with("ERR"), "{malformed:?}");
    }
    for fault in [
        &["RATEGATE.CHECK", "none", "1"][..],
        &["RATEGATE.CHECK", "api", "1"],
        &["RATEGATE.RESERVE", "*", "0", "api", "1", "ann"],
        &["RATEGATE.EXPLAIN", "none"],
        &["SELECT", "1"],
    ] {
        assert!(resp.ask(fault)[0].starts_with("ERR"), "{fault:?}");
    }
    for (token, code) in [(None, 16), (Some("other"), 16), (Some("s3cret"), 0)] {
        assert_eq!(service.envoy_code(token, 1), code, "{token:?}");
    }
    let expected = [
        ("http", [1, 1, 1, 0, 0, 0, 1, 0, 0]),
        ("resp", [1, 1, 6, 0, 0, 0, 5, 0, 0]),
        ("grpc", [1, 1, 0, 0, 0, 0, 0, 0, 0]),
    ];
    let reasons = [
        "no_token",
        "invalid_token",
        "malformed",
        "too_long",
        "too_much",
        "table_full",
        "fault",
        "late",
        "handshake",
    ];
    for (protocol, counts) in expected {
        let counted = reasons.map(|reason| refused(&mut service.http(), protocol, reason));
        assert_eq!(counted, counts, "{protocol}: {reasons:?}");
    }
}

/// Rights are equal over every protocol: refunds need the token as resets do.
#[test]
fn permits_come_back_by_the_token_alone() {
    let service = guarded(false);
    let ask = |resp: &mut Resp, words: &[&str]| resp.ask(words)[0].clone();
    let mut resp = service.resp();
    assert_eq!(ask(&mut resp, &["CL.THROTTLE", "k", "4", "1", "3600"]), "0");
    // What comes back from a reservation is at most what it has taken.
    let id = "00112233445566778899aabbccddeeff";
    for words in [
        &["RATEGATE.RESERVE", id, "60000", "api", "2", "eve"][..],
        &["RATEGATE.COMMIT", id, "api", "1", "eve"],
        &["RATEGATE.CANCEL", id, "api", "eve"],
    ] {
        assert_eq!(ask(&mut resp, words), "rule", "{words:?}");
    }
    for words in [
        &["CL.THROTTLE", "k", "4", "1", "3600", "-1"][..],
        &["THROTTLE", "k", "4", "1", "3600", "-9000000000000000000"],
        &["RATEGATE.REFUND", "api", "1", "ann"],
        &["RATEGATE.RESET", "api", "ann"],
    ] {
        let response = ask(&mut resp, words);
        assert!(response.starts_with("NOAUTH"), "{words:?}: {response}");
    }
    assert_eq!(ask(&mut resp, &["AUTH", "s3cret"]), "OK");
    assert_eq!(ask(&mut resp, &["CL.THROTTLE", "k", "4", "1", "3600", "-1"]), "0");
    let verb = |verb: &str| format!("{{\"verb\":\"{verb}\",\"rule\":\"api\",\"key\":\"ann\"}}");
    let descriptor = "{\"domain\":\"default\",\"descriptors\":[{\"entries\":[\
                       {\"key\":\"user\",\"value\":\"ann\"}],\"isNegativeHits\":true}]}";
    let table = [
        ("/v1/check", verb("take"), 200),
        ("/v1/check", verb("peek"), 200),
        ("/v1/check", verb("refund"), 401),
        ("/v1/check", verb("reset"), 401),
        ("/json", descriptor.to_owned(), 401),
        ("/json", descriptor.replace("true", "false"), 200),
        ("/v1/explain", "{\"domain\":\"default\",\"entries\":[]}".to_owned(), 200),
        ("/v1/simulate", "{}".to_owned(), if cfg!(feature = "dashboard") { 401 } else { 404 }),
        ("/v1/config/validate", "{}".to_owned(), 401),
    ];
    for (path, body, expected) in table {
        for (fields, expected) in [("", expected), ("authorization: Bearer s3cret\r\n", 0)] {
            let length = body.len();
            let status = service.http().call(&format!(
                "POST {path} HTTP/1.1\r\nhost: localhost\r\n{fields}content-length: {length}\r\n\
                 \r\n{body}"
            )).0;
            let is_right = if expected == 0 { status != 401 } else { status == expected };
            assert!(is_right, "{path} {body} {fields}: {status}");
        }
    }
    for (token, hits, code) in
        [(None, 1, 0), (None, -1, 16), (Some("other"), -1, 16), (Some("s3cret"), -1, 0)]
    {
        assert_eq!(service.envoy_code(token, hits), code, "{token:?} {hits}");
    }
}

#[test]
fn a_connection_that_guesses_becomes_slow_and_ends() {
    let service = guarded(true);
    // The fourth is the first to wait: 100 ms, then 200.
    let mut resp = service.resp();
    let guess = |resp: &mut Resp| assert!(resp.ask(&["AUTH", "x"])[0].starts_with("WRONGPASS"));
    (0..3).for_each(|_| guess(&mut resp));
    let started = Instant::now();
    (0..2).for_each(|_| guess(&mut resp));
    let slow = started.elapsed();
    assert!(slow.as_millis() >= 300, "{slow:?}");
    // The right token resets the count, for the address too.
    assert_eq!(resp.ask(&["AUTH", "s3cret"]), ["OK"]);
    let started = Instant::now();
    let mut http = service.http();
    let guess = "GET /v1/rules HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer x\r\n\r\n";
    for _ in 0..5 {
        assert_eq!(http.call(guess).0, 401);
    }
    assert!(started.elapsed().as_millis() >= 300);
    assert_eq!(http.call(&guess.replace("Bearer x", "Bearer s3cret")).0, 200);
    let started = Instant::now();
    assert_eq!(service.envoy_codes(Some("x"), 1, 5), [16; 5]);
    assert!(started.elapsed().as_millis() >= 300);
}

/// A connection for each guess: the address is remembered, over all protocols.
#[test]
fn a_client_that_connects_anew_for_each_guess_becomes_slow() {
    let service = guarded(true);
    let started = Instant::now();
    for nth in 0..6 {
        if nth % 2 == 0 {
            assert!(service.resp().ask(&["AUTH", "x"])[0].starts_with("WRONGPASS"));
        } else {
            let guess = "authorization: Bearer x\r\n";
            assert_eq!(service.http().get_with("/v1/rules", guess).0, 401);
        }
    }
    // The fourth waits for 100 ms, and each later one for twice as long.
    let slow = started.elapsed();
    assert!(slow.as_millis() >= 700, "{slow:?}");
}

/// A guess dropped before its answer counts, and the right token waits as long as a wrong one:
/// once on each connection.
#[test]
fn guesses_that_are_dropped_learn_nothing() {
    let service = guarded(true);
    let mut known = known(&service);
    let invalid_request =
        "GET /v1/rules HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer x\r\n\r\n";
    let auth = "*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n";
    for (protocol, guess) in [("resp", auth), ("http", invalid_request)] {
        for _ in 0..50 {
            use std::io::Write as _;
            let mut stream = std::net::TcpStream::connect(service.at(protocol)).unwrap();
            stream.write_all(guess.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let started = Instant::now();
    assert_eq!(known.get_with("/v1/rules", RIGHT).0, 200);
    assert!(started.elapsed().as_millis() < 1_000, "a connection that has shown it does not wait");
    let started = Instant::now();
    let late = std::thread::scope(|scope| {
        let resp = scope.spawn(|| service.resp().ask(&["AUTH", "s3cret"]));
        let grpc = scope.spawn(|| service.envoy_codes(Some("s3cret"), 1, 20));
        assert_eq!(service.http().get_with("/v1/rules", RIGHT).0, 200);
        assert!(started.elapsed().as_millis() >= 6_300, "{:?}", started.elapsed());
        assert_eq!(resp.join().unwrap(), ["OK"]);
        assert_eq!(grpc.join().unwrap(), [0; 20]);
        started.elapsed()
    });
    assert!(late.as_secs() < 12, "they wait once: {late:?}");
    let counted = ["resp", "http"].map(|protocol| refused(&mut known, protocol, "invalid_token"));
    // A call cancelled before it was read has shown nothing.
    assert!(counted[0] == 50 && counted[1] >= 25, "{counted:?}");
}

/// Concurrent calls on one HTTP/2 connection, the right token among them: no more are checked
/// than in sequence.
#[test]
fn a_connection_of_many_calls_guesses_no_more() {
    for protocol in ["grpc", "http"] {
        let service = guarded(true);
        let mut tokens = vec!["x"; 90];
        tokens[80] = "s3cret";
        let codes = service.envoy_codes_at_once(protocol, &tokens);
        assert!(codes.iter().all(|&code| code != 0), "{protocol}: {codes:?}");
        assert!(codes.iter().filter(|&&code| code == 16).count() >= 10, "{protocol}: {codes:?}");
    }
}

/// Concurrent guesses: as many are checked as in sequence, and then the connection ends.
#[test]
fn guesses_that_come_together_are_no_more() {
    let services = ["resp", "http"].map(|_| guarded(true));
    let guess = "GET /v1/rules HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer x\r\n\r\n";
    let auth = "*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n";
    let [resp, http] = &services;
    let mut known = [known(resp), known(http)];
    let guesses = [("resp", resp, auth.repeat(500)), ("http", http, guess.repeat(50))];
    let response = guesses.map(|(protocol, service, words)| {
        let target = service.at(protocol);
        std::thread::spawn(move || {
            let started = Instant::now();
            let response = closing_response(&target, words.as_bytes());
            // 100 ms, and twice as long each time, for seven of them.
            assert!(started.elapsed().as_millis() >= 12_700, "{protocol}: {:?}", started.elapsed());
            response
        })
    });
    let [resp, http] = response.map(|response| response.join().unwrap());
    assert_eq!(resp.matches("WRONGPASS").count(), 10, "{resp}");
    assert_eq!(http.matches("HTTP/1.1 401").count(), 10, "{http}");
    let counted = ["resp", "http"].iter().zip(&mut known);
    assert!(counted.into_iter().all(|(at, known)| refused(known, at, "invalid_token") == 10));
}
