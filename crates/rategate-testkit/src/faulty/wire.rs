//! Messages in flight between callers and a store, and a timer for them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

use rategate::Clock;
use rategate::store::{
    Callback, Store, StoreError, StoreReply, StoreRequest, Unavailable, Unclaimed,
};
use rategate::wait::Sleep;

use super::course::Fate;

/// The state that the store and its callers share.
pub(super) struct Wire<S: Store, C> {
    pub(super) store: Arc<S>,
    pub(super) clock: C,
    pub(super) budget_ns: u64,
    in_transit: Mutex<InTransit<S>>,
}

pub(super) struct InTransit<S: Store> {
    /// The courses of the next requests, and of all that follow.
    pub(super) script: VecDeque<Fate>,
    pub(super) usual: Fate,
    events: BTreeMap<Due, Event<S>>,
    serial: u64,
    armed: Option<Sleep>,
    is_closed: bool,
}

/// The order of an event: by instant, then replies before ends of budgets, then by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at_ns: u64,
    is_end: bool,
    serial: u64,
}

enum Event<S: Store> {
    /// A request reaches the store; its reply takes this long, or is lost.
    Reaches { request: StoreRequest<S::Plan>, exchange: Arc<Exchange<S>>, back_ns: Option<u64> },
    /// A reply reaches the caller.
    Returns { answer: Result<StoreReply, StoreError>, exchange: Arc<Exchange<S>> },
    /// The caller's budget ends.
    Ends { exchange: Arc<Exchange<S>> },
}

/// A request, from its submission to its callback.
struct Exchange<S: Store> {
    /// The end of the caller's budget.
    end: Due,
    callback: Mutex<Option<Callback>>,
    unclaimed: Mutex<Option<Unclaimed<S>>>,
}

impl<S: Store> Exchange<S> {
    /// Passes the result to the callback. If that was called before, the permits that the result
    /// grants return to the store.
    fn deliver(&self, answer: Result<StoreReply, StoreError>) {
        let callback = lock(&self.callback).take();
        match callback {
            Some(callback) => callback(answer),
            None => self.credit(answer),
        }
    }

    /// Returns to the store the permits that an undelivered reply grants.
    fn credit(&self, unread: Result<StoreReply, StoreError>) {
        let unclaimed = unread.is_ok().then(|| lock(&self.unclaimed).take()).flatten();
        if let Some(unclaimed) = unclaimed {
            unclaimed.credit(unread);
        }
    }
}

