//! Events in the log: bounded in number, and keys cannot forge lines.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rategate_server::config::settings::LogKeys;
use rategate_server::net::{RefusalReason, Rights, Tally as _};
use rategate_server::observe::Protocol;

use crate::observe::common::{Bench, rules};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns what is logged while `run` runs.
fn logged(run: impl FnOnce()) -> Vec<String> {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, run);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_denial_is_logged_with_its_reason_and_an_escaped_key() {
    let bench = Bench::with_log_keys(rules(), LogKeys::Plain);
    let lines = logged(|| {
        for _ in 0..21 {
            bench.take("per-address", &["ann\nINFO forged"], 1);
        }
        bench.clock.advance(Duration::from_secs(1));
        bench.take("per-address", &["ann"], 21);
    });
    let denied: Vec<&String> = lines.iter().filter(|line| line.contains("denied")).collect();
    assert_eq!(denied.len(), 2, "{lines:#?}");
    assert!(
        denied[0].contains("rule=per-address key=ann%0AINFO%20forged permits=1"),
        "{}",
        denied[0]
    );
    assert!(
        denied[0].contains("reason=\"over-the-limit\" retry_after_ms=100 enforced=true"),
        "{}",
        denied[0]
    );
    assert!(denied[1].contains("reason=\"never-fits\" enforced=true"), "{}", denied[1]);
    let near: Vec<&String> = lines.iter().filter(|line| line.contains("near the limit")).collect();
    assert_eq!(near.len(), 1, "once a second of a rule: {lines:#?}");
    assert!(near[0].contains("rule=per-address left=1 limit=20"), "{}", near[0]);
}

/// Returns the key of each line about a denial: two denials of one key, and one of another.
fn keys(bench: &Bench) -> Vec<(Option<String>, String)> {
    let lines = logged(|| {
        for (key, permits) in [("ann", 21), ("ann", 22), ("10.0.0.1", 21)] {
            bench.clock.advance(Duration::from_secs(1));
            bench.take("per-address", &[key], permits);
        }
    });
    let key = |line: &String| {
        let (_, rest) = line.split_once("key_hash=")?;
        Some(rest.split(' ').next().unwrap().to_owned())
    };
    lines.iter().map(|line| (key(line), line.clone())).collect()
}

/// Keys are addresses, users and tokens of callers: a log contains none of them unless that is
/// configured.
#[test]
fn a_log_names_keys_by_a_hash_of_this_start_alone() {
    let bench = Bench::new(rules());
    let reported = keys(&bench);
    assert_eq!(reported.len(), 3, "{reported:#?}");
    for (hash, line) in &reported {
        assert!(!line.contains("ann") && !line.contains("10.0.0.1"), "{line}");
        let hash = hash.as_ref().unwrap();
        assert!(hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{line}");
    }
    assert!(reported[0].0 == reported[1].0 && reported[0].0 != reported[2].0, "{reported:#?}");
    assert_ne!(keys(&Bench::new(rules()))[0].0, reported[0].0, "another start has other hashes");
    let off = keys(&Bench::with_log_keys(rules(), LogKeys::Off));
    assert!(off.iter().all(|(hash, line)| hash.is_none() && !line.contains("key")), "{off:#?}");
}

/// Refused calls are logged at most once in ten seconds by listener and reason, with their
/// number.
#[test]
fn refused_calls_are_a_line_in_ten_seconds() {
    let bench = Bench::new(rules());
    let listener = bench.observe.status().listener(Protocol::Grpc, "10.0.0.9:8081", true);
    let peer = "10.0.0.7:1234".parse().ok();
    let lines = logged(|| {
        for second in 0..21 {
            for _ in 0..100 {
                listener.call_refused(RefusalReason::NoToken, peer);
            }
            if second == 5 {
                listener.call_refused(RefusalReason::Malformed, peer);
            }
            if second == 15 {
                listener.call_admitted();
            }
            bench.second();
        }
    });
    assert_eq!(lines.len(), 4, "{lines:#?}");
    let reported = |line: &str, reason: &str, calls: u32| {
        let known = format!(
            "listener=\"10.0.0.9:8081\" protocol=\"grpc\" reason=\"{reason}\" calls={calls} \
             last_peer=10.0.0.7"
        );
        line.contains("WARN") && line.contains(&known)
    };
    assert!(
        reported(&lines[0], "no_token", 100) && lines[0].contains("initial_metadata"),
        "{lines:#?}"
    );
    assert!(reported(&lines[1], "malformed", 1), "{lines:#?}");
    assert!(
        reported(&lines[2], "no_token", 1_000) && lines[2].contains("none has shown"),
        "{lines:#?}"
    );
    // One call has shown the token since.
    assert!(reported(&lines[3], "no_token", 1_000) && !lines[3].contains("none has"), "{lines:#?}");
}

#[test]
fn a_flood_of_denials_is_a_few_lines() {
    let bench = Bench::new(rules());
    let lines = logged(|| {
        for call in 0..6_000_u64 {
            // Ten seconds in total.
            bench.clock.advance(Duration::from_nanos(1_666_667));
            bench.take("per-address", &["ann"], 1);
            bench.take("search", &[], 1);
            bench.take("uploads", &[&format!("user-{}", call % 3)], 40);
            bench.take("free-plan", &["free", "bob"], 1);
        }
    });
    // Fifty at once and ten a second.
    assert!((100..=151).contains(&lines.len()), "{}", lines.len());
    assert_eq!(bench.call_as(Rights::ALL, "GET", "/v1/rules", "").0, 200);
}
