//! Random stories of a wait queue, on limits of several kinds.
//!
//! Waiters come, are late, leave, are never polled again or wait for a promise, next to tries and
//! reservations. No window of starts exceeds its bound, no waiter hangs, and no promise is later
//! than requested. In the end the limit is as if no caller had been there.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use crate::common::bounds::{Bound, bounds};
use crate::common::{bucket, log, ns, rate, window};
use fastrand::Rng;
use rategate_core::all_of::AllOf;
use rategate_core::concurrency::Concurrency;
use rategate_core::fair::ClassId;
use rategate_core::ledger::Ledger;
use rategate_core::line::{
    Joined, LeaveOutcome, Line, Outcome, QueueBounds, Request, WaiterId, Wakes, WhenFull,
};
use rategate_core::slow_start::SlowStart;
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::verdict::{Grant, Verdict};
use rategate_core::warm_up::WarmUp;
use rategate_testkit::oracle::Grants;

const SEEDS: u64 = 20;
/// An instant long after every story.
const END_NS: u64 = 200_000_000_000;

/// The kinds of calls in a story.
#[derive(Clone, Copy, Debug)]
struct Kinds {
    classes: bool,
    deadlines: bool,
    reservations: bool,
    stalled: bool,
    leavers: bool,
    tries: bool,
    evicts: bool,
    refunds: bool,
}

impl Kinds {
    fn of(bits: u32) -> Self {
        let has = |bit: u32| bits >> bit & 1 == 1;
        let [classes, deadlines, reservations, stalled] = [has(0), has(1), has(2), has(3)];
        let [leavers, tries, evicts, refunds] = [has(4), has(5), has(6), has(7)];
        Self { classes, deadlines, reservations, stalled, leavers, tries, evicts, refunds }
    }
}

/// How many callers come, five units of time apart, and how late a few of them are.
#[derive(Clone, Copy, Debug)]
struct Size {
    callers: usize,
    unit_ns: u64,
    most_late_ns: u64,
}

/// The size of a story in nanoseconds.
const SMALL: Size = Size { callers: 12, unit_ns: 1, most_late_ns: 29 };

/// An event of a story. Several at one instant happen in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wakes {
        caller: usize,
    },
    Ends {
        permits: u64,
        nth: usize,
    },
    Comes {
        nth: usize,
    },
    Leaves {
        caller: usize,
    },
    /// The timer that a stalled task's owner has set.
    Timer,
}

/// A caller in the queue.
struct Caller {
    waiter_id: Option<WaiterId>,
    permits: u64,
    is_stalled: bool,
    has_ended: bool,
}

/// The callers that have to be woken.
#[derive(Default)]
struct Woken(Vec<usize>);

impl Wakes<usize> for Woken {
    fn settled(&mut self, caller: usize) {
        self.0.push(caller);
    }

    fn moved(&mut self, caller: &usize) {
        self.0.push(*caller);
    }

    fn rejected(&mut self, _caller: usize) {}
}

struct History {
    random: Rng,
    line: Line<usize>,
    classes: Vec<ClassId>,
    kinds: Kinds,
    size: Size,
    /// `true` if operations have to end before their permits are free.
    counts_in_flight: bool,
    callers: Vec<Caller>,
    events: BTreeSet<(u64, Event)>,
    starts: Vec<(u64, u64)>,
    grants: Vec<Grant>,
    late: u32,
    rejoined: u32,
}

impl History {
    fn new(seed: u64, limit: Ledger, kinds: Kinds, size: Size) -> Self {
        let mut random = Rng::with_seed(seed);
        let mut bounds = QueueBounds::default();
        if kinds.evicts {
            bounds = QueueBounds::new(3).when_full(WhenFull::EvictNewest);
        }
        let counts_in_flight = limit.counts_in_flight();
        let mut line = Line::new(limit, bounds);
        line.set_grace(Some(size.most_late_ns + 21 * size.unit_ns));
        let mut classes = vec![ClassId::FIRST];
        if kinds.classes {
            let three = NonZeroU64::new(3).unwrap();
            classes.push(line.add_class(0, three, &mut Woken::default()).unwrap());
        }
        let Size { callers, unit_ns, .. } = size;
        let last_ns = 5 * u64::try_from(callers).unwrap() * unit_ns - 1;
        let comes = (0..callers).map(|nth| (random.u64(0..=last_ns), Event::Comes { nth }));
        let events = comes.collect();
        Self {
            random,
            line,
            classes,
            kinds,
            size,
            counts_in_flight,
            callers: Vec::new(),
            events,
            starts: Vec::new(),
            grants: Vec::new(),
            late: 0,
            rejoined: 0,
        }
    }

