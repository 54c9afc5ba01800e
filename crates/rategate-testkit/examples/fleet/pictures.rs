//! The pictures of `docs/distributed.md`.

use rategate_testkit::fleet::{Affected, Fault, FaultKind, Mode, Plan, Report, Shape};

use super::chart::{Chart, Line, Panel};
use super::tables::{FAILS_NS, LENGTHS_MS, UNITS, busy, each_second, failover};
use super::{LIMIT, MS, SECOND, calls, fleet, leased};

/// Returns the picture of this name, or `None` if there is none.
pub(crate) fn draw(name: &str) -> Option<String> {
    let chart = match name {
        "fleet-units" => units(),
        "fleet-guard" => guard(),
        "fleet-shares" => shares(),
        "fleet-failover" => failovers(),
        _ => return None,
    };
    Some(chart.draw())
}

/// Draws the effect of more units, at equal distances since each number is about twice the last.
fn units() -> Chart {
    let (mut trips, mut max, mut bounds, mut marks) = (vec![], vec![], vec![], vec![]);
    for (units, position) in UNITS.into_iter().zip(0..) {
        let plan = busy(leased(200, units, false));
        let (report, total) = (rategate_testkit::fleet::run(&plan), plan.limit.total());
        trips.push((position, report.counts.requests * 1_000 / report.counts.calls.max(1)));
        max.push((position, report.used.max.saturating_sub(total)));
        bounds.push((position, report.used.at_most.unwrap_or(total).saturating_sub(total)));
        marks.push((position, units.to_string()));
    }
    let trips = Line { name: "leased", class: "c0", points: trips, is_stairs: false };
    let max = Line { name: "seen", class: "c1", points: max, is_stairs: false };
    let bounds = Line { name: "the bound", class: "bound", points: bounds, is_stairs: false };
    Chart {
        title: "What more units are worth, and what they cost",
        across: "most units that a node borrows; twenty nodes, 10 000 in any second",
        marks,
        panels: vec![
            Panel { up: "round trips for a thousand calls", lines: vec![trips] },
            Panel { up: "permits over the limit, without the guard", lines: vec![max, bounds] },
        ],
    }
}

fn guard() -> Chart {
    let lengths = [0].into_iter().chain(LENGTHS_MS);
    let theory = lengths.map(|ms| (ms, LIMIT.total() * SECOND / (SECOND + ms * MS)));
    let seen = |guard| LENGTHS_MS.into_iter().map(|ms| (ms, each_second(ms, guard))).collect();
    let lines = vec![
        Line { name: "no guard", class: "c1", points: seen(false), is_stairs: false },
        Line { name: "guard", class: "c0", points: seen(true), is_stairs: false },
        Line { name: "N / (M + L)", class: "bound", points: theory.collect(), is_stairs: false },
    ];
    Chart {
        title: "What the guard costs",
        across: "length of a lease in ms; a limit of 1000 in any second",
        marks: (0..=5).map(|step| (step * 200, (step * 200).to_string())).collect(),
        panels: vec![Panel { up: "granted each second", lines }],
    }
}

/// Draws the shares of four members, of which one is killed and one joins late.
fn shares() -> Chart {
    let crash = |node, from_ms: u64, to_ms: u64| Fault {
        at_ns: from_ms * MS,
        lasting_ns: (to_ms - from_ms) * MS,
        kind: FaultKind::Crash(Affected::One(node)),
    };
    let mut plan = Plan {
        nodes: 4,
        faults: vec![crash(3, 0, 8_000), crash(1, 4_000, 60_000)],
        traffic: calls(2_000, Shape::Even),
        lasting_ns: 12 * SECOND,
        ..fleet(Mode::Shared { heartbeat_ns: 500 * MS })
    };
    plan.traffic.from_ns = 0;
    let report = rategate_testkit::fleet::run_in_slices(&plan, 100 * MS);
    let classes = [("first", "c0"), ("second", "c1"), ("third", "c2"), ("fourth", "c3")];
    let lines = classes.into_iter().zip(0..).map(|((name, class), node)| {
        let changes = report.shares.iter().filter(|share| share.node == node);
        let changes = changes.map(|share| (share.at_ns / MS, share.permits));
        let last = changes.clone().next_back().map_or(0, |(_, permits)| permits);
        let points = [(0, 0)].into_iter().chain(changes).chain([(12_000, last)]).collect();
        Line { name, class, points, is_stairs: true }
    });
    let lines = lines.collect();
    Chart {
        title: "Shares of 1000 while one member is killed and another joins",
        across: "time in s; a heartbeat each 0.5 s; \
                 the second is killed at 4 s, the fourth joins at 8 s",
        marks: (0..=12).map(|second| (second * 1_000, second.to_string())).collect(),
        panels: vec![
            Panel { up: "each member's share", lines },
            Panel {
                up: "used in the last second, by all",
                lines: vec![last_second(&report, "c0", "all"), limit_line(12_000)],
            },
        ],
    }
}

fn failovers() -> Chart {
    let line = |quarantine, class, name| {
        let report =
            rategate_testkit::fleet::run_in_slices(&failover(Mode::Exact, quarantine), 20 * MS);
        let mut line = last_second_in(&report, 20, class, name);
        // The range is from two seconds before the failure to four after it.
        let from_ms = FAILS_NS / MS - 2_000;
        line.points.retain(|point| (from_ms..=from_ms + 6_000).contains(&point.0));
        for point in &mut line.points {
            point.0 -= from_ms;
        }
        line
    };
    let lines =
        vec![line(false, "c1", "no quarantine"), line(true, "c0", "quarantine"), limit_line(5_900)];
    Chart {
        title: "A replica that lacks the last 0.1 s takes over",
        across: "time in s from when the store fails; a limit of 1000 in any second",
        marks: (0..).zip(["-2", "-1", "0", "1", "2", "3"]).map(mark).collect(),
        panels: vec![Panel { up: "used in the last second, by all", lines }],
    }
}

fn mark((second, name): (u64, &str)) -> (u64, String) {
    (second * 1_000, name.to_owned())
}

fn limit_line(to_ms: u64) -> Line {
    let points = vec![(0, LIMIT.total()), (to_ms, LIMIT.total())];
    Line { name: "the limit", class: "bound", points, is_stairs: false }
}

fn last_second(report: &Report, class: &'static str, name: &'static str) -> Line {
    last_second_in(report, 100, class, name)
}

/// Returns the permits used in the last second, at the ends of slices.
fn last_second_in(
    report: &Report,
    slice_ms: usize,
    class: &'static str,
    name: &'static str,
) -> Line {
    let slices = 1_000 / slice_ms;
    let sum_before = |end: usize| -> u64 {
        report.over_time.iter().take(end).skip(end.saturating_sub(slices)).sum()
    };
    let points = (0..=report.over_time.len())
        .map(|end| (u64::try_from(end * slice_ms).unwrap_or(u64::MAX), sum_before(end)));
    Line { name, class, points: points.collect(), is_stairs: false }
}
