//! `pace --jobs FLOOR..CEILING`: as many commands at once as their times allow.

use std::fs;
use std::path::Path;

use crate::common::{folder, run, seq, stderr};

/// Runs a script for each of some lines, and returns the limits that the records have.
fn limits(name: &str, jobs: &str, lines: u32, script: &str) -> Vec<u64> {
    let folder = folder(name);
    let log = folder.join("log");
    let (log_name, folder) = (log.to_str().unwrap(), folder.to_str().unwrap());
    let pace = ["pace", "unlimited", "--jobs", jobs, "--log-json", log_name];
    let command = ["--", "sh", "-c", script, "sh", "{}", folder];
    let output = run(&[&pace, command.as_slice()].concat(), &seq(lines));
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{name}");
    let mut done: Vec<u32> =
        String::from_utf8(output.stdout).unwrap().lines().map(|n| n.parse().unwrap()).collect();
    done.sort_unstable();
    assert!(done.into_iter().eq(1..=lines), "{name}: each line once");
    max_jobs(&log)
}

fn max_jobs(log: &Path) -> Vec<u64> {
    let read = |line: &str| {
        let json: serde_json::Value = serde_json::from_str(line).unwrap();
        json["max_jobs"].as_u64().unwrap()
    };
    fs::read_to_string(log).unwrap().lines().map(read).collect()
}

/// Each command needs one of three locks for 20 ms, so that more than three only wait.
#[test]
fn commands_that_wait_for_each_other_become_fewer() {
    let script = "flock \"$2/$(($1 % 3))\" sleep 0.02; echo $1";
    let limits = limits("jobs_that_wait", "1..50", 1_200, script);
    assert_eq!(limits[0], 20);
    let mean = limits[900..].iter().sum::<u64>() / 300;
    assert!(mean < 18, "{mean} at once: {limits:?}");
}

/// Each command only sleeps, so that all may run at once.
#[test]
fn commands_that_do_not_wait_become_more() {
    let limits = limits("jobs_that_sleep", "1..50", 900, "sleep 0.4; echo $1");
    assert_eq!(limits[0], 20);
    let most = limits.iter().max().unwrap();
    assert!((35..=50).contains(most), "{most} at once: {limits:?}");
}

/// A temporary failure was too much, and any other failure says nothing.
#[test]
fn the_status_of_a_command_says_whether_it_was_too_much() {
    for (status, is_less) in [(1, false), (75, true), (124, true)] {
        let log = folder(&format!("jobs_that_fail_{status}")).join("log");
        let pace = ["pace", "unlimited", "--jobs", "2..50", "--log-json", log.to_str().unwrap()];
        let script = format!("sleep 0.02; exit {status}");
        let output = run(&[&pace, ["--", "sh", "-c", &script].as_slice()].concat(), &seq(400));
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(123), ""), "{status}");
        let limits = max_jobs(&log);
        assert_eq!((limits.len(), limits[0]), (400, 20), "{status}");
        let last = limits[399];
        assert_eq!(last < 20, is_less, "{status}: {last}");
        assert!((2..=50).contains(&last), "{status}: {last}");
    }
}

/// The records and the exit statuses of a fixed number are as they were.
#[test]
fn bounds_that_are_equal_never_move() {
    let limits = limits("jobs_that_are_fixed", "3..3", 60, "sleep 0.01; echo $1");
    assert!(limits.iter().all(|&limit| limit == 3), "{limits:?}");
}

#[test]
fn bounds_that_are_none_are_refused() {
    for (jobs, why) in [
        ("0..5", "write FLOOR..CEILING, two whole numbers from 1 to 4096, as in 1..50"),
        ("a..b", "write FLOOR..CEILING"),
        ("1..", "write FLOOR..CEILING"),
        ("..5", "write FLOOR..CEILING"),
        ("1..=5", "write FLOOR..CEILING"),
        ("1...5", "write FLOOR..CEILING"),
        ("-1..5", "write FLOOR..CEILING"),
        ("+1..5", "write FLOOR..CEILING"),
        ("1..4097", "write FLOOR..CEILING"),
        ("5..1", "the first is above the second; write 1..5"),
        ("5-9", "write a whole number from 1 to 4096, or two of them as in 1..50"),
        ("4097", "write a whole number from 1 to 4096"),
    ] {
        let output = run(&["pace", "5/s", "--jobs", jobs, "--", "true"], b"line\n");
        let complaint = stderr(&output);
        assert_eq!((output.status.code(), complaint.lines().count()), (Some(2), 1), "{jobs}");
        let start = format!("rategate: --jobs \"{jobs}\": {why}");
        assert!(complaint.starts_with(&start), "{complaint}");
    }
    let output = run(&["pace", "5/s", "--jobs", "1..5"], b"line\n");
    assert!(stderr(&output).contains("nothing to run"), "{}", stderr(&output));
}
