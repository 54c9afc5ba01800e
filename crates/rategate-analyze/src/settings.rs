//! The settings of an analysis: the limit, the callers and lines that count, and a deny list.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rategate_core::any_policy::AnyPolicy;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::rate::Rate;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::span;

use crate::amount::Amount;
use crate::key::CallerKey;
use crate::log::Dialect;

/// The interval at which a followed log is read, and its deny list published.
pub const POLL: Duration = Duration::from_millis(200);

const OTHER_UNIT: &str = "counts something else than the limit; use calls for both, or bytes";

/// The settings of an analysis, as plain data.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The limit of each caller.
    pub limit: Limit,
    /// The part of a line that identifies the caller.
    pub key: CallerKey,
    /// The number of leading bits by which IPv4 addresses are grouped into one caller, up to 32.
    pub group_v4: u8,
    /// The number of leading bits by which IPv6 addresses are grouped into one caller, up to 128.
    pub group_v6: u8,
    /// The format of the lines.
    pub dialect: Dialect,
    /// The statuses of the lines that count.
    pub statuses: Statuses,
    /// The maximum number of callers tracked by name.
    pub max_callers: usize,
    /// The maximum number of callers in each ranking.
    pub top: usize,
    /// The share of callers not counted as well-behaved: those with the fullest windows.
    pub set_aside: Share,
    /// The share of the others of which the suggested limit denies fewer.
    pub spare: Share,
    /// The deny list whose effect is reported.
    pub list: Option<ListSettings>,
}

impl Settings {
    /// Creates settings without a deny list, for callers identified by their addresses.
    #[must_use]
    pub fn new(limit: Limit) -> Self {
        Self {
            limit,
            key: CallerKey::Addr,
            group_v4: 32,
            group_v6: 64,
            dialect: Dialect::Auto,
            statuses: Statuses::default(),
            max_callers: 262_144,
            top: 10,
            set_aside: Share(10_000),
            spare: Share(1_000),
            list: None,
        }
    }
}

/// A deny list, published or only assumed for the report.
#[derive(Clone, Copy, Debug)]
pub struct ListSettings {
    /// The time a denial keeps a caller on the list.
    pub hold: Duration,
    /// The time a caller is listed before it would be over the limit.
    pub ahead: Option<Ahead>,
    /// The time from a denial until the list's readers know it, or `None` to measure it.
    pub delay: Option<Duration>,
}

/// The limit of each caller, over calls or over bytes of responses.
#[derive(Clone, Debug)]
pub struct Limit {
    /// The main limit first.
    pub(crate) policies: Vec<AnyPolicy>,
    /// The limit in words, for the report.
    pub(crate) title: String,
    /// A call takes as many permits as its response has bytes, instead of one.
    pub(crate) in_bytes: bool,
    pub(crate) period_ns: u64,
}

impl Limit {
    /// Creates a limit of at most N in any window, from `"100/min"`, `"5/10s"` or `"10MB/min"`.
    ///
    /// # Errors
    ///
    /// [`SettingError`] says what is wrong with the text.
    pub fn any_window(text: &str) -> Result<Self, SettingError> {
        let window = Window::parse(text)?;
        Ok(window.limit(window.log()?, format!("at most {text} in any window")))
    }

    /// Creates a limit of at most N in each window of a grid from 1970 on.
    ///
    /// # Errors
    ///
    /// As [`any_window`](Self::any_window).
    pub fn on_grid(text: &str) -> Result<Self, SettingError> {
        let window = Window::parse(text)?;
        let policy = FixedWindow::try_new(window.permits, window.period(), Anchor::Epoch);
        let policy = policy.map_err(SettingError::new)?;
        Ok(window.limit(policy.into(), format!("at most {text} in each window of a grid")))
    }

    /// Creates a token bucket that N flow into in a period, and that holds N, or `burst`.
    ///
    /// # Errors
    ///
    /// As [`any_window`](Self::any_window), also for the text of the burst.
    pub fn bucket(text: &str, burst: Option<&str>) -> Result<Self, SettingError> {
        let window = Window::parse(text)?;
        let burst = burst.map_or(Ok(window.permits), |burst| {
            window.amount(burst).map_err(|error| {
                SettingError(format!("the burst \"{}\": {error}", burst.escape_debug()))
            })
        })?;
        let rate = Rate::new(window.permits, window.period()).map_err(SettingError::new)?;
        let policy = Gcra::new(rate, burst).map_err(SettingError::new)?;
        Ok(window.limit(policy.into(), format!("a token bucket of {burst}, refilled by {text}")))
    }

    /// Adds a limit of at most N in any window, which counts what this one counts.
    ///
    /// # Errors
    ///
    /// As [`any_window`](Self::any_window).
    pub fn and_at_most(mut self, text: &str) -> Result<Self, SettingError> {
        let window = Window::parse(text)?;
        if window.in_bytes != self.in_bytes {
            return Err(SettingError::new(OTHER_UNIT));
        }
        self.policies.push(window.log()?);
        self.title.extend([", at most ", text]);
        Ok(self)
    }

    /// Returns the period of the main limit.
    #[must_use]
    pub const fn period(&self) -> Duration {
        Duration::from_nanos(self.period_ns)
    }
}

/// A limit of `permits` in any window of `period_ns`.
#[derive(Clone, Copy, Debug)]
struct Window {
    permits: u64,
    period_ns: u64,
    in_bytes: bool,
}

