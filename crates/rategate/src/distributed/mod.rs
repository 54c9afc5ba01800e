//! Distributed limits: one limit per key that many processes keep together.
//!
//! A [`Distributed`] is a limit for each key that any number of processes share through a
//! [store](crate::store) that all of them reach, in one of two [modes](Mode). Each mode has
//! its own cost and its own bound.
//!
//! | mode | round trips | bound in any window | without the store |
//! |---|---|---|---|
//! | [`Exact`](Mode::Exact) | one per call, batched | the limit | the fallback |
//! | [`Leased`](Mode::Leased) | one per debit | the limit and leases | leases, then the fallback |
//!
//! The fallback is chosen by [`OnUnavailable`].
//!
//! * **Exact.** The store decides each call, and many calls share a round trip.
//! * **Leased.** A node borrows the permits that it needs in part of a lease. In any window, at
//!   most the limit passes plus the permits borrowed when the window began, or at most the limit
//!   [with a guard](Leases::guard). Without the store, borrowed permits last for at most one
//!   lease.
//!
//! Three further modes do not need this module. *Static shares*: each process keeps a fixed
//! [part](crate::policy::Part) of the limit, without a store. *Affine*: all calls of a key come to one process,
//! so a [`Keyed`](crate::Keyed) decides, and saves its state across restarts (feature `serde`).
//! *Relaxed*: `rategate analyze` reads logs and keeps a list of clients over their limit, which
//! nodes consult: [`deny`](crate::deny).
//!
//! # Without the store
//!
//! No call waits for the store longer than its time budget plus a quarter. Only a call that
//! waits for permits, by [`acquire_within`](Distributed::acquire_within), submits its request
//! again. After some failures in a row, a circuit breaker stops all requests except for one
//! probe now and then, and [the fallback](OnUnavailable) decides each call. One reply restores
//! normal operation. [`Distributed::health`] returns the current status, and each change is
//! reported once (feature `tracing`).
//!
//! A store that takes over from another may have lost the grants that the other made just
//! before. With [a quarantine](Builder::with_quarantine), a node acts on none of its grants
//! until that loss can no longer matter; without it, as much as was lost can be granted again.
//!
//! # After a fork
//!
//! Create a child's limiters in the child. A copy of the parent's has the same borrowed permits,
//! so in [`Leased`](Mode::Leased) mode both processes would use them. A limiter in
//! [`Exact`](Mode::Exact) mode is right in both, as far as its store is. Dropping a copy in the
//! child takes nothing from the parent.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use rategate::distributed::{Distributed, Mode};
//! use rategate::store::MemoryStore;
//! use rategate::Gcra;
//!
//! // Over several machines it would be a `RedisStore`.
//! let store = Arc::new(MemoryStore::new());
//! let limiter = Distributed::builder(store)
//!     .limit("tenant", Gcra::per_second(5).burst(2))
//!     .mode(Mode::Exact)
//!     .build()?;
//!
//! assert!(limiter.try_acquire(b"tenant 1", 1).wait()?.is_granted());
//! assert!(limiter.try_acquire(b"tenant 1", 1).wait()?.is_granted());
//! assert!(!limiter.try_acquire(b"tenant 1", 1).wait()?.is_granted());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod acquire;
mod builder;
mod exact;
mod health;
mod held;
mod inner;
mod mode;
mod once;
mod reserve;
mod rounds;
mod watch;

pub use crate::store::StoreStatus;
pub use builder::Builder;
pub use builder::{DEFAULT_BUDGET, DEFAULT_KEYS};
pub use health::Health;
pub use inner::counts::{Calls, Counts};
pub use inner::decision::{DecidedBy, Decision, DecisionFuture, Denial, Grant};
pub use inner::renewals::LeaseGuard;
pub use mode::{Leases, Mode, OnUnavailable};

use std::fmt;
use std::iter;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rategate_core::calendar::{Calendar, Window};
use rategate_core::fixed_window::Windows;

use self::inner::leased::Entry;
use self::inner::{Inner, Strategy};
use crate::clock::{Clock, MonotonicClock};
use crate::process::ProcessBound;
#[cfg(feature = "metrics")]
use crate::stats::publish;
use crate::store::{ChargeReply, Key, LeaseId, Pending, Rule, Store, StoreError, StoreExt};

/// A limit for each key, kept together with other processes. See the [module](self).
///
/// Clones are handles to one limiter.
pub struct Distributed<S: Store, C: Clock + Clone + 'static = MonotonicClock> {
    owner: Arc<Owner<S, C>>,
}

