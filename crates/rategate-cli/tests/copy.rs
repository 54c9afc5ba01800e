//! Paced copying: the output equals the input, and comes no sooner than the rate allows.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::time::{Duration, Instant};

use crate::common::{Session, noise, rategate, run, seq, stderr};

#[test]
fn any_bytes_pass_unchanged() {
    for (seed, length) in [(1, 1), (2, 65_536), (3, 65_537), (4, 1_000_000)] {
        let mut input = noise(seed, length);
        for last in [b'\n', b'x'] {
            input.push(last);
            for rate in ["unlimited", "1000000/s", "100GB/s"] {
                let output = run(&["pace", rate], &input);
                assert!(output.status.success(), "{rate}: {}", stderr(&output));
                assert!(output.stdout == input, "seed {seed} at {rate}");
                assert_eq!(stderr(&output), "", "a meter is for terminals");
            }
        }
    }
}

#[test]
fn empty_input_gives_empty_output() {
    for rate in ["1/h", "1B/h", "unlimited"] {
        let output = run(&["pace", rate], b"");
        assert!(output.status.success() && output.stdout.is_empty());
    }
}

/// A line costs one permit, however long.
#[test]
fn a_line_of_ten_megabytes_is_one_line() {
    let mut input = vec![b'a'; 10_000_000];
    input.push(b'\n');
    assert!(run(&["pace", "1/h"], &input).stdout == input);
}

#[test]
#[cfg(target_os = "linux")]
fn a_long_line_takes_no_memory() {
    let mut session = Session::start(&["pace", "1/h"]);
    let piece = vec![b'a'; 32_768];
    let mut read = vec![0; piece.len()];
    for _ in 0..2_000 {
        session.write(&piece);
        session.stdout.read_exact(&mut read).unwrap();
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", session.child.id())).unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    let peak_kib: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(peak_kib < 32_000, "{peak}");
}

/// X5.2: the first permit comes at once, the others a slice apart.
#[test]
fn twenty_lines_at_fifty_a_second_take_nineteen_slices() {
    let start = Instant::now();
    let output = run(&["pace", "50/s"], &seq(20));
    assert_eq!(output.stdout, seq(20));
    assert!(start.elapsed() >= Duration::from_millis(380), "{:?}", start.elapsed());
}

#[test]
fn a_rate_of_bytes_paces_bytes() {
    let input = noise(5, 65_536);
    let start = Instant::now();
    let output = run(&["pace", "128KiB/s"], &input);
    assert!(output.stdout == input);
    assert!(start.elapsed() >= Duration::from_millis(499), "{:?}", start.elapsed());
}

/// The line before a wait is not kept back until the wait is over.
#[test]
fn output_is_flushed_before_a_wait() {
    let mut session = Session::start(&["pace", "1/h"]);
    session.write(b"first\nsecond\n");
    session.expect(b"first\n");
}

#[test]
fn output_is_flushed_while_the_input_is_silent() {
    let mut session = Session::start(&["pace", "unlimited"]);
    for line in ["first\n", "second\nthi", "rd\n"] {
        session.write(line.as_bytes());
        session.expect(line.as_bytes());
    }
}

/// Time before the first line earns nothing.
#[test]
fn the_schedule_starts_with_the_first_line() {
    let mut session = Session::start(&["pace", "20/s"]);
    std::thread::sleep(Duration::from_millis(300));
    session.write(&seq(9));
    session.expect(b"1\n");
    let start = Instant::now();
    drop(session.stdin.take());
    assert_eq!(session.rest(), seq(9)[2..]);
    // Seven slices, as the first line may have been read late.
    assert!(start.elapsed() >= Duration::from_millis(200), "{:?}", start.elapsed());
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    for rate in ["unlimited", "100MB/s"] {
        let mut child = rategate(&["pace", rate]).spawn().unwrap();
        drop(child.stdout.take());
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || {
            use std::io::Write as _;
            // Ends when the other side does.
            while stdin.write_all(&[b'\n'; 4_096]).is_ok() {}
        });
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{rate}");
        writer.join().unwrap();
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_reported() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut child = rategate(&["pace", "unlimited"]).stdout(full).spawn().unwrap();
    drop(child.stdin.take().map(|mut stdin| std::io::Write::write_all(&mut stdin, b"a\n")));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("rategate: the output: "), "{}", stderr(&output));
}

#[test]
fn input_that_cannot_be_read_is_reported() {
    let folder = std::fs::File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
    let output = rategate(&["pace", "1/s"]).stdin(folder).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("rategate: the input: "), "{}", stderr(&output));
}
