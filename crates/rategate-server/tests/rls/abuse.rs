//! Clients that attack the listener for gRPC, by frames that no library sends. Meanwhile others
//! are served, memory stays bounded, and afterwards the processor is idle.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::rls::wires::PATH;
use crate::serve::clients::{Service, until};

const RULES: &str = "[[rule]]\nname = \"api\"\ndomain = \"edge\"\nmatch = [\"user\"]\n\
                     limit = \"1000000/h\"\n";

const ANN: &[(&str, &str)] = &[("user", "ann")];

/// The kinds of frames, and their flags.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Encodes the head of a call without an index: `:method: POST`, `:scheme: http`, the path, an
/// authority and the content type.
fn head() -> Vec<u8> {
    let path = PATH.as_bytes();
    let length = u8::try_from(path.len()).unwrap();
    [&[0x83, 0x86, 0x04, length], path, b"\x01\x01x", b"\x0f\x10\x10application/grpc"].concat()
}

/// Returns a field that is not indexed, with a value of 100 bytes.
fn field() -> Vec<u8> {
    [&b"\x00\x01x\x64"[..], &[b'y'; 100]].concat()
}

/// Returns a field of 4,000 bytes that enters the table, and as many references to it as follow in
/// a frame: some 50 MB of fields.
fn bomb() -> Vec<u8> {
    [&b"\x40\x01x\x7f\xa1\x1e"[..], &[b'y'; 4_000], &[0xbe; 12_000]].concat()
}

/// The streams of a client, the first of them at 1.
fn streams() -> impl Iterator<Item = u32> {
    (1..1 << 30).step_by(2)
}

/// A connection of an attacker, which sends until the server ends it or the attack is over.
struct Raw {
    stream: TcpStream,
    stop: Arc<AtomicBool>,
}

impl Raw {
    /// Sends bytes. Returns `false` once the connection, or the attack, is over.
    fn send(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while !self.stop.load(Ordering::Relaxed) {
            match self.stream.write(rest) {
                Ok(0) => return false,
                Ok(sent) if sent == rest.len() => return true,
                Ok(sent) => rest = &rest[sent..],
                // The server does not read: the attack waits with it.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
        false
    }

    /// Drops what has arrived.
    fn drain(&mut self) {
        let mut scratch = [0; 16 << 10];
        self.stream.set_nonblocking(true).unwrap();
        while matches!(self.stream.read(&mut scratch), Ok(1..)) {}
        self.stream.set_nonblocking(false).unwrap();
    }

    /// Waits for the end of the attack, or of the connection, and drops what arrives.
    fn linger(&mut self) {
        let mut scratch = [0; 16 << 10];
        while !self.stop.load(Ordering::Relaxed) {
            match self.stream.read(&mut scratch) {
                Ok(1..) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    }
}

/// The work of an attacker on one connection.
type Attack = fn(&mut Raw);

const ATTACKS: [(&str, Attack); 11] = [
    ("calls that are reset at once", |raw| {
        for stream in streams() {
            let call = frame(HEADERS, END_HEADERS, stream, &head());
            let reset = frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
            if !raw.send(&[call, reset].concat()) {
                return;
            }
            raw.drain();
        }
    }),
    ("streams that the server has to reset", |raw| {
        for stream in streams() {
            let call = frame(HEADERS, END_HEADERS, stream, &head());
            // A window that overflows is an error of the stream alone.
            let grow = frame(WINDOW_UPDATE, 0, stream, &0x7fff_ffff_u32.to_be_bytes());
            if !raw.send(&[call, grow].concat()) {
                return;
            }
            raw.drain();
        }
    }),
    ("a head that goes on", |raw| {
        raw.send(&frame(HEADERS, 0, 1, &head()));
        let more = frame(CONTINUATION, 0, 1, &field());
        while raw.send(&more.repeat(50)) {}
    }),
    ("a head of empty frames", |raw| {
        raw.send(&frame(HEADERS, 0, 1, &head()));
        let more = frame(CONTINUATION, 0, 1, b"");
        while raw.send(&more.repeat(500)) {}
    }),
    ("fields that are short here and long there", |raw| {
        for stream in streams() {
            if !raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &bomb())) {
                return;
            }
            raw.drain();
        }
    }),
    ("half a head", |raw| {
        raw.send(&frame(HEADERS, 0, 1, &head()));
        raw.linger();
    }),
    ("half a message in as many calls as there may be", |raw| {
        for stream in streams().take(300) {
            let message = frame(DATA, 0, stream, b"\x00\x00\x00\xff\xff");
            raw.send(&[frame(HEADERS, END_HEADERS, stream, &head()), message].concat());
        }
        raw.linger();
    }),
    ("pings whose replies are not read", |raw| {
        let ping = frame(PING, 0, 0, b"pingpong");
        while raw.send(&ping.repeat(200)) {}
    }),
    ("pings whose replies are read", |raw| {
        let ping = frame(PING, 0, 0, b"pingpong");
        while raw.send(&ping.repeat(200)) {
            raw.drain();
        }
    }),
    ("settings", |raw| {
        let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]);
        while raw.send(&settings.repeat(200)) {}
    }),
    ("calls whose replies have no window", |raw| {
        raw.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
        for stream in streams() {
            let call = frame(HEADERS, END_HEADERS, stream, &head());
            let message = frame(DATA, END_STREAM, stream, b"\0\0\0\0\x06\x0a\x04edge");
            if !raw.send(&[call, message].concat()) {
                return;
            }
        }
    }),
];

