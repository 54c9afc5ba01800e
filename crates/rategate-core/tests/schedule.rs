//! Tests of the `schedule` contract: operation n is due when the integral of the rate reaches n.
//!
//! Each instant, and the nanosecond before it, is put into the integral.

use crate::common::{MS, S, granted, rate};
use fastrand::Rng;
use rategate_core::error::LimitError;
use rategate_core::ledger::Ledger;
use rategate_core::rate::Rate;
use rategate_core::ratio::Ratio;
use rategate_core::schedule::Schedule;
use rategate_core::shape::{Operations, Shape, ShapeError};
use rategate_core::two_timeline::{Mode, TwoTimeline};

/// A ramp between two whole numbers of permits per second.
///
/// Its integral up to `t` ns, in `1 / (2 * over * 10^9)` permits, is
/// `2 from over t + (to - from) t^2`, then linear.
#[derive(Clone, Copy, Debug)]
struct Ramp {
    from: i128,
    to: i128,
    over: i128,
}

impl Ramp {
    fn permit(&self) -> i128 {
        2 * self.over * 1_000_000_000
    }

    fn integral(&self, t: i128) -> i128 {
        let on = t.min(self.over);
        2 * self.from * self.over * on
            + (self.to - self.from) * on * on
            + 2 * self.to * self.over * (t - on)
    }

    fn schedule(&self) -> Schedule {
        let rate = |per_s: i128| match u64::try_from(per_s).unwrap() {
            0 => Rate::NEVER,
            per_s => Rate::per_second(per_s),
        };
        Schedule::ramp(rate(self.from), rate(self.to), u64::try_from(self.over).unwrap()).unwrap()
    }

    /// Returns a ramp of 10 s between two rates of up to 50/s, which are at least these.
    fn gentle(random: &mut Rng, from: u64, to: u64) -> Self {
        let mut per_s = |least: u64| i128::from(random.u64(least..=50));
        Self { from: per_s(from), to: per_s(to), over: i128::from(10 * S) }
    }

    /// Returns a ramp for the tests: up, down, level, from zero or to zero.
    fn random(random: &mut Rng) -> Self {
        let mut per_s =
            || i128::from(random.choice([0, 1, 3, 1_000, 999_983, 1_000_000_000]).unwrap());
        let (from, to) = (per_s(), per_s());
        let over = i128::from(random.choice([1, 1_000, MS, 17 * MS + 1, S, 60 * S]).unwrap());
        if from == 0 && to == 0 { Self { from: 7, to, over } } else { Self { from, to, over } }
    }
}

/// Returns the instants of a schedule that begins at `start_ns`, as its shape has them.
fn instants(schedule: Schedule, start_ns: u64) -> impl Iterator<Item = u64> {
    let operations = Operations::evenly(Shape::try_from(schedule).unwrap());
    (0..).map_while(move |n| start_ns.checked_add(operations.due(n)?))
}

/// Each instant of a ramp is the first nanosecond at which the integral has reached its
/// operation.
#[test]
fn ramp_instants_solve_the_integral() {
    for seed in 1..300 {
        let mut random = Rng::with_seed(seed);
        let ramp = Ramp::random(&mut random);
        let begin_ns = random.u64(0..=1_000);
        let mut last_ns = begin_ns;
        for (operation, due_ns) in instants(ramp.schedule(), begin_ns).take(400).enumerate() {
            let wanted = i128::try_from(operation).unwrap() * ramp.permit();
            let t = i128::from(due_ns - begin_ns);
            assert!(ramp.integral(t) >= wanted, "seed {seed}: {ramp:?}, {operation} at {t}: early");
            assert!(
                t == 0 || ramp.integral(t - 1) < wanted,
                "seed {seed}: {ramp:?}, {operation} at {t}: late"
            );
            assert!(due_ns >= last_ns);
            last_ns = due_ns;
        }
    }
}

