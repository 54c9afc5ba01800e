//! Decisions of a limiter: a grant, or a denial for now.

use std::num::NonZeroU64;
use std::time::Duration;

use rategate_core::adaptive::Outcome;
use rategate_core::policy::Ending;
use rategate_core::span::whole_ns;
use rategate_core::verdict;

use crate::random::up_to;

/// The decision about a try.
#[must_use = "an unused grant is a permit lost"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The permits are the caller's.
    Granted(Grant),
    /// Nothing was taken.
    Denied(Denial),
}

impl Decision {
    /// Returns the grant, if it is one.
    #[must_use]
    pub const fn granted(self) -> Option<Grant> {
        match self {
            Self::Granted(grant) => Some(grant),
            Self::Denied(_) => None,
        }
    }

    /// Returns `true` if it is a grant.
    #[must_use]
    pub const fn is_granted(&self) -> bool {
        matches!(self, Self::Granted(_))
    }

    /// Returns how long until the same try would pass, where it was denied and time can help.
    ///
    /// See [`Denial::retry_after`].
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Granted(_) => None,
            Self::Denied(denial) => denial.retry_after(),
        }
    }

    pub(crate) const fn denied(retry_after_ns: Option<NonZeroU64>) -> Self {
        Self::Denied(Denial { retry_after_ns })
    }

    /// Creates a denial; zero is a time that is not known.
    #[cfg(feature = "keyed")]
    pub(crate) fn denied_for(retry_after: Duration) -> Self {
        Self::Denied(Denial { retry_after_ns: NonZeroU64::new(whole_ns(retry_after)) })
    }

    /// Converts the core's verdict for a caller that starts at once.
    pub(crate) const fn of(verdict: &verdict::Verdict) -> Self {
        match verdict {
            verdict::Verdict::Granted(grant) => Self::Granted(Grant::as_promised(grant)),
            verdict::Verdict::Denied(denial) => Self::Denied(Denial::of(*denial)),
        }
    }
}

/// Permits that are the caller's, and their instants on the limiter's clock.
///
/// An instant is the time since the clock's origin: see [`Limiter::now`](crate::Limiter::now).
///
/// ```text
///   scheduled            promised      release
///   ----+-------------------+------------+------> time
///       |<----------- wait ------------->|
///                           |<-  late  ->|
/// ```
///
/// | instant | meaning |
/// |---|---|
/// | [`scheduled_at`](Self::scheduled_at) | when the operation should have started |
/// | [`promised_at`](Self::promised_at) | from when on it could have started |
/// | [`released_at`](Self::released_at) | when the caller really passed |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    release_ns: u64,
    promised_ns: u64,
    scheduled_ns: u64,
    permits: u64,
}

impl Grant {
    /// Returns the end of its operations.
    pub(crate) fn ending(&self, outcome: Outcome) -> Ending {
        Ending::Of { start_ns: whole_ns(self.released_at()), outcome }
    }

    /// Returns the release instant: when the caller really passed.
    ///
    /// For a caller that waited, it is the reading at which it took its permits, which is what
    /// the limit counts. Where the limit promises instants, it is the instant of waking.
    ///
    /// Some decisions reuse an earlier reading of the clock, which their grants then state. A try
    /// on an average schedule that is behind reads the clock only once in many operations, and a
    /// [`Local`](crate::Local) handle once for each batch.
    #[must_use]
    pub const fn released_at(&self) -> Duration {
        Duration::from_nanos(self.release_ns)
    }

    /// Returns the promised start: the first nanosecond at which the caller could have started.
    ///
    /// Never after [`released_at`](Self::released_at); the difference is how late the caller woke.
    #[must_use]
    pub const fn promised_at(&self) -> Duration {
        Duration::from_nanos(self.promised_ns)
    }

    /// Returns the scheduled time: the start if every operation before it had been on time.
    ///
    /// For a policy without a schedule, it is the time of the call.
    #[must_use]
    pub const fn scheduled_at(&self) -> Duration {
        Duration::from_nanos(self.scheduled_ns)
    }

    /// Returns the grant as words, for a caller in another language that keeps it: the instants
    /// released, promised and scheduled, in nanoseconds, and the number of permits.
    #[must_use]
    pub const fn words(&self) -> [u64; 4] {
        [self.release_ns, self.promised_ns, self.scheduled_ns, self.permits]
    }

    /// Returns the grant of these [words](Self::words). Any words are a grant.
    #[must_use]
    pub const fn from_words([release_ns, promised_ns, scheduled_ns, permits]: [u64; 4]) -> Self {
        Self { release_ns, promised_ns, scheduled_ns, permits }
    }

    /// Returns the wait time: from the scheduled time to the release instant.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        Duration::from_nanos(self.release_ns.saturating_sub(self.scheduled_ns))
    }

    /// Returns the number of permits granted.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.permits
    }

    /// Creates a grant to an operation that starts at once.
    #[inline]
    pub(crate) const fn at(release_ns: u64, scheduled_ns: u64, permits: u64) -> Self {
        Self { release_ns, promised_ns: release_ns, scheduled_ns, permits }
    }

    /// Converts the core's grant, for an operation that starts at the instant that it states.
    pub(crate) const fn as_promised(grant: &verdict::Grant) -> Self {
        let verdict::Grant { start_ns, promised_ns, scheduled_ns, permits, .. } = *grant;
        Self { promised_ns, ..Self::at(start_ns, scheduled_ns, permits) }
    }

    /// Returns this grant for an operation that is released at `release_ns`, if that is later.
    pub(crate) fn starting(self, release_ns: u64) -> Self {
        Self { release_ns: release_ns.max(self.release_ns), ..self }
    }
}

/// A denial for now: the permits are not available yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    retry_after_ns: Option<NonZeroU64>,
}

impl Denial {
    /// Converts the core's denial.
    pub(crate) const fn of(denial: verdict::Denial) -> Self {
        Self { retry_after_ns: denial.retry_after_ns }
    }

    /// Returns how long until the same try passes, if no other call comes first.
    ///
    /// It is exact: one nanosecond sooner the try is still denied. Only where a
    /// [hold](crate::Limiter::try_hold) ends sooner, it is the time until then, when the try may
    /// pass or is told again. A waiter that is due and has not taken its permits moves that instant,
    /// because it may take them later than foreseen, or leave. `None` where time alone cannot help;
    /// never zero.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after_ns.map(|wait_ns| Duration::from_nanos(wait_ns.get()))
    }

    /// Returns [`retry_after`](Self::retry_after), later by a random part of `max`.
    ///
    /// Callers that were denied together do not come back together then. Waiters of one limiter
    /// need none: its queue has an instant for each.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rategate::{Decision, Gcra, Limiter};
    ///
    /// let limiter = Limiter::new(Gcra::per_minute(1));
    /// assert!(limiter.try_acquire(1)?.is_granted());
    /// let Decision::Denied(denial) = limiter.try_acquire(1)? else { unreachable!() };
    /// let wait = denial.retry_after_with_jitter(Duration::from_secs(5)).unwrap();
    /// assert!((denial.retry_after().unwrap()..=Duration::from_secs(65)).contains(&wait));
    /// # Ok::<(), rategate::Error>(())
    /// ```
    #[must_use]
    pub fn retry_after_with_jitter(&self, max: Duration) -> Option<Duration> {
        let jitter = || Duration::from_nanos(up_to(whole_ns(max)));
        self.retry_after().map(|wait| wait.saturating_add(jitter()))
    }
}
