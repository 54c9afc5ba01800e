//! Rules as plain data: the result of reading a configuration in any format, and the engine's
//! input.

mod counted;
mod counts;
mod entries;
mod hold_bounds;
mod metadata;
mod unit;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rategate::AnyPolicy;
use rategate::calendar::Calendar;
use rategate::charge::Debt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::counted::CountedWindow;
pub use self::counts::{CostError, Counts, Dimension, Prices, Usage, Weight, Weights};
pub(crate) use self::entries::NamedEntries;
pub use self::entries::{Entry, Value, is_like};
pub use self::hold_bounds::HoldBounds;
pub use self::metadata::{
    FiniteNumber, MAX_METADATA_BYTES, MAX_METADATA_DEPTH, Metadata, MetadataError, MetadataValue,
};
pub use self::unit::Unit;

/// A set of rules that are in force together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    /// The rules, in the order of their files and lines.
    pub rules: Vec<Rule>,
    /// A digest in hexadecimal of the text that the rules were read from. Servers with equal
    /// digests have the same rules.
    pub hash: Arc<str>,
}

/// A rule: the requests that it limits, the limit, and the handling of those over it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The unique name of the rule in requests and metrics. A reload carries counters over from
    /// the rule of the same name. A rule in Envoy's format is named after its descriptors, so
    /// that no other rule can change its name.
    pub name: Arc<str>,
    /// The name of the limit in answers of Envoy's protocol, or empty for none. A limit in
    /// Envoy's format keeps its given name there, unique or not.
    pub envoy_name: Arc<str>,
    /// The domain of Envoy's requests that the rule belongs to.
    pub domain: Arc<str>,
    /// The entries that a descriptor must have, in this order and number. Without entries there
    /// is one counter.
    pub entries: Vec<Entry>,
    /// The rule that this is one of several limits of. A call that names that rule is decided by
    /// all of them.
    pub dimension: Option<Dimension>,
    /// Names of rules over some of the entries, from which a call takes in the same step.
    pub also: Vec<Arc<str>>,
    /// The amount that a call counts.
    pub counts: Counts,
    /// The limit in force outside of the times in `schedule`.
    pub limit: Limit,
    /// The limit as it was written, for answers that show it.
    pub display_limit: DisplayLimit,
    /// The effect of a take that does not fit.
    pub over: Over,
    /// The condition on which a request for no permits passes.
    pub look: Look,
    /// The way in which debts end.
    pub debt: Debt,
    /// The extent to which the rule is enforced.
    pub enforcement: Enforcement,
    /// `true` for a quota: a request is over only if all of its quotas are.
    pub quota: bool,
    /// Names of rules that are neither decided nor counted where this rule matches too.
    pub replaces: Vec<Arc<str>>,
    /// The values that replies in Envoy's protocol carry, where configured, if the rule does not
    /// deny the call.
    pub metadata: Option<Arc<Metadata>>,
    /// `true` if metrics were to show the values of its entries. Kept only so that the rule can
    /// be written out again: no metric here shows a value.
    pub detailed_metric: bool,
    /// Limits at certain times of the week. The first that applies is in force instead of
    /// `limit`.
    pub schedule: Vec<Scheduled>,
    /// The location of its counters.
    pub location: CounterLocation,
    /// The time for which permits in flight are held unless renewed, in nanoseconds, for a limit
    /// of concurrency. Defaults to [`HELD_NS`].
    pub held_ns: u64,
    /// The bounds on its reservations.
    pub hold_bounds: HoldBounds,
    /// The decision while the store is unavailable.
    pub on_unavailable: OnUnavailable,
    /// The maximum number of keys that the rule keeps in memory.
    pub max_keys: Option<usize>,
    /// The position in the configuration where the rule is written.
    pub origin: Origin,
}

/// The default time for which a permit in flight is held unless it is renewed: 60 s, in
/// nanoseconds.
pub const HELD_NS: u64 = 60_000_000_000;

/// The limit of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// As many permits as a policy grants.
    Policy(AnyPolicy),
    /// A maximum in each window, where denied permits count too, as in envoyproxy/ratelimit.
    Counted(CountedWindow),
    /// No limit; nothing is counted.
    Unlimited,
    /// No limit, answered as if no rule matched: a descriptor that is excluded from a wider rule.
    Exempt,
    /// Zero permits: every request is denied.
    Nothing,
}

/// A limit as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisplayLimit {
    /// The number of permits.
    pub permits: u64,
    /// The number of units in the period; 0 for a limit of concurrency.
    pub multiplier: u64,
    /// The unit of the period.
    pub unit: Unit,
}

/// The effect of a take that does not fit.
///
/// A limit that [counts every hit](CountedWindow) charges it in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// It is denied, and nothing is counted.
    #[default]
    Refuse,
    /// It is denied, and counted all the same: for callers that have used the permits already.
    Charge,
}

/// The condition on which a request for no permits passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Look {
    /// The limit is not exceeded. One that is exactly full lets it pass.
    #[default]
    Debt,
    /// There is room for one permit.
    Room,
}

/// The extent to which a rule is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enforcement {
    /// Enforced.
    #[default]
    All,
    /// Never enforced: counted, reported in metrics and logs, never over.
    Shadow,
    /// Never enforced, and clients are told what is over.
    Soft,
}

