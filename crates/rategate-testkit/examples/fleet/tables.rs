//! The tables of `docs/distributed.md`, as Markdown.

use std::fmt::Write as _;

use rategate_testkit::fleet::{
    Fallback, Fault, FaultKind, Limit, Mode, Network, Plan, Report, Shape,
};

use super::{LIMIT, MS, SECOND, WARM_NS, calls, fleet, leased};

/// Returns all tables.
pub(crate) fn all() -> String {
    [modes(), units(), guards(), outages(), failovers()].join("\n")
}

/// Returns the report of one store that replies at once.
fn ideal(plan: &Plan) -> Report {
    let network = Network { min_ns: 0, extra_ns: 0, lost_ppm: 0 };
    rategate_testkit::fleet::run(&Plan {
        mode: Mode::Exact,
        network,
        faults: Vec::new(),
        ..plan.clone()
    })
}

fn modes() -> String {
    let mut table = String::from(
        "**The same fleet in each mode.** Twenty nodes, 1 ms from their store and back, \
         and a limit of 1000 in any second; \
         calls at 80 % of it and at twice of it, spread evenly or by Zipf's law, \
         for ten seconds. *Granted* is relative to one limiter \
         that sees all calls at once; \
         *fullest second* is the most that all nodes together used in any \
         second of true time, and the bound.\n\n\
         | mode | calls | round trips for a call | calls that waited | granted \
         | fullest second | bound |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let modes_by_name = [
        ("exact", Mode::Exact),
        ("leased: 0.2 s, 20 units", leased(200, 20, false)),
        ("the same with the guard", leased(200, 20, true)),
        ("partitioned, a heartbeat each 0.5 s", Mode::Shared { heartbeat_ns: 500 * MS }),
        ("static shares", Mode::Static),
        ("gossip each 0.2 s", Mode::Gossip { every_ns: 200 * MS }),
        ("check, then act", Mode::CheckThenAct),
    ];
    let loads = [
        ("80 %, even", calls(800, Shape::Even)),
        ("80 %, Zipf", calls(800, Shape::Zipf)),
        ("200 %, even", calls(2_000, Shape::Even)),
        ("200 %, Zipf", calls(2_000, Shape::Zipf)),
    ];
    let ideals = loads
        .clone()
        .map(|(_, traffic)| ideal(&Plan { traffic, ..fleet(Mode::Exact) }).counts.granted);
    for (name, mode) in modes_by_name {
        for ((load, traffic), ideal) in loads.iter().zip(ideals) {
            let plan = Plan { traffic: traffic.clone(), ..fleet(mode) };
            let report = rategate_testkit::fleet::run(&plan);
            let counts = report.counts;
            let row = [
                name.to_owned(),
                (*load).to_owned(),
                thousandths(counts.requests, counts.calls),
                percent(counts.waited, counts.calls),
                percent(counts.granted, ideal),
                report.used.max.to_string(),
                bound(&report),
            ];
            push(&mut table, &row);
        }
    }
    table
}

fn units() -> String {
    let mut table = String::from(
        "**The price of units.** The same fleet under 10 000 in any second, with leases of 0.2 s; \
         twice as many calls as pass, spread \
         evenly. More units are fewer round trips, and without the guard a higher bound.\n\n\
         | most units | round trips for a call | calls that waited \
         | fullest second, no guard | bound | fullest second, guard |\n\
         |---|---|---|---|---|---|\n",
    );
    for max_units in UNITS {
        let open = rategate_testkit::fleet::run(&busy(leased(200, max_units, false)));
        let guarded = rategate_testkit::fleet::run(&busy(leased(200, max_units, true)));
        let counts = open.counts;
        let row = [
            max_units.to_string(),
            thousandths(counts.requests, counts.calls),
            percent(counts.waited, counts.calls),
            open.used.max.to_string(),
            bound(&open),
            guarded.used.max.to_string(),
        ];
        push(&mut table, &row);
    }
    table
}

/// The numbers of units that the table and the picture compare.
pub(crate) const UNITS: [u64; 8] = [1, 2, 5, 10, 20, 50, 100, 200];

/// Returns a fleet with a limit of five hundred permits a second for each node.
pub(crate) fn busy(mode: Mode) -> Plan {
    Plan {
        limit: Limit::Log { permits: 10_000, period_ns: SECOND },
        traffic: calls(20_000, Shape::Even),
        lasting_ns: WARM_NS + 3 * SECOND,
        ..fleet(mode)
    }
}

fn guards() -> String {
    let mut table = String::from(
        "**The price of the guard.** Twice as many calls as pass; 20 units. The store counts \
         permits lent for `M + L`, so it hands out \
         `N / (M + L)`.\n\n\
         | length `L` | granted each second, no guard | with the guard \
         | `N / (M + L)` | round trips for a call |\n\
         |---|---|---|---|---|\n",
    );
    for length_ms in LENGTHS_MS {
        let trips = rategate_testkit::fleet::run(&fleet(leased(length_ms, 20, true))).counts;
        let row = [
            format!("{length_ms} ms"),
            each_second(length_ms, false).to_string(),
            each_second(length_ms, true).to_string(),
            (LIMIT.total() * SECOND / (SECOND + length_ms * MS)).to_string(),
            thousandths(trips.requests, trips.calls),
        ];
        push(&mut table, &row);
    }
    table
}

