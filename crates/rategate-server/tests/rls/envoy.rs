//! A real Envoy as the client, with the configuration and the limits of the guide.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rategate_server::engine::{Engine, Target};
use rategate_server::protocol::grpc::Settings;
use rategate_server::protocol::rls::Options;

use crate::rls::common::{Clock, Server, engine, left, left_of};
use crate::serve::clients::until;

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/envoy");

/// Returns the program, where `cargo xtask servers` has installed it.
fn program() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?.join("envoy");
    let found = find(&folder, 8);
    // A test without its program shows nothing, which is a failure in CI.
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
            && path.components().any(|component| component.as_os_str() == "_bin")
            && path.is_file()
    };
    entries.iter().find(is_it).cloned().or_else(|| {
        let mut folders = entries.iter().filter(|path| path.is_dir());
        folders.find_map(|path| find(path, depth.checked_sub(1)?))
    })
}

/// Returns an engine with the guide's limits.
fn guided() -> (Engine<Clock>, Clock) {
    let loaded = rategate_server::config::load(Path::new(&format!("{GUIDE}/ratelimit.yaml")));
    engine(loaded.unwrap().rules.rules.clone())
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

/// Starts an upstream that accepts every request.
fn upstream() -> u16 {
    upstream_with("", || ())
}

/// Starts an upstream that does something before each of its responses, which have these fields.
fn upstream_with(fields: &'static str, before: impl Fn() + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            before();
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n{fields}\r\nok"
            );
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    port
}

impl Envoy {
    fn start(program: &Path, service: u16, rategate: u16) -> Self {
        Self::with(program, service, rategate, &[])
    }

    /// Starts Envoy with changes in the guide's file.
    fn with(program: &Path, service: u16, rategate: u16, words: &[(&str, &str)]) -> Self {
        Self::of(program, "envoy.yaml", (service, rategate), words)
    }

    /// Starts Envoy with changes in a file of the guide.
    fn of(
        program: &Path,
        file: &str,
        (service, rategate): (u16, u16),
        words: &[(&str, &str)],
    ) -> Self {
        let port = free_port();
        let mut text = std::fs::read_to_string(format!("{GUIDE}/{file}")).unwrap();
        for (from, to) in words {
            assert!(text.contains(from), "the guide's file has no `{from}`");
            text = text.replace(from, to);
        }
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

    /// Returns the status and fields of a response.
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

/// A connection that is kept open, and reopened where Envoy ends it.
struct KeptAlive<'a> {
    envoy: &'a Envoy,
    stream: Option<BufReader<TcpStream>>,
}

impl KeptAlive<'_> {
    /// Returns the status of a request with a field of any bytes.
    fn get(&mut self, name: &str, value: &[u8]) -> u16 {
        let connect =
            || BufReader::new(TcpStream::connect(("127.0.0.1", self.envoy.port)).unwrap());
        let mut stream = self.stream.take().unwrap_or_else(connect);
        let head = format!("GET / HTTP/1.1\r\nhost: front\r\n{name}: ");
        // An oversized request is answered and cut off before it is complete.
        let _ = stream.get_mut().write_all(&[head.as_bytes(), value, b"\r\n\r\n"].concat());
        let (mut status, mut length, mut is_last) = (0, 0, false);
        loop {
            let mut line = Vec::new();
            stream.read_until(b'\n', &mut line).unwrap();
            let line = String::from_utf8_lossy(&line).trim_end().to_lowercase();
            if status == 0 {
                let code = line.split(' ').nth(1);
                status = code.unwrap_or_else(|| panic!("{value:?}: {line}")).parse().unwrap();
            } else if let Some((name, value)) = line.split_once(": ") {
                match name {
                    "content-length" => length = value.parse().unwrap(),
                    "connection" => is_last = value == "close",
                    _ => {}
                }
            } else {
                break;
            }
        }
        stream.read_exact(&mut vec![0; length]).unwrap();
        self.stream = (!is_last).then_some(stream);
        status
    }
}

/// Returns malicious values of a header field: bytes that are not text, of any length, and names
/// of existing plans.
fn hostile(nth: usize) -> Vec<u8> {
    const WORDS: [&[u8]; 6] = [b"\xff\xfe", b"trial\xff", b"\xed\xa0\x80", b"trial", b"*", b""];
    if let Some(word) = WORDS.get(nth) {
        return word.to_vec();
    }
    let mut random = fastrand::Rng::with_seed(u64::try_from(nth).unwrap());
    let length = if nth.is_multiple_of(97) { 40_000 } else { nth % 71 + 1 };
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let byte = random.u8(..);
        // Other bytes end a field, or are refused by Envoy itself.
        if byte >= 0x20 && byte != 0x7f {
            bytes.push(byte);
        }
    }
    bytes
}

