//! A debt of a hundred limits while the server is killed, stands still and is followed by its
//! replica: calls are denied throughout, and no permit of a charge is forgiven but those that the
//! replica never received.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::load::{at, config, eventually, key, open, permits};
use rategate::calendar::CalendarSpec;
use rategate::charge::Debt;
use rategate::store::{Rule, Store, StoreError, StoreExt, Verdict};
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::sliding_log::SlidingLog;
use rategate_redis::client::{Config, RedisStore};
use rategate_redis::plan::Plan;
use rategate_testkit::redis::{Brand, Server};

const SOON: Duration = Duration::from_secs(20);
const LIMIT: u64 = 10;
const DAYS: Duration = Duration::from_secs(10 * 86_400);

/// Ten permits in a time that no test takes: windows last for days, and a bucket earns
/// a permit in an hour. A debt that lasts for 35 years or less is carried whole.
fn limits() -> [(&'static str, Rule, Debt); 6] {
    let bucket = Gcra::new("1/h".parse().unwrap(), LIMIT).unwrap();
    let window = FixedWindow::new(LIMIT, DAYS, Anchor::Epoch);
    let log = SlidingLog::new(LIMIT, DAYS);
    let calendar = CalendarSpec::new("week", "Asia/Tokyo").unwrap().quota(LIMIT).unwrap();
    [
        ("bucket", bucket.into(), Debt::FORGOTTEN),
        ("window", window.into(), Debt::FORGOTTEN),
        ("carried", window.into(), Debt::CARRIED),
        ("log", log.into(), Debt::FORGOTTEN),
        ("calendar", calendar.into(), Debt::FORGOTTEN),
        ("weeks", calendar.into(), Debt::CARRIED),
    ]
}

/// A limit in debt, and what was charged to it.
struct Indebted {
    name: &'static str,
    plan: Arc<Plan>,
    debt: Debt,
    /// The permits of charges that the store has confirmed, and of those whose outcome is unknown.
    booked: AtomicU64,
    unknown: AtomicU64,
}

impl Indebted {
    /// Charges a hundred limits to each limit.
    fn all(store: &Arc<RedisStore>) -> Vec<Self> {
        let indebted = limits().into_iter().map(|(name, rule, debt)| {
            let plan = Arc::new(store.plan(&[(name, rule)]).unwrap());
            let (booked, unknown) = (AtomicU64::new(0), AtomicU64::new(0));
            let indebted = Self { name, plan, debt, booked, unknown };
            eventually(SOON, "a first charge", || indebted.charge(store, 101 * LIMIT));
            indebted
        });
        indebted.collect()
    }

    /// Returns `true` if the charge is known to be booked.
    fn charge(&self, store: &Arc<RedisStore>, charged: u64) -> bool {
        match store.charge(&self.plan, &key("k"), charged, self.debt).wait() {
            Ok(reply) => {
                assert_eq!(reply.charged.forgiven, 0, "{}", self.name);
                self.booked.fetch_add(charged, Ordering::Relaxed);
                true
            }
            Err(StoreError::Unavailable(_)) => {
                self.unknown.fetch_add(charged, Ordering::Relaxed);
                false
            }
            Err(other) => panic!("{}: {other:?}", self.name),
        }
    }

    /// Returns the permits in use, once the store replies.
    fn used(&self, store: &Arc<RedisStore>) -> u64 {
        let mut used = 0;
        eventually(SOON, self.name, || {
            let reply = store.charge(&self.plan, &key("k"), 0, self.debt).wait();
            reply.is_ok_and(|reply| {
                used = LIMIT - reply.remaining + reply.charged.debt;
                true
            })
        });
        used
    }

    fn booked(&self) -> u64 {
        self.booked.load(Ordering::Relaxed)
    }
}

/// Charges and asks in threads while `happens` runs. Returns the number of denials.
fn under_load(store: &Arc<RedisStore>, all: &[Indebted], happens: impl FnOnce()) -> u64 {
    let (is_over, denials) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for caller in 0..4_u64 {
            let (is_over, denials) = (&is_over, &denials);
            scope.spawn(move || {
                for (turn, indebted) in all.iter().cycle().enumerate() {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    if caller == 0 && turn % 2 == 0 {
                        indebted.charge(store, 3);
                    }
                    let one = permits(1 + caller % 2);
                    match store.decide(&indebted.plan, &key("k"), one).wait() {
                        Ok(Verdict::Denied(denial)) => {
                            assert!(denial.debt >= 90 * LIMIT, "{}: {denial:?}", indebted.name);
                            denials.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(Verdict::Granted(grant)) => panic!("{}: {grant:?}", indebted.name),
                        Err(StoreError::Unavailable(_)) => {}
                        Err(other) => panic!("{}: {other:?}", indebted.name),
                    }
                    thread::sleep(Duration::from_micros(200));
                }
            });
        }
        happens();
        is_over.store(true, Ordering::Relaxed);
    });
    denials.into_inner()
}

