//! The store client through its driver, on real servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::load::{at, config, eventually, key, open, permits};
use rategate::charge::Debt;
use rategate::distributed::{DecidedBy, Decision, Distributed, StoreStatus};
use rategate::store::{
    LeaseId, Rule, Store, StoreError, StoreExt, StoreRequest, Unavailable, Verdict,
};
use rategate_core::concurrency::Concurrency;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::sliding_log::SlidingLog;
use rategate_redis::client::{self, Config, OpenError, RedisStore};
use rategate_redis::library::Library;
use rategate_testkit::redis::{Brand, Server};

fn store(server: &Server) -> Arc<RedisStore> {
    open(config(server).budget(Duration::from_secs(5)))
}

#[test]
fn a_store_decides() {
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let store = store(&server);
        let bucket = Gcra::new("1/60s".parse().unwrap(), 5).unwrap();
        let plan = Arc::new(store.plan(&[("api", bucket.into())]).unwrap());
        let key = key("k");
        for left in (0..5).rev() {
            let Verdict::Granted(grant) = store.decide(&plan, &key, permits(1)).wait().unwrap()
            else {
                panic!("denied")
            };
            assert_eq!((grant.permits, grant.remaining), (1, left));
        }
        let Verdict::Denied(denial) = store.decide(&plan, &key, permits(1)).wait().unwrap() else {
            panic!("granted")
        };
        assert!(denial.retry_after_ns.unwrap().get() > 50_000_000_000);
        assert!(matches!(
            store.decide(&plan, &key, permits(6)).wait(),
            Err(StoreError::Exceeds(_))
        ));
        assert_eq!(store.reset(&plan, &key).wait(), Ok(1));
        // The server must notice each request at once, and not once a second.
        let start = Instant::now();
        for _ in 0..8 {
            std::thread::sleep(Duration::from_millis(50));
            assert!(store.decide(&plan, &key, permits(1)).wait().is_ok());
        }
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    }
}

