//! Operations of a load: released once, in order, never early, and late only by what is true.

use std::collections::BTreeSet;
use std::f64::consts::TAU;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use rategate::pace::shape::{Factor, Load, Operations, Shape};
use rategate::pace::{OpenLoop, Release};
use rategate::{Clock, ManualClock, Rate};
use rategate_testkit::executor::{Task, play};
use rategate_testkit::ns;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

const LOADS: [&str; 7] = [
    "constant:7/s@5s",
    "ramp:0/s>20/s@4s then constant:20/s@1s",
    "stages:0/s>1/s@5s,1/s@1s,0/s@5s",
    "sine:10/s,10/s,3s@7s then ramp:10/s>0/s@2s",
    "sawtooth:1/s>9/s@1.3s@6s + constant:1/3s@6s",
    "constant:2/s@1s x5 then constant:999/s@200ms",
    "poisson(ramp:0/s>30/s@3s),seed=7",
];

fn operations(text: &str) -> Operations {
    text.parse::<Load>().unwrap().into_operations()
}

fn scheduled(release: Release) -> (u64, u64) {
    (release.number(), ns(release.scheduled_at()))
}

/// A caller that is slow at random, on a clock whose sleeps end early and late.
#[test]
fn each_operation_is_released_once_in_order_and_never_early() {
    for (seed, text) in (0_u64..140).zip(LOADS.into_iter().cycle()) {
        let mut random = Rng::with_seed(seed);
        let mut sleeps = Rng::with_seed(seed);
        let clock = ManualClock::with_sleep(move |requested| match sleeps.u8(..4) {
            0 => requested / 2,
            1 => requested + Duration::from_micros(sleeps.u64(..900)),
            _ => requested,
        });
        clock.advance(Duration::from_nanos(random.u64(..S)));
        let (start_ns, all) = (clock.now_ns(), operations(text));
        let open_loop = OpenLoop::with_clock(all.clone(), clock.clone());
        let mut number = 0;
        loop {
            let called_ns = clock.now_ns() - start_ns;
            let Some(release) = open_loop.wait() else { break };
            let due_ns = all.due(number).unwrap();
            assert_eq!(scheduled(release), (number, due_ns), "{text}, seed {seed}");
            let released_ns = ns(release.released_at());
            assert_eq!(released_ns, clock.now_ns() - start_ns, "{text}, seed {seed}");
            assert!(released_ns >= due_ns, "{text}, seed {seed}: {number} is early");
            assert_eq!(ns(release.wait()), released_ns - due_ns, "from the due instant");
            let late_ns = released_ns - due_ns.max(called_ns);
            assert!(late_ns < MS, "{text}, seed {seed}: what is due is released at once");
            number += 1;
            let busy_ns = match random.u8(..8) {
                0 => random.u64(..S),
                1..4 => random.u64(..50 * MS),
                _ => 0,
            };
            clock.advance(Duration::from_nanos(busy_ns));
        }
        assert_eq!(all.due(number), None, "{text}, seed {seed}: {number} and no more");
        assert!(number > 5, "{text}: {number} operations");
    }
}

/// The integral of the rate, inverted in floats: by its formula for a ramp, by halving for a sine.
#[test]
fn releases_follow_the_integral() {
    // 100 + 50 sin: 100 t and 50 P / tau (1 - cos) by t.
    let reached = |t: f64| 100.0 * t + 50.0 * 6.0 / TAU * (1.0 - (TAU * t / 6.0).cos());
    let halved = |n: f64| {
        let (mut low, mut high) = (0.0, 100.0);
        for _ in 0..100 {
            let mid = f64::midpoint(low, high);
            if reached(mid) < n { low = mid } else { high = mid }
        }
        high
    };
    let root = |n: f64| (n / 5.0).sqrt();
    let expected: [(_, &dyn Fn(f64) -> f64); 2] =
        [("ramp:0/s>100/s@10s", &root), ("sine:100/s,50/s,6s@9s", &halved)];
    for (text, due) in expected {
        let open_loop = OpenLoop::with_clock(operations(text), ManualClock::new());
        let mut count = 0_u32;
        while let Some(release) = open_loop.wait() {
            let off = release.released_at().as_secs_f64() - due(f64::from(count));
            assert!((-0.1e-9..1.1e-9).contains(&off), "{text}: {release:?}");
            count += 1;
        }
        // 500 and operation 0; 900 and 50 * 6 / pi, and operation 0.
        assert_eq!(count, if text.starts_with("ramp") { 501 } else { 996 }, "{text}");
    }
}

