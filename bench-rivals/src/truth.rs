//! Real starts of the same buckets with other limiters: the same loop, run length and judge.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use governor::Quota;
use governor::clock::{Clock as _, DefaultClock};
use rategate::wait::Precision;
use rategate::{Clock as _, Gcra, MonotonicClock, Rate};
use rategate_bench::engines::Made;
use rategate_bench::starts::{self, CALLERS, Limit, Row, Start};
use rategate_bench::truth;
use ratelimit::Ratelimiter;

use crate::rivals::governor_of;

/// Measures each bucket with each limiter, for `lap` at a time.
pub(crate) fn all(lap: Duration) -> Made<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, burst) in [("2000/s burst 1", 1), ("2000/s burst 5", 5)] {
        let limit = truth::bucket(name, 500_000, burst);
        let rate: Rate = "2000/s".parse()?;
        let ours = Gcra::new(rate, u64::try_from(burst)?)?;
        for callers in CALLERS {
            rows.push(truth::by_threads(limit, &ours, Precision::Auto, callers, lap)?);
            rows.push(governor_threads(limit, callers, lap)?);
            rows.push(ratelimit_threads(limit, callers, lap)?);
            rows.push(truth::by_tasks(limit, &ours, callers, lap)?);
            rows.push(governor_tasks(limit, callers, lap)?);
            rows.push(leaky_bucket_tasks(limit, callers, lap)?);
        }
    }
    for row in &mut rows {
        if ["threads", "tasks"].contains(&row.by.as_str()) {
            row.by.insert_str(0, "rategate, ");
        }
    }
    Ok(rows)
}

fn quota(limit: Limit) -> Made<Quota> {
    let burst = NonZeroU32::new(u32::try_from(limit.burst)?).ok_or("a burst of nothing")?;
    let interval = Duration::from_secs_f64(1.0 / limit.per_s);
    Ok(Quota::with_period(interval).ok_or("an interval of nothing")?.allow_burst(burst))
}

/// Returns a start by a limiter that does not report its instant.
fn start_by_caller(clock: MonotonicClock) -> Start {
    Start { limiter_ns: None, caller_ns: clock.now_ns() }
}

/// Runs governor in threads that try, and sleep for as long as the denial says.
fn governor_threads(limit: Limit, callers: usize, lap: Duration) -> Made<Row> {
    let (limiter, clock) = (governor_of(quota(limit)?), DefaultClock::default());
    threads("governor, threads", limit, callers, lap, || {
        while let Err(denial) = limiter.check() {
            thread::sleep(denial.wait_time_from(clock.now()));
        }
    })
}

/// Runs the crate `ratelimit` in such threads.
fn ratelimit_threads(limit: Limit, callers: usize, lap: Duration) -> Made<Row> {
    let burst = u64::try_from(limit.burst)?;
    let limiter = Ratelimiter::builder(2_000).max_tokens(burst).initial_available(burst).build()?;
    threads("ratelimit, threads", limit, callers, lap, || {
        while let Err(ratelimit::TryWaitError::Insufficient(wait)) = limiter.try_wait() {
            thread::sleep(wait);
        }
    })
}

/// Runs threads that call `wait` before each start.
fn threads(
    by: &str,
    limit: Limit,
    callers: usize,
    lap: Duration,
    wait: impl Fn() + Sync,
) -> Made<Row> {
    let (clock, until) = (MonotonicClock::new(), truth::end(limit, lap));
    starts::row(limit, by, callers, || {
        Ok(starts::by_threads(callers, || {
            let mut own = Vec::new();
            while Instant::now() < until {
                wait();
                own.push(start_by_caller(clock));
            }
            own
        }))
    })
}

fn governor_tasks(limit: Limit, callers: usize, lap: Duration) -> Made<Row> {
    let limiter = Arc::new(governor_of(quota(limit)?));
    let clock = MonotonicClock::new();
    let until = truth::end(limit, lap);
    starts::row(limit, "governor, tasks", callers, || {
        Ok(starts::by_tasks(callers, || {
            let limiter = Arc::clone(&limiter);
            async move {
                let mut own = Vec::new();
                while Instant::now() < until {
                    limiter.until_ready().await;
                    own.push(start_by_caller(clock));
                }
                own
            }
        })?)
    })
}

/// Runs leaky-bucket in its finest grain: a millisecond's worth each millisecond. It has no
/// bucket of one permit.
fn leaky_bucket_tasks(limit: Limit, callers: usize, lap: Duration) -> Made<Row> {
    let refill = 2;
    let limiter = leaky_bucket::RateLimiter::builder()
        .refill(refill)
        .interval(Duration::from_millis(1))
        .max(limit.burst.max(refill))
        .initial(limit.burst)
        .build();
    let limiter = Arc::new(limiter);
    let clock = MonotonicClock::new();
    let until = truth::end(limit, lap);
    starts::row(limit, "leaky-bucket, tasks", callers, || {
        Ok(starts::by_tasks(callers, || {
            let limiter = Arc::clone(&limiter);
            async move {
                let mut own = Vec::new();
                while Instant::now() < until {
                    limiter.acquire_one().await;
                    own.push(start_by_caller(clock));
                }
                own
            }
        })?)
    })
}
