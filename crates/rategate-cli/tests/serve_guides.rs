//! The console examples of the README and the guides, run against the real service: the replies
//! must be those shown.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::envoy;
use crate::common::serving::{Serving, on_path, succeeds};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the commands of all console blocks, each with its expected output.
fn commands(text: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for block in text.split("```console\n").skip(1) {
        for line in block.split("\n```").next().unwrap().lines() {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((command.to_owned(), String::new())),
                (None, Some((_, output))) => {
                    output.push_str(line);
                    output.push('\n');
                }
                (None, None) => panic!("output before any command: {line}"),
            }
        }
    }
    commands
}

/// Runs the commands with an expected output, and compares. Returns their programs.
fn play(serving: &Serving, commands: &[(String, String)]) -> Vec<String> {
    let mut played = Vec::new();
    for (line, expected) in commands.iter().filter(|(_, expected)| !expected.is_empty()) {
        let program = line.split(' ').next().unwrap();
        if program == "grpcurl" {
            // grpcurl may be missing: another client makes the same call, and its reply is
            // compared in grpcurl's form.
            let expected: serde_json::Value = serde_json::from_str(expected).unwrap();
            assert_eq!(envoy::call(line, serving.address("grpc")), expected, "{line}");
            played.push(program.to_owned());
            continue;
        }
        if program != "rategate" && on_path(program).is_none() {
            continue;
        }
        // The output is that of a terminal.
        let mut here = line.replace("redis-cli -p 6380", "redis-cli --no-raw -p RESP");
        if here.contains("127.0.0.1:8080") {
            here = here.replace("127.0.0.1:8080", serving.address("http"));
        }
        let here = here.replace("RESP", serving.port("resp"));
        let here = match here.strip_prefix("rategate ") {
            Some(rest) => format!("{} {rest}", env!("CARGO_BIN_EXE_rategate")),
            None => here,
        };
        let mut shell = Command::new("sh");
        // Some of them report a denial by their exit status.
        shell.arg("-c").arg(format!("{here} || true"));
        shell.env("RATEGATE_SERVER", format!("http://{}", serving.address("http")));
        let printed = succeeds(&mut shell);
        assert_eq!(printed.trim_end(), expected.trim_end(), "{line}");
        played.push(program.to_owned());
    }
    played
}

/// The first line starts the service; free ports replace its default ones.
#[test]
fn the_readme_shows_what_the_service_answers() {
    let readme = text("README.md");
    let (_, section) = readme.split_once("\n### The service\n").expect("a section `The service`");
    let commands = commands(section.split("\n### ").next().unwrap());
    let (start, rest) = commands.split_first().unwrap();
    let arguments = start.0.strip_prefix("cargo run --release --bin rategate -- serve ");
    let arguments =
        arguments.unwrap_or_else(|| panic!("it does not start with a start: {start:?}"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_rategate"));
    command.current_dir(root()).arg("serve").args(arguments.split(' '));
    command.args(["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]);
    assert_eq!(play(&Serving::of(command), rest), ["redis-cli", "curl", "grpcurl"]);
}

#[test]
fn the_guides_for_those_who_move_show_what_the_service_answers() {
    if on_path("redis-cli").is_none() {
        return;
    }
    let serving = Serving::start(&[]);
    for guide in ["moving-from-redis-cell.md", "moving-from-throttlecrab.md"] {
        let commands = commands(&text(&format!("docs/guides/{guide}")));
        assert_eq!(play(&serving, &commands), ["redis-cli"], "{guide}");
    }
}
