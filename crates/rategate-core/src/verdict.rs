//! What a limit answers: granted, or not yet. More than could ever pass is neither; that is
//! [`ExceedsCapacity`], an error of the caller's.

use core::num::NonZeroU64;

use crate::error::ExceedsCapacity;

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
    /// The first nanosecond at which the operation may start.
    pub start_ns: u64,
    /// When it would have started had all before it started on time; for a policy without a
    /// schedule, when it was asked for.
    pub scheduled_ns: u64,
    /// How many permits one more request could take at the instant of asking.
    pub remaining: u64,
    /// Names the grant when it is to be given back.
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

/// A refusal for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// How long until the same request passes, if nobody else comes first: exact, so one
    /// nanosecond sooner it is still denied. `None` where time alone cannot help.
    pub retry_after_ns: Option<NonZeroU64>,
}

/// Names one grant of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    pub(crate) start_ns: u64,
    pub(crate) serial: u64,
}

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
