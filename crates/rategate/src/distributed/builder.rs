//! The builder of a distributed limiter.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use rategate_core::debt::Debt;
use rategate_core::node::{LeaseConfig, guarded};

use super::inner::charges::Charges;
use super::inner::counts::Counters;
use super::inner::decision::deadline::TaskDeadlines;
use super::inner::fallback::Fallback;
use super::inner::leased::Leasing;
use super::inner::renewals::Renewals;
use super::inner::{Inner, Strategy};
use super::mode::{Leases, Mode, OnUnavailable};
use super::rounds::WorkSchedule;
use super::watch::Watch;
use super::{Distributed, remembered_ns};
use crate::clock::{Clock, MonotonicClock};
use crate::error::SetupError;
use crate::store::{Rule, Store};
use rategate_core::span::whole_ns;

/// The default time that a call waits for the store: 20 ms.
pub const DEFAULT_BUDGET: Duration = Duration::from_millis(20);
/// The default capacity of a node, in keys of borrowed permits.
pub const DEFAULT_KEYS: usize = 1_000_000;

/// A builder of a distributed limiter. See [`Distributed::builder`].
#[derive(Debug)]
pub struct Builder<S, C = MonotonicClock> {
    store: Arc<S>,
    clock: C,
    choices: Choices,
}

/// All that a builder is told but the store and the clock.
#[derive(Debug)]
struct Choices {
    name: String,
    rules: Vec<(String, Rule)>,
    mode: Mode,
    debt: Debt,
    on_unavailable: OnUnavailable,
    is_quarantined: bool,
    budget_ns: u64,
    max_keys: usize,
    is_attended: bool,
}

impl<S: Store> Builder<S> {
    pub(super) fn new(store: Arc<S>) -> Self {
        let choices = Choices {
            name: String::from("rategate"),
            rules: Vec::new(),
            mode: Mode::Exact,
            debt: Debt::FORGOTTEN,
            on_unavailable: OnUnavailable::Deny,
            is_quarantined: false,
            budget_ns: whole_ns(DEFAULT_BUDGET),
            max_keys: DEFAULT_KEYS,
            is_attended: true,
        };
        Self { store, clock: MonotonicClock::new(), choices }
    }
}

impl<S: Store, C: Clock + Clone + 'static> Builder<S, C> {
    /// Adds a limit for each key. A call has to pass all of them.
    ///
    /// `label` names its states in the store: use the same one in every process that shares it.
    #[must_use]
    pub fn limit(mut self, label: &str, rule: impl Into<Rule>) -> Self {
        self.choices.rules.push((label.to_owned(), rule.into()));
        self
    }

    /// Sets how the limit is kept. The default is [`Mode::Exact`].
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.choices.mode = mode;
        self
    }

    /// Sets how debts of [charges](Distributed::charge) end, and how large they may become.
    ///
    /// The default is [`Debt::FORGOTTEN`]. A token bucket earns its debts back in either case. A
    /// store may refuse to carry the debts of a sliding log.
    #[must_use]
    pub fn with_debt(mut self, debt: Debt) -> Self {
        self.choices.debt = debt;
        self
    }

    /// Sets the fallback without the store.
    ///
    /// The default is [`OnUnavailable::Deny`]: the limit's bound holds.
    #[must_use]
    pub fn on_unavailable(mut self, on_unavailable: OnUnavailable) -> Self {
        self.choices.on_unavailable = on_unavailable;
        self
    }

    /// Ignores the store's grants until it is known to have lost nothing that still matters.
    ///
    /// That is for as long as the limit remembers, plus the time of a lease. It is for a limit that must hold across a failover, at the price of [`OnUnavailable`] for that
    /// long after one, and after the first start.
    #[must_use]
    pub fn with_quarantine(mut self) -> Self {
        self.choices.is_quarantined = true;
        self
    }

    /// Sets the time that a call waits for the store. The default is [`DEFAULT_BUDGET`].
    ///
    /// The store's own budget should not be longer.
    #[must_use]
    pub fn with_budget(mut self, budget: Duration) -> Self {
        self.choices.budget_ns = whole_ns(budget);
        self
    }

    /// Sets the capacity of a node, in keys. The default is [`DEFAULT_KEYS`].
    ///
    /// A new key beyond it is decided by the store itself where permits are leased, and denied by
    /// [`OnUnavailable::Local`].
    #[must_use]
    pub fn with_max_keys(mut self, max_keys: usize) -> Self {
        self.choices.max_keys = max_keys;
        self
    }

    /// Sets the name in events and metrics.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.choices.name);
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn with_clock<D: Clock + Clone + 'static>(self, clock: D) -> Builder<S, D> {
        Builder { store: self.store, clock, choices: self.choices }
    }

    /// Creates no background thread: the owner calls [`Distributed::attend`] when it is due.
    #[must_use]
    pub fn unattended(mut self) -> Self {
        self.choices.is_attended = false;
        self
    }

    /// Builds the limiter.
    ///
    /// In the modes other than exact, and where it [keeps](Distributed::keep) permits in flight,
    /// it has a thread, which ends with its last clone.
    ///
    /// # Errors
    ///
    /// [`SetupError`].
    pub fn build(self) -> Result<Distributed<S, C>, SetupError> {
        let Self { store, clock, choices } = self;
        choices.check()?;
        let rules: Vec<(&str, Rule)> =
            choices.rules.iter().map(|(label, rule)| (label.as_str(), *rule)).collect();
        let now_ns = clock.now_ns();
        // The time for which a node may use permits that the store has lost.
        let held_ns = match choices.mode {
            Mode::Exact => 0,
            Mode::Leased(leases) => leases.length_ns()?.get(),
        };
        let memory_ns = rules.iter().map(|(_, rule)| remembered_ns(rule)).max().unwrap_or(0);
        let quarantine_ns =
            if choices.is_quarantined { memory_ns.saturating_add(held_ns) } else { 0 };
        let stored_rules: Result<Vec<(&str, Rule)>, SetupError> = match choices.mode {
            Mode::Leased(leases) if leases.guard => rules
                .iter()
                .map(|(label, rule)| Ok((*label, guard(label, rule, leases)?)))
                .collect(),
            _ => Ok(rules.clone()),
        };
        let stored_rules = stored_rules?;
        let capacity = stored_rules.iter().map(|(_, rule)| rule.capacity()).min().unwrap_or(0);
        let strategy = match choices.mode {
            Mode::Exact => Strategy::Exact,
            Mode::Leased(leases) => Strategy::Leased(Leasing::new(
                leases.config(memory_ns, capacity)?,
                choices.max_keys,
            )),
        };
        let store_plan = Arc::new(store.plan(&stored_rules).map_err(SetupError::Plan)?);
        let fallback = Fallback::new(choices.on_unavailable, &rules, &clock, choices.max_keys)
            .map_err(SetupError::Plan)?;
        let watch = Watch::new(store.backends(), quarantine_ns, now_ns);
        let held_ns = rules.iter().filter_map(|(_, rule)| in_flight_ns(rule)).min();
        Ok(Distributed::start(
            Inner {
                name: choices.name,
                limits: choices.rules,
                store,
                store_plan,
                debt: choices.debt,
                capacity,
                held_ns,
                clock,
                budget_ns: choices.budget_ns,
                watch,
                fallback,
                strategy,
                rounds: WorkSchedule::new(),
                renewals: Renewals::default(),
                counters: Counters::default(),
                charges: Charges::default(),
                deadlines: TaskDeadlines::new(),
            },
            choices.is_attended,
        ))
    }
}

