//! Inline limits, which come with a request: tables of keys for a bounded number of distinct
//! limits.
//!
//! A key is counted under the limit that came with it, separately from the same key under other
//! limits: the table's key begins with the limit. Each limit in use is a tier of a table. A tier
//! can be reassigned if all of its keys have fully recovered and its limit was not used for a
//! second; no caller can observe that. It can also be reassigned if its limit was not used for a
//! day, even if its keys have not recovered: tiers are few, and a limit that recovers over
//! decades costs a client nothing.

mod holds;
mod tiers;

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use rategate::error::KeyedError;
use rategate::{AnyPolicy, Clock, FixedWindow, Keyed, Status};
use rategate_core::span::whole_ns;

use super::answer::{ItemResult, Verdict};
use super::counted::{self, Counted, OwnLimit};
use super::error::EngineError;
use super::key::Key;
use super::request::{Inline, Verb};
use crate::rule::{CountedWindow, DisplayLimit, Unit};

/// The number of distinct limits that fit in a table: its tiers.
const PER_TABLE: usize = rategate::keyed::MAX_TIERS;

/// An inline limit.
pub(super) trait InlineLimit: Copy + Debug + Eq + Hash + Send + Sync + 'static {
    fn policy(self) -> Result<AnyPolicy, EngineError>;

    /// Returns the maximum number of permits that can be taken at once.
    fn capacity(self) -> u64;

    /// Returns the longest time after which a key has fully recovered, in nanoseconds.
    fn memory_ns(self) -> u64;

    /// Returns three words that identify the limit among those of its kind.
    fn words(self) -> [u64; 3];

    /// Returns the limit that those words identify.
    fn of_words(words: [u64; 3]) -> Option<Self>;

    fn display_limit(self) -> Option<DisplayLimit>;
}

/// All inline limits of a kind.
#[derive(Debug)]
pub(super) struct InlineLimits<N: InlineLimit, C: Clock> {
    clock: C,
    /// The capacity of each table, in keys.
    keys_per_table: usize,
    max_tables: usize,
    known: ArcSwap<PublishedLimits<N, C>>,
    /// The limits that are no longer published but still own their tiers. Locked while a limit is
    /// added.
    retired: Mutex<Vec<Arc<Numbers<N, C>>>>,
    /// The instant before which no tier can become free.
    full_until_ns: AtomicU64,
}

#[derive(Debug)]
struct PublishedLimits<N: InlineLimit, C: Clock> {
    by_limit: HashMap<N, Arc<Numbers<N, C>>, foldhash::fast::RandomState>,
    tables: Vec<Table<C>>,
}

pub(super) type Table<C> = Keyed<[u8], C>;

/// An inline limit in use, with its tier.
#[derive(Debug)]
pub(super) struct Numbers<N: InlineLimit, C: Clock> {
    limit: N,
    table: Table<C>,
    at: TierSlot,
    /// The start of its keys in the table: the tier and the limit's words.
    prefix: [u8; KEY_PREFIX_BYTES],
    /// The last use, up to [`USE_RESOLUTION_NS`] too early.
    named_ns: AtomicU64,
    /// The instant at which all keys have fully recovered, up to [`USE_RESOLUTION_NS`] too late.
    fresh_ns: AtomicU64,
}

/// A tier of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct TierSlot {
    table: usize,
    tier: u8,
}

/// The length of the prefix of a table's keys: the tier and the limit's numbers.
const KEY_PREFIX_BYTES: usize = 1 + 3 * size_of::<u64>();

/// The length up to which a table's keys are on the stack.
const SHORT_KEY_BYTES: usize = 96;

/// The tiers of a table, with the words of their limits.
pub(super) type Tiers = Vec<(u8, [u64; 3])>;

/// The resolution of recorded uses, so that a limit in constant use is not written to constantly.
const USE_RESOLUTION_NS: u64 = 1_000_000_000;

/// The minimum time that an unused limit keeps its tier where another needs it.
const MIN_IDLE_NS: u64 = 1_000_000_000;

/// The maximum time that an unused limit keeps its tier where another needs it.
const MAX_IDLE_NS: u64 = 86_400_000_000_000;

impl<N: InlineLimit, C: Clock + Clone> InlineLimits<N, C> {
    pub(super) fn new(clock: C, keys_per_table: usize, max_limits: usize) -> Self {
        let known = PublishedLimits { by_limit: HashMap::default(), tables: Vec::new() };
        Self {
            clock,
            keys_per_table,
            max_tables: max_limits.div_ceil(PER_TABLE).max(1),
            known: ArcSwap::from_pointee(known),
            retired: Mutex::default(),
            full_until_ns: AtomicU64::new(0),
        }
    }

    /// Returns the maximum number of distinct limits.
    pub(super) const fn max_limits(&self) -> usize {
        self.max_tables.saturating_mul(PER_TABLE)
    }

