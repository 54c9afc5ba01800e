//! Both ends of a connection under tokio, limited to ten thousand bytes a second in total.

use std::error::Error;
use std::num::NonZeroU64;
use std::time::Duration;

use rategate::adapter::AsyncByteLimited;
use rategate::{AsyncLimiter, Gcra, TokioClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::runtime::Handle;
use tokio::time::Instant;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    // The runtime's clock is paused, so that seconds pass at once.
    let clock = TokioClock::new(Handle::current());
    let limiter = AsyncLimiter::with_clock(Gcra::per_second(10_000).burst(1000), clock);
    let (near, mut far) = duplex(4_096);
    let chunk = NonZeroU64::new(100).ok_or("a chunk")?;
    let mut near = AsyncByteLimited::new(near, &limiter).with_chunk(chunk);

    let echo = tokio::spawn(async move {
        let mut question = vec![0; 10_500];
        far.read_exact(&mut question).await?;
        far.write_all(&question).await?;
        Ok::<_, std::io::Error>(())
    });
    let (from, question) = (Instant::now(), vec![7; 10_500]);
    near.write_all(&question).await?;
    let mut answer = vec![0; 10_500];
    near.read_exact(&mut answer).await?;
    echo.await??;
    assert_eq!(question, answer);
    // Twenty-one thousand bytes, a thousand of them at once.
    assert!(from.elapsed() >= Duration::from_secs(2), "{:?}", from.elapsed());
    assert!(from.elapsed() < Duration::from_millis(2_050), "{:?}", from.elapsed());
    Ok(())
}
