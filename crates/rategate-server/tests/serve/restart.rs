//! The end of a service, and the state of the next one.

use std::thread;

use rategate_server::config::load_text;
use rategate_server::serve::{Start, StartError, start};

use crate::serve::clients::{Resp, Service, until};

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
    let take = |service: &Service, permits: &str| {
        let response = service.resp().ask(&["RATEGATE.CHECK", "api", permits, "ann"]);
        (Resp::field(&response, "allowed"), Resp::field(&response, "remaining"))
    };
    assert_eq!(take(&service, "4"), ("1".to_owned(), "6".to_owned()));
    service.resp().ask(&["CL.THROTTLE", "k", "4", "1", "86400", "5"]);
    service.restart();
    assert_eq!(take(&service, "7"), ("0".to_owned(), "6".to_owned()));
    assert_eq!(take(&service, "6"), ("1".to_owned(), "0".to_owned()));
    assert_eq!(service.resp().ask(&["CL.THROTTLE", "k", "4", "1", "86400"])[0], "1");
}

#[test]
fn an_end_under_load_loses_no_answered_call() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        rules(&folder.path().display().to_string()).replace("permits = 10", "permits = 100000");
    let mut service = Service::of(&text);
    // Each connection counts its answers until it ends.
    let connections: Vec<_> = (0..8).map(|_| service.resp()).collect();
    let callers: Vec<_> = connections
        .into_iter()
        .map(|mut resp| {
            thread::spawn(move || {
                let mut granted = 0_u64;
                loop {
                    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        resp.ask(&["RATEGATE.CHECK", "api", "1", "ann"])
                    }));
                    match result {
                        Ok(response) if response.len() > 3 => granted += 1,
                        _ => return granted,
                    }
                }
            })
        })
        .collect();
    thread::sleep(std::time::Duration::from_millis(300));
    service.restart();
    let granted: u64 = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
    assert!(granted > 0);
    let response = service.resp().ask(&["RATEGATE.PEEK", "api", "1", "ann"]);
    let remaining: u64 = Resp::field(&response, "remaining").parse().unwrap();
    assert_eq!(100_000 - remaining, granted, "decided and answered, or neither");
}

/// A second service fails to bind the ports; the counters of the running one stay as they are.
#[test]
fn a_start_that_fails_leaves_the_counters_alone() {
    let folder = tempfile::tempdir().unwrap();
    let rules = rules(&folder.path().display().to_string());
    let mut service = Service::of(&rules);
    service.resp().ask(&["RATEGATE.CHECK", "api", "4", "ann"]);
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
    let response = service.resp().ask(&["RATEGATE.PEEK", "api", "1", "ann"]);
    assert_eq!(Resp::field(&response, "remaining"), "6");
}

/// Saving of counters is visible in the metrics from the start on.
#[test]
fn figures_tell_of_the_file_of_counters() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().display().to_string();
    let service = Service::of(&rules(&directory));
    let figure = |name: &str| service.metric(name).unwrap_or_default();
    let saves = "rategate_snapshot_saves_total";
    until("the first save is counted", || figure(&format!("{saves}{{outcome=\"saved\"}}")) == "1");
    assert!(folder.path().join("counters").exists());
    assert_eq!(figure(&format!("{saves}{{outcome=\"failed\"}}")), "0");
    assert_eq!(figure("rategate_snapshot_keys"), "0");
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
