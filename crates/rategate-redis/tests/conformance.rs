//! Conformance of the functions with the core, decision by decision, on a clock of whole
//! microseconds.

use std::time::Duration;

use crate::common::store::{Store, denied, granted, key};
use fastrand::Rng;
use rategate::store::Verdict;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::verdict::Verdict as CoreVerdict;
use rategate_redis::batch::{Batch, Extra};
use rategate_redis::limit::Limit;
use rategate_redis::plan::Plan;
use rategate_testkit::oracle::Oracle;

/// A recent instant.
const NOW_US: u64 = 1_790_000_000_123_457;

/// Returns a policy of the core with the limit made from it.
fn gcra(rate: &str, burst: u64) -> (AnyPolicy, Limit) {
    let policy = Gcra::new(rate.parse().unwrap(), burst).unwrap();
    (policy.into(), Limit::gcra(&policy).unwrap())
}

fn window(permits: u64, period_ns: u64) -> (AnyPolicy, Limit) {
    let policy = FixedWindow::new(permits, Duration::from_nanos(period_ns), Anchor::Epoch);
    (policy.into(), Limit::fixed_window(&policy).unwrap())
}

fn log(permits: u64, period_ns: u64, resolution_ns: u64) -> (AnyPolicy, Limit) {
    let policy = SlidingLog::new(permits, Duration::from_nanos(period_ns))
        .with_resolution(Duration::from_nanos(resolution_ns))
        .unwrap();
    (policy.into(), Limit::sliding_log(&policy).unwrap())
}

/// Returns the core's decision: granted permits, or the wait rounded up to whole microseconds,
/// and the rest.
fn core_try(oracle: &mut Oracle, now_us: u64, permits: u64) -> (Result<u64, u64>, u64) {
    match oracle.decide(now_us * 1_000, permits) {
        Ok(granted) => (Ok(granted.permits), granted.remaining),
        Err(refused) => (Err(refused.wait_ns.div_ceil(1_000) * 1_000), refused.remaining),
    }
}

fn shown(verdict: &Verdict) -> (Result<u64, u64>, u64) {
    match verdict {
        Verdict::Granted(grant) => (Ok(grant.permits), grant.remaining),
        Verdict::Denied(denial) => (Err(denial.retry_after_ns.unwrap().get()), denial.remaining),
    }
}

/// Compares both under random traffic, step by step. Each denial is tried again when its wait
/// ends, and one microsecond sooner.
fn agrees(
    store: &mut Store,
    name: &str,
    limits: &[(AnyPolicy, Limit)],
    steps: u64,
    typical_us: u64,
    start_us: u64,
) {
    let mut oracle = Oracle::new(limits.iter().map(|(policy, _)| *policy), start_us * 1_000);
    let labels = ["a", "b", "c", "d"];
    let plan = Plan::new(labels.into_iter().zip(limits.iter().map(|(_, limit)| *limit))).unwrap();
    let maximum = limits.iter().map(|(_, limit)| limit.maximum()).min().unwrap();
    let (key, mut random, mut now_us) = (key(name), Rng::with_seed(7), start_us);
    let (mut grants, mut denials) = (0_u64, 0_u64);
    for step in 0..steps {
        now_us += match random.u64(..8) {
            0..3 => 0,
            3 => 1,
            7 => random.u64(..=typical_us * 8),
            _ => random.u64(..=typical_us * 2),
        };
        let permits = match random.u64(..4) {
            0 => 1 + random.u64(..maximum),
            1 => 1 + random.u64(..maximum.min(3)),
            _ => 1,
        };
        let expected = core_try(&mut oracle, now_us, permits);
        let peeked = store.peek(&plan, &key, permits, now_us);
        let verdict = store.try_acquire(&plan, &key, permits, now_us);
        assert_eq!(shown(&verdict), expected, "{name}, step {step}, {permits} permits at {now_us}");
        assert_eq!(
            matches!(peeked, Verdict::Granted(_)),
            expected.0.is_ok(),
            "{name}: a peek, step {step}"
        );
        let Err(wait_ns) = expected.0 else {
            grants += 1;
            continue;
        };
        denials += 1;
        if random.u64(..3) == 0 {
            let wait_us = wait_ns / 1_000;
            let sooner = store.try_acquire(&plan, &key, permits, now_us + wait_us - 1);
            assert_eq!(denied(sooner).retry_after_ns.unwrap().get(), 1_000, "{name}, step {step}");
            now_us += wait_us;
            let then = store.try_acquire(&plan, &key, permits, now_us);
            let expected = core_try(&mut oracle, now_us, permits);
            assert_eq!(shown(&then), expected, "{name}, step {step}: when it says");
            assert!(expected.0.is_ok());
        }
    }
    assert!(
        grants > steps / 50 && denials > steps / 50,
        "{name}: {grants} grants, {denials} denials"
    );
}