/// An unreachable store answers each request with the reason, long before its budget ends. It
/// reports `Late` only where the budget ends before the connection is refused.
#[test]
fn an_unreachable_server_is_reported_in_time() {
    // No server has this port, and no program can bind it while the test runs.
    let config = || Config::server(at(1));
    let patient = open(config().budget(Duration::from_secs(30)));
    let hurried = open(config());
    let bucket = Gcra::new("1/60s".parse().unwrap(), 5).unwrap();
    let plan = Arc::new(patient.plan(&[("api", bucket.into())]).unwrap());
    let begun = Instant::now();
    for _ in 0..20 {
        let result = patient.decide(&plan, &key("k"), permits(1)).wait();
        assert!(
            matches!(result, Err(StoreError::Unavailable(Unavailable::Unreachable(_)))),
            "{result:?}"
        );
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let result = hurried.decide(&plan, &key("k"), permits(1)).wait();
    let is_unavailable = |unavailable: &Unavailable| {
        matches!(unavailable, Unavailable::Unreachable(_) | Unavailable::Late)
    };
    assert!(
        matches!(&result, Err(StoreError::Unavailable(unavailable)) if is_unavailable(unavailable)),
        "{result:?}"
    );
}

/// Requests fail until the store is connected; one that is `ready` decides.
#[test]
fn a_store_is_ready_once_its_server_replies() {
    let mut server = Server::start(Brand::Redis);
    server.kill();
    let store = RedisStore::open(config(&server)).unwrap();
    let begun = Instant::now();
    let error = store.ready(Duration::from_millis(300)).unwrap_err();
    assert!(begun.elapsed() >= Duration::from_millis(280), "{:?}", begun.elapsed());
    let StoreError::Unavailable(unavailable) = error else { panic!("{error:?}") };
    assert!(matches!(unavailable, Unavailable::Unreachable(_) | Unavailable::Late));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| store.ready(Duration::from_secs(20)));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!waiting.is_finished());
        server.restart_empty();
        assert_eq!(waiting.join().unwrap(), Ok(()));
    });
    assert!(store.stats().connected > 0);
    // Waiting cannot help a client that is not authorized.
    server.client().ok(&["CONFIG", "SET", "requirepass", "sesame"]);
    let begun = Instant::now();
    let refused = RedisStore::open(config(&server)).unwrap().ready(Duration::from_secs(60));
    assert!(matches!(refused, Err(StoreError::Unavailable(Unavailable::Broken(_)))), "{refused:?}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

/// The permissions that the guide names are enough for all that a node does.
#[test]
fn the_rights_that_the_guide_names_are_enough() {
    let guide = include_str!("../../../docs/distributed.md");
    let user = guide.lines().find(|line| line.starts_with("user rategate on ")).unwrap();
    let folder = std::env::temp_dir().join(format!("rategate-rights-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("users");
    let admin = "user default on nopass ~* &* +@all";
    std::fs::write(&file, format!("{}\n{admin}\n", user.replace("shop", "t"))).unwrap();
    let server = Server::with(Brand::Redis, &["--aclfile", &file.display().to_string()]);
    let config =
        config(&server).user("rategate").password("PASSWORD").budget(Duration::from_secs(5));
    let store = Arc::new(RedisStore::open(config).unwrap());
    let log = SlidingLog::new(9, Duration::from_secs(60));
    let window = FixedWindow::new(9, Duration::from_secs(60), Anchor::Epoch);
    let bucket = Gcra::new("1/60s".parse().unwrap(), 9).unwrap();
    let rules = [("g", bucket.into()), ("l", Rule::from(log)), ("w", window.into())];
    let plan = Arc::new(store.plan(&rules).unwrap());
    for _ in 0..2 {
        let Verdict::Granted(grant) = store.decide(&plan, &key("k"), permits(2)).wait().unwrap()
        else {
            panic!("denied")
        };
        store.refund(&plan, &key("k"), grant.receipt, permits(1)).wait().unwrap();
        store.credit(&plan, &key("k"), permits(1)).wait().unwrap();
        let _ = store.peek(&plan, &key("k"), permits(1)).wait().unwrap();
        let _ = store.debit(&plan, &key("k"), permits(9)).wait().unwrap();
        for _ in 0..2 {
            store.charge(&plan, &key("k"), 40, Debt::FORGOTTEN).wait().unwrap();
        }
        store.reset(&plan, &key("k")).wait().unwrap();
    }
    let oven = Rule::InFlight(Concurrency::new(4), permits(60_000_000_000));
    let oven = Arc::new(store.plan(&[("oven", oven)]).unwrap());
    let lease = LeaseId([7; 16]);
    let _ = store.hold(&oven, &key("o"), permits(1), lease).wait().unwrap();
    let _ = store.hold(&oven, &key("o"), permits(3), LeaseId([8; 16])).wait().unwrap();
    let _ = store.hold(&oven, &key("o"), permits(1), LeaseId([9; 16])).wait().unwrap();
    assert_eq!(store.renew(&oven, &key("o"), permits(1), lease).wait(), Ok(1));
    assert_eq!(store.release(&oven, &key("o"), permits(1), lease).wait(), Ok(1));
    let _ = std::fs::remove_dir_all(folder);
}

/// Without permission to load or list functions, the client needs an operator who loads them.
#[test]
fn a_user_who_may_not_load_functions_needs_an_operator() {
    let server = Server::start(Brand::Redis);
    let guide = include_str!("../../../docs/distributed.md");
    let user = guide.lines().find(|line| line.starts_with("user rategate on ")).unwrap();
    let user = user.replace("shop", "t").replace(" +function|load +function|list", "");
    let words: Vec<&str> = user.split_whitespace().skip(1).collect();
    server.client().ok(&[&["ACL", "SETUSER"], &words[..]].concat());
    let store = open(config(&server).user("rategate").password("PASSWORD"));
    let bucket = Gcra::new("1/60s".parse().unwrap(), 9).unwrap();
    let plan = Arc::new(store.plan(&[("api", bucket.into())]).unwrap());
    let decide = || store.decide(&plan, &key("k"), permits(1)).wait();
    let (begun, is_refused) = (Instant::now(), |result: &Result<_, StoreError>| {
        matches!(
            result,
            Err(StoreError::Unavailable(Unavailable::Broken(why))) if why.contains("function|load")
        )
    });
    while !is_refused(&decide()) {
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", decide());
    }
    server.client().ok(&Library::LIVE.load());
    eventually(Duration::from_secs(8), "a decision", || decide().is_ok());
}

/// The driver runs as a task among its callers, and ends with their runtime.
#[test]
fn a_store_within_a_runtime_needs_no_thread() {
    let server = Server::start(Brand::Redis);
    let outside = RedisStore::open_in_runtime(config(&server));
    assert!(matches!(outside, Err(OpenError::Driver(_))), "no runtime here");
    let bucket = Gcra::new("1/60s".parse().unwrap(), 5).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime.block_on(async {
        let slow = Duration::from_secs(5);
        let store = Arc::new(RedisStore::open_in_runtime(config(&server).budget(slow)).unwrap());
        let plan = Arc::new(store.plan(&[("api", bucket.into())]).unwrap());
        let mut granted = 0;
        for _ in 0..9 {
            let verdict = store.decide(&plan, &key("k"), permits(1)).await.unwrap();
            granted += u32::from(matches!(verdict, Verdict::Granted(_)));
        }
        assert_eq!(granted, 5);
        store
    });
    drop(runtime);
    let plan = Arc::new(store.plan(&[("api", bucket.into())]).unwrap());
    assert_eq!(store.decide(&plan, &key("k"), permits(1)).wait(), Err(StoreError::Closed));
}

/// The driver may get no processor, or be blocked by foreign code.
#[test]
fn a_caller_keeps_its_deadline_whatever_the_driver_does() {
    const BUDGET: Duration = Duration::from_millis(150);
    let server = Server::start(Brand::Redis);
    let store = store(&server);
    let bucket = Gcra::new("1/60s".parse().unwrap(), 50).unwrap();
    let builder = Distributed::builder(Arc::clone(&store)).limit("api", bucket);
    let limiter = builder.with_budget(BUDGET).build().unwrap();
    while limiter.try_acquire(b"k", 1).wait().unwrap().by() != DecidedBy::Store {}
    let plan = Arc::new(store.plan(&[("held", bucket.into())]).unwrap());
    let request = StoreRequest::Reset { plan, key: key("k") };
    store.submit(request, Box::new(|_| std::thread::sleep(Duration::from_millis(900))));
    std::thread::sleep(Duration::from_millis(100));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let in_a_thread = || limiter.try_acquire(b"k", 1).wait().unwrap();
    let in_a_task = || runtime.block_on(limiter.try_acquire(b"k", 1)).unwrap();
    let callers: [&dyn Fn() -> Decision; 2] = [&in_a_thread, &in_a_task];
    for decide in callers {
        let begun = Instant::now();
        let decision = decide();
        let took = begun.elapsed();
        assert_eq!((decision.is_granted(), decision.by()), (false, DecidedBy::Fallback));
        assert!(took >= BUDGET && took < 2 * BUDGET, "{took:?}");
    }
    // Permits granted afterwards for the late request have been refunded.
    std::thread::sleep(Duration::from_millis(900));
    let before = limiter.peek(b"k", 1).wait().unwrap().remaining().unwrap();
    assert!(limiter.try_acquire(b"k", 1).wait().unwrap().is_granted());
    assert_eq!(limiter.peek(b"k", 1).wait().unwrap().remaining(), Some(before - 1));
    assert!(before >= 48, "{before}");
}

/// The breaker guards the store: a faulty key does not open it.
#[test]
fn a_key_with_something_elses_data_leaves_the_store_well() {
    let server = Server::start(Brand::Redis);
    let store = store(&server);
    let bucket = Gcra::new("1/60s".parse().unwrap(), 50).unwrap();
    // Longer than any delay of a busy machine.
    let builder = Distributed::builder(Arc::clone(&store)).limit("api", bucket);
    let limiter = builder.with_budget(Duration::from_secs(5)).build().unwrap();
    server.client().ok(&["LPUSH", "t:1r{bad}:apig", "x"]);
    for _ in 0..20 {
        let bad = limiter.try_acquire(b"bad", 1).wait().unwrap();
        assert_eq!((bad.is_granted(), bad.by()), (false, DecidedBy::Fallback));
        let good = limiter.try_acquire(b"good", 1).wait().unwrap();
        assert_eq!((good.is_granted(), good.by()), (true, DecidedBy::Store));
    }
    assert_eq!(limiter.health().store_status, StoreStatus::Healthy);
}

#[test]
fn a_key_with_something_elses_data_harms_no_other() {
    let server = Server::start(Brand::Redis);
    let store = store(&server);
    let bucket = Gcra::new("1/60s".parse().unwrap(), 5).unwrap();
    let plan = Arc::new(store.plan(&[("api", bucket.into())]).unwrap());
    assert!(store.decide(&plan, &key("0"), permits(1)).wait().is_ok());
    let mut other = server.client();
    other.ok(&["LPUSH", "t:1r{13}:apig", "x"]);
    // Requests made while the server is stopped are sent together.
    server.stall();
    let names: Vec<String> = (1..30).map(|name| name.to_string()).collect();
    let pending: Vec<_> =
        names.iter().map(|name| store.decide(&plan, &key(name), permits(1))).collect();
    server.resume();
    for (name, pending) in names.iter().zip(pending) {
        let result = pending.wait();
        if name == "13" {
            assert!(
                matches!(result, Err(StoreError::Unavailable(Unavailable::Key(_)))),
                "{result:?}"
            );
        } else {
            assert!(matches!(result, Ok(Verdict::Granted(_))), "{name}: {result:?}");
        }
    }
    let stats = store.stats();
    assert!(stats.largest_call > 5 && stats.resent == 0, "{stats:?}");
    for name in names.iter().filter(|name| *name != "13") {
        let Ok(Verdict::Granted(grant)) = store.peek(&plan, &key(name), permits(1)).wait() else {
            panic!("denied")
        };
        assert_eq!(grant.remaining, 4, "{name} was decided once");
    }
}

#[test]
fn passwords_users_databases_and_sockets_are_applied() {
    let folder = std::env::temp_dir().join(format!("rategate-socket-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("redis");
    let user = ["user", "teller", "on", ">sesame", "~t:*", "+@all"].join(" ");
    let file = folder.join("users");
    std::fs::write(&file, user + "\n").unwrap();
    let (path, users) = (socket.display().to_string(), file.display().to_string());
    let server = Server::with(Brand::Redis, &["--unixsocket", &path, "--aclfile", &users]);
    let bucket = Gcra::new("1/60s".parse().unwrap(), 5).unwrap();
    let slow = Duration::from_secs(5);
    for address in [client::Server::Unix(socket), at(server.port())] {
        let config = Config::server(address).prefix("t").budget(slow).user("teller").database(3);
        let unauthorized = Arc::new(RedisStore::open(config.clone().password("simsim")).unwrap());
        let plan = Arc::new(unauthorized.plan(&[("api", bucket.into())]).unwrap());
        let result = unauthorized.decide(&plan, &key("k"), permits(1)).wait();
        assert!(
            matches!(result, Err(StoreError::Unavailable(Unavailable::Broken(_)))),
            "{result:?}"
        );
        let right = Arc::new(RedisStore::open(config.password("sesame")).unwrap());
        assert!(right.decide(&plan, &key("k"), permits(1)).wait().is_ok());
    }
    assert_eq!(server.client().ok(&["DBSIZE"]).int(), 0);
    let mut third = server.client();
    third.ok(&["SELECT", "3"]);
    assert!(third.ok(&["EXISTS", "t:1r{k}:apig"]).int() == 1);
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn what_was_opened_is_closed() {
    let server = Server::start(Brand::Redis);
    let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).map(Iterator::count);
    let Ok(threads) = count("task") else { return };
    let open_and_close = || {
        let store = store(&server);
        let bucket = Gcra::new("1/60s".parse().unwrap(), 5).unwrap();
        let plan = Arc::new(store.plan(&[("api", bucket.into())]).unwrap());
        let _ = store.decide(&plan, &key("k"), permits(1)).wait().unwrap();
    };
    // The first runtime of a process opens shared files that stay, such as a pipe for signals.
    open_and_close();
    eventually(Duration::from_secs(8), "the first one's thread ends", || {
        count("task").unwrap() <= threads
    });
    let files = count("fd").unwrap();
    for _ in 0..30 {
        open_and_close();
    }
    eventually(Duration::from_secs(8), "threads and files end", || {
        count("task").unwrap() <= threads && count("fd").unwrap() <= files
    });
    eventually(Duration::from_secs(8), "connections end", || {
        server.client().ok(&["INFO", "clients"]).text().contains("connected_clients:1\r")
    });
}

#[test]
fn nonsense_is_refused_when_a_store_is_opened() {
    let address = at(1);
    assert!(RedisStore::open(Config::server(address).prefix("a{b")).is_err());
    assert!(RedisStore::open(Config::cluster([])).is_err());
    assert!(RedisStore::open(Config::sentinel("shop", [])).is_err());
}
