//! Very many waiting tasks: when the last one starts, the order of starts, the memory of a
//! waiter, and the cost of leaving the queue.

use std::future::{pending, poll_fn};
use std::hint::black_box;
use std::mem::replace;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use governor::Quota;
use rategate::policy::Mode;
use rategate::wait::{AsyncIoTimer, Timed, TokioTimer};
use rategate::{AsyncLimiter, Clock, Gcra, MonotonicClock, Rate, TwoTimeline};
use rategate_bench::engines::Made;
use rategate_core::span::whole_ns;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::cpu::Cpu;
use crate::pacing::Paced;
use crate::{pacing, report, rivals};

/// The number of tasks that wait at once, for a limit of as many a second.
const CROWD: u32 = 1_000_000;
const STORM: u32 = 100_000;

/// The flags of child processes that measure the memory of waiting tasks.
pub(crate) const QUEUED: &str = "--bytes-in-line";
pub(crate) const FOR_NOTHING: &str = "--bytes-for-nothing";

/// The rates at which tasks pace themselves.
const RATES_PER_S: [u64; 2] = [2_000, 100_000];

pub(crate) fn all(length: Duration) -> Made<Vec<Value>> {
    let mut rows = Vec::new();
    for rate_per_s in RATES_PER_S {
        let path = format!("pace tasks, {}", pacing::rate_text(rate_per_s));
        let tokio = paced_by_tokio(rate_per_s, length)?;
        let rival = pacing::leaky_bucket(rate_per_s)?;
        rows.push(report::pacing(&path, 1, &tokio, Some(&rival)));
        for ours in [paced_by_thread, paced_by_async_io] {
            rows.push(report::pacing(&path, 1, &ours(rate_per_s, length)?, None));
        }
    }
    let bytes = bytes_of_a_waiter()?;
    let mut waits = crowded("1 M tasks wait for 1 M/s", &ours_crowd(true)?, None, bytes);
    if let Some(row) = waits.as_object_mut() {
        row.insert("floor".to_owned(), floor_crowd()?);
    }
    rows.push(waits);
    let ours = ours_crowd(false)?;
    for rival in [governor_crowd()?, leaky_bucket_crowd()?] {
        rows.push(crowded("1 M tasks come to 1 M/s", &ours, Some(&rival), bytes));
    }
    rows.push(json!({
        "path": "a waiter leaves the queue",
        "threads": 1,
        "ours": { "name": "gcra, 100 k waiting", "ns": storm()? },
    }));
    Ok(rows)
}

/// The result of a crowd of tasks.
struct Crowd {
    name: &'static str,
    /// The time until the last one has started, in units of the ideal time.
    took: f64,
    /// The maximum number of positions by which a task started out of order.
    out_of_order: u32,
}

fn crowded(path: &str, ours: &Crowd, rival: Option<&Crowd>, bytes: f64) -> Value {
    let output = |crowd: &Crowd, bytes: Option<f64>| {
        let Crowd { name, took, out_of_order } = crowd;
        json!({ "name": name, "took": took, "out_of_order": out_of_order, "bytes": bytes })
    };
    json!({
        "path": path,
        "threads": 1,
        "ours": output(ours, Some(bytes)),
        "rival": rival.map(|rival| output(rival, None)),
        "ratio": rival.map(|rival| ours.took / rival.took),
    })
}

/// Returns a runtime with one thread, so that the order in which tasks are polled is known.
fn runtime() -> Made<Runtime> {
    Ok(Builder::new_current_thread().enable_time().build()?)
}

