//! Calls that wait: the rate reached, the lateness of starts, and a million tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use hdrhistogram::Histogram;
use rategate::policy::Mode;
use rategate::{AsyncLimiter, Gcra, Limiter, Rate, TwoTimeline};
use rategate_bench::limits::{nonzero, settle_clock};
use rategate_bench::process::cpu;
use rategate_bench::report::{Arguments, Report, rate, span};
use rategate_bench::{Made, median};
use rategate_core::span::whole_ns;
use tokio::runtime::{Builder, Runtime};

/// The number of tasks that wait at once, for a limit of as many a second.
const CROWD: u32 = 1_000_000;
/// The part of a run at its begin that is not recorded: a thread that starts late makes up for it.
const WARM_UP: Duration = Duration::from_millis(50);

fn main() -> Made<()> {
    let arguments = Arguments::read()?;
    let mut report = Report::new(&arguments, "wait", &["path", "threads", "ours", "beside"]);
    let lasts = Duration::from_millis(if arguments.quick { 500 } else { 3_000 });
    settle_clock();
    for per_s in [2_000, 100_000, 1_000_000] {
        for threads in [1, 2] {
            let ours = schedule(per_s, threads, lasts);
            let beside = if threads == 1 && per_s < 1_000_000 {
                let [governor, leaky] = [governor(per_s, lasts), leaky_bucket(per_s, lasts)?];
                format!("governor, check and sleep {governor}; leaky-bucket in tokio {leaky}")
            } else {
                "–".to_owned()
            };
            let path = format!("average schedule, {}", rate(f64::from(per_s)));
            report.row(&[&path, &threads.to_string(), &ours, &beside]);
        }
    }
    for per_s in [2_000, 100_000] {
        let ours = bucket(per_s, lasts)?;
        let path = format!("bucket of burst 1, {}", rate(f64::from(per_s)));
        report.row(&[&path, "1", &ours, &format!("governor {}", governor(per_s, lasts))]);
        let ours = task(per_s, lasts)?;
        let leaky = leaky_bucket(per_s, lasts)?;
        let path = format!("average schedule in tokio, {}", rate(f64::from(per_s)));
        report.row(&[&path, "1", &ours, &format!("leaky-bucket {leaky}")]);
    }
    crowds(&mut report, if arguments.quick { 1 } else { 3 })?;
    report.end()
}

/// The starts of one run: the first and the last with the instants they were due, and how late all
/// were.
struct Starts {
    count: u64,
    began: Instant,
    cpu: Duration,
    late_ns: Option<Histogram<u64>>,
}

impl Starts {
    fn begin() -> Self {
        Self { count: 0, began: Instant::now(), cpu: cpu(), late_ns: None }
    }

    /// Formats the share of the rate that was reached, the lateness of half and of nine tenths of
    /// the starts, and the processor seconds in each second.
    fn shown(&self, per_s: u32) -> String {
        let took_s = self.began.elapsed().as_secs_f64();
        let cpu = cpu().saturating_sub(self.cpu).as_secs_f64() / took_s;
        let reached = self.count as f64 / (f64::from(per_s) * took_s);
        let late = self.late_ns.as_ref().map_or_else(String::new, |late_ns| {
            let at = |quantile| span(late_ns.value_at_quantile(quantile) as f64);
            format!(", late {}/{}", at(0.5), at(0.9))
        });
        format!("{reached:.4}{late}, CPU {cpu:.2}")
    }
}

fn average(per_s: u32) -> TwoTimeline {
    TwoTimeline::new(Rate::per_second(per_s.into()), Mode::Average, None)
}

/// Runs threads that take from one schedule, each permit at its own instant. The grant says when it
/// started, so no clock is read for the record.
fn schedule(per_s: u32, threads: u32, lasts: Duration) -> String {
    let limiter = Limiter::new(average(per_s));
    let mut starts = Starts::begin();
    let from_ns = whole_ns(limiter.now());
    let [warm_ns, until_ns] = [WARM_UP, lasts].map(|length| from_ns + length.as_nanos() as u64);
    let one = || -> Option<(u64, Histogram<u64>)> {
        let mut late_ns = Histogram::new_with_bounds(1, 60_000_000_000, 2).ok()?;
        let mut count = 0;
        while let Ok(grant) = limiter.acquire(1) {
            let at_ns = whole_ns(grant.released_at());
            if at_ns >= until_ns {
                break;
            }
            count += 1;
            if at_ns >= warm_ns {
                let scheduled_ns = whole_ns(grant.scheduled_at());
                late_ns.saturating_record(at_ns.saturating_sub(scheduled_ns));
            }
        }
        Some((count, late_ns))
    };
    let all: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        running.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    });
    for (count, late_ns) in all {
        starts.count += count;
        match &mut starts.late_ns {
            Some(all) => *all += late_ns,
            none => *none = Some(late_ns),
        }
    }
    starts.shown(per_s)
}

