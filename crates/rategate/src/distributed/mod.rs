//! One limit over many machines.
//!
//! A [`Distributed`] is a limit for each key that any number of processes keep together: by a
//! [store](crate::store) that all of them reach, in one of three [modes](Mode). Each has its own price, and its own
//! bound.
//!
//! | mode | round trips | never more than, in any window | while the store is gone |
//! |---|---|---|---|
//! | [`Exact`](Mode::Exact) | one for each call, many in one | the limit, as the store decides | [`WhenGone`], at once |
//! | [`Leased`](Mode::Leased) | one for as many permits as a node needs in a part of a lease | the limit and what was borrowed when the window began; exactly the limit [with a guard](Leases::with_guard) | what was borrowed first, for one lease at most |
//! | [`SharedOut`](Mode::SharedOut) | one for each sign of life | the limit | its share, for one and a half signs of life |
//!
//! Two more have no need of this module. *Affine*: all calls of a key come to one process, so a
//! [`Keyed`](crate::Keyed) decides, and saves its state over a restart (feature `serde`). *Relaxed*: `rategate analyze`
//! reads logs and keeps a list of those over their limit, which nodes look at: [`deny`](crate::deny).
//!
//! # Without the store
//!
//! No question waits for the store longer than its time budget and a quarter of it; only a call that is told to wait for
//! permits, by [`acquire_within`](Distributed::acquire_within), asks again. After some failures in a row the store is not asked at all
//! but for one probe now and then, and each call is answered [as was said for that](WhenGone); one answer, and all is as
//! before. [`Distributed::health`] says what is in force, and each change is told once (feature `tracing`).
//!
//! A store that takes over from another one may have lost what that one had granted just before. With
//! [a quarantine](Builder::with_quarantine) nothing it grants is acted on until that cannot matter any more; without it, as much as
//! was lost can be granted again.
//!
//! # After a fork
//!
//! Make the limiters of a child in the child. A copy of the parent's is the same member of a group, and has the same borrowed
//! permits, so both processes would use them: in [`Leased`](Mode::Leased) mode what is borrowed once more, and in
//! [`SharedOut`](Mode::SharedOut) mode the share, until it lapses, as the thread that keeps it is the parent's. A limiter in
//! [`Exact`](Mode::Exact) mode is right in both, as far as its store is. Dropped in the child, a copy takes
//! nothing from the parent.
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
//!     .limit("tenant", Gcra::new("5/s".parse()?, 2)?)
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
mod counts;
mod deadline;
mod decision;
mod exact;
mod fallback;
mod health;
mod inner;
mod leased;
mod member;
mod mode;
mod portion;
mod renewals;
mod rounds;
mod shared_out;
mod watch;

pub use builder::{Builder, SetupError};
pub use builder::{DEFAULT_BUDGET_NS, DEFAULT_KEYS};
pub use counts::{Calls, Counts};
pub use decision::{By, Deciding, Decision, Denial, Grant};
pub use health::{Health, Sight};
pub use mode::{Leases, Mode, Shares, WhenGone};
pub use renewals::LeaseGuard;

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use self::inner::{Inner, Way};
use self::leased::Entry;
use crate::clock::{Clock, MonotonicClock};
use crate::process::OfProcess;
#[cfg(feature = "metrics")]
use crate::stats::publish;
use crate::store::{Ask, Asked, Fault, Key, LeaseId, Rule, Store};

/// A limit for each key, kept together with other processes. See the [module](self).
///
/// Clones are the same limiter.
pub struct Distributed<S: Store, C: Clock + Clone + 'static = MonotonicClock> {
    owner: Arc<Owner<S, C>>,
}

/// Ends what goes on in the background once nobody has the limiter any more.
struct Owner<S: Store, C: Clock + Clone + 'static> {
    inner: Arc<Inner<S, C>>,
    /// What is borrowed is the maker's, and so is the thread: a forked child ends neither.
    made_here: OfProcess<()>,
    /// Whether there is no thread to be started, or none any more.
    needs_no_thread: AtomicBool,
}

