//! A driver whose server misbehaves: no call exceeds its budget, nothing is granted twice, and
//! the same driver recovers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::load::{
    at, config, decide, eventually, key, open, permits, plan, recovers, under_load,
};
use crate::common::proxy::Proxy;
use rategate::store::{
    LeaseId, Reply, Rule, Store, StoreError, StoreExt, StoreReply, StoreRequest, Unavailable,
    Verdict,
};
use rategate_core::concurrency::Concurrency;
use rategate_redis::client::Config;
use rategate_testkit::redis::{Brand, Server};

const SOON: Duration = Duration::from_secs(8);
/// The slack for slow machines: how much later than its budget a call may end here.
const SLACK: Duration = Duration::from_secs(2);

#[test]
fn a_server_that_is_killed_and_starts_again_is_used_again() {
    for brand in Brand::installed() {
        let mut server = Server::start(brand);
        let store = open(config(&server));
        let plan = plan(&store, 40);
        assert!(recovers(&store, &plan, "k0", SOON));
        let mut output = under_load(&store, &plan, 2, || {
            thread::sleep(Duration::from_millis(200));
            server.kill();
            thread::sleep(Duration::from_millis(300));
            server.restart_empty();
            recovers(&store, &plan, "other", SOON);
            thread::sleep(Duration::from_millis(100));
        });
        let (most, slowest) = output.slowest();
        println!("{brand:?} killed: 99.9 % within {most:?}, all {slowest:?}, {:?}", store.stats());
        assert!(output.granted <= 2 * 80, "{}", output.granted);
        assert!(output.denied > 0 && !output.faults.is_empty());
        assert!(slowest < Duration::from_millis(20) + SLACK, "{slowest:?}");
        assert_eq!(store.stats().open, 0);
    }
}

#[test]
fn a_stalled_server_blocks_no_caller_and_late_grants_come_back() {
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let store = open(config(&server));
        let plan = plan(&store, 2_000);
        recovers(&store, &plan, "other", SOON);
        let mut output = under_load(&store, &plan, 1, || {
            thread::sleep(Duration::from_millis(100));
            server.stall();
            thread::sleep(Duration::from_secs(5));
            server.resume();
            recovers(&store, &plan, "other", SOON);
        });
        let (most, slowest) = output.slowest();
        println!("{brand:?} stalled: 99.9 % within {most:?}, all {slowest:?}, {:?}", store.stats());
        assert!(slowest < Duration::from_millis(20) + SLACK, "{slowest:?}");
        assert!(output.faults.iter().all(|fault| matches!(fault, StoreError::Unavailable(_))));
        assert!(output.faults.contains(&StoreError::Unavailable(Unavailable::Late)));
        assert!(output.granted <= 2_000);
        // Grants whose reply was late have been refunded: all permits left can be taken.
        assert_eq!(store.stats().lost, 0);
        let left = permits(2_000 - output.granted);
        eventually(SOON, "late grants are refunded", || {
            let peeked = store.peek(&plan, &key("k0"), permits(1)).wait();
            matches!(peeked, Ok(Verdict::Granted(grant)) if grant.remaining == left.get())
        });
    }
}

#[test]
fn a_server_that_pauses_its_clients_is_late() {
    let server = Server::start(Brand::Redis);
    let store = open(config(&server));
    let plan = plan(&store, 1_000);
    recovers(&store, &plan, "k", SOON);
    server.client().ok(&["CLIENT", "PAUSE", "400", "ALL"]);
    let start = Instant::now();
    assert_eq!(decide(&store, &plan, "k"), Err(StoreError::Unavailable(Unavailable::Late)));
    assert!(start.elapsed() >= Duration::from_millis(20) && start.elapsed() < SLACK);
    recovers(&store, &plan, "k", SOON);
}