/// The lease lengths that the table and the picture compare.
pub(crate) const LENGTHS_MS: [u64; 6] = [10, 50, 100, 200, 500, 1_000];

/// Returns the permits granted each second, over ten rounds of the window with the time that the
/// store adds to it, after the first rounds.
pub(crate) fn each_second(length_ms: u64, guard: bool) -> u64 {
    let round_ms = if guard { 1_000 + length_ms } else { 1_000 };
    let (round_slices, slice_ns) = (round_ms / 10, 10 * MS);
    let base = fleet(leased(length_ms, 20, guard));
    let from_slice = WARM_NS / slice_ns + 2 * round_slices;
    let lasting_ns = (from_slice + 10 * round_slices) * slice_ns;
    let report = rategate_testkit::fleet::run_in_slices(&Plan { lasting_ns, ..base }, slice_ns);
    let before = usize::try_from(from_slice).unwrap_or(0);
    let granted: u64 = report.over_time.iter().skip(before).sum();
    granted * 1_000 / (10 * round_ms)
}

fn outages() -> String {
    let mut table = String::from(
        "**The store out of reach** for three of ten seconds; 80 % of the limit, spread \
         evenly. *By fallback* are the calls that nodes decided \
         without it.\n\n\
         | mode | fallback | granted | granted by fallback \
         | denied by fallback | fullest second | bound |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let away = Fault {
        at_ns: WARM_NS + 4 * SECOND,
        lasting_ns: 3 * SECOND,
        kind: FaultKind::Cut(rategate_testkit::fleet::Affected::All),
    };
    let local = |total, reserved| Fallback::Local { total, reserved };
    let fallbacks = [
        ("deny", Fallback::Deny),
        ("admit", Fallback::Admit),
        ("its share of 1000", local(1_000, false)),
        ("its share of 300, reserved", local(300, true)),
    ];
    for (name, mode) in [("exact", Mode::Exact), ("leased with the guard", leased(200, 20, true))] {
        for (fallback_name, fallback) in fallbacks {
            let plan = Plan {
                fallback,
                faults: vec![away],
                traffic: calls(800, Shape::Even),
                ..fleet(mode)
            };
            let report = rategate_testkit::fleet::run(&plan);
            let counts = report.counts;
            let row = [
                name.to_owned(),
                fallback_name.to_owned(),
                percent(counts.granted, counts.calls),
                counts.granted_by_fallback.to_string(),
                counts.denied_by_fallback.to_string(),
                report.used.max.to_string(),
                bound(&report),
            ];
            push(&mut table, &row);
        }
    }
    table
}

fn failovers() -> String {
    let mut table = String::from(
        "**A replica takes over**, and lacks the last 0.1 s. Twice as many calls as pass; \
         the store is unavailable for 50 ms, while \
         a second's permits are being handed out.\n\n\
         | mode | quarantine | permits lost | fullest second | bound | granted |\n\
         |---|---|---|---|---|---|\n",
    );
    for (name, mode) in [("exact", Mode::Exact), ("leased with the guard", leased(200, 20, true))] {
        for (word, quarantine) in [("no", false), ("yes", true)] {
            let plan = failover(mode, quarantine);
            let report = rategate_testkit::fleet::run(&plan);
            let row = [
                name.to_owned(),
                word.to_owned(),
                report.counts.forgotten.to_string(),
                report.used.max.to_string(),
                bound(&report),
                percent(report.counts.granted, ideal(&plan).counts.granted),
            ];
            push(&mut table, &row);
        }
    }
    table
}

/// The instant at which the store of the failover fails: a tenth of a second after the permits of
/// a second were free.
pub(crate) const FAILS_NS: u64 = WARM_NS + 4_100 * MS;

/// Returns a fleet whose replica lacks the last tenth of a second, while twice as many calls come
/// as pass.
pub(crate) fn failover(mode: Mode, quarantine: bool) -> Plan {
    let kind = FaultKind::Failover { loses_ns: 100 * MS };
    Plan {
        quarantine,
        faults: vec![Fault { at_ns: FAILS_NS, lasting_ns: 50 * MS, kind }],
        traffic: calls(2_000, Shape::Even),
        ..fleet(mode)
    }
}

fn bound(report: &Report) -> String {
    report.used.at_most.map_or_else(|| "none".to_owned(), |at_most| at_most.to_string())
}

fn percent(amount: u64, whole: u64) -> String {
    let tenths = (amount * 1_000 + whole / 2).checked_div(whole).unwrap_or(0);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

fn thousandths(amount: u64, whole: u64) -> String {
    let rounded = (amount * 1_000 + whole / 2).checked_div(whole).unwrap_or(0);
    format!("{}.{:03}", rounded / 1_000, rounded % 1_000)
}

fn push(table: &mut String, row: &[String]) {
    // Writing to a string cannot fail.
    let _ = writeln!(table, "| {} |", row.join(" | "));
}
