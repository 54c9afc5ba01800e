//! The paths that are timed call by call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rategate::policy::{LimiterPolicy, Mode};
use rategate::{AdaptiveConcurrency, Concurrency, Gcra, Limiter, Rate};
use rategate_bench::engines::{self, Answer, Engine, Made, Shared};
use rategate_bench::harness::{Contender, Plan, race};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::{floors, report, rivals};

const THREADS: [u32; 2] = [1, 2];

/// The interval at which the limit changes while threads take from it.
const CHANGE: Duration = Duration::from_millis(1);

/// Measures the machine's own steps.
pub(crate) fn machine(plan: Plan) -> Vec<Value> {
    let mut rows = Vec::new();
    for threads in THREADS {
        let contenders = [
            floors::counter(),
            floors::instant(),
            floors::swap(),
            floors::add(),
            floors::counter_and_swap(),
        ];
        rows.extend(report::floors(threads, &race(plan, threads, &contenders)));
    }
    rows
}

/// Measures tries of one permit, with limiters that always grant it, or never.
pub(crate) fn tries(plan: Plan) -> Made<Vec<Value>> {
    let mut rows = Vec::new();
    for answer in [Answer::Granted, Answer::Denied] {
        let path = format!("try {}", answer.name());
        for threads in THREADS {
            let contenders = [
                Engine::Gcra.trying(answer)?,
                rivals::governor(answer),
                rivals::ratelimit(answer),
                rivals::leaky_bucket(answer),
                floor_of(answer),
            ];
            rows.extend(report::raced(&path, threads, &race(plan, threads, &contenders)));
            let ours =
                [Engine::TwoTimeline(Mode::Average).trying(answer)?, engines::local(answer)?];
            for ours in ours {
                let pair = [ours, rivals::governor(answer), floor_of(answer)];
                rows.extend(report::raced(&path, threads, &race(plan, threads, &pair)));
            }
        }
    }
    Ok(rows)
}

/// Measures exact windows against hand-written ones, and against our own cheapest limit.
pub(crate) fn logs(plan: Plan) -> Made<Vec<Value>> {
    let mut rows = Vec::new();
    for slots in [100, 10_000] {
        for threads in THREADS {
            let contenders = [
                Engine::Log(slots).trying(Answer::Granted)?,
                rivals::mutex_log(slots),
                Engine::Gcra.trying(Answer::Granted)?,
                floor_of(Answer::Granted),
            ];
            rows.extend(report::raced(
                "exact log, granted",
                threads,
                &race(plan, threads, &contenders),
            ));
        }
    }
    Ok(rows)
}

/// Measures two rates together, against the same two behind a mutex, and against one of them alone.
pub(crate) fn several(plan: Plan) -> Made<Vec<Value>> {
    let mut rows = Vec::new();
    for answer in [Answer::Granted, Answer::Denied] {
        let path = format!("two rates, {}", answer.name());
        for threads in THREADS {
            let contenders = [
                Engine::TwoRates.trying(answer)?,
                engines::locked_two_rates(answer)?,
                Engine::Gcra.trying(answer)?,
                floor_of(answer),
            ];
            rows.extend(report::raced(&path, threads, &race(plan, threads, &contenders)));
        }
    }
    Ok(rows)
}

/// Measures an operation in flight, which takes a permit and ends, under a limit that follows
/// measurements and under one that does not.
pub(crate) fn in_flight(plan: Plan) -> Vec<Value> {
    let mut rows = Vec::new();
    for threads in THREADS {
        let contenders = [
            served("adaptive", Limiter::new(AdaptiveConcurrency::new(1, 1_000))),
            served("concurrency", Limiter::new(Concurrency::new(1_000))),
            semaphore(),
            floor_of(Answer::Granted),
        ];
        rows.extend(report::raced("in flight", threads, &race(plan, threads, &contenders)));
    }
    rows
}

/// Returns tokio's semaphore, whose permits come back at their drop.
fn semaphore() -> Contender<'static> {
    let semaphore = Semaphore::new(1_000);
    Contender::new("tokio semaphore", move || semaphore.try_acquire().is_ok())
}

fn served<P>(name: &str, limiter: Limiter<P>) -> Contender<'static>
where
    P: LimiterPolicy<Limit: Send> + 'static,
{
    Contender::new(name, move || match limiter.try_permit(1) {
        Ok(Ok(permit)) => {
            permit.served();
            true
        }
        _ => false,
    })
}

/// Measures two threads that take while a third changes the limit a thousand times a second.
pub(crate) fn reconfiguring(plan: Plan) -> Made<Vec<Value>> {
    let changing = engines::gcra(Answer::Granted)?;
    let other = Gcra::new(Rate::per_second(engines::PLENTY_PER_S / 2), engines::PLENTY_PER_S / 2)?;
    let limits = [engines::plenty()?, other];
    // Each run must see many changes.
    let plan = Plan { lap: plan.lap.max(10 * CHANGE), ..plan };
    let contenders = [
        engines::trying("gcra, changing", changing.clone()),
        engines::trying("gcra, at rest", engines::gcra(Answer::Granted)?),
        floor_of(Answer::Granted),
    ];
    let done = AtomicBool::new(false);
    let raced = thread::scope(|scope| {
        scope.spawn(|| change(&changing, limits, &done));
        let raced = race(plan, 2, &contenders);
        done.store(true, Ordering::Release);
        raced
    });
    Ok(report::raced("reconfigured 1000 times a second", 2, &raced))
}

/// Returns the floor of a try: a denial reads the clock; a grant also writes.
fn floor_of(answer: Answer) -> Contender<'static> {
    match answer {
        Answer::Granted => floors::counter_and_swap(),
        Answer::Denied => floors::counter(),
    }
}

/// Switches between two limits at fixed intervals, until all is done.
fn change(limiter: &Shared<Gcra>, limits: [Gcra; 2], done: &AtomicBool) {
    let mut due = Instant::now();
    for limit in limits.into_iter().cycle() {
        if done.load(Ordering::Acquire) || limiter.reconfigure(limit).is_err() {
            return;
        }
        due += CHANGE;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}
