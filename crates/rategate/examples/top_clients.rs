//! A table of limits for clients, with its counts and the clients that stand out.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use rategate::stats::{Detail, KeyStats, Outcome};
use rategate::{Clock, Gcra, Limiter, ManualClock};

const BURST: u64 = 20;

fn main() -> Result<(), Box<dyn Error>> {
    // Any map from a client to its limiter can serve as the table.
    let clock = ManualClock::new();
    let policy = Gcra::new("10/s".parse()?, BURST)?;
    let mut table: HashMap<u32, Limiter<ManualClock>> = HashMap::new();
    let stats = KeyStats::new("per client", Detail::default());

    // A hundred clients within their limits, and two that are not, for a minute of the clock.
    for tick in 0..60_000_u32 {
        clock.set(Duration::from_nanos(u64::from(tick).saturating_mul(1_000_000)));
        let quiet = tick.wrapping_mul(2_654_435_761) % 100;
        for client in
            [Some(quiet), (tick % 20 == 0).then_some(1000), (tick % 50 == 0).then_some(2000)]
                .into_iter()
                .flatten()
        {
            let limiter =
                table.entry(client).or_insert_with(|| Limiter::with_clock(policy, clock.clone()));
            let decision = limiter.try_acquire(1)?;
            let outcome = Outcome::of(&decision, || limiter.remaining().unwrap_or(0), BURST);
            stats.observe_named(client, 1, outcome, || format!("198.51.100.{client}"));
        }
    }

    let report = stats.report();
    println!("{report}");
    let worst: Vec<u32> = report.denied.ranked.iter().map(|ranked| ranked.key).take(2).collect();
    assert_eq!(worst, [1000, 2000], "at {} ns", clock.now_ns());
    Ok(())
}