/// Machines that have a part each release the whole together, also if each is slow at times.
#[test]
fn parts_of_a_load_together_are_the_whole() {
    for (text, of) in LOADS.into_iter().zip([1, 2, 3, 5, 7, 2, 3]) {
        let whole = operations(text);
        let mut all = BTreeSet::new();
        for part in 0..of {
            let clock = ManualClock::new();
            let mine = whole.clone().split(part, of).unwrap();
            let open_loop = OpenLoop::with_clock(mine, clock.clone());
            while let Some(release) = open_loop.wait() {
                clock.advance(Duration::from_millis(release.number() % 3 * 200));
                let (number, due_ns) = scheduled(release);
                assert!(all.insert((number * of + part, due_ns)), "{text}: twice");
            }
        }
        let whole: Vec<(u64, u64)> = (0..).zip(whole).collect();
        assert_eq!(all.into_iter().collect::<Vec<_>>(), whole, "{text}");
    }
}

/// Where no operation is late, no window holds more than the bound of the shape.
#[test]
fn releases_on_time_keep_the_bound_of_the_shape() {
    let rate = Rate::per_second;
    let shapes = [
        Shape::ramp(Rate::NEVER, rate(40), 5 * S).unwrap(),
        Shape::sine(rate(30), rate(30), 2 * S, Factor::ONE).unwrap(),
        Shape::spike(rate(3), rate(200), S, 300 * MS).unwrap().lasting(4 * S).unwrap(),
        Shape::ramp(rate(1), rate(50), S).unwrap().repeated(6).unwrap(),
    ];
    for shape in shapes {
        // A sine never ends, but has no bound of its own once it is cut.
        let load = Operations::evenly(shape.clone()).into_iter().take(250);
        let open_loop = OpenLoop::with_clock(load, ManualClock::new());
        let mut starts = Vec::new();
        while let Some(release) = open_loop.wait() {
            assert_eq!(release.wait(), Duration::ZERO);
            starts.push(ns(release.released_at()));
        }
        let mut fullest = 0;
        for window_ns in [0, MS, 37 * MS, 300 * MS, S, 2 * S, 20 * S] {
            let bound = shape.max_within(window_ns).unwrap();
            let within = |first: usize| {
                let end_ns = starts[first] + window_ns;
                starts[first..].iter().take_while(|&&start_ns| start_ns <= end_ns).count()
            };
            let most = (0..starts.len()).map(within).max().unwrap() as u64;
            assert!(most <= bound, "{most} in {window_ns} ns, at most {bound}: {shape:?}");
            fullest = fullest.max(most);
        }
        assert_eq!(fullest, starts.len() as u64, "the last window holds all");
    }
}

/// A stalled thread holds up its own operation, and those of no other.
#[test]
fn a_slow_thread_delays_no_other() {
    let clock = ManualClock::stepped();
    let open_loop = OpenLoop::with_clock(operations("constant:10/s@2s"), clock.clone());
    // This call stands for a request without an answer.
    assert_eq!(open_loop.wait().map(scheduled), Some((0, 0)));
    let released = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let workers = [(); 3].map(|()| {
            scope.spawn(|| {
                while let Some(release) = open_loop.wait() {
                    released.lock().unwrap().push(release);
                }
            })
        });
        while workers.iter().any(|worker| !worker.is_finished()) {
            // Each step makes one operation due, once all workers that are left wait.
            if clock.waiting() == workers.iter().filter(|worker| !worker.is_finished()).count() {
                clock.step();
            }
            thread::yield_now();
        }
    });
    let mut released = released.into_inner().unwrap();
    released.sort_unstable_by_key(Release::number);
    let all: Vec<(u64, u64)> = released.iter().copied().map(scheduled).collect();
    assert_eq!(all, (1..=20).map(|n| (n, n * 100 * MS)).collect::<Vec<_>>());
    assert!(released.iter().all(|release| release.released_at() >= release.scheduled_at()));
}

