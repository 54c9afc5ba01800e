//! The memory of limiters, tables and waiters, counted by the allocator, and the longest calls of
//! tables that grow and expire.

use std::alloc::System;
use std::future::pending;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use governor::clock::FakeRelativeClock;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use rategate::keyed::Capacity;
use rategate::wait::{CancelToken, Wake};
use rategate::{AsyncLimiter, Clock, Gcra, Keyed, Limiter, Rate, SlidingLog};
use rategate_bench::Made;
use rategate_bench::limits::nonzero;
use rategate_bench::report::{Arguments, Report, span};
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::holds::HoldVerdict;
use rategate_core::ledger::Ledger;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const HOUR: Duration = Duration::from_secs(3_600);
/// A time beyond the one after which whole parts of a table must be checked.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);
/// The callers with an exact window, all of them busy, and the permits of each in a minute.
const CALLERS: u64 = 1_000;
const PERMITS: u64 = 10_000;
const PERIOD_NS: u64 = 60_000_000_000;

fn main() -> Made<()> {
    let arguments = Arguments::read()?;
    let mut report = Report::new(&arguments, "memory", &["what", "ours", "beside"]);
    let keys = if arguments.quick { 200_000 } else { 10_000_000 };
    limiters(&mut report)?;
    waiters(&mut report)?;
    holds(&mut report)?;
    tables(&mut report, keys)?;
    logs(&mut report)?;
    stalls(&mut report, keys, if arguments.quick { 1 } else { 5 })?;
    report.end()
}

/// Returns the bytes on the heap that each of many leaves, and what there is of them.
fn each<T>(count: u32, mut make: impl FnMut(u32) -> T) -> f64 {
    // What the first one sets up for all is not counted.
    drop(black_box(make(0)));
    let mut all = Vec::with_capacity(count as usize);
    let region = Region::new(ALLOCATOR);
    all.extend((0..count).map(make));
    since(&region) / f64::from(count)
}

fn since(region: &Region<'_, System>) -> f64 {
    let stats = region.change();
    stats.bytes_allocated as f64 - stats.bytes_deallocated as f64
}

fn bytes(bytes: f64) -> String {
    if bytes < 1e6 { format!("{bytes:.1} bytes") } else { format!("{:.1} MB", bytes / 1e6) }
}

fn limiters(report: &mut Report) -> Made<()> {
    let limit = Gcra::new(Rate::per_second(10), 10)?;
    let quota = Quota::per_second(nonzero(10));
    let ours = each(1_000, |_| {
        let limiter = Limiter::new(limit);
        assert!(limiter.try_acquire(1).is_ok_and(|decision| decision.is_granted()));
        limiter
    });
    let governor = each(1_000, |_| {
        let limiter = RateLimiter::direct(quota);
        assert!(limiter.check().is_ok());
        limiter
    });
    let [own, other] = [size_of::<Limiter>(), size_of::<DefaultDirectRateLimiter>()];
    report.row(&["size of a limiter", &format!("{own} bytes"), &format!("governor {other} bytes")]);
    let governor = format!("governor {}", bytes(governor));
    report.row(&["its heap after a grant", &bytes(ours), &governor]);
    Ok(())
}

/// Counts what a task that waits for a permit takes above one that waits for nothing. Tokio's tasks
/// come in steps of 128 bytes, so these have 64 of their own.
fn waiters(report: &mut Report) -> Made<()> {
    const TASKS: u32 = 100_000;
    let limiter = AsyncLimiter::new(Gcra::new(Rate::per_hour(1), 1)?);
    limiter.limiter().acquire(1)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let measured = |waits: bool| {
        let region = Region::new(ALLOCATOR);
        for _ in 0..TASKS {
            let (limiter, its_own) = (limiter.clone(), [0_u64; 8]);
            drop(runtime.spawn(async move {
                if waits {
                    let _ = limiter.acquire(1).await;
                } else {
                    pending::<()>().await;
                }
                black_box(its_own);
            }));
        }
        // One turn of the queue polls each of them.
        runtime.block_on(async {
            for _ in 0..TASKS {
                tokio::task::yield_now().await;
            }
        });
        since(&region) / f64::from(TASKS)
    };
    let (nothing, waiting) = (measured(false), measured(true));
    let beside = format!("the task itself {}", bytes(nothing));
    report.row(&["a task in the queue", &bytes(waiting - nothing), &beside]);
    Ok(())
}

