//! Tests of credits for a token bucket's batches after a change of its numbers: the credit is
//! what the limit still lacks, without what time has earned again.

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

/// A batch is credited as of the change, without the permits earned again before it.
///
/// Of ten permits two have been earned again when the numbers change. Grants to other callers
/// behind them do not bring those back.
#[test]
fn a_batch_comes_back_as_of_the_change() {
    let mut ledger = Ledger::new(bucket("1000/s"), 0);
    let lock_free = ledger.lock_free(0);
    let batch = taken_batch(&lock_free, 0);
    let _ = taken_batch(&lock_free, 0);
    ledger.change(&lock_free, || 2 * MS, bucket("500/s")).unwrap();
    assert_eq!(lock_free.remaining(2 * MS), Some(BURST - 18));
    assert_eq!(returned(&mut ledger, &lock_free, 2 * MS, batch), 8);

    // By the new rate one more is earned each 2 ms.
    let mut ledger = Ledger::new(bucket("1000/s"), 0);
    let lock_free = ledger.lock_free(0);
    let batch = taken_batch(&lock_free, 0);
    ledger.change(&lock_free, || 2 * MS, bucket("500/s")).unwrap();
    let _ = taken_batch(&lock_free, 12 * MS);
    assert_eq!(returned(&mut ledger, &lock_free, 12 * MS, batch), 3);
}

/// After a change under the lock, no earlier batch is credited, because the time of the change is
/// unknown.
///
/// That holds also where an earlier change was recorded.
#[test]
fn a_change_under_the_lock_ends_all_batches() {
    for had_changed in [false, true] {
        let mut ledger = Ledger::new(bucket("1000/s"), 0);
        let lock_free = ledger.lock_free(0);
        if had_changed {
            let _ = taken_batch(&lock_free, 0);
            ledger.change(&lock_free, || 0, bucket("2000/s")).unwrap();
        }
        let batch = taken_batch(&lock_free, 0);
        ledger.seal(&lock_free);
        ledger.reconfigure(2 * MS, bucket("500/s")).unwrap();
        ledger.open(&lock_free, 2 * MS);
        assert_eq!(returned(&mut ledger, &lock_free, 2 * MS, batch), 0, "changed: {had_changed}");
    }
}

/// A batch from two changes ago is not credited either.
#[test]
fn a_second_change_ends_the_batches_of_the_first() {
    let mut ledger = Ledger::new(bucket("1000/s"), 0);
    let lock_free = ledger.lock_free(0);
    let batch = taken_batch(&lock_free, 0);
    ledger.change(&lock_free, || MS, bucket("500/s")).unwrap();
    ledger.change(&lock_free, || 2 * MS, bucket("1000/s")).unwrap();
    assert_eq!(returned(&mut ledger, &lock_free, 2 * MS, batch), 0);
}