#[test]
fn a_single_caller_is_answered_in_time_too() {
    let server = Server::start(Brand::Redis);
    let store = open(config(&server));
    let plan = plan(&store, 1_000);
    recovers(&store, &plan, "k", SOON);
    server.stall();
    let (start, mut received) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(3) {
        assert_eq!(decide(&store, &plan, "k"), Err(StoreError::Unavailable(Unavailable::Late)));
        received += 1;
        // No caller waits meanwhile.
        thread::sleep(Duration::from_millis(30));
    }
    server.resume();
    // About sixty replies; a driver that noticed only once a second would give a few.
    assert!(received > 25, "{received}");
    recovers(&store, &plan, "k", SOON);
}

#[test]
fn functions_and_scripts_that_are_flushed_are_not_missed() {
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let store = open(config(&server).budget(Duration::from_secs(10)));
        let plan = plan(&store, 100);
        let output = under_load(&store, &plan, 3, || {
            for _ in 0..20 {
                server.flush_functions();
                server.flush_scripts();
                thread::sleep(Duration::from_millis(15));
            }
        });
        assert_eq!(output.faults, []);
        assert!(
            output.granted <= 300 && output.granted + output.denied > 100,
            "{}",
            output.granted
        );
        assert!(store.stats().loads > 2, "{:?}", store.stats());
    }
}

#[test]
fn a_store_without_functions_gets_the_script() {
    let hidden = ["FUNCTION", "FCALL", "FCALL_RO"];
    let options: Vec<&str> =
        hidden.iter().flat_map(|&name| ["--rename-command", name, ""]).collect();
    let server = Server::with(Brand::Redis, &options);
    let store = open(config(&server).budget(Duration::from_secs(10)));
    let plan = plan(&store, 100);
    let output = under_load(&store, &plan, 3, || {
        for _ in 0..10 {
            server.flush_scripts();
            thread::sleep(Duration::from_millis(15));
        }
        thread::sleep(Duration::from_millis(200));
    });
    assert_eq!(output.faults, []);
    assert_eq!(output.granted, 300);
}

#[test]
fn a_full_store_decides_by_default() {
    let server = Server::start(Brand::Redis);
    let slow = Duration::from_secs(5);
    let (continues, stops) =
        (open(config(&server).budget(slow)), open(config(&server).budget(slow).within_memory()));
    let plan = plan(&continues, 100);
    assert_eq!(decide(&continues, &plan, "k"), Ok(true));
    assert_eq!(decide(&stops, &plan, "k"), Ok(true));
    server.set_maxmemory(1);
    assert_eq!(decide(&continues, &plan, "k"), Ok(true));
    let refused = decide(&stops, &plan, "k");
    assert!(
        matches!(&refused, Err(StoreError::Unavailable(Unavailable::Unable(_)))),
        "{refused:?}"
    );
    server.set_maxmemory(0);
    assert_eq!(decide(&stops, &plan, "k"), Ok(true));
}

#[test]
fn a_store_that_drops_keys_is_warned_of_once() {
    let mut server = Server::with(Brand::Redis, &["--maxmemory-policy", "allkeys-lru"]);
    let warned = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&warned);
    let config = config(&server).on_warning(move |text| {
        assert!(text.contains("allkeys-lru"), "{text}");
        count.fetch_add(1, Ordering::Relaxed);
    });
    let store = open(config);
    let plan = plan(&store, 100);
    recovers(&store, &plan, "k", SOON);
    server.restart_empty();
    recovers(&store, &plan, "k", SOON);
    assert_eq!(warned.load(Ordering::Relaxed), 1);
}

/// An operator may change the policy while connections stay open.
#[test]
fn a_store_that_begins_to_drop_keys_is_warned_of_once() {
    let server = Server::start(Brand::Redis);
    let warned = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&warned);
    let store = open(config(&server).on_warning(move |text| {
        assert!(text.contains("volatile-ttl"), "{text}");
        count.fetch_add(1, Ordering::Relaxed);
    }));
    let plan = plan(&store, 100);
    recovers(&store, &plan, "k", SOON);
    assert_eq!(warned.load(Ordering::Relaxed), 0);
    let connections = store.stats().connections;
    server.client().ok(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    eventually(SOON, "the warning", || warned.load(Ordering::Relaxed) > 0);
    // The next greeting reports the same again.
    thread::sleep(Duration::from_millis(1_500));
    assert_eq!(warned.load(Ordering::Relaxed), 1);
    assert_eq!(store.stats().connections, connections, "over the same connection");
}

