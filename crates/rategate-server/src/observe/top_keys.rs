//! The top keys of a rule in the last one to two minutes, by permits and by denials.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem::replace;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use rategate::stats::{Lanes, Top};
use serde::Serialize;

use super::{MAX_LANES, lock};

/// The number of keys in each ranking.
pub(super) const MAX_KEYS: usize = 64;
/// The length of a window after which new rankings begin. The previous ones are kept too.
const WINDOW_S: u64 = 60;
/// The number of calls per second up to which each is sampled; beyond, one in two, four, up to
/// 64.
const CALLS_A_SECOND: u64 = 2_048;
/// The number of samples of a thread after which it reduces the sampling within the current
/// second.
const SAMPLES_A_SECOND: u32 = 2_048;
const MAX_SHIFT: u32 = 6;

/// The rankings of keys, with their names.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    used: Top<u64>,
    denied: Top<u64>,
    names: HashMap<u64, Box<str>>,
    /// The number of samples since the current second began.
    samples: u32,
}

/// A key in a ranking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Ranked {
    /// The name of the key, percent-encoded. Ends with `…` if it is cut.
    #[serde(rename = "key")]
    pub(super) name: Box<str>,
    /// The bounds of its weight.
    pub(super) at_most: u64,
    pub(super) at_least: u64,
}

/// A ranking, the heaviest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Ranking {
    /// The weight of all keys together.
    pub(super) total: u64,
    #[serde(rename = "keys")]
    pub(super) ranked: Vec<Ranked>,
}

/// The rankings of a rule.
#[derive(Debug)]
pub(super) struct TopKeys {
    /// The sampling: one call in 2^shift is counted, with that weight.
    shift: AtomicU32,
    lanes: Lanes<Mutex<Ranks>>,
    last_window: Mutex<LastWindow>,
}

#[derive(Debug)]
struct LastWindow {
    began_s: u64,
    ranks: Ranks,
    began_before_s: u64,
}

/// An addition to a ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// A number of permits that were granted.
    Used(u64),
    /// A call that was denied.
    Denied,
}

impl TopKeys {
    pub(super) fn new(now_s: u64) -> Self {
        let last_window = LastWindow { began_s: now_s, ranks: Ranks::new(), began_before_s: now_s };
        let lanes = Lanes::new(MAX_LANES, || Mutex::new(Ranks::new()));
        Self { shift: AtomicU32::new(0), lanes, last_window: Mutex::new(last_window) }
    }

    /// Counts a call if it is sampled; `number` numbers the calls. `name` is called if the key
    /// has no name yet. Never blocks: a call that arrives while the rankings are read is left
    /// out.
    #[inline]
    pub(super) fn note(&self, number: u64, id: u64, weight: Weight, name: impl FnOnce() -> String) {
        let shift = self.shift.load(Ordering::Relaxed);
        if is_sampled(number, shift) {
            self.sample(shift, id, weight, name);
        }
    }

    #[inline(never)]
    fn sample(&self, shift: u32, id: u64, weight: Weight, name: impl FnOnce() -> String) {
        let Some(Ok(mut ranks)) = self.lanes.own().map(|own| own.lane.try_lock()) else { return };
        ranks.samples = ranks.samples.saturating_add(1);
        if ranks.samples.is_multiple_of(SAMPLES_A_SECOND) && shift < MAX_SHIFT {
            self.shift.fetch_max(shift.saturating_add(1), Ordering::Relaxed);
        }
        let calls = 1_u64.checked_shl(shift).unwrap_or(1);
        match weight {
            Weight::Used(permits) => ranks.used.add(id, permits.saturating_mul(calls)),
            Weight::Denied => ranks.denied.add(id, calls),
        }
        if let Entry::Vacant(vacant) = ranks.names.entry(id) {
            vacant.insert(name().into());
            ranks.evict_names();
        }
    }

    /// Begins a new window each minute, and samples more calls where traffic is low. Called once
    /// a second.
    pub(super) fn tick(&self, now_s: u64, calls_a_second: u64) {
        let busy = calls_a_second.checked_div(CALLS_A_SECOND).unwrap_or(0);
        let shift = busy.checked_ilog2().map_or(0, |log| log.saturating_add(1));
        self.shift.store(shift.min(MAX_SHIFT), Ordering::Relaxed);
        self.lanes.all().for_each(|lane| lock(lane).samples = 0);
        let mut last_window = lock(&self.last_window);
        if now_s.saturating_sub(last_window.began_s) >= WINDOW_S {
            last_window.ranks = self.gather(|ranks| replace(ranks, Ranks::new()));
            (last_window.began_before_s, last_window.began_s) = (last_window.began_s, now_s);
        }
    }

    /// Returns the rankings of the last one to two minutes, and the Unix second at which they
    /// begin.
    pub(super) fn read(&self) -> (u64, Ranks) {
        let last_window = lock(&self.last_window);
        let mut ranks = self.gather(|ranks| ranks.clone());
        ranks.merge(&last_window.ranks);
        (last_window.began_before_s, ranks)
    }