/// Runs a million tasks, one after another, and joins them all at the end.
///
/// `open` is called once all of them wait, if that is possible, and the time counts from there. A
/// task that knows when it was granted says so; otherwise its order is that of its wake-up.
fn crowd<F>(name: &'static str, wait: impl Fn() -> F, open: Option<&dyn Fn()>) -> Made<Crowd>
where
    F: Future<Output = Option<u64>> + Send + 'static,
{
    let came = Arc::new(AtomicU32::new(0));
    let started = Arc::new(AtomicU32::new(0));
    let runtime = runtime()?;
    let mut from = Instant::now();
    let tasks: Vec<_> = (0..CROWD)
        .map(|_| {
            let (wait, came, started) = (wait(), Arc::clone(&came), Arc::clone(&started));
            runtime.spawn(async move {
                let order = came.fetch_add(1, Ordering::Relaxed);
                let granted_ns = wait.await;
                let woken = started.fetch_add(1, Ordering::Relaxed);
                (granted_ns.unwrap_or(woken.into()), order)
            })
        })
        .collect();
    let mut orders = runtime.block_on(async {
        if let Some(open) = open {
            while came.load(Ordering::Relaxed) < CROWD {
                tokio::task::yield_now().await;
            }
            from = Instant::now();
            open();
        }
        let mut orders = Vec::with_capacity(tasks.len());
        for task in tasks {
            orders.extend(task.await);
        }
        orders
    });
    let took = from.elapsed().as_secs_f64();
    orders.sort_unstable();
    let offsets = (0..CROWD).zip(orders).map(|(index, (_, order))| index.abs_diff(order));
    Ok(Crowd { name, took, out_of_order: offsets.max().unwrap_or(0) })
}

fn ours_crowd(is_there_first: bool) -> Made<Crowd> {
    let slow = Gcra::new(Rate::new(1, Duration::from_secs(3600))?, 1)?;
    let fast = Gcra::new(Rate::per_second(CROWD.into()), 1)?;
    let limiter = AsyncLimiter::new(if is_there_first { slow } else { fast });
    if is_there_first {
        limiter.limiter().acquire(1)?;
    }
    let wait = || {
        let limiter = limiter.clone();
        async move { limiter.acquire(1).await.ok().map(|grant| whole_ns(grant.promised_at())) }
    };
    let open = || {
        let _ = limiter.limiter().reconfigure(fast);
    };
    if is_there_first {
        crowd("gcra, tasks waiting", wait, Some(&open))
    } else {
        crowd("gcra, tasks that come", wait, None)
    }
}

/// Runs the same tasks waiting for nothing, woken one by one by a thread as fast as it can: the
/// runtime's own share of the second.
fn floor_crowd() -> Made<Value> {
    type Wakers = Arc<Mutex<Vec<Waker>>>;
    let wakers: Wakers = Arc::default();
    let wait = || {
        let (wakers, mut is_first) = (Arc::clone(&wakers), true);
        poll_fn(move |context| {
            if !replace(&mut is_first, false) {
                return Poll::Ready(None);
            }
            lock(&wakers).push(context.waker().clone());
            Poll::Pending
        })
    };
    let open = || {
        let woken = std::mem::take(&mut *lock(&wakers));
        // Another thread wakes them, as a timer does.
        drop(thread::spawn(move || woken.into_iter().for_each(Waker::wake)));
    };
    let Crowd { name, took, out_of_order } = crowd("woken at once", wait, Some(&open))?;
    Ok(json!({ "name": name, "took": took, "out_of_order": out_of_order }))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn governor_crowd() -> Made<Crowd> {
    let rate = std::num::NonZeroU32::new(CROWD).ok_or("a crowd")?;
    let quota = Quota::per_second(rate).allow_burst(std::num::NonZeroU32::MIN);
    let limiter = Arc::new(rivals::governor_of(quota));
    let wait = || {
        let limiter = Arc::clone(&limiter);
        async move {
            limiter.until_ready().await;
            None
        }
    };
    crowd("governor, until ready", wait, None)
}

fn leaky_bucket_crowd() -> Made<Crowd> {
    let limiter = Arc::new(
        leaky_bucket::RateLimiter::builder()
            .max(1_000)
            .initial(0)
            .refill(1_000)
            .interval(Duration::from_millis(1))
            .build(),
    );
    let wait = || {
        let limiter = Arc::clone(&limiter);
        async move {
            limiter.acquire_one().await;
            None
        }
    };
    crowd("leaky-bucket", wait, None)
}

/// Returns the bytes that the process has in memory.
pub(crate) fn resident() -> f64 {
    let output = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = output.split_whitespace().nth(1).and_then(|pages| pages.parse::<u32>().ok());
    f64::from(pages.unwrap_or(0)) * 4096.0
}

/// Returns the memory of a waiting task above that of the same task that waits for nothing. Each
/// crowd runs in its own process, whose memory is unused before.
fn bytes_of_a_waiter() -> Made<f64> {
    let crowd = |flag| -> Made<f64> {
        let output = Command::new(std::env::current_exe()?).arg(flag).output()?;
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    };
    Ok(crowd(QUEUED)? - crowd(FOR_NOTHING)?)
}

/// Returns the bytes of a waiting task, in the child process that was started for this. Tokio's
/// tasks come in steps of 128 bytes, so one without data would differ by one step or none; these
/// have 64 bytes.
pub(crate) fn bytes_of_a_task(flag: &str) -> Made<f64> {
    // An hour's wait, so that no task is granted in the meantime.
    let limiter = AsyncLimiter::new(Gcra::new(Rate::new(1, Duration::from_secs(3600))?, 1)?);
    limiter.limiter().acquire(1)?;
    if flag == QUEUED {
        return bytes_of_each(|| {
            let (limiter, its_own) = (limiter.clone(), [0_u64; 8]);
            async move {
                let _ = limiter.acquire(1).await;
                let _ = black_box(its_own);
            }
        });
    }
    bytes_of_each(|| {
        let (limiter, its_own) = (limiter.clone(), [0_u64; 8]);
        async move {
            pending::<()>().await;
            let _ = black_box(its_own);
            drop(limiter);
        }
    })
}

fn bytes_of_each<F>(wait: impl Fn() -> F) -> Made<f64>
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = runtime()?;
    let before = resident();
    let polled = Arc::new(AtomicU32::new(0));
    for _ in 0..CROWD {
        let (wait, polled) = (wait(), Arc::clone(&polled));
        drop(runtime.spawn(async move {
            polled.fetch_add(1, Ordering::Relaxed);
            drop(polled);
            wait.await;
        }));
    }
    runtime.block_on(async {
        while polled.load(Ordering::Relaxed) < CROWD {
            tokio::task::yield_now().await;
        }
    });
    let bytes = (resident() - before) / f64::from(CROWD);
    std::mem::forget(runtime);
    Ok(bytes)
}

/// Cancels waiters one by one, all over the queue, and returns the nanoseconds of each.
fn storm() -> Made<f64> {
    let limiter = AsyncLimiter::new(Gcra::new(Rate::new(1, Duration::from_secs(3600))?, 1)?);
    limiter.limiter().acquire(1)?;
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting: Vec<_> = (0..STORM).map(|_| Some(Box::pin(limiter.acquire(1)))).collect();
    for task in waiting.iter_mut().flatten() {
        let _ = task.as_mut().poll(&mut context);
    }
    let from = Instant::now();
    // A step that is prime to the number of waiters leads to each of them.
    let offsets = (0..waiting.len()).map(|k| k * 7_919 % STORM as usize);
    for index in offsets {
        if let Some(task) = waiting.get_mut(index) {
            *task = None;
        }
    }
    Ok(from.elapsed().as_secs_f64() * 1e9 / f64::from(STORM))
}

type Average<C> = AsyncLimiter<TwoTimeline, C>;

/// Runs one task that takes a permit after another.
async fn take<C: Clock>(limiter: &Average<C>, until_ns: u64) -> u32 {
    let mut granted = 0;
    while let Ok(grant) = limiter.acquire(1).await {
        if whole_ns(grant.released_at()) >= until_ns {
            break;
        }
        granted += 1;
    }
    granted
}

fn paced<C: Clock + 'static>(
    name: &str,
    clock: C,
    rate_per_s: u64,
    length: Duration,
    run: impl FnOnce(&Average<C>, u64) -> u32,
) -> Made<Paced> {
    let policy = TwoTimeline::new(Rate::per_second(rate_per_s), Mode::Average, None);
    let limiter = AsyncLimiter::with_clock(policy, clock);
    let until_ns = whole_ns(limiter.limiter().now()) + u64::try_from(length.as_nanos())?;
    let cpu = Cpu::start();
    let granted = run(&limiter, until_ns);
    let cpu = cpu.per_second();
    let requested = f64::from(u32::try_from(rate_per_s)?) * length.as_secs_f64();
    let achieved = f64::from(granted) / requested;
    Ok(Paced { name: name.to_owned(), achieved, late_ns: None, cpu })
}

fn paced_by_tokio(rate_per_s: u64, length: Duration) -> Made<Paced> {
    let runtime = runtime()?;
    let timer = TokioTimer::new(runtime.handle().clone());
    let clock = Timed::new(MonotonicClock::new(), timer);
    paced("average under tokio, its timer", clock, rate_per_s, length, |limiter, until_ns| {
        runtime.block_on(take(limiter, until_ns))
    })
}

fn paced_by_thread(rate_per_s: u64, length: Duration) -> Made<Paced> {
    let runtime = runtime()?;
    let clock = MonotonicClock::new();
    paced("average under tokio, our timer", clock, rate_per_s, length, |limiter, until_ns| {
        runtime.block_on(take(limiter, until_ns))
    })
}

fn paced_by_async_io(rate_per_s: u64, length: Duration) -> Made<Paced> {
    let clock = Timed::new(MonotonicClock::new(), AsyncIoTimer);
    paced("average under async-io", clock, rate_per_s, length, |limiter, until_ns| {
        smol::block_on(take(limiter, until_ns))
    })
}
