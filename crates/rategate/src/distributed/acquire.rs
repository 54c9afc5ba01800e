//! Waits for permits from a store, by retries at the times that its denials state.

use std::time::Duration;

use super::Distributed;
use super::inner::decision::Decision;
use crate::clock::Clock;
use crate::clock::wait::CancelToken;
use crate::random::up_to;
use crate::store::{Store, StoreError};
use rategate_core::span::whole_ns;

impl<S: Store, C: Clock + Clone + 'static> Distributed<S, C> {
    /// Waits for permits of a key for at most `max_wait`, and retries when a denial suggests
    /// it.
    ///
    /// A denial at the end still states its retry time. One whose retry time lies beyond the wait
    /// is returned at once.
    ///
    /// There is no wait queue: the first caller to retry after permits have become free gets them,
    /// on whichever machine it is. To spread callers that were denied together, each retries later
    /// by a random part of the wait, at most a sixteenth.
    ///
    /// # Errors
    ///
    /// [`StoreError`], as for [`try_acquire`](Self::try_acquire).
    pub async fn acquire_within(
        &self,
        key: &[u8],
        permits: u64,
        max_wait: Duration,
    ) -> Result<Decision, StoreError> {
        let clock = &self.inner().clock;
        let until_ns = clock.now_ns().saturating_add(whole_ns(max_wait));
        loop {
            let decision = self.try_acquire(key, permits).await?;
            let Some(again_ns) = self.again_ns(&decision, until_ns) else { return Ok(decision) };
            while clock.now_ns() < again_ns {
                clock.sleep_until(again_ns).await;
            }
        }
    }

    /// Waits for permits as [`acquire_within`](Self::acquire_within) does, and blocks the thread.
    ///
    /// In a task, use [`acquire_within`](Self::acquire_within). In a debug build with the feature
    /// `tokio` it panics on a thread that drives tasks.
    ///
    /// # Errors
    ///
    /// As for [`acquire_within`](Self::acquire_within).
    pub fn acquire_within_blocking(
        &self,
        key: &[u8],
        permits: u64,
        max_wait: Duration,
    ) -> Result<Decision, StoreError> {
        let clock = &self.inner().clock;
        let until_ns = clock.now_ns().saturating_add(whole_ns(max_wait));
        loop {
            let decision = self.try_acquire(key, permits).wait()?;
            let Some(again_ns) = self.again_ns(&decision, until_ns) else { return Ok(decision) };
            let _ = clock.wait(again_ns, &CancelToken::new());
        }
    }

    /// Returns the time of the next try after a denial, if that is soon enough.
    fn again_ns(&self, decision: &Decision, until_ns: u64) -> Option<u64> {
        let Decision::Denied(denial) = decision else { return None };
        let inner = self.inner();
        // Without a known time, one request's budget from now.
        let wait_ns = denial.retry_after.map_or(inner.budget_ns.max(1), whole_ns);
        let exact_ns = inner.clock.now_ns().saturating_add(wait_ns);
        let again_ns = exact_ns.saturating_add(up_to(wait_ns >> 4)).min(until_ns);
        (exact_ns <= until_ns).then_some(again_ns)
    }
}
