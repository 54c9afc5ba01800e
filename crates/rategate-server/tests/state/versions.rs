//! Files of later and of earlier versions.

use std::fs;
use std::time::Duration;

use rategate_server::engine::{
    Cost, Engine, EngineSettings, Item, NotRestored, OnCorruptSnapshot, Request, Started, Target,
    UniqueId, Verb, Verdict,
};
use rategate_server::rule::RuleSet;
use serde_json::Value;

use crate::engine::common::{MONDAY, TestEngine, decide, now, per_minute};
use crate::state::{SMALL, engine_now, keeper};

const ANN: Target<'_> = Target::Rule { name: "w", values: &[b"ann"] };
const TTL: Duration = Duration::from_secs(30);

fn id(number: u8) -> UniqueId {
    UniqueId([number; 16])
}

fn rules() -> Vec<rategate_server::rule::Rule> {
    vec![per_minute("w", &["user"], 100)]
}

/// A file in parts: its tables and lists, the contents, and nothing of its head and its tail.
struct Parts {
    body: Vec<u8>,
    contents: Value,
}

impl Parts {
    fn of(bytes: &[u8]) -> Self {
        let end = bytes.len() - 8;
        let length = u32::from_le_bytes(bytes[end..end + 4].try_into().unwrap());
        let at = end - usize::try_from(length).unwrap();
        let contents = serde_json::from_slice(&bytes[at..end]).unwrap();
        Self { body: bytes[..at].to_vec(), contents }
    }

    fn replace(&mut self, from: &str, to: &str) {
        assert_eq!(from.len(), to.len(), "offsets stay");
        let at = self.body.windows(from.len()).position(|window| window == from.as_bytes());
        let at = at.unwrap_or_else(|| panic!("no {from}"));
        self.body[at..at + from.len()].copy_from_slice(to.as_bytes());
    }

    /// Adds rows to the list of open reservations, which is the last.
    fn add_rows(&mut self, rows: &str) {
        self.body.extend_from_slice(rows.as_bytes());
        let bytes = &mut self.contents["reservations"]["unsettled"]["bytes"];
        *bytes = (bytes.as_u64().unwrap() + u64::try_from(rows.len()).unwrap()).into();
    }

