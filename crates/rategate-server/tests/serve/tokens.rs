//! Refused calls, over every protocol: counted by reason, logged, and delayed for clients that
//! guess.

use std::time::{Duration, Instant};

use rategate_server::messages::rls::RateLimitRequest;
use tonic::Code;

use crate::lines;
use crate::resp::client::Client;
use crate::serve::clients::{Answer, Http, Rls, Service, closing_response};

const RULE: &str = "[[rule]]\nname = \"api\"\nmatch = [\"user\"]\nlimit = \"5/h\"\n";

/// Starts a service that requires the token at all listeners, or for changes only.
fn guarded(auth: bool) -> Service {
    let mut service = Service::of(&format!("token = \"s3cret\"\nauth = {auth}\n{RULE}"));
    service.fields = RIGHT;
    service
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
const GUESS: &str = "GET /v1/rules HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer x\r\n\r\n";
const DENIED: Code = Code::Unauthenticated;
const AUTH: &str = "*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n";

/// A connection that has shown the token: guesses of other clients never delay it.
fn known(service: &Service) -> Http {
    let mut http = service.http();
    assert_eq!(http.get_with("/v1/rules", RIGHT).0, 200);
    http
}

fn commands(service: &Service) -> Client {
    Client::at(service.at("resp").parse().unwrap()).unwrap()
}

#[test]
fn calls_without_the_token_are_counted_by_protocol_and_reason() {
    let service = guarded(true);
    service.play(
        "
        {rule: api, key: ann} => 401
        {rule: api, key: ann} & authorization: Bearer other => 401
        {} & authorization: Bearer s3cret => 400
        {rule: none} & authorization: Bearer s3cret => 404
        {rule: api, key: ann} & authorization: Bearer s3cret => 200
        ",
    );
    commands(&service).play(
        "
        PING => -NOAUTH...
        AUTH other => -WRONGPASS...
        AUTH s3cret => +OK
        // These are malformed, and those are faults.
        CL.THROTTLE k x 1 1 => -ERR...
        NONSENSE => -ERR...
        RATEGATE.CHECK api many => -ERR...
        RATEGATE.LEASE KEEP => -ERR...
        RATEGATE.RESERVE * never api 1 ann => -ERR...
        PING a b => -ERR...
        RATEGATE.CHECK none 1 => -ERR...
        RATEGATE.CHECK api 1 => -ERR...
        RATEGATE.RESERVE * 0 api 1 ann => -ERR...
        RATEGATE.EXPLAIN none => -ERR...
        SELECT 1 => -ERR...
        ",
    );
    for (token, code) in [(None, DENIED), (Some("other"), DENIED), (Some("s3cret"), Code::Ok)] {
        assert_eq!(service.envoy_codes(token, 1, 1), [code], "{token:?}");
    }
    let expected = [
        ("http", [1, 1, 1, 0, 0, 0, 1, 0, 0]),
        ("resp", [1, 1, 6, 0, 0, 0, 5, 0, 0]),
        ("grpc", [1, 1, 0, 0, 0, 0, 0, 0, 0]),
    ];
    let reasons =
        "no_token invalid_token malformed too_long too_much table_full fault late handshake";
    for (protocol, counts) in expected {
        let counted = |reason| refused(&mut service.http(), protocol, reason);
        let counted: Vec<_> = reasons.split(' ').map(counted).collect();
        assert_eq!(counted, counts, "{protocol}: {reasons}");
    }
}

/// Rights are equal over every protocol: refunds need the token as resets do.
#[test]
fn permits_come_back_by_the_token_alone() {
    let service = guarded(false);
    commands(&service).play(
        "
        CL.THROTTLE k 4 1 3600 => [0, _, _, _, _]
        // What comes back from a reservation is at most what it has taken.
        RATEGATE.RESERVE $1 60000 api 2 eve => {allowed: 1}
        RATEGATE.COMMIT $1 api 1 eve => {allowed: 1}
        RATEGATE.CANCEL $1 api eve => {rule: api}
        CL.THROTTLE k 4 1 3600 -1 => -NOAUTH...
        THROTTLE k 4 1 3600 -9000000000000000000 => -NOAUTH...
        RATEGATE.REFUND api 1 ann => -NOAUTH...
        RATEGATE.RESET api ann => -NOAUTH...
        AUTH s3cret => +OK
        CL.THROTTLE k 4 1 3600 -1 => [0, _, _, _, _]
        ",
    );
    let simulate = if cfg!(feature = "dashboard") { "401" } else { "404" };
    let credit = "{domain: default, descriptors: [{entries: [{key: user, value: ann}],
        .. isNegativeHits: true}]}";
    let closed = format!(
        "
        {{verb: refund, rule: api, key: ann}} => 401
        {{verb: reset, rule: api, key: ann}} => 401
        POST /json {credit} => 401
        POST /v1/simulate {{}} => {simulate}
        POST /v1/config/validate {{}} => 401
        "
    );
    let open = "
        {verb: take, rule: api, key: ann} => 200
        {verb: peek, rule: api, key: ann} => 200
        POST /v1/explain {domain: default, entries: []} => 200
    ";
    service.play(&format!("{open}{closed}POST /json {}", credit.replace("true", "false")));
    lines::each(&closed, |asked, _| {
        lines::check(&format!("{asked} & authorization: Bearer s3cret"), "", |asked| {
            let answer = service.send(asked);
            assert_ne!(answer.status, 401, "{answer:?}");
            Answer { status: 200, ..answer }
        });
    });
    for (token, hits, code) in [
        (None, 1, Code::Ok),
        (None, -1, DENIED),
        (Some("other"), -1, DENIED),
        (Some("s3cret"), -1, Code::Ok),
    ] {
        assert_eq!(service.envoy_codes(token, hits, 1), [code], "{token:?} {hits}");
    }
}

