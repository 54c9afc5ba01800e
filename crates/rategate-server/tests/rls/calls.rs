//! Calls by a gRPC client.

use std::time::Duration;

use rategate_server::engine::EngineSettings;
use rategate_server::messages::descriptor::RateLimitDescriptor;
use rategate_server::messages::descriptor::rate_limit_descriptor::RateLimitOverride;
use rategate_server::messages::rls::rate_limit_response::DescriptorStatus;
use rategate_server::messages::rls::rate_limit_service_client as rls_client;
use rategate_server::messages::rls::{RateLimitRequest, RateLimitResponse};
use rategate_server::protocol::grpc::Settings;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::engine::common::SMALL;
use crate::rls::common::{Clock, Server, engine, engine_with, rules, runtime};
use crate::rls::unary::descriptor;

fn request(descriptors: &[RateLimitDescriptor]) -> RateLimitRequest {
    RateLimitRequest { domain: "edge".into(), descriptors: descriptors.to_vec(), hits_addend: 0 }
}

async fn channel(server: &Server) -> Channel {
    Endpoint::from_shared(format!("http://{}", server.address)).unwrap().connect().await.unwrap()
}

async fn client(server: &Server) -> rls_client::RateLimitServiceClient<Channel> {
    rls_client::RateLimitServiceClient::new(channel(server).await)
}

async fn ask(
    client: &mut rls_client::RateLimitServiceClient<Channel>,
    request: RateLimitRequest,
) -> Result<RateLimitResponse, Status> {
    client.should_rate_limit(request).await.map(tonic::Response::into_inner)
}

fn summary(status: &DescriptorStatus) -> (i32, Option<(String, u32, i32)>, u32, Option<i64>) {
    let limit = status.current_limit.clone();
    let limit = limit.map(|limit| (limit.name, limit.requests_per_unit, limit.unit));
    let reset = status.duration_until_reset.as_ref().map(|duration| duration.seconds);
    (status.code, limit, status.limit_remaining, reset)
}

#[expect(clippy::needless_pass_by_value, reason = "a closure, as each caller has it")]
fn served(test: impl AsyncFn(&Server, &Clock)) {
    let (engine, clock) = engine(rules());
    let server = Server::start(engine, Settings::default());
    runtime().block_on(test(&server, &clock));
}

/// As in Envoy's service: a limit without a name is returned without one, and names need not be
/// unique.
#[test]
fn limits_are_called_as_they_were_given() {
    let text = "domain: edge\ndescriptors:\n\
                - {key: a, rate_limit: {unit: hour, requests_per_unit: 5}}\n\
                - {key: b, rate_limit: {name: given, unit: hour, requests_per_unit: 5}}\n\
                - {key: c, rate_limit: {name: twice, unit: hour, requests_per_unit: 5}}\n\
                - {key: d, rate_limit: {name: twice, unit: hour, requests_per_unit: 5}}\n";
    let loaded = rategate_server::config::load_text("edge.yaml", text).unwrap();
    let own: Vec<_> = loaded.rules.rules.iter().map(|rule| rule.name.to_string()).collect();
    assert_eq!(own, ["edge.a", "edge.b", "edge.c", "edge.d"], "each has a name of its own besides");
    let expected = ["", "given", "twice", "twice"];
    let (engine, _) = engine(loaded.rules.rules.clone());
    let server = Server::start(engine, Settings::default());
    runtime().block_on(async {
        let client = &mut client(&server).await;
        let descriptors = ["a", "b", "c", "d"].map(|key| descriptor(&[(key, "x")]));
        let answer = ask(client, request(&descriptors)).await.unwrap();
        let limits = answer.statuses.into_iter().map(|status| status.current_limit.unwrap());
        assert_eq!(limits.map(|limit| limit.name).collect::<Vec<_>>(), expected);
    });
}

#[test]
fn statuses_are_those_of_the_descriptors_in_order() {
    served(async |server, _| {
        let client = &mut client(server).await;
        let descriptors = [
            descriptor(&[("remote_address", "10.0.0.1")]),
            descriptor(&[("unheard", "of")]),
            descriptor(&[("internal", "x")]),
        ];
        let answer = ask(client, request(&descriptors)).await.unwrap();
        assert_eq!(answer.overall_code, 1);
        let summary: Vec<_> = answer.statuses.iter().map(summary).collect();
        let limit = Some(("address".to_owned(), 10, 2));
        let expected = [(1, limit, 9, Some(50)), (1, None, 0, None), (1, None, u32::MAX, None)];
        // 1 700 000 050 s are 10 s past the beginning of a minute.
        assert_eq!(summary, expected);
    });
}

