//! The operation throttle on a manual clock: the article's five logs, and the cases that it left
//! open.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rategate::pace::{CatchUp, Throttle};
use rategate::{AcquireError, Clock, ManualClock, MonotonicClock, Rate};
use rategate_testkit::ns;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Runs `ops` operations, and returns the log and the clock at the end. `slept` maps the number
/// of a sleep and its requested length to its real length.
fn play(
    rate: &str,
    ops: u64,
    latency_ns: impl Fn(u64) -> u64,
    slept: impl Fn(u64, u64) -> u64 + Send + 'static,
    catch_up: Option<CatchUp>,
) -> (String, u64) {
    let log = Arc::new(Mutex::new(String::new()));
    let (sleeps, mut count) = (Arc::clone(&log), 0);
    let clock = ManualClock::with_sleep(move |requested| {
        let slept_ns = slept(count, ns(requested));
        count += 1;
        let (whole, fraction) = (slept_ns / MS, slept_ns % MS / (100 * US));
        assert_eq!(slept_ns % (100 * US), 0, "{slept_ns} ns is no tenth of a millisecond");
        let fraction = if fraction == 0 { String::new() } else { format!(".{fraction}") };
        write!(sleeps.lock().unwrap(), "[z*{whole}{fraction}]").unwrap();
        Duration::from_nanos(slept_ns)
    });
    let mut throttle = Throttle::new(rate.parse().unwrap(), clock.clone());
    if let Some(catch_up) = catch_up {
        throttle = throttle.with_catch_up(catch_up);
    }
    for op in 0..ops {
        clock.advance(Duration::from_nanos(latency_ns(op)));
        log.lock().unwrap().push('@');
        throttle.wait().unwrap();
    }
    let log = log.lock().unwrap().clone();
    (log, clock.now_ns())
}

/// S0.1, S0.2, S0.3, S0.24, S0.26, S0.27, S0.28, S0.29, X0.7: 25 operations of 0.4 ms delay each
/// fill one sleep of 10 ms.
#[test]
fn low_latency_high_rate() {
    let (log, end_ns) = play("2000/s", 60, |_| 100 * US, |_, requested| requested, None);
    let batch = "@".repeat(25);
    assert_eq!(log, format!("{batch}[z*10]{batch}[z*10]{}", "@".repeat(10)));
    assert_eq!(end_ns, 26 * MS);
}

/// S0.4, S0.30: four seconds of sleep follow every operation, without batches.
#[test]
fn high_latency_low_rate() {
    let (log, end_ns) = play("10/min", 10, |_| 2_000 * MS, |_, requested| requested, None);
    assert_eq!(log, "@[z*4000]".repeat(10));
    assert_eq!(end_ns, 60_000 * MS);
}

/// S0.5, S0.31: at a low rate every operation is followed by a sleep, without batches.
#[test]
fn low_latency_low_rate() {
    let (log, end_ns) = play("10/min", 10, |_| 100 * MS, |_, requested| requested, None);
    assert_eq!(log, "@[z*5900]".repeat(10));
    assert_eq!(end_ns, 60_000 * MS);
}

/// S0.6, S0.32: an operation slower than its rate is never delayed, whatever the catch-up bound.
#[test]
fn high_latency_high_rate() {
    for catch_up in [None, Some(CatchUp::Unbounded), Some(CatchUp::AtMost(Duration::ZERO))] {
        let (log, end_ns) = play("100/s", 75, |_| 100 * MS, |_, requested| requested, catch_up);
        assert_eq!(log, "@".repeat(75));
        assert_eq!(end_ns, 7_500 * MS);
    }
}

/// S0.2, S0.7, S0.33: the errors of sleeps that end early and late are carried over; equality
/// sleeps.
#[test]
fn low_latency_high_rate_with_jitter() {
    let latency = |op| if op % 2 == 0 { 100 * US } else { 200 * US };
    let slept =
        |sleep, requested| if sleep % 2 == 0 { requested - 200 * US } else { requested + 100 * US };
    let (log, end_ns) = play("2000/s", 100, latency, slept, None);
    let run = |ops| "@".repeat(ops);
    assert_eq!(log, format!("{}[z*10]{}[z*10.1]{}[z*9.8]{}", run(29), run(28), run(29), run(14)));
    assert_eq!(end_ns, 44_900 * US);
}

/// S0.8: the jitter case requests 10.2 ms after 29 operations, and exactly 10.0 after 28 more.
#[test]
fn jitter_requests_the_documented_sleeps() {
    let mut sleeps = 0;
    let clock = ManualClock::with_sleep(move |requested| {
        sleeps += 1;
        if sleeps % 2 == 1 {
            requested.saturating_sub(Duration::from_micros(200))
        } else {
            requested + Duration::from_micros(100)
        }
    });
    let mut throttle = Throttle::new("2000/s".parse().unwrap(), clock.clone());
    let mut requested = Vec::new();
    for op in 0..100_u64 {
        clock.advance(if op % 2 == 0 {
            Duration::from_micros(100)
        } else {
            Duration::from_micros(200)
        });
        let slept = throttle.wait().unwrap();
        if !slept.is_zero() {
            requested.push((op + 1, slept));
        }
    }
    let us = Duration::from_micros;
    assert_eq!(requested, [(29, us(10_200)), (57, us(10_000)), (86, us(10_000))]);
}

