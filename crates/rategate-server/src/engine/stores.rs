//! Rules whose counters are in a store that many machines share, and permits in flight that end by themselves.
//!
//! # Contract
//!
//! * **One rule** is decided by the store, or with permits borrowed from it, within the store's time budget. While it is gone the rule
//!   says what is answered: [`WhenGone`].
//! * **Several items** that are not all in this process: those in the store are asked for all at once, within one budget, and then those
//!   here are taken together. Where one is over, what the store has granted goes back to it, and what was granted of what is borrowed or kept alone
//!   can be granted again; if nobody waits for the answer any more, too. For that long others may find less than there is, and never more.
//! * **Windows that count every hit** ([`CountedWindow`]) count in the store what is denied, too, and give nothing back.
//! * **Refunds** show no grant, as in this process: a store takes back up to full, by the caller's word. While it is gone it takes back
//!   nothing. Permits in flight are [released](super::LeaseVerb::Release) instead.

use std::collections::HashMap;
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rategate::distributed::{
    Builder, DEFAULT_BUDGET_NS, Deciding, Distributed, Grant, Health, Leases, Mode,
    WhenGone as Gone,
};
use rategate::store::{
    self, Asked, Fault, Hear, LeaseId, MemoryStore, PlanError, Question, Rule as Kept, Store,
};
use rategate::{Anchor, AnyPolicy, Clock, ManualClock, SlidingLog};
use rategate_redis::client::SharedPlan;

use crate::rule::{CountedWindow, Limit, Place, Rule, WhenGone};

/// The most permits that are borrowed at a time.
const MOST_BORROWED: NonZeroU64 = NonZeroU64::new(10_000).unwrap();

/// A store for rules, of whatever kind.
pub trait Stores<C: Clock>: Send + Sync {
    /// The limit of a rule, kept there. For at most so many keys is anything kept in memory here.
    ///
    /// # Errors
    ///
    /// Why it cannot be.
    fn limit_of(&self, rule: &Rule, most_keys: usize, clock: &C)
    -> Result<Arc<dyn Remote>, String>;
}

/// A limit kept in a store, with the verbs of [`Distributed`].
pub trait Remote: Send + Sync {
    /// Asks for permits.
    fn take(&self, key: &[u8], permits: u64) -> Deciding;
    /// Looks.
    fn peek(&self, key: &[u8], permits: u64) -> Deciding;
    /// Forgets.
    fn reset(&self, key: &[u8]) -> Asked<u64>;
    /// Gives back what a grant was of.
    fn refund(&self, key: &[u8], permits: NonZeroU64, grant: Grant);
    /// Gives back without a grant to show, up to full. Says how many.
    fn give_back(&self, key: &[u8], permits: NonZeroU64) -> Asked<u64>;
    /// Takes permits in flight, under a name.
    fn hold(&self, key: &[u8], permits: u64, lease: LeaseId) -> Deciding;
    /// Lets them go on.
    fn renew(&self, key: &[u8], permits: NonZeroU64, lease: LeaseId) -> Asked<u64>;
    /// Ends them.
    fn release(&self, key: &[u8], permits: NonZeroU64, lease: LeaseId) -> Asked<u64>;
    /// How the store is.
    fn health(&self) -> Health;
}

impl<S: Store, C: Clock + Clone + 'static> Remote for Distributed<S, C> {
    fn take(&self, key: &[u8], permits: u64) -> Deciding {
        self.try_acquire(key, permits)
    }

    fn peek(&self, key: &[u8], permits: u64) -> Deciding {
        Self::peek(self, key, permits)
    }

    fn reset(&self, key: &[u8]) -> Asked<u64> {
        Self::reset(self, key)
    }

    fn refund(&self, key: &[u8], permits: NonZeroU64, grant: Grant) {
        Self::refund(self, key, permits, grant);
    }

    fn give_back(&self, key: &[u8], permits: NonZeroU64) -> Asked<u64> {
        Self::give_back(self, key, permits)
    }

    fn hold(&self, key: &[u8], permits: u64, lease: LeaseId) -> Deciding {
        Self::hold(self, key, permits, lease)
    }

    fn renew(&self, key: &[u8], permits: NonZeroU64, lease: LeaseId) -> Asked<u64> {
        Self::renew(self, key, permits, lease)
    }

    fn release(&self, key: &[u8], permits: NonZeroU64, lease: LeaseId) -> Asked<u64> {
        Self::release(self, key, permits, lease)
    }

    fn health(&self) -> Health {
        Self::health(self)
    }
}

