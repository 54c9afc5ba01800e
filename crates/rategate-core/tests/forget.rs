//! Forgetting: a state that is as fresh can be thrown away, and no decision tells.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

mod common;

use common::{MS, S, XorShift};
use rategate_core::any_policy::AnyPolicy;
use rategate_core::commit_log::CommitLog;
use rategate_core::compact_log::CompactLog;
use rategate_core::concurrency::Concurrency;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit;
use rategate_core::policy::Policy;
use rategate_core::sliding_log::SlidingLog;

fn policies(random: &mut XorShift) -> AnyPolicy {
    let rate = random.pick(&["1/s", "3/s", "7/10s", "1000/s", "30000001/s", "unlimited", "never"]);
    let (permits, period_ns) = (random.between(1, 6), random.pick(&[7, MS, S]));
    match random.between(0, 6) {
        0 | 1 => Gcra::new(rate.parse().unwrap(), permits).unwrap().into(),
        2 => SlidingLog::new(permits, period_ns).unwrap().with_guard(period_ns / 3).unwrap().into(),
        3 => CompactLog::new(permits, period_ns).unwrap().into(),
        4 => {
            let anchor = random.pick(&[Anchor::Epoch, Anchor::FirstCall]);
            FixedWindow::new(permits, period_ns, anchor).unwrap().into()
        }
        5 => Concurrency::new(permits).unwrap().into(),
        _ => CommitLog::new(permits, period_ns).unwrap().into(),
    }
}

/// Theory 6.8: one limit is thrown away whenever it may be, the other never, and they answer alike.
/// Whatever has been idle for long enough may be.
#[test]
fn forgetting_never_changes_a_decision() {
    let (mut forgotten, mut kept) = (0, 0);
    for seed in 0..4_000 {
        let mut random = XorShift::new(seed);
        let policy = policies(&mut random);
        let step = random.pick(&[3, MS, S / 3, 3 * S]);
        let mut now_ns = random.pick(&[0, 5 * S, u64::MAX - 200 * S]);
        let mut whole = Ledger::new(policy, now_ns);
        let mut parted = whole.clone();
        let told = format!("seed {seed}, {policy:?}");
        for _ in 0..60 {
            now_ns += random.between(0, step);
            if policy.is_as_fresh(parted.state(), now_ns) {
                parted = Ledger::new(policy, now_ns);
                forgotten += 1;
            } else {
                kept += 1;
            }
            let permits = random.between(1, 3);
            match random.between(0, 9) {
                0..=6 => {
                    let ideal = whole.try_acquire(now_ns, permits);
                    let seen = parted.try_acquire(now_ns, permits);
                    assert_eq!(ideal.map(told_of).ok(), seen.map(told_of).ok(), "{told}");
                }
                7 => {
                    // Operations in flight are known, so nobody releases what has been forgotten.
                    assert_eq!(
                        whole.release(now_ns, permits),
                        parted.release(now_ns, permits),
                        "{told}"
                    );
                }
                8 => {
                    assert_eq!(whole.peek(now_ns, permits), parted.peek(now_ns, permits), "{told}");
                }
                _ => assert_eq!(whole.remaining(now_ns), parted.remaining(now_ns), "{told}"),
            }
        }
    }
    assert!(forgotten > 40_000 && kept > 40_000, "{forgotten} {kept}");
}

/// What a try was told, whatever a refund of it would know.
fn told_of(verdict: rategate_core::verdict::Verdict) -> Option<(u64, u64)> {
    use rategate_core::verdict::Verdict;
    match verdict {
        Verdict::Granted(grant) => Some((grant.start_ns, grant.remaining)),
        Verdict::Denied(denial) => denial.retry_after_ns.map(|wait_ns| (u64::MAX, wait_ns.get())),
    }
}

/// A limit that has been left alone for as long as it remembers is forgotten then, and not a nanosecond
/// sooner.
#[test]
fn a_limit_is_forgotten_when_its_time_has_come() {
    let cases: [(AnyPolicy, u64); 5] = [
        (Gcra::new("3/s".parse().unwrap(), 2).unwrap().into(), 1_000 + 666_666_667),
        (SlidingLog::new(2, S).unwrap().with_guard(5).unwrap().into(), S + 1_000 + 5),
        (CompactLog::new(2, S).unwrap().into(), S + MS),
        (FixedWindow::new(2, S, Anchor::Epoch).unwrap().into(), S),
        (CommitLog::new(2, S).unwrap().into(), S + 2_000),
    ];
    for (policy, fresh_ns) in cases {
        let mut limit = Ledger::new(policy, 1_000);
        assert!(policy.is_as_fresh(limit.state(), 1_000), "{policy:?}");
        let _ = limit.try_acquire(1_000, 2).unwrap();
        limit.release(2_000, 2);
        assert!(!policy.is_as_fresh(limit.state(), fresh_ns - 1), "{policy:?}");
        assert!(policy.is_as_fresh(limit.state(), fresh_ns), "{policy:?}");
    }
}
