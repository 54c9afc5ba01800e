//! Counts for each caller, for as many callers as the table holds.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use rategate::keyed::{HashedId, Seeds};
use rategate::stats::Top;

use super::hold::Hold;
use super::key::MAX_NAME;
use super::peak::{Grid, Peak};

/// The number of ranked callers among those that do not fit in the table.
const RANKED: usize = 64;

/// A caller in the table, whose counts are exact.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) name: Box<[u8]>,
    pub(super) calls: u64,
    pub(super) denied: u64,
    pub(super) peak: Peak,
    pub(super) hold: Hold,
}

/// The table of all callers.
#[derive(Debug)]
pub(super) struct Callers {
    seeds: Seeds,
    indexes: HashMap<HashedId, usize, BuildHasherDefault<AsItIs>>,
    list: Vec<Caller>,
    max: usize,
    others: Others,
}

/// A hasher for ids, which are keyed hashes already: it returns their last word.
#[derive(Clone, Copy, Debug, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(word) = bytes.last_chunk() {
            self.0 = u64::from_ne_bytes(*word);
        }
    }
}

/// Callers beyond the capacity: only the heaviest of them are known.
#[derive(Debug)]
pub(super) struct Others {
    pub(super) calls: u64,
    pub(super) denied: u64,
    by_denied: Top<HashedId>,
    names: HashMap<HashedId, Box<[u8]>>,
}

/// A row of a ranking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: Box<[u8]>,
    /// The number of calls, known for callers in the table.
    pub(super) calls: Option<u64>,
    pub(super) denied: u64,
    /// The maximum error of `denied`.
    pub(super) error: u64,
    /// The lower and the upper bound of the fullest window.
    pub(super) fullest: Option<(u64, u64)>,
}

impl Callers {
    pub(super) fn new(seeds: Seeds, max: usize) -> Self {
        let others =
            Others { calls: 0, denied: 0, by_denied: Top::new(RANKED), names: HashMap::new() };
        Self { seeds, indexes: HashMap::default(), list: Vec::new(), max, others }
    }

    pub(super) fn id(&self, name: &[u8]) -> HashedId {
        self.seeds.hashed(name)
    }

    /// Counts a call, and returns the index of the caller if it is in the table.
    pub(super) fn count(&mut self, id: HashedId, name: &[u8], call: Call) -> Option<usize> {
        let denied = u64::from(call.is_denied);
        let index = match self.indexes.get(&id) {
            Some(index) => *index,
            None if self.list.len() < self.max => {
                let index = self.list.len();
                self.indexes.insert(id, index);
                let (peak, hold) = (Peak::default(), Hold::default());
                self.list.push(Caller { name: cut(name), calls: 0, denied: 0, peak, hold });
                index
            }
            None => {
                self.others.count(id, name, denied);
                return None;
            }
        };
        let caller = self.list.get_mut(index)?;
        caller.calls = caller.calls.saturating_add(1);
        caller.denied = caller.denied.saturating_add(denied);
        caller.peak.add(call.grid, call.at_ns, call.amount);
        Some(index)
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Caller> {
        self.list.get_mut(index)
    }

    pub(super) fn list(&self) -> &[Caller] {
        &self.list
    }

    pub(super) const fn others(&self) -> &Others {
        &self.others
    }

    /// Returns the callers with the most denials.
    pub(super) fn by_denied(&self, max: usize) -> Vec<Row> {
        let denied = self.list.iter().filter(|caller| caller.denied > 0);
        let others = self.others.ranked();
        let mut rows: Vec<Row> = denied.map(Caller::row).chain(others).collect();
        rows.sort_by(|a, b| (b.denied, &a.name).cmp(&(a.denied, &b.name)));
        rows.truncate(max);
        rows
    }

    /// Returns the callers with the most calls, among those in the table.
    pub(super) fn by_calls(&self, max: usize) -> Vec<Row> {
        let mut rows: Vec<&Caller> = self.list.iter().collect();
        rows.sort_by(|a, b| (b.calls, &a.name).cmp(&(a.calls, &b.name)));
        rows.into_iter().take(max).map(Caller::row).collect()
    }

    /// Returns the caller with the fullest window.
    pub(super) fn fullest(&self) -> Option<Row> {
        let fullest =
            self.list.iter().max_by(|a, b| (a.peak.min, &b.name).cmp(&(b.peak.min, &a.name)));
        fullest.map(Caller::row)
    }
}

/// A call to be counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) grid: Grid,
    pub(super) at_ns: u64,
    pub(super) amount: u64,
    pub(super) is_denied: bool,
}

impl Caller {
    fn row(&self) -> Row {
        let fullest = Some((self.peak.min, self.peak.max));
        let (name, calls) = (self.name.clone(), Some(self.calls));
        Row { name, calls, denied: self.denied, error: 0, fullest }
    }
}

impl Others {
    fn count(&mut self, id: HashedId, name: &[u8], denied: u64) {
        self.calls = self.calls.saturating_add(1);
        self.denied = self.denied.saturating_add(denied);
        if denied == 0 {
            return;
        }
        self.by_denied.add(id, denied);
        self.names.entry(id).or_insert_with(|| cut(name));
        if self.names.len() > RANKED.saturating_mul(4) {
            let ranked = self.by_denied.ranked();
            self.names.retain(|id, _| ranked.iter().any(|ranked| ranked.key == *id));
        }
    }

    /// Returns the maximum number of denials of any caller missing here.
    pub(super) fn floor(&self) -> u64 {
        self.by_denied.floor()
    }

    fn ranked(&self) -> Vec<Row> {
        let named = |ranked: rategate::stats::Ranked<HashedId>| {
            let name = self.names.get(&ranked.key)?.clone();
            let (denied, error) = (ranked.count, ranked.error);
            Some(Row { name, calls: None, denied, error, fullest: None })
        };
        self.by_denied.ranked().into_iter().filter_map(named).collect()
    }
}

fn cut(name: &[u8]) -> Box<[u8]> {
    name.get(..MAX_NAME).unwrap_or(name).into()
}