/// The callback is foreign code on the driver's thread.
#[test]
fn a_panicking_warning_callback_is_contained() {
    let server = Server::with(Brand::Redis, &["--maxmemory-policy", "allkeys-lru"]);
    let store = open(config(&server).on_warning(|_| panic!("a warning of a test's own")));
    let plan = plan(&store, 100);
    assert!(recovers(&store, &plan, "k", SOON));
    assert_eq!(decide(&store, &plan, "k"), Ok(true));
}

#[test]
fn late_grants_go_back_over_a_slow_network() {
    let server = Server::start(Brand::Redis);
    let proxy = Proxy::before(server.port());
    let store = open(Config::server(at(proxy.port())).budget(Duration::from_millis(60)));
    let plan = plan(&store, 100);
    let oven = Rule::InFlight(Concurrency::new(4), permits(600_000_000_000));
    let oven = Arc::new(store.plan(&[("oven", oven)]).unwrap());
    recovers(&store, &plan, "k", SOON);
    proxy.reply_faults.delay_ms.store(150, Ordering::Relaxed);
    for name in 0..3 {
        let held = store.hold(&oven, &key("o"), permits(1), LeaseId([name; 16]));
        assert_eq!(held.wait(), Err(StoreError::Unavailable(Unavailable::Late)));
        assert_eq!(decide(&store, &plan, "l"), Err(StoreError::Unavailable(Unavailable::Late)));
        assert_eq!(
            store.debit(&plan, &key("m"), permits(9)).wait(),
            Err(StoreError::Unavailable(Unavailable::Late))
        );
    }
    proxy.reply_faults.delay_ms.store(0, Ordering::Relaxed);
    for (plan, name, most) in [(&plan, "l", 100), (&plan, "m", 100), (&oven, "o", 4)] {
        eventually(SOON, name, || {
            let peeked = store.peek(plan, &key(name), permits(1)).wait();
            matches!(peeked, Ok(Verdict::Granted(grant)) if grant.remaining == most)
        });
    }
    // Requests that were never sent have taken nothing.
    assert!((3..=9).contains(&store.stats().returned), "{:?}", store.stats());
}

/// On an overloaded machine grants are late, and refunding them must not delay the others.
#[test]
fn late_grants_go_back_together() {
    let server = Server::start(Brand::Redis);
    let proxy = Proxy::before(server.port());
    let store = open(Config::server(at(proxy.port())).budget(Duration::from_millis(60)));
    let plan = plan(&store, 1_000);
    recovers(&store, &plan, "k", SOON);
    proxy.reply_faults.delay_ms.store(150, Ordering::Relaxed);
    let before = store.stats();
    let names: Vec<String> = (0..200).map(|name| format!("n{}", name % 20)).collect();
    let pending: Vec<_> =
        names.iter().map(|name| store.decide(&plan, &key(name), permits(1))).collect();
    for pending in pending {
        assert_eq!(pending.wait(), Err(StoreError::Unavailable(Unavailable::Late)));
    }
    proxy.reply_faults.delay_ms.store(0, Ordering::Relaxed);
    eventually(SOON, "all come back", || {
        names.iter().all(|name| {
            let peeked = store.peek(&plan, &key(name), permits(1)).wait();
            matches!(peeked, Ok(Verdict::Granted(grant)) if grant.remaining == 1_000)
        })
    });
    let stats = store.stats();
    assert!(stats.returned - before.returned > 100, "{stats:?}");
    let output = server.client().ok(&["INFO", "commandstats"]).text();
    let calls = |name: &str| {
        let line = output.lines().find(|line| line.starts_with(name)).unwrap_or(":calls=0,");
        line.split(['=', ',']).nth(1).unwrap().parse::<u64>().unwrap()
    };
    // Peeks are another command.
    assert!(calls("cmdstat_fcall:") < 40, "{output}");
}

