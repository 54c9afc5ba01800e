//! The stores of this crate pass the conformance tests.

use std::sync::Arc;
use std::time::Duration;

use rategate::ManualClock;
use rategate::store::MemoryStore;
use rategate_testkit::conformance::{Arena, cases, flight, laws, reservations, scenarios, traffic};

const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/scenarios");

struct InMemory(ManualClock);

impl InMemory {
    fn new() -> Self {
        Self(ManualClock::stepped())
    }
}

impl Arena for InMemory {
    type Store = MemoryStore<ManualClock>;

    fn store(&self) -> Arc<Self::Store> {
        Arc::new(MemoryStore::with_clock(self.0.clone()))
    }

    fn set_now_us(&self, now_us: u64) {
        self.0.set(Duration::from_nanos(now_us * 1_000));
    }
}

#[test]
fn the_memory_store_keeps_the_laws() {
    laws::suite(&InMemory::new());
}

#[test]
fn the_memory_store_decides_as_the_core_does() {
    traffic::suite(&InMemory::new(), cases::limits());
}

#[test]
fn the_memory_store_reserves_as_the_core_does() {
    reservations::suite(&InMemory::new());
    assert!(reservations::calendars(&InMemory::new()) > 1_000);
}

#[test]
fn the_memory_store_ends_crowds_of_holds() {
    let held = reservations::crowds(&InMemory::new(), 12);
    assert!(held > 1_000, "{held} estimates were held");
}

#[test]
fn the_memory_store_keeps_calendars() {
    let arena = InMemory::new();
    assert!(traffic::suite(&arena, cases::calendars()) > 1_000);
    assert!(traffic::charges(&arena, cases::calendars(), 0) > 1_000);
}

/// `RATEGATE_DENIALS` says how many of each set of limits.
#[test]
fn the_memory_store_charges_and_names_the_instant_at_which_calls_pass() {
    let said = std::env::var("RATEGATE_DENIALS").ok();
    let each = said.map_or(600, |said| said.parse().expect("RATEGATE_DENIALS is a number"));
    let compared = traffic::charges(&InMemory::new(), cases::limits(), each);
    #[expect(clippy::print_stdout, reason = "the number of comparisons is a result")]
    {
        println!("{compared} denials in debt");
    }
}

#[test]
fn the_memory_store_holds_permits_in_flight() {
    flight::suite(&InMemory::new());
}

#[test]
fn the_memory_store_plays_the_scenarios() {
    let played = scenarios::suite(&InMemory::new(), SCENARIOS);
    #[expect(clippy::print_stdout, reason = "nothing is skipped in silence")]
    {
        println!("{played:#?}");
    }
    played.record("memory").unwrap();
    assert!(played.played.len() >= 8);
}
