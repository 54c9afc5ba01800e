//! Quotas of a calendar over HTTP: the border in answers and header fields, and across reloads.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use rategate::ManualClock;
use rategate::store::MemoryStore;
use rategate_server::config::load_text;
use rategate_server::engine::{Engine, EngineSettings, Shared};
use rategate_server::net::Rights;
use rategate_server::protocol::http::{Api, Caller, Options};
use rategate_tower::headers::Dialect;
use serde_json::{Value as Json, json};

use crate::http::common::{SECOND, Service};

/// 2026-03-01T00:00:00-05:00: March has an hour less in New York.
const MARCH_S: u64 = 1_772_341_200;
const MARCH_LASTS_S: u64 = 31 * 86_400 - 3_600;

fn rules(limit: &str) -> String {
    format!(
        "[[rule]]\nname = \"tokens\"\nalgorithm = \"calendar\"\nmatch = [\"user\"]\nlimit = {limit}\n"
    )
}

fn month(permits: u64) -> String {
    rules(&format!(r#"{{ permits = {permits}, per = "month", zone = "America/New_York" }}"#))
}

fn service(text: &str, at_s: u64) -> (Service, Engine<ManualClock>) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(at_s));
    let engine = Engine::new(clock.clone(), EngineSettings::default());
    load(&engine, text);
    let fields = vec![Dialect::Current, Dialect::Legacy];
    let api = Api::new(engine.clone(), Options { fields, ..Options::default() });
    (Service { api, clock, caller: Caller::with(Rights::ALL) }, engine)
}

/// A service whose clock is wrong by some minutes, over a store.
fn over_a_store(
    store: &Arc<MemoryStore<ManualClock>>,
    at_s: u64,
) -> (Service, Engine<ManualClock>) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(at_s));
    let shared = Arc::new(Shared::new(Arc::clone(store), NonZeroU32::MIN));
    let engine = Engine::with_store(clock.clone(), EngineSettings::default(), None, Some(shared));
    let fields = vec![Dialect::Current, Dialect::Legacy];
    let api = Api::new(engine.clone(), Options { fields, ..Options::default() });
    (Service { api, clock, caller: Caller::with(Rights::ALL) }, engine)
}

fn in_store(permits: u64) -> String {
    let store = "store = \"exact\"\non_unavailable = \"deny\"\n[store]\n";
    format!("{}{store}url = \"redis://127.0.0.1\"\n", month(permits))
}

