//! `rategate bench`: its figures depend on the machine, their shape does not.

mod common;

use common::{run, stderr};
use serde_json::Value;

#[test]
fn every_engine_does_what_its_line_says() {
    let output = run(&["bench", "--json"], b"");
    assert!(output.status.success(), "{}", stderr(&output));
    let lines: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    for line in &lines {
        assert!(line["ns"].as_f64().unwrap() > 0.0, "{line}");
        assert!(line["per_s"].as_f64().unwrap() > 0.0, "{line}");
        let granted = line["granted"].as_f64().unwrap();
        let expected = if line["what"] == "try denied" { 0.0 } else { 1.0 };
        assert!((granted - expected).abs() < 1e-3, "{line}");
        assert_eq!(line["floor"].is_null(), line["what"] == "machine", "{line}");
    }
    for (what, by) in [("machine", "one Instant"), ("try granted", "gcra")] {
        assert!(lines.iter().any(|line| line["what"] == what && line["by"] == by), "{what} {by}");
    }
}