/// A request whose decision would come too late is not sent.
#[test]
fn requests_that_cannot_be_answered_in_time_are_not_sent() {
    let server = Server::start(Brand::Redis);
    let proxy = Proxy::before(server.port());
    let config = Config::server(at(proxy.port())).batch(1).rounds(1);
    let store = open(config.budget(Duration::from_millis(210)));
    let plan = plan(&store, 1_000);
    recovers(&store, &plan, "k", SOON);
    proxy.reply_faults.delay_ms.store(30, Ordering::Relaxed);
    for _ in 0..20 {
        let _ = decide(&store, &plan, "warm");
    }
    let before = store.stats();
    let begun = Instant::now();
    let pending: Vec<_> = (0..20).map(|_| store.decide(&plan, &key("k"), permits(1))).collect();
    let granted = pending.into_iter().map(|pending| pending.wait().is_ok());
    let granted = granted.filter(|&is| is).count();
    assert!(begun.elapsed() < Duration::from_millis(210) + SLACK);
    let stats = store.stats();
    println!("{granted} granted, {stats:?}");
    assert!(stats.shed > before.shed && granted > 0, "{stats:?}");
    assert_eq!(stats.returned, before.returned, "nothing was granted too late");
}

#[test]
fn cut_or_corrupt_replies_are_lost_and_not_retried() {
    let server = Server::start(Brand::Redis);
    let proxy = Proxy::before(server.port());
    let store = open(Config::server(at(proxy.port())).budget(Duration::from_millis(500)));
    let plan = plan(&store, 1_000);
    recovers(&store, &plan, "k", SOON);
    for _ in 0..10 {
        proxy.reply_faults.cuts.store(true, Ordering::Relaxed);
        let result = decide(&store, &plan, "cut");
        assert!(matches!(result, Err(StoreError::Unavailable(_))), "{result:?}");
        recovers(&store, &plan, "k", SOON);
    }
    // Each was decided once, although its reply was lost.
    let Ok(Verdict::Granted(grant)) = store.peek(&plan, &key("cut"), permits(1)).wait() else {
        panic!("denied")
    };
    assert!(grant.remaining >= 990, "{grant:?}");
    for offset in 1..30 {
        proxy.reply_faults.spoils.store(offset, Ordering::Relaxed);
        let result = decide(&store, &plan, "spoilt");
        assert!(result.is_ok() || matches!(result, Err(StoreError::Unavailable(_))), "{result:?}");
        recovers(&store, &plan, "k", SOON);
    }
    assert_eq!(store.stats().open, 0);
}

#[test]
fn a_connection_that_owes_an_answer_is_replaced() {
    let server = Server::start(Brand::Redis);
    let proxy = Proxy::before(server.port());
    let store = open(Config::server(at(proxy.port())));
    let plan = plan(&store, 1_000);
    recovers(&store, &plan, "k", SOON);
    for is_idle in [false, true] {
        let connections = proxy.reply_faults.connections.load(Ordering::Relaxed);
        proxy.reply_faults.swallows.store(connections, Ordering::Relaxed);
        if is_idle {
            // A greeting finds out.
            eventually(SOON, "another connection", || {
                proxy.reply_faults.connections.load(Ordering::Relaxed) > connections
            });
            recovers(&store, &plan, "k", Duration::from_secs(5));
        } else {
            assert_eq!(decide(&store, &plan, "k"), Err(StoreError::Unavailable(Unavailable::Late)));
            recovers(&store, &plan, "k", Duration::from_secs(5));
        }
        assert!(proxy.reply_faults.connections.load(Ordering::Relaxed) > connections);
    }
}

