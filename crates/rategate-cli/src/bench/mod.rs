//! `rategate bench`: the longest calls of a limiter, and the stopwatch test of real starts.

mod starts;
mod truth;

use std::error::Error;
use std::fmt::Write as _;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use rategate::policy::Mode;
use rategate::{Clock as _, Gcra, Limiter, MonotonicClock, Rate, SlidingLog, TwoTimeline};

use crate::args::BenchArgs;
use crate::failure::Failure;
use crate::output::print;

/// The result of building a limiter. The numbers here are valid; the error is for future changes.
type Made<T> = Result<T, Box<dyn Error>>;

/// The threads that try one by one: more than a machine has cores, so that some are preempted in
/// the middle of a request.
const THREADS: usize = 50;
const CALLS: usize = 20_000;

/// A rate of one permit each quarter of a nanosecond, so that a permit is always available.
const PLENTY: u64 = 4_000_000_000;

/// The durations of calls timed one by one, of all threads together: callers with a deadline
/// depend on the worst case.
struct Slowest {
    by: &'static str,
    threads: usize,
    calls: usize,
    /// The duration that one call in ten thousand exceeds.
    rare_ns: u64,
    max_ns: u64,
}

/// Measures, and prints the results in the requested format.
pub(crate) fn run(args: &BenchArgs) -> Result<u8, Failure> {
    let failed = |error| Failure::Usage(format!("bench: {error}"));
    if args.truth {
        let rows = truth::measure(args.lap).map_err(failed)?;
        print(if args.json { starts::as_json(&rows) } else { starts::as_text(&rows) })?;
        return Ok(0);
    }
    let slowest = slowest().map_err(failed)?;
    print(if args.json { as_json(&slowest) } else { as_text(&slowest) })?;
    Ok(0)
}

/// Measures single tries, beginning with the reference: nothing between two readings of the clock.
fn slowest() -> Made<Vec<Slowest>> {
    let bucket = Limiter::new(Gcra::new(Rate::per_second(PLENTY), PLENTY)?);
    let log = Limiter::new(SlidingLog::try_new(100, Duration::from_nanos(400))?);
    let average = Limiter::new(TwoTimeline::new(Rate::per_second(PLENTY), Mode::Average, None));
    Ok(vec![
        timed_singly("nothing", || true),
        timed_singly("gcra", || try_one(&bucket)),
        timed_singly("sliding log of 100", || try_one(&log)),
        timed_singly("two-timeline average", || try_one(&average)),
    ])
}

fn try_one(limiter: &Limiter) -> bool {
    limiter.try_acquire(1).is_ok_and(|decision| decision.is_granted())
}

fn timed_singly(by: &'static str, call: impl Fn() -> bool + Sync) -> Slowest {
    let (clock, start) = (MonotonicClock::new(), Barrier::new(THREADS));
    let one_thread = || {
        let mut took_ns = Vec::with_capacity(CALLS);
        start.wait();
        for _ in 0..CALLS {
            let before_ns = clock.now_ns();
            std::hint::black_box(call());
            took_ns.push(clock.now_ns().saturating_sub(before_ns));
        }
        took_ns
    };
    let mut took_ns: Vec<u64> = thread::scope(|scope| {
        let running: Vec<_> = (0..THREADS).map(|_| scope.spawn(one_thread)).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect()
    });
    took_ns.sort_unstable();
    let calls = took_ns.len();
    let rare = calls.saturating_sub(1).saturating_sub(calls.wrapping_div(10_000));
    let at = |index: usize| took_ns.get(index).copied().unwrap_or(0);
    let (rare_ns, max_ns) = (at(rare), at(calls.saturating_sub(1)));
    Slowest { by, threads: THREADS, calls, rare_ns, max_ns }
}

fn as_text(slowest: &[Slowest]) -> String {
    let mut text = format!(
        "{:<20}  {:>7}  {:>9}  {:>11}  {:>13}\n",
        "single try", "threads", "calls", "1 in 10 000", "slowest"
    );
    for Slowest { by, threads, calls, rare_ns, max_ns } in slowest {
        let [rare, max] = [rare_ns, max_ns].map(|ns| format!("{:?}", Duration::from_nanos(*ns)));
        let _ = writeln!(text, "{by:<20}  {threads:>7}  {calls:>9}  {rare:>11}  {max:>13}");
    }
    text.push_str(
        "\neach timed by itself, on far more threads than cores. What the scheduler takes shows\n\
         beside \"nothing\", where no try is made at all.\n",
    );
    text
}

fn as_json(slowest: &[Slowest]) -> String {
    let lines: Vec<String> = slowest
        .iter()
        .map(|Slowest { by, threads, calls, rare_ns, max_ns }| {
            format!(
                "  {{\"what\":\"single try\",\"by\":\"{by}\",\"threads\":{threads},\
                 \"calls\":{calls},\
                 \"one_in_10000_ns\":{rare_ns},\"slowest_ns\":{max_ns}}}"
            )
        })
        .collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}
