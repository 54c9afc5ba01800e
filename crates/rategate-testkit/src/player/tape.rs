//! Tapes: scenarios as lines of calls and results, for players in other languages.
//!
//! docs/conformance.md has the format. A player needs no virtual world and no tolerances: the
//! clock stops where the tape says, and a wait ends at the line that says so.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::{self, Write as _};

use strum::Display;

use crate::report::{Outcome, StepReport};
use crate::scenario::{Call, Ns, Scenario, policy_body};
use rategate::adaptive::Outcome as Ending;
use rategate::wait::WhenFull;
use rategate::{AllOf, AnyPolicy, Limiter};

use super::step_result::GATHER_NS;
use super::{Event, played};

/// The reason why a scenario has no tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Display)]
pub enum LeftOut {
    /// Callers in loops, or arrivals.
    #[strum(to_string = "callers in loops, or arrivals, which a world plays")]
    Callers,
    /// Waiters in classes, or such that hold what they are granted.
    #[strum(to_string = "waiters in classes or with holds, for which tapes have no words yet")]
    Waiters,
    /// A policy without a table.
    #[strum(to_string = "a policy without a table")]
    Policy,
}

/// Writes the tape of a scenario, once a limiter of all its limits has played it as
/// [`play`](super::play) does.
///
/// The results are those of the simulated world. The instants at which waits end are those of the
/// limiter, which merges wake-ups.
///
/// # Errors
///
/// [`LeftOut`] if a tape has no words for the scenario.
///
/// # Panics
///
/// Panics with the step whose result differs.
pub fn tape(name: &str, scenario: &Scenario) -> Result<String, LeftOut> {
    if let Some(left_out) = left_out(scenario) {
        return Err(left_out);
    }
    let limits = scenario.limits.clone();
    let (report, events) =
        played(name, scenario, |clock| Limiter::with_clock(AllOf::new(limits), clock));
    let start_ns = scenario.clock_start_ns;
    let results = report.steps.iter().zip(&scenario.steps);
    let results: Vec<_> =
        results.map(|(step, of)| StepReport::ideal(step, &of.call, start_ns)).collect();
    let mut tape = Tape {
        text: format!("tape 1\nname {name}\n"),
        scenario,
        results: &results,
        events: &events,
        used: BTreeSet::new(),
        merged: VecDeque::new(),
        is_called: false,
    };
    tape.begin()?;
    for (event, later) in events.iter().zip(1..) {
        tape.event(*event, events.get(later..).unwrap_or_default())?;
    }
    Ok(tape.text)
}

/// Returns the reason why a scenario has no tape, as far as its calls tell.
fn left_out(scenario: &Scenario) -> Option<LeftOut> {
    if !scenario.callers.is_empty() || !scenario.arrivals.is_empty() {
        return Some(LeftOut::Callers);
    }
    let holds = |call: &Call| matches!(call, Call::Wait { ttl: Some(_), .. });
    if !scenario.classes.is_empty() || scenario.steps.iter().any(|step| holds(&step.call)) {
        return Some(LeftOut::Waiters);
    }
    None
}

/// The lines so far, and the calls that later ones refer to.
struct Tape<'s> {
    text: String,
    scenario: &'s Scenario,
    results: &'s [StepReport],
    events: &'s [Event],
    /// The calls whose reservation or hold has been used or ended.
    used: BTreeSet<usize>,
    /// The waits that have ended as the clock moved, of which other limiters may be woken later.
    merged: VecDeque<usize>,
    /// `true` if the newest event was a call, or an end that it caused.
    is_called: bool,
}