/// Checks that all that was booked is owed, and nothing but what may have been booked besides.
fn is_owed(store: &Arc<RedisStore>, all: &[Indebted], about: &str) {
    for indebted in all {
        let (used, booked) = (indebted.used(store), indebted.booked());
        let most = booked + indebted.unknown.load(Ordering::Relaxed);
        let name = indebted.name;
        assert!((booked..=most).contains(&used), "{about}, {name}: {used} of {booked} to {most}");
    }
}

/// It is killed three times, and starts again from its append-only file.
#[test]
fn a_debt_outlives_a_server_that_is_killed() {
    for brand in Brand::installed() {
        let mut server = Server::with(brand, &["--appendonly", "yes", "--appendfsync", "always"]);
        let store = open(config(&server).budget(Duration::from_millis(300)));
        let all = Indebted::all(&store);
        let denials = under_load(&store, &all, || {
            for _ in 0..3 {
                thread::sleep(Duration::from_millis(150));
                server.restart();
                for indebted in &all {
                    indebted.used(&store);
                }
            }
        });
        is_owed(&store, &all, "killed");
        println!("{denials} denials in debt around three kills");
        assert!(denials > 100, "{denials}");
    }
}

/// It stands still three times. Charges that it reads late are booked, or were never sent.
#[test]
fn a_debt_outlives_a_server_that_stands_still() {
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let store = open(config(&server).budget(Duration::from_millis(300)));
        let all = Indebted::all(&store);
        let denials = under_load(&store, &all, || {
            for _ in 0..3 {
                thread::sleep(Duration::from_millis(150));
                server.stall();
                thread::sleep(Duration::from_millis(400));
                server.resume();
                for indebted in &all {
                    indebted.used(&store);
                }
            }
        });
        is_owed(&store, &all, "stood still");
        println!("{denials} denials in debt around three pauses");
        assert!(denials > 100, "{denials}");
    }
}

/// The replica has all charges up to an instant, and takes over after it has missed some. Those
/// alone are forgiven.
#[test]
fn a_replica_forgives_what_it_never_received() {
    for brand in Brand::installed() {
        let mut primary = Server::start(brand);
        let replica = primary.replica();
        let topology = Config::primary_of([at(primary.port()), at(replica.port())]);
        let store = open(topology.prefix("t").budget(Duration::from_millis(300)));
        let all = Indebted::all(&store);
        let (mut received, mut port_of_primary) = (Vec::new(), None);
        let denials = under_load(&store, &all, || {
            thread::sleep(Duration::from_millis(150));
            received = all.iter().map(Indebted::booked).collect();
            // A client waits for its own writes, and with them for all before.
            let mut client = primary.client();
            client.ok(&["SET", "last", "1"]);
            assert_eq!(client.ok(&["WAIT", "1", "5000"]).int(), 1);
            replica.stall();
            thread::sleep(Duration::from_millis(300));
            primary.kill();
            // No server of another test may take its port, and with it the place of the primary.
            port_of_primary = TcpListener::bind(("127.0.0.1", primary.port())).ok();
            replica.resume();
            replica.client().ok(&["REPLICAOF", "NO", "ONE"]);
            for indebted in &all {
                indebted.used(&store);
            }
        });
        for (indebted, received) in all.iter().zip(received) {
            let (used, name) = (indebted.used(&store), indebted.name);
            let most = indebted.booked() + indebted.unknown.load(Ordering::Relaxed);
            assert!((received..=most).contains(&used), "{name}: {used} of {received} to {most}");
        }
        drop(port_of_primary);
        println!("{denials} denials in debt around a failover");
        assert!(denials > 100, "{denials}");
    }
}