/// The owner of the background work, which ends it when the last handle is dropped.
struct Owner<S: Store, C: Clock + Clone + 'static> {
    inner: Arc<Inner<S, C>>,
    /// Borrowed permits and the thread are the creating process's: a forked child ends neither.
    made_here: ProcessBound<()>,
    /// `true` if no thread has to be started, or one has been.
    needs_no_thread: AtomicBool,
}

impl<S: Store> Distributed<S> {
    /// Creates a builder of a limiter over this store.
    #[must_use]
    pub fn builder(store: Arc<S>) -> Builder<S> {
        Builder::new(store)
    }
}

impl<S: Store, C: Clock + Clone + 'static> Distributed<S, C> {
    /// Requests permits of a key: all of them, or none.
    ///
    /// The decision is there at once where this node can make it. Otherwise it comes within the
    /// budget, or a quarter more at the caller's own [deadline](DecisionFuture). A request for no
    /// permits is granted without a round trip.
    pub fn try_acquire(&self, key: &[u8], permits: u64) -> DecisionFuture {
        self.inner().try_acquire(key, permits)
    }

    /// Returns the decision that the store would make for so many permits. Takes nothing.
    ///
    /// It comes within the budget; without the store, the fallback decides. Permits that this node
    /// has borrowed are not counted.
    pub fn peek(&self, key: &[u8], permits: u64) -> DecisionFuture {
        match self.inner().checked_permits(permits) {
            Ok(permits) => self.inner().peek(Key::from(key), permits),
            Err(decision) => self.inner().now(decision),
        }
    }

    /// Clears a key's use in the store. Returns the number of limits that had any.
    ///
    /// Permits of it that nodes have borrowed stay with them, for at most one lease.
    pub fn reset(&self, key: &[u8]) -> Pending<u64> {
        let inner = self.inner();
        inner.store.reset(&inner.store_plan, &Key::from(key))
    }

    /// Returns a handle to one key, for repeated calls without a lookup.
    #[must_use]
    pub fn key(&self, key: &[u8]) -> KeyHandle<S, C> {
        let entry = match &self.inner().strategy {
            Strategy::Leased(leasing) => leasing.entry(key, self.inner()),
            Strategy::Exact => None,
        };
        KeyHandle { limiter: self.clone(), key: Key::from(key), entry }
    }

    /// Takes permits in flight under a lease id that no other holder has.
    ///
    /// They are held until they are [released](Self::release), or until they expire without having
    /// been [renewed](Self::renew). A [guard](Self::keep) does both.
    ///
    /// A limiter without a limit of permits in flight returns [`StoreError::InvalidRequest`].
    pub fn hold(&self, key: &[u8], permits: u64, lease: LeaseId) -> DecisionFuture {
        if self.inner().held_ns.is_none() {
            let why = "no limit counts permits in flight: use `try_acquire` instead of `hold`";
            return self.inner().now(Err(StoreError::InvalidRequest(why.to_owned())));
        }
        match self.inner().checked_permits(permits) {
            Ok(permits) => self.inner().exact(Key::from(key), permits, Some(lease)),
            Err(decision) => self.inner().now(decision),
        }
    }

    /// Returns `true` if a limit counts permits in flight, which are [held](Self::hold), not
    /// acquired.
    #[must_use]
    pub fn counts_in_flight(&self) -> bool {
        self.inner().held_ns.is_some()
    }

    /// Renews a [held](Self::hold) lease for its full time from now. Returns 0 if it had ended.
    ///
    /// Its permits may then belong to another caller.
    pub fn renew(&self, key: &[u8], permits: NonZeroU64, lease: LeaseId) -> Pending<u64> {
        let inner = self.inner();
        inner.store.renew(&inner.store_plan, &Key::from(key), permits, lease)
    }

    /// Ends a [held](Self::hold) lease. Returns 0 if it had ended.
    ///
    /// The request is sent in any case, and need not be awaited: if it is lost, the lease expires
    /// by itself.
    pub fn release(&self, key: &[u8], permits: NonZeroU64, lease: LeaseId) -> Pending<u64> {
        let inner = self.inner();
        inner.store.release(&inner.store_plan, &Key::from(key), permits, lease)
    }

    /// Refunds permits of a grant that had no effect and will have none, each permit once.
    ///
    /// Permits granted by the store go back to it. Those that this node granted from a lease, or
    /// without the store, can be granted here again.
    pub fn refund(&self, key: &[u8], permits: NonZeroU64, grant: Grant) {
        self.inner().refund(Key::from(key), permits, grant);
    }

    /// Credits permits to the store without a grant, up to a full limit. Returns the number that
    /// came back.
    ///
    /// The caller vouches for them: in any window, the permits that pass exceed the limit by no
    /// more than come back in it. This node's borrowed permits and fallback are not touched.
    pub fn credit(&self, key: &[u8], permits: NonZeroU64) -> Pending<u64> {
        let inner = self.inner();
        inner.store.credit(&inner.store_plan, &Key::from(key), permits)
    }

    /// Counts permits in the store that have been used already, whether they fit or not.
    ///
    /// What exceeds the limit is a debt, which ends as the limiter's [terms](Builder::with_debt)
    /// say; until then the store denies all requests. Of several limits each is charged, except
    /// those of permits in flight. Permits that nodes have borrowed stay with them, for at most one
    /// lease.
    ///
    /// The circuit breaker and the fallback play no part: the usage is a fact, which only the store
    /// can count. After [`StoreError::Unavailable`] **the outcome is unknown**. The charge may have
    /// been booked, so it is not sent again; a caller that repeats it may charge twice, unless it
    /// [has an id](Self::charge_once). Dropping the future takes nothing back.
    ///
    /// ```
    /// use std::num::NonZeroU64;
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use rategate::distributed::Distributed;
    /// use rategate::store::MemoryStore;
    /// use rategate::{Gcra, ManualClock};
    ///
    /// // 1000 tokens a second. A model's reply is known to have cost 1700 when it has come.
    /// let store = Arc::new(MemoryStore::with_clock(ManualClock::new()));
    /// let tokens = Distributed::builder(store)
    ///     .limit("tokens", Gcra::per_second(1000).burst(1000))
    ///     .build()?;
    /// let cost = NonZeroU64::new(1700).ok_or("a reply that cost nothing")?;
    /// assert_eq!(tokens.charge(b"tenant 1", cost).wait()?.charged.debt, 700);
    /// assert!(!tokens.try_acquire(b"tenant 1", 1).wait()?.is_granted());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors of the reply
    ///
    /// [`StoreError::CountsInFlight`], for limits that count permits in flight and nothing else;
    /// [`StoreError::InvalidRequest`], for a debt that the store cannot carry.
    pub fn charge(&self, key: &[u8], permits: NonZeroU64) -> Pending<ChargeReply> {
        let inner = self.inner();
        inner.store.charge(&inner.store_plan, &Key::from(key), permits.get(), inner.debt)
    }

    /// Requests permits that count in any case: a denied request has been charged too.
    ///
    /// It is granted if the limit is not exceeded after it. No permits are denied while the limit
    /// is exceeded, with the time until it is not. The store decides, in leased mode too. Without
    /// the store the fallback decides, and counts only what fits; the store may have counted the
    /// request or not. Errors are those of [`charge`](Self::charge).
    pub fn try_acquire_or_charge(&self, key: &[u8], permits: u64) -> DecisionFuture {
        self.inner().acquire_or_charge(Key::from(key), permits)
    }

    /// Reports this limiter's counts and status to the metrics recorder that the program has
    /// installed.
    #[cfg(feature = "metrics")]
    pub fn publish(&self) {
        let inner = self.inner();
        let Counts { store, lease, fallback, changes, dropped_charges, waiting_charges, .. } =
            self.counts();
        let calls = [("store", store), ("lease", lease), ("fallback", fallback)];
        let figures = publish::Distributed {
            calls: calls.map(|(by, calls)| (by, calls.granted, calls.denied)),
            changes,
            dropped_charges,
            waiting_charges,
            store_status: self.health().store_status,
        };
        publish::distributed(&inner.name, &figures);
    }

    /// Returns the status of the store.
    #[must_use]
    pub fn health(&self) -> Health {
        self.inner().watch.health()
    }

    /// Returns the number of calls of each party that decided, by outcome.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let inner = self.inner();
        inner.counters.read(inner.charges.counts())
    }

    /// Runs background work that is due, and returns the time of the next, on the limiter's clock.
    ///
    /// The work is renewals and the return of unused borrowed permits. Only for a
    /// limiter that is [unattended](Builder::unattended).
    #[must_use = "it returns the time of the next call"]
    pub fn attend(&self) -> Option<u64> {
        self.inner().attend()
    }

    fn start(inner: Inner<S, C>, is_attended: bool) -> Self {
        let inner = Arc::new(inner);
        let needs_rounds = !matches!(inner.strategy, Strategy::Exact);
        let needs_no_thread = AtomicBool::new(!is_attended);
        let owner = Owner { inner, made_here: ProcessBound::new(()), needs_no_thread };
        let limiter = Self { owner: Arc::new(owner) };
        if needs_rounds {
            limiter.attend_in_background();
        }
        limiter
    }

    /// Starts the background thread, if this limiter runs its own and it has none.
    fn attend_in_background(&self) {
        if self.owner.needs_no_thread.swap(true, Ordering::Relaxed) {
            return;
        }
        let inner = Arc::clone(self.inner());
        let name = String::from("rategate-rounds");
        // Without a thread, borrowed permits age out instead of being returned, and permits in
        // flight end.
        let _ = std::thread::Builder::new().name(name).spawn(move || inner.keep_attending());
    }

    fn inner(&self) -> &Arc<Inner<S, C>> {
        &self.owner.inner
    }
}

