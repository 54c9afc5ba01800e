//! Redis' protocol: equal commands however the bytes are split, and no panic or excess memory
//! whatever they are.

use std::time::{Duration, Instant};

use fastrand::Rng;
use proptest::collection::vec;
use proptest::prelude::*;
use rategate_server::protocol::resp::{Bounds, Broken, RespWriter, Version};

use crate::resp::client::command;
use crate::resp::codec_laws::{Parsed, parse_pieces};

fn whole(bytes: &[u8]) -> Parsed {
    parse_pieces(bytes, &[usize::MAX], &Bounds::default()).0
}

fn word() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..12),
        vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'$'), Just(b'*'), Just(b'1')], 0..12),
        vec(any::<u8>(), 90..130),
    ]
}

/// Generates bytes that resemble the protocol more often than random ones.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let segment = prop_oneof![
        4 => vec(word(), 1..5).prop_map(|words| command(&words)),
        2 => any::<i64>().prop_map(|number| format!("*{number}\r\n").into_bytes()),
        2 => (-3_i64..5).prop_map(|number| format!("*{number}\r\n").into_bytes()),
        2 => (-3_i64..5).prop_map(|number| format!("${number}\r\n").into_bytes()),
        1 => any::<i64>().prop_map(|number| format!("${number}\r\n").into_bytes()),
        2 => "[a-c \"'\\\\x4\0\x0b]{0,10}\r?\n".prop_map(String::into_bytes),
        2 => vec(any::<u8>(), 0..6),
    ];
    vec(segment, 0..8).prop_map(|segments| segments.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn commands_parse_however_the_bytes_are_split(
        commands in vec(vec(word(), 1..6), 1..8),
        pieces in vec(1_usize..40, 1..20),
    ) {
        let bytes: Vec<u8> = commands.iter().flat_map(|words| command(words)).collect();
        let (parsed, _) = parse_pieces(&bytes, &pieces, &Bounds::default());
        prop_assert_eq!(parsed, Parsed { commands, broken: None });
    }

    #[test]
    fn any_bytes_mean_the_same_however_they_are_cut(
        bytes in noise(),
        pieces in vec(1_usize..9, 1..20),
    ) {
        let bounds = Bounds { frame_bytes: 300, words: 4, unauthenticated: false };
        let (parsed, buffered) = parse_pieces(&bytes, &pieces, &bounds);
        let (at_once, _) = parse_pieces(&bytes, &[usize::MAX], &bounds);
        prop_assert_eq!(parsed, at_once);
        // A frame, and the beginning of a length.
        prop_assert!(buffered <= 300 + 32, "{} bytes are kept", buffered);
    }

    #[test]
    fn words_of_a_line_are_those_of_an_array(words in vec("[!-~&&[^\"'*]]{1,9}", 1..6)) {
        let line = format!("{}\r\n", words.join("  "));
        prop_assume!(!line.starts_with('*'));
        let words: Vec<Vec<u8>> = words.into_iter().map(String::into_bytes).collect();
        prop_assert_eq!(whole(line.as_bytes()).commands, vec![words]);
    }
}

#[test]
fn bounds_are_checked_on_what_is_announced() {
    let bounds = Bounds { frame_bytes: 64, words: 3, unauthenticated: false };
    let broken = |text: &str| parse_pieces(text.as_bytes(), &[usize::MAX], &bounds).0.broken;
    assert_eq!(broken("*3\r\n"), None);
    assert_eq!(broken("*4\r\n"), Some(Broken::Multibulk));
    assert_eq!(broken("*1\r\n$53\r\n"), None);
    assert_eq!(broken("*1\r\n$54\r\n"), Some(Broken::Bulk));
    assert_eq!(broken("*2\r\n$10\r\n0123456789\r\n$30\r\n"), None);
    assert_eq!(broken("*2\r\n$10\r\n0123456789\r\n$40\r\n"), Some(Broken::Bulk));
    assert_eq!(broken("*1\r\n$9223372036854775807\r\n"), Some(Broken::Bulk));
    assert_eq!(broken(&"x".repeat(63)), None);
    assert_eq!(broken(&"x".repeat(64)), Some(Broken::Line));
    assert_eq!(broken("a b c\n"), None);
    assert_eq!(broken("a b c d\n"), Some(Broken::Line));
}

#[test]
fn unauthenticated_clients_may_send_little() {
    let bounds = Bounds { unauthenticated: true, ..Bounds::default() };
    let broken = |text: &str| parse_pieces(text.as_bytes(), &[usize::MAX], &bounds).0.broken;
    assert_eq!(broken("*10\r\n"), None);
    assert_eq!(broken("*11\r\n"), Some(Broken::MultibulkUnauthenticated));
    assert_eq!(broken("*1\r\n$16384\r\n"), None);
    assert_eq!(broken("*1\r\n$16385\r\n"), Some(Broken::BulkUnauthenticated));
}

