//! `rategate analyze --follow` on files that grow and rotate.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::common::{Session, folder};
use serde_json::Value;

struct Followed {
    session: Session,
    log: PathBuf,
    gate: PathBuf,
}

fn line(caller: &str) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    format!("{{\"ts\": {now}, \"ip\": \"{caller}\"}}\n")
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

impl Followed {
    /// Follows a log that already holds two calls of `old`, one of them too many.
    fn start(name: &str, hold: &str) -> Self {
        let folder = folder(name);
        let (log, gate) = (folder.join("access.log"), folder.join("deny"));
        append(&log, &(line("old") + &line("old")));
        let arguments =
            ["analyze", "1/1h", "--format", "json", "--follow", "--hold", hold, "--gate"];
        let paths = [gate.to_str().unwrap(), log.to_str().unwrap()];
        let session = Session::start(&[&arguments[..], &paths].concat());
        let followed = Self { session, log, gate };
        followed.await_denied("old", true);
        // From the second read on, lines count as new.
        thread::sleep(Duration::from_millis(500));
        followed
    }

    fn await_denied(&self, caller: &str, is_denied: bool) {
        let start = Instant::now();
        loop {
            let list = fs::read_to_string(&self.gate).unwrap_or_default();
            if list.lines().any(|line| line.ends_with(&format!("\t{caller}"))) == is_denied {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(30), "{caller}: {list}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn finish(mut self) -> Value {
        self.session.signal("-INT");
        let report = self.session.rest();
        assert_eq!(self.session.status(), Some(130));
        serde_json::from_slice(&report).unwrap()
    }
}

/// S3.20: the gate closes soon after, and the report has the amount that may have passed
/// meanwhile.
#[test]
fn a_growing_log_closes_the_gate() {
    let followed = Followed::start("a_growing_log_closes_the_gate", "1h");
    append(&followed.log, &line("a"));
    let (start, rest) = (line("a"), line("b"));
    // A line in two parts is one line.
    append(&followed.log, &start[..10]);
    thread::sleep(Duration::from_millis(450));
    append(&followed.log, &(start[10..].to_owned() + &rest));
    followed.await_denied("a", true);
    let report = followed.finish();
    assert_eq!((&report["calls"], &report["denied"]), (&Value::from(5), &Value::from(2)));
    assert_eq!(report["skipped"], 0);
    let field = |name: &str| report["follow"][name].as_u64().unwrap();
    assert_eq!(field("lines"), 3, "those that were there before are no news");
    assert!(field("delay_worst_ns") > 0 && field("delay_worst_ns") >= field("delay_mean_ns"));
    assert!(field("published_worst_ns") > 0);
    let worst_ns = field("delay_worst_ns").max(field("published_worst_ns"));
    let seconds = worst_ns.div_ceil(1_000_000_000) + 1;
    assert_eq!(field("overshoot_at_most"), field("most_in_second") * seconds);
}

#[test]
fn a_renamed_log_is_read_to_its_end() {
    let followed = Followed::start("a_renamed_log_is_read_to_its_end", "1h");
    let old = followed.log.with_extension("1");
    fs::rename(&followed.log, &old).unwrap();
    thread::sleep(Duration::from_millis(450));
    // The server still has the file open, and writes a last line without a line end.
    append(&old, &(line("a") + line("a").trim_end()));
    append(&followed.log, &(line("b") + &line("b")));
    thread::sleep(Duration::from_millis(450));
    // Its workers have it open too, for a moment.
    append(&old, &("\n".to_owned() + line("c").trim_end()));
    followed.await_denied("a", true);
    followed.await_denied("b", true);
    let report = followed.finish();
    assert_eq!((&report["calls"], &report["skipped"]), (&Value::from(7), &Value::from(0)));
    assert_eq!(report["follow"]["rotations"], 1);
}

#[test]
fn a_truncated_log_is_read_from_its_start() {
    let followed = Followed::start("a_truncated_log_is_read_from_its_start", "1h");
    File::options().write(true).truncate(true).open(&followed.log).unwrap();
    append(&followed.log, &line("a"));
    thread::sleep(Duration::from_millis(450));
    append(&followed.log, &line("a"));
    followed.await_denied("a", true);
    let report = followed.finish();
    assert_eq!(
        (&report["calls"], &report["follow"]["rotations"]),
        (&Value::from(4), &Value::from(1))
    );
}

#[test]
fn the_gate_opens_again_without_a_line() {
    let followed = Followed::start("the_gate_opens_again_without_a_line", "2s");
    followed.await_denied("old", false);
    assert_eq!(fs::read_to_string(&followed.gate).unwrap(), "# rategate deny list 1\n");
    let report = followed.finish();
    assert_eq!(report["follow"]["lines"], 0);
}

/// Several logs form one for the limit; each has its own rotation and its own incomplete line.
#[test]
fn several_logs_are_followed_side_by_side() {
    let folder = folder("several_logs_are_followed_side_by_side");
    let [first, second, gate] = ["a.log", "b.log", "deny"].map(|name| folder.join(name));
    append(&first, "");
    append(&second, "");
    let arguments =
        ["analyze", "2/1h", "--format", "json", "--follow", "--ahead", "auto", "--gate"];
    let paths = [&gate, &first, &second].map(|path| path.to_str().unwrap());
    let session = Session::start(&[&arguments[..], &paths].concat());
    let followed = Followed { session, log: first.clone(), gate };
    thread::sleep(Duration::from_millis(700));
    let (start, rest) = (line("x"), line("x"));
    append(&first, &start[..9]);
    append(&second, &line("x"));
    thread::sleep(Duration::from_millis(450));
    append(&first, &start[9..]);
    fs::rename(&second, second.with_extension("1")).unwrap();
    append(&second, &rest);
    followed.await_denied("x", true);
    // The new file is read once the old one has been quiet for a while.
    thread::sleep(Duration::from_secs(2));
    let report = followed.finish();
    assert_eq!((&report["calls"], &report["skipped"]), (&Value::from(3), &Value::from(0)));
    assert_eq!(report["denied"], 1);
    assert_eq!(report["follow"]["rotations"], 1);
    let list = |name: &str| report["list"][name].as_u64().unwrap();
    assert_eq!(list("closings"), 1);
    assert!(list("overshoot") <= list("overshoot_at_most"));
}
