//! Laws of the line in a simulated world: the ceiling, the order of asking, and what it owes to whoever
//! leaves. Random scenarios, and those that broke something once.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

mod lines;

use rategate_sim::random::Random;
use rategate_sim::report::{Outcome, Report};
use rategate_sim::scenario::{Call, Scenario};
use rategate_sim::world;

fn played(text: &str) -> Report {
    world::run(&Scenario::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}")))
}

/// Faults 18: whatever is asked, given up and changed, no window holds more than it may, and whoever
/// asked first in a class starts first there. The oracle of the windows is that of every scenario.
#[test]
fn random_lines_keep_the_ceiling_and_the_order() {
    let (mut waited, mut ends, mut back, mut owed) = (0, [0; 10], 0, 0);
    for seed in 0..3_000 {
        let text = lines::text(&mut Random::new(seed));
        let scenario = Scenario::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let report = world::run(&scenario);
        let told = || format!("seed {seed}\n{text}{}", report.to_text());
        assert!(report.passed(), "{}", told());
        // When the last one of a class started, and when the last one's wait ended.
        let mut lasts = [(0, 0); 3];
        for (step, asked) in report.steps.iter().zip(&scenario.steps) {
            back += step.back.unwrap_or(0);
            owed += step.owed.unwrap_or(0);
            match (step.call, step.outcome) {
                ("wait", Outcome::Granted) => {
                    let (start_ns, end_ns) = (step.start_ns.unwrap(), step.ended_ns.unwrap());
                    let Call::Wait { class, .. } = asked.call else { unreachable!() };
                    let last = &mut lasts[class.index()];
                    assert!(start_ns >= last.0, "{}", told());
                    assert!(end_ns >= last.1 && end_ns >= start_ns, "{}", told());
                    *last = (start_ns, end_ns);
                    waited += u64::from(end_ns > step.at_ns);
                }
                // Somebody before it had still to start.
                ("try", Outcome::Granted) if step.permits > Some(0) => {
                    assert!(lasts.iter().all(|last| step.at_ns >= last.1), "{}", told());
                }
                _ => {}
            }
        }
        let kinds = [
            Outcome::Full,
            Outcome::Evicted,
            Outcome::DeadlinePassed,
            Outcome::Left,
            Outcome::Denied,
            Outcome::Waiting,
            Outcome::Settled,
            Outcome::Refunded,
            Outcome::Ungranted,
            Outcome::TooLate,
        ];
        for (count, kind) in ends.iter_mut().zip(kinds) {
            *count += report.steps.iter().filter(|step| step.outcome == kind).count();
        }
    }
    assert!(waited > 3_000 && ends.iter().all(|&count| count > 300), "{waited} {ends:?}");
    assert!(back > 1_000 && owed > 1_000, "{back} {owed}");
}

/// An arrival or a caller that waits has the starts of a step that does.
#[test]
fn arrivals_and_callers_stand_in_the_same_line() {
    let limit = "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n[queue]\nwaiters = 3\n";
    let report = played(&format!(
        "{limit}[[step]]\nat = \"0s\"\ncall = \"try\"\n\
         [[arrivals]]\nrate = \"1/ms\"\ncount = 2\ncall = \"wait\"\n\
         [[caller]]\noperations = 2\nstart = \"1500us\"\ncall = \"wait\"\n\
         [[step]]\nat = \"2ms\"\ncall = \"wait\"\n\
         [[step]]\nat = \"1500ms\"\ncall = \"wait\"\n"
    ));
    let starts: Vec<_> = report.operations.iter().map(|done| done.start_ns).collect();
    assert_eq!(starts, [1, 2, 3, 5].map(|second| Some(second * 1_000_000_000)));
    let told = |step: usize| (report.steps[step].outcome, report.steps[step].start_ns);
    assert_eq!(told(1), (Outcome::Full, None));
    assert_eq!(told(2), (Outcome::Granted, Some(4_000_000_000)));
    assert_eq!((report.tape.as_str(), report.sleeps.len()), ("@@@@", 0), "nobody sleeps in line");
}

