//! The cost of each way to keep a limit on many machines: the tables of `docs/distributed.md`; and
//! a million fleets with reservations.
//!
//! ```text
//! cargo run --package rategate-testkit --example fleet -- tables
//! cargo run --release --package rategate-testkit --example fleet -- reservations 1000000
//! ```

#![allow(
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "sums of a few known numbers, and a program that prints"
)]

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rategate::SlidingLog;
use rategate::distributed::{Leases, OnUnavailable};
use rategate_testkit::fleet::{Call, Fault, FaultKind, Flaw, Network, Plan, Report, calls, run};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const NODES: u32 = 20;
/// The limit of all tables: a thousand in any second.
const LIMIT: u64 = 1_000;
/// The instant from which calls come. Processes that have just started grant nothing alone.
const WARM_NS: u64 = 3 * SECOND;
/// The number of runs with a deliberate error, in which it has to be found.
const FLAWED: u64 = 1_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let is_healthy = match arguments.as_slice() {
        ["tables"] => {
            print!("{}", [modes(), units(), outages(), failovers()].join("\n"));
            true
        }
        ["reservations", runs] => runs.parse().is_ok_and(reservations),
        _ => {
            println!("usage: fleet tables | fleet reservations RUNS");
            false
        }
    };
    if is_healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the fleet of the tables: twenty nodes, about a millisecond from their store and back.
/// One message in a thousand is lost, and clocks are wrong by up to 200 parts per million.
fn fleet(leases: Option<Leases>, each_second: u64) -> Plan {
    Plan {
        drift_ppm: 200,
        network: Network { min_ns: 300_000, extra_ns: 200_000, lost_ppm: 1_000 },
        calls: spread(each_second, 10, false),
        leases,
        ..Plan::new(NODES, SlidingLog::new(LIMIT, Duration::from_secs(1)))
    }
}

fn spread(each_second: u64, seconds: u64, is_skewed: bool) -> Vec<Call> {
    calls((1, NODES), each_second, WARM_NS..WARM_NS + seconds * SECOND, 1, is_skewed)
}

const fn leased(ttl_ms: u64, max_permits: u64, guard: bool) -> Leases {
    Leases { ttl: Duration::from_millis(ttl_ms), max_permits, guard, drift_ppm: 200 }
}

/// Returns what one store grants that replies at once.
fn ideal(plan: &Plan) -> u64 {
    let network = Network { min_ns: 0, extra_ns: 0, lost_ppm: 0 };
    let plan = Plan { leases: None, network, faults: Vec::new(), ..plan.clone() };
    run(&plan).calls.granted
}

fn modes() -> String {
    let mut table = String::from(
        "**The same fleet in each mode.** Twenty nodes, 1 ms from their store and back, and a limit \
         of 1000 in any second; calls\n\
         at 80 % of it and at twice of it, spread evenly or by Zipf's law, for ten seconds. \
         *Granted* is relative to one limiter\n\
         that sees all calls at once; *fullest second* is the most that all nodes together used in \
         any second of true time, and\n\
         the bound.\n\n\
         | mode | calls | round trips for a call | calls that waited | granted \
         | fullest second | bound |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let modes = [
        ("exact", None),
        ("leased: 0.2 s, 20 units", Some(leased(200, 20, false))),
        ("the same with the guard", Some(leased(200, 20, true))),
    ];
    let loads = [
        ("80 %, even", 800, false),
        ("80 %, Zipf", 800, true),
        ("200 %, even", 2_000, false),
        ("200 %, Zipf", 2_000, true),
    ];
    for (name, leases) in modes {
        for (load, each_second, is_skewed) in loads {
            let plan =
                Plan { calls: spread(each_second, 10, is_skewed), ..fleet(leases, each_second) };
            let report = run(&plan);
            let Report { calls, .. } = &report;
            push(
                &mut table,
                &[
                    name.to_owned(),
                    load.to_owned(),
                    thousandths(calls.requests, calls.made),
                    percent(calls.waited, calls.made),
                    percent(calls.granted, ideal(&plan)),
                    report.max_used.to_string(),
                    bound(&report),
                ],
            );
        }
    }
    table
}

fn units() -> String {
    let mut table = String::from(
        "**The price of units.** The same fleet under 10 000 in any second, with leases of 0.2 s; \
         twice as many calls as pass,\n\
         spread evenly. More units are fewer round trips, and without the guard a higher \
         bound.\n\n\
         | most units | round trips for a call | calls that waited \
         | fullest second, no guard | bound | fullest second, guard |\n\
         |---|---|---|---|---|---|\n",
    );
    for max_units in [1, 2, 5, 10, 20, 50, 100, 200] {
        let [open, guarded] = [false, true].map(|guard| {
            let limit = SlidingLog::new(10_000, Duration::from_secs(1)).into();
            let calls = spread(20_000, 3, false);
            run(&Plan { limit, calls, ..fleet(Some(leased(200, max_units, guard)), LIMIT) })
        });
        push(
            &mut table,
            &[
                max_units.to_string(),
                thousandths(open.calls.requests, open.calls.made),
                percent(open.calls.waited, open.calls.made),
                open.max_used.to_string(),
                bound(&open),
                guarded.max_used.to_string(),
            ],
        );
    }
    table
}

