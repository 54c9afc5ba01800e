//! A model: a few threads that try, peek and change the numbers, and the check of their results.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use loom::sync::Mutex;
use loom::thread;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::concurrent::{BatchVerdict, Fast, LockFreeVerdict, PermitBatch};
use rategate_core::ledger::Ledger;
use rategate_core::verdict::Verdict;

use crate::oracle::Oracle;

/// An action of a thread, at its own reading of the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Try(u64),
    TryMany(u64, u64),
    Peek(u64),
    Remaining(u64),
    /// A decision under the lock that takes nothing: seals the form and opens it again.
    LockedSection(u64),
    /// The numbers of [`Model::policies`] with this index, put into the sealed form.
    Set(u64, usize),
    /// The numbers with this index, put into the open form where possible.
    Change(u64, usize),
    /// Takes a batch between these minimum and maximum numbers of permits, in one step.
    TakeBatch(u64, u64, u64),
    /// Returns this many permits of the last batch, or all if it was smaller.
    Back(u64, u64),
}

/// An action with its result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) at_ns: u64,
    pub(crate) permits: u64,
    /// `true` if the ledger decided, under its lock.
    pub(crate) locked: bool,
    pub(crate) observed: Observed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observed {
    Granted {
        start_ns: u64,
        scheduled_ns: u64,
    },
    Denied {
        retry_ns: u64,
    },
    Wait {
        wait_ns: u64,
    },
    Left {
        permits: u64,
    },
    SectionDone,
    Set {
        policy: usize,
    },
    /// A batch, of which so many permits were returned later.
    PermitBatch {
        start_ns: u64,
        back: u64,
    },
    /// A return of permits, to the thread's previous batch.
    Back {
        permits: u64,
    },
}

/// The policies, threads and actions of one model.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// The policies; the first is in force at the start.
    pub(crate) policies: Vec<AnyPolicy>,
    pub(crate) start_ns: u64,
    /// The actions of one thread, before the others start.
    pub(crate) before: Vec<Act>,
    /// One list for each thread. The last is the first thread's own.
    pub(crate) threads: Vec<Vec<Act>>,
    /// `true` if a try that finds the form sealed takes the lock, as a limiter does.
    ///
    /// Otherwise it is no event, which keeps a model small.
    pub(crate) falls_back: bool,
    /// `true` if the state at the end may contain more than was granted.
    ///
    /// That is documented for an addition that is undone while the form is sealed.
    pub(crate) may_lose: bool,
    /// The number of times a schedule may preempt a thread that could continue.
    pub(crate) preemptions: usize,
}

/// All events of one schedule.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) before: Vec<Event>,
    pub(crate) threads: Vec<Vec<Event>>,
    pub(crate) start_ns: u64,
    pub(crate) may_lose: bool,
    /// The ledger, with the state back in it.
    pub(crate) ledger: Ledger,
}

impl History {
    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.before.iter().chain(self.threads.iter().flatten())
    }

    /// Returns the start of each permit.
    pub(crate) fn starts(&self) -> Vec<u64> {
        let mut starts: Vec<u64> = self
            .events()
            .flat_map(|event| match event.observed {
                Observed::Granted { start_ns, .. } => {
                    vec![start_ns; usize::try_from(event.permits).unwrap()]
                }
                Observed::PermitBatch { start_ns, back } => {
                    vec![start_ns; usize::try_from(event.permits - back).unwrap()]
                }
                _ => Vec::new(),
            })
            .collect();
        starts.sort_unstable();
        starts
    }
}

/// A limit and its lock-free form, as a limiter keeps them.
struct Shared {
    lock_free: Fast,
    ledger: Mutex<Ledger>,
    /// The newest reading.
    ///
    /// A return is judged by one that is no older, as a clock would have it: under the lock, no
    /// later than all that came before.
    newest_ns: AtomicU64,
}

