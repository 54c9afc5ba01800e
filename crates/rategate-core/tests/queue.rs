//! Laws of the wait queue, against a queue that recomputes everything at each step.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::common::limits::{Kind, Scale, limit_of};
use crate::common::queue_oracle::Both;
use crate::common::queued::Queued;
use crate::common::{MS, S, granted, log, ns, pacer, rate};
use fastrand::Rng;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::commit_log::CommitLog;
use rategate_core::concurrency::Concurrency;
use rategate_core::debt::Debt;
use rategate_core::error::ExceedsCapacity;
use rategate_core::fair::ClassId;
use rategate_core::gcra::Gcra;
use rategate_core::holds::{Committed, HoldVerdict};
use rategate_core::ledger::Ledger;
use rategate_core::line::{LeaveOutcome, Outcome, QueueBounds, QueueRejection, WhenFull};
use rategate_core::slow_start::SlowStart;
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::verdict::{Refusal, Settled, Ticket, Verdict};
use rategate_testkit::oracle::Grants;

/// The kinds of limits, without those that only an act makes free.
const KINDS: [Kind; 10] = [
    Kind::Bucket,
    Kind::Bucket,
    Kind::AdaptiveRate,
    Kind::Log,
    Kind::Window,
    Kind::Average,
    Kind::Strict,
    Kind::SlowBucket,
    Kind::WideWarmUp,
    Kind::Pool,
];

/// Order, nothing lost, exact starts: all waiters start exactly when the oracle says, in the
/// order of joining.
///
/// Waiters join and leave, with deadlines or without, next to reservations kept and cancelled,
/// and the queue is served as late as possible.
#[test]
fn starts_are_those_of_a_queue_worked_out_anew() {
    let (mut waited, mut left, mut too_long, mut moved) = (0, 0, 0, 0);
    for seed in 0..5_000 {
        let mut random = Rng::with_seed(seed);
        let policy = limit_of(&KINDS, Scale::Any, &mut random);
        let mut now_ns = random.choice([0, 1, 5 * S, u64::MAX / 2]).unwrap();
        let mut both = Both::new(Ledger::new(policy, now_ns), &[]);
        let step = random.choice([3, MS, S / 3]).unwrap();
        let mut reserved: Vec<(Ticket, Ticket)> = Vec::new();
        let what = format!("seed {seed}, {policy:?}");
        for id in 0..60 {
            now_ns += random.u64(0..=step);
            both.pass_to(now_ns);
            let Both { queued, oracle, .. } = &mut both;
            let permits = random.u64(1..=2).min(queued.limit().clone().remaining(0).max(1));
            match random.u64(0..=11) {
                0..=4 => {
                    if queued.join(now_ns, id, permits, None).is_ok() {
                        oracle.join(now_ns, ClassId::FIRST, (id, permits));
                    }
                }
                5..=6 => {
                    let max_wait_ns = random.u64(0..=4 * step);
                    let expected =
                        oracle.with_all().limit.reserve(now_ns, permits, Some(max_wait_ns));
                    match queued.join(now_ns, id, permits, Some(max_wait_ns)) {
                        Ok(()) => {
                            assert!(matches!(expected, Ok(Verdict::Granted(_))), "{what}");
                            oracle.join(now_ns, ClassId::FIRST, (id, permits));
                        }
                        Err(QueueRejection::TooLong { retry_after_ns, wait_ns }) => {
                            let Ok(Verdict::Denied(denial)) = expected else { panic!("{what}") };
                            let expected_ns = denial.retry_after_ns.unwrap().get();
                            assert_eq!(retry_after_ns, expected_ns, "{what}");
                            assert!(wait_ns > max_wait_ns, "{what}");
                            too_long += 1;
                        }
                        Err(QueueRejection::Refused(Refusal::Exceeds(_))) => {
                            assert!(expected.is_err());
                        }
                        Err(other) => panic!("{what}: {other:?}"),
                    }
                }
                7..=8 => {
                    let id = u32::try_from(random.u64(0..=u64::from(id))).unwrap();
                    left += u32::from(both.leave(now_ns, id));
                }
                9 => {
                    // A decision behind all waiters; booking them all changes nothing.
                    let _ = queued.line.behind_all(now_ns, &mut queued.woken, |_, _| ());
                    let max_wait_ns = random.choice([None, Some(step)]).unwrap();
                    let seen = |mut limit: Ledger| {
                        let reserved = limit.reserve(now_ns, permits, max_wait_ns);
                        (reserved.map(start_of), limit.peek(now_ns, 1))
                    };
                    let theirs = seen(oracle.with_all().limit);
                    assert_eq!(seen(queued.limit().clone()), theirs, "{what}");
                }
                10 => {
                    if queued.line.is_empty()
                        && let Ok(Verdict::Granted(grant)) =
                            queued.line.limit_mut().reserve(now_ns, permits, None)
                    {
                        let theirs = granted(oracle.limit.reserve(now_ns, permits, None)).unwrap();
                        reserved.push((grant.ticket, theirs.ticket));
                    }
                }
                _ => {
                    if let Some((ticket, theirs)) = reserved.pop() {
                        let ours = queued.change(now_ns, |limit| limit.cancel(now_ns, ticket));
                        queued.gather();
                        assert_eq!(oracle.limit.cancel(now_ns, theirs), ours, "{what}");
                        oracle.pass_to(now_ns);
                    }
                }
            }
            // Threads request their sleep, and are woken if it was too long.
            let Both { queued, oracle, .. } = &mut both;
            for (waiter_id, _) in queued.waiter_ids.values() {
                queued.line.due_ns(waiter_id, &mut queued.woken);
            }
            queued.gather();
            assert_eq!(queued.waiter_ids.len(), oracle.waiters(), "{what}");
        }
        waited += both.queued.waiter_ids.len();
        both.end(now_ns + 1_000 * S, &what);
        let Both { queued, .. } = both;
        assert!(queued.in_order.is_sorted(), "{what}: {:?}", queued.in_order);
        moved += queued.woken.moved.len();
    }
    assert!(
        waited > 5_000 && left > 1_000 && too_long > 500 && moved > 1_000,
        "{waited} {left} {too_long} {moved}"
    );
}