#[test]
fn buckets_decide_as_the_core_does() {
    for mut store in Store::each() {
        let rates = [
            ("1000/s", 5, 1_000),
            ("3/s", 4, 333_333),
            ("1/s", 1, 1_000_000),
            ("7/11s", 3, 1_571_428),
            ("999999999/s", 3_000_000, 1_000),
            ("1000000000/s", 100_000, 50),
            ("1000000007/1000003s", 9, 9_000),
            ("1/365d", 3, 1 << 42),
            ("1000000000/s", 1 << 52, 1 << 40),
            ("104729/17s", 1_000_000, 70_000_000),
            ("999999999999/s", 7_777_777_777, 5_000),
        ];
        for (rate, burst, typical_us) in rates {
            let name = format!("{rate} {burst}");
            agrees(
                &mut store,
                &name,
                &[gcra(rate, burst)],
                if rate == "1/365d" { 60 } else { 400 },
                typical_us,
                NOW_US,
            );
        }
        // The ends of the range: the first instants, and the last.
        agrees(&mut store, "first", &[gcra("3/s", 4)], 200, 300_000, 0);
        agrees(&mut store, "last", &[gcra("3/s", 4)], 200, 300_000, (1 << 52) - 1_000_000_000);
    }
}

#[test]
fn windows_decide_as_the_core_does() {
    for mut store in Store::each() {
        agrees(&mut store, "second", &[window(5, 1_000_000_000)], 600, 100_000, NOW_US);
        agrees(&mut store, "odd", &[window(3, 7_919_000)], 600, 1_000, NOW_US);
        agrees(&mut store, "many", &[window(1 << 52, 60_000_000_000)], 300, 1_000_000, NOW_US);
        agrees(&mut store, "last", &[window(2, 1_000)], 200, 1, (1 << 52) - 1_000_000);
    }
}

#[test]
fn logs_decide_as_the_core_does() {
    for mut store in Store::each() {
        agrees(&mut store, "plain", &[log(5, 1_000_000_000, 1)], 600, 100_000, NOW_US);
        agrees(&mut store, "many", &[log(700, 1_000_000_000, 1)], 3_000, 700, NOW_US);
        agrees(&mut store, "odd", &[log(9, 7_919_123, 1)], 600, 500, NOW_US);
        agrees(&mut store, "grid", &[log(40, 1_000_000_000, 10_000_000)], 1_500, 12_000, NOW_US);
        agrees(
            &mut store,
            "coarse",
            &[log(70_000, 1_000_000_000, 300_000_000)],
            600,
            100_000,
            NOW_US,
        );
        agrees(&mut store, "day", &[log(6, 86_400_000_000_000, 1)], 400, 9_000_000_000, NOW_US);
        agrees(&mut store, "last", &[log(4, 1_000_000, 1)], 300, 200, (1 << 52) - 100_000_000);
        let compact = log(300, 1_000_000_000, 1_000_000);
        agrees(&mut store, "compact", &[compact], 800, 1_500, NOW_US);
    }
}

#[test]
fn several_limits_decide_all_or_nothing() {
    for mut store in Store::each() {
        let three = [gcra("10/s", 10), log(12, 2_000_000_000, 1), window(40, 10_000_000_000)];
        agrees(&mut store, "three", &three, 1_500, 60_000, NOW_US);
        let four = [
            gcra("3/s", 3),
            gcra("50/min", 20),
            log(25, 30_000_000_000, 1_000_000),
            window(9, 1_000_000_000),
        ];
        agrees(&mut store, "four", &four, 1_500, 200_000, NOW_US);
    }
}