/// Returns a model in which two threads may be preempted twice, and tries are lock-free.
pub(crate) fn model(
    policies: &[impl Into<AnyPolicy> + Copy],
    start_ns: u64,
    before: &[Act],
    threads: &[&[Act]],
) -> Model {
    Model {
        policies: policies.iter().map(|&policy| policy.into()).collect(),
        start_ns,
        before: before.to_vec(),
        threads: threads.iter().map(|acts| acts.to_vec()).collect(),
        falls_back: false,
        may_lose: false,
        preemptions: 2,
    }
}

impl Model {
    /// Explores all schedules. In each, some order of the events must be one that `O` explains.
    pub(crate) fn linearises<O: Oracle>(self) {
        self.linearises_under::<O>(|_| ());
    }

    /// Explores all schedules as [`linearises`](Self::linearises) does, and checks `law` on each.
    pub(crate) fn linearises_under<O: Oracle>(
        self,
        law: impl Fn(&History) + Send + Sync + 'static,
    ) {
        let policies = self.policies.clone();
        self.explore(move |story| {
            let mut oracle = O::new(&policies, story);
            for event in &story.before {
                assert!(oracle.explains(event), "alone: {event:?}\n{story:#?}");
            }
            let threads: Vec<&[Event]> = story.threads.iter().map(Vec::as_slice).collect();
            assert!(has_an_order(&oracle, &threads, &story.ledger), "{story:#?}");
            law(story);
        });
    }

    /// Explores all schedules and checks `law` on each.
    pub(crate) fn explore(self, law: impl Fn(&History) + Send + Sync + 'static) {
        let schedules = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&schedules);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(self.preemptions);
        builder.max_branches = 100_000;
        let model = Arc::new(self);
        builder.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            law(&play(&model));
        });
        let name = std::thread::current().name().unwrap_or("model").to_owned();
        eprintln!("{name}: {} schedules", schedules.load(Ordering::Relaxed));
    }
}

fn play(model: &Arc<Model>) -> History {
    let mut ledger = Ledger::new(model.policies[0], model.start_ns);
    let lock_free = ledger.lock_free(model.start_ns);
    let newest_ns = AtomicU64::new(model.start_ns);
    let shared = Arc::new(Shared { lock_free, ledger: Mutex::new(ledger), newest_ns });
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
    let mut ledger = shared.ledger.lock().unwrap();
    ledger.seal(&shared.lock_free);
    let Model { start_ns, may_lose, .. } = **model;
    History { before, threads, start_ns, may_lose, ledger: ledger.clone() }
}

impl Shared {
    fn play(&self, model: &Model, acts: &[Act]) -> Vec<Event> {
        let mut events = Vec::new();
        let mut taken = None;
        for &act in acts {
            match act {
                Act::TakeBatch(at_ns, min, max) => {
                    if let BatchVerdict::Taken(batch) =
                        self.lock_free.take_batch(|| self.read(at_ns), min, max)
                    {
                        let PermitBatch { start_ns, permits, .. } = batch;
                        taken = Some((batch, events.len()));
                        let observed = Observed::PermitBatch { start_ns, back: 0 };
                        events.push(Event { at_ns, permits, locked: false, observed });
                    }
                }
                Act::Back(at_ns, left) => {
                    if let Some((batch, index)) = taken.take() {
                        let event = self.return_batch(at_ns, batch, left);
                        events[index].observed =
                            Observed::PermitBatch { start_ns: batch.start_ns, back: event.permits };
                        events.push(event);
                    }
                }
                _ => events.extend(self.act(model, act)),
            }
        }
        events
    }

    /// Returns the thread's own reading.
    fn read(&self, at_ns: u64) -> u64 {
        self.newest_ns.fetch_max(at_ns, Ordering::Relaxed);
        at_ns
    }

    /// Returns a part of a batch, as a local handle does.
    fn return_batch(&self, at_ns: u64, batch: PermitBatch, left: u64) -> Event {
        let mut ledger = self.ledger.lock().unwrap();
        ledger.seal(&self.lock_free);
        let at_ns = self.newest_ns.fetch_max(at_ns, Ordering::Relaxed).max(at_ns);
        let before = ledger.remaining(at_ns);
        ledger.return_batch(&self.lock_free, at_ns, batch, left.min(batch.permits));
        let permits = ledger.remaining(at_ns) - before;
        ledger.open(&self.lock_free, at_ns);
        Event { at_ns, permits, locked: true, observed: Observed::Back { permits } }
    }

