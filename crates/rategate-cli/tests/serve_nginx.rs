//! nginx before an application, by the guide's own file: it queries the real service about each
//! request.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::folder;
use crate::common::service::Service;
use crate::common::serving::{Serving, answers, free_address, on_path};

/// The outer part of the configuration, which the guide leaves to its users. All folders are the
/// test's, which acts as a proxy itself.
const OUTER: &str = "\
worker_processes 1;
daemon off;
master_process off;
pid nginx.pid;
error_log error.log warn;
events { worker_connections 64; }
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    set_real_ip_from 127.0.0.1;
    real_ip_header X-Real-IP;
    include rategate.conf;
}
";

struct Nginx {
    child: Child,
    address: String,
}

/// The query in the guide's file, and its alternative from the comments.
const BY_ADDRESS: &str = "limit=5/min&burst=5&deny=403;
        proxy_set_header X-Forwarded-For $remote_addr;";
const BY_FIELD: &str = "limit=5/min&burst=5&from=header:X-Api-Key&deny=403;
        proxy_set_header X-Api-Key $http_x_api_key;";

impl Nginx {
    /// Starts nginx with the guide's file, at free addresses.
    fn start(name: &str, limiter: &str, app: &str) -> Option<Self> {
        Self::asking(name, limiter, app, BY_ADDRESS)
    }

    /// Starts nginx with another query.
    fn asking(name: &str, limiter: &str, app: &str, question: &str) -> Option<Self> {
        let program = on_path("nginx")?;
        let folder = folder(name);
        let guide =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/nginx/rategate.conf");
        let address = free_address();
        let mut text = std::fs::read_to_string(guide).unwrap();
        for (written, here) in [
            ("server 127.0.0.1:8080;", format!("server {limiter};")),
            ("server 127.0.0.1:9000;", format!("server {app};")),
            ("listen 127.0.0.1:8000;", format!("listen {address};")),
            // A timeout long enough for a busy machine.
            ("50ms;", "5s;".to_owned()),
            (&format!("/v1/auth?{BY_ADDRESS}\n"), format!("/v1/auth?{question}\n")),
        ] {
            assert!(text.contains(written), "the guide's file has no `{written}`");
            text = text.replace(written, &here);
        }
        Some(Self::run(&program, &folder, address, &text))
    }

    /// Starts nginx with the guide's file of token budgets.
    fn with_tokens(name: &str, limiter: &str, app: &str) -> Option<Self> {
        let program = on_path("nginx")?;
        let folder = folder(name);
        let guide =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/nginx/tokens.conf");
        let address = free_address();
        let mut text = std::fs::read_to_string(guide).unwrap();
        for (written, here) in [
            ("server 127.0.0.1:8080;", format!("server {limiter};")),
            ("http://127.0.0.1:9000;", format!("http://{app};")),
            ("listen 127.0.0.1:8000;", format!("listen {address};")),
        ] {
            assert!(text.contains(written), "the guide's file has no `{written}`");
            text = text.replace(written, &here);
        }
        Some(Self::run(&program, &folder, address, &text))
    }

    fn run(program: &Path, folder: &Path, address: String, text: &str) -> Self {
        std::fs::write(folder.join("rategate.conf"), text).unwrap();
        std::fs::write(folder.join("nginx.conf"), OUTER).unwrap();
        let mut command = Command::new(program);
        command.arg("-p").arg(folder).args(["-c", "nginx.conf", "-e", "stderr"]);
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let nginx = Self { child, address };
        assert!(answers(&nginx.address), "nginx does not start");
        nginx
    }

    /// Returns the status and the other head lines, in lower case.
    fn get(&self, path: &str, more: &str) -> (u16, String) {
        self.get_with(path, more.as_bytes())
    }

    /// Makes a request with any bytes among the fields.
    fn get_with(&self, path: &str, more: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        // A client that sends too much may receive a reply, and be cut off, before it has sent
        // all.
        let _ = stream.write_all(&[head.as_bytes(), more, b"\r\n"].concat());
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text).into_owned();
        let (head, _) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text}"));
        (head[9..12].parse().unwrap(), head.to_ascii_lowercase())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn app() -> Service {
    Service::tcp(&[("GET /", 200, "app"), ("GET /forbidden", 403, "no")])
}

fn address(service: &Service) -> &str {
    service.address.strip_prefix("http://").unwrap()
}

