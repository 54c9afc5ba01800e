//! Assignments: permits of rules that clients give out themselves, and report afterwards.
//!
//! # Contract
//!
//! * **A bucket is a descriptor** of the stream's domain, whose entries may be in any order. The
//!   rule that it comes under is divided among all streams with that bucket ([`pool`]). Of several
//!   rules the one with the lowest rate is.
//! * **Sum.** The live assignments of all streams are at most what the rule says: as many tokens in
//!   its period, and buckets as large as what it grants at once, or of one token for each stream.
//! * **An assignment lives** for its time from when a client received it. It counts here for
//!   [`DELIVERY_NS`] longer, counted from when it was written.
//! * **Reports are charged** to the rule: other callers of the rule see what was used.
//! * **Silence.** A bucket without a request for the time in [`QuotaTerms`] is abandoned.
//! * **Bounds.** [`MAX_BUCKETS`] of a stream and [`MAX_SUBSCRIPTIONS`] in all: a further bucket is
//!   abandoned at once.
//! * **Not assigned:** rules whose counters are in a store, which other nodes would assign too, and
//!   limits of concurrency.

mod numbers;
mod pool;
mod stream;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rategate::Clock;
use rategate_protocol::rlqs::{Action, Bucket};

use self::pool::Pool;
use self::stream::Stream;
use super::Engine;
use super::error::EngineError;
use super::key::Key;

/// The maximum number of buckets of one stream.
pub const MAX_BUCKETS: usize = 4096;

/// The maximum number of buckets of all streams together.
pub const MAX_SUBSCRIPTIONS: usize = 262_144;

/// The time for which a reply may be on its way, in nanoseconds: an assignment counts for so much
/// longer.
pub const DELIVERY_NS: u64 = 5_000_000_000;

/// The times of assignments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaTerms {
    /// The time for which an assignment lives.
    pub ttl: Duration,
    /// The time without requests after which a bucket is abandoned.
    pub silence: Duration,
}

impl Default for QuotaTerms {
    /// Returns assignments of 10 s that are abandoned after a minute.
    fn default() -> Self {
        Self { ttl: Duration::from_secs(10), silence: Duration::from_secs(60) }
    }
}

/// The assignments of a stream.
pub trait Quotas: Send {
    /// Counts a report of a bucket, which subscribes to it first. Returns `false` if there is no
    /// capacity for it, or an error that ends the stream.
    ///
    /// # Errors
    ///
    /// [`EngineError::NotLoaded`] and [`EngineError::NotAssigned`].
    fn report(
        &mut self,
        bucket: &Bucket<'_>,
        allowed: u64,
        denied: u64,
    ) -> Result<bool, EngineError>;

    /// Passes all actions that are due to `send`.
    ///
    /// # Errors
    ///
    /// As [`Self::report`].
    fn actions(&mut self, send: &mut dyn FnMut(&Bucket<'_>, Action)) -> Result<(), EngineError>;

    /// Returns the time until an action may be due, even if no report comes.
    fn wait(&self) -> Duration;
}

/// The pools of all counters that are assigned.
#[derive(Debug, Default)]
pub(super) struct Pools {
    by_key: Mutex<HashMap<PoolKey, Pool>>,
    subscriptions: AtomicUsize,
    next_member: AtomicU64,
}

/// The name of a rule, and the key of one of its counters.
type PoolKey = (Arc<str>, Key);

impl<C: Clock + Clone + 'static> Engine<C> {
    /// Begins the assignments of a stream for a domain.
    #[must_use]
    pub fn quotas(&self, domain: &str, terms: QuotaTerms) -> Box<dyn Quotas> {
        Box::new(Stream::new(self.clone(), domain, terms))
    }
}

impl Pools {
    fn lock(&self) -> MutexGuard<'_, HashMap<PoolKey, Pool>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the pools that no stream has or may have anything of.
    pub(super) fn tick(&self, now_ns: u64) {
        self.lock().retain(|_, pool| !pool.is_empty(now_ns));
    }

    fn subscribe(&self) -> bool {
        let more = |count: usize| (count < MAX_SUBSCRIPTIONS).then(|| count.saturating_add(1));
        self.subscriptions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn unsubscribe(&self, buckets: usize) {
        self.subscriptions.fetch_sub(buckets, Ordering::Relaxed);
    }
}
