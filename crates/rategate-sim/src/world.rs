//! A world with a virtual clock, in which a scenario takes place.
//!
//! Everything that happens is an event at an instant; events at the same instant happen in the
//! order in which they were caused. Nothing waits for real, nothing is left to chance: the same
//! scenario gives the same report, byte for byte.
//!
//! A sleeping caller wakes when the clock's programmed error says. One that wakes early sleeps
//! again, as every real waiter here does; only the pacer carries the error into its next sleep.
//!
//! On a clock that is wrong, sleeps take true time, and limits and callers go by what it shows.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rategate_core::all_of::AllOf;
use rategate_core::any_policy::{AnyPolicy, AnyState};
use rategate_core::error::LimitError;
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit;
use rategate_core::policy::Policy;
use rategate_core::verdict::{Grant, Verdict};

use crate::arrivals::Instants;
use crate::clock::VirtualClock;
use crate::judge;
use crate::report::{Operation, Outcome, Report, Sleep};
use crate::scenario::{Caller, Gate, Scenario};
use crate::steps::Steps;
use crate::tape::Tape;

/// Plays a scenario to its end, on the true clock that it names.
#[must_use]
pub fn run(scenario: &Scenario) -> Report {
    run_on(scenario, &VirtualClock::new(scenario.clock_start_ns))
}

/// A limit that a scenario can be played on.
pub trait Subject: Limit {
    /// Puts new numbers into force.
    ///
    /// # Errors
    ///
    /// If the policies are of other kinds, or not as many. Nothing changes then.
    fn reconfigure(&mut self, now_ns: u64, policies: &[AnyPolicy]) -> Result<(), LimitError>;
}

impl Subject for AllOf {
    fn reconfigure(&mut self, now_ns: u64, policies: &[AnyPolicy]) -> Result<(), LimitError> {
        Self::reconfigure(self, now_ns, policies)
    }
}

/// Plays a scenario to its end on `clock`, whatever that shows. Steps name its readings
/// themselves; all other instants in the report are its readings too, and the window oracles judge
/// by them, as the limits do.
#[must_use]
pub fn run_on(scenario: &Scenario, clock: &VirtualClock) -> Report {
    run_with(scenario, clock, fresh_limits(scenario))
}

/// Plays a scenario to its end with another form of its limits, which must be fresh: the suite that
/// every engine has to pass.
#[must_use]
pub fn run_with(scenario: &Scenario, clock: &VirtualClock, limits: impl Subject) -> Report {
    let mut world = World::new(scenario, clock, limits);
    world.play();
    let steps = std::mem::take(&mut world.steps.reports);
    judge::report(scenario, world.finished(), steps)
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Step,
    Arrival {
        table: usize,
    },
    /// A thread begins, or has done an operation's work.
    Ready {
        thread: usize,
    },
    Wake {
        thread: usize,
    },
    /// A waiting arrival starts.
    Start {
        operation: usize,
    },
}

struct Thread<'s> {
    caller: &'s Caller,
    /// Operations begun or given up.
    begun: u64,
    /// Whether an operation's work is being done.
    working: bool,
    /// What it sleeps for.
    grant: Option<Grant>,
    /// When it asked for what it waits for.
    asked_ns: u64,
}

/// Who stands in line for permits that time alone does not bring back.
#[derive(Clone, Copy, Debug)]
enum Waiter {
    Thread(usize),
    Arrival(usize),
}

struct World<'s, L> {
    scenario: &'s Scenario,
    clock: &'s VirtualClock,
    limits: L,
    /// True time, on the scale of the clock's first reading.
    true_ns: u64,
    /// What the clock shows.
    now_ns: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    caused: u64,
    threads: Vec<Thread<'s>>,
    arrivals: Vec<Instants>,
    steps: Steps<'s>,
    waiting: VecDeque<Waiter>,
    sleeps: usize,
    /// Only the pacer lets a caller through that woke early.
    carries_early_wakes: bool,
    happened: Happened,
}

/// What has happened, in absolute instants.
#[derive(Default)]
pub(crate) struct Happened {
    pub(crate) end_ns: u64,
    pub(crate) tape: Tape,
    pub(crate) operations: Vec<Operation>,
    pub(crate) sleeps: Vec<Sleep>,
    pub(crate) grants: Vec<(u64, u64)>,
}

