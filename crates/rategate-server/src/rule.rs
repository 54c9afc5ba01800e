//! Rules as plain data: what a configuration comes down to, whatever format it was written in, and what the engine is given.

mod counted;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rategate::AnyPolicy;

pub use self::counted::CountedWindow;

/// All rules that are in force together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    /// In the order of their files and lines.
    pub rules: Vec<Rule>,
    /// A digest of the text that they were read from, in hexadecimal: two servers with the same have the same rules.
    pub hash: Arc<str>,
}

/// Which calls are limited, by what, and what becomes of those over the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// By what it is known in requests, metrics, and over a reload: counters are carried over from the rule of the
    /// same name. Unique. One of Envoy's format has it by what it is for, so that no other rule can change it.
    pub name: Arc<str>,
    /// What answers of Envoy's protocol call its limit; empty if they do not. A limit in Envoy's format has the name there that it was
    /// given, whether others have it too or not.
    pub envoy_name: Arc<str>,
    /// The domain of Envoy's requests that it belongs to.
    pub domain: Arc<str>,
    /// What a descriptor must consist of, in order and as many. Without entries there is one counter.
    pub entries: Vec<Entry>,
    /// What is allowed.
    pub limit: Limit,
    /// How the limit was written, for answers that tell it.
    pub shown: Shown,
    /// Whether it is enforced.
    pub enforcement: Enforcement,
    /// Whether it is a quota: a request is over only if all quotas that it has to pass are.
    pub quota: bool,
    /// Names of rules that are neither asked nor counted where this one matches too.
    pub replaces: Vec<Arc<str>>,
    /// Whether metrics were asked to tell the values of its entries. Kept for whoever writes the rule down again: no metric here tells a value.
    pub detailed_metric: bool,
    /// Limits at certain times of the week, of which the first that fits is in force in place of `limit`.
    pub schedule: Vec<Scheduled>,
    /// Where its counters are.
    pub place: Place,
    /// For how long permits in flight are held unless they are renewed, in ns, of a limit of so many at a time. [`HELD_NS`] if
    /// nobody says otherwise.
    pub held_ns: u64,
    /// What is answered while the place of its counters cannot be reached.
    pub when_gone: WhenGone,
    /// The most keys it keeps in memory.
    pub most_keys: Option<usize>,
    /// Where it is written.
    pub origin: Origin,
}

/// For how long a permit in flight is held unless it is renewed, where a rule says nothing else: 60 s.
pub const HELD_NS: u64 = 60_000_000_000;

/// A part of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Its key.
    pub key: Arc<str>,
    /// Its value.
    pub value: Value,
}

/// Which values of an entry a rule is for. Exact beats a pattern, a pattern beats any.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// Every one, with a counter each.
    Any,
    /// This one.
    Exact(Arc<str>),
    /// Each of these, with a counter each: a tier of named keys. Beats as an exact one does.
    OneOf(Arc<[Arc<str>]>),
    /// Those like it: each `*` stands for any number of characters.
    Pattern {
        /// The pattern.
        text: Arc<str>,
        /// Whether all that match share one counter.
        shared: bool,
    },
}

/// What is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// As much as a policy allows.
    Policy(AnyPolicy),
    /// So many in each window, counting what is denied, too: as envoyproxy/ratelimit does.
    Counted(CountedWindow),
    /// Everything, uncounted.
    Unlimited,
    /// Everything, answered as if no rule matched: a descriptor that is taken out of a wider rule.
    Exempt,
    /// Nothing.
    Nothing,
}

/// A limit as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// So many.
    pub permits: u64,
    /// In each so many of a unit; 0 for so many at a time.
    pub multiplier: u64,
    /// The unit.
    pub unit: Unit,
}

/// A unit of time as configurations have it. A month has 30 days here, and a year 365.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// 1 s.
    Second,
    /// 60 s.
    Minute,
    /// 3600 s.
    Hour,
    /// 86 400 s.
    Day,
    /// 7 days.
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

/// Whether a rule is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enforcement {
    /// For all keys.
    #[default]
    All,
    /// For so many of 10 000 keys, always the same ones. The others are counted and never over.
    Share(u16),
    /// For none: counted, told in metrics and logs, never over.
    Shadow,
}

/// A limit at certain times of the week.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// On these days, Monday first.
    pub days: [bool; 7],
    /// From this second of the day.
    pub from_s: u32,
    /// Until before this one; if it is not after `from_s`, that of the next day.
    pub until_s: u32,
    /// The time zone's name in the IANA database; `UTC` by default.
    pub zone: Arc<str>,
    /// What is allowed then, of the same kind as the rule's.
    pub limit: Limit,
    /// How it was written.
    pub shown: Shown,
}

/// Where the counters of a rule are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// In this process.
    #[default]
    Here,
    /// In the store that is configured for all: each call is decided there.
    StoreExact,
    /// In the store, from which permits are borrowed ahead.
    StoreLeased {
        /// For how long they are lent.
        lease_ns: u64,
    },
}

/// What is answered while the store is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenGone {
    /// Everything is denied.
    Deny,
    /// Everything is admitted.
    Admit,
    /// The limit is kept by this process alone.
    #[default]
    Local,
}

/// Where something is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The file.
    pub file: Arc<PathBuf>,
    /// From 1.
    pub line: usize,
    /// From 1.
    pub column: usize,
}

impl Rule {
    /// What answers of Envoy's protocol call it, if that is something else than its name: what its author knows it by.
    #[must_use]
    pub fn given(&self) -> Option<&str> {
        Some(&*self.envoy_name).filter(|given| !given.is_empty() && *given != &*self.name)
    }
}

impl Limit {
    /// The policy that counts, if anything is counted.
    #[must_use]
    pub fn policy(&self) -> Option<AnyPolicy> {
        match self {
            Self::Policy(policy) => Some(*policy),
            Self::Counted(window) => Some(window.counter().into()),
            Self::Unlimited | Self::Exempt | Self::Nothing => None,
        }
    }
}

impl Unit {
    /// All of them, the shortest first.
    pub const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// How long it is.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
            Self::Day => 86_400,
            Self::Week => 7 * 86_400,
            Self::Month => 30 * 86_400,
            Self::Year => 365 * 86_400,
        }
    }

    /// Its name in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.unit.name();
        match self.multiplier {
            // Permits in flight are in no time.
            0 => write!(f, "{} at a time", self.permits),
            1 => write!(f, "{} per {unit}", self.permits),
            many => write!(f, "{} per {many} {unit}s", self.permits),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file.display(), self.line, self.column)
    }
}