/// Envoy admits requests on errors. No field of a client causes one: an exhausted limit holds.
#[test]
fn no_field_of_a_client_passes_a_real_envoy() {
    let Some(program) = program() else { return };
    let (engine, _) = guided();
    // Short enough that the longest fields are too long for a request.
    let settings = Settings { max_message_bytes: 16 << 10, ..Settings::default() };
    let server = Server::start(engine, settings);
    let words = [
        ("failure_mode_deny: true", "failure_mode_deny: false"),
        // A decision that comes late on a busy machine would be an error, too.
        ("timeout: 0.25s", "timeout: 20s"),
    ];
    let envoy = Envoy::with(&program, upstream(), server.address.port(), &words);
    for _ in 0..20 {
        assert_eq!(envoy.get("").0, 200);
    }
    let mut kept_alive = KeptAlive { envoy: &envoy, stream: None };
    let mut denied = 0;
    for nth in 0..10_000 {
        let value = hostile(nth);
        let status = kept_alive.get("x-plan", &value);
        assert!(status >= 400, "{nth}: {status} for {value:?}");
        denied += u32::from(status == 429);
    }
    assert!(denied > 9_900, "all but few reach the service: {denied}");
}

#[test]
fn a_real_envoy_shows_the_token() {
    let Some(program) = program() else { return };
    let (engine, _) = guided();
    let token = Some(&b"s3cret"[..]);
    let server = Server::guarded(engine, Settings::default(), token);
    let port = server.address.port();
    // As in the guide: no token is configured, and nothing passes.
    assert_eq!(Envoy::start(&program, upstream(), port).get("").0, 500);
    // With the setting that the guide warns of, an error admits everything.
    let open = [("failure_mode_deny: true", "failure_mode_deny: false")];
    let envoy = Envoy::with(&program, upstream(), port, &open);
    assert!((0..25).all(|_| envoy.get("").0 == 200));
    let words = [open[0], ("put-the-token-here", "s3cret")];
    let envoy = Envoy::with(&program, upstream(), port, &words);
    let statuses: Vec<u16> = (0..25).map(|_| envoy.get("").0).collect();
    assert_eq!(statuses, [[200; 20].as_slice(), &[429; 5]].concat());
}

fn field<'a>(fields: &'a [(String, String)], name: &str) -> &'a str {
    fields.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
}

#[test]
fn a_real_envoy_lets_exactly_the_limit_pass() {
    let Some(program) = program() else { return };
    let (engine, clock) = guided();
    let server = Server::start(engine, Settings::default());
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
    // Requests denied by the plan count for the address: the format's windows count every hit.
    for _ in 0..3 {
        let (status, fields) = envoy.get("x-plan: trial\r\n");
        assert_eq!((status, field(&fields, "x-ratelimit-remaining")), (429, "0"));
        assert_eq!(field(&fields, "x-envoy-ratelimited"), "true");
    }
    let statuses: Vec<u16> = (0..20).map(|_| envoy.get("").0).collect();
    assert_eq!(statuses, [[200; 12].as_slice(), &[429; 8]].concat());
    clock.advance(Duration::from_secs(2_750));
    let (status, fields) = envoy.get("");
    assert_eq!((status, field(&fields, "x-ratelimit-remaining")), (200, "19"));
    assert_eq!(field(&fields, "x-ratelimit-reset"), "3600");
}

