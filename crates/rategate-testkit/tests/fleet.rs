//! Fleets keep their limit under every fault, and the laws find a fleet that does something wrong.

use std::num::NonZeroU32;
use std::ops::Range;
use std::time::Duration;

use rategate::distributed::{Leases, OnUnavailable};
use rategate::policy::Anchor;
use rategate::store::Rule;
use rategate::{FixedWindow, Gcra, SlidingLog};
use rategate_testkit::fleet::{Call, Fault, FaultKind, Flaw, Network, Plan, Report, calls, run};

const MS: u64 = 1_000_000;
const NODES: u32 = 9;

fn limits() -> [Rule; 3] {
    let second = Duration::from_secs(1);
    [
        SlidingLog::new(200, second).into(),
        Gcra::per_second(200).burst(150).into(),
        FixedWindow::new(200, second, Anchor::Epoch).into(),
    ]
}

fn leases(ttl_ms: u64, max_permits: u64, guard: bool, drift_ppm: u32) -> Leases {
    Leases { ttl: Duration::from_millis(ttl_ms), max_permits, guard, drift_ppm }
}

/// Returns the faults of each test, by name.
fn fault_classes() -> Vec<(&'static str, Vec<Fault>)> {
    let fault = |at_ms: u64, lasting_ms: u64, kind| Fault {
        at_ns: at_ms * MS,
        lasting_ns: lasting_ms * MS,
        kind,
    };
    let crashes = vec![
        fault(900, 300, FaultKind::Crash(0..4)),
        fault(1_500, 50, FaultKind::Crash(3..7)),
        fault(2_200, 500, FaultKind::Crash(1..2)),
        fault(2_900, 1, FaultKind::Crash(0..NODES)),
    ];
    let cuts = vec![
        fault(700, 900, FaultKind::Cut(0..4)),
        fault(1_900, 30, FaultKind::Cut(0..NODES)),
        fault(2_500, 800, FaultKind::Cut(5..NODES)),
    ];
    let slow = |min_ms: u64| FaultKind::Slow { min_ns: min_ms * MS };
    let late = vec![fault(600, 100, slow(15)), fault(1_400, 700, slow(60))];
    let failover = vec![fault(1_700, 60, FaultKind::Failover { loses_ns: 120 * MS, behind_ns: 0 })];
    let all = [crashes.clone(), cuts.clone(), late.clone(), failover.clone()].concat();
    vec![
        ("nothing", Vec::new()),
        ("crashes", crashes),
        ("cuts", cuts),
        ("late messages", late),
        ("a failover", failover),
        ("everything", all),
    ]
}

/// Returns a plan under load: wrong clocks, late and lost messages.
fn plan(seed: u64, limit: Rule) -> Plan {
    Plan {
        seed,
        late_ns: 3 * MS,
        drift_ppm: 20_000,
        network: Network { min_ns: MS, extra_ns: 3 * MS, lost_ppm: 20_000 },
        calls: calls((seed, NODES), 700, 0..4_500 * MS, seed % 3 + 1, seed.is_multiple_of(2)),
        ..Plan::new(NODES, limit)
    }
}

#[track_caller]
fn holds(plan: &Plan, about: &str) -> Report {
    let report = run(plan);
    let Plan { seed, leases, limit, .. } = plan;
    assert_eq!(report.fault(), None, "{about}: seed {seed}, {leases:?}, {limit:?}");
    assert!(report.calls.granted > 10, "{about}: nothing granted with seed {seed}, {leases:?}");
    report
}

/// Plays the modes in rotation through all faults and limits, with and without quarantine.
fn goes_through_everything(modes: &[Option<Leases>]) {
    for (kind, faults) in fault_classes() {
        for limit in limits() {
            for (seed, &leases) in (1..=4).zip(modes.iter().cycle()) {
                let (faults, quarantine) = (faults.clone(), seed > 2);
                holds(&Plan { faults, quarantine, leases, ..plan(seed, limit) }, kind);
            }
        }
    }
}

/// The store's decisions are within the limit (docs/theory.md, section 0).
#[test]
fn exact_is_within_the_limit() {
    goes_through_everything(&[None]);
}

/// The guard makes lent permits fit into the limit itself (docs/theory.md, section 5.2).
#[test]
fn leased_with_a_guard_is_within_the_limit() {
    goes_through_everything(&[
        Some(leases(150, 15, true, 20_000)),
        Some(leases(400, 15, true, 20_000)),
    ]);
}

/// Without the guard, the excess is at most what nodes can hold at one instant (docs/theory.md,
/// sections 5.2 and 5.4).
#[test]
fn leased_without_a_guard_is_within_the_limit_and_what_is_lent() {
    goes_through_everything(&[
        Some(leases(150, 15, false, 20_000)),
        Some(leases(600, 15, false, 20_000)),
    ]);
}

