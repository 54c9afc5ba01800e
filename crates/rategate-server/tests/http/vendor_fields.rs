//! Limits in the dialects of vendors as our own client reads them.

use std::time::{Duration, SystemTime};

use rategate::ManualClock;
use rategate_server::config::load_text;
use rategate_server::engine::{Engine, EngineSettings};
use rategate_server::protocol::http::{Api, Caller, Options};
use rategate_tower::client::{ServerLimit, parse_hints};
use rategate_tower::headers::{Dialect, QuotaUnit};

use crate::http::common::{Answer, Service};

const AT_S: u64 = 1_790_000_040;

fn service(text: &str, fields: Vec<Dialect>) -> Service {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(AT_S));
    let engine = Engine::new(clock.clone(), EngineSettings::default());
    let loaded = load_text("rules.toml", text).unwrap_or_else(|error| panic!("{}", error.report()));
    engine.load_compiled(&loaded.rules).unwrap();
    let api = Api::new(engine, Options { fields, ..Options::default() });
    Service { api, clock, caller: Caller::default() }
}

fn take(service: &Service, rule: &str, permits: u64) -> Answer {
    let body = format!(r#"{{"rule":"{rule}","key":"ann","permits":{permits}}}"#);
    service.call("POST", "/v1/check", &[("prefer", "status=429")], &body)
}

fn limit(rule: &str, algorithm: &str, limit: &str, more: &str) -> String {
    format!(
        "[[rule]]\nname = \"{rule}\"\nmatch = [\"user\"]\nalgorithm = \"{algorithm}\"\n\
         limit = {limit}\n{more}\n"
    )
}

/// Returns the limits of a response as our client reads them.
fn limits_of(answer: &Answer, now_s: u64) -> Vec<ServerLimit> {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now_s);
    parse_hints(answer.status, &answer.headers, now, Duration::from_secs(86_400)).limits
}

/// A limit that is written in a vendor's dialect is read as the same limit.
#[test]
fn vendors_fields_are_read_as_they_are_written() {
    let text = [
        limit("rpm", "fixed-window", "\"100/min\"", ""),
        limit("tpm", "gcra", "\"90000/6min\"", "weights = { input = 1 }"),
        limit("log", "sliding-log", "\"50/s\"", ""),
    ];
    let vendors = [
        (Dialect::OpenAi, "x-ratelimit-remaining-requests", "x-ratelimit-remaining-tokens"),
        (
            Dialect::Anthropic,
            "anthropic-ratelimit-requests-remaining",
            "anthropic-ratelimit-tokens-remaining",
        ),
    ];
    for (dialect, requests, tokens) in vendors {
        let service = service(&text.concat(), vec![dialect]);
        let cases = [
            ("rpm", 30, requests, QuotaUnit::Requests, 100, 70, 60),
            ("rpm", 70, requests, QuotaUnit::Requests, 100, 0, 60),
            ("tpm", 45_000, tokens, QuotaUnit::Tokens, 90_000, 45_000, 180),
            ("tpm", 45_000, tokens, QuotaUnit::Tokens, 90_000, 0, 360),
            ("log", 1, requests, QuotaUnit::Requests, 50, 49, 1),
        ];
        for (rule, permits, name, unit, quota, remaining, reset_s) in cases {
            let answer = take(&service, rule, permits);
            let limits = limits_of(&answer, AT_S);
            let [limit] = &limits[..] else { panic!("{dialect:?} {rule}: {limits:?}") };
            let seen = (&*limit.name, limit.unit, limit.quota, limit.remaining);
            assert_eq!(seen, (name, Some(unit), Some(quota), remaining), "{dialect:?} {rule}");
            // An instant in whole seconds counts as its end.
            let reads_s = limit.reset.as_secs();
            let slack_s = u64::from(dialect == Dialect::Anthropic);
            assert!(
                (reset_s..=reset_s + slack_s).contains(&reads_s),
                "{dialect:?} {rule} {limit:?}"
            );
        }
    }
    // Each limit of a rule has the fields of its unit, and the current ones name the strictest.
    let several = "[[rule]]\nname = \"calls\"\nmatch = [\"user\"]\nalgorithm = \"fixed-window\"\n\
                   weights = { input = 1 }\nlimits = [\n{ name = \"rpm\", limit = \"9/min\", \
                   counts = \"requests\" },\n{ name = \"tpm\", limit = \"1000/min\" }]\n";
    let calls = service(several, vec![Dialect::OpenAi, Dialect::Current]);
    let answer = take(&calls, "calls", 300);
    let left = ["requests", "tokens"].map(|unit| {
        let name = format!("x-ratelimit-remaining-{unit}");
        answer.field(&name).to_owned()
    });
    assert_eq!(left, ["8", "700"]);
    assert!(answer.field("ratelimit").starts_with("\"calls/rpm\";r=8"), "{answer:?}");
    let service = service(&text[1], vec![Dialect::OpenAi]);
    let answer = take(&service, "tpm", 90_000);
    assert_eq!(answer.field("x-ratelimit-limit-tokens"), "90000");
    assert_eq!(answer.field("x-ratelimit-remaining-tokens"), "0");
    assert_eq!(answer.field("x-ratelimit-reset-tokens"), "6m0s");
    let denied = take(&service, "tpm", 250);
    assert_eq!((denied.status.as_u16(), denied.field("retry-after")), (429, "1"));
    assert_eq!(denied.field("x-ratelimit-reset-tokens"), "6m0s");
}
