//! Scenario files, played on real limiters.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use rategate_core::fair::ClassId;

use crate::report::{Outcome, Report};
use crate::scenario::{Call, Scenario, Step};
use crate::world;
use rategate::charge::Hold;
use rategate::error::ChargeError;
use rategate::policy::LimiterPolicy;
use rategate::wait::AsyncReservation;
use rategate::{
    AcquireError, AdaptiveConcurrency, AdaptiveRate, AllOf, AnyPolicy, AsyncLimiter, Clock,
    Decision, Gcra, Grant, Limiter, ManualClock, SlidingLog, TryAcquireError, TwoTimeline,
};

use crate::answer::Answer;
use crate::named::{NamedGrants, NamedHolds};
use crate::ns;
use step_result::GATHER_NS;

mod random;
mod step_result;
mod tape;

pub use random::random;
pub use tape::{LeftOut, tape};

/// Plays the steps of a scenario on a limiter, and compares each result with that of the simulated
/// world. `about` names the scenario in failure messages.
///
/// Each wait is a future, polled only when its waker is called. Scenarios with callers or arrivals
/// are for [`world::run`].
///
/// ```
/// use rategate::{Limiter, SlidingLog};
/// use rategate_testkit::player::play;
/// use rategate_testkit::scenario::Scenario;
/// use std::time::Duration;
///
/// let scenario = Scenario::parse(
///     r#"
///     [limit]
///     policy = "sliding-log"
///     permits = 2
///     period = "1s"
///
///     [[step]]
///     at = "0s"
///     call = "try"
///     permits = 2
///
///     [[step]]
///     at = "100ms"
///     call = "wait"
///     expect = { start = "1s" }
///     "#,
/// )?;
/// let log = SlidingLog::new(2, Duration::from_secs(1));
/// play("two and a wait", &scenario, |clock| Limiter::with_clock(log, clock));
/// # Ok::<(), rategate_testkit::scenario::ScenarioError>(())
/// ```
///
/// # Panics
///
/// Panics with the step whose result differs.
pub fn play<P: Subject>(
    about: &str,
    scenario: &Scenario,
    make: impl FnOnce(ManualClock) -> Limiter<P, ManualClock>,
) {
    played(about, scenario, make);
}

/// An event of a scenario on a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The clock moved to this instant.
    Clock(u64),
    /// The waiters that were due took their permits.
    Serve,
    /// The step with this index was called.
    Step(usize),
    /// The wait of this step ended.
    End(usize),
    /// The limiter was closed, when all steps had been called and all ends had come.
    Close,
}

/// Plays a scenario. Returns the report of the world and the events on the limiter, in order.
fn played<P: Subject>(
    about: &str,
    scenario: &Scenario,
    make: impl FnOnce(ManualClock) -> Limiter<P, ManualClock>,
) -> (Report, Vec<Event>) {
    let report = world::run(scenario);
    let start_ns = scenario.clock_start_ns;
    let clock = ManualClock::stepped();
    clock.set(Duration::from_nanos(start_ns));
    let limiter = make(clock.clone()).with_debt(scenario.debt);
    limiter.bound_queue(scenario.queue).unwrap();
    let classes = scenario.classes.iter().map(|class| limiter.class(class.weight.get()).unwrap());
    let handles = std::iter::once(limiter.clone()).chain(classes);
    let limiters: Vec<_> = handles.map(AsyncLimiter::from).collect();
    let mut run = Run {
        about,
        limiters: &limiters,
        steps: &scenario.steps,
        clock: &clock,
        woken_steps: Arc::default(),
        waits: BTreeMap::new(),
        named: BTreeMap::new(),
        reserved: BTreeMap::new(),
        given: NamedGrants::default(),
        held: NamedHolds::default(),
        step_result: Vec::new(),
        events: Vec::new(),
    };
    // The clock stops just before each end of a wait in the world, at the end, and at the latest
    // instant of its wake-up.
    let ends = report.steps.iter().filter_map(|step| step.ended_ns);
    let mut ends: Vec<_> = ends
        .flat_map(|end_ns| [end_ns.saturating_sub(1), end_ns, end_ns.saturating_add(GATHER_NS)])
        .collect();
    ends.sort_unstable();
    ends.dedup();
    let mut ends = ends.into_iter().peekable();
    for step in &scenario.steps {
        while let Some(end_ns) = ends.next_if(|&end_ns| end_ns <= step.at_ns) {
            run.pass_to(start_ns.saturating_add(end_ns));
        }
        run.pass_to(start_ns.saturating_add(step.at_ns));
        run.step(&step.call);
    }
    for end_ns in ends {
        run.pass_to(start_ns.saturating_add(end_ns));
    }
    for (step, (seen, ideal)) in run.step_result.iter().zip(&report.steps).enumerate() {
        let number = step + 1;
        let ideal = Answer::ideal(ideal, start_ns).woken_at_once();
        assert_eq!(
            seen.clone().woken_at_once().ended_as_soon_as(&ideal),
            ideal,
            "{about}: step {number}: {:?}",
            scenario.steps[step]
        );
    }
    // A timer may still be set for a waiter that has left; it wakes no other.
    while clock.step().is_some() {
        assert!(run.woken_steps.lock().unwrap().is_empty(), "{about}");
    }
    run.close();
    (report, run.events)
}

