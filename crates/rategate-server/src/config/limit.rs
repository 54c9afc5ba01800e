//! Limits as they are written, and the policies that they become.

use std::time::Duration;

use rategate::calendar::CalendarSpec;
use rategate::error::RateError;
use rategate::policy::{Anchor, Windows};
use rategate::{AnyPolicy, Concurrency, FixedWindow, Gcra, Rate, SlidingLog};
use rategate_core::span;
use schemars::JsonSchema;
use serde::Deserialize;

use super::calendar;
use crate::rule::{CountedWindow, DisplayLimit, Limit, Unit};
use crate::units::meant;

/// The default length of a lease from a store, in nanoseconds.
pub(crate) const LEASE_NS: u64 = 100_000_000;

/// The algorithm that enforces a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Algorithm {
    /// A token bucket: `burst` at once after silence, and the rate over time.
    #[default]
    Gcra,
    /// Never more than the limit in any window of its length.
    SlidingLog,
    /// Like "sliding-log", precise to a thousandth of the window, in few bytes.
    CompactLog,
    /// At most the limit in each window of the wall clock. Up to twice as much across a border.
    FixedWindow,
    /// At most the limit in each window of the wall clock.
    /// Denied permits count too, as in envoyproxy/ratelimit.
    CountedWindow,
    /// At most the limit in each day, week, month, quarter or year of a time zone.
    Calendar,
    /// At most this many permits in flight at a time.
    Concurrency,
}

impl Algorithm {
    /// Returns the name in a configuration.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gcra => "gcra",
            Self::SlidingLog => "sliding-log",
            Self::CompactLog => "compact-log",
            Self::FixedWindow => "fixed-window",
            Self::CountedWindow => "counted-window",
            Self::Calendar => "calendar",
            Self::Concurrency => "concurrency",
        }
    }

    /// Returns the algorithm of a policy with its permits and their period in nanoseconds, which
    /// permits in flight and calendars do not have. `None` for a policy that no configuration
    /// creates.
    pub(crate) fn of(policy: &AnyPolicy) -> Option<(Self, u64, u64)> {
        Some(match policy {
            AnyPolicy::Gcra(bucket) => {
                let (permits, period_ns) = bucket.rate().fraction()?;
                (Self::Gcra, permits, period_ns)
            }
            AnyPolicy::SlidingLog(log) => {
                let name =
                    if log.resolution_ns() > 1 { Self::CompactLog } else { Self::SlidingLog };
                (name, log.permits(), log.held_for_ns())
            }
            AnyPolicy::FixedWindow(window) => match window.windows() {
                Windows::Even { period_ns, .. } => {
                    (Self::FixedWindow, window.permits(), period_ns.get())
                }
                Windows::Of(_) => (Self::Calendar, window.permits(), 0),
            },
            AnyPolicy::Concurrency(permits) => (Self::Concurrency, permits.permits(), 0),
            _ => return None,
        })
    }
}

/// The numbers of a limit besides its permits and their period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    /// The permits at once after silence.
    pub(crate) burst: Option<u64>,
}

impl Extra {
    /// Checks the numbers for errors that do not depend on the limit. Returns the key of the wrong
    /// one with what is wrong.
    pub(crate) fn check(self, algorithm: Algorithm) -> Result<(), (&'static str, String)> {
        let checked = self.burst.map_or(Ok(()), |burst| check_burst(algorithm, burst));
        checked.map_err(|complaint| ("burst", complaint))
    }
}

/// A limit as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// No limit.
    Unlimited,
    /// No limit, as if no rule matched.
    Exempt,
    /// Every request is denied.
    Nothing(DisplayLimit),
    /// A number of permits in each period.
    Per { permits: Permits, period_ns: u64, display_limit: DisplayLimit },
    /// A number of permits in each window of a calendar.
    Calendar { permits: u64, spec: CalendarSpec },
    /// A number of permits in flight at a time.
    AtOnce(u64),
}

/// The number of permits in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permits {
    Whole(u64),
    /// A number with decimals.
    Fractional(Rate),
}

/// The displayed limit of an unlimited rule, which counts nothing.
pub(crate) const UNLIMITED: DisplayLimit =
    DisplayLimit { permits: 4_294_967_295, multiplier: 1, unit: Unit::Second };
/// The displayed limit where every request is denied.
pub(crate) const NOTHING: DisplayLimit =
    DisplayLimit { permits: 0, multiplier: 1, unit: Unit::Second };
