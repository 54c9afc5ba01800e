//! Local handles: batches, their bound, and the permits that return.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use rategate::error::Closed;
use rategate::policy::Mode;
use rategate::{Decision, Gcra, Limiter, ManualClock, SlidingLog, TryAcquireError, TwoTimeline};
use rategate_testkit::ns;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Returns a bucket of a permit each 100 ns, with a burst of 64 000: batches of 500.
fn bucket() -> Gcra {
    Gcra::new("10000000/s".parse().unwrap(), 64_000).unwrap()
}

fn granted(answer: Result<Decision, TryAcquireError>) -> bool {
    answer.unwrap().is_granted()
}

#[test]
fn a_batch_is_taken_in_one_step_and_used_one_by_one() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock(bucket(), clock.clone());
    let mut local = limiter.local().unwrap();
    assert_eq!((local.batch(), local.unused()), (500, 0));
    assert!(granted(local.try_acquire(1)));
    assert_eq!((limiter.remaining(), local.unused()), (Ok(63_500), 499));
    for left in (0..499).rev() {
        let Decision::Granted(grant) = local.try_acquire(1).unwrap() else {
            panic!("in the batch")
        };
        assert_eq!((ns(grant.released_at()), local.unused()), (0, left));
    }
    assert_eq!(limiter.remaining(), Ok(63_500));
    assert!(granted(local.try_acquire(600)), "more than a batch");
    assert_eq!((limiter.remaining(), local.unused()), (Ok(62_900), 0));
    assert!(granted(local.try_acquire(0)) && local.unused() == 0, "nothing costs nothing");
    assert!(matches!(local.try_acquire(64_001), Err(TryAcquireError::ExceedsCapacity(_))));
}

/// Unused permits return unchanged: a limiter whose handles take and return keeps its permits.
#[test]
fn what_is_left_comes_back() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock(bucket(), clock.clone());
    let mut local = limiter.local().unwrap();
    assert!(granted(local.try_acquire(20)));
    drop(local);
    assert_eq!(limiter.remaining(), Ok(63_980), "dropped");

    // A batch's permits are lost once as many have been earned again, and no sooner.
    for (after_ns, left) in [(48_000, 64_000 - 20), (50_000, 64_000 - 20), (60_000, 63_980)] {
        let clock = ManualClock::new();
        let limiter = Limiter::with_clock(bucket(), clock.clone());
        let mut local = limiter.local().unwrap();
        assert!(granted(local.try_acquire(20)));
        clock.advance(Duration::from_nanos(after_ns));
        drop(local);
        let earned = after_ns / 100;
        assert_eq!(limiter.remaining(), Ok((left + earned).min(64_000)), "after {after_ns} ns");
        assert!(granted(limiter.try_acquire(64_000.min(left + earned))));
        assert!(!granted(limiter.try_acquire(1)));
    }
}

/// A bucket that was full meanwhile has earned the permits again, so that returning them would
/// let twice as many through.
#[test]
fn nothing_comes_back_twice() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock(bucket(), clock.clone());
    let mut local = limiter.local().unwrap();
    assert!(granted(local.try_acquire(1)));
    clock.advance(Duration::from_nanos(MS));
    assert!(granted(limiter.try_acquire(64_000)), "full again");
    drop(local);
    assert!(!granted(limiter.try_acquire(1)));

    // There are two handles, and the first one's return counts against the second's.
    let limiter = Limiter::with_clock(bucket(), clock.clone());
    let (mut first, mut second) = (limiter.local().unwrap(), limiter.local().unwrap());
    assert!(granted(first.try_acquire(1)) && granted(second.try_acquire(1)));
    clock.advance(Duration::from_micros(60));
    drop(first);
    drop(second);
    // 1000 taken, 600 earned: the returned permits fill the bucket and no more.
    assert_eq!(limiter.remaining(), Ok(64_000));
    assert!(granted(limiter.try_acquire(64_000)) && !granted(limiter.try_acquire(1)));
}