/// S3.19: a decision is one call that reads and writes, and callers are separated by their keys.
#[test]
fn a_batch_decides_as_one_call_after_the_other() {
    for mut store in Store::each() {
        let plans = [
            Plan::new([("g", gcra("100/s", 7).1)]).unwrap(),
            Plan::new([("g", gcra("100/s", 7).1), ("l", log(9, 100_000_000, 1).1)]).unwrap(),
            Plan::new([("w", window(6, 50_000_000).1), ("m", log(20, 300_000_000, 5_000_000).1)])
                .unwrap(),
        ];
        let (mut random, mut now_us) = (Rng::with_seed(3), NOW_US);
        for round in 0..150 {
            now_us += random.u64(..40_000);
            let mut batch = Batch::new();
            let mut singles = Vec::new();
            for _ in 0..=random.u64(..30) {
                let plan = &plans[random.u64(..3).min(random.u64(..4)).min(2) as usize];
                let (name, permits) = (random.u64(..3), 1 + random.u64(..3) / 2);
                let is_debit = random.u64(..5) == 0;
                let [together, single] =
                    ["together", "alone"].map(|side| key(&format!("{side} {name}")));
                if is_debit {
                    batch.debit(plan, &together, permits + 2, Extra::default()).unwrap();
                    singles.push(Ok(store.debit(plan, &single, permits + 2, now_us)));
                } else {
                    batch.try_acquire(plan, &together, permits, Extra::default()).unwrap();
                    singles.push(Ok(store.try_acquire(plan, &single, permits, now_us)));
                }
            }
            assert_eq!(store.answer(&batch, now_us).content, singles, "round {round}");
        }
    }
}

#[test]
fn a_debit_takes_what_there_is() {
    for mut store in Store::each() {
        let limits = [("a", gcra("3/s", 9).1), ("b", log(7, 1_000_000_000, 1).1)];
        let plan = Plan::new(limits).unwrap();
        assert_eq!(granted(store.debit(&plan, &key("a"), 5, NOW_US)).permits, 5);
        let grant = granted(store.debit(&plan, &key("a"), 5, NOW_US));
        assert_eq!((grant.permits, grant.remaining), (2, 0));
        let denial = denied(store.debit(&plan, &key("a"), 1, NOW_US));
        assert_eq!(denial.retry_after_ns.unwrap().get(), 1_000_000_000);
        // By then 3 1/3 permits are earned, and 2 were left: the bucket has five whole ones.
        let bucket = Plan::new([limits[0]]).unwrap();
        assert_eq!(granted(store.debit(&bucket, &key("a"), 9, NOW_US + 1_111_111)).permits, 5);
    }
}

#[test]
fn a_debit_is_what_remains_and_says_when_one_passes() {
    for mut store in Store::each() {
        let limits =
            [("a", gcra("700/s", 9)), ("b", log(7, 9_000_000, 1)), ("c", window(12, 20_000_000))];
        let plan = Plan::new(limits.map(|(label, (_, limit))| (label, limit))).unwrap();
        let mut oracle = Oracle::new(limits.map(|(_, (policy, _))| policy), 0);
        let (mut random, mut now_us, mut partly, mut denials) = (Rng::with_seed(31), NOW_US, 0, 0);
        for step in 0..1_500 {
            now_us += random.u64(..3_000);
            let permits = 1 + random.u64(..7);
            // The core is probed for one permit on a copy.
            let (one, remaining) = core_try(&mut oracle.clone(), now_us, 1);
            match store.debit(&plan, &key("k"), permits, now_us) {
                Verdict::Granted(grant) => {
                    assert_eq!(grant.permits, permits.min(remaining + 1), "step {step}");
                    partly += u64::from(grant.permits < permits);
                    assert!(core_try(&mut oracle, now_us, grant.permits).0.is_ok());
                }
                Verdict::Denied(denial) => {
                    assert_eq!(Err(denial.retry_after_ns.unwrap().get()), one, "step {step}");
                    denials += 1;
                }
            }
        }
        assert!(partly > 100 && denials > 100, "{partly} {denials}");
    }
}

