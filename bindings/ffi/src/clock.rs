//! The clocks that other languages choose from.

use std::time::Duration;

use rategate::wait::{CancelToken, Sleep, Timer, Wait, Wake};
use rategate::{ManualClock, MonotonicClock};

use crate::fork;

/// Real time, or the time of a test.
///
/// It is one type, so that a limiter on either has one type too. Choosing costs a comparison
/// with each reading.
#[derive(Clone, Debug)]
pub enum Clock {
    /// Real time.
    Real(MonotonicClock),
    /// A clock that only calls move.
    Manual(ManualClock),
}

impl Clock {
    /// Returns a clock of real time.
    #[must_use]
    pub fn real() -> Self {
        Self::Real(MonotonicClock::new())
    }

    /// Returns a clock at zero that stands still until it is moved; waits on it last until then.
    #[must_use]
    pub fn manual() -> Self {
        Self::Manual(ManualClock::stepped())
    }
}

macro_rules! either {
    ($self:ident, $clock:ident => $body:expr) => {
        match $self {
            Self::Real($clock) => $body,
            Self::Manual($clock) => $body,
        }
    };
}

impl rategate::Clock for Clock {
    #[inline]
    fn now_ns(&self) -> u64 {
        either!(self, clock => clock.now_ns())
    }

    fn now_in_order_ns(&self) -> u64 {
        either!(self, clock => clock.now_in_order_ns())
    }

    #[inline]
    fn may_go_back(&self) -> bool {
        either!(self, clock => clock.may_go_back())
    }

    fn wait(&self, until_ns: u64, cancel: &CancelToken) -> Wake {
        fork::outside(|| either!(self, clock => clock.wait(until_ns, cancel)))
    }

    fn wait_as(&self, wait: Wait, cancel: &CancelToken) -> Wake {
        fork::outside(|| either!(self, clock => clock.wait_as(wait, cancel)))
    }

    fn sleep(&self, requested_ns: u64) {
        fork::outside(|| either!(self, clock => clock.sleep(requested_ns)));
    }

    fn is_real_time(&self) -> bool {
        either!(self, clock => clock.is_real_time())
    }

    fn wait_for_turn(
        &self,
        cancel: &CancelToken,
        left: &mut dyn FnMut() -> Option<Duration>,
    ) -> Wake {
        fork::outside(|| cancel.wait_on(left))
    }

    fn timer(&self) -> &dyn Timer {
        self
    }
}

impl Timer for Clock {
    fn after(&self, time: Duration) -> Sleep {
        fork::gated(either!(self, clock => rategate::Clock::timer(clock).after(time)))
    }
}
