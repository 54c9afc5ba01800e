//! Counters in a file: restarts, and damaged files.

mod changed;
mod damage;
mod kill;
pub(crate) mod laws;
mod reservations;
mod restart;

use std::io::Cursor;
use std::path::Path;
use std::time::Duration;

use rategate::ManualClock;
use rategate::snapshot::Downtime;
use rategate_server::engine::{Engine, EngineSettings, Inline, Keeper, KeeperSettings, Verb};
use rategate_server::rule::{Rule, RuleSet};

use crate::engine::common::{MONDAY, TestEngine};

pub(crate) const SMALL: EngineSettings =
    EngineSettings { max_reservations: 1_000, ..crate::engine::common::SMALL };

/// Creates an engine of another process, `at_ns` after Monday.
fn engine_at(rules: Vec<Rule>, at_ns: u64) -> (TestEngine, ManualClock) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_nanos(MONDAY + at_ns));
    let engine = Engine::new(clock.clone(), SMALL);
    engine.load(RuleSet { rules, hash: "".into() }).unwrap();
    (engine, clock)
}

fn engine_now(rules: Vec<Rule>) -> (TestEngine, ManualClock) {
    engine_at(rules, 0)
}

fn keeper(path: &Path) -> Keeper {
    Keeper::new(KeeperSettings { path: path.to_path_buf(), downtime: Downtime::Wall })
}

fn bytes_of(engine: &TestEngine) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    engine.save(&mut bytes).unwrap();
    bytes.into_inner()
}

/// Returns an inline bucket: `capacity` at once, one back per second.
const fn burst(capacity: u64) -> Inline {
    Inline { capacity, count: 1, period_ns: crate::engine::common::SECOND }
}

/// Returns the permits left of an inline limit.
fn left(engine: &TestEngine, limit: Inline, key: &str) -> u64 {
    engine.inline(limit, key.as_bytes(), Verb::Peek, 1).unwrap().remaining.unwrap()
}

/// Creates an engine without rules, with this capacity for inline limits.
fn engine_of(inline_keys: usize, inline_limits: usize, at_ns: u64) -> TestEngine {
    let clock = ManualClock::new();
    clock.advance(Duration::from_nanos(MONDAY + at_ns));
    Engine::new(clock, EngineSettings { inline_keys, inline_limits, ..SMALL })
}
