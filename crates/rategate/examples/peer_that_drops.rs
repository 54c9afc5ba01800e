//! A sender to a peer that drops the connection if more than 51 messages reach it within a second
//! of *its* clock, at an unknown phase. A dispatcher sends, and a sampler counts at random
//! phases.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    reason = "an example computes in plain numbers and prints"
)]

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rategate::pace::Dispatcher;
use rategate::{Clock, Grant, Limiter, MonotonicClock, SlidingLog};

const MAX_PERMITS: usize = 51;
const PERIOD_NS: u64 = 400_000_000;
/// The lateness of a message, after its promised start, that does no harm.
const GUARD_NS: u64 = 20_000_000;
const MESSAGES: u64 = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let policy = SlidingLog::new(51, Duration::from_nanos(PERIOD_NS))
        .with_guard(Duration::from_nanos(GUARD_NS))?;
    let clock = MonotonicClock::new();
    let limiter = Limiter::with_clock(policy, clock);
    let dispatcher = Dispatcher::new(limiter, 1_000)?;

    // The promised start and the real start of each message.
    let sent = Arc::new(Mutex::new(Vec::new()));
    let counter = Arc::new(AtomicU64::new(0));
    for _ in 0..MESSAGES {
        let (sent, counter) = (Arc::clone(&sent), Arc::clone(&counter));
        let task = move |grant: Grant| {
            counter.fetch_add(1, Ordering::SeqCst);
            let message = (grant.promised_at(), Duration::from_nanos(clock.now_ns()));
            sent.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        };
        dispatcher.submit(task)?;
    }

    let done = Arc::new(AtomicBool::new(false));
    let thread = {
        let (counter, done) = (Arc::clone(&counter), Arc::clone(&done));
        thread::spawn(move || sample(clock, &counter, &done))
    };
    let report = dispatcher.shutdown().ok_or("the dispatcher has not ended")?;
    done.store(true, Ordering::SeqCst);
    let samples = thread.join().map_err(|_| "the sampler panicked")?;

    let mut sent = sent.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(report.ran, MESSAGES);
    let late =
        sent.iter().map(|(promised, out)| out.saturating_sub(*promised)).max().unwrap_or_default();
    println!(
        "{MESSAGES} messages, at most {MAX_PERMITS} per {PERIOD_NS} ns; the latest {late:?} late"
    );
    println!("counted within one period, at random phases: {samples:?}");

    // The promises hold on any machine: the 52nd comes a period and the guard after the first.
    sent.sort_unstable();
    for window in sent.windows(MAX_PERMITS + 1) {
        if let [(first, _), .., (last, _)] = window {
            assert!(last.saturating_sub(*first) >= Duration::from_nanos(PERIOD_NS + GUARD_NS));
        }
    }
    // The messages sent keep the limit as long as none is later than the guard allows for.
    if late.as_nanos() <= u128::from(GUARD_NS) {
        assert!(samples.iter().all(|&count| count <= 51), "more than 51 within a period");
    }
    Ok(())
}

/// Counts over windows no longer than the period, from random starting points.
fn sample(clock: MonotonicClock, counter: &AtomicU64, done: &AtomicBool) -> Vec<u64> {
    let mut samples = Vec::new();
    let mut random = fastrand::Rng::with_seed(51);
    while !done.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_nanos(random.u64(..50_000_000)));
        let begin_ns = clock.now_ns();
        let before = counter.load(Ordering::SeqCst);
        thread::sleep(Duration::from_nanos(PERIOD_NS * 9 / 10));
        let count = counter.load(Ordering::SeqCst) - before;
        // A sampler that overslept has counted over more than a period.
        if clock.now_ns() - begin_ns < PERIOD_NS {
            samples.push(count);
        }
    }
    samples
}
