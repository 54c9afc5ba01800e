//! Changes of the numbers while there are waiters.

use crate::world::{S, Tasks, acquiring, at_each, at_once, explore, start, window};
use rategate_core::span::whole_ns as ns;

/// A larger limit lets all waiters start: a task, and a thread that joins meanwhile.
#[test]
fn quick_more_capacity_is_for_the_waiters() {
    explore(|time| {
        let limiter = Tasks::with_clock(at_once(1), time.clone());
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let task = start({
            let limiter = limiter.clone();
            move || acquiring(&limiter, 1).finish().unwrap()
        });
        let thread = start({
            let limiter = limiter.clone();
            move || limiter.limiter().acquire(1).unwrap()
        });
        limiter.limiter().reconfigure(at_once(3)).unwrap();
        task.join().unwrap();
        thread.join().unwrap();
        assert_eq!(limiter.limiter().remaining(), Ok(0));
    });
}

/// The thread sleeps for an instant that the new numbers bring closer, or joins after them.
#[test]
fn quick_who_waits_starts_by_the_new_numbers() {
    explore(|time| {
        let limiter = Tasks::with_clock(window(1), time.clone());
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let task = acquiring(&limiter, 1).waiting();
        let thread = start({
            let limiter = limiter.clone();
            move || ns(limiter.limiter().acquire(1).unwrap().promised_at())
        });
        limiter.limiter().reconfigure(window(2)).unwrap();
        assert_eq!(ns(task.finish_once_woken().unwrap().promised_at()), 0);
        time.set(S);
        assert_eq!(thread.join().unwrap(), S);
    });
}

/// A task's start moves ahead of the timer, while another thread leaves a critical section too.
#[test]
fn quick_the_timer_is_set_for_the_new_numbers() {
    explore(|time| {
        let limiter = Tasks::with_clock(at_each(4), time.clone());
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let first = acquiring(&limiter, 1).waiting();
        let second = start({
            let limiter = limiter.clone();
            move || ns(acquiring(&limiter, 1).finish().unwrap().promised_at())
        });
        limiter.limiter().reconfigure(at_each(1)).unwrap();
        time.set(S);
        assert_eq!(ns(first.finish_once_woken().unwrap().promised_at()), S);
        time.set(2 * S);
        assert_eq!(second.join().unwrap(), 2 * S);
    });
}

/// The thread is alone, so that no task's timer would serve it by chance.
#[test]
fn quick_a_single_thread_starts_by_the_new_limit() {
    explore(|time| {
        let limiter = Tasks::with_clock(at_each(4), time.clone()).limiter().clone();
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let thread = start({
            let limiter = limiter.clone();
            move || ns(limiter.acquire(1).unwrap().promised_at())
        });
        limiter.reconfigure(at_each(1)).unwrap();
        time.set(S);
        assert_eq!(thread.join().unwrap(), S);
    });
}
