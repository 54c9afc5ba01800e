//! Malicious and faulty clients.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use super::client::{Client, Reply, address, line, serve, text};

#[test]
fn invalid_commands_are_answered_and_end_the_connection() {
    let running = serve(|_| ());
    // What Redis says as well is compared with it in `oracle`.
    let cases: &[(&[u8], &str)] = &[
        (b"*999999999\r\n", "invalid multibulk length"),
        (b"*1\r\n$4294967296\r\n", "invalid bulk length"),
        (b"*1\r\n$4\r\nPINGxx", "a bulk string does not end where its length says"),
        (b"*1111111111111111111111111111111111", "too big mbulk count string"),
        (b"*1\r\n$11111111111111111111111111111", "too big bulk count string"),
    ];
    for (bytes, reported) in cases {
        let mut client = Client::to(&running);
        client.send(b"PING\r\n");
        client.send(bytes);
        let rest = client.rest();
        assert_eq!(
            rest,
            format!("+PONG\r\n-ERR Protocol error: {reported}\r\n"),
            "{:?}",
            bytes.escape_ascii().to_string()
        );
    }
    assert_eq!(Client::to(&running).ask("PING"), Reply::Simple("PONG".into()));
}

#[test]
fn a_line_of_a_megabyte_is_refused_before_it_is_there() {
    let running = serve(|_| ());
    let mut client = Client::to(&running);
    let mut sent = 0_usize;
    // The client may be refused, and the connection reset, while it is still writing.
    while sent < 1 << 20 && client.stream.get_mut().write_all(&[b'x'; 4096]).is_ok() {
        sent += 4096;
    }
    let mut rest = Vec::new();
    let _ = client.stream.read_to_end(&mut rest);
    assert_eq!(String::from_utf8_lossy(&rest), "-ERR Protocol error: too big inline request\r\n");
}

#[test]
fn a_command_has_64_kib_unless_the_settings_say_otherwise() {
    let echo = |bytes: usize| {
        let message = vec![b'm'; bytes];
        super::client::command(&[b"ECHO", message.as_slice()])
    };
    let refused = "-ERR Protocol error: invalid bulk length\r\n";
    let cases = [(None, 65_000, 65_536), (Some(200_000), 199_000, 200_000)];
    for (configured, fits, too_long) in cases {
        let running = serve(|settings| {
            let limits = &mut settings.server.limits;
            limits.frame_bytes = configured.unwrap_or(limits.frame_bytes);
        });
        let mut client = Client::to(&running);
        client.send(&echo(fits));
        assert_eq!(client.read(), Reply::Bulk(vec![b'm'; fits]));
        // Refused by its length alone: no memory is allocated for it.
        client.send(format!("*2\r\n$4\r\nECHO\r\n${too_long}\r\n").as_bytes());
        assert_eq!(client.rest(), refused);
    }
}

#[test]
fn a_form_sent_by_a_browser_runs_nothing() {
    let running = serve(|_| ());
    let mut client = Client::to(&running);
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\n\r\nCL.THROTTLE k 1 1 60\r\n");
    assert_eq!(client.rest(), "");
    assert_eq!(Client::to(&running).ask("DBSIZE"), Reply::Int(0));
}

