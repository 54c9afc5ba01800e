//! The table of keys on a manual clock: its decisions, its evictions and its capacity.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

mod capacity;
mod crowd;
#[path = "../executor/mod.rs"]
mod executor;
mod fading;
mod kinds;
mod oracle;
mod others;
mod spill;
mod status;
mod verbs;
mod waiting;

use rategate::error::KeyedError;
use rategate::keyed::{Capacity, Key, Overflow};
use rategate::policy::HasLockFree;
use rategate::{Decision, Gcra, Keyed, ManualClock};
use rategate_conformance::ns;

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// An xorshift64* generator: small, seeded, good enough for traffic.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn child(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % n
    }

    fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.child(n.try_into().unwrap())).unwrap()
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }
}

fn bucket(rate: &str, burst: u64) -> Gcra {
    Gcra::new(rate.parse().unwrap(), burst).unwrap()
}

/// Returns a table on a clock of its own.
fn table<K: Key + ?Sized, P: HasLockFree>(
    policy: P,
    max_keys: usize,
    overflow: Overflow,
) -> (Keyed<K, P, ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    let capacity = Capacity::for_keys(max_keys).or_else(overflow);
    (Keyed::with_clock(policy, capacity, clock.clone()), clock)
}

fn outcome(decision: Decision) -> (bool, u64) {
    match decision {
        Decision::Granted(grant) => (true, grant.remaining()),
        Decision::Denied(denial) => (false, denial.retry_after().map_or(0, ns)),
    }
}

/// Returns `true` if one permit passes, or `None` if the table has no capacity.
fn passes<K: Key + ?Sized, P: HasLockFree>(
    keyed: &Keyed<K, P, ManualClock>,
    key: &K,
) -> Option<bool> {
    match keyed.try_acquire(key, 1) {
        Ok(decision) => Some(decision.is_granted()),
        Err(KeyedError::TableFull) => None,
        Err(error) => panic!("{error}"),
    }
}
