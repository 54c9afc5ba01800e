//! The statistics of a table of keys: the counts of its limit, and which keys stand out.

use std::hash::Hash;
use std::mem::replace;
use std::sync::PoisonError;

use super::counts::Counts;
#[cfg(feature = "tracing")]
use super::events::Warnings;
use super::lanes::{Lanes, Own};
use super::limit::LimitStats;
use super::outcome::Outcome;
use super::report::Report;
use super::sample::Sample;
use super::top::Top;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

/// The most threads that have sketches of their own; as many sketches again are shared.
const MOST_LANES: usize = 8;

/// What a table of keys has done, and which keys stand out: which are denied most often, which use most
/// permits, and which come near their limit most often.
///
/// For a table of one's own. Its ids are what it tells keys apart by, such as a hash; what a key is
/// called is asked only where it is about to be reported.
///
/// ```
/// use std::collections::HashMap;
/// use rategate::stats::{Detail, KeyStats, Outcome};
/// use rategate::{Gcra, Ledger, Limiter, LimiterError};
///
/// let policy = Gcra::new("10/s".parse()?, 10)?;
/// let mut table: HashMap<&str, Limiter<Ledger<Gcra>>> = HashMap::new();
/// let stats = KeyStats::new("per client", Detail::exact());
///
/// for client in ["ann", "bob", "bob", "bob"] {
///     let limiter = table.entry(client).or_insert_with(|| Limiter::new(policy));
///     let decision = limiter.try_acquire(6)?;
///     stats.observe_named(client, 6, Outcome::of(&decision, 10), || client);
/// }
/// let report = stats.report();
/// assert_eq!((report.denied.ranked[0].key, report.denied.ranked[0].count), ("bob", 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cost
///
/// Each call adds to a counter. One in so many, 32 if [`Detail`] does not say otherwise, also goes to a
/// sketch, under a lock that nobody waits for. Neither depends on how many keys there are: together some
/// nanoseconds for each call. Memory is bounded as well: 3 [sketches](Top) for each of two lanes for each
/// thread that can run at a time, at most 16 lanes.
///
/// # What is lost
///
/// The counts are exact. The sketches keep what [`Top`] keeps, of the calls that were looked at: one in
/// `n`, which then stands for `n`. The count of a key with `c` calls is right to within about
/// `sqrt(c n)` calls, so with 32 a key with 10 000 calls to within some 6 %; where calls are few, look at
/// each. A call that finds another thread at the sketch is left out, and counted in
/// [`Report::skipped_calls`].
#[derive(Debug)]
pub struct KeyStats<Id> {
    limit: LimitStats,
    sample: Sample,
    most: usize,
    boards: Lanes<Board<Id>>,
    #[cfg(feature = "tracing")]
    warnings: Warnings,
}

/// How closely a table is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detail {
    /// How many keys are kept for each ranking, from 1 to [`MOST_RANKED`](super::MOST_RANKED).
    pub most_keys: usize,
    /// One call in so many is looked at, rounded up to a power of two, from 1 to 65 536.
    pub every: u32,
}

impl Default for Detail {
    fn default() -> Self {
        Self { most_keys: 64, every: 32 }
    }
}

impl Detail {
    /// Each call is looked at: where calls are few, and for tests. A call costs a few times as much.
    #[must_use]
    pub fn exact() -> Self {
        Self { every: 1, ..Self::default() }
    }
}

/// What one lane has seen of the keys.
#[derive(Debug)]
struct Board<Id> {
    tops: Mutex<Tops<Id>>,
    skipped: AtomicU64,
}

/// The sketches of one lane, or of all together.
#[derive(Clone, Debug)]
pub(super) struct Tops<Id> {
    /// By calls.
    pub(super) denied: Top<Id>,
    /// By permits.
    pub(super) used: Top<Id>,
    /// By calls.
    pub(super) near: Top<Id>,
}

impl<Id: Copy + Eq + Hash> KeyStats<Id> {
    /// Fresh statistics under a name of at most [`MOST_NAME_BYTES`](super::MOST_NAME_BYTES).
    #[must_use]
    pub fn new(name: &str, detail: Detail) -> Self {
        let most = detail.most_keys;
        let board = || Board { tops: Mutex::new(Tops::new(most)), skipped: AtomicU64::new(0) };
        Self {
            limit: LimitStats::new(name, 0),
            sample: Sample::one_in(detail.every),
            most,
            boards: Lanes::new(MOST_LANES, board),
            #[cfg(feature = "tracing")]
            warnings: Warnings::new(),
        }
    }

    /// The name of the limit.
    #[must_use]
    pub fn name(&self) -> &str {
        self.limit.name()
    }

