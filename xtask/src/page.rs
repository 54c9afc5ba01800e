//! Pages with blocks that commands write, each between two marks of its own, and their tables.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// A page around the block that a command writes.
pub(crate) struct Page {
    before: String,
    after: String,
    name: &'static str,
}

impl Page {
    /// Reads the page around the block that the command of this name writes.
    pub(crate) fn read(root: &Path, path: &str, name: &'static str) -> Result<Self> {
        let text = fs::read_to_string(root.join(path)).with_context(|| path.to_owned())?;
        let around = around_block(&text, name);
        let (before, after) = around
            .with_context(|| format!("{path} lacks the marks of the block that {name} writes"))?;
        Ok(Self { before: before.to_owned(), after: after.to_owned(), name })
    }

    /// Returns the page with this block.
    pub(crate) fn with(&self, block: &str) -> String {
        let Self { before, after, name } = self;
        let [begin, end] = marks(name);
        format!("{before}{begin}\n{block}\n{end}{after}")
    }
}

fn marks(name: &str) -> [String; 2] {
    ["begin", "end"].map(|mark| format!("<!-- written by {name}: {mark} -->\n"))
}

/// Returns the page before the marks, and after them.
fn around_block<'a>(page: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let [begin, end] = marks(name);
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some((before, after))
}

/// Formats a table that is legible as Markdown and as text.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
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
        assert!(around_block(&begin, "one").is_none());
    }
}