#[test]
fn too_many_requests_are_refused_at_once() {
    let server = Server::start(Brand::Redis);
    let store = open(config(&server).queue(10).budget(Duration::from_millis(300)));
    let plan = plan(&store, 1_000);
    recovers(&store, &plan, "k", SOON);
    server.stall();
    let pending: Vec<_> = (0..30).map(|_| store.decide(&plan, &key("k"), permits(1))).collect();
    let result: Vec<_> = pending.into_iter().map(|pending| pending.wait().unwrap_err()).collect();
    server.resume();
    let late =
        result.iter().filter(|fault| **fault == StoreError::Unavailable(Unavailable::Late)).count();
    let full = result
        .iter()
        .filter(|fault| matches!(fault, StoreError::Unavailable(Unavailable::Unable(_))))
        .count();
    assert_eq!((late, full), (10, 20));
    recovers(&store, &plan, "k", SOON);
}

#[test]
fn a_closed_store_reports_it_and_a_panicking_callback_is_contained() {
    let server = Server::start(Brand::Redis);
    let store = open(config(&server).budget(Duration::from_secs(30)));
    let plan = plan(&store, 1_000);
    let request = |name: &str| StoreRequest::Decide {
        plan: Arc::clone(&plan),
        key: key(name),
        permits: permits(1),
        lease: None,
    };
    store.submit(request("k"), Box::new(|_| panic!("a callback of a test's own")));
    assert_eq!(decide(&store, &plan, "k"), Ok(true));
    server.stall();
    let pending: Vec<_> = (0..20).map(|_| store.decide(&plan, &key("k"), permits(1))).collect();
    // A future of `StoreExt` keeps the store alive; a callback does not.
    let (output, received) = std::sync::mpsc::channel();
    for _ in 0..20 {
        let output = output.clone();
        store.submit(request("l"), Box::new(move |result| output.send(result).unwrap()));
    }
    drop(pending);
    server.resume();
    for _ in 0..20 {
        assert!(received.recv_timeout(SOON).unwrap().is_ok());
    }
    server.stall();
    store.submit(request("l"), Box::new(move |result| output.send(result).unwrap()));
    let store = Arc::into_inner(store);
    drop(store.expect("no other owner"));
    assert_eq!(received.recv_timeout(SOON).unwrap(), Err(StoreError::Closed));
    server.resume();
}

#[test]
fn a_store_says_for_how_long_it_has_lost_nothing() {
    for brand in Brand::installed() {
        let mut server = Server::start(brand);
        let store = open(config(&server).budget(Duration::from_secs(5)));
        let plan = plan(&store, 1_000);
        let intact = || {
            let (plan, key, permits) = (Arc::clone(&plan), key("k"), permits(1));
            let result = store.call(StoreRequest::Peek { plan, key, permits }).wait();
            match result {
                Ok(StoreReply { reply: Reply::Verdict(_), intact_for_ns: Some(ns), .. }) => ns,
                other => panic!("{other:?}"),
            }
        };
        recovers(&store, &plan, "k", SOON);
        let first = intact();
        thread::sleep(Duration::from_millis(300));
        let second = intact();
        assert!(second >= first + 300_000_000 && second < 60_000_000_000, "{first} {second}");
        // A second driver reads the same marker: its connection is new, the store is not.
        let other = open(config(&server).budget(Duration::from_secs(5)));
        recovers(&other, &plan, "k", SOON);
        assert!(intact() > second);
        server.restart_empty();
        recovers(&store, &plan, "k", SOON);
        assert!(intact() < second, "a server that started again has lost everything");
        for emptied in ["FLUSHALL", "FLUSHDB"] {
            thread::sleep(Duration::from_millis(400));
            assert!(intact() >= 400_000_000);
            server.client().ok(&[emptied]);
            assert_eq!(intact(), 0, "the very next reply says so");
            recovers(&store, &plan, "k", SOON);
            eventually(SOON, "it is known again", || intact() > 0);
        }
    }
}
