//! The verbs of `POST /v1/check`.

use serde::Deserialize;

use crate::net::Right;

/// The operation of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verb {
    /// Takes the permits of all items, or none.
    #[default]
    Take,
    /// Returns the result of a take without taking.
    Peek,
    /// Charges permits that have been used already.
    Charge,
    /// Credits permits.
    Refund,
    /// Resets counters.
    Reset,
    /// Takes permits in flight under a name.
    Lease,
    /// Extends a lease.
    Renew,
    /// Ends a lease.
    Release,
    /// Holds estimates under an id.
    Reserve,
    /// Ends a reservation with what was used.
    Commit,
    /// Ends a reservation of which nothing was used.
    Cancel,
}

impl Verb {
    /// Returns the right that the verb needs. A release, a commit and a cancellation credit only
    /// permits whose name or id their caller knows.
    pub(super) const fn right(self) -> Right {
        match self {
            Self::Take
            | Self::Peek
            | Self::Charge
            | Self::Lease
            | Self::Renew
            | Self::Release
            | Self::Reserve
            | Self::Commit
            | Self::Cancel => Right::Ask,
            Self::Refund => Right::Credit,
            Self::Reset => Right::Admin,
        }
    }

    /// Returns `true` if items may have a usage in place of permits.
    pub(super) const fn has_usage(self) -> bool {
        matches!(
            self,
            Self::Take | Self::Peek | Self::Charge | Self::Refund | Self::Reserve | Self::Commit
        )
    }

    pub(super) const fn is_of_lease(self) -> bool {
        matches!(self, Self::Lease | Self::Renew | Self::Release)
    }
}
