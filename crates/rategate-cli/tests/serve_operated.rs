//! The operator's view of the service: the log after a refused configuration, and `rategate why`
//! without keys.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::serving::Serving;
use crate::common::{run, stderr};

/// A running service, killed with the test.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the service, and returns a function that waits for a line of its log.
fn logging(path: &Path) -> (Service, impl Fn(&str)) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rategate"));
    command.args(["serve", "--resp", "off", "--grpc", "off", "--http", "127.0.0.1:0", "--config"]);
    command.arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut service = Service(command.spawn().unwrap());
    let log = service.0.stderr.take().unwrap();
    let (tell, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    let until = move |expected: &str| loop {
        let line = lines.recv_timeout(Duration::from_secs(60)).expect(expected);
        if line.contains(expected) {
            return;
        }
    };
    (service, until)
}

/// An unreachable store does not prevent the start, but is reported.
#[test]
fn a_store_out_of_reach_is_reported_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.toml");
    let text = "[store]\nurl = \"redis://127.0.0.1:1\"\n[[rule]]\n\
                name = \"a\"\nmatch = [\"user\"]\nlimit = \"5/s\"\nstore = \"exact\"\n";
    fs::write(&path, text).unwrap();
    let (_service, until) = logging(&path);
    until("the store is unavailable");
}

#[test]
fn recovery_after_a_refused_configuration_is_logged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.toml");
    let write = |limit: &str| {
        let text = format!("[[rule]]\nname = \"a\"\nlimit = \"{limit}\"\n");
        let new = folder.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, &path).unwrap();
    };
    write("5/s");
    let (_service, until) = logging(&path);
    // Watching starts at some instant: a change before it is found at the next one.
    thread::sleep(Duration::from_millis(500));
    write("5/fortnight");
    until("invalid configuration: the previous one stays in force");
    write("5/s");
    until("the configuration is valid again: the files say what is in force");
    write("x");
    until("invalid configuration: the previous one stays in force");
    write("6/s");
    until("the configuration is valid again: a new one is in force");
}

#[test]
fn why_works_for_rules_without_values() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.toml");
    let text = "[[rule]]\nname = \"all\"\nlimit = \"1/h\"\n\
                [[rule]]\nname = \"each\"\nmatch = [\"user\"]\nlimit = \"1/h\"\n";
    fs::write(&path, text).unwrap();
    let serving = Serving::start(&["--config", path.to_str().unwrap()]);
    let server = format!("http://{}", serving.address("http"));
    let ask = |words: &[&str]| {
        let output = run(&[words, &["--server", &server]].concat(), b"");
        (output.status.code(), String::from_utf8(output.stdout.clone()).unwrap(), stderr(&output))
    };
    let (code, text, _) = ask(&["why"]);
    assert_eq!((code, text.as_str()), (Some(0), "all: free, 1 of 1 left\n"));
    assert_eq!(ask(&["check", "all"]).0, Some(0));
    for words in [&["why"][..], &["why", "--rule", "all"]] {
        let (code, text, _) = ask(words);
        assert!(code == Some(1) && text.starts_with("all: denied; retry after"), "{text}");
    }
    let (code, _, complaint) = ask(&["why", "--rule", "each"]);
    assert!(code == Some(2) && complaint.contains("needs 1 value, and 0 are given"), "{complaint}");
    let (code, _, complaint) = ask(&["why", "--rule", "all", "x"]);
    assert!(code == Some(2) && complaint.contains("needs no value, and 1 is given"), "{complaint}");
}
