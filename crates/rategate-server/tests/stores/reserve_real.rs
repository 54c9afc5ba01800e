//! Reservations of servers that share a real store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rategate::charge::Settled;
use rategate::{Gcra, MonotonicClock};
use rategate_server::engine::{
    Cost, Engine, EngineSettings, Item, Reserved, Target, UniqueId, Verb, Verdict,
};
use rategate_server::rule::{CounterLocation, Limit, OnUnavailable, Rule};
use rategate_testkit::redis::{Brand, Server};
use tokio::runtime::Runtime;

use crate::engine::common::bucket;
use crate::stores::{PATIENCE, decided, in_flight, real_store, rule_set, stored};

/// Servers with one store, and limits of which nothing is earned back meanwhile.
struct Fleet {
    _store: Server,
    servers: Vec<Engine>,
    runtime: Runtime,
}

impl Fleet {
    fn new(brand: Brand, servers: usize) -> Self {
        let store = Server::start(brand);
        let shared = real_store(&store, PATIENCE);
        let slow = |rule: Rule, burst| {
            let limit = Limit::Policy(Gcra::per_day(1).burst(burst).into());
            Rule { limit, on_unavailable: OnUnavailable::Deny, ..rule }
        };
        let servers = (0..servers).map(|_| {
            let rules = vec![
                slow(stored("s", 1), 2_000),
                slow(stored("t", 1), 10),
                slow(bucket("here", &["who"], 1), 3),
                Rule {
                    on_unavailable: OnUnavailable::Deny,
                    ..in_flight("oven", 3, CounterLocation::StoreExact)
                },
            ];
            let settings = EngineSettings::default();
            let shared = Arc::clone(&shared);
            let engine = Engine::with_store(MonotonicClock::new(), settings, None, Some(shared));
            engine.load(rule_set(rules)).unwrap();
            engine
        });
        let servers = servers.collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { _store: store, servers, runtime }
    }

    fn reserve(&self, server: usize, id: UniqueId, ttl: Duration, items: &[(&str, u64)]) -> bool {
        let items: Vec<Item<'_>> =
            items.iter().map(|&(name, permits)| Item::of(of(name), permits)).collect();
        let reserved = self.servers[server].reserve(id, ttl, &items);
        self.runtime.block_on(reserved.answer()).unwrap().answer.allowed
    }

    fn commit(&self, server: usize, id: UniqueId, costs: &[(&str, u64)]) -> Reserved {
        let cost =
            |&(name, permits)| Cost { target: of(name), permits: Some(permits), usage: None };
        let costs: Vec<Cost<'_>> = costs.iter().map(cost).collect();
        self.runtime.block_on(self.servers[server].commit(id, &costs).answer()).unwrap()
    }

    fn left(&self, server: usize, name: &str) -> u64 {
        let decided = decided(&self.servers[server], Verb::Peek, &[(name, "x", 1)]);
        self.runtime.block_on(decided.answer()).unwrap().results[0].remaining.unwrap()
    }
}

fn of(name: &str) -> Target<'_> {
    Target::Rule { name, values: &[b"x"] }
}

