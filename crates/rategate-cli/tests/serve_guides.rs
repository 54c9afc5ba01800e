//! The console examples of the README and the guides, run against the real service: the replies
//! must be those shown.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::envoy;
use crate::common::serving::{Serving, on_path, succeeds};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the commands of all console blocks, each with its expected output. An indented line
/// before any output continues its command.
fn commands(text: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for block in text.split("```console\n").skip(1) {
        for line in block.split("\n```").next().unwrap().lines() {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((command.to_owned(), String::new())),
                (None, Some((command, output))) if output.is_empty() && line.starts_with("  ") => {
                    command.push('\n');
                    command.push_str(line);
                }
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

/// Returns `true` if a reply has all members that are shown of it.
fn shows(shown: &Value, reply: &Value) -> bool {
    match (shown, reply) {
        (Value::Object(shown), Value::Object(reply)) => {
            shown.iter().all(|(name, value)| reply.get(name).is_some_and(|own| shows(value, own)))
        }
        (Value::Array(shown), Value::Array(reply)) => {
            shown.len() == reply.len() && shown.iter().zip(reply).all(|(one, own)| shows(one, own))
        }
        _ => shown == reply,
    }
}

/// Starts the service as a command of the README or a guide does; free ports replace its default
/// ones.
fn start(line: &str) -> Serving {
    let arguments = line.strip_prefix("cargo run --release --bin rategate -- serve ");
    let arguments = arguments.unwrap_or_else(|| panic!("it does not start with a start: {line}"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_rategate"));
    command.current_dir(root()).arg("serve").args(arguments.split(' '));
    command.args(["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]);
    Serving::of(command)
}

/// Runs the commands with an expected output, and compares. An object over several lines shows a
/// part of a reply. Returns their programs.
fn play(serving: &Serving, commands: &[(String, String)]) -> Vec<String> {
    let mut played = Vec::new();
    for (line, expected) in commands.iter().filter(|(_, expected)| !expected.is_empty()) {
        let program = line.split(' ').next().unwrap();
        if program == "grpcurl" {
            // grpcurl may be missing: another client makes the same call, and its reply is
            // compared in grpcurl's form.
            let expected: Value = serde_json::from_str(expected).unwrap();
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
        shell.current_dir(root()).arg("-c").arg(format!("{here} || true"));
        shell.env("RATEGATE_SERVER", format!("http://{}", serving.address("http")));
        let printed = succeeds(&mut shell);
        match serde_json::from_str(expected) {
            Ok(shown) if expected.trim_end().contains('\n') => {
                let reply = serde_json::from_str(&printed).unwrap();
                assert!(shows(&shown, &reply), "{line}:\n{reply}");
            }
            _ => assert_eq!(printed.trim_end(), expected.trim_end(), "{line}"),
        }
        played.push(program.to_owned());
    }
    played
}

#[test]
fn the_readme_shows_what_the_service_answers() {
    let readme = text("README.md");
    let (_, section) = readme.split_once("\n### The service\n").expect("a section `The service`");
    let commands = commands(section.split("\n### ").next().unwrap());
    let (first, rest) = commands.split_first().unwrap();
    assert_eq!(play(&start(&first.0), rest), ["redis-cli", "curl", "grpcurl"]);
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

#[test]
fn the_guide_for_ai_gateways_ends_with_a_denial_at_the_right_token() {
    let guide = text("docs/guides/ai-gateways.md");
    let configuration = text("docs/guides/ai-gateways/rategate.toml");
    assert!(guide.contains(&format!("```toml\n{configuration}```")));
    let commands = commands(&guide);
    let (first, rest) = commands.split_first().unwrap();
    let played = play(&start(&first.0), rest);
    assert_eq!(played, [vec!["curl"; 11], vec!["python3"]].concat());
}
