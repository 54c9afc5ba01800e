//! Lines of any bytes, and those that servers write.

#[path = "laws/lines.rs"]
mod laws;
#[path = "laws/written.rs"]
mod written;

use fastrand::Rng;
use laws::{Reading, hold};
use written::{Parts, hold_written};

const LOGS: [&[u8]; 2] = [
    b"10.0.0.7 - ann lee [10/Oct/2000:13:55:36 -0700] \"GET /a/b?c HTTP/1.1\" 200 2326 \
      \"http://x/\" \"agent \\\"7\\\"\"\n2001:db8::1 - - [10/Oct/2000:13:55:37 -0700] \"-\" 408 -\n",
    br#"{"ts": 971211336.5, "ip": "10.0.0.7", "user": {"id": [{"b": "\\"}]}, "status": 200}
{"time": "2000-10-10T13:55:36.0-0700", "id": 7, "path": "GET /a HTTP/1.1", "agent": "x", "size": 9}
"#,
];

/// Logs with changed, missing and repeated bytes.
#[test]
fn mutated_logs_keep_the_laws() {
    let mut random = Rng::with_seed(0x10c5);
    for run in 0..2_000 {
        let mut log: Vec<u8> =
            (0..random.u8(1..3)).flat_map(|_| random.choice(LOGS).unwrap().to_vec()).collect();
        for _ in 0..random.u8(..6) {
            let at = random.usize(..log.len().max(1));
            match random.u8(..4) {
                _ if log.is_empty() => {}
                0 => log.insert(at, *random.choice(b"\"\\[]{}:,. \n\r\t0").unwrap()),
                1 => drop(log.remove(at)),
                2 => log[at] = random.u8(..),
                _ => log.truncate(at),
            }
        }
        let (number, piece) = (random.u8(..), random.usize(1..80));
        println!("run {run}: {number}, {piece}, {}", log.escape_ascii());
        hold(&Reading::of(number), &log, piece);
    }
}

/// Lines that were once read otherwise alone than within a log, or not at all.
#[test]
fn lines_do_not_depend_on_those_before() {
    for log in [
        // A date that is not there has no instant, not even the first.
        &b"{\"time\": \"\", \"ip\": \"h\"}"[..],
        // A date that one format has is none in the other.
        b"{\"time\": \"2000-10-10T13:55:36.0-0700\", \"ip\": \"h\"}\n\
          h - - [2000-10-10T13:55:36.0-0700] \"GET / HTTP/1.1\" 200 1\n",
        // A request without a path has no name.
        b"{\"ts\": 1, \"path\": \"GET  HTTP/1.1\"}",
    ] {
        for number in 0..=u8::MAX {
            hold(&Reading::of(number), log, 7);
        }
    }
}

/// Any texts in the parts of a line, with the escapes of servers.
#[test]
fn written_lines_are_read_as_their_parts() {
    let mut random = Rng::with_seed(0x10c6);
    for run in 0..2_000 {
        let mut text = |max| {
            let letters = b"ab/?# \"\\[]{}:+0-\t\r\x00\xff";
            (0..random.usize(..max)).map(|_| *random.choice(letters).unwrap()).collect::<Vec<_>>()
        };
        let texts = [text(9), text(9), text(30), text(9)];
        let parts = Parts {
            seconds: random.u64(86_400..18_000_000_000),
            offset_minutes: random.i64(-840..=840),
            status: random.u16(..),
            bytes: if random.bool() { random.u64(..) } else { random.u64(..9) },
            texts: [&texts[0], &texts[1], &texts[2], &texts[3]],
        };
        println!("run {run}: {parts:?}");
        hold_written(&Reading::of(random.u8(..)).key, &parts);
    }
}