/// Returns the start of a grant, or the wait of a denial.
fn start_of(verdict: Verdict) -> (bool, Option<u64>) {
    match verdict {
        Verdict::Granted(grant) => (true, Some(grant.start_ns)),
        Verdict::Denied(denial) => (false, denial.retry_after_ns.map(u64::from)),
    }
}

/// Permits that return by releases: a waiter for one is granted as it comes, in order, also where
/// a rate is a second limit. No smaller call passes first, whether it would wait or not.
#[test]
fn releases_serve_the_queue_in_order() {
    let oven = Concurrency::new(3);
    let rate = Gcra::new(rate("2/s"), 2).unwrap();
    let mut harness = Queued::new(Ledger::new([oven.into(), rate.into()], 0));
    harness.join(0, 0, 2, None).unwrap();
    harness.join(S, 1, 2, None).unwrap(); // the oven fits one more
    harness.join(S, 2, 1, None).unwrap();
    assert_eq!(harness.line.next_ns(None), None, "depends on a release");
    assert!(harness.line.behind_all(S, &mut harness.woken, |_, _| ()).is_none());
    harness.serve(5 * S);
    assert_eq!(harness.in_order, [0]);

    harness.change(5 * S, |limit| limit.release(5 * S, 1));
    harness.serve(5 * S);
    // The next one's start is a matter of time now, but for the oven, which is full again.
    assert_eq!((harness.in_order.as_slice(), harness.starts[&1]), ([0, 1].as_slice(), (5 * S, 2)));
    harness.change(5 * S, |limit| limit.release(5 * S, 2));
    harness.serve(5 * S);
    assert_eq!(harness.line.next_ns(None), Some(5 * S + S / 2), "two were taken at once");
    harness.serve(9 * S);
    assert_eq!(harness.starts[&2], (5 * S + S / 2, 1));
}

