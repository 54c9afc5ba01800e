//! Requests without capacity to count them are denied and counted, over every protocol: clients
//! can invent keys and limits.

use crate::serve::clients::{Resp, Service};

const RULES: &str = "[inline]\nlimits = 1\nkeys = 64\n\
    [[rule]]\nname = \"api\"\nmatch = [\"user\"]\nlimit = \"5/h\"\n";

fn denied_for_capacity(service: &Service, protocol: &str) -> u64 {
    let name =
        format!("rategate_calls_refused_total{{protocol=\"{protocol}\",reason=\"table_full\"}}");
    service.metric(&name).unwrap().parse().unwrap()
}

/// One inline limit more than there are tiers.
#[test]
fn a_limit_too_many_is_denied() {
    let service = Service::of(RULES);
    let mut resp = service.resp();
    // A table has 31 tiers.
    let mut denied = 0;
    for burst in 1..200 {
        let response = resp.ask(&["CL.THROTTLE", "k", &burst.to_string(), "1", "3600000"]);
        assert!(!response[0].starts_with("ERR"), "{response:?}");
        denied += u64::from(response[0] == "1");
    }
    assert!(denied > 100, "{denied}");
    assert_eq!(denied_for_capacity(&service, "resp"), denied);
    let response = resp.ask(&["THROTTLE", "k", "999", "1", "3600000"]);
    assert_eq!(response, ["0", "999", "0", "1", "1"]);
    let body = r#"{"limit":"1/h","burst":999,"key":"k"}"#;
    let (status, answer) = service.http().post("/v1/check", body);
    assert_eq!(status, 200, "{answer}");
    assert!(answer.starts_with(r#"{"allowed":false,"#), "{answer}");
    assert!(answer.contains(r#""verdict":"denied""#), "{answer}");
    assert!(answer.contains(r#""retry_after_ms":1000"#), "{answer}");
    let body = r#"{"key":"k","max_burst":999,"count_per_period":1,"period":3600000}"#;
    let (status, answer) = service.http().post("/throttle", body);
    assert_eq!((status, answer.contains("\"allowed\":false")), (200, true), "{answer}");
    assert_eq!(denied_for_capacity(&service, "http"), 2);
}

/// One reservation more than are remembered. Its commit grants nothing, so it is no denial.
#[test]
fn a_reservation_too_many_is_denied() {
    let service = Service::of(&RULES.replace("[inline]", "[keys]\nreservations = 1\n[inline]"));
    let mut resp = service.resp();
    let mut reserve = |user: &str| {
        let words = ["RATEGATE.RESERVE", "*", "60000", "ITEMS", "2", "api", "1", "1", user];
        let other = ["api", "1", "1", "bob"];
        let response = resp.ask(&[&words[..], &other].concat());
        let field = |name| Resp::field(&response, name);
        (field("allowed"), field("verdict"), field("ends_after_ms") == "-1")
    };
    assert_eq!(reserve("ann"), ("1".into(), "granted".into(), false));
    assert_eq!(reserve("eve"), ("0".into(), "denied".into(), true));
    assert_eq!(denied_for_capacity(&service, "resp"), 1);
    let response = resp.ask(&["RATEGATE.PEEK", "api", "1", "bob"]);
    assert_eq!(Resp::field(&response, "remaining"), "4");
}

/// Text with unpaired surrogates, as programs with UTF-16 send it, is a key like any other.
#[test]
fn half_a_character_is_a_key() {
    let service = Service::of(RULES);
    let check = |key: &str| {
        let (status, answer) =
            service.http().post("/v1/check", &format!(r#"{{"limit":"1/h","key":"{key}"}}"#));
        assert_eq!(status, 200, "{answer}");
        answer.contains("\"allowed\":true")
    };
    assert!(check(r"\ud800") && !check(r"\ud800"), "counted");
    assert!(check(r"\ud801") && check("\u{fffd}"), "each for itself");
    let throttle = |key: &str| {
        let body = format!(r#"{{"key":"{key}","max_burst":1,"count_per_period":1,"period":3600}}"#);
        let (status, answer) = service.http().post("/throttle", &body);
        assert_eq!(status, 200, "{answer}");
        answer.contains("\"allowed\":true")
    };
    assert!(throttle(r"a\udfff") && !throttle(r"a\udfff"), "counted");
    // Other problems are reported as usual.
    let (status, answer) =
        service.http().post("/v1/check", r#"{"rule":"api","key":"\ud800","x":1}"#);
    assert_eq!(status, 400);
    assert!(answer.contains("unknown field"), "{answer}");
}
