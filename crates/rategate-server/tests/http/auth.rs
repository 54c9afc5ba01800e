//! `/v1/auth`, for the auth requests of proxies.

use rategate_server::protocol::http::{Options, Proxies};

use crate::http::common::{Service, plain, service};

fn behind_proxies() -> Service {
    let networks = vec!["10.0.0.0/8".parse().unwrap()];
    service(Options { proxies: Proxies::in_networks(networks), ..Options::default() })
}

#[test]
fn proxies_go_by_the_status() {
    let service = plain();
    service.play(
        "
        GET /v1/auth?rule=per_user&key=42&permits=3
            => 204 & ratelimit-policy: \"per_user\";q=60;w=60
        GET /v1/auth?rule=per_user&key=42&permits=3
            => 429 & retry-after: 3 & {retry-after-ms: 3000}
        // The methods are the client's.
        POST /v1/auth?rule=per_user&key=42 x => 429
        DELETE /v1/auth?rule=per_user&key=42 => 429
        HEAD /v1/auth?rule=per_user&key=42 => 429
        GET /v1/auth?rule=per_user&key=7&pass=200 => 200
        GET /v1/auth?rule=per_user&key=42&deny=403 => 403
        ",
    );
    assert!(service.get("/v1/auth?rule=per_user&key=1").body.is_empty());
}

#[test]
fn keys_come_from_the_url() {
    plain().play(
        "
        GET /v1/auth?rule=per_path&key=1&key=%2Fa%20b => 204 & ratelimit: \"per_path\";r=9;t=60
        GET /v1/auth?rule=per_path&key=1&key=/a+b => 204 & ratelimit: \"per_path\";r=8;t=60
        GET /v1/auth?rule=all&from=none => 204 & ratelimit: \"all\";r=4;t=60
        GET /v1/auth?limit=10/s&burst=5&key=x => 204 & ratelimit: \"limit\";r=4;t=1
        // A client's own fields cannot override the address.
        GET /v1/auth?rule=per_user&key=1 & x-rategate-rule: all & x-rategate-key: me
            => 204 & ratelimit: \"per_user\";r=2;t=1
        GET /v1/auth?rule=per_user&key=1 & x-rategate-permits: 0
            => 204 & ratelimit: \"per_user\";r=1;t=2
        // They apply where the address leaves it to them.
        GET /v1/auth & x-rategate-rule: per_user & x-rategate-key: 1
            => 204 & ratelimit: \"per_user\";r=0;t=3
        GET /v1/auth?rule=per_user&from=header & x-rategate-key: 5
            => 204 & ratelimit: \"per_user\";r=2;t=1
        GET /v1/auth?rule=per_user&from=header:x-api-key & x-api-key: 5
            => 204 & ratelimit: \"per_user\";r=1;t=2
        // Values and fields in the order of the rule's entries, so that a rule of several needs no
        // client input in the address.
        GET /v1/auth?rule=per_path&from=header:x-api-key&key=/a+b & x-api-key: 1
            => 204 & ratelimit: \"per_path\";r=7;t=60
        GET /v1/auth?rule=per_path&from=header:x-api-key&from=header:x-path & x-api-key: 1
            & x-path: /a b => 204 & ratelimit: \"per_path\";r=6;t=60
        // Text that would be a second parameter in the address is plain text in a field.
        GET /v1/auth?rule=per_user&from=header:x-api-key & x-api-key: 5&burst=1&permits=0&rule=all
            => 204 & ratelimit: \"per_user\";r=2;t=1
        GET /v1/auth?rule=per_user&from=header:x-api-key & x-api-key: 5&burst=1&permits=0&rule=all
            => 204 & ratelimit: \"per_user\";r=1;t=2
        // Clients without the field share a counter.
        GET /v1/auth?rule=per_user&from=header:x-api-key => 204 & ratelimit: \"per_user\";r=2;t=1
        GET /v1/auth?rule=per_user&from=header:x-other => 204 & ratelimit: \"per_user\";r=1;t=2
        // A burst larger than a window: then the burst, and the time until it has recovered.
        GET /v1/auth?limit=10/s&burst=25&key=x => 204 & ratelimit-policy: \"limit\";q=25;w=3
        // Clients receive nothing about shadow rules.
        GET /v1/auth?rule=shadow&key=1 => 204 & ratelimit:
        ",
    );
}

