//! The oracle of a fleet: the most that all nodes together used, in true time.

use std::collections::BTreeMap;

use rategate::store::Rule;

use crate::oracle::Grants;

/// Returns the most that was used: in any window of a log, each shorter by `shorter_ns`; in one
/// of a fixed window's grid; or over a bucket's rate, multiplied by `times`, in any time.
pub(super) fn most_used(limit: &Rule, used: &[(u64, u64)], shorter_ns: u64, times: u64) -> u64 {
    match limit {
        Rule::Log(log) => {
            let window_ns = log.held_for_ns().saturating_sub(shorter_ns).max(1);
            Grants(used.to_vec()).fullest_window(window_ns).0
        }
        Rule::Window(window) => {
            let mut cells = BTreeMap::new();
            for (at_ns, permits) in used {
                let ends_ns = at_ns + window.border_in_ns(*at_ns, 1);
                *cells.entry(ends_ns).or_default() += permits;
            }
            cells.into_values().max().unwrap_or(0)
        }
        Rule::Bucket(bucket) => {
            let (permits, period_ns) = bucket.rate().fraction().expect("a bucket that is paced");
            over_rate(used, permits * times, period_ns)
        }
        Rule::InFlight(..) => panic!("no fleet keeps permits in flight"),
    }
}

/// Returns the most by which the grants of any window were over what the rate earns in it, rounded
/// up.
///
/// The state is a bucket without a bottom: it drains at the rate, and each grant is poured into
/// it. Its level is the most over the rate in all windows that end now.
fn over_rate(used: &[(u64, u64)], permits: u64, period_ns: u64) -> u64 {
    let (mut level, mut max, mut before_ns) = (0_u128, 0, 0);
    for &(at_ns, granted) in used {
        let drained = u128::from(at_ns - before_ns) * u128::from(permits);
        level = level.saturating_sub(drained) + u128::from(granted) * u128::from(period_ns);
        before_ns = at_ns;
        max = level.max(max);
    }
    u64::try_from(max.div_ceil(u128::from(period_ns))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::over_rate;
    use fastrand::Rng;

    #[test]
    fn one_level_stands_for_windows_of_all_lengths() {
        let mut random = Rng::with_seed(4);
        for _ in 0..300 {
            let (permits, period_ns) = (random.u64(1..=4), random.u64(1..=9));
            let mut at_ns = 0;
            let mut some = || {
                at_ns += random.u64(..5) * random.u64(..7);
                (at_ns, random.u64(1..=3))
            };
            let used: Vec<(u64, u64)> = (0..100).map(|_| some()).collect();
            let mut max = 0;
            for (first, &(from_ns, _)) in used.iter().enumerate() {
                let mut sum = 0;
                for &(to_ns, granted) in &used[first..] {
                    sum += granted;
                    max = max.max((sum * period_ns).saturating_sub((to_ns - from_ns) * permits));
                }
            }
            assert_eq!(over_rate(&used, permits, period_ns), max.div_ceil(period_ns));
        }
    }
}
