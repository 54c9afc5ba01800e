//! Waits of threads and tasks for their permits, and promised starts.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::process;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use rategate_core::concurrent::LockFreeVerdict;
use rategate_core::ledger::Ledger;
use rategate_core::line::{Joined, Outcome, Request, WaiterId};
use rategate_core::verdict::{self, Verdict};

use super::{MAX_SILENCE, Promise, Shared};
use crate::clock::wait::{CancelToken, Precision, Waiter, Wake, spin_until};
use crate::clock::{Clock, NeverBack};
use crate::decision::Grant;
use crate::error::{AcquireError, TooLong, WaitBound};
use crate::panics::quietly;
use crate::section::{Collected, CriticalSection, Estimate, Notifier};

impl<C: Clock> Shared<C> {
    /// Takes permits that are available without any wait.
    pub(crate) fn take_at_once(&self, permits: u64) -> Option<Grant> {
        let was_read = Cell::new(false);
        let read_ns = || {
            was_read.set(true);
            self.clock.now_ns()
        };
        let answer = self.lock_free().try_acquire(read_ns, permits);
        let LockFreeVerdict::Granted { start_ns, scheduled_ns } = answer else {
            return None;
        };
        // A caller that would wait needs its lateness, which an earlier reading would misstate.
        let grant = Grant::at(start_ns, scheduled_ns, permits);
        Some(if was_read.get() { grant } else { grant.starting(self.clock.now_ns()) })
    }

    /// Takes permits, and waits in the queue for them.
    ///
    /// `abort` ends the wait and refunds what it held. If the start has come by then, the permits
    /// are charged and cannot go back, so the grant is the caller's.
    pub(crate) fn acquire(
        &self,
        request: Request,
        precision: Precision,
        abort: Option<&CancelToken>,
    ) -> Result<Grant, AcquireError> {
        let ended = self.wait_uncounted(request, precision, abort, None);
        self.record_wait(request.permits, &ended);
        ended
    }

    pub(crate) fn wait_uncounted(
        &self,
        request: Request,
        precision: Precision,
        abort: Option<&CancelToken>,
        estimate: Option<&Estimate>,
    ) -> Result<Grant, AcquireError> {
        if abort.is_some_and(CancelToken::is_cancelled) {
            return Err(AcquireError::Interrupted);
        }
        if estimate.is_none()
            && let Some(grant) = self.take_at_once(request.permits)
        {
            return Ok(grant);
        }
        let cancel = CancelToken::of_one_wait(abort);
        let notifier = || Notifier::Thread(Arc::clone(&cancel));
        let joined = self.section_to_join(|section| {
            let waiter_slot = match section.join(request, notifier) {
                Ok(Joined::Waits(waiter_slot)) => waiter_slot,
                Ok(Joined::Granted(grant)) => {
                    section.hold_granted(&grant, estimate);
                    return Ok(Ok(Grant::as_promised(&grant)));
                }
                Err(turned) => {
                    return Err(AcquireError::from_rejection(turned, request.max_wait_ns));
                }
            };
            self.record_seen_ns(section.now_ns);
            let due_ns = section.due_ns(&waiter_slot);
            let waiter = self.waiter().as_to(precision, section.limit().slack_ns());
            Ok(Err((
                waiter_slot,
                due_ns,
                waiter.taking(section.state().takes(), section.margin_ns()),
            )))
        })??;
        match joined {
            Ok(grant) => Ok(grant),
            Err((waiter_slot, due_ns, waiter)) => {
                self.wait_in_queue(&waiter_slot, due_ns, &waiter, &cancel, abort, estimate)
            }
        }
    }