/// The route of the guide, in which the tokens of a response are those of a header field of it.
fn reserving(program: &Path, service: u16, rategate: u16) -> Envoy {
    let guide = std::fs::read_to_string(format!("{GUIDE}.md")).unwrap();
    let (_, lines) = guide.split_once("```yaml\ntyped_per_filter_config:\n").unwrap();
    let lines = lines.split("```").next().unwrap().lines();
    let lines: String = lines.map(|line| format!("{:26}{line}\n", "")).collect();
    let route = "                        - match: { prefix: / }\n";
    let reserving = format!("{route}{:26}typed_per_filter_config:\n{lines}", "");
    let filters = "                http_filters:\n";
    let tokens = [
        "- name: envoy.filters.http.header_to_metadata",
        "  typed_config:",
        "    \"@type\": type.googleapis.com/\
         envoy.extensions.filters.http.header_to_metadata.v3.Config",
        "    response_rules:",
        "      - header: x-tokens",
        "        on_header_present:",
        "          { metadata_namespace: llm, key: tokens, type: NUMBER }",
    ];
    let tokens = tokens.map(|line| format!("{:18}{line}\n", ""));
    let tokens = format!("{filters}{}", tokens.concat());
    Envoy::with(program, service, rategate, &[(route, &reserving), (filters, &tokens)])
}

/// Plain Envoy reserves under its own id before the call, and commits when the stream is done.
#[test]
fn a_real_envoy_reserves_and_commits() {
    let Some(program) = program() else { return };
    // A window that counts every hit: a rule of Envoy's file.
    let yaml = "domain: edge\ndescriptors: [{ key: user, rate_limit: { unit: hour, \
                requests_per_unit: 1000, name: tokens } }]\n";
    let loaded = rategate_server::config::load_text("edge.yaml", yaml).unwrap();
    let (engine, _) = engine(loaded.rules.rules.clone());
    let options = Options { verbs: true, ..Options::default() };
    let settings = Settings { options, ..Settings::default() };
    let server = Server::start(engine.clone(), settings);
    let now = {
        let engine = engine.clone();
        move || left(&engine, "edge.user", "alice")
    };
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = {
        let (seen, now) = (Arc::clone(&seen), now.clone());
        move || seen.lock().unwrap().push(now())
    };
    let service = upstream_with("x-tokens: 650\r\n", note);
    let envoy = reserving(&program, service, server.address.port());
    let call = |estimate: u32| envoy.get(&format!("x-user: alice\r\nx-estimate: {estimate}\r\n")).0;
    // The commit is sent when the response has been.
    let settles = |expected: (u64, u64)| until("the commit", || now() == expected);
    assert_eq!(call(800), 200);
    settles((350, 0));
    assert_eq!(*seen.lock().unwrap(), [(200, 0)], "the estimate was held during the call");
    assert_eq!(call(351), 429, "what does not fit is not called");
    assert_eq!(call(350), 200);
    // More than was held is charged.
    settles((0, 300));
    assert_eq!(*seen.lock().unwrap(), [(200, 0), (0, 0)]);
    assert_eq!(call(1), 429);
    let counts = engine.reservation_counts();
    assert_eq!((counts.open, counts.known), (0, 2), "{counts:?}");
}

#[test]
fn an_envoy_without_answer_refuses_if_it_shall() {
    let Some(program) = program() else { return };
    // No service listens there.
    let envoy = Envoy::start(&program, upstream(), free_port());
    assert_eq!(envoy.get("").0, 500);
}

/// Each answer's bytes are charged once it has gone, as a gateway charges tokens: after a report
/// past the limit the next request is denied, with its fields.
#[test]
fn a_real_envoy_denies_after_a_report_past_the_limit() {
    let Some(program) = program() else { return };
    let (engine, _) = guided();
    let server = Server::start(engine.clone(), Settings::default());
    let ports = (upstream(), server.address.port());
    let envoy = Envoy::of(&program, "charge.yaml", ports, &[]);
    let entries = &[(&b"remote_address"[..], &b"127.0.0.1"[..])];
    // Each answer has two bytes, and the limit is 20.
    for used in (2..=20).step_by(2) {
        assert_eq!(envoy.get("").0, 200);
        let expected = 20 - used;
        let target = Target::Descriptor { domain: "edge", entries, limit: None };
        until("the report", || left_of(&engine, target).0 == expected);
    }
    // All is used, and nothing more: a look passes, and its answer is past the limit.
    assert_eq!(envoy.get("").0, 200);
    let mut answer = (0, Vec::new());
    until("the report", || {
        answer = envoy.get("");
        answer.0 == 429
    });
    let (_, fields) = answer;
    assert_eq!(field(&fields, "x-ratelimit-limit"), r#"20, 20;w=3600;name="per_address""#);
    assert_eq!(field(&fields, "x-ratelimit-remaining"), "0");
    assert_eq!(field(&fields, "x-ratelimit-reset"), "2750");
    assert_eq!(field(&fields, "x-envoy-ratelimited"), "true");
}
