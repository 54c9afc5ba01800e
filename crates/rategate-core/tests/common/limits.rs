//! One of each policy and each mode, with random numbers.

use std::num::NonZeroU64;

use super::{MS, S, log, ns, pacer, per, rate, timeline, window, window_of_first_call};
use fastrand::Rng;
use rategate_core::adaptive::AdaptiveRate;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::backfill_pool::BackfillPool;
use rategate_core::commit_log::CommitLog;
use rategate_core::concurrency::Concurrency;
use rategate_core::gcra::Gcra;
use rategate_core::rate::Rate;
use rategate_core::ratio::Ratio;
use rategate_core::schedule::Schedule;
use rategate_core::share::Share;
use rategate_core::slow_start::SlowStart;
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::warm_up::WarmUp;

/// A policy in one of its modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bucket,
    /// A bucket at one of the two ends of the rate: nothing passes, or all does.
    BucketAtAnEnd,
    AdaptiveRate,
    Log,
    /// A log with a guard, on a grid.
    GridLog,
    CompactLog,
    Window,
    WindowOfFirstCall,
    Batches,
    BoundedBatches,
    /// Batches at one of the two ends of the rate.
    BatchesAtAnEnd,
    Average,
    AverageAtAnEnd,
    BoundedAverage,
    Strict,
    Damped,
    BoundedDamped,
    Burst,
    AverageRamp,
    StrictRamp,
    WarmUp,
    /// A warm-up that takes requests for several permits.
    WideWarmUp,
    WarmUpAtAnEnd,
    Pool,
    PoolWithoutBurst,
    PoolByHand,
    SlowBucket,
    SlowLog,
    SlowWindow,
    SlowBatches,
    SlowDamped,
    SlowBurst,
    Concurrency,
    CommitLog,
}

/// The kinds whose permits come with time.
pub(crate) const TIMED: [Kind; 26] = [
    Kind::Bucket,
    Kind::AdaptiveRate,
    Kind::Log,
    Kind::GridLog,
    Kind::Window,
    Kind::WindowOfFirstCall,
    Kind::Batches,
    Kind::BoundedBatches,
    Kind::Average,
    Kind::BoundedAverage,
    Kind::Strict,
    Kind::Damped,
    Kind::BoundedDamped,
    Kind::Burst,
    Kind::AverageRamp,
    Kind::StrictRamp,
    Kind::WarmUp,
    Kind::WideWarmUp,
    Kind::Pool,
    Kind::PoolWithoutBurst,
    Kind::SlowBucket,
    Kind::SlowLog,
    Kind::SlowWindow,
    Kind::SlowBatches,
    Kind::SlowDamped,
    Kind::SlowBurst,
];

/// The size of a limit's numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scale {
    /// Up to some tens of a unit of nanoseconds.
    Of(u64),
    /// Rates from one a second to thousands of millions, and periods from nanoseconds to a second.
    Any,
}

