//! The stopwatch test: callers that wait in a loop, and whether any window of their real starts holds
//! more than the limit says, by the limiter's readings and by the callers' own.

use std::fmt::Write as _;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use rategate::{
    Anchor, AsyncLimiter, Clock, Concurrent, FixedWindow, Gcra, Limiter, Mode, MonotonicClock,
    SlidingLog, TwoTimeline,
};

use super::engines::Made;

/// How many threads or tasks call at once.
const CALLERS: [usize; 4] = [1, 4, 32, 256];
const MS: u64 = 1_000_000;

/// One limit with its callers.
pub(super) struct Row {
    pub(super) limit: &'static str,
    pub(super) by: &'static str,
    pub(super) callers: usize,
    /// The most permits that a window of this length may hold.
    pub(super) at_most: usize,
    pub(super) window_ns: u64,
    /// By the limiter's readings, and by those of the callers right after each call.
    pub(super) limiter: Fullest,
    pub(super) caller: Fullest,
    /// The rate reached, as a part of the rate that the limit allows in the long run.
    pub(super) of_rate: f64,
}

/// The windows that begin with a start.
#[derive(Clone, Copy)]
pub(super) struct Fullest {
    pub(super) starts: usize,
    /// The share of windows with more than may be.
    pub(super) over: f64,
}

/// A limit, its name, the most permits in a window of so many nanoseconds, and its permits a second.
struct Subject<P> {
    name: &'static str,
    policy: P,
    at_most: usize,
    window_ns: u64,
    per_s: f64,
    /// How many may start together, which is no part of the rate.
    burst: usize,
}

/// Measures each limit with threads and with tasks, for so long at a time.
pub(super) fn measure(lap: Duration) -> Made<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, at_most, window_ns, per_s) in [
        ("log 10 in any 1 ms", 10, MS, 10_000.0),
        ("log 50 in any 10 ms", 50, 10 * MS, 5_000.0),
        ("log 50 in any 100 ms", 50, 100 * MS, 500.0),
        ("log 50 in any 1 s", 50, 1_000 * MS, 50.0),
    ] {
        let policy = SlidingLog::new(50.min(u64::try_from(at_most)?), window_ns)?;
        rows.extend(race(
            &Subject { name, policy, at_most, window_ns, per_s, burst: at_most },
            lap,
        )?);
    }
    let policy = FixedWindow::new(50, 100 * MS, Anchor::Epoch)?;
    let (name, at_most) = ("window 50 a 100 ms", 100);
    let subject = Subject { name, policy, at_most, window_ns: 100 * MS, per_s: 500.0, burst: 50 };
    rows.extend(race(&subject, lap)?);
    let rate: rategate::Rate = "2000/s".parse()?;
    // One in each 500 us: 50 starts span 49 of them.
    let (window_ns, per_s) = (49 * MS / 2, 2_000.0);
    let (name, policy) = ("gcra 2000/s burst 1", Gcra::new(rate, 1)?);
    rows.extend(race(&Subject { name, policy, at_most: 49, window_ns, per_s, burst: 1 }, lap)?);
    let (name, policy) = ("gcra 2000/s burst 5", Gcra::new(rate, 5)?);
    rows.extend(race(&Subject { name, policy, at_most: 53, window_ns, per_s, burst: 5 }, lap)?);
    let (name, policy) = ("strict 2000/s", TwoTimeline::new(rate, Mode::Strict, None));
    rows.extend(race(&Subject { name, policy, at_most: 49, window_ns, per_s, burst: 1 }, lap)?);
    Ok(rows)
}

fn race<P>(subject: &Subject<P>, lap: Duration) -> Made<Vec<Row>>
where
    P: rategate::Twinned + Send + 'static,
    P::State: Send,
    P::Twin: 'static,
{
    // A window that is long has to come round some times.
    let lap = lap.max(Duration::from_nanos(subject.window_ns.saturating_mul(2)));
    let mut rows = Vec::new();
    for callers in CALLERS {
        for by in ["threads", "tasks"] {
            let clock = MonotonicClock::new();
            let limiter = Limiter::with_clock(subject.policy.clone(), clock);
            let until = Instant::now().checked_add(lap).unwrap_or_else(Instant::now);
            let starts = match by {
                "threads" => by_threads(&limiter, clock, callers, until),
                _ => by_tasks(&AsyncLimiter::from(limiter), clock, callers, until)?,
            };
            rows.push(row(subject, by, callers, starts));
        }
    }
    Ok(rows)
}

/// The limiter's reading of each start, and the caller's right after the call.
type Starts = (Vec<u64>, Vec<u64>);

fn by_threads<L: Concurrent + Send, C: Clock>(
    limiter: &Limiter<L, C>,
    clock: MonotonicClock,
    callers: usize,
    until: Instant,
) -> Starts {
    let all = Mutex::new(Starts::default());
    thread::scope(|scope| {
        for _ in 0..callers {
            scope.spawn(|| {
                let mut own = Starts::default();
                while Instant::now() < until
                    && let Ok(grant) = limiter.acquire(1)
                {
                    own.1.push(clock.now_ns());
                    own.0.push(grant.release_ns());
                }
                gather(&all, own);
            });
        }
    });
    all.into_inner().unwrap_or_default()
}