/// One store for all rules.
#[derive(Debug)]
pub struct Shared<S> {
    store: Arc<S>,
    nodes: NonZeroU32,
    budget_ns: u64,
}

impl<S> Shared<S> {
    /// A store that is shared by at most so many servers: what each of them keeps alone while it is gone is that part of the limit.
    #[must_use]
    pub const fn new(store: Arc<S>, nodes: NonZeroU32) -> Self {
        Self { store, nodes, budget_ns: DEFAULT_BUDGET_NS }
    }

    /// How long a call waits for the store, in ns: [`DEFAULT_BUDGET_NS`] if not said. The store's own should be the same.
    #[must_use]
    pub fn with_budget_ns(self, budget_ns: u64) -> Self {
        Self { budget_ns, ..self }
    }
}

impl<S: Store> Shared<S> {
    fn builder<C: Clock + Clone + 'static>(
        &self,
        rule: &Rule,
        clock: &C,
    ) -> Result<Builder<S, C>, String> {
        let kept = kept(rule)?;
        let mode = match rule.place {
            Place::StoreLeased { lease_ns } => {
                let length_ns = NonZeroU64::new(lease_ns).ok_or("a lease of no time")?;
                Mode::Leased(Leases::new(length_ns, MOST_BORROWED))
            }
            _ => Mode::Exact,
        };
        let when_gone = match (rule.when_gone, kept) {
            (WhenGone::Admit, _) => Gone::Admit,
            // What is in flight elsewhere nobody knows here.
            (WhenGone::Deny, _) | (WhenGone::Local, Kept::InFlight(..)) => Gone::Deny,
            (WhenGone::Local, _) => Gone::Local { nodes: self.nodes },
        };
        let builder = Distributed::builder(Arc::clone(&self.store)).with_clock(clock.clone());
        let builder = builder.limit("limit", kept).mode(mode).when_gone(when_gone);
        Ok(builder.named(&rule.name).with_budget_ns(self.budget_ns))
    }
}

impl<S: Store, C: Clock + Clone + 'static> Stores<C> for Shared<S> {
    fn limit_of(
        &self,
        rule: &Rule,
        most_keys: usize,
        clock: &C,
    ) -> Result<Arc<dyn Remote>, String> {
        let limiter = self
            .builder(rule, clock)?
            .with_most_keys(most_keys)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Arc::new(limiter))
    }
}

/// Whether a store of the service can keep a rule's limit, without asking any: what is no limit, or is here, it can.
///
/// # Errors
///
/// Why not.
pub(crate) fn can_be_kept(rule: &Rule) -> Result<(), String> {
    if rule.place == Place::Here || rule.limit.policy().is_none() {
        return Ok(());
    }
    let shared = Shared::new(Arc::new(Plans), NonZeroU32::MIN);
    let builder = shared.builder(rule, &ManualClock::new())?.unattended();
    builder.build().map(drop).map_err(|error| error.to_string())
}

/// A store that checks plans, and nothing else.
struct Plans;

impl Store for Plans {
    type Plan = SharedPlan;

    fn plan(&self, rules: &[(&str, Kept)]) -> Result<SharedPlan, PlanError> {
        SharedPlan::new(rules)
    }

    fn put(&self, _: Question<SharedPlan>, hear: Hear) {
        hear(Err(Fault::Gone(store::Gone::Unreachable("it is none".to_owned()))));
    }
}

/// The limits of an engine that are not in its tables: in the store, if there is one; permits in flight in this process.
pub(super) struct Remotes<C: Clock> {
    store: Option<Arc<dyn Stores<C>>>,
    /// Permits in flight in this process, by the name of their rule, for as long as there is one.
    here: Mutex<HashMap<Arc<str>, Weak<MemoryStore<C>>>>,
}

