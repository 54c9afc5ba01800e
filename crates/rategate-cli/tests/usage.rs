//! Invalid arguments: one clear line each, status 2, and no effect.

use std::fs;

use crate::common::{rategate, run, stderr};

fn refused(arguments: &[&str]) -> String {
    let output = run(arguments, b"line\n");
    let complaint = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {complaint}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert!(!complaint.contains("panicked"), "{arguments:?}: {complaint}");
    complaint
}

#[test]
fn a_wrong_rate_is_named_with_what_would_be_right() {
    let malformed = "not a rate; write N/PERIOD";
    for (rate, why) in [
        ("0/s", "a rate of zero permits"),
        ("0.0/s", "a rate of zero permits"),
        ("0MiB/s", "a rate of zero permits"),
        ("-5/s", "a rate is above zero, as in \"5/s\""),
        ("-0.5/min", "a rate is above zero"),
        ("-5MiB/s", "a rate is above zero"),
        ("NaN/s", malformed),
        ("inf/s", malformed),
        ("1e9/s", malformed),
        ("1,5/s", malformed),
        ("5", "as in \"5/s\""),
        ("5MB", "as in \"5MB/s\""),
        ("/s", malformed),
        ("5 /s", malformed),
        ("", malformed),
        ("abc", malformed),
        ("MiB/s", malformed),
        ("5/", "the period after the slash: "),
        ("5/10", "a duration needs a unit"),
        ("5/-1s", "the period after the slash: "),
        ("5/y", "the period after the slash: "),
        ("5/0s", "a rate with a period of zero"),
        ("5MiB/0s", "a rate with a period of zero"),
        ("5/0.1ns", "not a whole number of nanoseconds"),
        ("99999999999999999999/s", "64 bits"),
        ("99999999999999999999TiB/s", "64 bits"),
        ("5/999999999999d", "584 years"),
        ("5KB/s", "unknown unit; bytes come in B kB MB"),
        ("5mib/s", "unknown unit"),
        ("never", "nothing would ever pass"),
    ] {
        let complaint = refused(&["pace", rate]);
        let expected = format!("rategate: RATE \"{rate}\": ");
        assert!(complaint.starts_with(&expected), "{rate}: {complaint}");
        assert!(complaint.contains(why), "{rate}: {complaint}");
        assert!(!complaint.contains("write \"never\""), "pace refuses it, too: {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{rate}: {complaint}");
    }
}

#[test]
fn a_wrong_option_is_named_with_what_would_be_right() {
    for (options, name, why) in [
        (vec!["--policy", "foo"], "--policy \"foo\"", "one of average, strict,"),
        (vec!["--policy", "foo=2"], "--policy \"foo=2\"", "one of average, strict,"),
        (vec!["--policy", "burst"], "--policy \"burst\"", "burst=1.5"),
        (vec!["--policy", "burst=x"], "--policy \"burst=x\"", "as in 1.5"),
        (vec!["--policy", "burst=0.5"], "--policy \"burst=0.5\"", "at least 1"),
        (vec!["--policy", "damped"], "--policy \"damped\"", "damped=0.25"),
        (vec!["--policy", "damped=1"], "--policy \"damped=1\"", "between 0 and 1"),
        (vec!["--policy", "damped=NaN"], "--policy \"damped=NaN\"", "between 0 and 1"),
        (vec!["--policy", "warm-up"], "--policy \"warm-up\"", "warm-up=30s"),
        (vec!["--policy", "warm-up=30"], "--policy \"warm-up=30\"", "needs a unit"),
        (vec!["--policy", "warm-up=0s"], "--policy \"warm-up=0s\"", "at least 1ns"),
        (vec!["--slow-start", "30"], "--slow-start \"30\"", "needs a unit"),
        (vec!["--slow-start", "0s"], "--slow-start \"0s\"", "at least 1ns"),
        (vec!["--policy", "strict=1"], "--policy \"strict=1\"", "takes no number"),
        (vec!["--burst", "0"], "--burst \"0\"", "at least 1"),
        (vec!["--burst", "-1"], "--burst \"-1\"", "not an amount"),
        (vec!["--burst", "1.5"], "--burst \"1.5\"", "not a whole number"),
        (vec!["--burst", "5KiB"], "--burst \"5KiB\"", "counts lines"),
        (vec!["--catch-up", "10"], "--catch-up \"10\"", "needs a unit"),
        (vec!["--catch-up", "-1s"], "--catch-up \"-1s\"", "not a duration"),
        (vec!["--at-most", "5"], "--at-most \"5\"", "N/PERIOD"),
        (vec!["--at-most", "-5/s"], "--at-most \"-5/s\"", "not an amount"),
        (vec!["--at-most", "0/s"], "--at-most \"0/s\"", "at least 1"),
        (vec!["--at-most", "5/0s"], "--at-most \"5/0s\"", "at least 1ns"),
        (vec!["--at-most", "5/10"], "--at-most \"5/10\"", "needs a unit"),
        (vec!["--at-most", "5000000000/s"], "--at-most \"5000000000/s\"", "at most 4294967295"),
        (vec!["-j", "0", "--", "true"], "--jobs \"0\"", "from 1 to"),
        (vec!["-j", "many", "--", "true"], "--jobs \"many\"", "from 1 to"),
    ] {
        let complaint = refused(&[&["pace", "5/s"], options.as_slice()].concat());
        assert!(complaint.starts_with(&format!("rategate: {name}: ")), "{options:?}: {complaint}");
        assert!(complaint.contains(why), "{options:?}: {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{options:?}: {complaint}");
    }
}

