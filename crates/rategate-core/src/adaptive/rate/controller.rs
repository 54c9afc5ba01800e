//! The rule that moves a rate, whichever it is.

use super::aimd::Aimd;
use super::cubic::Cubic;
use super::{End, RateBounds, RateMethod};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Controller {
    Aimd(Aimd),
    Cubic(Cubic),
}

impl Controller {
    /// Creates a rule that knows of no refusal.
    pub(super) fn new(method: RateMethod, bounds: RateBounds, now_ns: u64) -> Self {
        match method {
            RateMethod::Aimd => Self::Aimd(Aimd::new(bounds, now_ns)),
            RateMethod::Cubic => Self::Cubic(Cubic::new(bounds, now_ns)),
        }
    }

    /// Creates a rule that has found a rate.
    pub(super) fn beginning_with(
        method: RateMethod,
        bounds: RateBounds,
        rate: u64,
        now_ns: u64,
    ) -> Self {
        match method {
            RateMethod::Cubic if rate < bounds.ceiling => {
                Self::Cubic(Cubic::refused_to(bounds, rate, now_ns))
            }
            RateMethod::Cubic => Self::new(method, bounds, now_ns),
            RateMethod::Aimd => Self::Aimd(Aimd::beginning_with(bounds, rate, now_ns)),
        }
    }

    pub(super) const fn rebound(&mut self, bounds: RateBounds) {
        match self {
            Self::Aimd(aimd) => aimd.rebound(bounds),
            Self::Cubic(cubic) => cubic.rebound(bounds),
        }
    }

    /// Returns the rate, in millionths of a permit per second, within the bounds.
    pub(super) fn rate(&self) -> u64 {
        match self {
            Self::Aimd(aimd) => aimd.rate(),
            Self::Cubic(cubic) => cubic.rate(),
        }
    }

    pub(super) fn end(&mut self, end: End) {
        match self {
            Self::Aimd(aimd) => aimd.end(end),
            Self::Cubic(cubic) => cubic.end(end),
        }
    }
}
