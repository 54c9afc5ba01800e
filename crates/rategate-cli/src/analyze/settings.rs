//! Conversion of the arguments to policies and numbers, with the checks.

use std::time::Duration;

use rategate::policy::Anchor;
use rategate::{AnyPolicy, CompactLog, FixedWindow, Gcra, Rate};
use rategate_core::span;

use super::args::{AnalyzeArgs, PolicyKind};
use crate::amount::Amount;
use crate::failure::Failure;

/// The interval at which a followed log is read.
pub(super) const POLL_NS: u64 = 200_000_000;

/// The limits and settings from the arguments.
#[derive(Debug)]
pub(super) struct Settings {
    /// The main limit first, then those of `--at-most`.
    pub(super) policies: Vec<AnyPolicy>,
    /// The limit in words, for the report.
    pub(super) title: String,
    /// A call takes as many permits as its response has bytes, instead of one.
    pub(super) in_bytes: bool,
    pub(super) period_ns: u64,
    pub(super) hold_ns: u64,
    pub(super) ahead: Option<Ahead>,
    /// The time until a denial is listed; `None` where it is measured, or no list is used.
    pub(super) delay_ns: Option<u64>,
    pub(super) set_aside: Share,
    pub(super) spare: Share,
    pub(super) statuses: Statuses,
}

impl Settings {
    pub(super) fn of(args: &AnalyzeArgs) -> Result<Self, Failure> {
        let limit = Window::parse("LIMIT", &args.limit)?;
        let burst = args.burst.as_deref().map(|text| burst(args, text, limit)).transpose()?;
        let fail = |error| Failure::argument("LIMIT", &args.limit, error);
        let first = match args.policy {
            PolicyKind::Log => limit.log("LIMIT", &args.limit)?,
            PolicyKind::Fixed => {
                let window = FixedWindow::try_new(
                    limit.permits,
                    Duration::from_nanos(limit.period_ns),
                    Anchor::Epoch,
                );
                window.map_err(|error| fail(error.to_string()))?.into()
            }
            PolicyKind::Gcra => {
                let rate = Rate::new(limit.permits, Duration::from_nanos(limit.period_ns));
                let rate = rate.map_err(|error| fail(error.to_string()))?;
                let bucket = Gcra::new(rate, burst.unwrap_or(limit.permits));
                bucket.map_err(|error| fail(error.to_string()))?.into()
            }
        };
        let mut policies = vec![first];
        let mut title = title(args, limit, burst);
        for text in &args.at_most {
            let window = Window::parse("--at-most", text)?;
            if window.in_bytes != limit.in_bytes {
                let complaint = "counts something else than LIMIT; use calls for both, or bytes";
                return Err(Failure::argument("--at-most", text, complaint));
            }
            policies.push(window.log("--at-most", text)?);
            title.extend([", at most ", text]);
        }
        let hold_ns = match args.hold.as_deref() {
            None => limit.period_ns,
            Some(text) => duration("--hold", text)?,
        };
        let delay_ns = delay(args)?;
        let ahead =
            args.ahead.as_deref().map(|text| Ahead::parse(args, text, limit)).transpose()?;
        Ok(Self {
            policies,
            title,
            in_bytes: limit.in_bytes,
            period_ns: limit.period_ns,
            hold_ns,
            ahead,
            delay_ns,
            set_aside: Share::parse("--set-aside", &args.set_aside)?,
            spare: Share::parse("--spare", &args.spare)?,
            statuses: Statuses::parse(args.status.as_deref())?,
        })
    }
}

fn title(args: &AnalyzeArgs, limit: Window, burst: Option<u64>) -> String {
    let text = &args.limit;
    match args.policy {
        PolicyKind::Log => format!("at most {text} in any window"),
        PolicyKind::Fixed => format!("at most {text} in each window of a grid"),
        PolicyKind::Gcra => {
            format!("a token bucket of {}, refilled by {text}", burst.unwrap_or(limit.permits))
        }
    }
}

fn burst(args: &AnalyzeArgs, text: &str, limit: Window) -> Result<u64, Failure> {
    let fail = |complaint: &dyn std::fmt::Display| Failure::argument("--burst", text, complaint);
    if args.policy != PolicyKind::Gcra {
        return Err(fail(&"only a token bucket has a burst; add --policy gcra"));
    }
    let amount = Amount::parse(text).map_err(|error| fail(&error))?;
    if amount.in_bytes != limit.in_bytes {
        return Err(fail(&"counts something else than LIMIT; use calls for both, or bytes"));
    }
    amount.whole().map_err(|error| fail(&error))
}

fn duration(name: &str, text: &str) -> Result<u64, Failure> {
    span::parse(text).map_err(|error| Failure::argument(name, text, error))
}

