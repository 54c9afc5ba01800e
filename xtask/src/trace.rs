//! Maps requirement lines to the tests that cover them, or to the reasons why no test does.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use regex::Regex;

use crate::tools::Workspace;

/// The page with the requirement lines, each in a row that begins with its name.
const LINES: &str = "docs/requirements.md";
const ROW: &str = r"(?m)^\| <a [^>]*></a>([SX]\d\.\d+) \|";

/// The requirement lines without a test, each with its reason, in two tables.
const REASONS: &str = "docs/trace.toml";

/// A requirement line, such as `S0.29`. One that a text names need not exist.
const LINE: &str = r"\b[SX]\d\.\d+\b";

/// A function with the comments and attributes before it. An attribute may have a list in it.
const FUNCTION: &str =
    r"((?:[ \t]*(?://[^\n]*|#\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\])\s)+)[\w \t]*\bfn (\w+)";

/// Prints one row for each requirement line. Fails on a line without test and reason, on a name
/// that is not a line, and on a reason that a test has made stale.
pub(crate) fn run(at: &Workspace) -> Result<()> {
    let covered = covered(&[at.files(".rs")?, at.files(".toml")?].concat())?;
    let tables: BTreeMap<String, BTreeMap<String, String>> =
        toml::from_str(&at.read_file(REASONS)?).context(REASONS)?;
    let reasons: BTreeMap<String, String> = tables.into_values().flatten().collect();
    let (page, row) = (at.read_file(LINES)?, Regex::new(ROW)?);
    let lines: Vec<String> = row.captures_iter(&page).map(|row| row[1].to_owned()).collect();
    let mut errors = Vec::new();
    for line in &lines {
        match (covered.get(line), reasons.get(line)) {
            (Some(tests), None) => println!("{line:<6} covered by {}", tests.join(", ")),
            (None, Some(reason)) => println!("{line:<6} not covered: {reason}"),
            (None, None) => errors.push(format!("{line} has neither test nor reason")),
            (Some(tests), Some(_)) => {
                errors.push(format!("{line} has a reason, but is covered by {}", tests[0]));
            }
        }
    }
    let named = covered.iter().map(|(line, tests)| (line, tests[0].as_str()));
    let named = named.chain(reasons.keys().map(|line| (line, REASONS)));
    for (line, place) in named.filter(|(line, _)| !lines.contains(line)) {
        errors.push(format!("{place} names {line}, which is no requirement line"));
    }
    println!("trace: {} lines, {} without a test", lines.len(), reasons.len());
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    Ok(())
}

/// Returns the tests that name each line in their comments. A test runs every scenario file, so
/// naming a line there covers it. An ignored test proves nothing. The comment at the top of a file
/// counts for the file as a whole, if any test in it runs.
fn covered(files: &[(String, String)]) -> Result<BTreeMap<String, Vec<String>>> {
    let (line, function) = (Regex::new(LINE)?, Regex::new(FUNCTION)?);
    let mut covered: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut add = |test: &str, mark: &str, text: &str| {
        let comments = text.lines().filter(|line| line.trim_start().starts_with(mark));
        for named in comments.flat_map(|comment| line.find_iter(comment)) {
            let tests = covered.entry(named.as_str().to_owned()).or_default();
            if tests.last().is_none_or(|last| last != test) {
                tests.push(test.to_owned());
            }
        }
    };
    for (path, text) in files {
        let folder = path.strip_prefix("crates/").and_then(|path| path.split('/').nth(1));
        if path.starts_with("testdata/scenarios/") {
            add(path, "#", text);
        } else if matches!(folder, Some("tests" | "src" | "examples")) {
            let is_test = |above: &str| above.contains("#[test]") || above.contains("::test");
            let functions = function.captures_iter(text).map(|found| found.extract().1);
            let tests: Vec<[&str; 2]> = functions
                .filter(|[above, _]| is_test(above) && !above.contains("#[ignore"))
                .collect();
            for [above, name] in &tests {
                add(&format!("{path}::{name}"), "///", above);
            }
            if !tests.is_empty() {
                add(path, "//!", text);
            }
        }
    }
    Ok(covered)
}

#[cfg(test)]
mod tests {
    use super::covered;

    #[test]
    fn tests_and_scenarios_cover_what_they_name() {
        let source = "//! All of it: X5.6.\n\n\
            proptest! {\n    /// S0.29, S0.30\n    #[test]\n    \
            #[expect(\n        clippy::x,\n    )]\n    /// and X0.1; not AS0.9, MAX3.1, S3, S0.x\n    \
            fn tape(a in 0..9) {}\n}\n\n\
            /// S4.1\nfn helper() {}\n\n/// S4.2\n#[test]\n#[ignore = \"slow\"]\nfn ignored() {}\n\n\
            /// X3.1\n#[tokio::test(flavor = \"x\")]\nasync fn waits() {}\n";
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let found = covered(&[
            file("crates/a/src/x.rs", source),
            file("crates/a/benches/x.rs", "/// S3.3\n#[test]\nfn f() {}"),
            file("testdata/scenarios/x.toml", "# S0.30, S9.9\ntitle = \"S3.1\""),
        ])
        .unwrap();
        let names: Vec<_> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["S0.29", "S0.30", "S9.9", "X0.1", "X3.1", "X5.6"]);
        assert_eq!(found["S0.30"], ["crates/a/src/x.rs::tape", "testdata/scenarios/x.toml"]);
    }
}
