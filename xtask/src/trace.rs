//! Maps requirement lines to the tests that cover them, or to the reasons why no test does.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use regex::Regex;

use crate::tools::Workspace;

/// The requirement lines without a test, each with its reason, in two tables.
const REASONS: &str = "docs/trace.toml";

/// The number of lines in each series; they count from 1. The series are the requirement lines of
/// the five designs that rategate grew out of (`S`), and their errors and open questions (`X`).
const SERIES: [(char, u32, u32); 11] = [
    ('S', 0, 36),
    ('X', 0, 7),
    ('S', 1, 12),
    ('X', 1, 7),
    ('S', 2, 54),
    ('X', 2, 13),
    ('S', 3, 20),
    ('X', 3, 9),
    ('S', 4, 20),
    ('X', 4, 6),
    ('X', 5, 6),
];

/// `S0.9`, and `–S0.23` behind it.
const LINE: &str = r"\b([SX])(\d)\.(\d+)(?:(?:–|-|\.\.=?)([SX])(\d)\.(\d+))?\b";

/// A function with the comments and attributes before it. An attribute may have a list in it.
const FUNCTION: &str =
    r"((?:[ \t]*(?://[^\n]*|#\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\])\s)+)[\w \t]*\bfn (\w+)";

/// The name of a line in that of a function, such as `s0_29_low_latency`, with underscores doubled.
const IN_NAME: &str = r"(?:^|_)([sx])(\d)__(\d+)(?:_|$)";

/// A requirement line, such as `S0.29`. A parsed one need not exist.
type Line = (char, u32, u32);

fn name((kind, design, number): Line) -> String {
    format!("{kind}{design}.{number}")
}

fn all() -> impl Iterator<Item = Line> {
    SERIES.into_iter().flat_map(|(kind, design, last)| (1..=last).map(move |it| (kind, design, it)))
}

/// Prints one row for each requirement line. Fails on a line without test and reason, on a name
/// that is not a line, and on a reason that a test has made stale.
pub(crate) fn run(at: &Workspace) -> Result<()> {
    let found = Found::new()?.in_files(&[at.files(".rs")?, at.files(".toml")?].concat());
    let reasons = reasons(&at.read_file(REASONS)?)?;
    let mut errors = Vec::new();
    for line in all() {
        match (found.get(&line), reasons.get(&line)) {
            (Some(tests), None) => println!("{:<6} covered by {}", name(line), tests.join(", ")),
            (None, Some(reason)) => println!("{:<6} {reason}", name(line)),
            (None, None) => errors.push(format!("{} has neither test nor reason", name(line))),
            (Some(tests), Some(_)) => {
                errors.push(format!("{} has a reason, but is covered by {}", name(line), tests[0]));
            }
        }
    }
    let exists = |line: &Line| all().any(|known| known == *line);
    for (line, tests) in found.iter().filter(|(line, _)| !exists(line)) {
        errors.push(format!("{} names {}, which is no requirement line", tests[0], name(*line)));
    }
    let unknown = reasons.keys().filter(|line| !exists(line));
    errors.extend(unknown.map(|line| format!("{REASONS} has {}, which is no line", name(*line))));
    println!("trace: {} lines, {} without a test", all().count(), reasons.len());
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    Ok(())
}

/// Reads the reasons, with their kind before them.
fn reasons(text: &str) -> Result<BTreeMap<Line, String>> {
    let tables: BTreeMap<String, BTreeMap<String, String>> =
        toml::from_str(text).context(REASONS)?;
    let lines = Regex::new(LINE)?;
    let mut reasons = BTreeMap::new();
    for (kind, rows) in tables {
        for (key, reason) in rows {
            let named = named_in(&lines, &key);
            ensure!(!named.is_empty() && !reason.is_empty(), "{REASONS}: `{key}`");
            reasons.extend(named.into_iter().map(|line| (line, format!("{kind}: {reason}"))));
        }
    }
    Ok(reasons)
}

/// Returns every line that a text names, with ranges expanded. Two ends in different series are two
/// lines, not a range.
fn named_in(lines: &Regex, text: &str) -> Vec<Line> {
    let line = |found: &regex::Captures<'_>, at: usize| {
        let number = |at| found.get(at)?.as_str().parse().ok();
        Some((
            found.get(at)?.as_str().to_uppercase().chars().next()?,
            number(at + 1)?,
            number(at + 2)?,
        ))
    };
    let mut named = Vec::new();
    for found in lines.captures_iter(text) {
        let Some(first) = line(&found, 1) else { continue };
        let last = if found.len() > 4 { line(&found, 4) } else { None };
        match last {
            Some(last) if (last.0, last.1) == (first.0, first.1) && last.2 >= first.2 => {
                named.extend((first.2..=last.2).map(|number| (first.0, first.1, number)));
            }
            last => named.extend(std::iter::once(first).chain(last)),
        }
    }
    named
}

/// Finds the tests of the repository, and the requirement lines they name.
struct Found {
    lines: Regex,
    function: Regex,
    in_name: Regex,
    covered: BTreeMap<Line, Vec<String>>,
}