/// The end of a hold, by a commit or by time, serves those that wait, and no more at once than is
/// asked for. A try behind them is denied, and one for more than the limit is an error even so.
#[test]
fn ends_of_holds_serve_the_line() {
    let tried = |harness: &mut Queued, permits| {
        let Queued { line, woken, .. } = harness;
        line.decide(1, permits, woken, |limit, now_ns| limit.try_acquire(now_ns, permits))
    };
    for is_committed in [true, false] {
        let log = log(3, 100 * S);
        let mut harness = Queued::taking(Ledger::new(log, 0));
        let tried_to_hold = harness.change(0, |limit| limit.try_hold(0, 3, 10 * S));
        let Ok(HoldVerdict::Held(hold)) = tried_to_hold else { panic!("{tried_to_hold:?}") };
        (0..5).for_each(|id| harness.join(1, id, 1, None).unwrap());
        assert!(matches!(tried(&mut harness, 1), Ok(Some(Verdict::Denied(_)))));
        assert!(matches!(tried(&mut harness, 0), Ok(Some(Verdict::Granted(_)))));
        assert_eq!(tried(&mut harness, 4), Err(ExceedsCapacity::new(4, 3)));

        assert_eq!(harness.line.next_ns(None), Some(10 * S), "the end of the hold");
        for _ in 0..2 {
            harness.line.announce_end(&mut harness.woken);
            assert_eq!(harness.woken.moved, [0], "told once");
        }
        let Queued { line, woken, .. } = &mut harness;
        let back = if is_committed {
            let committed = line.commit(S, ClassId::FIRST, (hold, 1, Debt::FORGOTTEN), woken);
            assert_eq!(committed, Committed::InTime(Settled::Back { permits: 2 }));
            2
        } else {
            assert!(line.serve_some(10 * S, 2, woken));
            assert_eq!(woken.settled, [0, 1], "two at once");
            line.serve(10 * S, woken);
            3
        };
        assert_eq!(woken.settled, (0..back).collect::<Vec<_>>());
        line.announce_end(woken);
        assert_eq!(woken.moved, [0]);
    }
}

/// Where a waiter waits for what no clock foretells, nothing is decided behind it but nothing, and
/// what could never pass.
#[test]
fn behind_an_unknown_start_nothing_is_promised() {
    let mut harness = Queued::taking(Ledger::new(Concurrency::new(1), 0));
    harness.join(0, 0, 1, None).unwrap();
    harness.join(0, 1, 1, None).unwrap();
    let Queued { line, woken, .. } = &mut harness;
    for permits in 0..=2 {
        let tried = line.decide(1, permits, woken, |limit, at| limit.try_acquire(at, permits));
        for answer in [tried, line.reserve(1, permits, None, woken)] {
            match permits {
                0 => assert!(matches!(answer, Ok(Some(Verdict::Granted(_))))),
                1 => assert_eq!(answer, Ok(None)),
                _ => assert_eq!(answer, Err(ExceedsCapacity::new(2, 1))),
            }
        }
    }
}

/// A hold that ends may make a start later than a deadline: that wait ends at once, and the next
/// starts, however few are served at a time.
#[test]
fn an_ended_hold_ends_hopeless_waits() {
    let log = CommitLog::try_new(2, ns(10 * S)).unwrap();
    let mut harness = Queued::taking(Ledger::new(log, 0));
    let _ = harness.change(0, |limit| limit.try_hold(0, 1, 5 * S)).unwrap();
    harness.join(S, 0, 2, Some(8 * S)).unwrap();
    harness.join(2 * S, 1, 1, None).unwrap();
    while harness.line.serve_some(5 * S, 1, &mut harness.woken) {}
    assert_eq!(harness.woken.settled, [0, 1]);
    assert_eq!(harness.line.collect(&harness.waiter_ids[&0].0), Some(Outcome::DeadlinePassed));
    assert!(harness.line.is_due(&harness.waiter_ids[&1].0));
}

