//! Partitions of a limit, which together never exceed the limit.

use std::num::NonZeroU64;
use std::time::Duration;

use rategate_core::gcra::Gcra;
use rategate_core::sliding_log::SlidingLog;

use crate::store::Rule;

/// The whole, in parts per million.
const WHOLE_PPM: u64 = 1_000_000;

/// Returns the rule for a partition of `share` of the [`capacity`](Rule::capacity) permits of a
/// rule.
///
/// The node keeps it alone, by a clock that may be faster than others by `drift_ppm`. Returns
/// `None` where nothing is left, and for permits in flight.
///
/// A bucket's rate is divided as its burst is: the partitions' bursts and rates add up to no
/// more than the whole's. A fixed window becomes a log, as its grid would be that of the node's
/// clock. A calendar quota stays one: its borders follow the time since 1970 on each clock.
pub(super) fn partition(rule: &Rule, share: u64, drift_ppm: u32) -> Option<Rule> {
    let total = rule.capacity();
    let share = share.min(total);
    match rule {
        Rule::Bucket(bucket) => {
            let drift_ppm = u64::from(drift_ppm).min(WHOLE_PPM);
            let slower = WHOLE_PPM.saturating_sub(drift_ppm);
            let rate = bucket.rate().part(share, NonZeroU64::new(total)?);
            let rate = rate.part(slower, NonZeroU64::new(WHOLE_PPM)?);
            Gcra::new(rate, share).ok().map(Rule::Bucket)
        }
        Rule::Log(log) => {
            let part = SlidingLog::try_new(
                share,
                Duration::from_nanos(longer(log.held_for_ns(), drift_ppm)),
            )
            .ok()?;
            part.with_resolution(Duration::from_nanos(log.resolution_ns())).ok().map(Rule::Log)
        }
        Rule::Window(window) => {
            SlidingLog::try_new(share, Duration::from_nanos(longer(window.period_ns(), drift_ppm)))
                .ok()
                .map(Rule::Log)
        }
        Rule::Calendar(calendar) => calendar.with_permits(share).ok().map(Rule::Calendar),
        Rule::InFlight(..) => None,
    }
}

/// Returns the time that a fast clock shows when a length has passed.
fn longer(length_ns: u64, drift_ppm: u32) -> u64 {
    let drift_ns = u128::from(length_ns).saturating_mul(drift_ppm.into());
    let drift_ns = drift_ns.div_ceil(WHOLE_PPM.into());
    length_ns.saturating_add(u64::try_from(drift_ns).unwrap_or(u64::MAX))
}
