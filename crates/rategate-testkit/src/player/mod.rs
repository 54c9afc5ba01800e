//! Scenario files, played on real limiters.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use rategate_core::error::CountsInFlight;

use crate::report::{Outcome, Report, StepReport};
use crate::scenario::{Call, Ns, Scenario, Step};
use crate::world;
use rategate::charge::Hold;
use rategate::error::ChargeError;
use rategate::wait::AsyncReservation;
use rategate::{AcquireError, AsyncLimiter, Clock, Decision, Grant, Limiter, ManualClock};

use crate::named::{Granted, Held};
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
pub fn play(
    about: &str,
    scenario: &Scenario,
    make: impl FnOnce(ManualClock) -> Limiter<ManualClock>,
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
fn played(
    about: &str,
    scenario: &Scenario,
    make: impl FnOnce(ManualClock) -> Limiter<ManualClock>,
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
        reserved: BTreeMap::new(),
        given: Granted::default(),
        held: Held::default(),
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
        run.step(step);
    }
    for end_ns in ends {
        run.pass_to(start_ns.saturating_add(end_ns));
    }
    for (step, (seen, ideal)) in run.step_result.iter().zip(&report.steps).enumerate() {
        let number = step + 1;
        let call = &scenario.steps[step].call;
        let ideal = StepReport::ideal(ideal, call, start_ns).woken_at_once();
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

type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Won, AcquireError>> + 'a>>;

/// What a wait ends in.
enum Won {
    Grant(Grant),
    /// An estimate, held from this instant on.
    Hold(Hold<ManualClock>, u64),
}

struct Run<'a> {
    /// The scenario's name, for failure messages.
    about: &'a str,
    /// The handles, one for each class.
    limiters: &'a [AsyncLimiter<ManualClock>],
    steps: &'a [Step],
    clock: &'a ManualClock,
    woken_steps: Arc<Mutex<Vec<usize>>>,
    waits: BTreeMap<usize, Waiting<'a>>,
    /// The reservations that are neither cancelled nor used. A drop would cancel one.
    reserved: BTreeMap<usize, AsyncReservation<ManualClock>>,
    given: Granted<Grant>,
    /// None is dropped before the end, since that would cancel it.
    held: Held<Hold<ManualClock>>,
    step_result: Vec<StepReport>,
    events: Vec<Event>,
}

impl<'a> Run<'a> {
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
            let step_result = self.ended(step, ended);
            self.step_result[step] =
                StepReport { remaining: self.step_result[step].remaining, ..step_result };
        }
    }

    fn poll(&self, step: usize, waiting: &mut Waiting<'a>) -> Poll<Result<Won, AcquireError>> {
        let waker = Waker::from(Arc::new(RecordingWaker {
            step,
            woken_steps: Arc::clone(&self.woken_steps),
        }));
        waiting.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn ended(&mut self, step: usize, ended: Result<Won, AcquireError>) -> StepReport {
        let step_result = match ended {
            Ok(Won::Grant(grant)) => {
                self.given.add(step, grant, grant.permits());
                StepReport::granted_by_limiter(&grant)
            }
            Ok(Won::Hold(hold, start_ns)) => {
                self.held.add(step, Some(hold));
                StepReport { start_ns: Some(start_ns), ..StepReport::only(Outcome::Granted) }
            }
            Err(error) => StepReport::failed(&error),
        };
        StepReport { ended_ns: Some(self.clock.now_ns()), ..step_result }
    }

    fn step(&mut self, call: &Step) {
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
            if matches!(call.call, Call::Peek { .. }) { before } else { after };
    }

    fn call(&mut self, step: &Step) -> StepReport {
        let (first, own) = (&self.limiters[0], self.step_result.len());
        let limiter = first.limiter();
        match &step.call {
            Call::Try { permits } => match first.try_acquire(*permits) {
                Ok(Decision::Granted(grant)) => {
                    self.given.add(own, grant, grant.permits());
                    StepReport::granted_by_limiter(&grant)
                }
                Ok(Decision::Denied(denial)) => StepReport::denied_for(denial.retry_after()),
                Err(error) => StepReport::never(&error),
            },
            Call::Peek { permits } => match limiter.peek(*permits) {
                Ok(wait) => {
                    let wait = wait.filter(|wait| !wait.is_zero());
                    StepReport { outcome: Outcome::Peeked, ..StepReport::denied_for(wait) }
                }
                Err(error) => StepReport::never(&error),
            },
            Call::Reserve { permits, max_wait } => {
                let reserved = match max_wait {
                    None => first.reserve(*permits),
                    Some(Ns(ns)) => first.reserve_within(*permits, Duration::from_nanos(*ns)),
                };
                match reserved {
                    Err(error) => StepReport::failed(&error),
                    Ok(reservation) => {
                        let start_ns = Some(ns(reservation.promised_at()));
                        self.reserved.insert(own, reservation);
                        StepReport { start_ns, ..StepReport::only(Outcome::Granted) }
                    }
                }
            }
            Call::Wait { permits, max_wait, class, ttl } => {
                let (limiter, permits) = (&self.limiters[class.index()], *permits);
                let [ttl, max_wait] =
                    [ttl, max_wait].map(|it| it.map(|Ns(ns)| Duration::from_nanos(ns)));
                let mut waiting: Waiting<'a> = Box::pin(async move {
                    match (ttl, max_wait) {
                        (Some(ttl), _) => {
                            let hold = limiter.hold(permits, ttl).await?;
                            let start_ns = ns(hold.ends_at().saturating_sub(ttl));
                            Ok(Won::Hold(hold, start_ns))
                        }
                        (None, None) => limiter.acquire(permits).await.map(Won::Grant),
                        (None, Some(max_wait)) => {
                            limiter.acquire_within(permits, max_wait).await.map(Won::Grant)
                        }
                    }
                });
                if let Poll::Ready(ended) = self.poll(own, &mut waiting) {
                    return self.ended(own, ended);
                }
                self.waits.insert(own, waiting);
                StepReport::only(Outcome::Waiting)
            }
            Call::Leave {} => self.leave(step.of),
            Call::Set { limits } => {
                limiter.reconfigure(limits.as_slice()).unwrap();
                StepReport::only(Outcome::Set)
            }
            Call::Refill { permits } => {
                limiter.refill(*permits).unwrap();
                StepReport::only(Outcome::Set)
            }
            Call::Release { permits } => {
                limiter.release(*permits).unwrap();
                StepReport::only(Outcome::Set)
            }
            _ => self.correct(step),
        }
    }

    /// Carries out a call that corrects what was granted, or holds permits and ends them.
    fn correct(&mut self, step: &Step) -> StepReport {
        let (limiter, own, of) = (self.limiters[0].limiter(), self.step_result.len(), step.of);
        if matches!(step.call, Call::End { .. })
            && let Some(reservation) = self.reserved.remove(&of)
        {
            // An end uses the reservation up.
            let grant = reservation.keep();
            self.given.add(of, grant, grant.permits());
        }
        match &step.call {
            Call::End { outcome: ending } => {
                let (_, outcome) = self.given.end(of, |one| {
                    limiter.release_with_outcome(&one.grant, *ending).unwrap();
                });
                StepReport::only(outcome)
            }
            Call::Hold { permits, ttl: Ns(ttl_ns) } => {
                let ttl = Duration::from_nanos(*ttl_ns);
                let (answer, hold) = match limiter.try_hold(*permits, ttl) {
                    Ok(Ok(hold)) => (StepReport::held(ns(hold.ends_at()) - ttl_ns), Some(hold)),
                    Ok(Err(denial)) => (StepReport::denied_for(denial.retry_after()), None),
                    Err(error) => (StepReport::never(&error), None),
                };
                self.held.add(own, hold);
                answer
            }
            Call::Commit { actual } => {
                let committed = self.held.take(of).map(|hold| hold.commit(*actual).unwrap());
                committed.map_or_else(StepReport::only, StepReport::committed)
            }
            Call::Cancel {} if self.steps[of].call.holds() => {
                StepReport::only(match self.held.take(of) {
                    // A drop does not report whether it came in time.
                    Ok(hold) if self.clock.now_ns() < ns(hold.ends_at()) => Outcome::Cancelled,
                    Ok(_) => Outcome::TooLate,
                    Err(outcome) => outcome,
                })
            }
            Call::Cancel {} => {
                let reserved = self.reserved.remove(&of);
                let in_time = reserved.is_some_and(AsyncReservation::cancel);
                StepReport::only(if in_time { Outcome::Cancelled } else { Outcome::TooLate })
            }
            Call::Charge { permits } => match limiter.charge(*permits) {
                Ok(charged) => StepReport::charge(Ok(charged)),
                Err(ChargeError::CountsInFlight) => StepReport::charge(Err(CountsInFlight)),
                Err(error) => panic!("{error}"),
            },
            other => unreachable!("{other:?} corrects nothing"),
        }
    }

    fn leave(&mut self, step: usize) -> StepReport {
        // Dropping a future withdraws the wait.
        if self.waits.remove(&step).is_none() {
            return StepReport::only(Outcome::TooLate);
        }
        self.step_result[step].outcome = Outcome::Left;
        self.step_result[step].ended_ns = Some(self.clock.now_ns());
        StepReport::only(Outcome::Left)
    }
}