impl Tape<'_> {
    fn begin(&mut self) -> Result<(), LeftOut> {
        let Scenario { limits, clock_start_ns, queue, debt, .. } = self.scenario;
        self.limits(limits)?;
        let full = match queue.on_full() {
            WhenFull::Refuse => "refuse",
            WhenFull::EvictNewest => "evict-newest",
        };
        let debts = if debt.is_carried() { "carry" } else { "forget" };
        let bounded = |key: &str, max: u64| match max {
            u64::MAX => String::new(),
            max => format!(" {key}={max}"),
        };
        self.line(format_args!(
            "begin clock={clock_start_ns} waiters={}{} full={full} debt={debts}{}",
            queue.waiters(),
            bounded("permits", queue.permits()),
            bounded("max_debt", debt.max_ns()),
        ));
        Ok(())
    }

    fn limits(&mut self, limits: &[AnyPolicy]) -> Result<(), LeftOut> {
        for limit in limits {
            let body = policy_body(limit).ok_or(LeftOut::Policy)?;
            self.line(format_args!("limit {}", body.replace('\n', "; ")));
        }
        Ok(())
    }

    /// Writes an event. The `later` ones tell which waits are due and have not been woken.
    fn event(&mut self, event: Event, later: &[Event]) -> Result<(), LeftOut> {
        match event {
            Event::Clock(now_ns) => {
                self.line(format_args!("clock {now_ns}"));
                self.ends(|ended_ns| ended_ns.saturating_add(GATHER_NS) <= now_ns);
                let is_before = |result: &StepReport| result.ended_ns == now_ns.checked_add(1);
                // A limiter that merges other wake-ups may serve it at any instant from then on.
                let is_due = |event: &Event| {
                    let Event::End(step) = event else { return false };
                    self.results[*step].ended_ns.is_some_and(|ended_ns| ended_ns <= now_ns)
                };
                let is_idle = self.merged.is_empty() && !later.iter().any(is_due);
                if is_idle && self.results.iter().any(is_before) {
                    self.line("idle");
                }
            }
            Event::Serve => {}
            Event::Step(_) | Event::Close => {
                if !self.merged.is_empty() {
                    self.line("serve");
                    self.ends(|_| true);
                }
            }
            // A call wakes the waiters that it makes due itself. Timers merge wake-ups.
            Event::End(step) if self.is_called => self.end(step),
            Event::End(step) => self.merged.push_back(step),
        }
        match event {
            Event::Step(step) => self.step(step)?,
            Event::Close => self.line("close"),
            _ => {}
        }
        self.is_called = match event {
            Event::Step(_) | Event::Close => true,
            Event::End(_) => self.is_called,
            Event::Clock(_) | Event::Serve => false,
        };
        Ok(())
    }

    /// Writes the merged ends in order, up to the first of which `is_over` does not hold.
    fn ends(&mut self, is_over: impl Fn(u64) -> bool) {
        while let Some(&step) = self.merged.front()
            && self.results[step].ended_ns.is_none_or(&is_over)
        {
            self.merged.pop_front();
            self.end(step);
        }
    }

    fn end(&mut self, step: usize) {
        let result = &self.results[step];
        let ended = match result.outcome {
            Outcome::Waiting => "closed".to_owned(),
            _ => words(result),
        };
        self.line(format_args!("end {} {ended}", step + 1));
    }

    fn step(&mut self, step: usize) -> Result<(), LeftOut> {
        let (planned, result) = (&self.scenario.steps[step], &self.results[step]);
        let (of, remaining) = (planned.of, result.remaining);
        let mut words = words(result);
        // The limiter does not remember which grants and holds have ended: callers do.
        let is_known = match planned.call {
            Call::Leave {} => self.began(of),
            Call::Cancel {} => {
                let outcome = self.results[of].outcome;
                matches!(outcome, Outcome::Granted | Outcome::Held) && !self.used.contains(&of)
            }
            Call::Commit { .. } | Call::End { .. } => {
                !matches!(result.outcome, Outcome::Ungranted | Outcome::TooLate)
            }
            _ => true,
        };
        if !is_known {
            self.line(format_args!("remaining {remaining}"));
            return Ok(());
        }
        if of != step {
            self.used.insert(of);
        }
        let of_call = of + 1;
        let call = match &planned.call {
            Call::Try { permits } => format!("try permits={permits}"),
            Call::Peek { permits } => format!("peek permits={permits}"),
            Call::Reserve { permits, max_wait } => {
                format!("reserve permits={permits}{}", timeout(*max_wait))
            }
            Call::Wait { permits, max_wait, .. } => {
                if self.began(step) {
                    "waiting".clone_into(&mut words);
                }
                format!("wait permits={permits}{}", timeout(*max_wait))
            }
            Call::Leave {} => format!("leave of={of_call}"),
            Call::Cancel {} => format!("cancel of={of_call}"),
            Call::End { outcome: ending } => {
                format!("release of={of_call} outcome={}", outcome(*ending))
            }
            Call::Hold { permits, ttl: Ns(ttl_ns) } => {
                format!("hold permits={permits} ttl={ttl_ns}")
            }
            Call::Commit { actual } => format!("commit of={of_call} actual={actual}"),
            Call::Charge { permits } => format!("charge permits={permits}"),
            Call::Set { limits } => {
                self.limits(limits)?;
                "set".to_owned()
            }
            Call::Refill { permits } => format!("refill permits={permits}"),
            Call::Release { permits } => format!("release permits={permits}"),
        };
        self.line(format_args!("call {} {call} -> {words} remaining={remaining}", step + 1));
        Ok(())
    }

    /// Returns `true` if the call did not end at once.
    fn began(&self, step: usize) -> bool {
        self.events.contains(&Event::End(step)) || self.results[step].outcome == Outcome::Left
    }

    fn line(&mut self, line: impl fmt::Display) {
        // A string takes whatever is written.
        let _ = writeln!(self.text, "{line}");
    }
}

const fn outcome(ending: Ending) -> &'static str {
    match ending {
        Ending::Served => "served",
        Ending::Dropped => "dropped",
        Ending::Ignored => "ignored",
    }
}

fn timeout(max_wait: Option<Ns>) -> String {
    max_wait.map(|Ns(ns)| format!(" timeout={ns}")).unwrap_or_default()
}

/// Writes a result: its outcome, and each number that it has.
fn words(result: &StepReport) -> String {
    let numbers = [
        ("start", result.start_ns),
        ("scheduled", result.scheduled_ns),
        ("retry_after", result.retry_after_ns),
        ("back", result.back),
        ("owed", result.owed),
        ("debt", result.debt),
        ("forgiven", result.forgiven),
    ];
    let mut words = result.outcome.word().to_owned();
    for (key, number) in numbers {
        if let Some(number) = number {
            let _ = write!(words, " {key}={number}");
        }
    }
    words
}
