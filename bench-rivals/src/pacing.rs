//! Paths that wait: the rate reached, the lateness of starts, and the processor time it takes.

use std::num::NonZeroU32;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use governor::Quota;
use governor::clock::{Clock as _, DefaultClock};
use hdrhistogram::Histogram;
use rategate::policy::Mode;
use rategate::wait::Precision;
use rategate::{Limiter, Rate, TwoTimeline};
use rategate_bench::engines::{Made, Shared};
use rategate_core::span::whole_ns;
use serde_json::Value;

use crate::cpu::Cpu;
use crate::{report, rivals};

const RATES_PER_S: [u64; 5] = [100, 2_000, 100_000, 1_000_000, 10_000_000];

/// The rates at which rivals are measured too: none of them can follow above the second.
const RIVALS_AT_PER_S: [u64; 2] = [2_000, 100_000];
const RIVALS_FOR: Duration = Duration::from_secs(1);

/// The time at the start that is not recorded. A thread that starts late has operations to make
/// up for, which says nothing about the rate.
const WARM_UP: Duration = Duration::from_millis(50);

/// The result of one paced run.
pub(crate) struct Paced {
    pub(crate) name: String,
    /// The rate reached, as a fraction of the rate requested.
    pub(crate) achieved: f64,
    /// The lateness of starts: the median, and the 90th percentile.
    pub(crate) late_ns: Option<(u64, u64)>,
    /// The processor time used, in seconds per second.
    pub(crate) cpu: f64,
}

/// Returns the precisions of waits to measure. Precise and spin suit rates at which one wake-up
/// for each start makes sense.
const fn precisions(rate_per_s: u64) -> &'static [Precision] {
    if rate_per_s <= 2_000 {
        &[Precision::Auto, Precision::Precise, Precision::Spin]
    } else {
        &[Precision::Auto]
    }
}

/// Measures every rate on one thread and on two, each for `length`, and rivals where they can
/// follow.
pub(crate) fn all(length: Duration) -> Made<Vec<Value>> {
    let mut rows = Vec::new();
    for rate_per_s in RATES_PER_S {
        let path = format!("pace {}", rate_text(rate_per_s));
        for &precision in precisions(rate_per_s) {
            for threads in [1, 2] {
                let ours = ours(rate_per_s, precision, threads, length)?;
                let rivals = if threads == 1 && RIVALS_AT_PER_S.contains(&rate_per_s) {
                    vec![governor(rate_per_s)?, leaky_bucket(rate_per_s)?]
                } else {
                    Vec::new()
                };
                if rivals.is_empty() {
                    rows.push(report::pacing(&path, threads, &ours, None));
                }
                let row = |rival| report::pacing(&path, threads, &ours, Some(rival));
                rows.extend(rivals.iter().map(row));
            }
        }
    }
    Ok(rows)
}

const fn name(precision: Precision) -> &'static str {
    match precision {
        Precision::Precise => "average, precise",
        Precision::Spin => "average, spin",
        Precision::Coalesced => "average, coalesced",
        _ => "average, auto",
    }
}

fn limiter(rate_per_s: u64, precision: Precision) -> Shared<TwoTimeline> {
    let policy = TwoTimeline::new(Rate::per_second(rate_per_s), Mode::Average, None);
    Limiter::new(policy).with_precision(precision)
}

