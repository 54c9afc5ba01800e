//! Parsing of lines found in practice, and of corrupt ones.

use super::{Dialect, Entry, Parser, SkipReason};
use crate::input::{Lines, MAX_LINE, Next};
use crate::key::CallerKey;

const SEED_NS: u64 = 971_211_336_000_000_000;
const COMBINED: &[u8] =
    b"10.0.0.7 - ann lee [10/Oct/2000:13:55:36 -0700] \"GET /a/b?c HTTP/1.1\" 200 2326 \
    \"http://x/\" \"agent \\\"7\\\"\"";

fn read(key: CallerKey, line: &[u8]) -> Result<Entry<'_>, SkipReason> {
    Parser::new(Dialect::Auto, key).read(line)
}

fn key(by: CallerKey, line: &[u8]) -> String {
    String::from_utf8_lossy(read(by, line).unwrap().key).into_owned()
}

#[test]
fn a_combined_line_has_all_keys() {
    let entry = read(CallerKey::Addr, COMBINED).unwrap();
    assert_eq!((entry.at_ns, entry.status, entry.bytes), (SEED_NS, Some(200), 2326));
    assert_eq!(key(CallerKey::Addr, COMBINED), "10.0.0.7");
    assert_eq!(key(CallerKey::User, COMBINED), "ann lee");
    assert_eq!(key(CallerKey::Path(1), COMBINED), "/a/b?c");
    assert_eq!(key(CallerKey::Agent, COMBINED), "agent \\\"7\\\"");
}

/// Text under the client's control neither moves the date nor replaces the status.
#[test]
fn a_request_cannot_forge_a_line() {
    let line = b"h - [01/Jan/2030:00:00:00 +0000] [10/Oct/2000:13:55:36 -0700] \"GET /\\\" 500 1 \
        [01/Jan/2030:00:00:00 +0000] \\\"x\" 404 -";
    let entry = read(CallerKey::Addr, line).unwrap();
    assert_eq!((entry.at_ns, entry.status, entry.bytes), (SEED_NS, Some(404), 0));
    let line = b"h - a \\\" [01/Jan/2030:00:00:00 +0000] \\\"b\\\\ [10/Oct/2000:13:55:36 -0700] \
        \"GET /\" 404 -";
    assert_eq!(read(CallerKey::Addr, line).unwrap().at_ns, SEED_NS);
}

#[test]
fn json_has_the_same() {
    let line = br#" {"nested": {"time": 1, "x": ["}", "\"{"]},
        "ts": 971211336, "remote_addr": "10.0.0.7",
        "status": 200, "bytes": "2326", "request": "GET /a HTTP/1.1", "tenant": 17,
        "host": "example", "none": null} "#;
    let entry = read(CallerKey::Addr, line).unwrap();
    assert_eq!(entry, Entry { at_ns: SEED_NS, key: b"10.0.0.7", status: Some(200), bytes: 2326 });
    assert_eq!(key(CallerKey::Json("tenant".to_owned()), line), "17");
    assert_eq!(key(CallerKey::Path(1), line), "/a");
    assert_eq!(read(CallerKey::Json("absent".to_owned()), line), Err(SkipReason::NoKey));
    assert_eq!(read(CallerKey::Json("none".to_owned()), line), Err(SkipReason::NoKey));
    let time = br#"{"time": "2000-10-10T20:55:36Z", "ip": "h"}"#;
    assert_eq!(read(CallerKey::Addr, time).unwrap().at_ns, SEED_NS);
}

#[test]
fn what_is_no_line_says_why() {
    let known = std::str::from_utf8(COMBINED).unwrap();
    for (line, why) in [
        (String::from("hello"), SkipReason::Malformed),
        (known.replace("Oct", "Okt"), SkipReason::NoTime),
        (known.replace("200 2326", "2000 2326"), SkipReason::Malformed),
        (known.replace("200 2326", "200 many"), SkipReason::Malformed),
        (known.replace("10.0.0.7", ""), SkipReason::NoKey),
        (
            known.replace("HTTP/1.1\" 200 2326 \"http://x/\" \"agent \\\"7\\\"\"", ""),
            SkipReason::Malformed,
        ),
        (r#"{"ip": "h"}"#.to_owned(), SkipReason::NoTime),
        (r#"{"ts": 1, "ip": "h""#.to_owned(), SkipReason::Malformed),
        (r#"{"ts": 1 "ip": "h"}"#.to_owned(), SkipReason::Malformed),
        (r#"{"ts": 1, "ip": "h"} x"#.to_owned(), SkipReason::Malformed),
        (r#"{"ts": 1}"#.to_owned(), SkipReason::NoKey),
        ("{".to_owned(), SkipReason::Malformed),
    ] {
        assert_eq!(read(CallerKey::Addr, line.as_bytes()), Err(why), "{line}");
    }
}

/// Any bytes, and any damage to a good line, result in a line or a reason.
#[test]
fn garbage_never_panics() {
    let mut random = fastrand::Rng::with_seed(1);
    let json = br#"{"ts": 971211336.5, "ip": "10.0.0.7", "a": [{"b": "\\"}], "status": 200}"#;
    let keys = [
        CallerKey::Addr,
        CallerKey::User,
        CallerKey::Agent,
        CallerKey::Path(2),
        CallerKey::Json("a".to_owned()),
    ];
    for round in 0..60_000 {
        let mut line = match round % 3 {
            0 => (0..random.usize(..80)).map(|_| random.u8(..)).collect(),
            1 => COMBINED.to_vec(),
            _ => json.to_vec(),
        };
        for _ in 0..random.usize(..4) {
            if !line.is_empty() {
                let at = random.usize(..line.len());
                match random.u8(..3) {
                    0 => line[at] = *random.choice(b"\"\\[]{}: \0\xff,0").unwrap(),
                    1 => line.truncate(at),
                    _ => drop(line.remove(at)),
                }
            }
        }
        for dialect in [Dialect::Auto, Dialect::Common, Dialect::Json] {
            let key = random.choice(&keys).unwrap().clone();
            if let Ok(entry) = Parser::new(dialect, key).read(&line) {
                assert!(!entry.key.is_empty(), "{}", String::from_utf8_lossy(&line));
            }
        }
    }
}

/// The lines are the same however the input is cut into reads.
#[test]
fn lines_do_not_depend_on_reads() {
    struct Drip<'a>(&'a [u8], usize);
    impl std::io::Read for Drip<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.0.len().min(self.1).min(buffer.len());
            let (now, later) = self.0.split_at(count);
            buffer[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }
    let just = "x".repeat(MAX_LINE);
    let text = format!("one\r\n\n{just}\n{just}y\ntwo\0\n{just}{just}{just}{just}{just}\nlast\r");
    let expected = ["one", "", &just, "TOO LONG", "two\0", "TOO LONG", "last"];
    for step in [1_000, 4_095, 65_536, 65_537, usize::MAX] {
        let (mut input, mut lines, mut seen) =
            (Drip(text.as_bytes(), step), Lines::new(), Vec::new());
        while lines.fill(&mut input).unwrap() > 0 {
            loop {
                match lines.next() {
                    Next::Line(line) => seen.push(String::from_utf8_lossy(line).into_owned()),
                    Next::TooLong => seen.push("TOO LONG".to_owned()),
                    Next::Dry => break,
                }
            }
        }
        if let Next::Line(line) = lines.last() {
            seen.push(String::from_utf8_lossy(line).into_owned());
        }
        assert!(seen == expected, "{step}: {} lines", seen.len());
    }
}
