//! The cost of lateness, on a clock whose sleeps are late.

use std::time::Duration;

use rategate::pace::Throttle;
use rategate::policy::Mode;
use rategate::{AllOf, Clock, Gcra, Limiter, ManualClock, TwoTimeline};
use rategate_testkit::ns;
use rategate_testkit::oracle::Grants;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Returns the permits that one caller takes within a second from a limit of 1000/s, where each
/// sleep is late by a value from `late`.
fn taken_in_a_second(policy: impl Into<AllOf>, late: impl Fn(u64) -> u64 + Send + 'static) -> u64 {
    let mut sleeps = 0;
    let clock = ManualClock::with_sleep(move |requested_ns| {
        sleeps += 1;
        requested_ns + Duration::from_nanos(late(sleeps))
    });
    let limiter = Limiter::with_clock(policy, clock.clone());
    let mut taken = 0;
    while ns(limiter.acquire(1).unwrap().released_at()) < S {
        taken += 1;
    }
    taken
}

/// With a burst of 2 or more, no rate is lost while each wake is less than `(burst - 1) T` late,
/// however that varies; with 1, the lateness itself is lost (docs/theory.md, section 10.4).
#[test]
fn a_burst_makes_up_for_late_wakes() {
    let bucket = |burst| Gcra::new("1000/s".parse().unwrap(), burst).unwrap();
    for burst in [2, 3, 10] {
        let within_ns = (burst - 1) * MS - 1;
        let taken = taken_in_a_second(bucket(burst), move |_| within_ns);
        assert!(taken >= 1_000, "{burst}: {taken}");
        let varied = move |sleep: u64| within_ns * (sleep * 7 % 11) / 10;
        assert!(taken_in_a_second(bucket(burst), varied) >= 1_000, "{burst}");
        // Late by a permit's time more, and some of the rate is lost.
        let over_ns = within_ns + MS;
        assert!(taken_in_a_second(bucket(burst), move |_| over_ns) < 1_000, "{burst}");
    }
    let taken = taken_in_a_second(bucket(1), |_| MS / 4);
    assert!((790..=801).contains(&taken), "{taken}");
}

/// A schedule that promises instants loses nothing, whatever the lateness.
#[test]
fn a_schedule_loses_nothing() {
    let schedule = TwoTimeline::new("1000/s".parse().unwrap(), Mode::Average, None);
    assert!(taken_in_a_second(schedule, |sleep| sleep * 13 % 40 * MS / 4) >= 990);
}

/// A throttle lets at most `ceil((W + catch_up + min_sleep + d) / T)` operations through in any
/// window if its sleeps are at most `d` late, since its schedule promises instants.
#[test]
fn a_throttle_keeps_its_bound_by_the_clock() {
    const LATE_NS: u64 = 3 * MS;
    let (min_sleep_ns, catch_up_ns, step_ns) = (2 * MS, 4 * MS, MS);
    let mut sleeps = 0;
    let clock = ManualClock::with_sleep(move |requested_ns| {
        sleeps += 1;
        requested_ns + Duration::from_nanos(sleeps * 7 % 4 * LATE_NS / 3)
    });
    let duration = Duration::from_nanos;
    let mut throttle = Throttle::new("1000/s".parse().unwrap(), clock.clone())
        .with_min_sleep(duration(min_sleep_ns))
        .with_catch_up(rategate::pace::CatchUp::AtMost(duration(catch_up_ns)));
    let mut starts = Grants::default();
    for operation in 0..2_000_u64 {
        starts.add(clock.now_ns(), 1);
        // Now and then an operation is slow.
        clock.advance(if operation % 50 == 0 {
            Duration::from_millis(9)
        } else {
            Duration::from_nanos(MS / 9)
        });
        throttle.wait().unwrap();
    }
    for window_ns in [1, step_ns, 5 * step_ns, 50 * step_ns, 300 * step_ns] {
        let max_starts = (window_ns + catch_up_ns + min_sleep_ns + LATE_NS).div_ceil(step_ns);
        let (fullest, from_ns) = starts.fullest_window(window_ns);
        assert!(
            fullest <= max_starts,
            "{fullest} of {max_starts} in {window_ns} ns from {from_ns}"
        );
    }
}
