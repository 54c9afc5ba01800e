//! The status of a store as those who use it see it.

use std::fmt;

/// The status of the store, as seen from a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StoreStatus {
    /// Available: the store replies, or has not been asked yet.
    #[default]
    Healthy,
    /// Available, but with possibly lost grants: until those have aged out, its grants are
    /// ignored.
    Quarantined,
    /// Unavailable: the store does not reply.
    Unavailable,
}

impl fmt::Display for StoreStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Healthy => "healthy",
            Self::Quarantined => "quarantined",
            Self::Unavailable => "unavailable",
        })
    }
}
