//! The shares of a limit on permits in flight, by the value of an entry.

use std::collections::BTreeMap;
use std::sync::Arc;

use rategate::Share;

/// The part of a limit that the calls of each value may fill. All of them count in one limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shares {
    /// In ascending order of the values.
    named: Arc<[(Arc<str>, Share)]>,
    others: Share,
}

impl Shares {
    /// The name of all values that have no share of their own.
    pub const OTHERS: &str = "*";

    /// Creates the shares of these values. Those of [others](Self::OTHERS) have the whole limit
    /// unless they are named.
    #[must_use]
    pub fn new(mut named: BTreeMap<Arc<str>, Share>) -> Self {
        let others = named.remove(Self::OTHERS).unwrap_or(Share::WHOLE);
        Self { named: named.into_iter().collect(), others }
    }

    /// Returns the share of a value.
    #[must_use]
    pub fn of(&self, value: &[u8]) -> Share {
        let found = self.named.binary_search_by(|(name, _)| name.as_bytes().cmp(value));
        found.ok().and_then(|nth| self.named.get(nth)).map_or(self.others, |(_, share)| *share)
    }

    /// Returns each value with its share, and [the others](Self::OTHERS) last.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Share)> {
        let named = self.named.iter().map(|(value, share)| (&**value, *share));
        named.chain([(Self::OTHERS, self.others)])
    }
}