#[test]
fn without_a_key_it_is_the_client_s_address() {
    let service = behind_proxies();
    let long = "9".repeat(8192);
    for (peer, fields, left) in [
        // A trusted proxy is believed, along the chain of such proxies.
        ("10.0.0.1", vec!["6.6.6.6, 192.0.2.1"], "2"),
        ("10.0.0.2", vec!["7.7.7.7, 192.0.2.1, 10.0.0.9"], "1"),
        ("10.0.0.1", vec!["8.8.8.8", "192.0.2.1"], "0"),
        // Any other peer's fields are ignored.
        ("192.0.2.2", vec!["1.1.1.1"], "2"),
        ("192.0.2.2", vec!["2.2.2.2"], "1"),
        // IPv6 addresses count by their network.
        ("2001:db8:1:2::1", vec![], "2"),
        ("2001:db8:1:2::2", vec![], "1"),
        ("::ffff:192.0.2.2", vec![], "0"),
        // An overlong field is ignored: the proxy's clients count together.
        ("10.0.0.3", vec![&*long], "2"),
        ("10.0.0.3", vec!["unknown"], "1"),
    ] {
        let fields: Vec<_> = fields.iter().map(|it| ("x-forwarded-for", *it)).collect();
        let answer = service.clone().from(peer).call("GET", "/v1/auth?rule=per_user", &fields, "");
        let shown = answer.field("ratelimit");
        assert!(shown.contains(&format!(";r={left};")), "{peer}: {shown}");
    }
}

/// A proxy reserves by the id of its request, and what was used is committed later.
#[test]
fn proxies_reserve_by_the_id_of_a_request() {
    let held = "GET /v1/auth?rule=per_user&key=42&permits=3&ttl=30s&id=header:x-request-id & \
                x-request-id: $a";
    let story = format!(
        "
        {held} => 204
        {held} => 204
        GET /v1/auth?rule=per_user&key=42&permits=1&id=$1 => 429
        {{verb: commit, id: $a, items: [{{rule: per_user, key: '42', permits: 1}}]}}
            => [{{refunded: 2}}]
        {{verb: commit, id: $a, items: [{{rule: per_user, key: '42', permits: 1}}]}}
            => [{{refunded: 2}}]
        // It has ended.
        {held} => 429
        GET /v1/auth?rule=per_user&key=42&permits=1&id=$1 => 204
        "
    );
    plain().play(&story);
}

#[test]
fn invalid_auth_requests_are_problems() {
    let service = plain();
    for (query, pointer) in [
        ("", "?rule"),
        ("rule=per_user&rule=all&key=1", "?"),
        ("rule=per_user&user=1", "?"),
        ("rule=per_user&limit=1/s&key=1", "?rule"),
        ("rule=per_user&key=1&from=none", "?from"),
        ("rule=per_user&from=cookie", "?from"),
        ("rule=per_user&key=1&permits=-1", "?permits"),
        ("rule=per_user&key=1&permits=1.5", "?permits"),
        ("rule=per_user&key=1&permits=99999999999999999999", "?permits"),
        ("rule=per_user&key=1&deny=200", "?deny"),
        ("rule=per_user&key=1&pass=302", "?pass"),
        ("rule=%ff&key=1", "?rule"),
        ("limit=1/s&key=1&key=2", "?key"),
        ("rule=per_user&key=1&ttl=30s", "?ttl"),
        ("rule=per_user&key=1&id=7", "?id"),
        ("rule=per_user&key=1&id=header:x-absent", "?id"),
        ("rule=per_user&key=1&id=header:%20", "?id"),
        ("rule=per_user&key=1&ttl=3x&id=00000000000000000000000000000001", "?ttl"),
    ] {
        let uri = format!("/v1/auth?{query}");
        let (status, code, reported, detail) = service.get(uri.trim_end_matches('?')).problem();
        let seen = (status, &*code, &*reported);
        assert_eq!(seen, (400, "invalid_request", pointer), "{query}: {detail}");
    }
    service.play(
        "
        GET /v1/auth?rule=none&key=1 => 404 & {code: no_such_rule}
        // An extra value is refused, wherever it is.
        GET /v1/auth?rule=per_user&key=1&from=address => 400 & {code: invalid_values}
        GET /v1/auth & x-rategate-rule: all & x-rategate-rule: per_user => 400
        ",
    );
}
