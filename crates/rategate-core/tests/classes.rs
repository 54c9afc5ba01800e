//! Laws of a queue with several classes, against an oracle that recomputes everything at each
//! step.

use crate::common::queue_oracle::{Both, n};
use crate::common::queued::Queued;
use crate::common::{MS, S, bucket, log};
use fastrand::Rng;
use rategate_core::concurrency::Concurrency;
use rategate_core::debt::Debt;
use rategate_core::fair::{ClassId, MAX_CLASSES, TooManyClasses};
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::line::{Outcome, QueueBounds, QueueRejection, Request, WhenFull};
use rategate_core::two_timeline::{Mode, TwoTimeline};

/// S4.17: all waiters start exactly when the oracle says, and in its order.
///
/// Waiters join, leave, request their starts and give up at deadlines that cannot be met.
#[test]
fn starts_are_those_of_class_queues_worked_out_anew() {
    let (mut waited, mut left, mut late, mut in_time) = (0, 0, 0, 0);
    for seed in 0..400 {
        let mut random = Rng::with_seed(seed);
        let rate = random.choice(["1/s", "3/s", "1000/s", "30000001/s"]).unwrap().parse().unwrap();
        match random.u64(0..=2) {
            0 => story(&mut random, Ledger::new(Gcra::new(rate, 3).unwrap(), 0)),
            1 => story(&mut random, Ledger::new(log(4, S), 0)),
            _ => story(&mut random, Ledger::new(TwoTimeline::new(rate, Mode::Average, None), 0)),
        }
        .iter()
        .zip([&mut waited, &mut left, &mut late, &mut in_time])
        .for_each(|(seen, sum)| *sum += seen);
    }
    let seen = [waited, left, late, in_time];
    assert!(seen.iter().all(|&times| times > 400), "{seen:?}");
}

