//! `/v1/auth`, for the auth requests of proxies.

use rategate_server::protocol::http::{Options, Proxies};
use rategate_tower::headers::Dialect;

use crate::http::common::{Service, plain, service};

fn behind_proxies() -> Service {
    let networks = vec!["10.0.0.0/8".parse().unwrap()];
    service(Options { proxies: Proxies::in_networks(networks), ..Options::default() })
}

#[test]
fn proxies_go_by_the_status() {
    let service = plain();
    let ask = || service.get("/v1/auth?rule=per_user&key=42&permits=3");
    let passes = ask();
    assert_eq!((passes.status.as_u16(), passes.body.len()), (204, 0));
    assert_eq!(passes.field("ratelimit-policy"), r#""per_user";q=60;w=60"#);
    let denied = ask();
    assert_eq!((denied.status.as_u16(), denied.field("retry-after")), (429, "3"));
    assert_eq!(denied.json()["retry-after-ms"], 3000);
    // The methods are the client's.
    for method in ["POST", "DELETE", "HEAD"] {
        assert_eq!(service.call(method, "/v1/auth?rule=per_user&key=42", &[], "x").status, 429);
    }
    assert_eq!(service.get("/v1/auth?rule=per_user&key=7&pass=200").status, 200);
    assert_eq!(service.get("/v1/auth?rule=per_user&key=42&deny=403").status, 403);
}

#[test]
fn keys_come_from_the_url() {
    let service = plain();
    let left = |uri: &str, fields: &[(&str, &str)]| {
        let answer = service.call("GET", uri, fields, "");
        let reported = answer.field("ratelimit").split([';', '=']).nth(2).map(str::to_owned);
        reported.unwrap_or_else(|| format!("{answer:?}"))
    };
    assert_eq!(left("/v1/auth?rule=per_path&key=1&key=%2Fa%20b", &[]), "9");
    assert_eq!(left("/v1/auth?rule=per_path&key=1&key=/a+b", &[]), "8");
    assert_eq!(left("/v1/auth?rule=all&from=none", &[]), "4");
    assert_eq!(left("/v1/auth?limit=10/s&burst=5&key=x", &[]), "4");
    // A client's own fields cannot override the address.
    let own = [("x-rategate-rule", "all"), ("x-rategate-key", "me"), ("x-rategate-permits", "0")];
    assert_eq!(left("/v1/auth?rule=per_user&key=1", &own), "2");
    assert_eq!(left("/v1/auth?rule=per_user&key=1", &[]), "1");
    // They apply where the address leaves it to them.
    let field = [("x-rategate-rule", "per_user"), ("x-rategate-key", "1")];
    assert_eq!(left("/v1/auth", &field), "0");
    assert_eq!(left("/v1/auth?rule=per_user&from=header", &[("x-rategate-key", "5")]), "2");
    assert_eq!(left("/v1/auth?rule=per_user&from=header:x-api-key", &[("x-api-key", "5")]), "1");
    // Values and fields in the order of the rule's entries, so that a rule of several needs no
    // client input in the address.
    let fields = [("x-api-key", "1")];
    assert_eq!(left("/v1/auth?rule=per_path&from=header:x-api-key&key=/a+b", &fields), "7");
    let fields = [("x-api-key", "1"), ("x-path", "/a b")];
    let both = "/v1/auth?rule=per_path&from=header:x-api-key&from=header:x-path";
    assert_eq!(left(both, &fields), "6");
    // Text that would be a second parameter in the address is plain text in a field.
    let hostile = [("x-api-key", "5&burst=1&permits=0&rule=all")];
    assert_eq!(left("/v1/auth?rule=per_user&from=header:x-api-key", &hostile), "2");
    assert_eq!(left("/v1/auth?rule=per_user&from=header:x-api-key", &hostile), "1");
    // Clients without the field share a counter.
    assert_eq!(left("/v1/auth?rule=per_user&from=header:x-api-key", &[]), "2");
    assert_eq!(left("/v1/auth?rule=per_user&from=header:x-other", &[]), "1");
}

#[test]
fn without_a_key_it_is_the_client_s_address() {
    let left = |peer: &str, fields: &[(&str, &str)], service: &Service| {
        let service = service.clone().from(peer);
        let uri = "/v1/auth?rule=per_user";
        let answer = service.call("GET", uri, fields, "");
        answer.field("ratelimit").split([';', '=']).nth(2).unwrap().to_owned()
    };
    let service = behind_proxies();
    // A trusted proxy is believed, along the chain of such proxies.
    assert_eq!(left("10.0.0.1", &[("x-forwarded-for", "6.6.6.6, 192.0.2.1")], &service), "2");
    assert_eq!(
        left("10.0.0.2", &[("x-forwarded-for", "7.7.7.7, 192.0.2.1, 10.0.0.9")], &service),
        "1"
    );
    let lines = [("x-forwarded-for", "8.8.8.8"), ("x-forwarded-for", "192.0.2.1")];
    assert_eq!(left("10.0.0.1", &lines, &service), "0");
    // Any other peer's fields are ignored.
    assert_eq!(left("192.0.2.2", &[("x-forwarded-for", "1.1.1.1")], &service), "2");
    assert_eq!(left("192.0.2.2", &[("x-forwarded-for", "2.2.2.2")], &service), "1");
    // IPv6 addresses count by their network.
    assert_eq!(left("2001:db8:1:2::1", &[], &service), "2");
    assert_eq!(left("2001:db8:1:2::2", &[], &service), "1");
    assert_eq!(left("::ffff:192.0.2.2", &[], &service), "0");
    // An overlong field is ignored: the proxy's clients count together.
    let long = "9".repeat(8192);
    assert_eq!(left("10.0.0.3", &[("x-forwarded-for", &long)], &service), "2");
    assert_eq!(left("10.0.0.3", &[("x-forwarded-for", "unknown")], &service), "1");
    // Without trusted proxies no peer is believed.
    let plain = plain();
    assert_eq!(left("10.0.0.1", &[("x-forwarded-for", "192.0.2.1")], &plain), "2");
    assert_eq!(left("10.0.0.1", &[("x-forwarded-for", "192.0.2.3")], &plain), "1");
}

/// A proxy reserves by the id of its request, and what was used is committed later.
#[test]
fn proxies_reserve_by_the_id_of_a_request() {
    let service = plain();
    let id = "5f0c1d3e9a7b48268c1f2e3d4a5b6c7d";
    let fields = [("x-request-id", id)];
    let uri = "/v1/auth?rule=per_user&key=42&permits=3&ttl=30s&id=header:x-request-id";
    for _ in 0..3 {
        assert_eq!(service.call("GET", uri, &fields, "").status, 204, "held once");
    }
    let other = "/v1/auth?rule=per_user&key=42&permits=1&id=00000000000000000000000000000001";
    assert_eq!(service.get(other).status, 429);
    let commit = format!(
        r#"{{"verb":"commit","id":"{id}","items":[{{"rule":"per_user","key":"42","permits":1}}]}}"#
    );
    for _ in 0..2 {
        let settled = service.check(&commit);
        assert_eq!(settled["items"][0]["refunded"], 2, "{settled}");
    }
    assert_eq!(service.call("GET", uri, &fields, "").status, 429, "it has ended");
    assert_eq!(service.get(other).status, 204);
}

#[test]
fn invalid_auth_requests_are_problems() {
    let service = plain();
    let table = [
        ("/v1/auth", "?rule"),
        ("/v1/auth?rule=per_user&rule=all&key=1", "?"),
        ("/v1/auth?rule=per_user&user=1", "?"),
        ("/v1/auth?rule=per_user&limit=1/s&key=1", "?rule"),
        ("/v1/auth?rule=per_user&key=1&from=none", "?from"),
        ("/v1/auth?rule=per_user&from=cookie", "?from"),
        ("/v1/auth?rule=per_user&key=1&permits=-1", "?permits"),
        ("/v1/auth?rule=per_user&key=1&permits=1.5", "?permits"),
        ("/v1/auth?rule=per_user&key=1&permits=99999999999999999999", "?permits"),
        ("/v1/auth?rule=per_user&key=1&deny=200", "?deny"),
        ("/v1/auth?rule=per_user&key=1&pass=302", "?pass"),
        ("/v1/auth?rule=%ff&key=1", "?rule"),
        ("/v1/auth?limit=1/s&key=1&key=2", "?key"),
        ("/v1/auth?rule=per_user&key=1&ttl=30s", "?ttl"),
        ("/v1/auth?rule=per_user&key=1&id=7", "?id"),
        ("/v1/auth?rule=per_user&key=1&id=header:x-absent", "?id"),
        ("/v1/auth?rule=per_user&key=1&id=header:%20", "?id"),
        ("/v1/auth?rule=per_user&key=1&ttl=3x&id=00000000000000000000000000000001", "?ttl"),
    ];
    for (uri, pointer) in table {
        let (status, code, reported_pointer, reported) = service.get(uri).problem();
        assert_eq!(
            (status, &*code, &*reported_pointer),
            (400, "invalid_request", pointer),
            "{uri}: {reported}"
        );
    }
    assert_eq!(service.get("/v1/auth?rule=none&key=1").problem().1, "no_such_rule");
    // An extra value is refused, wherever it is.
    let several = service.get("/v1/auth?rule=per_user&key=1&from=address").problem();
    assert_eq!((several.0, &*several.1), (400, "invalid_values"));
    let twice = [("x-rategate-rule", "all"), ("x-rategate-rule", "per_user")];
    assert_eq!(service.call("GET", "/v1/auth", &twice, "").status, 400);
}

#[test]
fn fields_in_the_configured_dialects() {
    let fields = |dialects: &[Dialect]| {
        let service = service(Options { fields: dialects.to_vec(), ..Options::default() });
        let answer = service.get("/v1/auth?rule=per_user&key=1");
        let mut lines: Vec<String> = answer
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        lines
    };
    assert!(fields(&[]).is_empty());
    assert_eq!(
        fields(&[Dialect::Current]),
        [r#"ratelimit-policy: "per_user";q=60;w=60"#, r#"ratelimit: "per_user";r=2;t=1"#]
    );
    assert_eq!(
        fields(&[Dialect::Legacy]),
        ["x-ratelimit-limit: 60", "x-ratelimit-remaining: 2", "x-ratelimit-reset: 1"]
    );
    // A burst larger than a window: then the burst, and the time until it has recovered.
    let service = plain();
    let burst = service.get("/v1/auth?limit=10/s&burst=25&key=x");
    assert_eq!(burst.field("ratelimit-policy"), r#""limit";q=25;w=3"#);
    // Clients receive nothing about shadow rules.
    assert_eq!(service.get("/v1/auth?rule=shadow&key=1").field("ratelimit"), "");
}
