//! Helpers that run the real binary.

#![allow(unreachable_pub, reason = "helpers of a binary")]

pub mod envoy;
pub mod service;
pub mod serving;

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The maximum time for anything here, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a command for `rategate` with these arguments, all streams piped.
pub fn rategate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rategate"));
    command.args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs `rategate` to its end with `input`.
pub fn run(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = rategate(arguments).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    thread::scope(|scope| {
        // The process may refuse its arguments, and read nothing.
        scope.spawn(move || stdin.write_all(input).is_ok());
        child.wait_with_output().unwrap()
    })
}

/// Returns the numbers from 1 to `last`, one per line.
pub fn seq(last: u32) -> Vec<u8> {
    (1..=last).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

/// Returns noise from a seed, newlines included.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| random.u8(..)).collect()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Creates an empty folder for one test.
pub fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

/// A line of `--log-json`.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub scheduled_ns: u64,
    pub start_ns: u64,
    pub wait_ns: u64,
    pub permits: u64,
}

pub fn records(path: &Path) -> Vec<Record> {
    let text = fs::read_to_string(path).unwrap();
    let read = |line: &str| {
        let json: serde_json::Value = serde_json::from_str(line).unwrap();
        let field = |name: &str| json[name].as_u64().unwrap();
        assert_eq!(json.as_object().unwrap().len(), 4, "{line}");
        Record {
            scheduled_ns: field("scheduled_ns"),
            start_ns: field("start_ns"),
            wait_ns: field("wait_ns"),
            permits: field("permits"),
        }
    };
    text.lines().map(read).collect()
}

/// Returns the maximum number of permits in any half-open window of `window_ns`.
pub fn max_within(records: &[Record], window_ns: u64) -> u64 {
    let inside = |first: usize| {
        let end_ns = records[first].start_ns + window_ns;
        let inside = records[first..].iter().take_while(|record| record.start_ns < end_ns);
        inside.map(|record| record.permits).sum()
    };
    (0..records.len()).map(inside).max().unwrap_or(0)
}

/// A running process that the test communicates with.
pub struct Session {
    pub child: Child,
    pub stdin: Option<ChildStdin>,
    pub stdout: ChildStdout,
}

impl Session {
    pub fn start(arguments: &[&str]) -> Self {
        Self::of(&mut rategate(arguments))
    }

    pub fn of(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().unwrap();
        Self { child, stdin, stdout }
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Reads exactly these bytes.
    pub fn expect(&mut self, bytes: &[u8]) {
        let mut read = vec![0; bytes.len()];
        self.stdout.read_exact(&mut read).unwrap();
        assert_eq!(String::from_utf8_lossy(&read), String::from_utf8_lossy(bytes));
    }

    /// Reads the rest of the output.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.stdout.read_to_end(&mut rest).unwrap();
        rest
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Returns the exit status, with stdin open as long as the test holds it.
    pub fn status(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(start.elapsed() < PATIENCE, "does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Only a failed test leaves the process running.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
