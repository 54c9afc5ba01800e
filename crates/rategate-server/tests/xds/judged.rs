//! Responses that are refused, with the reasons, while the configuration before stays in force.

use std::time::Duration;

use prost::Message;
use prost_types::Any;
use rategate_server::messages::discovery::DiscoveryResponse;

use super::stub::{Stub, TYPE, framed, limits, table};
use super::xds_messages::{TheirConfig, TheirDescriptor, TheirPolicy};
use crate::serve::clients::{Rls, Service};

/// A service with one configuration in force.
fn started() -> (Stub, Service, Rls) {
    let stub = Stub::start();
    let service = Service::of(&table(stub.port));
    stub.request();
    stub.accepts("good", &[limits("edge", &[("user", 10)])]);
    let rls = service.rls();
    assert_eq!(rls.left("edge", "user", 1), Some((10, 9)));
    (stub, service, rls)
}

/// Returns a configuration whose second descriptor has no unit.
fn broken() -> TheirConfig {
    let policy = TheirPolicy { requests_per_unit: 5, ..TheirPolicy::default() };
    let wrong = TheirDescriptor {
        key: "path".to_owned(),
        rate_limit: Some(policy),
        ..TheirDescriptor::default()
    };
    let mut config = limits("edge", &[("user", 20)]);
    config.descriptors.push(wrong);
    config
}

/// Returns the reason of the refusal that comes next, which names the version in force.
fn refusal(stub: &Stub, nonce: &str) -> String {
    let verdict = stub.request();
    assert_eq!((&*verdict.version_info, &*verdict.response_nonce), ("good", nonce));
    let detail = verdict.error_detail.unwrap();
    assert_eq!(detail.code, 3);
    detail.message
}

