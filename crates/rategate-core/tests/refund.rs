//! Tests of refunds, against the same limit without the refunded permits.
//!
//! Every history is repeated with the refunded permits left out, and the limit must be at least
//! as full as that.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::common::{MS, S, granted, pacer, part, rate, start};
use fastrand::Rng;
use rategate_core::adaptive::AdaptiveConcurrency;
use rategate_core::any_policy::{AnyPolicy, Member};
use rategate_core::backfill_pool::BackfillPool;
use rategate_core::commit_log::CommitLog;
use rategate_core::concurrency::Concurrency;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::policy::{Correction, Taken};
use rategate_core::ratio::Ratio;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::two_timeline::DampingShift;
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::verdict::Grant;
use rategate_testkit::oracle::Grants;

/// An event of a story.
///
/// `order` is its position among those of the same instant: calls before a change of the numbers,
/// the change, calls after it.
#[derive(Clone, Debug)]
struct Event {
    at_ns: u64,
    order: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Grant { requested_ns: u64, grant: Grant, left: u64 },
    Change(AnyPolicy),
    Refill(u64),
}

/// Returns the limit with the refunded permits left out of the story.
fn without(first: AnyPolicy, origin_ns: u64, story: &[Event], now_ns: u64) -> Member {
    let mut story = story.to_vec();
    story.sort_by_key(|event| (event.at_ns, event.order));
    let mut limit = Member::fresh(first, origin_ns);
    for Event { at_ns, what, .. } in story.into_iter().filter(|event| event.at_ns <= now_ns) {
        match what {
            What::Grant { requested_ns, left, .. } => {
                if let Some(permits) = NonZeroU64::new(left) {
                    limit.take(Taken { from_ns: requested_ns, start_ns: at_ns, permits });
                }
            }
            What::Change(new) => limit.change(new, at_ns),
            What::Refill(permits) => {
                limit.correct(Correction::Refill { now_ns: at_ns, permits });
            }
        }
    }
    limit
}

fn opens_ns(limit: &Member, from_ns: u64, permits: u64) -> u64 {
    let opening = limit.opening(from_ns, NonZeroU64::new(permits).unwrap());
    opening.map_or(u64::MAX, |opening| opening.opens_ns)
}

/// The permits refunded in all stories of a law, and those requested.
#[derive(Debug, Default)]
struct Sum {
    requested: u64,
    back: u64,
}

/// The parameters of a trial of one kind of limit.
struct Trial<'a> {
    /// Draws the numbers that it can have.
    draw: &'a dyn Fn(&mut Rng) -> AnyPolicy,
    /// The steps of the clock.
    steps_ns: &'a [u64],
    max: u64,
    changes: bool,
    by_hand: bool,
    /// The time by which an opening may be sooner than without the permits.
    tolerance_ns: u64,
}

