//! Permits in flight: held under a name, renewed, released, and expiring by themselves.

use std::sync::{Arc, Mutex};

use rategate_server::engine::{ItemResult, Observer, Verdict, Watch};
use rategate_server::rule::{CounterLocation, Enforcement, HELD_NS, Rule};

use super::{Place, Story, play, play_at};
use crate::engine::common::{SECOND, bucket};
use crate::stores::{in_flight, rule_set};

fn oven(permits: u64, location: CounterLocation) -> Rule {
    in_flight("oven", permits, location)
}

const HERE: CounterLocation = CounterLocation::Here;

#[test]
fn permits_are_held_until_they_are_released() {
    for (location, keys) in [(HERE, 1), (CounterLocation::StoreExact, 0)] {
        let text = "
            lease 1 oven:1
            lease 2 oven:1
            // The same once more.
            lease 1 oven:1
            lease 3 oven:1 => over no
            left oven => 0
            // Another number is another lease.
            release 1 oven:2 => refunded:0
            release 1 oven:1 => refunded:1
            left oven => 1
            release 1 oven:1 => refunded:0
            release 9 oven:max => refunded:0
            lease 3 oven:1
            renew 1 oven:1 => never no
            ";
        let mut story = play(vec![oven(2, location)], text);
        assert_eq!(story.server(0).keys(), keys, "keys in this process");
    }
}

#[test]
fn leases_that_are_not_renewed_end() {
    assert_eq!(HELD_NS, 60 * SECOND);
    play_at(
        &[Place::Here, Place::Store],
        &[oven(3, HERE)],
        "
        lease 1 oven:1 => granted; lasts 60s
        lease 2 oven:1 => granted; lasts 60s
        lease 3 oven:1 => granted; lasts 60s
        lease 4 oven:1 => over:60s no; lasts -
        pass 30s
        renew 1 oven:1 => granted; lasts 60s
        // A caller that lost the answer repeats the request, and has the lease for its full time.
        lease 3 oven:1
        pass 30s -1ns
        left oven => 0
        pass 1ns
        left oven => 1
        renew 2 oven:1 => never no
        release 2 oven:1 => refunded:0
        pass 30s
        left oven => 3
        // A take without a name is held too.
        take oven:1
        take oven:2
        take oven:1 => over no
        pass 61s
        take oven:3
        ",
    );
}

/// A changed limit applies from the next take or renewal on; current leases stay.
#[test]
fn leases_outlive_a_change_of_the_rule() {
    let rule = |held_ns| Rule { held_ns, ..oven(2, HERE) };
    let mut story = play(vec![rule(10 * SECOND)], "lease 1 oven:1");
    story.load(vec![rule(SECOND)]);
    story.play(
        "
        left oven => 1
        lease 2 oven:1 => granted; lasts 1s
        pass 1s
        left oven => 1
        renew 1 oven:1
        pass 1s
        left oven => 2
        ",
    );
}

/// A rule that is not enforced admits everyone, and a caller without a permit has no lease.
#[test]
fn a_shadow_holds_what_there_is() {
    play(
        vec![Rule { enforcement: Enforcement::Shadow, ..oven(1, HERE) }],
        "
        lease 1 oven:1 => granted; lasts 60s
        lease 2 oven:1 => shadow:60s; lasts -
        // It never was.
        renew 2 oven:1 => never no; lasts -
        ",
    );
}

#[test]
fn only_permits_in_flight_are_held() {
    let mut story = play(
        vec![bucket("b", &["who"], 5), oven(2, HERE)],
        "
        lease 1 b:1 => ! NotForItem { item: 0,
        lease 1 oven:0 => ! NoPermits { item: 0, rule: \"oven\" }
        lease 1 no:1 => ! there is no rule `no`
        lease 1 oven:3 => never no
        renew 1 oven:3 => never no
        reset oven => reset
        ",
    );
    let borrowed = oven(2, CounterLocation::StoreLeased { lease_ns: SECOND });
    assert!(story.server(0).load(rule_set(vec![borrowed])).is_err());
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
    let seen = Arc::new(Seen::default());
    let mut story = Story::of([oven(2, HERE)]);
    story.observer = Some(Arc::new(Everywhere(Arc::clone(&seen))));
    story.play(
        "
        lease 1 oven:2
        renew 1 oven:2
        release 1 oven:2 => refunded:2
        lease 1 oven:3 => never no
        ",
    );
    let never = Verdict::Denied { retry_after_ns: None, enforced: true };
    let expected = [(2, Verdict::Granted), (2, Verdict::Refunded(2)), (3, never)];
    assert_eq!(*seen.0.lock().unwrap(), expected);
}