#[test]
fn nginx_passes_what_the_limit_allows_and_denies_the_rest() {
    let (app, serving) = (app(), Serving::behind_proxies("127.0.0.1"));
    let Some(nginx) = Nginx::start("nginx_passes", serving.address("http"), address(&app)) else {
        return;
    };
    for left in (0..5).rev() {
        // The address is that of the connection, whatever a client claims.
        let (status, head) =
            nginx.get("/page", "X-Forwarded-For: 10.9.8.7\r\nX-Rategate-Key: other\r\n");
        assert_eq!(status, 200, "{head}");
        assert!(head.contains(&format!(";r={left}")), "{head}");
        assert!(head.contains("ratelimit-policy: ") && !head.contains("retry-after"), "{head}");
    }
    let (status, head) = nginx.get("/page", "");
    assert_eq!(status, 429, "{head}");
    let wait = head.lines().find_map(|line| line.strip_prefix("retry-after: "));
    let wait: u64 = wait.unwrap_or_else(|| panic!("{head}")).parse().unwrap();
    assert!((1..=12).contains(&wait), "{head}");
    assert_eq!(app.received().len(), 5, "what is denied does not reach the application");
    // A direct request to the internal location is not passed on.
    let (status, head) = nginx.get("/.rategate", "");
    assert!(status != 200 && !head.contains("ratelimit"), "{head}");
}

/// A client has all addresses of its /64, and one counter for them.
#[test]
fn addresses_of_one_network_are_one_client() {
    let (app, serving) = (app(), Serving::behind_proxies("127.0.0.1"));
    let Some(nginx) = Nginx::start("nginx_v6", serving.address("http"), address(&app)) else {
        return;
    };
    let from = |address: &str| nginx.get("/page", &format!("X-Real-IP: {address}\r\n")).0;
    let own = (1..=6).map(|host| from(&format!("2001:db8:1:2::{host}")));
    assert_eq!(own.collect::<Vec<_>>(), [200, 200, 200, 200, 200, 429]);
    assert_eq!(from("2001:db8:1:3::1"), 200, "another network is another client");
    assert_eq!((from("192.0.2.1"), from("192.0.2.2")), (200, 200));
}

#[test]
fn a_403_of_the_application_stays_one() {
    let (app, serving) = (app(), Serving::behind_proxies("127.0.0.1"));
    let Some(nginx) = Nginx::start("nginx_403", serving.address("http"), address(&app)) else {
        return;
    };
    let (status, head) = nginx.get("/forbidden", "");
    assert_eq!(status, 403, "{head}");
    assert!(!head.contains("retry-after"), "{head}");
}

#[test]
fn an_unavailable_limiter_delays_no_request() {
    let app = app();
    let Some(nginx) = Nginx::start("nginx_gone", &free_address(), address(&app)) else { return };
    for _ in 0..8 {
        let (status, head) = nginx.get("/page", "");
        assert_eq!(status, 200, "{head}");
    }
    assert_eq!(app.received().len(), 8);
}

/// Returns hostile values of a header field: parts of a query, and bytes that are not text.
fn hostile(nth: u64) -> Vec<u8> {
    const WORDS: [&str; 12] = [
        "bob&burst=1",
        "bob&burst=1000000",
        "bob&permits=0",
        "bob&deny=429",
        "bob&rule=none",
        "bob&limit=1000/s",
        "bob&nonsense=1",
        "bob HTTP/1.1",
        "%26burst=1",
        "bob#",
        "?",
        "",
    ];
    if let Some(word) = usize::try_from(nth).ok().and_then(|nth| WORDS.get(nth)) {
        return word.as_bytes().to_vec();
    }
    let mut random = fastrand::Rng::with_seed(nth);
    let length = if nth.is_multiple_of(97) { 6_000 } else { random.u64(1..=60) };
    let bytes = (0..length).map(|_| random.u8(..));
    // These bytes end a field; all others, control characters among them, may be tried.
    bytes.map(|byte| if matches!(byte, b'\r' | b'\n' | 0) { b'&' } else { byte }).collect()
}

/// No field of a client gets a request past an exhausted limit: neither by its content nor by an
/// error about it.
#[test]
fn no_field_of_a_client_passes_a_limit_that_is_used_up() {
    let (app, serving) = (app(), Serving::behind_proxies("127.0.0.1"));
    let Some(nginx) = Nginx::start("nginx_used_up", serving.address("http"), address(&app)) else {
        return;
    };
    for _ in 0..5 {
        assert_eq!(nginx.get("/page", "").0, 200);
    }
    let mut denied = 0;
    for nth in 0..10_000 {
        let names = ["X-Api-Key: ", "X-Rategate-Key: ", "Authorization: ", "Cookie: "];
        let name = names[usize::try_from(nth).unwrap() % names.len()];
        let field = [name.as_bytes(), &hostile(nth), b"\r\n"].concat();
        let (status, head) = nginx.get_with("/page", &field);
        assert!(status >= 400, "{field:?}: {head}");
        denied += u32::from(status == 429);
    }
    assert!(denied > 9_000, "most of them are queried: {denied}");
    assert_eq!(app.received().len(), 5, "none of them reaches the application");
}