#[test]
fn contradictions_are_refused_with_a_way_out() {
    for (arguments, name, way_out) in [
        (vec!["5/s", "--burst", "5", "--policy", "strict"], "--burst", "--policy gcra"),
        (vec!["5/s", "--burst", "5", "--policy", "burst=2"], "--burst", "--policy gcra"),
        (vec!["5/s", "--catch-up", "1s", "--burst", "5"], "--catch-up", "--burst N alone"),
        (vec!["5/s", "--catch-up", "1s", "--policy", "gcra"], "--catch-up", "--burst N alone"),
        (vec!["5/s", "--catch-up", "1s", "--policy", "strict"], "--catch-up", "leave out one"),
        (vec!["5/s", "--catch-up", "1s", "--policy", "warm-up=1s"], "--catch-up", "nothing"),
        (vec!["unlimited", "--policy", "warm-up=1s"], "--policy", "warm at once"),
        (vec!["5/s", "--slow-start", "1s", "--policy", "warm-up=1s"], "--slow-start", "by itself"),
        (vec!["unlimited", "--slow-start", "1s"], "--slow-start", "write a RATE"),
        (vec!["--shape", "constant:5/s", "--slow-start", "1s"], "--slow-start", "leave out one"),
        (vec!["5/s", "-j", "2"], "--jobs", "-- echo {}"),
        (vec!["5kB/s", "--", "true"], "RATE", "a rate of lines"),
        (vec!["5kB/s", "--policy", "strict"], "--policy", "average"),
        (vec!["5kB/s", "--policy", "warm-up=1s"], "--policy", "average"),
        (vec!["5kB/s", "--burst", "5"], "--burst", "64KiB"),
        (vec!["5kB/s", "--at-most", "5/s"], "--at-most", "64KiB"),
        (vec!["unlimited", "--at-most", "5B/s", "--burst", "5"], "--burst", "64KiB"),
        (vec!["unlimited", "--at-most", "5B/s", "--", "true"], "--at-most", "without a unit"),
        (vec!["5MB/s", "--catch-up", "0s"], "--catch-up", "write 10ms or more"),
        (vec!["5MB/s", "--catch-up", "9ms"], "--catch-up", "write 10ms or more"),
        (vec!["5MB/s", "--catch-up", "9ms", "--policy", "damped=0.5"], "--catch-up", "10ms"),
    ] {
        let complaint = refused(&[&["pace"], arguments.as_slice()].concat());
        assert!(complaint.starts_with(&format!("rategate: {name} ")), "{arguments:?}: {complaint}");
        assert!(complaint.contains(way_out), "{arguments:?}: {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{arguments:?}: {complaint}");
    }
}