#[test]
fn a_denial_takes_from_no_descriptor() {
    served(async |server, _| {
        let client = &mut client(server).await;
        let descriptors = [
            descriptor(&[("remote_address", "10.0.0.1")]),
            descriptor(&[("remote_address", "50.0.0.5")]),
        ];
        for _ in 0..3 {
            let answer = ask(client, request(&descriptors)).await.unwrap();
            assert_eq!(answer.overall_code, 2);
            let summary: Vec<_> = answer.statuses.iter().map(summary).collect();
            assert_eq!(summary[0].0, 1);
            assert_eq!(summary[0].2, 10);
            assert_eq!(summary[1], (2, Some(("blocked".into(), 0, 2)), 0, Some(0)));
        }
    });
}

#[test]
fn hits_are_the_requests_or_the_descriptors_own() {
    served(async |server, clock| {
        let client = &mut client(server).await;
        let mut own = descriptor(&[("remote_address", "own")]);
        let own_hits = |hits| Some(hits);
        let remaining = |answer: &RateLimitResponse| answer.statuses[0].limit_remaining;
        let limit_request = request(&[own.clone()]);
        assert_eq!(remaining(&ask(client, limit_request.clone()).await.unwrap()), 9);
        let two = RateLimitRequest { hits_addend: 2, ..limit_request.clone() };
        assert_eq!(remaining(&ask(client, two).await.unwrap()), 7);
        own.hits_addend = own_hits(3);
        let three = RateLimitRequest { hits_addend: 2, ..request(&[own.clone()]) };
        assert_eq!(remaining(&ask(client, three).await.unwrap()), 4);
        own.hits_addend = own_hits(0);
        for _ in 0..2 {
            let peek = RateLimitRequest { hits_addend: 2, ..request(&[own.clone()]) };
            assert_eq!(remaining(&ask(client, peek).await.unwrap()), 4);
        }
        (own.hits_addend, own.is_negative_hits) = (own_hits(2), true);
        assert_eq!(remaining(&ask(client, request(&[own.clone()])).await.unwrap()), 6);
        own.hits_addend = None;
        assert_eq!(remaining(&ask(client, request(&[own.clone()])).await.unwrap()), 7);
        // More than the limit: nothing, and time cannot help.
        (own.hits_addend, own.is_negative_hits) = (own_hits(11), false);
        let answer = ask(client, request(&[own])).await.unwrap();
        assert_eq!((answer.overall_code, remaining(&answer)), (2, 7));
        clock.advance(Duration::from_secs(50));
        assert_eq!(remaining(&ask(client, limit_request).await.unwrap()), 9);
    });
}

#[test]
fn a_limit_that_comes_along_is_used_instead() {
    served(async |server, _| {
        let client = &mut client(server).await;
        let mut own = descriptor(&[("remote_address", "10.0.0.1")]);
        own.limit = Some(RateLimitOverride { requests_per_unit: 2, unit: 3 });
        for (code, remaining) in [(1, 1), (1, 0), (2, 0)] {
            let answer = ask(client, request(&[own.clone()])).await.unwrap();
            assert_eq!(answer.overall_code, code);
            let summary = summary(&answer.statuses[0]);
            assert_eq!(
                (summary.0, summary.1, summary.2),
                (code, Some((String::new(), 2, 3)), remaining)
            );
        }
        let mut foreign = request(&[own.clone()]);
        foreign.domain = "elsewhere".into();
        let answer = ask(client, foreign).await.unwrap();
        assert_eq!((answer.overall_code, summary(&answer.statuses[0])), (1, (1, None, 0, None)));
        own.limit = Some(RateLimitOverride { requests_per_unit: 2, unit: 0 });
        let error = ask(client, request(&[own])).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
    });
}

