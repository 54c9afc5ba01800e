//! Finds the tests of the repository, and the requirement lines they name.

use std::collections::BTreeMap;

use super::lines::{Line, named_in, named_in_function};
use crate::source::File;

/// The requirement lines that the tests cover.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The tests of each line, in the order of the files.
    pub(super) covered: BTreeMap<Line, Vec<String>>,
    /// Errors about names of lines that do not exist.
    pub(super) unknown: Vec<String>,
}

impl Found {
    /// Reads every file that may hold tests.
    pub(super) fn in_files(files: &[File]) -> Self {
        let mut found = Self::default();
        for file in files {
            if file.path.starts_with("testdata/scenarios/") && file.path.ends_with(".toml") {
                // A test runs every scenario of the folder, so naming a line there covers it.
                for line in file.text.lines().filter(|line| line.trim_start().starts_with('#')) {
                    found.add(&file.path, named_in(line));
                }
            } else if holds_tests(&file.path) {
                found.add_tests(file);
            }
        }
        found
    }

    fn add_tests(&mut self, file: &File) {
        let tests = tests_in(&file.text);
        for test in &tests {
            let name = format!("{}::{}", file.path, test.name);
            self.add(&name, named_in(&test.docs));
            self.add(&name, named_in_function(&test.name));
        }
        // The comment at the top of a file counts for the file as a whole, if any test in it runs.
        if !tests.is_empty() {
            let top = file.text.lines().filter(|line| line.starts_with("//!"));
            for line in top {
                self.add(&file.path, named_in(line));
            }
        }
    }

    fn add(&mut self, test: &str, lines: Vec<Line>) {
        for line in lines {
            if !line.exists() {
                self.unknown.push(format!("{test} names {line}, which is not a requirement line"));
                continue;
            }
            let tests = self.covered.entry(line).or_default();
            if !tests.iter().any(|known| known == test) {
                tests.push(test.to_owned());
            }
        }
    }
}

fn holds_tests(path: &str) -> bool {
    let mut components = path.split('/');
    let in_crate = components.next() == Some("crates") && components.next().is_some();
    let folder = components.next().unwrap_or_default();
    in_crate && path.ends_with(".rs") && ["tests", "src", "examples"].contains(&folder)
}

/// A test function with its doc comments.
#[derive(Debug, Default)]
struct Test {
    name: String,
    docs: String,
}

/// Returns the test functions of a file. An ignored one proves nothing and is left out.
fn tests_in(source: &str) -> Vec<Test> {
    let mut tests = Vec::new();
    let mut docs = String::new();
    let (mut is_test, mut is_ignored) = (false, false);
    // The number of open brackets of an attribute of several lines.
    let mut open = 0_i32;
    for line in source.lines() {
        let mut line = line.trim();
        if let Some(doc) = line.strip_prefix("///") {
            docs.push_str(doc);
            docs.push('\n');
            continue;
        }
        if open > 0 || line.starts_with("#[") {
            open += brackets(line);
            is_test |= line.starts_with("#[test]") || line.contains("::test]");
            is_ignored |= line.starts_with("#[ignore");
            match line.strip_prefix("#[test] ") {
                Some(rest) => line = rest,
                None => continue,
            }
        }
        if line.starts_with("//") {
            continue;
        }
        if let Some(name) = function_name(line).filter(|_| is_test && !is_ignored) {
            tests.push(Test { name: name.to_owned(), docs: std::mem::take(&mut docs) });
        }
        docs.clear();
        (is_test, is_ignored) = (false, false);
    }
    tests
}

fn brackets(line: &str) -> i32 {
    let step = |character| match character {
        '[' => 1,
        ']' => -1,
        _ => 0,
    };
    line.chars().map(step).sum()
}

/// Returns `x` of `fn x(`, also after `pub` or `async`.
fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let (name, _) = after.split_once(['(', '<'])?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    (is_name && (before.is_empty() || before.ends_with(' '))).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::{Found, tests_in};
    use crate::source::File;

    const SOURCE: &str = "//! All of it: X5.6.\n\n\
        proptest! {\n    /// S0.29–S0.30\n    #[test]\n    \
        #[expect(\n        clippy::x,\n    )]\n    /// and X0.1\n    fn tape(a in 0..9) {}\n}\n\n\
        /// S4.1\nfn helper() {}\n\n/// S4.2\n#[test]\n#[ignore = \"slow\"]\nfn ignored() {}\n\n\
        #[test]\nfn s1_2_s9() {}\n";

    #[test]
    fn finds_tests_with_their_docs() {
        let tests = tests_in(SOURCE);
        let names: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["tape", "s1_2_s9"]);
        assert_eq!(tests[0].docs, " S0.29–S0.30\n and X0.1\n");
    }

    #[test]
    fn tests_and_scenarios_cover_what_they_name() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let found = Found::in_files(&[
            file("crates/a/src/x.rs", SOURCE),
            file("crates/a/benches/x.rs", "#[test]\nfn s3_3() {}"),
            file("testdata/scenarios/x.toml", "# S0.30, S9.9\ntitle = \"S3.1\""),
        ]);
        let covered: Vec<String> = found.covered.keys().map(ToString::to_string).collect();
        assert_eq!(covered, ["S0.29", "S0.30", "S1.2", "X0.1", "X5.6"]);
        let (_, twice) = found.covered.iter().nth(1).unwrap();
        assert_eq!(*twice, ["crates/a/src/x.rs::tape", "testdata/scenarios/x.toml"]);
        assert_eq!(found.unknown.len(), 1);
    }
}