/// Runs threads that take from one limiter, each permit at its own instant.
fn ours(rate_per_s: u64, precision: Precision, threads: u32, length: Duration) -> Made<Paced> {
    let limiter = limiter(rate_per_s, precision);
    // All memory is allocated before the first start.
    let from_ns = whole_ns(limiter.now()) + u64::try_from(WARM_UP.as_nanos())?;
    let until_ns = from_ns + u64::try_from(length.as_nanos())?;
    let logs: Vec<Starts> = (0..threads).map(|_| Starts::within(from_ns..until_ns)).collect();
    let cpu = Cpu::start();
    let logs: Vec<Starts> = thread::scope(|scope| {
        let run = |log| scope.spawn(|| take(&limiter, from_ns..until_ns, log));
        let running: Vec<_> = logs.into_iter().map(run).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let cpu = cpu.per_second();
    let all = logs.into_iter().reduce(Starts::and).ok_or("no thread ran")?;
    let late_ns = Some((all.late_ns.value_at_quantile(0.5), all.late_ns.value_at_quantile(0.9)));
    let achieved = all.of_schedule(rate_per_s);
    Ok(Paced { name: name(precision).to_owned(), achieved, late_ns, cpu })
}

/// Runs one thread's loop. The grant itself says when it started, so no clock is read for the
/// record.
fn take(limiter: &Shared<TwoTimeline>, recorded_ns: Range<u64>, mut log: Starts) -> Starts {
    while let Ok(grant) = limiter.acquire(1) {
        if whole_ns(grant.released_at()) >= recorded_ns.end {
            break;
        }
        if whole_ns(grant.released_at()) >= recorded_ns.start {
            log.note(whole_ns(grant.released_at()), whole_ns(grant.scheduled_at()));
        }
    }
    log
}

/// Paces with governor as its users do: try, and sleep for as long as the denial says.
fn governor(rate_per_s: u64) -> Made<Paced> {
    let rate = NonZeroU32::new(u32::try_from(rate_per_s)?).ok_or("a rate of zero")?;
    let limiter = rivals::governor_of(Quota::per_second(rate).allow_burst(NonZeroU32::MIN));
    let clock = DefaultClock::default();
    let mut starts = Starts::new();
    let cpu = Cpu::start();
    let began = Instant::now();
    while began.elapsed() < RIVALS_FOR {
        while let Err(denial) = limiter.check() {
            thread::sleep(denial.wait_time_from(clock.now()));
        }
        starts.note_at(began.elapsed());
    }
    Ok(starts.of_rival("governor, check and sleep", rate_per_s, &cpu))
}

/// Paces with leaky-bucket in its finest grain: a millisecond's worth each millisecond.
pub(crate) fn leaky_bucket(rate_per_s: u64) -> Made<Paced> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let refill = usize::try_from(rate_per_s / 1000)?.max(1);
    let limiter = leaky_bucket::RateLimiter::builder()
        .refill(refill)
        .interval(Duration::from_millis(1))
        .max(refill)
        .initial(0)
        .build();
    let mut starts = Starts::new();
    let cpu = Cpu::start();
    let began = Instant::now();
    runtime.block_on(async {
        while began.elapsed() < RIVALS_FOR {
            limiter.acquire_one().await;
            starts.note_at(began.elapsed());
        }
    });
    Ok(starts.of_rival("leaky-bucket under tokio", rate_per_s, &cpu))
}

/// A record of when operations started.
struct Starts {
    count: u64,
    first_ns: u64,
    last_ns: u64,
    late_ns: Histogram<u64>,
    /// The first operation's instant on the schedule, and the last one's.
    scheduled_ns: (u64, u64),
    /// The two ranges for edges: before the first instant, and after the second.
    edges_ns: (u64, u64),
    first_edge: Option<Edge>,
    last_edge: Option<Edge>,
}

/// An operation that started almost on its schedule. The rate achieved is measured between two of
/// these, so that it does not depend on where in a burst the record begins and ends.
#[derive(Clone, Copy)]
struct Edge {
    start_ns: u64,
    scheduled_ns: u64,
}

impl Edge {
    const fn late_ns(self) -> u64 {
        self.start_ns.saturating_sub(self.scheduled_ns)
    }

    fn best(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).min_by_key(|edge| edge.late_ns())
    }
}

impl Starts {
    fn new() -> Self {
        Self::within(0..u64::MAX)
    }

