//! A hold of a key as plain data.

use rategate_core::portable::Numbers;
use rategate_core::saved;
use serde::{Deserialize, Serialize};

/// A hold of a key in plain data, which a table that is restored can adopt.
///
/// [`Keyed::save_hold`](crate::Keyed::save_hold) creates it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedHold {
    pub(crate) key: [u64; 2],
    pub(crate) tier: usize,
    permits: u64,
    /// `None` if the hold had ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<Held>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    serial: u64,
    tag: u16,
    numbers: Vec<u64>,
    words: Vec<u64>,
}

impl SavedHold {
    pub(crate) fn new(
        (key, tier): ([u64; 2], usize),
        permits: u64,
        held: Option<saved::SavedHold>,
    ) -> Self {
        let held = held.map(|saved::SavedHold { serial, numbers, words }| Held {
            serial,
            tag: numbers.tag,
            numbers: numbers.words,
            words,
        });
        Self { key, tier, permits, held }
    }

    /// Returns the number of permits held.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.permits
    }

    /// Returns this hold without its end. Once adopted, it lasts until it is committed, cancelled
    /// or dropped.
    ///
    /// It is for a hold that may have been committed since it was saved, so that its end should
    /// bring nothing back.
    #[must_use]
    pub fn without_end(self) -> Self {
        let held = self.held().map(saved::SavedHold::without_end);
        Self::new((self.key, self.tier), self.permits, held)
    }

    /// Returns what is held, unless it had ended.
    pub(crate) fn held(&self) -> Option<saved::SavedHold> {
        let Held { serial, tag, numbers, words } = self.held.clone()?;
        Some(saved::SavedHold { serial, numbers: Numbers { tag, words: numbers }, words })
    }

    /// Returns the place of the hold among those of all keys: key by key, in the order in which
    /// they were made.
    pub(crate) fn place(&self) -> ([u64; 2], usize, u64) {
        (self.key, self.tier, self.held.as_ref().map_or(0, |held| held.serial))
    }
}
