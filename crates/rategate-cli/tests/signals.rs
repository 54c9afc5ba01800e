//! Interrupts, and a process that is stopped and continued.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::common::{Session, folder, max_within, records, seq};

#[test]
fn an_interrupt_ends_a_wait_for_a_permit() {
    let mut session = Session::start(&["pace", "1/h"]);
    session.write(b"first\nsecond\n");
    session.expect(b"first\n");
    session.signal("-INT");
    assert_eq!(session.status(), Some(130));
    assert_eq!(session.rest(), b"");
}

#[test]
fn an_interrupt_ends_a_wait_for_input() {
    for rate in ["unlimited", "1GB/s"] {
        let mut session = Session::start(&["pace", rate]);
        session.write(b"first\n");
        session.expect(b"first\n");
        session.signal("-INT");
        assert_eq!(session.status(), Some(130), "{rate}");
    }
}

#[test]
fn an_interrupted_line_is_completed() {
    let mut session = Session::start(&["pace", "1/h"]);
    session.write(b"be");
    session.expect(b"be");
    session.signal("-INT");
    session.write(b"gun\nnot begun\n");
    session.expect(b"gun\n");
    assert_eq!(session.status(), Some(130));
    assert_eq!(session.rest(), b"");
}

#[test]
fn a_second_signal_ends_at_once_and_need_not_be_the_same() {
    for (second, status) in [("-INT", 130), ("-TERM", 143)] {
        let mut session = Session::start(&["pace", "1/h"]);
        session.write(b"be");
        session.expect(b"be");
        session.signal("-INT");
        // Two signals that come together count as one.
        thread::sleep(Duration::from_millis(200));
        assert!(session.child.try_wait().unwrap().is_none(), "the line is not complete");
        session.signal(second);
        assert_eq!(session.status(), Some(status), "{second}");
    }
}

#[test]
fn an_interrupt_waits_for_children() {
    let script = "echo begun {}; sleep 0.4; echo done {}";
    let mut session = Session::start(&["pace", "100/s", "-j", "1", "--", "sh", "-c", script]);
    session.write(&seq(3));
    session.expect(b"begun 1\n");
    session.signal("-INT");
    assert_eq!(session.status(), Some(130));
    assert_eq!(session.rest(), b"done 1\n");
}

#[test]
fn a_second_interrupt_does_not_wait() {
    let mut session =
        Session::start(&["pace", "1/s", "--", "sh", "-c", "echo begun; exec sleep 5"]);
    session.write(b"line\n");
    session.expect(b"begun\n");
    session.signal("-INT");
    thread::sleep(Duration::from_millis(200));
    assert!(session.child.try_wait().unwrap().is_none(), "the child still runs");
    session.signal("-INT");
    assert_eq!(session.status(), Some(130));
}

#[test]
fn sighup_and_sigterm_interrupt_too() {
    let log = folder("other_signals").join("log");
    let path = log.to_str().unwrap();
    for (name, status) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let script = "echo begun; sleep 0.4; echo done";
        let mut session =
            Session::start(&["pace", "100/s", "--log-json", path, "--", "sh", "-c", script]);
        session.write(&seq(3));
        session.expect(b"begun\n");
        session.signal(name);
        assert_eq!(session.status(), Some(status), "{name}");
        assert_eq!(session.rest(), b"done\n", "{name}");
        assert_eq!(records(&log).len(), 1, "{name}");
    }
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let script = r#"trap "" HUP; exec "$0" pace unlimited"#;
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_rategate")]);
    let mut session = Session::of(&mut command);
    session.write(b"1\n");
    session.expect(b"1\n");
    session.signal("-HUP");
    thread::sleep(Duration::from_millis(100));
    session.write(b"2\n");
    session.expect(b"2\n");
    drop(session.stdin.take());
    assert_eq!(session.status(), Some(0));
}

/// X0.2: however long the process is stopped, it makes up for no more than the bound.
#[test]
fn a_stopped_process_catches_up_within_its_bound() {
    let log = folder("a_stopped_process").join("log");
    let path = log.to_str().unwrap();
    let mut session = Session::start(&["pace", "1000/s", "--catch-up", "50ms", "--log-json", path]);
    session.write(&seq(1_000));
    drop(session.stdin.take());
    session.expect(b"1\n");
    session.signal("-STOP");
    thread::sleep(Duration::from_millis(500));
    session.signal("-CONT");
    assert_eq!(session.rest(), seq(1_000)[2..]);
    assert_eq!(session.status(), Some(0));

    let records = records(&log);
    assert_eq!(records.len(), 1_000);
    for window_ms in 1..=100 {
        let max = max_within(&records, window_ms * 1_000_000);
        assert!(max <= window_ms + 50, "{max} within {window_ms} ms");
    }
    let last_ns = records.last().unwrap().start_ns;
    assert!(last_ns >= 1_300_000_000, "the stop lost nothing: {last_ns}");
    fs::remove_file(log).unwrap();
}