    /// The counts of all keys together.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.limit.counts()
    }

    /// Takes note of what became of a call.
    #[inline]
    pub fn observe(&self, id: Id, permits: u64, outcome: Outcome) {
        let number = self.limit.observe(permits, outcome);
        if self.sample.holds(number) {
            self.look(id, permits, outcome);
        }
    }

    /// The same for a key with a name, of which the first [`MOST_NAME_BYTES`](super::MOST_NAME_BYTES)
    /// are kept. It is asked for once, when the key has come up before; no lock is held then.
    #[inline]
    pub fn observe_named<N: AsRef<str>>(
        &self,
        id: Id,
        permits: u64,
        outcome: Outcome,
        name: impl FnOnce() -> N,
    ) {
        let number = self.limit.observe(permits, outcome);
        if self.sample.holds(number) && self.look(id, permits, outcome) {
            self.set_name(id, name().as_ref());
        }
    }

    /// Takes note of a newcomer that found the table full at `now_ns` by the table's clock.
    #[cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "it is for the warning"))]
    pub fn overflowed(&self, now_ns: u64) {
        self.limit.saw_overflow();
        #[cfg(feature = "tracing")]
        self.warnings.overflow(self.name(), now_ns, || self.counts().overflows);
    }

    /// The counts, and the keys that stand out since the statistics began, or since they were last
    /// [taken](Self::take). Copies each lane's sketches under its lock, some microseconds for each.
    #[must_use]
    pub fn report(&self) -> Report<Id> {
        self.gather(|tops| tops.clone())
    }

    /// The same, and begins the rankings anew: for who stands out now, called once in a while. The counts
    /// go on.
    #[must_use]
    pub fn take(&self) -> Report<Id> {
        self.gather(|tops| replace(tops, Tops::new(self.most)))
    }

    /// Hands the counts, and how many keys the table has, to the recorder of the `metrics` facade: see
    /// [Metrics](super#metrics).
    #[cfg(feature = "metrics")]
    pub fn publish(&self, keys: usize) {
        super::publish::table(self.name(), &self.counts(), keys);
    }

    /// Puts a call into the sketches. Returns whether one of them wants to know the key's name.
    #[inline(never)]
    fn look(&self, id: Id, permits: u64, outcome: Outcome) -> bool {
        let Some(Own { lane: board, .. }) = self.boards.own() else { return false };
        let Some(mut tops) = board.try_lock() else {
            board.skipped.fetch_add(self.sample.every(), Ordering::Relaxed);
            return false;
        };
        tops.add(id, permits, outcome, self.sample.every())
    }

    #[cold]
    fn set_name(&self, id: Id, name: &str) {
        if let Some(mut tops) = self.boards.own().and_then(|own| own.lane.try_lock()) {
            tops.set_name(id, name);
        }
    }

    fn gather(&self, read: impl Fn(&mut Tops<Id>) -> Tops<Id>) -> Report<Id> {
        let (mut sum, mut skipped_calls) = (Tops::new(self.most), 0_u64);
        for board in self.boards.all() {
            let tops = read(&mut board.tops.lock().unwrap_or_else(PoisonError::into_inner));
            sum.merge(&tops);
            skipped_calls = skipped_calls.saturating_add(board.skipped.load(Ordering::Relaxed));
        }
        let every = self.sample.every();
        Report { every, skipped_calls, ..Report::new(self.name(), self.counts(), &sum) }
    }
}

impl<Id> Board<Id> {
    /// The sketches, unless somebody else has them. A panic in a key's `Eq` may have cost them a key.
    fn try_lock(&self) -> Option<MutexGuard<'_, Tops<Id>>> {
        use std::sync::TryLockError::{Poisoned, WouldBlock};
        match self.tops.try_lock() {
            Ok(tops) => Some(tops),
            Err(Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(WouldBlock) => None,
        }
    }
}

impl<Id: Copy + Eq + Hash> Tops<Id> {
    fn new(most: usize) -> Self {
        Self { denied: Top::new(most), used: Top::new(most), near: Top::new(most) }
    }

    /// Adds a call that stands for so many. Returns whether the key is known and without a name.
    fn add(&mut self, id: Id, permits: u64, outcome: Outcome, calls: u64) -> bool {
        match outcome {
            Outcome::Denied { .. } => self.denied.count(id, calls),
            Outcome::Granted { is_near } => {
                let used = self.used.count(id, permits.saturating_mul(calls));
                let near = is_near && self.near.count(id, calls);
                used || near
            }
        }
    }

    fn set_name(&mut self, id: Id, name: &str) {
        for top in [&mut self.denied, &mut self.used, &mut self.near] {
            top.set_name(&id, name);
        }
    }

    fn merge(&mut self, other: &Self) {
        self.denied.merge(&other.denied);
        self.used.merge(&other.used);
        self.near.merge(&other.near);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody waits for a report, and what is left out for it is said.
    #[test]
    fn who_finds_a_ranking_taken_goes_on() {
        let stats = KeyStats::new("table", Detail { every: 1, ..Detail::default() });
        let denied = Outcome::Denied { retry_after_ns: None };
        stats.observe(1_u64, 1, denied);
        let held: Vec<_> = stats.boards.all().filter_map(Board::try_lock).collect();
        stats.observe_named(1, 1, denied, || -> &str { unreachable!("no ranking asks for it") });
        stats.observe(2, 1, denied);
        drop(held);
        let report = stats.report();
        assert_eq!((report.counts.denied_calls, report.denied.total), (3, 1));
        assert_eq!(report.skipped_calls, 2);
    }
}
