//! The number of commands that run at once: fixed, or following how long they take.

use rategate::{AdaptiveConcurrency, Clock as _, MonotonicClock};
use rategate_core::adaptive::Outcome;
use rategate_core::ledger::Ledger;
use rategate_core::policy::Ending;
use rategate_core::verdict::Verdict;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::failure::Failure;

/// The maximum number of commands that run at once.
const MAX_JOBS: u32 = 4_096;
/// The exit status of a temporary failure, `EX_TEMPFAIL` of `sysexits.h`.
const TEMPORARY_FAILURE: i32 = 75;
/// The exit status of `timeout` for a command that took too long.
const TIMED_OUT: i32 = 124;

/// The value of `--jobs`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Jobs {
    AtMost(u32),
    /// Between a floor and a ceiling.
    Following(AdaptiveConcurrency),
}

impl Jobs {
    /// Parses `N`, or `FLOOR..CEILING`.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let refuse = |complaint| Failure::argument("--jobs", text, complaint);
        let Some((floor, ceiling)) = text.split_once("..") else {
            let right = format!(
                "write a whole number from 1 to {MAX_JOBS}, or two of them as in 1..50 to follow \
                 how long the commands take"
            );
            return number(text).map(Self::AtMost).ok_or_else(|| refuse(right));
        };
        match (number(floor), number(ceiling)) {
            (Some(floor), Some(ceiling)) if floor <= ceiling => {
                Ok(Self::Following(AdaptiveConcurrency::new(floor, ceiling)))
            }
            (Some(floor), Some(ceiling)) => {
                Err(refuse(format!("the first is above the second; write {ceiling}..{floor}")))
            }
            _ => Err(refuse(format!(
                "write FLOOR..CEILING, two whole numbers from 1 to {MAX_JOBS}, as in 1..50"
            ))),
        }
    }
}

fn number(digits: &str) -> Option<u32> {
    let jobs = digits.parse().ok().filter(|_| !digits.starts_with('+'))?;
    (1..=MAX_JOBS).contains(&jobs).then_some(jobs)
}

/// The slots in which commands run.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for all jobs")]
pub(crate) enum Slots {
    AtMost { jobs: usize, taken: AtomicUsize },
    Following { limit: Mutex<Ledger>, clock: MonotonicClock },
}

/// A slot that is taken, for one command.
#[derive(Debug)]
pub(crate) struct Slot(());

impl Slots {
    pub(crate) fn new(jobs: Jobs) -> Self {
        match jobs {
            Jobs::AtMost(jobs) => {
                let jobs = usize::try_from(jobs).unwrap_or(usize::MAX);
                Self::AtMost { jobs, taken: AtomicUsize::new(0) }
            }
            Jobs::Following(policy) => {
                let limit = Mutex::new(Ledger::new(policy, 0));
                Self::Following { limit, clock: MonotonicClock::new() }
            }
        }
    }

    /// Takes a slot, if one is free. Only one thread does that.
    pub(crate) fn take(&self) -> Option<Slot> {
        match self {
            Self::AtMost { jobs, taken } => {
                if taken.load(Ordering::Acquire) >= *jobs {
                    return None;
                }
                taken.fetch_add(1, Ordering::AcqRel);
                Some(Slot(()))
            }
            Self::Following { limit, clock } => {
                // One permit is never more than the floor.
                match lock(limit).try_acquire(clock.now_ns(), 1) {
                    Ok(Verdict::Granted(_)) => Some(Slot(())),
                    _ => None,
                }
            }
        }
    }

    /// Returns the number of slots, if it follows how long commands take.
    pub(crate) fn max_jobs(&self) -> Option<u64> {
        match self {
            Self::AtMost { .. } => None,
            Self::Following { limit, clock } => lock(limit).max_in_flight(clock.now_ns()),
        }
    }

    /// Runs a command in a slot. The wait for its permit before that is not the command's time.
    pub(crate) fn run(&self, _slot: Slot, command: impl FnOnce() -> Outcome) {
        match self {
            Self::Following { limit, clock } => {
                let start_ns = clock.now_ns();
                let outcome = command();
                lock(limit).end(clock.now_ns(), 1, Ending::Of { start_ns, outcome });
            }
            Self::AtMost { taken, .. } => {
                command();
                taken.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}

/// Locks the limit, whose calls do not panic.
fn lock(limit: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    limit.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns what the end of a command says about how much runs at once.
///
/// A command that fails says nothing: it may have failed at once, whatever runs beside it.
pub(crate) fn outcome(status: ExitStatus) -> Outcome {
    match status.code() {
        Some(0) => Outcome::Served,
        Some(TEMPORARY_FAILURE | TIMED_OUT) => Outcome::Dropped,
        _ => Outcome::Ignored,
    }
}
