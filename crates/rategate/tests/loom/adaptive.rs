//! A limit that follows outcomes: it grows and shrinks while others wait, try and end.

use rategate::AdaptiveConcurrency;
use rategate::adaptive::{Adaptation, Bounds, Method};

use crate::world::{ManualTime, Task, Tasks, acquiring, explore, start};

/// Returns a limit that begins with `first`. It grows by one for each
/// operation that is served at the limit, and falls by one for each that is dropped.
fn following(first: u32, time: &ManualTime) -> Tasks<AdaptiveConcurrency> {
    let adaptation = Adaptation::new(Bounds::new(1, first, 2)).with_method(Method::Aimd);
    Tasks::with_clock(AdaptiveConcurrency::following(adaptation), time.clone())
}

/// Checks that no caller waits, and that `in_flight` permits are all that are missing.
fn adds_up(limiter: &Tasks<AdaptiveConcurrency>, in_flight: u64) {
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
