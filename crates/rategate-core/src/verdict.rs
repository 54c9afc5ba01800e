//! The verdicts of a limit: granted, or not yet. A request for more than could ever pass gets
//! neither, but the caller's error [`ExceedsCapacity`].

use core::num::NonZeroU64;

use crate::error::ExceedsCapacity;
use crate::refund::RefundEpoch;

/// The decision on a request that could pass at some time.
#[must_use = "a grant that is not acted on is a lost permit"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All the permits are the caller's, from [`Grant::start_ns`] on.
    Granted(Grant),
    /// The request is over the limit; nothing was taken.
    Denied(Denial),
}

/// Permits granted now, or promised for a later instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The instant at which the operation starts: for a waiter that has taken its permits, the
    /// instant of taking; otherwise the first nanosecond at which it may start.
    pub start_ns: u64,
    /// The first nanosecond at which the waiter could have taken its permits: `start_ns` for a
    /// grant without a waiter.
    pub promised_ns: u64,
    /// The instant at which it would have started had all earlier operations started on time; for
    /// a policy without a schedule, the instant of the request.
    pub scheduled_ns: u64,
    /// The number of permits.
    pub permits: u64,
    /// The ticket that names the grant when it is cancelled, held, or refunded by a store.
    pub ticket: Ticket,
}

impl Grant {
    /// Returns the wait time of the operation: `start - scheduled`, free of coordinated omission
    /// where the policy keeps a schedule.
    #[must_use]
    pub const fn wait_ns(&self) -> u64 {
        self.start_ns.saturating_sub(self.scheduled_ns)
    }
}

/// The result of settling the difference between an estimate and the true cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The estimate was exact.
    Even,
    /// The estimate was too high, and permits have come back.
    Back {
        /// The number of permits: the whole excess, or as much of it as the limit could prove
        /// unused.
        permits: u64,
    },
    /// The estimate was too low, and the rest was [charged](crate::ledger::Ledger::charge).
    Owed {
        /// The number of permits charged.
        permits: u64,
        /// The permits not charged, because a debt has a bound or the state can count no more.
        forgiven: u64,
    },
}

/// A refusal for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The time until the same request passes if no other caller comes first: exact, so one
    /// nanosecond sooner it is still denied. Or else the time until the first [hold](crate::holds)
    /// ends, if that is sooner: the request may pass then. `None` where time alone cannot help.
    pub retry_after_ns: Option<NonZeroU64>,
}

/// The name of one grant of one limit, with what must be known of the grant when some of it comes
/// back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    pub(crate) start_ns: u64,
    pub(crate) serial: u64,
    /// The instant until which the limit could not have been at rest without the grant.
    pub(crate) busy_until_ns: u64,
    pub(crate) epoch: RefundEpoch,
}

impl Ticket {
    /// Creates the ticket of a ledger's grant. `busy_until_ns` is until when the limit could not
    /// have been at rest without it.
    #[must_use]
    pub const fn booked(start_ns: u64, busy_until_ns: u64, epoch: RefundEpoch) -> Self {
        Self { start_ns, serial: STARTED, busy_until_ns, epoch }
    }

    /// Returns until when the limit could not have been at rest without the grant, as far as is
    /// known.
    #[must_use]
    pub const fn busy_until_ns(&self) -> u64 {
        self.busy_until_ns
    }

    /// Returns the refund epoch of the limit when the grant was booked.
    #[must_use]
    pub const fn epoch(&self) -> RefundEpoch {
        self.epoch
    }
}

/// The serial number of a grant that cannot be cancelled.
pub(crate) const STARTED: u64 = u64::MAX;

/// The instants at which a request could pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The instant that a reservation is promised.
    pub start_ns: u64,
    /// The first instant at which a try passes. It is `start_ns` but for batches, which
    /// grant at once what is not worth a sleep.
    pub opens_ns: u64,
    /// The instant on the policy's schedule, if it keeps one.
    pub scheduled_ns: Option<u64>,
}

impl Opening {
    /// Returns an opening at `start_ns` of a policy that keeps no schedule.
    #[must_use]
    pub const fn at(start_ns: u64) -> Self {
        Self { start_ns, opens_ns: start_ns, scheduled_ns: None }
    }
}

/// The reason why there is no opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request is for more permits than could ever pass at one instant.
    Exceeds(ExceedsCapacity),
    /// Nothing can help: the rate is never.
    TimeCannotHelp,
    /// Time alone cannot help: permits come back only by a release or a refill.
    Held,
    /// The opening lies beyond the end of a 64-bit clock.
    BeyondClock {
        /// The wait in nanoseconds, from the instant of the request to the opening.
        wait_ns: u64,
    },
}

impl Refusal {
    /// Returns the refusal of `permits` where at most `max` can ever pass at once.
    #[must_use]
    pub const fn exceeds(permits: NonZeroU64, max: u64) -> Self {
        Self::Exceeds(ExceedsCapacity::new(permits.get(), max))
    }

    /// Returns the refusal as seen by a caller whose request came `earlier_ns` before.
    pub(crate) const fn seen_from(self, earlier_ns: u64) -> Self {
        match self {
            Self::BeyondClock { wait_ns } => {
                Self::BeyondClock { wait_ns: wait_ns.saturating_add(earlier_ns) }
            }
            other => other,
        }
    }
}

/// Returns the instant as the 64-bit clock shows it, or the refusal that it lies beyond.
pub(crate) fn on_clock(instant_ns: u128, from_ns: u64) -> Result<u64, Refusal> {
    u64::try_from(instant_ns).map_err(|_| {
        let wait_ns = instant_ns.saturating_sub(from_ns.into());
        Refusal::BeyondClock { wait_ns: u64::try_from(wait_ns).unwrap_or(u64::MAX) }
    })
}
