//! Simulations: `/v1/simulate` returns what the limit would have decided.

use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use rategate::keyed::{Replay, ReplayOutcome};
use rategate::{AnyPolicy, Clock as _, SlidingLog};
use rategate_server::net::Rights;
use rategate_server::protocol::http::Caller;
use serde_json::{Value, json};

use crate::observe::common::{Bench, SECOND_NS, START_NS, rules};

fn simulate(bench: &Bench, rule: &str, limit: &Value) -> Value {
    let body = json!({ "rule": rule, "limit": limit }).to_string();
    let (status, reported) = bench.call("POST", "/v1/simulate", &body);
    assert_eq!(status, 200, "{reported}");
    serde_json::from_str(&reported).unwrap()
}

/// Ten minutes of calls of three keys: each candidate denies as many of them as its own decisions
/// do, and the limit in force as many as it really did.
#[test]
fn a_replay_denies_what_the_limit_would_have() {
    let bench = Bench::new(rules());
    let (mut random, mut calls, mut denied) = (Rng::with_seed(7), Vec::new(), 0_u64);
    for _ in 0..3_000 {
        // At least a millisecond apart, which is the resolution of the recorder.
        bench.clock.advance(Duration::from_nanos(2_000_000 + random.u64(..50_000_000)));
        let (key, permits) = (random.u64(..3), random.u64(1..=3));
        denied += u64::from(!bench.take("search", &[], permits));
        calls.push((bench.clock.now_ns(), key, permits));
    }
    bench.second();
    for permits in [5_u64, 40, 60, 100] {
        let limit = json!({ "permits": permits, "period_ms": 1_000, "algorithm": "sliding-log" });
        let reported = simulate(&bench, "search", &limit);
        let policy = AnyPolicy::from(SlidingLog::new(permits, Duration::from_nanos(SECOND_NS)));
        let replay: Replay<u64> = Replay::new(&[policy], 10);
        let expected = calls.iter().filter(|(at_ns, _, permits)| {
            replay.set(Duration::from_nanos(*at_ns));
            replay.attempt(&0, *permits) != ReplayOutcome::Allowed
        });
        assert_eq!(reported["candidate"]["denied"], expected.count(), "{permits}");
        assert_eq!(reported["in_force"]["denied"], denied);
        assert_eq!(
            (&reported["arrivals"], &reported["keys"], &reported["one_key_in"]),
            (&json!(3_000), &json!(1), &json!(1))
        );
        let bars = |name: &str| {
            reported["bars"][name]
                .as_array()
                .unwrap()
                .iter()
                .map(|bar| bar.as_u64().unwrap())
                .sum::<u64>()
        };
        assert_eq!((bars("arrivals"), bars("in_force_denied")), (3_000, denied));
        assert_eq!(json!(bars("candidate_denied")), reported["candidate"]["denied"]);
    }
    let same = simulate(&bench, "search", &json!({ "permits": 60, "period_ms": 1_000 }));
    assert_eq!(same["candidate"], same["in_force"], "of the rule's own kind by default");
    assert_eq!(same["from_ms"], START_NS / 1_000_000);
}

#[test]
fn keys_keep_their_own_limits() {
    let bench = Bench::new(rules());
    for call in 0..600_u64 {
        bench.clock.advance(Duration::from_millis(10));
        bench.take("per-address", &[if call % 10 == 0 { "rare" } else { "often" }], 1);
    }
    let reported =
        simulate(&bench, "per-address", &json!({ "permits": 10, "period_ms": 1_000, "burst": 20 }));
    assert_eq!(reported["candidate"], reported["in_force"]);
    assert_eq!((&reported["keys"], &reported["candidate"]["keys_denied"]), (&json!(2), &json!(1)));
    let wide = simulate(&bench, "per-address", &json!({ "permits": 100, "period_ms": 1_000 }));
    assert_eq!(wide["candidate"]["denied"], 0);
    assert!(
        wide["sentence"]
            .as_str()
            .unwrap()
            .starts_with("Of 600 arrivals of 2 keys, this limit denies none.")
    );
}

#[test]
fn limits_that_are_none_are_refused() {
    let bench = Bench::new(rules());
    for (rule, limit, status) in [
        ("per-address", json!({ "permits": 0, "period_ms": 1_000 }), 400),
        ("per-address", json!({ "permits": 1, "period_ms": 0 }), 400),
        ("per-address", json!({ "permits": 1, "period_ms": 1_000, "burst": 0 }), 400),
        ("search", json!({ "permits": 1, "period_ms": 1_000, "burst": 5 }), 400),
        ("per-address", json!({ "permits": u64::MAX, "period_ms": u64::MAX }), 200),
        ("per-address", json!({ "permits": -1, "period_ms": 1_000 }), 400),
        ("per-address", json!({ "permits": 1, "period_ms": 1_000, "algorithm": "guess" }), 400),
        ("unknown", json!({ "permits": 1, "period_ms": 1_000 }), 404),
        ("*inline", json!({ "permits": 1, "period_ms": 1_000 }), 400),
    ] {
        let body = json!({ "rule": rule, "limit": limit }).to_string();
        let (reported, text) = bench.call("POST", "/v1/simulate", &body);
        assert_eq!(reported, status, "{body}: {text}");
    }
    let list = r#"["per-address",{"permits":1,"period_ms":1000}]"#;
    assert_eq!(bench.call("POST", "/v1/simulate", list).0, 400);
    let reported = simulate(&bench, "per-address", &json!({ "permits": 1, "period_ms": 1_000 }));
    assert_eq!(reported["sentence"], "No arrivals are recorded yet.");
}

/// A client that disconnects does not stop the replay that it has started.
#[test]
fn one_replay_at_a_time_even_if_abandoned() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let bench = Bench::new(rules());
    bench.take("search", &[], 1);
    let caller = Caller::with(Rights::ALL);
    let body = json!({ "rule": "search", "limit": { "permits": 1, "period_ms": 1_000 } });
    let status = |status| {
        let request = http::Request::post("/v1/simulate");
        let request = request.body(http_body_util::Full::new(Bytes::from(body.to_string())));
        let mut call = Box::pin(bench.admin.call(request.unwrap(), &caller));
        match status {
            // Polled once and dropped.
            None => runtime.block_on(async { assert!(futures_now(&mut call).is_none()) }),
            Some(status) => assert_eq!(runtime.block_on(call).status(), status),
        }
    };
    let (release, held) = std::sync::mpsc::channel::<()>();
    // Nothing is replayed before that.
    drop(runtime.spawn_blocking(move || held.recv()));
    status(None);
    status(Some(503));
    drop(release);
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        let request = http::Request::post("/v1/simulate");
        let request = request.body(http_body_util::Full::new(Bytes::from(body.to_string())));
        if runtime.block_on(bench.admin.call(request.unwrap(), &caller)).status() == 200 {
            return;
        }
    }
    panic!("it is busy for ever");
}

/// Returns the output of a future that is ready at once.
fn futures_now<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::Pin::new(future).poll(&mut context) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}
