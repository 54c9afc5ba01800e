//! The counters of a rule: a table of keys that outlives the configuration it was created for.

use std::io::Read;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use rategate::charge::Debt;
use rategate::error::KeyedError;
use rategate::keyed::{Capacity, Hashing, Overflow};
use rategate::policy::saved::RestoreContext;
use rategate::snapshot::SavedAt;
use rategate::{AnyPolicy, Clock, FixedWindow, Keyed, Status};
use rategate_core::span::whole_ns;

use super::answer::{ItemResult, Verdict, Watch};
use super::counted::{self, OwnLimit};
use super::error::EngineError;
use super::one_key::decide;
use super::request::Verb;
use super::snapshot::{NotRestored, TableError};
use super::stores::Remote;
use crate::rule::{
    CountedWindow, CounterLocation, DisplayLimit, Enforcement, Entry, Limit, Over, Rule, Value,
};

/// A rule with its counters.
#[derive(Debug)]
pub(super) struct ActiveRule<C: Clock> {
    pub(super) rule: Arc<Rule>,
    /// The counters: those of the previous rule of the same name if they are compatible.
    pub(super) counters: Arc<Counters<C>>,
    pub(super) watch: Option<Arc<dyn Watch>>,
    /// The limit in a store that decides instead of the counters, if they are not in this
    /// process.
    pub(super) remote: Option<Arc<dyn Remote>>,
}

/// Counters by key, under the limit in force.
#[derive(Debug)]
pub(super) struct Counters<C: Clock> {
    /// Created by the first request: thousands of rules may never receive one.
    table: OnceLock<Table<C>>,
    max_keys: AtomicUsize,
    /// The limit in force and the previous one, which still decides for keys that have not
    /// migrated yet.
    numbers: ArcSwap<[InForce; 2]>,
    /// The latest policy, which determines the kind of the counters. Locked while a table is
    /// created and while its limit changes, so that no table is created with an outdated limit.
    latest: Mutex<Option<AnyPolicy>>,
    /// The bits of how debts end.
    debt: AtomicU64,
}

pub(super) type Table<C> = Keyed<[u8], C>;

/// The limit in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InForce {
    pub(super) limit: Limit,
    pub(super) display_limit: DisplayLimit,
    /// The maximum number of permits that can be taken at once.
    pub(super) capacity: u64,
}

impl InForce {
    pub(super) fn new(limit: Limit, display_limit: DisplayLimit) -> Self {
        let capacity = match limit {
            Limit::Policy(policy) => policy.max_at_once(),
            Limit::Counted(window) => window.permits(),
            Limit::Unlimited | Limit::Exempt => u64::MAX,
            Limit::Nothing => 0,
        };
        Self { limit, display_limit, capacity }
    }

    pub(super) fn policy(&self) -> Option<AnyPolicy> {
        self.limit.policy()
    }
}

impl<C: Clock + Clone> ActiveRule<C> {
    pub(super) fn new(
        rule: Arc<Rule>,
        counters: Arc<Counters<C>>,
        watch: Option<Arc<dyn Watch>>,
        remote: Option<Arc<dyn Remote>>,
    ) -> Self {
        Self { rule, counters, watch, remote }
    }

    /// Returns `true` for a limit of concurrency.
    pub(super) fn is_in_flight(&self) -> bool {
        self.rule.limit.counts_in_flight()
    }

    /// Returns the maximum number of permits of one call.
    pub(super) fn capacity(&self) -> u64 {
        self.counters.in_force().capacity
    }

    /// Returns `true` if the rule has a table in memory, or a store.
    pub(super) fn is_in_memory(&self) -> bool {
        self.remote.is_some() || self.counters.made().is_some()
    }

    /// Returns why a new version of the rule cannot take over the counters. It can if it has the
    /// same keys, both count in this process or both in a store, and the limits are compatible.
    pub(super) fn why_restarted(&self, rule: &Rule) -> Option<String> {
        let is_here = |rule: &Rule| rule.location == CounterLocation::Here;
        if self.rule.counter_entries().ne(rule.counter_entries()) {
            return Some("the keys of its entries change".to_owned());
        }
        // Counters cannot move between a store and this process.
        match (is_here(&self.rule), is_here(rule)) {
            (true, false) => return Some("its counters are now in a store".to_owned()),
            (false, true) => return Some("its counters are now in this process".to_owned()),
            (true, true) | (false, false) => {}
        }
        // A store starts a limit of another kind afresh.
        let is_like = is_here(rule) || self.rule.limit.algorithm() == rule.limit.algorithm();
        if is_like && self.counters.can_become(&InForce::new(rule.limit, rule.display_limit)) {
            return None;
        }
        let of = |rule: &Rule| format!("{} ({})", rule.limit.algorithm(), rule.display_limit);
        Some(format!("the kind of its limit changes from {} to {}", of(&self.rule), of(rule)))
    }

