//! A store with faults, for tests of code that uses a store.

use std::fmt;
use std::sync::Arc;

use rategate::Clock;
use rategate::store::{Callback, Key, PlanError, Rule, Store, StoreRequest};

use self::wire::Wire;

mod course;
mod wire;

pub use course::Fate;
pub(crate) use wire::counts_once;

/// A store with faults: late, reordered or lost replies, and cut connections.
///
/// Each request takes the next [`Fate`] of the [script](Self::script), or else the
/// [usual](Self::set_usual) one. On a [`ManualClock`](rategate::ManualClock) the order of events is
/// deterministic: messages in flight arrive when the clock is moved to their instants.
///
/// # Contract
///
/// * **Budget.** Every caller gets a reply within it, at latest
///   [`Unavailable::Late`]. At the last instant a reply counts as in time.
/// * **Late grants** return to the store when they arrive: a lease is released, other permits
///   are refunded.
/// * **Clock.** Delays are by the clock given here; the store decides by its own, usually the
///   same one.
/// * **Close.** When this is dropped, waiting callers get
///   [`StoreError::Closed`], and permits granted by replies in flight return to the store.
///
/// [`Unavailable::Late`]: rategate::store::Unavailable::Late
/// [`StoreError::Closed`]: rategate::store::StoreError::Closed
///
/// ```
/// use std::time::Duration;
///
/// use rategate::store::{MemoryStore, Store, StoreError, StoreExt as _, Unavailable};
/// use rategate::{ManualClock, SlidingLog};
/// use rategate_testkit::faulty::{Fate, FaultyStore};
/// use std::num::NonZeroU64;
/// use std::sync::Arc;
///
/// let clock = ManualClock::stepped();
/// let memory = Arc::new(MemoryStore::with_clock(clock.clone()));
/// let store = Arc::new(FaultyStore::new(memory, clock.clone(), 20_000_000));
/// let plan = Arc::new(store.plan(&[("api", SlidingLog::new(1, Duration::from_secs(1)).into())])?);
/// let (key, one) = (b"tenant 1"[..].into(), NonZeroU64::MIN);
///
/// // The store decides in time, and its reply is in flight for longer than the budget.
/// store.script([Fate::Slow { there_ns: 5_000_000, back_ns: 30_000_000 }]);
/// let asked = store.decide(&plan, &key, one);
/// clock.set(Duration::from_millis(20));
/// assert_eq!(asked.wait(), Err(StoreError::Unavailable(Unavailable::Late)));
/// // When the reply arrives, its permits return to the store.
/// clock.set(Duration::from_millis(35));
/// assert!(matches!(store.decide(&plan, &key, one).wait()?, rategate::store::Verdict::Granted(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FaultyStore<S: Store<Plan: Clone>, C: Clock + 'static> {
    wire: Arc<Wire<S, C>>,
}

impl<S: Store<Plan: Clone>, C: Clock + 'static> FaultyStore<S, C> {
    /// Creates a store that replies within `budget_ns`, without faults so far.
    #[must_use]
    pub fn new(store: Arc<S>, clock: C, budget_ns: u64) -> Self {
        Self { wire: Wire::new(store, clock, budget_ns) }
    }

    /// Appends courses for the next requests to the script.
    pub fn script(&self, courses: impl IntoIterator<Item = Fate>) {
        self.wire.in_transit().script.extend(courses);
    }

    /// Sets the course of all requests that no script covers.
    pub fn set_usual(&self, course: Fate) {
        self.wire.in_transit().usual = course;
    }

    /// Returns the store behind the faults.
    #[must_use]
    pub fn store(&self) -> &Arc<S> {
        &self.wire.store
    }
}

impl<S: Store<Plan: Clone>, C: Clock + 'static> Store for FaultyStore<S, C> {
    type Plan = S::Plan;

    fn plan(&self, rules: &[(&str, Rule)]) -> Result<S::Plan, PlanError> {
        self.wire.store.plan(rules)
    }

    fn submit(&self, request: StoreRequest<S::Plan>, callback: Callback) {
        let course = {
            let mut in_transit = self.wire.in_transit();
            in_transit.script.pop_front().unwrap_or(in_transit.usual)
        };
        self.wire.send(request, course, callback);
    }

    fn backends(&self) -> usize {
        self.store().backends()
    }

    fn revivals(&self, backend: usize) -> u64 {
        self.store().revivals(backend)
    }

    fn backend_of(&self, key: &Key) -> usize {
        self.store().backend_of(key)
    }
}

impl<S: Store<Plan: Clone>, C: Clock + 'static> Drop for FaultyStore<S, C> {
    fn drop(&mut self) {
        self.wire.close();
    }
}

impl<S: Store<Plan: Clone>, C: Clock + 'static> fmt::Debug for FaultyStore<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("FaultyStore");
        shown.field("budget_ns", &self.wire.budget_ns).finish_non_exhaustive()
    }
}
