//! Reservations of the real service after an end by a signal, and after a kill.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::folder;
use crate::common::serving::Serving;

fn start(folder: &Path) -> Serving {
    let rules = format!(
        "[snapshot]\npath = \"{}\"\nevery = \"1s\"\n[[rule]]\nname = \"tokens\"\n\
         match = [\"user\"]\nalgorithm = \"sliding-log\"\nlimit = \"1000/d\"\n",
        folder.join("counters").display()
    );
    std::fs::write(folder.join("rules.toml"), rules).unwrap();
    Serving::start(&["--config", &folder.join("rules.toml").display().to_string()])
}

fn check(service: &Serving, request: &Value) -> Value {
    let body = request.to_string();
    let mut stream = TcpStream::connect(service.address("http")).unwrap();
    write!(
        stream,
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: \
         application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (_, body) = reply.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|_| panic!("{reply}"))
}

fn ask(service: &Serving, verb: &str, key: &str, permits: u64) -> Value {
    let id = format!("{:0>32}", key.len());
    check(
        service,
        &json!({ "verb": verb, "id": id, "rule": "tokens", "key": key, "permits": permits }),
    )
}

fn used(service: &Serving, key: &str) -> u64 {
    let reply = check(service, &json!({ "rule": "tokens", "key": key, "permits": 0 }));
    1_000 - reply["items"][0]["remaining"].as_u64().unwrap()
}

#[test]
fn what_was_held_counts_as_used_after_an_end_by_a_signal() {
    let folder = folder("reservations_after_an_end");
    let service = start(&folder);
    for key in ["a", "bb", "ccc"] {
        assert_eq!(ask(&service, "reserve", key, 800)["allowed"], true);
    }
    assert_eq!(ask(&service, "commit", "ccc", 650)["items"][0]["verdict"], "committed");
    service.end();
    let service = start(&folder);
    let unknown = ask(&service, "commit", "a", 650);
    assert_eq!(unknown["items"][0]["verdict"], "unknown", "{unknown}");
    assert_eq!(used(&service, "a"), 800);
    assert_eq!(ask(&service, "reserve", "bb", 800)["allowed"], false);
    assert_eq!(used(&service, "bb"), 800);
    let again = ask(&service, "commit", "ccc", 650);
    assert_eq!((&again["allowed"], &again["repeated"]), (&json!(true), &json!(true)), "{again}");
    assert_eq!(used(&service, "ccc"), 650);
}

#[test]
fn a_kill_gives_nothing_back_that_was_used() {
    let folder = folder("reservations_after_a_kill");
    let service = start(&folder);
    let counters = folder.join("counters");
    let bodies = || std::fs::read(&counters).unwrap_or_default();
    let ask = |service: &Serving, verb: &str, permits: u64| {
        let id = "0000000000000000000000000000000f";
        check(
            service,
            &json!({ "verb": verb, "id": id, "rule": "tokens", "key": "x", "permits": permits }),
        )
    };
    assert_eq!(ask(&service, "reserve", 800)["allowed"], true);
    // The first of them may have been begun before.
    for _ in 0..2 {
        let (before, start_of_wait) = (bodies(), Instant::now());
        while bodies() == before {
            assert!(start_of_wait.elapsed() < Duration::from_secs(60), "no file is written");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let saved = bodies();
    assert_eq!(ask(&service, "commit", 650)["items"][0]["refunded"], 150);
    // Killed before the next file.
    drop(service);
    std::fs::write(&counters, saved).unwrap();
    let service = start(&folder);
    assert_eq!(used(&service, "x"), 800);
    assert_eq!(ask(&service, "commit", 650)["items"][0]["verdict"], "unknown");
}
