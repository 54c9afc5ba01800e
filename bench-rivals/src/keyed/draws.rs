//! The keys in the order of their requests: generated before anything is timed, and the same for
//! all.

use std::sync::atomic::{AtomicUsize, Ordering};

use fastrand::Rng;

/// The number of keys that one call of a contender serves, so that the harness around them does
/// not count.
pub(super) const AT_ONCE: usize = 64;

/// The exponent of Zipf's law that is usual in measurements of caches.
const SKEW: f64 = 0.99;

/// A sequence of keys. Each thread begins to read after the start of the previous one.
#[derive(Debug)]
pub(super) struct Draws {
    numbers: Box<[u32]>,
    begins: AtomicUsize,
}

/// One thread's position in the sequence.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    draws: &'a Draws,
    at: usize,
}

/// Returns the key of a number: all are different, and neighbours are far apart.
#[inline]
pub(super) fn key(number: u32) -> u64 {
    u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Draws {
    /// Returns a sequence in which every key is equally frequent.
    pub(super) fn uniform(keys: u32, draws: usize) -> Self {
        let mut random = Rng::with_seed(1);
        Self::of((0..draws).map(|_| random.u32(..keys)))
    }

    /// Returns a sequence with the `k`-th key in proportion to `1 / k^0.99`, by the formula of
    /// Gray and others (1994).
    pub(super) fn zipf(keys: u32, draws: usize) -> Self {
        let mut random = Rng::with_seed(2);
        let zeta = |n: u32| (1..=n).map(|k| f64::from(k).powf(-SKEW)).sum::<f64>();
        let (two, all, n) = (zeta(2), zeta(keys), f64::from(keys));
        let eta = (1.0 - (2.0 / n).powf(1.0 - SKEW)) / (1.0 - two / all);
        Self::of((0..draws).map(|_| {
            let fraction = random.f64();
            match fraction * all {
                rank if rank < 1.0 => 0,
                rank if rank < two => 1,
                _ => {
                    let index = n * (eta * fraction - eta + 1.0).powf(1.0 / (1.0 - SKEW));
                    (index as u32).min(keys - 1)
                }
            }
        }))
    }

    fn of(numbers: impl Iterator<Item = u32>) -> Self {
        Self { numbers: numbers.collect(), begins: AtomicUsize::new(0) }
    }

    /// Returns a position of its own for a thread, where no thread has been for long.
    pub(super) fn cursor(&self) -> Cursor<'_> {
        // A step that leads to all parts of the sequence.
        let step = self.numbers.len() / 7 * 3 + AT_ONCE;
        let at = self.begins.fetch_add(step, Ordering::Relaxed) % (self.numbers.len() - AT_ONCE);
        Cursor { draws: self, at }
    }
}

impl Cursor<'_> {
    /// Returns the next keys.
    #[inline]
    pub(super) fn take(&mut self) -> [u64; AT_ONCE] {
        let all = &self.draws.numbers;
        if self.at + AT_ONCE > all.len() {
            self.at = 0;
        }
        let mut keys = [0; AT_ONCE];
        for (to, &number) in keys.iter_mut().zip(all.get(self.at..).unwrap_or_default()) {
            *to = key(number);
        }
        self.at += AT_ONCE;
        keys
    }
}
