//! The service as a replacement of envoyproxy/ratelimit, with that project's environment, files
//! and health check.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::serving::Serving;

/// Returns the command `rategate serve` in an environment of that project, with its rules in
/// `config` below a root.
fn moved(root: &Path, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rategate"));
    command.args(["serve", "--resp", "off"]).env_clear();
    command.env("RUNTIME_ROOT", root).envs(variables.iter().copied());
    command
}

fn root_of(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("config");
    fs::create_dir(&folder).unwrap();
    for (name, text) in files {
        fs::write(folder.join(name), text).unwrap();
    }
    root
}

fn call(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn ask(address: &str, key: &str) -> String {
    let body = format!(
        r#"{{"domain":"d","descriptors":[{{"entries":[{{"key":"{key}","value":"x"}}]}}]}}"#
    );
    let length = body.len();
    call(
        address,
        &format!(
            "POST /json HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-length: {length}\r\n\r\n{body}"
        ),
    )
}

const ONE: &str =
    "domain: d\ndescriptors:\n  - key: a\n    rate_limit: { unit: day, requests_per_unit: 7 }\n";

#[test]
fn an_environment_of_ratelimit_is_honoured() {
    let root = root_of(&[("one.yaml", ONE)]);
    let variables =
        [("PORT", "0"), ("GRPC_PORT", "0"), ("LOG_LEVEL", "ERROR"), ("REDIS_URL", "redis:6379")];
    let serving = Serving::of(moved(root.path(), &variables));
    let address = serving.address("http");
    let health =
        call(address, "GET /healthcheck HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert!(health.starts_with("HTTP/1.1 200") && health.ends_with("\r\n\r\nOK"), "{health}");
    let answer = ask(address, "a");
    assert!(answer.contains(r#""limitRemaining":6"#), "{answer}");
}

#[test]
fn what_it_cannot_do_is_refused_and_what_does_nothing_is_named() {
    let root = root_of(&[("one.yaml", ONE)]);
    for (name, text, complaint) in [
        ("CONFIG_TYPE", "XDS", "CONFIG_TYPE=XDS: "),
        ("HOST", "0.0.0.0", "HOST: 0.0.0.0:0 can be reached by other machines"),
    ] {
        let mut command = moved(root.path(), &[("PORT", "0"), ("GRPC_PORT", "0"), (name, text)]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let complaints = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(complaints.contains(complaint), "{complaints}");
    }

    let mut check = Command::new(env!("CARGO_BIN_EXE_rategate"));
    let folder = root.path().join("config");
    check.args(["config", "check", folder.to_str().unwrap()]).env_clear();
    let output = check
        .env("RUNTIME_ROOT", root.path())
        .envs([("SHADOW_MODE", "true"), ("REDIS_URL", "r:1")])
        .output()
        .unwrap();
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{complaints}");
    for complaint in
        ["SHADOW_MODE: has no effect here", "REDIS_URL: no rule has its counters in a store"]
    {
        assert!(complaints.contains(complaint), "{complaints}");
    }
}

/// No folder is read, and without a control plane the service is ready only if it is forced.
#[test]
fn an_environment_of_a_control_plane_is_honoured() {
    let root = root_of(&[("one.yaml", "no rules")]);
    for (forced, status) in [("true", "HTTP/1.1 200"), ("false", "HTTP/1.1 500")] {
        let variables = [
            ("PORT", "0"),
            ("GRPC_PORT", "0"),
            ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
            ("CONFIG_GRPC_XDS_SERVER_URL", "127.0.0.1:1"),
            ("FORCE_START_WITHOUT_INITIAL_CONFIG", forced),
        ];
        let serving = Serving::of(moved(root.path(), &variables));
        let request = "GET /healthcheck HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        let health = call(serving.address("http"), request);
        assert!(health.starts_with(status), "{forced}: {health}");
    }
}
