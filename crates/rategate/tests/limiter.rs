//! The calls of a limiter, on virtual time.

use std::time::Duration;

use rategate::error::{ErrorKind, LimitError, ReconfigureError};
use rategate::policy::{Ledger, Mode, Ratio};
use rategate::{
    AcquireError, AllOf, AnyPolicy, BackfillPool, Concurrency, Decision, Error, Gcra, Limiter,
    ManualClock, Rate, SlidingLog, TryAcquireError, TwoTimeline,
};
use rategate_testkit::ns;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

fn log(permits: u64, period_ns: u64, clock: &ManualClock) -> Limiter<ManualClock> {
    Limiter::with_clock(SlidingLog::new(permits, Duration::from_nanos(period_ns)), clock.clone())
}

/// S1.4, S1.5, S1.6, S1.7, S1.10, S1.12: blocking mode sends 51 a second: no wait below the limit,
/// then a second after the 51st start before.
#[test]
fn blocking_mode_sends_51_a_second() {
    let clock = ManualClock::new();
    let limiter = log(51, S, &clock);
    let starts: Vec<u64> =
        (0..51 * 4).map(|_| ns(limiter.acquire(1).unwrap().released_at())).collect();
    let ideal: Vec<u64> = (0..51 * 4).map(|send| send / 51 * S).collect();
    assert_eq!(starts, ideal);
}

/// S4.2, S1.3: arrivals at 0.8, 0.9, 1.1 and 1.2 s under 2/s start at 0.8, 0.9, 1.8 and 1.9 s.
#[test]
fn windows_slide() {
    let clock = ManualClock::new();
    let limiter = log(2, S, &clock);
    let starts = [800, 900, 1_100, 1_200].map(|at_ms| {
        clock.set(Duration::from_millis(at_ms));
        ns(limiter.reserve(1).unwrap().keep().released_at()) / MS
    });
    assert_eq!(starts, [800, 900, 1_800, 1_900]);
}

/// S4.3, S4.4: an oven for six pizzas, thirty minutes each, never holds seven.
#[test]
fn the_oven_never_holds_seven() {
    let clock = ManualClock::new();
    let half_hour_ns = 1_800 * S;
    let oven = log(6, half_hour_ns, &clock);
    let mut starts = Vec::new();
    for pizza in 0..60 {
        clock.advance(Duration::from_nanos(pizza * 17 % 300 * S));
        starts.push(ns(oven.acquire(1).unwrap().released_at()));
    }
    assert!(starts.windows(7).all(|seven| seven[6] - seven[0] >= half_hour_ns));
}

/// S4.20, S4.18, X5.5: a denied try reports the exact time until the next one, which then passes.
#[test]
fn a_denial_says_exactly_when_to_come_again() {
    let clock = ManualClock::new();
    let limiter = log(3, 700, &clock);
    for _ in 0..50 {
        match limiter.try_acquire(1).unwrap() {
            Decision::Granted(grant) => {
                assert_eq!(grant.wait(), Duration::ZERO);
                clock.advance(Duration::from_nanos(90));
            }
            Decision::Denied(denial) => {
                let wait_ns = ns(denial.retry_after().unwrap());
                assert_eq!(denial.retry_after(), Some(Duration::from_nanos(wait_ns)));
                assert_eq!(limiter.peek(1).unwrap(), denial.retry_after());
                clock.advance(Duration::from_nanos(wait_ns - 1));
                assert!(!limiter.try_acquire(1).unwrap().is_granted(), "a nanosecond too soon");
                clock.advance(Duration::from_nanos(1));
                assert!(limiter.try_acquire(1).unwrap().is_granted());
            }
        }
    }
}

/// S4.5: a deadline that cannot be met fails at once and takes nothing; an endless one waits.
#[test]
fn a_deadline_that_cannot_be_met_fails_at_once() {
    let clock = ManualClock::with_sleep(|requested_ns| requested_ns);
    let limiter = log(1, S, &clock);
    limiter.acquire(1).unwrap();
    let Err(AcquireError::TooLong(too_long)) =
        limiter.acquire_within(1, Duration::from_millis(999))
    else {
        panic!("it fits")
    };
    assert_eq!(too_long.wait(), Duration::from_secs(1));
    assert_eq!(too_long.retry_after(), Duration::from_millis(1));
    assert_eq!(ns(limiter.now()), 0, "at once");
    assert!(limiter.reserve_within(1, Duration::ZERO).is_err());
    clock.advance(Duration::from_nanos(MS));
    let grant = limiter.acquire_within(1, Duration::from_millis(999)).unwrap();
    assert_eq!((ns(grant.released_at()), grant.wait()), (S, Duration::from_millis(999)));
    assert_eq!(ns(limiter.acquire_within(1, Duration::MAX).unwrap().released_at()), 2 * S);
}

