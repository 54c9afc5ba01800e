//! The numbers of a rule that is divided, and the token bucket of a share.

use rategate::AnyPolicy;
use rategate_protocol::rlqs::Strategy;

use crate::engine::counters::InForce;
use crate::rule::Limit;

const NS_PER_S: u64 = 1_000_000_000;

/// The part of a rule that is divided: a total in a period, and what is granted at once.
pub(super) struct Numbers {
    /// As many as a bucket of tokens can have: the rest of a greater total is not assigned.
    pub(super) total: u32,
    period_ns: u64,
    burst: u64,
}

impl Numbers {
    /// Returns the numbers of a limit in force at an instant.
    pub(super) fn of(in_force: &InForce, now_ns: u64) -> Self {
        let display = in_force.display_limit;
        let seconds = display.multiplier.saturating_mul(display.unit.seconds());
        let period_ns = match in_force.limit {
            Limit::Policy(AnyPolicy::Calendar(calendar)) => calendar.window(now_ns).length_ns(),
            _ => seconds.saturating_mul(NS_PER_S),
        };
        let total = u32::try_from(display.permits).unwrap_or(u32::MAX);
        Self { total, period_ns: period_ns.max(1), burst: in_force.capacity.max(1) }
    }

    /// Returns `true` if the rate is lower.
    pub(super) fn is_lower(&self, than: &Self) -> bool {
        let own = u128::from(self.total).saturating_mul(than.period_ns.into());
        own < u128::from(than.total).saturating_mul(self.period_ns.into())
    }

    /// Returns the token bucket of a share. All roundings favour the limit.
    pub(super) fn strategy(&self, share: u32) -> Strategy {
        let interval_s = self.period_ns.div_ceil(NS_PER_S);
        let fill_ns = interval_s.saturating_mul(NS_PER_S);
        let per_fill = u128::from(share).saturating_mul(fill_ns.into());
        let per_fill = per_fill.checked_div(self.period_ns.into()).unwrap_or(0);
        let burst = u128::from(self.burst).saturating_mul(share.into());
        let burst = burst.checked_div(self.total.into()).unwrap_or(0);
        let small = |number: u128| u32::try_from(number).unwrap_or(u32::MAX);
        match small(per_fill) {
            0 => Strategy::DenyAll,
            per_fill => Strategy::TokenBucket { max: small(burst).max(1), per_fill, interval_s },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Envoy reads whole seconds. No rounding assigns more than the share.
    #[test]
    fn buckets_have_whole_seconds() {
        let bucket = |total, period_ns, burst, share| match (Numbers { total, period_ns, burst })
            .strategy(share)
        {
            Strategy::TokenBucket { max, per_fill, interval_s } => (max, per_fill, interval_s),
            _ => (0, 0, 0),
        };
        let ms = 1_000_000;
        assert_eq!(bucket(100, 60_000 * ms, 100, 30), (30, 30, 60));
        assert_eq!(bucket(100, 1_000 * ms, 20, 30), (6, 30, 1));
        assert_eq!(bucket(100, 1_000 * ms, 1, 30), (1, 30, 1), "one token at least");
        assert_eq!(bucket(10, 100 * ms, 10, 3), (3, 30, 1));
        assert_eq!(bucket(10, 1_500 * ms, 10, 1), (1, 1, 2), "1.33 is rounded down");
        assert_eq!(bucket(u32::MAX, 1, u64::MAX, u32::MAX), (u32::MAX, u32::MAX, 1));
        assert_eq!(bucket(10, 1_000 * ms, 10, 0), (0, 0, 0));
    }
}
