//! Rejects what no file of the repository may contain: paths of one machine, numbers of a tracker
//! that readers lack, and marks of an unfinished merge.

use super::Report;
use crate::source::{File, line_of};

/// Checks every file that git tracks or would track.
pub(super) fn check(files: &[File], report: &mut Report) {
    for file in files {
        for at in found_in(&file.text) {
            let line = line_of(&file.text, at);
            report.error(format!("{}:{line}: a machine's path or an issue's number", file.path));
        }
        for line in unmerged_in(&file.text) {
            report.error(format!("{}:{line}: the mark of an unfinished merge", file.path));
        }
    }
    let what = "machine paths, issue numbers and unfinished merges";
    Report::checked(&format!("{what}: {} files", files.len()));
}

/// Returns the lines that begin like one of git's two marks around a conflict.
fn unmerged_in(text: &str) -> impl Iterator<Item = usize> {
    let marks = ["<", ">"].map(|mark| mark.repeat(7) + " ");
    let lines = text.lines().zip(1..);
    lines.filter(move |(line, _)| marks.iter().any(|mark| line.starts_with(mark))).map(|(_, at)| at)
}

fn found_in(text: &str) -> Vec<usize> {
    // Built from pieces, so that this file does not contain them.
    let paths = [["/wo", "rk/"].concat(), ["/tmp/", "bash"].concat()];
    let issue = ["iss", "ue #"].concat();
    // ASCII lower case keeps every byte offset.
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
    use super::{found_in, unmerged_in};

    #[test]
    fn finds_paths_and_numbers_and_nothing_else() {
        assert_eq!(found_in(&["see /wo", "rk/x"].concat()), [4]);
        assert_eq!(found_in(&["Iss", "ue #12"].concat()), [0]);
        assert!(found_in("an issue # without a number, the work/play balance, /tmp/x").is_empty());
    }

    #[test]
    fn finds_both_marks_of_a_conflict() {
        let text =
            ["a\n", &"<".repeat(7), " HEAD\nb\n=======\nc\n", &">".repeat(7), " x\n"].concat();
        assert_eq!(unmerged_in(&text).collect::<Vec<_>>(), [2, 6]);
        assert_eq!(unmerged_in("a <<<<<<< b\n=======\n").count(), 0);
    }
}
