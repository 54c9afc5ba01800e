//! Requests to the engine, as the protocols make them, and items that outlive them.

use rategate::Gcra;

use crate::rule::{CountedWindow, DisplayLimit, Unit, Usage};

/// A request: items that are decided together.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The operation on all items.
    pub verb: Verb,
    /// The items, at most [`MAX_ITEMS`].
    pub items: &'a [Item<'a>],
    /// `true` if a denied request still counts where it fits, as in Envoy's service, instead of
    /// all or nothing.
    pub counts_denied: bool,
}

/// The maximum number of items in a request.
pub const MAX_ITEMS: usize = 64;

/// A limit that comes with a descriptor, counted in windows of the wall clock that count denied
/// permits too. Limits of one unit share the count of a descriptor, a rule's among them, as they
/// do in envoyproxy/ratelimit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Override {
    /// The maximum in each window, up to 4 294 967 295. 0 denies all.
    pub permits: u64,
    /// The length of a window.
    pub unit: Unit,
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Takes the permits of all items, or of none. An item of 0 permits is a peek.
    Take,
    /// Returns what a take would return, and takes nothing.
    Peek,
    /// Charges permits that have been used already, whether they fit or not.
    Charge,
    /// Refunds permits: for each item as many as possible.
    Refund,
    /// Clears the counters.
    Reset,
}

/// Permits of one counter.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// The counter.
    pub target: Target<'a>,
    /// The number of permits.
    pub permits: u64,
    /// The units that were used, in place of permits: for rules with weights or prices.
    pub usage: Option<Usage<'a>>,
    /// `true` if the permits are refunded in a request that takes others: Envoy's negative hits.
    /// A denied request refunds none, so that it can be repeated.
    pub refund: bool,
    /// `true` if the item counts as a quota whatever its rule is: Envoy's global quota mode.
    pub quota: bool,
    /// The index of the item in its call, which errors name. `None` if that is the index in the
    /// request.
    pub nth: Option<usize>,
}

/// A reference to a counter.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// A rule by its name, with the values of its entries in their order. A rule whose entries
    /// all have a fixed value needs none.
    Rule {
        /// The name of the rule.
        name: &'a str,
        /// The values of the entries that have no value of their own.
        values: &'a [&'a [u8]],
    },
    /// A descriptor, decided by the rule that fits it best, if any does.
    Descriptor {
        /// The domain.
        domain: &'a str,
        /// Keys and values, in order.
        entries: &'a [(&'a [u8], &'a [u8])],
        /// A limit from the caller that replaces the rule's.
        limit: Option<Override>,
    },
    /// An inline limit and a key.
    Inline {
        /// The limit.
        limit: Inline,
        /// The key: any bytes.
        key: &'a [u8],
    },
}

/// A bucket that comes with a request. Requests with equal numbers share counters by key; others
/// have their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inline {
    /// The maximum number of permits that can be taken at once.
    pub capacity: u64,
    /// The number of permits that return ...
    pub count: u64,
    /// ... in this many nanoseconds.
    pub period_ns: u64,
}

impl Inline {
    /// Returns the bucket.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::Rate`](super::EngineError::Rate) or
    /// [`EngineError::Limit`](super::EngineError::Limit).
    pub fn bucket(self) -> Result<Gcra, super::EngineError> {
        let period = std::time::Duration::from_nanos(self.period_ns);
        Ok(Gcra::new(rategate::Rate::new(self.count, period)?, self.capacity)?)
    }
}

/// Returns the window of a limit that comes with a descriptor.
pub(super) fn window(limit: Override) -> Result<CountedWindow, super::EngineError> {
    let permits = u32::try_from(limit.permits).unwrap_or(u32::MAX);
    Ok(CountedWindow::new(permits, limit.unit.seconds().saturating_mul(1_000_000_000))?)
}

/// Returns a limit that comes with a descriptor as it is displayed.
pub(super) const fn display_limit(limit: Override) -> DisplayLimit {
    DisplayLimit { permits: limit.permits, multiplier: 1, unit: limit.unit }
}

