//! Tests of credits for a token bucket's batches: what the limit still lacks, without what time has
//! earned again.

use crate::common::{MS, rate};
use rategate_core::concurrent::{BatchVerdict, Fast, PermitBatch};
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;

const BURST: u64 = 100;

fn bucket(text: &str) -> Gcra {
    Gcra::new(rate(text), BURST).unwrap()
}

fn taken_batch(lock_free: &Fast, now_ns: u64) -> PermitBatch {
    match lock_free.take_batch(|| now_ns, 10, 10) {
        BatchVerdict::Taken(taken_batch) => taken_batch,
        other => panic!("{other:?}"),
    }
}

/// Credits ten permits. Returns how many were accepted.
fn returned(ledger: &mut Ledger, lock_free: &Fast, now_ns: u64, taken_batch: PermitBatch) -> u64 {
    let before = lock_free.remaining(now_ns).unwrap();
    ledger.seal(lock_free);
    ledger.return_batch(lock_free, now_ns, taken_batch, 10);
    ledger.open(lock_free, now_ns);
    lock_free.remaining(now_ns).unwrap() - before
}

/// Of ten permits two have been earned again, whatever others have taken behind them.
#[test]
fn a_batch_comes_back_without_what_time_has_made_up_for() {
    let mut ledger = Ledger::new(bucket("1000/s"), 0);
    let lock_free = ledger.lock_free(0);
    let batch = taken_batch(&lock_free, 0);
    let _ = taken_batch(&lock_free, 0);
    assert_eq!(returned(&mut ledger, &lock_free, 2 * MS, batch), 8);
}

/// No batch comes back across a change of the numbers, by the lock-free form or under the lock.
#[test]
fn a_change_ends_all_batches() {
    for under_the_lock in [false, true] {
        let mut ledger = Ledger::new(bucket("1000/s"), 0);
        let lock_free = ledger.lock_free(0);
        let batch = taken_batch(&lock_free, 0);
        if under_the_lock {
            ledger.seal(&lock_free);
            ledger.reconfigure(2 * MS, bucket("500/s")).unwrap();
            ledger.open(&lock_free, 2 * MS);
        } else {
            ledger.change(&lock_free, || 2 * MS, bucket("500/s")).unwrap();
        }
        assert_eq!(returned(&mut ledger, &lock_free, 2 * MS, batch), 0, "{under_the_lock}");
    }
}

/// What comes back meanwhile counts against a batch: the limit may have been at rest without it.
#[test]
fn a_credit_counts_against_the_batches_before_it() {
    let mut ledger = Ledger::new(bucket("1000/s"), 0);
    let lock_free = ledger.lock_free(0);
    let _ = taken_batch(&lock_free, 0);
    let batch = taken_batch(&lock_free, 0);
    ledger.seal(&lock_free);
    assert_eq!(ledger.credit(0, 10), 10);
    ledger.open(&lock_free, 0);
    let _ = taken_batch(&lock_free, 10 * MS);
    assert_eq!(returned(&mut ledger, &lock_free, 10 * MS, batch), 0);
}
