//! The ids of what has been settled, and the verdicts: 28 bytes each, and an index.
//!
//! An id is kept as a digest of 64 bits under a key of this process, the names of its counters as
//! one of 32. Two ids of a million with one digest come once in 10^7 processes. Verdicts on several
//! items, and large numbers, are kept beside.

use std::collections::VecDeque;

use hashbrown::HashTable;
use rategate::charge::Settled;
use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

use super::table::{PartVerdict, Usages};
use crate::engine::answer::Verdict;

const SECOND_NS: u64 = 1_000_000_000;

/// The settled operations, in the order in which they are forgotten.
#[derive(Debug, Default)]
pub(super) struct Settlements {
    settled: VecDeque<Packed>,
    /// The numbers of the settlements that count, by the digests of their ids.
    index: HashTable<u32>,
    /// The number of the first settlement. Numbers wrap.
    first: u32,
    /// The permits and verdicts that are not packed, by the digests of their ids.
    large: HashTable<(u64, Outcome)>,
}

/// The permits and the verdicts of the items of a settlement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::engine) struct Outcome {
    pub(super) permits: SmallVec<[u64; 1]>,
    /// The units that were used, in place of permits.
    pub(super) usages: Usages,
    pub(super) verdicts: SmallVec<[Verdict; 1]>,
    /// The verdicts of the rules of items that come under several, or are saturated.
    pub(super) parts: Vec<PartVerdict>,
}

#[derive(Clone, Copy, Debug)]
struct Packed {
    /// The digest of the id, in two words: with an alignment of 8 bytes it would take 32.
    id: [u32; 2],
    names: u32,
    /// The second from which on it is forgotten.
    due_s: u32,
    /// The permits and the number of the verdict, of 46 bits each, and its kind, of four.
    outcome: [u32; 3],
}

impl Settlements {
    /// Remembers an outcome until `due_ns`. Returns `true` if nothing was known under the id.
    pub(super) fn add(&mut self, id: u64, names: u64, due_ns: u64, outcome: Outcome) -> bool {
        let is_new = !self.remove(id);
        let packed = pack(&outcome).unwrap_or_else(|| {
            self.large.insert_unique(id, (id, outcome), |(id, _)| *id);
            LARGE
        });
        if self.settled.len() == self.settled.capacity() {
            // Less to spare than by doubling.
            self.settled.reserve_exact((self.settled.len() / 32).saturating_add(16));
        }
        let at = u32::try_from(self.settled.len()).unwrap_or(u32::MAX);
        let number = self.first.wrapping_add(at);
        let second = u32::try_from(due_ns.div_ceil(SECOND_NS)).unwrap_or(u32::MAX);
        let (id_words, names) = (words(id), low(names));
        self.settled.push_back(Packed { id: id_words, names, due_s: second, outcome: packed });
        let (settled, first) = (&self.settled, self.first);
        self.index.insert_unique(id, number, |&number| id_of(settled, first, number));
        is_new
    }

    /// Returns the digest of the names under an id, when it is forgotten, and its outcome.
    pub(super) fn get(&self, id: u64, now_ns: u64) -> Option<(u64, u64, Outcome)> {
        let is_it = |&number: &u32| id_of(&self.settled, self.first, number) == id;
        let &number = self.index.find(id, is_it)?;
        let packed = self.settled.get(place(self.first, number))?;
        let due_ns = u64::from(packed.due_s).saturating_mul(SECOND_NS);
        if due_ns <= now_ns {
            return None;
        }
        let outcome = unpack(packed.outcome).or_else(|| {
            let (_, outcome) = self.large.find(id, |(known, _)| *known == id)?;
            Some(outcome.clone())
        })?;
        Some((packed.names.into(), due_ns, outcome))
    }

