//! One timer for all tasks: its setting, its firing, and the service of the wait queue.

use rategate::{AcquireError, Grant};
use rategate_core::span::whole_ns as ns;

use crate::world::{
    ManualTime, S, Tasks, acquiring, acquiring_within, at_once, explore, explore_within, start,
    window,
};

/// The timer fires while a task still joins, or while the driver sets it.
#[test]
fn quick_a_timer_that_fires_wakes_the_task() {
    explore(|time| {
        let limiter = Tasks::with_clock(window(1), time.clone());
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let task = start({
            let limiter = limiter.clone();
            move || ns(acquiring(&limiter, 1).finish().unwrap().promised_at())
        });
        time.set(S);
        assert_eq!(task.join().unwrap(), S);
        assert_eq!(limiter.limiter().waiting(), Ok(0));
    });
}

/// A task joins while the timer fires for another, and goes on.
#[test]
fn quick_a_task_joins_while_the_timer_fires_twice() {
    explore_within(2, |time| {
        after_a_task(time, |limiter| acquiring(limiter, 1).finish().unwrap());
    });
}

/// A thread, which sleeps for itself, joins while the timer fires for a task.
#[test]
fn quick_a_thread_joins_while_the_timer_fires_twice() {
    explore_within(2, |time| {
        after_a_task(time, |limiter| limiter.limiter().acquire(1).unwrap());
    });
}

fn after_a_task(time: &ManualTime, second: impl FnOnce(&Tasks) -> Grant + 'static) {
    let limiter = Tasks::with_clock(window(1), time.clone());
    assert!(limiter.try_acquire(1).unwrap().is_granted());
    let first = acquiring(&limiter, 1).waiting();
    let first = start(move || first.finish_once_woken().unwrap());
    let second = start({
        let limiter = limiter.clone();
        move || second(&limiter)
    });
    time.set(S);
    time.set(2 * S);
    // It may come late, and counts from then on: the second starts in a later window.
    let first = first.join().unwrap();
    assert_eq!(ns(first.promised_at()), S);
    time.set(3 * S);
    let second = second.join().unwrap();
    assert!(ns(first.released_at()) < ns(second.released_at()), "{first:?} {second:?}");
    assert_eq!(limiter.limiter().waiting(), Ok(0));
}

/// Two threads leave a critical section and set the timer, one for a later instant than the
/// other. Whichever comes first, both are served at their own instants.
#[test]
fn quick_the_earlier_of_two_deadlines_is_kept() {
    explore(|time| {
        let limiter = Tasks::with_clock(at_once(1), time.clone());
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let joining = |within_ns| {
            let limiter = limiter.clone();
            start(move || acquiring_within(&limiter, within_ns).waiting())
        };
        let late = joining(2 * S);
        let early = acquiring_within(&limiter, S).waiting();
        let late = late.join().unwrap();
        time.set(S);
        assert_eq!(early.finish_once_woken(), Err(AcquireError::DeadlinePassed));
        time.set(2 * S);
        assert_eq!(late.finish_once_woken(), Err(AcquireError::DeadlinePassed));
    });
}

/// A task leaves, so that the timer serves no waiter; meanwhile it fires, and another task joins.
#[test]
fn quick_a_timer_set_for_who_has_left_serves_who_comes() {
    explore(|time| {
        let limiter = Tasks::with_clock(window(1), time.clone());
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let first = acquiring(&limiter, 1).waiting();
        let leaver = start(move || drop(first));
        let second = start({
            let limiter = limiter.clone();
            move || ns(acquiring(&limiter, 1).finish().unwrap().promised_at())
        });
        time.set(S);
        leaver.join().unwrap();
        // The first start may have come before the task left, and is then used up.
        time.set(2 * S);
        assert!([S, 2 * S].contains(&second.join().unwrap()));
    });
}

/// The timer fires for one start after another, whatever joins in between.
#[test]
fn quick_a_task_that_joins_after_the_timer_fired_sets_it_again() {
    explore(|time| {
        let limiter = Tasks::with_clock(window(1), time.clone());
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let first = acquiring(&limiter, 1).waiting();
        let second = start({
            let limiter = limiter.clone();
            move || ns(acquiring(&limiter, 1).finish().unwrap().promised_at())
        });
        time.set(S);
        assert_eq!(ns(first.finish_once_woken().unwrap().promised_at()), S);
        time.set(2 * S);
        assert_eq!(second.join().unwrap(), 2 * S);
    });
}

/// The timer fires for a limiter whose last handle is dropped.
#[test]
fn quick_a_limiter_may_go_while_its_timer_fires() {
    explore(|time| {
        let limiter = Tasks::with_clock(window(1), time.clone());
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let task = acquiring(&limiter, 1).waiting();
        let dropper = start(move || drop((task, limiter)));
        time.set(S);
        dropper.join().unwrap();
    });
}
