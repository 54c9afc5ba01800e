//! The functions in production use: on the store's own clock, with its expiry, its memory and its
//! refusals.

use std::time::Duration;

use crate::common::store::{denied, first, granted, key};
use crate::common::value;
use rategate::store::{LeaseId, StoreError, Unavailable, Verdict};
use rategate_core::concurrency::Concurrency;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::sliding_log::SlidingLog;
use rategate_redis::batch::{Batch, Extra, Verdicts};
use rategate_redis::command::{Command, Settings};
use rategate_redis::key::KeySpace;
use rategate_redis::library::Library;
use rategate_redis::limit::Limit;
use rategate_redis::plan::Plan;
use rategate_redis::refusal::{Remedy, ServerRefusal};
use rategate_redis::reply::Decoded;
use rategate_testkit::redis::{Brand, Server};
use rategate_testkit::redis::{Client, Reply};

fn plan() -> Plan {
    let bucket = Gcra::new("7/11s".parse().unwrap(), 5).unwrap();
    let window = FixedWindow::new(50, Duration::from_secs(3600), Anchor::Epoch);
    let log = SlidingLog::new(20, Duration::from_secs(60));
    let limits = [
        ("bucket", Limit::gcra(&bucket)),
        ("window", Limit::fixed_window(&window)),
        ("log", Limit::sliding_log(&log)),
        ("oven", Limit::concurrency(&Concurrency::new(8), 30_000_000)),
    ];
    Plan::new(limits.map(|(label, limit)| (label, limit.unwrap()))).unwrap()
}

fn holder(name: u8) -> Extra {
    Extra { lease: Some(LeaseId([name; 16])), request: None }
}

fn one(plan: &Plan, name: u8) -> Batch<'_> {
    let mut batch = Batch::new();
    batch.try_acquire(plan, &key("k"), 1, holder(name)).unwrap();
    batch
}

fn decide(batch: &Batch<'_>) -> Command {
    batch.decide(Settings::default())
}

fn read(batch: &Batch<'_>, reply: &Reply) -> Decoded<Verdicts> {
    batch.read(&value(reply)).unwrap()
}

fn each() -> impl Iterator<Item = (Server, Client)> {
    Brand::installed().into_iter().map(|brand| {
        let server = Server::start(brand);
        let mut client = server.client();
        client.ok(&Library::LIVE.load());
        (server, client)
    })
}

#[test]
fn the_stores_clock_decides_and_every_key_ends() {
    for (_server, mut client) in each() {
        let plan = plan();
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        for name in 0..5 {
            let batch = one(&plan, name);
            let answer = read(&batch, &client.ok(&decide(&batch).fcall(Library::LIVE)));
            let off_us = u128::from(answer.now_us).abs_diff(wall.as_micros());
            assert!(off_us < 60_000_000, "{off_us}");
            assert_eq!(granted(first(answer)).remaining, u64::from(4 - name));
        }
        let batch = one(&plan, 5);
        let peek = batch.peek(Settings::default()).fcall(Library::LIVE);
        assert_eq!(peek[0], b"FCALL_RO");
        let peeked = denied(first(read(&batch, &client.ok(&peek))));
        let wait_ns = peeked.retry_after_ns.unwrap().get();
        assert!(wait_ns <= 1_571_429_000 && wait_ns > 1_000_000_000, "{wait_ns}");
        // A key expires no sooner than its state is as good as fresh, and at most a few ms later.
        for (name, from_ms, until_ms) in [
            ("bucketg", 6_500, 7_860),
            ("windoww", 0, 3_600_002),
            ("logl", 59_000, 60_002),
            ("ovenc", 29_000, 30_002),
        ] {
            let left_ms = client.ok(&["PTTL", &format!("t:1r{{k}}:{name}")]).int();
            assert!((from_ms..=until_ms).contains(&left_ms), "{name}: {left_ms}");
        }
        assert_eq!(client.ok(&["DBSIZE"]), Reply::Int(4), "no other key");
        // The request passes after the reported wait.
        std::thread::sleep(Duration::from_nanos(wait_ns));
        granted(first(read(&batch, &client.ok(&decide(&batch).fcall(Library::LIVE)))));
    }
}