/// A change of a schedule leaves the starts that have come by then, whether served or not.
#[test]
fn a_change_keeps_what_has_come() {
    let mut harness = Queued::new(Ledger::new(Gcra::per_second(1), 0));
    (0..3).for_each(|id| harness.join(0, id, 1, None).unwrap());
    harness.change(S + 5, |limit| limit.reconfigure(S + 5, Gcra::per_hour(1)).unwrap());
    harness.gather();
    assert_eq!((harness.starts[&1], harness.starts.len()), ((S, 1), 2));
}

/// A deadline that could not be foretold ends the wait when it has come, and those behind move
/// up.
#[test]
fn deadlines_end_waits_for_an_act() {
    let limit = Ledger::new(Concurrency::new(2), 0);
    let mut harness = Queued::new(limit);
    harness.join(0, 0, 2, None).unwrap();
    harness.join(10, 1, 2, Some(90)).unwrap();
    harness.join(20, 2, 1, None).unwrap();
    harness.change(30, |limit| limit.release(30, 1));
    assert_eq!((harness.line.next_ns(None), harness.woken.settled.len()), (Some(100), 0));
    harness.line.serve(99, &mut harness.woken);
    assert!(harness.woken.settled.is_empty());
    harness.line.serve(100, &mut harness.woken);
    assert_eq!(harness.woken.settled, [1, 2]);
    assert_eq!(harness.line.collect(&harness.waiter_ids[&1].0), Some(Outcome::DeadlinePassed));
    let Some(Outcome::Granted(grant)) = harness.line.collect(&harness.waiter_ids[&2].0) else {
        panic!()
    };
    assert_eq!(grant.start_ns, 100, "until then a waiter was before it");
}

/// New numbers apply to waiters: they start at the new rate, in the old order.
///
/// Permits earned before count as earned. A waiter that cannot start in time, or never, learns it
/// at once.
#[test]
fn new_numbers_hold_for_those_who_wait() {
    let rate = |text: &str, burst| Gcra::new(text.parse().unwrap(), burst).unwrap();
    let mut harness = Queued::new(Ledger::new(rate("1/s", 1), 0));
    for id in 0..10 {
        harness.join(0, id, 1, (id == 7).then_some(8 * S)).unwrap();
    }
    harness.change(S / 2, |limit| limit.reconfigure(S / 2, rate("10/s", 1)).unwrap());
    harness.serve(S / 2);
    harness.serve(S);
    // Half a permit was earned, so the rest takes a twentieth of a second.
    let starts: Vec<_> = harness.starts.values().map(|&(start_ns, _)| start_ns / MS).collect();
    assert_eq!(starts, [0, 550, 650, 750, 850, 950]);

    harness.change(S, |limit| limit.reconfigure(S, rate("1/10s", 1)).unwrap());
    let _ = harness.line.behind_all(S, &mut harness.woken, |_, _| ());
    assert_eq!(harness.woken.settled, [7], "its deadline cannot be met any more");
    assert_eq!(harness.line.collect(&harness.waiter_ids[&7].0), Some(Outcome::DeadlinePassed));
    harness.woken.settled.clear();

    harness.change(2 * S, |limit| limit.reconfigure(2 * S, rate("never", 1)).unwrap());
    assert_eq!(harness.woken.settled, [6, 8, 9], "no endless wait");
    let outcome = harness.line.collect(&harness.waiter_ids[&6].0);
    assert_eq!(outcome, Some(Outcome::Refused(Refusal::TimeCannotHelp)));
}