    /// Returns `true` if the limits of `rule` are the same.
    pub(super) fn is_unchanged_by(&self, rule: &Rule) -> bool {
        self.rule.limit == rule.limit && self.rule.schedule == rule.schedule
    }

    /// Returns `true` if the store's limit for this rule can be used for `rule`.
    pub(super) fn has_same_storage(&self, rule: &Rule) -> bool {
        let of = |rule: &Rule| (rule.limit, rule.location, rule.held_ns, rule.on_unavailable);
        of(&self.rule) == of(rule)
    }

    /// Returns `true` if the rule is enforced.
    pub(super) fn is_enforced(&self) -> bool {
        self.rule.enforcement == Enforcement::All
    }

    /// Returns an item's part of an answer where no table was consulted.
    pub(super) fn result(&self, verdict: Verdict) -> ItemResult {
        let in_force = self.counters.in_force();
        ItemResult {
            rule: Some(Arc::clone(&self.rule)),
            display_limit: Some(in_force.display_limit),
            verdict,
            limit: in_force.capacity,
            remaining: Some(match in_force.limit {
                Limit::Unlimited | Limit::Exempt => u64::MAX,
                _ => 0,
            }),
            debt: 0,
            reset_after_ns: 0,
            store_ns: None,
            detail: None,
        }
    }

    /// Decides about a key.
    pub(super) fn decide(
        &self,
        clock: &C,
        key: &[u8],
        verb: Verb,
        permits: u64,
    ) -> Result<ItemResult, EngineError> {
        let in_force = self.counters.in_force();
        let Some(table) = self.table(&in_force, clock) else {
            return Ok(match verb {
                Verb::Take | Verb::Peek => self.uncounted(&in_force),
                Verb::Charge => self.result(Verdict::Charged(0)),
                Verb::Refund => self.result(Verdict::Refunded(0)),
                Verb::Reset => self.result(Verdict::Reset),
            });
        };
        if let Limit::Counted(window) = in_force.limit {
            return self.count(
                table,
                (window, in_force.display_limit),
                clock,
                key,
                (verb, permits),
            );
        }
        let decided = if verb == Verb::Take && self.rule.over == Over::Charge {
            Verdict::of_charged_take(table, key, permits)
        } else {
            decide(table, key, verb, permits)
        };
        self.result_of(&in_force, decided)
    }

    /// Decides about a key of a window that counts every hit.
    fn count(
        &self,
        table: &Table<C>,
        (window, display_limit): (CountedWindow, DisplayLimit),
        clock: &C,
        key: &[u8],
        request: (Verb, u64),
    ) -> Result<ItemResult, EngineError> {
        let now_ns = clock.now_ns();
        let counted = counted::decide(table, (window, &window.counter()), key, request, now_ns);
        let (mut verdict, used) = counted.map_err(EngineError::of)?;
        if let Verdict::Denied { enforced, .. } = &mut verdict {
            *enforced = self.is_enforced();
        }
        let rule = Some(Arc::clone(&self.rule));
        Ok(ItemResult { rule, ..counted::result(window, display_limit, (verdict, used), now_ns) })
    }

    /// Returns the counter that a caller's own limit for a descriptor of this rule shares with
    /// it, in windows of the same unit. Returns `None` if the rule counts several descriptors
    /// together, or in a store.
    pub(super) fn lent_to(&self, window: CountedWindow) -> Option<FixedWindow> {
        let Limit::Counted(own) = self.counters.in_force().limit else { return None };
        let is_shared = |entry: &Entry| matches!(entry.value, Value::Pattern { shared: true, .. });
        let is_apart = self.remote.is_some() || self.rule.entries.iter().any(is_shared);
        Some(own.counter()).filter(|counter| !is_apart && window.fits(counter))
    }