/// Returns a limit of a kind.
pub(crate) fn limit(kind: Kind, scale: Scale, random: &mut Rng) -> AnyPolicy {
    let permits = random.u64(1..=6);
    let (unit_ns, period_ns, warm_ns, slow_ns, pace) = match scale {
        Scale::Of(unit_ns) => {
            let mut units = |most: u64| random.u64(1..=most) * unit_ns;
            let (period_ns, warm_ns, pace_ns) = (units(60), units(500), units(60));
            let slow_ns = random.choice([1, 30, 200, 1_000]).unwrap() * unit_ns;
            (unit_ns, period_ns, warm_ns, slow_ns, per(random.u64(1..=9), pace_ns))
        }
        Scale::Any => {
            let paces = ["1/s", "3/s", "7/10s", "1000/s", "30000001/s", "4000000000/s"];
            let period_ns = random.choice([7, MS, S]).unwrap();
            (1, period_ns, period_ns, period_ns, rate(random.choice(paces).unwrap()))
        }
    };
    let bound_ns = Some(random.u64(0..=100) * unit_ns);
    let min_sleep = ns(random.u64(0..=50) * unit_ns);
    let ratio = Ratio::new(random.u64(4..=9), 4).unwrap();
    let damped = Mode::from_compensation(0.25).unwrap();
    let bucket = |pace| AnyPolicy::from(Gcra::new(pace, permits).unwrap());
    let warm_up = |pace| WarmUp::new(pace, ns(warm_ns)).unwrap();
    let end = random.choice([Rate::NEVER, Rate::UNLIMITED]).unwrap();
    let slower = pace.part(1, NonZeroU64::new(random.u64(2..=9)).unwrap());
    let share = Share::percent(random.u8(1..=100));
    let slow = |policy: AnyPolicy| {
        AnyPolicy::from(SlowStart::new(policy, ns(slow_ns)).unwrap().with_first_share(share))
    };
    let on_ramp = |mode| {
        let ramp = Schedule::ramp(slower, pace, warm_ns).unwrap();
        TwoTimeline::on_schedule(ramp, mode, None)
    };
    match kind {
        Kind::Bucket => bucket(pace),
        Kind::BucketAtAnEnd => bucket(end),
        Kind::AdaptiveRate => AdaptiveRate::new(slower, pace).burst(permits).into(),
        Kind::Log => log(permits, period_ns).into(),
        Kind::GridLog => {
            let guarded = log(permits, period_ns).with_guard(ns(random.u64(0..=period_ns / 3)));
            guarded.unwrap().with_resolution(ns(random.u64(1..=period_ns))).unwrap().into()
        }
        Kind::CompactLog => log(permits, period_ns).compact().into(),
        Kind::Window => window(permits, period_ns).into(),
        Kind::WindowOfFirstCall => window_of_first_call(permits, period_ns).into(),
        Kind::Batches => pacer(pace, min_sleep, None).into(),
        Kind::BoundedBatches => pacer(pace, min_sleep, bound_ns.map(ns)).into(),
        Kind::BatchesAtAnEnd => pacer(end, min_sleep, bound_ns.map(ns)).into(),
        Kind::Average => timeline(pace, Mode::Average, None).into(),
        Kind::AverageAtAnEnd => timeline(end, Mode::Average, bound_ns).into(),
        Kind::BoundedAverage => timeline(pace, Mode::Average, bound_ns).into(),
        Kind::Strict => timeline(pace, Mode::Strict, None).into(),
        Kind::Damped => timeline(pace, damped, None).into(),
        Kind::BoundedDamped => timeline(pace, damped, bound_ns).into(),
        Kind::Burst => timeline(pace, Mode::Burst(ratio), None).into(),
        Kind::AverageRamp => on_ramp(Mode::Average).into(),
        Kind::StrictRamp => on_ramp(Mode::Strict).into(),
        Kind::WarmUp => warm_up(pace).into(),
        Kind::WideWarmUp => {
            let steep = warm_up(pace).with_cold_factor(ratio).unwrap();
            steep.with_max_request(permits).unwrap().into()
        }
        Kind::WarmUpAtAnEnd => warm_up(end).into(),
        Kind::Pool => BackfillPool::new(permits, ratio, Some(pace)).unwrap().into(),
        Kind::PoolWithoutBurst => {
            BackfillPool::new(permits, Ratio::ONE, Some(slower)).unwrap().into()
        }
        Kind::PoolByHand => BackfillPool::new(permits, ratio, None).unwrap().into(),
        Kind::SlowBucket => slow(bucket(pace)),
        Kind::SlowLog => slow(log(permits, period_ns).into()),
        Kind::SlowWindow => slow(window_of_first_call(permits, period_ns).into()),
        Kind::SlowBatches => slow(pacer(pace, min_sleep, bound_ns.map(ns)).into()),
        Kind::SlowDamped => slow(timeline(pace, damped, bound_ns).into()),
        Kind::SlowBurst => slow(timeline(pace, Mode::Burst(ratio), None).into()),
        Kind::Concurrency => Concurrency::new(permits).into(),
        Kind::CommitLog => CommitLog::new(permits, ns(period_ns)).into(),
    }
}

/// Returns a limit of any of these kinds.
pub(crate) fn limit_of(kinds: &[Kind], scale: Scale, random: &mut Rng) -> AnyPolicy {
    limit(random.choice(kinds).copied().unwrap(), scale, random)
}
