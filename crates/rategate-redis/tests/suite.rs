//! The shared store suite, run on real servers whose clock the suite sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rategate_redis::client::{self, Config, RedisStore};
use rategate_testkit::conformance::{Arena, cases, flight, laws, reservations, scenarios, traffic};
use rategate_testkit::redis::{Brand, Server};

const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/scenarios");

struct Redis {
    server: Server,
    now_us: Arc<AtomicU64>,
    store: Arc<RedisStore>,
}

impl Redis {
    fn each() -> impl Iterator<Item = Self> {
        Brand::installed().into_iter().map(|brand| {
            let server = Server::start(brand);
            let now_us = Arc::new(AtomicU64::new(0));
            let config = Config::server(client::Server::tcp("127.0.0.1", server.port()))
                .budget(Duration::from_secs(10))
                .debug_clock(Arc::clone(&now_us));
            let store = Arc::new(RedisStore::open(config).expect("a store opens"));
            Self { server, now_us, store }
        })
    }
}

impl Arena for Redis {
    type Store = RedisStore;

    fn store(&self) -> Arc<RedisStore> {
        self.server.client().ok(&["FLUSHALL"]);
        Arc::clone(&self.store)
    }

    fn set_now_us(&self, now_us: u64) {
        self.now_us.store(now_us, Ordering::Relaxed);
    }
}

/// Plays the same on each server at the same time: most of it is waiting for them.
fn on_each(play: impl Fn(&Redis) + Sync) {
    thread::scope(|scope| {
        for arena in Redis::each() {
            let play = &play;
            scope.spawn(move || play(&arena));
        }
    });
}

#[test]
fn laws_hold() {
    on_each(laws::suite);
}

#[test]
fn traffic_is_decided_as_by_the_core() {
    on_each(|arena| println!("{} decisions compared", traffic::suite(arena, cases::limits())));
}

/// The clock of this machine is years away from the store's in nearly all of it.
#[test]
fn calendars_are_decided_as_by_the_core() {
    on_each(|arena| {
        println!("{} of calendars compared", traffic::suite(arena, cases::calendars()));
    });
}

#[test]
fn calendars_are_charged_as_by_the_core() {
    on_each(|arena| println!("{} denials", traffic::charges(arena, cases::calendars(), 0)));
}

/// `RATEGATE_DENIALS` says how many of each set of limits, for each way in which a debt ends.
#[test]
fn charges_are_booked_and_denials_in_debt_name_the_instant_at_which_calls_pass() {
    let said = std::env::var("RATEGATE_DENIALS").ok();
    let each = said.map_or(30, |said| said.parse().expect("RATEGATE_DENIALS is a number"));
    on_each(|arena| println!("{} denials", traffic::charges(arena, cases::limits(), each)));
}

#[test]
fn estimates_are_held_as_by_the_core() {
    on_each(reservations::suite);
}

#[test]
fn crowds_of_holds_end_as_by_the_core() {
    on_each(|arena| println!("{} estimates held", reservations::crowds(arena, 12)));
}

#[test]
fn estimates_are_held_in_calendars_as_by_the_core() {
    on_each(|arena| println!("{} estimates held", reservations::calendars(arena)));
}

#[test]
fn what_is_in_flight_is_counted() {
    on_each(flight::suite);
}

#[test]
fn scenarios_play() {
    on_each(|arena| scenarios::suite(arena, SCENARIOS).record("redis").unwrap());
}