impl<C: Clock + Clone + 'static> Remotes<C> {
    pub(super) fn new(store: Option<Arc<dyn Stores<C>>>) -> Self {
        Self { store, here: Mutex::default() }
    }

    /// Where a rule's permits in flight are: what is held stays held when its numbers change.
    fn here(&self, rule: &Rule, most_keys: usize, clock: &C) -> Shared<MemoryStore<C>> {
        let mut here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        if here.len() == here.capacity() {
            here.retain(|_, store| store.strong_count() > 0);
        }
        let store = here.get(&rule.name).and_then(Weak::upgrade);
        let store =
            store.unwrap_or_else(|| Arc::new(MemoryStore::with_room(clock.clone(), most_keys)));
        here.insert(Arc::clone(&rule.name), Arc::downgrade(&store));
        Shared::new(store, NonZeroU32::MIN)
    }

    /// How many keys have permits in flight in this process.
    pub(super) fn keys(&self) -> usize {
        let here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        here.values().filter_map(Weak::upgrade).map(|store| store.keys()).sum()
    }

    /// The limit of a rule, if its counters are not in a table.
    pub(super) fn limit_of(
        &self,
        rule: &Rule,
        most_keys: usize,
        clock: &C,
    ) -> Result<Option<Arc<dyn Remote>>, String> {
        let Some(policy) = rule.limit.policy() else { return Ok(None) };
        match rule.place {
            Place::Here if matches!(policy, AnyPolicy::Concurrency(_)) => {
                self.here(rule, most_keys, clock).limit_of(rule, most_keys, clock).map(Some)
            }
            Place::Here => Ok(None),
            Place::StoreExact | Place::StoreLeased { .. } => {
                let store = self.store.as_ref().ok_or("no store is configured")?;
                store.limit_of(rule, most_keys, clock).map(Some)
            }
        }
    }
}

impl<C: Clock> fmt::Debug for Remotes<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remotes").field("has_store", &self.store.is_some()).finish_non_exhaustive()
    }
}

/// A rule's limit as a store keeps it: the same ceiling.
fn kept(rule: &Rule) -> Result<Kept, String> {
    let policy = match rule.limit {
        Limit::Policy(policy) => policy,
        Limit::Counted(window) => return kept_counted(rule, window),
        _ => return Err("it counts nothing".to_owned()),
    };
    let none = || "a store keeps buckets, windows, logs and permits in flight".to_owned();
    Ok(match policy {
        AnyPolicy::Gcra(bucket) => bucket.into(),
        AnyPolicy::FixedWindow(window) if window.anchor() == Anchor::Epoch => window.into(),
        AnyPolicy::SlidingLog(log) => log.into(),
        AnyPolicy::CompactLog(log) => {
            let period_ns = log.held_for_ns().saturating_sub(log.guard_ns());
            let same = SlidingLog::new(log.permits(), period_ns)
                .and_then(|same| same.with_guard(log.guard_ns()))
                .and_then(|same| same.with_resolution(log.resolution_ns()));
            same.map_err(|error| error.to_string())?.into()
        }
        AnyPolicy::Concurrency(_) if matches!(rule.place, Place::StoreLeased { .. }) => {
            return Err("permits in flight are not borrowed".to_owned());
        }
        AnyPolicy::Concurrency(in_flight) => {
            let held_ns = NonZeroU64::new(rule.held_ns).ok_or("a lease of no time")?;
            Kept::InFlight(in_flight, held_ns)
        }
        _ => return Err(none()),
    })
}

/// A window that counts every hit, which only the store itself can do for all.
fn kept_counted(rule: &Rule, window: CountedWindow) -> Result<Kept, String> {
    let why = if matches!(rule.place, Place::StoreLeased { .. }) {
        "a counted window is not borrowed from, for it counts each hit where it is; write store: exact"
    } else if rule.when_gone == WhenGone::Local {
        "a counted window is counted by all servers or by none; write when_gone: deny or when_gone: admit"
    } else {
        let counter =
            CountedWindow::long_counter(window.period_ns()).map_err(|error| error.to_string())?;
        return Ok(counter.into());
    };
    Err(format!("{why}, or algorithm: fixed-window"))
}

/// How long until nothing of a limit is in use any more, at the longest: what a store does not tell.
pub(super) fn reset_after_ns(
    policy: &AnyPolicy,
    capacity: u64,
    remaining: Option<u64>,
    now_ns: u64,
) -> u64 {
    let Some(used) = remaining.map(|remaining| capacity.saturating_sub(remaining)) else {
        return u64::MAX;
    };
    if used == 0 {
        return 0;
    }
    match policy {
        AnyPolicy::Gcra(bucket) => {
            bucket.rate().fraction().map_or(u64::MAX, |(permits, period_ns)| {
                let parts = u128::from(used).saturating_mul(period_ns.into());
                u64::try_from(parts.div_ceil(u128::from(permits.max(1)))).unwrap_or(u64::MAX)
            })
        }
        AnyPolicy::FixedWindow(window) => {
            let into_ns = now_ns.checked_rem(window.period_ns()).unwrap_or(0);
            window.period_ns().saturating_sub(into_ns)
        }
        AnyPolicy::SlidingLog(log) => log.held_for_ns(),
        AnyPolicy::CompactLog(log) => log.held_for_ns().saturating_add(log.resolution_ns()),
        _ => u64::MAX,
    }
}