impl<'s, L: Subject> World<'s, L> {
    fn new(scenario: &'s Scenario, clock: &'s VirtualClock, limits: L) -> Self {
        let start_ns = scenario.clock_start_ns;
        let threads = scenario.callers.iter().flat_map(|caller| {
            (0..caller.threads).map(move |_| Thread {
                caller,
                begun: 0,
                working: false,
                grant: None,
                asked_ns: 0,
            })
        });
        let arrivals = scenario.arrivals.iter();
        let mut world = Self {
            scenario,
            clock,
            limits,
            true_ns: start_ns,
            now_ns: start_ns,
            events: BinaryHeap::new(),
            caused: 0,
            threads: threads.collect(),
            arrivals: arrivals.map(|arrivals| Instants::new(arrivals, start_ns)).collect(),
            steps: Steps::new(scenario),
            waiting: VecDeque::new(),
            sleeps: 0,
            carries_early_wakes: scenario
                .limits
                .iter()
                .all(|limit| matches!(limit, AnyPolicy::Pacer(_))),
            happened: Happened { end_ns: start_ns, ..Happened::default() },
        };
        world.cause_step();
        for table in 0..world.arrivals.len() {
            world.cause_arrival(table);
        }
        for thread in 0..world.threads.len() {
            let begin_ns = world.threads.get(thread).map_or(0, |thread| thread.caller.start_ns);
            world.cause(start_ns.saturating_add(begin_ns), Event::Ready { thread });
        }
        world
    }

    fn play(&mut self) {
        while let Some(Reverse((at_ns, _, event))) = self.events.pop() {
            self.true_ns = self.true_ns.max(at_ns);
            let since_ns = self.true_ns.saturating_sub(self.scenario.clock_start_ns);
            self.now_ns = self.clock.reading_ns(since_ns);
            self.happened.end_ns = self.happened.end_ns.max(self.now_ns);
            match event {
                Event::Step => self.step(),
                Event::Arrival { table } => self.arrive(table),
                Event::Ready { thread } => self.ready(thread),
                Event::Wake { thread } => self.wake(thread),
                Event::Start { operation } => self.start_arrival(operation),
            }
        }
    }

    /// What is still waiting when nothing happens any more waits for ever: it counts as denied.
    fn finished(mut self) -> Happened {
        while let Some(waiter) = self.waiting.pop_front() {
            // An arrival counts as denied until it is granted.
            if let Waiter::Thread(thread) = waiter {
                self.give_up(thread, Outcome::Denied);
            }
        }
        self.happened
    }

    fn cause(&mut self, at_ns: u64, event: Event) {
        self.caused = self.caused.saturating_add(1);
        self.events.push(Reverse((at_ns, self.caused, event)));
    }

    /// For about when the clock will show `reading_ns`; on a true clock, exactly then. A wrong one
    /// is looked at every microsecond at the most.
    fn cause_at_reading(&mut self, reading_ns: u64, event: Event) {
        let ahead_ns = reading_ns.saturating_sub(self.now_ns);
        let ahead_ns = if self.true_ns == self.now_ns { ahead_ns } else { ahead_ns.max(1_000) };
        self.cause(self.true_ns.saturating_add(ahead_ns), event);
    }

    fn cause_step(&mut self) {
        if let Some(at_ns) = self.steps.next_at_ns() {
            // A reading that goes backwards comes after the one before it all the same.
            self.cause(at_ns.max(self.true_ns), Event::Step);
        }
    }

    fn cause_arrival(&mut self, table: usize) {
        if let Some(at_ns) = self.arrivals.get_mut(table).and_then(Iterator::next) {
            self.cause(at_ns, Event::Arrival { table });
        }
    }

    fn step(&mut self) {
        let opened_up = self.steps.carry_out(&mut self.limits, &mut self.happened.grants);
        self.cause_step();
        if opened_up {
            self.serve_waiting();
        }
    }

    fn arrive(&mut self, table: usize) {
        self.cause_arrival(table);
        let Some(arrivals) = self.scenario.arrivals.get(table) else { return };
        let caller = self.threads.len().saturating_add(table);
        let operation = self.happened.operations.len();
        self.happened.operations.push(Operation {
            caller: u64::try_from(caller).unwrap_or(u64::MAX),
            arrival_ns: self.now_ns,
            scheduled_ns: None,
            start_ns: None,
            end_ns: None,
            permits: arrivals.permits,
            outcome: Outcome::Denied,
        });
        if arrivals.waits {
            if self.waiting.is_empty() && self.try_arrival(operation) {
                return;
            }
            self.waiting.push_back(Waiter::Arrival(operation));
        } else {
            let verdict = self.limits.try_acquire(self.now_ns, arrivals.permits);
            match verdict {
                Ok(Verdict::Granted(grant)) => self.promise_arrival(operation, grant),
                Ok(Verdict::Denied(_)) => {}
                Err(_) => self.end_arrival(operation, Outcome::Never),
            }
        }
    }

