//! A limiter of any policy behind one type.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rategate::adaptive::Outcome;
use rategate::charge::{Charged, Committed, Debt};
use rategate::error::{ChargeError, Closed, ReconfigureError, TryAcquireError};
use rategate::snapshot::SnapshotError;
use rategate::wait::{AcquireHold, AcquireOwned, QueueBounds};
use rategate::{AcquireError, AsyncLimiter, Decision, Denial, Grant, Status};

use crate::clock::Clock;
use crate::fork;
use crate::policies::Policies;
use crate::receipt::next_id;
use crate::saved::{self, RestoreError};

/// An estimate of what an operation uses. Dropped, it is cancelled.
pub type Hold = rategate::charge::Hold<Clock>;

/// A promised start.
pub type Reservation = rategate::Reservation<Clock>;

/// A limiter of any [`Policies`], for threads and tasks, on any [`Clock`].
///
/// Clones are handles of the same limiter.
#[derive(Clone, Debug)]
pub struct Limiter {
    /// The limiter as tasks have it, of which that for threads is a part.
    tasks: AsyncLimiter<Clock>,
    id: u64,
    /// The waits in event loops that may have ended, and whose callers have not gone on.
    untaken: Arc<AtomicUsize>,
}

/// The time at which the caller of a wait goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// As soon as the poll has returned its permits.
    AtOnce,
    /// After the first poll, so that no permits are taken there.
    Later,
}

/// What a wait has taken.
#[derive(Debug)]
pub enum Taken {
    /// Permits for good.
    Granted(Grant),
    /// An estimate.
    Held(Hold),
}

/// A wait that has begun, and its end.
pub(crate) enum Waiting {
    Owned(Pin<Box<AcquireOwned<Clock>>>),
    /// With a timeout.
    Within(Pin<Box<dyn Future<Output = Result<Grant, AcquireError>> + Send>>),
    Hold(Pin<Box<AcquireHold<Clock>>>),
}

impl Waiting {
    pub(crate) fn poll(&mut self, waker: &Waker) -> Poll<Result<Taken, AcquireError>> {
        let context = &mut Context::from_waker(waker);
        match self {
            Self::Owned(wait) => wait.as_mut().poll(context).map_ok(Taken::Granted),
            Self::Within(wait) => wait.as_mut().poll(context).map_ok(Taken::Granted),
            Self::Hold(wait) => wait.as_mut().poll(context).map_ok(Taken::Held),
        }
    }

    /// Returns `true` if the next poll returns an error; not with a timeout, nor for a hold.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self, Self::Owned(wait) if wait.has_failed())
    }
}

impl Limiter {
    /// Creates a limiter.
    #[must_use]
    pub fn new(policies: &Policies, clock: Clock) -> Self {
        rategate::Limiter::with_clock(policies.0.clone(), clock).into()
    }

    /// Creates a limiter that continues from what [`save`](Self::save) returned.
    ///
    /// Other numbers of the same policies come into force now. Time has passed by the wall clock,
    /// but at most `max_downtime`, and real time continues where the old clock was left. A manual
    /// clock says itself how much has passed: what it shows more than the old one did.
    ///
    /// # Errors
    ///
    /// [`RestoreError`] for bytes that are not whole, and for a state of other policies.
    pub fn restore(
        policies: &Policies,
        clock: Clock,
        saved: &[u8],
        max_downtime: Option<Duration>,
    ) -> Result<Self, RestoreError> {
        let restored = || {
            let snapshot = saved::read(saved)?;
            let (clock, downtime) = saved::going_on(clock, snapshot.saved_at(), max_downtime);
            rategate::Limiter::restore_with_clock(policies.0.clone(), clock, &snapshot, downtime)
        };
        restored().map(Self::from).map_err(|error| RestoreError::new(policies, error))
    }

    /// Returns the limit's numbers and its state as bytes, of a limiter that is closed as well.
    ///
    /// Promises count as taken, and so does what is held. Callers that wait are not in it, and
    /// operations in flight have ended when it is restored.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::TooLong`] for a log of some 40 million instants.
    pub fn save(&self) -> Result<Vec<u8>, SnapshotError> {
        saved::written(&fork::within(|| self.tasks.limiter().snapshot()))
    }

    /// Returns the limiter, once the debts of its charges are bounded or carried.
    #[must_use]
    pub fn with_debt(self, debt: Debt) -> Self {
        // The debt is of the limiter that all handles share.
        drop(self.tasks.limiter().clone().with_debt(debt));
        self
    }

