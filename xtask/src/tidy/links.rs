//! Checks that every link of a document leads to a file of the repository, and to a heading or an
//! anchor of that file. Links to other sites are not followed.

use std::collections::{BTreeMap, BTreeSet};

use super::Report;
use crate::source::{File, line_of};

/// Checks every document.
pub(super) fn check(files: &[File], report: &mut Report) {
    let documents = files.iter().filter(|file| file.path.ends_with(".md"));
    let anchors: BTreeMap<&str, BTreeSet<String>> =
        documents.clone().map(|file| (file.path.as_str(), anchors(&file.text))).collect();
    let is_there = |path: &str| {
        let folder = format!("{path}/");
        files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
    };
    let mut checked = 0;
    for file in documents {
        for (at, target) in links(&file.text) {
            checked += 1;
            let (path, anchor) = resolved(&file.path, target);
            let has_anchor =
                |anchor| anchors.get(path.as_str()).is_some_and(|a| a.contains(anchor));
            if !is_there(&path) || anchor.is_some_and(|anchor| !has_anchor(anchor)) {
                let line = line_of(&file.text, at);
                report.error(format!("{}:{line}: a link to nowhere: {target}", file.path));
            }
        }
    }
    Report::checked(&format!("{checked} links within the repository"));
}

/// Returns the links to files of the repository with their offsets, outside code: `[text](target)`
/// and `[label]: target`.
pub(crate) fn links(text: &str) -> Vec<(usize, &str)> {
    let prose = without_code(text);
    let inline = prose.match_indices("](").map(|(at, mark)| at + mark.len());
    let labelled = prose.match_indices("]: ").map(|(at, mark)| at + mark.len()).filter(|&at| {
        let line = &prose[..at][prose[..at].rfind('\n').map_or(0, |end| end + 1)..];
        line.starts_with('[') && line.matches('[').count() == 1
    });
    let targets = inline.chain(labelled).map(|at| {
        let end = prose[at..].find(|c: char| c == ')' || c.is_whitespace());
        (at, &text[at..end.map_or(text.len(), |end| at + end)])
    });
    let is_ours = |target: &str| !target.contains("://") && !target.starts_with("mailto:");
    targets.filter(|(_, target)| is_ours(target)).collect()
}

/// Returns the path from the root that a link of the file `from` leads to, and its anchor.
pub(crate) fn resolved<'t>(from: &str, target: &'t str) -> (String, Option<&'t str>) {
    let (path, anchor) =
        target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    if path.is_empty() {
        return (from.to_owned(), anchor);
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    (parts.join("/"), anchor)
}

/// Returns the anchors of a document: its headings, as GitHub and mdBook name them, and the ids
/// that it sets.
fn anchors(text: &str) -> BTreeSet<String> {
    let prose = without_fences(text);
    let mut anchors = BTreeSet::new();
    for line in prose.lines().filter(|line| line.starts_with('#')) {
        let slug = slug(line.trim_start_matches('#').trim());
        let again = (1..).map(|nth| format!("{slug}-{nth}"));
        let free = std::iter::once(slug.clone()).chain(again).find(|id| !anchors.contains(id));
        anchors.extend(free);
    }
    let ids = prose.split("id=\"").skip(1).filter_map(|rest| rest.split('"').next());
    anchors.extend(ids.map(str::to_owned));
    anchors
}

/// Returns the anchor of a heading.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Returns the text with all code blanked, byte for byte.
fn without_code(text: &str) -> String {
    let mut inside = false;
    let fences = without_fences(text);
    let blanked = fences.split_inclusive('`').map(|piece| {
        let code = inside;
        inside = !inside;
        if code { " ".repeat(piece.len()) } else { piece.to_owned() }
    });
    blanked.collect()
}

/// Returns the text with the lines of fenced blocks blanked, byte for byte.
fn without_fences(text: &str) -> String {
    let mut inside = false;
    let lines = text.split_inclusive('\n').map(|line| {
        let is_fence = line.trim_start().starts_with("```");
        inside ^= is_fence;
        let length = line.trim_end_matches('\n').len();
        if inside || is_fence { " ".repeat(length) + &line[length..] } else { line.to_owned() }
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::{Report, check, links, resolved, slug};
    use crate::source::File;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn dead_links_and_anchors_are_errors() {
        let text = "[a](b.md#two-words) [b](../README.md)\n[c](no.md) [d](b.md#no) [e](#here)\n\
                    ## Here\n<a id=\"x\"></a>[f](#x) [g](https://no.where/x.md)";
        let files = [
            file("docs/a.md", text),
            file("docs/b.md", "# Two words\n"),
            file("README.md", "[docs](docs) ```\n[no](no.md)\n"),
        ];
        let mut report = Report::default();
        check(&files, &mut report);
        let no =
            ["docs/a.md:2: a link to nowhere: no.md", "docs/a.md:2: a link to nowhere: b.md#no"];
        assert_eq!(report.errors, no);
    }

    #[test]
    fn links_in_code_are_none() {
        let text = "`[a](b)` [c](d)\n```text\n[e](f)\n```\n[label]: g.md\nsee [x]: not a label";
        let found: Vec<_> = links(text).into_iter().map(|(_, target)| target).collect();
        assert_eq!(found, ["d", "g.md"]);
    }

    #[test]
    fn paths_and_headings_are_read_as_github_does() {
        let (path, anchor) = resolved("docs/guides/a.md", "../../README.md#x");
        assert_eq!((path.as_str(), anchor), ("README.md", Some("x")));
        assert_eq!(slug("Who may import whom?"), "who-may-import-whom");
        assert_eq!(slug("In `rategate::distributed`"), "in-rategatedistributed");
    }
}