/// X0.1, S0.35: after N operations `N intervals - owed` have passed with less than 10 ms owed,
/// and `finish` pays that. A new run has a new throttle.
#[test]
fn finish_pays_the_tail_exactly() {
    for (rate, interval_ns) in [(2_000, 500_000), (3, 333_333_333), (7, 142_857_142)] {
        for ops in [1_u64, 10, 60, 99] {
            let clock = ManualClock::new();
            clock.set(Duration::from_nanos(123_456_789));
            let mut throttle = Throttle::new(Rate::per_second(rate), clock.clone());
            for _ in 0..ops {
                clock.advance(Duration::from_nanos(interval_ns / 5));
                throttle.wait().unwrap();
            }
            let ideal_ns = (ops * 1_000_000_000).div_ceil(rate);
            let owed_ns = ideal_ns - (clock.now_ns() - 123_456_789);
            assert!(owed_ns < 10 * MS, "{owed_ns}");
            assert_eq!(throttle.finish(), Duration::from_nanos(owed_ns));
            assert_eq!(clock.now_ns() - 123_456_789, ideal_ns);
        }
    }
}

/// X0.1, X1.6: the rest is paid in full on a machine whose sleeps end early.
#[test]
fn finish_sleeps_again_if_woken_early() {
    let clock = ManualClock::with_sleep(|requested_ns| requested_ns / 2);
    let mut throttle = Throttle::new("2000/s".parse().unwrap(), clock.clone());
    throttle.wait().unwrap();
    throttle.finish();
    assert_eq!(clock.now_ns(), 500 * US);
}

/// S0.7: each sleep that is cut short is requested once, and its error is carried over.
#[test]
fn a_sleep_that_ends_early_is_not_repeated() {
    let clock = ManualClock::with_sleep(|_| Duration::ZERO);
    let mut throttle = Throttle::new("100/s".parse().unwrap(), clock.clone());
    let requested: Vec<_> = (0..4).map(|_| throttle.wait().unwrap().as_millis()).collect();
    assert_eq!(requested, [10, 20, 30, 40]);
    assert_eq!(clock.now_ns(), 0);
}

/// X0.2: with the catch-up bound a slow hour does not unleash the loop; without it, it does.
#[test]
fn debt_is_bounded_by_default() {
    for (catch_up, free) in [
        (CatchUp::AtMost(Duration::from_secs(1)), 100),
        (CatchUp::AtMost(Duration::ZERO), 0),
        (CatchUp::Unbounded, 675),
    ] {
        let clock = ManualClock::new();
        let mut throttle =
            Throttle::new("100/s".parse().unwrap(), clock.clone()).with_catch_up(catch_up);
        for _ in 0..75 {
            clock.advance(Duration::from_millis(100));
            throttle.wait().unwrap();
        }
        let passed = (0..10_000).take_while(|_| throttle.wait().unwrap().is_zero()).count();
        assert_eq!(passed, free, "{catch_up:?}");
    }
}

/// X0.5: the rate never is an error at once, not an endless sleep, and stays one.
#[test]
fn never_is_an_error_and_never_a_sleep() {
    let clock = ManualClock::with_sleep(|_| unreachable!("nothing to sleep for"));
    let mut throttle = Throttle::new(Rate::NEVER, clock.clone());
    for _ in 0..3 {
        assert_eq!(throttle.wait(), Err(AcquireError::TimeCannotHelp));
    }
    assert_eq!(throttle.finish(), Duration::ZERO);
    let slow = Rate::new(1, Duration::from_nanos(u64::MAX)).unwrap();
    let mut throttle = Throttle::new(slow, MonotonicClock::new());
    clock.set(Duration::from_nanos(5));
    let mut late = Throttle::new(slow, clock);
    assert!(matches!(late.wait(), Err(AcquireError::TooLong(_))), "past the clock's end");
    drop((throttle.with_min_sleep(Duration::MAX), late));
    throttle = Throttle::new(Rate::UNLIMITED, MonotonicClock::new());
    assert_eq!(throttle.wait(), Ok(Duration::ZERO));
}

/// X0.6: the time before the first wait counts as the first operation's, from the creation of the
/// throttle and not from the clock's origin.
#[test]
fn time_counts_from_the_making() {
    let clock = ManualClock::new();
    clock.set(Duration::from_secs(3_600));
    let mut throttle = Throttle::new("50/s".parse().unwrap(), clock.clone());
    clock.advance(Duration::from_millis(5));
    assert_eq!(throttle.wait(), Ok(Duration::from_millis(15)));
    assert_eq!(clock.now_ns(), 3_600_020 * MS);
}

/// S0.2: the shortest sleep is a parameter; with none, every operation waits for its own instant.
#[test]
fn without_batches_every_operation_sleeps() {
    let clock = ManualClock::new();
    let mut throttle = Throttle::new("2000/s".parse().unwrap(), clock.clone())
        .with_min_sleep(Duration::ZERO)
        .with_catch_up(CatchUp::Unbounded);
    for op in 1..=5 {
        clock.advance(Duration::from_micros(100));
        assert_eq!(throttle.wait(), Ok(Duration::from_micros(400)));
        assert_eq!(clock.now_ns(), op * 500 * US);
    }
}

/// S0.25, S0.34, X0.1: on the real clock too N operations take N intervals, and not less.
#[test]
fn real_time_is_never_short() {
    let clock = MonotonicClock::new();
    let begin_ns = clock.now_ns();
    let mut throttle = Throttle::new("2000/s".parse().unwrap(), clock);
    for _ in 0..100 {
        throttle.wait().unwrap();
    }
    throttle.finish();
    assert!(clock.now_ns() - begin_ns >= 50 * MS);
}