const SECOND_NS: u64 = 1_000_000_000;
const NOT_SHOWN: &str = "a limit whose numbers over whole seconds do not fit in 64 bits";

impl Written {
    /// Parses `100/min`, `1000/10s`, `0.5/s`, `never`, `unlimited` or `exempt`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "never" => return Ok(Self::Nothing(NOTHING)),
            "unlimited" => return Ok(Self::Unlimited),
            "exempt" => return Ok(Self::Exempt),
            _ => {}
        }
        let rate: Rate = text.parse().map_err(|error: RateError| match meant(text) {
            Some(meant) => format!("{error}; did you mean {meant:?}?"),
            None => error.to_string(),
        })?;
        let parts = text.split_once('/').or_else(|| text.split_once(" per "));
        let (number, period) = parts.unwrap_or((text, ""));
        let period_ns = span::parse_period(period).map_err(|error| error.to_string())?;
        let (permits, per, over_ns) = match (number.parse(), rate.fraction()) {
            (Ok(whole), _) => (Permits::Whole(whole), whole, period_ns),
            (Err(_), Some((permits, per_ns))) => (Permits::Fractional(rate), permits, per_ns),
            (Err(_), None) => return Err(RateError::Malformed.to_string()),
        };
        let display_limit = display_limit(per, over_ns).ok_or(NOT_SHOWN)?;
        Ok(Self::Per { permits, period_ns, display_limit })
    }

    /// Creates a limit of `permits` in each `multiplier` of a unit.
    pub(crate) fn per_unit(permits: u64, multiplier: u64, unit: Unit) -> Result<Self, String> {
        let display_limit = DisplayLimit { permits, multiplier, unit };
        if permits == 0 {
            return Ok(Self::Nothing(display_limit));
        }
        let seconds = unit.seconds().checked_mul(multiplier);
        match seconds.and_then(|seconds| seconds.checked_mul(SECOND_NS)) {
            Some(0) => Err("a limit over a period of 0".to_owned()),
            Some(period_ns) => {
                Ok(Self::Per { permits: Permits::Whole(permits), period_ns, display_limit })
            }
            None => Err("a limit over more than 584 years".to_owned()),
        }
    }

    /// Returns the limit, and its displayed form.
    pub(crate) fn build(
        self,
        algorithm: Algorithm,
        extra: Extra,
    ) -> Result<(Limit, DisplayLimit), String> {
        extra.check(algorithm).map_err(|(_, complaint)| complaint)?;
        match self {
            Self::Unlimited | Self::Exempt | Self::Nothing(_) if extra.burst.is_some() => {
                Err("a burst without a rate; leave it out".to_owned())
            }
            Self::Unlimited => Ok((Limit::Unlimited, UNLIMITED)),
            Self::Exempt => Ok((Limit::Exempt, UNLIMITED)),
            Self::Nothing(display_limit) if algorithm == Algorithm::CountedWindow => {
                let seconds = display_limit.unit.seconds().saturating_mul(display_limit.multiplier);
                let period_ns = seconds.saturating_mul(SECOND_NS);
                Ok((counted(Permits::Whole(0), period_ns)?, display_limit))
            }
            Self::Nothing(display_limit) => Ok((Limit::Nothing, display_limit)),
            Self::AtOnce(permits) if algorithm == Algorithm::Concurrency => {
                let policy = Concurrency::try_new(permits).map_err(|error| error.to_string())?;
                Ok((Limit::Policy(policy.into()), at_a_time(permits)))
            }
            Self::AtOnce(permits) => Err(format!(
                "the limit has no period: write \"{permits}/min\", or algorithm = \"concurrency\""
            )),
            Self::Calendar { permits, spec } if algorithm == Algorithm::Calendar => {
                let policy = spec.quota(permits).map_err(|error| error.to_string())?;
                Ok((Limit::Policy(policy.into()), calendar::display_limit(permits, &spec)))
            }
            Self::Calendar { .. } => {
                Err("windows of a calendar are for algorithm = \"calendar\"".to_owned())
            }
            Self::Per { permits, period_ns, display_limit } => {
                let limit = match algorithm {
                    Algorithm::CountedWindow => counted(permits, period_ns)?,
                    _ => Limit::Policy(policy(algorithm, permits, period_ns, extra)?),
                };
                Ok((limit, display_limit))
            }
        }
    }
}