fn outages() -> String {
    let mut table = String::from(
        "**The store out of reach** for three of ten seconds; 80 % of the limit, spread evenly. \
         *By fallback* are the calls that\n\
         nodes decided without it.\n\n\
         | mode | fallback | granted | granted by fallback \
         | denied by fallback | fullest second | bound |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let away = Fault {
        at_ns: WARM_NS + 4 * SECOND,
        lasting_ns: 3 * SECOND,
        kind: FaultKind::Cut(0..NODES),
    };
    let local = OnUnavailable::Local { nodes: NonZeroU32::new(NODES).unwrap() };
    let fallbacks = [
        ("deny", OnUnavailable::Deny),
        ("admit", OnUnavailable::Admit),
        ("its share of 1000", local),
    ];
    for (name, leases) in [("exact", None), ("leased with the guard", Some(leased(200, 20, true)))]
    {
        for (fallback, on_unavailable) in fallbacks {
            let faults = vec![away.clone()];
            let report = run(&Plan { on_unavailable, faults, ..fleet(leases, 800) });
            push(
                &mut table,
                &[
                    name.to_owned(),
                    fallback.to_owned(),
                    percent(report.calls.granted, report.calls.made),
                    report.calls.granted_alone.to_string(),
                    report.calls.denied_alone.to_string(),
                    report.max_used.to_string(),
                    bound(&report),
                ],
            );
        }
    }
    table
}

fn failovers() -> String {
    let mut table = String::from(
        "**A replica takes over**, and lacks the last 0.1 s. Twice as many calls as pass; the store \
         is unavailable for 50 ms,\n\
         while a second's permits are being handed out.\n\n\
         | mode | quarantine | permits lost | fullest second | bound | granted |\n\
         |---|---|---|---|---|---|\n",
    );
    // A tenth of a second after the permits of a second were free.
    let fails = Fault {
        at_ns: WARM_NS + 4_100 * MS,
        lasting_ns: 50 * MS,
        kind: FaultKind::Failover { loses_ns: 100 * MS, behind_ns: 0 },
    };
    for (name, leases) in [("exact", None), ("leased with the guard", Some(leased(200, 20, true)))]
    {
        for (word, quarantine) in [("no", false), ("yes", true)] {
            let faults = vec![fails.clone()];
            let plan = Plan { quarantine, faults, ..fleet(leases, 2_000) };
            let report = run(&plan);
            push(
                &mut table,
                &[
                    name.to_owned(),
                    word.to_owned(),
                    report.calls.forgotten.to_string(),
                    report.max_used.to_string(),
                    bound(&report),
                    percent(report.calls.granted, ideal(&plan)),
                ],
            );
        }
    }
    table
}

fn bound(report: &Report) -> String {
    report.bound.map_or_else(|| "none".to_owned(), |bound| bound.to_string())
}

fn percent(amount: u64, whole: u64) -> String {
    let tenths = (amount * 1_000 + whole / 2) / whole;
    format!("{}.{} %", tenths / 10, tenths % 10)
}

fn thousandths(amount: u64, whole: u64) -> String {
    let rounded = (amount * 1_000 + whole / 2) / whole;
    format!("{}.{:03}", rounded / 1_000, rounded % 1_000)
}

fn push(table: &mut String, row: &[String]) {
    // A string takes whatever is written.
    let _ = writeln!(table, "| {} |", row.join(" | "));
}

/// Plays so many runs on all processors. Returns `false` if a law did not hold, or if a deliberate
/// error was not found.
fn reservations(runs: u64) -> bool {
    let (sum, faults) = play_all(runs, None);
    faults.iter().take(10).for_each(|fault| println!("{fault}"));
    println!("{runs} runs, {} events; {:?}", sum.events, sum.counts);
    println!("{} permits beyond the estimates", sum.over);
    let is_found = [Flaw::CommitsTwice, Flaw::ChargesTwice].map(|flaw| {
        let (_, found) = play_all(FLAWED, Some(flaw));
        println!("{flaw:?}: found in {} of {FLAWED} runs", found.len());
        !found.is_empty()
    });
    faults.is_empty() && is_found == [true; 2]
}

fn play_all(runs: u64, flaw: Option<Flaw>) -> (Report, Vec<String>) {
    let next = AtomicU64::new(0);
    let play_some = || {
        let (mut sum, mut faults) = (Report::default(), Vec::new());
        let seeds = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        for seed in seeds.take_while(|&seed| seed < runs) {
            let report = run(&Plan { flaw, ..Plan::drawn(seed) });
            faults.extend(report.fault().map(|fault| format!("seed {seed}: {fault}")));
            sum.add(&report);
        }
        (sum, faults)
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(play_some)).collect();
        let (mut sum, mut faults) = (Report::default(), Vec::new());
        for thread in threads {
            let (some, found) = thread.join().unwrap();
            sum.add(&some);
            faults.extend(found);
        }
        (sum, faults)
    })
}