#[test]
fn quotes_are_those_of_redis() {
    let words = |line: &str| whole(line.as_bytes()).commands.concat();
    assert_eq!(words("a \"b c\" 'd e'\n"), [&b"a"[..], b"b c", b"d e"]);
    assert_eq!(
        words("\"\\x41\\n\\r\\t\\b\\a\\\\\\\"\\q\" ''\n"),
        [&b"A\n\r\t\x08\x07\\\"q"[..], b""]
    );
    assert_eq!(words("'it\\'s'\n"), [&b"it's"[..]]);
    for line in ["\"a\n", "'a\n", "\"a\"b\n", "'a'b\n", "a\"b\"c\n"] {
        assert_eq!(whole(line.as_bytes()).broken, Some(Broken::Quotes), "{line}");
    }
}

/// Returns the run time of the mutator: longer by hand, RATEGATE_FUZZ_SECONDS=3600.
fn fuzzing() -> Duration {
    let seconds = std::env::var("RATEGATE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    seconds.map_or(Duration::from_millis(1500), Duration::from_secs)
}

#[test]
fn mutated_bytes_neither_panic_nor_hoard() {
    let seed = std::env::var("RATEGATE_FUZZ_SEED").ok().and_then(|text| text.parse().ok());
    let seed: u64 = seed.unwrap_or(0x5eed);
    let mut random = Rng::with_seed(seed);
    let corpus: Vec<Vec<u8>> = vec![
        command(&["CL.THROTTLE", "user:1", "15", "30", "60", "1"]),
        b"PING\r\nECHO \"a\\x41\" 'b'\r\n*0\r\n*-1\r\n\r\n".to_vec(),
        b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$12\r\n0123456789ab\r\n*1\r\n$4\r\nQUIT\r\n".to_vec(),
        b"*1\r\n*1\r\n$-1\r\n$999999999\r\n*999999999\r\n*18446744073709551616\r\n".to_vec(),
    ];
    let bounds = Bounds { frame_bytes: 512, words: 8, unauthenticated: false };
    let end = Instant::now() + fuzzing();
    let mut runs = 0_u64;
    while Instant::now() < end {
        let mut bytes: Vec<u8> =
            (0..random.u8(..4)).flat_map(|_| random.choice(&corpus).unwrap().clone()).collect();
        for _ in 0..random.u8(..8) {
            mutate(&mut random, &mut bytes);
        }
        let piece = random.usize(1..=64);
        let (parsed, buffered) = parse_pieces(&bytes, &[piece], &bounds);
        let (at_once, _) = parse_pieces(&bytes, &[usize::MAX], &bounds);
        assert_eq!(
            parsed,
            at_once,
            "seed {seed}, run {runs}: {:?}",
            bytes.escape_ascii().to_string()
        );
        assert!(buffered <= 512 + 32, "seed {seed}, run {runs}: {buffered} bytes kept");
        runs += 1;
    }
    assert!(runs > 100, "{runs} runs");
}

/// Changes, doubles or removes some of the bytes.
fn mutate(random: &mut Rng, bytes: &mut Vec<u8>) {
    let at = random.usize(..=bytes.len());
    match random.u8(..6) {
        0 => bytes.insert(at, *random.choice(b"*$\r\n-0123456789\"'\\x ").unwrap()),
        1 if at < bytes.len() => drop(bytes.remove(at)),
        2 if at < bytes.len() => bytes[at] = random.u8(..),
        3 if at < bytes.len() => bytes[at] = bytes[at].wrapping_add(1),
        4 => bytes.truncate(at),
        _ => {
            let end = at + random.usize(..=bytes.len() - at);
            let piece = bytes[at..end].to_vec();
            bytes.extend(piece);
        }
    }
}

/// Each kind of reply, byte by byte.
#[test]
fn replies_are_as_each_version_has_them() {
    let written = |version| {
        let mut out = Vec::new();
        let mut reply = RespWriter::new(&mut out, version);
        reply.ok();
        reply.null();
        reply.truth(true);
        reply.truth(false);
        reply.map(2);
        reply.array(5);
        reply.array(12);
        reply.integer(-10);
        reply.integer(7);
        reply.unsigned(u64::MAX);
        reply.bulk(b"a\r\n\0");
        reply.simple("text");
        reply.error("ERR a\r\nb\0c");
        String::from_utf8(out).unwrap()
    };
    let rest = "*5\r\n*12\r\n:-10\r\n:7\r\n:9223372036854775807\r\n$4\r\na\r\n\0\r\n+text\r\n\
                -ERR a  b c\r\n";
    assert_eq!(written(Version::Two), format!("+OK\r\n$-1\r\n:1\r\n:0\r\n*4\r\n{rest}"));
    assert_eq!(written(Version::Three), format!("+OK\r\n_\r\n#t\r\n#f\r\n%2\r\n{rest}"));
}
