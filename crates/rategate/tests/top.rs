//! The laws of the space-saving sketch, compared with exact counts.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

use std::collections::HashMap;

use rategate::stats::{MOST_RANKED, Top};

/// The generator of Steele, Lea and Flood, with equal numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The exact weight of each key, and of all keys.
#[derive(Clone, Default)]
struct Exact {
    of: HashMap<u64, u64>,
    total: u64,
}

impl Exact {
    fn add(&mut self, key: u64, weight: u64) {
        if weight > 0 {
            *self.of.entry(key).or_default() += weight;
        }
        self.total += weight;
    }
}

/// Checks the promises of a sketch of `most` keys for a stream.
fn keeps_its_laws(top: &Top<u64>, exact: &Exact, most: usize) {
    let share = exact.total / u64::try_from(most).unwrap();
    assert!(top.ranked().len() <= most);
    assert!(top.floor() <= share, "{} > {share}", top.floor());
    keeps_its_word(top, exact);
}

/// Checks the sketch's own report about each key, listed or not.
fn keeps_its_word(top: &Top<u64>, exact: &Exact) {
    let ranked = top.ranked();
    assert_eq!(top.total(), exact.total);
    assert!(ranked.is_sorted_by(|one, next| one.count >= next.count));
    for key in &ranked {
        let weight = exact.of.get(&key.key).copied().unwrap_or(0);
        assert!(weight <= key.count, "{key:?} has {weight}");
        assert!(key.count - key.error <= weight, "{key:?} has {weight}");
    }
    for (key, &weight) in &exact.of {
        let is_there = ranked.iter().any(|ranked| ranked.key == *key);
        assert!(is_there || weight <= top.floor(), "{key} with {weight} is not there");
    }
}

/// Draws a key by Zipf's law: key `n` comes about `1 / n` as often as the first. The share below
/// which a draw falls is the inverse of a logarithm.
fn zipf(random: &mut Random) -> u64 {
    let bits = random.below(12);
    (1 << bits) + random.below(1 << bits)
}

/// Returns streams of every mixture: the capacity of the sketch, and keys with their weights.
fn streams() -> impl Iterator<Item = (usize, Vec<(u64, u64)>)> {
    let rooms = [(1, 2), (2, 2), (3, 6), (7, 1_000), (16, 32), (64, 64), (64, 1_000)];
    let mixtures =
        rooms.into_iter().flat_map(|room| [1, 2, 1_000].map(|heaviest| (room, heaviest)));
    let mixtures = mixtures.flat_map(|mixture| [true, false].map(|is_skewed| (mixture, is_skewed)));
    (0..).zip(mixtures).map(|(seed, (((most, keys), heaviest), is_skewed))| {
        let mut random = Random(seed);
        let stream = (0..3_000).map(|_| {
            let key = if is_skewed { zipf(&mut random) } else { random.below(keys) };
            (key, random.below(heaviest + 1))
        });
        (most, stream.collect())
    })
}

#[test]
fn the_laws_hold_at_every_step() {
    for (most, stream) in streams() {
        let (mut top, mut exact) = (Top::new(most), Exact::default());
        for (step, (key, weight)) in stream.into_iter().enumerate() {
            top.add(key, weight);
            exact.add(key, weight);
            if step < 100 || step % 97 == 0 {
                keeps_its_laws(&top, &exact, most);
            }
        }
        keeps_its_laws(&top, &exact, most);
    }
}

/// Until the sketch is full, nothing is lost; the counts of a full one sum up to the total.
#[test]
fn the_counts_sum_up() {
    for (most, stream) in streams() {
        let (mut top, mut exact) = (Top::new(most), Exact::default());
        for (key, weight) in stream {
            top.add(key, weight);
            exact.add(key, weight);
            let ranked = top.ranked();
            assert_eq!(ranked.iter().map(|key| key.count).sum::<u64>(), exact.total);
            if exact.of.len() <= most {
                assert!(ranked.iter().all(|key| key.error == 0 && exact.of[&key.key] == key.count));
                assert_eq!(ranked.len(), exact.of.len());
            }
        }
    }
}

/// Merged sketches of a split stream keep the laws for the whole stream, and go on to as it
/// continues.
#[test]
fn merged_sketches_keep_the_laws() {
    for (most, stream) in streams() {
        for parts in [2_usize, 3, 8] {
            let mut random = Random(7);
            let mut tops = vec![Top::new(most); parts];
            let mut exact = Exact::default();
            let width = u64::try_from(parts).unwrap();
            for (step, &(key, weight)) in (0_u64..).zip(&stream) {
                // The stream is split by rotation, by chance, or by key.
                let part = [step % width, random.below(width), key % width][most % 3];
                tops[usize::try_from(part).unwrap()].add(key, weight);
                exact.add(key, weight);
            }
            let mut sum = Top::new(most);
            for top in &tops {
                sum.merge(top);
            }
            keeps_its_laws(&sum, &exact, most);
            for &(key, weight) in &stream[..500] {
                sum.add(key, weight);
                exact.add(key, weight);
            }
            keeps_its_laws(&sum, &exact, most);
        }
    }
}

/// A large sketch that merges a small one has capacity left, and accounts for what the small one
/// missed.
#[test]
fn a_smaller_sketch_can_be_merged() {
    for (most, stream) in streams() {
        let (mut large, mut small) = (Top::new(500), Top::new(most));
        let mut exact = Exact::default();
        for (step, &(key, weight)) in stream.iter().enumerate() {
            let top = if step % 2 == 0 { &mut large } else { &mut small };
            top.add(key, weight);
            exact.add(key, weight);
        }
        large.merge(&small);
        keeps_its_word(&large, &exact);
        for &(key, weight) in &stream[..500] {
            large.add(key, weight);
            exact.add(key, weight);
        }
        keeps_its_word(&large, &exact);
        let mut sum = Top::new(most);
        sum.merge(&large);
        keeps_its_word(&sum, &exact);
    }
}

#[test]
fn the_same_stream_gives_the_same_sketch() {
    for (most, stream) in streams() {
        let sketch = || {
            let mut top = Top::new(most);
            for &(key, weight) in &stream {
                top.add(key, weight);
            }
            let mut sum = top.clone();
            sum.merge(&top);
            (top.ranked(), sum.ranked())
        };
        assert_eq!(sketch(), sketch());
    }
}

#[test]
fn the_ends() {
    let mut top = Top::new(0);
    top.add(1, 0);
    assert!(top.ranked().is_empty() && top.total() == 0 && top.floor() == 0);
    top.add(1, u64::MAX);
    top.add(1, u64::MAX);
    top.add(2, 5);
    assert_eq!((top.ranked()[0].key, top.ranked()[0].count), (2, u64::MAX));
    let mut wide = Top::new(usize::MAX);
    (0..10_000).for_each(|key| wide.add(key, 1));
    assert_eq!(wide.ranked().len(), MOST_RANKED);
}
