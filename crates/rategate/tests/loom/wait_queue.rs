//! One wait queue: waiters that leave, move up, or meet permits that return.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use rategate_core::span::whole_ns as ns;

use crate::world::{S, Task, Tasks, acquiring, at_once, explore, start, window};

/// Returns a limiter whose permits are all taken.
fn full(permits: u64, time: &crate::world::ManualTime) -> Tasks {
    let limiter = Tasks::with_clock(at_once(permits), time.clone());
    assert!(limiter.try_acquire(permits).unwrap().is_granted());
    limiter
}

/// Checks that there are no waiters, and that all permits are free once the last are released.
fn adds_up(limiter: &Tasks, last: u64, all: u64) {
    assert_eq!(limiter.limiter().waiting(), Ok(0));
    assert_eq!(limiter.limiter().remaining(), Ok(all - last));
    limiter.limiter().release(last).unwrap();
    assert_eq!(limiter.limiter().remaining(), Ok(all));
}

/// The returned permit goes to the first waiter, which leaves before its grant or after it, so
/// that the next has it.
#[test]
fn quick_a_grant_to_who_leaves_goes_to_the_next_task() {
    explore(|time| {
        let limiter = full(1, time);
        let first = acquiring(&limiter, 1).waiting();
        let second = acquiring(&limiter, 1).waiting();
        let leaver = start(move || drop(first));
        let next = start(move || second.finish_once_woken().unwrap());
        limiter.limiter().release(1).unwrap();
        leaver.join().unwrap();
        next.join().unwrap();
        adds_up(&limiter, 1, 1);
    });
}

/// The returned permit goes to a waiter that leaves, and then to a thread that joins meanwhile.
#[test]
fn quick_a_grant_to_who_leaves_goes_to_the_next_thread() {
    explore(|time| {
        let limiter = full(1, time);
        let first = acquiring(&limiter, 1).waiting();
        let leaver = start(move || drop(first));
        let next = start({
            let limiter = limiter.clone();
            move || limiter.limiter().acquire(1).unwrap()
        });
        limiter.limiter().release(1).unwrap();
        leaver.join().unwrap();
        next.join().unwrap();
        adds_up(&limiter, 1, 1);
    });
}

/// A waiter for more than is free blocks two that want less, and leaves. No other call is made.
#[test]
fn quick_who_leaves_lets_those_behind_pass() {
    explore(|time| {
        let limiter = Tasks::with_clock(at_once(3), time.clone());
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let first = acquiring(&limiter, 3).waiting();
        let second = acquiring(&limiter, 1).waiting();
        let leaver = start(move || drop(first));
        let thread = start({
            let limiter = limiter.clone();
            move || limiter.limiter().acquire(1).unwrap()
        });
        second.finish_once_woken().unwrap();
        leaver.join().unwrap();
        thread.join().unwrap();
        adds_up(&limiter, 3, 3);
    });
}

/// A thread that sleeps for its own start is woken when that moves closer.
#[test]
fn quick_a_thread_moves_up_when_a_task_leaves() {
    explore(|time| {
        let limiter = Tasks::with_clock(window(1), time.clone());
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let first = acquiring(&limiter, 1).waiting();
        let thread = start({
            let limiter = limiter.clone();
            move || ns(limiter.limiter().acquire(1).unwrap().promised_at())
        });
        drop(first);
        time.set(S);
        assert_eq!(thread.join().unwrap(), S);
    });
}

/// A thread moves up without a task's timer that would serve it by chance.
#[test]
fn quick_a_thread_moves_up_when_a_reservation_is_cancelled() {
    explore(|time| {
        let limiter = Tasks::with_clock(window(1), time.clone()).limiter().clone();
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let reservation = limiter.reserve(1).unwrap();
        let thread = start({
            let limiter = limiter.clone();
            move || ns(limiter.acquire(1).unwrap().promised_at())
        });
        assert!(reservation.cancel());
        time.set(S);
        assert_eq!(thread.join().unwrap(), S);
    });
}