/// S4.7, S4.14, X4.4: limits of zero permits or of a zero period are refused; a period may be
/// anything up to 584 years.
#[test]
fn limits_that_cannot_be_meant_are_refused() {
    assert_eq!(SlidingLog::try_new(0, Duration::from_nanos(1)), Err(LimitError::ZeroPermits));
    assert_eq!(SlidingLog::try_new(1, Duration::from_nanos(0)), Err(LimitError::ZeroPeriod));
    let clock = ManualClock::new();
    let limiter = log(1, 50 * 86_400 * S, &clock);
    limiter.acquire(1).unwrap();
    assert_eq!(ns(limiter.acquire(1).unwrap().released_at()), 50 * 86_400 * S, "fifty days");
    let limiter = log(1, u64::MAX, &ManualClock::new());
    assert!(limiter.acquire(1).is_ok());
    assert_eq!(ns(limiter.acquire(1).unwrap().released_at()), u64::MAX);
}

/// X0.5: waits that time cannot help are errors at once.
#[test]
fn never_is_an_error_at_once() {
    let clock = ManualClock::stepped();
    let never = Limiter::with_clock(Gcra::new(Rate::NEVER, 1).unwrap(), clock.clone());
    let _ = never.try_acquire(1);
    assert_eq!(never.acquire(1), Err(AcquireError::TimeCannotHelp));
    assert_eq!(never.acquire_within(1, Duration::MAX), Err(AcquireError::TimeCannotHelp));
    assert_eq!(never.peek(1), Ok(None));
    let Ok(Decision::Denied(denial)) = never.try_acquire(1) else { panic!("granted") };
    assert_eq!(denial.retry_after(), None);

    let oven = Limiter::with_clock(Concurrency::new(1), clock);
    oven.acquire(1).unwrap();
    // It may be released at any time, but no instant is known.
    let pool = BackfillPool::new(1, Ratio::new(1, 1).unwrap(), None).unwrap();
    let pool = Limiter::with_clock(pool, ManualClock::new());
    for refused in [oven.reserve(1).map(drop), pool.reserve(1).map(drop)] {
        let refused = refused.unwrap_err();
        assert_eq!((refused, Error::from(refused).kind()), (AcquireError::Held, ErrorKind::NotYet));
    }
    let deadline = Duration::ZERO;
    assert_eq!(oven.acquire_within(1, deadline), Err(AcquireError::DeadlinePassed));
    assert_eq!(oven.release(1), Ok(true));
    assert!(oven.acquire(1).is_ok());
    assert_eq!(oven.refill(1), Ok(false));
}

#[test]
fn zero_permits_pass_and_too_many_are_an_error() {
    let limiter = log(2, S, &ManualClock::new());
    limiter.acquire(2).unwrap();
    assert!(limiter.try_acquire(0).unwrap().is_granted());
    assert_eq!(limiter.acquire(0).unwrap().wait(), Duration::ZERO);
    assert_eq!(limiter.peek(0), Ok(Some(Duration::ZERO)));
    assert_eq!(ns(limiter.reserve(0).unwrap().promised_at()), 0);
    for permits in [3, u64::MAX] {
        let Err(AcquireError::ExceedsCapacity(error)) = limiter.acquire(permits) else {
            panic!("{permits} fit")
        };
        assert_eq!((error.permits, error.max), (permits, 2));
        assert_eq!(limiter.try_acquire(permits), Err(TryAcquireError::ExceedsCapacity(error)));
        assert_eq!(limiter.peek(permits), Err(TryAcquireError::ExceedsCapacity(error)));
    }
}

/// An unused reservation is returned by `cancel` and by a drop; a used one by neither.
#[test]
fn reservations_are_cancelled_unless_used() {
    let clock = ManualClock::new();
    let limiter = log(1, S, &clock);
    assert_eq!(ns(limiter.reserve(1).unwrap().wait().unwrap().released_at()), 0);
    let second = limiter.reserve(1).unwrap();
    let third = limiter.reserve(1).unwrap();
    assert_eq!((ns(second.promised_at()), ns(third.promised_at())), (S, 2 * S));
    assert!(second.cancel());
    let instead = limiter.reserve(1).unwrap();
    assert_eq!(ns(instead.promised_at()), S, "the next that fits starts then");
    drop(third);
    drop(instead);
    let kept = limiter.reserve(1).unwrap().keep();
    assert_eq!((ns(kept.released_at()), kept.wait()), (S, Duration::from_secs(1)));
    let late = limiter.reserve(1).unwrap();
    clock.set(Duration::from_secs(2));
    assert!(!late.cancel(), "it has started");
    let waited = limiter.reserve(1).unwrap().wait().unwrap();
    assert_eq!((ns(waited.released_at()), ns(waited.scheduled_at())), (3 * S, 2 * S));
}

