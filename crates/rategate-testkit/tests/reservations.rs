//! Fleets whose callers reserve keep their limit whatever is lost, and a store that counts a commit
//! twice is found.

use std::ops::Range;

use rategate_testkit::fleet::{
    ReservationFlaw, ReservationPlan, ReservationReport, run_reservations,
};

/// Runs the plans of these seeds, with a flaw. Returns the sum of the reports, and the number of
/// runs in which a law did not hold.
fn runs(seeds: Range<u64>, flaw: Option<ReservationFlaw>) -> (ReservationReport, u64) {
    let (mut sum, mut faults) = (ReservationReport::default(), 0_u64);
    for seed in seeds {
        let report = run_reservations(&ReservationPlan { flaw, ..ReservationPlan::drawn(seed) });
        if let Some(fault) = report.fault() {
            assert!(flaw.is_some(), "seed {seed}: {fault}: {report:#?}");
            faults = faults.saturating_add(1);
        }
        sum.add(&report);
    }
    (sum, faults)
}

/// Plays 2 500 of the runs, of which `cargo xtask fleet` plays a million.
fn keep_the_laws(first: u64) {
    let (mut sum, _) = runs(first..first.saturating_add(2_500), None);
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
    let report = run_reservations(&ReservationPlan::drawn(451_030));
    assert!(report.counts.unknown > 0, "{report:#?}");
    assert_eq!(report.fault(), None, "{report:#?}");
    assert_eq!(report.over, 14, "the ten of that commit among them");
}

#[test]
fn a_commit_that_counts_twice_is_found() {
    for flaw in [ReservationFlaw::CommitsTwice, ReservationFlaw::ChargesTwice] {
        let (_, faults) = runs(0..200, Some(flaw));
        assert!(faults > 10, "{flaw:?}: found in {faults} of 200 runs");
    }
}

#[test]
fn equal_seeds_are_equal_runs() {
    for seed in 0..50 {
        let plan = ReservationPlan::drawn(seed);
        assert_eq!(run_reservations(&plan), run_reservations(&plan), "seed {seed}");
    }
}
