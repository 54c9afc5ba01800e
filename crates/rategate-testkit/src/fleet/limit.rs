//! The limit that a fleet keeps together, and its partitions on the nodes.

use std::time::Duration;

use rategate_core::any_policy::AnyPolicy;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::node::{Lent as _, guarded};
use rategate_core::rate::Rate;
use rategate_core::sliding_log::SlidingLog;

use super::oracle::{FullestCell, FullestWindow, MaxOverRate, Oracle};

const MILLION: u64 = 1_000_000;

/// A limit of all nodes together. Zeros count as ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// A sliding log: at most so many permits in any window.
    Log {
        /// The permits of a window.
        permits: u64,
        /// The window's length.
        period_ns: u64,
    },
    /// A token bucket: a rate and a burst.
    Bucket {
        /// The permits available at once.
        burst: u64,
        /// The permits earned in a period.
        permits: u64,
        /// The length of a period.
        period_ns: u64,
    },
    /// A fixed window: at most so many permits in each window of the store's grid.
    Window {
        /// The permits of a window.
        permits: u64,
        /// The window's length.
        period_ns: u64,
    },
}

impl Limit {
    /// Returns the total to be partitioned: the permits of a window, or the burst.
    #[must_use]
    pub const fn total(self) -> u64 {
        match self {
            Self::Log { permits, .. } | Self::Window { permits, .. } => permits,
            Self::Bucket { burst, .. } => burst,
        }
    }

    /// Returns the time for which a grant can matter to a later one: the window's length, or the
    /// time that fills the bucket.
    #[must_use]
    pub fn memory_ns(self) -> u64 {
        match self {
            Self::Log { period_ns, .. } | Self::Window { period_ns, .. } => period_ns,
            Self::Bucket { burst, permits, period_ns } => {
                let product = u128::from(burst).saturating_mul(period_ns.into());
                let fills_ns = product.div_ceil(u128::from(permits.max(1)));
                u64::try_from(fills_ns).unwrap_or(u64::MAX)
            }
        }
    }

    /// Returns the permits that a bucket's rate earns in this time, rounded up; 0 for other
    /// limits.
    #[must_use]
    pub fn earned_in(self, lasting_ns: u64) -> u64 {
        let Self::Bucket { permits, period_ns, .. } = self else { return 0 };
        let product = u128::from(permits).saturating_mul(lasting_ns.into());
        u64::try_from(product.div_ceil(u128::from(period_ns.max(1)))).unwrap_or(u64::MAX)
    }

    /// Returns the policy that the store keeps. Returns `None` if its numbers are beyond the
    /// core's.
    pub(super) fn policy(self) -> Option<AnyPolicy> {
        Some(match self {
            Self::Log { permits, period_ns } => {
                SlidingLog::try_new(permits, Duration::from_nanos(period_ns)).ok()?.into()
            }
            Self::Window { permits, period_ns } => {
                FixedWindow::try_new(permits, Duration::from_nanos(period_ns), Anchor::Epoch)
                    .ok()?
                    .into()
            }
            Self::Bucket { burst, permits, period_ns } => {
                let rate = Rate::new(permits, Duration::from_nanos(period_ns)).ok()?;
                Gcra::new(rate, burst).ok()?.into()
            }
        })
    }

    /// Returns the policy that keeps permits lent for `length_ns` within this limit. Returns
    /// `None` if there is none.
    pub(super) fn guarded(self, length_ns: u64) -> Option<AnyPolicy> {
        Some(match self.policy()? {
            AnyPolicy::SlidingLog(log) => guarded(log, length_ns).ok()?.into(),
            AnyPolicy::FixedWindow(window) => guarded(window, length_ns).ok()?.into(),
            AnyPolicy::Gcra(bucket) => guarded(bucket, length_ns).ok()?.into(),
            _ => return None,
        })
    }