impl<S: Store> Distributed<S> {
    /// A limiter over this store, to be set up.
    #[must_use]
    pub fn builder(store: Arc<S>) -> Builder<S> {
        Builder::new(store)
    }
}

impl<S: Store, C: Clock + Clone + 'static> Distributed<S, C> {
    /// Asks for permits of a key: all of them, or none. The answer is there at once where this node can
    /// decide, and otherwise within the budget, or a quarter more at the caller's own [deadline](Deciding). No permits are granted without a question.
    pub fn try_acquire(&self, key: &[u8], permits: u64) -> Deciding {
        self.inner().try_acquire(key, permits)
    }

    /// What a call for so many permits would be told by the store, within its budget; without it, what was said for that.
    /// Takes nothing. What this node has borrowed is not among it.
    pub fn peek(&self, key: &[u8], permits: u64) -> Deciding {
        match self.inner().asked(permits) {
            Ok(permits) => self.inner().peek(Key::from(key), permits),
            Err(decision) => self.inner().now(decision),
        }
    }

    /// Forgets in the store what a key has used. Says of how many limits. What nodes have borrowed of it stays theirs, for
    /// one lease at most.
    pub fn reset(&self, key: &[u8]) -> Asked<u64> {
        let inner = self.inner();
        inner.store.reset(&inner.store_plan, &Key::from(key))
    }

    /// A key to be asked again and again, without looking for it each time.
    #[must_use]
    pub fn key(&self, key: &[u8]) -> OneKey<S, C> {
        let entry = match &self.inner().way {
            Way::Leased(leasing) => leasing.entry(key, self.inner()),
            Way::Exact | Way::SharedOut(_) => None,
        };
        OneKey { limiter: self.clone(), key: Key::from(key), entry }
    }

    /// Permits in flight, under a name that no other holder has, until they are [released](Self::release), or their time is
    /// over and they have not been [renewed](Self::renew). A [guard](Self::keep) does both.
    ///
    /// A limiter without a limit of permits in flight has nothing to hold: [`Fault::Question`].
    pub fn hold(&self, key: &[u8], permits: u64, lease: LeaseId) -> Deciding {
        if self.inner().held_ns.is_none() {
            let why = "no limit is of permits in flight, so nothing can be held: `try_acquire` asks for permits";
            return self.inner().now(Err(Fault::Question(why.to_owned())));
        }
        match self.inner().asked(permits) {
            Ok(permits) => self.inner().exact(Key::from(key), permits, Some(lease)),
            Err(decision) => self.inner().now(decision),
        }
    }

    /// Whether a limit is of permits in flight, so that they are [held](Self::hold) instead of asked for.
    #[must_use]
    pub fn counts_in_flight(&self) -> bool {
        self.inner().held_ns.is_some()
    }

    /// Lets what was [held](Self::hold) go on for its full time from now. Says 0 if it had ended: the permits may be
    /// somebody else's by now.
    pub fn renew(&self, key: &[u8], permits: NonZeroU64, lease: LeaseId) -> Asked<u64> {
        let inner = self.inner();
        inner.store.renew(&inner.store_plan, &Key::from(key), permits, lease)
    }

    /// Ends what was [held](Self::hold). Says 0 if it had ended. It is sent in any case, and need not be waited for: if it
    /// does not arrive, the time of the permits ends by itself.
    pub fn release(&self, key: &[u8], permits: NonZeroU64, lease: LeaseId) -> Asked<u64> {
        let inner = self.inner();
        inner.store.release(&inner.store_plan, &Key::from(key), permits, lease)
    }

    /// Gives permits of a grant back that had no effect and will have none: once for each. What the
    /// store granted goes back to it, and what this node granted of what it had borrowed, or without the store, can be granted here
    /// again. What it granted of its share ages out as if it had been used.
    pub fn refund(&self, key: &[u8], permits: NonZeroU64, grant: Grant) {
        self.inner().refund(Key::from(key), permits, grant);
    }

    /// Gives permits back without a grant to show, up to full, and says how many came back to the store: the caller's word, by
    /// which in any window as many more pass as come back in it. What this node has borrowed, has a share of, or has decided alone
    /// is not touched, so of a limit that is shared out nothing comes back.
    pub fn give_back(&self, key: &[u8], permits: NonZeroU64) -> Asked<u64> {
        let inner = self.inner();
        inner.store.give_back(&inner.store_plan, &Key::from(key), permits)
    }

    /// Tells the recorder that the program has installed how many calls were decided by whom, and how the store is.
    #[cfg(feature = "metrics")]
    pub fn publish(&self) {
        let inner = self.inner();
        publish::distributed(&inner.name, &self.counts(), &self.health());
    }

    /// What is in force.
    #[must_use]
    pub fn health(&self) -> Health {
        self.inner().watch.health()
    }

    /// How many calls were decided by whom.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.inner().counters.read()
    }

    /// This node's share of the permits, and `None` where they are not shared out.
    #[must_use]
    pub fn share(&self) -> Option<u64> {
        match &self.inner().way {
            Way::SharedOut(shared) => {
                Some(shared.membership.now(self.inner().clock.now_ns()).share)
            }
            Way::Exact | Way::Leased(_) => None,
        }
    }

    /// Does what is due: signs of life, and giving back what was borrowed in vain. Says when to come again, on the
    /// limiter's clock. Only for a limiter that is [unattended](Builder::unattended).
    #[must_use = "it says when to come again"]
    pub fn attend(&self) -> Option<u64> {
        self.inner().attend()
    }

    fn start(inner: Inner<S, C>, is_attended: bool) -> Self {
        let inner = Arc::new(inner);
        inner.begin();
        let needs_rounds = !matches!(inner.way, Way::Exact);
        let needs_no_thread = AtomicBool::new(!is_attended);
        let owner = Owner { inner, made_here: OfProcess::new(()), needs_no_thread };
        let limiter = Self { owner: Arc::new(owner) };
        if needs_rounds {
            limiter.attend_in_background();
        }
        limiter
    }

    /// Starts the thread that does what is due, if that is for this limiter to do and it has none.
    fn attend_in_background(&self) {
        if self.owner.needs_no_thread.swap(true, Ordering::Relaxed) {
            return;
        }
        let inner = Arc::clone(self.inner());
        let name = String::from("rategate-rounds");
        // Without a thread borrowed permits age out instead of going back, shares lapse, and permits in flight end.
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
            self.inner.rounds.bell().raise();
            self.inner.leave();
        }
    }
}