/// The attackers at a time, and how long they go on.
const ATTACKERS: usize = 4;
const LASTS: Duration = Duration::from_millis(1_500);
/// The memory that the process may have more afterwards, the attackers' own included.
const MAX_GROWN: usize = 48 << 20;
/// The longest time of a call of another client, on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(5);

fn connect(address: SocketAddr, stop: &Arc<AtomicBool>) -> Option<Raw> {
    let mut stream = TcpStream::connect(address).ok()?;
    let short = Some(Duration::from_millis(20));
    stream.set_write_timeout(short).unwrap();
    stream.set_read_timeout(short).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").ok()?;
    stream.write_all(&frame(SETTINGS, 0, 0, b"")).ok()?;
    Some(Raw { stream, stop: Arc::clone(stop) })
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = status.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Returns the time that processors have spent on this process.
fn busy() -> Duration {
    let times = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(times.tv_sec.unsigned_abs(), u32::try_from(times.tv_nsec).unwrap())
}

/// Returns how long processors are busy with this process in the quietest of three times.
fn quietest(time: Duration) -> Duration {
    let once = |_| {
        let before = busy();
        thread::sleep(time);
        busy().saturating_sub(before)
    };
    (0..3).map(once).min().unwrap()
}

#[test]
fn attackers_cost_bounded_memory_and_no_call_of_others() {
    let service = Service::of(RULES);
    let address: SocketAddr = service.at("grpc").parse().unwrap();
    let other = service.rls();
    assert_eq!(other.take(ANN, 1).unwrap(), 1);
    for (name, attack) in ATTACKS {
        let (stop, before) = (Arc::<AtomicBool>::default(), resident());
        let (begun, busy_before) = (Instant::now(), busy());
        let attackers: Vec<_> = (0..ATTACKERS)
            .map(|_| {
                let stop = Arc::clone(&stop);
                thread::spawn(move || {
                    let mut connections = 0;
                    while !stop.load(Ordering::Relaxed) {
                        connect(address, &stop).iter_mut().for_each(attack);
                        connections += 1;
                    }
                    connections
                })
            })
            .collect();
        let (mut calls, mut slowest) = (0, Duration::ZERO);
        while begun.elapsed() < LASTS || calls < 5 {
            let since = Instant::now();
            assert_eq!(other.take(ANN, 1).unwrap(), 1, "{name}");
            slowest = slowest.max(since.elapsed());
            calls += 1;
        }
        stop.store(true, Ordering::Relaxed);
        let connections: usize = attackers.into_iter().map(|it| it.join().unwrap()).sum();
        let (took, cpu) = (begun.elapsed(), busy().saturating_sub(busy_before));
        let quiet = quietest(Duration::from_millis(200));
        let grown = resident().saturating_sub(before);
        println!(
            "{name}: {connections} connections, {calls} other calls, the slowest {slowest:?}; \
             {} KiB more, processor {cpu:?} of {took:?}, then {quiet:?}",
            grown >> 10
        );
        assert!(slowest < PATIENCE, "{name}: {calls} calls, the slowest {slowest:?}");
        assert!(grown < MAX_GROWN, "{name}: {grown} bytes");
        assert!(quiet < Duration::from_millis(100), "{name}: {quiet:?} with nothing to do");
    }
    let refused = "rategate_calls_refused_total{protocol=\"grpc\",reason=\"too_much\"}";
    let refused: u64 = service.metric(refused).unwrap().parse().unwrap();
    assert!(refused > 0, "resets end connections");
}

/// Half a head and half a message have their time, and the latter alone costs its call alone.
#[test]
fn a_slow_message_has_its_time() {
    let limits = "[server.limits]\nheader_time = \"200ms\"\n";
    let service = Service::of(&format!("{limits}{RULES}"));
    let stop = Arc::default();
    let mut raw = connect(service.at("grpc").parse().unwrap(), &stop).unwrap();
    let half = frame(DATA, 0, 1, b"\x00\x00\x00\xff\xff");
    raw.send(&[frame(HEADERS, END_HEADERS, 1, &head()), half].concat());
    let late = "rategate_calls_refused_total{protocol=\"grpc\",reason=\"late\"}";
    until("the end of the call", || service.metric(late).as_deref() == Some("1"));
    assert!(raw.send(&frame(PING, 0, 0, b"pingpong")), "the connection goes on");
}

/// A connection that has not said what it speaks has the time of a head; one that speaks HTTP/2
/// has that of silence, and hears of its end.
#[test]
fn silence_has_its_time() {
    let limits = "[server.limits]\nheader_time = \"200ms\"\nidle = \"600ms\"\n";
    let service = Service::of(&format!("{limits}{RULES}"));
    let address: SocketAddr = service.at("grpc").parse().unwrap();
    let ended_after = |greets: bool| {
        let mut stream = TcpStream::connect(address).unwrap();
        let begun = Instant::now();
        if greets {
            stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
            stream.write_all(&frame(SETTINGS, 0, 0, b"")).unwrap();
        }
        let mut all = Vec::new();
        // The system may reset it, as something is unread.
        let _ = stream.read_to_end(&mut all);
        (begun.elapsed(), all)
    };
    let (silent, said) = ended_after(false);
    assert!(silent >= Duration::from_millis(200) && said.is_empty(), "{silent:?}");
    let (idle, said) = ended_after(true);
    assert!(idle >= Duration::from_millis(600), "{idle:?}");
    assert!(said.windows(2).any(|pair| pair == [7, 0]), "no GOAWAY: {said:?}");
}

/// The number of idle connections. Both of their ends are in this process: as many as its
/// descriptors allow, and ten thousand at most.
fn many() -> usize {
    let most = rategate_server::net::raise_descriptors().unwrap_or(u64::MAX);
    usize::try_from(most.saturating_sub(200) / 2).unwrap_or(usize::MAX).min(10_000)
}

#[test]
fn idle_connections_cost_little_memory_and_no_time() {
    let many = many();
    let limits = "[server.limits]\nconnections = 10100\nconnections_per_address = 10100\n";
    let service = Service::of(&format!("{limits}{RULES}"));
    let address: SocketAddr = service.at("grpc").parse().unwrap();
    let other = service.rls();
    assert_eq!(other.take(ANN, 1).unwrap(), 1);
    let (before, stop) = (resident(), Arc::default());
    let idle: Vec<Raw> = (0..many).map(|_| connect(address, &stop).unwrap()).collect();
    let open = "rategate_connections{protocol=\"grpc\"}";
    until("the connections", || {
        service.metric(open).is_some_and(|open| open.parse::<usize>().unwrap() > many)
    });
    let each = resident().saturating_sub(before) / many;
    let since = Instant::now();
    assert_eq!(other.take(ANN, 1).unwrap(), 1);
    assert!(since.elapsed() < PATIENCE);
    let quiet = quietest(Duration::from_millis(500));
    println!("{many} idle connections: {each} bytes each, processor {quiet:?} in 500 ms");
    assert!(each < 48 << 10, "{each} bytes each");
    assert!(quiet < Duration::from_millis(250), "{quiet:?}");
    drop(idle);
}
