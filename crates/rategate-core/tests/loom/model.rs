//! A model: a few threads that try, peek and change the numbers, and the check of their results.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use loom::sync::Mutex;
use loom::thread;
use rategate_core::concurrent::{Answer, Concurrent, Draw, Drawn, Twin, Twinned};
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit;
use rategate_core::policy::Policy;
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
    Turn(u64),
    /// The numbers of [`Model::policies`] with this index, put into the sealed form.
    Set(u64, usize),
    /// The numbers with this index, put into the open form where possible.
    Change(u64, usize),
    /// Takes a batch between these minimum and maximum numbers of permits, in one step.
    Draw(u64, u64, u64),
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
    pub(crate) told: Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Granted {
        start_ns: u64,
        scheduled_ns: u64,
        remaining: u64,
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
    Turned,
    Set {
        policy: usize,
    },
    /// A batch, of which so many permits were returned later.
    Drawn {
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
pub(crate) struct Model<P> {
    /// The policies; the first is in force at the start.
    pub(crate) policies: Vec<P>,
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
pub(crate) struct Story<P: Policy> {
    pub(crate) before: Vec<Event>,
    pub(crate) threads: Vec<Vec<Event>>,
    pub(crate) start_ns: u64,
    pub(crate) may_lose: bool,
    /// The ledger, with the state back in it.
    pub(crate) ledger: Ledger<P>,
}

impl<P: Policy> Story<P> {
    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.before.iter().chain(self.threads.iter().flatten())
    }

    /// Returns the start of each permit.
    pub(crate) fn starts(&self) -> Vec<u64> {
        let mut starts: Vec<u64> = self
            .events()
            .flat_map(|event| match event.told {
                Told::Granted { start_ns, .. } => {
                    vec![start_ns; usize::try_from(event.permits).unwrap()]
                }
                Told::Drawn { start_ns, back } => {
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
struct Shared<P: Twinned> {
    twin: P::Twin,
    ledger: Mutex<Ledger<P>>,
    /// The newest reading.
    ///
    /// A return is judged by one that is no older, as a clock would have it: under the lock, no
    /// later than all that came before.
    newest_ns: AtomicU64,
}

impl<P> Model<P>
where
    P: Twinned + Send + Sync + 'static,
    P::State: Send,
    P::Twin: 'static,
{
    /// Explores all schedules. In each, some order of the events must be one that `O` explains.
    pub(crate) fn linearises<O: Oracle<P>>(self) {
        self.linearises_under::<O>(|_| ());
    }

    /// Explores all schedules as [`linearises`](Self::linearises) does, and checks `law` on each.
    pub(crate) fn linearises_under<O: Oracle<P>>(
        self,
        law: impl Fn(&Story<P>) + Send + Sync + 'static,
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
    pub(crate) fn explore(self, law: impl Fn(&Story<P>) + Send + Sync + 'static) {
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

fn play<P>(model: &Arc<Model<P>>) -> Story<P>
where
    P: Twinned + Send + Sync + 'static,
    P::State: Send,
    P::Twin: 'static,
{
    let mut ledger = Ledger::new(model.policies[0].clone(), model.start_ns);
    let twin = ledger.twin(model.start_ns);
    let newest_ns = AtomicU64::new(model.start_ns);
    let shared = Arc::new(Shared { twin, ledger: Mutex::new(ledger), newest_ns });
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
    ledger.seal(&shared.twin);
    let Model { start_ns, may_lose, .. } = **model;
    Story { before, threads, start_ns, may_lose, ledger: ledger.clone() }
}

impl<P: Twinned> Shared<P> {
    fn play(&self, model: &Model<P>, acts: &[Act]) -> Vec<Event> {
        let mut events = Vec::new();
        let mut hand = None;
        for &act in acts {
            match act {
                Act::Draw(at_ns, least, most) => {
                    if let Draw::Taken(drawn) = self.twin.draw(|| self.read(at_ns), least, most) {
                        let Drawn { start_ns, permits, .. } = drawn;
                        hand = Some((drawn, events.len()));
                        let told = Told::Drawn { start_ns, back: 0 };
                        events.push(Event { at_ns, permits, locked: false, told });
                    }
                }
                Act::Back(at_ns, left) => {
                    if let Some((drawn, place)) = hand.take() {
                        let event = self.give_back(at_ns, drawn, left);
                        events[place].told =
                            Told::Drawn { start_ns: drawn.start_ns, back: event.permits };
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
    fn give_back(&self, at_ns: u64, drawn: Drawn, left: u64) -> Event {
        let mut ledger = self.ledger.lock().unwrap();
        ledger.seal(&self.twin);
        let at_ns = self.newest_ns.fetch_max(at_ns, Ordering::Relaxed).max(at_ns);
        let before = ledger.remaining(at_ns);
        ledger.give_back(&self.twin, at_ns, drawn, left.min(drawn.permits));
        let permits = ledger.remaining(at_ns) - before;
        ledger.open(&self.twin, at_ns);
        Event { at_ns, permits, locked: true, told: Told::Back { permits } }
    }

    fn act(&self, model: &Model<P>, act: Act) -> Option<Event> {
        let (at_ns, permits) = match act {
            Act::Try(at_ns) | Act::Peek(at_ns) => (at_ns, 1),
            Act::TryMany(at_ns, permits) => (at_ns, permits),
            Act::Remaining(at_ns)
            | Act::Turn(at_ns)
            | Act::Set(at_ns, _)
            | Act::Change(at_ns, _)
            | Act::Draw(at_ns, ..)
            | Act::Back(at_ns, _) => (at_ns, 0),
        };
        let by_twin = match act {
            Act::Try(_) | Act::TryMany(..) => self.tried(at_ns, permits),
            Act::Peek(_) => self.twin.peek(at_ns, permits).map(|wait_ns| Told::Wait { wait_ns }),
            Act::Remaining(_) => self.twin.remaining(at_ns).map(|permits| Told::Left { permits }),
            _ => None,
        };
        let is_turn = matches!(act, Act::Turn(_) | Act::Set(..) | Act::Change(..));
        if by_twin.is_none() && !is_turn && !model.falls_back {
            return None;
        }
        let locked = by_twin.is_none();
        let told = by_twin.unwrap_or_else(|| self.locked(model, act, at_ns, permits));
        Some(Event { at_ns, permits, locked, told })
    }

    fn tried(&self, at_ns: u64, permits: u64) -> Option<Told> {
        match self.twin.try_acquire(|| self.read(at_ns), permits) {
            Answer::Granted { start_ns, scheduled_ns, spare } => {
                Some(Told::Granted { start_ns, scheduled_ns, remaining: spare.permits() })
            }
            Answer::Denied { retry_after_ns } => {
                Some(Told::Denied { retry_ns: retry_after_ns.get() })
            }
            Answer::Sealed => None,
        }
    }

    /// Locks, seals, decides and opens, as a limiter does.
    fn locked(&self, model: &Model<P>, act: Act, at_ns: u64, permits: u64) -> Told {
        let mut ledger = self.ledger.lock().unwrap();
        let at_ns = self.read(at_ns);
        if let Act::Change(_, policy) = act {
            ledger.change(&self.twin, || at_ns, model.policies[policy].clone());
            return Told::Set { policy };
        }
        ledger.seal(&self.twin);
        let told = match act {
            Act::Set(_, policy) => {
                ledger.reconfigure(at_ns, model.policies[policy].clone());
                Told::Set { policy }
            }
            Act::Peek(_) => Told::Wait { wait_ns: ledger.peek(at_ns, permits).unwrap().unwrap() },
            Act::Remaining(_) => Told::Left { permits: ledger.remaining(at_ns) },
            Act::Try(_) | Act::TryMany(..) => match ledger.try_acquire(at_ns, permits).unwrap() {
                Verdict::Granted(grant) => Told::Granted {
                    start_ns: grant.start_ns,
                    scheduled_ns: grant.scheduled_ns,
                    remaining: grant.remaining,
                },
                Verdict::Denied(denial) => {
                    Told::Denied { retry_ns: denial.retry_after_ns.unwrap().get() }
                }
            },
            _ => Told::Turned,
        };
        ledger.open(&self.twin, at_ns);
        told
    }
}

/// Returns `true` if the oracle explains all events in some order that keeps each thread's own,
/// and their final state.
fn has_an_order<P: Policy, O: Oracle<P>>(
    oracle: &O,
    threads: &[&[Event]],
    ledger: &Ledger<P>,
) -> bool {
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
