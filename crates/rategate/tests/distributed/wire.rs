//! A store at the end of a wire, on a manual clock: requests and replies take time, and either
//! may be lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use rategate::ManualClock;
use rategate::store::{
    Callback, Key, MemoryStore, Store, StoreError, StoreReply, StoreRequest, Unavailable,
};

type Plan = <MemoryStore<ManualClock> as Store>::Plan;

/// The course of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// Request and reply arrive, each within `max_delay_ns`.
    Open { max_delay_ns: u64 },
    /// The request arrives, and its reply is lost.
    RepliesLost,
    /// The request is lost.
    RequestsLost,
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
    link_state: LinkState,
    random: Rng,
    events: BTreeMap<(u64, u64), Event>,
    count: u64,
    requests: u64,
}

enum Event {
    Arrives(StoreRequest<Plan>, Option<Callback>),
    Replies(Result<StoreReply, StoreError>, Callback),
}

impl Wire {
    pub(crate) fn new(
        store: &Arc<MemoryStore<ManualClock>>,
        clock: &ManualClock,
        seed: u64,
    ) -> Arc<Self> {
        let inside = Inside {
            link_state: LinkState::Open { max_delay_ns: 1_000_000 },
            random: Rng::with_seed(seed),
            events: BTreeMap::new(),
            count: 0,
            requests: 0,
        };
        Arc::new(Self {
            store: Arc::clone(store),
            clock: clock.clone(),
            budget_ns: 20_000_000,
            inside: Mutex::new(inside),
        })
    }

    pub(crate) fn set(&self, link_state: LinkState) {
        self.inside.lock().unwrap().link_state = link_state;
    }

    /// Returns the number of requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.inside.lock().unwrap().requests
    }

    /// Returns the instant of the next event.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.inside.lock().unwrap().events.first_key_value().map(|(&(at_ns, _), _)| at_ns)
    }

    /// Runs all events that are due.
    pub(crate) fn deliver_due(&self) {
        loop {
            let now_ns = self.clock.manual_now_ns();
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
                Event::Replies(answer, callback) => callback(answer),
                Event::Arrives(request, callback) => self.arrive(request, callback),
            }
        }
    }

    fn arrive(&self, request: StoreRequest<Plan>, callback: Option<Callback>) {
        let reply = Arc::new(Mutex::new(None));
        let submit = Arc::clone(&reply);
        self.store.submit(request, Box::new(move |answer| *submit.lock().unwrap() = Some(answer)));
        let answer = reply.lock().unwrap().take().unwrap();
        if let Some(callback) = callback {
            let mut inside = self.inside.lock().unwrap();
            let delay_ns = match inside.link_state {
                LinkState::Open { max_delay_ns } => inside.random.u64(..max_delay_ns) + 1,
                _ => 1,
            };
            let now_ns = self.clock.manual_now_ns();
            inside.add(now_ns + delay_ns, Event::Replies(answer, callback));
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

    fn submit(&self, request: StoreRequest<Plan>, callback: Callback) {
        let now_ns = self.clock.manual_now_ns();
        let mut inside = self.inside.lock().unwrap();
        inside.requests += 1;
        let late_ns = now_ns + self.budget_ns;
        let unavailable = |unavailable| Err(StoreError::Unavailable(unavailable));
        match inside.link_state {
            LinkState::Open { max_delay_ns } => {
                let at_ns = now_ns + inside.random.u64(..max_delay_ns) + 1;
                inside.add(at_ns, Event::Arrives(request, Some(callback)));
            }
            LinkState::RepliesLost => {
                inside.add(now_ns + 1, Event::Arrives(request, None));
                inside.add(late_ns, Event::Replies(unavailable(Unavailable::Late), callback));
            }
            LinkState::RequestsLost => {
                inside.add(late_ns, Event::Replies(unavailable(Unavailable::Late), callback));
            }
            LinkState::Refused => {
                drop(inside);
                callback(unavailable(Unavailable::Unreachable("connection refused".to_owned())));
            }
        }
    }

    fn backend_of(&self, key: &Key) -> usize {
        let _ = key;
        0
    }
}

trait ManualNow {
    fn manual_now_ns(&self) -> u64;
}

impl ManualNow for ManualClock {
    fn manual_now_ns(&self) -> u64 {
        rategate::Clock::now_ns(self)
    }
}
