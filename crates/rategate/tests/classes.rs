//! Classes of callers under one limiter: tasks and threads, on a manual clock.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use rategate::error::{ClassError, TooManyClasses};
use rategate::wait::QueueBounds;
use rategate::{AcquireError, AsyncLimiter, Gcra, Limiter, ManualClock};
use rategate_testkit::ns;

use rategate_testkit::executor::{Task, play};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

fn gcra(rate: &str, burst: u64) -> Gcra {
    Gcra::new(rate.parse().unwrap(), burst).unwrap()
}

/// S4.17: a slow and a fast queue of pages share 100 kB/s by weight, although sizes are unknown
/// until a page has arrived. Together they use all of the rate.
#[test]
fn two_classes_of_tasks_share_the_bytes() {
    let clock = ManualClock::stepped();
    let limiter = Limiter::with_clock(gcra("100000/s", 1_000), clock.clone());
    let bytes = Mutex::new([0_u64; 2]);
    // Weights are the bytes of a turn: one share for the slow sites, three for the fast.
    let classes = [1_000, 3_000].map(|weight| AsyncLimiter::from(limiter.class(weight).unwrap()));
    let sizes = [[50_000, 41_000, 62_000], [1_000, 4_000, 2_500]];
    let mut tasks: Vec<_> = (0..8)
        .map(|fetcher| {
            let (bytes, class) = (&bytes, fetcher % 2);
            let limiter = &classes[class];
            Task::new(async move {
                for size in sizes[class].into_iter().cycle() {
                    let page = limiter.hold(1_000, Duration::MAX).await.unwrap();
                    bytes.lock().unwrap()[class] += size;
                    page.commit(size).unwrap();
                }
            })
        })
        .collect();
    play(&clock, &mut tasks, 300 * S);
    let [slow, fast] = *bytes.lock().unwrap();
    assert!((slow + fast).abs_diff(300 * 100_000) <= 100_000, "{slow} + {fast}");
    assert!((3 * slow).abs_diff(fast) <= 3 * 2 * 62_000, "{slow} : {fast}");
}

/// Threads of two classes alternate by weight in one queue, and none is lost.
#[test]
fn threads_of_two_classes_take_turns() {
    let clock = ManualClock::stepped();
    // Threads wake in real time, and the clock goes on without them.
    let limiter = Limiter::with_clock(gcra("10/s", 1), clock.clone()).with_promised_starts();
    let heavy = limiter.class(2).unwrap();
    limiter.acquire(1).unwrap();
    let starts = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let mut waiting = 0;
        for (handle, is_heavy, callers) in [(&limiter, false, 4), (&heavy, true, 8)] {
            for _ in 0..callers {
                let starts = &starts;
                scope.spawn(move || {
                    let grant = handle.acquire(1).unwrap();
                    starts.lock().unwrap().push((ns(grant.promised_at()) / MS, is_heavy));
                });
                waiting += 1;
                while limiter.waiting() != Ok(waiting) {
                    thread::yield_now();
                }
            }
        }
        while starts.lock().unwrap().len() < 12 {
            clock.advance(Duration::from_millis(10));
            thread::yield_now();
        }
    });
    let mut starts = starts.into_inner().unwrap();
    starts.sort_unstable();
    let instants: Vec<_> = starts.iter().map(|start| start.0).collect();
    assert_eq!(instants, (1..=12).map(|k| k * 100).collect::<Vec<_>>());
    let order: String = starts.iter().map(|start| if start.1 { 'h' } else { '.' }).collect();
    assert_eq!(order, ".hh.hh.hh.hh");
}

/// A deadline is judged by the turn that the caller's class would have, not by the length of all
/// queues.
#[test]
fn a_deadline_is_judged_by_the_turn_of_its_class() {
    let clock = ManualClock::stepped();
    let flood = AsyncLimiter::with_clock(gcra("1/s", 1), clock.clone());
    let quiet = AsyncLimiter::from(flood.limiter().class(1).unwrap());
    flood.limiter().acquire(1).unwrap();
    let mut tasks: Vec<_> = (0..50).map(|_| Task::new(flood.acquire(1))).collect();
    let within = |seconds| Task::new(quiet.acquire_within(1, Duration::from_secs(seconds)));
    let too_soon = within(1);
    let Some(Err(AcquireError::TooLong(late))) = too_soon.result else { panic!() };
    assert_eq!(late.wait(), Duration::from_secs(2));
    tasks.push(within(2));
    assert!(tasks[50].result.is_none());
    play(&clock, &mut tasks, 2 * S);
    let in_time = tasks.pop().unwrap();
    assert_eq!(ns(in_time.result.unwrap().unwrap().promised_at()), 2 * S);
}

/// A class made while others wait has its turns from then on, although their starts were already
/// reported.
#[test]
fn a_class_made_late_has_its_turns() {
    let clock = ManualClock::stepped();
    let flood = AsyncLimiter::with_clock(gcra("1/s", 1), clock.clone());
    flood.limiter().acquire(1).unwrap();
    let patient = Duration::from_secs(99);
    let mut tasks: Vec<_> = (0..9).map(|_| Task::new(flood.acquire_within(1, patient))).collect();
    let quiet = AsyncLimiter::from(flood.limiter().class(1).unwrap());
    tasks.extend((0..3).map(|_| Task::new(quiet.acquire_owned(1))));
    play(&clock, &mut tasks, 12 * S);
    let late = tasks[9..].iter().map(|task| ns(task.result.unwrap().unwrap().promised_at()) / S);
    assert_eq!(late.collect::<Vec<_>>(), [2, 4, 6]);
}

/// A flood fills the queue of its own class, and no other.
#[test]
fn bounds_hold_for_each_class() {
    let flood = AsyncLimiter::with_clock(gcra("1/s", 1), ManualClock::stepped());
    let quiet = AsyncLimiter::from(flood.limiter().class(1).unwrap());
    flood.limiter().bound_queue(QueueBounds::new(2)).unwrap();
    flood.limiter().acquire(1).unwrap();
    let tasks: Vec<_> = (0..4).map(|_| Task::new(flood.acquire(1))).collect();
    let full = |task: &Task<'_, _>| task.result == Some(Err(AcquireError::QueueFull));
    assert_eq!(tasks.iter().filter(|task| full(task)).count(), 2);
    assert!(Task::new(quiet.acquire(1)).result.is_none());
}

#[test]
fn impossible_classes_are_errors() {
    let limiter = Limiter::new(gcra("1/s", 1));
    assert_eq!(limiter.class(0).unwrap_err(), ClassError::ZeroWeight);
    let made = (0..).map_while(|_| limiter.class(u64::MAX).ok()).count();
    assert_eq!(made, 255, "and the first");
    assert_eq!(limiter.class(1).unwrap_err(), ClassError::TooMany(TooManyClasses));
    limiter.close();
    assert_eq!(limiter.class(1).unwrap_err(), ClassError::Closed);
}
