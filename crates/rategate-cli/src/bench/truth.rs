//! The stopwatch test of the crate's own limits: callers that wait in a loop, threads and tasks.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rategate::policy::{Anchor, Mode};
use rategate::wait::Precision;
use rategate::{
    AnyPolicy, AsyncLimiter, Clock, FixedWindow, Gcra, Limiter, MonotonicClock, Rate, SlidingLog,
    TwoTimeline,
};
use rategate_core::span::whole_ns;

use super::Made;
use super::starts::{self, CALLERS, Limit, Row, Start};

const MS: u64 = 1_000_000;

/// Measures each limit with threads and with tasks, for `lap` each.
///
/// # Errors
///
/// An error if a limit cannot be made, or there is no runtime for tasks.
pub(super) fn measure(lap: Duration) -> Made<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, at_most, window_ns, per_s) in [
        ("log 10 in any 1 ms", 10, MS, 10_000.0),
        ("log 50 in any 10 ms", 50, 10 * MS, 5_000.0),
        ("log 50 in any 100 ms", 50, 100 * MS, 500.0),
        ("log 50 in any 1 s", 50, 1_000 * MS, 50.0),
    ] {
        let policy = SlidingLog::try_new(u64::try_from(at_most)?, Duration::from_nanos(window_ns))?;
        let limit = Limit {
            name,
            at_most,
            window_ns,
            per_s,
            burst: at_most,
            together: at_most,
            apart_ns: None,
        };
        rows.extend(race(limit, policy.into(), lap)?);
    }
    let policy = FixedWindow::try_new(50, Duration::from_nanos(100 * MS), Anchor::Epoch)?;
    let name = "window 50 a 100 ms";
    let (at_most, window_ns, per_s) = (100, 100 * MS, 500.0);
    let limit = Limit { name, at_most, window_ns, per_s, burst: 50, together: 50, apart_ns: None };
    rows.extend(race(limit, policy.into(), lap)?);
    let (slow, fast): (Rate, Rate) = ("2000/s".parse()?, "100000/s".parse()?);
    rows.extend(race(bucket("gcra 2000/s burst 1", MS / 2, 1), Gcra::new(slow, 1)?.into(), lap)?);
    rows.extend(race(bucket("gcra 2000/s burst 5", MS / 2, 5), Gcra::new(slow, 5)?.into(), lap)?);
    let policy = TwoTimeline::new(slow, Mode::Strict, None);
    rows.extend(race(bucket("strict 2000/s", MS / 2, 1), policy.into(), lap)?);
    rows.extend(race(
        bucket("gcra 100 k/s burst 1", MS / 100, 1),
        Gcra::new(fast, 1)?.into(),
        lap,
    )?);
    Ok(rows)
}

/// Returns a bucket with a permit each `step_ns`, judged by windows of 49 steps, which 50 starts
/// span.
#[must_use]
pub(super) fn bucket(name: &'static str, step_ns: u64, burst: usize) -> Limit {
    let per_s = 1.0 / Duration::from_nanos(step_ns).as_secs_f64();
    let (at_most, window_ns) = (burst.saturating_add(48), step_ns.saturating_mul(49));
    let apart_ns = (burst == 1).then_some(step_ns);
    Limit { name, at_most, window_ns, per_s, burst, together: 1, apart_ns }
}

fn race(limit: Limit, policy: AnyPolicy, lap: Duration) -> Made<Vec<Row>> {
    let mut rows = Vec::new();
    for callers in CALLERS {
        rows.push(by_threads(limit, policy, Precision::Auto, callers, lap)?);
        rows.push(by_tasks(limit, policy, callers, lap)?);
        if limit.burst == 1 {
            rows.push(by_threads(limit, policy, Precision::Spin, callers, lap)?);
        }
    }
    Ok(rows)
}

/// Measures one limit with threads.
///
/// # Errors
///
/// None; the result type is that of [`by_tasks`].
pub(super) fn by_threads(
    limit: Limit,
    policy: AnyPolicy,
    precision: Precision,
    callers: usize,
    lap: Duration,
) -> Made<Row> {
    let clock = MonotonicClock::new();
    let limiter = Limiter::with_clock(policy, clock).with_precision(precision);
    let by = if precision == Precision::Spin { "threads, spin" } else { "threads" };
    let until = OnceLock::new();
    starts::row(limit, by, callers, || {
        Ok(starts::by_threads(callers, || {
            let mut own = Vec::new();
            // A lap begins with the first caller: on a busy machine it may come long after.
            let until = *until.get_or_init(|| end(limit, lap));
            while Instant::now() < until
                && let Ok(grant) = limiter.acquire(1)
            {
                let caller_ns = clock.now_ns();
                own.push(Start { limiter_ns: Some(whole_ns(grant.released_at())), caller_ns });
            }
            own
        }))
    })
}

/// Measures one limit with tasks.
///
/// # Errors
///
/// An error if there is no runtime for them.
pub(super) fn by_tasks(
    limit: Limit,
    policy: AnyPolicy,
    callers: usize,
    lap: Duration,
) -> Made<Row> {
    let clock = MonotonicClock::new();
    let limiter = AsyncLimiter::with_clock(policy, clock);
    let until = Arc::new(OnceLock::new());
    starts::row(limit, "tasks", callers, || {
        Ok(starts::by_tasks(callers, || {
            let (limiter, until) = (limiter.clone(), Arc::clone(&until));
            async move {
                let mut own = Vec::new();
                let until = *until.get_or_init(|| end(limit, lap));
                while Instant::now() < until
                    && let Ok(grant) = limiter.acquire(1).await
                {
                    let caller_ns = clock.now_ns();
                    own.push(Start { limiter_ns: Some(whole_ns(grant.released_at())), caller_ns });
                }
                own
            }
        })?)
    })
}

/// Returns the instant at which callers stop. A long window has to pass at least twice.
#[must_use]
pub(super) fn end(limit: Limit, lap: Duration) -> Instant {
    let lap = lap.max(Duration::from_nanos(limit.window_ns.saturating_mul(2)));
    Instant::now().checked_add(lap).unwrap_or_else(Instant::now)
}
