//! Reports of a table's statistics, as plain data and as text.

use std::fmt;
use std::hash::Hash;

use super::counts::Counts;
use super::outcome::Outcome;
use super::top::{Ranked, Top};

/// The number of keys of each ranking that are shown as text.
const SHOWN: usize = 10;

/// A report on a table of keys: its counts, and the keys that stand out.
///
/// As text it is a small table of the first ten of each ranking; [`Ranking`] explains the two
/// columns. Names are shown with unprintable characters escaped, so a key cannot write lines of
/// its own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report<Id> {
    /// The name of the limit.
    pub limit: Box<str>,
    /// The counts of all keys together, since the statistics began.
    pub counts: Counts,
    /// The keys that were denied most often, by calls.
    pub denied: Ranking<Id>,
    /// The keys that used most, by permits.
    pub used: Ranking<Id>,
    /// The keys that were near their limits most often, by calls.
    pub near: Ranking<Id>,
    /// The number of calls that each sampled call stands for.
    ///
    /// With 1 the bounds of the rankings are certain; with more they are those of the sample.
    pub every: u64,
    /// The approximate number of calls that the rankings missed, since the statistics began.
    pub skipped_calls: u64,
}

/// Keys in the order of their weights, the heaviest first. [`Top`] states the error bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ranking<Id> {
    /// The sampled weight of all keys together.
    pub total: u64,
    /// The largest weight that an unlisted key can have.
    pub floor: u64,
    /// The ranked keys, the heaviest first.
    pub ranked: Vec<Ranked<Id>>,
}

impl<Id: Copy + Eq + Hash> Report<Id> {
    pub(super) fn new(limit: &str, counts: Counts, tops: &Tops<Id>) -> Self {
        let ranking = |top: &Top<Id>| Ranking {
            total: top.total(),
            floor: top.floor(),
            ranked: top.ranked(),
        };
        Self {
            limit: limit.into(),
            counts,
            denied: ranking(&tops.denied),
            used: ranking(&tops.used),
            near: ranking(&tops.near),
            every: 1,
            skipped_calls: 0,
        }
    }
}

impl<Id: fmt::Debug> fmt::Display for Report<Id> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.limit.escape_debug(), self.counts)?;
        if self.every > 1 {
            writeln!(f, "by one call in {}:", self.every)?;
        }
        for (title, unit, ranking) in [
            ("denied", "calls", &self.denied),
            ("used", "permits", &self.used),
            ("near the limit", "calls", &self.near),
        ] {
            if !ranking.ranked.is_empty() {
                writeln!(f, "{title}, of {} {unit}", ranking.total)?;
                write!(f, "{ranking}")?;
            }
        }
        Ok(())
    }
}

impl<Id: fmt::Debug> fmt::Display for Ranking<Id> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>12} {:>12}  key", "at most", "at least")?;
        for Ranked { key, name, count, error } in self.ranked.iter().take(SHOWN) {
            let min_count = count.saturating_sub(*error);
            match name {
                Some(name) => writeln!(f, "{count:>12} {min_count:>12}  {}", name.escape_debug())?,
                None => writeln!(f, "{count:>12} {min_count:>12}  {key:?}")?,
            }
        }
        Ok(())
    }
}

/// The sketches of one lane, or the sum of all.
#[derive(Clone, Debug)]
pub(super) struct Tops<Id> {
    /// Ranked by calls.
    pub(super) denied: Top<Id>,
    /// Ranked by permits.
    pub(super) used: Top<Id>,
    /// Ranked by calls.
    pub(super) near: Top<Id>,
}

impl<Id: Copy + Eq + Hash> Tops<Id> {
    pub(super) fn new(max_keys: usize) -> Self {
        Self { denied: Top::new(max_keys), used: Top::new(max_keys), near: Top::new(max_keys) }
    }

    /// Adds a call that counts as `calls`. Returns `true` if the key is known and has no name.
    pub(super) fn add(&mut self, id: Id, permits: u64, outcome: Outcome, calls: u64) -> bool {
        match outcome {
            Outcome::Denied { .. } => self.denied.count(id, calls),
            Outcome::Granted { is_near } => {
                let used = self.used.count(id, permits.saturating_mul(calls));
                let near = is_near && self.near.count(id, calls);
                used || near
            }
        }
    }

    pub(super) fn set_name(&mut self, id: Id, name: &str) {
        for top in [&mut self.denied, &mut self.used, &mut self.near] {
            top.set_name(&id, name);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.denied.merge(&other.denied);
        self.used.merge(&other.used);
        self.near.merge(&other.near);
    }
}
