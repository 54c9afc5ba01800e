//! Reservations in a store: many at once, across clocks, restarts, failovers and functions that
//! know no holds. Random traffic is compared with the core in `suite`.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::time::Duration;

use crate::common::store::{Store, denied, granted, id_of, key};
use crate::common::value;
use fastrand::Rng;
use rategate::charge::{Charged, Debt, Settled};
use rategate::store::{
    EndOutcome, ReservationEnd, ReserveReply, ReserveVerdict, StoreError, Unavailable, Verdict,
};
use rategate_core::any_policy::AnyPolicy;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::holds::{Committed, Hold, HoldVerdict};
use rategate_core::ledger::Ledger;
use rategate_core::sliding_log::SlidingLog;
use rategate_redis::batch::{Batch, Extra};
use rategate_redis::command::Settings;
use rategate_redis::error::RequestError;
use rategate_redis::library::{Library, Verb};
use rategate_redis::limit::Limit;
use rategate_redis::plan::Plan;
use rategate_redis::reserve::{Ends, Estimates, MAX_HOLDS, MAX_TTL_US};
use rategate_testkit::redis::{Brand, Client, Reply, Server};

/// The begin of a window of ten seconds.
const NOW_US: u64 = 1_790_000_000_000_000;
const SECOND_US: u64 = 1_000_000;
const MEMORY_US: u64 = 600 * SECOND_US;
const DAY_US: u64 = 86_400 * SECOND_US;

