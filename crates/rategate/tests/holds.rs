//! Tests of holds: estimates that threads, tasks and keys keep until the true cost is known.

use std::pin::pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use rategate::charge::{Charged, Committed, Debt, Settled};
use rategate::error::{KeyedError, TryAllError};
use rategate::keyed::{Capacity, JointDecision, try_all, try_hold_all};
use rategate::policy::Anchor;
use rategate::{
    AcquireError, AllOf, AnyPolicy, AsyncLimiter, Clock, Concurrency, FixedWindow, Gcra, Keyed,
    Limiter, ManualClock, SlidingLog, TryAcquireError,
};

const MINUTE: Duration = Duration::from_secs(60);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Calls whose estimates and costs differ, all at once: what is held never exceeds the limit, what
/// fits passes, and in the end just the costs are used.
#[test]
fn calls_at_once_hold_no_more_than_the_limit() {
    for callers in [5_u64, 50, 500] {
        let limit = 80 * callers / 4;
        let tokens = Limiter::new(Gcra::per_day(1).burst(limit));
        let (barrier, used) = (Barrier::new(callers.try_into().unwrap()), AtomicU64::new(0));
        let call = |caller: u64| {
            barrier.wait();
            let hold = tokens.try_hold(80, MINUTE).unwrap().ok();
            barrier.wait();
            let Some(hold) = hold else { return 0 };
            let (held, actual) = (hold.permits(), caller % 81);
            used.fetch_add(actual, Ordering::Relaxed);
            assert!(matches!(hold.commit(actual), Ok(Committed::InTime(_))));
            held
        };
        let call = &call;
        let held: u64 = thread::scope(|scope| {
            let threads: Vec<_> =
                (0..callers).map(|caller| scope.spawn(move || call(caller))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(held, limit / 80 * 80, "{callers} callers");
        assert_eq!(tokens.remaining().unwrap(), limit - used.into_inner());
    }
}

#[test]
fn a_hold_ends_by_a_commit_a_drop_or_its_time() {
    let clock = ManualClock::new();
    let tokens = Limiter::with_clock(Gcra::per_day(1).burst(100), clock.clone());
    let hold = tokens.try_hold(60, MINUTE).unwrap().unwrap();
    assert_eq!((hold.permits(), hold.ends_at()), (60, MINUTE));
    assert!(format!("{hold:?}").contains("60"));
    let denial = tokens.try_hold(50, MINUTE).unwrap().unwrap_err();
    assert_eq!(denial.retry_after(), Some(MINUTE), "the hold ends by itself");
    assert_eq!(tokens.peek(50).unwrap(), Some(MINUTE));
    assert_eq!(hold.commit(45).unwrap(), Committed::InTime(Settled::Back { permits: 15 }));
    tokens.try_hold(55, MINUTE).unwrap().unwrap().cancel();
    drop(tokens.try_hold(55, MINUTE).unwrap().unwrap());
    let hold = tokens.try_hold(55, MINUTE).unwrap().unwrap();
    clock.advance(MINUTE);
    assert_eq!(tokens.remaining().unwrap(), 55);
    let late = Committed::Late(Charged { booked: 60, forgiven: 0, debt: 5 });
    assert_eq!(hold.commit(60).unwrap(), late);
    assert!(matches!(tokens.try_hold(101, MINUTE), Err(TryAcquireError::ExceedsCapacity(_))));
    tokens.close();
    assert!(matches!(tokens.try_hold(1, MINUTE), Err(TryAcquireError::Closed)));
}

#[test]
fn a_deadline_that_cannot_be_met_names_the_end_of_a_hold() {
    let clock = ManualClock::new();
    let log = Limiter::with_clock(SlidingLog::new(1_000, MINUTE), clock.clone());
    let hold = log.try_hold(1_000, Duration::from_millis(200)).unwrap().unwrap();
    let Err(AcquireError::TooLong(late)) = log.acquire_within(300, secs(1)) else { panic!() };
    assert_eq!((late.wait(), late.retry_after()), (MINUTE, Duration::from_millis(200)));
    assert_eq!(log.status().unwrap().fresh_in, Some(MINUTE), "if all of it is used");
    clock.advance(Duration::from_millis(200));
    assert!(log.acquire_within(300, secs(1)).is_ok());
    drop(hold);
}

#[test]
fn a_hold_of_no_time_has_ended() {
    let tokens = Limiter::with_clock(Gcra::per_day(1).burst(10), ManualClock::new());
    let hold = tokens.try_hold(10, Duration::ZERO).unwrap().unwrap();
    assert_eq!(tokens.remaining().unwrap(), 10);
    assert!(matches!(hold.commit(3), Ok(Committed::Late(_))));
}

#[test]
fn a_shortfall_is_charged_by_the_terms_of_the_limiter() {
    let clock = ManualClock::new();
    let daily = FixedWindow::new(100, secs(86_400), Anchor::Epoch);
    let tokens = Limiter::with_clock(daily, clock).with_debt(Debt::CARRIED);
    let hold = tokens.try_hold(100, MINUTE).unwrap().unwrap();
    let committed = hold.commit(250).unwrap();
    assert_eq!(committed, Committed::InTime(Settled::Owed { permits: 150, forgiven: 0 }));
    assert_eq!(tokens.peek(50).unwrap(), Some(secs(2 * 86_400)));
}

#[test]
fn several_limits_hold_all_or_none() {
    let requests = SlidingLog::new(2, MINUTE);
    let both = AllOf::default().and(Gcra::per_day(1).burst(100)).and(requests);
    let limiter = Limiter::with_clock(both, ManualClock::new());
    let hold = limiter.try_hold(2, secs(10)).unwrap().unwrap();
    assert_eq!(limiter.try_hold(1, secs(10)).unwrap().unwrap_err().retry_after(), Some(secs(10)));
    assert_eq!(hold.commit(1).unwrap(), Committed::InTime(Settled::Back { permits: 1 }));
    assert_eq!(limiter.remaining().unwrap(), 1);
}

#[test]
fn lock_free_tries_go_on_when_nothing_is_held_any_more() {
    let clock = ManualClock::new();
    let tokens = Limiter::with_clock(Gcra::per_second(1).burst(100), clock.clone());
    assert!(tokens.try_acquire(10).unwrap().is_granted());
    let hold = tokens.try_hold(80, MINUTE).unwrap().unwrap();
    assert!(tokens.try_acquire(10).unwrap().is_granted());
    assert!(!tokens.try_acquire(1).unwrap().is_granted());
    clock.advance(secs(5));
    hold.commit(70).unwrap();
    assert_eq!(tokens.remaining().unwrap(), 15);
    assert!(tokens.try_acquire(15).unwrap().is_granted());
    assert!(!tokens.try_acquire(1).unwrap().is_granted());
}

/// The time to live of the holds below, and the time until which it has served a waiter.
const SHORT: Duration = Duration::from_millis(80);
const SERVED: std::ops::Range<Duration> = SHORT..Duration::from_secs(1);

#[test]
fn a_thread_is_served_when_a_hold_ends() {
    let slots = Limiter::new(Concurrency::new(1));
    let began = Instant::now();
    let _hold = slots.try_hold(1, SHORT).unwrap().unwrap();
    slots.acquire(1).unwrap();
    assert!(SERVED.contains(&began.elapsed()), "no clock foretells a slot but a hold");
    let tokens = Limiter::new(Gcra::per_hour(1).burst(10));
    let began = Instant::now();
    let _hold = tokens.try_hold(10, SHORT).unwrap().unwrap();
    tokens.acquire(1).unwrap();
    assert!(SERVED.contains(&began.elapsed()));
}

#[test]
fn a_thread_is_served_when_a_hold_made_after_it_began_to_wait_ends() {
    // A machine that lets the second sleep on would give its turn to the third, which keeps the
    // slot for ever.
    let slots = Limiter::new(Concurrency::new(1)).with_grace(MINUTE);
    let first = slots.try_hold(1, MINUTE).unwrap().unwrap();
    thread::scope(|scope| {
        let second = scope.spawn(|| slots.hold(1, SHORT).unwrap());
        while slots.waiting().unwrap() == 0 {
            thread::yield_now();
        }
        let third = scope.spawn(|| slots.acquire(1).unwrap());
        while slots.waiting().unwrap() < 2 {
            thread::yield_now();
        }
        let began = Instant::now();
        first.commit(1).unwrap();
        // The second holds the slot now, and forgets to commit until the third has it.
        let second = second.join().unwrap();
        third.join().unwrap();
        assert!(SERVED.contains(&began.elapsed()));
        assert!(matches!(second.commit(1), Ok(Committed::Late(_))));
    });
}

#[tokio::test]
async fn a_task_is_served_when_a_hold_ends() {
    let limiter = AsyncLimiter::new(Gcra::per_hour(1).burst(10));
    let began = Instant::now();
    let hold = limiter.try_hold(10, SHORT).unwrap().unwrap();
    let task = {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.hold(4, MINUTE).await.unwrap().commit(1) })
    };
    assert!(matches!(task.await.unwrap(), Ok(Committed::InTime(_))));
    assert!(SERVED.contains(&began.elapsed()));
    assert!(matches!(hold.commit(2), Ok(Committed::Late(_))));
    assert_eq!(limiter.remaining().unwrap(), 7);
}

#[tokio::test]
async fn a_task_that_gives_up_holds_nothing() {
    let limiter = AsyncLimiter::new(Gcra::per_hour(1).burst(10));
    let hold = limiter.hold(10, MINUTE).await.unwrap();
    let waits = tokio::time::timeout(Duration::from_millis(20), limiter.hold(5, MINUTE));
    assert!(waits.await.is_err());
    assert_eq!(limiter.waiting().unwrap(), 0);
    hold.commit(3).unwrap();
    assert_eq!(limiter.remaining().unwrap(), 7);
}

/// A wait for a hold may have a deadline, and may be of a caller that runs later than its poll.
#[test]
fn waits_for_holds_have_deadlines_and_late_callers() {
    let clock = ManualClock::stepped();
    let tokens = Limiter::with_clock(Gcra::per_second(1).burst(10), clock.clone());
    let first = tokens.try_hold(10, MINUTE).unwrap().unwrap();
    let tasks = AsyncLimiter::from(tokens.clone());
    let context = &mut Context::from_waker(Waker::noop());
    let mut late = pin!(tasks.hold_within(5, secs(3), secs(4)));
    let Poll::Ready(Err(AcquireError::TooLong(late))) = late.as_mut().poll(context) else {
        panic!("it would wait for five seconds");
    };
    assert_eq!((late.wait(), late.retry_after()), (secs(5), secs(1)));
    let too_late = tokens.hold_within(5, MINUTE, secs(4)).unwrap_err();
    assert!(matches!(too_late, AcquireError::TooLong(_)), "{too_late}");
    first.commit(5).unwrap();

    let mut wait = pin!(tasks.hold(5, secs(3)).provisionally());
    assert!(wait.as_mut().poll(context).is_pending(), "what is free is taken by a later poll");
    clock.advance(Duration::from_millis(500));
    let Poll::Ready(Ok(held)) = wait.as_mut().poll(context) else { panic!("five were free") };
    assert_eq!(held.ends_at(), Duration::from_millis(3_500));
    assert!(!tokens.try_acquire(1).unwrap().is_granted());
    held.commit(1).unwrap();
    assert_eq!(tokens.remaining().unwrap(), 4);
}

/// No permits are held even behind a waiter for an act that no clock foretells.
#[tokio::test]
async fn no_permits_are_held_behind_any_waiter() {
    let clock = ManualClock::new();
    let slots = AsyncLimiter::with_clock(Concurrency::new(1), clock);
    assert!(slots.try_acquire(1).unwrap().is_granted());
    let waits = tokio::time::timeout(Duration::from_millis(20), slots.acquire(1));
    let holds = async {
        while slots.limiter().waiting().unwrap() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(slots.try_hold(1, MINUTE).unwrap().is_err());
        assert_eq!(slots.try_hold(0, MINUTE).unwrap().unwrap().permits(), 0);
        let both = try_hold_all(&[slots.limiter().estimate(0)], MINUTE).unwrap();
        assert!(matches!(both, JointDecision::Granted(holds) if holds.len() == 1));
    };
    assert!(tokio::join!(waits, holds).0.is_err());
}

/// Threads wait for holds in turn. Each gets back exactly what it did not use, however
/// long it held it and whatever passed meanwhile.
#[test]
fn what_waiters_hold_comes_back_exactly() {
    let clock = rategate::MonotonicClock::new();
    let tokens = Limiter::with_clock(Gcra::per_hour(1).burst(400), clock);
    let work = |seed: u64| {
        let turns = (0..50).map(|turn| {
            let hold = tokens.hold(100, MINUTE).unwrap();
            thread::yield_now();
            let actual = u64::from((seed + turn).is_multiple_of(10));
            assert!(matches!(hold.commit(actual), Ok(Committed::InTime(_))));
            actual
        });
        turns.sum::<u64>()
    };
    let work = &work;
    let used: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|seed| scope.spawn(move || work(seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(used, 40);
    assert_eq!(tokens.remaining().unwrap(), 360);
}

#[test]
fn keys_hold_apart_and_are_evicted_after_their_holds() {
    let clock = ManualClock::new();
    let policy = Gcra::per_second(1).burst(10);
    let table: Keyed<u64, ManualClock> =
        Keyed::with_clock(policy, Capacity::default(), clock.clone());
    let hold = table.try_hold(&1, 10, MINUTE).unwrap().unwrap();
    assert!(table.try_hold(&1, 1, MINUTE).unwrap().is_err());
    assert!(table.try_acquire(&2, 10).unwrap().is_granted());
    clock.advance(secs(20));
    assert_eq!(table.remaining(&1).unwrap(), 10, "earned back, whatever the hold will cost");
    assert!(table.try_acquire(&1, 10).unwrap().is_granted());
    hold.commit(0).unwrap();
    assert_eq!(table.remaining(&1).unwrap(), 0, "a bucket that was full had no room for it");
    let _late = table.try_hold(&3, 5, MINUTE).unwrap().unwrap();
    clock.advance(MINUTE);
    assert_eq!(table.remaining(&3).unwrap(), 10, "ended, though it was not committed");
}

#[test]
fn waiters_of_a_class_owe_what_they_used() {
    let clock = ManualClock::new();
    let tokens = Limiter::with_clock(Gcra::per_second(1).burst(10), clock.clone());
    let other = tokens.class(2).unwrap();
    let hold = other.try_hold(4, MINUTE).unwrap().unwrap();
    let committed = hold.commit(14).unwrap();
    assert_eq!(committed, Committed::InTime(Settled::Owed { permits: 10, forgiven: 0 }));
    assert_eq!(tokens.debt().unwrap(), 4);
    assert_eq!(clock.now_ns(), 0);
}

/// Estimates of several limiters are held all or none, and a denial names the first end of a
/// hold: a nanosecond sooner the same call is denied, and then it passes.
#[test]
fn several_limiters_hold_all_or_none() {
    let clock = ManualClock::new();
    let of = |policy: AnyPolicy| Limiter::with_clock(policy, clock.clone());
    let tokens = of(Gcra::per_day(1).burst(1_000).into());
    let calls = of(SlidingLog::new(3, MINUTE).into());
    let hold =
        |estimate| try_hold_all(&[tokens.estimate(estimate), calls.estimate(1)], secs(9)).unwrap();
    let left = || (tokens.remaining().unwrap(), calls.remaining().unwrap());
    let JointDecision::Granted(first) = hold(700) else { panic!("all fits") };
    assert_eq!(first.iter().map(rategate::charge::Hold::permits).collect::<Vec<_>>(), [700, 1]);
    assert_eq!(left(), (300, 2));
    for attempt in [
        hold(400).retry_after(),
        try_all(&[calls.attempt(1), tokens.attempt(400)]).unwrap().retry_after(),
    ] {
        assert_eq!(attempt, Some(secs(9)));
    }
    assert_eq!(left(), (300, 2), "nothing is taken");
    let excessive =
        try_hold_all(&[calls.estimate(1), tokens.estimate(1_001)], secs(9)).unwrap_err();
    assert!(matches!(excessive, TryAllError { at: 1, error: KeyedError::ExceedsCapacity(_) }));
    let twice = try_hold_all(&[calls.estimate(1), tokens.estimate(1), calls.estimate(1)], secs(9))
        .unwrap_err();
    assert_eq!(twice, TryAllError { at: 2, error: KeyedError::Duplicate });
    let settled = first.into_iter().zip([50, 1]).map(|(hold, actual)| hold.commit(actual).unwrap());
    let back = Committed::InTime(Settled::Back { permits: 650 });
    assert_eq!(settled.collect::<Vec<_>>(), [back, Committed::InTime(Settled::Even)]);
    let JointDecision::Granted(kept) = hold(900) else { panic!("as if 50 had been taken") };
    clock.advance(Duration::from_nanos(8_999_999_999));
    assert!(!hold(900).is_granted());
    clock.advance(Duration::from_nanos(1));
    let JointDecision::Granted(last) = hold(900) else { panic!("the time is over") };
    drop((kept, last));
    assert_eq!(left(), (950, 2));
    tokens.close();
    let closed = try_hold_all(&[calls.estimate(1), tokens.estimate(1)], secs(9)).unwrap_err();
    assert_eq!(closed, TryAllError { at: 1, error: KeyedError::Closed });
    assert_eq!(calls.remaining().unwrap(), 2);
    assert!(try_hold_all::<ManualClock>(&[], MINUTE).unwrap().is_granted());
}

/// Each limit counts as open from its first end of a hold on, and the last to open is named.
#[test]
fn a_joint_denial_names_the_last_limit_that_may_open() {
    let clock = ManualClock::new();
    let of = |policy: AnyPolicy| Limiter::with_clock(policy, clock.clone());
    let soon = of(Gcra::per_day(1).burst(10).into());
    let late = of(SlidingLog::new(10, MINUTE).into());
    let slots = of(Concurrency::new(2).into());
    let told = |parts: &[&Limiter<ManualClock>]| {
        let parts: Vec<_> = parts.iter().map(|limiter| limiter.attempt(2)).collect();
        match try_all(&parts).unwrap() {
            JointDecision::Denied { retry_after, by } => (retry_after, by),
            JointDecision::Granted(_) => panic!(),
        }
    };
    let holds = [
        soon.try_hold(5, secs(4)).unwrap().unwrap(),
        soon.try_hold(5, secs(50)).unwrap().unwrap(),
        slots.try_hold(1, secs(20)).unwrap().unwrap(),
    ];
    assert!(late.try_acquire(10).unwrap().is_granted());
    assert_eq!(told(&[&soon]), (Some(secs(4)), 0));
    assert_eq!(told(&[&soon, &slots]), (Some(secs(20)), 1));
    assert_eq!(told(&[&soon, &late, &slots]), (Some(MINUTE), 1), "no hold of the log ends");
    let last = slots.try_permit(1).unwrap().unwrap();
    assert_eq!(told(&[&soon, &slots]), (Some(secs(20)), 1), "one of two slots");
    let full = of(Concurrency::new(2).into());
    let both = full.try_permit(2).unwrap().unwrap();
    assert_eq!(told(&[&soon, &slots, &full]), (None, 2), "time alone never ends an operation");
    drop((holds, last, both));
}

/// A wait beyond the end of the clock is told once, and does not go on for ever.
#[test]
fn a_joint_wait_beyond_the_clock_ends() {
    let clock = ManualClock::new();
    clock.set(Duration::from_nanos(u64::MAX - 10_000_000_000));
    let bucket = Limiter::with_clock(Gcra::per_second(1).burst(1), clock.clone());
    let other = Limiter::with_clock(Gcra::per_second(1).burst(5), clock);
    bucket.charge(20).unwrap();
    let decision = try_all(&[other.attempt(1), bucket.attempt(1)]).unwrap();
    assert_eq!(decision.retry_after(), Some(secs(20)));
    assert_eq!(bucket.peek(1).unwrap(), Some(secs(20)));
}

/// A smaller limit of its own shares a counter: the check and the hold are one step, and the wait
/// is exact.
#[test]
fn an_estimate_spares_what_has_to_be_left() {
    let clock = ManualClock::new();
    let window = FixedWindow::new(1_000, MINUTE, Anchor::Epoch);
    let counter = Limiter::with_clock(window, clock.clone());
    let held = |permits| {
        try_hold_all(&[counter.estimate(permits).sparing(990)], secs(9)).map(|held| match held {
            JointDecision::Granted(holds) => Ok(holds),
            JointDecision::Denied { retry_after, .. } => Err(retry_after),
        })
    };
    let first = held(7).unwrap().unwrap();
    assert_eq!(held(4).unwrap().unwrap_err(), Some(secs(9)), "7 come back");
    let rest = held(3).unwrap().unwrap();
    assert_eq!(held(0).unwrap().unwrap()[0].permits(), 0, "none need nothing");
    assert!(matches!(held(11), Err(TryAllError { error: KeyedError::ExceedsCapacity(_), .. })));
    assert!(matches!(held(u64::MAX), Err(TryAllError { .. })));
    drop((first, rest));
    assert!(held(10).unwrap().is_ok());
    assert!(counter.try_acquire(985).unwrap().is_granted(), "others are not bound by it");
    assert_eq!(held(1).unwrap().unwrap_err(), Some(MINUTE));
}

/// Threads hold the same limiters in either order: none waits for ever, and nothing is lost.
#[test]
fn holds_in_any_order_do_not_block_each_other() {
    let [one, two] = [(); 2].map(|()| Limiter::new(Gcra::per_day(1).burst(100)));
    thread::scope(|scope| {
        for parts in
            [[one.estimate(30), two.estimate(20)], [two.estimate(20), one.estimate(30)]].repeat(2)
        {
            scope.spawn(move || {
                for round in 0..500 {
                    let JointDecision::Granted(holds) = try_hold_all(&parts, MINUTE).unwrap()
                    else {
                        continue;
                    };
                    for hold in holds {
                        hold.commit(u64::from(round == 0)).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(one.remaining().unwrap(), two.remaining().unwrap());
    assert!(one.remaining().unwrap() >= 96);
}