    /// Decides about a key under a caller's own limit, in the [shared counter](Self::lent_to).
    pub(super) fn count_lent(
        &self,
        own: &OwnLimit,
        clock: &C,
        key: &[u8],
        request: (Verb, u64),
    ) -> Result<ItemResult, EngineError> {
        let now_ns = clock.now_ns();
        let table = self.lent_table(own, clock);
        let decided = counted::decide(table, (own.window, &own.counter), key, request, now_ns);
        Ok(counted::result(
            own.window,
            own.display_limit,
            decided.map_err(EngineError::of)?,
            now_ns,
        ))
    }

    /// Returns the table of the [shared counter](Self::lent_to) of a caller's own limit.
    pub(super) fn lent_table(&self, own: &OwnLimit, clock: &C) -> &Table<C> {
        self.counters.table_of(own.counter.into(), clock)
    }

    /// Returns the table, if there is anything to count.
    pub(super) fn table(&self, in_force: &InForce, clock: &C) -> Option<&Table<C>> {
        Some(self.counters.table_of(in_force.policy()?, clock))
    }

    /// Returns the answer of a limit that counts nothing.
    pub(super) fn uncounted(&self, in_force: &InForce) -> ItemResult {
        self.result(match in_force.limit {
            Limit::Nothing => {
                Verdict::Denied { retry_after_ns: None, enforced: self.is_enforced() }
            }
            Limit::Exempt => Verdict::Unmatched,
            _ => Verdict::Unlimited,
        })
    }

    /// Converts a table's decision and the key's status into an item's part of the answer.
    pub(super) fn result_of(
        &self,
        in_force: &InForce,
        decided: Result<(Verdict, Status), KeyedError>,
    ) -> Result<ItemResult, EngineError> {
        let (mut verdict, status) = decided.map_err(EngineError::of)?;
        if let Verdict::Denied { enforced, .. } = &mut verdict {
            *enforced = self.is_enforced();
        }
        Ok(ItemResult {
            rule: Some(Arc::clone(&self.rule)),
            display_limit: self.counters.display_limit_of(&status, in_force),
            verdict,
            limit: status.capacity,
            remaining: Some(status.remaining),
            debt: status.debt,
            reset_after_ns: status.fresh_in.map_or(u64::MAX, whole_ns),
            store_ns: None,
            detail: None,
        })
    }
}

impl<C: Clock + Clone> Counters<C> {
    pub(super) fn new(in_force: InForce, max_keys: usize, debt: Debt) -> Arc<Self> {
        let debt = AtomicU64::new(debt.bits());
        let latest = Mutex::new(in_force.policy());
        let numbers = ArcSwap::from_pointee([in_force; 2]);
        let max_keys = AtomicUsize::new(max_keys);
        Arc::new(Self { table: OnceLock::new(), max_keys, numbers, latest, debt })
    }

    /// Restores saved counters. `later` is the limit of other hours, for a rule that counts
    /// nothing now.
    pub(super) fn restore(
        &self,
        clock: &C,
        later: Option<AnyPolicy>,
        input: impl Read,
        since: impl FnOnce(&SavedAt) -> RestoreContext,
    ) -> Result<(), TableError> {
        let mut latest = self.latest();
        let policy = latest.or(later).ok_or(NotRestored::CountsNothing)?;
        if self.table.get().is_some() {
            return Err(NotRestored::InUse.into());
        }
        let (capacity, tier_of) =
            (capacity_for(self.max_keys.load(Ordering::Relaxed)), None::<fn(&[u8]) -> usize>);
        let table = Keyed::restore_since([policy], tier_of, capacity, clock.clone(), input, since)?;
        let table = table.with_debt(self.debt());
        *latest = Some(policy);
        self.table.set(table).map_err(|_| NotRestored::InUse.into())
    }

    pub(super) fn in_force(&self) -> InForce {
        let [in_force, _] = **self.numbers.load();
        in_force
    }

    /// Returns the displayed limit of a decision. A changing limit migrates key by key, and
    /// `in_force` was read before the decision. So the decision may be by the limit in force
    /// since then, or by the previous one.
    fn display_limit_of(&self, status: &Status, in_force: &InForce) -> Option<DisplayLimit> {
        if status.capacity == in_force.capacity {
            return Some(in_force.display_limit);
        }
        let numbers = self.numbers.load();
        let decided_by = numbers.iter().find(|numbers| numbers.capacity == status.capacity);
        decided_by.map(|numbers| numbers.display_limit)
    }