/// Checks a burst for errors that do not depend on the limit.
fn check_burst(algorithm: Algorithm, burst: u64) -> Result<(), String> {
    match (algorithm, burst) {
        (Algorithm::Gcra, 0) => Err("a burst is at least 1 permit".to_owned()),
        (Algorithm::Gcra, _) => Ok(()),
        _ => Err("a burst belongs to the algorithm \"gcra\"; leave out one of the two".to_owned()),
    }
}

/// Returns the displayed form of a limit of concurrency, which has no period.
const fn at_a_time(permits: u64) -> DisplayLimit {
    DisplayLimit { permits, multiplier: 0, unit: Unit::Second }
}

/// Creates a window that counts every hit.
fn counted(permits: Permits, period_ns: u64) -> Result<Limit, String> {
    let whole = match permits {
        Permits::Whole(whole) => u32::try_from(whole).ok(),
        Permits::Fractional(_) => None,
    };
    let whole = whole.ok_or_else(|| {
        format!("a counted window has a whole number of permits, up to {}", u32::MAX)
    })?;
    let window = CountedWindow::new(whole, period_ns).map_err(|error| error.to_string())?;
    Ok(Limit::Counted(window))
}

fn policy(
    algorithm: Algorithm,
    permits: Permits,
    period_ns: u64,
    extra: Extra,
) -> Result<AnyPolicy, String> {
    let text = |error: rategate::error::LimitError| error.to_string();
    let whole = |what: &str| match permits {
        Permits::Whole(whole) => Ok(whole),
        Permits::Fractional(_) => {
            Err(format!("{what} counts whole permits: write a number without decimals"))
        }
    };
    let period = Duration::from_nanos(period_ns);
    Ok(match algorithm {
        Algorithm::Gcra => {
            let (rate, at_once) = match permits {
                Permits::Whole(whole) => {
                    (Rate::new(whole, period).map_err(|error| error.to_string())?, whole)
                }
                // The smallest burst with which as many permits pass as are written.
                Permits::Fractional(rate) => (rate, permits_in_period(rate, period_ns)),
            };
            Gcra::new(rate, extra.burst.unwrap_or(at_once)).map_err(text)?.into()
        }
        Algorithm::SlidingLog => {
            SlidingLog::try_new(whole("a sliding log")?, period).map_err(text)?.into()
        }
        Algorithm::CompactLog => {
            SlidingLog::try_new(whole("a log")?, period).map_err(text)?.compact().into()
        }
        Algorithm::FixedWindow => {
            let permits = whole("a window")?;
            FixedWindow::try_new(permits, period, Anchor::Epoch).map_err(text)?.into()
        }
        Algorithm::Calendar => {
            return Err("a calendar has a limit like { permits = 1000, per = \"month\", \
                        zone = \"Europe/Rome\" }"
                .to_owned());
        }
        Algorithm::Concurrency | Algorithm::CountedWindow => {
            return Err("permits at a time have no period: write a number alone, limit = 10".into());
        }
    })
}

/// Returns the number of permits of a rate in a period, rounded up.
fn permits_in_period(rate: Rate, period_ns: u64) -> u64 {
    let Some((permits, per_ns)) = rate.fraction() else { return 1 };
    let scaled = u128::from(permits).saturating_mul(period_ns.into());
    u64::try_from(scaled.div_ceil(per_ns.into())).unwrap_or(u64::MAX).max(1)
}

/// Returns a fraction over whole seconds, in the largest unit up to a day that divides them.
fn display_limit(permits: u64, period_ns: u64) -> Option<DisplayLimit> {
    let scale = SECOND_NS.checked_div(gcd(period_ns, SECOND_NS))?;
    let permits = permits.checked_mul(scale)?;
    let over_ns = u128::from(period_ns).checked_mul(scale.into())?;
    let seconds = u64::try_from(over_ns.checked_div(SECOND_NS.into())?).ok()?;
    let units = [Unit::Day, Unit::Hour, Unit::Minute, Unit::Second];
    let unit = units.into_iter().find(|unit| seconds.is_multiple_of(unit.seconds()))?;
    Some(DisplayLimit { permits, multiplier: seconds.checked_div(unit.seconds())?, unit })
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while let Some(rest) = a.checked_rem(b) {
        (a, b) = (b, rest);
    }
    a
}