#[test]
fn shadows_quotas_and_stand_ins() {
    served(async |server, _| {
        let client = &mut client(server).await;
        let shadow = request(&[descriptor(&[("shadow", "x")])]);
        for remaining in [0, 0, 0] {
            let answer = ask(client, shadow.clone()).await.unwrap();
            assert_eq!((answer.overall_code, answer.statuses[0].code), (1, 1));
            assert_eq!(answer.statuses[0].limit_remaining, remaining);
        }
        let quotas = request(&[descriptor(&[("quota", "a")]), descriptor(&[("quota", "b")])]);
        for (overall, a, b) in [(1, 1, 1), (1, 2, 1), (2, 2, 2)] {
            let answer = ask(client, quotas.clone()).await.unwrap();
            let codes: Vec<_> = answer.statuses.iter().map(|status| status.code).collect();
            assert_eq!((answer.overall_code, codes), (overall, vec![a, b]));
        }
        let address = descriptor(&[("remote_address", "10.0.0.9")]);
        let both = request(&[address.clone(), descriptor(&[("plan", "paid")])]);
        let answer = ask(client, both).await.unwrap();
        assert_eq!(summary(&answer.statuses[0]), (1, None, 0, None));
        assert_eq!(answer.statuses[1].limit_remaining, 49);
        let answer = ask(client, request(&[address])).await.unwrap();
        assert_eq!(answer.statuses[0].limit_remaining, 9);
    });
}

#[test]
fn the_same_descriptor_twice_counts_twice() {
    served(async |server, _| {
        let client = &mut client(server).await;
        let same = descriptor(&[("remote_address", "10.0.0.1")]);
        let answer = ask(client, request(&[same.clone(), same])).await.unwrap();
        let remaining: Vec<_> =
            answer.statuses.iter().map(|status| status.limit_remaining).collect();
        assert_eq!((answer.overall_code, remaining), (1, vec![8, 8]));
    });
}

#[test]
fn composite_keys_never_meet() {
    served(async |server, _| {
        let client = &mut client(server).await;
        for (a, b) in [("x", "yz"), ("xy", "z"), ("", "xyz"), ("xyz", ""), ("x\u{0}", "y")] {
            let answer = ask(client, request(&[descriptor(&[("a", a), ("b", b)])])).await.unwrap();
            assert_eq!(answer.statuses[0].limit_remaining, 2, "{a:?} {b:?}");
        }
    });
}

#[test]
fn requests_that_cannot_be_decided_are_errors_with_a_reason() {
    let (empty, _) = engine(Vec::new());
    let server = Server::start(empty, Settings::default());
    runtime().block_on(async {
        let client = &mut client(&server).await;
        let mut limit_request = request(&[descriptor(&[("remote_address", "10.0.0.1")])]);
        let error = ask(client, limit_request.clone()).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable);
        assert_eq!(error.message(), "no rate limit configuration loaded");
        let mut own = limit_request.clone();
        own.descriptors[0].limit = Some(RateLimitOverride { requests_per_unit: 2, unit: 3 });
        let error = ask(client, own).await.unwrap_err();
        assert_eq!(error.message(), "no rate limit configuration loaded");
        let none = ask(client, request(&[])).await.unwrap_err();
        assert_eq!(none.code(), Code::InvalidArgument);
        assert_eq!(none.message(), "rate limit descriptor list must not be empty");
        limit_request.domain.clear();
        let none = ask(client, limit_request).await.unwrap_err();
        assert_eq!(none.code(), Code::InvalidArgument);
        assert_eq!(none.message(), "rate limit domain must not be empty");
        let mut unit = request(&[descriptor(&[("a", "b")])]);
        let none = RateLimitOverride { requests_per_unit: 2, unit: 0 };
        unit.descriptors[0].limit = Some(none);
        let error = ask(client, unit).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
    });
}

#[test]
fn what_is_denied_counts_if_it_shall() {
    let settings = EngineSettings { count_denied: true, ..SMALL };
    let (engine, _) = engine_with(rules(), settings);
    let server = Server::start(engine, Settings::default());
    runtime().block_on(async {
        let client = &mut client(&server).await;
        let descriptors = [
            descriptor(&[("remote_address", "10.0.0.1")]),
            descriptor(&[("remote_address", "50.0.0.5")]),
        ];
        for remaining in [9, 8] {
            let answer = ask(client, request(&descriptors)).await.unwrap();
            assert_eq!(answer.overall_code, 2);
            assert_eq!(answer.statuses[0].limit_remaining, remaining);
        }
    });
}