/// Along a ramp as at a constant rate, the limiter starts each operation at its instant.
///
/// The number of operations due by a time is the integral rounded down, and the first.
#[test]
fn a_limiter_follows_the_ramp() {
    for seed in 1..150 {
        let mut random = Rng::with_seed(seed);
        let ramp = Ramp::random(&mut random);
        let policy = TwoTimeline::on_schedule(ramp.schedule(), Mode::Average, None);
        let mut limit = Ledger::new(policy, 0);
        for due_ns in instants(ramp.schedule(), 0).take(50) {
            assert_eq!(granted(limit.reserve(0, 1, None)).unwrap().start_ns, due_ns, "seed {seed}");
        }
        // A call of several starts when its last is due, also across the end of the ramp.
        let dues: Vec<u64> = instants(ramp.schedule(), 0).take(200).collect();
        for (last, &due_ns) in dues.iter().enumerate() {
            let permits = u64::try_from(last).unwrap() + 1;
            let grant = granted(Ledger::new(policy, 0).reserve(0, permits, None));
            assert_eq!(grant.unwrap().start_ns, due_ns, "seed {seed}: {ramp:?}, {permits}");
        }
        let mut limit = Ledger::new(policy, 0);
        let (mut now_ns, mut taken) = (0, 0_i128);
        for _ in 0..60 {
            now_ns += random.u64(0..=u64::try_from(ramp.over / 20).unwrap() + 2);
            let due = ramp.integral(now_ns.into()) / ramp.permit() + 1;
            let remaining = limit.remaining(now_ns);
            assert_eq!(i128::from(remaining), due - taken, "seed {seed}: {ramp:?} at {now_ns}");
            if remaining > 0 && random.u64(..2) == 0 {
                let permits = random.u64(1..=remaining);
                assert!(granted(limit.try_acquire(now_ns, permits)).is_some());
                taken += i128::from(permits);
            }
        }
    }
}

/// Forfeited time on a ramp: in strict mode a late operation starts when it is requested, and the
/// next one when the ramp has earned one more permit from there.
#[test]
fn a_late_operation_goes_on_from_where_the_ramp_then_is() {
    for seed in 1..150 {
        let mut random = Rng::with_seed(seed);
        let ramp = Ramp::gentle(&mut random, 0, 1);
        let policy = TwoTimeline::on_schedule(ramp.schedule(), Mode::Strict, None);
        let mut limit = Ledger::new(policy, 0);
        let (mut now_ns, mut brought) = (0, 0);
        for step in 0..40 {
            let due = |at_ns: u64| ramp.integral(at_ns.into()) >= brought;
            let due_ns = now_ns + limit.peek(now_ns, 1).unwrap().unwrap();
            assert!(due(due_ns), "seed {seed}, step {step}: {ramp:?}, early at {due_ns}");
            let late = due_ns > now_ns && due(due_ns - 1);
            assert!(!late, "seed {seed}, step {step}: {ramp:?}, late at {due_ns}");
            now_ns = due_ns + random.choice([0, 0, 1, MS, S / 3, S]).unwrap();
            assert_eq!(granted(limit.try_acquire(now_ns, 1)).unwrap().start_ns, now_ns);
            if now_ns > due_ns {
                brought = ramp.integral(now_ns.into());
            }
            brought += ramp.permit();
        }
    }
}

/// Burst mode on a ramp: behind schedule, each start is a share of the next slice after the one
/// before, and never before its own instant.
#[test]
fn burst_steps_shrink_and_grow_with_the_ramp() {
    for seed in 1..100 {
        let mut random = Rng::with_seed(seed);
        let ramp = Ramp::gentle(&mut random, 20, 20);
        let mode = Mode::Burst(Ratio::new(3, 2).unwrap());
        let policy = TwoTimeline::on_schedule(ramp.schedule(), mode, None);
        let mut limit = Ledger::new(policy, 0);
        let dues: Vec<u64> = instants(ramp.schedule(), 0).take(100).collect();
        let late_ns = random.u64(0..=S);
        let mut opens_ns = late_ns;
        for operation in 0..98 {
            let start_ns = granted(limit.reserve(late_ns, 1, None)).unwrap().start_ns;
            let what = format!("seed {seed}, {operation}: {ramp:?}");
            assert_eq!(start_ns, opens_ns.max(dues[operation]), "{what}");
            // From the nanosecond in which the next is due to that in which the one after it is.
            let wanted = i128::try_from(operation + 1).unwrap() * ramp.permit();
            let between = ramp.integral(dues[operation + 1].into()) > wanted;
            let slice_ns = dues[operation + 2] - dues[operation + 1] + u64::from(between);
            opens_ns = start_ns + (slice_ns * 2).div_ceil(3);
        }
    }
}

