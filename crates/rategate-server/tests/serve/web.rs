//! Settings of the service and their effects over HTTP.

use crate::lines::Asked;
use crate::serve::clients::Service;

const RULES: &str = "[[rule]]\nname = \"api\"\nmatch = [\"user\"]\n\
                     limit = { permits = 2, unit = \"minute\" }\n[[rule]]\nname = \"quiet\"\n\
                     match = [\"quiet\"]\nenforce = \"shadow\"\n\
                     limit = { permits = 1, unit = \"minute\" }\n";

/// A proxy may pass on its client's content type. A call of gRPC is recognized by its path too.
#[test]
fn a_content_type_takes_no_request_away_from_the_api() {
    Service::of(RULES).play(
        "
        GET /v1/auth?rule=api&key=ann & content-type: application/grpc => 204
        POST /v1/auth?rule=api&key=ann & content-type: application/grpcx => 204
        POST /v1/auth?rule=api&key=ann & content-type: application/grpc => 429
        POST /grpc.health.v1.Health/Nonsense & content-type: application/grpc => grpc-status: 12
        ",
    );
}

#[test]
fn fields_are_those_that_the_settings_name() {
    let name = "n".repeat(128);
    let rule = format!("[[rule]]\nname = \"{name}\"\nlimit = \"5/s\"\n{RULES}");
    Service::of(&format!("[http]\nheaders = [\"ietf\"]\n{rule}")).play(&format!(
        "
        GET /v1/auth?rule=api&key=ann => 204 & ratelimit: \"api\";r=1;t=30
            & ratelimit-policy: \"api\";q=2;w=60 & x-ratelimit-limit:
        // A rule is called as it is called.
        GET /v1/auth?rule={name}&from=none => 204 & ratelimit: \"{name}\";r=4;t=1
        "
    ));
    Service::of(&format!("[http]\nheaders = [\"x-ratelimit\"]\n{RULES}")).play(
        "GET /v1/auth?rule=api&key=ann => 204 & x-ratelimit-limit: 2 & x-ratelimit-remaining: 1
            & ratelimit:",
    );
}

#[test]
fn proxies_that_are_trusted_say_who_the_client_is() {
    let ask = "GET /v1/auth?rule=api & x-forwarded-for: 10.0.0.";
    // No proxy is trusted by default.
    Service::of(RULES).play(&format!("{ask}1 => 204\n{ask}2 => 204\n{ask}3 => 429"));
    let trusted = "[http]\ntrusted_proxies = [\"127.0.0.0/8\", \"::1\"]\n";
    Service::of(&format!("{trusted}{RULES}"))
        .play(&format!("{ask}1 => 204\n{ask}2 => 204\n{ask}1 => 204\n{ask}1 => 429"));
}

#[test]
fn envoys_answers_carry_fields_if_configured() {
    let ask = "POST /json {domain: default, descriptors: [{entries: [{key: quiet, value: x}]},
        .. {entries: [{key: user, value: ann}]}]}";
    Service::of(RULES).play(&format!("{ask} => {{responseHeadersToAdd: null}}"));
    // Of the enforced rule, though the other is nearer to its limit.
    Service::of(&format!("[grpc]\nheaders = true\n{RULES}")).play(&format!(
        "{ask} => {{responseHeadersToAdd: [{{key: RateLimit-Limit, value: '2'}},
            .. {{key: RateLimit-Remaining, value: '1'}}, {{key: RateLimit-Reset}}]}}"
    ));
}

#[test]
fn every_path_that_the_service_tells_of_is_there() {
    let service = Service::of(RULES);
    let (_, document) = service.http().get("/openapi.json");
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    let paths = document["paths"].as_object().unwrap();
    for (path, operations) in paths {
        // The stream of events never ends.
        for (method, operation) in
            operations.as_object().unwrap().iter().filter(|_| path != "/v1/events")
        {
            let example =
                &operation["requestBody"]["content"]["application/json"]["examples"]["one"];
            let body = if example.is_null() { String::new() } else { example["value"].to_string() };
            let path = path.replace("{rule}", "api").replace("{key}", "ann");
            let (uri, method) = (format!("{path}?rule=api"), method.to_uppercase());
            let answer = service.send(&Asked { method, uri, fields: Vec::new(), body });
            let (status, text) = (answer.status, answer.text());
            let is_there = !text.contains("no_such_path") && !text.contains("nothing here");
            assert!(is_there && status != 405, "{path}: {answer:?}");
        }
    }
    let those_of_the_admin =
        "/v1/rules /v1/top /v1/config /v1/explain /v1/events /metrics /json /v1/keys/{rule}/{key}";
    for path in those_of_the_admin.split(' ') {
        assert!(paths.contains_key(path), "{path}");
    }
    assert_eq!(paths.contains_key("/v1/simulate"), cfg!(feature = "dashboard"));
}

/// As over gRPC: an overlong request is denied, since callers admit requests on errors.
#[test]
fn an_envoy_request_that_is_too_long_is_denied_as_json_too() {
    let service = Service::of("[server.limits]\nbody = 2000\n");
    let (long, many) = ("x".repeat(3_000), vec!["{}"; 65].join(","));
    service.play(&format!(
        "
        POST /json {{domain: d, descriptors: [{{entries: [{{key: k, value: {long}}}]}}]}}
            => 429 & {{overallCode: OVER_LIMIT, statuses: []}}
        POST /json {{domain: d, descriptors: [{many}]}}
            => 429 & {{overallCode: OVER_LIMIT, statuses: []}}
        rategate_calls_refused_total{{protocol=\"http\",reason=\"too_long\"}} => 2
        "
    ));
}
