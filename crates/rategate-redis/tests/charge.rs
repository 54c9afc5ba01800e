//! Charges in a store: a debt is exact, and outlives clocks, restarts, failovers and functions
//! that know no debts. Random traffic is compared with the core in `suite`.

use std::time::Duration;

use crate::common::store::{Store, denied, granted, key};
use crate::common::value;
use fastrand::Rng;
use rategate::charge::Debt;
use rategate::store::{ChargeReply, CreditReply, ReservationId, StoreError, Unavailable, Verdict};
use rategate_core::any_policy::AnyPolicy;
use rategate_core::concurrency::Concurrency;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::sliding_log::SlidingLog;
use rategate_redis::batch::{Batch, Extra};
use rategate_redis::charge::Charges;
use rategate_redis::command::Settings;
use rategate_redis::error::RequestError;
use rategate_redis::library::{Library, Verb};
use rategate_redis::limit::{Limit, MAX_DEBT_US, MAX_PERMITS, MAX_WINDOW_PERMITS};
use rategate_redis::plan::Plan;
use rategate_redis::returns;
use rategate_testkit::oracle::Oracle;
use rategate_testkit::redis::{Brand, Client, Reply, Server};

/// The begin of a window of ten seconds.
const NOW_US: u64 = 1_790_000_000_000_000;
const DAY_US: u64 = 86_400_000_000;