impl Trial<'_> {
    fn holds(&self, seed: u64, sum: &mut Sum) -> Grants {
        let mut random = Rng::with_seed(seed);
        let origin_ns = random.u64(0..=1_000);
        let first = (self.draw)(&mut random);
        let mut limit = Ledger::new(first, origin_ns);
        let (mut now_ns, mut story, mut order) = (origin_ns, Vec::<Event>::new(), 0);
        for step in 0..80 {
            let what = format!("seed {seed}, step {step}, {first:?}");
            now_ns += random.choice(self.steps_ns).copied().unwrap();
            order += 1;
            let permits = random.u64(1..=self.max);
            match random.u64(1..=10) {
                1..=3 => {
                    if let Ok(answer) = limit.try_acquire(now_ns, permits)
                        && let Some(grant) = granted(Ok(answer))
                    {
                        let what = What::Grant { requested_ns: now_ns, grant, left: permits };
                        story.push(Event { at_ns: grant.start_ns, order, what });
                    }
                }
                4 | 5 => {
                    if let Ok(answer) = limit.reserve(now_ns, permits, Some(200))
                        && let Some(grant) = granted(Ok(answer))
                    {
                        let what = What::Grant { requested_ns: now_ns, grant, left: permits };
                        story.push(Event { at_ns: grant.start_ns, order, what });
                    }
                }
                6 if self.changes && random.u64(..3) == 0 => {
                    now_ns += 1;
                    let policy = (self.draw)(&mut random);
                    limit.reconfigure(now_ns, policy).unwrap();
                    story.push(Event { at_ns: now_ns, order, what: What::Change(policy) });
                }
                7 if self.by_hand => {
                    assert!(limit.refill(now_ns, permits));
                    story.push(Event { at_ns: now_ns, order, what: What::Refill(permits) });
                }
                _ => {
                    let picked = random.choice([1, 1, 2, 3, 5, 12]).unwrap();
                    let grants = story.iter_mut().rev().filter_map(|event| match &mut event.what {
                        What::Grant { grant, left, .. } => Some((grant, left)),
                        _ => None,
                    });
                    let recent = grants.take(usize::try_from(picked).unwrap()).last();
                    let Some((grant, left)) = recent else { continue };
                    if random.u64(..2) == 0 && limit.cancel(now_ns, grant.ticket) {
                        *left = 0;
                        continue;
                    }
                    let wanted = random.u64(0..=*left);
                    let back = limit.refund(now_ns, grant, wanted);
                    assert!(back <= wanted, "{what}");
                    assert!(grant.start_ns <= now_ns || back == 0, "{what}: a promise");
                    *left -= back;
                    sum.requested += wanted;
                    sum.back += back;
                    // A pool that fills itself does so at each call. With other steps another
                    // share of its backlog returns, so the story without the permits has the same
                    // steps.
                    let start_ns = grant.start_ns;
                    for at_ns in [start_ns, now_ns].into_iter().filter(|_| back > 0) {
                        story.push(Event { at_ns, order, what: What::Refill(0) });
                    }
                }
            }
            let ideal = without(first, origin_ns, &story, now_ns);
            // The clock advances when the limit is checked.
            limit.release(now_ns, 0);
            let real = limit.limits().only().unwrap().clone();
            for later_ns in [0, 1, random.u64(2..=60), random.u64(60..=3_000)] {
                for permits in 1..=self.max {
                    let at_ns = now_ns + later_ns;
                    let (opens, free) =
                        (opens_ns(&real, at_ns, permits), opens_ns(&ideal, at_ns, permits));
                    let late_enough = opens.saturating_add(self.tolerance_ns) >= free;
                    assert!(
                        late_enough,
                        "{what}: {permits} at {at_ns}: {opens} < {free}\n\
                         {real:?}\n{ideal:?}\n{story:#?}"
                    );
                }
            }
        }
        let mut effects = Grants::default();
        for Event { at_ns, what, .. } in story {
            if let What::Grant { left: 1.., .. } = what {
                let What::Grant { left, .. } = what else { unreachable!() };
                effects.add(at_ns, left);
            }
        }
        effects
    }
}

fn draw_gcra(random: &mut Rng) -> Gcra {
    let period = Duration::from_nanos(random.u64(1..=200));
    let rate = rategate_core::rate::Rate::new(random.u64(1..=12), period).unwrap();
    Gcra::new(rate, random.u64(1..=8)).unwrap()
}

fn draw_timeline(random: &mut Rng, mode: Mode) -> TwoTimeline {
    let period = Duration::from_nanos(random.u64(1..=200));
    let rate = rategate_core::rate::Rate::new(random.u64(1..=12), period).unwrap();
    let bound = random.choice([None, Some(0), Some(30), Some(500)]).unwrap();
    TwoTimeline::new(rate, mode, bound.map(Duration::from_nanos))
}

const STEPS: [u64; 8] = [0, 0, 1, 2, 5, 12, 40, 300];

/// Bucket: never fuller than without, and effects keep the ceiling.
#[test]
fn a_bucket_is_never_emptier_for_what_came_back() {
    let mut sum = Sum::default();
    for seed in 1..250 {
        let trial = Trial {
            draw: &|random| draw_gcra(random).into(),
            steps_ns: &STEPS,
            max: 5,
            changes: seed % 2 == 0,
            by_hand: false,
            tolerance_ns: 0,
        };
        trial.holds(seed, &mut sum);
    }
    assert!(sum.back * 10 > sum.requested, "{sum:?}");
}

#[test]
fn effects_of_a_bucket_keep_its_ceiling() {
    for seed in 1..120 {
        let policy = Gcra::new(rate("1/20ns"), 4).unwrap();
        let trial = Trial {
            draw: &|_| policy.into(),
            steps_ns: &STEPS,
            max: 4,
            changes: false,
            by_hand: false,
            tolerance_ns: 0,
        };
        let effects = trial.holds(seed, &mut Sum::default());
        effects.assert_ceiling(&format!("seed {seed}"), |window_ns| (window_ns + 60).div_ceil(20));
    }
}