#[test]
fn a_connection_that_guesses_becomes_slow_and_ends() {
    let service = guarded(true);
    // The fourth is the first to wait: 100 ms, then 200.
    let mut resp = commands(&service);
    let guess = |resp: &mut Client| resp.check("AUTH x", "-WRONGPASS...");
    (0..3).for_each(|_| guess(&mut resp));
    let started = Instant::now();
    (0..2).for_each(|_| guess(&mut resp));
    let slow = started.elapsed();
    assert!(slow.as_millis() >= 300, "{slow:?}");
    // The right token resets the count, for the address too.
    resp.check("AUTH s3cret", "+OK");
    let started = Instant::now();
    let mut http = service.http();
    for _ in 0..5 {
        assert_eq!(http.call(GUESS).0, 401);
    }
    assert!(started.elapsed().as_millis() >= 300);
    assert_eq!(http.get_with("/v1/rules", RIGHT).0, 200);
    let started = Instant::now();
    assert_eq!(service.envoy_codes(Some("x"), 1, 5), [DENIED; 5]);
    assert!(started.elapsed().as_millis() >= 300);
}

/// A connection for each guess: the address is remembered, over all protocols.
#[test]
fn a_client_that_connects_anew_for_each_guess_becomes_slow() {
    let service = guarded(true);
    let started = Instant::now();
    for nth in 0..6 {
        if nth % 2 == 0 {
            commands(&service).check("AUTH x", "-WRONGPASS...");
        } else {
            assert_eq!(service.http().call(GUESS).0, 401);
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
    for (protocol, guess) in [("resp", AUTH), ("http", GUESS)] {
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
        let resp = scope.spawn(|| commands(&service).check("AUTH s3cret", "+OK"));
        let grpc = scope.spawn(|| service.envoy_codes(Some("s3cret"), 1, 20));
        assert_eq!(service.http().get_with("/v1/rules", RIGHT).0, 200);
        assert!(started.elapsed().as_millis() >= 6_300, "{:?}", started.elapsed());
        resp.join().unwrap();
        assert_eq!(grpc.join().unwrap(), [Code::Ok; 20]);
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
        assert_eq!(service.rls().health(), 1, "health is no secret");
        let rls = Rls::at(&service.at(protocol));
        let codes = rls.runtime.block_on(async {
            let mut calls = tokio::task::JoinSet::new();
            for nth in 0..90 {
                let token = if nth == 80 { "s3cret" } else { "x" };
                calls.spawn(rls.call(RateLimitRequest::default(), Some(token)));
            }
            calls
                .join_all()
                .await
                .into_iter()
                .map(|reply| reply.unwrap_err().code())
                .collect::<Vec<_>>()
        });
        // The right token is not decided on either: its request would be malformed.
        assert!(!codes.contains(&Code::InvalidArgument), "{protocol}: {codes:?}");
        let checked = codes.iter().filter(|code| **code == DENIED).count();
        assert!(checked >= 10, "{protocol}: {codes:?}");
    }
}

/// Concurrent guesses: as many are checked as in sequence, and then the connection ends.
#[test]
fn guesses_that_come_together_are_no_more() {
    let services = ["resp", "http"].map(|_| guarded(true));
    let [resp, http] = &services;
    let mut known = [known(resp), known(http)];
    let guesses = [("resp", resp, AUTH.repeat(500)), ("http", http, GUESS.repeat(50))];
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
