//! Calls of rules that take all or nothing, and what is about calls over gRPC alone.

use std::sync::Arc;
use std::time::Duration;

use rategate_server::engine::EngineSettings;
use rategate_server::messages::descriptor::RateLimitDescriptor;
use rategate_server::messages::descriptor::rate_limit_descriptor::RateLimitOverride;
use rategate_server::protocol::grpc::Settings;
use rategate_server::protocol::rls::Options;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::engine::common::SMALL;
use crate::rls::common::{Server, engine, rules};
use crate::rls::told::Told;
use crate::serve::clients::{Rls, descriptor};

#[test]
fn descriptors_are_decided_together_and_answered_in_order() {
    let told = || Told::of(&rules(), SMALL, &Options::default());
    told().play(
        "
        // 1 700 000 050 s are 10 s past the beginning of a minute.
        remote_address=10.0.0.1 unheard=of internal=x => ok 9 - max; limits address=10/minute - -
        remote_address=10.0.0.1 => ok 8; resets 50
        // A denial takes from no descriptor.
        remote_address=10.0.0.1 remote_address=50.0.0.5 => over 8 !0; limits address=10/minute blocked=0/minute
        remote_address=10.0.0.1 remote_address=50.0.0.5 => over 8 !0; resets 50 0
        remote_address=10.0.0.1 => ok 7
        // The same descriptor twice counts twice.
        remote_address=twice remote_address=twice => ok 8 8
        // Composite keys never meet.
        a=x,b=yz => ok 2
        a=xy,b=z => ok 2
        a=,b=xyz => ok 2
        a=xyz,b= => ok 2
        ",
    );
    told().play(
        "
        // Hits are the request's or the descriptor's own.
        remote_address=own => ok 9
        remote_address=own *2 => ok 7
        remote_address=own:3 *2 => ok 4
        remote_address=own:0 *2 => ok 4
        remote_address=own:0 => ok 4
        -remote_address=own:2 => ok 6
        -remote_address=own => ok 7
        // More than the limit: nothing, and time cannot help.
        remote_address=own:11 => over !7
        // Half a second past a whole one 49.5 s are left: a reset is never too early.
        pass 500ms
        remote_address=z => ok 9; resets 50
        pass 49
        remote_address=own => ok 6; resets 1
        pass 1
        remote_address=own => ok 9
        // A limit that comes along is used instead, in a domain that has rules.
        remote_address=x@2/hour => ok 1; limits =2/hour
        remote_address=x@2/hour => ok 0; limits =2/hour
        remote_address=x@2/hour => over !0; limits =2/hour
        elsewhere> remote_address=x@2/hour => ok -
        ",
    );
    told().play(
        "
        shadow=x => ok 0
        shadow=x => ok 0
        quota=a quota=b => ok 0 1
        quota=a quota=b => ok !0 0
        quota=a quota=b => over !0 !0
        remote_address=10.0.0.9 plan=paid => ok - 49
        remote_address=10.0.0.9 => ok 9
        ",
    );
    let counts = EngineSettings { count_denied: true, ..SMALL };
    Told::of(&rules(), counts, &Options::default()).play(
        "
        remote_address=10.0.0.1 remote_address=50.0.0.5 => over 9 !0
        remote_address=10.0.0.1 remote_address=50.0.0.5 => over 8 !0
        ",
    );
    let fields = Options { headers: Some(Arc::default()), ..Options::default() };
    Told::of(&rules(), SMALL, &fields).play(
        "a=1,b=2 remote_address=x => ok 2 9; fields RateLimit-Limit=3 RateLimit-Remaining=2 RateLimit-Reset=50",
    );
}

/// As in Envoy's service: a limit without a name is returned without one, and names need not be
/// unique.
#[test]
fn limits_are_called_as_they_were_given() {
    let descriptors = "{key: a, rate_limit: {unit: hour, requests_per_unit: 5}}, \
                       {key: b, rate_limit: {name: given, unit: hour, requests_per_unit: 5}}, \
                       {key: c, rate_limit: {name: twice, unit: hour, requests_per_unit: 5}}, \
                       {key: d, rate_limit: {name: twice, unit: hour, requests_per_unit: 5}}";
    let told = Told::with(descriptors, &Options::default());
    told.play(
        "a=x b=x c=x d=x => ok 4 4 4 4; limits =5/hour given=5/hour twice=5/hour twice=5/hour",
    );
    let rules = told.engines[0].0.rules().unwrap();
    let own: Vec<_> = rules.rules.iter().map(|rule| &*rule.name).collect();
    assert_eq!(own, ["d.a", "d.b", "d.c", "d.d"], "each has a name of its own besides");
}

#[test]
fn requests_that_cannot_be_decided_are_errors_with_a_reason() {
    let (empty, _) = engine(Vec::new());
    let server = Server::start(empty, Settings::default());
    let rls = Rls::at(&server.address.to_string());
    let of = |unit| RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit: 2, unit }),
        ..descriptor(&[("a", "b")])
    };
    let none = "no rate limit configuration loaded";
    let (list, domain) =
        ("rate limit descriptor list must not be empty", "rate limit domain must not be empty");
    for (called, descriptors, code, message) in [
        ("edge", vec![descriptor(&[("a", "b")])], Code::Unavailable, none),
        ("edge", vec![of(3)], Code::Unavailable, none),
        ("edge", vec![], Code::InvalidArgument, list),
        ("", vec![of(3)], Code::InvalidArgument, domain),
        ("edge", vec![of(0)], Code::InvalidArgument, "unit"),
    ] {
        let error = rls.ask(called, &descriptors, 0).unwrap_err();
        assert_eq!(error.code(), code, "{error:?}");
        assert!(error.message().contains(message), "{error:?}");
    }
}

/// Those who watch hear of it, and their calls end, so that the drain ends.
#[test]
fn health_follows_and_ends_with_the_service() {
    let (engine, _) = engine(rules());
    let server = Server::start(engine, Settings::default());
    let rls = Rls::at(&server.address.to_string());
    let mut client = HealthClient::new(rls.channel.clone());
    rls.runtime.block_on(async {
        let of = |service: &str| HealthCheckRequest { service: service.into() };
        let service = "envoy.service.ratelimit.v3.RateLimitService";
        assert_eq!(client.check(of(service)).await.unwrap().into_inner().status, 1);
        assert_eq!(client.check(of("unheard.of")).await.unwrap_err().code(), Code::NotFound);
        assert_eq!(client.watch(of("unheard.of")).await.unwrap_err().code(), Code::NotFound);
        let mut watched = client.watch(of(service)).await.unwrap().into_inner();
        assert_eq!(watched.message().await.unwrap().unwrap().status, 1);
        for (is_well, status) in [(false, 2), (true, 1)] {
            server.health.set(is_well).await;
            assert_eq!(watched.message().await.unwrap().unwrap().status, status);
            assert_eq!(client.check(of("")).await.unwrap().into_inner().status, status);
        }
        server.health.end().await;
        server.drain();
        assert_eq!(watched.message().await.unwrap().unwrap().status, 2);
        let next = tokio::time::timeout(Duration::from_secs(5), watched.message());
        assert_eq!(next.await.expect("an end").unwrap(), None);
    });
}