fn by_tasks<L, C>(
    limiter: &AsyncLimiter<L, C>,
    clock: MonotonicClock,
    callers: usize,
    until: Instant,
) -> Made<Starts>
where
    L: Concurrent + Send + 'static,
    C: Clock + 'static,
    L::Twin: 'static,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let all = std::sync::Arc::new(Mutex::new(Starts::default()));
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for _ in 0..callers {
            let (limiter, clock, all) = (limiter.clone(), clock, all.clone());
            tasks.push(tokio::spawn(async move {
                let mut own = Starts::default();
                while Instant::now() < until
                    && let Ok(grant) = limiter.acquire(1).await
                {
                    own.1.push(clock.now_ns());
                    own.0.push(grant.release_ns());
                }
                gather(&all, own);
            }));
        }
        for task in tasks {
            // One that has panicked has gathered nothing.
            let _ = task.await;
        }
    });
    Ok(all.lock().map(|all| all.clone()).unwrap_or_default())
}

fn gather(all: &Mutex<Starts>, own: Starts) {
    if let Ok(mut all) = all.lock() {
        all.0.extend(own.0);
        all.1.extend(own.1);
    }
}

fn row<P>(
    subject: &Subject<P>,
    by: &'static str,
    callers: usize,
    (limiter, caller): Starts,
) -> Row {
    let &Subject { name, at_most, window_ns, per_s, burst, .. } = subject;
    let count = |starts: usize| f64::from(u32::try_from(starts).unwrap_or(u32::MAX));
    let span_ns = limiter
        .iter()
        .max()
        .zip(limiter.iter().min())
        .map_or(0, |(last, first)| last.saturating_sub(*first));
    let span = Duration::from_nanos(span_ns.max(1)).as_secs_f64();
    let of_rate = count(limiter.len().saturating_sub(burst)) / (span * per_s);
    let limiter = fullest(limiter, window_ns, at_most);
    let caller = fullest(caller, window_ns, at_most);
    Row { limit: name, by, callers, at_most, window_ns, limiter, caller, of_rate }
}

/// The fullest half-open window, and the share of windows with more than `at_most`.
fn fullest(mut starts_ns: Vec<u64>, window_ns: u64, at_most: usize) -> Fullest {
    starts_ns.sort_unstable();
    let (mut most, mut over) = (0_usize, 0_u32);
    for (first, &from_ns) in starts_ns.iter().enumerate() {
        let rest = starts_ns.get(first..).unwrap_or_default();
        let inside = rest.partition_point(|&at_ns| at_ns.saturating_sub(from_ns) < window_ns);
        most = most.max(inside);
        over = over.saturating_add(u32::from(inside > at_most));
    }
    let windows = u32::try_from(starts_ns.len()).unwrap_or(u32::MAX).max(1);
    Fullest { starts: most, over: f64::from(over) / f64::from(windows) }
}

pub(super) fn as_text(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<22}{:<9}{:>8}{:>9}{:>10}{:>9}{:>10}{:>9}{:>9}\n",
        "limit", "by", "callers", "at most", "limiter's", "over", "caller's", "over", "rate"
    );
    for Row { limit, by, callers, at_most, limiter, caller, of_rate, .. } in rows {
        let _ = writeln!(
            text,
            "{limit:<22}{by:<9}{callers:>8}{at_most:>9}{:>10}{:>8.2}%{:>10}{:>8.2}%{of_rate:>9.3}",
            limiter.starts,
            limiter.over * 100.0,
            caller.starts,
            caller.over * 100.0,
        );
    }
    text.push_str(
        "\nlimiter's: the fullest window by the limiter's own readings, and the share of windows that are\n\
         over. caller's: by a clock read right after each call; a thread that is preempted in between\n\
         can make one over. rate: what was reached of what the limit allows in the long run.\n",
    );
    text
}

pub(super) fn as_json(rows: &[Row]) -> String {
    let lines: Vec<String> = rows
        .iter()
        .map(|Row { limit, by, callers, at_most, window_ns, limiter, caller, of_rate }| {
            format!(
                "  {{\"limit\":\"{limit}\",\"by\":\"{by}\",\"callers\":{callers},\"at_most\":{at_most},\
                 \"window_ns\":{window_ns},\"limiter_fullest\":{},\"limiter_over\":{:.5},\
                 \"caller_fullest\":{},\"caller_over\":{:.5},\"of_rate\":{of_rate:.4}}}",
                limiter.starts, limiter.over, caller.starts, caller.over
            )
        })
        .collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_half_open() {
        let fullest_of = |starts: &[u64]| {
            let Fullest { starts, over } = fullest(starts.to_vec(), 100, 2);
            (starts, over)
        };
        assert_eq!(fullest_of(&[0, 50, 100, 150]), (2, 0.0));
        assert_eq!(fullest_of(&[150, 0, 50, 99]), (3, 0.25));
        assert_eq!(fullest_of(&[]), (0, 0.0));
    }
}
