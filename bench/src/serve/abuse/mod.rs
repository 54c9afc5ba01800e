//! A server under attack while others are served: it must stay exact for them, and within its
//! memory.

mod attack;
mod check;
mod talk;

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rategate_bench::engines::Made;

use self::attack::Field;
use self::check::Checker;
use crate::Bench;
use crate::ours::{Ours, Setting};

const KEYS: u64 = 1_000_000;
/// The pause between two checks.
const PAUSE: Duration = Duration::from_millis(20);
/// The maximum of its memory: its tables, ten thousand idle callers, and whatever others have sent.
const MAX_BYTES: u64 = 512 << 20;
/// The maximum growth from the first half of a run to the second: nothing is left behind for ever.
const MAX_GROWTH: u64 = 48 << 20;
/// The longest wait of a harmless caller, though server and attackers have one core each.
const SLOWEST_NS: u64 = 2_000_000_000;
/// The longest time from the signal to the end of the server.
const STOPS_WITHIN: Duration = Duration::from_secs(15);

/// Attacks a server and prints a line. Fails if the server was not exact or exceeded its bounds.
pub(crate) fn run(bench: &Bench, lasts: Duration, seed: u64) -> Made<()> {
    let mut ours = Ours::start(bench, &Setting::new(KEYS))?
        .ok_or("no program to attack; name it by --ours PROGRAM")?;
    let field = Field { ports: [ours.resp, ours.http, ours.grpc], ..Field::default() };
    eprintln!("attacking for {} s, seed {seed}", lasts.as_secs());
    let found = thread::scope(|scope| {
        for (number, (_, attack)) in attack::ALL.into_iter().enumerate() {
            let (field, dice) = (&field, Rng::with_seed(seed.wrapping_add(number as u64)));
            scope.spawn(move || attack(field, dice));
        }
        let found = watch(&mut ours, lasts);
        field.is_over.store(true, Ordering::Relaxed);
        found
    });
    let count = |of: &std::sync::atomic::AtomicU64| of.load(Ordering::Relaxed);
    let harm = format!(
        "{} conversations, up to {} idle callers, {} not let in",
        count(&field.conversations),
        count(&field.max_idle),
        count(&field.refused)
    );
    match found.and_then(|found| stops(&mut ours).map(|()| found)) {
        Ok(found) => {
            println!("withstood {} s, seed {seed}: {harm}; {}", lasts.as_secs(), found.tally());
        }
        Err(error) => {
            let log = ours.service.log();
            let tail: Vec<&str> = log.lines().rev().take(10).collect();
            return Err(format!(
                "failed, seed {seed}: {error}; {harm}\nits log, latest first:\n{}",
                tail.join("\n")
            )
            .into());
        }
    }
    Ok(())
}

/// The observations of a run.
struct Seen {
    checker: Checker,
    start_bytes: u64,
    max_bytes: u64,
}

impl Seen {
    fn tally(&self) -> String {
        let at = |quantile| self.checker.tally.took_ns.value_at_quantile(quantile) as f64 / 1e6;
        format!(
            "{} keys exact, replies within {:.1} ms (99 %) and {:.1} ms; \
             {:.0} MB of memory, {:.0} MB at first",
            self.checker.keys,
            at(0.99),
            at(1.0),
            self.max_bytes as f64 / 1e6,
            self.start_bytes as f64 / 1e6
        )
    }
}

fn watch(ours: &mut Ours, lasts: Duration) -> Made<Seen> {
    let start_bytes = ours.service.resident_bytes()?;
    let mut found = Seen { checker: Checker::connect(ours)?, start_bytes, max_bytes: start_bytes };
    let begun = Instant::now();
    let mut first_half = start_bytes;
    while begun.elapsed() < lasts {
        let is_first = begun.elapsed() < lasts / 2;
        found.checker.check()?;
        if !ours.service.is_running() {
            return Err("the server has ended".into());
        }
        let bytes = ours.service.resident_bytes()?;
        found.max_bytes = found.max_bytes.max(bytes);
        if is_first {
            first_half = first_half.max(bytes);
        }
        let slowest_ns = found.checker.tally.took_ns.max();
        if slowest_ns > SLOWEST_NS {
            return Err(format!("a reply took {:.1} s", slowest_ns as f64 / 1e9).into());
        }
        if bytes > MAX_BYTES || bytes > first_half.saturating_add(MAX_GROWTH) {
            return Err(format!(
                "{:.0} MB of memory, {:.0} MB in the first half",
                bytes as f64 / 1e6,
                first_half as f64 / 1e6
            )
            .into());
        }
        thread::sleep(PAUSE);
    }
    Ok(found)
}

/// Signals the server, and checks that it ends in time and in order.
fn stops(ours: &mut Ours) -> Made<()> {
    ours.service.signal("-TERM")?;
    let tally = Instant::now();
    while ours.service.is_running() {
        if tally.elapsed() > STOPS_WITHIN {
            return Err(format!("the server did not stop within {STOPS_WITHIN:?}").into());
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}
