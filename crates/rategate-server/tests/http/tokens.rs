//! Rights of clients, and readiness.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rategate_server::net::Rights;
use rategate_server::protocol::http::{Caller, Options};

use crate::http::common::{plain, service};

#[test]
fn each_call_needs_its_right() {
    let mut service = plain();
    let (take, reset) = (r#"{"rule":"all"}"#, r#"{"verb":"reset","rule":"all"}"#);
    for (rights, granted) in [
        (Rights::ALL, [true, true, true]),
        (Rights::READ, [true, true, false]),
        (Rights::NONE, [false, false, false]),
    ] {
        service.caller = Caller::with(rights);
        let answers = [
            service.post("/v1/check", take),
            service.get("/v1/auth?rule=all&from=none"),
            service.post("/v1/check", reset),
        ];
        for (answer, granted) in answers.iter().zip(granted) {
            assert_eq!(answer.status < 300, granted, "{rights:?}: {answer:?}");
            assert!(granted || answer.problem().1 == "token_needed", "{answer:?}");
            assert_eq!(answer.field("www-authenticate"), if granted { "" } else { "Bearer" });
        }
        assert_eq!(service.get("/healthz").status, 200);
    }
}

#[test]
fn readiness_is_what_the_server_says() {
    let ready = Arc::new(AtomicBool::new(true));
    let flag = Arc::clone(&ready);
    let is_ready = move || flag.load(Ordering::Relaxed);
    let service = service(Options { ready: Arc::new(is_ready), ..Options::default() });
    service.play("GET /readyz\nGET /healthcheck");
    ready.store(false, Ordering::Relaxed);
    service.play(
        "
        GET /readyz => 503
        HEAD /readyz => 503
        // As envoyproxy/ratelimit says it.
        GET /healthcheck => 500
        GET /healthz => 200
        POST /healthz => 405 & allow: GET,HEAD
        ",
    );
}
