//! A server process for one test.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::client::{Client, Reply};

/// The time a server may take to answer.
const STARTED_WITHIN: Duration = Duration::from_secs(10);

/// The product that the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brand {
    /// Redis.
    Redis,
    /// Valkey.
    Valkey,
}

impl Brand {
    /// Returns the installed products. Redis must be one of them.
    pub fn installed() -> Vec<Self> {
        assert!(
            Self::Redis.program().is_some(),
            "no redis-server in PATH; `cargo xtask servers` installs it in this repository, \
             `apt-get install redis-server` on Debian"
        );
        if Self::Valkey.program().is_some() {
            return vec![Self::Redis, Self::Valkey];
        }
        eprintln!("no valkey-server: tested on Redis only");
        vec![Self::Redis]
    }

    /// Returns the program, from the folders of `PATH`, or as `cargo xtask servers` installs it.
    fn program(self) -> Option<PathBuf> {
        let name = match self {
            Self::Redis => "redis-server",
            Self::Valkey => "valkey-server",
        };
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let mut programs = std::env::split_paths(&folders).map(|folder| folder.join(name));
        programs.find(|program| program.is_file()).or_else(|| {
            // The tests run from the target directory, in which a package of Python may be.
            let tests = std::env::current_exe().ok()?;
            let mut packages = tests.ancestors().map(|folder| folder.join("valkey"));
            find(name, &packages.find(|folder| folder.is_dir())?, 8)
        })
    }
}

/// Returns the program of the package within its virtual environment.
fn find(name: &str, folder: &Path, depth: u32) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?;
    let paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let program = paths.iter().find(|path| path.is_file() && path.ends_with(name));
    let below = || {
        let folders = paths.iter().filter(|path| path.is_dir() && !path.is_symlink());
        folders.clone().find_map(|folder| find(name, folder, depth.checked_sub(1)?))
    };
    program.cloned().or_else(below)
}

/// A server on a free port of the loopback, without a file, which ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    brand: Brand,
    options: Vec<String>,
    child: Child,
    port: u16,
    folder: PathBuf,
}

impl Server {
    /// Starts a server.
    pub fn start(brand: Brand) -> Self {
        Self::with(brand, &[])
    }

    /// Starts a server with more options, as alternating names and values.
    pub fn with(brand: Brand, options: &[&str]) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("rategate-store-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        // Another process may take the port between the query and the start.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut child = spawn(brand, port, &folder, &options);
            if is_ready(port, &mut child) {
                return Self { brand, options, child, port, folder };
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        panic!("{brand:?} does not start; its files are in {}", folder.display());
    }

    /// Starts a sentinel with a configuration file.
    pub fn sentinel(brand: Brand, file: &Path) -> Self {
        Self::with(brand, &["--sentinel", &file.display().to_string()])
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Connects to it.
    pub fn client(&self) -> Client {
        Client::connect(self.port).unwrap()
    }

    /// Starts a replica that has the same data.
    #[must_use]
    pub fn replica(&self) -> Self {
        self.client().ok(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
        let of = format!("127.0.0.1 {}", self.port);
        let replica = Self::with(self.brand, &["--replicaof", &of]);
        replica.is_linked();
        replica
    }

    /// Waits until a replica has all data of its primary.
    pub fn is_linked(&self) {
        let until = Instant::now() + STARTED_WITHIN;
        let is_up =
            || self.client().ok(&["INFO", "replication"]).text().contains("master_link_status:up");
        while !is_up() {
            assert!(Instant::now() < until, "{:?}: no link to the primary", self.brand);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills the server, as a loss of power would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops the server until `resume`; its connections stay.
    pub fn stall(&self) {
        self.signal("-STOP");
    }

    /// Continues a server that `stall` has stopped.
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    /// Restarts on the same port with no key and no function.
    pub fn restart_empty(&mut self) {
        self.restart();
    }

    /// Restarts on the same port with what its options keep: nothing by default.
    pub fn restart(&mut self) {
        self.kill();
        self.child = spawn(self.brand, self.port, &self.folder, &self.options);
        assert!(is_ready(self.port, &mut self.child), "{:?} does not start again", self.brand);
        let until = Instant::now() + STARTED_WITHIN;
        while !self.client().ok(&["INFO", "persistence"]).text().contains("\nloading:0") {
            assert!(Instant::now() < until, "{:?}: its files take too long", self.brand);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Drops all functions.
    pub fn flush_functions(&self) {
        self.client().ok(&["FUNCTION", "FLUSH"]);
    }

    /// Drops all scripts.
    pub fn flush_scripts(&self) {
        self.client().ok(&["SCRIPT", "FLUSH"]);
    }

    /// Sets `maxmemory`; 0 means none.
    pub fn set_maxmemory(&self, bytes: u64) {
        let bytes = bytes.to_string();
        self.client().ok(&["CONFIG", "SET", "maxmemory", &bytes]);
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Starts the process. Where the system can, it dies with the thread that started it, even if
/// that is killed.
fn spawn(brand: Brand, port: u16, folder: &Path, options: &[String]) -> Child {
    let program = brand.program().unwrap();
    let start = |mut command: Command| {
        let options = match options {
            [sentinel, file, rest @ ..] if sentinel == "--sentinel" => {
                command.args([file, sentinel]);
                rest
            }
            options => {
                command.args(["--save", "", "--appendonly", "no"]);
                options
            }
        };
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no"]);
        command.arg("--dir").arg(folder).args(options);
        let log = std::fs::File::create(folder.join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log).stderr(Stdio::null()).spawn()
    };
    let mut bound = Command::new("setpriv");
    bound.args(["--pdeathsig", "KILL"]).arg(&program);
    start(bound).or_else(|_| start(Command::new(&program))).unwrap()
}

fn is_ready(port: u16, child: &mut Child) -> bool {
    let until = Instant::now() + STARTED_WITHIN;
    while Instant::now() < until && child.try_wait().is_ok_and(|ended| ended.is_none()) {
        // Another test's server may hold the port, and would answer until this one has ended for
        // it.
        let own = format!("process_id:{}\r", child.id());
        let reply =
            Client::connect(port).and_then(|mut client| client.try_call(&["INFO", "server"]));
        if matches!(reply, Ok(Reply::Bulk(reply)) if String::from_utf8_lossy(&reply).contains(&own))
        {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}
