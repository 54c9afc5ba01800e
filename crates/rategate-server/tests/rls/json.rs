//! `POST /json`.

use rategate_server::protocol::rls::{Options, json};

use crate::rls::common::{engine, rules, runtime};

fn ask(text: &str) -> (u16, String) {
    let (engine, _) = engine(rules());
    let answer = runtime().block_on(json(text.as_bytes(), &engine, &Options::default(), true));
    (answer.status, answer.body)
}

#[test]
fn an_answer_is_what_the_original_says() {
    let text = r#"{"domain":"edge","descriptors":[{"entries":[{"key":"remote_address","value":"10.0.0.1"}]}]}"#;
    let body = r#"{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"name":"address","requestsPerUnit":10,"unit":"MINUTE"},"limitRemaining":9,"durationUntilReset":"50s"}]}"#;
    assert_eq!(ask(text), (200, body.into()));
    let text = text.replace("10.0.0.1", "50.0.0.5");
    let body = r#"{"overallCode":"OVER_LIMIT","statuses":[{"code":"OVER_LIMIT","currentLimit":{"name":"blocked","unit":"MINUTE"},"durationUntilReset":"0s"}]}"#;
    assert_eq!(ask(&text), (429, body.into()));
}

#[test]
fn all_ways_to_write_a_request_are_read() {
    let with = |descriptor: &str, hits: &str| {
        format!(
            r#"{{"domain":"edge",{hits}"descriptors":[{{"entries":[{{"key":"remote_address","value":"x"}}]{descriptor}}}]}}"#
        )
    };
    for (descriptor, hits, remaining) in [
        ("", r#""hits_addend":3,"#, 7),
        ("", r#""hitsAddend":"3","#, 7),
        ("", r#""hitsAddend":null,"#, 9),
        (r#","hits_addend":"4""#, r#""hitsAddend":3,"#, 6),
        (r#","hitsAddend":4"#, "", 6),
        (r#","hitsAddend":0"#, "", 10),
        (r#","hitsAddend":1,"isNegativeHits":true"#, "", 10),
        (r#","limit":{"requests_per_unit":5,"unit":"HOUR"}"#, "", 4),
        (r#","limit":{"requestsPerUnit":"5","unit":3}"#, "", 4),
    ] {
        let (status, body) = ask(&with(descriptor, hits));
        assert_eq!(status, 200, "{body}");
        let fixed = format!(r#""limitRemaining":{remaining},"#);
        assert!(body.contains(&fixed), "{descriptor} {hits}: {body}");
    }
}

#[test]
fn what_is_no_request_is_refused() {
    for (text, why) in [
        ("", "not a JSON object"),
        ("{}", "domain must not be empty"),
        (r#"{"domain":"edge"}"#, "descriptor list must not be empty"),
        (r#"{"domain":"edge","descriptors":[],"unknown":1}"#, "unknown field"),
        (r#"{"domain":"edge","hitsAddend":-1}"#, "whole number"),
        (r#"{"domain":"edge","hitsAddend":4294967296}"#, "whole number"),
        (r#"{"domain":"edge","hitsAddend":1,"hits_addend":1}"#, "duplicate field"),
        (r#"{"domain":"edge","descriptors":[{"entries":[{"key":1}]}]}"#, "expected a text"),
        (r#"{"domain":"edge","descriptors":[[[["held","1"]]]]}"#, "expected an object"),
        (r#"{"domain":"edge","descriptors":[{"entries":[["held","1"]]}]}"#, "expected an object"),
        (r#"{"domain":"edge","descriptors":[{"limit":[5,"DAY"]}]}"#, "expected an object"),
        (r#"{"domain":"edge","descriptors":[{"limit":{"unit":"FORTNIGHT"}}]}"#, "SECOND"),
        (r#"{"domain":"edge","descriptors":[{"limit":{"requestsPerUnit":1}}]}"#, "no unit"),
        (r#"{"domain":"edge"} x"#, "trailing"),
        (r#"["edge",[{"entries":[{"key":"k","value":"1"}]}]]"#, "not a JSON object"),
        ("null", "not a JSON object"),
    ] {
        let (status, body) = ask(text);
        assert_eq!(status, 400, "{text}");
        assert!(body.contains(why), "{text}: {body}");
    }
}

#[test]
fn more_than_can_be_decided_is_not_read() {
    let list = |one: &str, many: usize| vec![one; many].join(",");
    let (status, body) = ask(&format!(r#"{{"domain":"edge","descriptors":[{}]}}"#, list("{}", 64)));
    assert_eq!(status, 200, "{body}");
    let denied = (429, r#"{"overallCode":"OVER_LIMIT","statuses":[]}"#.to_owned());
    for many in [65, 66, 1_000] {
        let many = list("{}", many);
        assert_eq!(ask(&format!(r#"{{"domain":"edge","descriptors":[{many}]}}"#)), denied);
        let entries = format!(r#"{{"domain":"edge","descriptors":[{{"entries":[{many}]}}]}}"#);
        assert_eq!(ask(&entries), denied);
    }
}
