//! What no file of the repository may hold: paths of one machine, and numbers of a tracker that readers lack.

use super::Report;
use crate::source::{File, line_of};

/// Looks through every file git tracks or would track.
pub(super) fn check(files: &[File], report: &mut Report) {
    for file in files {
        for at in found_in(&file.text) {
            let line = line_of(&file.text, at);
            report.error(format!("{}:{line}: a machine's path or an issue's number", file.path));
        }
    }
    Report::checked(&format!("machine paths and issue numbers: {} files", files.len()));
}

fn found_in(text: &str) -> Vec<usize> {
    // Built from pieces, so that this file does not trip over itself.
    let paths = [["/wo", "rk/"].concat(), ["/tmp/", "bash"].concat()];
    let issue = ["iss", "ue #"].concat();
    // ASCII lower case keeps every place where it was.
    let lower = text.to_ascii_lowercase();
    let numbered = lower.match_indices(&issue).filter(|(at, _)| {
        lower[at + issue.len()..].starts_with(|next: char| next.is_ascii_digit())
    });
    let mut found: Vec<usize> = numbered.map(|(at, _)| at).collect();
    for path in &paths {
        found.extend(text.match_indices(path).map(|(at, _)| at));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::found_in;

    #[test]
    fn finds_paths_and_numbers_and_nothing_else() {
        assert_eq!(found_in(&["see /wo", "rk/x"].concat()), [4]);
        assert_eq!(found_in(&["Iss", "ue #12"].concat()), [0]);
        assert!(found_in("an issue # without a number, the work/play balance, /tmp/x").is_empty());
    }
}
