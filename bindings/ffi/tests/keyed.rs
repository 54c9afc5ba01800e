//! Tables of keys as other languages call them.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use rategate::policy::Anchor;
use rategate::{AnyPolicy, Concurrency, FixedWindow, Gcra, ManualClock};
use rategate_ffi::{Capacity, Clock, KeyRef, Keyed};

/// A table that is decided and peeked at by two calls is the oracle.
#[test]
fn a_try_that_peeks_returns_what_a_try_and_a_peek_behind_it_do() {
    let minute = Duration::from_secs(60);
    let policies: [AnyPolicy; 3] = [
        Gcra::per_second(3).burst(5).into(),
        FixedWindow::new(7, minute, Anchor::Epoch).into(),
        Concurrency::new(4).into(),
    ];
    for policy in policies {
        let clock = ManualClock::stepped();
        let table = || Keyed::new(policy, Capacity::default(), Clock::Manual(clock.clone()));
        let (table, oracle) = (table(), table());
        let mut random = fastrand::Rng::with_seed(7);
        let (mut grants, mut never) = (0, 0);
        for _ in 0..2_000 {
            let name = ["a", "b", "c"][random.usize(..3)];
            let (key, permits) = (KeyRef::Text(name), random.u64(..9));
            let expected = oracle.try_acquire(key, permits).map(|decision| {
                let left = oracle.status(key).unwrap().remaining;
                let more = |_| oracle.peek(key, left.wrapping_add(1)).ok().flatten();
                (decision, left, decision.granted().and_then(more))
            });
            let found = table.try_acquire_then_peek(key, permits);
            assert_eq!(found, expected, "{permits} permits of {name:?} of {policy:?}");
            if let Ok((decision, _, more)) = found
                && decision.is_granted()
            {
                grants += 1;
                never += i32::from(more.is_none());
            }
            clock.advance(Duration::from_millis(random.u64(..400)));
        }
        assert!(grants > 50, "{grants} grants of {policy:?}");
        assert!(never < grants || matches!(policy, AnyPolicy::Concurrency(_)), "{policy:?}");
    }
}
