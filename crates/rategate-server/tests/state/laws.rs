//! The law of all files of counters, for tests and for the fuzzer.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use rategate::ManualClock;
use rategate::snapshot::Downtime;
use rategate_server::config::load_text;
use rategate_server::engine::{Engine, EngineSettings, Restored, StateError};
use rategate_server::rule::{Rule, RuleSet};

/// A rule of each kind, with 1000 permits.
pub(crate) const KINDS: &str = include_str!("kinds.toml");

/// Some Monday, and ten minutes.
const NOW: Duration = Duration::from_secs(1_759_708_800 + 600);

const SETTINGS: EngineSettings = EngineSettings {
    max_keys: 1_000,
    inline_keys: 100,
    inline_limits: 8,
    max_reservations: 100,
    count_denied: false,
    counting: rategate_server::rule::Counting::All,
};

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let loaded = load_text("rules.toml", KINDS);
    loaded.unwrap_or_else(|error| panic!("{}", error.report())).rules.rules.clone()
});

/// Restores the file that has this between its head and its checksum, and asserts the law.
pub(crate) fn hold(inner: &[u8]) {
    let name = format!("rategate-{}-{:?}", std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(name);
    fs::write(&path, whole(inner)).unwrap();
    let (engine, clock) = engine();
    let restored = restore(&engine, &path);
    fs::remove_file(&path).unwrap();
    let restored = match restored {
        Ok(restored) => restored,
        // Its contents are malformed, or a table is beyond its end.
        Err(StateError::Unreadable { .. } | StateError::Io { doing: "read", .. }) => return,
        Err(error) => panic!("{error}"),
    };
    let known = engine.reservation_counts().known;
    assert!(known <= 100, "{known} of {restored:?}");
    let file = fs::File::create(&path).unwrap();
    let saved = engine.save(&file).unwrap();
    let (again, later) = self::engine();
    let restored = restore(&again, &path);
    fs::remove_file(&path).unwrap();
    let restored = restored.unwrap();
    assert_eq!(restored.keys, saved.keys);
    assert!(again.reservation_counts().known <= known);
    for (engine, clock) in [(engine, clock), (again, later)] {
        // The first pass ends them, and the others forget them.
        for _ in 0..3 {
            clock.advance(Duration::from_secs(86_400 * 365));
            engine.tick(rategate::Clock::now_ns(&clock));
        }
    }
}

fn restore(engine: &Engine<ManualClock>, path: &Path) -> Result<Restored, StateError> {
    engine.restore(path, Downtime::Wall).map(Option::unwrap)
}

/// Returns an engine with rules, and its clock.
pub(crate) fn engine() -> (Engine<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    clock.advance(NOW);
    let engine = Engine::new(clock.clone(), SETTINGS);
    engine.load(RuleSet { rules: RULES.clone(), hash: "".into() }).unwrap();
    (engine, clock)
}

/// Returns a file with its head and its checksum.
fn whole(inner: &[u8]) -> Vec<u8> {
    let mut bytes = [b"\x89RGE\r\n\x1a\n\x01\0", inner].concat();
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}
