//! Parallel iterators whose actions pass a limiter: the only file that names rayon.

use rayon::iter::ParallelIterator;

use crate::clock::Clock;
use crate::decision::Grant;
use crate::error::AcquireError;
use crate::limiter::Limiter;

/// Rate limits for rayon's parallel iterators.
///
/// Rayon splits its input and pulls items in whatever order and number suit its threads, so to
/// limit the pulling would limit nothing. Each *action* takes its permit, on the thread that is
/// about to run it.
///
/// ```
/// use std::time::Duration;
///
/// use rategate::{Limiter, ManualClock, RateLimitedParallelExt, SlidingLog};
/// use rayon::prelude::*;
///
/// let policy = SlidingLog::new(5, Duration::from_secs(1));
/// let limiter = Limiter::with_clock(policy, ManualClock::new());
/// let actions =
///     (0..50).into_par_iter().rate_limited_map(&limiter, |_item, grant| grant.released_at());
/// let starts: Vec<Duration> = actions.collect::<Result<_, _>>()?;
/// assert!(starts.iter().max() >= Some(&Duration::from_secs(9)), "fifty at five a second");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A thread that waits for its permit is not available to rayon meanwhile: with a slow limit run
/// the work in a pool of its own.
pub trait RateLimitedParallelExt: ParallelIterator {
    /// Runs `action` on each item once it has its permit, and passes the grant to it.
    ///
    /// An item without a permit comes out as the error instead; collecting into a `Result` ends
    /// the others at that.
    fn rate_limited_map<C, R, F>(
        self,
        limiter: &Limiter<C>,
        action: F,
    ) -> impl ParallelIterator<Item = Result<R, AcquireError>>
    where
        C: Clock,
        R: Send,
        F: Fn(Self::Item, Grant) -> R + Sync + Send,
    {
        let limiter = limiter.clone();
        self.map(move |item| limiter.acquire(1).map(|grant| action(item, grant)))
    }
}

impl<I: ParallelIterator> RateLimitedParallelExt for I {}
