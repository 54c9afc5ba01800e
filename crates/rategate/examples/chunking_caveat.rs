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

const SECOND_NS: u64 = 1_000_000_000;
const PER_SECOND: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let gate = Limiter::with_clock(
        SlidingLog::new(5, Duration::from_nanos(SECOND_NS)),
        ManualClock::new(),
    );
    let mut at_ns = Vec::new();
    // The chunk is pulled through the gate ...
    for item in (0..50).rate_limited(&gate).collect::<Result<Vec<u32>, _>>()? {
        // ... and worked on behind it.
        at_ns.push((item, gate.now_ns()).1);
    }
    println!("enumeration gated: at most {} actions within a second", max_in_a_second(&at_ns));
    assert_eq!(at_ns, [9 * SECOND_NS; 50], "nine seconds of waiting, then all at once");

    let gate = Limiter::with_clock(
        SlidingLog::new(5, Duration::from_nanos(SECOND_NS)),
        ManualClock::new(),
    );
    let mut at_ns = Vec::new();
    for _item in (0..50).collect::<Vec<u32>>() {
        at_ns.push(gate.acquire(1)?.release_ns());
    }
    println!("action gated: at most {} actions within a second", max_in_a_second(&at_ns));
    assert_eq!(max_in_a_second(&at_ns), PER_SECOND);
    Ok(())
}

/// Returns the most instants in any half-open second.
fn max_in_a_second(at_ns: &[u64]) -> usize {
    let within =
        |from_ns| at_ns.iter().filter(move |at_ns| (from_ns..from_ns + SECOND_NS).contains(*at_ns));
    at_ns.iter().map(|&from_ns| within(from_ns).count()).max().unwrap_or_default()
}
