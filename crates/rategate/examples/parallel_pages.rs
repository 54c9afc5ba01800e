//! A rayon iterator whose actions are gated, not its enumeration: fifty items, five a second.
//!
//! Items that pass the limiter as they are *pulled* are delayed while a chunk of them is pulled,
//! and then the whole chunk runs at once. Items whose *action* passes it start five a second,
//! whatever rayon pulls.

use std::error::Error;
use std::time::Duration;

use rategate::{Limiter, ManualClock, RateLimitedParallelExt, SlidingLog};
use rayon::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    // Waiting advances this clock, so that nine seconds pass at once.
    let limiter =
        Limiter::with_clock(SlidingLog::new(5, Duration::from_secs(1)), ManualClock::new());
    let pages = (0..50).into_par_iter();
    let fetched: Vec<Duration> = pages
        .rate_limited_map(&limiter, |_page, grant| grant.promised_at())
        .collect::<Result<_, _>>()?;

    let last = fetched.iter().max().copied().unwrap_or_default();
    // A thread that comes late starts later, since its permit counts from the real start.
    assert!(fetched.len() == 50 && last >= Duration::from_secs(9), "{last:?}");
    let first = fetched.iter().filter(|&&start| start < Duration::from_secs(1)).count();
    assert_eq!(first, 5);
    Ok(())
}
