//! The scenario files that concern a store's state, played on a store.
//!
//! A store makes no caller wait and promises no start. Files of tries and peeks are played
//! step by step. Files in which every call waits are played in order of arrival, by a new
//! request when a denial says so. Each call has to start exactly when the world's limiter starts
//! it. Files of neither kind are skipped by a rule with a name; see [`Skip`].

use std::path::Path;

use crate::report::{Outcome, Report, StepReport};
use crate::scenario::{Call, CallMode, Scenario, Step};
use crate::{suite, world};
use rategate::AnyPolicy;
use rategate::store::{Rule, Store, StoreError, Verdict};

use strum::Display;

use super::Arena;
use super::client::{StoreClient, wait_us};

/// A hundred years, in microseconds.
const LAST_US: u64 = 3_200_000_000_000_000;
const LABELS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// The files that were played, and the files that were skipped, each with its rule.
pub type Played = suite::Played<Skip>;

/// A rule by which a file says nothing about a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Display)]
pub enum Skip {
    /// A policy that a store does not have.
    #[strum(to_string = "a policy that is kept in a process only")]
    Policy,
    /// Instants that a store's clock cannot show, or that are beyond it.
    #[strum(to_string = "instants that go back, or between two microseconds")]
    Instants,
    /// Effects that a store defines itself; limits that change among them.
    #[strum(to_string = "permits owed or charged, or changes, whose effect a store defines")]
    Change,
    /// Calls that meet a queue, which only a process has.
    #[strum(to_string = "waits with deadlines or classes, or that are withdrawn")]
    Line,
    /// Waiters that wake late: a store grants at the instant of the request.
    #[strum(to_string = "waiters that take late")]
    Taking,
    /// Fractions that a repeated request loses.
    #[strum(to_string = "promises with a fraction of a microsecond")]
    Fraction,
    /// Holds: the service reserves under the id of a request, and a hold in a scenario has none.
    #[strum(to_string = "holds without the id of a request")]
    Hold,
    /// Calls that several limits decide.
    #[strum(to_string = "several limits in a protocol whose requests name one")]
    Several,
}

/// Plays all files of a folder, the repository's `testdata/scenarios`, that concern a store.
/// `docs/conformance.md` shows which ones do.
///
/// # Panics
///
/// Panics where the store differs from the files or from the world's limiters.
pub fn suite(arena: &impl Arena, folder: impl AsRef<Path>) -> Played {
    let played = suite::each(folder, |name, mut scenario| {
        // A step between two microseconds is moved to the first of them before the world is
        // played.
        for step in &mut scenario.steps {
            step.at_ns -= step.at_ns % 1_000;
        }
        let report = world::run(&scenario);
        if let Some(skip) = skip(&scenario, &report) {
            return Err(skip);
        }
        if !arena.supports_several_limits() && scenario.limits.len() > 1 {
            return Err(Skip::Several);
        }
        play(arena, name, &scenario, &report);
        Ok(())
    });
    played.unwrap()
}

/// Returns the rule that skips a file, if one does.
fn skip(scenario: &Scenario, report: &Report) -> Option<Skip> {
    if scenario.limits.iter().any(|limit| rule(*limit).is_none()) {
        return Some(Skip::Policy);
    }
    if scenario.steps.iter().any(|step| step.call.holds()) {
        return Some(Skip::Hold);
    }
    let instants = report.steps.iter().map(|step| step.at_ns);
    let arrivals = report.operations.iter().map(|operation| operation.arrival_ns);
    let starts = report.operations.iter().filter_map(|operation| operation.start_ns);
    let is_whole = |instant_ns: u64| instant_ns.is_multiple_of(1_000);
    let is_known = scenario.clock_start_ns / 1_000 < LAST_US;
    if !instants.is_sorted() || !is_known || !arrivals.chain(starts).all(is_whole) {
        return Some(Skip::Instants);
    }
    let changes =
        |call: &Call| matches!(call, Call::Set { .. } | Call::Refill { .. } | Call::Charge { .. });
    if scenario.steps.iter().any(|step| changes(&step.call))
        || report.steps.iter().any(|step| step.owed.is_some_and(|owed| owed > 0))
    {
        return Some(Skip::Change);
    }
    if is_stepwise(scenario) {
        return None;
    }
    if scenario.sleep_error_ns.iter().any(|&error_ns| error_ns != 0) {
        return Some(Skip::Taking);
    }
    if !is_one_queue(scenario) || !all_start(report) {
        return Some(Skip::Line);
    }
    scenario.limits.iter().any(|limit| keeps_a_fraction(*limit)).then_some(Skip::Fraction)
}

/// Returns `true` if no call waits.
fn is_stepwise(scenario: &Scenario) -> bool {
    let at_once = |call: &Call| matches!(call, Call::Try { .. } | Call::Peek { .. });
    scenario.callers.is_empty()
        && scenario.arrivals.is_empty()
        && scenario.steps.iter().all(|step| at_once(&step.call))
}

/// Returns `true` if every call waits, for as long as it takes, in one queue.
fn is_one_queue(scenario: &Scenario) -> bool {
    let waits = |call: &Call| match call {
        Call::Reserve { max_wait, .. } => max_wait.is_none(),
        Call::Wait { max_wait, class, .. } => max_wait.is_none() && class.index() == 0,
        _ => false,
    };
    let holds = scenario.limits.iter().any(|limit| matches!(limit, AnyPolicy::Concurrency(_)));
    !holds
        && scenario.steps.iter().all(|step| waits(&step.call))
        && scenario.classes.is_empty()
        && scenario.arrivals.iter().all(|arrivals| arrivals.call != CallMode::Try)
}

