//! Calendar quotas over many nodes: decided by the store's clock, leased within a window.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rategate::ManualClock;
use rategate::distributed::{DecidedBy, Distributed, OnUnavailable};
use rategate::store::{MemoryStore, Rule};
use rategate_core::calendar::{Calendar, Grid, Window};
use rategate_core::fixed_window::FixedWindow;

use crate::distributed::fleet::Fleet;
use crate::distributed::leased::traffic;
use crate::distributed::wire::LinkState;
use crate::distributed::{MS, S};

/// Windows of 150 and 250 ms in turn.
#[derive(Debug)]
struct Uneven;

impl Grid for Uneven {
    fn text(&self) -> &'static str {
        "150 and 250 ms in turn"
    }

    fn window(&self, at_ns: u64) -> Window {
        let (pair, into_ns) = (at_ns / (400 * MS), at_ns % (400 * MS));
        let (start_ns, length_ns, odd) =
            if into_ns < 150 * MS { (0, 150 * MS, 0) } else { (150 * MS, 250 * MS, 1) };
        let start_ns = pair * 400 * MS + start_ns;
        Window { start_ns, end_ns: start_ns + length_ns, number: 2 * pair + odd }
    }

    fn start_of(&self, number: u64) -> Option<u64> {
        Some(number / 2 * 400 * MS + number % 2 * 150 * MS)
    }
}

static UNEVEN: Uneven = Uneven;

fn quota(permits: u64) -> Rule {
    FixedWindow::of_calendar(permits, Calendar::new(&UNEVEN)).unwrap().into()
}

/// Leases end with the window, however long it is.
#[test]
fn leases_end_with_their_window() {
    for seed in 0..6 {
        let fleet = traffic(seed, quota(100), false);
        let mut used = BTreeMap::<u64, u64>::new();
        for grant in fleet.grants.iter().filter(|grant| grant.by == DecidedBy::Lease) {
            *used.entry(UNEVEN.window(grant.at_ns).number).or_default() += grant.permits;
        }
        let fullest = used.values().max().copied().unwrap();
        assert!(fullest <= 100, "seed {seed}: {fullest}");
    }
}

/// Two nodes whose clocks are wrong by more than a window decide by the store's.
#[test]
fn the_stores_clock_decides() {
    let [store_clock, early, late] = [10_000, 9_000, 11_234].map(|ms| {
        let clock = ManualClock::stepped();
        clock.set(Duration::from_millis(ms));
        clock
    });
    let store = Arc::new(MemoryStore::with_clock(store_clock.clone()));
    let nodes = [early, late].map(|clock| {
        let builder = Distributed::builder(Arc::clone(&store)).with_clock(clock);
        builder.limit("quota", quota(2)).build().unwrap()
    });
    for node in &nodes {
        let decision = node.try_acquire(b"key", 1).wait().unwrap();
        assert!(decision.is_granted());
        assert_eq!(decision.store_ns(), Some(10 * S));
    }
    for node in &nodes {
        let decision = node.try_acquire(b"key", 1).wait().unwrap();
        let rategate::distributed::Decision::Denied(denial) = decision else { panic!() };
        assert_eq!(denial.retry_after, Some(Duration::from_millis(150)));
    }
    store_clock.advance(Duration::from_millis(150));
    assert!(nodes[0].try_acquire(b"key", 2).wait().unwrap().is_granted());
}

/// Without the store a node keeps its part of the quota, from its first border on: an earlier
/// process may have used what the window had.
#[test]
fn a_fallback_begins_with_the_next_window() {
    let mut fleet = Fleet::new(4);
    let node = fleet
        .join(|builder| builder.limit("quota", quota(9)).on_unavailable(OnUnavailable::local(3)));
    fleet.set_all(LinkState::Refused);
    let first = UNEVEN.window(fleet.now_ns());
    for _ in 0..2_000 {
        fleet.call(node, b"key", 1);
        fleet.run_to(fleet.now_ns() + MS);
    }
    let mut used = BTreeMap::<u64, u64>::new();
    for grant in &fleet.grants {
        assert_eq!(grant.by, DecidedBy::Fallback);
        *used.entry(UNEVEN.window(grant.at_ns).number).or_default() += grant.permits;
    }
    assert_eq!(used.get(&first.number), None);
    assert!(used.len() >= 8 && used.values().all(|&used| used == 3), "{used:?}");
}
