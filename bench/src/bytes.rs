//! The memory of what is held, counted by the allocator. One JSON object comes out on stdout; the
//! part `tokens` of `rategate-bench-serve` runs this program.

#![allow(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::print_stdout,
    reason = "it is a command-line tool, and its panic only stops a measurement"
)]

use std::alloc::System;
use std::time::Duration;

use rategate::{MonotonicClock, Rate};
use rategate_bench::engines::Made;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::holds::{HoldVerdict, Holding};
use rategate_core::ledger::Ledger;
use rategate_server::config::load_text;
use rategate_server::engine::{
    Cost, Decided, Engine, EngineSettings, Item, Request, Target, UniqueId, Verb,
};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The number of holds and of reservations. It is no power of two, so that tables that double have
/// room to spare as they have on average.
const COUNT: u64 = 30_000;
const TTL: Duration = Duration::from_secs(600);
const SECOND_NS: u64 = 1_000_000_000;

fn main() -> Made<()> {
    let bucket = Gcra::new(Rate::per_second(1_000), 1_000_000_000)?;
    let hour = Duration::from_secs(3_600);
    let window = FixedWindow::new(1_000_000_000, hour, Anchor::Epoch);
    let (one_key, ended) = reservations(|_| 0)?;
    let (own_keys, _) = reservations(|number| number)?;
    let figures = json!({
        "bucket": of_holds(&Ledger::new(bucket, 0))?,
        "window": of_holds(&Ledger::new(window, 0))?,
        "one_key": one_key,
        "own_keys": own_keys,
        "ended": ended,
    });
    println!("{figures}");
    Ok(())
}

/// Returns the bytes of a hold in a limit that grants others between them.
fn of_holds<L: Holding>(fresh: &L) -> Made<f64> {
    let mut limit = fresh.clone();
    let region = Region::new(ALLOCATOR);
    for number in 0..COUNT {
        let at_ns = number.saturating_mul(1_000);
        let held = limit.try_hold(at_ns, 2, 600 * SECOND_NS)?;
        let HoldVerdict::Held(_) = held else { return Err("a hold was denied".into()) };
        let _ = limit.try_acquire(at_ns.saturating_add(500), 1)?;
    }
    Ok(each(&region))
}

/// Returns the bytes of an open reservation, and of the id of one that has been committed.
fn reservations(key: impl Fn(u64) -> u64) -> Made<(f64, f64)> {
    let engine = Engine::new(MonotonicClock::new(), EngineSettings::default());
    let rules = "[[rule]]\nname = \"r\"\ndomain = \"d\"\nmatch = [{ key = \"r\" }]\n\
                 limit = \"1000000/s\"\nburst = 1000000000\n";
    engine.load_compiled(&load_text("bench.toml", rules)?.rules)?;
    let id = |number: u64| UniqueId((u128::from(number) << 64).to_be_bytes());
    // The slots for all keys are there from the first call on.
    let items = [Item::of(Target::Rule { name: "r", values: &[b"first"] }, 1)];
    let request = Request { verb: Verb::Take, items: &items, counts_denied: false };
    let Decided::Now(Ok(_)) = engine.decide(&request) else {
        return Err("the first take was denied".into());
    };
    let region = Region::new(ALLOCATOR);
    for number in 0..COUNT {
        let key = key(number).to_be_bytes();
        let values: [&[u8]; 1] = [&key];
        let item = Item::of(Target::Rule { name: "r", values: &values }, 2);
        match engine.reserve(id(number), TTL, &[item]) {
            Decided::Now(Ok(reserved)) if reserved.answer.allowed => {}
            _ => return Err("a reservation was denied".into()),
        }
    }
    let open = each(&region);
    for number in 0..COUNT {
        let key = key(number).to_be_bytes();
        let values: [&[u8]; 1] = [&key];
        let target = Target::Rule { name: "r", values: &values };
        match engine.commit(id(number), &[Cost { target, permits: Some(1), usage: None }]) {
            Decided::Now(Ok(reserved)) if reserved.answer.allowed => {}
            _ => return Err("a commit had no effect".into()),
        }
    }
    Ok((open, each(&region)))
}

fn each(region: &Region<'_, System>) -> f64 {
    let stats = region.change();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated) as f64 / COUNT as f64
}
