//! What the simulator draws and writes: the pictures of the guides, the tables of two pages, and
//! tapes for players in other languages.
//!
//! `![…](pictures/NAME.svg)` in a file of docs/ is the scenario `testdata/scenarios/NAME.toml`, or
//! one of `testdata/servers` if its name begins with `server-`.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use regex::Regex;
use xshell::{Cmd, cmd};

use crate::tools::Workspace;

const FOLDER: &str = "docs/pictures";

/// The pages whose tables examples print.
const PAGES: [(&str, &str); 2] =
    [("docs/distributed.md", "fleet"), ("docs/adaptive.md", "controllers")];

/// Draws every picture that a guide shows, and writes the tables.
pub(crate) fn draw(at: &Workspace) -> Result<()> {
    current(at)?.into_iter().try_for_each(|(path, text)| Ok(at.write_file(path, text)?))
}

/// Fails unless every picture that a guide shows and every table is what the simulator makes
/// today, and the folder has no other pictures.
pub(crate) fn check(at: &Workspace) -> Result<()> {
    let made = current(at)?;
    for (path, text) in &made {
        let stored = at.read_file(path).unwrap_or_default();
        ensure!(stored == *text, "{path} is out of date; run cargo xtask pictures");
    }
    for (path, _) in at.files(".svg")?.iter().filter(|(path, _)| path.starts_with(FOLDER)) {
        ensure!(made.iter().any(|(known, _)| known == path), "{path} is shown by no guide");
    }
    println!("{} pictures and pages are what the simulator makes", made.len());
    Ok(())
}

/// Returns every picture and every page with tables, as they should be.
fn current(at: &Workspace) -> Result<Vec<(String, String)>> {
    let shown = Regex::new(r"\(pictures/([^)]+)\.svg\)")?;
    let mut names = BTreeSet::new();
    for (_, text) in at.files(".md")?.iter().filter(|(path, _)| path.starts_with("docs/")) {
        names.extend(shown.captures_iter(text).map(|found| found[1].to_owned()));
    }
    let built = at.built()?;
    let (rategate, examples) = (built.join("rategate"), built.join("examples"));
    let mut made = Vec::new();
    for name in names {
        let file = match name.strip_prefix("server-") {
            Some(server) => format!("testdata/servers/{server}.toml"),
            None => format!("testdata/scenarios/{name}.toml"),
        };
        let drawing = output(cmd!(at, "{rategate} simulate --format svg {file}"))?;
        made.push((format!("{FOLDER}/{name}.svg"), drawing));
    }
    for (path, example) in PAGES {
        let example = examples.join(example);
        let tables = output(cmd!(at, "{example} tables"))?;
        made.push((path.to_owned(), with_block(&at.read_file(path)?, "pictures", &tables)?));
    }
    Ok(made)
}

fn output(command: Cmd<'_>) -> Result<String> {
    Ok(String::from_utf8(command.quiet().output()?.stdout)?)
}

/// Returns a page with another block between the two marks of a task.
pub(crate) fn with_block(page: &str, task: &str, block: &str) -> Result<String> {
    let mark = |end: &str| format!("<!-- written by cargo xtask {task}: {end} -->\n");
    let (begin, end) = (mark("begin"), mark("end"));
    let parts =
        page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?)));
    let (before, (_, after)) = parts.with_context(|| format!("the page has no {begin}"))?;
    Ok(format!("{before}{begin}\n{block}\n{end}{after}"))
}

/// Writes the tapes of scenarios anew for a language, so that none stays of a scenario that is
/// gone. docs/conformance.md has their format.
pub(crate) fn tapes(at: &Workspace, language: &str) -> Result<()> {
    let folder = at.emptied(&tapes_of(language))?;
    let tapes = at.built()?.join("examples/tapes");
    Ok(cmd!(at, "{tapes} testdata/scenarios {folder}").quiet().run()?)
}

/// Returns the folder of the tapes for a language, below the target folder.
pub(crate) fn tapes_of(language: &str) -> String {
    format!("{language}/tapes")
}

#[cfg(test)]
mod tests {
    use super::with_block;

    #[test]
    fn only_the_block_is_replaced() {
        let page = |one, two| {
            let block = |task, text| {
                format!(
                    "<!-- written by cargo xtask {task}: begin -->\n\n{text}\n\
                         <!-- written by cargo xtask {task}: end -->\n"
                )
            };
            format!("# Title\n{}more\n{}", block("one", one), block("one more", two))
        };
        assert_eq!(with_block(&page("a", "b"), "one", "c").unwrap(), page("c", "b"));
        assert!(with_block("# Title\n", "one", "c").is_err());
    }
}