/// Whoever waits for an act that never comes is told so at the end, and counts for nothing.
#[test]
fn whoever_waits_for_ever_is_waiting() {
    let report = played(
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n\
         [[step]]\nat = \"0s\"\ncall = \"try\"\n\
         [[step]]\nat = \"1s\"\ncall = \"wait\"\nexpect = { outcome = \"granted\", ended = \"2s\" }\n\
         [[arrivals]]\nrate = \"1/s\"\ncount = 1\ncall = \"wait\"\n\
         [[caller]]\noperations = 1\ncall = \"wait\"\n",
    );
    let waits = report.operations.iter().map(|done| done.outcome);
    assert_eq!(waits.collect::<Vec<_>>(), [Outcome::Waiting; 2]);
    assert_eq!((report.elapsed_ns, report.granted), (1_000_000_000, 1));
    assert_eq!(
        report.mismatches,
        ["step 2: ended is none, expected 2s", "step 2: outcome is waiting, expected granted"]
    );
    assert!(report.to_text().contains("ended ms"));
}

/// A stale timer is nobody's time: when all have left, the run is over.
#[test]
fn the_run_ends_when_the_last_one_leaves() {
    let report = played(
        "[limit]\npolicy = \"gcra\"\nrate = \"1/h\"\n\
         [[step]]\nat = \"0s\"\ncall = \"try\"\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\nname = \"a\"\n\
         [[step]]\nat = \"1s\"\ncall = \"leave\"\nname = \"a\"\n",
    );
    assert_eq!((report.elapsed_ns, report.granted), (1_000_000_000, 1));
}

/// The contract of the queue: a deadline that cannot be met any more ends the wait at once, whenever
/// the limit has changed.
#[test]
fn a_deadline_behind_the_first_ends_at_the_change() {
    let report = played(
        "[limit]\npolicy = \"gcra\"\nrate = \"10/s\"\n\
         [[step]]\nat = \"0s\"\ncall = \"try\"\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\n\
         [[step]]\nat = \"0s\"\ncall = \"wait\"\nmax_wait = \"1s\"\n\
         [[step]]\nat = \"50ms\"\ncall = \"set\"\nlimit = { rate = \"1/s\" }\n",
    );
    let late = &report.steps[2];
    assert_eq!((late.outcome, late.ended_ns), (Outcome::DeadlinePassed, Some(50_000_000)));
}

/// Behind somebody who waits for an act nobody may start; so when he goes, nobody has started before.
#[test]
fn nobody_starts_in_the_past_when_the_head_goes() {
    for (deadline, leave) in [
        ("", "[[step]]\nat = \"1s\"\ncall = \"leave\"\nname = \"three\"\n"),
        ("max_wait = \"999ms\"\n", ""),
    ] {
        let wait = |at: &str| format!("[[step]]\nat = \"{at}\"\ncall = \"wait\"\n");
        let (early, late) = (wait("1ms"), wait("1002ms"));
        let report = played(&format!(
            "[[limit]]\npolicy = \"sliding-log\"\npermits = 3\nperiod = \"10ms\"\n\
             [[limit]]\npolicy = \"concurrency\"\npermits = 3\n\
             [[step]]\nat = \"0s\"\ncall = \"try\"\n\
             [[step]]\nat = \"1ms\"\ncall = \"wait\"\nname = \"three\"\npermits = 3\n{deadline}\
             {early}{early}{leave}\
             [[step]]\nat = \"1001ms\"\ncall = \"release\"\npermits = 3\n{late}{late}{late}"
        ));
        let ends = report
            .steps
            .iter()
            .filter_map(|step| step.ended_ns.filter(|_| step.outcome == Outcome::Granted));
        let grants: Vec<_> = ends.map(|end_ns| (end_ns, 1)).collect();
        let (most, _) = rategate_sim::oracle::fullest_window(&grants, 10_000_000);
        assert!(most <= 3, "{most} in 10 ms\n{}", report.to_text());
    }
}

/// Whoever may not wait has taken nothing, and so has taken nobody's place.
#[test]
fn whoever_is_too_late_sends_nobody_away() {
    let wait = |class| format!("[[step]]\nat = \"0s\"\ncall = \"wait\"\nclass = \"{class}\"\n");
    let report = played(&format!(
        "[limit]\npolicy = \"gcra\"\nrate = \"1/s\"\n\
         [queue]\nwaiters = 1\non_full = \"evict-newest\"\nclasses = {{ many = 1, few = 1 }}\n\
         [[step]]\nat = \"0s\"\ncall = \"try\"\n{}{}{}max_wait = \"1s\"\n",
        wait("many"),
        wait("few"),
        wait("few"),
    ));
    assert_eq!(report.steps[3].outcome, Outcome::Denied);
    assert_eq!(report.steps[2].outcome, Outcome::Granted, "{}", report.to_text());
}