#[test]
fn forgetting_never_changes_a_decision() {
    for mut store in Store::each() {
        // The debug store expires keys by its own clock, to the microsecond; the core never does.
        for (name, limit, typical_us) in [
            ("g", gcra("7/11s", 2), 3_000_000),
            ("w", window(2, 1_000_000), 900),
            ("l", log(2, 1_000_000, 1), 900),
            ("q", log(3, 1_000_000, 7_000), 900),
        ] {
            agrees(&mut store, name, &[limit], 400, typical_us, NOW_US);
        }
    }
}

#[test]
fn refunds_are_those_of_the_core() {
    use rategate_core::ledger::Ledger;

    for mut store in Store::each() {
        let limits = [
            ("whole", gcra("1000/s", 6), 900),
            ("odd", gcra("8/3s", 5), 300_000),
            ("window", window(6, 50_000_000), 7_000),
            ("log", log(6, 50_000_000, 1), 7_000),
            ("long", log(90, 50_000_000, 1), 400),
        ];
        for (name, (policy, limit), typical_us) in limits {
            let plan = Plan::new([("a", limit)]).unwrap();
            let key = key(name);
            let (mut random, mut now_us) = (Rng::with_seed(11), NOW_US);
            let mut core = Ledger::new(policy, now_us * 1_000);
            let mut grants = Vec::new();
            let mut back = 0;
            for step in 0..1_500 {
                now_us += random.u64(..typical_us * 2);
                if random.u64(..3) == 0 && !grants.is_empty() {
                    let at = grants.len() - 1 - random.u64(..grants.len().min(5) as u64) as usize;
                    let (ours, theirs): (rategate::store::Grant, rategate_core::verdict::Grant) =
                        grants.remove(at);
                    let permits = 1 + random.u64(..ours.permits);
                    let is_full = core.remaining(now_us * 1_000) == limit.maximum();
                    let expected = core.refund(now_us * 1_000, &theirs, permits);
                    let got = store.refund(&plan, &key, &ours, permits, now_us);
                    // For a full bucket the count of refunded permits may differ once its state
                    // has expired.
                    if !is_full {
                        assert_eq!(
                            got, expected,
                            "{name}, step {step}: {permits} of {ours:?} at {now_us}"
                        );
                    }
                    back += got;
                    continue;
                }
                let permits = 1 + random.u64(..3);
                let ours = store.try_acquire(&plan, &key, permits, now_us);
                let theirs = core.try_acquire(now_us * 1_000, permits).unwrap();
                match (ours, theirs) {
                    (Verdict::Granted(ours), CoreVerdict::Granted(theirs)) => {
                        let left = core.remaining(now_us * 1_000);
                        assert_eq!(ours.remaining, left, "{name}, step {step}");
                        grants.push((ours, theirs));
                    }
                    (Verdict::Denied(ours), CoreVerdict::Denied(theirs)) => {
                        let theirs = theirs.retry_after_ns.unwrap().get().div_ceil(1_000) * 1_000;
                        assert_eq!(
                            ours.retry_after_ns.unwrap().get(),
                            theirs,
                            "{name}, step {step}"
                        );
                    }
                    (ours, theirs) => {
                        panic!("{name}, step {step} at {now_us}: {ours:?}, the core {theirs:?}")
                    }
                }
            }
            assert!(back > 100, "{name}: {back}");
        }
    }
}

#[test]
fn a_refund_comes_back_to_all_limits_or_to_as_many_as_all_can() {
    for mut store in Store::each() {
        let plan = Plan::new([("a", gcra("1/s", 5).1), ("b", window(5, 1_000_000_000).1)]).unwrap();
        let start_us = NOW_US - NOW_US % 1_000_000;
        let grant = granted(store.try_acquire(&plan, &key("a"), 4, start_us));
        // The bucket could refund three, but the window is another one.
        assert_eq!(store.refund(&plan, &key("a"), &grant, 3, start_us + 1_000_000), 0);
        let grant = granted(store.try_acquire(&plan, &key("a"), 2, start_us + 1_000_001));
        assert_eq!(store.refund(&plan, &key("a"), &grant, 2, start_us + 1_000_002), 2);
        assert_eq!(
            granted(store.try_acquire(&plan, &key("a"), 2, start_us + 1_000_002)).remaining,
            0
        );
    }
}

