//! Which keys stand out: the heaviest of the last minute or two, by permits and by denials.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem::replace;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rategate::stats::Top;

use super::lanes::Lanes;

/// How many keys are kept for each ranking.
pub(super) const MOST_KEYS: usize = 64;
/// How often the rankings begin anew; those before are kept beside them.
const WINDOW_S: u64 = 60;
/// Up to so many calls a second each one is looked at; beyond, one in two, four, up to 64.
const CALLS_A_SECOND: u64 = 2_048;
/// After so many looks of a thread within a second it does not wait for the second's end to look less closely.
const LOOKS_A_SECOND: u32 = 2_048;
const MOST_SHIFT: u32 = 6;

/// The heaviest keys, and what they are called.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    used: Top<u64>,
    denied: Top<u64>,
    names: HashMap<u64, Box<str>>,
    /// Since the last second began.
    looks: u32,
}

/// A key in a ranking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ranked {
    pub(super) name: Box<str>,
    /// Its weight at most.
    pub(super) count: u64,
    /// How much of that it may not have had.
    pub(super) error: u64,
}

/// A ranking, the heaviest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranking {
    /// The weight of all keys together.
    pub(super) total: u64,
    pub(super) ranked: Vec<Ranked>,
}

/// The rankings of a rule.
#[derive(Debug)]
pub(super) struct Board {
    /// One call in 2^this is looked at, and counts for as many.
    shift: AtomicU32,
    lanes: Lanes<Mutex<Ranks>>,
    past: Mutex<Past>,
}

#[derive(Debug)]
struct Past {
    began_s: u64,
    ranks: Ranks,
    began_before_s: u64,
}

/// What is added to a ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// So many permits were granted.
    Used(u64),
    /// A call was denied.
    Denied,
}

impl Board {
    pub(super) fn new(now_s: u64) -> Self {
        let past = Past { began_s: now_s, ranks: Ranks::new(), began_before_s: now_s };
        let lanes = Lanes::new(|| Mutex::new(Ranks::new()));
        Self { shift: AtomicU32::new(0), lanes, past: Mutex::new(past) }
    }

    /// Looks at a call, if it is one of those that are looked at: `number` counts them. Its name is asked for if it
    /// has none yet. Nobody waits here: a call that finds the rankings being read is left out.
    #[inline]
    pub(super) fn note(&self, number: u64, id: u64, weight: Weight, name: impl FnOnce() -> String) {
        let shift = self.shift.load(Ordering::Relaxed);
        if is_looked_at(number, shift) {
            self.look(shift, id, weight, name);
        }
    }

    #[inline(never)]
    fn look(&self, shift: u32, id: u64, weight: Weight, name: impl FnOnce() -> String) {
        let Some(Ok(mut ranks)) = self.lanes.own().map(Mutex::try_lock) else { return };
        ranks.looks = ranks.looks.saturating_add(1);
        if ranks.looks.is_multiple_of(LOOKS_A_SECOND) && shift < MOST_SHIFT {
            self.shift.fetch_max(shift.saturating_add(1), Ordering::Relaxed);
        }
        let calls = 1_u64.checked_shl(shift).unwrap_or(1);
        match weight {
            Weight::Used(permits) => ranks.used.add(id, permits.saturating_mul(calls)),
            Weight::Denied => ranks.denied.add(id, calls),
        }
        if let Entry::Vacant(place) = ranks.names.entry(id) {
            place.insert(name().into());
            ranks.forget_names();
        }
    }

    /// Begins a new window each minute, and looks more closely where little happens. Called once a second.
    pub(super) fn tick(&self, now_s: u64, calls_a_second: u64) {
        let busy = calls_a_second.checked_div(CALLS_A_SECOND).unwrap_or(0);
        let shift = busy.checked_ilog2().map_or(0, |log| log.saturating_add(1));
        self.shift.store(shift.min(MOST_SHIFT), Ordering::Relaxed);
        self.lanes.all().for_each(|lane| lock(lane).looks = 0);
        let mut past = lock(&self.past);
        if now_s.saturating_sub(past.began_s) >= WINDOW_S {
            past.ranks = self.gather(|ranks| replace(ranks, Ranks::new()));
            (past.began_before_s, past.began_s) = (past.began_s, now_s);
        }
    }

