//! A table that is saved and restored decides as the one that went on.

use std::io::Write;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rategate::keyed::{Capacity, Hashing};
use rategate::snapshot::{Downtime, SnapshotError};
use rategate::{AnyPolicy, Clock, Gcra, Keyed, ManualClock, SlidingLog};

const S: u64 = 1_000_000_000;

fn bucket(rate: &str, burst: u64) -> Gcra {
    Gcra::new(rate.parse().unwrap(), burst).unwrap()
}

/// Returns what a table reports about a key.
fn outcome(keyed: &Keyed<u64, ManualClock>, key: u64) -> (u64, Option<Duration>, bool) {
    let (left, wait) = (keyed.remaining(&key).unwrap(), keyed.peek(&key, 2).unwrap());
    (left, wait, keyed.try_acquire(&key, 1).unwrap().is_granted())
}

/// Compares a table with its restored copy, each on a clock of its own.
fn check_continues(policies: &[impl Into<AnyPolicy> + Copy], away: Duration) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1000));
    let tier_of = |key: &u64| usize::try_from(*key % 2).unwrap();
    let ours: Keyed<u64, ManualClock> = Keyed::with_tiers(
        policies.to_vec(),
        tier_of,
        Capacity::for_keys(500),
        Hashing::FloodSafe,
        clock.clone(),
    )
    .unwrap();
    let mut reservations = Vec::new();
    for call in 0_u64..3_000 {
        let key = call * call % 211;
        if call % 7 == 0 {
            drop(ours.try_hold(&key, 1, Duration::MAX).unwrap());
        } else {
            let _ = ours.try_acquire(&key, 1).unwrap();
        }
        if call % 401 == 0 {
            reservations.extend(ours.limiter(&key).unwrap().reserve(1).ok());
        }
        clock.advance(Duration::from_nanos(S / 100));
    }
    let mut file = Vec::new();
    let written = ours.save(&mut file).unwrap();
    assert!(written <= 211 && usize::try_from(written).unwrap() <= ours.len());
    for reservation in reservations {
        let _ = reservation.keep();
    }

    let away_ns = u64::try_from(away.as_nanos()).unwrap();
    let other = ManualClock::new();
    other.advance(Duration::from_nanos(clock.now_ns() + away_ns));
    clock.advance(Duration::from_nanos(away_ns));
    let theirs = Keyed::restore_with_tiers(
        policies.to_vec(),
        tier_of,
        Capacity::for_keys(500),
        other.clone(),
        file.as_slice(),
        Downtime::Exactly(away),
    )
    .unwrap();
    // Promises count as taken, and no new call overtakes them, so those keys may have to wait
    // longer.
    let mut alike = 0;
    for round in 0..20 {
        for key in 0..211 {
            let (ideal, seen) = (outcome(&ours, key), outcome(&theirs, key));
            if ideal == seen {
                alike += 1;
            } else {
                assert!(seen.0 <= ideal.0, "key {key}, round {round}: {ideal:?}, {seen:?}");
            }
        }
        clock.advance(Duration::from_nanos(S / 3));
        other.advance(Duration::from_nanos(S / 3));
    }
    assert!(alike > 20 * 211 - 160, "{alike}");
}

/// S3.18: where all calls of a key come to one server, its state is there alone, and survives a
/// restart.
#[test]
fn a_restored_table_goes_on() {
    for away in [0, 1, 7] {
        let away = Duration::from_secs(away);
        check_continues(&[bucket("3/s", 5), bucket("1/s", 2)], away);
        check_continues(
            &[
                SlidingLog::new(3, Duration::from_nanos(2 * S)),
                SlidingLog::new(5, Duration::from_nanos(S)),
            ],
            away,
        );
        check_continues(
            &[
                SlidingLog::new(3, Duration::from_nanos(2 * S)).compact(),
                SlidingLog::new(5, Duration::from_nanos(S)).compact(),
            ],
            away,
        );
    }
}

