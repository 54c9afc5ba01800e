//! A waiter whose start has come takes its permits, while other calls could interfere.

use std::sync::Arc;
use std::task::Waker;

use rategate::AcquireError;
use rategate_core::span::whole_ns as ns;

use crate::world::{
    BlockingWaker, S, Task, Tasks, acquiring, acquiring_within, at_each, explore, explore_within,
    start, window,
};

/// Returns a limiter of one permit in each `S`, which is taken, and a task that waits for the
/// next.
fn waiting(time: &crate::world::ManualTime) -> (Tasks, Task<crate::world::Ended>) {
    let limiter = Tasks::with_clock(window(1), time.clone());
    assert!(limiter.try_acquire(1).unwrap().is_granted());
    let task = acquiring(&limiter, 1).waiting();
    (limiter, task)
}

/// Taking meets a try: there is one permit, and one of them has it.
#[test]
fn quick_a_try_does_not_take_what_is_held() {
    explore(|time| {
        let (limiter, task) = waiting(time);
        let taker = start(move || ns(task.finish_once_woken().unwrap().released_at()));
        let thief = start({
            let limiter = limiter.clone();
            move || limiter.try_acquire(1).unwrap().is_granted()
        });
        time.set(S);
        assert!(!thief.join().unwrap(), "the task came first");
        assert_eq!(taker.join().unwrap(), S);
    });
}

/// Taking meets leaving: the permit of a due task that leaves goes to the next waiter at once.
#[test]
fn quick_what_is_left_untaken_goes_to_the_next() {
    explore(|time| {
        let (limiter, first) = waiting(time);
        let second = acquiring(&limiter, 1).waiting();
        time.set(S);
        let leaver = start(move || drop(first));
        let taker = start(move || ns(second.finish_once_woken().unwrap().released_at()));
        leaver.join().unwrap();
        assert_eq!(taker.join().unwrap(), S);
        assert_eq!(limiter.limiter().waiting(), Ok(0));
    });
}

/// Taking meets the end of the grace period: the waiter that is withdrawn starts behind the
/// other, and no window has two.
#[test]
fn quick_one_that_is_withdrawn_starts_later() {
    explore_within(2, |time| {
        let limiter = Tasks::with_clock(window(1), time.clone());
        let limiter =
            Tasks::from(limiter.limiter().clone().with_grace(std::time::Duration::from_nanos(1)));
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let tasks = [(); 2].map(|()| acquiring(&limiter, 1).waiting());
        let taken = Arc::new(BlockingWaker::default());
        let [first, second] = tasks.map(|task| {
            let taken = Waker::from(Arc::clone(&taken));
            start(move || {
                let started_ns = ns(task.finish_once_woken().unwrap().released_at());
                taken.wake();
                started_ns
            })
        });
        time.set(S);
        time.set(S + 1);
        time.set(2 * S);
        // One of them has started by now, or is about to. The other has the next window.
        taken.wait_until_woken();
        time.set(3 * S);
        let (first, second) = (first.join().unwrap(), second.join().unwrap());
        assert_ne!(first / S, second / S, "{first} {second}");
    });
}

/// Taking meets a change of the numbers: the old ones or the new decide, and exactly.
#[test]
fn quick_a_change_comes_before_taking_or_after() {
    explore(|time| {
        let (limiter, task) = waiting(time);
        let taker = start(move || ns(task.finish_once_woken().unwrap().released_at()));
        time.set(S);
        limiter.limiter().reconfigure(at_each(3)).unwrap();
        time.set(3 * S);
        let started_ns = taker.join().unwrap();
        assert!([S, 3 * S].contains(&started_ns), "{started_ns}");
    });
}

/// Taking meets closing and a deadline: the wait is granted or ended, and holds nothing
/// afterwards.
#[test]
fn quick_closing_ends_a_wait_or_finds_it_taken() {
    explore(|time| {
        let limiter = Tasks::with_clock(window(1), time.clone());
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let task = acquiring_within(&limiter, S).waiting();
        let taker = start(move || task.finish_once_woken());
        time.set(S);
        limiter.close();
        match taker.join().unwrap() {
            Ok(grant) => assert_eq!(ns(grant.released_at()), S),
            Err(error) => assert_eq!(error, AcquireError::Closed),
        }
    });
}
