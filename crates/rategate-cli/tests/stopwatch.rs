//! Stopwatch tests of `pace --at-most` and `pace --shape`: the lines that pass, by the clock of the
//! process that reads them. See `docs/theory.md`, section 10.1.

use std::f64::consts::TAU;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use crate::common::{Session, seq};
use rategate_testkit::oracle::Grants;

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

/// Returns `true` if the lines keep the instants of a shape.
fn keeps_the_shape(shape: &str, due: impl Fn(f64) -> f64) -> bool {
    keeps_instants(&["pace", "--shape", shape], due)
}

/// Returns `true` if in one of several runs nine lines in ten come from 2 ms before to 10 ms after
/// their instants, in seconds since the first line, which may be late itself.
fn keeps_instants(arguments: &[&str], due: impl Fn(f64) -> f64) -> bool {
    (0..12).any(|_| {
        let Grants(arrivals) = arrivals(arguments);
        let first_ns = arrivals[0].0;
        let off = (0_u32..).zip(&arrivals).filter(|(n, (at_ns, _))| {
            let since_first = Duration::from_nanos(at_ns - first_ns).as_secs_f64();
            !(-0.002..0.01).contains(&(since_first - due(f64::from(*n))))
        });
        off.count() * 10 <= arrivals.len()
    })
}

/// The inverses of the integrals: of 100 t^2, and of 100 t and 100 P / tau (1 - cos).
#[test]
fn lines_keep_the_shape() {
    let ramp = |n: f64| (n / 100.0).sqrt();
    let reached = |t: f64| 100.0 * t + 100.0 * 0.8 / TAU * (1.0 - (TAU * t / 0.8).cos());
    let sine = |n: f64| {
        let (mut low, mut high) = (0.0, 10.0);
        for _ in 0..60 {
            let mid = f64::midpoint(low, high);
            if reached(mid) < n { low = mid } else { high = mid }
        }
        high
    };
    assert!(keeps_the_shape("ramp:0/s>400/s@2s", ramp));
    assert!(keeps_the_shape("sine:100/s,100/s,800ms", sine));
    assert!(!keeps_the_shape("constant:400/s", sine));
}

/// A cold limit spaces its first lines by three intervals, and has let 50 pass after its second,
/// half of what the rate has. From then on it spaces them by one interval.
#[test]
fn lines_keep_the_warm_up() {
    let warm = |n: f64| if n < 50.0 { 0.5 - 0.0002 * (50.0 - n).powi(2) } else { 0.5 };
    let due = |n: f64| 0.01 * n + warm(n);
    assert!(keeps_instants(&["pace", "100/s", "--policy", "warm-up=1s"], due));
    assert!(!keeps_instants(&["pace", "400/s"], due));
}
