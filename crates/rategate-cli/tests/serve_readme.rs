//! The service as the README shows it: its very lines are run against the real service, and answer what it says.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::serving::{Serving, on_path, succeeds};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The console blocks of the section: commands, each with what it prints.
fn lines() -> Vec<(String, String)> {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let (_, section) = readme.split_once("\n### The service\n").expect("a section `The service`");
    let section = section.split("\n### ").next().unwrap();
    let mut commands: Vec<(String, String)> = Vec::new();
    for block in section.split("```console\n").skip(1) {
        for line in block.split("\n```").next().unwrap().lines() {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((command.to_owned(), String::new())),
                (None, Some((_, output))) => *output += &format!("{line}\n"),
                (None, None) => panic!("output before any command: {line}"),
            }
        }
    }
    commands
}

/// The section's lines, the first of which starts the service. Its ports become free ones.
#[test]
fn the_readme_is_played() {
    let mut lines = lines().into_iter();
    let (start, _) = lines.next().unwrap();
    let arguments = start
        .strip_prefix("cargo run --release --bin rategate -- serve ")
        .unwrap_or_else(|| panic!("the first line starts the service, and this does not: {start}"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_rategate"));
    command.current_dir(root()).arg("serve").args(arguments.split(' '));
    command.args(["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]);
    let serving = Serving::of(command);
    let own = env!("CARGO_BIN_EXE_rategate");
    let mut played = Vec::new();
    for (line, expected) in lines {
        let program = line.split(' ').next().unwrap().to_owned();
        let here = line
            // As it prints to a terminal.
            .replace(
                "redis-cli -p 6380",
                &format!("redis-cli --no-raw -p {}", serving.port("resp")),
            )
            .replace("127.0.0.1:8080", serving.place("http"))
            .replace("127.0.0.1:8081", serving.place("grpc"));
        // What asks by itself is told where by the environment.
        let here = match here.strip_prefix("rategate ") {
            Some(rest) => format!("{own} {rest}"),
            None => here,
        };
        if program != "rategate" && on_path(&program).is_none() {
            continue;
        }
        // Some of them say no by their exit status.
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("{here} || true"));
        shell.env("RATEGATE_SERVER", format!("http://{}", serving.place("http")));
        let printed = succeeds(&mut shell);
        assert_eq!(printed.trim_end(), expected.trim_end(), "{line}");
        played.push(program);
    }
    for program in ["redis-cli", "curl", "rategate"] {
        assert!(played.iter().any(|known| known == program), "{program} is not in {played:?}");
    }
}