    /// Calls `act` with at most `max` outcomes, from a number on: the digests of the id and of the
    /// names, the instant at which it is forgotten, and the outcome. Returns the next number, or
    /// `None` at the end.
    pub(super) fn each_of(
        &self,
        from: Option<u32>,
        max: usize,
        mut act: impl FnMut(u64, u64, u64, Outcome),
    ) -> Option<u32> {
        // What is forgotten meanwhile leaves from the front.
        let from = from.map_or(0, |number| place(self.first, number));
        let from = if from > self.settled.len() { 0 } else { from };
        for at in from..from.saturating_add(max).min(self.settled.len()) {
            let number = self.first.wrapping_add(u32::try_from(at).unwrap_or(u32::MAX));
            let id = id_of(&self.settled, self.first, number);
            // One that was replaced counts no more.
            if self.index.find(id, |&known| known == number).is_some()
                && let Some((names, due_ns, outcome)) = self.get(id, 0)
            {
                act(id, names, due_ns, outcome);
            }
        }
        let next = from.saturating_add(max);
        let number = self.first.wrapping_add(u32::try_from(next).unwrap_or(u32::MAX));
        (next < self.settled.len()).then_some(number)
    }

    /// Forgets an id. Returns `true` if it was known.
    pub(super) fn remove(&mut self, id: u64) -> bool {
        let (settled, first) = (&self.settled, self.first);
        let is_it = |&number: &u32| id_of(settled, first, number) == id;
        let Ok(known) = self.index.find_entry(id, is_it) else { return false };
        known.remove();
        self.remove_large(id);
        true
    }

    fn remove_large(&mut self, id: u64) {
        if let Ok(outcome) = self.large.find_entry(id, |(known, _)| *known == id) {
            outcome.remove();
        }
    }

    /// Forgets at most `max` of those whose time is over. Returns the number of ids forgotten, and
    /// `true` if there are more.
    pub(super) fn forget(&mut self, now_ns: u64, max: usize) -> (usize, bool) {
        let mut forgotten = 0_usize;
        for _ in 0..max {
            let Some(&packed) = self.settled.front().filter(|packed| packed.is_over(now_ns)) else {
                return (forgotten, false);
            };
            let (id, first) = (packed.id(), self.first);
            if let Ok(known) = self.index.find_entry(id, |&number| number == first) {
                known.remove();
                self.remove_large(id);
                forgotten = forgotten.saturating_add(1);
            }
            self.settled.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        (forgotten, true)
    }
}

impl Packed {
    fn id(self) -> u64 {
        let [high, low] = self.id;
        u64::from(high) << 32 | u64::from(low)
    }

