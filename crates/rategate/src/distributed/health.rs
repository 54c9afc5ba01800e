//! The status of the store as a node sees it, with each change reported once.

use std::fmt;

use crate::store::Gone;

/// The status of the store, as seen from a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sight {
    /// Available: the store replies.
    #[default]
    Well,
    /// Available, but with possibly lost grants: until those have aged out, its grants are
    /// ignored.
    Quarantined,
    /// Unavailable: the store does not reply.
    Gone,
}

impl fmt::Display for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Well => "well",
            Self::Quarantined => "quarantined",
            Self::Gone => "gone",
        })
    }
}

/// The status of a limiter's store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The worst status of any part of the store.
    ///
    /// Other than at [`Sight::Well`], calls are decided by [the fallback](super::WhenGone), once
    /// borrowed permits are used up.
    pub sight: Sight,
    /// The instant of the last change of that status, on the limiter's clock.
    pub since_ns: u64,
    /// The number of parts of the store that are not well.
    pub parts_not_well: usize,
    /// The number of parts of the store.
    pub parts: usize,
    /// The latest failure, even if the store is well again.
    pub last_gone: Option<Gone>,
}

impl Health {
    pub(super) fn add(&mut self, sight: Sight, since_ns: u64, last_gone: Option<&Gone>) {
        let is_first = self.parts == 0;
        self.parts = self.parts.saturating_add(1);
        if sight != Sight::Well {
            self.parts_not_well = self.parts_not_well.saturating_add(1);
        }
        if is_first || sight > self.sight || (sight == self.sight && since_ns > self.since_ns) {
            self.sight = sight;
            self.since_ns = since_ns;
        }
        if let Some(gone) = last_gone {
            self.last_gone = Some(gone.clone());
        }
    }
}
