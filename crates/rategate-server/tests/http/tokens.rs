//! Rights of clients, and readiness.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rategate_server::net::Access;
use rategate_server::protocol::http::Options;

use crate::http::common::{plain, service};

fn guarded() -> Options {
    Options { access: Access::token(b"s3cret"), ..Options::default() }
}

#[test]
fn changes_need_the_token_where_there_is_one() {
    let reset = r#"{"verb":"reset","rule":"all"}"#;
    let ask = r#"{"rule":"all"}"#;
    let service = service(guarded());
    let refused = service.post("/v1/check", reset);
    assert_eq!((refused.status.as_u16(), refused.field("www-authenticate")), (401, "Bearer"));
    assert_eq!(service.post("/v1/check", ask).status, 200);
    let with = |fields: &[(&str, &str)]| service.call("POST", "/v1/check", fields, reset).status;
    assert_eq!(with(&[("authorization", "Bearer s3cret")]), 200);
    assert_eq!(with(&[("authorization", "bearer  s3cret ")]), 200);
    for invalid in ["Bearer s3cre", "Bearer s3cret1", "Basic s3cret", "Bearer ", "s3cret", "Bearer"]
    {
        assert_eq!(with(&[("authorization", invalid)]), 401, "{invalid}");
    }
    let both = [("authorization", "Bearer s3cret"), ("authorization", "Bearer other")];
    assert_eq!(with(&both), 401);
    assert_eq!(plain().post("/v1/check", reset).status, 200);
}

#[test]
fn a_listener_can_require_the_token_of_all_calls() {
    let required = |options| {
        let mut service = service(options);
        service.caller.token_required = true;
        service
    };
    let service = required(guarded());
    let paths =
        [("POST", "/v1/check", r#"{"rule":"all"}"#), ("GET", "/v1/auth?rule=all&from=none", "")];
    for (method, path, body) in paths {
        assert_eq!(service.call(method, path, &[], body).problem().1, "token_needed", "{path}");
        let token = [("authorization", "Bearer s3cret")];
        assert!(service.call(method, path, &token, body).status.is_success(), "{path}");
        // If the server has no token, no client can present it.
        let shut = required(Options::default());
        assert_eq!(shut.call(method, path, &token, body).status, 401);
    }
    assert_eq!(service.get("/healthz").status, 200);
}

#[test]
fn readiness_is_what_the_server_says() {
    let ready = Arc::new(AtomicBool::new(true));
    let flag = Arc::clone(&ready);
    let is_ready = move || flag.load(Ordering::Relaxed);
    let service = service(Options { ready: Arc::new(is_ready), ..Options::default() });
    assert_eq!(service.get("/readyz").status, 200);
    assert_eq!(service.get("/healthcheck").status, 200);
    ready.store(false, Ordering::Relaxed);
    assert_eq!(service.get("/readyz").status, 503);
    assert_eq!(service.get("/healthcheck").status, 500, "as envoyproxy/ratelimit says it");
    assert_eq!(service.get("/healthz").status, 200);
    assert_eq!(service.call("POST", "/healthz", &[], "").field("allow"), "GET, HEAD");
    assert_eq!(service.call("HEAD", "/readyz", &[], "").status, 503);
}
