//! The table of keys on a manual clock: its decisions, its evictions and its capacity.

mod capacity;
mod crowd;
mod holds;
mod kinds;
mod oracle;
mod others;
mod spill;
mod stale_values;
mod status;
mod verbs;
mod waiting;

use rategate::error::KeyedError;
use rategate::keyed::{Capacity, Key, Overflow};
use rategate::{AnyPolicy, Decision, Gcra, Keyed, ManualClock};
use rategate_testkit::ns;

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

fn bucket(rate: &str, burst: u64) -> Gcra {
    Gcra::new(rate.parse().unwrap(), burst).unwrap()
}

/// Returns a table on a clock of its own.
fn table<K: Key + ?Sized>(
    policy: impl Into<AnyPolicy>,
    max_keys: usize,
    overflow: Overflow,
) -> (Keyed<K, ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    let capacity = Capacity::for_keys(max_keys).or_else(overflow);
    (Keyed::with_clock(policy, capacity, clock.clone()), clock)
}

fn outcome(decision: Decision) -> (bool, u64) {
    match decision {
        Decision::Granted(_) => (true, 0),
        Decision::Denied(denial) => (false, denial.retry_after().map_or(0, ns)),
    }
}

/// Returns `true` if one permit passes, or `None` if the table has no capacity.
fn passes<K: Key + ?Sized>(keyed: &Keyed<K, ManualClock>, key: &K) -> Option<bool> {
    match keyed.try_acquire(key, 1) {
        Ok(decision) => Some(decision.is_granted()),
        Err(KeyedError::TableFull) => None,
        Err(error) => panic!("{error}"),
    }
}
