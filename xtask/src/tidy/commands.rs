//! Checks that every `cargo xtask` command that a workflow or a document names exists, with its
//! flags.

use super::Report;
use crate::Command;
use crate::source::{File, line_of};

const MARK: &str = "cargo xtask ";

/// Checks the workflows and the documents. A changelog may name former commands.
pub(super) fn check(files: &[File], report: &mut Report) {
    let mut checked = 0;
    for file in files.iter().filter(|file| names_commands(&file.path)) {
        for (line, words) in named_in(&file.text) {
            checked += 1;
            if Command::find(&words).is_none() {
                let words = words.join(" ");
                report.error(format!("{}:{line}: no such command: {MARK}{words}", file.path));
            }
        }
    }
    Report::checked(&format!("{checked} commands that workflows and documents name"));
}

fn names_commands(path: &str) -> bool {
    let is_workflow = path.starts_with(".github/") && path.ends_with(".yml");
    is_workflow || (path.ends_with(".md") && path != "CHANGELOG.md")
}

/// Returns each command with its line. In backticks it ends with them, elsewhere with its line or
/// with the first character that no command contains.
fn named_in(text: &str) -> Vec<(usize, Vec<&str>)> {
    // A mark may be cut by the end of a line; every byte keeps its offset.
    let flat = text.replace('\n', " ");
    let named = flat.match_indices(MARK).map(|(at, _)| {
        let rest = &text[at + MARK.len()..];
        let end = if text[..at].ends_with('`') {
            rest.find('`')
        } else {
            rest.find(|c: char| c != ' ' && c != '-' && !c.is_ascii_alphanumeric())
        };
        (line_of(text, at), rest[..end.unwrap_or(rest.len())].split_whitespace().collect())
    });
    // Text without words is about commands in general: "`cargo xtask …`".
    named.filter(|(_, words): &(_, Vec<_>)| !matches!(words.as_slice(), [] | ["…"])).collect()
}

#[cfg(test)]
mod tests {
    use super::{Report, check, named_in};
    use crate::source::File;

    #[test]
    fn an_unknown_command_or_flag_is_an_error() {
        let errors = |path: &str, text: &str| {
            let mut report = Report::default();
            check(&[File { path: path.to_owned(), text: text.to_owned() }], &mut report);
            report.errors
        };
        let workflow = "run: cargo xtask tidy\nrun: cargo xtask no-such\n";
        let found = errors(".github/workflows/check.yml", workflow);
        assert_eq!(found, [".github/workflows/check.yml:2: no such command: cargo xtask no-such"]);
        assert_eq!(
            errors("README.md", "`cargo xtask\nloom --half` and `cargo xtask loom`").len(),
            1
        );
        assert!(errors("docs/a.md", "    cargo xtask stress --minutes 60\n").is_empty());
        assert!(errors("CHANGELOG.md", workflow).is_empty());
    }

    #[test]
    fn a_command_ends_with_its_backticks_or_its_line() {
        let text =
            "`cargo xtask …`, <!-- cargo xtask bench: begin -->\n`cargo xtask bench wait` is";
        assert_eq!(named_in(text), [(1, vec!["bench"]), (2, vec!["bench", "wait"])]);
    }
}