    /// Who stands out, and since which Unix second: one to two minutes.
    pub(super) fn read(&self) -> (u64, Ranks) {
        let past = lock(&self.past);
        let mut ranks = self.gather(|ranks| ranks.clone());
        ranks.merge(&past.ranks);
        (past.began_before_s, ranks)
    }

    /// For how many calls one stands.
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
            used: Top::new(MOST_KEYS),
            denied: Top::new(MOST_KEYS),
            names: HashMap::new(),
            looks: 0,
        }
    }

    fn merge(&mut self, other: &Self) {
        self.used.merge(&other.used);
        self.denied.merge(&other.denied);
        for (id, name) in &other.names {
            self.names.entry(*id).or_insert_with(|| name.clone());
        }
        self.forget_names();
    }

    /// Keeps the names of keys that are in a ranking, when there are many others.
    fn forget_names(&mut self) {
        if self.names.len() <= MOST_KEYS.saturating_mul(8) {
            return;
        }
        let ranked = [self.used.ranked(), self.denied.ranked()].concat();
        let kept: std::collections::HashSet<u64> = ranked.iter().map(|ranked| ranked.key).collect();
        self.names.retain(|id, _| kept.contains(id));
    }

    /// By permits that were granted.
    pub(super) fn used(&self) -> Ranking {
        self.ranking(&self.used)
    }

    /// By calls that were denied.
    pub(super) fn denied(&self) -> Ranking {
        self.ranking(&self.denied)
    }

    fn ranking(&self, top: &Top<u64>) -> Ranking {
        let named = |ranked: rategate::stats::Ranked<u64>| {
            let name = self.names.get(&ranked.key)?.clone();
            Some(Ranked { name, count: ranked.count, error: ranked.error })
        };
        Ranking { total: top.total(), ranked: top.ranked().into_iter().filter_map(named).collect() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the call with this number is looked at. A pattern in the calls must not meet the same key again and
/// again, so the number is mixed up first.
#[inline]
const fn is_looked_at(number: u64, shift: u32) -> bool {
    let mixed = (number ^ (number >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> 32).trailing_zeros() >= shift
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first second of many calls is as cheap as the next ones, and its calls count for what they stand for.
    #[test]
    fn a_busy_second_is_looked_at_less_closely_at_once() {
        let board = Board::new(0);
        let calls = 1_000_000;
        for number in 0..calls {
            board.note(number, number % 10, Weight::Used(1), || format!("key {}", number % 10));
        }
        assert_eq!(board.every(), 64);
        let looks: u32 = board.lanes.all().map(|lane| lock(lane).looks).sum();
        assert!(looks < 32 * LOOKS_A_SECOND, "{looks} looks");
        let used = board.read().1.used();
        assert!(used.total.abs_diff(calls) < calls / 10, "{} for {calls}", used.total);
        board.tick(1, 100);
        assert_eq!(board.every(), 1);
    }

    fn names(ranking: &Ranking) -> Vec<&str> {
        ranking.ranked.iter().map(|ranked| &*ranked.name).collect()
    }

    #[test]
    fn names_are_kept_of_keys_that_stand_out() {
        let board = Board::new(0);
        for key in 0..10_000 {
            // One that is heavy among many that come once.
            board.note(0, 0, Weight::Used(100), || "heavy".to_owned());
            board.note(0, key + 1, Weight::Denied, || key.to_string());
        }
        for lane in board.lanes.all() {
            assert!(lane.lock().unwrap().names.len() <= MOST_KEYS * 8);
        }
        let (_, ranks) = board.read();
        assert_eq!(names(&ranks.used()), ["heavy"]);
        assert_eq!(ranks.denied().ranked.len(), MOST_KEYS, "each with its name");
    }

    #[test]
    fn a_key_stands_out_for_one_to_two_minutes() {
        let board = Board::new(1_000);
        board.note(0, 7, Weight::Denied, || "key".to_owned());
        let seen = |second| {
            board.tick(second, 0);
            let (since_s, ranks) = board.read();
            (since_s, names(&ranks.denied()).len())
        };
        assert_eq!(seen(1_059), (1_000, 1));
        assert_eq!(seen(1_060), (1_000, 1));
        assert_eq!(seen(1_061), (1_000, 1));
        assert_eq!(seen(1_119), (1_000, 1));
        assert_eq!(seen(1_120), (1_060, 0));
    }
}