#[test]
fn header_fields_are_written_where_configured() {
    let (engine, _) = engine(rules());
    let mut settings = Settings::default();
    settings.options.headers = Some(std::sync::Arc::default());
    let server = Server::start(engine, settings);
    runtime().block_on(async {
        let descriptors =
            [descriptor(&[("a", "1"), ("b", "2")]), descriptor(&[("remote_address", "x")])];
        let answer = ask(&mut client(&server).await, request(&descriptors)).await.unwrap();
        let fields = answer.response_headers_to_add.iter();
        let fields: Vec<_> = fields.map(|f| (f.key.as_str(), f.value.as_str())).collect();
        let expected =
            [("RateLimit-Limit", "3"), ("RateLimit-Remaining", "2"), ("RateLimit-Reset", "50")];
        assert_eq!(fields, expected);
    });
}

#[test]
fn many_connections_get_exactly_the_limit() {
    let (engine, _) = engine(vec![rule_of_100()]);
    let server = Server::start(engine, Settings::default());
    let allowed = runtime().block_on(async {
        let mut tasks = Vec::new();
        for _ in 0..64 {
            let mut client = client(&server).await;
            tasks.push(tokio::spawn(async move {
                let mut allowed = 0;
                for _ in 0..8 {
                    let limit_request = request(&[descriptor(&[("all", "one")])]);
                    allowed +=
                        u32::from(ask(&mut client, limit_request).await.unwrap().overall_code == 1);
                }
                allowed
            }));
        }
        let mut allowed = 0;
        for task in tasks {
            allowed += task.await.unwrap();
        }
        allowed
    });
    assert_eq!(allowed, 100);
}

fn rule_of_100() -> rategate_server::rule::Rule {
    crate::rls::common::rule("hundred", &[("all", "")], 100)
}

#[test]
fn health_follows() {
    let (engine, _) = engine(rules());
    let server = Server::start(engine, Settings::default());
    runtime().block_on(async {
        let mut client = HealthClient::new(channel(&server).await);
        let of = |service: &str| HealthCheckRequest { service: service.into() };
        let service = "envoy.service.ratelimit.v3.RateLimitService";
        for known in ["", service] {
            assert_eq!(client.check(of(known)).await.unwrap().into_inner().status, 1);
        }
        let unknown = client.check(of("unheard.of")).await.unwrap_err();
        assert_eq!(unknown.code(), Code::NotFound);
        let mut watched = client.watch(of(service)).await.unwrap().into_inner();
        assert_eq!(watched.message().await.unwrap().unwrap().status, 1);
        let unheard = client.watch(of("unheard.of")).await.unwrap_err();
        assert_eq!(unheard.code(), Code::NotFound);
        server.health.set(false).await;
        assert_eq!(watched.message().await.unwrap().unwrap().status, 2);
        assert_eq!(client.check(of("")).await.unwrap().into_inner().status, 2);
        server.health.set(true).await;
        assert_eq!(watched.message().await.unwrap().unwrap().status, 1);
    });
}

/// Those who watch hear of it, and their calls end, so that the drain ends.
#[test]
fn the_end_of_a_service_ends_those_who_watch() {
    served(async |server, _| {
        let mut health = HealthClient::new(channel(server).await);
        let request = HealthCheckRequest { service: String::new() };
        let mut watched = health.watch(request).await.unwrap().into_inner();
        assert_eq!(watched.message().await.unwrap().unwrap().status, 1);
        server.health.end().await;
        server.drain();
        assert_eq!(watched.message().await.unwrap().unwrap().status, 2);
        let next = tokio::time::timeout(Duration::from_secs(5), watched.message());
        assert_eq!(next.await.expect("an end").unwrap(), None);
    });
}

#[test]
fn calls_show_the_token_where_it_is_required() {
    let (engine, _) = engine(rules());
    let server = Server::guarded(engine, Settings::default(), Some(b"secret"));
    runtime().block_on(async {
        let client = &mut client(&server).await;
        for (token, code) in [
            (None, Code::Unauthenticated),
            (Some("Bearer wrong"), Code::Unauthenticated),
            (Some("Bearer secret"), Code::Ok),
        ] {
            let mut limit_request = tonic::Request::new(request(&[descriptor(&[("a", "b")])]));
            if let Some(token) = token {
                limit_request.metadata_mut().insert("authorization", token.parse().unwrap());
            }
            let answer = client.should_rate_limit(limit_request).await;
            assert_eq!(answer.map_or_else(|error| error.code(), |_| Code::Ok), code);
        }
        let mut health = HealthClient::new(channel(&server).await);
        let request = HealthCheckRequest { service: String::new() };
        assert_eq!(health.check(request).await.unwrap().into_inner().status, 1);
    });
}
