//! What a limit answers: granted, or not yet. More than could ever pass is neither; that is
//! [`ExceedsCapacity`], an error of the caller's.

use core::num::NonZeroU64;

use crate::error::ExceedsCapacity;
use crate::refund::{Past, Rest};

/// The answer to a request that could pass at some time.
#[must_use = "a grant that nobody acts on is a permit lost"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All the permits are the caller's, from [`Grant::start_ns`] on.
    Granted(Grant),
    /// Nothing was taken.
    Denied(Denial),
}

/// Permits handed out, or promised for a later instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// When the operation starts: for a waiter that has taken its permits, the instant of taking;
    /// otherwise the first nanosecond at which it may start.
    pub start_ns: u64,
    /// The first nanosecond at which the waiter could have taken its permits: `start_ns` where
    /// nobody waited.
    pub promised_ns: u64,
    /// When it would have started had all before it started on time; for a policy without a
    /// schedule, when it was asked for.
    pub scheduled_ns: u64,
    /// How many permits.
    pub permits: u64,
    /// How many permits one more request could take at the instant of asking.
    pub remaining: u64,
    /// Names the grant when it, or a part of it, is to be given back.
    pub ticket: Ticket,
}

impl Grant {
    /// How long the operation stood in the queue: `start - scheduled`, free of coordinated
    /// omission where the policy keeps a schedule.
    #[must_use]
    pub const fn wait_ns(&self) -> u64 {
        self.start_ns.saturating_sub(self.scheduled_ns)
    }
}

/// What became of the difference between an estimate and the true cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// There was none.
    Even,
    /// The estimate was too high, and so many permits have come back.
    Back {
        /// How many: all that were too many, or as many as the limit could tell to be unused.
        permits: u64,
    },
    /// The estimate was too low, and so many permits are owed: later calls wait behind them.
    Owed {
        /// How many.
        permits: u64,
    },
}

/// A refusal for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// How long until the same request passes, if nobody else comes first: exact, so one
    /// nanosecond sooner it is still denied. `None` where time alone cannot help.
    pub retry_after_ns: Option<NonZeroU64>,
}

/// Names one grant of one limit, and tells what has to be known of it when some of it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    pub(crate) start_ns: u64,
    pub(crate) serial: u64,
    pub(crate) rest: Rest,
    pub(crate) past: Past,
}

impl Ticket {
    /// A ledger's grant, and until when the limit could not have been at rest without it.
    #[must_use]
    pub const fn booked(start_ns: u64, busy_until_ns: u64, past: Past) -> Self {
        Self { start_ns, serial: STARTED, rest: Rest::BusyUntil(busy_until_ns), past }
    }

    /// Until when the limit could not have been at rest without the grant, as far as is known.
    #[must_use]
    pub const fn busy_until_ns(&self) -> u64 {
        match self.rest {
            Rest::BusyUntil(busy_until_ns) => busy_until_ns,
            Rest::Spare { .. } => self.start_ns,
        }
    }

    /// What had come back to the limit by then.
    #[must_use]
    pub const fn past(&self) -> Past {
        self.past
    }
}

/// The serial number of a grant that nobody can cancel.
pub(crate) const STARTED: u64 = u64::MAX;

/// When a request could pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The instant that a reservation is promised.
    pub start_ns: u64,
    /// The first instant at which a try passes. It is `start_ns` for every policy but the pacer,
    /// which lets through at once what it would rather not sleep for.
    pub opens_ns: u64,
    /// The instant on the policy's schedule, if it keeps one.
    pub scheduled_ns: Option<u64>,
}

impl Opening {
    /// An opening at `start_ns` of a policy that keeps no schedule.
    #[must_use]
    pub const fn at(start_ns: u64) -> Self {
        Self { start_ns, opens_ns: start_ns, scheduled_ns: None }
    }
}

/// Why there is no opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// More permits than could ever pass at one instant.
    Exceeds(ExceedsCapacity),
    /// Nothing can help: the rate is never.
    TimeCannotHelp,
    /// Time alone cannot help: permits come back only by somebody's act, a release or a refill.
    Held,
    /// The opening lies beyond the end of a 64-bit clock, this many nanoseconds from the instant
    /// asked about.
    BeyondClock {
        /// From the instant asked about to the opening.
        wait_ns: u64,
    },
}

impl Refusal {
    /// The refusal of `permits` where at most `most` can ever pass at once.
    #[must_use]
    pub const fn exceeds(permits: NonZeroU64, most: u64) -> Self {
        Self::Exceeds(ExceedsCapacity::new(permits.get(), most))
    }

    /// The same refusal for a caller who asked `earlier_ns` before.
    pub(crate) const fn seen_from(self, earlier_ns: u64) -> Self {
        match self {
            Self::BeyondClock { wait_ns } => {
                Self::BeyondClock { wait_ns: wait_ns.saturating_add(earlier_ns) }
            }
            other => other,
        }
    }
}

/// An instant as the 64-bit clock shows it, or the refusal that it lies beyond.
pub(crate) fn on_clock(instant_ns: u128, from_ns: u64) -> Result<u64, Refusal> {
    u64::try_from(instant_ns).map_err(|_| {
        let wait_ns = instant_ns.saturating_sub(from_ns.into());
        Refusal::BeyondClock { wait_ns: u64::try_from(wait_ns).unwrap_or(u64::MAX) }
    })
}
