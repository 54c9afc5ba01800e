//! Gating the enumeration instead of the action, and why it does not limit the actions.
//!
//! A consumer that pulls a chunk of fifty items first is delayed while it pulls, and then runs
//! fifty actions without any limit.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    reason = "an example computes in plain numbers and prints"
)]

use std::error::Error;
use std::time::Duration;

use rategate::{Limiter, ManualClock, RateLimitedExt, SlidingLog};

const SECOND: Duration = Duration::from_secs(1);
const PER_SECOND: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let gate = Limiter::with_clock(SlidingLog::new(5, SECOND), ManualClock::new());
    let mut starts = Vec::new();
    // The chunk is pulled through the gate ...
    for item in (0..50).rate_limited(&gate).collect::<Result<Vec<u32>, _>>()? {
        // ... and worked on behind it.
        starts.push((item, gate.now()).1);
    }
    println!("enumeration gated: at most {} actions within a second", max_in_a_second(&starts));
    assert_eq!(starts, [9 * SECOND; 50], "nine seconds of waiting, then all at once");

    let gate = Limiter::with_clock(SlidingLog::new(5, SECOND), ManualClock::new());
    let mut starts = Vec::new();
    for _item in (0..50).collect::<Vec<u32>>() {
        starts.push(gate.acquire(1)?.released_at());
    }
    println!("action gated: at most {} actions within a second", max_in_a_second(&starts));
    assert_eq!(max_in_a_second(&starts), PER_SECOND);
    Ok(())
}

/// Returns the most instants in any half-open second.
fn max_in_a_second(starts: &[Duration]) -> usize {
    let within =
        |from: Duration| starts.iter().filter(move |&start| (from..from + SECOND).contains(start));
    starts.iter().map(|&from| within(from).count()).max().unwrap_or_default()
}