#[test]
fn what_came_back_is_remembered_until_no_older_grant_can_come_back() {
    for mut store in Store::each() {
        let plan = Plan::new([("a", gcra("1/s", 5).1)]).unwrap();
        let first = granted(store.try_acquire(&plan, &key("a"), 2, NOW_US));
        let second = granted(store.try_acquire(&plan, &key("a"), 2, NOW_US));
        assert_eq!(store.refund(&plan, &key("a"), &first, 2, NOW_US), 2);
        // The bucket is full again, and would have been without the second grant, too.
        granted(store.try_acquire(&plan, &key("a"), 5, NOW_US + 2_100_000));
        assert_eq!(store.refund(&plan, &key("a"), &second, 2, NOW_US + 2_100_000), 0);
        assert_eq!(denied(store.try_acquire(&plan, &key("a"), 1, NOW_US + 2_100_000)).remaining, 0);
    }
}

/// The required agreement of a store with the core after changes of the numbers.
#[derive(Clone, Copy, PartialEq)]
enum Agreement {
    /// Equal decisions.
    Exact,
    /// No more grants, and waits at most this many microseconds longer for each change.
    Within(u64),
    /// No more grants.
    NoMore,
}

/// Plays random requests under the numbers of each round, on the state left by the rounds before.
fn continues(
    store: &mut Store,
    name: &str,
    rounds: impl Iterator<Item = (AnyPolicy, Limit)>,
    agreement: Agreement,
) {
    let (mut random, mut now_us) = (Rng::with_seed(21), NOW_US);
    let mut oracle: Option<Oracle> = None;
    let (mut grants, mut changes) = (0, 0);
    for (round, (policy, limit)) in rounds.enumerate() {
        let plan = Plan::new([("a", limit)]).unwrap();
        for call in 0..=random.u64(..40) {
            now_us += random.u64(..90_000);
            let oracle = oracle.get_or_insert_with(|| Oracle::new([policy], now_us * 1_000));
            if call == 0 && round > 0 {
                oracle.change(now_us * 1_000, [policy]);
                changes += 1;
            }
            let what = format!("round {round}: {policy:?} at {now_us}");
            // No bucket is full when its numbers change: the store may have forgotten a full one,
            // and then finds it full under the new numbers too.
            let is_first = round == 0 && call == 0;
            let permits = 1 + random.u64(..limit.maximum().min(4));
            let permits = if is_first { limit.maximum() } else { permits };
            let verdict = store.try_acquire(&plan, &key(name), permits, now_us);
            let mut tried = oracle.clone();
            let expected = core_try(&mut tried, now_us, permits);
            let seen = shown(&verdict);
            match agreement {
                Agreement::Exact => assert_eq!(seen, expected, "{what}"),
                Agreement::Within(each_us) => {
                    let wait_ns = |(shown, _): (Result<u64, u64>, u64)| shown.err().unwrap_or(0);
                    let more_ns = wait_ns(seen).checked_sub(wait_ns(expected)).expect(&what);
                    assert!(more_ns <= 1_000 * each_us * changes, "{what}: {more_ns} ns");
                }
                Agreement::NoMore => {}
            }
            if let Verdict::Granted(_) = verdict {
                assert!(expected.0.is_ok(), "{what}");
                *oracle = tried;
                grants += 1;
            }
        }
    }
    assert!(grants > 20, "{grants}");
}