/// Log: exactly as if the permits had never been taken; effects keep N in any window.
#[test]
fn a_log_drops_what_came_back() {
    let mut sum = Sum::default();
    for seed in 1..150 {
        let trial = Trial {
            draw: &|random| {
                let period_ns = random.u64(20..=300);
                let log = SlidingLog::new(random.u64(1..=6), Duration::from_nanos(period_ns));
                log.with_resolution(Duration::from_nanos(random.choice([1, 1, 7]).unwrap()))
                    .unwrap()
                    .into()
            },
            steps_ns: &STEPS,
            max: 3,
            changes: seed % 2 == 0,
            by_hand: false,
            tolerance_ns: 0,
        };
        trial.holds(seed, &mut sum);
    }
    assert!(sum.back * 10 > sum.requested, "{sum:?}");
    for seed in 1..200 {
        let policy = SlidingLog::new(5, Duration::from_nanos(100));
        let trial = Trial {
            draw: &|_| policy.into(),
            steps_ns: &STEPS,
            max: 3,
            changes: false,
            by_hand: false,
            tolerance_ns: 0,
        };
        let effects = trial.holds(seed, &mut Sum::default());
        assert!(effects.fullest_window(100).0 <= 5, "seed {seed}");
    }
}

#[test]
fn a_window_takes_back_what_is_its_own() {
    let mut sum = Sum::default();
    for seed in 1..150 {
        let trial = Trial {
            draw: &|random| {
                // The first call anchors a grid for good, also if it is refunded.
                let (permits, period_ns) = (random.u64(1..=6), random.u64(20..=300));
                FixedWindow::new(permits, Duration::from_nanos(period_ns), Anchor::Epoch).into()
            },
            steps_ns: &STEPS,
            max: 3,
            changes: seed % 2 == 0,
            by_hand: false,
            tolerance_ns: 0,
        };
        trial.holds(seed, &mut sum);
    }
    assert!(sum.back * 10 > sum.requested, "{sum:?}");
}

/// Two timelines, every mode: a refund makes a start sooner at most by the rounding.
///
/// A damped call forfeits whole nanoseconds, and in burst mode the gate's fraction is paid in
/// steps of two.
#[test]
fn a_schedule_takes_operations_back() {
    let modes = [
        (Mode::Average, 0),
        (Mode::Strict, 0),
        (Mode::Damped { shift: DampingShift::from_ratio(0.25).unwrap() }, 1),
        (Mode::Burst(Ratio::new(3, 2).unwrap()), 2),
    ];
    for (mode, tolerance_ns) in modes {
        let mut sum = Sum::default();
        for seed in 1..120 {
            let trial = Trial {
                draw: &|random| draw_timeline(random, mode).into(),
                steps_ns: &STEPS,
                max: 3,
                changes: seed % 2 == 0,
                by_hand: false,
                tolerance_ns,
            };
            trial.holds(seed, &mut sum);
        }
        assert!(sum.back > 0, "{mode:?}: {sum:?}");
    }
}

#[test]
fn a_pacer_takes_operations_back() {
    let mut sum = Sum::default();
    for seed in 1..150 {
        let trial = Trial {
            draw: &|random| {
                let period = Duration::from_nanos(random.u64(1..=200));
                let rate = rategate_core::rate::Rate::new(random.u64(1..=12), period).unwrap();
                let bound = random.choice([None, Some(0), Some(30), Some(500)]).unwrap();
                pacer(
                    rate,
                    Duration::from_nanos(random.u64(0..=40)),
                    bound.map(Duration::from_nanos),
                )
                .into()
            },
            steps_ns: &STEPS,
            max: 3,
            changes: seed % 2 == 0,
            by_hand: false,
            tolerance_ns: 0,
        };
        trial.holds(seed, &mut sum);
    }
    assert!(sum.back * 10 > sum.requested, "{sum:?}");
}