    fn debt(&self) -> Debt {
        Debt::from_bits(self.debt.load(Ordering::Relaxed))
    }

    /// Sets how debts end from now on.
    pub(super) fn set_debt(&self, debt: Debt) {
        // Under the lock, so that no table is created with an outdated setting.
        let _latest = self.latest();
        self.debt.store(debt.bits(), Ordering::Relaxed);
        if let Some(table) = self.table.get() {
            table.set_debt(debt);
        }
    }

    /// Sets the capacity in keys, unless the table exists already.
    pub(super) fn set_capacity(&self, max_keys: usize) {
        let _latest = self.latest();
        if self.table.get().is_none() {
            self.max_keys.store(max_keys, Ordering::Relaxed);
        }
    }

    /// Returns the table, if a request has created it.
    pub(super) fn made(&self) -> Option<&Table<C>> {
        self.table.get()
    }

    /// Returns `true` if the counters remain valid under another limit.
    fn can_become(&self, to: &InForce) -> bool {
        follows(to, self.latest().as_ref())
    }

    /// Puts a limit into force. Counters are carried over; a limit of another kind changes
    /// nothing.
    pub(super) fn change(&self, to: InForce) {
        let mut latest = self.latest();
        if self.in_force() == to || !follows(&to, latest.as_ref()) {
            return;
        }
        self.numbers.store(Arc::new([to, self.in_force()]));
        if let Some(policy) = to.policy() {
            *latest = Some(policy);
            if let Some(table) = self.table.get() {
                // The table's only tier always exists.
                let _ = table.reconfigure(policy);
            }
        }
    }

    fn table_of(&self, policy: AnyPolicy, clock: &C) -> &Table<C> {
        self.table.get().unwrap_or_else(|| self.make(policy, clock))
    }

    #[cold]
    fn make(&self, policy: AnyPolicy, clock: &C) -> &Table<C> {
        let latest = self.latest();
        let policy = latest.unwrap_or(policy);
        self.table.get_or_init(|| {
            let table = new_table(policy, self.max_keys.load(Ordering::Relaxed), clock);
            table.with_debt(self.debt())
        })
    }

    fn latest(&self) -> MutexGuard<'_, Option<AnyPolicy>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns `true` if a limit can take over the counters of another. A window that counts every
/// hit only takes over from one with the same counter: with another, the remainder would be
/// misread during the change.
fn follows(to: &InForce, latest: Option<&AnyPolicy>) -> bool {
    match (to.limit, latest) {
        (Limit::Counted(window), Some(old)) => AnyPolicy::from(window.counter()) == *old,
        (Limit::Policy(new), Some(old)) => {
            !CountedWindow::is_counter(old) && new.can_follow(old).is_ok()
        }
        _ => true,
    }
}

impl EngineError {
    pub(super) const NO_WEIGHTS: Self = Self::NotFor("`usage` is for rules with weights or prices");

    /// Returns the error for a charge to permits in flight, or to permits that are leased from a
    /// store.
    pub(super) fn not_charged(item: usize, rule: &Rule) -> Self {
        let why = match rule.limit {
            limit if limit.counts_in_flight() => {
                "counts permits in flight, to which nothing is charged: reserve or lease them"
            }
            _ => "leases permits from a store, which are not charged; write store = \"exact\"",
        };
        Self::NotForItem { item, rule: Arc::clone(&rule.name), why }
    }

    pub(super) fn of(error: KeyedError) -> Self {
        match error {
            KeyedError::TableFull => Self::NoCapacity,
            KeyedError::CountsInFlight => {
                Self::NotFor("the limit counts permits in flight; nothing is charged to it")
            }
            other => Self::Table(other),
        }
    }
}

fn new_table<C: Clock + Clone>(policy: AnyPolicy, max_keys: usize, clock: &C) -> Table<C> {
    Keyed::with_hashing(policy, capacity_for(max_keys), Hashing::FloodSafe, clock.clone())
}

fn capacity_for(max_keys: usize) -> Capacity {
    Capacity::for_keys(max_keys).or_else(Overflow::Share)
}
