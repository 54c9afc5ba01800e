//! nginx before an application, by the very file of the guide: it asks the real service about each request.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "an overflow or a panic in a test is a failed test, which is what tests are for"
)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::folder;
use common::service::Service;
use common::serving::{Serving, answers, free_place, on_path};

/// What the guide leaves to whoever includes its file. All its folders are the test's.
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
    include rategate.conf;
}
";

struct Nginx {
    child: Child,
    place: String,
}

impl Nginx {
    /// By the guide's file, with places that are free here.
    fn start(name: &str, limiter: &str, app: &str) -> Option<Self> {
        let program = on_path("nginx")?;
        let folder = folder(name);
        let guide =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/nginx/rategate.conf");
        let place = free_place();
        let mut text = std::fs::read_to_string(guide).unwrap();
        for (written, here) in [
            ("server 127.0.0.1:8080;", format!("server {limiter};")),
            ("server 127.0.0.1:9000;", format!("server {app};")),
            ("listen 127.0.0.1:8000;", format!("listen {place};")),
            // Ample for a machine that does other things too.
            ("50ms;", "5s;".to_owned()),
        ] {
            assert!(text.contains(written), "the guide's file has no `{written}`");
            text = text.replace(written, &here);
        }
        std::fs::write(folder.join("rategate.conf"), text).unwrap();
        std::fs::write(folder.join("nginx.conf"), OUTER).unwrap();
        let mut command = Command::new(program);
        command.arg("-p").arg(&folder).args(["-c", "nginx.conf", "-e", "stderr"]);
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let nginx = Self { child, place };
        assert!(answers(&nginx.place), "nginx does not start");
        Some(nginx)
    }

    /// The status and the head's other lines, in lower case.
    fn get(&self, path: &str, more: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.place).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
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

fn place(service: &Service) -> &str {
    service.place.strip_prefix("http://").unwrap()
}

#[test]
fn nginx_passes_what_the_limit_allows_and_denies_the_rest() {
    let (app, serving) = (app(), Serving::start(&[]));
    let Some(nginx) = Nginx::start("nginx_passes", serving.place("http"), place(&app)) else {
        return;
    };
    for left in (0..5).rev() {
        // Whatever a client says of itself, its address is the connection's.
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
    assert_eq!(app.asked().len(), 5, "what is denied does not reach the application");
    // Asked from outside, nginx does not go on to ask.
    let (status, head) = nginx.get("/.rategate", "");
    assert!(status != 200 && !head.contains("ratelimit"), "{head}");
}

#[test]
fn a_403_of_the_application_stays_one() {
    let (app, serving) = (app(), Serving::start(&[]));
    let Some(nginx) = Nginx::start("nginx_403", serving.place("http"), place(&app)) else { return };
    let (status, head) = nginx.get("/forbidden", "");
    assert_eq!(status, 403, "{head}");
    assert!(!head.contains("retry-after"), "{head}");
}

#[test]
fn a_limiter_that_is_gone_holds_up_nobody() {
    let app = app();
    let Some(nginx) = Nginx::start("nginx_gone", &free_place(), place(&app)) else { return };
    for _ in 0..8 {
        let (status, head) = nginx.get("/page", "");
        assert_eq!(status, 200, "{head}");
    }
    assert_eq!(app.asked().len(), 8);
}
