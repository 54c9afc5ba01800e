//! Closing a limiter, as seen by its waiters and by later callers.

use rategate::AcquireError;
use rategate_core::span::whole_ns as ns;

use crate::world::{S, Task, Tasks, acquiring, at_once, explore, start, window};

/// A task and a thread join, or wait already.
#[test]
fn quick_closing_ends_the_wait() {
    explore(|time| {
        let limiter = Tasks::with_clock(at_once(1), time.clone());
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let task = start({
            let limiter = limiter.clone();
            move || acquiring(&limiter, 1).finish()
        });
        let thread = start({
            let limiter = limiter.clone();
            move || limiter.limiter().acquire(1)
        });
        limiter.close();
        assert_eq!(task.join().unwrap(), Err(AcquireError::Closed));
        assert_eq!(thread.join().unwrap(), Err(AcquireError::Closed));
    });
}

/// The first waiter leaves meanwhile; the second is woken once, by the closing or by its grant.
#[test]
fn quick_closing_and_leaving_wake_the_next() {
    explore(|time| {
        let limiter = Tasks::with_clock(at_once(2), time.clone());
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let first = acquiring(&limiter, 2).waiting();
        let second = acquiring(&limiter, 1).waiting();
        let leaver = start(move || drop(first));
        let next = start(move || second.finish_once_woken());
        limiter.close();
        leaver.join().unwrap();
        let ended = next.join().unwrap();
        assert!(ended.is_ok() || ended == Err(AcquireError::Closed));
    });
}

/// The timer fires while the limiter closes.
#[test]
fn quick_closing_and_the_timer_settle_a_wait_once() {
    explore(|time| {
        let limiter = Tasks::with_clock(window(1), time.clone());
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let task = acquiring(&limiter, 1).waiting();
        let closing = start({
            let limiter = limiter.clone();
            move || limiter.close()
        });
        let next = start(move || task.finish_once_woken());
        time.set(S);
        closing.join().unwrap();
        let ended = next.join().unwrap();
        assert!(ended.is_ok() || ended == Err(AcquireError::Closed));
    });
}

/// A task waits for a reservation's start, in time that stands still.
#[test]
fn quick_closing_wakes_a_reserved_task() {
    explore(|time| {
        let limiter = Tasks::with_clock(window(1), time.clone());
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let reservation = limiter.reserve(1).unwrap();
        let task = start(move || Task::new(reservation.wait()).finish());
        limiter.close();
        assert_eq!(task.join().unwrap(), Err(AcquireError::Closed));
    });
}

/// The task has moved to another executor since it registered its waker.
#[test]
fn quick_closing_wakes_by_the_newest_waker() {
    explore(|time| {
        let limiter = Tasks::with_clock(window(1), time.clone());
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let task = Task::new(limiter.reserve(1).unwrap().wait()).waiting();
        let moved = start(move || task.elsewhere().finish());
        limiter.close();
        assert_eq!(moved.join().unwrap(), Err(AcquireError::Closed));
    });
}

/// A thread waits for a reservation's start, in time that stands still.
#[test]
fn quick_closing_wakes_a_reserved_thread() {
    explore(|time| {
        let limiter = Tasks::with_clock(window(1), time.clone());
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let reservation = limiter.limiter().reserve(1).unwrap();
        let thread = start(move || reservation.wait());
        limiter.close();
        assert_eq!(thread.join().unwrap(), Err(AcquireError::Closed));
    });
}

/// The start comes meanwhile: it is kept or returned, and the task is woken in either case.
#[test]
fn quick_a_reserved_start_comes_while_the_limiter_closes() {
    explore(|time| {
        let limiter = Tasks::with_clock(window(1), time.clone());
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let reservation = limiter.reserve(1).unwrap();
        let task = start(move || Task::new(reservation.wait()).finish());
        let closing = start({
            let limiter = limiter.clone();
            move || limiter.close()
        });
        time.set(S);
        closing.join().unwrap();
        let ended = task.join().unwrap();
        assert!(
            ended.is_ok_and(|grant| ns(grant.promised_at()) == S)
                || ended == Err(AcquireError::Closed)
        );
    });
}
