//! Damaged files.

use std::fs;
use std::path::{Path, PathBuf};

use rategate_server::engine::{StateError, Unreadable, Verb};

use crate::engine::common::{TestEngine, bucket, per_minute, remaining, take};
use crate::state::{burst, bytes_of, engine_at, engine_now, engine_of, keeper};

fn rules() -> Vec<rategate_server::rule::Rule> {
    vec![bucket("b", &["who"], 10), per_minute("w", &["user"], 5)]
}

fn used() -> TestEngine {
    let (engine, _) = engine_now(rules());
    assert!(take(&engine, &[("who=ann", 10), ("user=ann", 5)]));
    let _ = engine.inline(burst(8), b"x", Verb::Take, 8).unwrap();
    engine
}

/// Asserts that a damaged file is refused whole, and that the error has its path.
fn is_refused(path: &PathBuf, bytes: &[u8], what: &str) {
    fs::write(path, bytes).unwrap();
    let (after, _) = engine_at(rules(), 0);
    let refused = keeper(path).start(&after);
    match refused {
        Err(StateError::Unreadable { path: named, .. }) => assert_eq!(&named, path),
        other => panic!("{what}: {other:?}"),
    }
    assert_eq!(after.keys(), 0, "{what}");
    assert!(path.exists(), "{what}: it is there for the next start to refuse");
}

#[test]
fn a_file_that_ends_early_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("state");
    let bytes = bytes_of(&used());
    for length in 0..bytes.len() {
        is_refused(&path, &bytes[..length], &format!("{length} of {} bytes", bytes.len()));
    }
    fs::write(&path, &bytes).unwrap();
    let (after, _) = engine_at(rules(), 0);
    assert!(matches!(keeper(&path).start(&after), Ok(Some(_))));
    assert_eq!(remaining(&after, "who=ann"), 0);
}

#[test]
fn a_file_with_a_bit_changed_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("state");
    let bytes = bytes_of(&used());
    // Every byte, and each of its bits in turn.
    for (at, bit) in (0..bytes.len()).map(|at| (at, at % 8)) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << bit;
        is_refused(&path, &changed, &format!("bit {bit} of byte {at}"));
    }
}

#[test]
fn foreign_files_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("state");
    let bytes = bytes_of(&used());
    let (mut newer, mut longer) = (bytes.clone(), bytes.clone());
    newer[8] = 2;
    longer.push(0);
    let twice = [bytes.clone(), bytes].concat();
    for (what, bytes) in [
        ("newer", newer),
        ("longer", longer),
        ("twice", twice),
        ("text", b"counters = none, and some more text behind that".to_vec()),
        ("zeros", vec![0; 4_096]),
    ] {
        is_refused(&path, &bytes, what);
    }
    let why = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let (after, _) = engine_at(rules(), 0);
        match keeper(&path).start(&after) {
            Err(StateError::Unreadable { why, .. }) => why,
            other => panic!("{other:?}"),
        }
    };
    let newer = why(b"\x89RGE\r\n\x1a\n\x07\x00 and more than that");
    assert!(matches!(newer, Unreadable::OtherVersion { found: 7 }), "{newer}");
    // There has never been a version 0.
    let none = why(b"\x89RGE\r\n\x1a\n\x00\x00 and more than that");
    assert!(matches!(none, Unreadable::OtherVersion { found: 0 }), "{none}");
    let text = why(b"counters = none, and some more text behind that");
    assert!(matches!(text, Unreadable::NotOurs), "{text}");
    // Its head and its tail are 18 bytes.
    let whole = bytes_of(&used());
    for (length, reported) in (0..18).zip(0..) {
        let short = why(&whole[..length]);
        assert!(matches!(short, Unreadable::Torn { bytes } if bytes == reported), "{short}");
    }
}

/// Counters of an owner of an unknown kind would be missing.
#[test]
fn contents_of_an_unknown_kind_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("state");
    let mut bytes = bytes_of(&used());
    let at = bytes.windows(6).position(|window| window == b"\"Rule\"").unwrap();
    bytes[at..at + 6].copy_from_slice(b"\"Team\"");
    let end = bytes.len() - 4;
    let checksum = crc32fast::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    is_refused(&path, &bytes, "an unknown owner");
}

