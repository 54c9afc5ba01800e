//! The end of a service, and the state of the next one.

use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use rategate_server::config::load_text;
use rategate_server::serve::{Start, StartError, start};

use crate::resp::client::{Client, line};
use crate::serve::clients::{Service, until};

fn rules(folder: &str) -> String {
    format!(
        "[snapshot]\npath = \"{folder}/counters\"\n[[rule]]\nname = \"api\"\nmatch = [\"user\"]\n\
         limit = {{ permits = 10, unit = \"day\" }}\nalgorithm = \"sliding-log\"\n"
    )
}

#[test]
fn what_was_counted_is_known_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = Service::of(&rules(&folder.path().display().to_string()));
    service.play(
        "
        RATEGATE.CHECK api 4 ann => {allowed: 1, remaining: 6}
        CL.THROTTLE k 4 1 86400 5 => [0, _, _, _, _]
        ",
    );
    service.restart();
    service.play(
        "
        RATEGATE.CHECK api 7 ann => {allowed: 0, remaining: 6}
        RATEGATE.CHECK api 6 ann => {allowed: 1, remaining: 0}
        CL.THROTTLE k 4 1 86400 => [1, _, _, _, _]
        ",
    );
}

#[test]
fn an_end_under_load_loses_no_answered_call() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        rules(&folder.path().display().to_string()).replace("permits = 10", "permits = 10000000");
    let mut service = Service::of(&text);
    let address = service.at("resp").parse().unwrap();
    // Each connection counts its answers until it ends. A batch that was being written at the end
    // may be incomplete, and then has no answer.
    let count = move || {
        let mut client = Client::at(address).unwrap();
        let batch = line("RATEGATE.CHECK api 1 ann").repeat(50);
        let mut granted = 0;
        loop {
            let is_sent = client.stream.get_mut().write_all(&batch).is_ok();
            for _ in 0..50 {
                let Ok(reply) = client.try_read() else { return granted };
                granted += reply.named("allowed").int();
            }
            if !is_sent {
                return granted;
            }
        }
    };
    let callers: Vec<_> = (0..8).map(|_| thread::spawn(count)).collect();
    thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    service.restart();
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    let granted: i64 = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
    assert!(granted > 1_000, "{granted}");
    // Decided and answered, or neither.
    let left = 10_000_000 - granted;
    service.play(&format!("RATEGATE.PEEK api 1 ann => {{remaining: {left}}}"));
}

/// A second service fails to bind the ports; the counters of the running one stay as they are.
#[test]
fn a_start_that_fails_leaves_the_counters_alone() {
    let folder = tempfile::tempdir().unwrap();
    let rules = rules(&folder.path().display().to_string());
    let mut service = Service::of(&rules);
    service.play("RATEGATE.CHECK api 4 ann");
    let files = || {
        let mut all = Vec::new();
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let path = entry.unwrap().path();
            all.push((std::fs::read(&path).unwrap(), path));
        }
        all.sort();
        all
    };
    until("the first file is whole", || {
        folder.path().join("counters").exists() && !folder.path().join("counters.new").exists()
    });
    let before = files();
    let again = |http: &str| {
        let text = format!(
            "[server]\nresp = \"127.0.0.1:0\"\nhttp = \"{http}\"\ngrpc = \"127.0.0.1:0\"\n{rules}"
        );
        let loaded = load_text("again.toml", &text).unwrap();
        start(Start { loaded, files: None, signals: false }).unwrap_err()
    };
    let error = again(&service.at("http"));
    assert!(matches!(error, StartError::Bind { .. }), "{error}");
    assert_eq!(files(), before);
    let error = again("127.0.0.1:0");
    assert!(matches!(error, StartError::Counters(_)), "{error}");
    assert!(error.to_string().contains("another process"), "{error}");
    assert_eq!(files(), before);
    service.restart();
    service.play("RATEGATE.PEEK api 1 ann => {remaining: 6}");
}

/// Saving of counters is visible in the metrics from the start on.
#[test]
fn figures_tell_of_the_file_of_counters() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().display().to_string();
    let service = Service::of(&rules(&directory));
    let figure = |name: &str| service.metric(name).unwrap_or_default();
    let saved = "rategate_snapshot_saves_total{outcome=\"saved\"}";
    until("the first save is counted", || figure(saved) == "1");
    assert!(folder.path().join("counters").exists());
    service.play(
        "
        rategate_snapshot_saves_total{outcome=\"failed\"} => 0
        rategate_snapshot_keys => 0
        ",
    );
    assert!(figure("rategate_snapshot_bytes").parse::<u64>().unwrap() > 10);
    let at: u64 = figure("rategate_snapshot_saved_timestamp_seconds").parse().unwrap();
    assert!(at > 1_700_000_000);
    let none = Service::of("");
    assert_eq!(none.metric("rategate_snapshot_keys"), None, "where nothing is kept");
}

/// A missing directory is reported at the start, not after the first minute.
#[test]
fn unusable_snapshots_are_reported_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let text = rules(&folder.path().join("missing").display().to_string());
    let at = "127.0.0.1:0";
    let text = format!("[server]\nresp = \"{at}\"\nhttp = \"{at}\"\ngrpc = \"{at}\"\n{text}");
    let loaded = load_text("rategate.toml", &text).unwrap();
    let error = start(Start { loaded, files: None, signals: false }).unwrap_err();
    assert!(matches!(error, StartError::Counters(_)), "{error}");
    assert!(error.to_string().contains("missing"), "{error}");
}
