//! The book: the chapters of `docs/` as pages, by mdBook.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::source::{File, repository};
use crate::tidy;
use crate::tidy::chapters::CONTENTS;
use crate::tidy::links::{links, resolved};

/// Builds the book into `target/book`, once every link is known to lead somewhere.
pub(crate) fn run(root: &Path, target: &Path) -> Result<()> {
    let files = repository(root)?;
    tidy::documents(&files)?;
    let (source, output) = (target.join("book-source"), target.join("book"));
    stage(&files, &source)?;
    let mdbook = mdbook(root, target)?;
    let mut build = Command::new(mdbook);
    build.arg("build").arg(&source).arg("--dest-dir").arg(&output);
    ensure!(build.status().context("start mdbook")?.success(), "mdbook failed");
    println!("the book: {}", output.join("index.html").display());
    Ok(())
}

/// Copies `docs/` to `source`. Links that leave the book lead to the repository there.
fn stage(files: &[File], source: &Path) -> Result<()> {
    if source.exists() {
        fs::remove_dir_all(source).context("remove the last copy of docs/")?;
    }
    let pages = pages(files)?;
    let settings = files.iter().find(|file| file.path == "docs/book.toml");
    let settings = settings.context("docs/book.toml is missing")?.text.parse::<toml::Table>();
    let settings = settings.context("docs/book.toml")?;
    let url = settings["output"]["html"]["git-repository-url"].as_str();
    let url = url.context("docs/book.toml has no git-repository-url")?;
    let is_shown = |path: &str| path == CONTENTS || pages.contains(path);
    for file in files.iter().filter(|file| is_shown(&file.path)) {
        let copy = source.join(&file.path["docs/".len()..]);
        fs::create_dir_all(copy.parent().context("a file without a folder")?)?;
        fs::write(copy, with_links(file, &pages, url))?;
    }
    Ok(())
}

/// Returns what the book shows: the chapters of its contents, and files that are no documents.
fn pages(files: &[File]) -> Result<BTreeSet<String>> {
    let contents = files.iter().find(|file| file.path == CONTENTS);
    let contents = contents.with_context(|| format!("{CONTENTS} is missing"))?;
    let chapters = links(&contents.text).into_iter().map(|(_, target)| format!("docs/{target}"));
    let others = files.iter().map(|file| file.path.clone());
    Ok(chapters
        .chain(others.filter(|path| path.starts_with("docs/") && !path.ends_with(".md")))
        .collect())
}

/// Returns the text of a document with links that work on its page: those that leave the book are
/// absolute.
fn with_links(file: &File, pages: &BTreeSet<String>, url: &str) -> String {
    let mut text = file.text.clone();
    if !file.path.ends_with(".md") {
        return text;
    }
    // From the end, so that the offsets before stay right.
    let mut links = links(&file.text);
    links.sort_unstable();
    for (at, target) in links.into_iter().rev() {
        let (path, anchor) = resolved(&file.path, target);
        let anchor = anchor.map(|anchor| format!("#{anchor}")).unwrap_or_default();
        let there = if !pages.contains(&path) && path != file.path {
            format!("{url}/blob/main/{path}{anchor}")
        } else if file.path != CONTENTS {
            // mdBook gives such a chapter another name, and leaves the links to it alone.
            target.replace("README.md", "index.html")
        } else {
            continue;
        };
        text.replace_range(at..at + target.len(), &there);
    }
    text
}

/// Returns the program that builds the book. Installs it below `target` if it is missing.
fn mdbook(root: &Path, target: &Path) -> Result<std::path::PathBuf> {
    let tools = target.join("tools");
    let program = tools.join("bin").join(format!("mdbook{}", std::env::consts::EXE_SUFFIX));
    if !program.is_file() {
        println!("mdbook, which builds the book, is missing: installing it");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut install = Command::new(cargo);
        install.current_dir(root).stdin(Stdio::null());
        // Without its server.
        install.args(["install", "mdbook@0.5.4", "--locked", "--no-default-features"]);
        install.args(["--features", "search", "--root"]);
        let status = install.arg(tools).status().context("start cargo install")?;
        ensure!(status.success(), "cargo could not install mdbook");
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::{CONTENTS, File, pages, with_links};

    #[test]
    fn links_that_leave_the_book_lead_to_the_repository() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let text = "[b](../b.md#x) [c](../c.md) ![p](../p.svg) [r](../../README.md#y) [s](#z) [d](../README.md)";
        let files = [
            file(CONTENTS, "[d](README.md)\n[a](guides/a.md)\n[b](b.md)"),
            file("docs/guides/a.md", text),
            file("docs/p.svg", ""),
        ];
        let pages = pages(&files).unwrap();
        assert_eq!(
            with_links(&files[1], &pages, "https://h"),
            "[b](../b.md#x) [c](https://h/blob/main/docs/c.md) ![p](../p.svg) \
             [r](https://h/blob/main/README.md#y) [s](#z) [d](../index.html)"
        );
    }
}
