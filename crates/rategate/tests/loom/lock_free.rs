//! A limit with a lock-free form: a waiter has sealed it, and no try overtakes.

use std::time::Duration;

use rategate::{Gcra, Rate};
use rategate_core::span::whole_ns as ns;

use crate::world::{S, Tasks, acquiring, explore, start};

fn gcra() -> Gcra {
    Gcra::new(Rate::new(1, Duration::from_nanos(S)).unwrap(), 1).unwrap()
}

/// A task joins during a try, and time passes: the two never have one permit.
#[test]
fn quick_a_try_and_a_task_share_what_is_earned() {
    explore(|time| {
        let limiter = Tasks::with_clock(gcra(), time.clone());
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let task = start({
            let limiter = limiter.clone();
            move || ns(acquiring(&limiter, 1).finish().unwrap().promised_at())
        });
        time.set(S);
        let tried = limiter.try_acquire(1).unwrap().is_granted();
        if tried {
            time.set(2 * S);
        }
        let started_ns = task.join().unwrap();
        assert!(started_ns >= if tried { 2 * S } else { S });
    });
}

/// A thread joins while the lock-free state is open for tries.
#[test]
fn quick_a_thread_waits_behind_a_try_that_was_first() {
    explore(|time| {
        let limiter = Tasks::with_clock(gcra(), time.clone());
        let thread = start({
            let limiter = limiter.clone();
            move || ns(limiter.limiter().acquire(1).unwrap().promised_at())
        });
        let tried = limiter.try_acquire(1).unwrap().is_granted();
        time.set(S);
        assert_eq!(thread.join().unwrap() >= S, tried);
        assert_eq!(limiter.limiter().waiting(), Ok(0));
    });
}