/// Pool: never more active than without; both pools together contain exactly what they would.
#[test]
fn a_pool_takes_all_back() {
    let mut sum = Sum::default();
    for seed in 1..120 {
        let by_hand = seed % 2 == 0;
        let trial = Trial {
            draw: &|random| {
                let rate = (!by_hand || random.u64(..2) == 0).then(|| draw_gcra(random).rate());
                let ratio = random.choice(["1", "1.25", "2"]).unwrap().parse().unwrap();
                BackfillPool::new(random.u64(2..=8), ratio, rate).unwrap().into()
            },
            steps_ns: &STEPS,
            max: 3,
            changes: false,
            by_hand,
            tolerance_ns: 0,
        };
        trial.holds(seed, &mut sum);
    }
    assert_eq!(sum.requested > 0, sum.back > 0);

    let pool = BackfillPool::new(4, "1".parse().unwrap(), None).unwrap();
    let mut limit = Ledger::new(pool, 0);
    limit.refill(0, 4);
    let three = granted(limit.try_acquire(1, 3)).unwrap();
    assert_eq!(limit.refund(2, &three, 1), 1);
    assert_eq!((pool.active(part(&limit)), pool.waiting(part(&limit))), (2, 0));
    limit.refill(3, 4);
    assert_eq!((pool.active(part(&limit)), pool.waiting(part(&limit))), (4, 2));
    assert_eq!(limit.refund(4, &three, 2), 2);
    assert_eq!((pool.active(part(&limit)), pool.waiting(part(&limit))), (4, 4));
}

#[test]
fn what_never_was_in_flight_is_released() {
    let limits: [AnyPolicy; 3] = [
        Concurrency::new(3).into(),
        CommitLog::try_new(3, Duration::from_nanos(100)).unwrap().into(),
        AdaptiveConcurrency::new(3, 3).into(),
    ];
    for policy in limits {
        let mut limit = Ledger::new(policy, 0);
        let grant = granted(limit.try_acquire(0, 3)).unwrap();
        assert_eq!(limit.refund(5, &grant, 2), 2, "{policy:?}");
        assert_eq!((limit.remaining(5), limit.credit(5, 9), limit.remaining(5)), (2, 1, 3));
    }
}

/// The newest grant can be refunded whole, however long ago it was: nothing has been lost
/// meanwhile.
#[test]
fn the_newest_comes_back_at_any_time() {
    let mut bucket = Ledger::new(Gcra::new(rate("1/s"), 1).unwrap(), 0);
    let grant = granted(bucket.try_acquire(10 * S, 1)).unwrap();
    assert_eq!(bucket.refund(10 * S + 300 * MS, &grant, 1), 1);
    let again = granted(bucket.try_acquire(10 * S + 300 * MS, 1)).expect("tried again at once");
    assert_eq!(bucket.refund(10 * S + 300 * MS, &grant, 1), 0, "it has come back");
    assert_eq!(bucket.refund(20 * S, &again, 1), 1);
    assert_eq!(start(bucket.try_acquire(20 * S, 1)), 20 * S);
    assert_eq!(bucket.remaining(20 * S), 0, "one bucket, not two");

    let strict = TwoTimeline::new(rate("1/s"), Mode::Strict, None);
    let mut limit = Ledger::new(strict, 0);
    let grant = granted(limit.try_acquire(3 * S, 1)).unwrap();
    assert_eq!(limit.refund(3 * S + 1, &grant, 1), 1);
    assert_eq!(start(limit.try_acquire(3 * S + 1, 1)), 3 * S + 1);
}

/// A bucket that would have been full since without the permit has lost nothing.
#[test]
fn what_time_has_made_up_for_does_not_come_back() {
    let mut limit = Ledger::new(Gcra::new(rate("1/s"), 3).unwrap(), 0);
    let first = granted(limit.try_acquire(0, 1)).unwrap();
    let second = granted(limit.try_acquire(S / 2, 1)).unwrap();
    assert_eq!(limit.refund(S / 2, &first, 1), 0, "half of it has been earned again, or lost");
    assert_eq!(limit.refund(S / 2, &second, 1), 1);
    let third = granted(limit.try_acquire(S / 2, 2)).unwrap();
    assert!(granted(limit.try_acquire(S, 1)).is_some());
    assert_eq!(limit.remaining(S), 0);
    assert_eq!(limit.refund(S, &third, 2), 2, "not full since");
    assert_eq!(limit.remaining(S), 2);
}

/// A start that is still to come is cancelled, not refunded.
#[test]
fn a_promise_is_not_refunded_before_its_start() {
    let mut limit = Ledger::new(SlidingLog::new(1, Duration::from_nanos(S)), 0);
    start(limit.try_acquire(0, 1));
    let promise = granted(limit.reserve(0, 1, None)).unwrap();
    assert_eq!(limit.refund(S - 1, &promise, 1), 0);
    assert_eq!(limit.refund(S, &promise, 1), 1);
    assert_eq!(start(limit.try_acquire(S, 1)), S);
}