type Case = (&'static str, AnyPolicy, Limit);

/// Limits of each kind, of so many permits in so many seconds.
fn limits_of(permits: u64, seconds: u64) -> [Case; 4] {
    let rate = format!("{permits}/{seconds}s");
    let bucket = Gcra::new(rate.parse().unwrap(), permits).unwrap();
    let period = Duration::from_secs(seconds);
    let window = FixedWindow::new(permits, period, Anchor::Epoch);
    let log = SlidingLog::new(permits, period);
    let grid = log.with_resolution(Duration::from_millis(10)).unwrap();
    [
        ("bucket", bucket.into(), Limit::gcra(&bucket).unwrap()),
        ("window", window.into(), Limit::fixed_window(&window).unwrap()),
        ("log", log.into(), Limit::sliding_log(&log).unwrap()),
        ("grid", grid.into(), Limit::sliding_log(&grid).unwrap()),
    ]
}

fn plan_of(name: &'static str, limit: Limit) -> Plan {
    Plan::new([(name, limit)]).unwrap()
}

const fn commit(used: u64) -> ReservationEnd {
    ReservationEnd::Commit { used: Some(used) }
}

/// Returns the wait of a denial, in microseconds, or `None` where the estimate is held.
fn wait_us(reply: ReserveReply) -> Option<u64> {
    match reply.verdict {
        ReserveVerdict::Held { .. } => None,
        ReserveVerdict::Denied { retry_after_ns } => Some(retry_after_ns.unwrap().get() / 1_000),
        other => panic!("{other:?}"),
    }
}

/// Hundreds of holds are open at a time, made, ended and expired in any order. Each decision, wait
/// and outcome is the core's.
#[test]
fn a_crowd_of_holds_is_kept_apart() {
    for mut store in Store::each() {
        let limits = [limits_of(6_000, 60), limits_of(3_000, 10)].concat();
        for (number, (name, policy, limit)) in limits.into_iter().enumerate() {
            let (plan, mut random) = (plan_of(name, limit), Rng::with_seed(1));
            let key = key(&format!("{name} {number}"));
            let mut core = Ledger::new([policy], NOW_US * 1_000);
            let (mut open, mut now_us) = (Vec::<(u64, Hold)>::new(), NOW_US);
            let (mut denials, mut largest, mut late) = (0, 0, 0);
            for id in 0..1_200 {
                // Now and then many end at once.
                let is_long = random.u64(..60) == 0;
                now_us += random.u64(..if is_long { 6 * SECOND_US } else { 40_000 });
                let now_ns = now_us * 1_000;
                let (permits, ttl_us) = (1 + random.u64(..60), 1 + random.u64(..20 * SECOND_US));
                let reply = store.reserve(&plan, &key, permits, (id, ttl_us), now_us);
                match core.try_hold(now_ns, permits, ttl_us * 1_000).unwrap() {
                    HoldVerdict::Held(hold) => {
                        assert_eq!(wait_us(reply), None, "{name} {id}");
                        open.push((id, hold));
                    }
                    HoldVerdict::Denied(denial) => {
                        let expected_us = denial.retry_after_ns.unwrap().get().div_ceil(1_000);
                        assert_eq!(wait_us(reply), Some(expected_us), "{name} {id}");
                        denials += 1;
                    }
                }
                assert_eq!(reply.remaining, core.remaining(now_ns), "{name} {id}");
                largest = largest.max(open.iter().filter(|it| it.1.end_ns > now_ns).count());
                if open.len() < 150 || random.u64(..3) == 0 {
                    continue;
                }
                for _ in 0..2 {
                    let (id, hold) = open.swap_remove(random.usize(..open.len()));
                    let used = random.u64(..=hold.permits + 1);
                    let outcome = core.commit(now_ns, hold, used, Debt::FORGOTTEN);
                    let end = store.end(&plan, &key, (id, commit(used)), Debt::FORGOTTEN, now_us);
                    let expected = match outcome {
                        Committed::InTime(settled) => EndOutcome::Committed(settled),
                        Committed::Late(charged) => EndOutcome::Late(charged),
                    };
                    late += u64::from(matches!(expected, EndOutcome::Late(_)));
                    assert_eq!(
                        end.outcome, expected,
                        "{name} {id} at {now_us}: {used} of {hold:?}"
                    );
                    assert_eq!(end.remaining, core.remaining(now_ns), "{name} {id}");
                }
            }
            assert!(largest > 60 && late > 20, "{name}: {largest} open, {late} late");
            assert!(denials > 20 || number == 0, "{name}: {denials}");
        }
    }
}

/// One estimate is held at a time, with grants of others in between, often for longer than its
/// permits
/// take to be earned again.
#[test]
fn a_single_hold_comes_back_as_by_the_core() {
    for mut store in Store::each() {
        for (name, policy, limit) in limits_of(20, 20) {
            let (plan, key, mut random) = (plan_of(name, limit), key(name), Rng::with_seed(2));
            let mut core = Ledger::new([policy], NOW_US * 1_000);
            let (mut now_us, mut cut) = (NOW_US, 0);
            for id in 0..500 {
                now_us += random.u64(..9 * SECOND_US);
                let (permits, ttl_us) = (1 + random.u64(..9), 1 + random.u64(..40 * SECOND_US));
                let reply = store.reserve(&plan, &key, permits, (id, ttl_us), now_us);
                let held = core.try_hold(now_us * 1_000, permits, ttl_us * 1_000).unwrap();
                let HoldVerdict::Held(hold) = held else {
                    assert!(wait_us(reply).is_some(), "{name} {id}");
                    continue;
                };
                assert_eq!(wait_us(reply), None, "{name} {id}");
                for _ in 0..random.u64(..3) {
                    now_us += random.u64(..6 * SECOND_US);
                    let permits = 1 + random.u64(..6);
                    let ours = store.try_acquire(&plan, &key, permits, now_us);
                    let theirs = core.try_acquire(now_us * 1_000, permits).unwrap();
                    let is_granted = matches!(theirs, rategate_core::verdict::Verdict::Granted(_));
                    assert_eq!(matches!(ours, Verdict::Granted(_)), is_granted, "{name} {id}");
                }
                now_us += random.u64(..3 * SECOND_US);
                let used = random.u64(..=permits);
                let expected = match core.commit(now_us * 1_000, hold, used, Debt::FORGOTTEN) {
                    Committed::InTime(settled) => EndOutcome::Committed(settled),
                    Committed::Late(charged) => EndOutcome::Late(charged),
                };
                let end = store.end(&plan, &key, (id, commit(used)), Debt::FORGOTTEN, now_us);
                assert_eq!(end.outcome, expected, "{name} {id} at {now_us}");
                assert_eq!(end.remaining, core.remaining(now_us * 1_000), "{name} {id}");
                cut += u64::from(
                    used < permits
                        && matches!(expected, EndOutcome::Committed(Settled::Back { permits: back })
                            if back < permits - used),
                );
            }
            assert!(cut > 10 || name != "bucket", "{cut}");
        }
    }
}

/// A hold ends at its instant: one microsecond sooner nothing has come back.
#[test]
fn a_hold_ends_at_its_instant() {
    for mut store in Store::each() {
        for (name, _, limit) in limits_of(10, 600) {
            let (plan, key, ttl_us) = (plan_of(name, limit), key(name), 20_000_001);
            assert_eq!(wait_us(store.reserve(&plan, &key, 10, (1, ttl_us), NOW_US)), None);
            let denial = denied(store.try_acquire(&plan, &key, 10, NOW_US + 5));
            assert_eq!(denial.retry_after_ns.unwrap().get(), (ttl_us - 5) * 1_000, "{name}");
            let sooner = store.reserve(&plan, &key, 10, (2, 1), NOW_US + ttl_us - 1);
            assert_eq!((wait_us(sooner), sooner.remaining), (Some(1), 0), "{name}");
            granted(store.peek(&plan, &key, 10, NOW_US + ttl_us));
            let late = store.end(&plan, &key, (1, commit(3)), Debt::FORGOTTEN, NOW_US + ttl_us);
            let charged = Charged { booked: 3, forgiven: 0, debt: 0 };
            assert_eq!((late.outcome, late.remaining), (EndOutcome::Late(charged), 7), "{name}");
        }
    }
}

/// The last hold leaves a state that all releases read, and a call afterwards takes the usual way.
#[test]
fn an_ended_hold_leaves_a_plain_state() {
    for mut store in Store::each() {
        for (name, _, limit) in limits_of(10, 600) {
            let (plan, key) = (plan_of(name, limit), key(name));
            let mut types = VecDeque::new();
            let mut note = |store: &mut Store| {
                let Reply::List(names) = store.client.ok(&["KEYS", &format!("*:{name}?")]) else {
                    panic!("no list")
                };
                types.push_back(store.client.ok(&["TYPE", &names[0].text()]).text());
            };
            granted(store.try_acquire(&plan, &key, 1, NOW_US));
            note(&mut store);
            for id in 1..3 {
                assert_eq!(wait_us(store.reserve(&plan, &key, 2, (id, SECOND_US), NOW_US)), None);
                note(&mut store);
            }
            let end = store.end(&plan, &key, (1, commit(1)), Debt::FORGOTTEN, NOW_US);
            assert_eq!((end.outcome, end.remaining), (back(1), 6), "{name}");
            note(&mut store);
            // The second one ends by itself; the next write is of no reservation.
            granted(store.try_acquire(&plan, &key, 1, NOW_US + SECOND_US));
            note(&mut store);
            assert_eq!(types, ["string", "zset", "zset", "zset", "string"], "{name}");
        }
    }
}

const fn back(permits: u64) -> EndOutcome {
    EndOutcome::Committed(Settled::Back { permits })
}

/// Both requests sent again change nothing, and an id is remembered for as long as promised.
#[test]
fn an_id_counts_once_and_is_remembered() {
    for mut store in Store::each() {
        for (name, _, limit) in limits_of(10, 3_600) {
            let (plan, key) = (plan_of(name, limit), key(name));
            // One lasts longer than ids are remembered, and is remembered for as long again.
            for (id, ttl_us) in [(1, 30 * SECOND_US), (2, 2 * MEMORY_US)] {
                let first = store.reserve(&plan, &key, 4, (id, ttl_us), NOW_US);
                let again = store.reserve(&plan, &key, 4, (id, 1), NOW_US + 7);
                let left_ns = NonZeroU64::new((ttl_us - 7) * 1_000).unwrap();
                assert_eq!(again.verdict, ReserveVerdict::Held { ends_in_ns: left_ns }, "{name}");
                assert_eq!((first.is_repeated, again.is_repeated), (false, true));
                assert_eq!(first.remaining, again.remaining, "{name}");
                let other = store.reserve(&plan, &key, 3, (id, 1), NOW_US + 7);
                assert_eq!(other.verdict, ReserveVerdict::OtherPermits { permits: 4 });
            }
            let ended = store.end(&plan, &key, (1, commit(1)), Debt::FORGOTTEN, NOW_US + 9);
            assert_eq!((ended.outcome, ended.is_repeated), (back(3), false), "{name}");
            let again_us = NOW_US + 9 + MEMORY_US - 1;
            for end in [commit(1), commit(9), ReservationEnd::Cancel] {
                let again = store.end(&plan, &key, (1, end), Debt::FORGOTTEN, again_us);
                assert_eq!((again.outcome, again.is_repeated), (back(3), true), "{name}");
            }
            let verdict = store.reserve(&plan, &key, 4, (1, 1), again_us).verdict;
            assert_eq!(verdict, ReserveVerdict::Ended);
            // The other has ended by itself, and is known for as long again.
            let late_us = NOW_US + 4 * MEMORY_US - 1;
            assert_eq!(
                store.reserve(&plan, &key, 4, (2, 1), late_us).verdict,
                ReserveVerdict::Ended
            );
            let late =
                store.end(&plan, &key, (2, ReservationEnd::Cancel), Debt::FORGOTTEN, late_us);
            assert_eq!(late.outcome, EndOutcome::Late(Charged::default()), "{name}");
            let unknown_us = late_us + MEMORY_US * 3;
            for id in [1, 2, 3] {
                let end = store.end(&plan, &key, (id, commit(1)), Debt::FORGOTTEN, unknown_us);
                assert_eq!(end.outcome, EndOutcome::Unknown, "{name} {id}");
            }
        }
    }
}

/// The clock goes back by a day, far beyond the horizon: holds last as long as they would have, and
/// end once.
#[test]
fn a_clock_that_goes_back_ends_no_hold_twice() {
    for mut store in Store::each() {
        for (name, _, limit) in limits_of(10, 600) {
            let (plan, key) = (plan_of(name, limit), key(name));
            for (id, ttl_us) in [(1, SECOND_US), (2, 5 * SECOND_US), (3, 9 * SECOND_US)] {
                assert_eq!(wait_us(store.reserve(&plan, &key, 3, (id, ttl_us), NOW_US)), None);
            }
            // The first has ended.
            let later_us = NOW_US + 2 * SECOND_US;
            assert_eq!(granted(store.try_acquire(&plan, &key, 1, later_us)).remaining, 3);
            let earlier_us = later_us - DAY_US;
            let wait = |store: &mut Store, now_us| match store.try_acquire(&plan, &key, 5, now_us) {
                Verdict::Denied(denial) => denial.retry_after_ns.unwrap().get() / 1_000,
                Verdict::Granted(_) => 0,
            };
            let again = store.reserve(&plan, &key, 3, (2, 1), earlier_us);
            let ReserveVerdict::Held { ends_in_ns } = again.verdict else { panic!("{again:?}") };
            assert_eq!(ends_in_ns.get(), 3 * SECOND_US * 1_000, "{name}: three seconds are left");
            if name == "bucket" {
                // Nothing of it was forgotten, and nothing comes back twice.
                assert_eq!(again.remaining, 3);
                assert_eq!(wait(&mut store, earlier_us), 3 * SECOND_US);
                assert_eq!(wait(&mut store, earlier_us + 3 * SECOND_US), 0);
            } else {
                // What lay ahead of the clock counts as just used up. The last hold is named.
                assert_eq!(again.remaining, 0, "{name}");
                assert_eq!(wait(&mut store, earlier_us + 3 * SECOND_US), 4 * SECOND_US, "{name}");
            }
            let end = store.end(&plan, &key, (3, commit(0)), Debt::FORGOTTEN, earlier_us);
            assert!(matches!(end.outcome, EndOutcome::Committed(_)), "{name}: {end:?}");
            let wait_us = wait(&mut store, earlier_us + 3 * SECOND_US);
            assert_eq!(wait_us > 100 * SECOND_US, name != "bucket", "{name}: {wait_us} us");
            let again = store.end(&plan, &key, (3, commit(0)), Debt::FORGOTTEN, earlier_us);
            assert_eq!((again.remaining, again.is_repeated), (end.remaining, true), "{name}");
        }
    }
}

/// A key of the record or of a limit that holds another program's data: nothing is held or settled,
/// and what else is in the call is.
#[test]
fn a_foreign_key_holds_nothing() {
    for mut store in Store::each() {
        let [(_, _, bucket), (_, _, window), ..] = limits_of(10, 600);
        let plan = Plan::new([("b", bucket), ("w", window)]).unwrap();
        granted(store.try_acquire(&plan, &key("k"), 1, NOW_US));
        let Reply::List(names) = store.client.ok(&["KEYS", "*:ww"]) else { panic!("no list") };
        let state = names[0].text();
        let record = format!("t:1r{{k}}~{:032x}", u128::from_be_bytes(id_of(7).0));
        let ttl_ns = NonZeroU64::new(1_000_000).unwrap();
        for foreign in [&state, &record] {
            for [verb, first, second] in
                [["RPUSH", "a", "b"], ["HSET", "a", "b"], ["ZADD", "1", "b"]]
            {
                store.client.ok(&["DEL", foreign]);
                store.client.ok(&[verb, foreign, first, second]);
                let mut estimates = Estimates::new();
                for name in ["k", "other"] {
                    estimates.push(&plan, &key(name), (7, 0), (id_of(7), ttl_ns)).unwrap();
                }
                let reply = store.send(estimates.command(Settings::default()), NOW_US);
                let content = estimates.read(&reply).unwrap().content;
                assert!(
                    matches!(&content[0], Err(StoreError::Unavailable(Unavailable::Key(_)))),
                    "{content:?}"
                );
                assert!(content[1].is_ok(), "{content:?}");
                let mut ends = Ends::new();
                for name in ["k", "other"] {
                    ends.push(&plan, &key(name), id_of(7), commit(1), Debt::FORGOTTEN).unwrap();
                }
                let reply = store.send(ends.command(Settings::default()), NOW_US);
                let content = ends.read(&reply).unwrap().content;
                assert!(
                    matches!(&content[0], Err(StoreError::Unavailable(Unavailable::Key(_)))),
                    "{content:?}"
                );
                assert!(content[1].is_ok(), "{content:?}");
                let left = store.peek(&plan_of("b", bucket), &key("k"), 1, NOW_US);
                assert_eq!(granted(left).remaining, 9);
            }
            store.client.ok(&["DEL", foreign]);
            store.client.ok(&["DEL", &format!("{foreign}@until")]);
        }
    }
}

/// Calls of many estimates, and of many ends, are one after the other.
#[test]
fn a_call_of_many_is_one_after_the_other() {
    for mut store in Store::each() {
        let [(_, _, bucket), (_, _, window), (_, _, log), _] = limits_of(20, 10);
        let plans = [
            Plan::new([("b", bucket)]).unwrap(),
            Plan::new([("b", bucket), ("w", window)]).unwrap(),
            Plan::new([("w", window), ("l", log)]).unwrap(),
        ];
        let (mut random, mut now_us, mut next) = (Rng::with_seed(4), NOW_US, 0);
        let mut known = Vec::new();
        for round in 0..60 {
            now_us += random.u64(..SECOND_US);
            let (mut estimates, mut singles) = (Estimates::new(), Vec::new());
            for _ in 0..=random.u64(..8) {
                let (plan, permits) = (&plans[random.usize(..3)], 1 + random.u64(..5));
                let (name, ttl_us) = (random.u64(..2), 1 + random.u64(..4 * SECOND_US));
                let id = if random.u64(..4) == 0 { random.u64(..=next) } else { next + 1 };
                next = next.max(id);
                known.push((plan, name, id));
                let [together, alone] =
                    ["together", "alone"].map(|side| key(&format!("{side}{name}")));
                let ttl_ns = NonZeroU64::new(ttl_us * 1_000).unwrap();
                estimates.push(plan, &together, (permits, 0), (id_of(id), ttl_ns)).unwrap();
                singles.push(Ok(store.reserve(plan, &alone, permits, (id, ttl_us), now_us)));
            }
            let reply = store.send(estimates.command(Settings::default()), now_us);
            assert_eq!(estimates.read(&reply).unwrap().content, singles, "round {round}");
            let (mut ends, mut singles) = (Ends::new(), Vec::new());
            for _ in 0..random.u64(..8) {
                let (plan, name, id) = known[known.len() - 1 - random.usize(..known.len().min(12))];
                let end = commit(random.u64(..6));
                let [together, alone] =
                    ["together", "alone"].map(|side| key(&format!("{side}{name}")));
                ends.push(plan, &together, id_of(id), end, Debt::FORGOTTEN).unwrap();
                singles.push(Ok(store.end(plan, &alone, (id, end), Debt::FORGOTTEN, now_us)));
            }
            let reply = store.send(ends.command(Settings::default()), now_us);
            assert_eq!(ends.read(&reply).unwrap().content, singles, "round {round}");
        }
    }
}

/// One hold more than a state may have is denied, until the first of them ends.
#[test]
fn holds_are_bounded() {
    for mut store in Store::each() {
        for (name, _, limit) in limits_of(10_000, 3_600) {
            let (plan, key, ttl_us) = (plan_of(name, limit), key(name), 60 * SECOND_US);
            for from in (0..MAX_HOLDS).step_by(512) {
                let mut estimates = Estimates::new();
                for id in from..from + 512 {
                    let ttl_ns = NonZeroU64::new((ttl_us - id % 7) * 1_000).unwrap();
                    estimates.push(&plan, &key, (1, 0), (id_of(id), ttl_ns)).unwrap();
                }
                let reply = store.send(estimates.command(Settings::default()), NOW_US);
                for reply in estimates.read(&reply).unwrap().content {
                    assert_eq!(wait_us(reply.unwrap()), None, "{name}");
                }
            }
            let full = store.reserve(&plan, &key, 1, (MAX_HOLDS, 1), NOW_US);
            assert_eq!((wait_us(full), full.remaining), (Some(ttl_us - 6), 10_000 - MAX_HOLDS));
            granted(store.try_acquire(&plan, &key, 1, NOW_US));
            let end = store.end(&plan, &key, (77, commit(0)), Debt::FORGOTTEN, NOW_US);
            assert_eq!(end.outcome, back(1), "{name}");
            assert_eq!(wait_us(store.reserve(&plan, &key, 1, (MAX_HOLDS, 1), NOW_US)), None);
            // All end in one call.
            let left = granted(store.try_acquire(&plan, &key, 1, NOW_US + ttl_us)).remaining;
            assert_eq!(left, 9_998 + u64::from(name == "bucket"), "{name}");
        }
    }
}

/// A hold whose state was lost or reset is settled as a late one: what was used counts.
#[test]
fn a_hold_that_was_reset_is_charged() {
    for mut store in Store::each() {
        for (name, _, limit) in limits_of(10, 600) {
            let (plan, key) = (plan_of(name, limit), key(name));
            assert_eq!(wait_us(store.reserve(&plan, &key, 8, (1, SECOND_US), NOW_US)), None);
            let reset = rategate_redis::returns::reset(&plan, &key);
            assert_eq!(store.counts(&plan, &reset, NOW_US).content, [1]);
            let end = store.end(&plan, &key, (1, commit(3)), Debt::FORGOTTEN, NOW_US);
            let charged = Charged { booked: 3, forgiven: 0, debt: 0 };
            assert_eq!((end.outcome, end.remaining), (EndOutcome::Late(charged), 7), "{name}");
        }
    }
}

/// A limit gets other numbers while estimates are held: what comes back never makes it larger than
/// if the true cost had been taken at first.
#[test]
fn holds_continue_under_other_numbers() {
    for mut store in Store::each() {
        let bucket = |rate: &str, burst| {
            let policy = Gcra::new(rate.parse().unwrap(), burst).unwrap();
            (AnyPolicy::from(policy), Limit::gcra(&policy).unwrap())
        };
        let numbers =
            [bucket("10/s", 20), bucket("7/s", 30), bucket("3/s", 25), bucket("100/min", 40)];
        let (mut random, mut now_us, mut next) = (Rng::with_seed(3), NOW_US, 0);
        let (mut held, mut core) = (Vec::new(), Ledger::new([numbers[0].0], NOW_US * 1_000));
        let mut at = 0;
        for step in 0..1_500 {
            now_us += random.u64(..300_000);
            if random.u64(..25) == 0 {
                at = random.usize(..4);
                core.reconfigure(now_us * 1_000, numbers[at].0).unwrap();
            }
            let (plan, key) = (plan_of("b", numbers[at].1), key("k"));
            let (ours, theirs) = match random.u64(..3) {
                0 if !held.is_empty() => {
                    let (id, hold): (u64, Hold) = held.swap_remove(random.usize(..held.len()));
                    let used = random.u64(..=hold.permits);
                    let _ = core.commit(now_us * 1_000, hold, used, Debt::FORGOTTEN);
                    let end = store.end(&plan, &key, (id, commit(used)), Debt::FORGOTTEN, now_us);
                    (end.remaining, core.remaining(now_us * 1_000))
                }
                _ => {
                    let (permits, ttl_us) = (1 + random.u64(..6), 1 + random.u64(..5 * SECOND_US));
                    next += 1;
                    let reply = store.reserve(&plan, &key, permits, (next, ttl_us), now_us);
                    if wait_us(reply).is_none() {
                        match core.try_hold(now_us * 1_000, permits, ttl_us * 1_000).unwrap() {
                            HoldVerdict::Held(hold) => held.push((next, hold)),
                            HoldVerdict::Denied(denial) => panic!("step {step}: {denial:?}"),
                        }
                    }
                    (reply.remaining, core.remaining(now_us * 1_000))
                }
            };
            // Both round what is in use up, by parts of a microsecond.
            assert!(ours.abs_diff(theirs) <= 1, "step {step}: {ours}, not {theirs}");
        }
        assert!(next > 500 && held.len() > 5, "{next} {}", held.len());
    }
}

/// A restart from the append-only file, and a replica that takes over: each end counts once.
#[test]
fn holds_survive_a_restart_and_a_failover() {
    for brand in Brand::installed() {
        let always = ["--appendonly", "yes", "--appendfsync", "always"];
        let mut server = Server::with(brand, &always);
        let mut client = server.client();
        client.ok(&Library::LIVE.load());
        let hour_ns = NonZeroU64::new(3_600_000_000_000).unwrap();
        for (name, _, limit) in limits_of(10, 86_400) {
            let plan = plan_of(name, limit);
            let mut estimates = Estimates::new();
            for id in [1, 2] {
                estimates.push(&plan, &key(name), (4, 0), (id_of(id), hour_ns)).unwrap();
            }
            client.ok(&estimates.command(Settings::default()).fcall(Library::LIVE));
        }
        let end = |client: &mut Client, id, used, about: &str| {
            for (name, _, limit) in limits_of(10, 86_400) {
                for is_repeated in [false, true] {
                    let (plan, mut ends) = (plan_of(name, limit), Ends::new());
                    ends.push(&plan, &key(name), id_of(id), commit(used), Debt::FORGOTTEN).unwrap();
                    let reply = client.ok(&ends.command(Settings::default()).fcall(Library::LIVE));
                    let reply = ends.read(&value(&reply)).unwrap().content.remove(0).unwrap();
                    assert_eq!(reply.is_repeated, is_repeated, "{about}, {name}");
                    assert_eq!(reply.outcome, back(4 - used), "{about}, {name}");
                }
            }
        };
        server.restart();
        let mut client = server.client();
        let replica = server.replica();
        end(&mut client, 1, 1, "restarted");
        assert_eq!(client.ok(&["WAIT", "1", "5000"]), Reply::Int(1));
        server.kill();
        let mut client = replica.client();
        client.ok(&["REPLICAOF", "NO", "ONE"]);
        end(&mut client, 2, 3, "taken over");
        for (name, _, limit) in limits_of(10, 86_400) {
            let (plan, mut batch) = (plan_of(name, limit), Batch::new());
            batch.try_acquire(&plan, &key(name), 6, Extra::default()).unwrap();
            let reply = client.ok(&batch.decide(Settings::default()).fcall(Library::LIVE));
            let verdict = batch.read(&value(&reply)).unwrap().content.remove(0).unwrap();
            assert_eq!(granted(verdict).remaining, 0, "{name}: 1 and 3 were used");
        }
    }
}

/// A store without functions takes the script.
#[test]
fn the_script_gives_the_same_replies() {
    for mut store in Store::each() {
        let script = Library::DEBUG.script();
        let [(_, _, bucket), (_, _, window), (_, _, log), _] = limits_of(10, 600);
        let plan = Plan::new([("b", bucket), ("w", window), ("l", log)]).unwrap();
        let ttl_ns = NonZeroU64::new(1_000_000_000).unwrap();
        let mut estimates = Estimates::new();
        estimates.push(&plan, &key("k"), (7, 0), (id_of(1), ttl_ns)).unwrap();
        let command = estimates.command(Settings::default()).at_us(NOW_US);
        let reply = value(&store.client.ok(&command.eval(&script)));
        let reply = estimates.read(&reply).unwrap().content.remove(0).unwrap();
        assert_eq!((wait_us(reply), reply.remaining), (None, 3));
        let mut ends = Ends::new();
        ends.push(&plan, &key("k"), id_of(1), commit(2), Debt::FORGOTTEN).unwrap();
        let command = ends.command(Settings::default()).at_us(NOW_US);
        let reply = value(&store.client.ok(&command.evalsha(&script)));
        let reply = ends.read(&reply).unwrap().content.remove(0).unwrap();
        assert_eq!((reply.outcome, reply.remaining), (back(5), 8));
    }
}

#[test]
fn what_cannot_be_held_is_refused() {
    let [_, _, (_, _, log), _] = limits_of(10, 600);
    let plan = plan_of("l", log);
    let ttl_ns = NonZeroU64::new(1).unwrap();
    let mut estimates = Estimates::new();
    let push = |plan, permits, ttl_ns| {
        Estimates::new().push(plan, &key("k"), (permits, 0), (id_of(1), ttl_ns))
    };
    assert_eq!(push(&plan, 0, ttl_ns), Err(RequestError::NoPermits));
    assert!(matches!(push(&plan, 11, ttl_ns), Err(RequestError::Exceeds(_))));
    assert_eq!(push(&plan, 1, NonZeroU64::new(MAX_TTL_US * 1_000).unwrap()), Ok(()));
    let longer = NonZeroU64::new(MAX_TTL_US * 1_000 + 1).unwrap();
    assert_eq!(push(&plan, 1, longer), Err(RequestError::TooLong));
    estimates.push(&plan, &key("k"), (1, 0), (id_of(1), ttl_ns)).unwrap();
    let command = estimates.command(Settings::default());
    assert_eq!(command.verb(), Verb::Reserve);
    assert_eq!(command.within_memory().verb(), Verb::ReserveWithinMemory);
    let mut ends = Ends::new();
    let id = id_of(1);
    let refused = ends.push(&plan, &key("k"), id, commit(1), Debt::CARRIED);
    assert_eq!(refused, Err(RequestError::CarriedByLog));
    assert_eq!(ends.push(&plan, &key("k"), id, commit(1), Debt::FORGOTTEN), Ok(()));
}
