//! The circular-buffer throttler's own method, compared with the sliding log: a global wait that
//! maps the instant of a request to the instant of sending.

use std::time::Duration;

use fastrand::Rng;
use rategate_core::ledger::Ledger;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::verdict::Verdict;
use rategate_testkit::oracle::Grants;

const SENDS: usize = 51;
const INTERVAL_NS: i64 = 1_000_000_000;

/// The order in which the global wait is updated.
#[derive(Clone, Copy)]
enum Order {
    AsPrinted,
    Right,
}

/// Returns the instants of sending for calls at `requested_ns`.
fn global_wait(requested_ns: &[i64], order: Order) -> Vec<i64> {
    let (mut ring, mut wait_ns, mut previous_ns) = (vec![None; SENDS], 0_i64, 0_i64);
    let mut sent = Vec::new();
    for (call, &now_ns) in requested_ns.iter().enumerate() {
        let since_ns = now_ns - previous_ns;
        previous_ns = now_ns;
        if matches!(order, Order::Right) {
            wait_ns = (wait_ns - since_ns).max(0);
        }
        let slot: &mut Option<i64> = &mut ring[call % SENDS];
        if let Some(last_ns) = *slot {
            let delta_ns = INTERVAL_NS - (now_ns + wait_ns - last_ns);
            wait_ns += delta_ns.max(0);
        }
        if matches!(order, Order::AsPrinted) {
            wait_ns = (wait_ns - since_ns).max(0);
        }
        *slot = Some(now_ns + wait_ns);
        sent.push(now_ns + wait_ns);
    }
    sent
}

/// X1.1, X1.3, S1.9: updated first, the global wait is the recurrence `max(now, g[n - M] + I)` to
/// the nanosecond. As printed in the source, messages are sent too early.
#[test]
fn the_global_wait_in_the_right_order_is_the_sliding_log() {
    let mut random = Rng::with_seed(51);
    let mut now_ns = 0;
    let requested: Vec<i64> = (0..2_000)
        .map(|_| {
            now_ns += random.i64(0..10_000_000);
            now_ns
        })
        .collect();
    let permits = u64::try_from(SENDS).unwrap();
    let mut limit = Ledger::new(SlidingLog::new(permits, Duration::from_secs(1)), 0);
    let ours: Vec<i64> = requested
        .iter()
        .map(|&now_ns| match limit.reserve(u64::try_from(now_ns).unwrap(), 1, None) {
            Ok(Verdict::Granted(grant)) => i64::try_from(grant.start_ns).unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(global_wait(&requested, Order::Right), ours);

    let fullest = |sent: &[i64]| {
        let grants = sent.iter().map(|&at| (u64::try_from(at).unwrap(), 1));
        Grants(grants.collect()).fullest_window(1_000_000_000).0
    };
    assert_eq!(fullest(&ours), 51);
    assert!(fullest(&global_wait(&requested, Order::AsPrinted)) > 51);
}
