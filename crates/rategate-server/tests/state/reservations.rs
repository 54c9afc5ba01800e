//! Reservations after a restart.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rategate::ManualClock;
use rategate::charge::Settled;
use rategate::snapshot::Downtime;
use rategate_server::config::load_text;
use rategate_server::engine::{
    Cost, Engine, EngineSettings, Item, NotRestored, Request, Reserved, Restored, Target, UniqueId,
    Verb, Verdict,
};
use rategate_server::rule::RuleSet;

use crate::engine::common::{MONDAY, SECOND, TestEngine, decide, now};
use crate::state::laws::KINDS;
use crate::state::{SMALL, burst, keeper};

const MINUTE: Duration = Duration::from_secs(60);

fn engine_at(at_s: u64, settings: EngineSettings) -> (TestEngine, ManualClock) {
    let loaded = load_text("rules.toml", KINDS);
    let loaded = loaded.unwrap_or_else(|error| panic!("{}", error.report()));
    let clock = ManualClock::new();
    clock.advance(Duration::from_nanos(MONDAY + 600 * SECOND + at_s * SECOND));
    let engine = Engine::new(clock.clone(), settings);
    engine.load(RuleSet { rules: loaded.rules.rules.clone(), hash: "".into() }).unwrap();
    (engine, clock)
}

/// A file of counters.
struct File(tempfile::TempDir);

impl File {
    /// Returns the file of a process that has ended.
    fn of(engine: &TestEngine) -> Self {
        let file = Self(tempfile::tempdir().unwrap());
        let keeper = Arc::new(keeper(&file.path()));
        keeper.run(engine, Duration::from_secs(3_600), |_| {}).unwrap().stop();
        file
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("state")
    }

    fn restored(&self, at_s: u64) -> TestEngine {
        let (engine, _) = engine_at(at_s, SMALL);
        let _ = restore(&engine, &self.path(), Downtime::Wall);
        engine
    }
}

fn restore(engine: &TestEngine, path: &Path, downtime: Downtime) -> Restored {
    engine.restore(path, downtime).unwrap().unwrap()
}

fn id(number: u8) -> UniqueId {
    UniqueId([number; 16])
}

fn of(name: &str) -> Target<'_> {
    Target::Rule { name, values: &[b"ann"] }
}

fn cost(target: Target<'_>, permits: u64) -> Cost<'_> {
    Cost { target, permits: Some(permits), usage: None }
}

fn reserve(engine: &TestEngine, number: u8, name: &str, permits: u64) -> Reserved {
    now(engine.reserve(id(number), MINUTE, &[Item::of(of(name), permits)])).unwrap()
}

fn commit(engine: &TestEngine, number: u8, name: &str, permits: u64) -> Reserved {
    now(engine.commit(id(number), &[cost(of(name), permits)])).unwrap()
}

fn commit_verdict(engine: &TestEngine, number: u8) -> (Verdict, bool) {
    verdict(&commit(engine, number, "window", 100))
}

fn verdict(reserved: &Reserved) -> (Verdict, bool) {
    (reserved.answer.results[0].verdict, reserved.is_repeated)
}

fn remaining(engine: &TestEngine, name: &str) -> u64 {
    decide(engine, Verb::Peek, &[Item::of(of(name), 1)]).results[0].remaining.unwrap()
}

#[test]
fn as_many_are_known_again_as_may_be() {
    let (before, _) = engine_at(0, SMALL);
    for number in 1..=9 {
        assert!(reserve(&before, number, "window", 100).answer.allowed);
        assert_eq!(commit_verdict(&before, number), (Verdict::Committed(Settled::Even), false));
    }
    let file = File::of(&before);
    let (after, _) = engine_at(0, EngineSettings { max_reservations: 5, ..SMALL });
    let restored = restore(&after, &file.path(), Downtime::Wall);
    assert_eq!(restored.settled, 5, "{restored:?}");
    assert!(matches!(restored.others[..], [(_, NotRestored::Ids { ids: 4 })]), "{restored:?}");
    assert_eq!(after.reservation_counts().known, 5);
    let again = (1..=9).map(|number| commit_verdict(&after, number));
    let again: Vec<_> = again.filter(|(_, is_repeated)| *is_repeated).collect();
    assert_eq!(again, [(Verdict::Committed(Settled::Even), true); 5]);
    assert_eq!(remaining(&after, "window"), 100);
}

/// Operations between the writes of a file.
struct Busy<'a>(&'a mut dyn FnMut(), Vec<u8>);