/// Tasks that take turns: an operation whose task gives up goes to the next call, and its wait
/// counts from its own instant.
#[test]
fn an_operation_given_up_goes_to_the_next_call() {
    let clock = ManualClock::stepped();
    let open_loop = OpenLoop::with_clock(operations("constant:1/s"), clock.clone());
    let mut tasks = [(); 3].map(|()| Task::new(open_loop.wait_async()));
    assert_eq!(tasks[0].result.flatten().map(scheduled), Some((0, 0)));
    assert_eq!(clock.sleeping(), 2);
    tasks[1].future = None;
    play(&clock, &mut tasks, 2 * S);
    assert_eq!(tasks[2].result.flatten().map(scheduled), Some((2, 2 * S)));
    let late = Task::new(open_loop.wait_async()).result.flatten().unwrap();
    assert_eq!((scheduled(late), ns(late.wait())), ((1, S), S));
    let mut next = [Task::new(open_loop.wait_async())];
    play(&clock, &mut next, 3 * S);
    assert_eq!(next[0].result.flatten().map(scheduled), Some((3, 3 * S)));
}

#[test]
fn tasks_release_each_operation_once() {
    for (seed, text) in (0_u64..21).zip(LOADS.into_iter().cycle()) {
        let (clock, all) = (ManualClock::stepped(), operations(text));
        let open_loop = OpenLoop::with_clock(all.clone(), clock.clone());
        let released = Mutex::new(Vec::new());
        let worker = |number: u64| {
            let (open_loop, released, clock) = (&open_loop, &released, &clock);
            async move {
                let mut random = Rng::with_seed(seed * 8 + number);
                while let Some(release) = open_loop.wait_async().await {
                    released.lock().unwrap().push(release);
                    clock.sleep_until(clock.now_ns() + random.u64(..100 * MS)).await;
                }
            }
        };
        let mut tasks: Vec<_> = (0..4).map(|number| Task::new(worker(number))).collect();
        play(&clock, &mut tasks, 100 * S);
        let mut released = std::mem::take(&mut *released.lock().unwrap());
        assert!(released.iter().all(|release| release.released_at() >= release.scheduled_at()));
        released.sort_unstable_by_key(Release::number);
        let all: Vec<(u64, u64)> = (0..).zip(all).collect();
        assert_eq!(released.into_iter().map(scheduled).collect::<Vec<_>>(), all, "{text}");
    }
}

#[test]
fn a_close_ends_all_waits() {
    let clock = ManualClock::stepped();
    let open_loop = Arc::new(OpenLoop::with_clock(operations("constant:1/h"), clock.clone()));
    assert_eq!(open_loop.wait().map(scheduled), Some((0, 0)));
    let in_thread = Arc::clone(&open_loop);
    let waiting = thread::spawn(move || in_thread.wait());
    let mut task = Task::new(open_loop.wait_async());
    while clock.waiting() == 0 {
        thread::yield_now();
    }
    open_loop.close();
    assert_eq!(waiting.join().unwrap(), None);
    task.run();
    assert_eq!((task.result, open_loop.wait()), (Some(None), None));
}

/// Any instants are a load: what comes late in them is released late, and the end of the clock is
/// an end.
#[test]
fn any_instants_are_a_load() {
    let open_loop = OpenLoop::with_clock([5 * S, 3 * S, u64::MAX], ManualClock::new());
    assert_eq!(open_loop.wait().map(|release| ns(release.wait())), Some(0));
    assert_eq!(open_loop.wait().map(|release| ns(release.wait())), Some(2 * S));
    let clock = ManualClock::new();
    clock.advance(Duration::from_nanos(1));
    assert_eq!(OpenLoop::with_clock([u64::MAX, 0], clock).wait(), None);
    assert_eq!(OpenLoop::with_clock([], ManualClock::new()).wait(), None);
}
