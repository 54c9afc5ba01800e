//! A store at the end of a wire, on a manual clock: requests and replies take time, and either
//! may be lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rategate::ManualClock;
use rategate::store::{Answer, Fault, Gone, Hear, Key, MemoryStore, Question, Store};

use crate::Random;

type Plan = <MemoryStore<ManualClock> as Store>::Plan;

/// The course of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Request and reply arrive, each within `longest_ns`.
    Open { longest_ns: u64 },
    /// The request arrives, and its reply is lost.
    Deaf,
    /// The request is lost.
    Cut,
    /// The store is unavailable, and the node learns it at once.
    Refused,
}

pub(crate) struct Wire {
    pub(crate) store: Arc<MemoryStore<ManualClock>>,
    clock: ManualClock,
    budget_ns: u64,
    inside: Mutex<Inside>,
}

struct Inside {
    way: Way,
    random: Random,
    events: BTreeMap<(u64, u64), Event>,
    count: u64,
    asked: u64,
}

enum Event {
    Comes(Question<Plan>, Option<Hear>),
    Hears(Result<Answer, Fault>, Hear),
}

impl Wire {
    pub(crate) fn new(
        store: &Arc<MemoryStore<ManualClock>>,
        clock: &ManualClock,
        seed: u64,
    ) -> Arc<Self> {
        let inside = Inside {
            way: Way::Open { longest_ns: 1_000_000 },
            random: Random::new(seed),
            events: BTreeMap::new(),
            count: 0,
            asked: 0,
        };
        Arc::new(Self {
            store: Arc::clone(store),
            clock: clock.clone(),
            budget_ns: 20_000_000,
            inside: Mutex::new(inside),
        })
    }

    pub(crate) fn set(&self, way: Way) {
        self.inside.lock().unwrap().way = way;
    }

    /// Returns the number of requests so far.
    pub(crate) fn asked(&self) -> u64 {
        self.inside.lock().unwrap().asked
    }

    /// Returns the instant of the next event.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.inside.lock().unwrap().events.first_key_value().map(|(&(at_ns, _), _)| at_ns)
    }

    /// Runs all events that are due.
    pub(crate) fn turn(&self) {
        loop {
            let now_ns = self.clock.now_ns_by_hand();
            let event = {
                let mut inside = self.inside.lock().unwrap();
                let due =
                    inside.events.first_key_value().is_some_and(|(&(at_ns, _), _)| at_ns <= now_ns);
                if !due {
                    return;
                }
                inside.events.pop_first().unwrap().1
            };
            match event {
                Event::Hears(answer, hear) => hear(answer),
                Event::Comes(question, hear) => self.comes(question, hear),
            }
        }
    }

    fn comes(&self, question: Question<Plan>, hear: Option<Hear>) {
        let heard = Arc::new(Mutex::new(None));
        let put = Arc::clone(&heard);
        self.store.put(question, Box::new(move |answer| *put.lock().unwrap() = Some(answer)));
        let answer = heard.lock().unwrap().take().unwrap();
        if let Some(hear) = hear {
            let mut inside = self.inside.lock().unwrap();
            let delay_ns = match inside.way {
                Way::Open { longest_ns } => inside.random.below(longest_ns) + 1,
                _ => 1,
            };
            let now_ns = self.clock.now_ns_by_hand();
            inside.add(now_ns + delay_ns, Event::Hears(answer, hear));
        }
    }
}

impl Inside {
    fn add(&mut self, at_ns: u64, event: Event) {
        self.count += 1;
        self.events.insert((at_ns, self.count), event);
    }
}

impl Store for Wire {
    type Plan = Plan;

    fn plan(
        &self,
        rules: &[(&str, rategate::store::Rule)],
    ) -> Result<Self::Plan, rategate::store::PlanError> {
        self.store.plan(rules)
    }

    fn put(&self, question: Question<Plan>, hear: Hear) {
        let now_ns = self.clock.now_ns_by_hand();
        let mut inside = self.inside.lock().unwrap();
        inside.asked += 1;
        let late_ns = now_ns + self.budget_ns;
        let gone = |gone| Err(Fault::Gone(gone));
        match inside.way {
            Way::Open { longest_ns } => {
                let at_ns = now_ns + inside.random.below(longest_ns) + 1;
                inside.add(at_ns, Event::Comes(question, Some(hear)));
            }
            Way::Deaf => {
                inside.add(now_ns + 1, Event::Comes(question, None));
                inside.add(late_ns, Event::Hears(gone(Gone::Late), hear));
            }
            Way::Cut => inside.add(late_ns, Event::Hears(gone(Gone::Late), hear)),
            Way::Refused => {
                drop(inside);
                hear(gone(Gone::Unreachable("connection refused".to_owned())));
            }
        }
    }

    fn part_of(&self, key: &Key) -> usize {
        let _ = key;
        0
    }
}

trait ByHand {
    fn now_ns_by_hand(&self) -> u64;
}

impl ByHand for ManualClock {
    fn now_ns_by_hand(&self) -> u64 {
        rategate::Clock::now_ns(self)
    }
}
