//! Messages in flight between callers and a store, and a timer for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

use super::course::{Course, Courses};
use super::images::Images;
use crate::clock::Clock;
use crate::store::ask::Unclaimed;
use crate::store::{Answer, Fault, Gone, Hear, Question, Store};
use crate::wait::Sleep;

/// The state that the store and its callers share.
pub(super) struct Wire<S: Store, C> {
    pub(super) store: Arc<S>,
    pub(super) clock: C,
    pub(super) budget_ns: u64,
    on_the_way: Mutex<OnTheWay<S>>,
}

pub(super) struct OnTheWay<S: Store> {
    pub(super) courses: Courses,
    pub(super) images: Option<Images<S>>,
    events: BTreeMap<Due, Event<S>>,
    serial: u64,
    armed: Option<Sleep>,
    is_closed: bool,
}

/// The time of an event.
///
/// At one instant, a reply comes before the end of the caller's budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at_ns: u64,
    is_end: bool,
    serial: u64,
}

enum Event<S: Store> {
    /// A request reaches the store; its reply takes this long, or is lost.
    Reaches { question: Question<S::Plan>, exchange: Exchange<S>, back_ns: Option<u64> },
    /// A reply reaches the caller.
    Returns { answer: Result<Answer, Fault>, exchange: Exchange<S> },
    /// The caller's budget ends.
    Ends { exchange: Exchange<S> },
}

/// A request, from its submission to its callback.
struct Exchange<S: Store> {
    /// The end of the caller's budget.
    end: Due,
    hear: Arc<Mutex<Option<Hear>>>,
    unclaimed: Arc<Mutex<Option<Unclaimed<S>>>>,
}

impl<S: Store> Clone for Exchange<S> {
    fn clone(&self) -> Self {
        Self { end: self.end, hear: Arc::clone(&self.hear), unclaimed: Arc::clone(&self.unclaimed) }
    }
}

impl<S: Store> Exchange<S> {
    /// Passes the result to the callback, or returns it if the callback was called before.
    fn tell(&self, answer: Result<Answer, Fault>) -> Option<Result<Answer, Fault>> {
        let hear = lock(&self.hear).take();
        match hear {
            Some(hear) => {
                hear(answer);
                None
            }
            None => Some(answer),
        }
    }

    /// Returns the permits that a reply grants to the store.
    fn give_back(&self, unheard: Result<Answer, Fault>) {
        let unclaimed = lock(&self.unclaimed).take();
        if let Some(unclaimed) = unclaimed {
            unclaimed.give_back(unheard);
        }
    }
}

