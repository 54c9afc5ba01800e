//! Permits in flight: held under a name, renewed, released, and over by themselves.

use rategate::{Clock, ManualClock};
use rategate_server::engine::{Decided, Engine, Fault, HELD_NS, LeaseVerb, Verb, Verdict};
use rategate_server::rule::Place;

use crate::common::{SECOND, bucket};
use crate::{World, in_flight};

fn lease(
    engine: &Engine<ManualClock>,
    verb: LeaseVerb,
    name: u8,
    rule: &str,
    permits: u64,
) -> Result<Verdict, Fault> {
    match engine.lease(verb, [name; 16], rule, &[b"x"], permits) {
        Decided::Now(answer) => answer.map(|answer| answer.parts[0].verdict),
        Decided::Later(_) => unreachable!("a store in memory answers at once"),
    }
}

const OVER: Verdict = Verdict::Denied { retry_after_ns: None, enforced: true };

#[test]
fn permits_are_held_until_they_are_released() {
    for place in [Place::Here, Place::StoreExact] {
        let world = World::new();
        let server = world.server(vec![in_flight("oven", 2, place)]);
        let hold = |name| lease(&server, LeaseVerb::Hold, name, "oven", 1).unwrap();
        assert_eq!((hold(1), hold(2)), (Verdict::Granted, Verdict::Granted));
        assert_eq!(hold(1), Verdict::Granted, "the same once more");
        assert!(hold(3).is_over());
        assert_eq!(world.left(&server, "oven", "x"), Some(0));
        assert_eq!(lease(&server, LeaseVerb::Release, 1, "oven", 1), Ok(Verdict::Refunded(1)));
        assert_eq!(world.left(&server, "oven", "x"), Some(1));
        assert_eq!(hold(3), Verdict::Granted);
        assert_eq!(lease(&server, LeaseVerb::Renew, 1, "oven", 1), Ok(OVER), "it had ended");
    }
}

#[test]
fn what_nobody_renews_is_over() {
    for (place, held_ns) in
        [(Place::Here, HELD_NS), (Place::StoreLeased { lease_ns: SECOND }, SECOND)]
    {
        let world = World::new();
        let server = world.server(vec![in_flight("oven", 2, place)]);
        for name in [1, 2] {
            assert_eq!(lease(&server, LeaseVerb::Hold, name, "oven", 1), Ok(Verdict::Granted));
        }
        world.clock.set(world.clock.now_ns() + held_ns / 2);
        assert_eq!(lease(&server, LeaseVerb::Renew, 1, "oven", 1), Ok(Verdict::Granted));
        world.clock.set(world.clock.now_ns() + held_ns / 2 + SECOND / 100);
        assert_eq!(world.left(&server, "oven", "x"), Some(1), "one is over");
        assert_eq!(lease(&server, LeaseVerb::Renew, 2, "oven", 1), Ok(OVER));
        world.clock.set(world.clock.now_ns() + held_ns);
        assert_eq!(world.left(&server, "oven", "x"), Some(2));
    }
}

/// Without a name the permits are held as well, and end by themselves.
#[test]
fn a_take_is_held_too() {
    let world = World::new();
    let server = world.server(vec![in_flight("oven", 2, Place::Here)]);
    assert!(world.take(&server, &[("oven", "x", 1)]));
    assert!(world.take(&server, &[("oven", "x", 1)]));
    assert!(!world.take(&server, &[("oven", "x", 1)]));
    world.clock.set(world.clock.now_ns() + HELD_NS + SECOND);
    assert!(world.take(&server, &[("oven", "x", 2)]));
}

#[test]
fn only_permits_in_flight_are_held() {
    let world = World::new();
    let server = world.server(vec![bucket("b", &["who"], 5), in_flight("oven", 2, Place::Here)]);
    assert!(matches!(lease(&server, LeaseVerb::Hold, 1, "b", 1), Err(Fault::NotFor(_))));
    assert!(matches!(lease(&server, LeaseVerb::Hold, 1, "oven", 0), Err(Fault::NotFor(_))));
    assert!(matches!(lease(&server, LeaseVerb::Hold, 1, "no", 1), Err(Fault::NoSuchRule(_))));
    assert_eq!(lease(&server, LeaseVerb::Hold, 1, "oven", 3), Ok(OVER));
    assert!(world.ask(&server, Verb::Reset, &[("oven", "x", 1)]).0.allowed);
}
