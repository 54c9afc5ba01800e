//! The text grammar of limits, for configuration and for other languages. The service and the
//! command read rates by it, and have words of their own for the rest.
//!
//! ```text
//! RATE                  100/min    1k/s    3 per 2 hours    a bucket, with a burst of N
//! RATE burst B          100/min burst 20                    a bucket
//! N per any PERIOD      100 per any 1min                    a sliding log
//! LIMIT; LIMIT          10/s burst 5; 100 per any 1min      all of them
//! ```
//!
//! Without `burst` a bucket grants at once, after silence, as many permits as are written, as a
//! rule of the service does: 100 for `100/min`. `100/min burst 1` spaces them.
//!
//! ```
//! use rategate_core::any_policy::AnyPolicy;
//! use rategate_core::gcra::Gcra;
//!
//! let limit: AnyPolicy = "100/min burst 20".parse()?;
//! assert_eq!(limit, Gcra::per_minute(100).burst(20).into());
//! assert_eq!(limit.to_string(), "100/min burst 20");
//! # Ok::<(), rategate_core::error::PolicyTextError>(())
//! ```

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::all_of::AllOf;
use crate::any_policy::AnyPolicy;
use crate::error::PolicyTextError;
use crate::gcra::Gcra;
use crate::rate::Rate;
use crate::sliding_log::SlidingLog;
use crate::span;

impl FromStr for Gcra {
    type Err = PolicyTextError;

    /// Reads a rate, and a burst: `"100/min burst 20"`. Without a burst it is as large as the
    /// number of permits: `"10/s"` grants 10 at once after silence, `"10/s burst 1"` spaces them.
    fn from_str(text: &str) -> Result<Self, PolicyTextError> {
        let (rate, burst) = match text.split_once(" burst ") {
            Some((rate, burst)) => {
                (rate, Some(burst.trim().parse().map_err(|_| PolicyTextError::Burst)?))
            }
            None => (text, None),
        };
        let (rate, written) = Rate::read(rate.trim())?;
        if rate == Rate::NEVER && burst.is_some() {
            return Err(PolicyTextError::BurstOfNever);
        }
        Ok(Self::new(rate, burst.unwrap_or(written))?)
    }
}

impl fmt::Display for Gcra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.burst_size().get() {
            _ if self.rate() == Rate::NEVER => f.write_str("never"),
            burst if burst == self.rate().printed_permits() => write!(f, "{}", self.rate()),
            burst => write!(f, "{} burst {burst}", self.rate()),
        }
    }
}

impl FromStr for SlidingLog {
    type Err = PolicyTextError;

    /// Reads the permits and the window: `"100 per any 1min"`.
    fn from_str(text: &str) -> Result<Self, PolicyTextError> {
        let (permits, window) = text.split_once(" per any ").ok_or(PolicyTextError::Permits)?;
        let permits = permits.trim().parse().map_err(|_| PolicyTextError::Permits)?;
        let window_ns = span::parse_period(window.trim()).map_err(PolicyTextError::Window)?;
        Ok(Self::try_new(permits, Duration::from_nanos(window_ns))?)
    }
}

/// The permits and the window. A guard and a grid have no text.
impl fmt::Display for SlidingLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window_ns = self.held_for_ns().saturating_sub(self.guard_ns());
        write!(f, "{} per any ", self.permits())?;
        // The largest unit that is whole reads best.
        let longer_units = span::UNITS.iter().skip(4).rev();
        let mut whole = longer_units.filter(|(_, ns)| window_ns.checked_rem(*ns) == Some(0));
        match whole.next().and_then(|(unit, ns)| Some((unit, window_ns.checked_div(*ns)?))) {
            Some((unit, count)) => write!(f, "{count}{unit}"),
            None => write!(f, "{}", span::Text(window_ns)),
        }
    }
}

impl FromStr for AnyPolicy {
    type Err = PolicyTextError;

    /// Reads a [`Gcra`], or a [`SlidingLog`] where the text has `per any`.
    fn from_str(text: &str) -> Result<Self, PolicyTextError> {
        if text.contains(" per any ") {
            text.trim().parse().map(Self::SlidingLog)
        } else {
            text.trim().parse().map(Self::Gcra)
        }
    }
}

/// The text of a bucket or a sliding log, and the debug form of other policies.
impl fmt::Display for AnyPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gcra(policy) => policy.fmt(f),
            Self::SlidingLog(policy) => policy.fmt(f),
            other => write!(f, "{other:?}"),
        }
    }
}

impl FromStr for AllOf {
    type Err = PolicyTextError;

    /// Reads policies between semicolons: `"10/s burst 5; 100 per any 1min"`.
    fn from_str(text: &str) -> Result<Self, PolicyTextError> {
        text.split(';').map(str::parse).collect()
    }
}

impl fmt::Display for AllOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, policy) in self.policies().iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "; " })?;
            policy.fmt(f)?;
        }
        Ok(())
    }
}
