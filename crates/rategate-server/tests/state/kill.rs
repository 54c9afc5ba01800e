//! A process that is killed while it saves: the old file or the new one is there.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::engine::common::{SECOND, bucket, remaining, take};
use crate::state::{engine_at, engine_now, keeper};

/// The number of keys, enough to write a file in several pieces.
const KEYS: usize = 1_500;
const PATH: &str = "RATEGATE_TEST_STATE";

fn rules() -> Vec<rategate_server::rule::Rule> {
    let mut rule = bucket("b", &["who"], 1_000_000);
    rule.max_keys = Some(2 * KEYS);
    vec![rule]
}

/// The child process: takes one permit of each key, saves, reports it, and repeats. Does nothing
/// without the variable.
#[test]
fn child() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let (engine, _) = engine_now(rules());
    let keeper = keeper(path.as_ref());
    let mut out = std::io::stdout();
    for generation in 1_u64.. {
        for key in 0..KEYS {
            assert!(take(&engine, &[(&format!("who={key}"), 1)]));
        }
        let _ = keeper.save(&engine).unwrap();
        if writeln!(out, "saved {generation}").and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

#[test]
fn a_kill_leaves_the_old_file_or_the_new_one() {
    for round in 0..4_u64 {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "state::kill::child", "--nocapture"])
            .env(PATH, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut logged = 0;
        while logged < 1 + round % 3 {
            let line = lines.next().unwrap().unwrap();
            logged = line
                .rsplit_once("saved ")
                .map_or(logged, |(_, generation)| generation.parse().unwrap());
        }
        // During the next round: while it takes, or writes as soon as the new file exists.
        let new = path.with_extension("new");
        for _ in 0..1_000_000 {
            if round % 2 == 0 || new.exists() {
                break;
            }
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        let _ = child.wait().unwrap();
        for line in lines.map_while(Result::ok) {
            logged = line
                .rsplit_once("saved ")
                .map_or(logged, |(_, generation)| generation.parse().unwrap());
        }
        let (after, _) = engine_at(rules(), SECOND / 2);
        let started = keeper(&path).start(&after).unwrap();
        assert!(started.is_some(), "round {round}: {started:?}");
        let used = 1_000_000 - remaining(&after, "who=0");
        assert!(used >= logged && used <= logged + 2, "round {round}: {used} of {logged} said");
        for key in 0..KEYS {
            let item = format!("who={key}");
            assert_eq!(1_000_000 - remaining(&after, &item), used, "round {round}: one file");
        }
        // A leftover of an earlier save is overwritten.
        let _ = keeper(&path).save(&after).unwrap();
        assert!(!new.exists());
    }
}
