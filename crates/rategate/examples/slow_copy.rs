//! A copy at a thousand bytes a second, and a request whose size is known only afterwards.

use std::error::Error;
use std::io::Write;
use std::num::NonZeroU64;
use std::time::Duration;

use rategate::adapter::ByteLimited;
use rategate::charge::{Committed, Settled};
use rategate::{Clock, Gcra, Limiter, ManualClock};

fn main() -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock(Gcra::per_second(1000).burst(100), clock.clone());

    // Bytes pass in chunks of ten; permits of bytes that do not move come back.
    let chunk = NonZeroU64::new(10).ok_or("a chunk")?;
    let mut copy = ByteLimited::new(Vec::new(), &limiter).with_chunk(chunk);
    copy.write_all(&[7; 600])?;
    assert_eq!(clock.now_ns(), 500_000_000, "the first hundred at once");

    // A page of unknown size: an estimate first, then a debt that the next request waits behind.
    let page = limiter.hold(50, Duration::from_secs(60))?;
    let owed = Settled::Owed { permits: 200, forgiven: 0 };
    assert_eq!(page.commit(250)?, Committed::InTime(owed));
    let next = limiter.acquire(50)?;
    assert_eq!(next.released_at(), Duration::from_millis(800));
    Ok(())
}
