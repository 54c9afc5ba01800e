//! The statistics of a table of keys: its counts, and the keys that stand out.

use std::hash::Hash;
use std::mem::replace;
use std::sync::PoisonError;
use std::time::Duration;

use super::counts::Counts;
#[cfg(feature = "tracing")]
use super::events::Warnings;
use super::lanes::{Lanes, OwnLane};
use super::limit::LimitStats;
use super::outcome::Outcome;
use super::report::{Report, Tops};
use super::sample::Sample;
#[cfg(doc)]
use super::top::Top;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

/// The most threads that have sketches of their own; as many sketches again are shared.
const MAX_LANES: usize = 8;

/// The statistics of a table of keys: counts, and the keys that stand out.
///
/// It ranks the keys that are denied most often, use most permits, and come near their limit
/// most often.
///
/// It serves tables outside this crate too. Its ids are those by which the table distinguishes
/// keys, such as hashes; the name of a key is requested only once the key is in a ranking.
///
/// ```
/// use std::collections::HashMap;
/// use rategate::stats::{Detail, KeyStats, Outcome};
/// use rategate::{Gcra, Limiter};
///
/// let policy = Gcra::per_second(10).burst(10);
/// let mut table: HashMap<&str, Limiter> = HashMap::new();
/// let stats = KeyStats::new("per client", Detail::exact());
///
/// for client in ["ann", "bob", "bob", "bob"] {
///     let limiter = table.entry(client).or_insert_with(|| Limiter::new(policy));
///     let decision = limiter.try_acquire(6)?;
///     let outcome = Outcome::of(&decision, || limiter.remaining().unwrap_or(0), 10);
///     stats.observe_named(client, 6, outcome, || client);
/// }
/// let report = stats.report();
/// assert_eq!((report.denied.ranked[0].key, report.denied.ranked[0].count), ("bob", 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cost
///
/// Each call adds to a counter. One call in `n`, 32 by default of [`Detail`], also goes to a
/// sketch, under a lock that no thread waits for. Neither cost depends on the number of keys:
/// together they are some nanoseconds for each call, and for each grant a division: whether it is
/// near asks for what is left. Memory is bounded as well: 3
/// [sketches](Top) for each of two lanes for each thread that can run at a time, at most 16
/// lanes.
///
/// # Accuracy
///
/// The counts are exact. The sketches keep what [`Top`] keeps of the sampled calls: one in `n`,
/// which then counts as `n`. The count of a key with `c` calls is right to within about
/// `sqrt(c n)` calls, so with 32 a key with 10 000 calls to within some 6 %. Where calls are
/// few, sample each. A call that finds another thread at the sketch is left out, and counted in
/// [`Report::skipped_calls`].
#[derive(Debug)]
pub struct KeyStats<Id> {
    limit: LimitStats,
    sample: Sample,
    max_keys: usize,
    top_keys_lanes: Lanes<TopKeysLane<Id>>,
    #[cfg(feature = "tracing")]
    warnings: Warnings,
}

/// The detail of a table's statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail {
    /// The number of keys kept for each ranking, from 1 to [`MAX_RANKED`](super::MAX_RANKED).
    pub max_keys: usize,
    /// The sampling interval: one call in this many, rounded up to a power of two, from 1 to
    /// 65 536.
    pub every: u32,
}

impl Default for Detail {
    fn default() -> Self {
        Self { max_keys: 64, every: 32 }
    }
}

impl Detail {
    /// Creates a detail that samples each call, for rare calls and for tests.
    ///
    /// A call costs a few times as much.
    #[must_use]
    pub fn exact() -> Self {
        Self { every: 1, ..Self::default() }
    }
}

/// The sketches of one lane, behind a lock.
#[derive(Debug)]
struct TopKeysLane<Id> {
    tops: Mutex<Tops<Id>>,
    skipped: AtomicU64,
}

impl<Id: Copy + Eq + Hash> KeyStats<Id> {
    /// Creates statistics under a name of at most [`MAX_NAME_BYTES`](super::MAX_NAME_BYTES).
    #[must_use]
    pub fn new(name: &str, detail: Detail) -> Self {
        let max_keys = detail.max_keys;
        let top_keys_lane =
            || TopKeysLane { tops: Mutex::new(Tops::new(max_keys)), skipped: AtomicU64::new(0) };
        Self {
            limit: LimitStats::new(name, 0),
            sample: Sample::one_in(detail.every),
            max_keys,
            top_keys_lanes: Lanes::new(MAX_LANES, top_keys_lane),
            #[cfg(feature = "tracing")]
            warnings: Warnings::new(),
        }
    }

    /// Returns the name of the limit.
    #[must_use]
    pub fn name(&self) -> &str {
        self.limit.name()
    }

