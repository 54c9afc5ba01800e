//! The programs in the guides of the packages for other languages, which their tests run.

use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Writes each program of a guide into a folder, as a file with the ending of its language.
/// Returns the names of the files.
pub(crate) fn programs(root: &Path, language: &str, folder: &Path) -> Result<Vec<String>> {
    let name = if language == "js" { "node" } else { language };
    let page = root.join("docs").join("guides").join(format!("{name}.md"));
    let text = std::fs::read_to_string(&page).with_context(|| page.display().to_string())?;
    let programs = fenced(&text, language);
    ensure!(!programs.is_empty(), "{} has no program", page.display());
    let mut names = Vec::new();
    for (program, at) in programs.iter().zip(1..) {
        let name = format!("guide-{at}.{language}");
        std::fs::write(folder.join(&name), program).with_context(|| format!("write {name}"))?;
        names.push(name);
    }
    Ok(names)
}

/// Returns the blocks of code of a language.
fn fenced<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let start = format!("\n```{language}\n");
    let blocks = text.split(start.as_str()).skip(1);
    blocks.filter_map(|block| block.split_once("```\n").map(|(block, _)| block)).collect()
}

#[cfg(test)]
mod tests {
    use super::fenced;

    #[test]
    fn only_blocks_of_the_language_are_programs() {
        let text = "a\n```js\none\ntwo\n```\n```json\nno\n```\n`x`\n```js\nthree\n```\n";
        assert_eq!(fenced(text, "js"), ["one\ntwo\n", "three\n"]);
    }
}
