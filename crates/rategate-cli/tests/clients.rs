//! The commands that query a service, against a scripted one: exit statuses, output, and the
//! requests sent.

use std::time::{Duration, Instant};

use crate::common::service::Service;
use crate::common::{folder, rategate, run, stderr};

const GRANTED: &str = "{\"allowed\":true,\"items\":[{\"rule\":\"r\",\
    \"verdict\":\"granted\",\"allowed\":true,\"limit\":5,\"remaining\":3,\"retry_after_ms\":0,\
    \"retry_after_ns\":0,\"reset_after_ms\":1500,\"reset_after_ns\":1500000000,\"shadow\":false}]}";
const DENIED: &str = "{\"allowed\":false,\"items\":[{\"rule\":\"r\",\"verdict\":\"denied\",\
    \"allowed\":false,\"limit\":5,\"remaining\":0,\"retry_after_ms\":251,\
    \"retry_after_ns\":250000001,\"reset_after_ms\":0,\"reset_after_ns\":0,\"shadow\":false}]}";
const NEVER: &str = "{\"allowed\":false,\"items\":[{\"verdict\":\"denied\",\
    \"allowed\":false,\"limit\":5,\"remaining\":5,\"retry_after_ns\":null}]}";
const SHADOW: &str = "{\"allowed\":true,\"items\":[{\"verdict\":\"denied\",\
    \"allowed\":true,\"limit\":5,\"remaining\":0,\"retry_after_ns\":2000000000,\"shadow\":true}]}";
const OTHER_KEYS: &str = "{\"title\":\"Bad Request\",\"status\":400,\"detail\":\"rule `r` \
    needs 2 values, and 1 is given\",\"code\":\"invalid_values\"}";
const RULES: &str = r#"{"rules":[
    {"name":"busy","limit":"5 per second for each key",
     "sentence":"97 % of 100 calls in the last minute allowed.",
     "second":{"passed":97,"denied":3}},
    {"name":"pairs","limit":"unlimited","sentence":"No calls in the last minute.","second":{}},
    {"name":"*inline","limit":"limits of several kinds","sentence":"","second":{"passed":1}}]}"#;
const TOP: &str =
    r#"{"used":{"keys":[{"key":"a","at_most":90}]},"denied":{"keys":[{"key":"b","at_most":3}]}}"#;

/// Runs a command against the service, and returns its exit status, stdout and stderr.
fn ask(service: &Service, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = run(&[arguments, &["--server", &service.address]].concat(), b"");
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    (output.status.code(), text, stderr(&output))
}

const BY_TOKENS: &str = r#"{"allowed":false,"items":[{"rule":"calls/tpm","dimension":"tpm","verdict":"denied","allowed":false,"limit":9,"remaining":0,"retry_after_ns":2000000000}]}"#;

#[test]
fn what_was_used_is_sent_in_place_of_permits() {
    let service = Service::tcp(&[("POST /v1/check", 200, BY_TOKENS)]);
    let used = ["--usage", "output=45", "--usage", "input=3", "--model", "small"];
    let (code, text, complaint) = ask(&service, &[&["check", "calls", "k"], &used[..]].concat());
    assert_eq!((code, complaint.as_str()), (Some(1), ""));
    assert_eq!(text, "denied by tpm: retry after 2 s, 0 of 9 left\n");
    let rest = r#""rule":"calls","key":["k"],"usage":{"input":3,"output":45},"model":"small""#;
    assert_eq!(service.received()[0].body, format!("{{\"verb\":\"take\",{rest}}}"));
    for verb in ["charge", "reserve"] {
        let service = Service::tcp(&[("POST /v1/check", 200, BY_TOKENS)]);
        ask(&service, &[&[verb, "calls", "k"], &used[..]].concat());
        assert!(service.received()[0].body.contains(rest), "{verb}");
    }
    let service = Service::tcp(&[("POST /v1/check", 200, BY_TOKENS)]);
    let id = "00000000000000000000000000000001";
    ask(&service, &[&["commit", id, "calls", "k"], &used[..]].concat());
    assert!(service.received()[0].body.contains(rest));
    for wrong in [
        &["--usage", "output"][..],
        &["--usage", "=1"],
        &["--usage", "output=-1"],
        &["--model", "small"],
        &["--usage", "output=1", "-n", "2"],
    ] {
        let (code, _, complaint) = ask(&service, &[&["check", "calls", "k"], wrong].concat());
        assert_eq!(code, Some(2), "{wrong:?}: {complaint}");
    }
}

