//! The laws of the space-saving sketch, compared with exact counts.

use std::collections::HashMap;

use fastrand::Rng;
use rategate::stats::{MAX_RANKED, Top};

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

/// Checks the promises of a sketch of `max_keys` keys for a stream.
fn check_laws(top: &Top<u64>, exact: &Exact, max_keys: usize) {
    let share = exact.total / u64::try_from(max_keys).unwrap();
    assert!(top.ranked().len() <= max_keys);
    assert!(top.floor() <= share, "{} > {share}", top.floor());
    check_bounds(top, exact);
}

/// Checks the sketch's own report about each key, listed or not.
fn check_bounds(top: &Top<u64>, exact: &Exact) {
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
fn zipf(random: &mut Rng) -> u64 {
    let bits = random.u64(..12);
    (1 << bits) + random.u64(..1 << bits)
}

/// Returns streams of every mixture: the capacity of the sketch, and keys with their weights.
fn streams() -> impl Iterator<Item = (usize, Vec<(u64, u64)>)> {
    let sizes = [(1, 2), (2, 2), (3, 6), (7, 1_000), (16, 32), (64, 64), (64, 1_000)];
    let mixtures =
        sizes.into_iter().flat_map(|size| [1, 2, 1_000].map(|heaviest| (size, heaviest)));
    let mixtures = mixtures.flat_map(|mixture| [true, false].map(|is_skewed| (mixture, is_skewed)));
    (0..).zip(mixtures).map(|(seed, (((max_keys, keys), heaviest), is_skewed))| {
        let mut random = Rng::with_seed(seed);
        let stream = (0..3_000).map(|_| {
            let key = if is_skewed { zipf(&mut random) } else { random.u64(..keys) };
            (key, random.u64(..=heaviest))
        });
        (max_keys, stream.collect())
    })
}

#[test]
fn the_laws_hold_at_every_step() {
    for (max_keys, stream) in streams() {
        let (mut top, mut exact) = (Top::new(max_keys), Exact::default());
        for (step, (key, weight)) in stream.into_iter().enumerate() {
            top.add(key, weight);
            exact.add(key, weight);
            if step < 100 || step % 97 == 0 {
                check_laws(&top, &exact, max_keys);
            }
        }
        check_laws(&top, &exact, max_keys);
    }
}

/// Until the sketch is full, nothing is lost; the counts of a full one sum up to the total.
#[test]
fn the_counts_sum_up() {
    for (max_keys, stream) in streams() {
        let (mut top, mut exact) = (Top::new(max_keys), Exact::default());
        for (key, weight) in stream {
            top.add(key, weight);
            exact.add(key, weight);
            let ranked = top.ranked();
            assert_eq!(ranked.iter().map(|key| key.count).sum::<u64>(), exact.total);
            if exact.of.len() <= max_keys {
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
    for (max_keys, stream) in streams() {
        for shares in [2_usize, 3, 8] {
            let mut random = Rng::with_seed(7);
            let mut tops = vec![Top::new(max_keys); shares];
            let mut exact = Exact::default();
            let width = u64::try_from(shares).unwrap();
            for (step, &(key, weight)) in (0_u64..).zip(&stream) {
                // The stream is split by rotation, by chance, or by key.
                let share_of = [step % width, random.u64(..width), key % width][max_keys % 3];
                tops[usize::try_from(share_of).unwrap()].add(key, weight);
                exact.add(key, weight);
            }
            let mut sum = Top::new(max_keys);
            for top in &tops {
                sum.merge(top);
            }
            check_laws(&sum, &exact, max_keys);
            for &(key, weight) in &stream[..500] {
                sum.add(key, weight);
                exact.add(key, weight);
            }
            check_laws(&sum, &exact, max_keys);
        }
    }
}

/// A large sketch that merges a small one has capacity left, and accounts for what the small one
/// missed.
#[test]
fn a_smaller_sketch_can_be_merged() {
    for (max_keys, stream) in streams() {
        let (mut large, mut small) = (Top::new(500), Top::new(max_keys));
        let mut exact = Exact::default();
        for (step, &(key, weight)) in stream.iter().enumerate() {
            let top = if step % 2 == 0 { &mut large } else { &mut small };
            top.add(key, weight);
            exact.add(key, weight);
        }
        large.merge(&small);
        check_bounds(&large, &exact);
        for &(key, weight) in &stream[..500] {
            large.add(key, weight);
            exact.add(key, weight);
        }
        check_bounds(&large, &exact);
        let mut sum = Top::new(max_keys);
        sum.merge(&large);
        check_bounds(&sum, &exact);
    }
}

#[test]
fn the_same_stream_gives_the_same_sketch() {
    for (max_keys, stream) in streams() {
        let sketch = || {
            let mut top = Top::new(max_keys);
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
    assert_eq!(wide.ranked().len(), MAX_RANKED);
}
