//! Errors of the engine.

use std::sync::Arc;
use std::time::Duration;

use rategate::error::{KeyedError, LimitError, RateError};
use rategate_core::span;

use crate::nearest::a_few;
use crate::net::RefusalReason;
use crate::rule::{CostError, Rule};

/// Formats a number of values in words.
fn values(count: usize) -> String {
    match count {
        0 => "no value".to_owned(),
        1 => "1 value".to_owned(),
        many => format!("{many} values"),
    }
}

/// Formats the rule that an error is about.
fn of_rule(rule: Option<&str>) -> String {
    rule.map_or_else(String::new, |rule| format!(" of rule `{rule}`"))
}

/// An error instead of an answer. Nothing was taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// No configuration has been loaded.
    #[error("no configuration is loaded")]
    NotLoaded,
    /// No rule has this name. There is no suggestion of a similar name: clients may send any
    /// number of unknown names.
    #[error("there is no rule `{name}`; {known}")]
    NoSuchRule {
        /// The name, cut to 256 characters.
        name: Arc<str>,
        /// Some names that rules have.
        known: Arc<str>,
    },
    /// Too few or too many values for a rule.
    #[error(
        "rule `{rule}` needs {}, and {given} {} given",
        values(*needed),
        if *given == 1 { "is" } else { "are" }
    )]
    Values {
        /// The name of the rule.
        rule: Arc<str>,
        /// The number of values that the rule needs.
        needed: usize,
        /// The number of values in the request.
        given: usize,
    },
    /// A value that the rule does not match.
    #[error("rule `{rule}` does not match the value of its entry `{entry}`")]
    OtherValue {
        /// The name of the rule.
        rule: Arc<str>,
        /// The key of the entry.
        entry: Arc<str>,
    },
    /// An invalid limit.
    #[error("{0}")]
    Limit(#[from] LimitError),
    /// An invalid rate.
    #[error("{0}")]
    Rate(#[from] RateError),
    /// More items than a request may have.
    #[error("{given} items in one request; at most {max} are accepted")]
    TooManyItems {
        /// The number of items in the request.
        given: usize,
        /// The maximum number of items.
        max: usize,
    },
    /// Two items of a reservation name the same counter. Items of other requests are merged
    /// instead.
    #[error("items {first} and {second} name the same counter")]
    DuplicateItem {
        /// The index of one item, from 0.
        first: usize,
        /// The index of the other item.
        second: usize,
    },
    /// More distinct inline limits than the server tracks.
    #[error("all {max} slots for inline limits are in use")]
    TooManyLimits {
        /// The maximum number of inline limits.
        max: usize,
    },
    /// No capacity for another key.
    #[error("the table is full: no capacity for another key")]
    NoCapacity,
    /// No capacity for another reservation, or for the id of another request that is made once.
    #[error(
        "all {max} reservations that `keys.reservations` admits are known, open or ended in the \
         last ten minutes; send the same again when some are forgotten"
    )]
    TooManyReservations {
        /// The maximum number of reservations.
        max: usize,
    },
    /// The id is in use for another operation, other items or other permits.
    #[error(
        "the id is of another operation, other items or other permits; send what it was first \
         sent with, in the same order, or draw a new one"
    )]
    OtherItems,
    /// The id is in use for another number of items.
    #[error(
        "the id is of {known} item{}, and {given} {} given; send what it was first sent with, in \
         the same order, or draw a new one",
        if *known == 1 { "" } else { "s" },
        if *given == 1 { "is" } else { "are" }
    )]
    OtherNumber {
        /// The number of items under the id.
        known: usize,
        /// The number of items in the request.
        given: usize,
    },
    /// A time of a reservation that is 0 or too long.
    #[error(
        "the time of a reservation{} is {}; it is longer than 0, and {} at most",
        of_rule(rule.as_deref()),
        span::Text(span::whole_ns(*given)),
        span::Text(span::whole_ns(*max))
    )]
    Ttl {
        /// The rule with the smallest maximum, unless no rule has one.
        rule: Option<Arc<str>>,
        /// The time that the call states.
        given: Duration,
        /// The maximum time.
        max: Duration,
    },
    /// The cost of an item's usage is unknown.
    #[error("rule `{rule}` {why}")]
    Cost {
        /// The index of the item.
        item: usize,
        /// The name of the rule.
        rule: Arc<str>,
        /// The reason.
        why: CostError,
    },
    /// No permits of a rule of which at least one is held under an id, or leased.
    #[error(
        "rule `{rule}` holds at least 1 permit, as it is in a store or counts permits in flight, \
         and 0 are stated"
    )]
    NoPermits {
        /// The index of the item.
        item: usize,
        /// The name of the rule.
        rule: Arc<str>,
    },
    /// The limit does not support the verb.
    #[error("{0}")]
    NotFor(&'static str),
    /// The limit of an item does not support the verb.
    #[error("rule `{rule}` {why}")]
    NotForItem {
        /// The index of the item.
        item: usize,
        /// The name of the rule.
        rule: Arc<str>,
        /// The reason, and what the rule supports.
        why: &'static str,
    },
    /// The store returned an error other than being unavailable.
    #[error("{0}")]
    Store(Arc<str>),
    /// The table returned an error.
    #[error("{0}")]
    Table(KeyedError),
}

impl EngineError {
    /// Returns the fault for a name that none of these rules has.
    pub(crate) fn no_such_rule(name: &str, rules: &[Arc<Rule>]) -> Self {
        let mut last = None;
        let known = rules.iter().filter_map(|rule| {
            let name = rule.dimension.as_ref().map_or(&*rule.name, |limit| &*limit.of);
            (last.replace(name) != Some(name)).then_some(name)
        });
        let known = a_few(known).into();
        Self::NoSuchRule { name: name.chars().take(256).collect::<String>().into(), known }
    }

    /// Moves an error about an item to the item that it comes from.
    pub(super) fn of_origin(self, origin: impl FnOnce(usize) -> usize) -> Self {
        match self {
            Self::NotForItem { item, rule, why } => {
                Self::NotForItem { item: origin(item), rule, why }
            }
            error => error,
        }
    }

    /// Returns the reason for which a call with this error counts as refused.
    pub(crate) const fn refusal(&self) -> RefusalReason {
        match self {
            Self::TooManyReservations { .. } => RefusalReason::TooManyReservations,
            _ => RefusalReason::EngineError,
        }
    }

    /// Returns `true` if capacity is exhausted: for keys, for inline limits, or for reservations.
    #[must_use]
    pub const fn is_out_of_capacity(&self) -> bool {
        matches!(
            self,
            Self::NoCapacity | Self::TooManyLimits { .. } | Self::TooManyReservations { .. }
        )
    }
}
