//! Policies that count operations in flight, and policies that never fully recover.

use std::collections::HashMap;
use std::time::Duration;

use fastrand::Rng;
use rategate::error::KeyedError;
use rategate::keyed::Overflow;
use rategate::policy::{Anchor, Mode};
use rategate::{AnyPolicy, CommitLog, Concurrency, FixedWindow, Limiter, ManualClock, TwoTimeline};

use crate::keyed::{S, passes, table};

/// Compares tries and releases by key with a limiter for each. There are more keys than capacity:
/// a key with no operation in flight, and none cooling, is evicted.
fn counts_by_key(policy: impl Into<AnyPolicy>) {
    let policy = policy.into();
    let (keyed, clock) = table::<u64>(policy, 8, Overflow::Refuse);
    let mut random = Rng::with_seed(3);
    let mut ideal: HashMap<u64, (Limiter<ManualClock>, u64)> = HashMap::new();
    let mut refused = 0;
    for call in 0..5_000 {
        clock.advance(Duration::from_nanos(random.u64(..S / 8)));
        let key = random.u64(..12);
        let fresh = || (Limiter::with_clock(policy, clock.clone()), 0);
        let (limiter, in_flight) = ideal.entry(key).or_insert_with(fresh);
        let what = format!("call {call}: {key} of {policy:?}");
        match random.u64(..7) {
            0..3 => match passes(&keyed, &key) {
                Some(passed) => {
                    assert_eq!(limiter.try_acquire(1).unwrap().is_granted(), passed, "{what}");
                    *in_flight += u64::from(passed);
                }
                None => refused += 1,
            },
            ended if *in_flight > 0 => {
                let of = 1 + random.u64(..*in_flight);
                let outcome = match ended {
                    3..6 => (limiter.release(of).unwrap(), keyed.release(&key, of).unwrap()),
                    _ => (limiter.abort(of).unwrap(), keyed.abort(&key, of).unwrap()),
                };
                assert_eq!(outcome.0, outcome.1, "{what}");
                *in_flight -= of;
            }
            _ => match keyed.remaining(&key) {
                // An unknown key gets the status that a try would see.
                Err(KeyedError::TableFull) => assert_eq!(*in_flight, 0, "{what}"),
                left => assert_eq!(limiter.remaining().ok(), left.ok(), "{what}"),
            },
        }
        let live = ideal.values().filter(|(_, in_flight)| *in_flight > 0).count();
        assert!(live <= 8 && keyed.len() <= 8, "{what}");
    }
    assert!(refused > 20, "{refused} of {policy:?}");
}

#[test]
fn what_is_in_flight_is_counted_by_key() {
    counts_by_key(Concurrency::new(3));
    counts_by_key(CommitLog::new(3, Duration::from_nanos(S)));
}

/// A key that never fully recovers is never evicted.
#[test]
fn what_never_rests_stays() {
    fn stays(policy: impl Into<AnyPolicy>) {
        let (keyed, clock) = table::<u64>(policy, 2, Overflow::Refuse);
        clock.set(Duration::from_nanos(7));
        assert_eq!(passes(&keyed, &1), Some(true));
        assert_eq!(passes(&keyed, &2), Some(true));
        for _ in 0..20 {
            clock.advance(Duration::from_secs(1_000));
            assert_eq!(passes(&keyed, &3), None);
        }
        assert_eq!((keyed.len(), keyed.overflows()), (2, 20));
        assert_eq!(passes(&keyed, &1), Some(true));
    }
    stays(FixedWindow::new(1, Duration::from_nanos(S), Anchor::FirstCall));
    stays(TwoTimeline::new("1/s".parse().unwrap(), Mode::Average, None));
}
