//! A load by a schedule: each call is due at an instant, whatever became of earlier ones.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rategate::distributed::DecisionFuture;
use rategate_bench::clock::now_ns;
use rategate_bench::engines::Made;

use super::{Count, Node};
use crate::job::{NodeReport, histogram, pairs};

/// The sleep of the calling thread when nothing is due, which is also its lateness.
const LOOK_EVERY: Duration = Duration::from_micros(50);

/// Calls in one thread, and waits in another for the decisions in the order of the calls. A
/// call's time counts from when it was due.
pub(super) fn run(node: &Node, per_s: u64) -> Made<NodeReport> {
    let from_ns = now_ns();
    let (calls, answers) = mpsc::channel::<(u64, DecisionFuture)>();
    let waits = thread::spawn(move || {
        let mut took_ns = histogram().ok()?;
        let mut count = Count::default();
        for (due_ns, deciding) in answers {
            match deciding.wait() {
                Ok(decision) => count.granted += u64::from(decision.is_granted()),
                Err(_) => count.faults += 1,
            }
            took_ns.saturating_record(now_ns().saturating_sub(due_ns));
            count.decisions += 1;
        }
        Some((count, took_ns))
    });
    let due_at_ns = |number: u64| from_ns + number.saturating_mul(1_000_000_000) / per_s.max(1);
    let mut number = 0;
    loop {
        let now_ns = now_ns();
        if now_ns >= node.until_ns {
            break;
        }
        while due_at_ns(number) <= now_ns {
            calls.send((due_at_ns(number), node.limiter.try_acquire(node.key(number), 1)))?;
            number += 1;
        }
        thread::sleep(LOOK_EVERY);
    }
    drop(calls);
    let joined = waits.join().map_err(|_| "the thread that waits for decisions panicked")?;
    let (count, took_ns) = joined.ok_or("no histogram")?;
    let lasted_ns = now_ns().saturating_sub(from_ns);
    Ok(NodeReport { took_ns: pairs(&took_ns), ..count.report(lasted_ns) })
}