/// Counts a hold in a limit that grants others between them.
fn holds(report: &mut Report) -> Made<()> {
    fn of(mut limit: Ledger) -> Made<f64> {
        // No power of two, so that tables that double have room to spare as on average.
        const COUNT: u32 = 30_000;
        let region = Region::new(ALLOCATOR);
        for number in 0..COUNT {
            let at_ns = u64::from(number) * 1_000;
            let held = limit.try_hold(at_ns, 2, 600_000_000_000)?;
            let HoldVerdict::Held(_) = held else { return Err("a hold was denied".into()) };
            let _ = limit.try_acquire(at_ns + 500, 1)?;
        }
        Ok(since(&region) / f64::from(COUNT))
    }
    let bucket = Gcra::new(Rate::per_second(1_000), 1_000_000_000)?;
    let window = FixedWindow::new(1_000_000_000, HOUR, Anchor::Epoch);
    report.row(&["a hold in a bucket", &bytes(of(Ledger::new(bucket, 0))?), "–"]);
    report.row(&["a hold in a window", &bytes(of(Ledger::new(window, 0))?), "–"]);
    Ok(())
}

const fn key(number: u32) -> u64 {
    (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn text(number: u32) -> String {
    format!("{:040x}", key(number))
}

fn bucket() -> Made<(Gcra, Quota)> {
    let quota = Quota::per_second(nonzero(1)).allow_burst(nonzero(30_000_000));
    Ok((Gcra::new(Rate::per_second(1), 30_000_000)?, quota))
}

/// Counts what keys in use take, in our tables and in governor's.
fn tables(report: &mut Report, keys: u32) -> Made<()> {
    fn of<T>(keys: u32, make: impl Fn() -> T, mut take: impl FnMut(&T, u32) -> bool) -> String {
        let region = Region::new(ALLOCATOR);
        let table = make();
        assert!((0..keys).all(|number| take(&table, number)), "a table denied a try");
        let total = since(&region);
        drop(table);
        bytes(total / f64::from(keys))
    }
    let (policy, quota) = bucket()?;
    let capacity = Capacity::for_keys(keys as usize);
    let millions = f64::from(keys) / 1e6;
    let ours = of(
        keys,
        || Keyed::<u64>::with_capacity(policy, capacity),
        |table, number| {
            table.try_acquire(&key(number), 1_000).is_ok_and(|decision| decision.is_granted())
        },
    );
    let governor = of(
        keys,
        || RateLimiter::keyed(quota),
        |table, number| table.check_key(&key(number)).is_ok(),
    );
    report.row(&[&format!("{millions} M keys, u64, each"), &ours, &format!("governor {governor}")]);
    let ours = of(
        keys,
        || Keyed::<str>::with_capacity(policy, capacity),
        |table, number| {
            table
                .try_acquire(text(number).as_str(), 1_000)
                .is_ok_and(|decision| decision.is_granted())
        },
    );
    let governor = of(
        keys,
        || RateLimiter::keyed(quota),
        |table, number| table.check_key(&text(number)).is_ok(),
    );
    let path = format!("{millions} M keys, texts of 40 bytes, each");
    report.row(&[&path, &ours, &format!("governor {governor}")]);
    Ok(())
}

/// Counts exact windows full of separate grants, on a coarse grid and on a fine one.
fn logs(report: &mut Report) -> Made<()> {
    for (parts, loss) in [(1_000, "0.1 %"), (65_536, "0.0015 %")] {
        let clock = HandClock::default();
        let capacity = Capacity { max_bytes: 1 << 30, ..Capacity::for_keys(CALLERS as usize) };
        let policy = SlidingLog::new(PERMITS, Duration::from_nanos(PERIOD_NS)).with_parts(parts)?;
        let table: Keyed<u64, HandClock> = Keyed::with_clock(policy, capacity, clock.clone());
        let (mut random, step_ns) = (SmallRng::seed_from_u64(4), PERIOD_NS / PERMITS);
        for permit in 0..PERMITS {
            // At a random moment of its part of the period: even gaps would take less.
            clock.set(permit * step_ns + random.random_range(..step_ns));
            for caller in 0..CALLERS {
                if !table.try_acquire(&caller, 1)?.is_granted() {
                    return Err("a log was full before it had all its permits".into());
                }
            }
        }
        let path = format!("1000 busy callers, 10 000 in any window, to {loss}");
        let beside = format!("an instant for each {}", bytes((CALLERS * PERMITS * 8) as f64));
        report.row(&[&path, &bytes(table.bytes() as f64), &beside]);
    }
    Ok(())
}

/// A clock that is set by hand, and costs almost nothing to read.
#[derive(Clone, Debug, Default)]
struct HandClock(Arc<AtomicU64>);

impl HandClock {
    fn set(&self, now_ns: u64) {
        self.0.store(now_ns, Ordering::Relaxed);
    }
}

impl Clock for HandClock {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn may_go_back(&self) -> bool {
        false
    }

    fn wait(&self, until_ns: u64, _cancel: &CancelToken) -> Wake {
        self.0.fetch_max(until_ns, Ordering::Relaxed);
        Wake::Due
    }
}

/// The times of very many calls.
struct Calls {
    clock: quanta::Clock,
    took_ns: Histogram<u64>,
}

impl Calls {
    fn new() -> Made<Self> {
        let took_ns = Histogram::new_with_bounds(1, 60_000_000_000, 3)?;
        Ok(Self { clock: quanta::Clock::new(), took_ns })
    }

    fn time<T>(&mut self, call: impl FnOnce() -> T) {
        let from = self.clock.raw();
        black_box(call());
        let took_ns = self.clock.delta_as_nanos(from, self.clock.raw());
        self.took_ns.saturating_record(took_ns);
    }

    fn slowest(&self) -> [u64; 2] {
        [self.took_ns.max(), self.took_ns.value_at_quantile(0.999_99)]
    }
}

/// The longest call while a table grows and while its keys expire, each with what one call in
/// a hundred thousand exceeds.
type Stalls = [[u64; 2]; 2];

/// Measures the longest calls. The smallest of several runs counts, since the machine stops every
/// thread now and then; a loop that reads the clock as often shows what it adds.
fn stalls(report: &mut Report, keys: u32, runs: u32) -> Made<()> {
    let calmest = |run: fn(u32) -> Made<Stalls>| -> Made<Stalls> {
        let mut least = [[u64::MAX; 2]; 2];
        for _ in 0..runs {
            let found = run(keys)?;
            for (least, found) in least.as_flattened_mut().iter_mut().zip(found.as_flattened()) {
                *least = (*least).min(*found);
            }
        }
        Ok(least)
    };
    let bare = |keys| {
        let mut calls = Calls::new()?;
        (0..keys).for_each(|_| calls.time(|| ()));
        Ok([calls.slowest(); 2])
    };
    let [ours, governor, bare] =
        [calmest(stalls_of_ours)?, calmest(stalls_of_governor)?, calmest(bare)?];
    let millions = f64::from(keys) / 1e6;
    let paths = [format!("from 0 to {millions} M keys"), format!("while {millions} M keys expire")];
    for (at, path) in paths.iter().enumerate() {
        let shown = |[longest, rare]: [u64; 2]| {
            format!("{}, 99.999 % within {}", span(longest as f64), span(rare as f64))
        };
        let beside = format!("governor {}; bare loop {}", shown(governor[at]), shown(bare[at]));
        report.row(&[&format!("longest call {path}"), &shown(ours[at]), &beside]);
    }
    Ok(())
}

fn stalls_of_ours(keys: u32) -> Made<Stalls> {
    let clock = HandClock::default();
    let (policy, _) = bucket()?;
    let table: Keyed<u64, HandClock> =
        Keyed::with_clock(policy, Capacity::for_keys(keys as usize), clock.clone());
    let mut growing = Calls::new()?;
    for number in 0..keys {
        growing.time(|| table.try_acquire(&key(number), 1).is_ok());
    }
    let (mut expiring, mut new) = (Calls::new()?, keys);
    // Once by a little, and once so far that the first caller in each part must sweep it.
    for later in [HOUR, YEAR] {
        clock.set(later.as_nanos() as u64);
        for known in (0..keys).step_by(4) {
            expiring.time(|| table.try_acquire(&key(known), 1).is_ok());
            expiring.time(|| table.try_acquire(&key(new), 1).is_ok());
            new += 1;
        }
    }
    Ok([growing.slowest(), expiring.slowest()])
}

/// Measures governor, which drops keys on request: here in another thread, so that callers wait
/// for its locks only.
fn stalls_of_governor(keys: u32) -> Made<Stalls> {
    let clock = FakeRelativeClock::default();
    let (_, quota) = bucket()?;
    let table = RateLimiter::dashmap_with_clock(quota, clock.clone());
    let mut growing = Calls::new()?;
    for number in 0..keys {
        growing.time(|| table.check_key(&key(number)).is_ok());
    }
    clock.advance(HOUR);
    let (mut expiring, done) = (Calls::new()?, AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            table.retain_recent();
            done.store(true, Ordering::Release);
        });
        let mut next = 0;
        while !done.load(Ordering::Acquire) || next < keys / 4 {
            expiring.time(|| table.check_key(&key(next % keys)).is_ok());
            expiring.time(|| table.check_key(&key(keys.wrapping_add(next))).is_ok());
            next = next.wrapping_add(1);
        }
    });
    Ok([growing.slowest(), expiring.slowest()])
}
