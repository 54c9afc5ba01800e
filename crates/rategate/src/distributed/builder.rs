//! How a limiter is set up, and what can be wrong with that.

use std::error::Error;
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

use rategate_core::node::{BreakerTerms, GuardError, MemberTerms, Terms, TermsError, guarded};

use super::counts::Counters;
use super::deadline::TaskDeadlines;
use super::fallback::Fallback;
use super::inner::{Inner, Way};
use super::leased::Leasing;
use super::mode::{Leases, Mode, Shares, WhenGone};
use super::renewals::Renewals;
use super::rounds::Rounds;
use super::shared_out::SharedOut;
use super::watch::Watch;
use super::{Distributed, remembered_ns};
use crate::clock::{Clock, MonotonicClock};
use crate::store::{PlanError, Rule, Store};

/// How long a call waits for the store unless it is said otherwise, in ns: 20 ms.
pub const DEFAULT_BUDGET_NS: u64 = 20_000_000;
/// How many keys of borrowed permits, or of shares, a node keeps unless it is said otherwise.
pub const DEFAULT_KEYS: usize = 1_000_000;

/// A limiter that is being set up. See [`Distributed::builder`].
#[derive(Debug)]
pub struct Builder<S, C = MonotonicClock> {
    store: Arc<S>,
    clock: C,
    name: String,
    rules: Vec<(String, Rule)>,
    mode: Mode,
    when_gone: WhenGone,
    is_quarantined: bool,
    budget_ns: u64,
    breaker: BreakerTerms,
    most_keys: usize,
    is_attended: bool,
}

impl<S: Store> Builder<S> {
    pub(super) fn new(store: Arc<S>) -> Self {
        Self {
            store,
            clock: MonotonicClock::new(),
            name: String::from("rategate"),
            rules: Vec::new(),
            mode: Mode::Exact,
            when_gone: WhenGone::Deny,
            is_quarantined: false,
            budget_ns: DEFAULT_BUDGET_NS,
            breaker: BreakerTerms::default(),
            most_keys: DEFAULT_KEYS,
            is_attended: true,
        }
    }
}

