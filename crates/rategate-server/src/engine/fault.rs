//! What cannot be asked, and why.

use std::sync::Arc;

use rategate::{KeyedError, LimitError, RateError};

/// So many values, in words.
fn values(count: usize) -> String {
    match count {
        0 => "no value".to_owned(),
        1 => "1 value".to_owned(),
        many => format!("{many} values"),
    }
}

/// Why there is no answer. Nothing was taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// No configuration has been loaded.
    #[error("no configuration is loaded")]
    NotLoaded,
    /// A rule that does not exist. Which one was probably meant is not looked for: a client may ask for any number of them.
    #[error("there is no rule `{name}`")]
    NoSuchRule {
        /// The name, up to 256 characters of it.
        name: Arc<str>,
    },
    /// Too few values for a rule, or too many.
    #[error("rule `{rule}` needs {}, and {given} {} given", values(*needed), if *given == 1 { "is" } else { "are" })]
    Values {
        /// The rule.
        rule: Arc<str>,
        /// How many it needs.
        needed: usize,
        /// How many there are.
        given: usize,
    },
    /// A value that is not one of the rule's.
    #[error("rule `{rule}` is not for the value of its entry `{entry}`")]
    OtherValue {
        /// The rule.
        rule: Arc<str>,
        /// The entry's key.
        entry: Arc<str>,
    },
    /// A limit that is none.
    #[error("{0}")]
    Limit(#[from] LimitError),
    /// A rate that is none.
    #[error("{0}")]
    Rate(#[from] RateError),
    /// More items than a request may have.
    #[error("{given} items are more than the {most} of one request")]
    TooManyItems {
        /// How many there are.
        given: usize,
        /// The most.
        most: usize,
    },
    /// Two items of a request name the same counter.
    #[error("items {first} and {second} are of the same counter")]
    AskedTwice {
        /// One item, from 0.
        first: usize,
        /// The other.
        second: usize,
    },
    /// More different limits have come with calls than can be kept apart.
    #[error("{most} different limits that come with calls are in use, and no more are kept apart")]
    TooManyLimits {
        /// The most.
        most: usize,
    },
    /// There is no room for the key.
    #[error("there is no room for another key")]
    NoRoom,
    /// The verb is none for this limit.
    #[error("{0}")]
    NotFor(&'static str),
    /// A store cannot answer, and not for being gone.
    #[error("{0}")]
    Store(Arc<str>),
    /// A table cannot answer.
    #[error("{0}")]
    Table(KeyedError),
}

impl Fault {
    /// Returns the fault of a name that no rule has.
    pub(crate) fn no_such_rule(name: &str) -> Self {
        Self::NoSuchRule { name: name.chars().take(256).collect::<String>().into() }
    }

    /// Returns whether nothing can be counted for lack of room: of keys, or of limits that come with calls.
    #[must_use]
    pub const fn is_of_room(&self) -> bool {
        matches!(self, Self::NoRoom | Self::TooManyLimits { .. })
    }
}
