//! The page of the tables, each between two marks of its own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The path of the page from the root.
const PAGE: &str = "docs/performance.md";

/// The page around one of its blocks.
pub(super) struct Page {
    path: PathBuf,
    before: String,
    after: String,
    name: &'static str,
}

impl Page {
    /// Reads the page around the block that the command of this name writes.
    pub(super) fn read(root: &Path, name: &'static str) -> Result<Self> {
        let path = root.join(PAGE);
        let text = fs::read_to_string(&path).with_context(|| PAGE.to_owned())?;
        let (before, after) = around_block(&text, name)?;
        Ok(Self { before: before.to_owned(), after: after.to_owned(), path, name })
    }

    /// Prints the block and writes it to the page, and writes its source to a file.
    pub(super) fn write(&self, block: &str, file: &Path, json: &str) -> Result<()> {
        print!("{block}");
        fs::write(file, json).with_context(|| file.display().to_string())?;
        let Self { path, before, after, name } = self;
        let [begin, end] = marks(name);
        fs::write(path, format!("{before}{begin}\n{block}\n{end}{after}"))?;
        println!("\nwritten to {} and {PAGE}", file.display());
        Ok(())
    }
}

fn marks(name: &str) -> [String; 2] {
    ["begin", "end"].map(|mark| format!("<!-- written by {name}: {mark} -->\n"))
}

/// Returns the page before the marks, and after them.
fn around_block<'a>(page: &'a str, name: &str) -> Result<(&'a str, &'a str)> {
    let [begin, end] = marks(name);
    let around = page.split_once(&begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(&end)?;
        Some((before, after))
    });
    around.with_context(|| format!("{PAGE} lacks the marks of the table that {name} writes"))
}

/// Formats a table that is legible as Markdown and as text.
pub(super) fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let header = header.map(str::to_owned);
    let widths: [usize; N] = std::array::from_fn(|column| {
        let cells = rows.iter().chain([&header]).map(|row| row[column].chars().count());
        cells.max().unwrap_or_default()
    });
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!(" {cell:<width$} |"));
        format!("|{}\n", cells.collect::<String>())
    };
    let rule = widths.map(|width| "-".repeat(width + 2)).join("|");
    format!("{}|{rule}|\n{}", line(&header), rows.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::{around_block, marks};

    #[test]
    fn only_the_block_is_replaced() {
        let [[begin, end], [others, other_end]] = [marks("one"), marks("one more")];
        let page = format!("# Title\n\n{begin}old\n{end}\nmore\n{others}its own\n{other_end}");
        let after = format!("\nmore\n{others}its own\n{other_end}");
        assert_eq!(around_block(&page, "one").unwrap(), ("# Title\n\n", after.as_str()));
        assert!(around_block(&begin, "one").is_err());
    }
}