#[test]
fn a_batch_expires() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock(bucket(), clock.clone());
    let (mut idle, mut busy) = (limiter.local().unwrap(), limiter.local().unwrap());
    assert!(granted(idle.try_acquire(1)));
    clock.advance(Duration::from_millis(2));
    assert!(granted(busy.try_acquire(1)), "a new batch advances the handles' time");
    let Decision::Granted(grant) = idle.try_acquire(1).unwrap() else { panic!("a new batch") };
    assert_eq!((ns(grant.released_at()), idle.unused()), (2 * MS, 499));
}

#[test]
fn a_change_ends_the_unused_batch() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock(bucket(), clock.clone());
    let mut local = limiter.local().unwrap();
    assert!(granted(local.try_acquire(1)));
    limiter.reconfigure(Gcra::new("1000000/s".parse().unwrap(), 128_000).unwrap()).unwrap();
    assert_eq!(limiter.remaining(), Ok(63_500), "500 were taken");
    assert!(granted(local.try_acquire(1)));
    assert_eq!((local.batch(), local.unused()), (50, 49));
    assert_eq!(limiter.remaining(), Ok(63_500 - 50), "nothing comes back across a change");
    limiter.close();
    assert_eq!(local.try_acquire(1), Err(TryAcquireError::from(Closed)));
}

/// A handle has batches of one where a larger batch would break a promise.
#[test]
fn others_have_batches_of_one() {
    let clock = ManualClock::new();
    let log = Limiter::with_clock(SlidingLog::new(2, Duration::from_nanos(MS)), clock.clone());
    let mut local = log.local().unwrap();
    assert_eq!(local.batch(), 1);
    assert!(granted(local.try_acquire(1)) && granted(log.try_acquire(1)));
    assert!(!granted(local.try_acquire(1)));
    assert_eq!(ns(local.acquire(1).unwrap().released_at()), MS);
    let slow =
        Limiter::with_clock(Gcra::new("1000/s".parse().unwrap(), 500).unwrap(), clock.clone());
    assert_eq!(slow.local().unwrap().batch(), 1);
    let average = TwoTimeline::new("1000000000/s".parse().unwrap(), Mode::Average, None);
    assert_eq!(Limiter::with_clock(average, clock).local().unwrap().batch(), 1);
}

/// The grants stay within `C(W) + h m`, and in the long run within the rate.
#[test]
fn many_handles_stay_within_their_bound() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock(bucket(), clock.clone());
    let starts = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (limiter, clock, starts) = (&limiter, &clock, &starts);
            scope.spawn(move || {
                let mut local = limiter.local().unwrap();
                let mut own = Vec::new();
                for step in 0..200_000_u64 {
                    let now_ns = ns(limiter.now());
                    if granted(local.try_acquire(1)) {
                        own.push(now_ns);
                    }
                    if step % 64 == thread {
                        clock.advance(Duration::from_nanos(100));
                    }
                    if step % 10_007 == 0 {
                        local = limiter.local().unwrap();
                    }
                }
                starts.lock().unwrap().extend(own);
            });
        }
    });
    let mut starts = starts.into_inner().unwrap();
    starts.sort_unstable();
    let elapsed_ns = ns(limiter.now());
    let brought = u64::try_from(starts.len()).unwrap();
    assert!(brought <= 64_000 + elapsed_ns / 100 + 1, "{brought} in {elapsed_ns} ns");
    assert!(brought > 64_000, "{brought}");
    for window_ns in [1, 10 * US, 100 * US] {
        let max_grants = 64_000 + window_ns / 100 + 1 + 4 * 500;
        let max_grants = usize::try_from(max_grants).unwrap();
        let over =
            starts.windows(max_grants + 1).find(|span| span[max_grants] - span[0] < window_ns);
        assert!(over.is_none(), "window of {window_ns} ns: {over:?}");
    }
}
