//! A store with faults, for tests of code that uses a store.

use std::fmt;
use std::sync::Arc;

use rategate::Clock;
use rategate::store::{Callback, Key, MemoryStore, PlanError, Rule, Store, StoreRequest};

use self::images::Images;
use self::wire::Wire;

mod course;
mod images;
mod wire;

pub use course::{Fate, FaultRates};

/// A store with faults: late, reordered or lost replies, cut connections, lossy failovers.
///
/// Each request takes a [`Fate`]. For a part that is [cut](Self::cut) it is that of the cut.
/// Otherwise it is the next of the [script](Self::script), else one [drawn by a
/// seed](Self::set_odds), else the [usual](Self::set_usual) one. On a
/// [`ManualClock`](rategate::ManualClock) the order of events is deterministic: messages in flight
/// arrive when the clock is moved to their instants.
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
pub struct FaultyStore<S: Store, C: Clock + 'static> {
    wire: Arc<Wire<S, C>>,
    backends: usize,
}

impl<S: Store, C: Clock + 'static> FaultyStore<S, C> {
    /// Creates a store that replies within `budget_ns`, without faults so far.
    #[must_use]
    pub fn new(store: Arc<S>, clock: C, budget_ns: u64) -> Self {
        let backends = store.backends().max(1);
        Self { wire: Wire::new(store, clock, budget_ns), backends }
    }

    /// Splits a store that is one part into `backends` parts, at least 1. Each key keeps its part.
    #[must_use]
    pub fn with_backends(mut self, backends: usize) -> Self {
        if self.store().backends() == 1 {
            self.backends = backends.max(1);
        }
        self
    }

    /// Appends courses for the next requests to the script.
    pub fn script(&self, courses: impl IntoIterator<Item = Fate>) {
        self.wire.in_transit().courses.script(courses);
    }

    /// Sets the course of all requests that no script covers.
    pub fn set_usual(&self, course: Fate) {
        self.wire.in_transit().courses.usual(course);
    }

    /// Draws the course of each request that no script covers: the same seed gives the same ones.
    pub fn set_odds(&self, odds: FaultRates, seed: u64) {
        self.wire.in_transit().courses.odds(odds, seed);
    }

    /// Cuts a part off: requests for its keys all take this course.
    pub fn cut(&self, backend: usize, course: Fate) {
        self.wire.in_transit().courses.cut(backend, Some(course));
    }

    /// Ends the cut of a part.
    pub fn mend(&self, backend: usize) {
        self.wire.in_transit().courses.cut(backend, None);
    }

    /// Returns the store behind the faults.
    #[must_use]
    pub fn store(&self) -> &Arc<S> {
        &self.wire.store
    }
}

impl<D: Clock + 'static, C: Clock + 'static> FaultyStore<MemoryStore<D>, C> {
    /// Adds a replica that receives each request `lag_ns` after the store, in order.
    ///
    /// It costs an image of the whole store for each request, so it is for few keys.
    pub fn lag(&self, lag_ns: u64) {
        let take = |store: &MemoryStore<D>| -> images::RestoreFn<MemoryStore<D>> {
            let image = store.image();
            Box::new(move |store| store.rewind(&image))
        };
        self.wire.in_transit().images = Some(Images::new(lag_ns, Box::new(take)));
    }

    /// Replaces the store by its replica, which loses the decisions of the last
    /// [`lag`](Self::lag).
    ///
    /// [`intact_for_ns`](rategate::store::StoreReply::intact_for_ns) begins again. A store without
    /// a replica loses nothing.
    pub fn fail_over(&self) {
        let now_ns = self.wire.clock.now_ns();
        let store = self.store();
        let images = self.wire.in_transit().images.take();
        let Some(mut images) = images else { return store.rewind(&store.image()) };
        (images.replica(now_ns, store))(store);
        self.wire.in_transit().images = Some(images);
    }
}

impl<S: Store, C: Clock + 'static> Store for FaultyStore<S, C> {
    type Plan = S::Plan;

    fn plan(&self, rules: &[(&str, Rule)]) -> Result<S::Plan, PlanError> {
        self.wire.store.plan(rules)
    }

    fn submit(&self, request: StoreRequest<S::Plan>, callback: Callback) {
        let course = {
            let backend = self.backend_of(request.key());
            self.wire.in_transit().courses.next(backend)
        };
        self.wire.send(request, course, callback);
    }

    fn backends(&self) -> usize {
        self.backends
    }

    fn revivals(&self, backend: usize) -> u64 {
        self.store().revivals(backend)
    }

    fn backend_of(&self, key: &Key) -> usize {
        if self.store().backends() > 1 {
            return self.store().backend_of(key);
        }
        // FNV-1a: the same in each run.
        let mix =
            |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
        let hash = key.iter().fold(0xCBF2_9CE4_8422_2325, mix);
        fastrand::Rng::with_seed(hash).usize(..self.backends)
    }
}

impl<S: Store, C: Clock + 'static> Drop for FaultyStore<S, C> {
    fn drop(&mut self) {
        self.wire.close();
    }
}

impl<S: Store, C: Clock + 'static> fmt::Debug for FaultyStore<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("FaultyStore");
        shown.field("budget_ns", &self.wire.budget_ns).field("parts", &self.backends);
        shown.finish_non_exhaustive()
    }
}
