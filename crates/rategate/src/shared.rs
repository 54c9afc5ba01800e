//! What the clones of a limiter share: a limit under one short lock, a clock, and an alarm.

use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rategate_core::limit::Limit;
use rategate_core::verdict::{self, Verdict};

use crate::clock::Clock;
use crate::decision::Grant;
use crate::error::{AcquireError, Closed, Past, TooLong};
use crate::wait::{Alarm, Wake};

/// What clones share. That the state is behind a mutex is known to this type alone.
#[derive(Debug)]
pub(crate) struct Shared<L, C> {
    limit: Mutex<L>,
    clock: C,
    alarm: Alarm,
}

/// A start that the limit has promised, and the instant of asking.
#[derive(Debug)]
pub(crate) struct Promise {
    pub(crate) grant: verdict::Grant,
    asked_ns: u64,
}

impl<L: Limit, C: Clock> Shared<L, C> {
    pub(crate) fn new(limit: L, clock: C) -> Self {
        Self { limit: Mutex::new(limit), clock, alarm: Alarm::new() }
    }

    pub(crate) const fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    pub(crate) fn close(&self) {
        let limit = self.lock();
        // Under the lock, so that no decision is still on its way once this returns.
        self.alarm.raise();
        drop(limit);
    }

    /// Books a start and waits for it.
    pub(crate) fn acquire(
        &self,
        permits: u64,
        max_wait_ns: Option<u64>,
        alarm: &Alarm,
    ) -> Result<Grant, AcquireError> {
        let promise = self.promise(permits, max_wait_ns)?;
        if promise.grant.start_ns <= promise.asked_ns {
            return Ok(Grant::as_promised(&promise.grant));
        }
        Ok(self.keep(&promise, alarm)?)
    }

    /// Books the first start, unless it is too far away. Waits for nothing.
    pub(crate) fn promise(
        &self,
        permits: u64,
        max_wait_ns: Option<u64>,
    ) -> Result<Promise, AcquireError> {
        self.decide(|limit, now_ns| {
            let asked_ns = limit.clamp(now_ns);
            match limit.reserve(asked_ns, permits, max_wait_ns)? {
                Verdict::Granted(grant) => Ok(Promise { grant, asked_ns }),
                Verdict::Denied(denial) => {
                    Err(refused(limit, asked_ns, permits, max_wait_ns, denial))
                }
            }
        })?
    }

    /// Waits until the promised start. An alarm ends the wait and gives the promise back, unless
    /// the start has come by then: what is spent cannot go back, so it is the caller's.
    pub(crate) fn keep(&self, promise: &Promise, alarm: &Alarm) -> Result<Grant, Closed> {
        match self.clock.wait(promise.grant.start_ns, alarm) {
            Wake::Raised if self.cancel(promise) => Err(Closed),
            Wake::Raised | Wake::Due => {
                Ok(Grant::as_promised(&promise.grant).starting(self.clock.now_ns()))
            }
        }
    }

    /// Gives a promise back, also to a limiter that is closed. Returns whether that was in time,
    /// before the start.
    pub(crate) fn cancel(&self, promise: &Promise) -> bool {
        let mut limit = self.lock();
        let now_ns = self.clock.now_ns();
        limit.cancel(now_ns, promise.grant.ticket)
    }

    /// One decision, at one reading of the clock.
    pub(crate) fn decide<T>(&self, decision: impl FnOnce(&mut L, u64) -> T) -> Result<T, Closed> {
        let mut limit = self.lock();
        if self.alarm.is_raised() {
            return Err(Closed);
        }
        // Inside the lock: a reading from outside could be overtaken by another's.
        let now_ns = self.clock.now_ns();
        Ok(decision(&mut limit, now_ns))
    }

    /// A panic in a decision leaves the state as the core left it, which is never half a decision
    /// that would grant too much.
    fn lock(&self) -> MutexGuard<'_, L> {
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a reservation asked for at `asked_ns` was denied, and how long its wait would have been.
fn refused<L: Limit>(
    limit: &L,
    asked_ns: u64,
    permits: u64,
    max_wait_ns: Option<u64>,
    denial: verdict::Denial,
) -> AcquireError {
    let Some(retry_after_ns) = denial.retry_after_ns else { return AcquireError::TimeCannotHelp };
    let opening = NonZeroU64::new(permits).map(|permits| limit.opening(asked_ns, permits));
    let wait_ns = match opening {
        Some(Ok(opening)) => opening.start_ns.saturating_sub(asked_ns),
        Some(Err(refusal)) => return AcquireError::refused(refusal, max_wait_ns),
        None => retry_after_ns.get(),
    };
    let retry_after_ns = retry_after_ns.get();
    AcquireError::TooLong(TooLong { wait_ns, retry_after_ns, past: Past::of(max_wait_ns) })
}