#[test]
fn a_file_is_whole_or_refused_and_fits_or_is_refused() {
    let clock = ManualClock::new();
    let keyed: Keyed<u64, _> =
        Keyed::with_clock(bucket("1/h", 1), Capacity::default(), clock.clone());
    for key in 0..50 {
        assert!(keyed.try_acquire(&key, 1).unwrap().is_granted());
    }
    let mut file = Vec::new();
    assert_eq!(keyed.save(&mut file).unwrap(), 50);
    let restore = |policy, keys, file: &[u8]| {
        let capacity = Capacity::for_keys(keys);
        Keyed::<u64, _>::restore_with_clock(policy, capacity, clock.clone(), file, Downtime::Wall)
    };
    for length in 0..file.len() {
        assert!(restore(bucket("1/h", 1), 100, &file[..length]).is_err(), "{length}");
    }
    for at in 0..file.len() {
        let mut flipped = file.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(restore(bucket("1/h", 1), 100, &flipped).is_err(), "{at}");
    }
    assert!(matches!(
        restore(bucket("1/h", 1), 10, &file),
        Err(SnapshotError::TableFull { keys: 10 })
    ));
    let strings = Keyed::<str, _>::restore_with_clock(
        bucket("1/h", 1),
        Capacity::default(),
        clock.clone(),
        file.as_slice(),
        Downtime::Wall,
    );
    assert!(matches!(strings, Err(SnapshotError::OtherKeys)));
    let log = Keyed::<u64, _>::restore_with_clock(
        SlidingLog::new(1, Duration::from_nanos(S)),
        Capacity::default(),
        clock.clone(),
        file.as_slice(),
        Downtime::Wall,
    );
    assert!(matches!(log, Err(SnapshotError::Limit(_))));
    // The new numbers apply, and what was left stays left.
    let larger = restore(bucket("1/h", 3), 100, &file).unwrap();
    assert_eq!((larger.len(), larger.remaining(&7).unwrap()), (50, 0));
    assert_eq!(larger.remaining(&1007).unwrap(), 3);
}

/// The seeds are in the file, so that names are found again; the names themselves are not.
#[test]
fn names_are_found_again() {
    let clock = ManualClock::new();
    for hashing in [Hashing::FloodSafe, Hashing::Fast] {
        let keyed: Keyed<str, _> =
            Keyed::with_hashing(bucket("1/h", 2), Capacity::default(), hashing, clock.clone());
        for caller in ["ann", "bob", "bob"] {
            assert!(keyed.try_acquire(caller, 1).unwrap().is_granted());
        }
        let mut file = Vec::new();
        assert_eq!(keyed.save(&mut file).unwrap(), 2);
        assert!(!file.windows(3).any(|bytes| bytes == b"ann"));
        let restored = Keyed::<str, _>::restore_with_clock(
            bucket("1/h", 2),
            Capacity::default(),
            clock.clone(),
            file.as_slice(),
            Downtime::Exactly(Duration::ZERO),
        );
        let restored = restored.unwrap();
        let left = ["ann", "bob", "cat"].map(|caller| restored.remaining(caller).unwrap());
        assert_eq!(left, [1, 0, 2]);
    }
}

/// A writer that hangs delays no caller, not even a change of the limit. The restored permits are
/// no more than there were.
#[test]
fn a_limit_changes_while_a_table_is_saved() {
    for (rate, burst, others) in [("20/h", 20, 6), ("2/h", 7, 6), ("1/s", 10, 6)] {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1000));
        let table: Keyed<u64, ManualClock> = Keyed::with_hashing(
            bucket("10/h", 10),
            Capacity::for_keys(40_000),
            Hashing::FloodSafe,
            clock.clone(),
        );
        for key in 0..20_000 {
            assert!(table.try_acquire(&key, 4).unwrap().is_granted());
        }
        let mut slow = Slow { bytes: Vec::new(), then: None };
        let (changed, has_changed) = mpsc::channel();
        let (other, to) = (table.clone(), bucket(rate, burst));
        slow.then = Some(Box::new(move || {
            thread::spawn(move || {
                other.reconfigure(to).unwrap();
                let _ = changed.send(());
            });
            has_changed
                .recv_timeout(Duration::from_secs(10))
                .expect("the change of the limit waits for the writer");
        }));
        assert_eq!(table.save(&mut slow).unwrap(), 20_000);
        let restored: Keyed<u64, ManualClock> = Keyed::restore_with_clock(
            bucket(rate, burst),
            Capacity::for_keys(40_000),
            clock,
            slow.bytes.as_slice(),
            Downtime::Exactly(Duration::ZERO),
        )
        .unwrap();
        for key in 0..20_000 {
            assert_eq!(table.remaining(&key).unwrap(), others);
            assert_eq!(restored.remaining(&key).unwrap(), others, "{rate}, {key}");
        }
    }
}

/// A writer that hangs once, as a file on a slow disk.
struct Slow {
    bytes: Vec<u8>,
    then: Option<Box<dyn FnOnce()>>,
}

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        // Not at once: by then the header has been written, and some of the keys.
        if self.bytes.len() > 200_000
            && let Some(then) = self.then.take()
        {
            then();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