impl<S: Store, C: Clock + Clone + 'static> Builder<S, C> {
    /// One more limit for each key, all of which a call has to pass. `label` names its states in the store: the same
    /// in every process that shares it.
    #[must_use]
    pub fn limit(mut self, label: &str, rule: impl Into<Rule>) -> Self {
        self.rules.push((label.to_owned(), rule.into()));
        self
    }

    /// How the limit is kept. [`Mode::Exact`] if not said.
    #[must_use]
    pub fn mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// What to do without the store. [`WhenGone::Deny`] if not said: the limit's bound holds.
    #[must_use]
    pub fn when_gone(self, when_gone: WhenGone) -> Self {
        Self { when_gone, ..self }
    }

    /// Acts on nothing that a store grants until it is known to have lost nothing for as long as the limit remembers,
    /// and for as long as a lease or a share lasts besides. For a limit that has to hold over a failover, at the price of [`WhenGone`] for that
    /// long after one, and after the first start.
    #[must_use]
    pub fn with_quarantine(self) -> Self {
        Self { is_quarantined: true, ..self }
    }

    /// How long a call waits for the store, in ns: [`DEFAULT_BUDGET_NS`] if not said. The store's own budget should not be
    /// longer.
    #[must_use]
    pub fn with_budget_ns(self, budget_ns: u64) -> Self {
        Self { budget_ns, ..self }
    }

    /// After how many failures in a row, each of a question that was put after the one before had failed, the store is left alone, and how long until the first probe, in ns. Each probe
    /// that fails doubles that, up to `longest_pause_ns`. 5 failures, 100 ms, and 5 s if not said.
    #[must_use]
    pub fn with_breaker(
        self,
        failures: NonZeroU32,
        pause_ns: NonZeroU64,
        longest_pause_ns: NonZeroU64,
    ) -> Self {
        Self { breaker: BreakerTerms { failures, pause_ns, longest_pause_ns }, ..self }
    }

    /// How many keys a node keeps: [`DEFAULT_KEYS`] if not said. A newcomer beyond that is decided by the store
    /// itself where permits are leased, and denied where they are shared out, or kept alone while the store is gone.
    #[must_use]
    pub fn with_most_keys(self, most_keys: usize) -> Self {
        Self { most_keys, ..self }
    }

    /// What it is called in events and metrics.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Another clock.
    #[must_use]
    pub fn with_clock<D: Clock + Clone + 'static>(self, clock: D) -> Builder<S, D> {
        let Self {
            store,
            clock: _,
            name,
            rules,
            mode,
            when_gone,
            is_quarantined,
            budget_ns,
            breaker,
            most_keys,
            is_attended,
        } = self;
        Builder {
            store,
            clock,
            name,
            rules,
            mode,
            when_gone,
            is_quarantined,
            budget_ns,
            breaker,
            most_keys,
            is_attended,
        }
    }

    /// Without a thread of its own: whoever has it calls [`Distributed::attend`] as it says.
    #[must_use]
    pub fn unattended(self) -> Self {
        Self { is_attended: false, ..self }
    }

    /// The limiter. In the modes other than exact, and where it [keeps](Distributed::keep) permits in flight, it has a thread,
    /// which ends with its last clone.
    ///
    /// # Errors
    ///
    /// [`SetupError`].
    pub fn build(self) -> Result<Distributed<S, C>, SetupError> {
        self.check()?;
        let rules: Vec<(&str, Rule)> =
            self.rules.iter().map(|(label, rule)| (label.as_str(), *rule)).collect();
        let now_ns = self.clock.now_ns();
        // How long a node may go on with what a store has forgotten.
        let held_ns = match self.mode {
            Mode::Exact => 0,
            Mode::Leased(leases) => leases.length_ns.get(),
            Mode::SharedOut(shares) => shares.terms()?.length_ns().get(),
        };
        let memory_ns = rules.iter().map(|(_, rule)| remembered_ns(rule)).max().unwrap_or(0);
        let quarantine_ns = if self.is_quarantined { memory_ns.saturating_add(held_ns) } else { 0 };
        let kept: Result<Vec<(&str, Rule)>, SetupError> = match self.mode {
            Mode::Leased(leases) if leases.is_guarded => rules
                .iter()
                .map(|(label, rule)| Ok((*label, guard(label, rule, leases)?)))
                .collect(),
            _ => Ok(rules.clone()),
        };
        let kept = kept?;
        let most = kept.iter().map(|(_, rule)| rule.most()).min().unwrap_or(0);
        let way = match self.mode {
            Mode::Exact => Way::Exact,
            Mode::Leased(leases) => {
                Way::Leased(Leasing::new(leases.terms(memory_ns, most)?, self.most_keys))
            }
            Mode::SharedOut(shares) => {
                Way::SharedOut(Box::new(SharedOut::new(&rules, shares, self.most_keys)?))
            }
        };
        let store_plan = Arc::new(self.store.plan(&kept).map_err(SetupError::Plan)?);
        let fallback = Fallback::new(self.when_gone, &rules, &self.clock, self.most_keys)
            .map_err(SetupError::Plan)?;
        let watch = Watch::new(self.store.parts(), self.breaker, quarantine_ns, now_ns);
        let held_ns = rules.iter().filter_map(|(_, rule)| in_flight_ns(rule)).min();
        Ok(Distributed::start(
            Inner {
                name: self.name,
                limits: self.rules,
                store: self.store,
                store_plan,
                most,
                held_ns,
                clock: self.clock,
                budget_ns: self.budget_ns,
                watch,
                fallback,
                way,
                rounds: Rounds::new(),
                renewals: Renewals::default(),
                counters: Counters::default(),
                deadlines: TaskDeadlines::new(),
            },
            self.is_attended,
        ))
    }

    fn check(&self) -> Result<(), SetupError> {
        if self.rules.is_empty() {
            return Err(SetupError::NoLimit);
        }
        let in_flight = self.rules.iter().find(|(_, rule)| matches!(rule, Rule::InFlight(..)));
        let Some((label, _)) = in_flight else { return Ok(()) };
        if self.mode != Mode::Exact {
            return Err(SetupError::InFlight { label: label.clone() });
        }
        if let WhenGone::Local { .. } = self.when_gone {
            return Err(SetupError::InFlight { label: label.clone() });
        }
        Ok(())
    }
}