    pub(super) fn wait_in_queue(
        &self,
        waiter_slot: &WaiterId,
        mut due_ns: Option<u64>,
        waiter: &Waiter,
        cancel: &Arc<CancelToken>,
        abort: Option<&CancelToken>,
        estimate: Option<&Estimate>,
    ) -> Result<Grant, AcquireError> {
        loop {
            let _ = match due_ns {
                Some(due_ns) => waiter.wait(&self.clock, due_ns, cancel),
                None => self.wait_for_notice(cancel),
            };
            // Before the check: a wait that is settled after it raises the token again.
            cancel.lower();
            let aborted = abort.is_some_and(CancelToken::is_cancelled);
            let notifier = || Notifier::Thread(Arc::clone(cancel));
            let (ended, later_ns) = self.section_even_if_closed(|section| {
                match section.collect(waiter_slot, notifier) {
                    Some(collected) => {
                        section.hold_collected(&collected, estimate);
                        (Some(collected), None)
                    }
                    None if aborted => (section.leave(waiter_slot).map(Collected::Ended), None),
                    None => (None, section.due_ns(waiter_slot)),
                }
            });
            match ended {
                Some(collected) => return self.ended(collected),
                None if aborted => return Err(AcquireError::Interrupted),
                None => due_ns = later_ns,
            }
        }
    }

    /// Waits until the token is raised. In a forked child it also ends after a while.
    ///
    /// Threads that waited at the fork remain in the child's wait queue, and wake no waiter
    /// behind them.
    pub(super) fn wait_for_notice(&self, cancel: &CancelToken) -> Wake {
        let is_copy = process::id() != self.on_demand().made_in;
        let max_silence = if is_copy { MAX_SILENCE } else { Duration::MAX };
        let is_first = Cell::new(true);
        let mut left = || (!is_copy || is_first.replace(false)).then_some(max_silence);
        self.clock.wait_for_turn(cancel, &mut left)
    }