fn story(random: &mut Rng, limit: Ledger) -> [usize; 4] {
    let weights: Vec<u64> = (0..random.u64(1..=3)).map(|_| random.u64(1..=4)).collect();
    let mut both = Both::new(limit, &weights);
    let (mut now_ns, step) = (0, random.choice([3, MS, S / 3]).unwrap());
    let [mut waited, mut left, mut late, mut in_time] = [0; 4];
    for id in 0..60 {
        now_ns += random.u64(0..=step);
        both.pass_to(now_ns);
        let class = random.choice(&both.classes).copied().unwrap();
        let Both { queued, oracle, .. } = &mut both;
        let permits = random.u64(1..=3);
        let request = Request::of(permits).in_class(class);
        match random.u64(0..=9) {
            0..=5 => {
                queued.request(now_ns, id, request).unwrap();
                oracle.join(now_ns, class, (id, permits));
            }
            6 => {
                let max_wait_ns = random.u64(0..=4 * step);
                let rounds = oracle.rounds.clone();
                oracle.join(now_ns, class, (id, permits));
                let wait_ns = oracle.start_of(id) - now_ns;
                match queued.request(now_ns, id, request.within(Some(max_wait_ns))) {
                    Ok(()) => {
                        assert!(wait_ns <= max_wait_ns);
                        // The oracle knows no deadlines, which may come before a class's turn
                        // does.
                        if queued.leave(now_ns, id) {
                            oracle.leave(now_ns, id);
                            oracle.pass_to(now_ns);
                        }
                        in_time += 1;
                    }
                    Err(QueueRejection::TooLong { wait_ns: reported_ns, retry_after_ns }) => {
                        assert_eq!(reported_ns, wait_ns);
                        assert!(wait_ns > max_wait_ns && retry_after_ns > 0);
                        oracle.leave(now_ns, id);
                        oracle.rounds = rounds;
                        late += 1;
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
            7 => {
                let id = u32::try_from(random.u64(0..=u64::from(id))).unwrap();
                left += usize::from(both.leave(now_ns, id));
            }
            8 => {
                // Booking ahead changes nothing.
                let _ = queued.line.behind_all(now_ns, &mut queued.woken, |_, _| ());
                let Queued { line, woken, waiter_ids, .. } = queued;
                for (&id, (waiter_id, _)) in &*waiter_ids {
                    let due_ns = line.due_ns(waiter_id, woken);
                    assert_eq!(due_ns, Some(oracle.start_of(id)));
                }
            }
            _ => {
                let (charged, actual) = (random.u64(0..=9), random.u64(0..=9));
                let waits = !oracle.waiting[class.index()].is_empty();
                if random.u64(..2) == 0 {
                    let _ = queued.line.behind_all(now_ns, &mut queued.woken, |_, _| ());
                }
                queued.line.settle(now_ns, class, (charged, actual), &mut queued.woken);
                queued.gather();
                if actual > charged || waits {
                    oracle.rounds.settle(class, charged, actual);
                }
                // From now on another class may be next.
                if oracle.next().is_some() {
                    oracle.limit.pass_to(now_ns);
                }
                oracle.pass_to(now_ns);
            }
        }
        assert_eq!(both.queued.waiter_ids.len(), both.oracle.waiters());
    }
    waited += both.queued.waiter_ids.len();
    both.end(now_ns + 1_000 * S, "");
    [waited, left, late, in_time]
}

/// S4.17: a crawler under 100 kB/s shares its bytes evenly between a slow and a fast class.
///
/// Pages of the slow class are large, those of the fast one small, and their sizes are unknown
/// before they arrive. Both classes have half of the bytes at all times, to within a weight and
/// the largest page; together all of the rate.
#[test]
fn a_slow_and_a_fast_class_share_the_bytes() {
    let kilobyte = 1_000;
    let rate = bucket("100000/s", kilobyte);
    let mut crawl = Queued::new(Ledger::new(rate, 0));
    let slow = crawl.line.add_class(0, n(kilobyte), &mut crawl.woken).unwrap();
    let fast = crawl.line.add_class(0, n(kilobyte), &mut crawl.woken).unwrap();
    let mut random = Rng::with_seed(7);
    let (mut bytes, mut now_ns, mut next_id) = ([0_u64; 2], 0, 0);
    let mut pages: Vec<(u32, ClassId)> = Vec::new();
    while now_ns < 600 * S {
        // Four pages of each class are wanted at any time, each estimated at a kilobyte.
        for class in [slow, fast] {
            while pages.iter().filter(|page| page.1 == class).count() < 4 {
                crawl.request(now_ns, next_id, Request::of(kilobyte).in_class(class)).unwrap();
                pages.push((next_id, class));
                next_id += 1;
            }
        }
        now_ns = crawl.line.next_ns(None).unwrap();
        crawl.serve(now_ns);
        for id in std::mem::take(&mut crawl.in_order) {
            let (_, class) = pages.remove(pages.iter().position(|page| page.0 == id).unwrap());
            let kilobytes = if class == slow { (40, 60) } else { (1, 4) };
            let size = random.u64(kilobytes.0..=kilobytes.1) * kilobyte;
            bytes[usize::from(class == fast)] += size;
            crawl.change(now_ns, |limit| {
                limit.charge(now_ns, size - kilobyte.min(size), Debt::CARRIED).unwrap()
            });
            crawl.line.settle(now_ns, class, (kilobyte, size), &mut crawl.woken);
            crawl.gather();
        }
        let apart = bytes[0].abs_diff(bytes[1]);
        assert!(apart <= 2 * 60 * kilobyte + 2 * kilobyte, "{bytes:?} at {now_ns}");
    }
    let all = bytes[0] + bytes[1];
    assert!(all.abs_diff(600 * 100 * kilobyte) <= 200 * kilobyte, "{bytes:?}");
}

/// A class that floods fills its own queue, and evicts its own newest waiters.
#[test]
fn a_flood_fills_its_own_queue() {
    for (when_full, second_floods) in [
        (WhenFull::Refuse, false),
        (WhenFull::Refuse, true),
        (WhenFull::EvictNewest, false),
        (WhenFull::EvictNewest, true),
    ] {
        let mut harness = Queued::new(Ledger::new(bucket("1/s", 1), 0));
        let second = harness.line.add_class(0, n(1), &mut harness.woken).unwrap();
        let [flood, quiet] =
            if second_floods { [second, ClassId::FIRST] } else { [ClassId::FIRST, second] };
        harness.line.set_bounds(QueueBounds::new(3).when_full(when_full));
        let results: Vec<_> =
            (0..6).map(|id| harness.request(0, id, Request::of(1).in_class(flood))).collect();
        for id in 6..9 {
            harness.request(0, id, Request::of(1).in_class(quiet)).unwrap();
        }
        let evicted = match when_full {
            WhenFull::Refuse => vec![],
            WhenFull::EvictNewest => vec![3, 4],
        };
        assert_eq!(harness.woken.settled, evicted);
        assert_eq!(results.iter().filter(|result| result.is_err()).count(), 2 - evicted.len());
        for id in harness.woken.settled.drain(..) {
            let (waiter_id, _) = harness.waiter_ids.remove(&id).unwrap();
            assert_eq!(harness.line.collect(&waiter_id), Some(Outcome::Evicted));
        }
        harness.serve(9 * S);
        let last = if evicted.is_empty() { 3 } else { 5 };
        // In order: the waiter that was first, then one of each class.
        assert_eq!(harness.in_order, [0, 1, 6, 2, 7, last, 8]);
    }
}

/// A waiter for a release is not overtaken, whatever class other callers join.
#[test]
fn the_next_waiter_stays_next() {
    let mut harness = Queued::new(Ledger::new(Concurrency::new(3), 0));
    let other = harness.line.add_class(0, n(9), &mut harness.woken).unwrap();
    harness.join(0, 0, 3, None).unwrap();
    harness.join(1, 1, 2, None).unwrap();
    harness.request(2, 2, Request::of(1).in_class(other)).unwrap();
    for now_ns in [3, 4, 5] {
        harness.change(now_ns, |limit| limit.release(now_ns, 1));
        harness.serve(now_ns);
    }
    assert_eq!(harness.in_order, [0, 1, 2]);
    assert_eq!((harness.starts[&1].0, harness.starts[&2].0), (4, 5));
}

/// A start that was in time may become late once others join; the wait ends with the deadline.
#[test]
fn others_can_make_a_deadline_pass() {
    let mut harness = Queued::new(Ledger::new(bucket("1/s", 1), 0));
    let heavy = harness.line.add_class(0, n(9), &mut harness.woken).unwrap();
    harness.join(0, 0, 1, None).unwrap();
    harness.join(0, 1, 1, None).unwrap();
    harness.join(0, 2, 1, Some(2 * S)).unwrap();
    for id in 3..9 {
        harness.request(0, id, Request::of(1).in_class(heavy)).unwrap();
    }
    // No forecast ends it sooner, since the waiters in the way may leave.
    let hurried = Request::of(1).within(Some(S)).in_class(heavy);
    assert!(matches!(
        harness.request(0, 9, hurried),
        Err(QueueRejection::TooLong { wait_ns, .. }) if wait_ns == 8 * S
    ));
    assert!(harness.woken.settled.is_empty());
    harness.line.serve(2 * S, &mut harness.woken);
    assert_eq!(harness.woken.settled, [1, 3, 2]);
    assert_eq!(harness.line.collect(&harness.waiter_ids[&2].0), Some(Outcome::DeadlinePassed));
}

/// The number of classes is bounded; a class of another queue has no queue here.
#[test]
fn classes_are_bounded() {
    let mut harness = Queued::new(Ledger::new(log(1, S), 0));
    let last = (1..MAX_CLASSES)
        .map(|_| harness.line.add_class(0, n(1), &mut harness.woken).unwrap())
        .last()
        .unwrap();
    assert_eq!(harness.line.add_class(0, n(1), &mut harness.woken), Err(TooManyClasses));
    harness.request(0, 0, Request::of(1).in_class(last)).unwrap();
    harness.request(0, 1, Request::of(1).in_class(last)).unwrap();
    assert_eq!(harness.line.next_ns(None), Some(S));

    let mut other = Queued::new(Ledger::new(log(1, S), 0));
    other.join(0, 0, 1, None).unwrap();
    let unknown_class = Request::of(1).in_class(last);
    assert_eq!(other.request(0, 1, unknown_class), Err(QueueRejection::Full));
}
