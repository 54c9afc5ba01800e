//! Wait times against an ideal schedule: the effect of each mode at 1000/s, one millisecond late.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    reason = "an example computes in plain numbers and prints"
)]

use std::time::Duration;

use rategate::policy::{Mode, Ratio};
use rategate::{Limiter, ManualClock, TwoTimeline};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let modes = [
        ("average", Mode::Average, [1_000_000, 0, 0, 0, 0, 0]),
        ("burst 1.5", Mode::Burst(Ratio::new(3, 2)?), [1_000_000, 666_666, 333_332, 0, 0, 0]),
        ("strict", Mode::Strict, [1_000_000; 6]),
    ];
    for (name, mode, expected_ns) in modes {
        let clock = ManualClock::new();
        let policy = TwoTimeline::new("1000/s".parse()?, mode, None);
        let limiter = Limiter::with_clock(policy, clock.clone());
        clock.set(Duration::from_millis(1));
        let mut waits_ns = Vec::new();
        for _ in 0..6 {
            waits_ns.push(limiter.acquire(1)?.wait().as_nanos());
        }
        println!("{name:>10}: waits {waits_ns:?} ns, the last start at {:?}", limiter.now());
        assert_eq!(waits_ns, expected_ns);
    }

    // In real time the waits also show how late the machine wakes.
    let limiter = Limiter::new(TwoTimeline::new("500/s".parse()?, Mode::Strict, None));
    for _ in 0..10 {
        let grant = limiter.acquire(1)?;
        println!("      real: {:?}, wait {:?}", grant.released_at(), grant.wait());
        assert!(grant.released_at() >= grant.scheduled_at());
    }
    Ok(())
}
