//! Models of several limits: one cell with few slots, of which the model checker has three.
//!
//! The thread that changes more is the first thread, the last of a list. The checker starts from
//! the schedule in which that one runs first, and finds the others by loads that come too late to
//! see a change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use loom::sync::Mutex;
use loom::thread;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::concurrent::{Fast, LockFreeVerdict};
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::rate::Rate;
use rategate_core::verdict::{Denial, Grant, Verdict};

/// An action of a thread, at its own reading of the clock.
#[derive(Clone, Copy, Debug)]
enum Act {
    Try(u64, u64),
    Peek(u64),
    Remaining(u64),
    /// Seals the lock-free form and opens it again.
    LockedSection(u64),
    /// Changes the numbers.
    Change(u64, usize),
    /// Credits a permit.
    Credit(u64),
}

use Act::{Change, Credit, LockedSection, Peek, Remaining, Try};

/// The result of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Observed {
    Granted { start_ns: u64 },
    Denied { retry_ns: u64 },
    Wait { wait_ns: u64 },
    Left { permits: u64 },
    SectionDone,
    Back { permits: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Event {
    act: Act,
    /// `true` if the limits decided under their lock, which has advanced the clock.
    locked: bool,
    observed: Observed,
}

#[derive(Clone, Debug)]
struct Model {
    /// The policies; the first are in force at the start.
    policies: Vec<Vec<AnyPolicy>>,
    before: Vec<Act>,
    /// One list for each thread. The last is the first thread's own.
    threads: Vec<Vec<Act>>,
    /// The actions of one thread, after the others. The lock-free form must decide all of them.
    after: Vec<Act>,
    /// `true` if a try that finds the form sealed takes the lock; otherwise it is no event.
    falls_back: bool,
    preemptions: usize,
}

struct Shared {
    lock_free: Fast,
    limit: Mutex<Ledger>,
}

fn gcra(slice_ns: u64, burst: u64) -> AnyPolicy {
    Gcra::new(Rate::new(1, Duration::from_nanos(slice_ns)).unwrap(), burst).unwrap().into()
}

fn window(permits: u64, period_ns: u64) -> AnyPolicy {
    FixedWindow::new(permits, Duration::from_nanos(period_ns), Anchor::Epoch).into()
}

fn model(policies: &[&[AnyPolicy]], before: &[Act], threads: &[&[Act]]) -> Model {
    Model {
        policies: policies.iter().map(|policies| policies.to_vec()).collect(),
        before: before.to_vec(),
        threads: threads.iter().map(|acts| acts.to_vec()).collect(),
        after: Vec::new(),
        falls_back: false,
        preemptions: 2,
    }
}

/// The instant at which the limit is first used.
const START_NS: u64 = 100;

impl Shared {
    fn play(&self, model: &Model, acts: &[Act]) -> Vec<Event> {
        acts.iter().filter_map(|&act| self.act(model, act)).collect()
    }

    fn act(&self, model: &Model, act: Act) -> Option<Event> {
        let by_lock_free = match act {
            Try(at_ns, permits) => self.tried(at_ns, permits),
            Peek(at_ns) => self.lock_free.peek(at_ns, 1).map(|wait_ns| Observed::Wait { wait_ns }),
            Remaining(at_ns) => {
                self.lock_free.remaining(at_ns).map(|permits| Observed::Left { permits })
            }
            LockedSection(_) | Change(..) | Credit(_) => None,
        };
        if let Some(observed) = by_lock_free {
            return Some(Event { act, locked: false, observed });
        }
        if !model.falls_back && !matches!(act, LockedSection(_) | Change(..) | Credit(_)) {
            return None;
        }
        let mut limit = self.limit.lock().unwrap();
        if let Change(at_ns, policies) = act {
            limit.change(&self.lock_free, || at_ns, model.policies[policies].as_slice()).unwrap();
            return Some(Event { act, locked: true, observed: Observed::SectionDone });
        }
        limit.seal(&self.lock_free);
        let observed = requested(&mut limit, act);
        limit.open(&self.lock_free, at_ns(act));
        Some(Event { act, locked: true, observed })
    }

    fn tried(&self, at_ns: u64, permits: u64) -> Option<Observed> {
        match self.lock_free.try_acquire(|| at_ns, permits) {
            LockFreeVerdict::Granted { start_ns, .. } => Some(Observed::Granted { start_ns }),
            LockFreeVerdict::Denied { retry_after_ns } => {
                Some(Observed::Denied { retry_ns: retry_after_ns.get() })
            }
            LockFreeVerdict::Sealed => None,
        }
    }
}

fn at_ns(act: Act) -> u64 {
    match act {
        Try(at_ns, _)
        | Peek(at_ns)
        | Remaining(at_ns)
        | LockedSection(at_ns)
        | Change(at_ns, _)
        | Credit(at_ns) => at_ns,
    }
}

/// Applies the action to the limits alone and returns their result.
fn requested(limit: &mut Ledger, act: Act) -> Observed {
    match act {
        Try(at_ns, permits) => match limit.try_acquire(at_ns, permits).unwrap() {
            Verdict::Granted(Grant { start_ns, .. }) => Observed::Granted { start_ns },
            Verdict::Denied(Denial { retry_after_ns }) => {
                Observed::Denied { retry_ns: retry_after_ns.unwrap().get() }
            }
        },
        Peek(at_ns) => Observed::Wait { wait_ns: limit.peek(at_ns, 1).unwrap().unwrap() },
        Remaining(at_ns) => Observed::Left { permits: limit.remaining(at_ns) },
        Credit(at_ns) => Observed::Back { permits: limit.credit(at_ns, 1) },
        LockedSection(_) | Change(..) => Observed::SectionDone,
    }
}

/// The events before, meanwhile and after, and the limits with the state back in them.
struct History {
    before: Vec<Event>,
    threads: Vec<Vec<Event>>,
    after: Vec<Event>,
    limit: Ledger,
}

fn play(model: &Arc<Model>) -> History {
    let mut limit = Ledger::new(model.policies[0].as_slice(), START_NS);
    let lock_free = limit.lock_free(START_NS);
    let shared = Arc::new(Shared { lock_free, limit: Mutex::new(limit) });
    let before = shared.play(model, &model.before);
    let (own, others) = model.threads.split_last().unwrap();
    let handles: Vec<_> = (0..others.len())
        .map(|thread| {
            let (shared, model) = (Arc::clone(&shared), Arc::clone(model));
            thread::spawn(move || shared.play(&model, &model.threads[thread]))
        })
        .collect();
    let own = shared.play(model, own);
    let mut threads: Vec<_> = handles.into_iter().map(|handle| handle.join().unwrap()).collect();
    threads.push(own);
    let after = shared.play(model, &model.after);
    assert!(after.iter().all(|event| !event.locked) && after.len() == model.after.len());
    let mut limit = shared.limit.lock().unwrap();
    limit.seal(&shared.lock_free);
    History { before, threads, after, limit: limit.clone() }
}

impl Model {
    /// Explores all schedules.
    ///
    /// In each, some order of the events must be one in which the limits alone return the same
    /// results, in every number, and end in the same state.
    fn linearises(self) {
        self.linearises_under(|_| ());
    }

    /// Explores all schedules as [`linearises`](Self::linearises) does, and checks `law` on the
    /// events of each.
    fn linearises_under(self, law: impl Fn(&[Event]) + Send + Sync + 'static) {
        let schedules = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&schedules);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(self.preemptions);
        builder.max_branches = 100_000;
        let model = Arc::new(self);
        builder.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            let History { before, threads, after, limit } = play(&model);
            let mut plain = Ledger::new(model.policies[0].as_slice(), START_NS);
            for event in &before {
                assert!(explains(&model, &mut plain, event), "alone: {event:?}");
            }
            let left: Vec<&[Event]> = threads.iter().map(Vec::as_slice).collect();
            assert!(
                has_an_order(&model, &plain, &left, (&after, &limit)),
                "{before:#?}\n{threads:#?}"
            );
            let all: Vec<Event> = before.into_iter().chain(threads.into_iter().flatten()).collect();
            law(&all);
        });
        let name = std::thread::current().name().unwrap_or("model").to_owned();
        eprintln!("{name}: {} schedules", schedules.load(Ordering::Relaxed));
    }
}

