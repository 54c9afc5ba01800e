//! The structures that calls fill.

use rategate::Grant;
use rategate::charge::{Charged, Settled};
use rategate_ffi::{Ended, WaitId};

use crate::failure::{Failure, RATEGATE_DENIED, RATEGATE_GRANTED};
use crate::ns;

/// A decision: a grant, a denial, or the end of a wait.
///
/// The caller sets `size` to `sizeof(rategate_decision)` before each call that fills one. Instants
/// are nanoseconds since the origin of the limiter's clock: see `rategate_limiter_now`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Decision {
    /// The size of the structure.
    pub size: usize,
    /// The status that the call returns. At the end of a wait, the status of that.
    pub status: i32,
    /// The wait of a hub, or 0.
    pub wait: u64,
    /// The number of permits granted, or 0.
    pub permits: u64,
    /// The permits that one more try could have taken then.
    pub remaining: u64,
    /// The time until the same call would pass, if no other comes first: 0 for a grant, and
    /// `RATEGATE_FOREVER` where time alone does not help.
    pub retry_after_ns: u64,
    /// The instant at which the caller passed.
    pub released_ns: u64,
    /// The first instant at which the caller could have passed.
    pub promised_ns: u64,
    /// The instant at which the operation should have started.
    pub scheduled_ns: u64,
    /// The part of a grant that refunds need.
    pub detail: [u64; 5],
    /// The number of the limiter that granted it.
    pub limiter: u64,
    /// The permits that have come back of a grant; `UINT64_MAX` once it is settled or released.
    pub returned: u64,
}

/// The numbers of a limit now.
///
/// The caller sets `size` to `sizeof(rategate_status)` before the call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Status {
    /// The size of the structure.
    pub size: usize,
    /// The most permits that a try could take.
    pub remaining: u64,
    /// The number of permits that a fresh limit grants at once.
    pub capacity: u64,
    /// The time until the limit is like a fresh one, or `RATEGATE_FOREVER`.
    pub fresh_in_ns: u64,
    /// The permits by which the limit is exceeded, after charges.
    pub debt: u64,
    /// The time until that debt ends, or `RATEGATE_FOREVER`.
    pub debt_ends_in_ns: u64,
}

/// The result of a charge.
///
/// The caller sets `size` to `sizeof(rategate_charge)` before the call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Charge {
    /// The size of the structure.
    pub size: usize,
    /// The permits charged.
    pub booked: u64,
    /// The permits not charged, because the debt has a bound.
    pub forgiven: u64,
    /// The permits by which the limit is exceeded after the charge.
    pub debt: u64,
}

/// The result of a settlement. All are 0 if the grant was exact.
///
/// The caller sets `size` to `sizeof(rategate_settlement)` before the call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Settlement {
    /// The size of the structure.
    pub size: usize,
    /// The permits that came back, of a grant that was too large.
    pub refunded: u64,
    /// The permits charged, for a grant that was too small.
    pub charged: u64,
    /// The permits not charged, because the debt has a bound.
    pub forgiven: u64,
}

impl Decision {
    const EMPTY: Self = Self {
        size: size_of::<Self>(),
        status: RATEGATE_DENIED,
        wait: 0,
        permits: 0,
        remaining: 0,
        retry_after_ns: 0,
        released_ns: 0,
        promised_ns: 0,
        scheduled_ns: 0,
        detail: [0; 5],
        limiter: 0,
        returned: 0,
    };

    pub(crate) const fn granted(grant: &Grant, limiter: u64) -> Self {
        let [released_ns, promised_ns, scheduled_ns, permits, detail @ ..] = grant.words();
        let (status, remaining) = (RATEGATE_GRANTED, grant.remaining());
        let instants = Self { released_ns, promised_ns, scheduled_ns, ..Self::EMPTY };
        Self { status, permits, remaining, detail, limiter, ..instants }
    }

    pub(crate) const fn with_status(status: i32) -> Self {
        Self { status, ..Self::EMPTY }
    }

    /// Returns the decision of a try.
    pub(crate) fn of(decision: &rategate::Decision, limiter: u64) -> Self {
        match decision {
            rategate::Decision::Granted(grant) => Self::granted(grant, limiter),
            rategate::Decision::Denied(denial) => {
                Self { retry_after_ns: ns(denial.retry_after()), ..Self::EMPTY }
            }
        }
    }

    /// Returns the decision of an error.
    pub(crate) fn failed(failure: &Failure) -> Self {
        let retry_after_ns = match failure {
            Failure::Error(error) => ns(error.retry_after()),
            _ => crate::RATEGATE_FOREVER,
        };
        Self { retry_after_ns, ..Self::with_status(failure.number()) }
    }

    /// Returns the end of a wait of a hub. The text of an error becomes that of the thread.
    pub(crate) fn ended(Ended { wait: WaitId(wait), limiter, end }: Ended) -> Self {
        let decision = match end.map_err(Failure::from) {
            Ok(grant) => Self::granted(&grant, limiter),
            Err(failure) => {
                failure.report();
                Self::failed(&failure)
            }
        };
        Self { wait, ..decision }
    }

    /// Returns the grant of a decision that was filled by a call.
    pub(crate) const fn grant(&self) -> Result<Grant, Failure> {
        if self.status != RATEGATE_GRANTED {
            return Err(Failure::NoGrant(self.status));
        }
        let [booked_ns, first, second, flags, epoch] = self.detail;
        let Self { released_ns, promised_ns, scheduled_ns, permits, .. } = *self;
        let words = [
            released_ns,
            promised_ns,
            scheduled_ns,
            permits,
            booked_ns,
            first,
            second,
            flags,
            epoch,
        ];
        Ok(Grant::from_words(words))
    }
}

impl From<rategate::Status> for Status {
    fn from(status: rategate::Status) -> Self {
        Self {
            size: size_of::<Self>(),
            remaining: status.remaining,
            capacity: status.capacity,
            fresh_in_ns: ns(status.fresh_in),
            debt: status.debt,
            debt_ends_in_ns: ns(status.debt_ends_in),
        }
    }
}

impl From<Charged> for Charge {
    fn from(charged: Charged) -> Self {
        let Charged { booked, forgiven, debt } = charged;
        Self { size: size_of::<Self>(), booked, forgiven, debt }
    }
}

impl From<Settled> for Settlement {
    fn from(settled: Settled) -> Self {
        let (refunded, charged, forgiven) = match settled {
            Settled::Even => (0, 0, 0),
            Settled::Back { permits } => (permits, 0, 0),
            Settled::Owed { permits, forgiven } => (0, permits, forgiven),
        };
        Self { size: size_of::<Self>(), refunded, charged, forgiven }
    }
}