    /// Returns the outcome of a task's wait, if it has ended or may end now.
    pub(crate) fn collect(
        &self,
        waiter_slot: &WaiterId,
        waker: &Waker,
        estimate: Option<&Estimate>,
    ) -> Option<Collected> {
        // A wait that has ended needs no reading of the clock.
        if estimate.is_none()
            && let Some(outcome) = self.lock().state().collect(waiter_slot)
        {
            return Some(Collected::Ended(outcome));
        }
        let check_wait = |section: &mut CriticalSection<'_>| {
            let Some(collected) = section.collect(waiter_slot, || Notifier::Task(waker.clone()))
            else {
                section.listen(waiter_slot, waker);
                return Err(section.near_start_ns(waiter_slot));
            };
            section.hold_collected(&collected, estimate);
            Ok(collected)
        };
        match self.section_even_if_closed(check_wait) {
            Ok(collected) => Some(collected),
            Err(None) => None,
            Err(Some(start_ns)) => {
                let _ = spin_until(start_ns, self.cancel_token(), || self.clock.now_ns());
                self.section_even_if_closed(check_wait).ok()
            }
        }
    }

    /// Returns `true` if a task's wait has ended without permits.
    pub(crate) fn has_failed(&self, waiter_slot: &WaiterId) -> bool {
        self.lock().state().has_failed(waiter_slot)
    }

    /// Queues a waiter for a promise that has not started.
    ///
    /// Returns `None` where it has started, or the limit promises instants.
    pub(crate) fn wait_for_promise(&self, promise: &Promise) -> Option<WaiterId> {
        self.section_even_if_closed(|section| {
            let (line, now_ns, _) = section.line();
            line.wait_for_promise(now_ns, promise.grant.scheduled_ns, &promise.grant)
        })
    }

    /// Leaves a waiter slot. A grant that has reached it counts as used, except in flight.
    pub(crate) fn leave(&self, waiter_slot: &WaiterId) {
        let mut locked = self.lock();
        if let Some(notifier) = locked.state().leave_from_behind(waiter_slot) {
            drop(locked);
            return quietly(|| drop(notifier));
        }
        self.run_section_at(locked, NeverBack::now_in_order_ns, |section| {
            section.serve();
            if let Some(Outcome::Granted(grant)) = section.leave(waiter_slot) {
                section.change(|limit, now_ns| limit.abort(now_ns, grant.permits));
            }
        });
    }

    /// Converts the end of a wait to the result of the call.
    pub(crate) fn ended(&self, collected: Collected) -> Result<Grant, AcquireError> {
        let outcome = match collected {
            Collected::Taken(grant) => return Ok(Grant::as_promised(&grant)),
            Collected::Ended(outcome) => outcome,
        };
        match outcome {
            Outcome::Granted(grant) => Ok(Grant::as_promised(&grant).starting(self.clock.now_ns())),
            Outcome::DeadlinePassed => Err(AcquireError::DeadlinePassed),
            Outcome::Evicted => Err(AcquireError::Evicted),
            Outcome::Refused(refusal) => Err(AcquireError::refused(refusal, None)),
            Outcome::Closed => Err(AcquireError::Closed),
        }
    }

    /// Books the first start behind all waiters, unless it is too far away. Does not wait.
    pub(crate) fn promise(
        &self,
        permits: u64,
        max_wait_ns: Option<u64>,
    ) -> Result<Promise, AcquireError> {
        let promised = self.promise_uncounted(permits, max_wait_ns);
        let granted = promised.as_ref().map(|promise| Grant::as_promised(&promise.grant));
        self.record_wait(permits, &granted.map_err(|&error| error));
        promised
    }

    pub(super) fn promise_uncounted(
        &self,
        permits: u64,
        max_wait_ns: Option<u64>,
    ) -> Result<Promise, AcquireError> {
        self.section(|section| match section.reserve(permits, max_wait_ns)? {
            Some(Verdict::Granted(grant)) => {
                self.record_seen_ns(section.now_ns);
                Ok(Promise { grant, slack_ns: section.limit().slack_ns() })
            }
            Some(Verdict::Denied(denial)) => {
                let refused = section.behind_all(|limit, requested_ns| {
                    refused(limit, requested_ns, permits, max_wait_ns, denial)
                });
                Err(refused.unwrap_or(AcquireError::Held))
            }
            None => Err(AcquireError::Held),
        })?
    }

    /// Waits until the promised start. Closing the limiter ends the wait and refunds the promise,
    /// unless the start has come by then.
    pub(crate) fn keep(
        &self,
        promise: &Promise,
        precision: Precision,
    ) -> Result<Grant, AcquireError> {
        let waiter = self.waiter().as_to(precision, promise.slack_ns);
        if let Some(waiter_slot) = self.wait_for_promise(promise) {
            let (due_ns, abort) = (Some(promise.grant.start_ns), Some(self.cancel_token()));
            let (cancel, waiter) = (CancelToken::of_one_wait(abort), waiter.taking(true, 0));
            let taken = self.wait_in_queue(&waiter_slot, due_ns, &waiter, &cancel, abort, None);
            return taken.map_err(|error| match error {
                AcquireError::Interrupted => AcquireError::Closed,
                error => error,
            });
        }
        match waiter.wait(&self.clock, promise.grant.start_ns, self.cancel_token()) {
            Wake::Cancelled if self.cancel(promise) => Err(AcquireError::Closed),
            Wake::Cancelled | Wake::Due => {
                Ok(Grant::as_promised(&promise.grant).starting(self.clock.now_ns()))
            }
        }
    }

    /// Cancels a promise, even on a closed limiter. Returns `true` if that came before the start.
    pub(crate) fn cancel(&self, promise: &Promise) -> bool {
        self.section_even_if_closed(|section| {
            section.change(|limit, now_ns| limit.cancel(now_ns, promise.grant.ticket))
        })
    }
}

/// Returns why a reservation made at `requested_ns` was denied, and how long its wait would have
/// been.
fn refused(
    limit: &Ledger,
    requested_ns: u64,
    permits: u64,
    max_wait_ns: Option<u64>,
    denial: verdict::Denial,
) -> AcquireError {
    let opening = NonZeroU64::new(permits).map(|permits| limit.opening(requested_ns, permits));
    if let Some(Err(refusal)) = opening {
        return AcquireError::refused(refusal, max_wait_ns);
    }
    let Some(retry_after_ns) = denial.retry_after_ns.map(NonZeroU64::get) else {
        return AcquireError::Held;
    };
    let wait_ns = match opening {
        Some(Ok(opening)) => opening.start_ns.saturating_sub(requested_ns),
        _ => retry_after_ns,
    };
    AcquireError::TooLong(TooLong { wait_ns, retry_after_ns, bound: WaitBound::of(max_wait_ns) })
}