    fn act(&self, model: &Model, act: Act) -> Option<Event> {
        let (at_ns, permits) = match act {
            Act::Try(at_ns) | Act::Peek(at_ns) => (at_ns, 1),
            Act::TryMany(at_ns, permits) => (at_ns, permits),
            Act::Remaining(at_ns)
            | Act::LockedSection(at_ns)
            | Act::Set(at_ns, _)
            | Act::Change(at_ns, _)
            | Act::TakeBatch(at_ns, ..)
            | Act::Back(at_ns, _) => (at_ns, 0),
        };
        let by_lock_free = match act {
            Act::Try(_) | Act::TryMany(..) => self.tried(at_ns, permits),
            Act::Peek(_) => {
                self.lock_free.peek(at_ns, permits).map(|wait_ns| Observed::Wait { wait_ns })
            }
            Act::Remaining(_) => {
                self.lock_free.remaining(at_ns).map(|permits| Observed::Left { permits })
            }
            _ => None,
        };
        let is_section = matches!(act, Act::LockedSection(_) | Act::Set(..) | Act::Change(..));
        if by_lock_free.is_none() && !is_section && !model.falls_back {
            return None;
        }
        let locked = by_lock_free.is_none();
        let observed = by_lock_free.unwrap_or_else(|| self.locked(model, act, at_ns, permits));
        Some(Event { at_ns, permits, locked, observed })
    }

    fn tried(&self, at_ns: u64, permits: u64) -> Option<Observed> {
        match self.lock_free.try_acquire(|| self.read(at_ns), permits) {
            LockFreeVerdict::Granted { start_ns, scheduled_ns } => {
                Some(Observed::Granted { start_ns, scheduled_ns })
            }
            LockFreeVerdict::Denied { retry_after_ns } => {
                Some(Observed::Denied { retry_ns: retry_after_ns.unwrap().get() })
            }
            LockFreeVerdict::Sealed => None,
        }
    }

    /// Locks, seals, decides and opens, as a limiter does.
    fn locked(&self, model: &Model, act: Act, at_ns: u64, permits: u64) -> Observed {
        let mut ledger = self.ledger.lock().unwrap();
        let at_ns = self.read(at_ns);
        if let Act::Change(_, policy) = act {
            ledger.change(&self.lock_free, || at_ns, model.policies[policy]).unwrap();
            return Observed::Set { policy };
        }
        ledger.seal(&self.lock_free);
        let observed = match act {
            Act::Set(_, policy) => {
                ledger.reconfigure(at_ns, model.policies[policy]).unwrap();
                Observed::Set { policy }
            }
            Act::Peek(_) => {
                Observed::Wait { wait_ns: ledger.peek(at_ns, permits).unwrap().unwrap() }
            }
            Act::Remaining(_) => Observed::Left { permits: ledger.remaining(at_ns) },
            Act::Try(_) | Act::TryMany(..) => match ledger.try_acquire(at_ns, permits).unwrap() {
                Verdict::Granted(grant) => {
                    Observed::Granted { start_ns: grant.start_ns, scheduled_ns: grant.scheduled_ns }
                }
                Verdict::Denied(denial) => {
                    Observed::Denied { retry_ns: denial.retry_after_ns.unwrap().get() }
                }
            },
            _ => Observed::SectionDone,
        };
        ledger.open(&self.lock_free, at_ns);
        observed
    }
}

/// Returns `true` if the oracle explains all events in some order that keeps each thread's own,
/// and their final state.
fn has_an_order(oracle: &impl Oracle, threads: &[&[Event]], ledger: &Ledger) -> bool {
    if threads.iter().all(|events| events.is_empty()) {
        return oracle.ends_as(ledger);
    }
    (0..threads.len()).any(|thread| {
        let Some((first, rest)) = threads[thread].split_first() else { return false };
        let mut next = oracle.clone();
        let mut left = threads.to_vec();
        left[thread] = rest;
        next.explains(first) && has_an_order(&next, &left, ledger)
    })
}
