//! Open loops of texts, in threads and in event loops.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rategate::pace::Release;
use rategate_ffi::{Clock, OpenLoop, OpenLoopError, Replies};

/// Makes a loop on a clock that the test moves.
fn manual(load: &str) -> (OpenLoop, rategate::ManualClock) {
    let clock = rategate::ManualClock::stepped();
    (OpenLoop::new(load, None, Clock::Manual(clock.clone())).unwrap(), clock)
}

/// Returns a list of calls, and the number of its notifications.
fn calls() -> (Replies<Option<Release>>, Arc<AtomicUsize>) {
    let notified = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&notified);
    (Replies::new(move || _ = count.fetch_add(1, Ordering::Relaxed)), notified)
}

fn woken(calls: &Replies<Option<Release>>) -> Vec<u64> {
    let mut woken = Vec::new();
    calls.wake(|id| woken.push(id));
    woken
}

#[test]
fn a_fault_is_named_with_its_place_and_a_part_with_what_would_be_one() {
    let error = |load, part| OpenLoop::new(load, part, Clock::real()).unwrap_err();
    let fault = error("ramp:0/s>100@10s", None);
    assert!(matches!(&fault, OpenLoopError::Load { error, .. } if error.at == 9), "{fault}");
    assert_eq!(
        fault.to_string(),
        "the load \"ramp:0/s>100@10s\": at byte 9: not a rate; write N/PERIOD as in \"5/s\" or \
         \"1000/10s\", or \"0/s\" for none"
    );
    assert_eq!(
        error("constant:1/s", Some((2, 2))).to_string(),
        "part 2 of 2: parts count from 0, up to one less than their number; splits of splits make \
         at most 2^64 parts"
    );
}

#[test]
fn parts_together_are_exactly_the_whole() {
    let load = "ramp:0/s>40/s@2s then constant:7/s@1s";
    let clock = rategate::ManualClock::stepped();
    let start = |part| OpenLoop::new(load, part, Clock::Manual(clock.clone())).unwrap();
    let (whole, parts) = (start(None), [0, 1, 2].map(|part| start(Some((part, 3)))));
    clock.advance(Duration::from_secs(3));
    let due = |open_loop: &OpenLoop| -> Vec<_> {
        std::iter::from_fn(|| open_loop.wait()).map(|release| release.scheduled_at()).collect()
    };
    let mut together: Vec<_> = parts.iter().flat_map(due).collect();
    together.sort();
    assert_eq!(together, due(&whole));
    assert_eq!(together.len(), 48);
}

#[test]
fn a_release_counts_from_when_its_caller_collects_it() {
    let (open_loop, clock) = manual("constant:1/s@3s");
    let (calls, notified) = calls();
    let first = calls.begin(open_loop.wait_later()).unwrap().unwrap().unwrap();
    assert_eq!(first.wait(), Duration::ZERO);
    let second = calls.begin(open_loop.wait_later()).unwrap().unwrap_err();
    assert_eq!(calls.collect(second), None, "it is not due");
    clock.advance(Duration::from_secs(1));
    assert_eq!(notified.load(Ordering::Relaxed), 1);
    assert_eq!(woken(&calls), [second]);
    // The loop is busy with others.
    clock.advance(Duration::from_millis(250));
    let release = calls.collect(second).unwrap().unwrap();
    assert_eq!((release.number(), release.wait()), (1, Duration::from_millis(250)));
    assert_eq!(calls.collect(second), None, "it is released once");
    assert_eq!(calls.waiting(), 0);
}

#[test]
fn a_wake_that_is_not_collected_leaves_the_operation_to_the_next_call() {
    let (open_loop, clock) = manual("constant:1/s@3s");
    let (calls, _) = calls();
    assert!(calls.begin(open_loop.wait_later()).unwrap().is_ok());
    let given_up = calls.begin(open_loop.wait_later()).unwrap().unwrap_err();
    clock.advance(Duration::from_secs(1));
    assert_eq!(woken(&calls), [given_up]);
    assert!(calls.cancel(given_up));
    let next = calls.begin(open_loop.wait_later()).unwrap().unwrap().unwrap();
    assert_eq!(next.number(), 1);
}

#[test]
fn a_close_ends_the_waits_of_threads_and_of_event_loops() {
    let (open_loop, clock) = manual("constant:1/h@3h");
    assert!(open_loop.wait().is_some());
    let (calls, _) = calls();
    let call = calls.begin(open_loop.wait_later()).unwrap().unwrap_err();
    thread::scope(|scope| {
        let blocked = scope.spawn(|| open_loop.wait());
        while clock.waiting() == 0 {
            thread::yield_now();
        }
        open_loop.close();
        assert_eq!(blocked.join().unwrap(), None);
    });
    assert_eq!(woken(&calls), [call]);
    assert_eq!(calls.collect(call), Some(None));
}

#[test]
fn threads_and_an_event_loop_share_the_operations() {
    let load = OpenLoop::new("constant:2000/s@100ms", None, Clock::real()).unwrap();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let load = load.clone();
            thread::spawn(move || std::iter::from_fn(|| load.wait()).collect::<Vec<_>>())
        })
        .collect();
    let here = thread::current();
    let calls = Replies::new(move || here.unpark());
    let mut released = Vec::new();
    'load: loop {
        let mut ended = calls.begin(load.wait_later()).unwrap().ok();
        while ended.is_none() {
            thread::park_timeout(Duration::from_secs(10));
            calls.drain(|_, end| ended = Some(end));
        }
        match ended {
            Some(Some(release)) => released.push(release),
            _ => break 'load,
        }
    }
    released.extend(threads.into_iter().flat_map(|thread| thread.join().unwrap()));
    assert!(released.iter().all(|release| release.released_at() >= release.scheduled_at()));
    let mut numbers: Vec<_> = released.iter().map(Release::number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..=200).collect::<Vec<_>>());
}