    /// Counts what the limit grants and denies, under `name`.
    #[must_use]
    pub fn with_stats(self, name: &str) -> Self {
        drop(self.tasks.clone().with_stats(name));
        self
    }

    /// Takes `permits` at once, or not at all.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Limiter::try_acquire`].
    #[inline]
    pub fn try_acquire(&self, permits: u64) -> Result<Decision, TryAcquireError> {
        self.tasks.try_acquire(permits)
    }

    /// Takes `permits` that are free, for a call that would wait otherwise. Returns `None` if the
    /// call has to [begin](crate::Hub::begin) a wait: nothing was taken then.
    ///
    /// A limiter that counts what it denies would count a denial here, so it returns `None`.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Limiter::try_acquire`].
    #[inline]
    pub fn take_at_once(&self, permits: u64) -> Result<Option<Grant>, TryAcquireError> {
        if self.has_untaken() || self.tasks.stats().is_some() {
            return Ok(None);
        }
        Ok(self.try_acquire(permits)?.granted())
    }

    /// Takes `permits` and blocks the thread until they may start, or refuses at once if that is
    /// after `timeout`.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Limiter::acquire_within`].
    pub fn acquire(&self, permits: u64, timeout: Option<Duration>) -> Result<Grant, AcquireError> {
        fork::within(|| match timeout {
            Some(timeout) => self.tasks.limiter().acquire_within(permits, timeout),
            None => self.tasks.limiter().acquire(permits),
        })
    }

    /// Returns the wait of a task, which takes its place when it is first polled.
    pub(crate) fn wait(&self, permits: u64, timeout: Option<Duration>, start: Start) -> Waiting {
        let limiter = self.tasks.clone();
        match (timeout, start) {
            (Some(timeout), Start::AtOnce) => {
                Waiting::Within(Box::pin(
                    async move { limiter.acquire_within(permits, timeout).await },
                ))
            }
            (Some(timeout), Start::Later) => Waiting::Within(Box::pin(async move {
                limiter.acquire_within(permits, timeout).provisionally().await
            })),
            (None, Start::AtOnce) => Waiting::Owned(Box::pin(limiter.acquire_owned(permits))),
            (None, Start::Later) => {
                Waiting::Owned(Box::pin(limiter.acquire_owned(permits).provisionally()))
            }
        }
    }

    /// Holds an estimate that fits now, for a call that would wait otherwise, as
    /// [`take_at_once`](Self::take_at_once) does.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Limiter::try_hold`].
    pub fn hold_at_once(
        &self,
        permits: u64,
        ttl: Duration,
    ) -> Result<Option<Hold>, TryAcquireError> {
        if self.has_untaken() || self.tasks.stats().is_some() {
            return Ok(None);
        }
        Ok(self.try_hold(permits, ttl)?.ok())
    }

    /// Waits until an estimate of `permits` fits, and holds it until its true cost is known, or for
    /// `ttl` at most. Blocks the thread, or refuses at once if it would start after `timeout`.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Limiter::hold_within`].
    pub fn hold(
        &self,
        permits: u64,
        ttl: Duration,
        timeout: Option<Duration>,
    ) -> Result<Hold, AcquireError> {
        let limiter = self.tasks.limiter();
        fork::within(|| match timeout {
            Some(timeout) => limiter.hold_within(permits, ttl, timeout),
            None => limiter.hold(permits, ttl),
        })
    }

    /// Returns the wait of a task that goes on later for a hold.
    pub(crate) fn wait_to_hold(
        &self,
        permits: u64,
        ttl: Duration,
        timeout: Option<Duration>,
    ) -> Waiting {
        let wait = match timeout {
            Some(timeout) => self.tasks.hold_within(permits, ttl, timeout),
            None => self.tasks.hold(permits, ttl),
        };
        Waiting::Hold(Box::pin(wait.provisionally()))
    }

    /// Takes `permits` for the first instant at which they may start, behind all waiters, and does
    /// not wait for it: the caller does. Returns what cancels it.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Limiter::reserve_within`].
    pub fn reserve(
        &self,
        permits: u64,
        timeout: Option<Duration>,
    ) -> Result<Reservation, AcquireError> {
        let limiter = self.tasks.limiter();
        match timeout {
            Some(timeout) => limiter.reserve_within(permits, timeout),
            None => limiter.reserve(permits),
        }
    }

    /// Holds an estimate of `permits` until its true cost is known, or for `ttl` at most. Never
    /// waits.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Limiter::try_hold`].
    pub fn try_hold(
        &self,
        permits: u64,
        ttl: Duration,
    ) -> Result<Result<Hold, Denial>, TryAcquireError> {
        self.tasks.limiter().try_hold(permits, ttl)
    }