/// The first of three tasks leaves while the timer fires. The others start in order, without a
/// gap.
#[test]
fn quick_two_tasks_go_on_in_order_behind_one_who_leaves() {
    explore(|time| {
        let limiter = Tasks::with_clock(window(1), time.clone());
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let [first, second, third] = [(); 3].map(|()| acquiring(&limiter, 1).waiting());
        let leaver = start(move || drop(first));
        let [second, third] = [second, third]
            .map(|task| start(move || ns(task.finish_once_woken().unwrap().released_at())));
        time.set(S);
        leaver.join().unwrap();
        time.set(2 * S);
        // It may come late, and counts from then on.
        let second = second.join().unwrap();
        time.set(3 * S);
        let third = third.join().unwrap();
        assert!((S..=2 * S).contains(&second) && third > second, "{second} {third}");
        assert_eq!(limiter.limiter().waiting(), Ok(0));
    });
}

/// A task and a thread join while the only permit returns. Each releases it again.
#[test]
fn quick_what_comes_back_finds_who_joins() {
    explore(|time| {
        let limiter = full(1, time);
        let task = start({
            let limiter = limiter.clone();
            move || {
                acquiring(&limiter, 1).finish().unwrap();
                limiter.limiter().release(1).unwrap();
            }
        });
        let thread = start({
            let limiter = limiter.clone();
            move || {
                limiter.limiter().acquire(1).unwrap();
                limiter.limiter().release(1).unwrap();
            }
        });
        limiter.limiter().release(1).unwrap();
        task.join().unwrap();
        thread.join().unwrap();
        adds_up(&limiter, 0, 1);
    });
}

/// A thread waits twice with one cancellation token, which the thread that ended the first wait
/// may only now be about to signal.
#[test]
fn quick_a_late_cancellation_ends_no_other_wait() {
    explore(|time| {
        let limiter = full(2, time);
        let thread = start({
            let limiter = limiter.clone();
            move || {
                limiter.limiter().acquire(1).unwrap();
                limiter.limiter().acquire(1).unwrap();
            }
        });
        limiter.limiter().release(1).unwrap();
        limiter.limiter().release(1).unwrap();
        thread.join().unwrap();
        adds_up(&limiter, 2, 2);
    });
}

/// A task that moves to another executor is woken there, or finds its grant when it is polled.
#[test]
fn quick_the_newest_waker_is_called() {
    explore(|time| {
        let limiter = full(1, time);
        let task = acquiring(&limiter, 1).waiting();
        let moved = start(move || task.elsewhere().finish().unwrap());
        limiter.limiter().release(1).unwrap();
        moved.join().unwrap();
        adds_up(&limiter, 1, 1);
    });
}

/// A waker that uses the limiter, as an executor that polls in place would.
struct PollingWaker(Tasks, loom::sync::Mutex<Option<Task<()>>>);

impl Wake for PollingWaker {
    fn wake(self: Arc<Self>) {
        let task = self.1.lock().unwrap().take();
        // The waking thread has the outcome ready, and holds no lock.
        assert_eq!(task.unwrap().poll(), Poll::Ready(()));
        assert_eq!(self.0.limiter().waiting(), Ok(0));
    }
}

/// Wakers run when the lock is free and the outcome is ready.
#[test]
fn quick_a_waker_may_poll_inline() {
    explore(|time| {
        let limiter = full(1, time);
        let mut future = Box::pin({
            let limiter = limiter.clone();
            async move {
                limiter.acquire(1).await.unwrap();
            }
        });
        let eager = Arc::new(PollingWaker(limiter.clone(), loom::sync::Mutex::default()));
        let waker = Waker::from(Arc::clone(&eager));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        *eager.1.lock().unwrap() = Some(Task::new(future));
        let other = start({
            let limiter = limiter.clone();
            move || assert!(!limiter.try_acquire(2).is_ok_and(|tried| tried.is_granted()))
        });
        limiter.limiter().release(1).unwrap();
        other.join().unwrap();
        assert!(eager.1.lock().unwrap().is_none());
        adds_up(&limiter, 1, 1);
    });
}
