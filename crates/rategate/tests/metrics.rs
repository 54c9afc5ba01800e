//! The metrics that are published, and the labels that never are.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use rategate::stats::{self, Detail, KeyStats, Outcome};
use rategate::{Limiter, ManualClock, SlidingLog};

const S: u64 = 1_000_000_000;
const KEY: &str = "198.51.100.7";

/// Returns each metric as a line, with its labels and its value.
fn shown(snapshotter: &Snapshotter) -> BTreeMap<String, u64> {
    let mut shown = BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let labels: Vec<String> =
            key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let value = match value {
            DebugValue::Counter(count) => count,
            DebugValue::Gauge(keys) => format!("{}", keys.into_inner()).parse().unwrap(),
            DebugValue::Histogram(_) => unreachable!("there is none"),
        };
        let line = format!("{}{{{}}}", key.key().name(), labels.join(","));
        assert!(shown.insert(line, value).is_none());
    }
    shown
}

#[test]
fn a_limiter_publishes_its_counts() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        stats::describe();
        let log = SlidingLog::new(20, Duration::from_nanos(S));
        let limiter = Limiter::with_clock(log, ManualClock::new()).with_stats("mail");
        for permits in [17, 2, 5] {
            let _ = limiter.try_acquire(permits).unwrap();
        }
        limiter.stats().unwrap().publish();
        // An absolute value can be published twice.
        limiter.stats().unwrap().publish();
    });
    let expected = [
        ("rategate_calls_total{limit=mail,outcome=denied}", 1),
        ("rategate_calls_total{limit=mail,outcome=granted}", 2),
        ("rategate_near_calls_total{limit=mail}", 1),
        ("rategate_permits_total{limit=mail,outcome=denied}", 5),
        ("rategate_permits_total{limit=mail,outcome=granted}", 19),
    ];
    let shown = shown(&snapshotter);
    assert!(shown.iter().map(|(line, &value)| (line.as_str(), value)).eq(expected), "{shown:#?}");
}

/// The labels do not depend on the number of keys, nor on their names.
#[test]
fn a_key_never_becomes_a_label() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        stats::describe();
        let table = KeyStats::new("per client", Detail::exact());
        for call in 0_u64..1_000 {
            let name = || format!("{KEY} {call}");
            let denied = Outcome::Denied { retry_after: None };
            table.observe_named(call % 50, 1, denied, name);
            table.observe_named(call % 50, 2, Outcome::Granted { is_near: true }, name);
        }
        table.overflowed(Duration::ZERO);
        table.publish(50);
        assert!(table.report().to_string().contains(KEY), "the report has them");
    });
    let shown = shown(&snapshotter);
    assert!(!format!("{shown:?}").contains(KEY), "{shown:#?}");
    assert_eq!(shown.len(), 7, "{shown:#?}");
    assert_eq!(shown["rategate_permits_total{limit=per client,outcome=granted}"], 2_000);
    assert_eq!(shown["rategate_overflows_total{limit=per client}"], 1);
    assert_eq!(shown["rategate_keys{limit=per client}"], 50);
}

#[test]
fn a_limiter_over_many_machines_publishes_who_decided() {
    use std::sync::Arc;

    use rategate::distributed::{Distributed, OnUnavailable};
    use rategate::store::MemoryStore;

    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        stats::describe();
        let clock = ManualClock::stepped();
        let store = Arc::new(MemoryStore::with_clock(clock.clone()));
        let limiter = Distributed::builder(store)
            .with_clock(clock)
            .named("mail")
            .limit("a", SlidingLog::new(2, Duration::from_nanos(S)))
            .on_unavailable(OnUnavailable::Admit)
            .build()
            .unwrap();
        for _ in 0..3 {
            let _ = limiter.try_acquire(KEY.as_bytes(), 1).wait().unwrap();
        }
        limiter.publish();
    });
    let shown = shown(&snapshotter);
    let calls = |by: &str, outcome: &str| {
        shown[&format!("rategate_distributed_calls_total{{limit=mail,by={by},outcome={outcome}}}")]
    };
    assert_eq!((calls("store", "granted"), calls("store", "denied")), (2, 1));
    assert_eq!((calls("fallback", "granted"), calls("lease", "granted")), (0, 0));
    assert_eq!(shown["rategate_store_state{limit=mail}"], 0);
    assert_eq!(shown["rategate_store_changes_total{limit=mail}"], 0);
    assert!(!format!("{shown:?}").contains(KEY));
}