/// Applies the event to the limits alone. Returns `true` if the result is the same.
fn explains(model: &Model, plain: &mut Ledger, event: &Event) -> bool {
    let observed = match event.act {
        Change(at_ns, policies) => {
            plain.reconfigure(at_ns, model.policies[policies].as_slice()).unwrap();
            Observed::SectionDone
        }
        act => requested(plain, act),
    };
    if event.locked {
        plain.pass_to(at_ns(event.act));
    }
    observed == event.observed
}

/// Returns `true` if some order of the events, which keeps each thread's own, is one that the
/// limits alone explain, with their final state.
fn has_an_order(
    model: &Model,
    plain: &Ledger,
    threads: &[&[Event]],
    end: (&[Event], &Ledger),
) -> bool {
    if threads.iter().all(|events| events.is_empty()) {
        let (after, limit) = end;
        let mut plain = plain.clone();
        let explained = after.iter().all(|event| explains(model, &mut plain, event));
        return explained && state(&plain) == state(limit);
    }
    (0..threads.len()).any(|thread| {
        let Some((first, rest)) = threads[thread].split_first() else { return false };
        let mut next = plain.clone();
        let mut left = threads.to_vec();
        left[thread] = rest;
        explains(model, &mut next, first) && has_an_order(model, &next, &left, end)
    })
}

