//! A world with a virtual clock, in which a scenario is played.
//!
//! Everything that happens is an event at an instant. Events at the same instant happen in the
//! order in which they were caused. No thread really waits and nothing is left to chance: the
//! same scenario gives the same report, byte for byte.
//!
//! A sleeping caller wakes with the clock's programmed error. One that wakes early sleeps again,
//! as every real waiter here does; only the pacer carries the error into its next sleep.
//!
//! On a clock that is wrong, sleeps take true time, and limits and callers go by its reading.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rategate_core::any_policy::{AnyPolicy, Member};
use rategate_core::ledger::Ledger;
use rategate_core::members::Members;
use rategate_core::policy::Ending;
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::verdict::{Grant, Verdict};

use self::callers::Thread;
use crate::arrivals::Instants;
use crate::clock::VirtualClock;
use crate::judge::{self, Happened};
use crate::report::{Operation, Outcome, Report};
use crate::scenario::{CallMode, Gate, Ns, Scenario};
use crate::steps::Steps;
use crate::wait_queue::{QueuedLimits, Requester, Waiter};

mod callers;
mod queued;

/// Plays a scenario to its end, on the exact clock that it names.
#[must_use]
pub fn run(scenario: &Scenario) -> Report {
    run_on(scenario, &VirtualClock::new(scenario.clock_start_ns))
}

/// Plays a scenario to its end on `clock`, which may be wrong.
///
/// Steps name its readings themselves. All other instants in the report are its readings too, and
/// the window oracles judge by them, as the limits do.
#[must_use]
pub fn run_on(scenario: &Scenario, clock: &VirtualClock) -> Report {
    let mut world = World::new(scenario, clock, fresh_limits(scenario));
    world.play();
    let steps = std::mem::take(&mut world.steps.reports);
    judge::report(scenario, world.finished(), steps)
}

/// The next event of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Step,
    Arrival {
        table: usize,
    },
    /// A thread begins, or has finished the work of an operation.
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
    /// A start in the queue has come, or a deadline.
    Serve,
    /// A woken waiter comes to take its permits.
    Take {
        requester: Requester,
    },
}

struct World<'s> {
    scenario: &'s Scenario,
    clock: &'s VirtualClock,
    limits: QueuedLimits,
    /// True time, on the scale of the clock's first reading.
    true_ns: u64,
    /// The clock's reading.
    now_ns: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    caused: u64,
    threads: Vec<Thread<'s>>,
    arrivals: Vec<Instants>,
    steps: Steps<'s>,
    /// Reservations that time alone does not satisfy.
    waiting: VecDeque<Requester>,
    /// The instant of the next service of the queue, and the number of its event.
    armed: Option<(u64, u64)>,
    sleeps: usize,
    /// `true` if all limits are pacers, which alone let a caller through that woke early.
    carries_early_wakes: bool,
    happened: Happened,
}

impl<'s> World<'s> {
    fn new(scenario: &'s Scenario, clock: &'s VirtualClock, limits: Ledger) -> Self {
        let start_ns = scenario.clock_start_ns;
        let threads = scenario
            .callers
            .iter()
            .flat_map(|caller| (0..caller.threads).map(move |_| Thread::new(caller)));
        let arrivals = scenario.arrivals.iter();
        let mut world = Self {
            scenario,
            clock,
            limits: QueuedLimits::new(limits, scenario.queue, &scenario.classes, scenario.debt),
            true_ns: start_ns,
            now_ns: start_ns,
            events: BinaryHeap::new(),
            caused: 0,
            threads: threads.collect(),
            arrivals: arrivals.map(|arrivals| Instants::new(arrivals, start_ns)).collect(),
            steps: Steps::new(scenario),
            waiting: VecDeque::new(),
            armed: None,
            sleeps: 0,
            carries_early_wakes: scenario
                .limits
                .iter()
                .all(|limit| matches!(limit, AnyPolicy::TwoTimeline(pacer) if is_batched(pacer))),
            happened: Happened { end_ns: start_ns, ..Happened::default() },
        };
        world.cause_step();
        for table in 0..world.arrivals.len() {
            world.cause_arrival(table);
        }
        for thread in 0..world.threads.len() {
            let Ns(begin_ns) = world.threads[thread].caller.start;
            world.cause(start_ns.saturating_add(begin_ns), Event::Ready { thread });
        }
        world
    }

