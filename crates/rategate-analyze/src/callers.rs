//! Counts for each caller, for as many callers as the table holds.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use rategate::keyed::{HashedId, Seeds};
use rategate::stats::Top;
use serde::{Serialize, Serializer};

use crate::fullest::{Grid, Peak};
use crate::key::MAX_NAME;
use crate::list_effect::Hold;

/// The number of ranked callers among those that do not fit in the table.
const RANKED: usize = 64;

/// A caller in the table, whose counts are exact.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) name: Box<[u8]>,
    pub(crate) calls: u64,
    pub(crate) denied: u64,
    pub(crate) peak: Peak,
    pub(crate) hold: Hold,
}

/// The table of all callers.
#[derive(Debug)]
pub(crate) struct Callers {
    seeds: Seeds,
    indexes: HashMap<HashedId, usize, RandomState>,
    list: Vec<Caller>,
    max: usize,
    others: Others,
}

/// Callers beyond the capacity: only the heaviest of them are known.
#[derive(Debug)]
pub(crate) struct Others {
    pub(crate) calls: u64,
    pub(crate) denied: u64,
    by_denied: Top<HashedId>,
    names: HashMap<HashedId, Box<[u8]>>,
}

/// A caller in a ranking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The caller's name, of up to 256 bytes.
    #[serde(serialize_with = "lossy")]
    pub caller: Box<[u8]>,
    /// The number of denials.
    pub denied: u64,
    /// The maximum error of `denied`.
    pub denied_error: u64,
    /// The number of calls, known for callers in the table.
    pub calls: Option<u64>,
    /// The lower bound of the fullest window.
    pub fullest_at_least: Option<u64>,
    /// The upper bound of the fullest window.
    pub fullest_at_most: Option<u64>,
}

fn lossy<S: Serializer>(name: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&String::from_utf8_lossy(name))
}

impl Callers {
    pub(crate) fn new(seeds: Seeds, max: usize) -> Self {
        let others =
            Others { calls: 0, denied: 0, by_denied: Top::new(RANKED), names: HashMap::new() };
        Self { seeds, indexes: HashMap::default(), list: Vec::new(), max, others }
    }

    pub(crate) fn id(&self, name: &[u8]) -> HashedId {
        self.seeds.hashed(name)
    }

    /// Counts a call, and returns the index of the caller if it is in the table.
    pub(crate) fn count(&mut self, id: HashedId, name: &[u8], call: Call) -> Option<usize> {
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

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Caller> {
        self.list.get_mut(index)
    }

    pub(crate) fn list(&self) -> &[Caller] {
        &self.list
    }

    pub(crate) const fn others(&self) -> &Others {
        &self.others
    }

    /// Returns the callers with the most denials.
    pub(crate) fn by_denied(&self, max: usize) -> Vec<Row> {
        let denied = self.list.iter().filter(|caller| caller.denied > 0);
        let others = self.others.ranked();
        let mut rows: Vec<Row> = denied.map(Caller::row).chain(others).collect();
        rows.sort_by(|a, b| (b.denied, &a.caller).cmp(&(a.denied, &b.caller)));
        rows.truncate(max);
        rows
    }

    /// Returns the callers with the most calls, among those in the table.
    pub(crate) fn by_calls(&self, max: usize) -> Vec<Row> {
        let mut rows: Vec<&Caller> = self.list.iter().collect();
        rows.sort_by(|a, b| (b.calls, &a.name).cmp(&(a.calls, &b.name)));
        rows.into_iter().take(max).map(Caller::row).collect()
    }

    /// Returns the caller with the fullest window.
    pub(crate) fn fullest(&self) -> Option<Row> {
        let fullest =
            self.list.iter().max_by(|a, b| (a.peak.min, &b.name).cmp(&(b.peak.min, &a.name)));
        fullest.map(Caller::row)
    }
}

/// A call to be counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) grid: Grid,
    pub(crate) at_ns: u64,
    pub(crate) amount: u64,
    pub(crate) is_denied: bool,
}

impl Caller {
    fn row(&self) -> Row {
        Row {
            caller: self.name.clone(),
            denied: self.denied,
            denied_error: 0,
            calls: Some(self.calls),
            fullest_at_least: Some(self.peak.min),
            fullest_at_most: Some(self.peak.max),
        }
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
    pub(crate) fn floor(&self) -> u64 {
        self.by_denied.floor()
    }

    fn ranked(&self) -> Vec<Row> {
        let named = |ranked: rategate::stats::Ranked<HashedId>| {
            let caller = self.names.get(&ranked.key)?.clone();
            let (denied, denied_error) = (ranked.count, ranked.error);
            let (fullest_at_least, fullest_at_most) = (None, None);
            Some(Row {
                caller,
                denied,
                denied_error,
                calls: None,
                fullest_at_least,
                fullest_at_most,
            })
        };
        self.by_denied.ranked().into_iter().filter_map(named).collect()
    }
}

fn cut(name: &[u8]) -> Box<[u8]> {
    name.get(..MAX_NAME).unwrap_or(name).into()
}