/// A reduced window is kept by earlier waiters too: no window after the change contains more than
/// the new maximum.
#[test]
fn no_window_after_a_change_holds_more() {
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let log = |permits| log(permits, S);
        let mut harness = Queued::new(Ledger::new(log(random.u64(1..=9)), 0));
        let (mut now_ns, mut changed_ns, mut permits) = (0, 0, 9);
        for id in 0..100 {
            now_ns += random.u64(0..=S / 4);
            harness.serve(now_ns);
            harness.join(now_ns, id, 1, None).unwrap();
            if id == 50 {
                (permits, changed_ns) = (random.u64(1..=9), now_ns);
                harness.change(now_ns, |limit| limit.reconfigure(now_ns, log(permits)).unwrap());
                harness.serve(now_ns);
            }
        }
        harness.serve(now_ns + 200 * S);
        let after = harness.starts.values().filter(|start| start.0 >= changed_ns);
        assert!(Grants(after.copied().collect()).fullest_window(S).0 <= permits, "seed {seed}");
        assert_eq!(harness.starts.len(), 100);
        assert!(harness.in_order.is_sorted());
    }
}

/// After a stall, those who wait for a schedule with a bound on what is caught up on start no
/// closer than new callers would: by the instants at which they are served, no window has more. A
/// stall within the bound, or 10 ms more, costs none of the rate. A caller that joins before the
/// queue is served, and works out its own start, changes nothing.
#[test]
fn waiters_catch_up_on_no_more_than_new_callers() {
    let catch_up = Some(Duration::from_millis(50));
    let rate = || "100/s".parse().unwrap();
    let average = TwoTimeline::new(rate(), Mode::Average, catch_up);
    let limits: [AnyPolicy; 3] = [
        average.into(),
        pacer(rate(), Duration::ZERO, catch_up).into(),
        SlowStart::new(average, Duration::from_millis(200)).unwrap().into(),
    ];
    for (limit, joins_first) in limits.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        let mut ends = Vec::new();
        for stall_ns in [0, 30 * MS, 59 * MS, 90 * MS, 1_500 * MS] {
            let mut harness = Queued::taking(Ledger::new(limit, 0));
            let mut starts: Vec<(u64, u64)> = Vec::new();
            let mut serve = |harness: &mut Queued, now_ns| {
                harness.serve(now_ns);
                starts.resize(harness.in_order.len(), (now_ns, 1));
            };
            for id in 0..200 {
                harness.join(0, id, 1, None).unwrap();
            }
            for tick in 0..100 {
                serve(&mut harness, tick * MS);
            }
            // Nothing is served meanwhile.
            if joins_first {
                harness.join(100 * MS + stall_ns, 200, 1, None).unwrap();
                let Queued { line, woken, waiter_ids, .. } = &mut harness;
                line.due_ns(&waiter_ids[&200].0, woken);
            }
            for tick in 0..4_000 {
                serve(&mut harness, 100 * MS + stall_ns + tick * MS);
            }
            assert_eq!(starts.len(), 200 + usize::from(joins_first), "{limit:?}: all start");
            ends.push(starts[199].0);
            let fullest = Grants(starts).fullest_window(10 * MS).0;
            let most = if stall_ns < 60 * MS { 7 } else { 6 };
            assert!(fullest <= most, "{limit:?}: {fullest} in 10 ms after {stall_ns} ns");
        }
        let [none, short, within, long, longest] = ends[..] else { unreachable!() };
        assert!(none == short && none == within && none < long && long < longest, "{ends:?}");
    }
}