#[test]
fn a_log_keeps_its_grants_under_other_numbers() {
    for mut store in Store::each() {
        // More and fewer permits, and shorter periods: equal to the core.
        for run in 0..30 {
            let numbers = [
                (20, 2_000),
                (7, 2_000),
                (300, 2_000),
                (3, 2_000),
                (300, 1_000),
                (12, 1_000),
                (5, 400),
            ];
            let rounds = numbers
                .into_iter()
                .map(|(permits, period_ms)| log(permits, period_ms * 1_000_000, 1));
            continues(&mut store, &format!("exact {run}"), rounds, Agreement::Exact);
        }
        // Each other grid rounds instants up once more, so the store grants no more than a log
        // without a grid.
        let mut random = Rng::with_seed(5);
        let others = [
            (20, 1_000, 1),
            (20, 1_000, 70_000_000),
            (9, 1_000, 1_000),
            (40, 1_000, 9_000_000),
            (5, 1_000, 1_000_000),
        ];
        let numbers = (0..250).map(|_| others[random.usize(..5)]);
        let rounds = numbers.map(|(permits, period_ms, resolution_ns)| {
            let (exact, _) = log(permits, period_ms * 1_000_000, 1);
            (exact, log(permits, period_ms * 1_000_000, resolution_ns).1)
        });
        continues(&mut store, "others", rounds, Agreement::NoMore);
    }
}

#[test]
fn a_window_keeps_its_count_under_other_numbers() {
    for mut store in Store::each() {
        let mut random = Rng::with_seed(6);
        let numbers = [(5, 1_000), (10, 1_000), (40, 7_000), (3, 250), (20, 3_000)];
        let numbers = (0..250).map(|_| numbers[random.usize(..5)]);
        let rounds = numbers.map(|(permits, period_ms)| window(permits, period_ms * 1_000_000));
        continues(&mut store, "window", rounds, Agreement::Exact);
    }
}

/// The rates are of whole microseconds and of parts of one, up and down, with bursts above and
/// below the permits in use.
#[test]
fn a_bucket_keeps_what_is_left_under_other_numbers() {
    for mut store in Store::each() {
        let numbers = [
            ("5/s", 15),
            ("10/s", 20),
            ("3/s", 18),
            ("7/s", 12),
            ("9983/min", 300),
            ("2/s", 20),
            ("10/s", 13),
        ];
        for run in 0..10 {
            let mut random = Rng::with_seed(7 + run);
            let rounds = (0..60).map(|_| numbers[random.usize(..7)]);
            let rounds = rounds.map(|(rate, burst)| gcra(rate, burst));
            continues(&mut store, &format!("bucket {run}"), rounds, Agreement::Within(2));
        }
        // A larger burst at the same rate, and a smaller one: nothing to round.
        let bursts = [14, 19, 12, 30, 11, 17].map(|burst| gcra("20/s", burst));
        continues(&mut store, "bursts", bursts.into_iter().cycle().take(60), Agreement::Exact);
    }
}

#[test]
fn a_bucket_that_is_lowered_far_below_its_use_waits_for_one_permit() {
    for mut store in Store::each() {
        let of = |rate, burst| Plan::new([("a", gcra(rate, burst).1)]).unwrap();
        granted(store.try_acquire(&of("5/h", 5), &key("a"), 5, NOW_US));
        let denial = denied(store.try_acquire(&of("5/d", 2), &key("a"), 1, NOW_US));
        assert_eq!(denial.retry_after_ns.unwrap().get(), 86_400_000_000_000 / 5);
    }
}

/// A grant made at another rate cannot be refunded, and the wait reported after a change is
/// exact.
#[test]
fn a_change_is_remembered_even_where_all_is_denied() {
    for mut store in Store::each() {
        let of = |rate| Plan::new([("a", gcra(rate, 1).1)]).unwrap();
        let (slow, fast) = (of("1/h"), of("60/h"));
        let grant = granted(store.try_acquire(&slow, &key("a"), 1, NOW_US));
        let denial = denied(store.try_acquire(&fast, &key("a"), 1, NOW_US));
        assert_eq!(denial.retry_after_ns.unwrap().get(), 60_000_000_000);
        let denial = denied(store.try_acquire(&fast, &key("a"), 1, NOW_US + 59_999_999));
        assert_eq!(denial.retry_after_ns.unwrap().get(), 1_000);
        assert_eq!(store.refund(&fast, &key("a"), &grant, 1, NOW_US + 59_999_999), 0);
        granted(store.try_acquire(&fast, &key("a"), 1, NOW_US + 60_000_000));
    }
}
