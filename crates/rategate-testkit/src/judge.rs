//! Builds the report of a run, and compares it with the scenario's expectations.

use std::fmt::Display;

use crate::oracle::Grants;
use crate::picture;
use crate::report::{CheckReport, Operation, Outcome, Report, Sleep, StepReport};
use crate::scenario::{Ns, Scenario, StepExpect};

/// The events of a run, in absolute instants.
#[derive(Default)]
pub(crate) struct Happened {
    pub(crate) end_ns: u64,
    /// `@` for an operation, `[z*10.1]` for a sleep of 10.1 ms.
    pub(crate) tape: String,
    pub(crate) operations: Vec<Operation>,
    pub(crate) sleeps: Vec<Sleep>,
    pub(crate) grants: Vec<(u64, u64)>,
}

pub(crate) fn report(scenario: &Scenario, happened: Happened, steps: Vec<StepReport>) -> Report {
    let start_ns = scenario.clock_start_ns;
    let since = |instant_ns: u64| instant_ns.saturating_sub(start_ns);
    let grants = happened.grants.iter().map(|&(at_ns, permits)| (since(at_ns), permits));
    let grants = Grants(grants.collect());
    let operations = happened.operations.into_iter().map(|operation| Operation {
        arrival_ns: since(operation.arrival_ns),
        scheduled_ns: operation.scheduled_ns.map(since),
        promised_ns: operation.promised_ns.map(since),
        start_ns: operation.start_ns.map(since),
        end_ns: operation.end_ns.map(since),
        ..operation
    });
    let sleeps = happened.sleeps.into_iter();
    let checks = scenario.checks.iter().map(|check| {
        let (Ns(window_ns), at_most) = (check.window, check.at_most);
        let (seen, from_ns) = grants.fullest_window(window_ns);
        CheckReport { window_ns, at_most, seen, from_ns }
    });
    let mut report = Report {
        title: scenario.title.clone(),
        elapsed_ns: since(happened.end_ns),
        granted: grants.total(),
        tape: happened.tape,
        steps,
        operations: operations.collect(),
        sleeps: sleeps.map(|sleep| Sleep { at_ns: since(sleep.at_ns), ..sleep }).collect(),
        checks: checks.collect(),
        mismatches: Vec::new(),
        picture: picture::of(scenario, grants.0),
    };
    report.mismatches = mismatches(scenario, &report);
    report
}

fn mismatches(scenario: &Scenario, report: &Report) -> Vec<String> {
    let mut mismatches = Vec::new();
    for (number, (step, seen)) in (1_usize..).zip(scenario.steps.iter().zip(&report.steps)) {
        compare_step(&mut mismatches, number, &step.expect, seen);
    }
    let expect = &scenario.expect;
    compare(&mut mismatches, "tape", Some(&report.tape), expect.tape.as_ref());
    compare(&mut mismatches, "elapsed", Some(Ns(report.elapsed_ns)), expect.elapsed);
    compare(&mut mismatches, "granted", Some(report.granted), expect.granted);
    mismatches
}

fn compare_step(
    mismatches: &mut Vec<String>,
    number: usize,
    expect: &StepExpect,
    seen: &StepReport,
) {
    let what = |what| format!("step {number}: {what}");
    // If nothing keeps the call waiting, no wait and a zero wait mean the same.
    let nothing = expect.retry_after == Some(Ns(0)) && seen.outcome != Outcome::Denied;
    let retry_after = seen.retry_after_ns.map(Ns).or(nothing.then_some(Ns(0)));
    for (name, seen, expected) in [
        ("start", seen.start_ns.map(Ns), expect.start),
        ("retry_after", retry_after, expect.retry_after),
        ("wait", seen.wait_ns.map(Ns), expect.wait),
        ("ended", seen.ended_ns.map(Ns), expect.ended),
    ] {
        compare(mismatches, &what(name), seen, expected);
    }
    compare(mismatches, &what("outcome"), Some(seen.outcome), expect.outcome);
    for (name, seen, expected) in [
        ("back", seen.back, expect.back),
        ("owed", seen.owed, expect.owed),
        ("debt", seen.debt, expect.debt),
        ("forgiven", seen.forgiven, expect.forgiven),
        ("remaining", Some(seen.remaining), expect.remaining),
    ] {
        compare(mismatches, &what(name), seen, expected);
    }
}

fn compare<T: Display + PartialEq>(
    mismatches: &mut Vec<String>,
    what: &str,
    seen: Option<T>,
    expected: Option<T>,
) {
    let Some(expected) = expected.filter(|expected| seen.as_ref() != Some(expected)) else {
        return;
    };
    let seen = seen.map_or_else(|| "none".to_owned(), |seen| seen.to_string());
    mismatches.push(format!("{what} is {seen}, expected {expected}"));
}