/// S3.12: the limit changes while it is in use, and promises are kept.
#[test]
fn reconfiguring_keeps_promises() {
    let clock = ManualClock::new();
    let limiter = log(1, S, &clock);
    limiter.acquire(1).unwrap();
    let promised = limiter.reserve(1).unwrap();
    limiter.reconfigure(SlidingLog::new(1, Duration::from_nanos(5 * S))).unwrap();
    assert_eq!(ns(promised.promised_at()), S);
    assert_eq!(ns(limiter.reserve(1).unwrap().keep().released_at()), 6 * S);
    assert_eq!(ns(promised.wait().unwrap().released_at()), S);
    limiter.reconfigure(SlidingLog::new(4, Duration::from_nanos(5 * S))).unwrap();
    assert_eq!(limiter.remaining(), Ok(2), "two are in the log; they leave it by the last promise");
}

/// Several limits pass together or not at all; another number of limits is refused.
#[test]
fn several_limits_pass_together() {
    let policies = |max| -> [AnyPolicy; 2] {
        let rate = Gcra::new("10/s".parse().unwrap(), 10).unwrap();
        [rate.into(), SlidingLog::new(max, Duration::from_nanos(2 * S)).into()]
    };
    let clock = ManualClock::new();
    let limiter: Limiter<_> = Limiter::with_clock(AllOf::new(policies(12)), clock.clone());
    limiter.acquire(10).unwrap();
    clock.advance(Duration::from_millis(500));
    assert_eq!(limiter.remaining(), Ok(2));
    assert_eq!(ns(limiter.acquire(3).unwrap().released_at()), 2 * S);
    limiter.reconfigure(AllOf::new(policies(20))).unwrap();
    assert_eq!(limiter.remaining(), Ok(7));
    let [rate, window] = policies(5);
    for other in [AllOf::new([rate]), AllOf::new([rate, Concurrency::new(5).into()])] {
        let refused = limiter.reconfigure(other);
        assert_eq!(refused, Err(ReconfigureError::Limit(LimitError::OtherPolicy)));
    }
    limiter.reconfigure(AllOf::new([window, rate])).unwrap();
    assert_eq!(limiter.remaining(), Ok(3), "two of five and two of ten are used");
    assert!(Limiter::new(AllOf::default()).try_acquire(u64::MAX).unwrap().is_granted());
}

/// S2.54: through the limiter, too, the wait of each operation is against the ideal schedule.
#[test]
fn waits_are_reported_against_the_schedule() {
    let clock = ManualClock::new();
    let policy =
        TwoTimeline::new("1000/s".parse().unwrap(), Mode::Burst(Ratio::new(3, 2).unwrap()), None);
    let limiter = Limiter::with_clock(policy, clock.clone());
    clock.set(Duration::from_nanos(MS));
    let waits = [(); 6].map(|()| limiter.acquire(1).unwrap().wait().as_nanos());
    assert_eq!(waits, [1_000_000, 666_666, 333_332, 0, 0, 0]);
}

#[test]
fn a_pool_takes_permits_from_outside() {
    let pool = BackfillPool::new(10, Ratio::ONE, None).unwrap();
    let limiter = Limiter::with_clock(pool, ManualClock::new());
    while limiter.try_acquire(1).unwrap().is_granted() {}
    assert_eq!(limiter.refill(3), Ok(true));
    assert_eq!(limiter.remaining(), Ok(3));
}

/// A limit that has been used before goes on from its state, with or without a lock-free form.
#[test]
fn a_used_limit_goes_on() {
    let in_flight = Concurrency::new(4);
    let mut used = Ledger::new(in_flight, 0);
    assert!(used.try_acquire(0, 3).is_ok());
    let resumed = Ledger::with_state(used.limits().clone(), 0);
    assert_eq!(Limiter::over(resumed, ManualClock::new()).remaining(), Ok(1));
    assert_eq!(Limiter::over(used, ManualClock::new()).remaining(), Ok(1));

    let bucket = Gcra::new("1/s".parse().unwrap(), 4).unwrap();
    let mut used = Ledger::new(bucket, 0);
    assert!(used.try_acquire(0, 3).is_ok());
    let resumed = Ledger::with_state(used.limits().clone(), 0);
    assert_eq!(Limiter::over(resumed, ManualClock::new()).remaining(), Ok(1));
    let limiter = Limiter::over(used, ManualClock::new());
    assert_eq!(limiter.remaining(), Ok(1));
}
