//! The gate of paced work: a permit each, no sooner than its start.

use rategate::wait::Wake;
use rategate::{AnyPolicy, Clock as _, MonotonicClock};
use rategate_core::ledger::Ledger;
use rategate_core::verdict::Verdict;
use std::sync::Arc;

use super::log::Log;
use super::meter::Tally;
use super::shape::Due;
use super::signals::Stop;
use crate::failure::Failure;

/// The minimum wait before which the log is flushed.
const WORTH_A_LOG_FLUSH_NS: u64 = 100_000_000;

/// The combined limits, with the recorders of what passes.
pub(crate) struct Gate {
    policies: Vec<AnyPolicy>,
    /// The instants of a shape, of which each permit takes one.
    due: Option<Due>,
    /// Created by the first permit, so that the schedule starts with it.
    open: Option<(Ledger, MonotonicClock)>,
    stop: Stop,
    tally: Arc<Tally>,
    log: Option<Log>,
    /// The number of commands that may run at once, where it follows them.
    max_jobs: Option<u64>,
}

impl Gate {
    pub(crate) const fn new(
        policies: Vec<AnyPolicy>,
        due: Option<Due>,
        stop: Stop,
        tally: Arc<Tally>,
        log: Option<Log>,
    ) -> Self {
        Self { policies, due, open: None, stop, tally, log, max_jobs: None }
    }

    /// Sets the number of commands that is recorded with the next permits.
    pub(crate) const fn set_max_jobs(&mut self, max_jobs: Option<u64>) {
        self.max_jobs = max_jobs;
    }

    /// Returns `true` once nothing passes any more: the load of a shape has ended.
    pub(crate) fn is_over(&mut self) -> bool {
        self.due.as_mut().is_some_and(|due| due.peek().is_none())
    }

    /// Takes `permits` and waits for their start, after `before_wait` if there is a wait. Returns
    /// `false` if a stop was requested in the meantime, or the gate [is over](Self::is_over).
    pub(crate) fn pass(
        &mut self,
        permits: u64,
        before_wait: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        let (limit, clock, now_ns) = match &mut self.open {
            Some((limit, clock)) => {
                let now_ns = clock.now_ns();
                (limit, clock, now_ns)
            }
            closed @ None => {
                let limit = Ledger::new(self.policies.as_slice(), 0);
                let (limit, clock) = closed.insert((limit, MonotonicClock::new()));
                // By definition, instants count from the first request.
                (limit, clock, 0)
            }
        };
        let mut at_ns = now_ns;
        let mut due_ns = None;
        if let Some(due) = &mut self.due {
            let Some(next_ns) = due.next().transpose()? else { return Ok(false) };
            at_ns = now_ns.max(next_ns);
            due_ns = Some(next_ns);
        }
        let grant = match limit.reserve(at_ns, permits, None) {
            Ok(Verdict::Granted(mut grant)) => {
                // Windows know of no schedule: the shape has it.
                grant.scheduled_ns = due_ns.unwrap_or(grant.scheduled_ns);
                grant
            }
            Ok(Verdict::Denied(_)) => {
                let complaint = "the next permit would come more than 584 years from now";
                return Err(Failure::Usage(complaint.to_owned()));
            }
            Err(error) => return Err(Failure::Usage(error.to_string())),
        };
        if grant.start_ns > now_ns {
            before_wait()?;
            if let (Some(log), true) =
                (&mut self.log, grant.start_ns.saturating_sub(now_ns) >= WORTH_A_LOG_FLUSH_NS)
            {
                log.flush()?;
            }
            if clock.wait(grant.start_ns, self.stop.cancel_token()) == Wake::Cancelled {
                return Ok(false);
            }
        }
        self.tally.add(permits, &grant, self.max_jobs);
        if let Some(log) = &mut self.log {
            log.record(&grant, permits, self.max_jobs)?;
        }
        Ok(true)
    }

    /// Flushes the log, before a wait outside the gate.
    pub(crate) fn before_wait(&mut self) -> Result<(), Failure> {
        self.log.as_mut().map_or(Ok(()), Log::flush)
    }

    /// Flushes the log at the end.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.before_wait()
    }
}