    /// Returns the number of keys in all tables.
    pub(super) fn keys(&self) -> usize {
        self.known.load().tables.iter().map(Keyed::len).sum()
    }

    /// Decides about a key. Also returns an instant that is not before the decision.
    pub(super) fn decide(
        &self,
        limit: N,
        key: &[u8],
        verb: Verb,
        permits: u64,
    ) -> Result<(ItemResult, u64), EngineError> {
        let known = self.known.load();
        if let Some(numbers) = known.by_limit.get(&limit) {
            return numbers
                .stored(key, |stored| numbers.decide(&self.clock, stored, verb, permits));
        }
        // The guard must be dropped first: `register` waits for tiers that no guard references.
        drop(known);
        // A peek leaves no trace.
        if (!verb.counts() || permits == 0) && !self.is_retained(limit) {
            return Ok((fresh(limit, verb, permits)?, self.clock.now_ns()));
        }
        let numbers = self.register(limit)?;
        numbers.decide(&self.clock, &numbers.key(key), verb, permits)
    }

    /// Returns `true` if a key may have been counted under a limit.
    pub(super) fn knows(&self, limit: N) -> bool {
        self.found(limit).is_some() || self.is_retained(limit)
    }

    /// Returns `true` if an unpublished limit still has a tier: it is retired, or was just
    /// published again.
    fn is_retained(&self, limit: N) -> bool {
        let retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.iter().any(|numbers| numbers.limit == limit) || self.found(limit).is_some()
    }

    /// Returns the limit, if it is in use.
    pub(super) fn found(&self, limit: N) -> Option<Arc<Numbers<N, C>>> {
        self.known.load().by_limit.get(&limit).map(Arc::clone)
    }

    /// Returns the limit with its tier, and assigns a tier if it has none.
    pub(super) fn numbers(&self, limit: N) -> Result<Arc<Numbers<N, C>>, EngineError> {
        self.found(limit).map_or_else(|| self.register(limit), Ok)
    }
}

impl<N: InlineLimit, C: Clock + Clone> Numbers<N, C> {
    /// Assigns a tier of `table` to a limit that is last used at `named_ns`.
    fn new(limit: N, (table, at): (Table<C>, TierSlot), named_ns: u64, fresh_ns: u64) -> Self {
        let mut prefix = [0; KEY_PREFIX_BYTES];
        let words = limit.words().into_iter().flat_map(u64::to_le_bytes);
        for (to, byte) in prefix.iter_mut().zip(iter::once(at.tier).chain(words)) {
            *to = byte;
        }
        let (named_ns, fresh_ns) = (AtomicU64::new(named_ns), AtomicU64::new(fresh_ns));
        Self { limit, table, at, prefix, named_ns, fresh_ns }
    }

    /// Records a use, after which the key takes `reset_after_ns` from `now_ns` to recover. Called
    /// *after* the decision with a clock reading from then, while the caller still holds the
    /// limit: its thread may have been stopped for any time before.
    #[inline]
    fn note(&self, now_ns: u64, reset_after_ns: u64) {
        if now_ns.saturating_sub(self.named_ns.load(Ordering::Relaxed)) > USE_RESOLUTION_NS {
            self.named_ns.fetch_max(now_ns, Ordering::Relaxed);
        }
        let fresh_ns = now_ns.saturating_add(reset_after_ns);
        if fresh_ns > self.fresh_ns.load(Ordering::Relaxed) {
            self.fresh_ns.fetch_max(fresh_ns.saturating_add(USE_RESOLUTION_NS), Ordering::Relaxed);
        }
    }

    /// Returns the key as stored in the table.
    pub(super) fn key(&self, key: &[u8]) -> Key {
        self.stored(key, Key::from_slice)
    }

    /// Uses the key as stored in the table, without moving it.
    #[inline]
    fn stored<R>(&self, key: &[u8], then: impl FnOnce(&[u8]) -> R) -> R {
        let mut short = [0; SHORT_KEY_BYTES];
        let (prefix, own) = short.split_at_mut(KEY_PREFIX_BYTES);
        let Some(own) = own.get_mut(..key.len()) else {
            return then(&[&self.prefix, key].concat());
        };
        prefix.copy_from_slice(&self.prefix);
        own.copy_from_slice(key);
        then(short.get(..KEY_PREFIX_BYTES.saturating_add(key.len())).unwrap_or_default())
    }

    /// Returns the caller's key from a key of the table.
    pub(super) fn own_key(key: &[u8]) -> &[u8] {
        key.get(KEY_PREFIX_BYTES..).unwrap_or_default()
    }

    pub(super) const fn limit(&self) -> N {
        self.limit
    }

