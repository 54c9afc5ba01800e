//! Limits that come with a call: a table of keys for the buckets of up to so many different numbers.
//!
//! A key is counted under the numbers that came with it, and apart from the same key under others: its hash begins with them.
//! Each of the numbers in use is a tier of a table. A tier whose keys are all as good as fresh, and whose numbers nobody has named for a second, is
//! free for others: nobody could tell. So is one whose numbers nobody has named for a day, whatever its keys remember: places are few, and
//! numbers that remember for decades cost their caller nothing.

mod tiers;

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use rategate::portable::Portable;
use rategate::{Clock, FixedWindow, Gcra, Keyed, KeyedError, Look, Twinned};

use super::answer::{Part, Verdict};
use super::counted::{self, Counted, OwnLimit};
use super::fault::Fault;
use super::key::Key;
use super::request::{Inline, Verb};
use super::spent::Spent;
use crate::rule::{CountedWindow, Shown, Unit};

/// How many different limits a table has room for: its tiers.
const PER_TABLE: usize = rategate::MAX_TIERS;

/// The numbers of a limit that comes with a call.
pub(super) trait Own: Copy + Debug + Eq + Hash + Send + Sync + 'static {
    type Policy: Twinned + Portable + Copy + Send + Sync + 'static;

    fn policy(self) -> Result<Self::Policy, Fault>;

    /// The most permits at once.
    fn capacity(self) -> u64;

    /// For how long a key under it remembers at most.
    fn memory_ns(self) -> u64;

    /// What no other numbers of the same kind are.
    fn words(self) -> [u64; 3];

    /// The numbers that those words are of.
    fn of_words(words: [u64; 3]) -> Option<Self>;

    fn shown(self) -> Option<Shown>;
}

/// All limits of a kind that have come with calls.
#[derive(Debug)]
pub(super) struct Inlines<N: Own, C: Clock> {
    clock: C,
    /// How many keys each table has room for.
    keys_per_table: usize,
    most_tables: usize,
    known: ArcSwap<Known<N, C>>,
    /// Held by whoever learns of new numbers. Those that nobody finds any more, while their tiers are still theirs.
    learning: Mutex<Vec<Arc<Numbers<N, C>>>>,
    /// Before then all places are somebody's.
    full_until_ns: AtomicU64,
    spent: Spent,
}

#[derive(Debug)]
struct Known<N: Own, C: Clock> {
    by_limit: HashMap<N, Arc<Numbers<N, C>>, foldhash::fast::RandomState>,
    tables: Vec<Table<N, C>>,
}

pub(super) type Table<N, C> = Keyed<[u8], <N as Own>::Policy, C>;

/// The numbers of a limit in use, and where its keys are.
#[derive(Debug)]
pub(super) struct Numbers<N: Own, C: Clock> {
    limit: N,
    table: Table<N, C>,
    at: Place,
    /// When somebody last named them, or up to [`NOTED_NS`] earlier.
    named_ns: AtomicU64,
    /// When all of their keys will be as good as fresh, or up to [`NOTED_NS`] later.
    fresh_ns: AtomicU64,
}

/// A tier of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    table: usize,
    tier: u8,
}

/// What a table's keys begin with: the tier, and the limit's numbers.
const OWN_BYTES: usize = 1 + 3 * size_of::<u64>();

/// Whose the tiers of a table are: their limits, as words.
pub(super) type Tiers = Vec<(u8, [u64; 3])>;

/// How exactly uses are noted: whoever uses a limit all the time should not write to it all the time.
const NOTED_NS: u64 = 1_000_000_000;

/// For how long numbers that nobody names keep their place where others need one, however little their keys remember.
const LEAST_IDLE_NS: u64 = 1_000_000_000;

/// The same, however much they do.
const MOST_IDLE_NS: u64 = 86_400_000_000_000;

impl<N: Own, C: Clock + Clone> Inlines<N, C> {
    pub(super) fn new(clock: C, keys_per_table: usize, most_limits: usize) -> Self {
        let known = Known { by_limit: HashMap::default(), tables: Vec::new() };
        Self {
            clock,
            keys_per_table,
            most_tables: most_limits.div_ceil(PER_TABLE).max(1),
            known: ArcSwap::from_pointee(known),
            learning: Mutex::default(),
            full_until_ns: AtomicU64::new(0),
            spent: Spent::default(),
        }
    }

