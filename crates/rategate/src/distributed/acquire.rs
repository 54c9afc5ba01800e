//! Waiting for permits that nobody can promise: asking again when it may be granted.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;

use super::Distributed;
use super::decision::Decision;
use crate::clock::Clock;
use crate::store::{Fault, Store};
use crate::wait::Alarm;

impl<S: Store, C: Clock + Clone + 'static> Distributed<S, C> {
    /// Waits for permits of a key, at most `max_wait_ns`, and asks for them again whenever a denial says that it may
    /// help. A denial at the end says when to come again, as ever; one that says so at the beginning is not
    /// waited for.
    ///
    /// Nobody stands in line: whoever asks first after permits have become free has them, on whichever machine he is.
    /// So that those who were denied together do not ask together, each comes later by a part of the wait, a sixteenth
    /// at most.
    ///
    /// # Errors
    ///
    /// [`Fault`], as of [`try_acquire`](Self::try_acquire).
    pub async fn acquire_within(
        &self,
        key: &[u8],
        permits: u64,
        max_wait_ns: u64,
    ) -> Result<Decision, Fault> {
        let clock = &self.inner().clock;
        let until_ns = clock.now_ns().saturating_add(max_wait_ns);
        loop {
            let decision = self.try_acquire(key, permits).await?;
            let Some(again_ns) = self.again_ns(&decision, until_ns) else { return Ok(decision) };
            while clock.now_ns() < again_ns {
                clock.sleep_until(again_ns).await;
            }
        }
    }

    /// Waits as [`acquire_within`](Self::acquire_within) does.
    ///
    /// Blocks the thread: in a task, use [`acquire_within`](Self::acquire_within). In a debug build with the feature
    /// `tokio` it panics on a thread that drives tasks.
    ///
    /// # Errors
    ///
    /// As of [`acquire_within`](Self::acquire_within).
    pub fn acquire_within_blocking(
        &self,
        key: &[u8],
        permits: u64,
        max_wait_ns: u64,
    ) -> Result<Decision, Fault> {
        let clock = &self.inner().clock;
        let until_ns = clock.now_ns().saturating_add(max_wait_ns);
        loop {
            let decision = self.try_acquire(key, permits).wait()?;
            let Some(again_ns) = self.again_ns(&decision, until_ns) else { return Ok(decision) };
            let _ = clock.wait(again_ns, &Alarm::new());
        }
    }

    /// When to ask again after a denial, if that is soon enough.
    fn again_ns(&self, decision: &Decision, until_ns: u64) -> Option<u64> {
        let Decision::Denied(denial) = decision else { return None };
        let inner = self.inner();
        // Where nobody can say when, a question's time from now.
        let wait_ns = denial.retry_after_ns.map_or(inner.budget_ns.max(1), NonZeroU64::get);
        let exact_ns = inner.clock.now_ns().saturating_add(wait_ns);
        let spread_ns = RandomState::new().hash_one(exact_ns).checked_rem((wait_ns >> 4).max(1));
        let again_ns = exact_ns.saturating_add(spread_ns.unwrap_or(0)).min(until_ns);
        (exact_ns <= until_ns).then_some(again_ns)
    }
}
