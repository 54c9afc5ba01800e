//! What protocols ask of the engine.

use rategate::Gcra;

use crate::rule::{CountedWindow, Shown};

/// A question: items that are decided together.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What is to be done with all items.
    pub verb: Verb,
    /// What is asked for, at most [`MOST_ITEMS`].
    pub items: &'a [Item<'a>],
    /// Whether it counts wherever it fits although it is denied, as in Envoy's service, in place of all or nothing.
    pub counts_denied: bool,
}

/// The most items of a request.
pub const MOST_ITEMS: usize = 64;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Takes the permits of all items, or of none. An item of 0 permits is looked at.
    Take,
    /// Says what a take would say, and takes nothing.
    Peek,
    /// Gives permits back: each item as much as it can.
    Refund,
    /// Forgets what was counted.
    Reset,
}

/// Permits of one counter.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// Which counter.
    pub target: Target<'a>,
    /// How many permits.
    pub permits: u64,
    /// Whether these permits go back instead, in a request that takes others: Envoy's negative hits. None go back if the request is
    /// denied, so that it can be asked again.
    pub refund: bool,
}

/// How a request names a counter.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// A rule by its name, and the values of its entries in their order. A rule whose entries have one value each needs
    /// none.
    Rule {
        /// The rule's name.
        name: &'a str,
        /// The values of the entries that have no value of their own.
        values: &'a [&'a [u8]],
    },
    /// A descriptor, for the rule that fits it best. None may.
    Descriptor {
        /// The domain.
        domain: &'a str,
        /// Keys and values, in order.
        entries: &'a [(&'a [u8], &'a [u8])],
        /// A limit that the caller brings along for it.
        limit: Option<Override>,
    },
    /// A limit of the caller's own, and a key.
    Inline {
        /// The limit.
        limit: Inline,
        /// The key: any bytes.
        key: &'a [u8],
    },
}

/// A limit that comes with a descriptor: so many in each unit, counted in windows of the wall clock that count what is denied, too. Limits
/// of one unit share the count of a descriptor, a rule's among them, as they do in envoyproxy/ratelimit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Override {
    /// So many, up to 4 294 967 295. 0 denies all.
    pub permits: u64,
    /// In each of these.
    pub unit: crate::rule::Unit,
}

/// A bucket that comes with a call. Calls with the same numbers share counters by key; others have counters of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inline {
    /// How many permits can be taken at once after silence.
    pub capacity: u64,
    /// So many come back ...
    pub count: u64,
    /// ... in so many nanoseconds.
    pub period_ns: u64,
}

impl Inline {
    /// The bucket.
    ///
    /// # Errors
    ///
    /// [`Fault::Rate`](super::Fault::Rate) and [`Fault::Limit`](super::Fault::Limit).
    pub fn bucket(self) -> Result<Gcra, super::Fault> {
        let period = std::time::Duration::from_nanos(self.period_ns);
        Ok(Gcra::new(rategate::Rate::new(self.count, period)?, self.capacity)?)
    }
}

impl Override {
    /// Its window.
    pub(super) fn window(self) -> Result<CountedWindow, super::Fault> {
        let permits = u32::try_from(self.permits).unwrap_or(u32::MAX);
        Ok(CountedWindow::new(permits, self.unit.seconds().saturating_mul(1_000_000_000))?)
    }

    /// How it is shown.
    pub(super) const fn shown(self) -> Shown {
        Shown { permits: self.permits, multiplier: 1, unit: self.unit }
    }
}

impl<'a> Item<'a> {
    /// Permits to be taken.
    #[must_use]
    pub const fn of(target: Target<'a>, permits: u64) -> Self {
        Self { target, permits, refund: false }
    }
}