#[test]
fn a_check_is_an_exit_status_and_a_line() {
    for (answer, status, line) in [
        (GRANTED, 0, "allowed, 3 of 5 left, fully recovered in 1.5 s\n"),
        // The wait is rounded up, so that a caller that waits for it is not early.
        (DENIED, 1, "denied: retry after 250.001 ms, 0 of 5 left\n"),
        (
            NEVER,
            1,
            "denied: waiting does not help: it is more than could ever pass at once, 5 of 5 left\n",
        ),
        (
            SHADOW,
            0,
            "allowed, because the rule is not enforced; \
             else denied: retry after 2 s, 0 of 5 left\n",
        ),
    ] {
        let service = Service::tcp(&[("POST /v1/check", 200, answer)]);
        let (code, text, complaint) = ask(&service, &["check", "r", "alice", "-n", "2"]);
        assert_eq!((code, text.as_str(), complaint.as_str()), (Some(status), line, ""));
        let received = service.received();
        let body = r#"{"verb":"take","rule":"r","key":["alice"],"permits":2}"#;
        assert_eq!((received.len(), received[0].body.as_str()), (1, body));
        let (_, json, _) = ask(&service, &["check", "r", "--json"]);
        assert_eq!(json.trim_end(), answer);
    }
}

/// A reply to an operation on a reservation.
fn reserved(allowed: bool, verdict: &str, more: &str) -> String {
    format!(
        "{{\"allowed\":{allowed},\"repeated\":{},\"reservation\":{{\"id\":\"{ID}\"}},\"items\":[{{\
         \"rule\":\"r\",\"verdict\":\"{verdict}\",\"limit\":5,\"remaining\":3{more}}}]}}",
        more.contains("before"),
    )
}

const ID: &str = "00112233445566778899aabbccddeeff";

