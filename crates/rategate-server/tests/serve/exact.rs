//! The limit is exact across all protocols.

use std::thread;

use crate::serve::clients::{Resp, Service, envoy};

/// Windows of an hour: nothing recovers while the test runs.
const RULES: &str = "
[[rule]]
name = \"api\"
match = [\"user\"]
limit = { permits = 100, unit = \"hour\" }
algorithm = \"sliding-log\"
";

/// The number of calls on each connection: 64 connections make slightly more than 5000.
const CALLS: usize = 79;

#[test]
fn five_thousand_calls_by_all_protocols_at_once_pass_the_limit_and_no_more() {
    let service = Service::of(RULES);
    let allowed = thread::scope(|scope| {
        let mut callers = Vec::new();
        for caller in 0..48 {
            let service = &service;
            callers.push(scope.spawn(move || match caller % 3 {
                0 => {
                    let mut resp = service.resp();
                    let mut ask = || resp.ask(&["RATEGATE.CHECK", "api", "1", "ann"]);
                    (0..CALLS).filter(|_| Resp::field(&ask(), "allowed") == "1").count()
                }
                1 => {
                    let mut http = service.http();
                    let mut ask = || http.post("/v1/check", "{\"rule\":\"api\",\"key\":\"ann\"}");
                    (0..CALLS).filter(|_| ask().1.starts_with("{\"allowed\":true")).count()
                }
                _ => {
                    let mut http = service.http();
                    let mut ask = || http.get("/v1/auth?rule=api&key=ann");
                    (0..CALLS).filter(|_| (200..300).contains(&ask().0)).count()
                }
            }));
        }
        let target = service.at("grpc");
        let by_grpc = scope.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let mut calls = tokio::task::JoinSet::new();
                for _ in 0..16 {
                    let target = target.clone();
                    calls.spawn(async move { envoy(target, "user", "ann", CALLS).await });
                }
                calls.join_all().await.into_iter().sum::<usize>()
            })
        });
        let by_others = callers.into_iter().map(|caller| caller.join().unwrap()).sum::<usize>();
        by_others + by_grpc.join().unwrap()
    });
    assert_eq!(allowed, 100);
}

#[test]
fn a_limit_that_comes_with_the_call_is_one_for_all_protocols() {
    let service = Service::of(RULES);
    // A capacity of 100, and one back in a day.
    let allowed = thread::scope(|scope| {
        let callers = (0..32).map(|caller| {
            let service = &service;
            scope.spawn(move || match caller % 3 {
                0 => {
                    let mut resp = service.resp();
                    let mut ask = || resp.ask(&["CL.THROTTLE", "k", "99", "1", "86400"]);
                    (0..40).filter(|_| ask()[0] == "0").count()
                }
                1 => {
                    let mut resp = service.resp();
                    let mut ask = || resp.ask(&["THROTTLE", "k", "100", "1", "86400"]);
                    (0..40).filter(|_| ask()[0] == "1").count()
                }
                _ => {
                    let mut http = service.http();
                    let body = "{\"limit\":\"1/d\",\"burst\":100,\"key\":\"k\"}";
                    let mut ask = || http.post("/v1/check", body);
                    (0..40).filter(|_| ask().1.starts_with("{\"allowed\":true")).count()
                }
            })
        });
        let callers: Vec<_> = callers.collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).sum::<usize>()
    });
    assert_eq!(allowed, 100);
}
