//! A gate before a loop and before several threads: two actions a second, 250 ms each.
//!
//! On a virtual clock the table is the ideal one; a short real run shows the machine's lateness.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    reason = "an example computes in plain numbers and prints"
)]

use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rategate::{AcquireError, Limiter, ManualClock, SlidingLog};

fn main() -> Result<(), Box<dyn Error>> {
    virtual_loop()?;
    virtual_threads()?;
    real_threads()
}

fn virtual_loop() -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::new();
    let gate = Limiter::with_clock(SlidingLog::new(2, Duration::from_secs(1)), clock.clone());
    let mut starts_ms = Vec::new();
    println!("Iteration   Start  Finish");
    for iteration in 1..=10 {
        let at_ms = gate.acquire(1)?.released_at().as_millis();
        clock.advance(Duration::from_millis(250));
        println!("{iteration:>9} {at_ms:>7} {:>7}", gate.now().as_millis());
        starts_ms.push(at_ms);
    }
    assert_eq!(starts_ms, [0, 250, 1_000, 1_250, 2_000, 2_250, 3_000, 3_250, 4_000, 4_250]);
    Ok(())
}

/// Runs ten threads that queue at once; each continues at its own promised start.
fn virtual_threads() -> Result<(), Box<dyn Error>> {
    let gate =
        Limiter::with_clock(SlidingLog::new(2, Duration::from_secs(1)), ManualClock::stepped());
    let starts_ms = Mutex::new(Vec::new());
    in_threads(10, || {
        let at_ms = gate.reserve(1)?.keep().promised_at().as_millis();
        starts_ms.lock().unwrap_or_else(PoisonError::into_inner).push(at_ms);
        Ok(())
    })?;
    let mut starts_ms = starts_ms.into_inner().unwrap_or_else(PoisonError::into_inner);
    starts_ms.sort_unstable();
    println!("ten threads at once start at {starts_ms:?} ms");
    let pairs = [0, 0, 1_000, 1_000, 2_000, 2_000, 3_000, 3_000, 4_000, 4_000];
    assert_eq!(starts_ms, pairs);
    Ok(())
}

fn real_threads() -> Result<(), Box<dyn Error>> {
    let period = Duration::from_millis(100);
    let gate = Limiter::new(SlidingLog::new(2, period));
    let grants = Mutex::new(Vec::new());
    in_threads(10, || {
        let grant = gate.acquire(1)?;
        grants.lock().unwrap_or_else(PoisonError::into_inner).push(grant);
        Ok(())
    })?;
    let mut grants = grants.into_inner().unwrap_or_else(PoisonError::into_inner);
    grants.sort_unstable_by_key(rategate::Grant::released_at);
    for grant in &grants {
        let late = grant.released_at().saturating_sub(grant.promised_at());
        println!("real: started at {:?}, {late:?} late", grant.released_at());
    }
    for window in grants.windows(3) {
        if let [first, _, third] = window {
            assert!(third.released_at().saturating_sub(first.released_at()) >= period);
        }
    }
    Ok(())
}

fn in_threads(
    count: usize,
    work: impl Fn() -> Result<(), AcquireError> + Sync,
) -> Result<(), Box<dyn Error>> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(&work)).collect();
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(())
    })
}
