//! What the clones of a limiter share: a limit under one short lock and its lock-free twin before
//! it, a clock, and an alarm.
//!
//! Whatever the twin can say, it says, and no lock is touched. For all else the lock's holder takes
//! the state out of the twin, decides, and puts it back if it fits.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rategate_core::concurrent::{Answer, Concurrent, Draw, Drawn, Spare, Twin};
use rategate_core::limit::Limit;
use rategate_core::verdict::{self, Verdict};

use crate::clock::Clock;
use crate::decision::{Decision, Grant};
use crate::error::{AcquireError, Closed, LimiterError, Past, TooLong};
use crate::twins::Twins;
use crate::wait::{Alarm, Precision, Waiter, Wake};

/// What clones share. Where the state is, in the twin or behind the mutex, is known to this type
/// alone.
#[derive(Debug)]
pub(crate) struct Shared<L: Concurrent, C> {
    twins: Twins<L::Twin>,
    limit: Mutex<L>,
    clock: C,
    alarm: Alarm,
    waiter: Waiter,
    hands: Hands,
}

/// What handles with permits in hand look at before they use one. Rarely written, and apart from what
/// is.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Hands {
    /// Counts changes of the numbers, and the closing. Written under the lock; a handle that sees it
    /// late uses permits that it has, as if it had been a little faster.
    epoch: AtomicU64,
    /// The newest reading by a handle that took a batch, or by a caller who had to wait.
    seen_ns: AtomicU64,
}

/// A start that the limit has promised, and the instant of asking.
#[derive(Debug)]
pub(crate) struct Promise {
    pub(crate) grant: verdict::Grant,
    asked_ns: u64,
    /// How late the caller may start without loss to the rate.
    slack_ns: u64,
}

impl<L: Concurrent, C: Clock> Shared<L, C> {
    pub(crate) fn new(mut limit: L, clock: C) -> Self {
        let twins = Twins::new(limit.twin(clock.now_ns()));
        let waiter = Waiter::new(Precision::default(), 0);
        let limit = Mutex::new(limit);
        Self { twins, limit, clock, alarm: Alarm::new(), waiter, hands: Hands::default() }
    }

    pub(crate) const fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    pub(crate) fn close(&self) {
        let mut limit = self.lock();
        // Sealed for good, and under the lock, so that no decision is still on its way once this
        // returns.
        limit.seal(self.twins.current());
        self.alarm.raise();
        self.new_epoch();
        drop(limit);
    }

    /// Takes the lock for other numbers to be put into force at this instant. Unlike other
    /// decisions, this one finds the twin as it is.
    pub(crate) fn begin_change(&self) -> Result<(MutexGuard<'_, L>, u64), Closed> {
        let limit = self.lock();
        if self.alarm.is_raised() {
            return Err(Closed);
        }
        let now_ns = self.clock.now_ns();
        Ok((limit, now_ns))
    }

    /// Tells everybody that the numbers have changed, and lets go of the lock.
    pub(crate) fn end_change(&self, mut limit: MutexGuard<'_, L>, now_ns: u64) {
        self.twins.grow_for(&mut *limit, now_ns);
        self.new_epoch();
    }

    pub(crate) fn twin(&self) -> &L::Twin {
        self.twins.current()
    }