    /// Returns the counts of all keys together.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.limit.counts()
    }

    /// Records the outcome of a call.
    #[inline]
    pub fn observe(&self, id: Id, permits: u64, outcome: Outcome) {
        let number = self.limit.observe(permits, outcome);
        if self.sample.includes(number) {
            self.record(id, permits, outcome);
        }
    }

    /// Records the outcome of a call of a key with a name.
    ///
    /// The first [`MAX_NAME_BYTES`](super::MAX_NAME_BYTES) of the name are kept. `name` is called
    /// only for a key that has come up before and has no name yet, while no lock is held.
    #[inline]
    pub fn observe_named<N: AsRef<str>>(
        &self,
        id: Id,
        permits: u64,
        outcome: Outcome,
        name: impl FnOnce() -> N,
    ) {
        let number = self.limit.observe(permits, outcome);
        if self.sample.includes(number) && self.record(id, permits, outcome) {
            self.set_name(id, name().as_ref());
        }
    }

    /// Records a new key that found the table full, at `now` by the table's clock.
    #[cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "it is for the warning"))]
    pub fn overflowed(&self, now: Duration) {
        self.limit.record_overflow();
        #[cfg(feature = "tracing")]
        self.warnings.overflow(self.name(), now, || self.counts().overflows);
    }

    /// Returns the counts, and the keys that stand out since the statistics began.
    ///
    /// After a [`take`](Self::take), the rankings are those since then. A report copies each
    /// lane's sketches under its lock, some microseconds for each.
    #[must_use]
    pub fn report(&self) -> Report<Id> {
        self.gather(|tops| tops.clone())
    }

    /// Returns the [report](Self::report), and resets the rankings. The counts continue.
    ///
    /// Called at intervals, it ranks the keys that stand out at present.
    #[must_use]
    pub fn take(&self) -> Report<Id> {
        self.gather(|tops| replace(tops, Tops::new(self.max_keys)))
    }

    /// Sends the counts, and the number of keys, to the recorder of the `metrics` facade.
    ///
    /// See [Metrics](super#metrics).
    #[cfg(feature = "metrics")]
    pub fn publish(&self, keys: usize) {
        super::publish::table(self.name(), &self.counts(), keys);
    }

    /// Adds a sampled call to the sketches. Returns `true` if one of them lacks the key's name.
    #[inline(never)]
    fn record(&self, id: Id, permits: u64, outcome: Outcome) -> bool {
        let Some(OwnLane { lane: top_keys_lane, .. }) = self.top_keys_lanes.own() else {
            return false;
        };
        let Some(mut tops) = top_keys_lane.try_lock() else {
            top_keys_lane.skipped.fetch_add(self.sample.every(), Ordering::Relaxed);
            return false;
        };
        tops.add(id, permits, outcome, self.sample.every())
    }

    #[cold]
    fn set_name(&self, id: Id, name: &str) {
        if let Some(mut tops) = self.top_keys_lanes.own().and_then(|own| own.lane.try_lock()) {
            tops.set_name(id, name);
        }
    }

    fn gather(&self, read: impl Fn(&mut Tops<Id>) -> Tops<Id>) -> Report<Id> {
        let (mut sum, mut skipped_calls) = (Tops::new(self.max_keys), 0_u64);
        for top_keys_lane in self.top_keys_lanes.all() {
            let tops = read(&mut top_keys_lane.tops.lock().unwrap_or_else(PoisonError::into_inner));
            sum.merge(&tops);
            skipped_calls =
                skipped_calls.saturating_add(top_keys_lane.skipped.load(Ordering::Relaxed));
        }
        let every = self.sample.every();
        Report { every, skipped_calls, ..Report::new(self.name(), self.counts(), &sum) }
    }
}

impl<Id> TopKeysLane<Id> {
    /// Locks the sketches, unless another thread has. A panic in a key's `Eq` may have cost them a
    /// key.
    fn try_lock(&self) -> Option<MutexGuard<'_, Tops<Id>>> {
        use std::sync::TryLockError::{Poisoned, WouldBlock};
        match self.tops.try_lock() {
            Ok(tops) => Some(tops),
            Err(Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(WouldBlock) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No call waits for a report, and the report counts the calls left out for it.
    #[test]
    fn a_thread_skips_a_locked_ranking() {
        let stats = KeyStats::new("table", Detail { every: 1, ..Detail::default() });
        let denied = Outcome::Denied { retry_after: None };
        stats.observe(1_u64, 1, denied);
        let guards: Vec<_> = stats.top_keys_lanes.all().filter_map(TopKeysLane::try_lock).collect();
        stats.observe_named(1, 1, denied, || -> &str { unreachable!("no ranking needs the name") });
        stats.observe(2, 1, denied);
        drop(guards);
        let report = stats.report();
        assert_eq!((report.counts.denied_calls, report.denied.total), (3, 1));
        assert_eq!(report.skipped_calls, 2);
    }
}
