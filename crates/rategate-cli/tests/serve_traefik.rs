//! Traefik before an application, by the guide's own files: it asks the real service about each
//! request.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::folder;
use crate::common::service::Service;
use crate::common::serving::{Serving, answers, free_address, installed};

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/traefik");

struct Traefik {
    child: Child,
    address: String,
}

impl Traefik {
    /// Starts Traefik with the guide's file, at free addresses.
    fn start(name: &str, limiter: &str, app: &Service) -> Option<Self> {
        let program = installed("traefik/bin/traefik")?;
        let (folder, address) = (folder(name), free_address());
        let mut text = std::fs::read_to_string(Path::new(GUIDE).join("rategate.yml")).unwrap();
        for (written, here) in [
            ("http://127.0.0.1:8080/", format!("http://{limiter}/")),
            ("http://127.0.0.1:9000", app.address.clone()),
        ] {
            assert!(text.contains(written), "the guide's file has no `{written}`");
            text = text.replace(written, &here);
        }
        let file = folder.join("rategate.yml");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(program);
        command.arg(format!("--entryPoints.web.address={address}"));
        command.arg(format!("--providers.file.filename={}", file.display()));
        command.args(["--global.checkNewVersion=false", "--log.level=ERROR"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let traefik = Self { child, address };
        assert!(answers(&traefik.address), "Traefik does not start");
        // It listens before it has read the file, and knows no path until then.
        while traefik.get("/models/", "").0 == 404 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Some(traefik)
    }

    /// Returns the status, and the reply in lower case.
    fn get(&self, path: &str, more: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        (text[9..12].parse().unwrap(), text.to_ascii_lowercase())
    }
}

impl Drop for Traefik {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn app() -> Service {
    Service::tcp(&[("GET /", 200, "app")])
}

/// Starts the service with the guide's rules, of which one gets another limit: no request of a test
/// may take so long that the guide's is earned back.
fn limiter(name: &str) -> Serving {
    let rules = std::fs::read_to_string(Path::new(GUIDE).join("rategate.toml")).unwrap();
    let (slow, fast) = ("limit = \"5/min\"\nburst = 5", "limit = \"10/s\"\nburst = 20");
    assert!(rules.contains(fast), "the guide's rules have no `{fast}`");
    let file = folder(name).join("rategate.toml");
    std::fs::write(&file, rules.replace(fast, slow)).unwrap();
    Serving::start(&["--config", file.to_str().unwrap()])
}

#[test]
fn traefik_passes_what_the_limit_allows_and_denies_the_rest() {
    let (app, limiter) = (app(), limiter("traefik_passes_rules"));
    let Some(traefik) = Traefik::start("traefik_passes", limiter.address("http"), &app) else {
        return;
    };
    for left in (0..5).rev() {
        // The address is that of the connection, whatever a client claims.
        let claimed = format!("X-Forwarded-For: 10.9.8.{left}\r\nX-Real-Ip: 10.9.8.{left}\r\n");
        let (status, answer) = traefik.get("/page", &claimed);
        assert_eq!(status, 200, "{answer}");
        let received = app.received().pop().unwrap().head.join("\n").to_ascii_lowercase();
        assert!(received.contains(&format!("ratelimit: \"per-address\";r={left};")), "{received}");
    }
    let (status, answer) = traefik.get("/page", "X-Forwarded-For: 10.9.8.7\r\n");
    assert_eq!(status, 429, "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let wait = head.lines().find_map(|line| line.strip_prefix("retry-after: "));
    let wait: u64 = wait.unwrap_or_else(|| panic!("{head}")).parse().unwrap();
    assert!((1..=12).contains(&wait), "{head}");
    assert!(head.contains("ratelimit: \"per-address\";r=0;"), "{head}");
    assert!(head.contains("content-type: application/problem+json"), "{head}");
    assert!(body.contains(r#""code":"over_limit""#), "{body}");
    assert_eq!(app.received().len(), 5, "what is denied does not reach the application");
}

/// Traefik looks only; the application charges. Nothing passes in debt, and a client cannot name
/// another user.
#[test]
fn traefik_denies_a_user_in_debt() {
    let (app, limiter) = (app(), limiter("traefik_tokens_rules"));
    let http = limiter.address("http");
    let Some(traefik) = Traefik::start("traefik_tokens", http, &app) else { return };
    let charge = |permits: u64| {
        let body =
            format!(r#"{{"verb":"charge","rule":"tokens","key":"anna","permits":{permits}}}"#);
        let length = body.len();
        let mut stream = TcpStream::connect(http).unwrap();
        let head = "POST /v1/check HTTP/1.1\r\nhost: x\r\nconnection: close";
        write!(stream, "{head}\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(r#""verdict":"charged""#), "{answer}");
    };
    // The user and the password of the guide, `anna:key-of-anna`.
    let anna = "Authorization: Basic YW5uYTprZXktb2YtYW5uYQ==\r\nX-User: berta\r\n";
    assert_eq!(traefik.get("/models/x", "X-User: anna\r\n").0, 401, "no password");
    for used in [400, 600] {
        assert_eq!(traefik.get("/models/x", anna).0, 200);
        charge(used);
    }
    assert_eq!(traefik.get("/models/x", anna).0, 200, "full is no debt");
    charge(1);
    let (status, answer) = traefik.get("/models/x", anna);
    assert_eq!(status, 429, "{answer}");
    let wait = answer.lines().find_map(|line| line.strip_prefix("retry-after: "));
    let wait: u64 = wait.unwrap_or_else(|| panic!("{answer}")).parse().unwrap();
    assert!((3_000..=3_604).contains(&wait), "{answer}");
    assert_eq!(app.received().len(), 3);
}

#[test]
fn traefik_denies_while_the_service_is_unavailable() {
    let app = app();
    let Some(traefik) = Traefik::start("traefik_alone", &free_address(), &app) else { return };
    let (status, answer) = traefik.get("/page", "");
    assert_eq!(status, 500, "{answer}");
    assert!(app.received().is_empty());
}
