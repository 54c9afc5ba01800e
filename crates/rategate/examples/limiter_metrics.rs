//! The metrics of a limiter, by the `metrics` facade: what was granted and what was denied.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use rategate::{Limiter, SlidingLog, stats};

fn main() -> Result<(), Box<dyn Error>> {
    // A program would install an exporter here, such as that of Prometheus.
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install()?;
    stats::describe();

    let limiter = Limiter::new(SlidingLog::new(3, Duration::from_secs(60))).with_stats("mail");
    for _ in 0..5 {
        let _ = limiter.try_acquire(1)?;
    }
    // Before each scrape, or from a timer.
    if let Some(stats) = limiter.stats() {
        stats.publish();
    }

    let mut denied = None;
    for (key, _unit, _description, value) in snapshotter.snapshot().into_vec() {
        let labels: Vec<_> =
            key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        println!("{} {labels:?} {value:?}", key.key().name());
        if key.key().name() == "rategate_calls_total" && labels.contains(&"outcome=denied".into()) {
            denied = Some(value);
        }
    }
    assert_eq!(denied, Some(DebugValue::Counter(2)));
    Ok(())
}
