//! Its end, and what the next one knows.

use std::thread;

use crate::clients::{Resp, Service};

fn rules(folder: &str) -> String {
    format!(
        "[snapshot]\npath = \"{folder}/counters\"\n[[rule]]\nname = \"api\"\nmatch = [\"user\"]\nlimit = {{ permits = 10, unit = \"day\" }}\nalgorithm = \"sliding-log\"\n"
    )
}

#[test]
fn what_was_counted_is_known_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = Service::of(&rules(&folder.path().display().to_string()));
    let take = |service: &Service, permits: &str| {
        let said = service.resp().ask(&["RATEGATE.CHECK", "api", permits, "ann"]);
        (Resp::field(&said, "allowed"), Resp::field(&said, "remaining"))
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
    // Each counts the answers that it got, until the connection ends.
    let places: Vec<_> = (0..8).map(|_| service.resp()).collect();
    let callers: Vec<_> = places
        .into_iter()
        .map(|mut resp| {
            thread::spawn(move || {
                let mut granted = 0_u64;
                loop {
                    let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        resp.ask(&["RATEGATE.CHECK", "api", "1", "ann"])
                    }));
                    match asked {
                        Ok(said) if said.len() > 3 => granted += 1,
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
    let said = service.resp().ask(&["RATEGATE.PEEK", "api", "1", "ann"]);
    let remaining: u64 = Resp::field(&said, "remaining").parse().unwrap();
    assert_eq!(100_000 - remaining, granted, "decided and answered, or neither");
}