impl<S: Store, C: Clock + 'static> Wire<S, C> {
    pub(super) fn new(store: Arc<S>, clock: C, budget_ns: u64) -> Arc<Self> {
        let on_the_way = Mutex::new(OnTheWay {
            courses: Courses::default(),
            images: None,
            events: BTreeMap::new(),
            serial: 0,
            armed: None,
            is_closed: false,
        });
        Arc::new(Self { store, clock, budget_ns, on_the_way })
    }

    pub(super) fn on_the_way(&self) -> MutexGuard<'_, OnTheWay<S>> {
        lock(&self.on_the_way)
    }

    /// Sends a request on its course.
    pub(super) fn send(self: &Arc<Self>, question: Question<S::Plan>, course: Course, hear: Hear) {
        let now_ns = self.clock.now_ns();
        let gone = |gone| Err(Fault::Gone(gone));
        let (there_ns, back_ns) = match course {
            Course::Unreachable => {
                return hear(gone(Gone::Unreachable("the connection is cut".into())));
            }
            Course::Unable => {
                return hear(gone(Gone::Unable("the store replies that it is unable".into())));
            }
            Course::Straight => (Some(0), Some(0)),
            Course::Slow { there_ns, back_ns } => (Some(there_ns), Some(back_ns)),
            Course::LostThere => (None, None),
            Course::LostBack => (Some(0), None),
        };
        let unclaimed = Arc::new(Mutex::new(Unclaimed::of(&question, &self.store)));
        let hear = Arc::new(Mutex::new(Some(hear)));
        let mut on_the_way = self.on_the_way();
        let end = on_the_way.due(now_ns.saturating_add(self.budget_ns), true);
        let exchange = Exchange { end, hear, unclaimed };
        on_the_way.events.insert(end, Event::Ends { exchange: exchange.clone() });
        if let Some(there_ns) = there_ns {
            let due = on_the_way.due(now_ns.saturating_add(there_ns), false);
            on_the_way.events.insert(due, Event::Reaches { question, exchange, back_ns });
        }
        drop(on_the_way);
        self.pass();
    }

    /// Runs all events that are due, and arms the timer for the next.
    pub(super) fn pass(self: &Arc<Self>) {
        loop {
            let now_ns = self.clock.now_ns();
            let mut on_the_way = self.on_the_way();
            let Some(first) = on_the_way.events.first_entry() else {
                let armed = on_the_way.armed.take();
                drop(on_the_way);
                // Outside the lock, because it may run any code.
                drop(armed);
                return;
            };
            let due = *first.key();
            if due.at_ns <= now_ns {
                let event = first.remove();
                drop(on_the_way);
                self.happen(due.at_ns, event);
                continue;
            }
            drop(on_the_way);
            let mut sleep = self.clock.sleep_until(due.at_ns);
            let waker = Waker::from(Arc::clone(self));
            if sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                continue;
            }
            let mut on_the_way = self.on_the_way();
            if on_the_way.events.first_key_value().is_some_and(|(first, _)| *first == due) {
                let before = on_the_way.armed.replace(sleep);
                drop(on_the_way);
                drop(before);
                return;
            }
        }
    }

    /// Runs an event of `due_ns`, which may be in the past: a clock may jump by more than one
    /// event.
    fn happen(self: &Arc<Self>, due_ns: u64, event: Event<S>) {
        match event {
            Event::Reaches { question, exchange, back_ns } => {
                let now_ns = self.clock.now_ns();
                if let Some(images) = &mut self.on_the_way().images {
                    images.keep(now_ns, &self.store);
                }
                let wire = Arc::clone(self);
                let returns = move |answer| {
                    let Some(back_ns) = back_ns else { return };
                    let took_ns = wire.clock.now_ns().saturating_sub(now_ns);
                    let at_ns = due_ns.saturating_add(took_ns).saturating_add(back_ns);
                    let mut on_the_way = wire.on_the_way();
                    if on_the_way.is_closed {
                        drop(on_the_way);
                        return wire.happen(at_ns, Event::Returns { answer, exchange });
                    }
                    let due = on_the_way.due(at_ns, false);
                    on_the_way.events.insert(due, Event::Returns { answer, exchange });
                    drop(on_the_way);
                    wire.pass();
                };
                self.store.put(question, Box::new(returns));
            }
            Event::Returns { answer, exchange } => {
                let end = self.on_the_way().events.remove(&exchange.end);
                drop(end);
                if let Some(unheard) = exchange.tell(answer) {
                    exchange.give_back(unheard);
                }
            }
            Event::Ends { exchange } => drop(exchange.tell(Err(Fault::Gone(Gone::Late)))),
        }
    }

    /// Reports to waiting callers that the store is closed, and drops all events.
    pub(super) fn close(&self) {
        let mut on_the_way = self.on_the_way();
        on_the_way.is_closed = true;
        let events = std::mem::take(&mut on_the_way.events);
        let armed = on_the_way.armed.take();
        drop(on_the_way);
        drop(armed);
        for event in events.into_values() {
            match event {
                Event::Reaches { exchange, .. } | Event::Ends { exchange } => {
                    drop(exchange.tell(Err(Fault::Closed)));
                }
                Event::Returns { answer, exchange } => {
                    drop(exchange.tell(Err(Fault::Closed)));
                    exchange.give_back(answer);
                }
            }
        }
    }
}

impl<S: Store> OnTheWay<S> {
    /// Returns the next event time at that instant.
    const fn due(&mut self, at_ns: u64, is_end: bool) -> Due {
        self.serial = self.serial.wrapping_add(1);
        Due { at_ns, is_end, serial: self.serial }
    }
}

/// A waker by which the clock reports that an event is due.
impl<S: Store, C: Clock + 'static> Wake for Wire<S, C> {
    fn wake(self: Arc<Self>) {
        self.pass();
    }
}

/// Locks a mutex. No user code runs under it, except the images of a store.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