/// Returns `true` if every call starts at some instant, except those that never could.
fn all_start(report: &Report) -> bool {
    let starts = |outcome| matches!(outcome, Outcome::Granted | Outcome::Never);
    report.steps.iter().all(|step| starts(step.outcome))
        && report.operations.iter().all(|operation| starts(operation.outcome))
}

/// Returns `true` if a permit does not take a whole number of microseconds.
fn keeps_a_fraction(limit: AnyPolicy) -> bool {
    match limit {
        AnyPolicy::Gcra(bucket) => match bucket.rate().fraction() {
            Some((permits, period_ns)) => {
                u128::from(period_ns) % (u128::from(permits) * 1_000) != 0
            }
            None => true,
        },
        AnyPolicy::SlidingLog(log) => log.held_for_ns() % 1_000 != 0,
        _ => false,
    }
}

fn rule(limit: AnyPolicy) -> Option<Rule> {
    match limit {
        AnyPolicy::Gcra(bucket) if bucket.rate().fraction().is_some() => Some(bucket.into()),
        AnyPolicy::SlidingLog(log) => Some(log.into()),
        AnyPolicy::FixedWindow(window) => (!window.starts_at_grant()).then_some(window.into()),
        // The lease is longer than any file goes on.
        AnyPolicy::Concurrency(in_flight) => {
            Some(Rule::InFlight(in_flight, 1_000_000_000_000_000.try_into().unwrap()))
        }
        _ => None,
    }
}

fn play<A: Arena>(arena: &A, name: &str, scenario: &Scenario, report: &Report) {
    let rules = scenario.limits.iter().filter_map(|limit| rule(*limit));
    let rules: Vec<(&str, Rule)> = LABELS.into_iter().zip(rules).collect();
    let start_us = scenario.clock_start_ns / 1_000;
    arena.set_now_us(start_us);
    let client = StoreClient::new(&arena.store(), &rules, name);
    if is_stepwise(scenario) {
        for (number, (step, expected)) in (1_usize..).zip(scenario.steps.iter().zip(&report.steps))
        {
            arena.set_now_us(start_us + step.at_ns / 1_000);
            play_step(&client, &format!("{name}, step {number}"), step, expected);
        }
    } else {
        play_queue(arena, name, &client, (start_us, report));
    }
}

/// Plays a step of a file in which no call waits.
fn play_step<S: Store>(client: &StoreClient<S>, about: &str, step: &Step, expected: &StepReport) {
    let remaining = client.remaining();
    match &step.call {
        Call::Try { permits } => {
            let seen = match client.decide(*permits) {
                Ok(Verdict::Granted(grant)) => {
                    assert_eq!(grant.remaining, expected.remaining, "{about}");
                    (Outcome::Granted, None)
                }
                Ok(Verdict::Denied(denial)) => (Outcome::Denied, wait_us(denial)),
                Err(StoreError::Exceeds(_)) => (Outcome::Never, None),
                Err(fault) => panic!("{about}: {fault}"),
            };
            assert_eq!(seen, (expected.outcome, expected_wait_us(expected)), "{about}");
        }
        Call::Peek { permits } => {
            let seen = match client.peek(*permits) {
                Ok(Verdict::Granted(_)) => (Outcome::Peeked, None),
                Ok(Verdict::Denied(denial)) => (Outcome::Peeked, wait_us(denial)),
                Err(StoreError::Exceeds(_)) => (Outcome::Never, None),
                Err(fault) => panic!("{about}: {fault}"),
            };
            assert_eq!(seen, (expected.outcome, expected_wait_us(expected)), "{about}");
            assert_eq!(remaining, expected.remaining, "{about}: before the call");
        }
        other => panic!("{about}: {other:?} is not played"),
    }
    assert_eq!(client.remaining(), expected.remaining, "{about}: after the call");
}

fn expected_wait_us(expected: &StepReport) -> Option<u64> {
    expected.retry_after_ns.map(|ns| ns.div_ceil(1_000))
}

/// Plays a file in which every call waits: each makes its request when it is the first of the
/// queue, and again when a denial says so.
fn play_queue<A: Arena>(
    arena: &A,
    name: &str,
    client: &StoreClient<A::Store>,
    (start_us, report): (u64, &Report),
) {
    let steps =
        report.steps.iter().filter_map(|step| Some((step.at_ns, step.start_ns?, step.permits?)));
    let operations = report.operations.iter().filter_map(|operation| {
        Some((operation.arrival_ns, operation.start_ns?, operation.permits))
    });
    let mut calls: Vec<(u64, u64, u64)> = steps.chain(operations).collect();
    // The queue is in order of arrival; simultaneous calls start in some order.
    calls.sort_unstable();
    let mut now_us = start_us;
    for (number, (at_ns, start_ns, permits)) in (1..).zip(calls) {
        now_us = now_us.max(start_us + at_ns / 1_000);
        arena.set_now_us(now_us);
        if let Verdict::Denied(denial) = client.decide(permits).unwrap() {
            now_us += wait_us(denial).unwrap();
            arena.set_now_us(now_us);
            let again = client.decide(permits).unwrap();
            assert!(matches!(again, Verdict::Granted(_)), "{name}, call {number}: {again:?}");
        }
        assert_eq!(now_us, start_us + start_ns / 1_000, "{name}, call {number} starts");
    }
}
