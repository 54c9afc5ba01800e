//! Data for the picture that the report lacks: the limits in words, and their allowance curve.

use rategate_core::any_policy::AnyPolicy;
use rategate_core::fixed_window::Windows;
use rategate_core::rate::Rate;
use rategate_core::span;
use rategate_core::two_timeline::Mode;

use crate::report::{Allowance, Picture};
use crate::scenario::Scenario;

pub(crate) fn of(scenario: &Scenario, grants: Vec<(u64, u64)>) -> Picture {
    let limits = scenario.limits.iter().map(describe).collect();
    let allowance = match scenario.limits.as_slice() {
        [only] => allowance(only),
        _ => None,
    };
    Picture { grants, limits, allowance }
}

fn describe(limit: &AnyPolicy) -> String {
    match limit {
        AnyPolicy::Gcra(gcra) => format!("gcra: {}, burst {}", gcra.rate(), gcra.burst_size()),
        AnyPolicy::SlidingLog(log) => {
            let held = span::Text(log.held_for_ns());
            format!("sliding log: at most {} in any {held}", log.permits())
        }
        AnyPolicy::FixedWindow(window) => match window.windows() {
            Windows::Even { period_ns, .. } => {
                let period = span::Text(period_ns.get());
                format!("fixed window: at most {} in each {period}", window.permits())
            }
            Windows::Of(calendar) => {
                format!("at most {} in each {}", window.permits(), calendar.text())
            }
        },
        AnyPolicy::TwoTimeline(timelines) => match timelines.mode() {
            Mode::Batched { .. } => format!("pacer: {} on average", timelines.rate()),
            _ => format!("two timelines: {}", timelines.rate()),
        },
        AnyPolicy::WarmUp(warm_up) => {
            let period = span::Text(warm_up.period_ns());
            format!("warm-up: {} after {period}", warm_up.rate())
        }
        AnyPolicy::SlowStart(slow) => {
            let (period, percent) = (span::Text(slow.period_ns()), slow.first_share().as_percent());
            format!("{}, from {percent} % in {period}", describe(&slow.policy()))
        }
        AnyPolicy::BackfillPool(_) => "backfill pool".to_owned(),
        AnyPolicy::Concurrency(_) => "concurrency".to_owned(),
        AnyPolicy::CommitLog(log) => {
            let cools = span::Text(log.cools_for_ns());
            format!("commit log: at most {} effects in any {cools}", log.permits())
        }
        other => format!("{other:?}"),
    }
}

fn allowance(limit: &AnyPolicy) -> Option<Allowance> {
    let line = |rate: Rate, burst| {
        let (permits, period_ns) = rate.fraction()?;
        Some(Allowance::Line { burst, permits, period_ns })
    };
    match limit {
        AnyPolicy::Gcra(gcra) => line(gcra.rate(), gcra.burst_size().get()),
        AnyPolicy::TwoTimeline(timelines) => line(timelines.rate(), 1),
        AnyPolicy::SlowStart(slow) => allowance(&slow.policy()),
        AnyPolicy::WarmUp(warm_up) => line(warm_up.rate(), warm_up.max_request()),
        AnyPolicy::SlidingLog(log) => {
            Some(Allowance::Stairs { permits: log.permits(), period_ns: log.held_for_ns() })
        }
        AnyPolicy::CommitLog(log) => {
            Some(Allowance::Stairs { permits: log.permits(), period_ns: log.cools_for_ns() })
        }
        AnyPolicy::FixedWindow(window) => {
            let period_ns = window.period_ns()?.get();
            Some(Allowance::Stairs { permits: window.permits(), period_ns })
        }
        _ => None,
    }
}
