//! Limits of the core decide as plain counts of all grants do, call by call.

#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::rate::Rate;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::verdict::Verdict;

/// A limit as plain numbers.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Shape {
    /// `count` permits in `period_ns`, and `burst` at once.
    Bucket { count: u8, period_ns: u16, burst: u8 },
    /// `permits` in any `window_ns`.
    Log { permits: u8, window_ns: u16 },
    /// `permits` in each window of a grid that begins at zero.
    Window { permits: u8, window_ns: u16 },
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Step {
    Wait(u16),
    /// The clock goes back, which counts as no time.
    Back(u8),
    Try(u8),
    Reserve(u8),
    Peek(u8),
    Remaining,
}

/// All grants so far, each with its instant in parts of a nanosecond, and its permits.
struct Plain {
    shape: Shape,
    parts: u128,
    grants: Vec<(u128, u64)>,
}

impl Plain {
    /// Returns the first instant from `now_ns` on, in parts, at which `permits` fit.
    fn opening(&self, now_ns: u64, permits: u64) -> u128 {
        let from = u128::from(now_ns) * self.parts;
        let from = self.grants.last().map_or(from, |(last, _)| from.max(*last));
        let taken = |until: &dyn Fn(u128) -> bool| -> u64 {
            self.grants.iter().filter(|(at, _)| until(*at)).map(|(_, permits)| permits).sum()
        };
        match self.shape {
            Shape::Bucket { period_ns, burst, .. } => {
                // A full bucket, less each grant, plus a token in each period of parts.
                let token = u128::from(period_ns);
                let full = u128::from(burst) * token;
                let (mut level, mut at) = (full, 0);
                for (start, permits) in &self.grants {
                    level = (level + (start - at)).min(full) - u128::from(*permits) * token;
                    at = *start;
                }
                let level = (level + (from - at)).min(full);
                from + (u128::from(permits) * token).saturating_sub(level)
            }
            Shape::Log { permits: maximum, window_ns } => {
                let window = u128::from(window_ns);
                let ends = self.grants.iter().map(|(at, _)| at + window).filter(|end| *end > from);
                let fits = |at: &u128| {
                    taken(&|start| start + window > *at) + permits <= u64::from(maximum)
                };
                std::iter::once(from).chain(ends).find(fits).unwrap()
            }
            Shape::Window { permits: maximum, window_ns } => {
                let window = u128::from(window_ns);
                let used = taken(&|start| start / window == from / window);
                let fits = used + permits <= u64::from(maximum);
                if fits { from } else { (from / window + 1) * window }
            }
        }
    }

    fn opening_ns(&self, now_ns: u64, permits: u64) -> u64 {
        u64::try_from(self.opening(now_ns, permits).div_ceil(self.parts)).unwrap()
    }
}

impl Shape {
    /// Returns the policy, its maximum at once, and the number of parts of a nanosecond.
    fn policy(self) -> Option<(AnyPolicy, u64, u128)> {
        Some(match self {
            Self::Bucket { count, period_ns, burst } => {
                let rate = Rate::new(count.into(), Duration::from_nanos(period_ns.into())).ok()?;
                (Gcra::new(rate, burst.into()).ok()?.into(), burst.into(), count.into())
            }
            Self::Log { permits, window_ns } => {
                let window = Duration::from_nanos(window_ns.into());
                (SlidingLog::try_new(permits.into(), window).ok()?.into(), permits.into(), 1)
            }
            Self::Window { permits, window_ns } => {
                let window = Duration::from_nanos(window_ns.into());
                let policy = FixedWindow::try_new(permits.into(), window, Anchor::Epoch).ok()?;
                (policy.into(), permits.into(), 1)
            }
        })
    }
}

libfuzzer_sys::fuzz_target!(|input: (Shape, Vec<Step>)| {
    let (shape, steps) = input;
    let Some((policy, maximum, parts)) = shape.policy() else { return };
    let (mut limit, mut now_ns, mut newest_ns) = (Ledger::new(policy, 0), 0_u64, 0_u64);
    let mut plain = Plain { shape, parts, grants: Vec::new() };
    for step in steps.into_iter().take(200) {
        let permits = match step {
            Step::Wait(ns) => {
                now_ns += u64::from(ns);
                continue;
            }
            Step::Back(ns) => {
                now_ns = now_ns.saturating_sub(ns.into());
                continue;
            }
            Step::Remaining => {
                // What takes nothing does not advance the limit's clock.
                let clock_ns = newest_ns.max(now_ns);
                let fits = |permits: &u64| plain.opening_ns(clock_ns, *permits) <= clock_ns;
                assert_eq!(limit.remaining(now_ns), (1..=maximum).rev().find(fits).unwrap_or(0));
                continue;
            }
            Step::Try(permits) | Step::Reserve(permits) | Step::Peek(permits) => u64::from(permits),
        };
        if permits == 0 || permits > maximum {
            continue;
        }
        let clock_ns = newest_ns.max(now_ns);
        let opens_ns = plain.opening_ns(clock_ns, permits);
        match step {
            Step::Reserve(_) => {
                newest_ns = clock_ns;
                let Ok(Verdict::Granted(grant)) = limit.reserve(now_ns, permits, None) else {
                    panic!("a reservation without a deadline is refused");
                };
                assert_eq!(grant.start_ns, opens_ns);
                plain.grants.push((plain.opening(clock_ns, permits), permits));
            }
            Step::Peek(_) => {
                let wait_ns = limit.peek(now_ns, permits).unwrap();
                assert_eq!(wait_ns, Some(opens_ns - clock_ns));
            }
            _ => match limit.try_acquire(now_ns, permits).unwrap() {
                Verdict::Granted(grant) => {
                    newest_ns = clock_ns;
                    assert_eq!((grant.start_ns, opens_ns), (clock_ns, clock_ns));
                    plain.grants.push((u128::from(clock_ns) * parts, permits));
                }
                Verdict::Denied(denial) => {
                    let wait_ns = denial.retry_after_ns.unwrap().get();
                    assert_eq!(clock_ns + wait_ns, opens_ns);
                }
            },
        }
    }
});
