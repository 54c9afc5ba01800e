//! What is in force: visible, and told once for each change.

use std::fmt;

use crate::store::Gone;

/// How the store is, as seen from a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sight {
    /// It answers.
    #[default]
    Well,
    /// It answers, and may have lost what it had granted a short while ago: until that has aged out, its grants are
    /// not acted on.
    Quarantined,
    /// It does not answer.
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

/// What is in force at a limiter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// How the store's worst part is. Other than [`Sight::Well`], calls are answered as was said
    /// [for that](super::WhenGone), once what was borrowed is used up.
    pub sight: Sight,
    /// Since when, on the limiter's clock.
    pub since_ns: u64,
    /// How many parts of the store are not well, and how many there are.
    pub parts_not_well: usize,
    /// See there.
    pub parts: usize,
    /// What the newest failure was, even if all is well again.
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
