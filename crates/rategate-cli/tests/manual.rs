//! Help, completions and manual pages, generated from the arguments.

use std::fs;

use crate::common::{folder, run, stderr};

fn printed(arguments: &[&str]) -> String {
    let output = run(arguments, b"");
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn help_teaches_by_example() {
    let help = printed(&["--help"]);
    assert!(help.contains("seq 20 | rategate pace 5/s") && help.contains("simulate"), "{help}");
    let help = printed(&["pace", "--help"]);
    for expected in
        ["--at-most 5/1s -- echo {}", "--catch-up", "1.5MiB/s", "burst=1.5", "124", "130"]
    {
        assert!(help.contains(expected), "{expected} is missing in {help}");
    }
    let help = printed(&["analyze", "--help"]);
    for expected in
        ["--gate deny.list", "--set-aside", "10MB/min", "well-behaved", "time_iso8601", "143"]
    {
        assert!(help.contains(expected), "{expected} is missing in {help}");
    }
    for (command, expected) in [
        ("check", "rategate check jobs && ./job"),
        ("why", "--rule per-user"),
        ("reset", "the token is missing"),
        ("ping", "--timeout 1s"),
        ("top", "--once"),
    ] {
        let help = printed(&[command, "--help"]);
        assert!(help.contains(expected) && help.contains("RATEGATE_SERVER"), "{command}: {help}");
    }
    assert!(printed(&["--version"]).contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn every_shell_gets_its_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = printed(&["completions", shell]);
        assert!(script.contains("at-most") && script.contains("simulate"), "{shell}");
    }
}

#[test]
fn each_subcommand_has_a_page() {
    let main = printed(&["man"]);
    assert!(main.contains(".TH rategate 1") && !main.contains("help(1)"), "{main}");
    let folder = folder("each_subcommand_has_a_page");
    printed(&["man", "--dir", folder.to_str().unwrap()]);
    for name in [
        "rategate",
        "rategate-pace",
        "rategate-simulate",
        "rategate-analyze",
        "rategate-bench",
        "rategate-check",
        "rategate-why",
        "rategate-reset",
        "rategate-ping",
        "rategate-top",
    ] {
        let page = fs::read_to_string(folder.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".SH NAME"), "{name}");
    }
    let page = fs::read_to_string(folder.join("rategate-pace.1")).unwrap();
    for section in [".SH \"EXAMPLES\"\n.nf\n  seq 20 |", ".SH \"EXIT STATUS\"\n.nf\n  0 "] {
        assert!(page.contains(section), "{page}");
    }
}