    /// Whether the arrival need not stand in line.
    fn try_arrival(&mut self, operation: usize) -> bool {
        let Some(asked) = self.happened.operations.get(operation) else { return true };
        match self.limits.reserve(self.now_ns, asked.permits, None) {
            Ok(Verdict::Granted(grant)) => self.promise_arrival(operation, grant),
            Ok(Verdict::Denied(denial)) if denial.retry_after_ns.is_none() => return false,
            Ok(Verdict::Denied(_)) => {}
            Err(_) => self.end_arrival(operation, Outcome::Never),
        }
        true
    }

    fn promise_arrival(&mut self, index: usize, grant: Grant) {
        if let Some(operation) = self.happened.operations.get_mut(index) {
            operation.scheduled_ns = Some(grant.scheduled_ns);
            operation.start_ns = Some(grant.start_ns);
            operation.end_ns = Some(grant.start_ns);
            operation.outcome = Outcome::Granted;
            self.happened.grants.push((grant.start_ns, operation.permits));
            self.cause_at_reading(grant.start_ns, Event::Start { operation: index });
        }
    }

    fn end_arrival(&mut self, operation: usize, outcome: Outcome) {
        if let Some(operation) = self.happened.operations.get_mut(operation) {
            operation.outcome = outcome;
        }
    }

    fn start_arrival(&mut self, operation: usize) {
        let start_ns = self.happened.operations.get(operation).and_then(|done| done.start_ns);
        if start_ns.is_some_and(|start_ns| start_ns > self.now_ns) {
            self.cause_at_reading(start_ns.unwrap_or(0), Event::Start { operation });
            return;
        }
        self.happened.tape.operation();
        // An arrival takes no time, so whatever it held is free again.
        let permits = self.happened.operations.get(operation).map_or(0, |done| done.permits);
        self.release(permits);
    }

    fn release(&mut self, permits: u64) {
        if permits > 0 && self.limits.release(self.now_ns, permits) {
            self.serve_waiting();
        }
    }

    fn serve_waiting(&mut self) {
        while let Some(&waiter) = self.waiting.front() {
            let served = match waiter {
                Waiter::Thread(thread) => self.try_thread(thread),
                Waiter::Arrival(operation) => self.try_arrival(operation),
            };
            if !served {
                return;
            }
            self.waiting.pop_front();
        }
    }

    /// A thread begins, or has done its work.
    fn ready(&mut self, index: usize) {
        let Some(thread) = self.threads.get_mut(index) else { return };
        let caller = thread.caller;
        let worked = std::mem::take(&mut thread.working);
        let (begun, more) = (thread.begun, thread.begun < caller.operations);
        if worked {
            self.release(caller.permits);
        }
        match caller.gate {
            Gate::Before if more => self.ask(index),
            // The first operation of a thread that asks afterwards has nothing before it.
            Gate::After if worked || begun > 0 => self.ask(index),
            Gate::After if more => {
                let now_ns = self.now_ns;
                self.begin(index, now_ns, now_ns);
            }
            Gate::Before | Gate::After => {}
        }
    }

    fn ask(&mut self, index: usize) {
        if let Some(thread) = self.threads.get_mut(index) {
            thread.asked_ns = self.now_ns;
        }
        if !self.waiting.is_empty() || !self.try_thread(index) {
            self.waiting.push_back(Waiter::Thread(index));
        }
    }

    /// Whether the thread need not stand in line.
    fn try_thread(&mut self, index: usize) -> bool {
        let Some(thread) = self.threads.get_mut(index) else { return true };
        match self.limits.reserve(self.now_ns, thread.caller.permits, None) {
            Ok(Verdict::Granted(grant)) => {
                thread.grant = Some(grant);
                if grant.start_ns <= self.now_ns { self.pass(index) } else { self.sleep(index) }
            }
            Ok(Verdict::Denied(denial)) if denial.retry_after_ns.is_none() => return false,
            Ok(Verdict::Denied(_)) => self.refused(index, Outcome::Denied),
            Err(_) => self.refused(index, Outcome::Never),
        }
        true
    }

