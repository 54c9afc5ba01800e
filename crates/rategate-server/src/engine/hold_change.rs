//! Changes of reservations in one rule, as its watcher is told of them.

/// A change of a reservation in one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldChange {
    /// The outcome of the operation.
    pub outcome: HoldOutcome,
    /// The permits of this process that are held from now on.
    pub taken: u64,
    /// The permits of this process that are held no longer.
    pub released: u64,
    /// The difference of what was used and what was held, where both are known.
    pub error: Option<u64>,
    /// The permits that were used and not charged, since a debt has a bound.
    pub forgiven: u64,
}

/// The outcome of an operation on a reservation in one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldOutcome {
    /// Permits are held.
    Held,
    /// The rule denied the reservation.
    Denied,
    /// It was committed in time.
    Committed,
    /// It was cancelled in time.
    Cancelled,
    /// It was committed or cancelled after its end, which is reported before as
    /// [`Expired`](Self::Expired).
    Late,
    /// It ended by its time, or since its limit was reset.
    Expired,
}

impl HoldChange {
    /// Creates the change of a hold of so many permits of this process that has ended by itself.
    pub(super) const fn expired(released: u64) -> Self {
        Self { released, ..Self::of(HoldOutcome::Expired) }
    }

    /// Creates a change of nothing but the number of operations.
    pub(super) const fn of(outcome: HoldOutcome) -> Self {
        Self { outcome, taken: 0, released: 0, error: None, forgiven: 0 }
    }
}
