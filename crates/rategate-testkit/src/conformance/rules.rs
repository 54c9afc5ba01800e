//! The limits that stores are tested under.

use std::time::Duration;

use rategate::policy::Anchor;
use rategate::store::Rule;
use rategate::{AnyPolicy, FixedWindow, Gcra, SlidingLog};

/// The present time, approximately.
pub(super) const NOW_US: u64 = 1_790_000_000_123_457;
pub(super) const SECOND_NS: u64 = 1_000_000_000;
pub(super) const LABELS: [&str; 4] = ["a", "b", "c", "d"];

/// A named set of limits, and the approximate time of one permit.
pub(super) type Case = (&'static str, Vec<Rule>, u64);

pub(super) fn bucket(rate: &str, burst: u64) -> Rule {
    Gcra::new(rate.parse().unwrap(), burst).unwrap().into()
}

pub(super) fn window(permits: u64, period_ns: u64) -> Rule {
    FixedWindow::new(permits, Duration::from_nanos(period_ns), Anchor::Epoch).into()
}

pub(super) fn log(permits: u64, period_ns: u64, resolution_ns: u64) -> Rule {
    let log = SlidingLog::new(permits, Duration::from_nanos(period_ns));
    log.with_resolution(Duration::from_nanos(resolution_ns)).unwrap().into()
}

pub(super) fn policy(rule: Rule) -> AnyPolicy {
    match rule {
        Rule::Bucket(bucket) => bucket.into(),
        Rule::Log(log) => log.into(),
        Rule::Window(window) => window.into(),
        Rule::Calendar(quota) => quota.into(),
        Rule::InFlight(in_flight, _) => in_flight.into(),
    }
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        ("a bucket", vec![bucket("1000/s", 6)], 900),
        ("an odd bucket", vec![bucket("8/3s", 5)], 300_000),
        ("one at a time", vec![bucket("1/s", 1)], 900_000),
        ("a fine bucket", vec![bucket("99999999/s", 3_000)], 1),
        ("a window", vec![window(6, 50_000_000)], 7_000),
        ("a short window", vec![window(2, 1_000_000)], 400),
        (
            "two windows and a bucket",
            vec![window(5, 40_000_000), bucket("100/s", 9), window(9, 70_000_000)],
            8_000,
        ),
        ("a log", vec![log(6, 50_000_000, 1)], 7_000),
        ("a longer log", vec![log(90, 50_000_000, 1)], 400),
        ("a log on a grid", vec![log(9, 1_000_000_000, 10_000_000)], 90_000),
        ("a bucket and a log", vec![bucket("10/s", 10), log(12, 2_000_000_000, 1)], 120_000),
        (
            "four",
            vec![
                bucket("3/s", 3),
                bucket("50/min", 20),
                log(25, 30_000_000_000, 1_000_000),
                window(9, 5_000_000_000),
            ],
            400_000,
        ),
    ]
}
