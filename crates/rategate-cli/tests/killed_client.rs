//! A client that is killed between its reservation and its commit: another gets what it held once
//! its time is over, neither sooner nor much later. All three are processes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::common::folder;
use crate::common::serving::{Serving, answers, free_address, on_path};

const TTL: Duration = Duration::from_millis(60);
const PERMITS: u64 = 1_000;
/// The address and the key of a child that reserves.
const ADDRESS: &str = "RATEGATE_TEST_ADDRESS";
const KEY: &str = "RATEGATE_TEST_KEY";

/// Returns the time on a clock that all processes share.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap()
}

/// The number of clients that are killed. `RATEGATE_KILLED` says how many.
fn rounds() -> usize {
    let said = std::env::var("RATEGATE_KILLED").ok();
    said.map_or(6, |said| said.parse().expect("RATEGATE_KILLED is a number"))
}

/// A process that is killed when this is dropped.
struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A connection to the service that is kept.
struct Client(BufReader<TcpStream>);

impl Client {
    fn to(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    fn ask(&mut self, body: &Value) -> Value {
        let body = body.to_string();
        let length = body.len();
        let head = format!("POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: {length}");
        self.0.get_mut().write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
        let (mut line, mut length) = (String::new(), 0);
        loop {
            line.clear();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the service hangs up");
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(said) = line.strip_prefix("content-length: ") {
                length = said.parse().unwrap();
            } else if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }
}

/// The child: it reserves, says when it sent and when it received, and works on until it is killed.
/// Does nothing without the variables.
#[test]
fn client() {
    let (Ok(address), Ok(key)) = (std::env::var(ADDRESS), std::env::var(KEY)) else { return };
    let mut client = Client::to(&address);
    let ttl = format!("{}ms", TTL.as_millis());
    let sent = now_ns();
    let held = client
        .ask(&json!({"verb": "reserve", "ttl": ttl, "rule": "r", "key": key, "permits": PERMITS}));
    let received = now_ns();
    assert_eq!(held["allowed"], true, "{held}");
    let mut out = std::io::stdout();
    writeln!(out, "held {sent} {received}").and_then(|()| out.flush()).unwrap();
    thread::sleep(Duration::from_secs(60));
    client
        .ask(&json!({"verb": "commit", "id": held["reservation"]["id"], "rule": "r", "key": key}));
}

/// Starts a child, and returns it with the instants of which it says.
fn reserving(address: &str, key: &str) -> (Stopped, u64, u64) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "killed_client::client", "--nocapture"]);
    command.envs([(ADDRESS, address), (KEY, key)]).stdout(Stdio::piped());
    let mut child = Stopped(command.spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    loop {
        let line = lines.next().expect("it reserves").unwrap();
        // The harness may have begun the line.
        if let Some((_, times)) = line.rsplit_once("held ") {
            let (sent, received) = times.split_once(' ').unwrap();
            return (child, sent.parse().unwrap(), received.parse().unwrap());
        }
    }
}

/// Kills clients of a service, and checks when another gets what they held. A store is a round trip
/// away, which comes on top.
fn play(name: &str, serving: &Serving, is_stored: bool) {
    let address = serving.address("http");
    let mut other = Client::to(address);
    let ttl_ns = u64::try_from(TTL.as_nanos()).unwrap();
    // From the first instant and from the last one at which the time can have been over.
    let (mut late, mut surely_late): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
    for round in 0..rounds() {
        let key = format!("key {round}");
        let (child, sent, received) = reserving(address, &key);
        drop(child);
        let take = json!({"rule": "r", "key": key, "permits": PERMITS});
        let mut denied = 0;
        let (trip, got) = loop {
            let sent_ns = now_ns();
            let answer = other.ask(&take);
            let got = now_ns();
            if answer["allowed"] == true {
                break (got - sent_ns, got);
            }
            denied += 1;
            assert_eq!(answer["items"][0]["verdict"], "denied", "{answer}");
            let wait_ns = answer["items"][0]["retry_after_ns"].as_u64().unwrap();
            assert!(wait_ns <= ttl_ns, "{answer}");
            assert!(got < received + 60 * ttl_ns, "{answer}");
            // Nearly until then, and the rest in many calls.
            thread::sleep(Duration::from_nanos(wait_ns.saturating_sub(5_000_000)));
        };
        assert!(got >= sent + ttl_ns, "{name}: {} ns too soon", sent + ttl_ns - got);
        if denied > 0 {
            let trip = if is_stored { trip } else { 0 };
            late.push(got - (sent + ttl_ns));
            surely_late.push(got.saturating_sub(received + ttl_ns + trip));
        }
    }
    late.sort_unstable();
    let [least, half, most, all] =
        [0, 50, 90, 100].map(|of| late[(late.len() - 1) * of / 100] / 1_000);
    let in_time = surely_late.iter().filter(|late_ns| **late_ns <= 1_000_000).count();
    eprintln!(
        "{name}: {in_time} of {} in time; {least} us to {all} us after the request and its time, \
         half within {half} us, nine in ten within {most} us",
        late.len()
    );
    // On a busy machine some are late by the machine.
    assert!(in_time > 0, "{name}: {surely_late:?}");
}

fn serving(name: &str, more: &str) -> Serving {
    let file = folder(name).join("rategate.toml");
    let rule = "[[rule]]\nname = \"r\"\nmatch = [\"user\"]\nlimit = \"1000/h\"\n\
                algorithm = \"sliding-log\"\n";
    std::fs::write(&file, format!("{rule}{more}")).unwrap();
    Serving::start(&["--config", file.to_str().unwrap()])
}

#[test]
fn what_a_killed_client_held_is_free_after_its_time() {
    play("in memory", &serving("killed_client_here", ""), false);
}

#[test]
fn what_a_killed_client_held_in_a_store_is_free_after_its_time() {
    let Some(program) = on_path("redis-server") else { return };
    let address = free_address();
    let port = address.rsplit(':').next().unwrap();
    let redis = Command::new(program)
        .args(["--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no"])
        .current_dir(folder("killed_client_redis"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _redis = Stopped(redis);
    assert!(answers(&address), "Redis does not start");
    let store = format!(
        "store = \"exact\"\non_unavailable = \"deny\"\n[store]\nurl = \"redis://{address}\"\n\
         budget = \"5s\"\n"
    );
    play("in a store", &serving("killed_client_stored", &store), true);
}
