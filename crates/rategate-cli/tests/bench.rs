//! `rategate bench`: its figures depend on the machine, their form does not.

use crate::common::{run, stderr};
use serde_json::Value;

/// S3.9: the duration of decisions is measured, including the slowest.
#[test]
fn every_engine_does_what_its_line_says() {
    let output = run(&["bench", "--json"], b"");
    assert!(output.status.success(), "{}", stderr(&output));
    let lines: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    for line in &lines {
        assert!(line["calls"].as_u64() >= Some(100_000), "{line}");
        assert!(line["slowest_ns"].as_u64() >= line["one_in_10000_ns"].as_u64(), "{line}");
    }
    let by: Vec<&str> = lines.iter().filter_map(|line| line["by"].as_str()).collect();
    assert_eq!(by, ["nothing", "gcra", "sliding log of 100", "two-timeline average"]);
}

/// No window of real starts is over the limit by the limiter's readings, for 1 to 256 threads and
/// tasks, however busy the machine is. See `docs/theory.md`, section 10.
#[test]
fn no_window_of_real_starts_is_over() {
    let output = run(&["bench", "--truth", "--json", "--lap", "50ms"], b"");
    assert!(output.status.success(), "{}", stderr(&output));
    let lines: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    // Nine limits with threads and tasks; the three of one permit at a time also with threads
    // that spin.
    assert_eq!(lines.len(), 9 * 4 * 2 + 3 * 4);
    for line in &lines {
        assert!(line["limiter_fullest"].as_u64() > Some(0), "{line}");
        assert!(line["limiter_fullest"].as_u64() <= line["at_most"].as_u64(), "{line}");
        assert_eq!(line["limiter_over"].as_f64(), Some(0.0), "{line}");
        assert!(line["running_over"].as_f64() <= line["caller_over"].as_f64(), "{line}");
    }
}

#[test]
fn a_lap_out_of_bounds_is_refused() {
    for lap in ["0s", "61s", "soon"] {
        let output = run(&["bench", "--truth", "--lap", lap], b"");
        assert_eq!(output.status.code(), Some(2), "{lap}");
        assert!(stderr(&output).contains("--lap"), "{}", stderr(&output));
    }
}
