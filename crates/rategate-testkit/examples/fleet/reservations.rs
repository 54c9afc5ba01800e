//! A million fleets whose callers reserve: each run has its own seed, and may have its own faults.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use rategate_testkit::fleet::{
    ReservationFlaw, ReservationPlan, ReservationReport, run_reservations,
};

/// The number of runs with a deliberate error, in which it has to be found.
const FLAWED: u64 = 1_000;

/// Plays so many runs on all processors. Returns `false` if a law did not hold, or if a deliberate
/// error was not found.
pub(crate) fn play(runs: u64) -> bool {
    let begun = Instant::now();
    let (sum, faults) = play_all(runs, None);
    for fault in faults.iter().take(10) {
        println!("{fault}");
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("{runs} runs, {} events, {:.0} runs a second", sum.events, runs as f64 / seconds);
    println!("{} permits beyond the estimates; {:?}", sum.over, sum.counts);
    let mut is_found = true;
    for flaw in [ReservationFlaw::CommitsTwice, ReservationFlaw::ChargesTwice] {
        let (_, found) = play_all(FLAWED, Some(flaw));
        println!("{flaw:?}: found in {} of {FLAWED} runs", found.len());
        is_found &= !found.is_empty();
    }
    faults.is_empty() && is_found
}

fn play_all(runs: u64, flaw: Option<ReservationFlaw>) -> (ReservationReport, Vec<String>) {
    let next = AtomicU64::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let play_some = || {
        let (mut sum, mut faults) = (ReservationReport::default(), Vec::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= runs {
                return (sum, faults);
            }
            let plan = ReservationPlan { flaw, ..ReservationPlan::drawn(seed) };
            let report = run_reservations(&plan);
            faults.extend(report.fault().map(|fault| format!("seed {seed}: {fault}")));
            sum.add(&report);
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(play_some)).collect();
        let (mut sum, mut faults) = (ReservationReport::default(), Vec::new());
        for thread in threads {
            if let Ok((some, found)) = thread.join() {
                sum.add(&some);
                faults.extend(found);
            } else {
                faults.push("a run has panicked".to_owned());
            }
        }
        (sum, faults)
    })
}
