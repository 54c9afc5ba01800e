//! A scripted service, which replies by path and records the requests.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

/// A received request: the head lines after the first, and the body.
#[derive(Clone, Debug, Default)]
pub struct ReceivedRequest {
    pub head: Vec<String>,
    pub body: String,
}

pub struct Service {
    pub address: String,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
}

/// Statuses and bodies by the beginning of the first line. `hangs_up` closes a connection at its
/// second request.
#[derive(Clone)]
struct Answers {
    by_line: Arc<HashMap<String, (u16, String)>>,
    hangs_up: bool,
}

impl Service {
    pub fn tcp(answers: &[(&str, u16, &str)]) -> Self {
        Self::listening(answers, false)
    }

    pub fn that_hangs_up(answers: &[(&str, u16, &str)]) -> Self {
        Self::listening(answers, true)
    }

    fn listening(answers: &[(&str, u16, &str)], hangs_up: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (answers, received) = (Answers::of(answers, hangs_up), Arc::default());
        let log = Arc::clone(&received);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answers, log) = (answers.clone(), Arc::clone(&log));
                thread::spawn(move || answers.serve(&stream, &stream, &log));
            }
        });
        Self { address, received }
    }

    pub fn unix(path: &Path, answers: &[(&str, u16, &str)]) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let address = format!("unix:{}", path.display());
        let (answers, received) = (Answers::of(answers, false), Arc::default());
        let log = Arc::clone(&received);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answers.serve(&stream, &stream, &log);
            }
        });
        Self { address, received }
    }

    pub fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().unwrap().clone()
    }
}

impl Answers {
    fn of(answers: &[(&str, u16, &str)], hangs_up: bool) -> Self {
        let owned = |&(line, status, body): &(&str, u16, &str)| {
            (line.to_owned(), (status, body.to_owned()))
        };
        Self { by_line: Arc::new(answers.iter().map(owned).collect()), hangs_up }
    }

    fn serve(&self, input: impl Read, mut output: impl Write, log: &Mutex<Vec<ReceivedRequest>>) {
        let mut input = BufReader::new(input);
        for nth in 0.. {
            let mut lines = Vec::new();
            loop {
                let mut line = String::new();
                if input.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
                match line.trim_end() {
                    "" => break,
                    line => lines.push(line.to_owned()),
                }
            }
            let length = lines.iter().find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
            input.read_exact(&mut body).unwrap();
            let line = lines.remove(0);
            // The longest matching beginning wins.
            let known = self.by_line.iter().filter(|(known, _)| line.starts_with(*known));
            let (status, answer) = known.max_by_key(|(known, _)| known.len()).map_or_else(
                || (404, String::from("not here")),
                |(_, (status, answer))| (*status, answer.clone()),
            );
            if self.hangs_up && nth > 0 {
                return;
            }
            let body = String::from_utf8(body).unwrap();
            log.lock().unwrap().push(ReceivedRequest { head: lines, body });
            if answer == "SILENCE" {
                thread::park();
            }
            let length = answer.len();
            let start = format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n\r\n{answer}");
            if output.write_all(start.as_bytes()).is_err() {
                return;
            }
        }
    }
}