/// One line: the limits and how they are kept. What remains is known to the store.
impl<S: Store, C: Clock + Clone + 'static> fmt::Debug for Distributed<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.inner();
        let mode = match &inner.way {
            Way::Exact => "exact",
            Way::Leased(_) => "leased",
            Way::SharedOut(_) => "shared out",
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

/// A key of a limiter.
#[derive(Debug)]
pub struct OneKey<S: Store, C: Clock + Clone + 'static = MonotonicClock> {
    limiter: Distributed<S, C>,
    key: Key,
    entry: Option<Arc<Entry>>,
}

impl<S: Store, C: Clock + Clone + 'static> OneKey<S, C> {
    /// As [`Distributed::try_acquire`].
    pub fn try_acquire(&self, permits: u64) -> Deciding {
        let inner = self.limiter.inner();
        match (&self.entry, inner.asked(permits)) {
            (Some(entry), Ok(permits)) => inner.leased(entry, permits),
            (None, Ok(_)) => inner.try_acquire(&self.key, permits),
            (_, Err(decision)) => inner.now(decision),
        }
    }
}

/// For how long a grant matters to a rule, in ns.
fn remembered_ns(rule: &Rule) -> u64 {
    match rule {
        // What a burst takes to be earned.
        Rule::Bucket(bucket) => bucket.rate().fraction().map_or(0, |(permits, period_ns)| {
            let burst_ns = u128::from(bucket.burst().get()).saturating_mul(period_ns.into());
            u64::try_from(burst_ns.div_ceil(u128::from(permits.max(1)))).unwrap_or(u64::MAX)
        }),
        Rule::Log(log) => log.held_for_ns(),
        Rule::Window(window) => window.period_ns(),
        Rule::InFlight(_, length_ns) => length_ns.get(),
    }
}