    /// Returns the most permits, lent for `length_ns`, that nodes can hold at one instant.
    pub(super) fn outstanding(self, nodes: u32, units: u64, length_ns: u64) -> u64 {
        let nodes = u64::from(nodes);
        match self.policy() {
            Some(AnyPolicy::SlidingLog(log)) => log.outstanding(nodes, units, length_ns),
            Some(AnyPolicy::FixedWindow(window)) => window.outstanding(nodes, units, length_ns),
            Some(AnyPolicy::Gcra(bucket)) => bucket.outstanding(nodes, units, length_ns),
            _ => 0,
        }
    }

    /// Returns the policy of a node's share, kept by a clock that may be wrong by `drift_ppm`. In
    /// true time, all nodes' shares together never exceed the limit. Returns `None` if nothing
    /// can pass.
    ///
    /// A node cannot see the store's grid of windows, so its share of one is a log: at most so
    /// many permits in any window.
    pub(super) fn local_share(self, share: u64, drift_ppm: u32) -> Option<AnyPolicy> {
        match self {
            Self::Log { period_ns, .. } | Self::Window { period_ns, .. } => {
                let product = u128::from(period_ns).saturating_mul(drift_ppm.into());
                let longer_ns = u64::try_from(product.div_ceil(MILLION.into())).ok()?;
                Some(
                    SlidingLog::try_new(
                        share,
                        Duration::from_nanos(period_ns.saturating_add(longer_ns)),
                    )
                    .ok()?
                    .into(),
                )
            }
            Self::Bucket { burst, permits, period_ns } => {
                let numerator =
                    u128::from(permits).saturating_mul(share.into()).saturating_mul(MILLION.into());
                let pace = MILLION.saturating_add(drift_ppm.into());
                let denominator =
                    u128::from(period_ns).saturating_mul(burst.into()).saturating_mul(pace.into());
                Some(Gcra::new(rate_at_most(numerator, denominator)?, share).ok()?.into())
            }
        }
    }

    /// Returns the oracle for all nodes' grants; a log's windows are shorter by `shorter_ns`.
    pub(super) fn oracle(self, shorter_ns: u64) -> Oracle {
        match self {
            Self::Log { period_ns, .. } => {
                Oracle::Any(FullestWindow::new(period_ns.saturating_sub(shorter_ns)))
            }
            Self::Window { period_ns, .. } => Oracle::Grid(FullestCell::new(period_ns)),
            Self::Bucket { permits, period_ns, .. } => {
                Oracle::Rate(MaxOverRate::new(permits, period_ns))
            }
        }
    }
}

/// Returns a rate whose two numbers fit 64 bits. It is at most this fraction of permits per
/// nanosecond, and close to it.
fn rate_at_most(permits: u128, period_ns: u128) -> Option<Rate> {
    let larger = permits.max(period_ns);
    let bits = u128::BITS.saturating_sub(larger.leading_zeros()).saturating_sub(u64::BITS);
    let permits = u64::try_from(permits.checked_shr(bits)?).ok()?;
    let over = u128::from(bits > 0);
    let period_ns = u64::try_from(period_ns.checked_shr(bits)?.saturating_add(over)).ok()?;
    Rate::new(permits, Duration::from_nanos(period_ns)).ok()
}

#[cfg(test)]
mod tests {
    use rategate_core::any_policy::AnyPolicy;

    use super::Limit;

    #[test]
    fn shares_of_a_rate_are_never_more_than_the_rate() {
        for (burst, permits, period_ns) in [(7, 3, 1_000_000_007), (1_000, 999_983, u64::MAX >> 8)]
        {
            let limit = Limit::Bucket { burst, permits, period_ns };
            for share in 1..=burst.min(50) {
                let Some(AnyPolicy::Gcra(local_share)) = limit.local_share(share, 200) else {
                    unreachable!()
                };
                let (share_permits, each_ns) = local_share.rate().fraction().unwrap();
                // share_permits / each_ns * 1.0002 <= permits / period_ns * share / burst
                let left = u128::from(share_permits) * u128::from(period_ns) * u128::from(burst);
                let right = u128::from(permits) * u128::from(share) * u128::from(each_ns);
                assert!(left <= right, "{share}");
                assert!(right / 1_000 <= left / 999, "{share}: not much less");
            }
        }
    }
}