/// Runs one thread that starts by `start` for a time.
fn run(per_s: u32, lasts: Duration, mut start: impl FnMut()) -> String {
    let mut starts = Starts::begin();
    while starts.began.elapsed() < lasts {
        start();
        starts.count += 1;
    }
    starts.shown(per_s)
}

fn bucket(per_s: u32, lasts: Duration) -> Made<String> {
    let limiter = Limiter::new(Gcra::new(Rate::per_second(per_s.into()), 1)?);
    Ok(run(per_s, lasts, || {
        let _grant = limiter.acquire(1).expect("one permit fits");
    }))
}

fn one_by_one(per_s: u32) -> DefaultDirectRateLimiter {
    RateLimiter::direct(Quota::per_second(nonzero(per_s)).allow_burst(nonzero(1)))
}

/// Paces with governor as its users do: try, and sleep for as long as the denial says.
fn governor(per_s: u32, lasts: Duration) -> String {
    let (limiter, clock) = (one_by_one(per_s), DefaultClock::default());
    run(per_s, lasts, || {
        while let Err(denial) = limiter.check() {
            thread::sleep(denial.wait_time_from(clock.now()));
        }
    })
}

/// Returns leaky-bucket in its finest grain: a millisecond's worth each millisecond.
fn leaky(per_s: u32) -> leaky_bucket::RateLimiter {
    let refill = (per_s / 1_000).max(1) as usize;
    let mut builder = leaky_bucket::RateLimiter::builder();
    builder.refill(refill).interval(Duration::from_millis(1)).max(refill).initial(0).build()
}

/// Returns a runtime with one thread, so that the order in which tasks are polled is known.
fn runtime() -> Made<Runtime> {
    Ok(Builder::new_current_thread().enable_time().build()?)
}

fn leaky_bucket(per_s: u32, lasts: Duration) -> Made<String> {
    let (runtime, limiter) = (runtime()?, leaky(per_s));
    let mut starts = Starts::begin();
    runtime.block_on(async {
        while starts.began.elapsed() < lasts {
            limiter.acquire_one().await;
            starts.count += 1;
        }
    });
    Ok(starts.shown(per_s))
}

fn task(per_s: u32, lasts: Duration) -> Made<String> {
    let (runtime, limiter) = (runtime()?, AsyncLimiter::new(average(per_s)));
    let mut starts = Starts::begin();
    runtime.block_on(async {
        while starts.began.elapsed() < lasts && limiter.acquire(1).await.is_ok() {
            starts.count += 1;
        }
    });
    Ok(starts.shown(per_s))
}

/// Measures a million tasks that wait for a limit of as many a second.
fn crowds(report: &mut Report, runs: usize) -> Made<()> {
    let shown = |run: &dyn Fn() -> Made<(f64, u32)>| -> Made<String> {
        let runs: Vec<_> = (0..runs).map(|_| run()).collect::<Made<_>>()?;
        let took_s = median(runs.iter().map(|&(took_s, _)| took_s).collect());
        Ok(match runs.iter().map(|&(_, places)| places).max() {
            Some(0) => format!("{took_s:.2} s, in order"),
            places => {
                format!("{took_s:.2} s, up to {} places out of order", places.unwrap_or(0))
            }
        })
    };
    let waiting = shown(&|| ours_crowd(true))?;
    report.row(&["1 M tasks wait for 1 M/s", "1", &waiting, "–"]);
    let coming = shown(&|| ours_crowd(false))?;
    let governor = shown(&|| {
        let limiter = Arc::new(one_by_one(CROWD));
        let wait = || {
            let limiter = Arc::clone(&limiter);
            async move {
                limiter.until_ready().await;
                None
            }
        };
        crowd(wait, None)
    })?;
    let leaky = shown(&|| {
        let limiter = Arc::new(leaky(CROWD));
        let wait = || {
            let limiter = Arc::clone(&limiter);
            async move {
                limiter.acquire_one().await;
                None
            }
        };
        crowd(wait, None)
    })?;
    let beside = format!("governor {governor}; leaky-bucket {leaky}");
    report.row(&["1 M tasks come to 1 M/s", "1", &coming, &beside]);
    Ok(())
}

fn ours_crowd(is_there_first: bool) -> Made<(f64, u32)> {
    let (slow, fast) =
        (Gcra::new(Rate::per_hour(1), 1)?, Gcra::new(Rate::per_second(CROWD.into()), 1)?);
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
    crowd(wait, is_there_first.then_some(&open as &dyn Fn()))
}

/// Runs a million tasks, and joins them all at the end. Returns the seconds it took, and by how
/// many places at most a task started out of order.
///
/// `open` is called once all of them wait, and the time counts from there. A task that knows when it
/// was granted says so; otherwise its order is that of its wake-up.
fn crowd<F>(wait: impl Fn() -> F, open: Option<&dyn Fn()>) -> Made<(f64, u32)>
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
    let took_s = from.elapsed().as_secs_f64();
    orders.sort_unstable();
    let places = (0..CROWD).zip(orders).map(|(index, (_, order))| index.abs_diff(order));
    Ok((took_s, places.max().unwrap_or(0)))
}