    /// Returns the weight of a sampled call.
    pub(super) fn every(&self) -> u64 {
        1_u64.checked_shl(self.shift.load(Ordering::Relaxed)).unwrap_or(1)
    }

    fn gather(&self, read: impl Fn(&mut Ranks) -> Ranks) -> Ranks {
        self.lanes.all().fold(Ranks::new(), |mut sum, lane| {
            let own = read(&mut lock(lane));
            sum.merge(&own);
            sum
        })
    }
}

impl Ranks {
    fn new() -> Self {
        Self {
            used: Top::new(MAX_KEYS),
            denied: Top::new(MAX_KEYS),
            names: HashMap::new(),
            samples: 0,
        }
    }

    fn merge(&mut self, other: &Self) {
        self.used.merge(&other.used);
        self.denied.merge(&other.denied);
        for (id, name) in &other.names {
            self.names.entry(*id).or_insert_with(|| name.clone());
        }
        self.evict_names();
    }

    /// Drops the names of keys outside the rankings, once there are many.
    fn evict_names(&mut self) {
        if self.names.len() <= MAX_KEYS.saturating_mul(8) {
            return;
        }
        let ranked = [self.used.ranked(), self.denied.ranked()].concat();
        let ranked_ids: std::collections::HashSet<u64> =
            ranked.iter().map(|ranked| ranked.key).collect();
        self.names.retain(|id, _| ranked_ids.contains(id));
    }

    /// Returns the ranking by permits that were granted.
    pub(super) fn used(&self) -> Ranking {
        self.ranking(&self.used)
    }

    /// Returns the ranking by calls that were denied.
    pub(super) fn denied(&self) -> Ranking {
        self.ranking(&self.denied)
    }

    fn ranking(&self, top: &Top<u64>) -> Ranking {
        let named = |ranked: rategate::stats::Ranked<u64>| {
            let name = self.names.get(&ranked.key)?.clone();
            let at_least = ranked.count.saturating_sub(ranked.error);
            Some(Ranked { name, at_most: ranked.count, at_least })
        };
        Ranking { total: top.total(), ranked: top.ranked().into_iter().filter_map(named).collect() }
    }
}

/// Returns `true` if the call with this number is sampled. The number is mixed first, so that a
/// periodic pattern of calls does not sample the same key again and again.
#[inline]
const fn is_sampled(number: u64, shift: u32) -> bool {
    let mixed = (number ^ (number >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> 32).trailing_zeros() >= shift
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first second of high traffic is as cheap as the next, and its samples have the right
    /// weight.
    #[test]
    fn a_busy_second_is_sampled_less_closely_at_once() {
        let top_keys = TopKeys::new(0);
        let calls = 1_000_000;
        for number in 0..calls {
            top_keys.note(number, number % 10, Weight::Used(1), || format!("key {}", number % 10));
        }
        assert_eq!(top_keys.every(), 64);
        let samples: u32 = top_keys.lanes.all().map(|lane| lock(lane).samples).sum();
        assert!(samples < 32 * SAMPLES_A_SECOND, "{samples} looks");
        let used = top_keys.read().1.used();
        assert!(used.total.abs_diff(calls) < calls / 10, "{} for {calls}", used.total);
        top_keys.tick(1, 100);
        assert_eq!(top_keys.every(), 1);
    }

    fn names(ranking: &Ranking) -> Vec<&str> {
        ranking.ranked.iter().map(|ranked| &*ranked.name).collect()
    }

    #[test]
    fn names_are_kept_of_keys_that_stand_out() {
        let top_keys = TopKeys::new(0);
        for key in 0..10_000 {
            // One heavy key among many that come once.
            top_keys.note(0, 0, Weight::Used(100), || "heavy".to_owned());
            top_keys.note(0, key + 1, Weight::Denied, || key.to_string());
        }
        for lane in top_keys.lanes.all() {
            assert!(lane.lock().unwrap().names.len() <= MAX_KEYS * 8);
        }
        let (_, ranks) = top_keys.read();
        assert_eq!(names(&ranks.used()), ["heavy"]);
        assert_eq!(ranks.denied().ranked.len(), MAX_KEYS, "each with its name");
    }

    #[test]
    fn a_key_stands_out_for_one_to_two_minutes() {
        let top_keys = TopKeys::new(1_000);
        top_keys.note(0, 7, Weight::Denied, || "key".to_owned());
        let seen = |second| {
            top_keys.tick(second, 0);
            let (since_s, ranks) = top_keys.read();
            (since_s, names(&ranks.denied()).len())
        };
        assert_eq!(seen(1_059), (1_000, 1));
        assert_eq!(seen(1_060), (1_000, 1));
        assert_eq!(seen(1_061), (1_000, 1));
        assert_eq!(seen(1_119), (1_000, 1));
        assert_eq!(seen(1_120), (1_060, 0));
    }
}