/// Slots in the store are held with other items, ended by another server, and free by themselves.
#[test]
fn servers_share_permits_in_flight() {
    for brand in Brand::installed() {
        let fleet = Fleet::new(brand, 2);
        let left = || [fleet.left(0, "oven"), fleet.left(1, "s")];
        let id = |number| UniqueId([number; 16]);
        assert!(fleet.reserve(0, id(1), MINUTE, &[("s", 800), ("oven", 2), ("here", 1)]));
        assert!(fleet.reserve(0, id(1), MINUTE, &[("s", 800), ("oven", 2), ("here", 1)]));
        assert!(!fleet.reserve(1, id(2), MINUTE, &[("s", 800), ("oven", 2)]), "by the slots");
        assert!(!fleet.reserve(1, id(2), MINUTE, &[("oven", 1), ("s", 1201)]), "by the tokens");
        assert_eq!(left(), [1, 1200]);
        assert!(fleet.reserve(1, id(2), MINUTE, &[("oven", 1), ("s", 100)]));
        for sent in 0..3 {
            let ended = fleet.commit(0, id(2), &[("oven", 5), ("s", 150)]);
            assert_eq!(ended.is_repeated, sent > 0);
            let owed = Settled::Owed { permits: 50, forgiven: 0 };
            let verdicts = ended.answer.results.iter().map(|result| result.verdict);
            let expected = [Settled::Even, owed].map(Verdict::Committed);
            assert_eq!(verdicts.collect::<Vec<_>>(), expected);
        }
        assert_eq!(left(), [1, 1050]);
        let ended = fleet.commit(0, id(1), &[("s", 800), ("oven", 2), ("here", 1)]);
        assert!(ended.answer.allowed);
        assert_eq!(left(), [3, 1050]);
        let short = Duration::from_millis(1);
        assert!(fleet.reserve(1, id(3), short, &[("oven", 3), ("s", 50)]));
        let started = Instant::now();
        while left() != [3, 1050] {
            assert!(started.elapsed() < PATIENCE, "it never ends");
        }
        let late = fleet.commit(0, id(3), &[("oven", 3), ("s", 50)]);
        let verdicts: Vec<_> = late.answer.results.iter().map(|result| result.verdict).collect();
        assert_eq!(verdicts, [0, 50].map(Verdict::Late));
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// All or none, ended by another server, and each operation counts once however often it is sent.
#[test]
fn servers_hold_and_settle_together() {
    for brand in Brand::installed() {
        let fleet = Fleet::new(brand, 2);
        let (id, other) = (UniqueId::random(), UniqueId::random());
        for server in [0, 1, 0, 1] {
            assert!(fleet.reserve(server, id, MINUTE, &[("s", 1_500), ("t", 4)]));
        }
        // Denied by the store, or here; then the same id is free.
        for items in [[("s", 500), ("t", 7), ("here", 1)], [("s", 500), ("t", 6), ("here", 4)]] {
            assert!(!fleet.reserve(0, other, MINUTE, &items), "{items:?}");
            assert_eq!(
                (fleet.left(0, "s"), fleet.left(1, "t"), fleet.left(0, "here")),
                (500, 6, 3)
            );
        }
        assert!(fleet.reserve(0, other, MINUTE, &[("s", 500), ("t", 6), ("here", 3)]));
        for sent in 0..5 {
            let settled = fleet.commit(1 - sent % 2, id, &[("s", 1_400), ("t", 9)]);
            assert_eq!(settled.is_repeated, sent > 0);
            let verdicts = settled.answer.results.iter().map(|result| result.verdict);
            let back = Verdict::Committed(Settled::Back { permits: 100 });
            let owed = Verdict::Committed(Settled::Owed { permits: 5, forgiven: 0 });
            assert_eq!(verdicts.collect::<Vec<_>>(), [back, owed]);
        }
        for sent in 0..5 {
            let settled = fleet.commit(0, other, &[("s", 0), ("t", 0), ("here", 1)]);
            assert_eq!((settled.is_repeated, settled.answer.allowed), (sent > 0, true));
        }
        assert_eq!((fleet.left(1, "s"), fleet.left(0, "t"), fleet.left(0, "here")), (600, 1, 2));
    }
}

/// Many calls at once, by two servers: what is held never exceeds the limit, all that fits is held,
/// and in the end the true costs are used.
#[test]
fn calls_at_once_reserve_what_fits_and_no_more() {
    let Some(brand) = Brand::installed().into_iter().next() else { return };
    for callers in [5_u64, 50, 500] {
        let fleet = Fleet::new(brand, 2);
        let ids: Vec<UniqueId> = (0..callers).map(|_| UniqueId::random()).collect();
        let item = [Item::of(of("s"), 80)];
        let begun: Vec<_> = ids
            .iter()
            .zip([0, 1].into_iter().cycle())
            .map(|(id, server)| fleet.servers[server].reserve(*id, MINUTE, &item))
            .collect();
        let held = begun
            .into_iter()
            .map(|decided| fleet.runtime.block_on(decided.answer()).unwrap().answer.allowed);
        let held: Vec<bool> = held.collect();
        let count = u64::try_from(held.iter().filter(|held| **held).count()).unwrap();
        assert_eq!(count, callers.min(25), "{callers} callers");
        let mut used = 0;
        for (at, (id, held)) in (0..).zip(ids.iter().zip(held)) {
            let actual = at % 81;
            let settled = fleet.commit(usize::try_from(at % 2).unwrap(), *id, &[("s", actual)]);
            assert_eq!(settled.answer.allowed, held);
            used += if held { actual } else { 0 };
        }
        assert_eq!(fleet.left(0, "s"), 2_000 - used, "{callers} callers");
    }
}

/// A client that dies between its reservation and its commit keeps nothing after its time.
#[test]
fn what_a_dead_client_held_is_free_after_its_time() {
    let Some(brand) = Brand::installed().into_iter().next() else { return };
    let fleet = Fleet::new(brand, 1);
    let ttl = Duration::from_millis(300);
    assert!(fleet.reserve(0, UniqueId::random(), ttl, &[("s", 2_000), ("here", 3)]));
    // From now on the time is over in the store, which has held it before it replied.
    let until = Instant::now() + ttl;
    assert_eq!((fleet.left(0, "s"), fleet.left(0, "here")), (0, 0));
    std::thread::sleep(until.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
    assert!(fleet.reserve(0, UniqueId::random(), MINUTE, &[("s", 2_000), ("here", 3)]));
}
