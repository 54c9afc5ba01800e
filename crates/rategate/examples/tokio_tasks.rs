//! Tasks of tokio that wait for permits: twenty tasks share one limit of 10 starts in any 400 ms.

#![allow(clippy::print_stdout)]

use std::time::Duration;

use rategate::{AcquireError, AsyncLimiter, SlidingLog};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), AcquireError> {
    let window = Duration::from_millis(400);
    let limiter = AsyncLimiter::new(SlidingLog::new(10, window));

    let mut tasks = JoinSet::new();
    for task in 0..20 {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let grant = limiter.acquire(1).await?;
            println!("task {task} starts at {:?}", grant.released_at());
            Ok(grant.released_at())
        });
    }
    let mut starts =
        tasks.join_all().await.into_iter().collect::<Result<Vec<_>, AcquireError>>()?;

    starts.sort_unstable();
    let mut pairs = starts.iter().zip(starts.iter().skip(10));
    assert!(pairs.all(|(first, eleventh)| eleventh.saturating_sub(*first) >= window));
    Ok(())
}