    fn play(&mut self) {
        while let Some(Reverse((at_ns, number, event))) = self.events.pop() {
            let is_stale = match event {
                // The queue has moved since.
                Event::Serve => self.armed.take_if(|armed| armed.1 == number).is_none(),
                Event::Wake { thread } => self.is_stale_wake(thread, number),
                _ => false,
            };
            if is_stale {
                continue;
            }
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
                Event::Serve => self.limits.serve(self.now_ns),
                Event::Take { requester } => self.take(requester),
            }
            self.notify_woken();
            self.arm();
        }
    }

    /// Ends all waits that nothing can end any more. Outside the queue they count as denied.
    fn finished(mut self) -> Happened {
        while let Some(waiter) = self.waiting.pop_front() {
            // An arrival counts as denied until it is granted.
            if let Requester::Thread(thread) = waiter {
                self.give_up(thread, Outcome::Denied);
            }
        }
        for waiter in self.limits.waiting() {
            if let Waiter::Requester(Requester::Thread(index)) = waiter {
                let waits = self.threads[index].caller.call == CallMode::Wait;
                self.give_up(index, if waits { Outcome::Waiting } else { Outcome::Denied });
            }
        }
        self.steps.end_holds(self.happened.end_ns, &mut self.happened.grants);
        self.happened
    }

    fn cause(&mut self, at_ns: u64, event: Event) {
        self.caused += 1;
        self.events.push(Reverse((at_ns, self.caused, event)));
    }

    /// Schedules an event for about the instant at which the clock will show `reading_ns`. On an
    /// exact clock the instant is exact; a wrong one is checked at intervals of at least a
    /// microsecond.
    fn cause_at_reading(&mut self, reading_ns: u64, event: Event) {
        let ahead_ns = reading_ns.saturating_sub(self.now_ns);
        let ahead_ns = if self.true_ns == self.now_ns { ahead_ns } else { ahead_ns.max(1_000) };
        self.cause(self.true_ns.saturating_add(ahead_ns), event);
    }

    fn cause_step(&mut self) {
        if let Some(at_ns) = self.steps.next_at_ns() {
            // A reading that goes backwards still comes after the one before it.
            self.cause(at_ns.max(self.true_ns), Event::Step);
        }
    }

    fn cause_arrival(&mut self, table: usize) {
        if let Some(at_ns) = self.arrivals[table].next() {
            self.cause(at_ns, Event::Arrival { table });
        }
    }

    fn step(&mut self) {
        if self.steps.serve_before(&mut self.limits) {
            self.notify_woken();
        }
        let opened_up = self.steps.carry_out(&mut self.limits, &mut self.happened.grants);
        self.cause_step();
        if opened_up {
            self.serve_waiting();
        }
    }

    fn arrive(&mut self, table: usize) {
        self.cause_arrival(table);
        let arrivals = &self.scenario.arrivals[table];
        let caller = self.threads.len() + table;
        let operation = self.happened.operations.len();
        let requested = requested(caller, self.now_ns, arrivals.permits, Outcome::Denied);
        self.happened.operations.push(requested);
        match arrivals.call {
            CallMode::Reserve | CallMode::Wait
                if arrivals.call == CallMode::Wait || self.limits.takes() =>
            {
                self.join_queue(Requester::Arrival(operation), arrivals.permits, arrivals.class);
            }
            CallMode::Reserve | CallMode::Wait => {
                if !self.waiting.is_empty() || !self.try_arrival(operation) {
                    self.waiting.push_back(Requester::Arrival(operation));
                }
            }
            CallMode::Try => match self.limits.try_acquire(self.now_ns, arrivals.permits) {
                Ok(Verdict::Granted(grant)) => self.promise_arrival(operation, grant),
                Ok(Verdict::Denied(_)) => {}
                Err(_) => self.end_arrival(operation, Outcome::Never),
            },
        }
    }

    /// Returns `true` if the arrival need not wait.
    fn try_arrival(&mut self, operation: usize) -> bool {
        let permits = self.happened.operations[operation].permits;
        match self.limits.reserve(self.now_ns, permits, None) {
            Ok(Verdict::Granted(grant)) => self.promise_arrival(operation, grant),
            Ok(Verdict::Denied(denial)) if denial.retry_after_ns.is_none() => return false,
            Ok(Verdict::Denied(_)) => {}
            Err(_) => self.end_arrival(operation, Outcome::Never),
        }
        true
    }

    fn promise_arrival(&mut self, index: usize, grant: Grant) {
        // A caller that takes starts now, whatever the grant says; others are promised an
        // instant.
        let start_ns =
            if self.limits.takes() { self.limits.clamp(self.now_ns) } else { grant.start_ns };
        let operation = &mut self.happened.operations[index];
        operation.scheduled_ns = Some(grant.scheduled_ns);
        operation.promised_ns = Some(grant.promised_ns);
        operation.start_ns = Some(start_ns);
        operation.end_ns = Some(start_ns);
        operation.outcome = Outcome::Granted;
        self.happened.grants.push((start_ns, operation.permits));
        self.cause_at_reading(start_ns, Event::Start { operation: index });
    }

    fn call_mode_of(&self, operation: usize) -> CallMode {
        let caller = self.happened.operations[operation].caller as usize;
        self.scenario.arrivals[caller - self.threads.len()].call
    }

    fn end_arrival(&mut self, operation: usize, outcome: Outcome) {
        self.happened.operations[operation].outcome = outcome;
    }

    fn start_arrival(&mut self, operation: usize) {
        let Operation { start_ns, permits, .. } = self.happened.operations[operation];
        if let Some(start_ns) = start_ns.filter(|&start_ns| start_ns > self.now_ns) {
            return self.cause_at_reading(start_ns, Event::Start { operation });
        }
        self.happened.tape.push('@');
        // An arrival takes no time, so what it held is free again.
        self.release(permits);
    }

    fn release(&mut self, permits: u64) {
        if permits > 0 && self.limits.end(self.now_ns, permits, Ending::Released) {
            self.serve_waiting();
        }
    }

    fn serve_waiting(&mut self) {
        while let Some(&waiter) = self.waiting.front() {
            let served = match waiter {
                Requester::Thread(thread) => self.try_thread(thread),
                Requester::Arrival(operation) => self.try_arrival(operation),
            };
            if !served {
                return;
            }
            self.waiting.pop_front();
        }
    }
}

/// Returns the operation of a request that has not started.
fn requested(caller: usize, arrival_ns: u64, permits: u64, outcome: Outcome) -> Operation {
    let caller = caller as u64;
    let (scheduled_ns, promised_ns, start_ns, end_ns) = (None, None, None, None);
    Operation { caller, arrival_ns, scheduled_ns, promised_ns, start_ns, end_ns, permits, outcome }
}

const fn is_batched(schedule: &TwoTimeline) -> bool {
    matches!(schedule.mode(), Mode::Batched { .. })
}

/// Returns the limits as the run finds them. Where callers wait after their operations, a pacer's
/// first permit is that of the first operation.
fn fresh_limits(scenario: &Scenario) -> Ledger {
    let start_ns = scenario.clock_start_ns;
    let after = scenario.callers.iter().any(|caller| caller.gate == Gate::After);
    let limits = scenario.limits.iter().map(|limit| match limit {
        AnyPolicy::TwoTimeline(pacer) if after && is_batched(pacer) => {
            Member::TwoTimeline((*pacer).into(), pacer.fresh_after(start_ns).into())
        }
        _ => Member::fresh(*limit, start_ns),
    });
    Ledger::with_state(limits.collect::<Members>(), start_ns)
}
