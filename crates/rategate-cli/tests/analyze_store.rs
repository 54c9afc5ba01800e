//! `rategate analyze --gate redis://…`: a list in a store, and the copies that follow it.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::common::{Session, folder, run, stderr};
use rategate::deny::DenyList;
use rategate_redis::client::denied::DenyCopy;
use rategate_redis::client::{self, Config, RedisStore};

/// The maximum time for anything here, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server used by one test.
struct Server {
    child: Child,
    port: u16,
    folder: PathBuf,
    options: Vec<String>,
}

impl Server {
    fn start(name: &str, options: &[&str]) -> Self {
        // Another process may take the port between the query and the start.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = folder(name);
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let child = spawn(port, &folder, &options);
        Self { child, port, folder, options }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/shop/noisy", self.port)
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Restarts the server on the same port, empty.
    fn restart(&mut self) {
        self.kill();
        self.child = spawn(self.port, &self.folder, &self.options);
    }

    /// Returns a copy of the list as another process has it, refreshed each 50 ms as long as the
    /// test lasts.
    fn follow(&self) -> DenyList {
        let config = Config::server(client::Server::tcp("127.0.0.1", self.port)).prefix("shop");
        let store = Arc::new(RedisStore::open(config).unwrap());
        let list = DenyList::new(100);
        let copy = DenyCopy::new(store, "noisy", list.clone());
        thread::spawn(move || {
            loop {
                drop(copy.refresh());
                thread::sleep(Duration::from_millis(50));
            }
        });
        list
    }

    fn command(&self, words: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(format!("{words}\r\nQUIT\r\n").as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts the server. Where the system can, it dies with the thread that started it, even if that
/// is killed.
fn spawn(port: u16, folder: &Path, options: &[String]) -> Child {
    let start = |mut command: Command| {
        command.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]);
        command.args(["--port", &port.to_string(), "--dir"]).arg(folder).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    };
    let mut bound = Command::new("setpriv");
    bound.args(["--pdeathsig", "KILL", "redis-server"]);
    let child = start(bound).or_else(|_| start(Command::new("redis-server")));
    let child = child.expect("redis-server: `cargo xtask servers` installs it");
    wait_until("the server", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    child
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

fn line(caller: &str) -> String {
    format!("{{\"ts\": {}, \"ip\": \"{caller}\"}}\n", unix_s())
}

/// Returns two calls, of which one is too many.
fn too_many(caller: &str) -> String {
    line(caller) + &line(caller)
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// A followed log, with the messages on stderr.
struct Followed {
    session: Session,
    log: PathBuf,
    complaints: Arc<Mutex<String>>,
}

impl Followed {
    fn start(name: &str, url: &str, hold: &str) -> Self {
        let log = folder(&format!("{name}_log")).join("access.log");
        append(&log, "");
        let arguments = ["analyze", "1/1h", "--format", "json", "--follow", "--hold", hold];
        let rest = ["--gate", url, log.to_str().unwrap()];
        let mut session = Session::start(&[&arguments[..], &rest].concat());
        let complaints = Arc::new(Mutex::new(String::new()));
        let (lines, captured) = (session.child.stderr.take().unwrap(), Arc::clone(&complaints));
        thread::spawn(move || {
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                captured.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        Self { session, log, complaints }
    }

    fn complained(&self, of: &str) -> usize {
        self.complaints.lock().unwrap().matches(of).count()
    }

    fn finish(mut self) -> serde_json::Value {
        self.session.signal("-INT");
        let report = self.session.rest();
        assert_eq!(self.session.status(), Some(130));
        serde_json::from_slice(&report).unwrap()
    }
}

/// S3.20: callers found by one process in a growing log are soon denied by the lists of others,
/// and later admitted again.
#[test]
fn a_growing_log_closes_the_gates_of_others() {
    let server = Server::start("a_growing_log_closes_the_gates_of_others", &[]);
    let lists = [server.follow(), server.follow()];
    let followed = Followed::start("growing", &server.url(), "3s");
    append(&followed.log, &(too_many("a") + &line("b")));
    let start = Instant::now();
    let denied = |name: &str| lists.iter().all(|list| list.denied_for(name.as_bytes()).is_some());
    wait_until("a is denied", || denied("a"));
    let took = start.elapsed();
    // The log is read each 200 ms, and the store each 50 ms; the rest is slack for loaded
    // machines.
    assert!(took < Duration::from_millis(2_500), "{took:?}");
    assert!(lists.iter().all(|list| list.denied_for(b"b").is_none()));
    let left = lists[0].denied_for(b"a").unwrap();
    assert!(left <= Duration::from_secs(4), "{left:?}");
    let is_in = |name: &str| lists.iter().all(|list| list.denied_for(name.as_bytes()).is_none());
    wait_until("a may come again", || is_in("a"));
    assert!(start.elapsed() > Duration::from_secs(1), "{:?}", start.elapsed());
    // The key has ended with its last entry.
    wait_until("the key ends", || server.command("DBSIZE").contains(":1\r"));
    append(&followed.log, &line("b"));
    wait_until("b is denied", || denied("b"));
    assert_eq!(followed.complained(""), 1, "{:?}", followed.complaints);
    let report = followed.finish();
    assert_eq!((&report["gate"]["callers"], &report["gate"]["left_out"]), (&1.into(), &0.into()));
    assert!(report["follow"]["published_worst_ns"].as_u64().unwrap() > 0);
}

/// A killed store stops nothing, is reported once, and gets all entries again once it is back.
#[test]
fn a_store_that_is_back_gets_all_entries_again() {
    let mut server = Server::start("a_store_that_was_gone_gets_all_again", &[]);
    let list = server.follow();
    let followed = Followed::start("gone", &server.url(), "1h");
    append(&followed.log, &too_many("before"));
    wait_until("before", || list.denied_for(b"before").is_some());
    server.kill();
    append(&followed.log, &too_many("meanwhile"));
    wait_until("a complaint", || followed.complained("the store is unavailable") == 1);
    thread::sleep(Duration::from_millis(900));
    assert!(list.denied_for(b"before").is_some(), "the old list stays");
    server.restart();
    wait_until("all", || {
        [&b"before"[..], b"meanwhile"].iter().all(|name| list.denied_for(name).is_some())
    });
    append(&followed.log, &too_many("after"));
    wait_until("after", || list.denied_for(b"after").is_some());
    // The store is flushed: it stays available, but the list is lost.
    server.command("FLUSHALL");
    // New entries keep coming meanwhile.
    let mut number = 0;
    wait_until("all again", || {
        number += 1;
        append(&followed.log, &line(&format!("caller {}", number / 2)));
        thread::sleep(Duration::from_millis(20));
        let text = server.command("ZRANGE shop:1r{noisy}:d 0 -1");
        ["before", "meanwhile", "after"]
            .iter()
            .all(|name| text.contains(&format!("\r\n{name}\r\n")))
    });
    assert_eq!(followed.complained("the store is unavailable"), 1, "{:?}", followed.complaints);
    assert_eq!(followed.complained("noisy: the store is back"), 1, "{:?}", followed.complaints);
    let report = followed.finish();
    assert!(report["denied"].as_u64() >= Some(3), "{report}");
}

/// Several runs publish to one list, and none removes another's callers.
#[test]
fn a_list_may_have_several_publishers() {
    let server = Server::start("a_list_may_have_several_publishers", &["--requirepass", "p@ss"]);
    let analyze = |caller: &str, url: &str| {
        run(&["analyze", "1/1h", "--gate", url], too_many(caller).as_bytes())
    };
    let url = format!("redis://:p%40ss@127.0.0.1:{}/shop/noisy", server.port);
    for caller in ["a", "b"] {
        let output = analyze(caller, &url);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let login = "AUTH p@ss\r\n";
    let text = server.command(&format!("{login}ZRANGE shop:1r{{noisy}}:d 0 -1"));
    assert!(text.contains("\r\na\r\n") && text.contains("\r\nb\r\n"), "{text}");
    // A refused login is reported at once, without the password.
    let output = analyze("c", &url.replace("p%40ss", "sesame"));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("rategate: --gate redis://127.0.0.1:"));
    assert!(!stderr(&output).contains("sesame"), "{}", stderr(&output));
}

#[test]
fn a_report_comes_without_a_store() {
    let mut server = Server::start("a_report_comes_without_a_store", &[]);
    server.kill();
    let output = run(&["analyze", "1/1h", "--gate", &server.url()], too_many("a").as_bytes());
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("2 calls"), "{output:?}");
    let text = stderr(&output);
    assert!(text.contains("the store is unavailable") && text.contains("not published"), "{text}");
}

#[test]
fn an_invalid_address_is_reported() {
    for (url, complaint) in [
        ("rediss://h", "speaks no TLS"),
        ("redis://h:x", "the port must be a whole number from 1 to 65535"),
        ("redis://h/0", "redis://HOST/shop"),
        ("unix:", "as in unix:/run/redis.sock"),
    ] {
        let output = run(&["analyze", "1/1h", "--gate", url], b"");
        assert_eq!(output.status.code(), Some(2), "{url}");
        let text = stderr(&output);
        assert!(text.starts_with("rategate: --gate") && text.contains(complaint), "{text}");
    }
}
