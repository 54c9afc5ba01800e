//! Limits that come with a call: a table of keys for the buckets of up to so many different numbers.
//!
//! A key is counted under the numbers that came with it, and apart from the same key under others: its hash begins with them.
//! Each of the numbers in use is a tier of a table; a tier whose numbers nobody has named for as long as a bucket of theirs remembers
//! is free for others, as all its keys are as good as fresh.

mod tiers;

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use rategate::portable::Portable;
use rategate::{Anchor, Clock, FixedWindow, Gcra, Keyed, KeyedError, Look, Twinned};

use super::answer::{Part, Verdict};
use super::fault::Fault;
use super::key::Key;
use super::request::{Inline, Override, Verb};
use super::spent::Spent;
use crate::rule::{Shown, Unit};

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
    /// When somebody last named it, to the second or so.
    named_ns: AtomicU64,
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

/// How exactly the last use is noted: whoever uses a limit all the time should not write to it all the time.
const NOTED_NS: u64 = 1_000_000_000;

impl<N: Own, C: Clock + Clone> Inlines<N, C> {
    pub(super) fn new(clock: C, keys_per_table: usize, most_limits: usize) -> Self {
        let known = Known { by_limit: HashMap::default(), tables: Vec::new() };
        Self {
            clock,
            keys_per_table,
            most_tables: most_limits.div_ceil(PER_TABLE).max(1),
            known: ArcSwap::from_pointee(known),
            learning: Mutex::default(),
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

    /// What becomes of an item, at about `now_ns`.
    pub(super) fn decide(
        &self,
        limit: N,
        key: &[u8],
        verb: Verb,
        permits: u64,
        now_ns: u64,
    ) -> Result<Part, Fault> {
        let known = self.known.load();
        if let Some(numbers) = known.by_limit.get(&limit) {
            numbers.note(now_ns);
            return numbers.decide(&numbers.key(key), verb, permits);
        }
        // Whoever learns must not be one of those who are waited for.
        drop(known);
        // A look leaves no trace.
        if (verb != Verb::Take || permits == 0) && self.begins_fresh(limit) && !self.is_kept(limit)
        {
            return fresh(limit, verb, permits);
        }
        let numbers = self.learn(limit)?;
        numbers.note(now_ns);
        numbers.decide(&numbers.key(key), verb, permits)
    }

    /// Whether anybody has counted under a limit, or counts as if he had.
    pub(super) fn knows(&self, limit: N) -> bool {
        let is_known = self.known.load().by_limit.contains_key(&limit);
        is_known || !self.begins_fresh(limit) || self.is_kept(limit)
    }

    /// Whether a limit that nobody finds any more has its tier still.
    fn is_kept(&self, limit: N) -> bool {
        let retired = self.learning.lock().unwrap_or_else(PoisonError::into_inner);
        retired.iter().any(|numbers| numbers.limit == limit)
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
        let numbers = self.known.load().by_limit.get(&limit).map(Arc::clone);
        let numbers = numbers.map_or_else(|| self.learn(limit), Ok)?;
        numbers.note(self.clock.now_ns());
        Ok(numbers)
    }
}

impl<N: Own, C: Clock + Clone> Numbers<N, C> {
    /// Somebody has named it.
    #[inline]
    fn note(&self, now_ns: u64) {
        if now_ns.saturating_sub(self.named_ns.load(Ordering::Relaxed)) > NOTED_NS {
            self.named_ns.store(now_ns, Ordering::Relaxed);
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

    /// What becomes of a key as the table knows it.
    pub(super) fn decide(&self, key: &[u8], verb: Verb, permits: u64) -> Result<Part, Fault> {
        self.told(key, super::counters::decide(&self.table, key, verb, permits))
    }

    /// What is told of a take that is done.
    pub(super) fn granted(&self, key: &[u8]) -> Result<Part, Fault> {
        self.told(key, self.table.look(key).map(|look| (Verdict::Granted, look)))
    }

    fn told(
        &self,
        key: &[u8],
        decided: Result<(Verdict, Look), KeyedError>,
    ) -> Result<Part, Fault> {
        let (verdict, look) = super::counters::never_fits(decided, &self.table, key)?;
        let reset_after_ns = look.fresh_in_ns.unwrap_or(u64::MAX);
        Ok(part(self.limit, verdict, look.remaining, reset_after_ns))
    }
}

/// What a limit that nobody has used answers.
pub(super) fn fresh<N: Own>(limit: N, verb: Verb, permits: u64) -> Result<Part, Fault> {
    limit.policy()?;
    let capacity = limit.capacity();
    let verdict = match verb {
        Verb::Refund => Verdict::Refunded(0),
        Verb::Reset => Verdict::Reset,
        Verb::Take | Verb::Peek if permits > capacity => NEVER,
        Verb::Take | Verb::Peek => Verdict::Granted,
    };
    Ok(part(limit, verdict, capacity, 0))
}

const NEVER: Verdict = Verdict::Denied { retry_after_ns: None, enforced: true };

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

impl Own for Override {
    type Policy = FixedWindow;

    fn policy(self) -> Result<FixedWindow, Fault> {
        Ok(FixedWindow::new(self.permits, self.period_ns(), Anchor::Epoch)?)
    }

    fn capacity(self) -> u64 {
        self.permits
    }

    fn memory_ns(self) -> u64 {
        self.period_ns()
    }

    fn words(self) -> [u64; 3] {
        [self.permits, self.unit.seconds(), 0]
    }

    fn of_words([permits, seconds, _]: [u64; 3]) -> Option<Self> {
        let unit = Unit::ALL.into_iter().find(|unit| unit.seconds() == seconds)?;
        Some(Self { permits, unit })
    }

    fn shown(self) -> Option<Shown> {
        Some(Shown { permits: self.permits, multiplier: 1, unit: self.unit })
    }
}
