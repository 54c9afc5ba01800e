//! The gate that work passes: a permit each, no sooner than its start.

use std::sync::Arc;

use rategate::{AllOf, AnyPolicy, Clock as _, Limiter, MonotonicClock, Wake};

use super::log::Log;
use super::meter::Tally;
use super::signals::Stop;
use crate::failure::Failure;

/// Waits shorter than this leave the log in its buffer.
const WORTH_A_LOG_FLUSH_NS: u64 = 100_000_000;

/// All limits together, and who takes note of what passes.
#[derive(Debug)]
pub(crate) struct Gate {
    policies: Vec<AnyPolicy>,
    /// Opened by the first to come, so that the schedule starts with it.
    open: Option<(Limiter<AllOf>, MonotonicClock)>,
    stop: Stop,
    tally: Arc<Tally>,
    log: Option<Log>,
}

impl Gate {
    pub(crate) const fn new(
        policies: Vec<AnyPolicy>,
        stop: Stop,
        tally: Arc<Tally>,
        log: Option<Log>,
    ) -> Self {
        Self { policies, open: None, stop, tally, log }
    }

    /// Takes `permits` and waits for their start, with `before_wait` first if there is a wait.
    /// Returns false if a stop was asked for meanwhile.
    pub(crate) fn pass(
        &mut self,
        permits: u64,
        before_wait: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        let (limiter, clock) = self.open.get_or_insert_with(|| {
            let clock = MonotonicClock::new();
            let policies = self.policies.iter().copied();
            (Limiter::all_of_with_clock(policies, clock), clock)
        });
        let reserved = limiter.reserve(permits);
        let reservation = reserved.map_err(|error| Failure::Usage(error.to_string()))?;
        let start_ns = reservation.start_ns();
        let ahead_ns = start_ns.saturating_sub(clock.now_ns());
        if ahead_ns > 0 {
            before_wait()?;
            if let (Some(log), true) = (&mut self.log, ahead_ns >= WORTH_A_LOG_FLUSH_NS) {
                log.flush()?;
            }
            if clock.wait(start_ns, self.stop.alarm()) == Wake::Raised {
                return Ok(false);
            }
        }
        let grant = reservation.keep();
        self.tally.add(permits, &grant);
        if let Some(log) = &mut self.log {
            log.record(&grant, permits)?;
        }
        Ok(true)
    }

    /// Writes what the log still holds.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.log.as_mut().map_or(Ok(()), Log::flush)
    }
}
