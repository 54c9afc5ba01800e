//! A part of a limit, so that the parts of all nodes together are never more than the limit.

use std::num::NonZeroU64;

use rategate_core::concurrency::Concurrency;
use rategate_core::fixed_window::FixedWindow;
use rategate_core::gcra::Gcra;
use rategate_core::sliding_log::SlidingLog;

use crate::store::Rule;

/// `share` of the [`most`](Rule::most) permits of a rule, as a rule. `None` where nothing is left.
///
/// A bucket's rate is parted as its burst is: the parts' bursts and rates add up to no more than the whole's.
pub(super) fn portion(rule: &Rule, share: u64) -> Option<Rule> {
    let total = rule.most();
    let share = share.min(total);
    if share == total {
        return Some(*rule);
    }
    match rule {
        Rule::Bucket(bucket) => {
            let rate = bucket.rate().part(share, NonZeroU64::new(total)?);
            Gcra::new(rate, share).ok().map(Rule::Bucket)
        }
        Rule::Log(log) => {
            let part = SlidingLog::new(share, log.held_for_ns()).ok()?;
            part.with_resolution(log.resolution_ns()).ok().map(Rule::Log)
        }
        Rule::Window(window) => {
            FixedWindow::new(share, window.period_ns(), window.anchor()).ok().map(Rule::Window)
        }
        Rule::InFlight(_, length_ns) => {
            Concurrency::new(share).ok().map(|part| Rule::InFlight(part, *length_ns))
        }
    }
}