/// Servers whose clocks are wrong by minutes agree on the border, which is the store's, and on the
/// count. A reload with another number keeps it.
#[test]
fn servers_with_wrong_clocks_agree_on_the_border() {
    let clock = ManualClock::new();
    let border_s = MARCH_S + MARCH_LASTS_S;
    clock.advance(Duration::from_secs(border_s - 180));
    let store = Arc::new(MemoryStore::with_clock(clock.clone()));
    let early = over_a_store(&store, border_s - 180 - 420);
    let late = over_a_store(&store, border_s - 180 + 660);
    for (place, (service, engine)) in [&early, &late].into_iter().enumerate() {
        load(engine, &in_store(10));
        let granted = item(service, 4);
        assert_eq!(granted["remaining"], 6 - 4 * place, "{granted}");
        assert_eq!(granted["reset_after_ns"], 180 * SECOND, "{granted}");
        assert_eq!(granted["resets_at"], "2026-04-01T00:00:00-04:00", "{granted}");
    }
    for (service, engine) in [&early, &late] {
        load(engine, &in_store(9));
        let body = r#"{"rule":"tokens","key":"ann","permits":2}"#;
        let denied = service.call("POST", "/v1/check", &[("prefer", "status=429")], body);
        assert_eq!(denied.status, 429);
        assert_eq!(denied.field("ratelimit-policy"), r#""tokens";q=9;w=2674800"#);
        assert_eq!(denied.field("retry-after"), "180");
        let denied = item(service, 2);
        assert_eq!(denied["retry_after_ns"], 180 * SECOND, "{denied}");
        assert_eq!(denied["resets_at"], "2026-04-01T00:00:00-04:00", "{denied}");
    }
    clock.advance(Duration::from_secs(180));
    let granted = item(&early.0, 9);
    assert_eq!((&granted["remaining"], &granted["verdict"]), (&json!(0), &json!("granted")));
    assert_eq!(granted["resets_at"], "2026-05-01T00:00:00-04:00");
    assert_eq!(item(&late.0, 1)["resets_at"], "2026-05-01T00:00:00-04:00");
}

fn load(engine: &Engine<ManualClock>, text: &str) {
    let loaded = load_text("rules.toml", text).unwrap_or_else(|error| panic!("{}", error.report()));
    engine.load_compiled(&loaded.rules).unwrap();
}

fn item(service: &Service, permits: u64) -> Json {
    let body = format!(r#"{{"rule":"tokens","key":"ann","permits":{permits}}}"#);
    service.check(&body)["items"][0].clone()
}

#[test]
fn an_answer_names_the_border() {
    let (service, _) = service(&month(10), MARCH_S + 86_400);
    let left_ns = (MARCH_LASTS_S - 86_400) * SECOND;
    assert_eq!(
        item(&service, 7),
        json!({
            "rule": "tokens", "verdict": "granted", "allowed": true, "limit": 10, "remaining": 3,
            "retry_after_ms": 0, "retry_after_ns": 0,
            "reset_after_ms": left_ns / 1_000_000, "reset_after_ns": left_ns,
            "resets_at": "2026-04-01T00:00:00-04:00", "shadow": false,
        })
    );
    service.clock.advance(Duration::from_nanos(left_ns - 1));
    let denied = item(&service, 4);
    assert_eq!((&denied["verdict"], &denied["retry_after_ns"]), (&json!("denied"), &json!(1)));
    service.clock.advance(Duration::from_nanos(1));
    let granted = item(&service, 10);
    assert_eq!((&granted["verdict"], &granted["remaining"]), (&json!("granted"), &json!(0)));
    assert_eq!(granted["resets_at"], "2026-05-01T00:00:00-04:00");
}

#[test]
fn header_fields_have_the_true_length() {
    let (service, _) = service(&month(10), MARCH_S + 1);
    item(&service, 10);
    service.clock.advance(Duration::from_nanos(1));
    let body = r#"{"rule":"tokens","key":"ann"}"#;
    let denied = service.call("POST", "/v1/check", &[("prefer", "status=429")], body);
    assert_eq!(denied.status, 429);
    assert_eq!(denied.field("ratelimit-policy"), r#""tokens";q=10;w=2674800"#);
    let left_s = MARCH_LASTS_S - 1;
    assert_eq!(denied.field("ratelimit"), format!(r#""tokens";r=0;t={left_s}"#));
    assert_eq!(denied.field("retry-after"), left_s.to_string(), "rounded up");
    assert_eq!(denied.field("x-ratelimit-reset"), left_s.to_string());
}

/// A reload keeps the count while the border stays, and moves it into the window around the change
/// otherwise.
#[test]
fn a_reload_keeps_the_count() {
    let (service, engine) = service(&month(10), MARCH_S + 86_400);
    item(&service, 7);
    load(&engine, &month(12));
    assert_eq!(item(&service, 1)["remaining"], 4);
    load(&engine, &rules(r#"{ permits = 12, per = "day", zone = "Asia/Kathmandu" }"#));
    let day = item(&service, 1);
    assert_eq!(
        (&day["remaining"], &day["resets_at"]),
        (&json!(3), &json!("2026-03-03T00:00:00+05:45"))
    );
    service.clock.advance(Duration::from_secs(86_400));
    assert_eq!(item(&service, 1)["remaining"], 11);
}

/// A debt is carried from month to month: ten of it are paid at each border.
#[test]
fn a_debt_is_paid_by_later_windows() {
    let (service, _) = service(&format!("{}debt = \"carry\"\n", month(10)), MARCH_S);
    let charge = r#"{"verb":"charge","rule":"tokens","key":"ann","permits":25}"#;
    let charged = service.check(charge)["items"][0].clone();
    assert_eq!((&charged["debt"], &charged["remaining"]), (&json!(15), &json!(0)));
    let april_ns = MARCH_LASTS_S * SECOND;
    let may_ns = april_ns + 30 * 86_400 * SECOND;
    assert_eq!(item(&service, 1)["retry_after_ns"], may_ns);
    service.clock.advance(Duration::from_nanos(april_ns));
    assert_eq!(item(&service, 0)["debt"], 5);
    service.clock.advance(Duration::from_nanos(may_ns - april_ns));
    assert_eq!(item(&service, 5)["remaining"], 0);
}
