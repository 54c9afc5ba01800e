//! Builds the report of a run, and compares it with the scenario's expectations.

use std::fmt::Display;

use rategate_core::span;

use crate::oracle::Grants;
use crate::picture;
use crate::report::{CheckReport, Operation, Outcome, Report, Sleep, StepReport};
use crate::scenario::{Scenario, StepExpect};
use crate::world::Happened;

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
        let (seen, from_ns) = grants.fullest_window(check.window_ns);
        CheckReport { window_ns: check.window_ns, at_most: check.at_most, seen, from_ns }
    });
    let mut report = Report {
        title: scenario.title.clone(),
        elapsed_ns: since(happened.end_ns),
        granted: grants.total(),
        tape: happened.tape.into_text(),
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
    if let Some(tape) = expect.tape.as_ref().filter(|tape| **tape != report.tape) {
        mismatches.push(format!("tape is {}, expected {tape}", report.tape));
    }
    let elapsed = (Some(span::Text(report.elapsed_ns)), expect.elapsed_ns.map(span::Text));
    compare(&mut mismatches, "elapsed", elapsed);
    compare(&mut mismatches, "granted", (Some(report.granted), expect.granted));
    mismatches
}

fn compare_step(
    mismatches: &mut Vec<String>,
    number: usize,
    expect: &StepExpect,
    seen: &StepReport,
) {
    let mut compare_one = |what: &str, pair: (Option<u64>, Option<u64>)| {
        let (seen, expected) = (pair.0.map(span::Text), pair.1.map(span::Text));
        compare(mismatches, &format!("step {number}: {what}"), (seen, expected));
    };
    compare_one("start", (seen.start_ns, expect.start_ns));
    // If nothing keeps the call waiting, no wait and a zero wait mean the same.
    let nothing = expect.retry_after_ns == Some(0)
        && seen.retry_after_ns.is_none()
        && seen.outcome != Outcome::Denied;
    let retry_after_ns = if nothing { Some(0) } else { seen.retry_after_ns };
    compare_one("retry_after", (retry_after_ns, expect.retry_after_ns));
    compare_one("wait", (seen.wait_ns, expect.wait_ns));
    compare_one("ended", (seen.ended_ns, expect.ended_ns));
    let what = format!("step {number}: outcome");
    compare(mismatches, &what, (Some(seen.outcome), expect.outcome));
    let counts = [
        ("back", (seen.back, expect.back)),
        ("owed", (seen.owed, expect.owed)),
        ("debt", (seen.debt, expect.debt)),
        ("forgiven", (seen.forgiven, expect.forgiven)),
    ];
    for (what, pair) in counts {
        compare(mismatches, &format!("step {number}: {what}"), pair);
    }
    let what = format!("step {number}: remaining");
    compare(mismatches, &what, (Some(seen.remaining), expect.remaining));
}

fn compare<T: Display + PartialEq>(
    mismatches: &mut Vec<String>,
    what: &str,
    (seen, expected): (Option<T>, Option<T>),
) {
    match (seen, expected) {
        (_, None) => {}
        (Some(seen), Some(expected)) if seen == expected => {}
        (Some(seen), Some(expected)) => {
            mismatches.push(format!("{what} is {seen}, expected {expected}"));
        }
        (None, Some(expected)) => mismatches.push(format!("{what} is none, expected {expected}")),
    }
}