/// Nodes that fall back to their shares add at most all shares (docs/theory.md, section 5.6).
#[test]
fn a_fallback_adds_the_local_shares() {
    let [log, bucket, _] = limits();
    let on_unavailable = OnUnavailable::Local { nodes: NonZeroU32::new(NODES).unwrap() };
    for (kind, faults) in fault_classes() {
        let modes = [(log, None), (bucket, None), (bucket, Some(leases(150, 15, true, 500)))];
        for (seed, (limit, leases)) in (1..).zip(modes) {
            let base = Plan { faults: faults.clone(), leases, ..plan(seed, limit) };
            // Shares are made for clocks that are wrong by no more.
            let base = Plan { on_unavailable, quarantine: true, drift_ppm: 500, ..base };
            assert!(holds(&base, kind).bound.unwrap() >= 2 * limit.capacity());
        }
    }
    let (_, faults) = fault_classes().swap_remove(2);
    let admits = Plan { faults, on_unavailable: OnUnavailable::Admit, ..plan(1, log) };
    let admitting = holds(&admits, "admits");
    assert!(admitting.bound.is_none() && admitting.calls.granted_alone > 0);
}

/// Equal plans give equal runs, and another seed gives another run.
#[test]
fn a_seed_says_everything() {
    let (_, faults) = fault_classes().pop().unwrap();
    for leases in [None, Some(leases(150, 15, true, 20_000))] {
        let play = |seed| {
            run(&Plan {
                faults: faults.clone(),
                leases,
                quarantine: true,
                ..plan(seed, limits()[0])
            })
        };
        assert_eq!(play(5), play(5));
        assert_ne!(play(5), play(6));
    }
    for seed in 0..50 {
        assert_eq!(run(&Plan::drawn(seed)), run(&Plan::drawn(seed)), "seed {seed}");
    }
}

/// Returns a plan in which each node borrows all it may and keeps it for half of the lease; then
/// calls come to all nodes at once, and go on.
fn hoarders(limit: impl Into<Rule>, guard: bool) -> Plan {
    let (nodes, length_ms) = (4, 400);
    let mut script = Vec::new();
    let mut all_at = |at_ms: u64, calls: usize| {
        for node in 0..nodes {
            let call = Call { at_ns: at_ms * MS, node, permits: 1 };
            script.extend(std::iter::repeat_n(call, calls));
        }
    };
    all_at(10, 25);
    let hoarded_ms = length_ms / 100 * 48;
    all_at(10 + hoarded_ms, 300);
    for at_ms in (0..1_300).step_by(2) {
        all_at(11 + hoarded_ms + at_ms, 4);
    }
    Plan {
        network: Network { min_ns: 1_000, extra_ns: 0, lost_ppm: 0 },
        calls: script,
        leases: Some(leases(length_ms, 25, guard, 0)),
        ..Plan::new(nodes, limit)
    }
}

/// The bound without a guard is reached, so no smaller one holds (docs/theory.md, section 5.2).
/// An oracle that saw nothing would fail here too.
#[test]
fn without_a_guard_the_bound_is_reached() {
    let log: Rule = SlidingLog::new(400, Duration::from_secs(1)).into();
    for (limit, bound) in [(log, 500), (Gcra::per_second(2_000).burst(300).into(), 400)] {
        let report = holds(&hoarders(limit, false), "hoarders");
        assert_eq!(report.bound, Some(bound));
        assert!(report.max_used + 1 >= bound, "{} of {bound}", report.max_used);
    }
    let guarded = holds(&hoarders(log, true), "hoarders under guard");
    assert_eq!((guarded.max_used, guarded.bound), (400, Some(400)));
}

/// Returns how often a flawed fleet was over the bound of a sound one, with each of six seeds.
fn caught(sound: impl Fn(u64) -> Plan, flawed: impl Fn(Plan) -> Plan) -> usize {
    let is_caught = |&seed: &u64| {
        let bound = holds(&sound(seed), "sound").bound.unwrap();
        run(&flawed(sound(seed))).max_used > bound
    };
    (1..=6).filter(is_caught).count()
}

fn busy(seed: u64, leases: Option<Leases>) -> Plan {
    let calls = calls((seed, NODES), 2_000, 0..4_500 * MS, 1, false);
    Plan { calls, leases, ..plan(seed, limits()[0]) }
}

/// Returns a plan of one node that borrows all it may, and uses the last of it at the very end of
/// the lease. Then it uses at once all that is free again.
fn late_user(seed: u64) -> Plan {
    let call = |at_ms: u64| Call { at_ns: at_ms * MS, node: 0, permits: 1 };
    let mut calls = vec![call(10); 40];
    calls.extend((60..600).step_by(11).map(call));
    calls.extend((1_250..1_700).flat_map(|at_ms| vec![call(at_ms); 30]));
    let leases = Some(leases(400, 40, true, 200_000));
    let limit = SlidingLog::new(80, Duration::from_secs(1));
    Plan { seed, drift_ppm: 200_000, budget_ns: 200 * MS, calls, leases, ..Plan::new(1, limit) }
}

/// Clocks that are wrong and taken to be exact are found.
#[test]
fn drift_that_is_ignored_is_seen() {
    let ignoring = |plan: Plan| Plan {
        leases: plan.leases.map(|leases| Leases { drift_ppm: 0, ..leases }),
        ..plan
    };
    // The flaw shows only where the clock is slow.
    let seen = caught(late_user, ignoring);
    assert!(seen >= 1, "{seen}");
}

