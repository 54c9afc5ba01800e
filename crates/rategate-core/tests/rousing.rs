//! The head of the queue is roused before its start: once for each start, and no other waiter.

use std::time::Duration;

use rategate_core::ledger::Ledger;
use rategate_core::line::{Line, QueueBounds, Request, Rousing, Wakes};
use rategate_core::sliding_log::SlidingLog;

const S: u64 = 1_000_000_000;

/// The recorded wake-ups.
#[derive(Default)]
struct WakeLog {
    woken: Vec<u32>,
    roused: Vec<u32>,
}

impl Wakes<u32> for WakeLog {
    fn settled(&mut self, id: u32) {
        self.woken.push(id);
    }

    fn moved(&mut self, id: &u32) {
        self.woken.push(*id);
    }

    fn roused(&mut self, id: &u32) {
        self.roused.push(*id);
    }
}

/// The head is roused once for each start, `lead_ns` before, and left alone for a while after it.
#[test]
fn the_head_is_roused_once() {
    let limit = Ledger::new(SlidingLog::new(1, Duration::from_nanos(S)), 0);
    let (mut line, mut wakes) = (Line::new(limit, QueueBounds::default()), WakeLog::default());
    for id in 0..3 {
        let _ = line.join(0, Request::of(1), || id, &mut wakes).unwrap();
    }
    let rousing = Some(Rousing { lead_ns: 300, patience_ns: 70 });
    assert_eq!(line.next_ns(None), Some(S));
    assert_eq!(line.next_ns(rousing), Some(S - 300));
    assert!(!line.rouse(S - 1, &mut wakes), "it is not so far yet");
    assert!(line.rouse(S, &mut wakes));
    assert!(!line.rouse(S, &mut wakes), "once");
    assert_eq!(wakes.roused, [1]);
    assert_eq!(line.next_ns(rousing), Some(S + 70));
    line.serve(S + 70, &mut wakes);
    assert_eq!(wakes.woken, [1], "it is due, run or not; the other start is still right");
    // A change of the limit makes it another start.
    line.change(S + 71, &mut wakes, |_, _| ());
    assert!(line.rouse(u64::MAX, &mut wakes), "the next one");
    assert_eq!(wakes.roused, [1, 2]);
}
