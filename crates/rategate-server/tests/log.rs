//! Clients in the log: their addresses appear only in the lines about refused calls.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::format_push_string,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that cannot go on should panic, and say what it sees"
)]

#[path = "serve/clients.rs"]
#[allow(dead_code, reason = "the other binary uses all of it")]
mod clients;

use std::io::{self, Read as _, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use clients::{PATIENCE, Service, until};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A refused connection, and failed handshakes, at the most detailed level.
#[test]
fn no_line_about_a_connection_has_an_address() {
    let lines = Lines::default();
    let all = lines.clone();
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    log.with_writer(move || all.clone()).with_ansi(false).init();
    let service = Service::of("[server.limits]\nconnections = 1\n");
    let connect = || {
        let stream = TcpStream::connect(service.at("resp")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    let mut first = connect();
    first.write_all(b"PING\r\n").unwrap();
    let mut received = [0; 7];
    first.read_exact(&mut received).unwrap();
    let second = connect();
    until("it is logged", || lines.text().contains("the connection cap is reached"));
    for stream in [first, second] {
        let port = format!(":{}", stream.local_addr().unwrap().port());
        let text = lines.text();
        let logged = text.lines().filter(|line| line.contains("rategate_server"));
        let logged: Vec<_> = logged.filter(|line| line.contains(&port)).collect();
        assert!(logged.is_empty(), "{logged:?}");
    }
}