/// Any bytes of a key form one key: the limit's permits pass, and no more.
#[test]
fn a_key_in_a_field_is_that_key_whatever_its_bytes() {
    let (app, serving) = (app(), Serving::behind_proxies("127.0.0.1"));
    let limiter = serving.address("http");
    let Some(nginx) = Nginx::asking("nginx_field", limiter, address(&app), BY_FIELD) else {
        return;
    };
    for nth in (0..800).filter(|nth| *nth != 11) {
        let field = [b"X-Api-Key: ".as_slice(), &hostile(nth), b"\r\n"].concat();
        let statuses = [(); 6].map(|()| nginx.get_with("/page", &field).0);
        let passed = statuses.iter().filter(|status| **status < 400).count();
        assert!(passed <= 5 && statuses[5] >= 400, "{field:?}: {statuses:?}");
        if nth < 12 {
            assert_eq!(statuses, [200, 200, 200, 200, 200, 429], "{field:?}");
        }
    }
    // Requests without a key are all of the same client.
    let statuses = [(); 6].map(|()| nginx.get("/page", "").0);
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
}

/// A reply of the service that is no decision denies, and is hidden from the client.
#[test]
fn an_answer_that_is_no_decision_lets_nothing_pass() {
    let app = app();
    let folder = folder("nginx_refused_rules");
    let file = folder.join("rategate.toml");
    std::fs::write(&file, "[server]\nauth = true\n").unwrap();
    let guarded = Serving::with_token(&["--config", file.to_str().unwrap()], "s3cret");
    let open = Serving::behind_proxies("127.0.0.1");
    let table = [
        (&guarded, BY_ADDRESS),
        (&open, "rule=nowhere&key=$remote_addr&deny=403;"),
        (&open, "limit=5/min&burst=5&key=$remote_addr&deny=403&burst=1;"),
    ];
    for (serving, question) in table {
        let limiter = serving.address("http");
        let nginx = Nginx::asking("nginx_refused", limiter, address(&app), question);
        let Some(nginx) = nginx else { return };
        let (status, head) = nginx.get("/page", "");
        assert_eq!(status, 500, "{question}: {head}");
        assert!(!head.contains("www-authenticate"), "{head}");
    }
    assert!(app.received().is_empty());
}

/// Starts an application that takes as many tokens for each answer as the request's path says.
fn model() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                head.extend(byte);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let tokens = head.split(['/', ' ']).nth(2).unwrap_or_default();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nx-tokens-used: {tokens}\r\ncontent-length: 2\r\n\
                 connection: close\r\n\r\nok"
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

/// Waits until a user has so many tokens left, by the service.
fn wait_for(serving: &Serving, user: &str, left: u64) {
    let start = std::time::Instant::now();
    loop {
        let mut stream = TcpStream::connect(serving.address("http")).unwrap();
        let body = format!(r#"{{"verb":"peek","rule":"calls/tokens","key":"{user}"}}"#);
        let length = body.len();
        let head = format!(
            "POST /v1/check HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}"
        );
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        if answer.contains(&format!(r#""remaining":{left},"#)) {
            return;
        }
        assert!(start.elapsed().as_secs() < 30, "{left}: {answer}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// The tokens of each answer are charged when it has gone, and nothing passes in debt.
#[test]
fn a_budget_of_tokens_ends_with_a_denial() {
    let rules =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/ai-gateways/rategate.toml");
    let serving = Serving::start(&["--config", rules.to_str().unwrap()]);
    let model = model();
    let Some(nginx) = Nginx::with_tokens("nginx_tokens", serving.address("http"), &model) else {
        return;
    };
    let anna = "Authorization: Bearer key-of-anna\r\n";
    assert_eq!(nginx.get("/1", "").0, 401, "a user without a key");
    assert_eq!(nginx.get("/1", "Authorization: Bearer other\r\n").0, 401);
    let (status, head) = nginx.get("/400", anna);
    assert_eq!(status, 200, "{head}");
    wait_for(&serving, "anna", 600);
    // No number counts as nothing.
    for path in ["/-5", "/1e3", "/", "/99999999999999999999"] {
        assert_eq!(nginx.get(path, anna).0, 200, "{path}");
    }
    wait_for(&serving, "anna", 600);
    // What is used exceeds the budget, once.
    assert_eq!(nginx.get("/900", anna).0, 200);
    wait_for(&serving, "anna", 0);
    let (status, head) = nginx.get("/1", anna);
    assert_eq!(status, 429, "{head}");
    let wait = head.lines().find_map(|line| line.strip_prefix("retry-after: "));
    let wait: u64 = wait.unwrap_or_else(|| panic!("{head}")).parse().unwrap();
    assert!((1..=3_604).contains(&wait), "{head}");
    assert_eq!(nginx.get("/1", "Authorization: Bearer key-of-berta\r\n").0, 200);
    wait_for(&serving, "berta", 999);
    // Clients cannot reach what charges.
    assert_eq!(nginx.get("/.used", anna).0, 404);
}