/// A full queue refuses a new caller or evicts its newest waiter, by number and by permits.
///
/// It never does so for a caller that could start at once.
#[test]
fn a_full_queue_refuses_or_evicts() {
    let never_full = QueueBounds::new(0);
    assert_eq!(never_full.waiters(), 1);
    let limit = || Ledger::new(log(5, S), 0);
    let mut harness = Queued::new(limit());
    harness.line.set_bounds(QueueBounds::new(2).with_permits(6));
    harness.join(0, 0, 5, None).unwrap();
    harness.join(0, 1, 3, None).unwrap();
    assert_eq!(harness.join(0, 2, 4, None), Err(QueueRejection::Full), "seven permits");
    harness.join(0, 3, 3, None).unwrap();
    assert_eq!(harness.join(0, 4, 0, None), Ok(()), "zero permits wait for no waiter");
    assert_eq!(harness.join(0, 5, 1, None), Err(QueueRejection::Full), "three waiters");
    assert!(harness.leave(0, 1));
    harness.join(0, 6, 1, None).unwrap();
    harness.serve(3 * S);
    assert_eq!(harness.in_order, [0, 4, 3, 6]);
    harness.join(3 * S, 7, 1, None).unwrap();
    assert_eq!(harness.in_order.last(), Some(&7), "at once");

    let mut harness = Queued::new(limit());
    let evicting = QueueBounds::new(3).with_permits(6).when_full(WhenFull::EvictNewest);
    harness.line.set_bounds(evicting);
    harness.join(0, 0, 5, None).unwrap();
    for id in 1..=3 {
        harness.join(0, id, 1, None).unwrap();
    }
    assert_eq!(
        harness.join(0, 4, 7, None),
        Err(QueueRejection::Refused(Refusal::exceeds(NonZeroU64::new(7).unwrap(), 5)))
    );
    harness.join(0, 5, 5, Some(2 * S)).unwrap();
    assert_eq!(harness.woken.settled, [3, 2], "the newest first, as many as need be");
    for id in harness.woken.settled.drain(..) {
        let (waiter_id, _) = harness.waiter_ids.remove(&id).unwrap();
        assert_eq!(harness.line.collect(&waiter_id), Some(Outcome::Evicted));
    }
    harness.serve(5 * S);
    assert_eq!(harness.in_order, [0, 1, 5]);
    assert_eq!(harness.starts[&5], (2 * S, 5));
}

/// A long queue leaves no trace behind: started requests are not kept.
#[test]
fn what_has_started_is_dropped() {
    let mut harness = Queued::new(Ledger::new(Gcra::new(rate("1000/s"), 1).unwrap(), 0));
    for id in 0..1_000 {
        harness.join(0, id, 1, None).unwrap();
    }
    while harness.line.serve_some(2 * S, 64, &mut harness.woken) {
        assert!(harness.limit().promised() <= 2);
    }
    harness.gather();
    assert_eq!((harness.starts.len(), harness.starts[&999].0), (1_000, 999 * MS));
}

/// Closing ends all waits, and their booked permits are free again.
#[test]
fn closing_ends_all_waits() {
    let mut harness = Queued::new(Ledger::new(log(1, S), 0));
    for id in 0..5 {
        harness.join(0, id, 1, Some(9 * S)).unwrap();
    }
    harness.line.close(10, &mut harness.woken);
    assert_eq!(harness.woken.settled, [1, 2, 3, 4]);
    assert_eq!((harness.line.next_ns(None), harness.limit().promised()), (None, 0));
    let left = harness.line.leave(10, &harness.waiter_ids[&1].0, &mut harness.woken);
    assert_eq!(left, Some(LeaveOutcome::Settled(Outcome::Closed)));
    let again = harness.line.leave(10, &harness.waiter_ids[&1].0, &mut harness.woken);
    assert_eq!(again, None, "only once");
}

/// Leaving costs the same from any position, for any number of waiters.
#[test]
fn leaving_costs_the_same_from_any_position() {
    let mut harness = Queued::new(Ledger::new(Gcra::new(rate("1/s"), 1).unwrap(), 0));
    let max = 200_000;
    for id in 0..=max {
        harness.join(0, id, 1, (id % 1_000 == 7).then_some(u64::MAX)).unwrap();
    }
    let mut random = Rng::with_seed(1);
    let mut ids: Vec<u32> = (1..max).collect();
    for last in (1..ids.len()).rev() {
        let other = random.u64(0..=u64::try_from(last).unwrap());
        ids.swap(last, usize::try_from(other).unwrap());
    }
    for id in ids {
        assert!(harness.leave(1, id));
    }
    harness.serve(S);
    assert_eq!((harness.in_order.as_slice(), harness.limit().promised()), ([0, max].as_slice(), 1));
}
