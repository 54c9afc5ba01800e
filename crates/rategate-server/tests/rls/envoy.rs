//! A real Envoy asks: its configuration is that of the guide, and so are the limits.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rategate_server::protocol::grpc::Settings;

use crate::common::{Driver, Server, engine};

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/envoy");

/// The program, where `cargo xtask servers` has installed it.
fn program() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?.join("envoy");
    let found = find(&folder, 8);
    // A test without the program that it is about says nothing: where it counts, that is a failure.
    let may_be_missing = std::env::var_os("CI").is_none();
    assert!(
        found.is_some() || may_be_missing,
        "no Envoy: `cargo xtask servers` could not install it"
    );
    found
}

fn find(folder: &Path, depth: u32) -> Option<PathBuf> {
    let entries: Vec<_> = std::fs::read_dir(folder).ok()?.flatten().map(|e| e.path()).collect();
    let is_it = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| name == "envoy")
            && path.components().any(|part| part.as_os_str() == "_bin")
            && path.is_file()
    };
    entries.iter().find(is_it).cloned().or_else(|| {
        let mut folders = entries.iter().filter(|path| path.is_dir());
        folders.find_map(|path| find(path, depth.checked_sub(1)?))
    })
}

struct Envoy {
    child: Child,
    port: u16,
}

impl Drop for Envoy {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Says yes to everybody.
fn upstream() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
            drop(stream.write_all(answer));
        }
    });
    port
}

impl Envoy {
    fn start(program: &Path, service: u16, rategate: u16) -> Self {
        let port = free_port();
        let text = std::fs::read_to_string(format!("{GUIDE}/envoy.yaml")).unwrap();
        let mut text = text.replace("@type", "\u{1}");
        for (from, to) in [(10000, port), (8000, service), (8081, rategate)] {
            let (from, to) = (format!("port_value: {from} "), format!("port_value: {to} "));
            assert!(text.contains(&from));
            text = text.replace(&from, &to);
        }
        let text = text.replace('\u{1}', "@type");
        let mut command = Command::new(program);
        command.args(["--config-yaml", &text, "--use-dynamic-base-id", "--concurrency", "1"]);
        command.args(["--log-level", "warn", "--disable-hot-restart"]);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let envoy = Self { child: child.unwrap(), port };
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed() < Duration::from_secs(18), "Envoy does not come up");
            thread::yield_now();
            thread::sleep(Duration::from_millis(20));
        }
        envoy
    }

    /// A request's status, and its fields.
    fn get(&self, fields: &str) -> (u16, Vec<(String, String)>) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let request = format!("GET / HTTP/1.1\r\nhost: front\r\nconnection: close\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let mut lines = answer.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let fields = lines.filter_map(|line| line.split_once(": "));
        let fields = fields.map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        (status, fields.collect())
    }
}

fn field<'a>(fields: &'a [(String, String)], name: &str) -> &'a str {
    fields.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
}

#[test]
fn a_real_envoy_lets_exactly_the_limit_pass() {
    let Some(program) = program() else { return };
    let path = PathBuf::from(format!("{GUIDE}/ratelimit.yaml"));
    let loaded = rategate_server::config::load(&path).unwrap();
    let (engine, clock) = engine(loaded.rules.rules.clone());
    let server = Server::start(Driver::Own, engine, Settings::default());
    let envoy = Envoy::start(&program, upstream(), server.address.port());
    // The window of an hour has begun 850 s ago.
    for left in (15..20).rev() {
        let (status, fields) = envoy.get("x-plan: trial\r\n");
        assert_eq!(status, 200, "{fields:?}");
        let trial = (left - 15).to_string();
        assert_eq!(
            field(&fields, "x-ratelimit-limit"),
            r#"5, 20;w=3600;name="per_address", 5;w=3600;name="trial""#
        );
        assert_eq!(field(&fields, "x-ratelimit-remaining"), trial);
        assert_eq!(field(&fields, "x-ratelimit-reset"), "2750");
    }
    // What is denied for the plan counts for the address: the format's windows count every hit.
    for _ in 0..3 {
        let (status, fields) = envoy.get("x-plan: trial\r\n");
        assert_eq!((status, field(&fields, "x-ratelimit-remaining")), (429, "0"));
        assert_eq!(field(&fields, "x-envoy-ratelimited"), "true");
    }
    let statuses: Vec<u16> = (0..20).map(|_| envoy.get("").0).collect();
    assert_eq!(statuses, [[200; 12].as_slice(), &[429; 8]].concat());
    clock.advance(2_750_000_000_000);
    let (status, fields) = envoy.get("");
    assert_eq!((status, field(&fields, "x-ratelimit-remaining")), (200, "19"));
    assert_eq!(field(&fields, "x-ratelimit-reset"), "3600");
}

#[test]
fn an_envoy_without_answer_refuses_if_it_shall() {
    let Some(program) = program() else { return };
    // Nobody listens there.
    let envoy = Envoy::start(&program, upstream(), free_port());
    assert_eq!(envoy.get("").0, 500);
}