#[test]
fn a_charge_under_an_id_says_that_it_was_made_before() {
    for (again, line) in [
        ("", "charged 8, 3 of 5 left\n"),
        (
            ",\"before\":1",
            "charged 8, 3 of 5 left, as before: the same command has counted already\n",
        ),
    ] {
        let answer = reserved(true, "charged", &format!(",\"charged\":8{again}"));
        let service = Service::tcp(&[("POST /v1/check", 200, &answer)]);
        let (code, text, complaint) = ask(&service, &["charge", "r", "a", "-n", "8", "--once", ID]);
        assert_eq!((code, &*text, &*complaint), (Some(0), line, ""));
        let sent =
            format!(r#"{{"verb":"charge","rule":"r","key":["a"],"permits":8,"once":"{ID}"}}"#);
        assert_eq!(service.received()[0].body, sent);
    }
}

#[test]
fn a_reservation_is_an_id_and_its_end_a_line() {
    let body =
        |verb: &str, rest: &str| format!(r#"{{"verb":"{verb}","rule":"r","key":["a"]{rest}}}"#);
    let with_id = format!(r#","id":"{ID}""#);
    let wait = ",\"retry_after_ns\":2000000000";
    let ttl = r#","permits":8,"ttl":"5s""#;
    let held = format!("{ID}\n");
    let reserve = ["reserve", "r", "a", "-n", "8", "--ttl", "5s"];
    let cases: [(&[&str], String, i32, &str, String); 7] = [
        (&reserve, reserved(true, "granted", ""), 0, &held, body("reserve", ttl)),
        (
            &["reserve", "r", "a", "--id", ID],
            reserved(false, "denied", wait),
            1,
            "denied: retry after 2 s, 3 of 5 left\n",
            body("reserve", &format!(r#","permits":1{with_id}"#)),
        ),
        (
            &["commit", ID, "r", "a", "-n", "2"],
            reserved(true, "committed", ",\"refunded\":6"),
            0,
            "committed, 6 came back, 3 of 5 left\n",
            body("commit", &format!(r#","permits":2{with_id}"#)),
        ),
        (
            &["commit", ID, "r", "a"],
            reserved(true, "late", ",\"charged\":8,\"debt\":4"),
            0,
            "late: it had ended before, 8 charged, 3 of 5 left, the limit is exceeded by 4\n",
            body("commit", &with_id),
        ),
        (
            &["cancel", ID, "r", "a"],
            reserved(true, "cancelled", ",\"refunded\":8"),
            0,
            "cancelled, 8 came back, 3 of 5 left\n",
            body("cancel", &with_id),
        ),
        (
            &["cancel", ID, "r", "a"],
            reserved(true, "cancelled", ",\"refunded\":8,\"before\":1"),
            0,
            "cancelled, 8 came back before, and nothing now, 3 of 5 left\n",
            body("cancel", &with_id),
        ),
        (
            &["commit", ID, "r", "a"],
            reserved(false, "unknown", ""),
            1,
            "unknown: no reservation has this id, 3 of 5 left\n",
            body("commit", &with_id),
        ),
    ];
    for (arguments, answer, status, line, sent) in cases {
        let service = Service::tcp(&[("POST /v1/check", 200, &answer)]);
        let (code, text, complaint) = ask(&service, arguments);
        assert_eq!((code, &*text, &*complaint), (Some(status), line, ""), "{arguments:?}");
        assert_eq!(service.received()[0].body, sent);
        let (_, json, _) = ask(&service, &[arguments, &["--json"]].concat());
        assert_eq!(json.trim_end(), answer);
    }
}

#[test]
fn a_peek_takes_nothing_and_a_rule_without_keys_gets_none() {
    let service = Service::tcp(&[("POST /v1/check", 200, GRANTED)]);
    ask(&service, &["check", "r", "--peek"]);
    ask(&service, &["check", "pairs", "a\"b", "\u{e4}"]);
    let bodies: Vec<String> =
        service.received().into_iter().map(|received| received.body).collect();
    assert_eq!(
        bodies,
        [
            r#"{"verb":"peek","rule":"r","permits":1}"#,
            "{\"verb\":\"take\",\"rule\":\"pairs\",\"key\":[\"a\\\"b\",\"\u{e4}\"],\"permits\":1}",
        ]
    );
}

#[test]
fn a_socket_in_the_file_system_works_too() {
    // The path of a socket has a small maximum length.
    let folder = std::env::temp_dir().join(format!("rategate-clients-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let service = Service::unix(&folder.join("s"), &[("POST /v1/check", 200, GRANTED)]);
    let (code, _, complaint) = ask(&service, &["check", "r"]);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!((code, complaint.as_str()), (Some(0), ""));
}

#[test]
fn a_reply_without_a_decision_exits_with_2_and_one_line() {
    let table = [
        (404, r#"{"detail":"there is no rule `x`","code":"no_such_rule"}"#, "there is no rule `x`"),
        (400, OTHER_KEYS, "needs 2 values"),
        (
            401,
            r#"{"detail":"The field is missing."}"#,
            "missing.; pass the service's token by --token-file",
        ),
        (503, "", "it replies 503"),
        (200, "<html>", "its reply is not understood"),
        (200, "{}", "its reply is not understood"),
        (500, "{\"detail\":\"a\\u001b[2J\\nb\"}", "a[2Jb"),
    ];
    for (status, body, why) in table {
        let service = Service::tcp(&[("POST /v1/check", status, body)]);
        let (code, text, complaint) = ask(&service, &["check", "r", "k"]);
        assert_eq!((code, text.as_str()), (Some(2), ""), "{complaint}");
        assert!(complaint.starts_with(&format!("rategate: {}: ", service.address)), "{complaint}");
        assert!(complaint.contains(why) && complaint.lines().count() == 1, "{complaint}");
    }
}

#[test]
fn an_unreachable_or_silent_service_is_2() {
    // The port was bound and released, so that nothing listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for address in [format!("http://127.0.0.1:{port}"), "unix:/nowhere/at/all".to_owned()] {
        let output = run(&["check", "r", "--server", &address], b"");
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(
            stderr(&output).starts_with(&format!("rategate: {address}: ")),
            "{}",
            stderr(&output)
        );
    }
    let service = Service::tcp(&[("POST /v1/check", 200, "SILENCE")]);
    let start = Instant::now();
    let (code, _, complaint) = ask(&service, &["check", "r", "--timeout", "200ms"]);
    assert_eq!(code, Some(2), "{complaint}");
    assert!(complaint.contains("no reply within 200 ms"), "{complaint}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

/// A reply that never ends is not read either.
#[test]
fn an_endless_answer_is_not_read() {
    let service = Service::tcp(&[("POST /v1/check", 200, &"x".repeat(5 << 20))]);
    let (code, _, complaint) = ask(&service, &["check", "r"]);
    assert_eq!(code, Some(2), "{complaint}");
    assert!(complaint.contains("length limit exceeded"), "{complaint}");
}

#[test]
fn wrong_arguments_are_named() {
    for (arguments, why) in [
        (
            vec!["check", "r", "--server", "https://a"],
            "--server \"https://a\": this command speaks no TLS",
        ),
        (vec!["check", "r", "--server", "http://u:p@a"], "write http://HOST:PORT or unix:PATH"),
        (vec!["check", "r", "--timeout", "0s"], "--timeout \"0s\": it must be above zero"),
        (vec!["check", "r", "--timeout", "5"], "--timeout \"5\": "),
        (vec!["check", "r", "--token-file", "/nowhere/at/all"], "--token-file /nowhere/at/all: "),
        (vec!["top", "--every", "1ms"], "--every \"1ms\": it must be at least 100ms"),
        (vec!["check"], "RULE"),
        (vec!["check", "r", "-n", "-1"], "-1"),
        (vec!["reset", "k"], "--rule"),
    ] {
        let output = run(&arguments, b"");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(why), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn the_token_goes_to_the_service_and_nowhere_else() {
    let file = folder("the_token_goes").join("token");
    std::fs::write(&file, "from-a-file\nmore\n").unwrap();
    let file = file.to_str().unwrap();
    let service = Service::tcp(&[("POST /v1/check", 403, "{}")]);
    for (arguments, variable, token) in [
        (vec!["--token", "from-an-argument"], "", "from-an-argument"),
        (vec!["--token-file", file], "from-a-variable", "from-a-file"),
        (vec![], "from-a-variable", "from-a-variable"),
    ] {
        let all =
            [&["check", "r", "--server", service.address.as_str()], arguments.as_slice()].concat();
        let output = rategate(&all).env("RATEGATE_TOKEN", variable).output().unwrap();
        let last = service.received().pop().unwrap();
        assert!(last.head.contains(&format!("authorization: Bearer {token}")), "{:?}", last.head);
        let printed = [output.stdout.clone(), output.stderr.clone()].concat();
        assert!(!String::from_utf8_lossy(&printed).contains("from-a"), "{}", stderr(&output));
    }
    let output =
        rategate(&["check", "r", "--token", "a\nb", "--server", &service.address]).output();
    assert!(stderr(&output.unwrap()).contains("no header field can carry"));
    let (_, _, _) = ask(&service, &["check", "r"]);
    let last = service.received().pop().unwrap();
    assert!(!last.head.iter().any(|line| line.starts_with("authorization")), "{:?}", last.head);
}

#[test]
fn why_names_the_rule_that_denies() {
    let service = Service::tcp(&[("GET /v1/rules", 200, RULES), ("POST /v1/check", 200, DENIED)]);
    let (code, text, _) = ask(&service, &["why", "alice"]);
    let line = |rule| format!("{rule}: denied; retry after 250.001 ms, 0 of 5 left\n");
    assert_eq!(
        (code, text),
        (Some(1), line("busy") + &line("pairs")),
        "a row for several rules is not queried"
    );
    let bodies: Vec<String> =
        service.received().into_iter().map(|received| received.body).collect();
    assert!(bodies[1..].iter().all(|body| body.contains(r#""verb":"peek""#)), "{bodies:?}");
    let (_, text, _) = ask(&service, &["why", "alice", "--rule", "busy"]);
    assert_eq!(text, line("busy"));

    let service = Service::tcp(&[("GET /v1/rules", 200, RULES), ("POST /v1/check", 200, GRANTED)]);
    let (code, text, _) = ask(&service, &["why", "alice", "--rule", "busy"]);
    assert_eq!((code, text.as_str()), (Some(0), "busy: free, 3 of 5 left\n"));
}

/// A rule is found by its name in Envoy's file, with all others of that name.
#[test]
fn why_knows_what_rules_were_given_as_a_name() {
    let rules = r#"{"rules":[
        {"name":"edge.a","envoy_name":"busy"},{"name":"edge.b","envoy_name":"bu\u001bsy"},
        {"name":"far.a","envoy_name":"busy"},{"name":"edge.d"}]}"#;
    let service = Service::tcp(&[("GET /v1/rules", 200, rules), ("POST /v1/check", 200, GRANTED)]);
    let line = |rule| format!("{rule}: free, 3 of 5 left\n");
    let (_, text, _) = ask(&service, &["why", "alice", "--rule", "busy"]);
    assert_eq!(text, line("edge.a (busy)") + &line("far.a (busy)"));
    let (_, text, _) = ask(&service, &["why", "alice", "--rule", "edge.b"]);
    assert_eq!(text, line("edge.b (bu\\u{1b}sy)"), "it moves no cursor");
    let (_, text, _) = ask(&service, &["why", "alice", "--rule", "beyond.those.listed"]);
    assert_eq!(text, line("beyond.those.listed"));
    let (_, text, _) = ask(&service, &["top", "--once"]);
    assert!(text.contains("edge.a (busy)") && text.contains("\nedge.d "), "{text}");
}

#[test]
fn rules_for_other_keys_are_passed_over_unless_named() {
    let service =
        Service::tcp(&[("GET /v1/rules", 200, RULES), ("POST /v1/check", 400, OTHER_KEYS)]);
    let (code, _, complaint) = ask(&service, &["why", "alice"]);
    assert_eq!(code, Some(2));
    assert!(complaint.contains("no rule is for one value"), "{complaint}");
    let (code, _, complaint) = ask(&service, &["why", "alice", "--rule", "busy"]);
    assert_eq!(code, Some(2));
    assert!(complaint.contains("needs 2 values"), "{complaint}");
}

#[test]
fn a_reset_says_so_once_it_is_done() {
    let service = Service::tcp(&[("POST /v1/check", 200, GRANTED)]);
    let (code, text, _) = ask(&service, &["reset", "alice", "--rule", "r"]);
    assert_eq!((code, text.as_str()), (Some(0), "reset\n"));
    assert!(service.received()[0].body.contains(r#""verb":"reset","rule":"r","key":["alice"]"#));
    let service = Service::tcp(&[("POST /v1/check", 401, "{}")]);
    let (code, text, complaint) = ask(&service, &["reset", "alice", "--rule", "r"]);
    assert_eq!((code, text.as_str()), (Some(2), ""), "{complaint}");
}

#[test]
fn a_ping_says_whether_a_service_lives() {
    let service = Service::tcp(&[("GET /healthz", 200, "OK")]);
    let (code, text, _) = ask(&service, &["ping"]);
    assert_eq!((code, text.as_str()), (Some(0), "alive\n"));
    let service = Service::tcp(&[("GET /healthz", 503, "no")]);
    let (code, text, complaint) = ask(&service, &["ping"]);
    assert_eq!((code, text.as_str()), (Some(2), ""), "{complaint}");
}

#[test]
fn top_once_is_a_table() {
    let service =
        Service::that_hangs_up(&[("GET /v1/rules", 200, RULES), ("GET /v1/top?rule=", 200, TOP)]);
    let (code, text, _) = ask(&service, &["top", "--once"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(code, Some(0));
    assert_eq!(
        lines[..3],
        [
            "RULE     LIMIT                      ARRIVALS/S  GRANTED/S  DENIED/S",
            "busy     5 per second for each key         100         97         3",
            "pairs    unlimited                           0          0         0",
        ]
    );
    assert!(lines.contains(&"busy: 97 % of 100 calls in the last minute allowed."), "{text}");
    // The requests go over several connections, as each is closed.
    let (code, text, _) = ask(&service, &["top", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, Some(0));
    assert_eq!(json["rules"]["rules"][0]["name"], "busy");
    assert_eq!(json["top"]["pairs"]["denied"]["keys"][0]["key"], "b");
}

#[test]
fn top_without_a_terminal_says_what_to_do() {
    let service = Service::tcp(&[("GET /v1/rules", 200, RULES)]);
    let (code, text, complaint) = ask(&service, &["top"]);
    assert_eq!((code, text.as_str()), (Some(2), ""));
    assert!(complaint.contains("--once"), "{complaint}");
}