    fn play(&mut self) -> Result<(), String> {
        for _ in 0..20_000 {
            let Some((now_ns, event)) = self.events.pop_first() else { return self.judge() };
            let mut woken = Woken::default();
            self.line.serve(now_ns, &mut woken);
            self.happens(now_ns, event, &mut woken)?;
            if self.kinds.refunds
                && self.random.u64(..6) == 0
                && let Some(grant) = self.grants.pop()
            {
                self.line.change(now_ns, &mut woken, |limit, now_ns| {
                    limit.refund(now_ns, &grant, grant.permits)
                });
            }
            self.line.serve(now_ns, &mut woken);
            self.set_timer(now_ns);
            for caller in woken.0 {
                if self
                    .callers
                    .get(caller)
                    .is_some_and(|caller| !caller.has_ended && !caller.is_stalled)
                {
                    self.wake_late(now_ns, caller);
                }
            }
        }
        Err("it does not end".into())
    }

    /// Returns a random time of up to so many units.
    fn up_to(&mut self, units: u64) -> u64 {
        self.random.u64(0..=units * self.size.unit_ns)
    }

    fn happens(&mut self, now_ns: u64, event: Event, woken: &mut Woken) -> Result<(), String> {
        match event {
            Event::Comes { .. } => match self.random.u64(0..=9) {
                0 if self.kinds.tries => self.tries(now_ns, woken),
                1 | 2 if self.kinds.reservations => return self.reserves(now_ns, woken),
                _ => self.joins(now_ns, woken),
            },
            Event::Wakes { caller } if !self.callers[caller].has_ended => {
                return self.takes(now_ns, caller, woken);
            }
            Event::Ends { permits, .. } => {
                self.line.change(now_ns, woken, |limit, now_ns| limit.release(now_ns, permits));
            }
            Event::Leaves { caller } if !self.callers[caller].has_ended => {
                self.callers[caller].has_ended = true;
                let waiter_id = self.callers[caller].waiter_id.take().unwrap();
                let left = self.line.leave(now_ns, &waiter_id, woken);
                if let Some(LeaveOutcome::Settled(Outcome::Granted(grant))) = left {
                    self.starts.push((grant.start_ns, grant.permits));
                }
            }
            Event::Wakes { .. } | Event::Leaves { .. } | Event::Timer => {}
        }
        Ok(())
    }

    fn tries(&mut self, now_ns: u64, woken: &mut Woken) {
        let permits = self.random.u64(1..=2);
        let tried =
            self.line.behind_all(now_ns, woken, |limit, now_ns| limit.try_acquire(now_ns, permits));
        if let Some(Ok(Verdict::Granted(grant))) = tried {
            self.started(grant);
        }
    }

    fn reserves(&mut self, now_ns: u64, woken: &mut Woken) -> Result<(), String> {
        let permits = self.random.u64(1..=2);
        let max_wait_ns = (self.random.u64(..2) == 0).then(|| self.up_to(39));
        let reserved = self.line.reserve(now_ns, permits, max_wait_ns, woken);
        let Ok(Some(Verdict::Granted(grant))) = reserved else { return Ok(()) };
        if max_wait_ns.is_some_and(|max_wait_ns| grant.start_ns > now_ns + max_wait_ns) {
            return Err(format!("at {now_ns} within {max_wait_ns:?}: {grant:?}"));
        }
        let waits = self.random.u64(..2) == 0;
        let waiter_id = waits.then(|| self.line.wait_for_promise(now_ns, now_ns, &grant)).flatten();
        match waiter_id {
            None => {
                self.starts.push((grant.start_ns, permits));
                self.will_end(grant.start_ns, permits);
            }
            Some(waiter_id) => {
                let caller = self.stands(waiter_id, permits);
                if !self.callers[caller].is_stalled {
                    self.wake_late(grant.start_ns, caller);
                }
            }
        }
        Ok(())
    }