    fn within(recorded_ns: Range<u64>) -> Self {
        // Up to a minute late, to two digits.
        let late_ns = Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("sound bounds");
        let tenth_ns = (recorded_ns.end - recorded_ns.start) / 10;
        Self {
            count: 0,
            first_ns: u64::MAX,
            last_ns: 0,
            late_ns,
            scheduled_ns: (u64::MAX, 0),
            edges_ns: (recorded_ns.start + tenth_ns, recorded_ns.end - tenth_ns),
            first_edge: None,
            last_edge: None,
        }
    }

    fn note(&mut self, start_ns: u64, scheduled_ns: u64) {
        self.late_ns.saturating_record(start_ns.saturating_sub(scheduled_ns));
        let edge = Some(Edge { start_ns, scheduled_ns });
        if start_ns < self.edges_ns.0 {
            self.first_edge = Edge::best(self.first_edge, edge);
        } else if start_ns >= self.edges_ns.1 {
            self.last_edge = Edge::best(self.last_edge, edge);
        }
        self.count += 1;
        self.first_ns = self.first_ns.min(start_ns);
        self.last_ns = self.last_ns.max(start_ns);
        let (first_ns, last_ns) = self.scheduled_ns;
        self.scheduled_ns = (first_ns.min(scheduled_ns), last_ns.max(scheduled_ns));
    }

    /// Records a start of a limiter that has no schedule.
    fn note_at(&mut self, since_began: Duration) {
        let start_ns = u64::try_from(since_began.as_nanos()).unwrap_or(u64::MAX);
        self.note(start_ns, start_ns);
    }

    fn and(mut self, other: Self) -> Self {
        self.count += other.count;
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.late_ns += other.late_ns;
        let ((first_ns, last_ns), (other_first_ns, other_last_ns)) =
            (self.scheduled_ns, other.scheduled_ns);
        self.scheduled_ns = (first_ns.min(other_first_ns), last_ns.max(other_last_ns));
        self.first_edge = Edge::best(self.first_edge, other.first_edge);
        self.last_edge = Edge::best(self.last_edge, other.last_edge);
        self
    }

    /// Returns the achieved fraction of the requested rate, from edge to edge. Each operation has
    /// its own instant on the schedule, so the schedule says how many there were between two of
    /// them. The count shows that none is missing.
    fn of_schedule(&self, rate_per_s: u64) -> f64 {
        let (Some(first), Some(last)) = (self.first_edge, self.last_edge) else {
            return self.per_s() / as_float(rate_per_s);
        };
        let scheduled_ns = last.scheduled_ns.saturating_sub(first.scheduled_ns);
        let took_ns = last.start_ns.saturating_sub(first.start_ns);
        let gaps = as_float(self.scheduled_ns.1 - self.scheduled_ns.0) / 1e9 * as_float(rate_per_s);
        let complete = as_float(self.count) / (gaps.round() + 1.0);
        complete * as_float(scheduled_ns) / as_float(took_ns)
    }

    /// Returns the rate from the first start to the last: as many operations as gaps, so no edge
    /// counts.
    fn per_s(&self) -> f64 {
        let gaps = self.count.saturating_sub(1);
        let took_ns = self.last_ns.saturating_sub(self.first_ns);
        as_float(gaps) * 1e9 / as_float(took_ns)
    }

    fn of_rival(&self, name: &str, rate_per_s: u64, cpu: &Cpu) -> Paced {
        let achieved = self.per_s() / as_float(rate_per_s);
        Paced { name: name.to_owned(), achieved, late_ns: None, cpu: cpu.per_second() }
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts and times stay far below 2^53")]
fn as_float(number: u64) -> f64 {
    number as f64
}

pub(crate) fn rate_text(rate_per_s: u64) -> String {
    match rate_per_s {
        millions if millions % 1_000_000 == 0 => format!("{} M/s", millions / 1_000_000),
        thousands if thousands >= 100_000 => format!("{} k/s", thousands / 1000),
        single => format!("{single}/s"),
    }
}
