//! Threads that never block: when denied, they do other work until a retry can succeed.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    reason = "an example computes in plain numbers and prints"
)]

use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rategate::{Decision, Limiter, SlidingLog, TryAcquireError};

const MAX_PERMITS: usize = 20;
const PERIOD: Duration = Duration::from_millis(100);

fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::new(SlidingLog::new(20, PERIOD));
    let (starts, denied) = (Mutex::new(Vec::new()), Mutex::new(0_u64));
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| -> Result<(), TryAcquireError> {
                    for _ in 0..25 {
                        let start_ns = retry(&limiter, &denied)?;
                        starts.lock().unwrap_or_else(PoisonError::into_inner).push(start_ns);
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(outcome) => outcome.map_err(Box::<dyn Error>::from),
            Err(_) => Err("a thread panicked".into()),
        })
    })?;

    let mut starts = starts.into_inner().unwrap_or_else(PoisonError::into_inner);
    starts.sort_unstable();
    let denied = denied.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{} requests passed, {denied} tries were denied with a retry time", starts.len());
    assert_eq!(starts.len(), 100);
    for window in starts.windows(MAX_PERMITS + 1) {
        if let [first, .., last] = window {
            assert!(
                last.saturating_sub(*first) >= PERIOD,
                "more than {MAX_PERMITS} within a period"
            );
        }
    }
    Ok(())
}

fn retry(limiter: &Limiter, denied: &Mutex<u64>) -> Result<Duration, TryAcquireError> {
    loop {
        match limiter.try_acquire(1)? {
            Decision::Granted(grant) => return Ok(grant.released_at()),
            Decision::Denied(denial) => {
                *denied.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                // The wait is never zero. Another thread may still be first, so this is a loop.
                thread::sleep(denial.retry_after().unwrap_or_default());
            }
        }
    }
}
