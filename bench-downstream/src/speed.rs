//! The speed of common calls, beside governor and other limiters.
//!
//! A ratio says how many times as fast as the first of its rows a contender is. The first is
//! governor wherever it has such a limit. The harness is that of the other benches.

#![allow(dead_code, reason = "the other benches use the rest of the files that are theirs")]

// Their files name the library that they are elsewhere.
extern crate self as rategate_bench;

#[path = "../../crates/rategate-cli/src/bench/engines.rs"]
mod engines;
mod governors;
#[path = "../../crates/rategate-cli/src/bench/harness.rs"]
mod harness;
mod ours;
#[path = "../../bench-rivals/src/rivals.rs"]
mod rivals;
#[path = "../../bench/src/usage.rs"]
mod usage;

use std::time::{Duration, Instant};

use engines::{Answer, Engine, Made};
use harness::{Contender, Outcome, Plan, race};
use rategate::policy::Mode;
use usage::Share;

/// A name, and a call that waits for the next permit.
type Paced = (&'static str, Box<dyn FnMut()>);

/// The rate of the paced row, with a burst of one.
const PACED_PER_S: u32 = 100_000;

/// The extent of the measurements.
#[derive(Clone, Copy)]
struct Lengths {
    plan: Plan,
    paced_for: Duration,
    keys: u64,
}

fn main() -> Made<()> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (rounds, lap_ms) = if quick { (5, 10) } else { (15, 40) };
    let lengths = Lengths {
        plan: Plan { rounds, lap: Duration::from_millis(lap_ms), cpu_used: None },
        paced_for: Duration::from_millis(if quick { 200 } else { 1_000 }),
        keys: if quick { 200_000 } else { keys_that_fit() },
    };
    engines::settle_clock();
    println!("| {:<39} | {:<22} | {:>9} | {:>16} |", "path", "who", "ns a call", "times the first");
    println!("|{0:-<41}|{0:-<24}|{0:-<11}|{0:-<18}|", "");
    let share = Share::begin(None);
    tries(lengths.plan)?;
    logs(lengths.plan)?;
    keyed(lengths)?;
    paced(lengths)?;
    println!("\nothers took {:.1} % of the machine", share.of_others());
    Ok(())
}

/// Measures tries that are all granted or all denied, on the default clocks and on clocks that
/// another thread keeps.
fn tries(plan: Plan) -> Made<()> {
    for answer in [Answer::Granted, Answer::Denied] {
        let contenders = [
            rivals::governor(answer),
            Engine::Gcra.trying(answer)?,
            Engine::TwoTimeline(Mode::Average).trying(answer)?,
            rivals::ratelimit(answer),
            rivals::leaky_bucket(answer),
        ];
        let path = format!("try {}, exact clock", answer.name());
        print_rows(&path, &race(plan, 1, &contenders));
    }
    let contenders = [governors::on_kept_clock()?, ours::average_on_kept_clock()];
    print_rows("try granted, cached clock", &race(plan, 1, &contenders));
    Ok(())
}

/// Measures exact windows beside one written by hand: governor has none.
fn logs(plan: Plan) -> Made<()> {
    for slots in [100, 10_000] {
        let contenders = [rivals::mutex_log(slots), Engine::Log(slots).trying(Answer::Granted)?];
        print_rows(&format!("exact log of {slots}, granted"), &race(plan, 1, &contenders));
    }
    Ok(())
}

/// Measures tries of uniformly random keys, more of them than the caches hold.
fn keyed(lengths: Lengths) -> Made<()> {
    let (keys, plan) = (lengths.keys, lengths.plan);
    let (governor, table) = (governors::keyed(keys), ours::keyed(keys)?);
    for threads in [1, 2] {
        let contenders = [
            drawn("governor", keys, |key| governor.check_key(&key).is_ok()),
            drawn("keyed", keys, |key| {
                table.try_acquire(&key, 1).is_ok_and(|decision| decision.is_granted())
            }),
        ];
        let path = format!("{:.1} M keys, uniform, {threads} threads", keys as f64 / 1e6);
        print_rows(&path, &race(plan, threads, &contenders));
    }
    Ok(())
}

/// Measures one thread that waits for each permit of a bucket with a burst of one.
fn paced(lengths: Lengths) -> Made<()> {
    let path = format!("paced at {PACED_PER_S}/s, burst 1");
    let mut governor_per_s = None;
    for (name, mut start) in [governors::paced(PACED_PER_S), ours::paced(PACED_PER_S)?] {
        let (began, mut count) = (Instant::now(), 0_u32);
        while began.elapsed() < lengths.paced_for {
            start();
            count += 1;
        }
        let per_s = f64::from(count) / began.elapsed().as_secs_f64();
        let times = per_s / *governor_per_s.get_or_insert(per_s);
        print_row(&path, name, 1e9 / per_s, &format!("{times:.2}"));
    }
    Ok(())
}

/// Returns a contender each of whose calls is for a random key.
fn drawn<'a>(
    name: &str,
    keys: u64,
    call: impl Fn(u64) -> bool + Send + Sync + 'a,
) -> Contender<'a> {
    Contender::with_state(name, fastrand::Rng::new, move |random| call(key(random.u64(..keys))))
}

/// Returns the key of a number: all are different, and neighbours are far apart.
fn key(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns ten million, or two million where memory is short.
fn keys_that_fit() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse().ok());
    if kilobytes.is_none_or(|kilobytes: u64| kilobytes > 4_000_000) {
        10_000_000
    } else {
        2_000_000
    }
}

fn print_rows(path: &str, outcomes: &[Outcome]) {
    for outcome in outcomes {
        let times = format!("{:.2} (min {:.2})", outcome.ratio, outcome.min_ratio);
        print_row(path, &outcome.name, outcome.ns, &times);
    }
}

fn print_row(path: &str, who: &str, ns: f64, times: &str) {
    println!("| {path:<39} | {who:<22} | {ns:>9.1} | {times:>16} |");
}