    fn sleep(&mut self, index: usize) {
        let Some(grant) = self.threads.get(index).and_then(|thread| thread.grant) else { return };
        let asked_ns = grant.start_ns.saturating_sub(self.now_ns);
        let errors = &self.scenario.sleep_error_ns;
        let error_ns = self.sleeps.checked_rem(errors.len()).and_then(|which| errors.get(which));
        self.sleeps = self.sleeps.saturating_add(1);
        let slept_ns = i128::from(asked_ns).saturating_add(error_ns.copied().unwrap_or(0)).max(0);
        let slept_ns = u64::try_from(slept_ns).unwrap_or(u64::MAX);
        self.happened.sleeps.push(Sleep {
            caller: u64::try_from(index).unwrap_or(u64::MAX),
            at_ns: self.now_ns,
            asked_ns,
            slept_ns,
        });
        self.happened.tape.sleep(slept_ns);
        // A sleep that takes no time at all would be repeated for ever; such a caller spins.
        let spins = slept_ns == 0 && !self.carries_early_wakes;
        let wake = Event::Wake { thread: index };
        let until_ns = if spins { grant.start_ns } else { self.now_ns.saturating_add(slept_ns) };
        self.cause_at_reading(until_ns, wake);
    }

    fn wake(&mut self, index: usize) {
        let Some(grant) = self.threads.get(index).and_then(|thread| thread.grant) else { return };
        if self.now_ns >= grant.start_ns {
            self.pass(index);
        } else if self.carries_early_wakes {
            self.limits.start_early(self.now_ns, grant.ticket);
            self.pass(index);
        } else {
            self.sleep(index);
        }
    }

    /// A thread has got through the gate.
    fn pass(&mut self, index: usize) {
        let Some(thread) = self.threads.get_mut(index) else { return };
        let Some(grant) = thread.grant.take() else { return };
        let (asked_ns, caller) = (thread.asked_ns, thread.caller);
        let more = thread.begun < caller.operations;
        // Granted for that instant; a pacer's early riser starts at once.
        let granted_ns = grant.start_ns.min(self.now_ns);
        self.happened.grants.push((granted_ns, caller.permits));
        // Behind its last operation a caller asks too, and has nothing more to do.
        if more {
            self.begin(index, asked_ns, grant.scheduled_ns);
        }
    }

    fn begin(&mut self, index: usize, arrival_ns: u64, scheduled_ns: u64) {
        let Some(thread) = self.threads.get_mut(index) else { return };
        let latencies = &thread.caller.latency_ns;
        let cycle = u64::try_from(latencies.len()).unwrap_or(1);
        let which = usize::try_from(thread.begun.checked_rem(cycle).unwrap_or(0)).unwrap_or(0);
        let latency_ns = latencies.get(which).copied().unwrap_or(0);
        let end_ns = self.now_ns.saturating_add(latency_ns);
        thread.begun = thread.begun.saturating_add(1);
        thread.working = true;
        let permits = thread.caller.permits;
        self.happened.tape.operation();
        self.happened.operations.push(Operation {
            caller: u64::try_from(index).unwrap_or(u64::MAX),
            arrival_ns,
            scheduled_ns: Some(scheduled_ns),
            start_ns: Some(self.now_ns),
            end_ns: Some(end_ns),
            permits,
            outcome: Outcome::Granted,
        });
        self.cause(self.true_ns.saturating_add(latency_ns), Event::Ready { thread: index });
    }

    fn refused(&mut self, index: usize, outcome: Outcome) {
        self.give_up(index, outcome);
        // The next operation may ask at once; it is one fewer.
        let more =
            self.threads.get(index).is_some_and(|thread| thread.begun < thread.caller.operations);
        if more {
            self.cause(self.true_ns, Event::Ready { thread: index });
        }
    }

    fn give_up(&mut self, index: usize, outcome: Outcome) {
        let Some(thread) = self.threads.get_mut(index) else { return };
        if thread.begun >= thread.caller.operations {
            return;
        }
        thread.begun = thread.begun.saturating_add(1);
        let operation = Operation {
            caller: u64::try_from(index).unwrap_or(u64::MAX),
            arrival_ns: thread.asked_ns,
            scheduled_ns: None,
            start_ns: None,
            end_ns: None,
            permits: thread.caller.permits,
            outcome,
        };
        self.happened.operations.push(operation);
    }
}

/// The limits as the run finds them. Where callers wait after their operations, a pacer's first
/// permit is the first operation's.
fn fresh_limits(scenario: &Scenario) -> AllOf {
    let start_ns = scenario.clock_start_ns;
    let after = scenario.callers.iter().any(|caller| caller.gate == Gate::After);
    let limits = scenario.limits.iter().map(|limit| {
        let state = match limit {
            AnyPolicy::Pacer(pacer) if after => AnyState::Pacer(pacer.fresh_after(start_ns)),
            _ => limit.fresh(start_ns),
        };
        Ledger::with_state(*limit, state, start_ns)
    });
    AllOf::of(limits.collect(), start_ns)
}