/// Returns the clock, the permits left, and when how many could start: of all limits, and of each
/// alone.
fn state(limit: &Ledger) -> (u64, Vec<(u64, Option<u64>)>) {
    let latest_ns = limit.clamp(0);
    let seen = [0, 5, 40, 150, 700, 5_000].map(|later_ns| {
        let at_ns = latest_ns + later_ns;
        let waits = [1, 2, 3].map(|permits| limit.peek(at_ns, permits).ok().flatten());
        (limit.remaining(at_ns), waits)
    });
    let seen = seen.into_iter();
    (latest_ns, seen.flat_map(|(left, waits)| waits.map(|wait| (left, wait))).collect())
}

/// Returns the number of permits granted.
fn granted(events: &[Event]) -> u64 {
    let permits = |event: &Event| match (event.act, event.observed) {
        (Try(_, permits), Observed::Granted { .. }) => permits,
        _ => 0,
    };
    events.iter().map(permits).sum()
}

/// Three tries for a burst of three and a window of two: the window decides how many pass.
#[test]
fn quick_no_more_than_the_least_of_them_passes() {
    let limits = [gcra(1_000, 3), window(2, 10_000)];
    let mut model = model(&[&limits], &[], &[&[Try(200, 1)], &[Try(200, 1), Try(200, 1)]]);
    model.preemptions = 1;
    model.linearises_under(|events| assert_eq!(granted(events), 2, "{events:#?}"));
}

/// A caller denied by one of the limits has taken nothing from the other.
#[test]
fn quick_a_denial_takes_from_none() {
    let limits = [gcra(1_000, 2), gcra(50, 4)];
    let status = [Try(200, 2), Remaining(260)];
    model(&[&limits], &[Try(150, 1)], &[&status, &[Try(200, 1)]]).linearises();
}

/// A thread's clock that is behind the other's counts as the newest start.
#[test]
fn quick_clocks_apart_count_as_one() {
    for late_ns in [199, 150] {
        let late = [Try(late_ns, 1), Try(late_ns + 100, 1)];
        model(&[&[window(1, 100); 2]], &[], &[&[Try(200, 1)], &late]).linearises();
    }
}

