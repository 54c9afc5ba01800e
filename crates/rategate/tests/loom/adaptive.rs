//! A limit that follows outcomes: it grows and shrinks while others wait, try and end.

use rategate::AdaptiveConcurrency;
use rategate::adaptive::{Adaptation, Bounds, Method};

use crate::world::{ManualTime, S, Task, Tasks, acquiring, explore, start};

/// Returns a limit that begins with `first`. It grows by one for each
/// operation that is served at the limit, and falls by one for each that is dropped.
fn following(first: u32, time: &ManualTime) -> Tasks {
    by(Method::Aimd, first, time)
}

fn by(method: Method, first: u32, time: &ManualTime) -> Tasks {
    let adaptation = Adaptation::new(Bounds::new(1, first, 2)).with_method(method);
    Tasks::with_clock(AdaptiveConcurrency::following(adaptation), time.clone())
}

/// Returns a limit by the knee of which a window lacks `missing` of its 32 operations, in the time
/// that it lasts. Four of those in it were dropped, if any.
fn at_the_knee(first: u32, missing: u64, has_dropped: bool, time: &ManualTime) -> Tasks {
    let limiter = by(Method::Knee, first, time);
    for operation in 0..32 - missing {
        let permit = limiter.try_permit(1).unwrap().unwrap();
        time.set((operation + 1) * 4 * S);
        if has_dropped && operation < 4 {
            permit.dropped();
        } else {
            permit.served();
        }
    }
    limiter
}

/// Checks that no caller waits, and that `in_flight` permits are all that are missing.
fn adds_up(limiter: &Tasks, in_flight: u64) {
    let limiter = limiter.limiter();
    assert_eq!(limiter.waiting(), Ok(0));
    let room = limiter.max_in_flight().unwrap().unwrap().saturating_sub(in_flight);
    // One request takes at most the floor.
    assert_eq!(limiter.remaining(), Ok(room.min(1)));
    limiter.release(in_flight).unwrap();
    assert_eq!(limiter.remaining(), Ok(1));
}

/// An operation ends at a limit of one, which is two from then on: both waiters start.
#[test]
fn quick_a_larger_limit_starts_all_who_fit() {
    explore(|time| {
        let limiter = following(1, time);
        let permit = limiter.try_permit(1).unwrap().unwrap();
        let [first, second] = [(); 2].map(|()| acquiring(&limiter, 1).waiting());
        let others = [first, second].map(|task| start(move || task.finish_once_woken().unwrap()));
        permit.served();
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(limiter.max_in_flight(), Ok(Some(2)));
        adds_up(&limiter, 2);
    });
}

/// Two operations end, one of them dropped, while one caller waits and one tries: the waiter
/// starts in every order, and the other only where the limit has room for both.
#[test]
fn quick_a_smaller_limit_starts_the_waiter() {
    explore(|time| {
        let limiter = following(2, time);
        let [one, other] = [(); 2].map(|()| limiter.try_permit(1).unwrap().unwrap());
        let waiter: Task<_> = acquiring(&limiter, 1).waiting();
        let dropping = start(move || one.dropped());
        let trying = start({
            let limiter = limiter.clone();
            move || limiter.try_acquire(1).unwrap().is_granted()
        });
        other.served();
        waiter.finish_once_woken().unwrap();
        dropping.join().unwrap();
        let tried = trying.join().unwrap();
        adds_up(&limiter, 1 + u64::from(tried));
    });
}

/// The last operation of a window ends at a limit of one, while one caller waits and one tries:
/// the limit doubles, the waiter starts, and the other starts where it tries after the end.
#[test]
fn quick_the_knee_grows_at_the_end_of_a_window() {
    explore(|time| {
        let limiter = at_the_knee(1, 1, false, time);
        let permit = limiter.try_permit(1).unwrap().unwrap();
        time.set(32 * 4 * S);
        let waiter: Task<_> = acquiring(&limiter, 1).waiting();
        let trying = start({
            let limiter = limiter.clone();
            move || limiter.try_acquire(1).unwrap().is_granted()
        });
        permit.served();
        waiter.finish_once_woken().unwrap();
        let tried = trying.join().unwrap();
        assert_eq!(limiter.max_in_flight(), Ok(Some(2)));
        adds_up(&limiter, 1 + u64::from(tried));
    });
}

/// Two operations end a window with too much that was dropped, while one caller waits and one
/// tries: the limit is cut to one in every order, and the waiter alone starts.
#[test]
fn quick_the_knee_is_cut_at_the_end_of_a_window() {
    explore(|time| {
        let limiter = at_the_knee(2, 2, true, time);
        let [one, other] = [(); 2].map(|()| limiter.try_permit(1).unwrap().unwrap());
        time.set(32 * 4 * S);
        let waiter: Task<_> = acquiring(&limiter, 1).waiting();
        let serving = start(move || one.served());
        let trying = start({
            let limiter = limiter.clone();
            move || limiter.try_acquire(1).unwrap().is_granted()
        });
        other.served();
        waiter.finish_once_woken().unwrap();
        serving.join().unwrap();
        assert!(!trying.join().unwrap());
        assert_eq!(limiter.max_in_flight(), Ok(Some(1)));
        adds_up(&limiter, 1);
    });
}
