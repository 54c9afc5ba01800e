//! The gate of a limit that decides under its lock: what has been denied is denied without the
//! lock, until something comes back, a caller waits or the numbers change.

use rategate::{AllOf, Limiter};
use rategate_core::span::whole_ns as ns;

use crate::world::{ManualTime, S, Tasks, acquiring, at_each, at_once, explore, start};

/// Returns a limiter that has denied a permit, so that its gate is shut.
fn used_up(limits: impl Into<AllOf>, time: &ManualTime) -> Limiter<ManualTime> {
    let limiter = Limiter::with_clock(limits, time.clone());
    assert!(tried(&limiter));
    assert!(!tried(&limiter));
    limiter
}

fn tried(limiter: &Limiter<ManualTime>) -> bool {
    limiter.try_acquire(1).unwrap().is_granted()
}

/// What `act` brings is for one of two that try.
fn opens_for_one(act: fn(&Limiter<ManualTime>)) {
    explore(move |time| {
        let limiter = used_up(at_once(1), time);
        let other = start({
            let limiter = limiter.clone();
            move || tried(&limiter)
        });
        act(&limiter);
        let own = tried(&limiter);
        assert_ne!(own, other.join().unwrap());
    });
}

#[test]
fn quick_what_comes_back_opens_the_gate() {
    opens_for_one(|limiter| assert_eq!(limiter.release(1), Ok(true)));
}

#[test]
fn quick_a_change_opens_the_gate() {
    opens_for_one(|limiter| limiter.reconfigure(at_once(2)).unwrap());
}

/// Time opens the gate for a try and a task that waits: they never have one permit.
#[test]
fn quick_time_opens_the_gate_for_one() {
    explore(|time| {
        let limiter = used_up(at_each(1), time);
        let task = start({
            let limiter = Tasks::from(limiter.clone());
            move || ns(acquiring(&limiter, 1).finish().unwrap().promised_at())
        });
        time.set(S);
        let own = tried(&limiter);
        if own {
            time.set(2 * S);
        }
        let started_ns = task.join().unwrap();
        assert!(started_ns >= if own { 2 * S } else { S });
    });
}

/// A closed limiter says so, also to those that it has denied before.
#[test]
fn quick_closing_opens_the_gate() {
    explore(|time| {
        let limiter = used_up(at_each(1), time);
        let other = start({
            let limiter = limiter.clone();
            move || limiter.try_acquire(1).map_or(true, |decision| !decision.is_granted())
        });
        limiter.close();
        assert!(limiter.try_acquire(1).is_err());
        assert!(other.join().unwrap());
    });
}