/// No directory, a read-only one, a full disk: the error is reported and counted, and the service
/// continues.
#[test]
fn what_cannot_be_saved_is_counted() {
    let home = tempfile::tempdir().unwrap();
    let engine = used();
    let missing = keeper(&home.path().join("no/state"));
    let Err(StateError::Io { doing: "create", .. }) = missing.save(&engine) else { panic!() };
    // A directory in the place of the new file.
    let path = home.path().join("state");
    fs::create_dir(home.path().join("state.new")).unwrap();
    let taken = keeper(&path);
    assert!(matches!(taken.save(&engine), Err(StateError::Io { doing: "create", .. })));
    fs::remove_dir(home.path().join("state.new")).unwrap();
    assert!(taken.save(&engine).is_ok());
    let whole = fs::read(&path).unwrap();
    #[cfg(unix)]
    {
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "who can read it can make keys that collide");
    }
    // Writes that fail for lack of space.
    #[cfg(target_os = "linux")]
    {
        std::os::unix::fs::symlink("/dev/full", home.path().join("state.new")).unwrap();
        let Err(StateError::Io { doing: "write", source, .. }) = taken.save(&engine) else {
            panic!()
        };
        assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
        assert!(!home.path().join("state.new").exists(), "nothing of it is left");
        assert_eq!(taken.stats().failed, 2);
    }
    assert_eq!(fs::read(&path).unwrap(), whole, "the old file is as it was");
    assert_eq!((missing.stats().failed, taken.stats().saved), (1, 1));
    assert!(!take(&engine, &[("who=ann", 1)]), "and the server goes on");
}

/// A path that is not a file.
#[test]
fn what_cannot_be_opened_is_no_first_start() {
    let home = tempfile::tempdir().unwrap();
    let (after, _) = engine_at(rules(), 0);
    assert!(keeper(home.path()).start(&after).is_err());
}

/// Asserts that a file is refused by an engine in which the counters of a rule do not fit: what its
/// keys have left would be unknown.
fn is_misfit(path: &Path, after: &TestEngine, of: &str) {
    let refused = keeper(path).start(after).unwrap_err();
    let reported = refused.to_string();
    for part in [&path.display().to_string(), of, "capacity", "move it away"] {
        assert!(reported.contains(part), "{reported}");
    }
    assert!(path.exists());
}

#[test]
fn more_keys_than_a_rule_has_capacity_for_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("state");
    let rules = |max_keys| {
        let mut small = bucket("small", &["who"], 10);
        small.max_keys = Some(max_keys);
        vec![bucket("other", &["o"], 10), small]
    };
    let (before, _) = engine_at(rules(1_000), 0);
    for key in 0..50 {
        assert!(take(&before, &[(&format!("who={key}"), 10)]));
    }
    let _ = keeper(&path).save(&before).unwrap();
    is_misfit(&path, &engine_at(rules(10), 0).0, "the rule `small`");
}

/// Fewer keys of limits that come with calls than before, and fewer such limits.
#[test]
fn more_limits_that_come_with_calls_than_may_be_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("state");
    let save = |engine: &TestEngine| keeper(&path).save(engine).unwrap();
    let before = engine_of(1_000, 62, 0);
    for key in 0..200_u32 {
        let _ = before.inline(burst(8), &key.to_le_bytes(), Verb::Take, 8).unwrap();
    }
    let _ = save(&before);
    is_misfit(&path, &engine_of(10, 62, 0), "inline limits");
    let before = engine_of(1_000, 62, 0);
    for size in 1..=40 {
        let _ = before.inline(burst(size), b"x", Verb::Take, size).unwrap();
    }
    let _ = save(&before);
    is_misfit(&path, &engine_of(1_000, 31, 0), "inline limits");
}

/// A file has one keeper, in this process and in others.
#[test]
fn a_file_has_one_keeper() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("state");
    let engine = used();
    let first = keeper(&path);
    assert!(matches!(first.start(&engine), Ok(None)));
    assert!(matches!(first.start(&engine), Ok(None)), "its own");
    let second = keeper(&path);
    let reported = second.start(&engine).unwrap_err().to_string();
    assert!(reported.contains("another process"), "{reported}");
    drop(first);
    assert!(matches!(second.start(&engine), Ok(None)));
}
