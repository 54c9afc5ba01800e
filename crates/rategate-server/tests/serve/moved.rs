//! Rows of the guide about moving from envoyproxy/ratelimit that need a whole service to verify.

use crate::serve::clients::Service;

const RULE: &str = "[[rule]]\nname = \"api\"\nmatch = [\"user\"]\n\
                    limit = { permits = 20, unit = \"year\" }\nalgorithm = \"counted-window\"\n";

/// Calls that leave less than a tenth are near the limit; denied ones are not.
#[test]
fn calls_near_the_limit_are_counted() {
    let service = Service::of(RULE);
    let ask = "{\"domain\":\"default\",\"descriptors\":[{\"entries\":[\
                {\"key\":\"user\",\"value\":\"ann\"}]}]}";
    let near = || service.metric("rategate_near_limit_total{rule=\"api\"}").unwrap();
    for _ in 0..18 {
        assert_eq!(service.http().post("/json", ask).0, 200);
    }
    assert_eq!(near(), "0", "two of twenty are left");
    for status in [200, 200, 429] {
        assert_eq!(service.http().post("/json", ask).0, status);
    }
    assert_eq!(near(), "2");
}

/// There is no debug port: everything is at the HTTP port.
#[test]
fn there_is_no_debug_port() {
    let service = Service::of(RULE);
    assert_eq!(service.protocols(), ["grpc", "http", "resp"]);
    for path in ["/rlconfig", "/debug/pprof/", "/stats"] {
        assert_eq!(service.http().get(path).0, 404, "{path}");
    }
    assert_eq!(service.http().get("/metrics").0, 200);
}