impl Shares {
    pub(super) fn terms(self) -> Result<MemberTerms, SetupError> {
        MemberTerms::new(self.beat_ns, self.drift_ppm).map_err(SetupError::Terms)
    }
}

impl Leases {
    /// A store that has too little is asked again after a sixteenth of a lease, and as long as it has too little less
    /// and less, down to once in a lease; but four times in what a limit remembers, so that no burst fills up meanwhile.
    fn terms(self, memory_ns: u64, most: u64) -> Result<Terms, SetupError> {
        let quarter_ns = memory_ns >> 2;
        let pause_ns = (self.length_ns.get() >> 4).min(quarter_ns);
        let longest_ns = self.length_ns.get().min(quarter_ns);
        // More than passes at once would never be granted.
        let most = NonZeroU64::new(most).map_or(self.most, |most| most.min(self.most));
        let terms = Terms::new(self.length_ns, most, self.drift_ppm);
        let paused = |terms: Terms| terms.with_pause_ns(pause_ns).with_longest_pause_ns(longest_ns);
        terms.map(paused).map_err(SetupError::Terms)
    }
}

/// For how long permits are held, where they are in flight.
const fn in_flight_ns(rule: &Rule) -> Option<NonZeroU64> {
    match rule {
        Rule::InFlight(_, length_ns) => Some(*length_ns),
        Rule::Bucket(_) | Rule::Log(_) | Rule::Window(_) => None,
    }
}

/// What the store keeps so that leases never exceed the rule.
fn guard(label: &str, rule: &Rule, leases: Leases) -> Result<Rule, SetupError> {
    let failed = |error| SetupError::Guard { label: label.to_owned(), error };
    let length_ns = leases.length_ns.get();
    match rule {
        Rule::Bucket(bucket) => guarded(*bucket, length_ns).map(Rule::Bucket).map_err(failed),
        Rule::Log(log) => guarded(*log, length_ns).map(Rule::Log).map_err(failed),
        // Leases end with the window.
        Rule::Window(_) | Rule::InFlight(..) => Ok(*rule),
    }
}

/// Why a limiter cannot be set up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetupError {
    /// No limit was given.
    NoLimit,
    /// The store cannot keep a limit.
    Plan(PlanError),
    /// Leases that make no sense.
    Terms(TermsError),
    /// Leases too long for their limit.
    Guard {
        /// Which limit.
        label: String,
        /// And how long they may be.
        error: GuardError,
    },
    /// Permits in flight are decided by the store alone: [`Mode::Exact`], and [`WhenGone::Deny`] or
    /// [`WhenGone::Admit`].
    InFlight {
        /// Which limit.
        label: String,
    },
    /// One limit at a time can be shared out.
    SeveralShared,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLimit => f.write_str("no limit: give at least one, with a label"),
            Self::Plan(error) => error.fmt(f),
            Self::Terms(error) => error.fmt(f),
            Self::Guard { label, error } => write!(f, "limit `{label}`: {error}"),
            Self::InFlight { label } => write!(
                f,
                "limit `{label}`: permits in flight are decided by the store alone: in the exact mode, and denied or \
                 admitted while it is gone"
            ),
            Self::SeveralShared => f.write_str(
                "several limits: one limiter shares out one limit, so make a limiter for each",
            ),
        }
    }
}

impl Error for SetupError {}
