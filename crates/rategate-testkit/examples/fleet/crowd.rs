//! A crowd of ten thousand nodes, under every fault.

use std::time::Instant;

use rategate_testkit::fleet::{
    Affected, Fallback, Fault, FaultKind, Limit, Mode, Network, Plan, Shape, Traffic,
};

use super::{MS, SECOND};

/// Plays each mode and prints a line for each. Returns `true` if all bounds held.
pub(crate) fn play(nodes: u32) -> bool {
    println!(
        "{nodes} nodes, a fifth of them cut off, a fifth crashed and back; \
         a stall, and a replica that lacks 50 ms"
    );
    let modes = [
        Mode::Exact,
        Mode::Leased { length_ns: 500 * MS, max_units: 50, guard: false },
        Mode::Leased { length_ns: 500 * MS, max_units: 50, guard: true },
        Mode::Static,
        Mode::Shared { heartbeat_ns: SECOND },
    ];
    modes.into_iter().fold(true, |all_hold, mode| {
        let begun = Instant::now();
        let report = rategate_testkit::fleet::run(&plan(nodes, mode));
        let (counts, used) = (report.counts, report.used);
        println!(
            "{mode:?}\n    {} events in {} ms: {} calls, {} granted, {} of them by fallback, \
             {} requests; \
             fullest second {}, bound {}; {}",
            report.events,
            begun.elapsed().as_millis(),
            counts.calls,
            counts.granted,
            counts.granted_by_fallback,
            counts.requests,
            used.max,
            used.at_most.unwrap_or(u64::MAX),
            if report.holds() { "holds" } else { "BROKEN" }
        );
        all_hold && report.holds()
    })
}

fn plan(nodes: u32, mode: Mode) -> Plan {
    let fault = |at_ms: u64, lasting_ms: u64, kind| Fault {
        at_ns: at_ms * MS,
        lasting_ns: lasting_ms * MS,
        kind,
    };
    let fifth = Affected::Some { ppm: 200_000 };
    let mut faults = vec![
        fault(600, 500, FaultKind::Cut(fifth)),
        fault(900, 400, FaultKind::Crash(fifth)),
        fault(1_700, 200, FaultKind::Stall),
    ];
    // A heartbeat takes a step for each member, and a crowd some seconds until all have their
    // shares.
    let is_shared = matches!(mode, Mode::Shared { .. });
    let (nodes, lasting_ns) =
        if is_shared { (nodes / 5, 12 * SECOND) } else { (nodes, 4 * SECOND) };
    if !is_shared {
        faults.push(fault(2_300, 100, FaultKind::Failover { loses_ns: 50 * MS }));
    }
    Plan {
        seed: 7,
        fallback: Fallback::Local { total: 20_000, reserved: true },
        quarantine: true,
        drift_ppm: 10_000,
        network: Network { min_ns: MS, extra_ns: MS, lost_ppm: 5_000 },
        traffic: Traffic { calls_per_s: 150_000, from_ns: 0, heaviest: 1, shape: Shape::Even },
        lasting_ns,
        faults,
        ..Plan::new(nodes, Limit::Log { permits: 100_000, period_ns: SECOND }, mode)
    }
}
