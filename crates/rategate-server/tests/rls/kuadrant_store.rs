//! Kuadrant's commits of ids that no reservation has, where rules are in a store.

use std::num::NonZeroU32;
use std::sync::Arc;

use rategate::Concurrency;
use rategate::store::MemoryStore;
use rategate_server::engine::{Engine, EngineSettings, Shared};
use rategate_server::protocol::grpc::Settings;
use rategate_server::rule::{CounterLocation, Limit, OnUnavailable, Rule, RuleSet};
use tonic::Code;

use crate::rls::common::{Clock, Driver, Server, rule};
use crate::rls::kuadrant::{Gateway, descriptor, left};

/// In a store it counts once too, whichever server is told. Permits leased from it are not charged.
#[test]
fn without_a_reservation_a_store_is_charged_once() {
    let clock = Clock::stepped();
    let store = Arc::new(MemoryStore::with_clock(clock.clone()));
    let shared = Arc::new(Shared::new(store, NonZeroU32::MIN));
    let exact = Rule {
        location: CounterLocation::StoreExact,
        on_unavailable: OnUnavailable::Deny,
        ..rule("tokens", &[("user", "")], 1_000)
    };
    let location = CounterLocation::StoreLeased { lease_ns: 100_000_000 };
    let leased = Rule { location, ..rule("leased", &[("team", "")], 1_000) };
    let slots = Limit::Policy(Concurrency::new(3).into());
    let slots = Rule { limit: slots, ..rule("slots", &[("slot", "")], 3) };
    let rules = vec![exact, leased, slots, rule("here", &[("path", "")], 50)];
    let servers = [(); 2].map(|()| {
        let (settings, store) = (EngineSettings::default(), Some(Arc::clone(&shared) as _));
        let engine = Engine::with_store(clock.clone(), settings, None, store);
        engine.load(RuleSet { rules: rules.clone(), hash: "".into() }).unwrap();
        let server = Server::start(Driver::Own, engine.clone(), Settings::default());
        (engine, server)
    });
    let entries = [("user", "a")];
    let mut gateways = servers.each_ref().map(|(_, server)| Gateway::new(server, &entries));
    let left_of = |name, value| left(&servers[0].0, name, value);
    let id = "0123456789abcdef0123456789abcdef";
    let counted = || {
        let counts = servers.each_ref().map(|(engine, _)| engine.reservation_counts());
        counts.map(|counts| (counts.unknown, counts.repeated))
    };
    for sent in 0..4 {
        assert!(!gateways[sent % 2].commit(id, 300).unwrap());
        assert_eq!(left_of("tokens", "a"), (700, 0), "sent {sent} times before");
    }
    assert_eq!(counted(), [(1, 1), (0, 2)], "each is one operation");
    let other = gateways[1].commit(id, 301).unwrap_err();
    assert_eq!(other.code(), Code::InvalidArgument);
    // A reservation is settled as before, and not charged as well.
    let held = gateways[0].reserve(200, None).unwrap().reservation_id;
    for gateway in &mut gateways {
        assert!(gateway.commit(&held, 150).unwrap());
        assert_eq!(left_of("tokens", "a"), (550, 0));
    }
    // Beside a rule in this process, of which the other server knows nothing.
    for gateway in &mut gateways {
        gateway.descriptors.push(descriptor(&[("path", "/")]));
    }
    let id = "00112233445566778899aabbccddeeff";
    for sent in 0..3 {
        assert!(!gateways[0].commit(id, 40).unwrap());
        assert_eq!((left_of("tokens", "a"), left_of("here", "/")), ((510, 0), (10, 0)), "{sent}");
    }
    // With what takes no charge, in whatever order, nothing is charged.
    let both = [descriptor(&entries), descriptor(&[("team", "t")])];
    for descriptors in [both.clone().to_vec(), both.into_iter().rev().collect()] {
        gateways[0].descriptors = descriptors;
        let unknown = gateways[0].commit("0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", 7).unwrap_err();
        assert_eq!((unknown.code(), left_of("tokens", "a")), (Code::NotFound, (510, 0)));
    }
    for (key, value) in [("team", "t"), ("slot", "s")] {
        gateways[0].descriptors = vec![descriptor(&[(key, value)])];
        let unknown = gateways[0].commit("ffeeddccbbaa99887766554433221100", 1).unwrap_err();
        assert_eq!(unknown.code(), Code::NotFound, "{unknown:?}");
        let held = gateways[0].reserve(1, None).unwrap().reservation_id;
        assert!(gateways[0].commit(&held, 1).unwrap());
    }
}
