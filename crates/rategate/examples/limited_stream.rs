//! A stream of pages at two a second, into a sink at four letters a second.

use std::error::Error;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt, sink, stream};
use rategate::adapter::RateLimitedSink;
use rategate::{AsyncLimiter, Clock, Gcra, ManualClock, RateLimitedStreamExt, SlidingLog};

fn main() -> Result<(), Box<dyn Error>> {
    // Waiting advances this clock, so that seconds pass at once.
    let clock = ManualClock::new();
    let pages = AsyncLimiter::with_clock(SlidingLog::new(2, Duration::from_secs(1)), clock.clone());
    let letters = AsyncLimiter::with_clock(Gcra::per_second(4).burst(8), clock.clone());

    smol::block_on(async {
        let mut pulled = stream::iter(["one", "two", "three", "four", "five"]).rate_limited(&pages);
        let cost = |page: &&str| u64::try_from(page.len()).unwrap_or(u64::MAX);
        let mut sent = RateLimitedSink::by(sink::drain(), &letters, cost);
        while let Some(page) = pulled.next().await {
            sent.send(page?).await?;
        }
        // Nineteen letters: eight at once, the others as their permits are earned.
        assert_eq!(clock.now_ns(), 2_750_000_000);
        Ok(())
    })
}
