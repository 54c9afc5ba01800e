//! Events in the log: few, whatever comes, and keys cannot write lines of their own.

use std::io::Write;
use std::sync::{Arc, Mutex};

use rategate_server::observe::admin::Rights;

use crate::common::{Bench, rules};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What is logged while something runs.
fn logged(run: impl FnOnce()) -> Vec<String> {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, run);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_denial_is_told_with_its_reason_and_an_escaped_key() {
    let bench = Bench::new(rules());
    let lines = logged(|| {
        for _ in 0..21 {
            bench.take("per-address", &["ann\nINFO forged"], 1);
        }
        bench.clock.advance(1_000_000_000);
        bench.take("per-address", &["ann"], 21);
    });
    let denied: Vec<&String> = lines.iter().filter(|line| line.contains("denied")).collect();
    assert_eq!(denied.len(), 2, "{lines:#?}");
    assert!(
        denied[0].contains("rule=per-address key=ann%0AINFO%20forged permits=1"),
        "{}",
        denied[0]
    );
    assert!(
        denied[0].contains("reason=\"over-the-limit\" retry_after_ms=100 enforced=true"),
        "{}",
        denied[0]
    );
    assert!(denied[1].contains("reason=\"never-fits\" enforced=true"), "{}", denied[1]);
    let near: Vec<&String> = lines.iter().filter(|line| line.contains("near the limit")).collect();
    assert_eq!(near.len(), 1, "once a second of a rule: {lines:#?}");
    assert!(near[0].contains("rule=per-address left=1 limit=20"), "{}", near[0]);
}

#[test]
fn a_flood_of_denials_is_a_few_lines() {
    let bench = Bench::new(rules());
    let lines = logged(|| {
        for call in 0..6_000_u64 {
            // Ten seconds.
            bench.clock.advance(1_666_667);
            bench.take("per-address", &["ann"], 1);
            bench.take("search", &[], 1);
            bench.take("uploads", &[&format!("user-{}", call % 3)], 40);
            bench.take("free-plan", &["free", "bob"], 1);
        }
    });
    // Fifty at once and ten a second.
    assert!((100..=151).contains(&lines.len()), "{}", lines.len());
    assert_eq!(bench.call_as(Rights::ALL, "GET", "/v1/rules", "").0, 200);
}