    fn joins(&mut self, now_ns: u64, woken: &mut Woken) {
        let permits = self.random.u64(1..=2);
        let has_deadline = self.kinds.deadlines && self.random.u64(..2) == 0;
        let max_wait_ns = has_deadline.then(|| self.up_to(59));
        let class = self.random.choice(&self.classes).copied().unwrap();
        let request = Request::of(permits).within(max_wait_ns).in_class(class);
        let next = self.callers.len();
        match self.line.join(now_ns, request, || next, woken) {
            Ok(Joined::Granted(grant)) => self.started(grant),
            Ok(Joined::Waits(waiter_id)) => {
                let caller = self.stands(waiter_id, permits);
                self.serves_itself(now_ns, caller, woken);
                if self.kinds.leavers
                    && !self.callers[caller].is_stalled
                    && self.random.u64(..4) == 0
                {
                    let leaves_ns = now_ns + self.up_to(39);
                    self.events.insert((leaves_ns, Event::Leaves { caller }));
                }
            }
            Err(_) => {}
        }
    }

    /// A waiter starts when it comes, and never before its promise or its schedule.
    fn takes(&mut self, now_ns: u64, caller: usize, woken: &mut Woken) -> Result<(), String> {
        let waiter_id = self.callers[caller].waiter_id.take().unwrap();
        let taken = self.line.take(now_ns, &waiter_id, || caller, woken);
        self.line.serve(now_ns, woken);
        self.callers[caller].waiter_id = Some(waiter_id);
        self.callers[caller].has_ended = taken.is_some();
        match taken {
            Some(Outcome::Granted(grant)) => {
                let Grant { start_ns, promised_ns, scheduled_ns, .. } = grant;
                if start_ns != now_ns || promised_ns > now_ns || scheduled_ns > now_ns {
                    return Err(format!("taken at {now_ns}: {grant:?}"));
                }
                self.late += u32::from(promised_ns < now_ns);
                self.started(grant);
            }
            Some(_) => {}
            None => {
                self.rejoined += 1;
                self.serves_itself(now_ns, caller, woken);
            }
        }
        Ok(())
    }

    fn stands(&mut self, waiter_id: WaiterId, permits: u64) -> usize {
        let is_stalled = self.kinds.stalled && self.random.u64(..5) == 0;
        self.callers.push(Caller {
            waiter_id: Some(waiter_id),
            permits,
            is_stalled,
            has_ended: false,
        });
        self.callers.len() - 1
    }

    /// Sleeps until the reported instant, as a thread does.
    fn serves_itself(&mut self, now_ns: u64, caller: usize, woken: &mut Woken) {
        let waiter_id = self.callers[caller].waiter_id.take().unwrap();
        let due_ns = self.line.due_ns(&waiter_id, woken);
        self.callers[caller].waiter_id = Some(waiter_id);
        if let Some(due_ns) = due_ns.filter(|_| !self.callers[caller].is_stalled) {
            self.wake_late(due_ns.max(now_ns), caller);
        }
    }

    /// Sets a timer by which the queue's owner serves it, for tasks that are never polled again.
    fn set_timer(&mut self, now_ns: u64) {
        let line = &mut self.line;
        let has_stalled = self.callers.iter().any(|caller| {
            let waiter_id = caller.waiter_id.as_ref().filter(|_| caller.is_stalled);
            waiter_id.is_some_and(|waiter_id| line.waiter_mut(waiter_id).is_some())
        });
        if has_stalled && let Some(next_ns) = self.line.next_ns(None) {
            self.events.insert((next_ns.max(now_ns + 1), Event::Timer));
        }
    }

    fn wake_late(&mut self, at_ns: u64, caller: usize) {
        let late_ns = match self.random.u64(0..=7) {
            0 => self.random.u64(0..=self.size.most_late_ns),
            1..=3 => 0,
            _ => self.up_to(3),
        };
        self.events.insert((at_ns + late_ns, Event::Wakes { caller }));
    }

    fn started(&mut self, grant: Grant) {
        self.starts.push((grant.start_ns, grant.permits));
        self.grants.push(grant);
        self.will_end(grant.start_ns, grant.permits);
    }

    fn will_end(&mut self, start_ns: u64, permits: u64) {
        if self.counts_in_flight {
            let (ends_ns, nth) = (start_ns + 1 + self.up_to(9), self.starts.len());
            self.events.insert((ends_ns, Event::Ends { permits, nth }));
        }
    }