/// A policy on which a scenario can be played.
pub trait Subject: LimiterPolicy<Limit: Send + 'static> + 'static {
    /// Gives the limiter the numbers of a step of the scenario that changes the limit.
    fn set(limiter: &Limiter<Self, ManualClock>, policies: &[AnyPolicy]);
}

impl Subject for AllOf {
    fn set(limiter: &Limiter<Self, ManualClock>, policies: &[AnyPolicy]) {
        limiter.reconfigure(Self::new(policies.iter().copied())).unwrap();
    }
}

macro_rules! subject {
    ($policy:ident) => {
        impl Subject for $policy {
            fn set(limiter: &Limiter<Self, ManualClock>, policies: &[AnyPolicy]) {
                let [AnyPolicy::$policy(policy)] = policies else { panic!("{policies:?}") };
                limiter.reconfigure(*policy).unwrap();
            }
        }
    };
}
subject!(Gcra);
subject!(SlidingLog);
subject!(TwoTimeline);
subject!(AdaptiveConcurrency);
subject!(AdaptiveRate);

/// A waker that appends its step to a list shared by all wakers.
struct RecordingWaker {
    step: usize,
    woken_steps: Arc<Mutex<Vec<usize>>>,
}

impl Wake for RecordingWaker {
    fn wake(self: Arc<Self>) {
        self.woken_steps.lock().unwrap().push(self.step);
    }
}

type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Grant, AcquireError>> + 'a>>;

struct Run<'a, P: LimiterPolicy> {
    /// The scenario's name, for failure messages.
    about: &'a str,
    /// The handles, one for each class.
    limiters: &'a [AsyncLimiter<P, ManualClock>],
    steps: &'a [Step],
    clock: &'a ManualClock,
    woken_steps: Arc<Mutex<Vec<usize>>>,
    waits: BTreeMap<usize, Waiting<'a>>,
    /// The newest wait of each name.
    named: BTreeMap<&'a str, usize>,
    reserved: BTreeMap<&'a str, (usize, AsyncReservation<P, ManualClock>)>,
    given: NamedGrants<'a, Grant>,
    /// None is dropped before the end, since that would cancel it.
    held: NamedHolds<'a, Hold<P, ManualClock>>,
    step_result: Vec<Answer>,
    events: Vec<Event>,
}

impl<'a, P: Subject> Run<'a, P> {
    /// Advances the clock to `until_ns`, and polls the woken waits in the order of their wake-ups.
    fn pass_to(&mut self, until_ns: u64) {
        let before_ns = self.clock.now_ns();
        let now_ns = until_ns.max(before_ns);
        self.clock.set(Duration::from_nanos(now_ns));
        if now_ns > before_ns || !self.woken_steps.lock().unwrap().is_empty() {
            self.events.push(Event::Clock(now_ns));
        }
        self.poll_woken();
    }

    /// Closes the limiter, which ends all waits that are left.
    fn close(&mut self) {
        self.events.push(Event::Close);
        self.limiters[0].close();
        for step in std::mem::take(&mut *self.woken_steps.lock().unwrap()) {
            let mut waiting = self.waits.remove(&step).unwrap();
            let closed = self.poll(step, &mut waiting);
            assert!(matches!(closed, Poll::Ready(Err(AcquireError::Closed))), "{}", self.about);
            self.events.push(Event::End(step));
        }
        assert!(
            self.waits.is_empty(),
            "{}: {:?} outlive the limiter",
            self.about,
            self.waits.keys()
        );
    }

    fn poll_woken(&mut self) {
        // A waiter that takes its permits may let the next one start.
        loop {
            let woken_steps = std::mem::take(&mut *self.woken_steps.lock().unwrap());
            if woken_steps.is_empty() {
                return;
            }
            self.poll_all(woken_steps);
        }
    }

