//! Laws of the wait queue in a simulated world: the ceiling, the order of requests, and the
//! effects of waiters that leave. Random scenarios, and scenarios that once broke something.

use rategate_testkit::oracle::Grants;
use rategate_testkit::player;
use rategate_testkit::report::{Outcome, Report};
use rategate_testkit::scenario::{Call, Scenario};
use rategate_testkit::world;

fn played(text: &str) -> Report {
    world::run(&Scenario::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}")))
}

/// Whatever is requested, withdrawn and changed, no window exceeds its maximum, and within a
/// class the first request starts first. The oracle of the windows is that of every scenario.
#[test]
fn random_lines_keep_the_ceiling_and_the_order() {
    let (mut waited, mut ends, mut back, mut owed) = (0, [0; 11], 0, 0);
    for seed in 0..6_000 {
        let text = player::random(seed);
        let scenario = Scenario::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let report = world::run(&scenario);
        let describe = || format!("seed {seed}\n{text}{}", report.to_text());
        assert!(report.passed(), "{}", describe());
        // The start of the newest waiter of each class, and the end of its wait.
        let mut lasts = [(0, 0); 3];
        for (step, planned) in report.steps.iter().zip(&scenario.steps) {
            back += step.back.unwrap_or(0);
            owed += step.owed.unwrap_or(0);
            match (step.call, step.outcome) {
                ("wait", Outcome::Granted) => {
                    let (start_ns, end_ns) = (step.start_ns.unwrap(), step.ended_ns.unwrap());
                    let Call::Wait { class, .. } = planned.call else { unreachable!() };
                    let last = &mut lasts[class.index()];
                    assert!(start_ns >= last.0, "{}", describe());
                    assert!(end_ns >= last.1 && end_ns >= start_ns, "{}", describe());
                    *last = (start_ns, end_ns);
                    waited += u64::from(end_ns > step.at_ns);
                }
                // A try must not overtake a waiter that has yet to start.
                ("try", Outcome::Granted) if step.permits > Some(0) => {
                    assert!(lasts.iter().all(|last| step.at_ns >= last.1), "{}", describe());
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
            Outcome::Ungranted,
            Outcome::TooLate,
            Outcome::Held,
            Outcome::Committed,
            Outcome::Late,
        ];
        for (count, kind) in ends.iter_mut().zip(kinds) {
            *count += report.steps.iter().filter(|step| step.outcome == kind).count();
        }
    }
    assert!(waited > 3_000 && ends.iter().all(|&count| count > 300), "{waited} {ends:?}");
    assert!(back > 1_000 && owed > 1_000, "{back} {owed}");
}

/// Arrivals and callers that wait start as steps that wait do.
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
    let describe = |step: usize| (report.steps[step].outcome, report.steps[step].start_ns);
    assert_eq!(describe(1), (Outcome::Full, None));
    assert_eq!(describe(2), (Outcome::Granted, Some(4_000_000_000)));
    assert_eq!((report.tape.as_str(), report.sleeps.len()), ("@@@@", 0), "no waiter sleeps");
}

/// A waiter for an act that never comes is reported as waiting at the end, and counts for
/// nothing.
#[test]
fn a_wait_without_end_is_reported_as_waiting() {
    let report = played(
        "[limit]\npolicy = \"concurrency\"\npermits = 1\n\
         [[step]]\nat = \"0s\"\ncall = \"try\"\n\
         [[step]]\nat = \"1s\"\ncall = \"wait\"\n\
         expect = { outcome = \"granted\", ended = \"2s\" }\n\
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

/// A stale timer does not prolong a run: when all waiters have left, it is over.
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

/// A deadline that can no longer be met ends the wait at once, whenever the limit has changed.
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

/// Behind a waiter for an act no call may start, so when it leaves, none has started before.
#[test]
fn no_waiter_starts_in_the_past_when_the_head_leaves() {
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
        let grants = Grants(ends.map(|end_ns| (end_ns, 1)).collect());
        let (max, _) = grants.fullest_window(10_000_000);
        assert!(max <= 3, "{max} in 10 ms\n{}", report.to_text());
    }
}

/// A call that may not wait has taken nothing, and so has evicted no waiter.
#[test]
fn a_late_waiter_evicts_no_other() {
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