    /// How many different limits are kept apart.
    pub(super) const fn most_limits(&self) -> usize {
        self.most_tables.saturating_mul(PER_TABLE)
    }

    /// How many keys there are in all tables.
    pub(super) fn keys(&self) -> usize {
        self.known.load().tables.iter().map(Keyed::len).sum()
    }

    /// What becomes of an item, and when that was, at the latest.
    pub(super) fn decide(
        &self,
        limit: N,
        key: &[u8],
        verb: Verb,
        permits: u64,
    ) -> Result<(Part, u64), Fault> {
        let known = self.known.load();
        if let Some(numbers) = known.by_limit.get(&limit) {
            return numbers.decide(&self.clock, &numbers.key(key), verb, permits);
        }
        // Whoever learns must not be one of those who are waited for.
        drop(known);
        // A look leaves no trace.
        if (verb != Verb::Take || permits == 0) && self.begins_fresh(limit) && !self.is_kept(limit)
        {
            return Ok((fresh(limit, verb, permits)?, self.clock.now_ns()));
        }
        let numbers = self.learn(limit)?;
        numbers.decide(&self.clock, &numbers.key(key), verb, permits)
    }

    /// Whether anybody has counted under a limit, or counts as if he had.
    pub(super) fn knows(&self, limit: N) -> bool {
        let is_known = self.known.load().by_limit.contains_key(&limit);
        is_known || !self.begins_fresh(limit) || self.is_kept(limit)
    }

    /// Whether a limit that was not found has a tier all the same: it is retired, or has just come back.
    fn is_kept(&self, limit: N) -> bool {
        let retired = self.learning.lock().unwrap_or_else(PoisonError::into_inner);
        retired.iter().any(|numbers| numbers.limit == limit) || self.found(limit).is_some()
    }

    /// The numbers of a limit, if they are in use.
    fn found(&self, limit: N) -> Option<Arc<Numbers<N, C>>> {
        self.known.load().by_limit.get(&limit).map(Arc::clone)
    }

    /// Whether a key that nobody has counted is fresh.
    fn begins_fresh(&self, limit: N) -> bool {
        let forgotten = |at_ns: u64| at_ns.saturating_add(limit.memory_ns()) <= self.clock.now_ns();
        self.spent.at_ns().is_none_or(forgotten)
    }

    /// Keys that are not known count as spent at that instant.
    pub(super) fn spend(&self, at_ns: u64) {
        let _learning = self.learning.lock().unwrap_or_else(PoisonError::into_inner);
        self.spent.spend(at_ns);
        self.known.load().tables.iter().for_each(|table| self.spent.tell(table));
    }

    /// Since when they do.
    pub(super) fn spent_at_ns(&self) -> Option<u64> {
        self.spent.at_ns()
    }

    /// The numbers in use for a limit, from now on if not before.
    pub(super) fn numbers(&self, limit: N) -> Result<Arc<Numbers<N, C>>, Fault> {
        self.found(limit).map_or_else(|| self.learn(limit), Ok)
    }
}

impl<N: Own, C: Clock + Clone> Numbers<N, C> {
    /// Somebody has named them, and it takes the key that long from `now_ns` until it is as good as fresh. Noted *after* the decision by a
    /// clock read then, while they are still his: he may have been stopped for any time before.
    #[inline]
    fn note(&self, now_ns: u64, reset_after_ns: u64) {
        if now_ns.saturating_sub(self.named_ns.load(Ordering::Relaxed)) > NOTED_NS {
            self.named_ns.fetch_max(now_ns, Ordering::Relaxed);
        }
        let fresh_ns = now_ns.saturating_add(reset_after_ns);
        if fresh_ns > self.fresh_ns.load(Ordering::Relaxed) {
            self.fresh_ns.fetch_max(fresh_ns.saturating_add(NOTED_NS), Ordering::Relaxed);
        }
    }

    /// A key as the table knows it.
    #[inline]
    pub(super) fn key(&self, key: &[u8]) -> Key {
        let mut whole = Key::new();
        whole.push(self.at.tier);
        for number in self.limit.words() {
            whole.extend_from_slice(&number.to_le_bytes());
        }
        whole.extend_from_slice(key);
        whole
    }

