//! Ceilings: the most that a limit grants in any window, as explanations print it.

use std::time::Duration;

use rategate::policy::Anchor;
use rategate::{AnyPolicy, FixedWindow, Gcra, Rate, SlidingLog};
use rategate_core::ledger::Ledger;
use rategate_core::verdict::Verdict;
use rategate_server::config::ceiling;
use rategate_server::rule::Limit;

/// Counts the most that pass in any window, with a request as greedy as possible each
/// millisecond.
fn counted(policy: AnyPolicy, window_ms: u64) -> u128 {
    let mut limit = Ledger::new(policy, 0);
    let mut passed = Vec::new();
    // After silence, and across a border of each window.
    for at_ms in 900..4_000_u64 {
        while let Ok(Verdict::Granted(_)) = limit.try_acquire(at_ms * 1_000_000, 1) {
            passed.push(at_ms);
        }
    }
    let within =
        |start: u64| passed.iter().filter(|at| (start..start + window_ms).contains(*at)).count();
    passed.iter().map(|at| within(*at)).max().unwrap() as u128
}

#[test]
fn no_more_passes_than_the_ceiling_and_it_is_reached() {
    let second = 1_000_000_000;
    let policies: [(AnyPolicy, bool); 4] = [
        (Gcra::new(Rate::new(10, Duration::from_secs(1)).unwrap(), 5).unwrap().into(), true),
        (SlidingLog::new(7, Duration::from_nanos(second / 2)).into(), true),
        (SlidingLog::new(7, Duration::from_nanos(second / 2)).compact().into(), true),
        // Only a window that begins within one of the grid overlaps one more.
        (FixedWindow::new(7, Duration::from_nanos(second / 2), Anchor::Epoch).into(), false),
    ];
    for (policy, is_reached) in policies {
        for window_ms in [250, 500, 1_000, 1_300] {
            let max = ceiling(&Limit::Policy(policy), window_ms * 1_000_000).unwrap();
            let passed = counted(policy, window_ms);
            assert!(passed <= max, "{policy:?}: {passed} of {max} in {window_ms} ms");
            assert!(
                !is_reached || passed == max,
                "{policy:?}: {passed} of {max} in {window_ms} ms"
            );
        }
    }
    assert_eq!(ceiling(&Limit::Nothing, 1), Some(0));
    assert_eq!(ceiling(&Limit::Unlimited, 1), None);
}