    fn new_epoch(&self) {
        self.hands.epoch.fetch_add(1, Ordering::Release);
    }

    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.hands.epoch.load(Ordering::Acquire)
    }

    /// The newest time that somebody has seen who took a batch or had to wait.
    #[inline]
    pub(crate) fn seen_ns(&self) -> u64 {
        self.hands.seen_ns.load(Ordering::Relaxed)
    }

    /// How many permits a handle takes at a time, and the epoch for which that holds.
    pub(crate) fn batch(&self) -> Result<(u64, u64), Closed> {
        let limit = self.lock();
        if self.alarm.is_raised() {
            return Err(Closed);
        }
        // The numbers alone say it, so the twin stays open.
        Ok((self.epoch(), limit.batch()))
    }

    #[inline]
    pub(crate) fn draw(&self, least: u64, most: u64) -> Draw {
        let draw = self.twins.current().draw(|| self.clock.now_ns(), least, most);
        if let Draw::Taken(drawn) = draw {
            self.hands.seen_ns.fetch_max(drawn.start_ns, Ordering::Relaxed);
        }
        draw
    }

    /// Takes back what is left of a batch. To a closed limiter nothing needs to go back.
    pub(crate) fn give_back(&self, drawn: Drawn, left: u64) {
        let _ =
            self.decide(|limit, now_ns| limit.give_back(self.twins.current(), now_ns, drawn, left));
    }

    #[inline]
    pub(crate) fn try_acquire(&self, permits: u64) -> Result<Decision, LimiterError> {
        match self.try_twin(permits) {
            Answer::Granted { start_ns, scheduled_ns, spare } => {
                Ok(Decision::Granted(Grant::at(start_ns, scheduled_ns, permits, spare)))
            }
            Answer::Denied { retry_after_ns } => Ok(Decision::denied(retry_after_ns)),
            Answer::Sealed => self.try_locked(permits),
        }
    }

    #[cold]
    fn try_locked(&self, permits: u64) -> Result<Decision, LimiterError> {
        if permits == 0 {
            // Nothing is taken, so nobody else needs to be kept from the twin.
            let (spare, now_ns) = (Spare::of(self.remaining()?), self.clock.now_ns());
            return Ok(Decision::Granted(Grant::at(now_ns, now_ns, 0, spare)));
        }
        let verdict = self.decide(|limit, now_ns| limit.try_acquire(now_ns, permits))??;
        Ok(Decision::of(&verdict))
    }

    #[inline]
    fn try_twin(&self, permits: u64) -> Answer {
        self.twins.current().try_acquire(|| self.clock.now_ns(), permits)
    }

    pub(crate) fn peek(&self, permits: u64) -> Result<Option<u64>, LimiterError> {
        match self.twins.current().peek(self.clock.now_ns(), permits) {
            Some(wait_ns) => Ok(Some(wait_ns)),
            None => Ok(self.decide(|limit, now_ns| limit.peek(now_ns, permits))??),
        }
    }

    pub(crate) fn remaining(&self) -> Result<u64, Closed> {
        match self.twins.current().remaining(self.clock.now_ns()) {
            Some(permits) => Ok(permits),
            None => self.decide(|limit, now_ns| limit.remaining(now_ns)),
        }
    }

    /// Books a start and waits for it.
    pub(crate) fn acquire(
        &self,
        permits: u64,
        max_wait_ns: Option<u64>,
        precision: Precision,
        alarm: &Alarm,
    ) -> Result<Grant, AcquireError> {
        let was_read = Cell::new(false);
        let read_ns = || {
            was_read.set(true);
            self.clock.now_ns()
        };
        let answer = self.twins.current().try_acquire(read_ns, permits);
        if let Answer::Granted { start_ns, scheduled_ns, spare } = answer {
            // Whoever would wait wants to know how late he is, and not by a reading of before.
            let grant = Grant::at(start_ns, scheduled_ns, permits, spare);
            return Ok(if was_read.get() { grant } else { grant.starting(self.clock.now_ns()) });
        }
        let promise = self.promise(permits, max_wait_ns)?;
        if promise.grant.start_ns <= promise.asked_ns {
            return Ok(Grant::as_promised(&promise.grant));
        }
        Ok(self.keep(&promise, precision, alarm)?)
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
                Verdict::Granted(grant) => {
                    self.hands.seen_ns.fetch_max(asked_ns, Ordering::Relaxed);
                    Ok(Promise { grant, asked_ns, slack_ns: limit.slack_ns() })
                }
                Verdict::Denied(denial) => {
                    Err(refused(limit, asked_ns, permits, max_wait_ns, denial))
                }
            }
        })?
    }

    /// Waits until the promised start. An alarm ends the wait and gives the promise back, unless
    /// the start has come by then: what is spent cannot go back, so it is the caller's.
    pub(crate) fn keep(
        &self,
        promise: &Promise,
        precision: Precision,
        alarm: &Alarm,
    ) -> Result<Grant, Closed> {
        let waiter = self.waiter.as_to(precision, promise.slack_ns);
        match waiter.wait(&self.clock, promise.grant.start_ns, alarm) {
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
        limit.seal(self.twins.current());
        let in_time = limit.cancel(now_ns, promise.grant.ticket);
        if !self.alarm.is_raised() {
            limit.open(self.twins.current(), now_ns);
        }
        in_time
    }

    /// One decision, at one reading of the clock.
    pub(crate) fn decide<T>(&self, decision: impl FnOnce(&mut L, u64) -> T) -> Result<T, Closed> {
        let mut limit = self.lock();
        if self.alarm.is_raised() {
            return Err(Closed);
        }
        limit.seal(self.twins.current());
        // Inside the lock: a reading from outside could be overtaken by another's.
        let now_ns = self.clock.now_ns();
        let decided = decision(&mut limit, now_ns);
        limit.open(self.twins.current(), now_ns);
        Ok(decided)
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