    fn judge(&mut self) -> Result<(), String> {
        let is_waiting = |caller: &&Caller| !caller.has_ended && !caller.is_stalled;
        if let Some(caller) = self.callers.iter().find(is_waiting) {
            return Err(format!("a caller with {} permits hangs", caller.permits));
        }
        let mut woken = Woken::default();
        for caller in &mut self.callers {
            if let Some(waiter_id) = caller.waiter_id.take().filter(|_| !caller.has_ended) {
                self.line.leave(END_NS / 2, &waiter_id, &mut woken);
            }
        }
        self.line.serve(END_NS, &mut woken);
        if self.line.is_idle(END_NS) { Ok(()) } else { Err("not idle in the end".into()) }
    }

    /// Checks that at most `max` permits start within each window, unless any come back.
    fn judge_windows(&self, at_most: &[(u64, u64)]) -> Result<(), String> {
        let starts = Grants(self.starts.clone());
        for &(window_ns, max) in at_most {
            let (most, from) = starts.fullest_window(window_ns);
            if most > max && !self.kinds.refunds {
                return Err(format!("{most} in {window_ns} from {from:?}: {:?}", self.starts));
            }
        }
        Ok(())
    }

    /// Checks also that as many are free in the end.
    fn judge_window(&self, (window_ns, max): (u64, u64)) -> Result<(), String> {
        self.judge_windows(&[(window_ns, max)])?;
        let left = self.line.limit().remaining(END_NS);
        if left == max { Ok(()) } else { Err(format!("{left} of {max} in the end")) }
    }
}

/// All kinds of stories end well on each limit, and obey its window where it has one.
#[test]
fn stories_end_well_on_each_limit() {
    let pace = rate("1/7ns");
    let strict = TwoTimeline::new(pace, Mode::Strict, None);
    let warm_up = WarmUp::new(pace, ns(90)).unwrap();
    let slow_start = SlowStart::new(bucket("1/7ns", 2), ns(200)).unwrap();
    let limits: [(AllOf, Option<(u64, u64)>); 9] = [
        (log(3, 20).into(), Some((20, 3))),
        (bucket("1/7ns", 2).into(), Some((7, 2))),
        (window(3, 20).into(), None),
        (strict.into(), None),
        (warm_up.into(), None),
        (slow_start.into(), Some((7, 2))),
        (Concurrency::new(2).into(), None),
        (AllOf::default().and(bucket("1/5ns", 3)).and(log(3, 20)), Some((20, 3))),
        (AllOf::default().and(Concurrency::new(3)).and(log(3, 20)), None),
    ];
    for (limits, window) in limits {
        for bits in 0..256 {
            let kinds = Kinds::of(bits);
            for seed in 1..=SEEDS {
                let limit = Ledger::new(limits.clone(), 0);
                let mut story = History::new(seed + u64::from(bits) * SEEDS, limit, kinds, SMALL);
                let judged = story.play();
                let judged =
                    judged.and_then(|()| window.map_or(Ok(()), |at| story.judge_window(at)));
                let what = || format!("seed {seed}, {kinds:?}, {limits:?}");
                judged.unwrap_or_else(|fault| panic!("{fault}: {}", what()));
            }
        }
    }
}

/// However late each waiter is, real starts obey the bound (docs/theory.md, section 10).
///
/// That holds with tries, reservations that are kept, waiters that leave and waiters that never
/// come.
#[test]
fn real_starts_obey_the_bound_however_late_waiters_are() {
    let kinds = Kinds { reservations: true, stalled: true, ..Kinds::of(0) };
    let kinds = Kinds { leavers: true, tries: true, ..kinds };
    let (mut late, mut rejoined, mut stalled) = (0, 0, 0);
    for seed in 0..4_000 {
        let mut random = Rng::with_seed(seed);
        let Bound { policies, at_most } = bounds(&mut random);
        // As many come in a period of a log as it holds.
        let unit_ns = (at_most.last().unwrap().0 / 20).max(1);
        let most_late_ns = random.choice([1, 29, 80]).unwrap() * unit_ns;
        let size = Size { callers: 200, unit_ns, most_late_ns };
        let limit = Ledger::new(policies.as_slice(), 0);
        let mut story = History::new(seed, limit, kinds, size);
        let judged = story.play().and_then(|()| story.judge_windows(&at_most));
        judged.unwrap_or_else(|fault| panic!("{fault}: seed {seed}, {policies:?}"));
        assert!(story.starts.len() > 5, "seed {seed}: {}", story.starts.len());
        late += story.late;
        rejoined += story.rejoined;
        stalled += story.callers.iter().filter(|caller| caller.is_stalled).count();
    }
    assert!(late > 50_000 && rejoined > 500 && stalled > 5_000, "{late} {rejoined} {stalled}");
}