impl Window {
    fn parse(text: &str) -> Result<Self, SettingError> {
        let (amount, period) = text.split_once('/').ok_or_else(|| {
            SettingError::new(
                "not a limit; write N/PERIOD, as in \"100/min\", \"5/10s\" or \"10MB/min\"",
            )
        })?;
        let amount = Amount::parse(amount).map_err(SettingError::new)?;
        let permits = amount.whole().map_err(SettingError::new)?;
        let period_ns = span::parse_period(period)
            .map_err(|error| SettingError(format!("the period after the slash: {error}")))?;
        Ok(Self { permits, period_ns, in_bytes: amount.in_bytes() })
    }

    const fn period(self) -> Duration {
        Duration::from_nanos(self.period_ns)
    }

    /// Parses another number of what this window counts.
    fn amount(self, text: &str) -> Result<u64, SettingError> {
        let amount = Amount::parse(text).map_err(SettingError::new)?;
        if amount.in_bytes() != self.in_bytes {
            return Err(SettingError::new(OTHER_UNIT));
        }
        amount.whole().map_err(SettingError::new)
    }

    /// Returns a log exact to the nanosecond: its memory depends on the number of distinct
    /// instants, and logs have few.
    fn log(self) -> Result<AnyPolicy, SettingError> {
        let log = SlidingLog::try_new(self.permits, self.period());
        Ok(log.map_err(SettingError::new)?.into())
    }

    fn limit(self, policy: AnyPolicy, title: String) -> Limit {
        let Self { in_bytes, period_ns, .. } = self;
        Limit { policies: vec![policy], title, in_bytes, period_ns }
    }
}

/// The time a caller is listed before it would be over the limit.
///
/// The recent past predicts only the near future, so it is at most a quarter of the period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// `None` stands for the measured time until a denial is listed.
    fixed_ns: Option<u64>,
    max_ns: u64,
}

impl Ahead {
    /// Takes a fixed time.
    ///
    /// # Errors
    ///
    /// [`SettingError`] if it is longer than a quarter of the limit's period.
    pub fn by(time: Duration, limit: &Limit) -> Result<Self, SettingError> {
        let Self { max_ns, .. } = Self::measured(limit);
        let fixed_ns = u64::try_from(time.as_nanos()).ok().filter(|ns| *ns <= max_ns);
        let fixed_ns = fixed_ns.ok_or_else(|| {
            let most = span::Text(max_ns);
            SettingError(format!("longer than a quarter of the period; it must be at most {most}"))
        })?;
        Ok(Self { fixed_ns: Some(fixed_ns), max_ns })
    }

    /// Takes the measured time until a denial is listed, up to a quarter of the limit's period.
    #[must_use]
    pub const fn measured(limit: &Limit) -> Self {
        Self { fixed_ns: None, max_ns: limit.period_ns / 4 }
    }

    pub(crate) fn lead_ns(self, measured_ns: impl FnOnce() -> u64) -> u64 {
        self.fixed_ns.unwrap_or_else(measured_ns).min(self.max_ns)
    }
}

/// A part of a whole, in millionths: parsed from `"0.1%"`, and printed so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(pub(crate) u32);

impl Share {
    /// Returns this part of `count`, rounded up.
    pub(crate) fn of_rounded_up(self, count: usize) -> usize {
        let count = u128::try_from(count).unwrap_or(u128::MAX);
        let piece = count.saturating_mul(self.0.into()).div_ceil(1_000_000);
        usize::try_from(piece).unwrap_or(usize::MAX)
    }
}

impl FromStr for Share {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let percent = text.strip_suffix('%').and_then(|percent| Amount::parse(percent).ok());
        let percent = percent.filter(|percent| !percent.in_bytes());
        let millionths = percent.and_then(|percent| percent.times(10_000).ok());
        let share = millionths.and_then(|millionths| u32::try_from(millionths).ok());
        share.filter(|share| *share <= 1_000_000).map(Self).ok_or_else(|| {
            SettingError::new(
                "not a share; write a percentage from 0% to 100%, with up to four decimals",
            )
        })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        span::write_decimal(f, self.0.into(), 10_000)?;
        f.write_str("%")
    }
}

/// The statuses that are counted: all by default, or those of a list as in `"200,404,5xx"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statuses(Option<Vec<(u16, u16)>>);

impl FromStr for Statuses {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let range = |piece: &str| match piece.as_bytes() {
            [class @ b'1'..=b'5', b'x' | b'X', b'x' | b'X'] => {
                let first = u16::from(class.saturating_sub(b'0')).saturating_mul(100);
                Some((first, first.saturating_add(99)))
            }
            [b'0'..=b'9', b'0'..=b'9', b'0'..=b'9'] => {
                piece.parse().ok().map(|status| (status, status))
            }
            _ => None,
        };
        let ranges = text.split(',').map(range).collect::<Option<Vec<_>>>();
        let complaint = "not a list of statuses; write it as in \"200,404,5xx\"";
        Ok(Self(Some(ranges.ok_or_else(|| SettingError::new(complaint))?)))
    }
}

impl Statuses {
    /// Returns `true` if a line with this status is counted. A list does not count lines without
    /// one.
    pub(crate) fn has(&self, status: Option<u16>) -> bool {
        let Some(ranges) = &self.0 else { return true };
        let within = |status: u16| ranges.iter().any(|(from, to)| (*from..=*to).contains(&status));
        status.is_some_and(within)
    }
}

/// The reason why a text is not a setting. It says what is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError(String);

impl SettingError {
    pub(crate) fn new(why: impl fmt::Display) -> Self {
        Self(why.to_string())
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for SettingError {}
