//! Limits that bound starts, by the windows of which they bound them.

use super::{MS, log, ns, window};
use fastrand::Rng;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::gcra::Gcra;
use rategate_core::slow_start::SlowStart;
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::warm_up::WarmUp;

/// A limit that bounds starts, and the maximum of starts in each of some windows.
pub(crate) struct Bound {
    pub(crate) policies: Vec<AnyPolicy>,
    pub(crate) at_most: Vec<(u64, u64)>,
}

pub(crate) fn bounds(random: &mut Rng) -> Bound {
    let permits = random.u64(1..=6);
    let period_ns = random.choice([1_000, MS, 10 * MS]).unwrap();
    let step_ns = period_ns / permits.max(1);
    let rate = format!("{permits}/{period_ns}ns").parse().unwrap();
    let burst = random.u64(1..=5);
    // `C(W) = ceil((W + (B - 1) T) / T)`, on windows of some numbers of T, and one nanosecond.
    let bucket = |burst: u64| {
        let windows = [1, step_ns, 3 * step_ns, 20 * step_ns];
        let max = |window: u64| {
            let of = u128::from(window) * u128::from(permits);
            u64::try_from(of.div_ceil(period_ns.into())).unwrap() + burst - 1
        };
        windows.map(|window| (window, max(window))).to_vec()
    };
    let (policies, at_most) = match random.u64(0..=9) {
        0 => (vec![log(permits, period_ns).into()], vec![(period_ns, permits)]),
        1 => {
            let log = log(permits, period_ns);
            (vec![log.with_parts(period_ns.min(7)).unwrap().into()], vec![(period_ns, permits)])
        }
        2 => {
            let window = window(permits, period_ns);
            (vec![window.into()], vec![(period_ns, 2 * permits)])
        }
        3 => (vec![Gcra::new(rate, 1).unwrap().into()], bucket(1)),
        4 => (vec![Gcra::new(rate, burst).unwrap().into()], bucket(burst)),
        5 => (vec![TwoTimeline::new(rate, Mode::Strict, None).into()], bucket(1)),
        8 => {
            let period = ns(10 * period_ns);
            let slow = SlowStart::new(Gcra::new(rate, burst).unwrap(), period);
            (vec![slow.unwrap().into()], bucket(burst))
        }
        7 => {
            let period = ns(10 * period_ns);
            (vec![WarmUp::new(rate, period).unwrap().into()], bucket(1))
        }
        6 => {
            let timeline = TwoTimeline::new(rate, Mode::Burst("2".parse().unwrap()), None);
            let twice = |(window, _): (u64, u64)| {
                let of = u128::from(window + 2) * u128::from(2 * permits);
                (window, u64::try_from(of.div_ceil(period_ns.into())).unwrap())
            };
            (vec![timeline.into()], bucket(1).into_iter().map(twice).collect())
        }
        _ => {
            let window = log(permits + 2, 3 * period_ns).into();
            let mut at_most = bucket(burst);
            at_most.push((3 * period_ns, permits + 2));
            (vec![Gcra::new(rate, burst).unwrap().into(), window], at_most)
        }
    };
    Bound { policies, at_most }
}
