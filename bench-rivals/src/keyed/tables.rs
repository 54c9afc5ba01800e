//! The tables that are compared. Their buckets of 30 million always have a permit, and a key that
//! has taken a thousand stays live for a quarter of an hour.

use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use governor::clock::DefaultClock;
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use rategate::keyed::{Capacity, Hashing};
use rategate::wait::{CancelToken, Wake};
use rategate::{Clock, Gcra, Keyed, MonotonicClock, Rate};
use rategate_bench::engines::Made;
use rategate_bench::harness::Contender;

use super::draws::{AT_ONCE, Draws};

/// The burst of a bucket, at one permit a second.
pub(super) const BURST: u32 = 30_000_000;
/// The permits that a key has taken before; it is not evicted for as many seconds.
pub(super) const TAKEN: u32 = 1_000;

pub(super) type Ours<K, C = MonotonicClock> = Keyed<K, Gcra, C>;
pub(super) type Governor<K, C = DefaultClock> =
    RateLimiter<K, DashMapStateStore<K>, C, NoOpMiddleware<<C as governor::clock::Clock>::Instant>>;

/// Creates our table for `keys` keys, all with the same limit.
pub(super) fn ours<K, C>(keys: u32, hashing: Hashing, clock: C) -> Made<Ours<K, C>>
where
    K: rategate::keyed::Key + ?Sized,
    C: Clock + Clone,
{
    let policy = Gcra::new(Rate::per_second(1), BURST.into())?;
    Ok(Keyed::with_hashing(policy, Capacity::for_keys(keys as usize), hashing, clock))
}

/// Returns the same bucket as a quota of governor.
pub(super) fn quota() -> Quota {
    let burst = NonZeroU32::new(BURST).unwrap_or(NonZeroU32::MIN);
    Quota::per_second(NonZeroU32::MIN).allow_burst(burst)
}

pub(super) fn governor<K: Hash + Eq + Clone>() -> Governor<K> {
    RateLimiter::keyed(quota())
}

/// Takes permits of `key`. Returns `true` if they were granted.
#[inline]
pub(super) fn took<C: Clock + Clone>(table: &Ours<u64, C>, key: u64, permits: u64) -> bool {
    table.try_acquire(&key, permits).is_ok_and(|decision| decision.is_granted())
}

/// A clock that is set by hand, and costs almost nothing to read.
#[derive(Clone, Debug, Default)]
pub(super) struct HandClock(Arc<AtomicU64>);

impl HandClock {
    pub(super) fn set(&self, now_ns: u64) {
        self.0.store(now_ns, Ordering::Relaxed);
    }
}

impl Clock for HandClock {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn wait(&self, until_ns: u64, _cancel: &CancelToken) -> Wake {
        self.0.fetch_max(until_ns, Ordering::Relaxed);
        Wake::Due
    }
}

/// The table that people write by hand: a map of instants behind a lock.
#[derive(Debug)]
pub(super) struct LockedMap {
    from: Instant,
    /// The instant at which each bucket will be full, in nanoseconds since `from`.
    full_ns: Mutex<HashMap<u64, u64>>,
}

impl LockedMap {
    pub(super) fn new() -> Self {
        Self { from: Instant::now(), full_ns: Mutex::default() }
    }

    pub(super) fn took(&self, key: u64, permits: u32) -> bool {
        const PERMIT_NS: u64 = 1_000_000_000;
        let mut map = self.full_ns.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ns = u64::try_from(self.from.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let full_ns = map.entry(key).or_insert(now_ns);
        let after_ns = (*full_ns).max(now_ns) + PERMIT_NS * u64::from(permits);
        let is_granted = after_ns - now_ns <= PERMIT_NS * u64::from(BURST);
        if is_granted {
            *full_ns = after_ns;
        }
        is_granted
    }
}

/// A block of as much memory as a table takes, in which threads only count.
#[derive(Debug)]
pub(super) struct Lines {
    words: Box<[AtomicU64]>,
}

/// The number of words of one cache line.
const LINE: usize = 8;
/// The number of lines that are loaded before the first is used.
const BATCH: usize = 16;

impl Lines {
    /// Allocates twenty bytes for each key.
    pub(super) fn new(keys: u32) -> Self {
        let words = keys as usize * 20 / 8 + LINE;
        Self { words: (0..words as u64).map(AtomicU64::new).collect() }
    }

    #[inline]
    fn line(&self, key: u64) -> &AtomicU64 {
        let lines = (self.words.len() / LINE) as u64;
        // The upper half of a key is as good as random.
        let line = ((key >> 32) * lines) >> 32;
        self.words.get(line as usize * LINE).expect("a line within the memory")
    }

    #[inline]
    fn swap(word: &AtomicU64, mut seen: u64, step: u64) {
        while let Err(newer) = word.compare_exchange_weak(
            seen,
            seen.wrapping_add(step | 1),
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            seen = newer;
        }
    }

    /// Reads the counter and swaps a word somewhere in the memory, for each key.
    pub(super) fn one_by_one<'a>(&'a self, draws: &'a Draws) -> Contender<'a> {
        let clock = quanta::Clock::new();
        contender("one counter and far swap", draws, move |keys| {
            for &key in keys {
                let word = self.line(key);
                Self::swap(word, word.load(Ordering::Acquire), clock.raw());
            }
            true
        })
    }

    /// Does so for sixteen keys at a time: all words are loaded before the first swap.
    pub(super) fn together<'a>(&'a self, draws: &'a Draws) -> Contender<'a> {
        let clock = quanta::Clock::new();
        contender("16 far swaps, loads first", draws, move |keys| {
            for keys in keys.chunks(BATCH) {
                let mut seen = [0; BATCH];
                for (seen, &key) in seen.iter_mut().zip(keys) {
                    *seen = self.line(key).load(Ordering::Acquire);
                }
                let step = clock.raw();
                for (&seen, &key) in seen.iter().zip(keys) {
                    Self::swap(self.line(key), seen, step);
                }
            }
            true
        })
    }
}

/// Reads nothing but the clock, for as many keys.
pub(super) fn counter(draws: &Draws) -> Contender<'_> {
    let clock = quanta::Clock::new();
    contender("one counter", draws, move |keys| {
        keys.iter().all(|&key| std::hint::black_box(clock.raw() ^ key) != 0)
    })
}

/// Returns a contender whose call serves [`AT_ONCE`] keys.
pub(super) fn contender<'a>(
    name: &str,
    draws: &'a Draws,
    call: impl Fn(&[u64; AT_ONCE]) -> bool + Send + Sync + 'a,
) -> Contender<'a> {
    Contender::with_state(name, || draws.cursor(), move |cursor| call(&cursor.take()))
}

/// Returns the nanoseconds since an instant.
pub(super) fn ns_since(from: Instant) -> f64 {
    from.elapsed().max(Duration::from_nanos(1)).as_secs_f64() * 1e9
}