impl<S: Store, C: Clock + Clone + 'static> Clone for Distributed<S, C> {
    fn clone(&self) -> Self {
        Self { owner: Arc::clone(&self.owner) }
    }
}

impl<S: Store, C: Clock + Clone + 'static> Drop for Owner<S, C> {
    fn drop(&mut self) {
        if self.made_here.get().is_some() {
            self.inner.rounds.wake_signal().cancel();
        }
    }
}

/// Formats the limits and the mode. The remaining permits are known to the store only.
impl<S: Store, C: Clock + Clone + 'static> fmt::Debug for Distributed<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.inner();
        let mode = match &inner.strategy {
            Strategy::Exact => "exact",
            Strategy::Leased(_) => "leased",
        };
        f.debug_struct("Distributed")
            .field("name", &inner.name)
            .field("mode", &format_args!("{mode}"))
            .field("limits", &Limits(&inner.limits))
            .finish_non_exhaustive()
    }
}

struct Limits<'a>(&'a [(String, Rule)]);

impl fmt::Debug for Limits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(label, rule)| (label, rule))).finish()
    }
}

/// A handle to one key of a limiter.
#[derive(Debug)]
pub struct KeyHandle<S: Store, C: Clock + Clone + 'static = MonotonicClock> {
    limiter: Distributed<S, C>,
    key: Key,
    entry: Option<Arc<Entry>>,
}