#[test]
fn who_sends_slowly_or_nothing_is_cut_off() {
    let running = serve(|settings| {
        settings.server.limits.header_time = Duration::from_millis(300);
        settings.server.limits.idle = Duration::from_millis(900);
    });
    let begun = Instant::now();
    let mut idle = Client::to(&running);
    let mut slow = Client::to(&running);
    let mut slow_line = Client::to(&running);
    // A byte now and then does not keep a connection: neither in words of known length, nor in a
    // line that may end anywhere.
    let words = line("ECHO 0123456789012345678901234567890123456789");
    let text = format!("PING {}\r\n", "x".repeat(words.len()));
    for (byte, letter) in words.iter().zip(text.as_bytes()) {
        let slower = slow.stream.get_mut().write_all(&[*byte]);
        if slower.and_then(|()| slow_line.stream.get_mut().write_all(&[*letter])).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(slow.try_read().is_err());
    let _ = slow_line.stream.get_mut().write_all(b"xxxxxxxxx\r\n");
    assert!(slow_line.try_read().is_err());
    assert!(begun.elapsed() < Duration::from_secs(5));
    // Clients that send commands stay.
    let mut busy = Client::to(&running);
    while begun.elapsed() < Duration::from_millis(1100) {
        assert_eq!(busy.ask("PING"), Reply::Simple("PONG".into()));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(idle.rest(), "");
    assert_eq!(busy.ask("PING"), Reply::Simple("PONG".into()));
}

/// Commands in pieces are not slow, as long as each ends in time.
#[test]
fn who_sends_in_pieces_stays() {
    let running = serve(|settings| {
        settings.server.limits.header_time = Duration::from_millis(300);
    });
    let mut client = Client::to(&running);
    let (front, back) = (b"PING on", b"ce\r\n");
    client.stream.get_mut().write_all(front).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(900) {
        std::thread::sleep(Duration::from_millis(100));
        client.stream.get_mut().write_all(&[back.as_slice(), front].concat()).unwrap();
        assert_eq!(client.read(), text("once"));
    }
}

#[test]
fn who_reads_nothing_is_not_read_from() {
    let running = serve(|_| ());
    let mut client = Client::to(&running);
    let stream = client.stream.get_mut();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let message = vec![b'm'; 4000];
    let one = super::client::command(&[b"ECHO", message.as_slice()]);
    let batch = one.repeat(20);
    let mut sent = 0_usize;
    // Without a bound this would go on forever.
    let limit = 64 << 20;
    loop {
        assert!(sent < limit, "{sent} bytes of questions are taken, and no answer is read");
        match stream.write(&batch[sent % one.len()..]) {
            Ok(count) => sent += count,
            Err(_) => break,
        }
    }
    // Other clients are served meanwhile.
    assert_eq!(Client::to(&running).ask("PING"), Reply::Simple("PONG".into()));
    // And nothing is lost.
    client.stream.get_mut().shutdown(Shutdown::Write).unwrap();
    for _ in 0..sent / one.len() {
        assert!(matches!(client.read(), Reply::Bulk(_)));
    }
    assert_eq!(client.rest(), "");
}

fn bound(connections: usize) -> NonZeroUsize {
    NonZeroUsize::new(connections).unwrap()
}

#[test]
fn there_are_no_more_connections_than_there_may_be() {
    let running = serve(|settings| settings.server.limits.connections_per_address = bound(3));
    let mut all: Vec<Client> = (0..3).map(|_| Client::to(&running)).collect();
    for client in &mut all {
        assert_eq!(client.ask("PING"), Reply::Simple("PONG".into()));
    }
    assert_eq!(Client::to(&running).rest(), "-ERR max number of clients reached\r\n");
    all.pop();
    // The connection's slot is free once the server has seen the end.
    let begun = Instant::now();
    while Client::to(&running).try_ping().is_err() {
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}

impl Client {
    fn try_ping(&mut self) -> std::io::Result<()> {
        self.stream.get_mut().write_all(b"PING\r\n")?;
        match self.try_read()? {
            Reply::Simple(_) => Ok(()),
            _ => Err(std::io::ErrorKind::ConnectionRefused.into()),
        }
    }
}

/// Returns the resident memory of this process, from the system.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// Opens connections that are idle once each was answered. Returns the bytes of memory for each,
/// in server and client, which share a process.
fn idle_connections(count: usize) -> usize {
    let running = serve(|settings| {
        settings.server.limits.connections = bound(count + 10);
        settings.server.limits.connections_per_address = bound(count + 10);
    });
    let address = address(&running);
    let connect = || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        let mut pong = [0; 7];
        stream.read_exact(&mut pong).unwrap();
        stream
    };
    let first: Vec<TcpStream> = (0..10).map(|_| connect()).collect();
    let before = resident_bytes();
    let all: Vec<TcpStream> = (0..count).map(|_| connect()).collect();
    let each = resident_bytes().saturating_sub(before) / count;
    // All of them still work.
    for mut stream in all.iter().chain(&first).step_by(97) {
        stream.write_all(b"PING\r\n").unwrap();
        let mut pong = [0; 7];
        stream.read_exact(&mut pong).unwrap();
    }
    each
}

#[test]
fn two_thousand_idle_connections_take_little() {
    let each = idle_connections(2000);
    assert!(each < 4096, "{each} bytes for each connection");
}