#[test]
fn a_broken_configuration_is_refused_with_its_path_and_the_old_one_goes_on() {
    let (stub, service, rls) = started();
    stub.send("bad", &[broken()]);
    assert_eq!(
        refusal(&stub, "bad"),
        "edge-config: descriptors[1].rate_limit: no unit, and not unlimited"
    );
    assert_eq!(rls.left("edge", "user", 1), Some((10, 8)));
    service.play(
        "
        rategate_xds_updates_total{outcome=\"accepted\"} => 1
        rategate_xds_updates_total{outcome=\"refused\"} => 1
        rategate_config_reload_failed => 1
        GET /v1/config => ~ descriptors[1].rate_limit: no unit
        ",
    );
    stub.accepts("mended", &[limits("edge", &[("user", 20)])]);
    assert_eq!(rls.left("edge", "user", 1), Some((20, 17)), "three were counted");
    assert_eq!(service.metric("rategate_config_reload_failed").unwrap(), "0");
}

/// A control plane that withdraws a broken configuration sends the one in force.
#[test]
fn the_configuration_in_force_ends_a_refusal() {
    let (stub, service, rls) = started();
    stub.send("bad", &[broken()]);
    refusal(&stub, "bad");
    stub.accepts("again", &[limits("edge", &[("user", 10)])]);
    assert_eq!(rls.left("edge", "user", 1), Some((10, 8)));
    assert_eq!(service.metric("rategate_config_reload_failed").unwrap(), "0");
    let loads = service.metric("rategate_config_loads_total{outcome=\"loaded\"}").unwrap();
    assert_eq!(loads, "1", "nothing was loaded anew");
}

#[test]
fn all_problems_are_reported_at_once() {
    let (stub, _service, _) = started();
    let other = TheirConfig { name: "other".to_owned(), ..TheirConfig::default() };
    stub.send("bad", &[broken(), broken(), other]);
    let reasons = refusal(&stub, "bad");
    for expected in [
        "edge-config: domain: duplicate domain \"edge\", which is also at edge-config: domain",
        "edge-config: descriptors[1].rate_limit: no unit",
        "other: empty domain",
    ] {
        assert!(reasons.contains(expected), "{reasons}");
    }
}

/// However long the names are, and whatever they are made of.
#[test]
fn reasons_have_a_maximum_length() {
    let (stub, _service, _) = started();
    for ahead in 0..4 {
        let mut config = limits("edge", &[]);
        config.name = "x".repeat(ahead) + &"\u{1f600}".repeat(40);
        config.descriptors = vec![TheirDescriptor::default(); 60];
        let nonce = format!("bad{ahead}");
        stub.send(&nonce, &[config]);
        let reasons = refusal(&stub, &nonce);
        assert!((4_093..=4_096).contains(&reasons.len()), "{}", reasons.len());
        assert!(reasons.starts_with('x') == (ahead > 0));
    }
}

#[test]
fn resources_and_responses_of_other_types_are_refused() {
    let (stub, _service, rls) = started();
    let cluster = "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned();
    let any =
        |type_url: &str, value: &[u8]| Any { type_url: type_url.to_owned(), value: value.to_vec() };
    let mut response = DiscoveryResponse {
        version_info: "bad".to_owned(),
        type_url: TYPE.to_owned(),
        nonce: "n1".to_owned(),
        resources: vec![any(&cluster, b"")],
    };
    stub.respond(&response);
    let expected = format!("resources[0]: its type is {cluster:?}, not {TYPE:?}");
    assert_eq!(refusal(&stub, "n1"), expected);
    response.resources = vec![any(TYPE, &limits("a", &[]).encode_to_vec()), any(TYPE, b"\x0a\xff")];
    response.nonce = "n2".to_owned();
    stub.respond(&response);
    assert_eq!(
        refusal(&stub, "n2"),
        "resources[1]: it is malformed: failed to decode Protobuf message: RateLimitConfig.name: invalid varint"
    );
    // Of another type, with no resources: they must not count as none of ours.
    response = DiscoveryResponse { type_url: cluster.clone(), resources: Vec::new(), ..response };
    response.nonce = "n3".to_owned();
    stub.respond(&response);
    let reason = refusal(&stub, "n3");
    assert_eq!(reason, format!("resources of the type {cluster:?}, not {TYPE:?}"));
    response = DiscoveryResponse { type_url: TYPE.to_owned(), ..response };
    response.resources = vec![Any::default(); 10_001];
    stub.respond(&response);
    assert_eq!(refusal(&stub, "n3"), "more than 10000 resources");
    assert_eq!(rls.left("edge", "user", 1), Some((10, 8)));
    assert_eq!(stub.streams(), 1, "the stream goes on");
}

/// A configuration without a nonce comes into force. The next request says so by its version.
#[test]
fn a_response_without_a_nonce_is_judged_as_any_other() {
    let (stub, _service, rls) = started();
    let any =
        |config: &TheirConfig| Any { type_url: TYPE.to_owned(), value: config.encode_to_vec() };
    let respond = |version: &str, config: &TheirConfig| {
        stub.respond(&DiscoveryResponse {
            version_info: version.to_owned(),
            type_url: TYPE.to_owned(),
            resources: vec![any(config)],
            ..DiscoveryResponse::default()
        });
        stub.request()
    };
    let refused = respond("bad", &broken());
    assert_eq!((&*refused.version_info, &*refused.response_nonce), ("good", ""));
    assert!(refused.error_detail.is_some());
    let accepted = respond("next", &limits("edge", &[("user", 30)]));
    assert_eq!((&*accepted.version_info, &*accepted.response_nonce), ("next", ""));
    assert_eq!(accepted.error_detail, None);
    assert_eq!(rls.left("edge", "user", 1), Some((30, 28)));
}

/// Some control planes send what was refused again as soon as they hear of it.
#[test]
fn what_was_refused_before_is_refused_after_a_pause() {
    let (stub, service, rls) = started();
    let begun = std::time::Instant::now();
    stub.send("bad", &[broken()]);
    let first = refusal(&stub, "bad");
    assert!(begun.elapsed() < Duration::from_millis(900), "the first one at once");
    stub.send("bad", &[broken()]);
    assert_eq!(stub.requests_within(Duration::from_millis(500)), [], "no loop");
    assert_eq!(refusal(&stub, "bad"), first);
    let refused = "rategate_xds_updates_total{outcome=\"refused\"}";
    assert_eq!(service.metric(refused).unwrap(), "1", "it is the same one");
    // A newer one is not held up, and the pause of the older one ends with it.
    stub.send("bad", &[broken()]);
    stub.accepts("mended", &[limits("edge", &[("user", 20)])]);
    assert_eq!(rls.left("edge", "user", 1), Some((20, 18)));
    assert_eq!(stub.requests_within(Duration::from_millis(1_500)), []);
}

/// Without a message there is no nonce to refuse it by: the stream begins anew.
#[test]
fn bytes_that_are_no_response_end_the_stream_and_nothing_else() {
    let (stub, _service, rls) = started();
    let long = [&[0][..], &((4 << 20) + 1_u32).to_be_bytes()].concat();
    for (streams, bytes) in [long, framed(b"\xff\xff\xff")].iter().enumerate() {
        stub.send_bytes(bytes);
        let again = stub.request();
        assert_eq!((&*again.version_info, &*again.response_nonce), ("", ""), "a new stream");
        assert_eq!(stub.streams(), streams + 2);
        assert_eq!(rls.left("edge", "user", 0).unwrap().0, 10);
    }
    stub.accepts("next", &[limits("edge", &[("user", 20)])]);
}
