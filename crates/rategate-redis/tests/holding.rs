//! Permits that are held until they are released or their lease ends, repeated requests, and
//! resets.

use std::time::Duration;

use crate::common::store::{Store, denied, granted, key};
use fastrand::Rng;
use rategate::store::{LeaseId, Verdict};
use rategate_core::concurrency::Concurrency;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::verdict::Verdict as CoreVerdict;
use rategate_redis::batch::{Batch, Extra, RequestId};
use rategate_redis::command::Settings;
use rategate_redis::error::RequestError;
use rategate_redis::limit::Limit;
use rategate_redis::plan::Plan;
use rategate_redis::returns;
use rategate_testkit::redis::Reply;

const NOW_US: u64 = 1_790_000_000_123_457;

fn oven(permits: u64, lease_us: u64) -> Limit {
    Limit::concurrency(&Concurrency::new(permits), lease_us).unwrap()
}

fn by(name: u64) -> (LeaseId, Extra) {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&name.to_le_bytes());
    (LeaseId(id), Extra { lease: Some(LeaseId(id)), request: None })
}

fn bucket(burst: u64) -> Limit {
    Limit::gcra(&Gcra::new("1/s".parse().unwrap(), burst).unwrap()).unwrap()
}

/// The core receives a release for each lease that ends.
#[test]
fn what_is_held_is_what_the_core_counts() {
    for mut store in Store::each() {
        let core = Concurrency::new(9);
        let plan = Plan::new([("oven", oven(9, 5_000))]).unwrap();
        let (mut limit, mut now_us, mut random) = (Ledger::new(core, 0), NOW_US, Rng::with_seed(5));
        let mut leases: Vec<(u64, u64, u64)> = Vec::new();
        let (mut renewed, mut ended) = (0, 0);
        for step in 0..3_000_u64 {
            now_us += random.u64(..700);
            leases.retain(|&(_, permits, until_us)| {
                let is_over = until_us <= now_us;
                if is_over {
                    limit.release(0, permits);
                    ended += 1;
                }
                !is_over
            });
            let index = leases.len().checked_sub(1).map(|last| random.usize(..=last));
            match (random.u64(..6), index) {
                (0, Some(index)) => {
                    let (name, permits, _) = leases.remove(index);
                    let release = returns::release(
                        &plan,
                        &key("k"),
                        by(name).0,
                        permits,
                        Settings::default(),
                    )
                    .unwrap();
                    assert_eq!(store.counts(&plan, &release, now_us).content, [1], "step {step}");
                    assert_eq!(store.counts(&plan, &release, now_us).content, [0], "twice is once");
                    limit.release(0, permits);
                }
                (1, Some(index)) => {
                    let (name, permits, until_us) = &mut leases[index];
                    let renew = returns::renew(
                        &plan,
                        &key("k"),
                        by(*name).0,
                        *permits,
                        Settings::default(),
                    )
                    .unwrap();
                    assert_eq!(store.counts(&plan, &renew, now_us).content, [1], "step {step}");
                    *until_us = now_us + 5_000;
                    renewed += 1;
                }
                _ => {
                    let permits = 1 + random.u64(..4);
                    let verdict = store.acquire_with(&plan, &key("k"), permits, by(step).1, now_us);
                    match (verdict, limit.try_acquire(0, permits).unwrap()) {
                        (Verdict::Granted(ours), CoreVerdict::Granted(_)) => {
                            assert_eq!(ours.remaining, limit.remaining(0), "step {step}");
                            leases.push((step, permits, now_us + 5_000));
                        }
                        (Verdict::Denied(ours), CoreVerdict::Denied(_)) => {
                            // The wait lasts until enough leases end without a renewal.
                            let mut ends: Vec<_> = leases
                                .iter()
                                .map(|&(_, held, until_us)| (until_us, held))
                                .collect();
                            ends.sort_unstable();
                            let mut free = limit.remaining(0);
                            let opens_us = ends.iter().find_map(|&(until_us, held)| {
                                free += held;
                                (free >= permits).then_some(until_us)
                            });
                            let wait_us = ours.retry_after_ns.unwrap().get() / 1_000;
                            assert_eq!(Some(now_us + wait_us), opens_us, "step {step}");
                        }
                        (ours, theirs) => panic!("step {step}: {ours:?}, the core {theirs:?}"),
                    }
                }
            }
        }
        assert!(renewed > 100 && ended > 100, "{renewed} {ended}");
    }
}