impl Verb {
    /// Returns `true` if the verb counts permits against a limit.
    pub(super) const fn counts(self) -> bool {
        matches!(self, Self::Take | Self::Charge)
    }
}

impl Target<'_> {
    /// Returns `true` if the limit comes with the target.
    pub(super) const fn has_own_limit(&self) -> bool {
        matches!(self, Self::Inline { .. } | Self::Descriptor { limit: Some(_), .. })
    }
}

impl<'a> Item<'a> {
    /// Creates an item that takes permits.
    #[must_use]
    pub const fn of(target: Target<'a>, permits: u64) -> Self {
        Self { target, permits, usage: None, refund: false, quota: false, nth: None }
    }

    /// Creates an item that takes the cost of a usage.
    #[must_use]
    pub const fn of_usage(target: Target<'a>, usage: Usage<'a>) -> Self {
        Self { usage: Some(usage), ..Self::of(target, 0) }
    }

    /// Returns the permits and the usage that it states.
    pub(super) const fn stated(&self) -> (u64, Option<&Usage<'a>>) {
        (self.permits, self.usage.as_ref())
    }

    /// Returns what is done for the item in a request with this verb.
    pub(super) const fn verb(&self, verb: Verb) -> Verb {
        match verb {
            Verb::Take if self.refund => Verb::Refund,
            Verb::Take if self.permits == 0 && self.usage.is_none() => Verb::Peek,
            verb => verb,
        }
    }
}

/// An item that owns all its bytes.
#[derive(Debug)]
pub(super) struct OwnedItem {
    target: Owned,
    permits: u64,
    refund: bool,
    quota: bool,
}

#[derive(Debug)]
enum Owned {
    Rule { name: String, values: Vec<Vec<u8>> },
    Descriptor { domain: String, entries: Vec<(Vec<u8>, Vec<u8>)>, limit: Option<Override> },
    Inline { limit: Inline, key: Vec<u8> },
}

/// The lists that a borrowed item refers to.
pub(super) struct Lists<'a> {
    values: Vec<&'a [u8]>,
    entries: Vec<(&'a [u8], &'a [u8])>,
}

impl OwnedItem {
    pub(super) fn of(item: &Item<'_>) -> Self {
        let target = match item.target {
            Target::Rule { name, values } => Owned::Rule {
                name: name.to_owned(),
                values: values.iter().map(|value| value.to_vec()).collect(),
            },
            Target::Descriptor { domain, entries, limit } => Owned::Descriptor {
                domain: domain.to_owned(),
                entries: entries
                    .iter()
                    .map(|(key, value)| (key.to_vec(), value.to_vec()))
                    .collect(),
                limit,
            },
            Target::Inline { limit, key } => Owned::Inline { limit, key: key.to_vec() },
        };
        let Item { permits, refund, quota, .. } = *item;
        Self { target, permits, refund, quota }
    }

    pub(super) const fn permits(&self) -> u64 {
        self.permits
    }

    pub(super) fn borrowed(&self) -> Lists<'_> {
        let (mut values, mut entries) = (Vec::new(), Vec::new());
        match &self.target {
            Owned::Rule { values: own, .. } => values.extend(own.iter().map(Vec::as_slice)),
            Owned::Descriptor { entries: own, .. } => {
                entries.extend(own.iter().map(|(key, value)| (key.as_slice(), value.as_slice())));
            }
            Owned::Inline { .. } => {}
        }
        Lists { values, entries }
    }

    pub(super) fn item<'a>(&'a self, lists: &'a Lists<'a>) -> Item<'a> {
        let target = match &self.target {
            Owned::Rule { name, .. } => Target::Rule { name, values: &lists.values },
            Owned::Descriptor { domain, limit, .. } => {
                Target::Descriptor { domain, entries: &lists.entries, limit: *limit }
            }
            Owned::Inline { limit, key } => Target::Inline { limit: *limit, key },
        };
        // The cost of a usage is known before an item is decided.
        let Self { permits, refund, quota, .. } = *self;
        Item { refund, quota, ..Item::of(target, permits) }
    }
}
