//! Runs programs of others, which load a library of ours, under valgrind.
//!
//! An interpreter has errors of its own, and values that only look uninitialised. Those count that
//! have the library in their stack: accesses outside of memory, frees of what is none, and memory
//! that nothing points to at the end. Tests of time may fail, as all takes thirty times as long;
//! they have passed without valgrind.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use roxmltree::{Document, Node, ParsingOptions};
use xshell::Cmd;

use crate::tools::Workspace;

/// The seconds after which a run is ended: a test that hangs would never end.
const BOUND_S: &str = "3600";

/// Runs a program under valgrind. The library is the name of its file, and `load` the function by
/// which the program loads it: what that keeps, it keeps for good.
pub(crate) fn run<'a>(
    at: &'a Workspace,
    program: &Path,
    library: &str,
    load: &str,
    with: impl FnOnce(Cmd<'a>) -> Cmd<'a>,
) -> Result<()> {
    at.debian("valgrind", "valgrind")?;
    let report = at.target.join("valgrind.xml");
    let valgrind = at.cmd("timeout").args([BOUND_S, "valgrind", "--quiet", "--fair-sched=yes"]);
    let valgrind = valgrind
        .args(["--smc-check=all-non-file", "--undef-value-errors=no", "--leak-check=full"])
        .args(["--show-leak-kinds=definite", "--num-callers=40", "--xml=yes"])
        .arg(format!("--xml-file={}", report.display()))
        .arg(program);
    // A test that fails is no fault here, but a program that dies is.
    let status = with(valgrind).ignore_status().output()?.status;
    ensure!(matches!(status.code(), Some(0 | 1)), "the tests die under valgrind: {status}");
    let found = errors(&at.read_file(report)?, library, load)?;
    ensure!(found.is_empty(), "errors with {library} in their stack:\n{}", found.join("\n"));
    Ok(())
}

/// Returns the errors of a report whose stacks have the library, without what loading it keeps.
fn errors(report: &str, library: &str, load: &str) -> Result<Vec<String>> {
    // Valgrind's reports begin with a declaration of their type.
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    // Of a program that was killed the report has no end.
    let report = Document::parse_with_options(report, options).context("valgrind's report")?;
    let errors = report.root_element().children().filter(|node| node.has_tag_name("error"));
    let of_library = errors.filter(|error| {
        let has = |tag, part: &str| texts(*error, tag).any(|text| text.contains(part));
        has("obj", library) && !(has("kind", "Leak_") && has("fn", load))
    });
    let shown = |error| {
        let what = texts(error, "what").chain(texts(error, "text")).next().unwrap_or("an error");
        let stack = texts(error, "fn").take(24).map(|function| format!("\n    {function}"));
        format!("{what}{}", stack.collect::<String>())
    };
    Ok(of_library.map(shown).collect())
}

/// Returns the texts of all elements of that name in an error.
fn texts<'r>(error: Node<'r, 'r>, tag: &'static str) -> impl Iterator<Item = &'r str> {
    error.descendants().filter(move |node| node.has_tag_name(tag)).filter_map(|node| node.text())
}

#[cfg(test)]
mod tests {
    use super::errors;

    const REPORT: &str = "<?xml version=\"1.0\"?>\n<valgrindoutput>\
        <error><kind>InvalidRead</kind><what>Invalid read of size 8</what>\
        <stack><frame><obj>/lib/ours.node</obj><fn>try_acquire</fn></frame></stack></error>\
        <error><kind>InvalidRead</kind><what>Invalid read of size 4</what>\
        <stack><frame><obj>/bin/node</obj><fn>run</fn></frame></stack></error>\
        <error><kind>Leak_DefinitelyLost</kind><xwhat><text>8 bytes are lost</text></xwhat>\
        <stack><frame><obj>/lib/ours.node</obj><fn>register</fn></frame></stack></error>\
        </valgrindoutput>";

    #[test]
    fn errors_of_others_and_what_loading_keeps_do_not_count() {
        let found = errors(REPORT, "ours.node", "register").unwrap();
        assert_eq!(found, ["Invalid read of size 8\n    try_acquire"]);
        let found = errors(REPORT, "ours.node", "no such").unwrap();
        assert_eq!(found.last().unwrap(), "8 bytes are lost\n    register");
        assert!(errors("no report", "ours.node", "register").is_err());
    }
}