    /// Returns how long `permits` would have to wait now: `None` if no time helps.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Limiter::peek`].
    pub fn peek(&self, permits: u64) -> Result<Option<Duration>, TryAcquireError> {
        self.tasks.peek(permits)
    }

    /// Returns the most permits that a try could take now.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn remaining(&self) -> Result<u64, Closed> {
        self.tasks.remaining()
    }

    /// Returns the limit's numbers now.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn status(&self) -> Result<Status, Closed> {
        self.tasks.status()
    }

    /// Returns by how many permits the limit is exceeded; 0 if it is not in debt.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn debt(&self) -> Result<u64, Closed> {
        self.tasks.limiter().debt()
    }

    /// Returns the number of threads and tasks that wait.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn waiting(&self) -> Result<u32, Closed> {
        self.tasks.waiting()
    }

    /// Counts what has been used already, whether it fits or not.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Limiter::charge`].
    pub fn charge(&self, permits: u64) -> Result<Charged, ChargeError> {
        self.tasks.charge(permits)
    }

    /// Ends operations in flight. Returns `false` if the limit counts none.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn release(&self, permits: u64) -> Result<bool, Closed> {
        self.tasks.release(permits)
    }

    /// Ends the operations in flight of a grant, whose outcome an adaptive limit follows. Returns
    /// `false` if the limit counts none.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn release_with_outcome(&self, grant: &Grant, outcome: Outcome) -> Result<bool, Closed> {
        self.tasks.release_with_outcome(grant, outcome)
    }

    /// Returns `true` if the limit moves by the outcomes of operations.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn follows_outcomes(&self) -> Result<bool, Closed> {
        self.tasks.limiter().follows_outcomes()
    }

    /// Returns the most operations in flight that the limit allows now. `None` if it counts none.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn max_in_flight(&self) -> Result<Option<u64>, Closed> {
        self.tasks.max_in_flight()
    }

    /// Adds permits to a pool that is refilled from outside. Returns `false` if there is none.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn refill(&self, permits: u64) -> Result<bool, Closed> {
        self.tasks.refill(permits)
    }

    /// Forgets all grants and promises. Returns `true` if that changes anything.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn reset(&self) -> Result<bool, Closed> {
        self.tasks.reset()
    }

    /// Bounds the wait queue, for waiters that come from now on.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn bound_queue(&self, bounds: QueueBounds) -> Result<(), Closed> {
        self.tasks.bound_queue(bounds)
    }

    /// Puts other numbers into force, for as many policies.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Limiter::reconfigure`]; nothing changes then.
    pub fn reconfigure(&self, policies: &Policies) -> Result<(), ReconfigureError> {
        self.tasks.reconfigure(policies.0.clone())
    }

    /// Closes the limiter: it grants nothing any more, and all waits end.
    pub fn close(&self) {
        fork::within(|| self.tasks.close());
    }

    /// Returns `true` if the limiter is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.tasks.is_closed()
    }

    /// Returns the time since the origin of the limiter's clock.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.tasks.now()
    }

    /// Returns `true` if a wait in an event loop may have ended, and its caller has not gone on.
    ///
    /// A call in a loop should then not go on at once, but [begin](crate::Hub::begin) a wait.
    #[inline]
    #[must_use]
    pub fn has_untaken(&self) -> bool {
        self.untaken.load(Ordering::Relaxed) > 0
    }

    /// Returns the number of the limiter in this process, which [receipts](crate::Receipt) name.
    ///
    /// All limiters of one key of a table have the same.
    #[inline]
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Returns the limiter as one of a key, whose limiters have a number and a count in common.
    pub(crate) fn of_key(self, id: u64, untaken: Arc<AtomicUsize>) -> Self {
        Self { id, untaken, ..self }
    }

    pub(crate) const fn untaken(&self) -> &Arc<AtomicUsize> {
        &self.untaken
    }
}

impl From<rategate::Limiter<Clock>> for Limiter {
    fn from(limiter: rategate::Limiter<Clock>) -> Self {
        Self { tasks: limiter.into(), id: next_id(), untaken: Arc::default() }
    }
}

/// Ends a hold: nothing was used. Returns `true` if that came before it ended by itself.
#[must_use]
pub fn cancel(hold: Hold) -> bool {
    // A commit of nothing is a cancel, and says if it was late.
    matches!(hold.commit(0), Ok(Committed::InTime(_)))
}