/// Returns the time until a denial is listed, unless it is measured. Options for a list are
/// refused without one.
fn delay(args: &AnalyzeArgs) -> Result<Option<u64>, Failure> {
    let is_listed = args.gate.is_some() || args.delay.is_some();
    for (name, is_given) in [("--hold", args.hold.is_some()), ("--ahead", args.ahead.is_some())] {
        if is_given && !is_listed {
            let complaint =
                "is about a deny list; add --gate FILE, or --delay DUR for the report alone";
            return Err(Failure::Usage(format!("{name} {complaint}")));
        }
    }
    match args.delay.as_deref() {
        Some(_) if args.follow => Err(Failure::Usage(
            "--delay is for logs that are read to their end; --follow measures the delay"
                .to_owned(),
        )),
        Some(text) => duration("--delay", text).map(Some),
        None => Ok((is_listed && !args.follow).then_some(POLL_NS)),
    }
}

/// The time a caller is listed before it would be over the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ahead {
    /// A fixed time, in nanoseconds.
    By(u64),
    /// The measured time until a denial is listed, up to this maximum in nanoseconds.
    Measured(u64),
}

impl Ahead {
    fn parse(args: &AnalyzeArgs, text: &str, limit: Window) -> Result<Self, Failure> {
        // The recent past predicts only the near future.
        let max_ns = limit.period_ns.div_euclid(4);
        if text == "auto" {
            if !args.follow {
                let complaint = "measured with --follow only; write a duration, as in \"2s\"";
                return Err(Failure::argument("--ahead", text, complaint));
            }
            return Ok(Self::Measured(max_ns));
        }
        let ns = duration("--ahead", text)?;
        if ns > max_ns {
            let most = span::Text(max_ns);
            let complaint =
                format!("longer than a quarter of the period; it must be at most {most}");
            return Err(Failure::argument("--ahead", text, complaint));
        }
        Ok(Self::By(ns))
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
    fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let fail = |complaint: &dyn std::fmt::Display| Failure::argument(name, text, complaint);
        let (amount, period) = text.split_once('/').ok_or_else(|| {
            fail(&"not a limit; write N/PERIOD, as in \"100/min\", \"5/10s\" or \"10MB/min\"")
        })?;
        let amount = Amount::parse(amount).map_err(|error| fail(&error))?;
        let permits = amount.whole().map_err(|error| fail(&error))?;
        let period_ns = match span::unit_ns(period) {
            Some(unit_ns) => unit_ns,
            None => span::parse(period)
                .map_err(|error| fail(&format_args!("the period after the slash: {error}")))?,
        };
        Ok(Self { permits, period_ns, in_bytes: amount.in_bytes })
    }

    /// Returns a log exact to the nanosecond: its memory depends on the number of distinct
    /// instants, and logs have few.
    fn log(self, name: &str, text: &str) -> Result<AnyPolicy, Failure> {
        let log = CompactLog::try_new(self.permits, Duration::from_nanos(self.period_ns));
        Ok(log.map_err(|error| Failure::argument(name, text, error))?.exact().into())
    }
}

/// A part of a whole, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share(pub(super) u32);

impl Share {
    fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let fail = || {
            let complaint =
                "not a share; write a percentage from 0% to 100%, with up to four decimals";
            Failure::argument(name, text, complaint)
        };
        let percent = text.strip_suffix('%').ok_or_else(fail)?;
        let (whole, decimals) = percent.split_once('.').unwrap_or((percent, "0"));
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) || decimals.len() > 4 {
            return Err(fail());
        }
        let millionths = format!("{whole}{decimals:0<4}").parse().ok();
        millionths.filter(|share| *share <= 1_000_000).map(Self).ok_or_else(fail)
    }

    /// Returns this part of `count`, rounded up.
    pub(super) fn of_rounded_up(self, count: usize) -> usize {
        let count = u128::try_from(count).unwrap_or(u128::MAX);
        let piece = count.saturating_mul(self.0.into()).div_ceil(1_000_000);
        usize::try_from(piece).unwrap_or(usize::MAX)
    }
}

/// The statuses that are counted.
#[derive(Debug)]
pub(super) struct Statuses(Option<Vec<(u16, u16)>>);

impl Statuses {
    fn parse(text: Option<&str>) -> Result<Self, Failure> {
        let Some(text) = text else { return Ok(Self(None)) };
        let range = |piece: &str| match piece.as_bytes() {
            [class @ b'1'..=b'9', b'x' | b'X', b'x' | b'X'] => {
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
        let ranges = ranges.ok_or_else(|| Failure::argument("--status", text, complaint))?;
        Ok(Self(Some(ranges)))
    }

    /// Returns `true` if a line with this status is counted. With `--status`, a line without one
    /// is not.
    pub(super) fn has(&self, status: Option<u16>) -> bool {
        let Some(ranges) = &self.0 else { return true };
        let within = |status: u16| ranges.iter().any(|(from, to)| (*from..=*to).contains(&status));
        status.is_some_and(within)
    }
}
