//! Servers that share an unavailable store.

use std::thread;
use std::time::{Duration, Instant};

use crate::serve::clients::{Resp, Service};

/// Returns how many of twenty calls pass while no store listens at its address.
fn passed(nodes: &str) -> usize {
    let service = Service::of(&format!(
        "[store]\nurl = \"redis://127.0.0.1:1\"\n{nodes}\n[[rule]]\nname = \"api\"\n\
         match = [\"user\"]\n\
         limit = \"8/2s\"\nburst = 8\nstore = \"exact\"\n"
    ));
    let mut http = service.http();
    let mut take = |key: &str| {
        let body = format!("{{\"rule\":\"api\",\"key\":\"{key}\"}}");
        http.post("/v1/check", &body).1.contains("\"allowed\":true")
    };
    // Grants of a previous process have expired by then, and the store is known to be
    // unavailable.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2_200) {
        take("someone");
        thread::sleep(Duration::from_millis(50));
    }
    (0..20).filter(|_| take("ann")).count()
}

#[test]
fn each_keeps_its_part_of_the_limit() {
    let (single, of_four) = thread::scope(|scope| {
        let single = scope.spawn(|| passed(""));
        let of_four = passed("nodes = 4");
        (single.join().unwrap(), of_four)
    });
    // Permits that return meanwhile on a slow machine are fewer than the difference.
    assert!((8..=11).contains(&single), "alone it keeps all of it: {single}");
    assert!((2..=4).contains(&of_four), "{of_four}");
}

/// Every denial has a retry time, from the first one on: null or -1 would mean that time cannot
/// help.
#[test]
fn a_denial_without_the_store_says_when_to_ask_again() {
    let service = Service::of(
        "[store]\nurl = \"redis://127.0.0.1:1\"\n[[rule]]\nname = \"api\"\nmatch = [\"user\"]\n\
         limit = \"8/s\"\nstore = \"exact\"\non_unavailable = \"deny\"\n",
    );
    for _ in 0..20 {
        service.play(
            "
            {rule: api, key: ann} => [{verdict: store_unavailable}]
            RATEGATE.CHECK api 1 ann => {verdict: unavailable}
            GET /v1/auth?rule=api&key=ann => 429 & ~ store_unavailable
            ",
        );
        let (_, answer) = service.http().post("/v1/check", "{\"rule\":\"api\",\"key\":\"ann\"}");
        let json: serde_json::Value = serde_json::from_str(&answer).unwrap();
        let wait_ms = json["items"][0]["retry_after_ms"].as_u64();
        assert!(wait_ms.is_some_and(|ms| (1..=5_000).contains(&ms)), "{answer}");
        let response = service.resp().ask(&["RATEGATE.CHECK", "api", "1", "ann"]);
        let wait_ms: u64 = Resp::field(&response, "retry_after_ms").parse().unwrap();
        assert!((1..=5_000).contains(&wait_ms), "{response:?}");
        let (_, problem) = service.http().get("/v1/auth?rule=api&key=ann");
        assert!(problem.contains("retry-after-ms"), "{problem}");
    }
}
