//! The clock of a limit during its slow start.

use core::num::NonZeroU64;

use crate::policy::Taken;
use crate::search::first_after;
use crate::share::Share;
use crate::wide::mul_div_floor;

/// A clock that goes slowly for a period, and is the true one from its end on.
///
/// It shows the true time and a lead. With the first factor `f`, the period `P` and `u` before the
/// end, the lead is `(1 - f) u^2 / 2P`, rounded down. So the clock goes at `1 - (1 - f) u / P`,
/// which is `f` at first.
///
/// Counted from the end, the lead cannot pass the end of the clock, and a ramp of which the first
/// part lies before the clock's zero can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub(crate) struct Ramp {
    pub(super) end_ns: u64,
    pub(super) period_ns: NonZeroU64,
    pub(super) first: Share,
}

impl Ramp {
    /// Returns the ramp that begins at `began_ns`. The clock's end cuts it short.
    pub(super) const fn from(began_ns: u64, period_ns: NonZeroU64, first: Share) -> Self {
        Self { end_ns: began_ns.saturating_add(period_ns.get()), period_ns, first }
    }

    /// Returns the time that the clock shows.
    ///
    /// It goes at most as fast as the true one, so it leaves no nanosecond out.
    pub(super) fn inner_ns(&self, at_ns: u64) -> u64 {
        let left = u128::from(self.left_ns(at_ns));
        if left == 0 {
            return at_ns;
        }
        let twice = u128::from(self.period_ns.get()).saturating_mul(200);
        let lead = mul_div_floor(left.saturating_mul(left), self.missing().into(), twice);
        // At most half of what is left, so the sum is not beyond the end.
        at_ns.saturating_add(lead.and_then(|lead| u64::try_from(lead).ok()).unwrap_or(0))
    }

    /// Returns the first instant, not before `from_ns`, at which the clock shows `inner_ns` or
    /// more.
    pub(super) fn outer_ns(&self, inner_ns: u64, from_ns: u64) -> u64 {
        if self.inner_ns(from_ns) >= inner_ns {
            return from_ns;
        }
        if inner_ns >= self.end_ns {
            return inner_ns;
        }
        let shows = |at_ns: u128| {
            let at_ns = u64::try_from(at_ns).unwrap_or(u64::MAX);
            Ok::<_, core::convert::Infallible>(self.inner_ns(at_ns) >= inner_ns)
        };
        // Before its begin the clock goes as the true one does.
        let began_ns = self.began_ns();
        let lead_ns = self.inner_ns(began_ns).saturating_sub(began_ns);
        let from_ns = from_ns.max(inner_ns.saturating_sub(lead_ns).saturating_sub(1).min(began_ns));
        let found = first_after(from_ns.into(), shows).unwrap_or(None);
        found.and_then(|ns| u64::try_from(ns).ok()).unwrap_or(self.end_ns)
    }

    /// Returns a grant by this clock. A promise stays one: its start is rounded up in both.
    pub(super) fn taken(&self, grant: Taken) -> Taken {
        let (from_ns, start_ns) = (self.inner_ns(grant.from_ns), self.inner_ns(grant.start_ns));
        let last_ns = if grant.is_promise() { start_ns.saturating_sub(1) } else { u64::MAX };
        Taken { from_ns: from_ns.min(last_ns), start_ns, ..grant }
    }

    /// Returns the speed of the clock, in millionths and rounded down.
    pub(super) fn millionths(&self, at_ns: u64) -> u64 {
        let (missing, left) = (u64::from(self.missing()), self.left_ns(at_ns));
        let slower = u128::from(missing).saturating_mul(left.into()).saturating_mul(10_000);
        let slower = slower.div_ceil(self.period_ns.get().into());
        1_000_000_u64.saturating_sub(u64::try_from(slower).unwrap_or(u64::MAX))
    }

    const fn began_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.period_ns.get())
    }

    /// Returns the rest of the ramp.
    fn left_ns(&self, at_ns: u64) -> u64 {
        self.end_ns.saturating_sub(at_ns).min(self.period_ns.get())
    }

    /// Returns the percentage by which the clock goes slower at first.
    const fn missing(&self) -> u8 {
        Share::WHOLE.as_percent().saturating_sub(self.first.as_percent())
    }
}
