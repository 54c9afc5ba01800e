//! Permits in flight: held under a name, renewed, released, and expiring by themselves.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rategate::{Clock, ManualClock};
use rategate_server::engine::{
    Answer, Decided, Engine, EngineError, EngineSettings, ItemResult, Lease, LeaseVerb, Observer,
    UniqueId, Verb, Verdict, Watch,
};
use rategate_server::rule::{CounterLocation, Enforcement, HELD_NS, Rule};

use crate::engine::common::{SECOND, bucket};
use crate::stores::{World, in_flight, rule_set};

fn answer(
    engine: &Engine<ManualClock>,
    verb: LeaseVerb,
    name: u8,
    rule: &str,
    permits: u64,
) -> Result<Answer, EngineError> {
    let lease = Lease { name: UniqueId([name; 16]), rule, values: &[b"x"], permits };
    match engine.lease(verb, &lease) {
        Decided::Now(answer) => answer,
        Decided::Later(_) => unreachable!("a store in memory answers at once"),
    }
}

fn lease(
    engine: &Engine<ManualClock>,
    verb: LeaseVerb,
    name: u8,
    rule: &str,
    permits: u64,
) -> Result<Verdict, EngineError> {
    answer(engine, verb, name, rule, permits).map(|answer| answer.results[0].verdict)
}

const OVER: Verdict = Verdict::Denied { retry_after_ns: None, enforced: true };

#[test]
fn permits_are_held_until_they_are_released() {
    for location in [CounterLocation::Here, CounterLocation::StoreExact] {
        let world = World::new();
        let server = world.server(vec![in_flight("oven", 2, location)]);
        let hold = |name| lease(&server, LeaseVerb::Take, name, "oven", 1).unwrap();
        assert_eq!((hold(1), hold(2)), (Verdict::Granted, Verdict::Granted));
        assert_eq!(
            server.keys(),
            usize::from(location == CounterLocation::Here),
            "keys in this process"
        );
        assert_eq!(hold(1), Verdict::Granted, "the same once more");
        assert!(hold(3).is_over());
        assert_eq!(world.left(&server, "oven", "x"), Some(0));
        let release = |name, permits| lease(&server, LeaseVerb::Release, name, "oven", permits);
        assert_eq!(release(1, 2), Ok(Verdict::Refunded(0)), "another number is another lease");
        assert_eq!(release(1, 1), Ok(Verdict::Refunded(1)));
        assert_eq!(world.left(&server, "oven", "x"), Some(1));
        assert_eq!(release(1, 1), Ok(Verdict::Refunded(0)), "once");
        assert_eq!(release(9, u64::MAX), Ok(Verdict::Refunded(0)));
        assert_eq!(hold(3), Verdict::Granted);
        assert_eq!(lease(&server, LeaseVerb::Renew, 1, "oven", 1), Ok(OVER), "it had ended");
    }
}

#[test]
fn leases_that_are_not_renewed_end() {
    for (location, held_ns) in
        [(CounterLocation::Here, HELD_NS), (CounterLocation::StoreExact, SECOND)]
    {
        let world = World::new();
        let rule = Rule { held_ns, ..in_flight("oven", 3, location) };
        let server = world.server(vec![rule]);
        for name in [1, 2, 3] {
            let taken = answer(&server, LeaseVerb::Take, name, "oven", 1).unwrap();
            assert_eq!(
                (taken.results[0].verdict, taken.held_ns()),
                (Verdict::Granted, Some(held_ns))
            );
        }
        let denied = answer(&server, LeaseVerb::Take, 4, "oven", 1).unwrap();
        let wait_ns = std::num::NonZeroU64::new(held_ns);
        let over = Verdict::Denied { retry_after_ns: wait_ns, enforced: true };
        assert_eq!((denied.results[0].verdict, denied.held_ns()), (over, None));
        world.clock.set(Duration::from_nanos(world.clock.now_ns() + held_ns / 2));
        let renewed = answer(&server, LeaseVerb::Renew, 1, "oven", 1).unwrap();
        assert_eq!(
            (renewed.results[0].verdict, renewed.held_ns()),
            (Verdict::Granted, Some(held_ns))
        );
        // A caller that lost the answer repeats the request, and has the lease for its full time.
        assert_eq!(lease(&server, LeaseVerb::Take, 3, "oven", 1), Ok(Verdict::Granted));
        world.clock.set(Duration::from_nanos(world.clock.now_ns() + held_ns / 2 - 1));
        assert_eq!(world.left(&server, "oven", "x"), Some(0));
        world.clock.set(Duration::from_nanos(world.clock.now_ns() + 1));
        assert_eq!(world.left(&server, "oven", "x"), Some(1), "one is over");
        assert_eq!(lease(&server, LeaseVerb::Renew, 2, "oven", 1), Ok(OVER));
        assert_eq!(lease(&server, LeaseVerb::Release, 2, "oven", 1), Ok(Verdict::Refunded(0)));
        world.clock.set(Duration::from_nanos(world.clock.now_ns() + held_ns / 2));
        assert_eq!(world.left(&server, "oven", "x"), Some(3));
    }
}