#[test]
fn a_script_decides_where_there_are_no_functions() {
    for (server, mut client) in each() {
        let (plan, script) = (plan(), Library::LIVE.script());
        let batch = one(&plan, 1);
        let refused = client.call(&decide(&batch).evalsha(&script));
        assert_eq!(ServerRefusal::of(refused.error()).remedy(), Remedy::SendScript);
        let answer = read(&batch, &client.ok(&decide(&batch).eval(&script)));
        assert_eq!(granted(first(answer)).remaining, 4);
        // The states are shared, and the script's hash is the computed one.
        let batch = one(&plan, 2);
        let answer = read(&batch, &client.ok(&decide(&batch).evalsha(&script)));
        assert_eq!(granted(first(answer)).remaining, 3);
        let batch = one(&plan, 3);
        let answer = read(&batch, &client.ok(&decide(&batch).fcall(Library::LIVE)));
        assert_eq!(granted(first(answer)).remaining, 2);
        server.flush_scripts();
        let refused = client.call(&decide(&batch).evalsha(&script));
        assert_eq!(ServerRefusal::of(refused.error()), ServerRefusal::ScriptMissing);
        // Functions survive that.
        client.ok(&decide(&batch).fcall(Library::LIVE));
    }
}

#[test]
fn what_a_store_refuses_is_known() {
    for (mut server, mut client) in each() {
        let plan = plan();
        let words = decide(&one(&plan, 1)).fcall(Library::LIVE);
        let key = "t:1r{k}:bucketg";
        client.ok(&["LPUSH", key, "x"]);
        let batch = one(&plan, 1);
        let answer = read(&batch, &client.ok(&words));
        assert!(
            matches!(answer.content[..], [Err(StoreError::Unavailable(Unavailable::Key(_)))]),
            "{:?}",
            answer.content
        );
        // Nothing was taken or written under the other limits either.
        assert_eq!(client.ok(&["DBSIZE"]), Reply::Int(1));
        client.ok(&["DEL", key]);
        server.flush_functions();
        let refused = client.call(&words);
        assert_eq!(
            ServerRefusal::of(refused.error()).remedy(),
            Remedy::LoadThenRetry,
            "{refused:?}"
        );
        client.ok(&Library::LIVE.load());
        client.ok(&words);
        let mut replica = server.replica();
        let refused = replica.client().call(&words);
        assert_eq!(
            ServerRefusal::of(refused.error()).remedy(),
            Remedy::RefreshThenRetry,
            "{refused:?}"
        );
        // The replica has the functions and the states of its primary, and answers peeks.
        let log = SlidingLog::new(20, Duration::from_secs(60));
        let log = Plan::new([("log", Limit::sliding_log(&log).unwrap())]).unwrap();
        let batch = one(&log, 2);
        let peeked = replica.client().ok(&batch.peek(Settings::default()).fcall(Library::LIVE));
        assert_eq!(granted(first(read(&batch, &peeked))).remaining, 19);
        server.restart_empty();
        let refused = server.client().call(&words);
        assert_eq!(
            ServerRefusal::of(refused.error()),
            ServerRefusal::FunctionMissing,
            "{refused:?}"
        );
        replica.kill();
    }
}