impl Found {
    fn new() -> Result<Self> {
        Ok(Self {
            lines: Regex::new(LINE)?,
            function: Regex::new(FUNCTION)?,
            in_name: Regex::new(IN_NAME)?,
            covered: BTreeMap::new(),
        })
    }

    fn in_files(mut self, files: &[(String, String)]) -> BTreeMap<Line, Vec<String>> {
        for (path, text) in files {
            let folder = path.strip_prefix("crates/").and_then(|path| path.split('/').nth(1));
            if path.starts_with("testdata/scenarios/") {
                // A test runs every scenario of the folder, so naming a line there covers it.
                self.add(path, &starting_with("#", text));
            } else if matches!(folder, Some("tests" | "src" | "examples")) {
                self.tests(path, text);
            }
        }
        self.covered
    }

    /// Adds the tests of a file. An ignored one proves nothing. The comment at the top of a file
    /// counts for the file as a whole, if any test in it runs.
    fn tests(&mut self, path: &str, text: &str) {
        let is_test = |above: &str| above.contains("#[test]") || above.contains("::test");
        let mut any = false;
        for found in self.function.clone().captures_iter(text) {
            let (above, function) = (&found[1], &found[2]);
            if is_test(above) && !above.contains("#[ignore") {
                any = true;
                let name = format!("{path}::{function}");
                self.add(&name, &starting_with("///", above));
                let in_name = named_in(&self.in_name, &function.replace('_', "__"));
                self.cover(&name, in_name.into_iter().filter(|line| all().any(|it| it == *line)));
            }
        }
        if any {
            self.add(path, &starting_with("//!", text));
        }
    }

    fn add(&mut self, test: &str, comments: &str) {
        self.cover(test, named_in(&self.lines, comments).into_iter());
    }

    fn cover(&mut self, test: &str, lines: impl Iterator<Item = Line>) {
        for line in lines {
            let known = self.covered.entry(line).or_default();
            if !known.iter().any(|known| known == test) {
                known.push(test.to_owned());
            }
        }
    }
}

/// Returns the lines of a text that start so.
fn starting_with(mark: &str, text: &str) -> String {
    text.lines().filter(|line| line.trim_start().starts_with(mark)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::{Found, LINE, Regex, all, name, named_in, reasons};

    #[test]
    fn a_text_names_lines_and_ranges() {
        let lines = Regex::new(LINE).unwrap();
        let names =
            |text| named_in(&lines, text).into_iter().map(name).collect::<Vec<_>>().join(" ");
        assert_eq!(names("S0.29: the tape, (X3.1)."), "S0.29 X3.1");
        assert_eq!(
            names("S0.9–S0.11 S1.1-S1.2, X0.6..X0.7, S2.1..=S2.2"),
            "S0.9 S0.10 S0.11 S1.1 S1.2 X0.6 X0.7 S2.1 S2.2"
        );
        assert_eq!(names("S0.9-S1.2, S0.9-S0.7"), "S0.9 S1.2 S0.9 S0.7");
        assert_eq!(names("AS0.9, MAX3.1, S3, S0.x, 2.5"), "");
        assert_eq!(all().count(), 190);
    }

    #[test]
    fn tests_and_scenarios_cover_what_they_name() {
        let source = "//! All of it: X5.6.\n\n\
            proptest! {\n    /// S0.29–S0.30\n    #[test]\n    \
            #[expect(\n        clippy::x,\n    )]\n    /// and X0.1\n    fn tape(a in 0..9) {}\n}\n\n\
            /// S4.1\nfn helper() {}\n\n/// S4.2\n#[test]\n#[ignore = \"slow\"]\nfn ignored() {}\n\n\
            #[tokio::test(flavor = \"x\")]\nasync fn s1_2_s9_and_x3_1() {}\n";
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let found = Found::new().unwrap().in_files(&[
            file("crates/a/src/x.rs", source),
            file("crates/a/benches/x.rs", "#[test]\nfn s3_3() {}"),
            file("testdata/scenarios/x.toml", "# S0.30, S9.9\ntitle = \"S3.1\""),
        ]);
        let names: Vec<_> = found.keys().map(|line| name(*line)).collect();
        assert_eq!(names, ["S0.29", "S0.30", "S1.2", "S9.9", "X0.1", "X3.1", "X5.6"]);
        assert_eq!(found[&('S', 0, 30)], ["crates/a/src/x.rs::tape", "testdata/scenarios/x.toml"]);
    }

    #[test]
    fn reasons_are_of_lines_or_ranges() {
        let read = reasons("[text]\n\"S1.2\" = \"a\"\n[later]\n\"S3.15-S3.17\" = \"b\"").unwrap();
        let shown: Vec<_> =
            read.iter().map(|(line, why)| format!("{} {why}", name(*line))).collect();
        assert_eq!(shown, ["S1.2 text: a", "S3.15 later: b", "S3.16 later: b", "S3.17 later: b"]);
        assert!(reasons("[text]\n\"no line\" = \"a\"").is_err());
        assert!(reasons("[text]\n\"S0.9\" = \"\"").is_err());
    }
}