impl<S: Store<Plan: Clone>, C: Clock + 'static> Wire<S, C> {
    pub(super) fn new(store: Arc<S>, clock: C, budget_ns: u64) -> Arc<Self> {
        let in_transit = Mutex::new(InTransit {
            script: VecDeque::new(),
            usual: Fate::Prompt,
            events: BTreeMap::new(),
            serial: 0,
            armed: None,
            is_closed: false,
        });
        Arc::new(Self { store, clock, budget_ns, in_transit })
    }

    pub(super) fn in_transit(&self) -> MutexGuard<'_, InTransit<S>> {
        lock(&self.in_transit)
    }

    /// Sends a request on its course.
    pub(super) fn send(
        self: &Arc<Self>,
        request: StoreRequest<S::Plan>,
        course: Fate,
        callback: Callback,
    ) {
        let now_ns = self.clock.now_ns();
        let unavailable = |unavailable| Err(StoreError::Unavailable(unavailable));
        let (there_ns, back_ns) = match course {
            Fate::Unreachable => {
                return callback(unavailable(Unavailable::Unreachable(
                    "the connection is cut".into(),
                )));
            }
            Fate::Unable => {
                return callback(unavailable(Unavailable::Unable(
                    "the store replies that it is unable".into(),
                )));
            }
            Fate::Prompt | Fate::Doubled { .. } => (Some(0), Some(0)),
            Fate::Slow { there_ns, back_ns } => (Some(there_ns), Some(back_ns)),
            Fate::RequestLost => (None, None),
            Fate::ReplyLost => (Some(0), None),
        };
        let unclaimed = Mutex::new(Unclaimed::of(&request, &self.store));
        let callback = Mutex::new(Some(callback));
        let mut in_transit = self.in_transit();
        let end = in_transit.due(now_ns.saturating_add(self.budget_ns), true);
        let exchange = Arc::new(Exchange { end, callback, unclaimed });
        in_transit.events.insert(end, Event::Ends { exchange: Arc::clone(&exchange) });
        if let Some(there_ns) = there_ns {
            if let Fate::Doubled { again_ns } = course
                && counts_once(&request)
            {
                let due = in_transit.due(now_ns.saturating_add(again_ns), false);
                let (request, exchange) = (request.clone(), Arc::clone(&exchange));
                in_transit.events.insert(due, Event::Reaches { request, exchange, back_ns: None });
            }
            let due = in_transit.due(now_ns.saturating_add(there_ns), false);
            in_transit.events.insert(due, Event::Reaches { request, exchange, back_ns });
        }
        drop(in_transit);
        self.pass();
    }

    /// Runs all events that are due, and arms the timer for the next.
    pub(super) fn pass(self: &Arc<Self>) {
        loop {
            let now_ns = self.clock.now_ns();
            let mut in_transit = self.in_transit();
            let Some(first) = in_transit.events.first_entry() else {
                let armed = in_transit.armed.take();
                drop(in_transit);
                // Outside the lock, because it may run any code.
                drop(armed);
                return;
            };
            let due = *first.key();
            if due.at_ns <= now_ns {
                let event = first.remove();
                drop(in_transit);
                self.happen(due.at_ns, event);
                continue;
            }
            drop(in_transit);
            let mut sleep = self.clock.sleep_until(due.at_ns);
            let waker = Waker::from(Arc::clone(self));
            if sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                continue;
            }
            let mut in_transit = self.in_transit();
            if in_transit.events.first_key_value().is_some_and(|(first, _)| *first == due) {
                let before = in_transit.armed.replace(sleep);
                drop(in_transit);
                drop(before);
                return;
            }
        }
    }

    /// Runs an event of `due_ns`, which may be in the past: a clock may jump by more than one
    /// event.
    fn happen(self: &Arc<Self>, due_ns: u64, event: Event<S>) {
        match event {
            Event::Reaches { request, exchange, back_ns } => {
                let now_ns = self.clock.now_ns();
                let wire = Arc::clone(self);
                let returns = move |answer| {
                    let Some(back_ns) = back_ns else { return };
                    let took_ns = wire.clock.now_ns().saturating_sub(now_ns);
                    let at_ns = due_ns.saturating_add(took_ns).saturating_add(back_ns);
                    let mut in_transit = wire.in_transit();
                    if in_transit.is_closed {
                        drop(in_transit);
                        return wire.happen(at_ns, Event::Returns { answer, exchange });
                    }
                    let due = in_transit.due(at_ns, false);
                    in_transit.events.insert(due, Event::Returns { answer, exchange });
                    drop(in_transit);
                    wire.pass();
                };
                self.store.submit(request, Box::new(returns));
            }
            Event::Returns { answer, exchange } => {
                let end = self.in_transit().events.remove(&exchange.end);
                drop(end);
                exchange.deliver(answer);
            }
            Event::Ends { exchange } => {
                exchange.deliver(Err(StoreError::Unavailable(Unavailable::Late)));
            }
        }
    }

    /// Reports to waiting callers that the store is closed, and drops all events.
    pub(super) fn close(&self) {
        let mut in_transit = self.in_transit();
        in_transit.is_closed = true;
        let events = std::mem::take(&mut in_transit.events);
        let armed = in_transit.armed.take();
        drop(in_transit);
        drop(armed);
        for event in events.into_values() {
            match event {
                Event::Reaches { exchange, .. } | Event::Ends { exchange } => {
                    exchange.deliver(Err(StoreError::Closed));
                }
                Event::Returns { answer, exchange } => {
                    exchange.deliver(Err(StoreError::Closed));
                    exchange.credit(answer);
                }
            }
        }
    }
}

impl<S: Store> InTransit<S> {
    /// Creates the key of a new event, which comes after earlier ones of the same instant.
    const fn due(&mut self, at_ns: u64, is_end: bool) -> Due {
        self.serial = self.serial.wrapping_add(1);
        Due { at_ns, is_end, serial: self.serial }
    }
}

/// A waker by which the clock reports that an event is due.
impl<S: Store<Plan: Clone>, C: Clock + 'static> Wake for Wire<S, C> {
    fn wake(self: Arc<Self>) {
        self.pass();
    }
}

/// Returns `true` if a request counts once, however often it is delivered.
pub(crate) const fn counts_once<P>(request: &StoreRequest<P>) -> bool {
    matches!(
        request,
        StoreRequest::Reserve { .. }
            | StoreRequest::End { .. }
            | StoreRequest::Charge { once: Some(_), .. }
            | StoreRequest::Credit { once: Some(_), .. }
    )
}

/// Locks a mutex. No user code runs under it.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