    fn poll_all(&mut self, woken_steps: Vec<usize>) {
        for step in woken_steps {
            let about = self.about;
            let waiting = self.waits.remove(&step);
            let mut waiting = waiting.unwrap_or_else(|| panic!("{about}: {step} woken twice"));
            let Poll::Ready(ended) = self.poll(step, &mut waiting) else {
                panic!("{about}: {step} woken in vain")
            };
            self.events.push(Event::End(step));
            let step_result = self.ended(step, &ended);
            self.step_result[step] =
                Answer { remaining: self.step_result[step].remaining, ..step_result };
        }
    }

    fn poll(&self, step: usize, waiting: &mut Waiting<'a>) -> Poll<Result<Grant, AcquireError>> {
        let waker = Waker::from(Arc::new(RecordingWaker {
            step,
            woken_steps: Arc::clone(&self.woken_steps),
        }));
        waiting.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn ended(&mut self, step: usize, ended: &Result<Grant, AcquireError>) -> Answer {
        let step_result = match ended {
            Ok(grant) => {
                self.given.add(step, *grant, self.class_of(step), grant.permits());
                Answer::granted_by_limiter(grant)
            }
            Err(error) => Answer::failed(error),
        };
        Answer { ended_ns: Some(self.clock.now_ns()), ..step_result }
    }

    fn class_of(&self, step: usize) -> ClassId {
        match &self.steps[step].call {
            Call::Wait { class, .. } => *class,
            _ => ClassId::FIRST,
        }
    }

    fn step(&mut self, call: &'a Call) {
        let limiter = self.limiters[0].limiter();
        let before = limiter.remaining().unwrap();
        // Waiters that were due have taken their permits before anything else happens.
        if !self.woken_steps.lock().unwrap().is_empty() {
            self.events.push(Event::Serve);
            self.poll_woken();
        }
        let step = self.step_result.len();
        self.events.push(Event::Step(step));
        let step_result = self.call(call);
        self.step_result.push(step_result);
        // Waiters that this call makes due are woken by the call itself, not by a later one.
        self.poll_woken();
        let after = limiter.remaining().unwrap();
        assert!(self.woken_steps.lock().unwrap().is_empty(), "{}: {step} woke too few", self.about);
        self.step_result[step].remaining =
            if matches!(call, Call::Peek { .. }) { before } else { after };
    }

    fn call(&mut self, call: &'a Call) -> Answer {
        let (first, step) = (&self.limiters[0], self.step_result.len());
        let limiter = first.limiter();
        match call {
            Call::Try { permits, name } => {
                self.name(name.as_deref(), step);
                match first.try_acquire(*permits) {
                    Ok(Decision::Granted(grant)) => {
                        self.given.add(step, grant, ClassId::FIRST, grant.permits());
                        Answer::granted_by_limiter(&grant)
                    }
                    Ok(Decision::Denied(denial)) => Answer::denied_for(denial.retry_after()),
                    Err(TryAcquireError::ExceedsCapacity(_)) => Answer::only(Outcome::Never),
                    Err(error) => panic!("{error}"),
                }
            }
            Call::Peek { permits } => match limiter.peek(*permits) {
                Ok(wait) => {
                    let wait = wait.filter(|wait| !wait.is_zero());
                    Answer { outcome: Outcome::Peeked, ..Answer::denied_for(wait) }
                }
                Err(TryAcquireError::ExceedsCapacity(_)) => Answer::only(Outcome::Never),
                Err(error) => panic!("{error}"),
            },
            Call::Reserve { permits, name, max_wait_ns } => {
                let reserved = match max_wait_ns {
                    None => first.reserve(*permits),
                    Some(ns) => first.reserve_within(*permits, Duration::from_nanos(*ns)),
                };
                self.name(name.as_deref(), step);
                match (reserved, name) {
                    (Err(error), _) => Answer::failed(&error),
                    (Ok(reservation), name) => {
                        let start_ns = Some(ns(reservation.promised_at()));
                        match name {
                            Some(name) => drop(self.reserved.insert(name, (step, reservation))),
                            None => drop(reservation.keep()),
                        }
                        Answer { start_ns, ..Answer::only(Outcome::Granted) }
                    }
                }
            }
            Call::Cancel { name } => {
                let reserved = self.reserved.remove(name.as_str());
                let in_time = reserved.is_some_and(|(_, reservation)| reservation.cancel());
                Answer::only(if in_time { Outcome::Cancelled } else { Outcome::TooLate })
            }
            Call::Wait { permits, name, max_wait_ns, class } => {
                self.named.extend(name.as_deref().map(|name| (name, step)));
                self.name(name.as_deref(), step);
                let limiter = &self.limiters[class.index()];
                let mut waiting: Waiting<'a> = match max_wait_ns {
                    None => Box::pin(limiter.acquire(*permits)),
                    Some(ns) => {
                        Box::pin(limiter.acquire_within(*permits, Duration::from_nanos(*ns)))
                    }
                };
                if let Poll::Ready(ended) = self.poll(step, &mut waiting) {
                    return self.ended(step, &ended);
                }
                self.waits.insert(step, waiting);
                Answer::only(Outcome::Waiting)
            }
            Call::Leave { name } => self.leave(name),
            Call::Set { limits } => {
                P::set(limiter, limits);
                Answer::only(Outcome::Set)
            }
            Call::Refill { permits } => {
                limiter.refill(*permits).unwrap();
                Answer::only(Outcome::Set)
            }
            Call::Release { permits } => {
                limiter.release(*permits).unwrap();
                Answer::only(Outcome::Set)
            }
            _ => self.correct(call),
        }
    }