/// A store that drops the guard, with leases of 0.4 s, is found (docs/theory.md, section 5.2).
#[test]
fn a_guard_that_is_dropped_is_seen() {
    let dropping = |plan: Plan| Plan {
        leases: plan.leases.map(|leases| Leases { guard: false, ..leases }),
        ..plan
    };
    let log = SlidingLog::new(400, Duration::from_secs(1));
    assert_eq!(caught(|seed| Plan { seed, ..hoarders(log, true) }, dropping), 6);
    let bucket = Gcra::per_second(1_050).burst(1_000);
    assert_eq!(caught(|seed| Plan { seed, ..hoarders(bucket, true) }, dropping), 6);
}

/// Permits that a replica does not know of are granted twice, unless it is in quarantine for long
/// enough (docs/theory.md, section 5.5).
#[test]
fn a_replica_trusted_at_once_is_seen() {
    let failing = |seed, leases| {
        let kind = FaultKind::Failover { loses_ns: 70 * MS, behind_ns: 0 };
        let faults = vec![Fault { at_ns: 70 * MS, lasting_ns: 20 * MS, kind }];
        Plan { faults, quarantine: true, ..busy(seed, leases) }
    };
    for (leases, min) in [
        (None, 6),
        (Some(leases(200, 15, true, 20_000)), 6),
        // Without a guard, the bound has a margin for some of the permits that the replica lost.
        (Some(leases(200, 15, false, 20_000)), 3),
    ] {
        let trusting = |plan| Plan { quarantine: false, ..plan };
        let caught = caught(|seed| failing(seed, leases), trusting);
        assert!(caught >= min, "{leases:?}: {caught}");
    }
}

#[test]
fn ten_thousand_nodes_keep_one_limit() {
    let nodes = 10_000;
    let fault = |at_ms: u64, kind| Fault { at_ns: at_ms * MS, lasting_ns: 100 * MS, kind };
    for leases in [None, Some(leases(100, 50, true, 20_000))] {
        let base = plan(3, SlidingLog::new(20_000, Duration::from_millis(500)).into());
        let faults =
            vec![fault(100, FaultKind::Cut(0..5_000)), fault(250, FaultKind::Crash(2_000..7_000))];
        let calls = calls((3, nodes), 80_000, 0..800 * MS, 1, false);
        let report = holds(&Plan { nodes, leases, calls, faults, ..base }, "a crowd");
        assert!(report.calls.made > 50_000 && report.max_used > 10_000, "{}", report.max_used);
    }
}

/// Runs the plans of these seeds, with a flaw. Returns the sum of the reports, and the number of
/// runs in which a law did not hold.
fn runs(seeds: Range<u64>, flaw: Option<Flaw>) -> (Report, u64) {
    let (mut sum, mut faults) = (Report::default(), 0);
    for seed in seeds {
        let report = run(&Plan { flaw, ..Plan::drawn(seed) });
        if let Some(fault) = report.fault() {
            assert!(flaw.is_some(), "seed {seed}: {fault}: {report:#?}");
            faults += 1;
        }
        sum.add(&report);
    }
    (sum, faults)
}

/// Plays 2 500 of the runs, of which `cargo xtask fleet` plays a million.
fn keep_the_laws(first: u64) {
    let (mut sum, _) = runs(first..first + 2_500, None);
    let rarest = sum.counts.all().into_iter().map(|count| *count).min().unwrap();
    assert!(rarest > 200, "too little happened: {:?}", sum.counts);
}

#[test]
fn reservations_keep_the_limit_and_count_once() {
    keep_the_laws(0);
}

#[test]
fn reservations_keep_the_limit_and_count_once_in_2500_more_runs() {
    keep_the_laws(2_500);
}

/// A node had returned what it held, and crashed before the commit came: no party knows of it.
#[test]
fn a_commit_after_the_end_is_late_whether_its_node_is_left_or_not() {
    let crash = |turn: u64| {
        let node = u32::try_from(turn % 2).unwrap();
        let kind = FaultKind::Crash(node..node + 1);
        Fault { at_ns: (20 + turn * 20) * MS, lasting_ns: 15 * MS, kind }
    };
    let report = run(&Plan {
        leases: Some(leases(80, 10, true, 0)),
        faults: (0..24).map(crash).collect(),
        callers: 300,
        lasting_ns: 500 * MS,
        max_estimate: 4,
        max_ttl_ns: 40 * MS,
        ..Plan::new(2, SlidingLog::new(400, Duration::from_millis(200)))
    });
    assert!(report.counts.unknown > 0, "{report:#?}");
    assert_eq!(report.fault(), None, "{report:#?}");
    assert_eq!(report.over, 44, "the permit of that commit among them");
}

#[test]
fn a_commit_that_counts_twice_is_found() {
    for flaw in [Flaw::CommitsTwice, Flaw::ChargesTwice] {
        let (_, faults) = runs(0..200, Some(flaw));
        assert!(faults > 10, "{flaw:?}: found in {faults} of 200 runs");
    }
}
