//! Reports the files and functions that have grown long. It is not a rule, and fails nothing.

use crate::source::{File, code_only, find_word, line_of};

const FILE_LINES: usize = 350;
const FUNCTION_LINES: usize = 70;
const ROWS: usize = 15;

/// Prints the longest files and functions over the project's measure.
pub(super) fn print(files: &[File]) {
    let mut long: Vec<(usize, String)> = Vec::new();
    for file in files.iter().filter(|file| is_source(&file.path)) {
        let lines = file.text.lines().count();
        if lines > FILE_LINES {
            long.push((lines, file.path.clone()));
        }
        for (name, line, lines) in functions(&code_only(&file.text)) {
            if lines > FUNCTION_LINES {
                long.push((lines, format!("{}:{line} fn {name}", file.path)));
            }
        }
    }
    long.sort_by(|a, b| b.cmp(a));
    println!(
        "tidy: {} files over {FILE_LINES} lines or functions over {FUNCTION_LINES}",
        long.len()
    );
    for (lines, what) in long.iter().take(ROWS) {
        println!("    {lines:>5} lines  {what}");
    }
}

fn is_source(path: &str) -> bool {
    let in_crate =
        path.strip_prefix("crates/").and_then(|path| path.split('/').nth(1)) == Some("src");
    let others = ["xtask/src/", "bench/src/"];
    path.ends_with(".rs") && (in_crate || others.iter().any(|folder| path.starts_with(folder)))
}

/// Returns name, first line and length of each function that has a body.
fn functions(code: &str) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for at in find_word(code, "fn ") {
        let signature = &code[at..];
        let name = signature[3..].split(|c: char| !c.is_alphanumeric() && c != '_').next();
        let Some(open) = body(signature) else { continue };
        let mut depth = 0_u32;
        let end = signature[open..].char_indices().find(|&(_, character)| {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        let end = end.map_or(signature.len(), |(end, _)| open + end);
        let lines = line_of(signature, end);
        found.push((name.unwrap_or_default().to_owned(), line_of(code, at), lines));
    }
    found
}

/// Returns where a function's body opens, or `None` if the signature ends without one. `[u8; 4]`
/// is not an end.
fn body(signature: &str) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, character) in signature.char_indices() {
        match character {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            '{' if depth == 0 => return Some(at),
            ';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::functions;

    #[test]
    fn counts_from_the_first_line_to_the_closing_brace() {
        let code = "trait T { fn a(); }\nfn b() -> [u8; 4] {\n    if x {\n    }\n}\nfn c() {}\n";
        assert_eq!(functions(code), [("b".to_owned(), 2, 4), ("c".to_owned(), 6, 1)]);
    }
}