    fn bytes(&self) -> Vec<u8> {
        let contents = self.contents.to_string();
        let length = u32::try_from(contents.len()).unwrap().to_le_bytes();
        let mut bytes = [&self.body, contents.as_bytes(), &length].concat();
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

/// Returns the file of a process with two ids that are settled, and two that are open.
fn saved() -> Parts {
    let (engine, _) = engine_now(rules());
    for number in 1..=4 {
        let reserved = now(engine.reserve(id(number), TTL, &[Item::of(ANN, 10)])).unwrap();
        assert!(reserved.answer.allowed);
    }
    assert_eq!(commit(&engine, 1, 10).0, Verdict::Committed(rategate::charge::Settled::Even));
    now(engine.cancel(id(2), &[ANN])).unwrap();
    let mut bytes = Vec::new();
    engine.save(&mut bytes).unwrap();
    Parts::of(&bytes)
}

fn commit(engine: &TestEngine, number: u8, permits: u64) -> (Verdict, bool) {
    let cost = Cost { target: ANN, permits: Some(permits), usage: None };
    let reserved = now(engine.commit(id(number), &[cost])).unwrap();
    (reserved.answer.results[0].verdict, reserved.is_repeated)
}

fn remaining(engine: &TestEngine) -> u64 {
    decide(engine, Verb::Peek, &[Item::of(ANN, 1)]).results[0].remaining.unwrap()
}

fn started(bytes: &[u8]) -> (TestEngine, Result<Started, rategate_server::engine::StateError>) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("state");
    fs::write(&path, bytes).unwrap();
    let (engine, _) = engine_now(rules());
    let started = keeper(&path, OnCorruptSnapshot::Refuse).start(&engine);
    (engine, started)
}

/// An earlier program that reads the file of a later one, after its version was changed back.
#[test]
fn rows_that_a_later_version_has_added_are_left_out_and_counted() {
    let mut parts = saved();
    // A verdict, the owner of a hold, and a row altogether.
    parts.replace("\"Even\"", "\"Odd!\"");
    let body = String::from_utf8_lossy(&parts.body).into_owned();
    let row = body.lines().find(|line| line.contains("\"left_ns\"") && line.contains("holds"));
    // The first one follows the bytes of a table.
    let row = row.and_then(|line| line.get(line.find("{\"id\"")?..));
    let row = row.unwrap().replace("{\"Rule\":\"w\"}", "{\"Team\":\"w\"}");
    assert!(row.contains("Team"), "{row}");
    parts.add_rows(&format!("{row}\n{{\"lease\":7}}\n"));
    let (engine, started) = started(&parts.bytes());
    let Started::Restored(restored) = started.unwrap() else { panic!() };
    let [(rule, why)] = &restored.others[..] else { panic!("{restored:?}") };
    assert!(matches!(why, NotRestored::UnknownRows { rows: 3 }), "{why}");
    assert!(rule.is_empty());
    let says = why.to_string();
    let version = env!("CARGO_PKG_VERSION");
    assert!(says.starts_with("3 rows of the lists of reservations are of kinds"), "{says}");
    assert!(says.contains(version) && says.contains("a later version"), "{says}");
    assert_eq!((restored.reservations, restored.keys), (3, 1));
    assert_eq!(remaining(&engine), 70, "all counters are there");
    assert_eq!(commit(&engine, 1, 10).0, Verdict::Unknown);
    assert_eq!(commit(&engine, 2, 10), (Verdict::Cancelled(10), true));
    for number in [3, 4] {
        let back = rategate::charge::Settled::Back { permits: 5 };
        assert_eq!(commit(&engine, number, 5), (Verdict::Committed(back), false));
    }
    assert_eq!(remaining(&engine), 80);
}

/// Where a row is no JSON, or a table is of an unknown kind, counters may be missing.
#[test]
fn what_could_lose_counters_is_refused() {
    let mut broken = saved();
    broken.add_rows("{\"lease\":\n");
    let mut table = saved();
    let of = table.contents["tables"][0]["of"]["Rule"].take();
    table.contents["tables"][0]["of"] = serde_json::json!({ "Team": of });
    let mut newer = saved();
    newer.body[8] = 2;
    for (parts, says) in [
        (broken, "its list of contents is malformed"),
        (table, "its list of contents is malformed"),
        (newer, "its format version is 2; this program reads versions up to 1"),
    ] {
        let (engine, started) = started(&parts.bytes());
        let error = started.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert_eq!(remaining(&engine), 100, "nothing of it is used");
    }
}

/// A file from before reservations were in files, and one with less in its rows.
#[test]
fn what_an_earlier_version_has_written_is_read() {
    let mut parts = saved();
    parts.contents.as_object_mut().unwrap().remove("reservations");
    parts.contents.as_object_mut().unwrap().remove("spent");
    let (engine, started) = started(&parts.bytes());
    let Started::Restored(restored) = started.unwrap() else { panic!() };
    assert_eq!((restored.reservations, restored.others.len()), (0, 0), "{restored:?}");
    assert_eq!(remaining(&engine), 70);
    assert_eq!(commit(&engine, 3, 10).0, Verdict::Unknown);
}

/// Requests that come before a file is restored know its ids after that.
#[test]
fn the_key_of_a_file_can_be_restored_before_the_rest() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("state");
    fs::write(&path, saved().bytes()).unwrap();
    for (takes_over, reservations) in [(true, 4), (false, 0)] {
        let clock = rategate::ManualClock::new();
        clock.advance(Duration::from_nanos(MONDAY));
        let engine = Engine::new(clock, EngineSettings { ..SMALL });
        if takes_over {
            engine.restore_key(&path);
        }
        engine.load(RuleSet { rules: Vec::new(), hash: "".into() }).unwrap();
        let inline = rategate_server::engine::Inline { capacity: 5, count: 5, period_ns: 1 << 30 };
        let own = Target::Inline { limit: inline, key: b"k" };
        let items = [Item::of(own, 1)];
        let charge = Request { verb: Verb::Charge, items: &items, counts_denied: false };
        now(engine.once(id(9), &charge)).unwrap();
        engine.load(RuleSet { rules: rules(), hash: "".into() }).unwrap();
        let restored = engine.restore(&path, rategate::snapshot::Downtime::Wall).unwrap().unwrap();
        assert_eq!(restored.reservations, reservations, "{restored:?}");
        assert_eq!(remaining(&engine), 70);
    }
}