/// A changed limit applies from the next take or renewal on; current leases stay.
#[test]
fn leases_outlive_a_change_of_the_rule() {
    let world = World::new();
    let rule =
        |permits, held_ns| Rule { held_ns, ..in_flight("oven", permits, CounterLocation::Here) };
    let server = world.server(vec![rule(2, 10 * SECOND)]);
    assert_eq!(lease(&server, LeaseVerb::Take, 1, "oven", 1), Ok(Verdict::Granted));
    server.load(rule_set(vec![rule(2, SECOND)])).unwrap();
    assert_eq!(world.left(&server, "oven", "x"), Some(1));
    let taken = answer(&server, LeaseVerb::Take, 2, "oven", 1).unwrap();
    assert_eq!(taken.held_ns(), Some(SECOND));
    world.clock.set(Duration::from_nanos(world.clock.now_ns() + SECOND));
    assert_eq!(world.left(&server, "oven", "x"), Some(1), "the second is over");
    assert_eq!(lease(&server, LeaseVerb::Renew, 1, "oven", 1), Ok(Verdict::Granted));
    world.clock.set(Duration::from_nanos(world.clock.now_ns() + SECOND));
    assert_eq!(world.left(&server, "oven", "x"), Some(2), "and so is the first");
}

/// A rule that is not enforced admits everyone, and a caller without a permit has no lease.
#[test]
fn a_shadow_holds_what_there_is() {
    let world = World::new();
    let rule =
        Rule { enforcement: Enforcement::Shadow, ..in_flight("oven", 1, CounterLocation::Here) };
    let server = world.server(vec![rule]);
    let take = |name| answer(&server, LeaseVerb::Take, name, "oven", 1).unwrap();
    let (first, second) = (take(1), take(2));
    assert!(first.allowed && second.allowed);
    assert_eq!((first.held_ns(), second.held_ns()), (Some(HELD_NS), None));
    let renewed = answer(&server, LeaseVerb::Renew, 2, "oven", 1).unwrap();
    assert!(!renewed.allowed && renewed.held_ns().is_none(), "it never was");
}

#[derive(Debug, Default)]
struct Seen(Mutex<Vec<(u64, Verdict)>>);

#[derive(Debug)]
struct Everywhere(Arc<Seen>);

impl Watch for Seen {
    fn decided(&self, _: u64, key: &[u8], permits: u64, result: &ItemResult) {
        assert_eq!(key, b"x");
        self.0.lock().unwrap().push((permits, result.verdict));
    }
}

impl Observer for Everywhere {
    fn of_rule(&self, _: Option<&Arc<Rule>>) -> Arc<dyn Watch> {
        Arc::<Seen>::clone(&self.0)
    }
}

/// Takes and releases are reported; renewals are not.
#[test]
fn leases_are_reported_to_the_observer() {
    let (world, seen) = (World::new(), Arc::new(Seen::default()));
    let observer: Arc<dyn Observer> = Arc::new(Everywhere(Arc::clone(&seen)));
    let settings = EngineSettings::default();
    let server = Engine::with_observer(world.clock.clone(), settings, Some(observer));
    server.load(rule_set(vec![in_flight("oven", 2, CounterLocation::Here)])).unwrap();
    for verb in [LeaseVerb::Take, LeaseVerb::Renew, LeaseVerb::Release] {
        let _ = answer(&server, verb, 1, "oven", 2).unwrap();
    }
    let _ = answer(&server, LeaseVerb::Take, 1, "oven", 3).unwrap();
    let expected = [(2, Verdict::Granted), (2, Verdict::Refunded(2)), (3, OVER)];
    assert_eq!(*seen.0.lock().unwrap(), expected);
}

/// A take without a name is held too, and expires by itself.
#[test]
fn a_take_is_held_too() {
    let world = World::new();
    let server = world.server(vec![in_flight("oven", 2, CounterLocation::Here)]);
    assert!(world.take(&server, &[("oven", "x", 1)]));
    assert!(world.take(&server, &[("oven", "x", 1)]));
    assert!(!world.take(&server, &[("oven", "x", 1)]));
    world.clock.set(Duration::from_nanos(world.clock.now_ns() + HELD_NS + SECOND));
    assert!(world.take(&server, &[("oven", "x", 2)]));
}

#[test]
fn only_permits_in_flight_are_held() {
    let world = World::new();
    let server =
        world.server(vec![bucket("b", &["who"], 5), in_flight("oven", 2, CounterLocation::Here)]);
    assert!(matches!(
        lease(&server, LeaseVerb::Take, 1, "b", 1),
        Err(EngineError::NotForItem { item: 0, .. })
    ));
    let none = EngineError::NoPermits { item: 0, rule: "oven".into() };
    assert_eq!(lease(&server, LeaseVerb::Take, 1, "oven", 0), Err(none));
    assert!(matches!(
        lease(&server, LeaseVerb::Take, 1, "no", 1),
        Err(EngineError::NoSuchRule { .. })
    ));
    assert_eq!(lease(&server, LeaseVerb::Take, 1, "oven", 3), Ok(OVER));
    assert_eq!(lease(&server, LeaseVerb::Renew, 1, "oven", 3), Ok(OVER));
    let borrowed = in_flight("oven", 2, CounterLocation::StoreLeased { lease_ns: SECOND });
    assert!(server.load(rule_set(vec![borrowed])).is_err());
    assert!(world.ask(&server, Verb::Reset, &[("oven", "x", 1)]).0.allowed);
}