    /// Carries out a call that corrects what was granted, or holds permits and ends them.
    fn correct(&mut self, call: &'a Call) -> Answer {
        let limiter = self.limiters[0].limiter();
        match call {
            Call::End { name, ending } => {
                self.keep_reserved(name);
                let (_, outcome) = self.given.end(name, |one| {
                    let (limiter, grant) = (self.limiters[one.class.index()].limiter(), &one.grant);
                    limiter.release_with_outcome(grant, *ending).unwrap();
                });
                Answer::only(outcome)
            }
            Call::Settle { name, actual } => {
                self.keep_reserved(name);
                let settled = self.given.settle(name, |one| {
                    let limiter = self.limiters[one.class.index()].limiter();
                    match limiter.settle(&one.grant, *actual) {
                        Ok(settled) => Some(Answer::settled(Outcome::Settled, settled)),
                        Err(ChargeError::CountsInFlight) => None,
                        Err(error) => panic!("{error}"),
                    }
                });
                settled.unwrap_or_else(Answer::only)
            }
            Call::Refund { name, permits } => {
                self.keep_reserved(name);
                let back = self.given.refund(name, *permits, |one, permits| {
                    let limiter = self.limiters[one.class.index()].limiter();
                    limiter.refund(&one.grant, permits).unwrap()
                });
                back.map_or_else(Answer::only, Answer::refunded)
            }
            Call::Hold { permits, ttl_ns, name } => {
                let ttl = Duration::from_nanos(*ttl_ns);
                let (answer, hold) = match limiter.try_hold(*permits, ttl) {
                    Ok(Ok(hold)) => (Answer::held(ns(hold.ends_at()) - ttl_ns), Some(hold)),
                    Ok(Err(denial)) => (Answer::denied_for(denial.retry_after()), None),
                    Err(TryAcquireError::ExceedsCapacity(_)) => {
                        (Answer::only(Outcome::Never), None)
                    }
                    Err(error) => panic!("{error}"),
                };
                self.held.add(name.as_deref(), hold);
                answer
            }
            Call::Commit { name, actual } => {
                let committed = self.held.take(name).map(|hold| hold.commit(*actual).unwrap());
                committed.map_or_else(Answer::only, Answer::committed)
            }
            Call::CancelHold { name } => Answer::only(match self.held.take(name) {
                // A drop does not report whether it came in time.
                Ok(hold) if self.clock.now_ns() < ns(hold.ends_at()) => Outcome::Cancelled,
                Ok(_) => Outcome::TooLate,
                Err(outcome) => outcome,
            }),
            Call::Charge { permits } => match limiter.charge(*permits) {
                Ok(charged) => Answer::charged(Outcome::Charged, &charged),
                Err(ChargeError::CountsInFlight) => Answer::only(Outcome::NotForThisLimit),
                Err(error) => panic!("{error}"),
            },
            other => unreachable!("{other:?} corrects nothing"),
        }
    }

    fn leave(&mut self, name: &str) -> Answer {
        let step = self.named[name];
        // Dropping a future withdraws the wait.
        if self.waits.remove(&step).is_none() {
            return Answer::only(Outcome::TooLate);
        }
        self.step_result[step].outcome = Outcome::Left;
        self.step_result[step].ended_ns = Some(self.clock.now_ns());
        Answer::only(Outcome::Left)
    }

    fn name(&mut self, name: Option<&'a str>, step: usize) {
        if let Some(name) = name {
            self.given.name(name, step);
        }
    }

    /// Keeps the reservation of that name, if it is one, which a settlement or a refund uses up.
    fn keep_reserved(&mut self, name: &str) {
        let step = self.given.step(name);
        if self.reserved.get(name).is_some_and(|reserved| Some(reserved.0) == step)
            && let Some((step, reservation)) = self.reserved.remove(name)
        {
            let grant = reservation.keep();
            self.given.add(step, grant, ClassId::FIRST, grant.permits());
        }
    }
}