/// A change in the middle of a ramp keeps the ramp's earnings, to less than a permit at the worst
/// and in practice to the nanosecond.
#[test]
fn a_change_within_a_ramp_keeps_what_is_earned() {
    for seed in 1..300 {
        let mut random = Rng::with_seed(seed);
        let ramp = Ramp::gentle(&mut random, 0, 1);
        let mut limit =
            Ledger::new(TwoTimeline::on_schedule(ramp.schedule(), Mode::Average, None), 0);
        let changed_ns = random.u64(0..=15 * S);
        limit
            .reconfigure(changed_ns, TwoTimeline::new(Rate::per_second(3), Mode::Average, None))
            .unwrap();
        for after_ns in [0, 1, MS, S / 3, S, 7 * S] {
            // The integral so far, and three a second from there.
            let earned =
                ramp.integral(changed_ns.into()) + 2 * ramp.over * 3 * i128::from(after_ns);
            let due = |earned: i128| earned / ramp.permit() + 1;
            let remaining = i128::from(limit.remaining(changed_ns + after_ns));
            // A fraction that ends on this very nanosecond may be rounded up past it.
            let barely = 2 * ramp.over * 3;
            assert!(
                (due(earned - barely)..=due(earned)).contains(&remaining),
                "seed {seed}: {ramp:?}"
            );
        }
    }
}

/// The ends: no operations at never but the first, no shape at unlimited, and none past the
/// clock's end.
#[test]
fn instants_end_with_the_rate_or_the_clock() {
    assert_eq!(instants(Schedule::constant(Rate::NEVER), 5).collect::<Vec<_>>(), [5]);
    let to_nothing = Ramp { from: 3, to: 0, over: S.into() }.schedule();
    assert_eq!((instants(to_nothing, 5).count(), to_nothing.final_rate()), (2, Rate::NEVER));
    let at_once = Shape::try_from(Schedule::constant(Rate::UNLIMITED));
    assert_eq!(at_once, Err(ShapeError::Unlimited));
    let begin_ns = 18_446_744_073 * S;
    // Seven tenths of a second are left: at 3/s that is 0, 1/3 and 2/3.
    assert_eq!(instants(Schedule::constant(rate("3/s")), begin_ns).count(), 3);
    let ramp = Schedule::ramp(rate("3/s"), rate("3/s"), S / 2).unwrap();
    assert_eq!(instants(ramp, begin_ns).count(), 3);
}

#[test]
fn misuse_is_an_error() {
    let (one, fast) = (rate("1/s"), rate("10000000000/s"));
    assert_eq!(Schedule::ramp(one, one, 0), Err(LimitError::Ramp));
    assert_eq!(Schedule::ramp(Rate::NEVER, Rate::NEVER, S), Err(LimitError::Ramp));
    assert_eq!(Schedule::ramp(Rate::UNLIMITED, one, S), Err(LimitError::Ramp));
    assert_eq!(Schedule::ramp(one, Rate::UNLIMITED, S), Err(LimitError::Ramp));
    assert_eq!(Schedule::ramp(one, fast, u64::MAX), Err(LimitError::RampTooLong));
    let day_ns = 86_400 * S;
    assert!(Schedule::ramp(rate("1/s"), rate("1000000000/s"), day_ns).is_ok());
}
