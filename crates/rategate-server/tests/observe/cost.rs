//! The cost of observation for each decision: bounded loosely here, since any machine runs tests;
//! measured in docs/limits.md.

use std::sync::Arc;
use std::time::Instant;

use rategate_server::engine::{ItemResult, Observer as _, Verdict};
use rategate_server::observe::Observe;
use rategate_server::rule::Unit;

use crate::observe::common::{START_NS, bucket, rule};

/// Returns the nanoseconds per item, over that many keys.
pub(crate) fn cost(items: u64, keys: u64, denied: bool) -> u64 {
    let observe = Observe::new(START_NS);
    let rule = Arc::new(rule("per-address", &["remote_address"], bucket(10, 20), 10, Unit::Second));
    let watch = observe.of_rule(Some(&rule));
    let verdict = if denied {
        Verdict::Denied { retry_after_ns: std::num::NonZeroU64::new(5_000_000), enforced: true }
    } else {
        Verdict::Granted
    };
    let result = ItemResult {
        rule: Some(rule),
        display_limit: None,
        verdict,
        limit: 20,
        remaining: Some(9),
        debt: 0,
        reset_after_ns: 0,
        store_ns: None,
        detail: None,
    };
    let names: Vec<Vec<u8>> =
        (0..keys).map(|key| format!("198.51.100.{key}").into_bytes()).collect();
    // Fifty thousand a second.
    let step_ns = 20_000;
    let mut now_ns = START_NS;
    let mut run = |items: u64| {
        for item in 0..items {
            now_ns += step_ns;
            let key = usize::try_from(item.wrapping_mul(0x9E37_79B9) % keys).unwrap();
            watch.decided(now_ns, &names[key], 1, &result);
            if item % 50_000 == 49_999 {
                observe.tick(now_ns);
            }
        }
    };
    run(items);
    let started = Instant::now();
    run(items);
    u64::try_from(started.elapsed().as_nanos()).unwrap() / items
}

#[test]
#[cfg_attr(debug_assertions, ignore = "a figure of optimized code")]
fn observing_takes_a_bounded_time() {
    for (keys, denied) in [(1, false), (1_000, false), (100_000, false), (1_000, true)] {
        let cost_ns = cost(2_000_000, keys, denied);
        let bound_ns = 2_000;
        assert!(cost_ns < bound_ns, "{keys} keys, denied {denied}: {cost_ns} ns");
        #[allow(clippy::print_stdout, reason = "the figure is the point of running it by hand")]
        {
            println!("{keys} keys, denied {denied}: {cost_ns} ns");
        }
    }
}

/// The cost of spans for decisions without one: a thousandth of the decisions here has one.
#[test]
#[cfg(feature = "otlp")]
#[cfg_attr(debug_assertions, ignore = "a figure of optimized code")]
fn a_decision_without_a_span_takes_hardly_longer() {
    use rategate_server::config::load_text;
    use rategate_server::engine::{Engine, EngineSettings, Inline, Verb};
    use rategate_server::observe::{Protocol, Spans};

    const CALLS: u64 = 2_000_000;
    // No receiver listens, so everything sent is lost.
    let config = "[tracing]\notlp = \"http://127.0.0.1:9\"\nsample = \"0.1%\"\n";
    let tracing = load_text("rategate.toml", config).unwrap().settings.tracing;
    let spans = Spans::start(&tracing).unwrap().unwrap();
    let plain = Engine::new(rategate::MonotonicClock::new(), EngineSettings::default());
    let traced = plain.traced(spans.of(Protocol::Resp));
    let limit = Inline { capacity: 100, count: 100, period_ns: 1_000_000_000 };
    let cost = |engine: &Engine| {
        let started = Instant::now();
        for _ in 0..CALLS {
            let _ = std::hint::black_box(engine.inline(limit, b"key", Verb::Take, 1));
        }
        u64::try_from(started.elapsed().as_nanos()).unwrap() / CALLS
    };
    // Alternating, and the minimum of each, since the machine does other work.
    let costs = (0..5).map(|_| (cost(&plain), cost(&traced)));
    let (plain_ns, traced_ns) = costs.reduce(|a, b| (a.0.min(b.0), a.1.min(b.1))).unwrap();
    #[allow(clippy::print_stdout, reason = "the figure is the point of running it by hand")]
    {
        println!("without spans {plain_ns} ns, with them {traced_ns} ns");
    }
    assert!(traced_ns < plain_ns + 50, "{plain_ns} ns, {traced_ns} ns");
    spans.end();
}
