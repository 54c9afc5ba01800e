//! A stopwatch test of `pace --at-most`: the lines that pass, by the clock of the process that
//! reads them. See `docs/theory.md`, section 10.1.

use std::io::{BufRead, BufReader};
use std::time::Instant;

use crate::common::{Session, seq};
use rategate_sim::oracle::Grants;

const MAX_PERMITS: u64 = 20;
/// A window of 50 ms, less 1 ms by which a line may come later than the one a window before.
const WINDOW_NS: u64 = 49_000_000;
const LINES: u32 = 160;

/// Returns the arrival of each line, in nanoseconds since the first.
fn arrivals(arguments: &[&str]) -> Grants {
    let mut session = Session::start(arguments);
    session.write(&seq(LINES));
    drop(session.stdin.take());
    let since = Instant::now();
    let lines = BufReader::new(&mut session.stdout).lines();
    let arrivals: Vec<(u64, u64)> = lines
        .map(|line| {
            line.unwrap();
            (u64::try_from(since.elapsed().as_nanos()).unwrap(), 1)
        })
        .collect();
    assert!(session.child.wait().unwrap().success());
    assert_eq!(arrivals.len(), usize::try_from(LINES).unwrap());
    Grants(arrivals)
}

/// Returns `true` if one of several runs keeps the window, with at most 2 % of the windows over
/// the limit.
///
/// A pipe and two processes lie between the limiter's reading and the reader's, and may be
/// preempted. With twice as many permits in a window no run passes.
fn keeps_the_window(arguments: &[&str]) -> bool {
    (0..12).any(|_| arrivals(arguments).windows_over(WINDOW_NS, MAX_PERMITS) * 50 <= 160)
}

#[test]
fn lines_keep_the_window() {
    assert!(keeps_the_window(&["pace", "unlimited", "--at-most", "20/50ms"]));
    assert!(keeps_the_window(&["pace", "2000/s", "--burst", "30", "--at-most", "20/50ms"]));
    assert!(!keeps_the_window(&["pace", "unlimited", "--at-most", "40/50ms"]));
}
