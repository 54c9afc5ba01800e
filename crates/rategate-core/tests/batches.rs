//! Batches of a token bucket over a change of its numbers: what comes back is what the limit still
//! lacks, and nothing that time has made up for.

#![cfg(not(any(loom, rategate_without_atomics)))]
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

mod common;

use common::{MS, rate};
use rategate_core::concurrent::{Concurrent, Draw, Drawn, Twin, gcra};
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;

const BURST: u64 = 100;

fn bucket(text: &str) -> Gcra {
    Gcra::new(rate(text), BURST).unwrap()
}

fn drawn(twin: &gcra::Bucket, now_ns: u64) -> Drawn {
    match twin.draw(|| now_ns, 10, 10) {
        Draw::Taken(drawn) => drawn,
        other => panic!("{other:?}"),
    }
}

/// Gives ten permits back, and returns how many have come.
fn returned(ledger: &mut Ledger<Gcra>, twin: &gcra::Bucket, now_ns: u64, drawn: Drawn) -> u64 {
    let before = twin.remaining(now_ns).unwrap();
    ledger.seal(twin);
    ledger.give_back(twin, now_ns, drawn, 10);
    ledger.open(twin, now_ns);
    twin.remaining(now_ns).unwrap() - before
}

/// Of ten permits two have been earned again when the numbers change, and what others took behind them
/// does not bring those back.
#[test]
fn a_batch_comes_back_as_of_the_change() {
    let mut ledger = Ledger::new(bucket("1000/s"), 0);
    let twin = ledger.twin(0);
    let batch = drawn(&twin, 0);
    let _ = drawn(&twin, 0);
    ledger.change(&twin, || 2 * MS, bucket("500/s"));
    assert_eq!(twin.remaining(2 * MS), Some(BURST - 18));
    assert_eq!(returned(&mut ledger, &twin, 2 * MS, batch), 8);

    // By the new rate one more is earned each 2 ms.
    let mut ledger = Ledger::new(bucket("1000/s"), 0);
    let twin = ledger.twin(0);
    let batch = drawn(&twin, 0);
    ledger.change(&twin, || 2 * MS, bucket("500/s"));
    let _ = drawn(&twin, 12 * MS);
    assert_eq!(returned(&mut ledger, &twin, 12 * MS, batch), 3);
}

/// After a change under the lock it is not known when the numbers changed: none of before comes back,
/// also where an earlier change was noted.
#[test]
fn a_change_under_the_lock_ends_all_batches() {
    for had_changed in [false, true] {
        let mut ledger = Ledger::new(bucket("1000/s"), 0);
        let twin = ledger.twin(0);
        if had_changed {
            let _ = drawn(&twin, 0);
            ledger.change(&twin, || 0, bucket("2000/s"));
        }
        let batch = drawn(&twin, 0);
        ledger.seal(&twin);
        ledger.reconfigure(2 * MS, bucket("500/s"));
        ledger.open(&twin, 2 * MS);
        assert_eq!(returned(&mut ledger, &twin, 2 * MS, batch), 0, "changed: {had_changed}");
    }
}

/// A batch of two changes before has nothing to come back either.
#[test]
fn a_second_change_ends_the_batches_of_the_first() {
    let mut ledger = Ledger::new(bucket("1000/s"), 0);
    let twin = ledger.twin(0);
    let batch = drawn(&twin, 0);
    ledger.change(&twin, || MS, bucket("500/s"));
    ledger.change(&twin, || 2 * MS, bucket("1000/s"));
    assert_eq!(returned(&mut ledger, &twin, 2 * MS, batch), 0);
}
