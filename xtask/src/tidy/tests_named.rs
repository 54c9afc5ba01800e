//! Checks that every file of tests is part of a program: one that no module names never runs.

use super::Report;
use crate::source::File;

/// Checks the files below each `crates/…/tests`.
pub(super) fn check(files: &[File], report: &mut Report) {
    let mut checked = 0;
    for file in files {
        let Some((tests, inner)) = of_tests(&file.path) else { continue };
        checked += 1;
        let stem = inner.trim_end_matches(".rs").trim_end_matches("/mod");
        let name = stem.rsplit('/').next().unwrap_or_default();
        let module = format!("mod {name};");
        let program = format!("path = \"tests/{inner}\"");
        let manifest = format!("{}Cargo.toml", tests.trim_end_matches("tests/"));
        let is_named = files.iter().any(|other| match other.path.strip_prefix(tests) {
            Some(path) => path.ends_with(".rs") && other.text.contains(&module),
            None => other.path == manifest && other.text.contains(&program),
        });
        if !is_named {
            report.error(format!("{}: no `{module}` makes it part of a test program", file.path));
        }
    }
    Report::checked(&format!("every file of tests is named: {checked} files"));
}

/// Splits the path of a Rust file of tests after `crates/…/tests/`.
fn of_tests(path: &str) -> Option<(&str, &str)> {
    let at = path.find("/tests/").filter(|_| path.starts_with("crates/"))? + "/tests/".len();
    let is_crates = path[..at].split('/').count() == 4;
    (is_crates && path.ends_with(".rs")).then(|| path.split_at(at))
}

#[cfg(test)]
mod tests {
    use super::{Report, check};
    use crate::source::File;

    #[test]
    fn a_file_that_no_module_names_is_an_error() {
        let files = [
            ("crates/a/Cargo.toml", "path = \"tests/main.rs\""),
            ("crates/a/tests/main.rs", "mod one;\nmod two;"),
            ("crates/a/tests/one.rs", ""),
            ("crates/a/tests/two/mod.rs", "mod three;"),
            ("crates/a/tests/two/three.rs", ""),
            ("crates/a/tests/four.rs", ""),
            ("crates/b/tests/main.rs", "mod four;"),
        ];
        let files = files.map(|(path, text)| File { path: path.into(), text: text.into() });
        let mut report = Report::default();
        check(&files, &mut report);
        let seen: Vec<_> = report.errors.iter().map(|error| error.split(':').next()).collect();
        assert_eq!(seen, [Some("crates/a/tests/four.rs"), Some("crates/b/tests/main.rs")]);
    }
}
