//! Checks that the book has every guide, and that the Rust of its chapters is tested.

use super::Report;
use crate::source::File;

/// The table of contents of the book.
pub(crate) const CONTENTS: &str = "docs/SUMMARY.md";

/// The documents of `docs/` for those who work on the repository.
const NO_CHAPTERS: [&str; 2] = ["docs/decisions/", "docs/requirements.md"];

pub(super) fn check(files: &[File], report: &mut Report) {
    let contents = files.iter().find(|file| file.path == CONTENTS);
    let contents = contents.map_or("", |file| file.text.as_str());
    let mut checked = 0;
    for file in files.iter().filter(|file| is_chapter(&file.path)) {
        checked += 1;
        let path = &file.path["docs/".len()..];
        if !contents.contains(&format!("]({path})")) {
            report.error(format!("{}: not a chapter in {CONTENTS}", file.path));
        }
        let included = format!("/docs/{path}\"");
        let is_tested = || {
            let mut sources = files.iter().filter(|file| file.path.ends_with(".rs"));
            sources.any(|source| source.text.contains(&included))
        };
        if file.text.contains("```rust") && !is_tested() {
            report.error(format!("{}: no crate tests its Rust by include_str!", file.path));
        }
    }
    Report::checked(&format!("the book: {checked} chapters"));
}

fn is_chapter(path: &str) -> bool {
    path.starts_with("docs/")
        && path.ends_with(".md")
        && path != CONTENTS
        && !NO_CHAPTERS.iter().any(|other| path.starts_with(other))
}

#[cfg(test)]
mod tests {
    use super::{CONTENTS, Report, check};
    use crate::source::File;

    #[test]
    fn a_chapter_is_listed_and_its_rust_is_tested() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file(CONTENTS, "[a](a.md)\n[b](guides/b.md)\n"),
            file("crates/x/src/lib.rs", "include_str!(\"../docs/a.md\")"),
            file("docs/a.md", "```rust\n```"),
            file("docs/guides/b.md", "```rust\n```"),
            file("docs/c.md", "text"),
            file("docs/decisions/0001-x.md", "```rust\n```"),
        ];
        let mut report = Report::default();
        check(&files, &mut report);
        let found = [
            "docs/guides/b.md: no crate tests its Rust by include_str!",
            "docs/c.md: not a chapter in docs/SUMMARY.md",
        ];
        assert_eq!(report.errors, found);
    }
}