    /// What the caller calls a key of the table.
    pub(super) fn own_key(key: &[u8]) -> &[u8] {
        key.get(OWN_BYTES..).unwrap_or_default()
    }

    pub(super) fn ask(&self, key: &[u8], permits: u64) -> rategate::Ask<'_> {
        self.table.ask(key, permits)
    }

    /// What becomes of a key as the table knows it, and when that was, at the latest.
    pub(super) fn decide(
        &self,
        clock: &C,
        key: &[u8],
        verb: Verb,
        permits: u64,
    ) -> Result<(Part, u64), Fault> {
        self.told(clock, super::one_key::decide(&self.table, key, verb, permits))
    }

    /// What is told of a take that is done.
    pub(super) fn granted(&self, clock: &C, key: &[u8]) -> Result<(Part, u64), Fault> {
        self.told(clock, self.table.look(key).map(|look| (Verdict::Granted, look)))
    }

    fn told(
        &self,
        clock: &C,
        decided: Result<(Verdict, Look), KeyedError>,
    ) -> Result<(Part, u64), Fault> {
        let (verdict, look) = decided.map_err(Fault::of)?;
        let (now_ns, reset_after_ns) = (clock.now_ns(), look.fresh_in_ns.unwrap_or(u64::MAX));
        self.note(now_ns, reset_after_ns);
        Ok((part(self.limit, verdict, look.remaining, reset_after_ns), now_ns))
    }
}

/// What a limit that nobody has used answers.
pub(super) fn fresh<N: Own>(limit: N, verb: Verb, permits: u64) -> Result<Part, Fault> {
    limit.policy()?;
    let capacity = limit.capacity();
    let verdict = match verb {
        Verb::Refund => Verdict::Refunded(0),
        Verb::Reset => Verdict::Reset,
        Verb::Take | Verb::Peek if permits > capacity => Verdict::NEVER,
        Verb::Take | Verb::Peek => Verdict::Granted,
    };
    Ok(part(limit, verdict, capacity, 0))
}

fn part<N: Own>(limit: N, verdict: Verdict, remaining: u64, reset_after_ns: u64) -> Part {
    Part {
        rule: None,
        shown: limit.shown(),
        verdict,
        limit: limit.capacity(),
        remaining: Some(remaining),
        reset_after_ns,
    }
}

impl Own for Inline {
    type Policy = Gcra;

    fn policy(self) -> Result<Gcra, Fault> {
        self.bucket()
    }

    fn capacity(self) -> u64 {
        self.capacity
    }

    /// How long an empty bucket takes to be full.
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

    fn shown(self) -> Option<Shown> {
        None
    }
}

/// The windows of a unit that count every hit: where the limits that come with descriptors are counted. Limits of one unit share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct UnitWindow(pub(super) Unit);

impl<C: Clock + Clone> Numbers<UnitWindow, C> {
    /// Counts under a key as the table knows it.
    pub(super) fn count(
        &self,
        own: &OwnLimit,
        now_ns: u64,
        key: &[u8],
        asked: (Verb, u64),
    ) -> Result<Counted, Fault> {
        let decided = counted::decide(&self.table, (own.window, &own.counter), key, asked, now_ns);
        self.note(now_ns, own.window.left_ns(now_ns));
        decided.map_err(Fault::of)
    }
}

impl Own for UnitWindow {
    type Policy = FixedWindow;

    fn policy(self) -> Result<FixedWindow, Fault> {
        Ok(CountedWindow::long_counter(self.memory_ns())?)
    }

    fn capacity(self) -> u64 {
        u64::MAX
    }

    fn memory_ns(self) -> u64 {
        self.0.seconds().saturating_mul(1_000_000_000)
    }

    /// The first word is 0, which no limit of so many permits was saved with.
    fn words(self) -> [u64; 3] {
        [0, self.0.seconds(), 0]
    }

    /// Counters that were kept apart by the numbers of their limits, as they once were, are not read.
    fn of_words(words: [u64; 3]) -> Option<Self> {
        let [0, seconds, _] = words else { return None };
        Unit::ALL.into_iter().find(|unit| unit.seconds() == seconds).map(Self)
    }

    fn shown(self) -> Option<Shown> {
        None
    }
}