#[test]
fn a_lease_that_ended_is_neither_renewed_nor_released() {
    for mut store in Store::each() {
        let plan = Plan::new([("oven", oven(1, 1_000))]).unwrap();
        granted(store.acquire_with(&plan, &key("k"), 1, by(1).1, NOW_US));
        let denial = denied(store.acquire_with(&plan, &key("k"), 1, by(2).1, NOW_US + 400));
        assert_eq!(denial.retry_after_ns.unwrap().get(), 600_000);
        denied(store.acquire_with(&plan, &key("k"), 1, by(2).1, NOW_US + 999));
        granted(store.acquire_with(&plan, &key("k"), 1, by(2).1, NOW_US + 1_000));
        let renew = returns::renew(&plan, &key("k"), by(1).0, 1, Settings::default()).unwrap();
        assert_eq!(store.counts(&plan, &renew, NOW_US + 1_000).content, [0]);
        let release = returns::release(&plan, &key("k"), by(1).0, 1, Settings::default()).unwrap();
        assert_eq!(store.counts(&plan, &release, NOW_US + 1_000).content, [0]);
        denied(store.acquire_with(&plan, &key("k"), 1, by(3).1, NOW_US + 1_500));
    }
}

#[test]
fn holders_in_one_call_see_each_other() {
    for mut store in Store::each() {
        let plan = Plan::new([("oven", oven(2, 1_000)), ("rate", bucket(9))]).unwrap();
        let mut batch = Batch::new();
        for name in [1, 2, 3, 2] {
            batch.try_acquire(&plan, &key("k"), 1, by(name).1).unwrap();
        }
        let answer = store.answer(&batch, NOW_US);
        let [first, second, third, again] = answer.content.try_into().unwrap();
        granted(first.unwrap());
        assert_eq!(granted(second.unwrap()).remaining, 0);
        assert_eq!(denied(third.unwrap()).retry_after_ns.unwrap().get(), 1_000_000);
        // The same holder repeats the request: it keeps its permits, and none are taken from the
        // bucket either.
        assert!(granted(again.unwrap()).is_repeated);
        let rate = Plan::new([("rate", bucket(9))]).unwrap();
        assert_eq!(granted(store.peek(&rate, &key("k"), 1, NOW_US)).remaining, 7);
        assert_eq!(
            batch.try_acquire(&plan, &key("k"), 1, Extra::default()),
            Err(RequestError::NoLease)
        );
    }
}

#[test]
fn a_request_that_is_sent_twice_is_granted_once() {
    for mut store in Store::each() {
        let plan = Plan::new([("rate", bucket(3))]).unwrap();
        let request = |name: u8| Extra {
            request: Some(RequestId { id: [name; 16], keep_ms: 2_000 }),
            lease: None,
        };
        let first = granted(store.acquire_with(&plan, &key("k"), 2, request(1), NOW_US));
        let again = granted(store.acquire_with(&plan, &key("k"), 2, request(1), NOW_US + 10));
        assert!(again.is_repeated && !first.is_repeated);
        assert_eq!(again.receipt, first.receipt);
        assert_eq!(granted(store.peek(&plan, &key("k"), 1, NOW_US + 10)).remaining, 1);
        // A denial is not recorded: the same request passes when its time has come.
        denied(store.acquire_with(&plan, &key("k"), 3, request(2), NOW_US + 10));
        assert!(
            !granted(store.acquire_with(&plan, &key("k"), 3, request(2), NOW_US + 2_000_000))
                .is_repeated
        );
        // Two equal requests in one call are one, too; after the record has expired it is a new
        // request.
        let mut batch = Batch::new();
        for _ in 0..2 {
            batch.try_acquire(&plan, &key("other"), 2, request(3)).unwrap();
        }
        let answer = store.answer(&batch, NOW_US);
        assert_eq!(
            answer
                .content
                .into_iter()
                .map(|verdict| granted(verdict.unwrap()).is_repeated)
                .collect::<Vec<_>>(),
            [false, true]
        );
        assert!(
            !granted(store.acquire_with(&plan, &key("other"), 1, request(3), NOW_US + 2_000_000))
                .is_repeated
        );
    }
}

#[test]
fn a_reset_key_is_fresh_and_leaves_nothing() {
    for mut store in Store::each() {
        let window = FixedWindow::new(5, Duration::from_secs(1), Anchor::Epoch);
        let limits = [("a", bucket(3)), ("b", Limit::fixed_window(&window).unwrap())];
        let plan = Plan::new(limits).unwrap();
        granted(store.try_acquire(&plan, &key("k"), 3, NOW_US));
        let reset = returns::reset(&plan, &key("k"));
        assert_eq!(store.counts(&plan, &reset, NOW_US).content, [2]);
        assert_eq!(granted(store.try_acquire(&plan, &key("k"), 3, NOW_US)).remaining, 0);
        assert_eq!(store.client.ok(&["EXISTS", "t:1r{k}:ag"]), Reply::Int(1));
    }
}
