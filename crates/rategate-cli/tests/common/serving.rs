//! The real service, `rategate serve`, on free loopback ports, stopped with the test.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The maximum time for anything here.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Serving {
    child: Child,
    addresses: Vec<(String, String)>,
}

impl Serving {
    pub fn start(arguments: &[&str]) -> Self {
        Self::with_token(arguments, "")
    }

    /// Starts the service with a token that protects changes.
    pub fn with_token(arguments: &[&str], token: &str) -> Self {
        let mut command = Self::command(arguments);
        if !token.is_empty() {
            command.env("RATEGATE_SERVER_TOKEN", token);
        }
        Self::of(command)
    }

    /// Starts the service with trusted proxies in these networks.
    pub fn behind_proxies(networks: &str) -> Self {
        let mut command = Self::command(&[]);
        command.env("RATEGATE_HTTP_TRUSTED_PROXIES", networks);
        Self::of(command)
    }

    fn command(arguments: &[&str]) -> Command {
        let free = ["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_rategate"));
        command.arg("serve").args(free).args(arguments);
        command.env_remove("RATEGATE_SERVER_TOKEN");
        command
    }

    /// Starts the service by a command, which prints its addresses.
    pub fn of(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut addresses = Vec::new();
        // The line about the rules is the last one.
        loop {
            let line = lines.next().expect("it ends before it is ready").unwrap();
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                (Some("rules"), _) => break,
                (Some(protocol), Some(address)) => {
                    addresses.push((protocol.to_owned(), address.to_owned()));
                }
                _ => {}
            }
        }
        Self { child, addresses }
    }

    /// Returns the address of a protocol: `127.0.0.1:PORT`.
    pub fn address(&self, protocol: &str) -> &str {
        let found = self.addresses.iter().find(|(known, _)| known == protocol);
        &found.unwrap_or_else(|| panic!("it does not listen to {protocol}")).1
    }

    /// Ends the service by a signal, as a supervisor does, and waits for that.
    pub fn end(mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }

    pub fn port(&self, protocol: &str) -> &str {
        self.address(protocol).rsplit(':').next().unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a path below the target folder where `cargo xtask servers` has installed a program.
pub fn installed(path: &str) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let path = target.join(path);
    if !path.exists() {
        untried(&path.display().to_string());
        return None;
    }
    Some(path)
}

/// Returns a program of the system.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&folders).chain([PathBuf::from("/usr/sbin")]);
    let found = folders.map(|folder| folder.join(program)).find(|program| program.is_file());
    if found.is_none() {
        untried(program);
    }
    found
}

/// Skips a test whose program is missing; in CI that is a failure.
fn untried(program: &str) {
    let is_ci = std::env::var_os("CI").is_some();
    assert!(!is_ci, "no {program}: `cargo xtask servers` could not install it");
    eprintln!("no {program}: `cargo xtask servers` installs it; not tried");
}

/// Returns the output of a command, and panics if it takes too long or fails.
pub fn succeeds(command: &mut Command) -> String {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("{command:?} does not end");
        }
        thread::sleep(Duration::from_millis(5));
    }
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}:\n{stdout}{stderr}");
    stdout.into_owned()
}

/// Returns `true` if a server accepts connections in time.
pub fn answers(address: &str) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if std::net::TcpStream::connect(address).is_ok() {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Returns an address whose port was free a moment ago.
pub fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}
