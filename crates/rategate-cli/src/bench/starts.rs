//! Real starts of callers that wait in a loop, judged by the number of starts in any window.

use std::fmt::Write as _;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The delay between the limiter's and the caller's clock reading from which the caller counts as
/// preempted: no code that runs there takes so long.
const STOPPED_NS: u64 = 20_000;

/// The numbers of threads or tasks that call at once.
pub(super) const CALLERS: [usize; 4] = [1, 4, 32, 256];

/// The start of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    /// The instant by the limiter's clock reading, where it reports it.
    pub(super) limiter_ns: Option<u64>,
    /// The instant by the caller's clock reading, right after the call.
    pub(super) caller_ns: u64,
}

/// A limit, with the numbers needed for judging.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// The name for tables.
    pub(super) name: &'static str,
    /// The maximum number of permits in a window of `window_ns`.
    pub(super) at_most: usize,
    /// The length of a window.
    pub(super) window_ns: u64,
    /// The permits per second in the long run.
    pub(super) per_s: f64,
    /// The number of starts that may come together at first, which is not part of the rate.
    pub(super) burst: usize,
    /// The number of starts that come together from then on, as when a window opens.
    pub(super) together: usize,
    /// The minimum distance of any two starts, for limits that guarantee one.
    pub(super) apart_ns: Option<u64>,
}

/// The results of one limit with its callers.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The limit.
    pub(super) limit: Limit,
    /// The limiter's origin, and the kind of its callers.
    pub(super) by: String,
    /// The number of callers.
    pub(super) callers: usize,
    /// The fullest window by the limiter's readings.
    pub(super) limiter: Option<Fullest>,
    /// The fullest window by the callers' readings.
    pub(super) caller: Fullest,
    /// The share of starts closer to the one before than the limit guarantees, by the callers'
    /// readings.
    pub(super) close: Option<f64>,
    /// The share of windows over the limit by the callers' readings though none of their starts
    /// was read late.
    pub(super) unexplained: f64,
    /// The share of starts at which the caller was preempted between the limiter's reading and
    /// its own.
    pub(super) stopped: f64,
    /// The rate reached, as a part of the rate that the limit allows in the long run.
    pub(super) of_rate: f64,
    /// Seconds of processor time for each second.
    pub(super) cpu: Option<f64>,
}

/// Statistics of the windows that begin with a start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fullest {
    /// The number of starts in the fullest window.
    pub(super) starts: usize,
    /// The share of windows over the limit.
    pub(super) over: f64,
}

/// Calls `run` in `callers` threads at once, and gathers their starts.
pub(super) fn by_threads(callers: usize, run: impl Fn() -> Vec<Start> + Sync) -> Vec<Start> {
    let all = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..callers {
            scope.spawn(|| {
                let own = run();
                all.lock().unwrap_or_else(PoisonError::into_inner).extend(own);
            });
        }
    });
    all.into_inner().unwrap_or_default()
}

/// Calls `run` in `callers` tasks of a tokio runtime with two threads, and gathers their starts.
///
/// # Errors
///
/// An error if the runtime cannot be built.
pub(super) fn by_tasks<F>(callers: usize, run: impl Fn() -> F) -> std::io::Result<Vec<Start>>
where
    F: Future<Output = Vec<Start>> + Send + 'static,
{
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_time().build()?;
    Ok(runtime.block_on(async {
        let tasks: Vec<_> = (0..callers).map(|_| tokio::spawn(run())).collect();
        let mut all = Vec::new();
        for task in tasks {
            // A task that has panicked has no starts.
            all.extend(task.await.unwrap_or_default());
        }
        all
    }))
}

/// Measures one limit with its callers.
///
/// # Errors
///
/// Those of `measure`.
pub(super) fn row<E>(
    limit: Limit,
    by: impl Into<String>,
    callers: usize,
    measure: impl FnOnce() -> Result<Vec<Start>, E>,
) -> Result<Row, E> {
    let (from, used) = (Instant::now(), cpu_used());
    let starts = measure()?;
    let took = from.elapsed();
    let cpu = cpu_used().zip(used).map(|(now, before)| now.saturating_sub(before));
    let cpu = cpu.map(|cpu| cpu.as_secs_f64() / took.as_secs_f64());
    Ok(judge(limit, by.into(), callers, starts, cpu))
}

