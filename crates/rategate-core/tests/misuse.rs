//! A constructor for constants panics where it is called, so that the message names that line.

use std::cell::Cell;
use std::panic::{catch_unwind, set_hook, take_hook};
use std::time::Duration;

use rategate_core::adaptive::{Adaptation, AdaptiveConcurrency, AdaptiveRate, Bounds};
use rategate_core::any_policy::AnyPolicy;
use rategate_core::commit_log::CommitLog;
use rategate_core::concurrency::Concurrency;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::rate::Rate;
use rategate_core::share::Share;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::slow_start::SlowStart;

/// A call that makes a limit of a period out of numbers that are none.
type Misuse = fn(Duration) -> AnyPolicy;

thread_local! {
    static IS_HERE: Cell<Option<bool>> = const { Cell::new(None) };
}

#[test]
fn a_constant_that_is_no_limit_panics_at_its_line() {
    let second = Duration::from_secs(1);
    let before = take_hook();
    set_hook(Box::new(move |panic| {
        let is_here = panic.location().is_some_and(|at| at.file().ends_with("misuse.rs"));
        // Other tests of this process go on as they are.
        if IS_HERE.with(|seen| seen.replace(Some(is_here)).is_none()) {
            before(panic);
        }
    }));
    let misused: [(&str, Misuse); 11] = [
        ("a bucket", |_| Gcra::per_second(0).into()),
        ("a burst", |_| Gcra::per_second(1).burst(0).into()),
        ("a log", |period| SlidingLog::new(0, period).into()),
        ("a window", |_| FixedWindow::new(1, Duration::ZERO, Anchor::Epoch).into()),
        ("a commit log", |period| CommitLog::new(0, period).into()),
        ("permits in flight", |_| Concurrency::new(0).into()),
        ("bounds", |_| AdaptiveConcurrency::new(9, 1).into()),
        ("a rate", |_| Gcra::new(Rate::per_minute(0), 1).unwrap().into()),
        ("a share", |period| {
            let slow = SlowStart::new(Gcra::per_second(1), period).unwrap();
            slow.with_first_share(Share::percent(101)).into()
        }),
        ("three bounds", |_| {
            AdaptiveConcurrency::following(Adaptation::new(Bounds::new(3, 2, 1))).into()
        }),
        ("rates", |_| AdaptiveRate::new(Rate::per_second(9), Rate::per_second(1)).into()),
    ];
    for (what, misuse) in misused {
        IS_HERE.with(|seen| seen.set(Some(false)));
        assert!(catch_unwind(|| misuse(second)).is_err(), "{what}");
        assert_eq!(IS_HERE.with(Cell::take), Some(true), "{what} panics elsewhere");
    }
}
