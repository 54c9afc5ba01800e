//! A fake server with scripted replies, which counts connections.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// A function from the words of a command to a reply in the protocol's form.
type Answers = dyn Fn(&[String]) -> String + Send + Sync;

/// A fake server with scripted replies. Commands without one are answered by an error.
pub(crate) struct Fake {
    port: u16,
    is_over: Arc<AtomicBool>,
    connections: Arc<AtomicU64>,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    pub(crate) fn start(answers: impl Fn(&[String]) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let fake = Self {
            port: listener.local_addr().unwrap().port(),
            is_over: Arc::default(),
            connections: Arc::default(),
            calls: Arc::default(),
        };
        let answers: Arc<Answers> = Arc::new(answers);
        let is_over = Arc::clone(&fake.is_over);
        let (connections, calls) = (Arc::clone(&fake.connections), Arc::clone(&fake.calls));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                connections.fetch_add(1, Ordering::Relaxed);
                let (answers, calls) = (Arc::clone(&answers), Arc::clone(&calls));
                thread::spawn(move || serve(stream.unwrap(), &*answers, &calls));
            }
        });
        fake
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the first words of all commands so far.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Returns the reply to `CLUSTER SLOTS` that assigns all slots to one port.
pub(crate) fn all_slots_at(port: u16) -> String {
    format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")
}

fn serve(stream: TcpStream, answers: &Answers, calls: &Mutex<Vec<String>>) {
    let mut out = stream.try_clone().unwrap();
    let mut stream = BufReader::new(stream);
    while let Some(words) = command(&mut stream) {
        calls.lock().unwrap().push(words.first().cloned().unwrap_or_default());
        if out.write_all(answers(&words).as_bytes()).is_err() {
            return;
        }
    }
}

fn command(stream: &mut impl BufRead) -> Option<Vec<String>> {
    let count = number(stream, "*")?;
    let word = |_| {
        let mut bytes = vec![0; number(stream, "$")? + 2];
        stream.read_exact(&mut bytes).ok()?;
        bytes.truncate(bytes.len() - 2);
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    (0..count).map(word).collect()
}

fn number(stream: &mut impl BufRead, mark: &str) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    line.trim_end().strip_prefix(mark)?.parse().ok()
}
