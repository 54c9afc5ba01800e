//! `rategate simulate`: its exact output and its exit statuses.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{run, stderr};

fn scenario(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/scenarios");
    folder.join(name).to_str().unwrap().to_owned()
}

/// Creates a file used by this test alone.
fn scratch(name: &str, content: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("simulate-{name}"));
    fs::write(&path, content).unwrap();
    path
}

/// S0.33: the tape of the operation throttle's jitter test, and its time.
#[test]
fn the_jitter_tape_is_printed_to_the_letter() {
    let output = run(&["simulate", &scenario("seed0-jitter.toml")], b"");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[1],
        "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@[z*10]@@@@@@@@@@@@@@@@@@@@@@@@@@@@[z*10.1]\
         @@@@@@@@@@@@@@@@@@@@@@@@@@@@@[z*9.8]@@@@@@@@@@@@@@"
    );
    assert!(lines[2].starts_with("elapsed 44.9 ms"), "{}", lines[2]);
}

#[test]
fn json_has_the_names_of_the_contract() {
    let output = run(&["simulate", &scenario("seed0-jitter.toml"), "--format", "json"], b"");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["title"], "low latency, high rate, with jitter");
    assert_eq!(report["elapsed_ns"], 44_900_000);
    assert_eq!(report["granted"], 100);
    assert_eq!(report["operations"].as_array().unwrap().len(), 100);
    assert_eq!(report["operations"][0]["end_ns"], 100_000);
    assert_eq!(report["sleeps"][0]["requested_ns"], 10_200_000);
    assert_eq!(report["sleeps"][0]["slept_ns"], 10_000_000);
    assert_eq!(report["mismatches"].as_array().unwrap().len(), 0);

    let output = run(&["simulate", &scenario("seed3-retry-after.toml"), "--format", "json"], b"");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let denied = serde_json::json!({
        "at_ns": 1_000_000_000_u64, "call": "try", "permits": 1, "outcome": "denied",
        "start_ns": null, "scheduled_ns": null, "wait_ns": null,
        "retry_after_ns": 4_000_000_000_u64, "remaining": 0,
    });
    assert_eq!(report["steps"][1], denied);
    let check = serde_json::json!({
        "window_ns": 5_000_000_000_u64, "at_most": 3, "seen": 3, "from_ns": 0,
    });
    assert_eq!(report["checks"][0], check);
}

/// Each wait is reported with its end at the step of its request, and for no other step.
#[test]
fn waits_are_reported_on_request() {
    let file = scenario("line-deadline-out-of-reach.toml");
    let output = run(&["simulate", &file], b"");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let row = |line: usize| text.lines().nth(line).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row(3).last_chunk(), Some(&["remaining", "ended", "ms"]));
    assert_eq!(row(4), ["1", "0", "try", "1", "granted", "0", "0", "-", "0"]);
    assert_eq!(row(5), ["2", "0", "wait", "1", "deadline-passed", "-", "-", "-", "0", "50"]);
    assert_eq!(row(7), ["4", "0", "wait", "1", "granted", "550", "550", "-", "0", "550"]);

    let output = run(&["simulate", &file, "--format", "json"], b"");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["steps"][1]["outcome"], "deadline-passed");
    assert_eq!(report["steps"][1]["ended_ns"], 50_000_000);
    assert!(report["steps"][0].get("ended_ns").is_none());
}

#[test]
fn a_picture_goes_to_a_file() {
    let path = scratch("picture.svg", b"");
    let out = path.to_str().unwrap();
    let file = scenario("seed4-parallel.toml");
    let output = run(&["simulate", &file, "--format", "svg", "--out", out], b"");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
    let picture = fs::read_to_string(path).unwrap();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
}

#[test]
fn what_does_not_come_out_as_expected_is_status_1() {
    let limit = "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n";
    let mismatched = format!(
        "{limit}[[step]]\nat = \"0s\"\ncall = \"try\"\nexpect = {{ outcome = \"denied\" }}\n"
    );
    let path = scratch("mismatch.toml", mismatched.as_bytes());
    let output = run(&["simulate", path.to_str().unwrap()], b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("step 1: outcome is granted, expected denied"));

    let broken = format!(
        "{limit}burst = 2\n[[caller]]\noperations = 2\n[[check]]\nwindow = \"1s\"\nat_most = 1\n"
    );
    let path = scratch("broken.toml", broken.as_bytes());
    let output = run(&["simulate", path.to_str().unwrap()], b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("2 permits in the window"), "{}", stderr(&output));
}

#[test]
fn a_file_that_cannot_be_used_is_status_2_and_one_clear_line() {
    let junk = scratch("junk.toml", &[0xff; 1_000]);
    let long = scratch("long.toml", &vec![b'#'; 100_000_000]);
    let unknown = b"[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\nbrust = 3\n";
    let unknown = scratch("unknown.toml", unknown);
    let cases = [
        (Path::new("no-such-file.toml"), "no-such-file.toml: "),
        (Path::new(env!("CARGO_TARGET_TMPDIR")), "is a directory"),
        (&junk, "not UTF-8"),
        (&long, "at most 16777216 bytes"),
        (&unknown, "unknown.toml:4: unknown keys: brust, available keys: rate, burst"),
    ];
    for (path, words) in cases {
        let output = run(&["simulate", path.to_str().unwrap()], b"");
        let complaint = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        assert!(complaint.contains(words), "`{words}` is not in: {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        assert!(output.stdout.is_empty());
    }
    fs::remove_file(long).unwrap();
}

/// A file about a server under load: its goodput, its goals, and its picture.
#[test]
fn a_server_under_load_is_simulated() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/servers");
    let file = folder.join("start.toml").to_str().unwrap().to_owned();
    let output = run(&["simulate", &file], b"");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("a large server, of which nothing is known at first\n"), "{text}");
    assert!(text.contains("0ns to 10s: ") && text.contains("goodput 9"), "{text}");
    let output = run(&["simulate", &file, "--format", "json"], b"");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["measures"][0]["goodput_per_mille"].as_u64().unwrap() >= 930, "{report}");
    let output = run(&["simulate", &file, "--format", "svg"], b"");
    assert!(output.stdout.starts_with(b"<svg ") && output.stdout.ends_with(b"</svg>\n"));

    let missed = fs::read_to_string(&file).unwrap().replace("goodput = 93", "goodput = 100");
    let missed = scratch("server.toml", missed.as_bytes());
    let output = run(&["simulate", missed.to_str().unwrap()], b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("measure 1: goodput is 9"), "{}", stderr(&output));
    let invalid = scratch("no-server.toml", b"[server]\nworkers = 10\n");
    let output = run(&["simulate", invalid.to_str().unwrap()], b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("needs the key `limit`"), "{}", stderr(&output));
}
