//! `rategate bench`: the cost of a decision on this machine, next to the machine's own steps.

// The benches of the repository include these files as a library of their own.
#[allow(dead_code, unreachable_pub, reason = "public and in use where they are a library")]
mod engines;
#[allow(dead_code, unreachable_pub, reason = "public and in use where they are a library")]
mod floors;
#[allow(dead_code, unreachable_pub, reason = "public and in use where they are a library")]
mod harness;
#[allow(dead_code, unreachable_pub, reason = "public and in use where they are a library")]
mod starts;
#[allow(dead_code, unreachable_pub, reason = "public and in use where they are a library")]
mod truth;

use std::fmt::Write as _;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use rategate::policy::Mode;
use rategate::{Clock as _, MonotonicClock};

use crate::args::BenchArgs;
use crate::failure::Failure;
use crate::output::print;
use engines::{Answer, Engine, Made};
use harness::{Contender, Outcome, Plan, race};

/// Short enough to be run casually, long enough that one disturbance decides nothing.
const PLAN: Plan = Plan { rounds: 15, lap: Duration::from_millis(3), cpu_used: None };

/// The threads that try one by one: more than a machine has cores, so that some are preempted in
/// the middle of a request.
const THREADS: usize = 50;
const CALLS: usize = 20_000;

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

/// One limiter, or one of the machine's own steps, on some threads.
struct Row {
    what: String,
    threads: u32,
    timed: Outcome,
    /// The cost of the machine's own steps that a limiter needs; `None` for those steps
    /// themselves.
    floor: Option<Outcome>,
}

/// Measures, and prints the results in the requested format.
pub(crate) fn run(args: &BenchArgs) -> Result<u8, Failure> {
    let failed = |error| Failure::Usage(format!("bench: {error}"));
    if args.truth {
        let rows = truth::measure(args.lap).map_err(failed)?;
        print(if args.json { starts::as_json(&rows) } else { starts::as_text(&rows) })?;
        return Ok(0);
    }
    let (rows, slowest) = (measure().map_err(failed)?, slowest().map_err(failed)?);
    print(if args.json { as_json(&rows, &slowest) } else { as_text(&rows, &slowest) })?;
    Ok(0)
}

fn measure() -> Made<Vec<Row>> {
    let mut rows = Vec::new();
    engines::settle_clock();
    // On a single core a second thread would only wait for the first.
    let max = thread::available_parallelism().map_or(1, |cores| cores.get().min(2));
    for threads in (1..=2).take(max) {
        for floor in [floors::instant(), floors::swap(), floors::add()] {
            rows.extend(timed("machine", threads, &[floor]));
        }
        for answer in [Answer::Granted, Answer::Denied] {
            let what = format!("try {}", answer.name());
            for engine in Engine::ALL {
                rows.extend(timed(&what, threads, &[engine.trying(answer)?, floor_of(answer)]));
            }
            let local = engines::local(answer)?;
            rows.extend(timed(&what, threads, &[local, floor_of(answer)]));
        }
    }
    Ok(rows)
}

/// Returns the floor of a decision: a denial needs the time, and a grant needs a write besides.
fn floor_of(answer: Answer) -> Contender<'static> {
    match answer {
        Answer::Granted => floors::instant_and_swap(),
        Answer::Denied => floors::instant(),
    }
}

/// Times the first contender, with the second as its floor.
fn timed(what: &str, threads: u32, contenders: &[Contender<'_>]) -> Option<Row> {
    let mut outcomes = race(PLAN, threads, contenders).into_iter();
    let timed = outcomes.next()?;
    Some(Row { what: what.to_owned(), threads, timed, floor: outcomes.next() })
}

/// Measures single tries, beginning with the reference: nothing between two readings of the clock.
fn slowest() -> Made<Vec<Slowest>> {
    let gcra = engines::gcra(Answer::Granted)?;
    let log = engines::log(100, Answer::Granted)?;
    let average = engines::two_timeline(Mode::Average, Answer::Granted)?;
    Ok(vec![
        timed_singly("nothing", || true),
        timed_singly("gcra", || engines::try_one(&gcra)),
        timed_singly("sliding log of 100", || engines::try_one(&log)),
        timed_singly("two-timeline average", || engines::try_one(&average)),
    ])
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

fn as_text(rows: &[Row], slowest: &[Slowest]) -> String {
    let mut text = format!(
        "{:<12}  {:<20}  {:>7}  {:>9}  {:>11}  {:>13}\n",
        "what", "by", "threads", "ns a call", "million a s", "times machine"
    );
    for Row { what, threads, timed, floor } in rows {
        let times = floor.as_ref().map_or_else(String::new, |floor| format!("{:.1}", floor.ratio));
        let millions = timed.per_s / 1e6;
        let _ = writeln!(
            text,
            "{what:<12}  {:<20}  {threads:>7}  {:>9.1}  {millions:>11.2}  {times:>13}",
            timed.name, timed.ns
        );
    }
    text.push_str(
        "\nns a call: as one thread sees it, the median. times machine: \
         that over one clock reading,\n\
         and for a grant one swap on the same cache line besides.\n",
    );
    let _ = writeln!(
        text,
        "\n{:<12}  {:<20}  {:>7}  {:>9}  {:>11}  {:>13}",
        "what", "by", "threads", "calls", "1 in 10 000", "slowest"
    );
    for Slowest { by, threads, calls, rare_ns, max_ns } in slowest {
        let (rare, max) = (format!("{:?}", ns(*rare_ns)), format!("{:?}", ns(*max_ns)));
        let _ = writeln!(
            text,
            "{:<12}  {by:<20}  {threads:>7}  {calls:>9}  {rare:>11}  {max:>13}",
            "single try"
        );
    }
    text.push_str(
        "\nsingle try: each timed by itself, on far more threads than cores. \
         What the scheduler takes\n\
         shows beside \"nothing\", where no try is made at all.\n",
    );
    text
}

fn as_json(rows: &[Row], slowest: &[Slowest]) -> String {
    let lines: Vec<String> = rows
        .iter()
        .map(|Row { what, threads, timed, floor }| {
            let floor = floor.as_ref().map_or_else(
                || "null".to_owned(),
                |floor| format!("{{\"name\":\"{}\",\"ns\":{:.3}}}", floor.name, floor.ns),
            );
            format!(
                "  {{\"what\":\"{what}\",\"by\":\"{}\",\"threads\":{threads},\"ns\":{:.3},\
                 \"per_s\":{:.0},\"granted\":{:.3},\"floor\":{floor}}}",
                timed.name, timed.ns, timed.per_s, timed.granted
            )
        })
        .chain(slowest.iter().map(|Slowest { by, threads, calls, rare_ns, max_ns }| {
            format!(
                "  {{\"what\":\"single try\",\"by\":\"{by}\",\"threads\":{threads},\
                 \"calls\":{calls},\
                 \"one_in_10000_ns\":{rare_ns},\"slowest_ns\":{max_ns}}}"
            )
        }))
        .collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

const fn ns(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}