impl Choices {
    fn check(&self) -> Result<(), SetupError> {
        if self.rules.is_empty() {
            return Err(SetupError::NoLimit);
        }
        let in_flight = self.rules.iter().find(|(_, rule)| matches!(rule, Rule::InFlight(..)));
        let Some((label, _)) = in_flight else { return Ok(()) };
        if self.mode != Mode::Exact {
            return Err(SetupError::InFlight { label: label.clone() });
        }
        if let OnUnavailable::Local { .. } = self.on_unavailable {
            return Err(SetupError::InFlight { label: label.clone() });
        }
        Ok(())
    }
}

impl Leases {
    fn length_ns(self) -> Result<NonZeroU64, SetupError> {
        positive_ns(self.ttl, "ttl")
    }

    /// Computes the lease config.
    ///
    /// A store that has too few permits gets the next request after a sixteenth of a lease. While
    /// that continues, requests become rarer, down to one per lease, but stay at four or more
    /// within the limit's memory, so that no burst fills up meanwhile.
    fn config(self, memory_ns: u64, capacity: u64) -> Result<LeaseConfig, SetupError> {
        let length_ns = self.length_ns()?;
        let max_permits = NonZeroU64::new(self.max_permits);
        let max_permits = max_permits.ok_or(SetupError::Zero { field: "max_permits" })?;
        let quarter_ns = memory_ns >> 2;
        let pause_ns = (length_ns.get() >> 4).min(quarter_ns);
        let max_pause_ns = length_ns.get().min(quarter_ns);
        // More than passes at once would never be granted.
        let most_useful = NonZeroU64::new(capacity).unwrap_or(max_permits).min(max_permits);
        let config = LeaseConfig::new(length_ns, most_useful, self.drift_ppm);
        let paused =
            |config: LeaseConfig| config.with_pause_ns(pause_ns).with_max_pause_ns(max_pause_ns);
        config.map(paused).map_err(SetupError::LeaseConfig)
    }
}

/// Returns a configured time in nanoseconds; one of more than 584 years counts as that.
fn positive_ns(time: Duration, field: &'static str) -> Result<NonZeroU64, SetupError> {
    NonZeroU64::new(whole_ns(time)).ok_or(SetupError::Zero { field })
}

/// Returns the time for which permits in flight are held.
const fn in_flight_ns(rule: &Rule) -> Option<NonZeroU64> {
    match rule {
        Rule::InFlight(_, length_ns) => Some(*length_ns),
        Rule::Bucket(_) | Rule::Log(_) | Rule::Window(_) => None,
    }
}

/// Returns the stricter rule that the store keeps so that leases never exceed the limit.
fn guard(label: &str, rule: &Rule, leases: Leases) -> Result<Rule, SetupError> {
    let failed = |error| SetupError::Guard { label: label.to_owned(), error };
    let length_ns = leases.length_ns()?.get();
    match rule {
        Rule::Bucket(bucket) => guarded(*bucket, length_ns).map(Rule::Bucket).map_err(failed),
        Rule::Log(log) => guarded(*log, length_ns).map(Rule::Log).map_err(failed),
        // Leases end with the window.
        Rule::Window(_) | Rule::InFlight(..) => Ok(*rule),
    }
}