impl Write for Busy<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)();
        self.1.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whatever comes while a file is written, nothing that was used comes back, and no use counts
/// twice that its caller reports again.
#[test]
fn calls_go_on_while_a_file_is_written() {
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (before, _) = engine_at(0, SMALL);
        // The permits that were used of each that has been committed, and what the others held.
        let (mut used, mut open) = (HashMap::new(), HashMap::new());
        for number in 1..=40 {
            let permits = rng.u64(1..20);
            assert!(reserve(&before, number, "window", permits).answer.allowed);
            open.insert(number, permits);
        }
        let early = open.clone();
        let (mut next, mut charges) = (41, 100);
        let charge = [Item::of(of("window"), 2)];
        let charge = Request { verb: Verb::Charge, items: &charge, counts_denied: false };
        let mut step = || {
            let number = rng.u8(1..=40);
            match rng.u8(0..4) {
                0 | 1 => {
                    assert!(now(before.once(id(charges), &charge)).unwrap().answer.allowed);
                    charges += 1;
                }
                2 => {
                    let Some(permits) = open.remove(&number) else { return };
                    let actual = rng.u64(0..=permits);
                    let _ = commit(&before, number, "window", actual);
                    used.insert(number, actual);
                }
                _ if next < 60 => {
                    if reserve(&before, next, "window", 3).answer.allowed {
                        open.insert(next, 3);
                    }
                    next += 1;
                }
                _ => {}
            }
        };
        (0..10).for_each(|_| step());
        let first: HashMap<u8, u64> = used_of(&before, &early);
        let mut busy = Busy(&mut step, Vec::new());
        before.save(&mut busy).unwrap();
        let file = File(tempfile::tempdir().unwrap());
        std::fs::write(file.path(), busy.1).unwrap();
        let after = file.restored(1);
        let mut least = 0;
        for number in 1..=40_u8 {
            let actual = used.get(&number).copied();
            let (settled, repeated) =
                verdict(&commit(&after, number, "window", actual.unwrap_or(1)));
            assert!(repeated || settled == Verdict::Unknown, "{settled:?}");
            assert!(!first.contains_key(&number) || repeated, "{number}: {settled:?}");
            // What was held counts as used.
            least += actual.unwrap_or_else(|| early[&number]);
        }
        // Each is in the file, or counts now.
        for number in 100..charges {
            assert!(now(after.once(id(number), &charge)).unwrap().answer.allowed);
            least += 2;
        }
        let left = remaining(&after, "window");
        assert!(left <= 1_000 - least, "{left} are left, and {least} were used");
    }
}

/// Returns those that are committed by now.
fn used_of(engine: &TestEngine, early: &HashMap<u8, u64>) -> HashMap<u8, u64> {
    let is_settled = |number: u8, permits: u64| {
        let same = now(engine.reserve(id(number), MINUTE, &[Item::of(of("window"), permits)]));
        same.unwrap().ends_after_ns.is_none()
    };
    early
        .iter()
        .map(|(&number, &permits)| (number, permits))
        .filter(|&(n, p)| is_settled(n, p))
        .collect()
}

/// Requests that come before a file is restored know its ids after that.
#[test]
fn the_key_of_a_file_can_be_restored_before_the_rest() {
    let (engine, _) = engine_at(0, SMALL);
    for number in 1..=4 {
        assert!(reserve(&engine, number, "bucket", 10).answer.allowed);
        assert!(commit(&engine, number, "bucket", 10).answer.allowed);
    }
    let file = File::of(&engine);
    for (takes_over, settled) in [(true, 4), (false, 0)] {
        let clock = ManualClock::new();
        clock.advance(Duration::from_nanos(MONDAY + 600 * SECOND));
        let engine = Engine::new(clock, EngineSettings { ..SMALL });
        if takes_over {
            engine.restore_key(&file.path());
        }
        engine.load(RuleSet { rules: Vec::new(), hash: "".into() }).unwrap();
        let items = [Item::of(Target::Inline { limit: burst(5), key: b"k" }, 1)];
        let charge = Request { verb: Verb::Charge, items: &items, counts_denied: false };
        now(engine.once(id(9), &charge)).unwrap();
        let rules = load_text("rules.toml", KINDS).unwrap().rules.rules.clone();
        engine.load(RuleSet { rules, hash: "".into() }).unwrap();
        let restored = restore(&engine, &file.path(), Downtime::Wall);
        assert_eq!(restored.settled, settled, "{restored:?}");
        assert_eq!(remaining(&engine, "bucket"), 960);
    }
}