/// The slots are reused while another thread still reads one.
#[test]
fn quick_a_slot_is_used_again_under_the_eyes_of_others() {
    for observed in [Try(230, 1), Peek(230)] {
        let tries = [Try(200, 1), Try(220, 1)];
        model(&[&[gcra(100, 3); 2]], &[Try(190, 1)], &[&[observed], &tries]).linearises();
    }
}

/// Three threads between their copies and their swaps need more than the three slots, of which
/// one is in force.
///
/// A thread that finds none takes the lock, and every claimed slot is freed.
#[test]
fn quick_slots_run_out_and_come_back() {
    let mut model =
        model(&[&[gcra(1_000, 2); 2]], &[], &[&[Try(200, 1)], &[Try(200, 1)], &[Try(200, 1)]]);
    model.after = vec![Try(2_000, 1), Try(3_000, 1), Try(4_000, 1)];
    model.falls_back = true;
    model.preemptions = 1;
    model.linearises_under(|events| assert_eq!(granted(events), 2, "{events:#?}"));
}

/// A try that overlaps a sealing is in the ledgers, or it has not happened.
#[test]
fn quick_sealing_loses_and_invents_nothing() {
    model(&[&[gcra(1_000, 2); 2]], &[], &[&[Try(200, 1)], &[LockedSection(200)]]).linearises();
}

/// A sealing and opening rewrites the slot in force, with the same state and a later clock.
#[test]
fn quick_a_cell_opened_again_is_another() {
    let section = [LockedSection(160), Try(310, 1)];
    model(&[&[window(2, 150); 2]], &[Try(140, 1)], &[&[Try(145, 1)], &section]).linearises();
}

/// The numbers of one configuration never meet the state of another.
#[test]
fn quick_new_numbers_are_never_mixed_with_old_ones() {
    let policies: [&[AnyPolicy]; 2] = [&[gcra(1_000, 1); 2], &[gcra(300, 3); 2]];
    for observed in [Try(200, 1), Peek(200)] {
        model(&policies, &[Try(150, 1)], &[&[observed], &[Change(200, 1)]]).linearises();
    }
}

/// A credit under the lock meets tries of two threads.
#[test]
fn quick_credits_meet_tries() {
    let (one, two) = ([Try(200, 2), Credit(250)], [Try(210, 1), Credit(260)]);
    let mut model = model(&[&[gcra(100, 4); 2]], &[Try(190, 1)], &[&one, &two]);
    model.preemptions = 1;
    model.linearises();
}

/// A try that finds the form sealed takes the lock, as in a limiter.
#[test]
fn quick_tries_fall_back_to_the_ledgers() {
    let limits = [gcra(1_000, 2), gcra(500, 3)];
    let mut model = model(&[&limits], &[], &[&[Try(200, 2)], &[LockedSection(200)]]);
    model.falls_back = true;
    model.preemptions = 1;
    model.linearises();
}

#[test]
fn full_three_threads_near_the_burst() {
    let tries = [&[Try(300, 1), Try(310, 1)][..], &[Try(290, 1)], &[Try(350, 1)]];
    let mut model = model(&[&[gcra(100, 3); 2]], &[], &tries);
    model.falls_back = true;
    model.preemptions = 1;
    model.linearises();
}

#[test]
fn full_two_threads_try_and_a_third_changes_the_numbers() {
    let policies: [&[AnyPolicy]; 2] = [&[gcra(1_000, 1); 2], &[gcra(10, 2); 2]];
    let tries = [&[Try(200, 1)][..], &[Try(190, 1)], &[Change(200, 1)]];
    let mut model = model(&policies, &[], &tries);
    model.preemptions = 1;
    model.linearises();
}

#[test]
fn full_one_limit_alone_with_three_preemptions() {
    let tries = [Try(200, 1), Try(210, 1), Peek(220)];
    let mut model = model(&[&[gcra(100, 2); 2]], &[], &[&tries, &tries]);
    model.preemptions = 3;
    model.linearises();
}