/// A limit that is in force at certain times of the week.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// The days on which it is in force, Monday first.
    pub days: [bool; 7],
    /// The second of the day at which it begins.
    pub from_s: u32,
    /// The second of the day before which it ends; of the next day if not after `from_s`.
    pub until_s: u32,
    /// The name of the time zone in the IANA database; `UTC` by default.
    pub zone: Arc<str>,
    /// The limit at these times, of the same kind as the rule's.
    pub limit: Limit,
    /// The limit as it was written.
    pub display_limit: DisplayLimit,
}

/// The location of a rule's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CounterLocation {
    /// The memory of this process.
    #[default]
    Here,
    /// The store that is configured for all rules, which decides each request.
    StoreExact,
    /// The store, from which permits are leased ahead.
    StoreLeased {
        /// The length of a lease, in nanoseconds.
        lease_ns: u64,
    },
}

/// The decision while the store is unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnUnavailable {
    /// Every request is denied.
    Deny,
    /// Every request is admitted.
    Admit,
    /// This process enforces the limit alone.
    #[default]
    Local,
}

/// The windows, of those that count every hit, that count a call which is over any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Counting {
    /// All windows of the call.
    #[default]
    All,
    /// Those alone that the call is over.
    Stop,
}

/// A position in a configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The path of the file; or the name of a control plane's resource, and a path within it.
    pub file: Arc<PathBuf>,
    /// The line, from 1; 0 for a resource, which has none.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
}

/// The names of the days in a configuration, as in [`Scheduled::days`].
pub(crate) const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

impl Scheduled {
    /// Returns the names of its days.
    pub(crate) fn days(&self) -> impl Iterator<Item = &'static str> {
        DAYS.into_iter().zip(self.days).filter(|(_, is_in)| *is_in).map(|(name, _)| name)
    }

    /// Returns the times of the day at which it begins and ends.
    pub(crate) fn times(&self) -> (String, String) {
        let time = |seconds: u32| {
            let part = |unit: u32, of: u32| {
                seconds.checked_div(unit).and_then(|units| units.checked_rem(of)).unwrap_or(0)
            };
            format!("{:02}:{:02}:{:02}", part(3600, 25), part(60, 60), part(1, 60))
        };
        (time(self.from_s), time(self.until_s))
    }
}

/// Returns a share of 10 000 as text that a configuration reads as the same.
pub(crate) fn threshold(share: u16) -> String {
    match (share / 100, share % 100) {
        (whole, 0) => format!("{whole}%"),
        (whole, part) => format!("{whole}.{part:02}%"),
    }
}

impl Rule {
    /// Returns how many permits a peek at `permits` asks for.
    pub(crate) const fn looked_for(&self, permits: u64) -> u64 {
        match self.look {
            Look::Room if permits == 0 => 1,
            _ => permits,
        }
    }

    /// Returns the name of the limit in Envoy's answers if it differs from the rule's name.
    #[must_use]
    pub fn given(&self) -> Option<&str> {
        Some(&*self.envoy_name).filter(|given| !given.is_empty() && *given != &*self.name)
    }
}

impl Limit {
    /// Returns the policy that counts, if anything is counted.
    #[must_use]
    pub fn policy(&self) -> Option<AnyPolicy> {
        match self {
            Self::Policy(policy) => Some(*policy),
            Self::Counted(window) => Some(window.counter().into()),
            Self::Unlimited | Self::Exempt | Self::Nothing => None,
        }
    }

    /// Returns `true` for a limit of permits in flight.
    pub(crate) const fn counts_in_flight(&self) -> bool {
        matches!(self, Self::Policy(AnyPolicy::Concurrency(_)))
    }

    /// Returns the calendar that has the windows, if one has.
    #[must_use]
    pub const fn calendar(&self) -> Option<Calendar> {
        match self {
            Self::Policy(AnyPolicy::FixedWindow(window)) => window.calendar(),
            _ => None,
        }
    }

    /// Returns the name of the algorithm that decides.
    pub(crate) const fn algorithm(&self) -> &'static str {
        match self {
            Self::Unlimited => "unlimited",
            Self::Exempt => "exempt",
            Self::Counted(_) => "counted-window",
            Self::Nothing => "nothing",
            Self::Policy(AnyPolicy::Gcra(_)) => "gcra",
            Self::Policy(AnyPolicy::SlidingLog(log)) if log.resolution_ns() > 1 => "compact-log",
            Self::Policy(AnyPolicy::SlidingLog(_)) => "sliding-log",
            Self::Policy(AnyPolicy::FixedWindow(_)) if self.calendar().is_some() => "calendar",
            Self::Policy(AnyPolicy::FixedWindow(_)) => "fixed-window",
            Self::Policy(AnyPolicy::Concurrency(_)) => "concurrency",
            Self::Policy(_) => "other",
        }
    }
}

impl fmt::Display for DisplayLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.unit.name();
        match self.multiplier {
            // A limit of concurrency has no period.
            0 => write!(f, "{} at a time", self.permits),
            1 => write!(f, "{} per {unit}", self.permits),
            many => write!(f, "{} per {many} {unit}s", self.permits),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return self.file.display().fmt(f);
        }
        write!(f, "{}:{}:{}", self.file.display(), self.line, self.column)
    }
}