    fn is_over(self, now_ns: u64) -> bool {
        u64::from(self.due_s).saturating_mul(SECOND_NS) <= now_ns
    }
}

/// Returns the place of a settlement by its number.
fn place(first: u32, number: u32) -> usize {
    usize::try_from(number.wrapping_sub(first)).unwrap_or(usize::MAX)
}

fn id_of(settled: &VecDeque<Packed>, first: u32, number: u32) -> u64 {
    settled.get(place(first, number)).map_or(0, |packed| packed.id())
}

/// The bits of a number, and of the kind of a verdict.
const NUMBER: u32 = 46;
const KIND: u32 = 4;
const LARGE: [u32; 3] = [u32::MAX; 3];

fn pack(outcome: &Outcome) -> Option<[u32; 3]> {
    let (&[permits], &[verdict]) = (&*outcome.permits, &*outcome.verdicts) else { return None };
    if !outcome.usages.is_empty() || !outcome.parts.is_empty() {
        return None;
    }
    let (kind, number) = match verdict {
        Verdict::Granted => (0, 0),
        Verdict::Charged(permits) => (1, permits),
        Verdict::Refunded(permits) => (2, permits),
        Verdict::Cancelled(permits) => (3, permits),
        Verdict::Late(permits) => (4, permits),
        Verdict::Committed(Settled::Even) => (5, 0),
        Verdict::Committed(Settled::Back { permits }) => (6, permits),
        Verdict::Committed(Settled::Owed { permits, forgiven: 0 }) => (7, permits),
        _ => return None,
    };
    if (permits | number) >> NUMBER != 0 {
        return None;
    }
    let all = u128::from(permits) << NUMBER | u128::from(number);
    let all = all << KIND | kind;
    Some(
        [all >> 64, all >> 32, all]
            .map(|word| u32::try_from(word & u128::from(u32::MAX)).unwrap_or(0)),
    )
}

fn unpack(words: [u32; 3]) -> Option<Outcome> {
    let all = words.iter().fold(0_u128, |all, &word| all << 32 | u128::from(word));
    let number = |bits: u128| u64::try_from(bits & ((1 << NUMBER) - 1)).unwrap_or(0);
    let (permits, permits_back) = (number(all >> (NUMBER + KIND)), number(all >> KIND));
    let verdict = match all & ((1 << KIND) - 1) {
        0 => Verdict::Granted,
        1 => Verdict::Charged(permits_back),
        2 => Verdict::Refunded(permits_back),
        3 => Verdict::Cancelled(permits_back),
        4 => Verdict::Late(permits_back),
        5 => Verdict::Committed(Settled::Even),
        6 => Verdict::Committed(Settled::Back { permits: permits_back }),
        7 => Verdict::Committed(Settled::Owed { permits: permits_back, forgiven: 0 }),
        _ => return None,
    };
    let (permits, verdicts) = (smallvec![permits], smallvec![verdict]);
    Some(Outcome { permits, usages: Usages::default(), verdicts, parts: Vec::new() })
}

fn words(digest: u64) -> [u32; 2] {
    [low(digest >> 32), low(digest)]
}

/// Returns the lower half of a digest.
fn low(digest: u64) -> u32 {
    u32::try_from(digest & u64::from(u32::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(permits: &[u64], verdicts: &[Verdict]) -> Outcome {
        let (permits, verdicts) = (permits.into(), verdicts.into());
        Outcome { permits, usages: Usages::default(), verdicts, parts: Vec::new() }
    }

    #[test]
    fn an_id_takes_28_bytes_and_its_index() {
        assert_eq!(size_of::<Packed>(), 28);
    }

    #[test]
    fn each_outcome_comes_back_as_it_was() {
        let max = (1 << NUMBER) - 1;
        let owed = |permits, forgiven| Verdict::Committed(Settled::Owed { permits, forgiven });
        let mut all = Vec::new();
        for number in [0, 1, max, max + 1, u64::MAX] {
            let back = Verdict::Committed(Settled::Back { permits: number });
            let verdicts = [
                Verdict::Granted,
                Verdict::Charged(number),
                Verdict::Refunded(number),
                Verdict::Cancelled(number),
                Verdict::Late(number),
                Verdict::Committed(Settled::Even),
                back,
                owed(number, 0),
                owed(number, 3),
                Verdict::Reset,
                Verdict::Denied { retry_after_ns: None, enforced: true },
            ];
            all.extend(verdicts.map(|verdict| outcome(&[number], &[verdict])));
            all.push(outcome(&[number, 1], &[back, Verdict::Granted]));
        }
        all.push(outcome(&[], &[]));
        let mut settlements = Settlements::default();
        let id = |at: usize| (u64::try_from(at).unwrap() + 1) << 40 | 7;
        for (at, outcome) in all.iter().enumerate() {
            assert!(settlements.add(id(at), at as u64, 10 * SECOND_NS, outcome.clone()));
        }
        for (at, outcome) in all.iter().enumerate() {
            let known = settlements.get(id(at), SECOND_NS);
            assert_eq!(known, Some((at as u64, 10 * SECOND_NS, outcome.clone())));
        }
        assert_eq!(settlements.get(id(all.len()), 0), None);
        assert_eq!(settlements.forget(10 * SECOND_NS, 1_000), (all.len(), false));
        assert!(settlements.index.is_empty() && settlements.large.is_empty());
    }

    #[test]
    fn ids_are_forgotten_at_their_time_and_a_new_one_of_the_same_name_is_not() {
        let mut settlements = Settlements { first: u32::MAX - 2, ..Settlements::default() };
        let granted = |permits| outcome(&[permits], &[Verdict::Granted]);
        for id in 1..=6 {
            assert!(settlements.add(id, 0, id * SECOND_NS, granted(id)));
        }
        assert!(!settlements.add(2, 9, 7 * SECOND_NS, granted(20)), "known");
        assert_eq!(settlements.index.len(), 6);
        assert_eq!(settlements.get(1, SECOND_NS), None, "its time is over");
        assert_eq!(settlements.forget(3 * SECOND_NS, 2), (1, true));
        assert_eq!(settlements.forget(3 * SECOND_NS, 2), (1, false));
        assert_eq!(settlements.get(2, 0), Some((9, 7 * SECOND_NS, granted(20))));
        assert_eq!(settlements.get(4, 0).map(|(_, _, outcome)| outcome), Some(granted(4)));
        assert!(settlements.remove(5) && !settlements.remove(5));
        assert_eq!(settlements.forget(u64::MAX, 100), (3, false));
        assert_eq!(settlements.index.len(), 0);
    }
}