    pub(super) fn attempt(&self, key: &[u8], permits: u64) -> rategate::keyed::Acquisition<'_> {
        self.table.attempt(key, permits)
    }

    /// Decides about a key as stored in the table. Also returns an instant that is not before the
    /// decision.
    pub(super) fn decide(
        &self,
        clock: &C,
        key: &[u8],
        verb: Verb,
        permits: u64,
    ) -> Result<(ItemResult, u64), EngineError> {
        self.result_of(clock, super::one_key::decide(&self.table, key, verb, permits))
    }

    /// Returns the result of a take that has succeeded.
    pub(super) fn granted(&self, clock: &C, key: &[u8]) -> Result<(ItemResult, u64), EngineError> {
        self.result_of(clock, self.table.status(key).map(|status| (Verdict::Granted, status)))
    }

    fn result_of(
        &self,
        clock: &C,
        decided: Result<(Verdict, Status), KeyedError>,
    ) -> Result<(ItemResult, u64), EngineError> {
        let (verdict, status) = decided.map_err(EngineError::of)?;
        let (now_ns, reset_after_ns) = (clock.now_ns(), status.fresh_in.map_or(u64::MAX, whole_ns));
        self.note(now_ns, reset_after_ns);
        let result = result(self.limit, verdict, status.remaining, reset_after_ns);
        Ok((ItemResult { debt: status.debt, ..result }, now_ns))
    }
}

/// Returns the answer of a limit that was never used.
pub(super) fn fresh<N: InlineLimit>(
    limit: N,
    verb: Verb,
    permits: u64,
) -> Result<ItemResult, EngineError> {
    limit.policy()?;
    let capacity = limit.capacity();
    let verdict = match verb {
        Verb::Refund => Verdict::Refunded(0),
        Verb::Reset => Verdict::Reset,
        // Only a charge of nothing leaves a limit unused.
        Verb::Charge => Verdict::Charged(0),
        Verb::Take | Verb::Peek if permits > capacity => Verdict::NEVER,
        Verb::Take | Verb::Peek => Verdict::Granted,
    };
    Ok(result(limit, verdict, capacity, 0))
}

fn result<N: InlineLimit>(
    limit: N,
    verdict: Verdict,
    remaining: u64,
    reset_after_ns: u64,
) -> ItemResult {
    ItemResult {
        rule: None,
        display_limit: limit.display_limit(),
        verdict,
        limit: limit.capacity(),
        remaining: Some(remaining),
        debt: 0,
        reset_after_ns,
        store_ns: None,
        detail: None,
    }
}

impl InlineLimit for Inline {
    fn policy(self) -> Result<AnyPolicy, EngineError> {
        Ok(self.bucket()?.into())
    }

    fn capacity(self) -> u64 {
        self.capacity
    }

    /// Returns the time in which an empty bucket refills, in nanoseconds.
    fn memory_ns(self) -> u64 {
        let whole = u128::from(self.capacity).saturating_mul(self.period_ns.into());
        let ns = whole.div_ceil(u128::from(self.count).max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    fn words(self) -> [u64; 3] {
        [self.capacity, self.count, self.period_ns]
    }

    fn of_words([capacity, count, period_ns]: [u64; 3]) -> Option<Self> {
        Some(Self { capacity, count, period_ns })
    }

    fn display_limit(self) -> Option<DisplayLimit> {
        None
    }
}

/// The windows of a unit, which count every hit. Limits of one unit that come with descriptors
/// share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct UnitWindow(pub(super) Unit);

impl UnitWindow {
    /// Returns the window that counts every hit of the unit.
    pub(super) fn counter(self) -> Result<FixedWindow, EngineError> {
        Ok(CountedWindow::long_counter(self.memory_ns())?)
    }
}

impl<C: Clock + Clone> Numbers<UnitWindow, C> {
    /// Counts under a key as stored in the table.
    pub(super) fn count(
        &self,
        own: &OwnLimit,
        now_ns: u64,
        key: &[u8],
        request: (Verb, u64),
    ) -> Result<Counted, EngineError> {
        let decided =
            counted::decide(&self.table, (own.window, &own.counter), key, request, now_ns);
        self.note(now_ns, own.window.left_ns(now_ns));
        decided.map_err(EngineError::of)
    }
}

impl InlineLimit for UnitWindow {
    fn policy(self) -> Result<AnyPolicy, EngineError> {
        Ok(self.counter()?.into())
    }

    fn capacity(self) -> u64 {
        u64::MAX
    }

    fn memory_ns(self) -> u64 {
        self.0.seconds().saturating_mul(1_000_000_000)
    }

    /// Returns 0 as the first word, which no limit in the old format of snapshots has.
    fn words(self) -> [u64; 3] {
        [0, self.0.seconds(), 0]
    }

    /// Counters in the old format, which was separate for each limit, are not read.
    fn of_words(words: [u64; 3]) -> Option<Self> {
        let [0, seconds, _] = words else { return None };
        Unit::ALL.into_iter().find(|unit| unit.seconds() == seconds).map(Self)
    }

    fn display_limit(self) -> Option<DisplayLimit> {
        None
    }
}