impl<S: Store, C: Clock + Clone + 'static> KeyHandle<S, C> {
    /// Requests permits of the key, as [`Distributed::try_acquire`] does.
    pub fn try_acquire(&self, permits: u64) -> DecisionFuture {
        let inner = self.limiter.inner();
        match (&self.entry, inner.checked_permits(permits)) {
            (Some(entry), Ok(permits)) => inner.leased(entry, permits),
            (None, Ok(_)) => inner.try_acquire(&self.key, permits),
            (_, Err(decision)) => inner.now(decision),
        }
    }
}

/// Returns the time for which a grant matters to a rule, in ns.
fn remembered_ns(rule: &Rule) -> u64 {
    match rule {
        // The time in which a burst is earned.
        Rule::Bucket(bucket) => bucket.rate().fraction().map_or(0, |(permits, period_ns)| {
            let burst_ns = u128::from(bucket.burst_size().get()).saturating_mul(period_ns.into());
            u64::try_from(burst_ns.div_ceil(u128::from(permits.max(1)))).unwrap_or(u64::MAX)
        }),
        Rule::Log(log) => log.held_for_ns(),
        Rule::Window(window) => match window.windows() {
            Windows::Even { period_ns, .. } => period_ns.get(),
            Windows::Of(calendar) => longest_window_ns(&calendar),
        },
        Rule::InFlight(_, length_ns) => length_ns.get(),
    }
}

/// The number of windows among which there is one of the longest kind: of sixteen months or
/// quarters some have 31 or 92 days, and of sixteen years some have 366.
const WINDOWS_TRIED: usize = 16;
/// The time by which a change of a zone's clocks can lengthen a window.
const LONGER_BY_ZONE_NS: u64 = 86_400_000_000_000;

/// Returns a length that no window of a calendar exceeds.
fn longest_window_ns(calendar: &Calendar) -> u64 {
    let after = |window: &Window| Some(calendar.window(window.end_ns));
    let windows = iter::successors(Some(calendar.window(0)), after).take(WINDOWS_TRIED);
    let longest_ns = windows.map(|window| window.length_ns()).max().unwrap_or(u64::MAX);
    longest_ns.saturating_add(LONGER_BY_ZONE_NS)
}