fn judge(
    limit: Limit,
    by: String,
    callers: usize,
    mut starts: Vec<Start>,
    cpu: Option<f64>,
) -> Row {
    let Limit { at_most, window_ns, .. } = limit;
    let limiter_ns: Option<Vec<u64>> = starts.iter().map(|start| start.limiter_ns).collect();
    starts.sort_unstable_by_key(|start| start.caller_ns);
    let caller_ns: Vec<u64> = starts.iter().map(|start| start.caller_ns).collect();
    let stopped: Vec<bool> = starts.iter().map(Start::was_stopped).collect();
    let max_starts = |ns: &[u64]| fullest(ns, window_ns, at_most, |_| true);
    let unexplained = fullest(&caller_ns, window_ns, at_most, |range| {
        stopped.get(range).is_some_and(|stopped| !stopped.contains(&true))
    });
    let limiter = limiter_ns.map(|mut ns| {
        ns.sort_unstable();
        max_starts(&ns)
    });
    Row {
        limit,
        by,
        callers,
        limiter,
        caller: max_starts(&caller_ns),
        close: limit.apart_ns.map(|apart_ns| close(&caller_ns, apart_ns)),
        unexplained: unexplained.over,
        stopped: count(stopped.iter().filter(|&&stopped| stopped).count())
            / count(starts.len().max(1)),
        of_rate: of_rate(limit, &caller_ns),
        cpu,
    }
}

impl Start {
    fn was_stopped(&self) -> bool {
        let late_ns = self.limiter_ns.map_or(0, |ns| self.caller_ns.saturating_sub(ns));
        late_ns > STOPPED_NS
    }
}

/// Returns the part of the rate that sorted starts reach, over whole rounds after the burst.
fn of_rate(limit: Limit, starts_ns: &[u64]) -> f64 {
    let steady = starts_ns.get(limit.burst..).unwrap_or_default();
    let gaps = steady.len().saturating_sub(1);
    let passed = gaps.saturating_sub(gaps.checked_rem(limit.together).unwrap_or(0));
    let (Some(first), Some(last)) = (steady.first(), steady.get(passed)) else { return 0.0 };
    let span = Duration::from_nanos(last.saturating_sub(*first).max(1)).as_secs_f64();
    count(passed) / (span * limit.per_s)
}

/// Returns the fullest half-open window of sorted instants, and the share of windows with more
/// than `at_most` starts for which `counts` returns `true`.
fn fullest(
    starts_ns: &[u64],
    window_ns: u64,
    at_most: usize,
    counts: impl Fn(std::ops::Range<usize>) -> bool,
) -> Fullest {
    let (mut max_starts, mut over, mut end) = (0_usize, 0_usize, 0_usize);
    for (first, &from_ns) in starts_ns.iter().enumerate() {
        let is_inside = |&at_ns: &u64| at_ns.saturating_sub(from_ns) < window_ns;
        while starts_ns.get(end).is_some_and(is_inside) {
            end = end.saturating_add(1);
        }
        let inside = end.saturating_sub(first);
        max_starts = max_starts.max(inside);
        over = over.saturating_add(usize::from(inside > at_most && counts(first..end)));
    }
    Fullest { starts: max_starts, over: count(over) / count(starts_ns.len().max(1)) }
}

/// Returns the share of sorted instants that are closer to the one before than `apart_ns`.
fn close(starts_ns: &[u64], apart_ns: u64) -> f64 {
    let gaps = starts_ns.iter().zip(starts_ns.iter().skip(1));
    let close = gaps.filter(|(before, after)| after.saturating_sub(**before) < apart_ns).count();
    count(close) / count(starts_ns.len().max(1))
}

fn count(starts: usize) -> f64 {
    f64::from(u32::try_from(starts).unwrap_or(u32::MAX))
}

/// Returns the processor time of this process so far, where the system reports it.
fn cpu_used() -> Option<Duration> {
    #[cfg(unix)]
    {
        use rustix::time::{ClockId, clock_gettime};

        Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).ok()
    }
    #[cfg(not(unix))]
    None
}

/// Formats the rows as a table.
#[must_use]
pub(super) fn as_text(rows: &[Row]) -> String {
    let wide = rows.iter().map(|row| row.by.len().saturating_add(2)).max().unwrap_or(0);
    let mut text = format!(
        "{:<22}{:<wide$}{:>8}{:>9}{:>10}{:>9}{:>10}{:>9}{:>9}{:>9}{:>9}{:>8}{:>7}\n",
        "limit",
        "by",
        "callers",
        "at most",
        "limiter's",
        "over",
        "caller's",
        "over",
        "close",
        "running",
        "stopped",
        "rate",
        "CPU"
    );
    let percent = |share: f64| format!("{:.2}%", share * 100.0);
    for row in rows {
        let Row { limit: Limit { name, at_most, .. }, by, callers, caller, .. } = row;
        let (limiter, over) = row.limiter.map_or(("-".to_owned(), "-".to_owned()), |limiter| {
            (limiter.starts.to_string(), percent(limiter.over))
        });
        let (unexplained, stopped) = match row.limiter {
            Some(_) => (percent(row.unexplained), percent(row.stopped)),
            None => ("-".to_owned(), "-".to_owned()),
        };
        let close = row.close.map_or("-".to_owned(), percent);
        let cpu = row.cpu.map_or("-".to_owned(), |cpu| format!("{cpu:.3}"));
        let _ = writeln!(
            text,
            "{name:<22}{by:<wide$}{callers:>8}{at_most:>9}{limiter:>10}{over:>9}{:>10}{:>9}\
             {close:>9}{unexplained:>9}{stopped:>9}{:>8.3}{cpu:>7}",
            caller.starts,
            percent(caller.over),
            row.of_rate,
        );
    }
    text.push_str(
        "\nlimiter's: the fullest window by the limiter's own readings, and the share of windows\n\
         over the limit. caller's: the same by a clock read right after each call. close: the\n\
         share of starts nearer to the one before than the limit says, by the same clock.\n\
         stopped: the share of starts at which the caller read its clock more than 20 us after\n\
         the limiter did, because it was stopped in between. running: the share of windows over\n\
         the limit by the callers' readings without such a start. rate: the rate reached, as a\n\
         part of what the limit allows in the long run. CPU: cores in use.\n",
    );
    text
}

