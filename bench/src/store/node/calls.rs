//! Loads of one thread that calls.

use std::thread;
use std::time::Duration;

use rategate_bench::clock::now_ns;
use rategate_bench::engines::Made;

use super::{Count, Node};
use crate::job::{NodeReport, histogram, pairs};

/// The number of calls after one reading of the clock, which counts as the reading before each of
/// them. It is earlier than necessary by a microsecond or two.
const CALLS: u64 = 16;
/// The number of rounds of calls of which one has its first call timed.
const ROUNDS: u64 = 4;
/// The pause after a denied first try.
const PAUSE_AFTER_DENIAL: Duration = Duration::from_micros(200);

/// Calls for one key, as often as possible.
pub(super) fn hammer(mut node: Node) -> Made<NodeReport> {
    let key = node.limiter.key(node.key(0));
    let (mut count, mut took_ns) = (Count::default(), histogram()?);
    let from_ns = now_ns();
    let (mut last_ns, mut round) = (from_ns, 0_u64);
    while last_ns < node.until_ns {
        for call in 0..CALLS {
            let is_timed = call == 0 && round % ROUNDS == 0;
            let decision = match key.try_acquire(1).at_once() {
                Ok(decision) => {
                    if is_timed {
                        took_ns.saturating_record(now_ns().saturating_sub(last_ns));
                    }
                    decision
                }
                Err(later) => later.wait(),
            };
            match decision {
                Ok(decision) if decision.is_granted() => {
                    let after_ns = now_ns();
                    node.grants.write(last_ns, after_ns)?;
                    last_ns = after_ns;
                    count.granted += 1;
                }
                Ok(_) => {}
                Err(_) => count.faults += 1,
            }
        }
        count.decisions += CALLS;
        round += 1;
        last_ns = now_ns();
    }
    node.grants.keep()?;
    Ok(NodeReport { took_ns: pairs(&took_ns), ..count.report(last_ns.saturating_sub(from_ns)) })
}

/// Takes all permits there are, again and again. A grant is written down before anything else
/// happens, so that a killed caller has not acted on an unwritten grant.
pub(super) fn call_until_denied(mut node: Node) -> Made<NodeReport> {
    let (mut count, from_ns) = (Count::default(), now_ns());
    let mut before_ns = from_ns;
    while before_ns < node.until_ns {
        let decision = node.limiter.try_acquire(node.key(0), 1).wait();
        count.decisions += 1;
        count.faults += u64::from(decision.is_err());
        if decision.is_ok_and(|decision| decision.is_granted()) {
            node.grants.write(before_ns, now_ns())?;
            node.grants.keep()?;
            count.granted += 1;
        } else {
            thread::sleep(PAUSE_AFTER_DENIAL);
        }
        before_ns = now_ns();
    }
    Ok(count.report(before_ns.saturating_sub(from_ns)))
}
