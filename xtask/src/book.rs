//! The book: the chapters of `docs/` as pages, by mdBook.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};
use regex::{Captures, Regex};
use xshell::cmd;

use crate::tools::Workspace;

/// A link to a place of the repository: its target, and what follows.
const LINK: &str = r"\]\(([^)#:\s]+)(#[^)\s]*)?\)";

/// An anchor that a document sets. The checker knows headings alone, and names what it misses.
const ANCHOR: &str = r#"<a id="([^"]+)""#;
const MISSED: &str = "`#([^`]+)`";

/// Builds the book into `target/book`, once every link is known to lead somewhere.
pub(crate) fn run(at: &Workspace) -> Result<()> {
    links(at)?;
    let source = at.emptied("book-source")?;
    stage(at, &source)?;
    // Without its server.
    let flags = ["--no-default-features", "--features", "search"];
    let mdbook = at.crates("mdbook", "0.5.4", &flags)?;
    let output = at.target.join("book");
    Ok(cmd!(at, "{mdbook} build {source} --dest-dir {output}").run()?)
}

/// Fails if a link of a document leads to no file of the repository, or to no heading of it.
pub(crate) fn links(at: &Workspace) -> Result<()> {
    let folder = at.target.join("remark");
    // It needs no origin of a repository.
    at.npm(&folder, "remark")?;
    let modules = folder.join("node_modules");
    let (remark, plugin) = (modules.join(".bin/remark"), modules.join("remark-validate-links"));
    let plugin = format!("{}/index.js=repository:false", plugin.display());
    let (documents, texts): (Vec<_>, Vec<_>) = at.files(".md")?.into_iter().unzip();
    let check = cmd!(at, "{remark} --no-stdout --no-color --quiet --use {plugin} {documents...}");
    let found = check.quiet().read_stderr()?;
    let (anchor, missed, texts) = (Regex::new(ANCHOR)?, Regex::new(MISSED)?, texts.concat());
    let anchors: Vec<&str> =
        anchor.captures_iter(&texts).map(|it| it.extract::<1>().1[0]).collect();
    let is_anchor = |line| missed.captures(line).is_some_and(|it| anchors.contains(&&it[1]));
    let wrong = found.lines().filter(|line| line.contains("remark-validate-links"));
    let wrong: Vec<&str> = wrong.filter(|line| !is_anchor(line)).collect();
    ensure!(wrong.is_empty(), "links that lead nowhere:\n{found}");
    Ok(())
}

/// Copies the chapters and what they show to `source`. Links that leave the book lead to the
/// repository there.
fn stage(at: &Workspace, source: &Path) -> Result<()> {
    let settings: toml::Table = at.read_file("docs/book.toml")?.parse()?;
    let url = settings["output"]["html"]["git-repository-url"].as_str();
    let url = url.context("docs/book.toml has no git-repository-url")?;
    let contents = at.read_file("docs/SUMMARY.md")?;
    let link = Regex::new(LINK)?;
    let mut pages = vec![PathBuf::from("docs/SUMMARY.md"), PathBuf::from("docs/book.toml")];
    pages.extend(link.captures_iter(&contents).map(|it| Path::new("docs").join(&it[1])));
    pages.extend(
        at.read_dir("docs/pictures")?
            .into_iter()
            .filter_map(|path| path.strip_prefix(&at.root).map(Path::to_owned).ok()),
    );
    for page in &pages {
        let text = at.read_file(page)?;
        let shown = |found: &Captures<'_>| {
            let target = resolved(&page.with_file_name(&found[1]));
            let anchor = found.get(2).map_or("", |anchor| anchor.as_str());
            if pages.contains(&target) {
                // mdBook gives such a chapter another name, and leaves the links to it alone.
                let target = found[1].replace("README.md", "index.html");
                format!("]({target}{anchor})")
            } else {
                format!("]({url}/blob/main/{}{anchor})", target.display())
            }
        };
        let is_chapter = page.extension().is_some_and(|end| end == "md");
        let is_contents = page.ends_with("SUMMARY.md");
        let text = if is_chapter && !is_contents {
            link.replace_all(&text, shown)
        } else {
            text.as_str().into()
        };
        at.write_file(source.join(page.strip_prefix("docs")?), text.as_bytes())?;
    }
    Ok(())
}

/// Returns the path without `..`.
fn resolved(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut whole, part| {
        if part == Component::ParentDir {
            whole.pop();
        } else {
            whole.push(part);
        }
        whole
    })
}