/// Formats the rows as a JSON array.
#[must_use]
pub(super) fn as_json(rows: &[Row]) -> String {
    let or_null = |number: Option<String>| number.unwrap_or_else(|| "null".to_owned());
    let lines: Vec<String> = rows
        .iter()
        .map(|row| {
            let Row { limit: Limit { name, at_most, window_ns, .. }, by, callers, caller, .. } =
                row;
            format!(
                "  {{\"limit\":\"{name}\",\"by\":\"{by}\",\"callers\":{callers},\
                 \"at_most\":{at_most},\"window_ns\":{window_ns},\"limiter_fullest\":{},\
                 \"limiter_over\":{},\
                 \"caller_fullest\":{},\"caller_over\":{:.5},\"caller_close\":{},\
                 \"running_over\":{:.5},\"stopped\":{:.5},\
                 \"of_rate\":{:.4},\"cpu\":{}}}",
                or_null(row.limiter.map(|limiter| limiter.starts.to_string())),
                or_null(row.limiter.map(|limiter| format!("{:.5}", limiter.over))),
                caller.starts,
                caller.over,
                or_null(row.close.map(|close| format!("{close:.5}"))),
                row.unexplained,
                row.stopped,
                row.of_rate,
                or_null(row.cpu.map(|cpu| format!("{cpu:.4}"))),
            )
        })
        .collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::arithmetic_side_effects,
        clippy::float_cmp,
        clippy::indexing_slicing,
        clippy::unwrap_used,
        reason = "a test computes in plain numbers and may panic"
    )]

    use super::*;

    #[test]
    fn windows_are_half_open() {
        let fullest_of = |starts: &[u64]| {
            let Fullest { starts, over } = fullest(starts, 100, 2, |_| true);
            (starts, over)
        };
        assert_eq!(fullest_of(&[0, 50, 100, 150]), (2, 0.0));
        assert_eq!(fullest_of(&[0, 50, 99, 150]), (3, 0.25));
        assert_eq!(fullest_of(&[]), (0, 0.0));
    }

    /// The result does not depend on where within a round the measurement ends.
    #[test]
    fn the_rate_is_that_of_whole_rounds() {
        let log = Limit {
            name: "",
            at_most: 2,
            window_ns: 100,
            per_s: 2e7,
            burst: 2,
            together: 2,
            apart_ns: None,
        };
        for ends in 5..=6 {
            assert_eq!(of_rate(log, &[0, 1, 100, 101, 200, 201][..ends]), 1.0);
        }
        assert_eq!(of_rate(log, &[0, 1, 100, 101, 225]), 0.8);
        let bucket = Limit { burst: 3, together: 1, per_s: 1e7, ..log };
        assert_eq!(of_rate(bucket, &[0, 0, 0, 100, 200, 300]), 1.0);
        assert_eq!(of_rate(bucket, &[0, 0, 0]), 0.0);
    }

    /// A preempted first caller explains a window over the limit; one that ran does not.
    #[test]
    fn callers_that_were_stopped_explain_a_window() {
        let limit = Limit {
            name: "",
            at_most: 2,
            window_ns: 100_000,
            per_s: 20_000.0,
            burst: 2,
            together: 2,
            apart_ns: Some(50_000),
        };
        let judged = |late_ns: u64| {
            let at = [(0, late_ns), (50_000, 0), (100_000, 0)].map(|(limiter_ns, late_ns)| Start {
                limiter_ns: Some(limiter_ns),
                caller_ns: limiter_ns + late_ns,
            });
            judge(limit, String::new(), 1, at.to_vec(), None)
        };
        let row = judged(0);
        assert_eq!((row.limiter.unwrap().starts, row.caller.over, row.stopped), (2, 0.0, 0.0));
        assert_eq!(row.close, Some(0.0));
        let row = judged(500);
        assert_eq!((row.limiter.unwrap().over, row.close), (0.0, Some(1.0 / 3.0)));
        assert!(row.caller.over > 0.3 && row.unexplained > 0.3 && row.stopped == 0.0, "{row:?}");
        let row = judged(30_000);
        assert!(row.caller.over > 0.3 && row.unexplained == 0.0 && row.stopped > 0.3, "{row:?}");
    }
}