#[test]
fn a_full_store_keeps_deciding_by_default() {
    for (server, mut client) in each() {
        let plan = plan();
        client.ok(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        client.ok(&decide(&one(&plan, 1)).fcall(Library::LIVE));
        server.set_maxmemory(1);
        let batch = one(&plan, 2);
        let refused = client.call(&decide(&batch).within_memory().fcall(Library::LIVE));
        assert_eq!(ServerRefusal::of(refused.error()), ServerRefusal::OutOfMemory, "{refused:?}");
        let answer = read(&batch, &client.ok(&decide(&batch).fcall(Library::LIVE)));
        assert_eq!(granted(first(answer)).remaining, 3);
        client.ok(&batch.peek(Settings::default()).fcall(Library::LIVE));
        server.set_maxmemory(0);
        client.ok(&decide(&one(&plan, 3)).within_memory().fcall(Library::LIVE));
    }
}

/// One key among many holds data of another kind.
#[test]
fn a_key_of_another_type_costs_itself_only() {
    for (_server, mut client) in each() {
        let log = Limit::sliding_log(&SlidingLog::new(3, Duration::from_secs(60))).unwrap();
        let bucket = Limit::gcra(&Gcra::new("1/h".parse().unwrap(), 3).unwrap()).unwrap();
        for (limit, letter) in [(log, 'l'), (bucket, 'g')] {
            let plan = Plan::new([("a", limit)]).unwrap();
            client.ok(&["DEL", "t:1r{bad}:al", "t:1r{bad}:ag"]);
            client.ok(&["LPUSH", &format!("t:1r{{bad}}:a{letter}"), "x"]);
            let mut batch = Batch::new();
            for name in ["good", "bad", "other", "bad", "good"] {
                batch.try_acquire(&plan, &key(name), 1, Extra::default()).unwrap();
            }
            let answer = read(&batch, &client.ok(&decide(&batch).fcall(Library::LIVE)));
            let outcomes = answer.content.iter().map(|verdict| match verdict {
                Ok(Verdict::Granted(grant)) => Some(grant.remaining),
                Err(StoreError::Unavailable(Unavailable::Key(_))) => None,
                other => panic!("{other:?}"),
            });
            assert_eq!(outcomes.collect::<Vec<_>>(), [Some(2), None, Some(2), None, Some(1)]);
            assert_eq!(client.ok(&["LLEN", &format!("t:1r{{bad}}:a{letter}")]).int(), 1);
        }
    }
}

#[test]
fn all_keys_of_a_user_lie_in_the_slot_we_say() {
    for brand in Brand::installed() {
        let server = Server::with(brand, &["--cluster-enabled", "yes"]);
        let mut client = server.client();
        client.ok(&Library::LIVE.load());
        let (plan, keys) = (plan(), KeySpace::new("shop").unwrap());
        let long = vec![b'x'; 400];
        let names: [&[u8]; 9] =
            [b"a", b"tenant 1", b"", b"}", b"}{", b"{", b"a}b", b"\0\n\xff", &long];
        for name in names {
            let key = keys.key(name);
            let mut batch = Batch::new();
            batch.try_acquire(&plan, &key, 1, holder(1)).unwrap();
            for state in decide(&batch).keys() {
                let words = [&b"CLUSTER"[..], b"KEYSLOT", state];
                assert_eq!(client.ok(&words).int(), i64::from(key.slot()), "{name:?}");
            }
            // No slots were assigned to this node.
            let refused = client.call(&decide(&batch).fcall(Library::LIVE));
            assert_eq!(
                ServerRefusal::of(refused.error()),
                ServerRefusal::ClusterDown,
                "{refused:?}"
            );
        }
        client.ok(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        let mut batch = Batch::new();
        batch.try_acquire(&plan, &keys.key(b"a"), 1, holder(1)).unwrap();
        while !matches!(client.call(&decide(&batch).fcall(Library::LIVE)), Reply::List(_)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        for name in names.iter().skip(1) {
            let mut other = Batch::new();
            other.try_acquire(&plan, &keys.key(name), 1, holder(1)).unwrap();
            let answer = read(&other, &client.ok(&decide(&other).fcall(Library::LIVE)));
            let grant = granted(first(answer));
            assert!(grant.remaining == 4 && !grant.is_repeated, "{name:?} is a key of its own");
        }
        batch.try_acquire(&plan, &keys.key(b"b"), 1, holder(1)).unwrap();
        let refused = client.call(&decide(&batch).fcall(Library::LIVE));
        assert_eq!(ServerRefusal::of(refused.error()), ServerRefusal::CrossSlot, "{refused:?}");
    }
}

#[test]
fn a_server_that_stalls_or_dies_leaves_nothing_behind() {
    for (mut server, mut client) in each() {
        server.stall();
        server.resume();
        assert_eq!(client.ok(&["PING"]).text(), "PONG");
        server.kill();
        assert!(client.try_call(&["PING"]).is_err());
        assert!(Client::connect(server.port()).is_err());
    }
}

#[test]
fn many_processes_share_one_limit() {
    for (server, _) in each() {
        let log = Limit::sliding_log(&SlidingLog::new(100, Duration::from_secs(3600))).unwrap();
        let plan = Plan::new([("log", log)]).unwrap();
        let granted: usize = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut client = server.client();
                        let tried = (0..60).filter(|_| {
                            let mut batch = Batch::new();
                            batch.try_acquire(&plan, &key("k"), 1, Extra::default()).unwrap();
                            let answer =
                                read(&batch, &client.ok(&decide(&batch).fcall(Library::LIVE)));
                            matches!(answer.content[..], [Ok(Verdict::Granted(_))])
                        });
                        tried.count()
                    })
                })
                .collect();
            callers.into_iter().map(|caller| caller.join().unwrap()).sum()
        });
        assert_eq!(granted, 100);
    }
}
