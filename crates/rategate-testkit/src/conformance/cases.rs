//! The limits that stores are tested under.

use std::time::Duration;

use rategate::calendar::CalendarSpec;
use rategate::charge::Debt;
use rategate::policy::Anchor;
use rategate::store::Rule;
use rategate::{AnyPolicy, Concurrency, FixedWindow, Gcra, SlidingLog};

/// The present time, approximately.
pub(super) const NOW_US: u64 = 1_790_000_000_123_457;
pub(super) const SECOND_NS: u64 = 1_000_000_000;
const LABELS: [&str; 4] = ["a", "b", "c", "d"];
const HOUR_US: u64 = 3_600_000_000;
const DAY_US: u64 = 24 * HOUR_US;

/// The case in which a permit takes a part of a nanosecond.
pub(super) const FINE: &str = "a fine bucket";

/// A named set of limits, and how stories under them go.
#[derive(Clone, Debug)]
pub struct Case {
    pub(super) name: String,
    /// The limits, each with its label.
    pub(super) rules: Vec<(&'static str, Rule)>,
    /// The approximate time of one permit.
    pub(super) typical_us: u64,
    pub(super) begin_us: u64,
    pub(super) steps: u64,
}

impl Case {
    fn new(
        name: impl Into<String>,
        rules: impl IntoIterator<Item = Rule>,
        typical_us: u64,
    ) -> Self {
        let rules = LABELS.into_iter().zip(rules).collect();
        Self { name: name.into(), rules, typical_us, begin_us: NOW_US, steps: 600 }
    }

    pub(super) fn has(&self, is_one: impl Fn(&Rule) -> bool) -> bool {
        self.rules.iter().any(|(_, rule)| is_one(rule))
    }

    /// Returns the ways in which debts end that every store keeps. A log that carries its debts is
    /// left out: a store may refuse that.
    pub(super) fn debts(&self) -> impl Iterator<Item = Debt> + use<> {
        let has_log = self.has(|rule| matches!(rule, Rule::Log(_)));
        [Debt::FORGOTTEN, Debt::CARRIED]
            .into_iter()
            .filter(move |debt| !(has_log && debt.is_carried()))
    }
}

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

pub(super) fn in_flight(permits: u64, lease_ns: u64) -> Rule {
    Rule::InFlight(Concurrency::new(permits), lease_ns.try_into().unwrap())
}

pub(super) fn policy(rule: Rule) -> AnyPolicy {
    match rule {
        Rule::Bucket(bucket) => bucket.into(),
        Rule::Log(log) => log.into(),
        Rule::Window(window) => window.into(),
        Rule::InFlight(in_flight, _) => in_flight.into(),
    }
}

/// Returns limits of all kinds that a policy has, alone and together.
#[must_use]
pub fn limits() -> Vec<Case> {
    let windows = [window(5, 40_000_000), bucket("100/s", 9), window(9, 70_000_000)];
    let four = [
        bucket("3/s", 3),
        bucket("50/min", 20),
        log(25, 30_000_000_000, 1_000_000),
        window(9, 5_000_000_000),
    ];
    vec![
        Case::new("a bucket", [bucket("1000/s", 6)], 900),
        Case::new("an odd bucket", [bucket("8/3s", 5)], 300_000),
        Case::new("one at a time", [bucket("1/s", 1)], 900_000),
        Case::new(FINE, [bucket("99999999/s", 3_000)], 1),
        Case::new("a window", [window(6, 50_000_000)], 7_000),
        Case::new("a short window", [window(2, 1_000_000)], 400),
        Case::new("two windows and a bucket", windows, 8_000),
        Case::new("a log", [log(6, 50_000_000, 1)], 7_000),
        Case::new("a longer log", [log(90, 50_000_000, 1)], 400),
        Case::new("a log on a grid", [log(9, SECOND_NS, 10_000_000)], 90_000),
        Case::new("a bucket and a log", [bucket("10/s", 10), log(12, 2 * SECOND_NS, 1)], 120_000),
        Case::new("four", four, 400_000),
    ]
}

/// Returns limits under which many estimates are open at once.
pub(super) fn wide() -> [Case; 2] {
    [
        Case::new("a wide bucket", [bucket("1000/s", 200)], 30_000),
        Case::new("a wide window", [window(300, 500_000_000)], 90_000),
    ]
}

/// Returns permits in flight, alone and beside other limits.
pub(super) fn flights() -> [Case; 3] {
    let flight = |permits| in_flight(permits, SECOND_NS);
    [
        Case::new("permits in flight", [flight(6)], 7_000),
        Case::new("permits in flight and a log", [flight(4), log(6, SECOND_NS, 1)], 90_000),
        Case::new("a bucket and permits in flight", [bucket("1000/s", 6), flight(3)], 900),
    ]
}

/// A quota: its unit and zone, anchor, units in a window, permits, the time of one permit about,
/// the begin of the story in seconds since 1970, and the number of steps.
type Quota = (&'static str, &'static str, &'static str, u32, u64, u64, u64, u64);

const QUOTAS: [Quota; 8] = [
    ("day", "Pacific/Apia", "2000-01-01", 1, 9, 2 * HOUR_US, 1_324_340_000, 400),
    ("day", "America/New_York", "2000-01-01T02:30", 1, 8, 2 * HOUR_US, 1_772_000_000, 600),
    ("day", "Australia/Lord_Howe", "2000-01-01", 1, 7, 2 * HOUR_US, 1_774_500_000, 400),
    ("week", "Europe/London", "1970-01-05", 1, 9, 12 * HOUR_US, 1_790_000_000, 400),
    ("month", "Europe/Rome", "2026-01-31", 1, 9, 2 * DAY_US, 1_767_200_000, 600),
    ("month", "America/Sao_Paulo", "1999-12-31T23:30", 2, 12, 3 * DAY_US, 1_500_000_000, 400),
    ("quarter", "Asia/Kathmandu", "1970-01-01", 1, 10, 6 * DAY_US, 1_790_000_000, 400),
    ("year", "Asia/Tehran", "2024-02-29T02:30", 1, 12, 15 * DAY_US, 900_000_000, 200),
];

/// Returns quotas over changes of a zone's clocks, the ends of months, and a day that did not
/// exist; and one of them beside a bucket.
///
/// # Panics
///
/// Panics without the rules of the zones.
#[must_use]
pub fn calendars() -> Vec<Case> {
    let quota = |&(unit, zone, anchor, every, permits, typical_us, from_s, steps): &Quota| {
        let spec = CalendarSpec::new(unit, zone).and_then(|spec| spec.anchored(anchor));
        let quota = spec.and_then(|spec| spec.every(every)?.quota(permits)).unwrap();
        let begin_us = from_s * 1_000_000 + 123_457;
        let case = Case::new(format!("{every} {unit} in {zone}"), [quota.into()], typical_us);
        Case { begin_us, steps, ..case }
    };
    let mut cases: Vec<Case> = QUOTAS.iter().map(quota).collect();
    let mut both = cases[0].clone();
    both.name += " and a bucket";
    both.rules.push(("b", bucket("1/h", 3)));
    cases.push(both);
    cases
}
