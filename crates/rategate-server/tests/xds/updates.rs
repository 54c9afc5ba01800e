//! Configurations that come into force, with the counters of the ones before.

use std::time::{Duration, Instant};

use super::stub::{Stub, hourly, limits, table};
use super::xds_messages::TheirDescriptor;
use crate::serve::clients::{Rls, Service, until};

/// A service that follows a control plane, and has accepted one configuration.
fn started(configs: &[super::xds_messages::TheirConfig]) -> (Stub, Service, Rls) {
    let stub = Stub::start();
    let service = Service::of(&table(stub.port));
    let first = stub.request();
    assert_eq!((&*first.version_info, &*first.response_nonce), ("", ""));
    assert_eq!(first.node.unwrap().id, "envoy-ratelimit");
    stub.accepts("1", configs);
    let rls = service.rls();
    (stub, service, rls)
}

#[test]
fn rules_of_a_control_plane_decide_and_a_change_keeps_their_counters() {
    let (stub, _service, rls) = started(&[limits("edge", &[("user", 10)])]);
    assert_eq!(rls.left("edge", "user", 4), Some((10, 6)));
    stub.accepts("2", &[limits("edge", &[("user", 20), ("path", 5)])]);
    assert_eq!(rls.left("edge", "user", 1), Some((20, 15)), "five of ten were counted");
    assert_eq!(rls.left("edge", "path", 1), Some((5, 4)));
}

#[test]
fn a_new_configuration_is_in_force_in_less_than_a_tenth_of_a_second() {
    let (stub, _service, rls) = started(&[limits("edge", &[("user", 1_000_000)])]);
    let mut times: Vec<Duration> = (0..9)
        .map(|nth| {
            let permits = 2_000_000 + nth;
            let begun = Instant::now();
            stub.send(&permits.to_string(), &[limits("edge", &[("user", permits)])]);
            while rls.left("edge", "user", 1).unwrap().0 != permits {
                assert!(begun.elapsed() < Duration::from_secs(10));
                // Asking without a pause would keep the processor from the service.
                std::thread::sleep(Duration::from_millis(1));
            }
            let taken = begun.elapsed();
            assert_eq!(stub.request().version_info, permits.to_string());
            taken
        })
        .collect();
    times.sort();
    println!("in force after {times:?}");
    // Other programs may hold some of them up. Other tests do not: see `.config/nextest.toml`.
    assert!(times[2] < Duration::from_millis(100), "{times:?}");
}

#[test]
fn a_domain_that_leaves_is_removed_and_another_stays() {
    let (stub, _service, rls) =
        started(&[limits("a", &[("user", 10)]), limits("b", &[("user", 10)])]);
    assert_eq!(rls.left("a", "user", 1), Some((10, 9)));
    assert_eq!(rls.left("b", "user", 1), Some((10, 9)));
    stub.accepts("2", &[limits("b", &[("user", 10)])]);
    assert_eq!(rls.left("a", "user", 1), None);
    assert_eq!(rls.left("b", "user", 1), Some((10, 8)));
    stub.accepts("3", &[]);
    assert_eq!(rls.left("b", "user", 1), None);
}

#[test]
fn domains_of_several_resources_are_merged_where_configured() {
    let stub = Stub::start();
    let service = Service::of(&format!("{}[grpc]\nmerge_domains = true\n", table(stub.port)));
    stub.request();
    stub.accepts("1", &[limits("edge", &[("user", 10)]), limits("edge", &[("path", 20)])]);
    let rls = service.rls();
    assert_eq!(rls.left("edge", "user", 1), Some((10, 9)));
    assert_eq!(rls.left("edge", "path", 1), Some((20, 19)));
}

#[test]
fn a_limit_in_shadow_denies_nothing() {
    let inner = TheirDescriptor {
        key: "user".to_owned(),
        value: "ann".to_owned(),
        rate_limit: Some(hourly(1)),
        shadow_mode: true,
        ..TheirDescriptor::default()
    };
    let config = super::xds_messages::TheirConfig {
        domain: "edge".to_owned(),
        descriptors: vec![inner],
        ..super::xds_messages::TheirConfig::default()
    };
    let (_stub, _service, rls) = started(&[config]);
    for left in [0, 0, 0] {
        assert_eq!(rls.left("edge", "user", 1), Some((1, left)), "shadow denies nothing");
    }
}

#[test]
fn the_service_is_ready_with_its_first_configuration() {
    let stub = Stub::start();
    let service = Service::of(&table(stub.port));
    stub.request();
    let ready = || service.http().get("/readyz").0;
    let healthy = || service.http().get("/healthcheck").0;
    assert_eq!((ready(), healthy()), (503, 500));
    assert_eq!(service.rls().health(), 2, "not serving");
    stub.accepts("1", &[limits("edge", &[("user", 10)])]);
    assert_eq!((ready(), healthy(), service.rls().health()), (200, 200, 1));
    // It stays ready without the control plane.
    drop(stub);
    until("the end of the stream", || {
        service.metric("rategate_xds_connected").as_deref() == Some("0")
    });
    assert_eq!((ready(), healthy(), service.rls().health()), (200, 200, 1));
}

#[test]
fn a_start_can_be_forced() {
    let table = format!("{}force_start = true\n", table(super::stub::free_port()));
    let service = Service::of(&table);
    assert_eq!((service.http().get("/readyz").0, service.rls().health()), (200, 1));
    assert_eq!(service.rls().left("edge", "user", 1), None);
    assert_eq!(service.metric("rategate_config_loads_total{outcome=\"loaded\"}").unwrap(), "0");
}

#[test]
fn counters_survive_a_restart_of_the_service() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("counters");
    let stub = Stub::start();
    let table = format!("{}[snapshot]\npath = {:?}\n", table(stub.port), path.display());
    let configs = [limits("edge", &[("user", 10)])];
    let mut service = Service::of(&table);
    stub.request();
    stub.accepts("1", &configs);
    assert_eq!(service.rls().left("edge", "user", 4), Some((10, 6)));
    service.restart();
    stub.request();
    stub.accepts("1", &configs);
    until("the service is ready", || service.http().get("/readyz").0 == 200);
    assert_eq!(service.rls().left("edge", "user", 1), Some((10, 5)));
}

/// With a start that is forced, calls come before the rules, and the file is read with those. What
/// was settled in the process before is known all the same.
#[test]
fn ids_survive_a_restart_that_serves_before_it_has_rules() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("counters");
    let stub = Stub::start();
    let table = format!(
        "{}force_start = true\n[snapshot]\npath = {:?}\n",
        table(stub.port),
        path.display()
    );
    let configs = [limits("edge", &[("user", 10)])];
    let charge = |service: &Service, number: u8, repeated: bool| {
        service.play(&format!(
            "{{verb: charge, once: ${number}, items: [{{limit: 10/h, key: k{number}, permits: 4}}]}}
                => {{repeated: {repeated}}}"
        ));
    };
    let mut service = Service::of(&table);
    stub.request();
    stub.accepts("1", &configs);
    until("the file is kept", || path.exists());
    charge(&service, 1, false);
    service.restart();
    stub.request();
    // Before there are rules; what was sent to the process before is sent again.
    charge(&service, 2, false);
    stub.accepts("1", &configs);
    charge(&service, 1, true);
    charge(&service, 2, true);
}
