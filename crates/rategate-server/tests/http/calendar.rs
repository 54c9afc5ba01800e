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
use serde_json::json;

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

/// A service whose clock shows a time, perhaps over a store.
fn service(
    text: &str,
    at_s: u64,
    store: Option<&Arc<MemoryStore<ManualClock>>>,
) -> (Service, Engine<ManualClock>) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(at_s));
    let shared = |store| Arc::new(Shared::new(Arc::clone(store), NonZeroU32::MIN)) as Arc<_>;
    let settings = EngineSettings::default();
    let engine = Engine::with_store(clock.clone(), settings, None, store.map(shared));
    load(&engine, text);
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
    let (early, early_engine) = service(&in_store(10), border_s - 180 - 420, Some(&store));
    let (late, late_engine) = service(&in_store(10), border_s - 180 + 660, Some(&store));
    let taken = "{rule: tokens, key: ann, permits: 4}
        => [{remaining: N, reset_after_ns: 180000000000, resets_at: 2026-04-01T00:00:00-04:00}]";
    early.play(&taken.replace('N', "6"));
    late.play(&taken.replace('N', "2"));
    for (service, engine) in [(&early, early_engine), (&late, late_engine)] {
        load(&engine, &in_store(9));
        service.play(
            "
            POST /v1/check {rule: tokens, key: ann, permits: 2} & prefer: status=429
                => 429 & ratelimit-policy: \"tokens\";q=9;w=2674800 & retry-after: 180
            {rule: tokens, key: ann, permits: 2}
                => [{retry_after_ns: 180000000000, resets_at: 2026-04-01T00:00:00-04:00}]
            ",
        );
    }
    clock.advance(Duration::from_secs(180));
    early.play(
        "{rule: tokens, key: ann, permits: 9}
            => [{verdict: granted, remaining: 0, resets_at: 2026-05-01T00:00:00-04:00}]",
    );
    late.play("{rule: tokens, key: ann} => [{resets_at: 2026-05-01T00:00:00-04:00}]");
}

fn load(engine: &Engine<ManualClock>, text: &str) {
    let loaded = load_text("rules.toml", text).unwrap_or_else(|error| panic!("{}", error.report()));
    engine.load_compiled(&loaded.rules).unwrap();
}

#[test]
fn an_answer_names_the_border() {
    let (service, _) = service(&month(10), MARCH_S + 86_400, None);
    let left_ns = (MARCH_LASTS_S - 86_400) * SECOND;
    let body = r#"{"rule":"tokens","key":"ann","permits":7}"#;
    assert_eq!(
        service.check(body)["items"][0],
        json!({
            "rule": "tokens", "verdict": "granted", "allowed": true, "limit": 10, "remaining": 3,
            "retry_after_ms": 0, "retry_after_ns": 0,
            "reset_after_ms": left_ns / 1_000_000, "reset_after_ns": left_ns,
            "resets_at": "2026-04-01T00:00:00-04:00", "shadow": false,
        })
    );
    service.clock.advance(Duration::from_nanos(left_ns - 1));
    service.play(
        "
        {rule: tokens, key: ann, permits: 4} => [{verdict: denied, retry_after_ns: 1}]
        pass 1ns
        {rule: tokens, key: ann, permits: 10}
            => [{verdict: granted, remaining: 0, resets_at: 2026-05-01T00:00:00-04:00}]
        // The length of a window is the true one, and a wait is rounded up.
        pass 1s
        pass 1ns
        POST /v1/check {rule: tokens, key: ann} & prefer: status=429
            => 429 & ratelimit-policy: \"tokens\";q=10;w=2592000
            & ratelimit: \"tokens\";r=0;t=2591999 & retry-after: 2591999
            & x-ratelimit-reset: 2591999
        // More than there can ever be is refused, and the reset is that of the limit.
        POST /v1/check {rule: tokens, key: ann, permits: 100} & prefer: status=429
            => 429 & x-ratelimit-reset: 2591999
        ",
    );
}

/// A reload keeps the count while the border stays, and moves it into the window around the change
/// otherwise.
#[test]
fn a_reload_keeps_the_count() {
    let (service, engine) = service(&month(10), MARCH_S + 86_400, None);
    service.play("{rule: tokens, key: ann, permits: 7} => [{remaining: 3}]");
    load(&engine, &month(12));
    service.play("{rule: tokens, key: ann} => [{remaining: 4}]");
    load(&engine, &rules(r#"{ permits = 12, per = "day", zone = "Asia/Kathmandu" }"#));
    service.play(
        "
        {rule: tokens, key: ann} => [{remaining: 3, resets_at: 2026-03-03T00:00:00+05:45}]
        pass 86400s
        {rule: tokens, key: ann} => [{remaining: 11}]
        ",
    );
}

/// A debt is carried from month to month: ten of it are paid at each border.
#[test]
fn a_debt_is_paid_by_later_windows() {
    let (service, _) = service(&format!("{}debt = \"carry\"\n", month(10)), MARCH_S, None);
    service.play(
        "
        {verb: charge, rule: tokens, key: ann, permits: 25} => [{debt: 15, remaining: 0}]
        {rule: tokens, key: ann} => [{retry_after_ns: 5266800000000000}]
        pass 2674800s
        {rule: tokens, key: ann, permits: 0} => [{debt: 5}]
        pass 2592000s
        {rule: tokens, key: ann, permits: 5} => [{remaining: 0}]
        ",
    );
}