/// A refund makes an opening before promises already given, which are kept.
#[test]
fn a_refund_opens_before_a_promise() {
    let mut limit = Ledger::new(SlidingLog::new(2, Duration::from_nanos(S)), 0);
    let both = granted(limit.try_acquire(0, 2)).unwrap();
    let promise = granted(limit.reserve(MS, 1, None)).unwrap();
    assert_eq!(promise.start_ns, S);
    assert!(granted(limit.try_acquire(2 * MS, 1)).is_none());
    assert_eq!(limit.refund(2 * MS, &both, 1), 1);
    assert_eq!(start(limit.try_acquire(3 * MS, 1)), 3 * MS);
    assert!(limit.cancel(4 * MS, promise.ticket), "the promise is kept");
}

/// Several limits: the minimum of all, and the same from each.
#[test]
fn several_limits_take_the_same_back() {
    let bucket = Gcra::new(rate("1/s"), 4).unwrap();
    let log = SlidingLog::new(10, Duration::from_nanos(100 * S));
    let mut limit = Ledger::new([AnyPolicy::from(bucket), log.into()], 0);
    let first = granted(limit.try_acquire(0, 2)).unwrap();
    let next = granted(limit.try_acquire(S, 2)).unwrap();
    assert_eq!(limit.refund(S, &first, 2), 1, "the bucket has made up for the other");
    assert_eq!(limit.remaining(S), 2);
    assert_eq!(limit.refund(S, &next, 5), 2);
    assert_eq!(limit.remaining(S), 4);
    assert_eq!(limit.remaining(90 * S), 4);
    // The log has dropped three: seven more fit in the hundred seconds from the first on, not
    // six.
    let taken =
        (0..20).filter(|second| granted(limit.try_acquire((20 + second) * S, 1)).is_some()).count();
    assert_eq!(taken, 9);
}

/// A promise behind a cancelled one finds the bucket fuller than its ticket recorded.
#[test]
fn a_cancelled_promise_counts_for_those_behind_it() {
    let mut limit = Ledger::new(Gcra::new(rate("1/s"), 2).unwrap(), 0);
    start(limit.try_acquire(0, 2));
    let first = granted(limit.reserve(0, 1, None)).unwrap();
    let second = granted(limit.reserve(0, 1, None)).unwrap();
    assert_eq!((first.start_ns, second.start_ns), (S, 2 * S));
    assert!(limit.cancel(0, first.ticket));
    assert_eq!(start(limit.try_acquire(2_500 * MS, 1)), 2_500 * MS);
    assert_eq!(
        limit.refund(2_500 * MS, &second, 1),
        0,
        "without it, full from the second second on"
    );
}

/// A queue withdraws the start of its next waiter before any refund.
///
/// A promise without any behind it vanishes as if it had never been made, however many there
/// were.
#[test]
fn a_promise_without_followers_spoils_nothing() {
    let bucket = Gcra::new(rate("1/s"), 3).unwrap();
    let log = SlidingLog::new(10, Duration::from_nanos(100 * S));
    let mut limit = Ledger::new([AnyPolicy::from(bucket), log.into()], 0);
    let grant = granted(limit.try_acquire(0, 3)).unwrap();
    for _ in 0..3 {
        let next = granted(limit.reserve(0, 2, None)).unwrap();
        let behind = granted(limit.reserve(0, 1, None)).unwrap();
        assert!(limit.cancel(0, behind.ticket) && limit.cancel(0, next.ticket));
        assert!(!limit.cancel(0, next.ticket), "once");
    }
    assert_eq!(limit.refund(S / 2, &grant, 2), 2);
    assert_eq!(limit.remaining(S / 2), 2);
}

/// To a schedule that forfeits time, an instant of zero means unknown: a ledger refunds nothing
/// that started at the clock's very first nanosecond.
#[test]
fn what_started_at_zero_may_be_lost() {
    let strict = TwoTimeline::new(rate("1/s"), Mode::Strict, None);
    let mut ledger = Ledger::new(strict, 0);
    let grant = granted(ledger.try_acquire(0, 1)).unwrap();
    assert_eq!(ledger.refund(0, &grant, 1), 0);
    let mut later = Ledger::new(strict, 1);
    let grant = granted(later.try_acquire(1, 1)).unwrap();
    assert_eq!(later.refund(1, &grant, 1), 1);
}
