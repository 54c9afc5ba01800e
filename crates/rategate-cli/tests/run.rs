//! Commands for each line: their arguments, their number, and the effect of their ends.

use std::time::{Duration, Instant};

use crate::common::{Session, folder, run, seq, stderr};

fn status(arguments: &[&str], input: &[u8]) -> (Option<i32>, String) {
    let output = run(&[&["pace", "unlimited"], arguments].concat(), input);
    (output.status.code(), stderr(&output))
}

#[test]
fn the_line_stands_where_the_braces_are() {
    for (command, expected) in [
        (vec!["echo", "{}"], "a b\n\n*\n"),
        (vec!["echo"], "a b\n\n*\n"),
        (vec!["echo", "<{}>", "{}{}"], "<a b> a ba b\n<> \n<*> **\n"),
        (vec!["echo", "{", "}"], "{ } a b\n{ } \n{ } *\n"),
    ] {
        let output = run(&[&["pace", "unlimited", "--"], command.as_slice()].concat(), b"a b\n\n*");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{command:?}");
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{command:?}");
    }
}

#[test]
fn a_line_need_not_be_text() {
    let output = run(&["pace", "unlimited", "--", "printf", "%s."], b"\xff\xfe\n\x80 \xc3");
    assert_eq!(output.stdout, b"\xff\xfe.\x80 \xc3.");
}

#[test]
fn a_child_reads_nothing_of_the_input() {
    let output = run(&["pace", "unlimited", "--", "sh", "-c", "cat; echo {}"], b"1\n2\n3\n");
    assert_eq!(output.stdout, b"1\n2\n3\n");
}

#[test]
fn failures_are_reported_as_xargs_reports_them() {
    let sh = |script| vec!["--", "sh", "-c", script, "sh"];
    assert_eq!(status(&sh("exit 0"), b"a\nb\n").0, Some(0));
    let (code, complaint) = status(&sh("exit $1"), b"0\n1\n125\n127\n254\n0\n");
    assert_eq!((code, complaint.as_str()), (Some(123), ""), "the children speak for themselves");
    let (code, complaint) = status(&sh("exit $1"), b"1\n255\n0\n");
    assert_eq!(code, Some(124));
    assert!(complaint.contains("rategate: sh: exited with status 255"), "{complaint}");
    let (code, complaint) = status(&sh("kill -9 $$"), b"a\n");
    assert_eq!(code, Some(125));
    assert!(complaint.contains("signal: 9"), "{complaint}");
    let (code, complaint) = status(&["--", env!("CARGO_MANIFEST_DIR")], b"a\n");
    assert_eq!(code, Some(126));
    assert!(complaint.contains("cannot be run"), "{complaint}");
    let (code, complaint) = status(&["--", "no-such-command-anywhere"], b"a\n");
    assert_eq!(
        (code, complaint.as_str()),
        (Some(127), "rategate: no-such-command-anywhere: not found\n")
    );
}

#[test]
fn after_a_reason_to_stop_nothing_is_started() {
    let script = "echo $1; exit 255";
    let output = run(&["pace", "unlimited", "--", "sh", "-c", script, "sh"], &seq(100));
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(124), b"1\n".as_slice()));
}

/// The next permit is an hour away, and more input may never come.
#[test]
fn a_reason_to_stop_ends_every_wait() {
    for input in ["1\n2\n", "1\n"] {
        let mut session =
            Session::start(&["pace", "1/h", "-j", "2", "--", "sh", "-c", "sleep 0.2; exit 255"]);
        session.write(input.as_bytes());
        assert_eq!(session.status(), Some(124), "{input:?}");
    }
}

#[test]
fn a_line_that_no_command_can_take_is_refused() {
    let long = [vec![b'a'; 500_000], b"\nb\n".to_vec()].concat();
    let longer = vec![b'a'; 2_000_000];
    for (line, why) in [
        (long.as_slice(), "too long to be an argument"),
        (longer.as_slice(), "longer than 1048576 bytes"),
        (b"a\0b\n".as_slice(), "a zero byte"),
    ] {
        let (code, complaint) = status(&["--", "echo"], line);
        assert_eq!(code, Some(126), "{complaint}");
        assert!(complaint.starts_with("rategate: echo: cannot be run: "), "{complaint}");
        assert!(complaint.contains(why), "{complaint}");
    }
}

#[test]
fn one_runs_at_a_time() {
    let lock_dir = folder("one_runs_at_a_time").join("place");
    let script = format!("mkdir {0} && sleep 0.02 && rmdir {0}", lock_dir.display());
    let (code, complaint) = status(&["--", "sh", "-c", &script], &seq(8));
    assert_eq!(code, Some(0), "{complaint}");
}

/// Each command waits for the other, so both must run.
#[test]
fn two_run_at_a_time_on_request() {
    let lock_dir = folder("two_run_at_a_time_if_asked");
    let script = r#"cd "$0" && : > $1 && until test -e 1 && test -e 2; do sleep 0.02; done"#;
    let mut session = Session::start(&[
        "pace",
        "unlimited",
        "-j",
        "2",
        "--",
        "sh",
        "-c",
        script,
        lock_dir.to_str().unwrap(),
    ]);
    session.write(b"1\n2\n");
    drop(session.stdin.take());
    assert_eq!(session.status(), Some(0));
}

/// A permit is taken when a job is free, so starts are never bunched behind a slow command.
#[test]
fn commands_start_at_the_rate() {
    let start = Instant::now();
    let output = run(&["pace", "20/s", "-j", "8", "--", "echo"], &seq(9));
    assert_eq!(output.stdout.len(), seq(9).len());
    assert!(start.elapsed() >= Duration::from_millis(400), "{:?}", start.elapsed());
}
