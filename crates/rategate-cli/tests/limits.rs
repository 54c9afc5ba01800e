//! The limits hold, by the record of every start in `--log-json`.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Record, Session, folder, max_within, noise, records, run, seq, stderr};

fn paced(name: &str, options: &[&str], input: &[u8]) -> Vec<Record> {
    let log = folder(name).join("log");
    let path = log.to_string_lossy();
    let arguments = [&["pace", "--log-json", &path], options].concat();
    let output = run(&arguments, input);
    assert!(output.status.success(), "{}", stderr(&output));
    records(&log)
}

#[test]
fn each_wait_is_the_start_less_the_schedule() {
    for (name, options) in [
        ("identity_average", vec!["2000/s"]),
        ("identity_strict", vec!["2000/s", "--policy", "strict"]),
        ("identity_burst", vec!["2000/s", "--policy", "burst=1.5"]),
        ("identity_damped", vec!["2000/s", "--policy", "damped=0.25"]),
    ] {
        let records = paced(name, &options, &seq(500));
        assert_eq!(records.len(), 500);
        assert_eq!((records[0].scheduled_ns, records[0].start_ns), (0, 0), "{options:?}");
        for (slice, record) in (0..).zip(&records) {
            assert_eq!(record.scheduled_ns, slice * 500_000, "{options:?}");
            assert_eq!(record.start_ns, record.scheduled_ns + record.wait_ns, "{options:?}");
            assert_eq!(record.permits, 1);
        }
        assert!(records.is_sorted_by_key(|record| record.start_ns), "{options:?}");
    }
}

/// S4.3: a burst, and never more than five in any second, at every phase.
#[test]
fn a_window_holds_beside_a_burst() {
    let options = ["20/s", "--burst", "5", "--at-most", "5/500ms", "--", "true"];
    let records = paced("window_and_burst", &options, &seq(14));
    assert_eq!(records.len(), 14);
    assert!(max_within(&records, 500_000_000) <= 5);
    for window_ms in (50..=1_500).step_by(50) {
        let max = max_within(&records, window_ms * 1_000_000);
        assert!(max <= window_ms / 50 + 4, "{max} within {window_ms} ms");
    }
}

#[test]
fn several_windows_hold_together() {
    let options = ["unlimited", "--at-most", "3/100ms", "--at-most", "4/250ms"];
    let records = paced("several_windows", &options, &seq(10));
    assert_eq!(records.len(), 10);
    assert!(max_within(&records, 100_000_000) <= 3);
    assert!(max_within(&records, 250_000_000) <= 4);
}

/// A warm-up of 200 ms to 100/s: ten lines in the period, and then one each 10 ms.
#[test]
fn a_warm_up_begins_slowly() {
    let records = paced("warm_up", &["100/s", "--policy", "warm-up=200ms"], &seq(16));
    assert_eq!(records.len(), 16);
    let starts_ms: Vec<u64> = records.iter().map(|record| record.start_ns / 1_000_000).collect();
    assert!(starts_ms[5] >= 125 && starts_ms[10] >= 200, "{starts_ms:?}");
    assert!(starts_ms.windows(2).all(|of| of[1] - of[0] >= 9), "{starts_ms:?}");
}

/// A slow start of 200 ms to 100/s: eleven lines in the period in place of twenty, and then one
/// each 10 ms.
#[test]
fn a_slow_start_begins_slowly() {
    let records = paced("slow_start", &["100/s", "--slow-start", "200ms"], &seq(16));
    assert_eq!(records.len(), 16);
    let starts_ms: Vec<u64> = records.iter().map(|record| record.start_ns / 1_000_000).collect();
    assert!(starts_ms[1] >= 48 && starts_ms[5] >= 128 && starts_ms[11] >= 199, "{starts_ms:?}");
}

#[test]
fn strict_starts_are_a_slice_apart() {
    let records = paced("strict", &["1000/s", "--policy", "strict"], &seq(200));
    assert!(max_within(&records, 1_000_000) <= 1);
}

#[test]
fn bytes_are_taken_in_chunks_worth_ten_milliseconds() {
    let records = paced("chunks", &["100kB/s"], &noise(7, 20_000));
    assert_eq!(records.iter().map(|record| record.permits).sum::<u64>(), 20_000);
    assert!(records.iter().all(|record| (1..=1_000).contains(&record.permits)));

    let options = ["100kB/s", "--burst", "300B", "--at-most", "20B/1ms"];
    let records = paced("small_chunks", &options, &noise(8, 5_000));
    assert_eq!(records.iter().map(|record| record.permits).sum::<u64>(), 5_000);
    assert!(max_within(&records, 1_000_000) <= 20);
}

#[test]
fn a_window_of_bytes_needs_no_rate() {
    let options = ["unlimited", "--at-most", "1kB/50ms", "--at-most", "1MB/1s"];
    let records = paced("window_of_bytes", &options, &noise(9, 3_000));
    assert_eq!(records.iter().map(|record| record.permits).sum::<u64>(), 3_000);
    assert!(max_within(&records, 50_000_000) <= 1_000);
}

#[test]
fn the_log_is_flushed_before_every_wait() {
    let log = folder("log_before_waits").join("log");
    let path = log.to_str().unwrap();
    for (rate, command) in [
        ("1000/s", vec![]),
        ("1GB/s", vec![]),
        ("1000/s", vec!["--", "echo"]),
        ("1000/s", vec!["--", "sh", "-c", "echo 1; exec sleep 2"]),
    ] {
        let mut session =
            Session::start(&[&["pace", rate, "--log-json", path], command.as_slice()].concat());
        session.write(b"1\n");
        session.expect(b"1\n");
        let patience = Instant::now();
        while records(&log).len() != 1 {
            let waited = patience.elapsed();
            assert!(waited < Duration::from_secs(1), "{rate} {command:?}: nothing is logged");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_log_that_cannot_be_written_is_reported() {
    let output = run(&["pace", "1/s", "--log-json", "/no/such/folder/log"], b"a\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("rategate: --log-json /no/such/folder/log: "));
}