/// A limit of each kind, and the way in which its debts end.
type Case = (&'static str, AnyPolicy, Limit, Debt);

/// Ten permits in ten seconds.
fn limits() -> [Case; 5] {
    limits_of(1)
}

/// Ten permits in a time that no test takes.
fn slow_limits() -> [Case; 5] {
    limits_of(600)
}

/// Ten permits in ten times so many seconds.
fn limits_of(seconds: u64) -> [Case; 5] {
    let bucket = Gcra::new(format!("1/{seconds}s").parse().unwrap(), 10).unwrap();
    let period = Duration::from_secs(10 * seconds);
    let window = FixedWindow::new(10, period, Anchor::Epoch);
    let log = SlidingLog::new(10, period);
    let grid = log.with_resolution(Duration::from_millis(10)).unwrap();
    [
        ("bucket", bucket.into(), Limit::gcra(&bucket).unwrap(), Debt::FORGOTTEN),
        ("window", window.into(), Limit::fixed_window(&window).unwrap(), Debt::FORGOTTEN),
        ("carried", window.into(), Limit::fixed_window(&window).unwrap(), Debt::CARRIED),
        ("log", log.into(), Limit::sliding_log(&log).unwrap(), Debt::FORGOTTEN),
        ("grid", grid.into(), Limit::sliding_log(&grid).unwrap(), Debt::FORGOTTEN),
    ]
}

fn plan_of(name: &'static str, limit: Limit) -> Plan {
    Plan::new([(name, limit)]).unwrap()
}

/// Returns the number of the debt and the wait for a permit, in microseconds.
fn owed(verdict: Verdict) -> (u64, u64) {
    let denial = denied(verdict);
    (denial.debt, denial.retry_after_ns.unwrap().get() / 1_000)
}

/// A debt of 100 limits is charged, and time passes until it has ended: at the reported instant a
/// permit passes, and one microsecond sooner it does not.
#[test]
fn a_debt_of_a_hundred_limits_ends_when_it_says() {
    for mut store in Store::each() {
        for (name, policy, limit, debt) in limits() {
            let (plan, key) = (plan_of(name, limit), key("k"));
            let mut oracle = Oracle::new([policy], NOW_US * 1_000);
            let (expected, wait_ns) = oracle.charge(NOW_US * 1_000, 1_010, debt);
            let reply = store.charge(&plan, &key, (1_010, debt), NOW_US);
            let charged = ChargeReply {
                charged: expected,
                is_repeated: false,
                remaining: 0,
                retry_after_ns: None,
            };
            assert_eq!((reply.corrected, reply.content), (0, Ok(charged)), "{name}");
            assert_eq!((expected.debt, wait_ns), (1_000, None), "{name}: never so many");
            let mut now_us = NOW_US;
            loop {
                let refused = oracle.clone().decide(now_us * 1_000, 1).unwrap_err();
                let (debt, wait_us) = owed(store.try_acquire(&plan, &key, 1, now_us));
                let expected = (refused.debt, refused.wait_ns.div_ceil(1_000));
                assert_eq!((debt, wait_us), expected, "{name} at {now_us}");
                let zero = store.charge(&plan, &key, (0, Debt::FORGOTTEN), now_us);
                assert_eq!((zero.corrected, zero.content.unwrap().charged.debt), (0, debt));
                if wait_us < 2_000_000 {
                    let sooner = owed(store.peek(&plan, &key, 1, now_us + wait_us - 1));
                    assert_eq!(sooner.1, 1, "{name}");
                    granted(store.try_acquire(&plan, &key, 1, now_us + wait_us));
                    break;
                }
                now_us += wait_us.min(123_456_789).min(wait_us - 1_000_000);
            }
        }
    }
}

/// The clock goes back by a day, far beyond the horizon. A debt is as large as before.
#[test]
fn a_clock_that_goes_back_forgets_no_debt() {
    for mut store in Store::each() {
        for (name, _, limit, debt) in limits() {
            let (plan, key) = (plan_of(name, limit), key("k"));
            store.charge(&plan, &key, (1_010, debt), NOW_US).content.unwrap();
            let (_, wait_us) = owed(store.peek(&plan, &key, 1, NOW_US));
            let earlier_us = NOW_US - DAY_US;
            let seen = owed(store.try_acquire(&plan, &key, 1, earlier_us));
            // A bucket takes a debt along with its clock, exactly; on the other's grids, the
            // windows and logs that were far ahead begin now.
            assert_eq!(seen, (1_000, wait_us), "{name}");
            // Nothing is corrected twice.
            let reply = store.charge(&plan, &key, (1, debt), earlier_us);
            assert_eq!(reply.corrected, u64::from(false), "{name}");
            assert_eq!(reply.content.unwrap().charged.debt, 1_001, "{name}");
        }
    }
}

/// The store counts no number over 2^53: what it cannot count is forgiven, and the reply says so.
#[test]
fn what_cannot_be_counted_is_forgiven() {
    for mut store in Store::each() {
        for (name, _, limit, debt) in limits() {
            let (plan, key) = (plan_of(name, limit), key("k"));
            let most = match name {
                "bucket" | "carried" => 10 + MAX_DEBT_US / 1_000_000,
                "window" => MAX_WINDOW_PERMITS,
                _ => MAX_PERMITS,
            };
            let reply = store.charge(&plan, &key, (u64::MAX, debt), NOW_US).content.unwrap();
            let (booked, forgiven) = (reply.charged.booked, reply.charged.forgiven);
            assert_eq!((booked, forgiven), (most, u64::MAX - most), "{name}");
            assert_eq!(reply.charged.debt, most - 10, "{name}");
            let reply = store.charge(&plan, &key, (1, debt), NOW_US).content.unwrap();
            assert_eq!(reply.charged.booked, 0, "{name}: not one more");
            assert_eq!(owed(store.peek(&plan, &key, 1, NOW_US)).0, most - 10, "{name}");
        }
    }
}

/// At the last instants of the clock no sum exceeds 2^53.
#[test]
fn a_debt_at_the_end_of_the_clock_is_exact() {
    for mut store in Store::each() {
        let bucket = Gcra::new("1/365d".parse().unwrap(), 70).unwrap();
        let plan = plan_of("bucket", Limit::gcra(&bucket).unwrap());
        let (now_us, year_us) = ((1 << 52) - 1, 31_536_000_000_000);
        let reply = store.charge(&plan, &key("k"), (u64::MAX, Debt::FORGOTTEN), now_us);
        let booked = reply.content.unwrap().charged.booked;
        assert_eq!(booked, ((1 << 51) + 1) / year_us);
        assert_eq!(owed(store.peek(&plan, &key("k"), 1, now_us)), (1, 2 * year_us));
    }
}

/// A restart from the append-only file, and a replica that takes over.
#[test]
fn a_debt_survives_a_restart_and_a_failover() {
    for brand in Brand::installed() {
        let always = ["--appendonly", "yes", "--appendfsync", "always"];
        let mut server = Server::with(brand, &always);
        let mut client = server.client();
        client.ok(&Library::LIVE.load());
        for (name, _, limit, debt) in slow_limits() {
            let mut charges = Charges::new();
            let plan = plan_of(name, limit);
            charges.push(&plan, &key("k"), 1_010, (debt, None)).unwrap();
            client.ok(&charges.command(Settings::default()).fcall(Library::LIVE));
        }
        let replica = server.replica();
        let is_owed = |client: &mut Client, about: &str| {
            // The window that forgets may have ended.
            for (name, _, limit, _) in slow_limits().into_iter().filter(|it| it.0 != "window") {
                let (left, _) = live_peek(client, &plan_of(name, limit));
                assert!((990..=1_000).contains(&left), "{about}, {name}: {left}");
            }
        };
        server.restart();
        is_owed(&mut server.client(), "restarted");
        server.kill();
        replica.client().ok(&["REPLICAOF", "NO", "ONE"]);
        is_owed(&mut replica.client(), "taken over");
    }
}

/// Peeks by the store's own clock. Returns the debt and the wait in microseconds.
fn live_peek(client: &mut Client, plan: &Plan) -> (u64, u64) {
    let mut batch = Batch::new();
    batch.try_acquire(plan, &key("k"), 1, Extra::default()).unwrap();
    let reply = client.ok(&batch.peek(Settings::default()).fcall(Library::LIVE));
    let mut verdicts = batch.read(&value(&reply)).unwrap().content;
    owed(verdicts.remove(0).unwrap())
}

/// After a debt the next grant returns a state to its plain form.
#[test]
fn a_paid_debt_leaves_a_plain_state() {
    for mut store in Store::each() {
        for (name, _, limit, debt) in limits() {
            let (plan, key) = (plan_of(name, limit), key("k"));
            granted(store.try_acquire(&plan, &key, 1, NOW_US));
            let plain = store.client.ok(&["KEYS", &format!("*{name}?")]);
            let Reply::List(names) = plain else { panic!("{plain:?}") };
            let state = names[0].text();
            let bytes = |store: &mut Store| match store.client.ok(&["TYPE", &state]).text().as_str()
            {
                "string" => Some(store.client.ok(&["STRLEN", &state])),
                _ => None,
            };
            let plain = bytes(&mut store).unwrap();
            store.charge(&plan, &key, (54, debt), NOW_US + 1).content.unwrap();
            let later_us = NOW_US + 5_000_000;
            let reply = store.charge(&plan, &key, (5, debt), later_us).content.unwrap();
            assert!(reply.charged.debt >= 45, "{name}");
            assert_ne!(bytes(&mut store), Some(plain.clone()), "{name}");
            // The debt is over, and the state not yet fresh.
            let (_, wait_us) = owed(store.peek(&plan, &key, 1, later_us));
            granted(store.try_acquire(&plan, &key, 1, later_us + wait_us));
            let now = bytes(&mut store).expect(name);
            let is_short = match (now, plain) {
                // A log holds two entries by then.
                (Reply::Int(now), Reply::Int(plain)) => now <= plain + 5,
                other => panic!("{other:?}"),
            };
            assert!(is_short, "{name}");
        }
    }
}

/// A limit is lowered and raised while it is exceeded. The debt stays the core's.
#[test]
fn a_debt_continues_under_other_numbers() {
    for mut store in Store::each() {
        let gcra = |rate: &str, burst| {
            let policy = Gcra::new(rate.parse().unwrap(), burst).unwrap();
            (AnyPolicy::from(policy), Limit::gcra(&policy).unwrap())
        };
        let window = |permits, period_ms| {
            let policy = FixedWindow::new(permits, Duration::from_millis(period_ms), Anchor::Epoch);
            (AnyPolicy::from(policy), Limit::fixed_window(&policy).unwrap())
        };
        let log = |permits, period_ms| {
            let policy = SlidingLog::new(permits, Duration::from_millis(period_ms));
            (AnyPolicy::from(policy), Limit::sliding_log(&policy).unwrap())
        };
        let buckets = [gcra("100/s", 10), gcra("1/h", 5), gcra("50/s", 40), gcra("10/s", 1)];
        let windows = [window(5, 1_000), window(10, 1_000), window(40, 7_000), window(3, 250)];
        // A shorter period forgets at once what a longer one would still hold.
        let logs = [log(20, 2_000), log(7, 2_000), log(300, 2_000), log(3, 2_000)];
        for (name, each, debt) in [
            ("bucket", buckets, Debt::FORGOTTEN),
            ("window", windows, Debt::FORGOTTEN),
            ("carried", windows, Debt::CARRIED),
            ("log", logs, Debt::FORGOTTEN),
        ] {
            let (mut random, mut now_us) = (Rng::with_seed(5), NOW_US);
            let (mut oracle, mut at) = (Oracle::new([each[0].0], now_us * 1_000), 0);
            let mut debts = 0;
            for step in 0..600 {
                now_us += random.u64(..200_000);
                let now_ns = now_us * 1_000;
                if random.u64(..8) == 0 {
                    at = random.usize(..each.len());
                    oracle.change(now_ns, [each[at].0]);
                }
                let plan = plan_of("l", each[at].1);
                if random.u64(..4) == 0 {
                    let permits = random.u64(..30);
                    let (expected, _) = oracle.charge(now_ns, permits, debt);
                    let seen = store.charge(&plan, &key(name), (permits, debt), now_us);
                    let seen = seen.content.unwrap().charged;
                    let close = seen.debt.abs_diff(expected.debt) <= u64::from(name == "bucket");
                    assert!(close, "{name}, step {step}: {seen:?}, the core {expected:?}");
                    debts += u64::from(seen.debt > 0);
                } else {
                    let seen = store.try_acquire(&plan, &key(name), 1, now_us);
                    let is_granted = matches!(seen, Verdict::Granted(_));
                    // Rates round up: a bucket may grant a moment later than the core.
                    if is_granted || name != "bucket" {
                        let expected = oracle.decide(now_ns, 1).is_ok();
                        assert_eq!(is_granted, expected, "{name}, step {step}: {seen:?}");
                    }
                }
            }
            assert!(debts > 50, "{name}: {debts}");
        }
    }
}

/// Terms come with each charge, and numbers with each call. A debt that is carried stays so under
/// a charge that would forget its own, and one that other numbers have ended is over.
#[test]
fn a_window_owes_by_the_terms_of_its_charges() {
    for mut store in Store::each() {
        let windows = [(5, 1_000), (10, 1_000), (3, 1_000), (40, 1_000), (6, 4_000)];
        let windows = windows.map(|(permits, period_ms)| {
            FixedWindow::new(permits, Duration::from_millis(period_ms), Anchor::Epoch)
        });
        let (mut random, mut now_us, mut at) = (Rng::with_seed(3), NOW_US, 0);
        let mut oracle = Oracle::new([windows[0].into()], now_us * 1_000);
        let mut debts = 0;
        for step in 0..2_000 {
            now_us += random.u64(..700_000);
            let now_ns = now_us * 1_000;
            if random.u64(..6) == 0 {
                at = random.usize(..windows.len());
                oracle.change(now_ns, [windows[at].into()]);
                // A call under the new numbers tells the store of them.
                oracle.charge(now_ns, 1, Debt::FORGOTTEN);
                let plan = plan_of("w", Limit::fixed_window(&windows[at]).unwrap());
                let charge = (1, Debt::FORGOTTEN);
                store.charge(&plan, &key("k"), charge, now_us).content.unwrap();
            }
            let plan = plan_of("w", Limit::fixed_window(&windows[at]).unwrap());
            let permits = if random.u64(..3) == 0 { random.u64(..20) } else { 0 };
            let debt = [Debt::FORGOTTEN, Debt::CARRIED][random.usize(..2)];
            let (expected, wait_ns) = oracle.charge(now_ns, permits, debt);
            let seen = store.charge(&plan, &key("k"), (permits, debt), now_us).content.unwrap();
            assert_eq!((seen.charged, seen.retry_after_ns), (expected, wait_ns), "step {step}");
            debts += u64::from(expected.debt > 0);
        }
        assert!(debts > 300, "{debts}");
    }
}

/// A log has 65 536 entries at most: of one that is longer, the oldest count with the next. All
/// permits stay counted, and the instant of the next grant is that of the newest.
#[test]
fn a_log_with_the_maximum_of_entries_counts_on() {
    for mut store in Store::each() {
        let log = SlidingLog::new(5, Duration::from_secs(10));
        let plan = plan_of("log", Limit::sliding_log(&log).unwrap());
        store.charge(&plan, &key("k"), (10, Debt::FORGOTTEN), NOW_US).content.unwrap();
        let Reply::List(names) = store.client.ok(&["KEYS", "*log?"]) else { panic!("no list") };
        // A ring whose oldest entry is in its middle, with an entry for each microsecond.
        let (entries, head) = (65_536_u32, 40_000_u32);
        let seven = |number: u64| number.to_le_bytes()[..7].to_vec();
        let mut bytes = vec![1, 3, 4];
        for number in [entries, head, entries] {
            bytes.extend(number.to_le_bytes());
        }
        let newest = NOW_US + u64::from(entries) - 1;
        for number in [NOW_US, newest, entries.into(), 1] {
            bytes.extend(seven(number));
        }
        bytes.extend([1, 0, 0, 1, 0, 0, 0].repeat(entries as usize));
        store.client.ok(&[b"SET", names[0].text().as_bytes(), &bytes]);
        let now_us = newest + 1_000;
        for more in 1..=3 {
            let reply = store.charge(&plan, &key("k"), (1, Debt::FORGOTTEN), now_us + more);
            let reply = reply.content.unwrap();
            assert_eq!(reply.charged.debt, u64::from(entries) + more - 5);
        }
        // The newest five are the three charges and the last two entries.
        let (_, wait_us) = owed(store.peek(&plan, &key("k"), 1, now_us + 3));
        assert_eq!(now_us + 3 + wait_us, newest - 1 + 10_000_000);
        granted(store.try_acquire(&plan, &key("k"), 1, newest - 1 + 10_000_000));
        // Before that, the entries that were merged have left with the ones they count with.
        let reply = store.charge(&plan, &key("k"), (0, Debt::FORGOTTEN), NOW_US + 10_000_003);
        assert_eq!(reply.content.unwrap().charged.debt, 0);
    }
}

/// Several limits are charged each on its own, and those of permits in flight not at all.
#[test]
fn a_set_is_charged_limit_by_limit() {
    for mut store in Store::each() {
        let [(_, _, bucket, _), (_, _, window, _), ..] = limits();
        let in_flight = Limit::concurrency(&Concurrency::new(3), 1_000_000).unwrap();
        let plan = Plan::new([("c", in_flight), ("b", bucket), ("w", window)]).unwrap();
        let bounded = Debt::FORGOTTEN.at_most(Duration::from_secs(5));
        let reply = store.charge(&plan, &key("k"), (20, bounded), NOW_US).content.unwrap();
        // The bucket forgives five, and the window none.
        assert_eq!((reply.charged.booked, reply.charged.forgiven), (15, 5));
        assert_eq!((reply.charged.debt, reply.retry_after_ns), (10, None));
        let two = Plan::new([("b", bucket), ("w", window)]).unwrap();
        let reply = store.charge(&two, &key("k"), (3, bounded), NOW_US).content.unwrap();
        assert_eq!((reply.charged.forgiven, reply.charged.debt), (3, 13));
        assert_eq!(reply.retry_after_ns, Some(10_000_000_000), "the window's end");
        let one = plan_of("w", window);
        let reply = store.charge(&one, &key("k"), (0, bounded), NOW_US + 9_999_999);
        assert_eq!(reply.content.unwrap().retry_after_ns, Some(1_000));
        let reply = store.charge(&one, &key("k"), (0, bounded), NOW_US + 10_000_000);
        assert_eq!(reply.content.unwrap().retry_after_ns, Some(0));
    }
}

/// One limit of a set has a key with another program's data, of each type: no limit is charged, and
/// the other charges of the call are.
#[test]
fn a_foreign_key_is_charged_nothing() {
    for mut store in Store::each() {
        let [(_, _, bucket, _), (_, _, window, _), ..] = limits();
        let plan = Plan::new([("b", bucket), ("w", window)]).unwrap();
        granted(store.try_acquire(&plan, &key("k"), 1, NOW_US));
        let Reply::List(names) = store.client.ok(&["KEYS", "*ww"]) else { panic!("no list") };
        let state = names[0].text();
        for [verb, first, second] in [["RPUSH", "a", "b"], ["HSET", "a", "b"], ["ZADD", "1", "b"]] {
            store.client.ok(&["DEL", &state]);
            store.client.ok(&[verb, &state, first, second]);
            let mut charges = Charges::new();
            charges.push(&plan, &key("k"), 7, (Debt::FORGOTTEN, None)).unwrap();
            charges.push(&plan, &key("other"), 7, (Debt::FORGOTTEN, None)).unwrap();
            let reply = store.send(charges.command(Settings::default()), NOW_US);
            let content = charges.read(&reply).unwrap().content;
            assert!(
                matches!(&content[0], Err(StoreError::Unavailable(Unavailable::Key(_)))),
                "{content:?}"
            );
            assert!(content[1].is_ok(), "{content:?}");
            let left = store.peek(&plan_of("b", bucket), &key("k"), 1, NOW_US);
            assert_eq!(granted(left).remaining, 9);
        }
    }
}

/// A credit that finds another program's data is not remembered as made; what it asked for is told
/// apart, beyond the limit too.
#[test]
fn a_foreign_key_is_credited_nothing_and_the_id_stays_unused() {
    for mut store in Store::each() {
        let [(_, _, bucket, _), (_, _, window, _), ..] = limits();
        let plan = Plan::new([("b", bucket), ("w", window)]).unwrap();
        let credit = |store: &mut Store, id: u8, permits| {
            let (id, settings) = (Some(ReservationId([id; 16])), Settings::default());
            let command = returns::credit(&plan, &key("k"), permits, id, settings).unwrap();
            let reply = store.send(command, NOW_US);
            returns::read_credit(&reply).unwrap().content.remove(0)
        };
        store.charge(&plan, &key("k"), (7, Debt::FORGOTTEN), NOW_US).content.unwrap();
        let Reply::List(names) = store.client.ok(&["KEYS", "*ww"]) else { panic!("no list") };
        let state = names[0].text();
        store.client.ok(&["DEL", &state]);
        store.client.ok(&["RPUSH", &state, "a", "b"]);
        let refused = credit(&mut store, 1, 2);
        assert!(
            matches!(refused, Err(StoreError::Unavailable(Unavailable::Key(_)))),
            "{refused:?}"
        );
        store.client.ok(&["DEL", &state]);
        store.charge(&plan, &key("k"), (5, Debt::FORGOTTEN), NOW_US).content.unwrap();
        for is_repeated in [false, true] {
            assert_eq!(credit(&mut store, 1, 2), Ok(CreditReply { permits: 2, is_repeated }));
        }
        for (permits, is_repeated) in [(1_000, false), (1_000, true)] {
            let made = credit(&mut store, 2, permits);
            assert_eq!(made, Ok(CreditReply { permits: 3, is_repeated }));
        }
        assert_eq!(credit(&mut store, 2, 1_001), Err(StoreError::OtherRequest));
    }
}

/// A call of many charges books each, in order and at one instant.
#[test]
fn a_call_of_many_charges_is_one_after_the_other() {
    for mut store in Store::each() {
        let [(_, _, bucket, _), (_, _, window, _), (_, _, carried, _), (_, _, log, _), _] =
            limits();
        let plans = [
            Plan::new([("b", bucket)]).unwrap(),
            Plan::new([("b", bucket), ("w", window)]).unwrap(),
            Plan::new([("x", carried), ("l", log)]).unwrap(),
        ];
        let (mut random, mut now_us) = (Rng::with_seed(4), NOW_US);
        for round in 0..40 {
            now_us += random.u64(..3_000_000);
            let (mut charges, mut singles) = (Charges::new(), Vec::new());
            for _ in 0..random.u64(1..12) {
                let (plan, permits) = (&plans[random.usize(..3)], random.u64(..5));
                let name = random.u64(..2);
                let [together, alone] =
                    ["together", "alone"].map(|side| key(&format!("{side}{name}")));
                charges.push(plan, &together, permits, (Debt::FORGOTTEN, None)).unwrap();
                singles
                    .push(store.charge(plan, &alone, (permits, Debt::FORGOTTEN), now_us).content);
            }
            let reply = store.send(charges.command(Settings::default()), now_us);
            assert_eq!(charges.read(&reply).unwrap().content, singles, "round {round}");
        }
    }
}

#[test]
fn what_takes_no_charge_is_refused() {
    let in_flight = Limit::concurrency(&Concurrency::new(3), 1_000_000).unwrap();
    let [.., (_, _, log, _), _] = limits();
    let mut charges = Charges::new();
    let plan = plan_of("c", in_flight);
    let refused = charges.push(&plan, &key("k"), 1, (Debt::FORGOTTEN, None));
    assert_eq!(refused, Err(RequestError::CountsInFlight));
    let plan = plan_of("l", log);
    assert_eq!(
        charges.push(&plan, &key("k"), 1, (Debt::CARRIED, None)),
        Err(RequestError::CarriedByLog)
    );
    assert_eq!(charges.push(&plan, &key("k"), 1, (Debt::FORGOTTEN, None)), Ok(()));
    assert_eq!(charges.command(Settings::default()).verb(), Verb::Charge);
    let within = charges.command(Settings::default()).within_memory();
    assert_eq!(within.verb(), Verb::ChargeWithinMemory);
}