#[test]
fn unknown_or_missing_arguments_are_refused() {
    for arguments in [
        vec![],
        vec!["pace"],
        vec!["walk"],
        vec!["pace", "--brisk", "5/s"],
        vec!["pace", "5/s", "6/s"],
        vec!["pace", "5/s", "-5"],
        vec!["completions", "fishy"],
    ] {
        refused(&arguments);
    }
}

#[test]
fn every_policy_copies() {
    for options in [
        vec![],
        vec!["--policy", "average", "--catch-up", "unbounded"],
        vec!["--policy", "strict"],
        vec!["--policy", "burst=1.5", "--catch-up", "250ms"],
        vec!["--policy", "damped=0.25"],
        vec!["--policy", "gcra"],
        vec!["--policy", "gcra", "--burst", "5"],
        vec!["--policy", "pacer", "--catch-up", "0s"],
        vec!["--policy", "warm-up=1ms"],
        vec!["--slow-start", "1ms"],
        vec!["--slow-start", "1ms", "--policy", "gcra", "--burst", "5"],
        vec!["--at-most", "5/1ms", "--at-most", "100/min"],
    ] {
        let output = run(&[&["pace", "1000/s"], options.as_slice()].concat(), b"a\nb\nc");
        assert!(output.status.success(), "{options:?}: {}", stderr(&output));
        assert_eq!(output.stdout, b"a\nb\nc", "{options:?}");
    }
    for options in [
        vec!["--policy", "damped=0.25"],
        vec!["--policy", "gcra"],
        vec!["--burst", "1B"],
        vec!["--policy", "pacer"],
        vec!["--catch-up", "10ms"],
        vec!["--at-most", "7B/1ms"],
    ] {
        let output = run(&[&["pace", "1.5MiB/s"], options.as_slice()].concat(), &[b'x'; 50]);
        assert!(output.status.success(), "{options:?}: {}", stderr(&output));
        assert_eq!(output.stdout, [b'x'; 50], "{options:?}");
    }
}

/// The arguments after the two dashes belong to the command.
#[test]
fn a_complaint_is_never_about_the_command() {
    let complaint = refused(&["pace", "5/s", "-5", "--", "cat", "-5/foo"]);
    assert!(!complaint.contains("foo") && complaint.contains("'-5'"), "{complaint}");
}

/// At less than 100 B/s a chunk is one byte, which needs no catching up.
#[test]
fn single_bytes_need_no_catch_up() {
    let output = run(&["pace", "50B/s", "--catch-up", "0s"], b"ab");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"ab".as_slice()));
}

#[test]
fn a_log_onto_the_input_or_the_output_is_refused() {
    let file = crate::common::folder("a_log_onto_a_stream").join("data");
    let path = file.to_str().unwrap();
    for onto_input in [true, false] {
        fs::write(&file, "a\n").unwrap();
        let mut command = rategate(&["pace", "unlimited", "--log-json", path]);
        if onto_input {
            command.stdin(fs::File::open(&file).unwrap());
        } else {
            command.stdout(fs::OpenOptions::new().append(true).open(&file).unwrap());
        }
        let output = command.output().unwrap();
        let complaint = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        assert!(complaint.contains("a file of its own"), "{complaint}");
        assert_eq!(fs::read(&file).unwrap(), b"a\n", "nothing is lost");
    }
    let mut command = rategate(&["pace", "unlimited", "--log-json", "/dev/null"]);
    let nowhere = fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
    assert!(command.stdout(nowhere).output().unwrap().status.success());
}

/// A negative number is the value of its option, and no option of its own.
#[test]
fn numbers_of_permits_say_what_would_be_right() {
    let id = "00112233445566778899aabbccddeeff";
    for number in ["-5", "NaN", "1.5", "18446744073709551616"] {
        for (command, option) in [
            (["check", "r", "k"].as_slice(), "-n"),
            (&["charge", "r", "k"], "-n"),
            (&["reserve", "r", "k"], "-n"),
            (&["commit", id, "r", "k"], "-n"),
        ] {
            let complaint = refused(&[command, &[option, number]].concat());
            let value = format!("invalid value '{number}' for '");
            assert!(complaint.contains(&value), "{command:?} {option}: {complaint}");
            let right = "a whole number from 0 to 18446744073709551615";
            assert!(complaint.contains(right), "{command:?} {option}: {complaint}");
        }
    }
}
