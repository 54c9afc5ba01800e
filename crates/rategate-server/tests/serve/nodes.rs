//! Servers that share a store, while it is gone.

use std::thread;
use std::time::{Duration, Instant};

use crate::clients::Service;

/// How many of twenty calls pass, where nobody listens at the store's place.
fn passed(nodes: &str) -> usize {
    let service = Service::of(&format!(
        "[store]\nurl = \"redis://127.0.0.1:1\"\n{nodes}\n[[rule]]\nname = \"api\"\nmatch = [\"user\"]\n\
         limit = \"8/2s\"\nburst = 8\nstore = \"exact\"\n"
    ));
    let mut http = service.http();
    let mut take = |key: &str| {
        let body = format!("{{\"rule\":\"api\",\"key\":\"{key}\"}}");
        http.post("/v1/check", &body).1.contains("\"allowed\":true")
    };
    // What was granted before it started is over by then, and its store is known to be gone.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2_200) {
        take("somebody");
        thread::sleep(Duration::from_millis(50));
    }
    (0..20).filter(|_| take("ann")).count()
}

#[test]
fn each_keeps_its_part_of_the_limit() {
    let (alone, of_four) = thread::scope(|scope| {
        let alone = scope.spawn(|| passed(""));
        let of_four = passed("nodes = 4");
        (alone.join().unwrap(), of_four)
    });
    // What is earned meanwhile on a slow machine is less than the difference.
    assert!((8..=11).contains(&alone), "alone it keeps all of it: {alone}");
    assert!((2..=4).contains(&of_four), "{of_four}");
}
