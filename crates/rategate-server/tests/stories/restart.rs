//! Stories of processes that begin with the counters of others.
//!
//! `save` writes the file of a process that goes on, and `end` that of one that ends in order.
//! `begin` is another process, which reads the file that is there. Behind the arrow are the number
//! of operations that it remembers, and all that could not be restored.
//! `at-most:3s` and `exactly:0s` say how much of the time away counts. `edit` replaces the first of
//! these words in the rules of those that begin later.

use std::sync::Arc;
use std::time::Duration;

use rategate::snapshot::Downtime;
use rategate_server::config::load_text;
use rategate_server::engine::{Keeper, KeeperSettings};

use super::{Story, cut, nanoseconds};
use crate::engine::common::SMALL;
use crate::state::laws::KINDS;

#[test]
fn a_process_begins_with_the_counters_of_another() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stories/restarts.txt");
    for text in std::fs::read_to_string(path).unwrap().trim_end().split("\n\n") {
        let (title, text) = text.split_once('\n').unwrap();
        let kinds = ["bucket", "window", "log", "month"];
        let count = if text.contains("KIND") { kinds.len() } else { 1 };
        for kind in &kinds[..count] {
            println!("{title} ({kind})");
            let mut story = Story::with_entries(Vec::new());
            story.settings = SMALL;
            story.text = KINDS.to_owned();
            story.edit("", "");
            story.play(&format!("pass 600s\n{}", text.replace("KIND", kind)));
        }
    }
}

impl Story {
    /// Replaces words in the text of the rules.
    pub(super) fn edit(&mut self, from: &str, to: &str) {
        // Words of a story are in one line.
        let lines = |text: &str| text.replace(" algorithm", "\nalgorithm");
        assert!(self.text.contains(&lines(from)), "{}", self.text);
        self.text = self.text.replacen(&lines(from), &lines(to), 1);
        let loaded = load_text("rules.toml", &self.text);
        let loaded = loaded.unwrap_or_else(|error| panic!("{}", error.report()));
        self.rules.clone_from(&loaded.rules.rules);
    }

    /// Writes or reads the file of counters.
    pub(super) fn file(&mut self, server: usize, verb: &str, rest: &str, expected: Option<&str>) {
        let path = self.home.path().join("state");
        let time = |text| Duration::from_nanos(nanoseconds(text).try_into().unwrap());
        let downtime = match cut(rest, ":") {
            ("at-most", Some(text)) => Downtime::AtMost(time(text)),
            ("exactly", Some(text)) => Downtime::Exactly(time(text)),
            _ => Downtime::Wall,
        };
        let keeper = Keeper::new(KeeperSettings { path: path.clone(), downtime });
        match verb {
            "save" => drop(keeper.save(self.server(server)).unwrap()),
            "end" => {
                let never = Duration::from_secs(3_600);
                Arc::new(keeper).run(self.server(server), never, |_| {}).unwrap().stop();
            }
            _ => {
                self.servers[server] = self.begun();
                let engine = &self.servers[server];
                let restored = engine.restore(&path, downtime).unwrap().unwrap();
                let lost = restored.others.iter().map(|(name, why)| {
                    let why = format!("{why:?}");
                    let number: String = why.chars().filter(char::is_ascii_digit).collect();
                    format!(" {name}:{}{number}", cut(&why, " ").0)
                });
                let mut lost: Vec<_> = lost.collect();
                lost.sort();
                let seen = format!("{}{}", restored.settled, lost.concat());
                assert_eq!(seen, expected.unwrap_or(&seen));
            }
        }
    }
}
