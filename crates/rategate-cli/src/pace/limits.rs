//! Conversion of the arguments to policies, with the checks.

use std::time::Duration;

use rategate::error::{LimitError, PolicyTextError, RateError};
use rategate::policy::{DampingShift, Mode, Ratio};
use rategate::{AnyPolicy, Gcra, Rate, SlidingLog, SlowStart, TwoTimeline, WarmUp};
use rategate_analyze::{Amount, AmountError};
use rategate_core::ledger::Ledger;
use rategate_core::span;
use rategate_core::two_timeline::{DEFAULT_CATCH_UP_NS, DEFAULT_MIN_SLEEP_NS};

use super::jobs::Jobs;
use super::shape::{Due, due};
use crate::args::PaceArgs;
use crate::failure::Failure;

/// The maximum time that a chunk of bytes is worth.
const CHUNK_NS: u128 = 10_000_000;
const MAX_CHUNK: u64 = 65_536;
const POLICIES: &str = "one of average, strict, burst=1.5, damped=0.25, gcra, pacer, warm-up=30s";

/// The unit of permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Lines,
    Bytes,
}

/// The limits and settings from the arguments.
pub(crate) struct Settings {
    pub(crate) unit: Unit,
    pub(crate) policies: Vec<AnyPolicy>,
    /// The instants of a shape, in place of a rate.
    pub(crate) due: Option<Due>,
    /// The maximum number of permits taken at once: one for a line.
    pub(crate) chunk: u64,
    /// The number of commands that run at a time.
    pub(crate) jobs: Jobs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Paced(Mode),
    Gcra,
    /// The period, in nanoseconds.
    WarmUp(u64),
}

impl Settings {
    pub(crate) fn of(args: &PaceArgs) -> Result<Self, Failure> {
        match (&args.rate, &args.shape) {
            (Some(rate), None) => Self::of_rate(args, rate),
            (None, Some(shape)) => Self::of_shape(args, shape),
            (Some(rate), Some(_)) => {
                let complaint = "--shape has the rate; leave out one of the two";
                Err(Failure::argument("RATE", rate, complaint))
            }
            (None, None) => {
                let complaint = "there is no rate; write a RATE as in 5/s, or a --shape";
                Err(Failure::Usage(complaint.to_owned()))
            }
        }
    }

    /// Paces lines by a shape, which leaves no choice of a policy.
    fn of_shape(args: &PaceArgs, shape: &str) -> Result<Self, Failure> {
        for (name, value) in [
            ("--burst", &args.burst),
            ("--catch-up", &args.catch_up),
            ("--policy", &args.policy),
            ("--slow-start", &args.slow_start),
        ] {
            if let Some(value) = value {
                let complaint = "it belongs to a RATE; a shape says when each line is due, and \
                                 what is late passes at once, in order; leave out one of the two";
                return Err(Failure::argument(name, value, complaint));
            }
        }
        let jobs = jobs(args)?;
        let due = due(shape, args.split.as_deref())?;
        let windows = args.at_most.iter().map(|text| Ok(window(text, Unit::Lines)?.into()));
        let policies = windows.collect::<Result<_, Failure>>()?;
        Ok(Self { unit: Unit::Lines, policies, due: Some(due), chunk: 1, jobs })
    }

    fn of_rate(args: &PaceArgs, text: &str) -> Result<Self, Failure> {
        if let Some(split) = &args.split {
            let complaint =
                "it splits the instants of a --shape; write a RATE of this machine alone";
            return Err(Failure::argument("--split", split, complaint));
        }
        let (rate, unit) = rate(text)?;
        let unit = if rate == Rate::UNLIMITED { unit_beside_unlimited(args) } else { unit };
        if rate == Rate::NEVER {
            let complaint = "nothing would ever pass; write a rate above zero, as in \"5/s\"";
            return Err(Failure::argument("RATE", text, complaint));
        }
        if let (Some(slow_start), true) = (&args.slow_start, rate == Rate::UNLIMITED) {
            let complaint = "an unlimited rate cannot begin slowly; write a RATE, as in \"5/s\"";
            return Err(Failure::argument("--slow-start", slow_start, complaint));
        }
        let choice = choice(args)?;
        check_together(args, unit, choice)?;
        let jobs = jobs(args)?;
        if unit == Unit::Bytes && !args.command.is_empty() {
            let complaint =
                "a command takes a line, not bytes; write a rate of lines, as in \"5/s\"";
            return Err(Failure::argument("RATE", text, complaint));
        }

        let mut policies = vec![slow(args, policy(args, rate, unit, choice)?)?];
        let worth = ten_ms_worth(rate);
        if let (Some(catch_up), Unit::Bytes) = (&args.catch_up, unit)
            && largest_chunk(&policies, worth) < worth
        {
            let complaint = "bytes go in chunks worth 10 ms, and this is less than one; write \
                             10ms or more";
            return Err(Failure::argument("--catch-up", catch_up, complaint));
        }
        for text in &args.at_most {
            policies.push(window(text, unit)?.into());
        }
        let chunk = match unit {
            Unit::Lines => 1,
            Unit::Bytes => largest_chunk(&policies, worth),
        };
        Ok(Self { unit, policies, due: None, chunk, jobs })
    }
}

/// Parses RATE, and its unit: lines or bytes.
pub(crate) fn rate(text: &str) -> Result<(Rate, Unit), Failure> {
    let fail = |complaint: &dyn std::fmt::Display| Failure::argument("RATE", text, complaint);
    let refuse = |error| match error {
        RateError::Zero => fail(&"a rate of zero permits; a rate is above zero, as in \"5/s\""),
        RateError::Negative => fail(&"a rate is above zero, as in \"5/s\""),
        error => fail(&error),
    };
    let lines = || text.parse().map(|rate| (rate, Unit::Lines)).map_err(refuse);
    let Some((amount, period)) = text.split_once('/') else {
        return match Amount::parse(text) {
            Ok(_) => {
                let what = format!("not a rate; write N/PERIOD, as in \"{text}/s\"");
                Err(fail(&what))
            }
            Err(_) => lines(),
        };
    };
    match Amount::parse(amount) {
        Ok(amount) if amount.in_bytes() => match format!("{amount}/{period}").parse() {
            Ok(rate) => Ok((rate, Unit::Bytes)),
            Err(error) => Err(refuse(error)),
        },
        // `k`, `M` and `G` are factors of a number of lines, as in every rate.
        Err(error @ AmountError::UnknownUnit) => lines().map_err(|_| fail(&error)),
        Err(_) if amount.strip_prefix('-').is_some_and(|rest| Amount::parse(rest).is_ok()) => {
            Err(refuse(RateError::Negative))
        }
        // The rate's own parser has the better messages for all else.
        Ok(_) | Err(_) => lines(),
    }
}

/// Returns the unit for an unlimited rate, which the other amounts determine. A command takes
/// lines.
fn unit_beside_unlimited(args: &PaceArgs) -> Unit {
    let windows = args.at_most.iter().filter_map(|window| Some(window.split_once('/')?.0));
    let mut amounts = windows.chain(args.burst.as_deref());
    let in_bytes = |amount| Amount::parse(amount).is_ok_and(Amount::in_bytes);
    if args.command.is_empty() && amounts.any(in_bytes) { Unit::Bytes } else { Unit::Lines }
}

fn choice(args: &PaceArgs) -> Result<Choice, Failure> {
    let Some(text) = args.policy.as_deref() else {
        let average = Choice::Paced(Mode::Average);
        return Ok(if args.burst.is_some() { Choice::Gcra } else { average });
    };
    let fail = |complaint: &dyn std::fmt::Display| Failure::argument("--policy", text, complaint);
    match text.split_once('=') {
        None => match text {
            "average" => Ok(Choice::Paced(Mode::Average)),
            "strict" => Ok(Choice::Paced(Mode::Strict)),
            "gcra" => Ok(Choice::Gcra),
            "pacer" => Ok(Choice::Paced(Mode::Batched { min_sleep_ns: DEFAULT_MIN_SLEEP_NS })),
            "burst" => Err(fail(&"the factor over the rate is missing; write burst=1.5")),
            "warm-up" => Err(fail(&"the period is missing; write warm-up=30s")),
            "damped" => Err(fail(&"the part of a gap to drop is missing; write damped=0.25")),
            _ => Err(fail(&format_args!("no such policy; it is {POLICIES}"))),
        },
        Some(("burst", ratio)) => match ratio.parse::<Ratio>() {
            Ok(ratio) => Ok(Choice::Paced(Mode::Burst(ratio))),
            Err(error) => Err(fail(&error)),
        },
        Some(("damped", value)) => {
            let value = value.parse().map_err(|_| fail(&LimitError::Damping))?;
            let shift = DampingShift::from_ratio(value).map_err(|error| fail(&error))?;
            Ok(Choice::Paced(Mode::Damped { shift }))
        }
        Some(("warm-up", period)) => match span::parse(period) {
            Ok(period_ns) => Ok(Choice::WarmUp(period_ns)),
            Err(error) => Err(fail(&error)),
        },
        Some(("average" | "strict" | "gcra" | "pacer", _)) => {
            Err(fail(&"this policy takes no number; leave the part from \"=\" on out"))
        }
        Some(_) => Err(fail(&format_args!("no such policy; it is {POLICIES}"))),
    }
}

/// Checks arguments that are valid alone but contradict each other.
fn check_together(args: &PaceArgs, unit: Unit, choice: Choice) -> Result<(), Failure> {
    let policy = args.policy.as_deref().unwrap_or_default();
    if let (Some(burst), true) = (&args.burst, choice != Choice::Gcra) {
        let complaint = format!(
            "a burst belongs to --policy gcra, not to {policy}; leave out one of the two, or write \
             --policy burst=1.5 to make up for lost time at 1.5 times the rate"
        );
        return Err(Failure::argument("--burst", burst, complaint));
    }
    if let Some(catch_up) = &args.catch_up {
        let fail = |complaint| Err(Failure::argument("--catch-up", catch_up, complaint));
        match choice {
            Choice::Gcra => {
                return fail("a token bucket catches up by its burst; write --burst N alone");
            }
            Choice::Paced(Mode::Strict) | Choice::WarmUp(_) => {
                let complaint = "this policy makes up for nothing; leave out one of the two";
                return fail(complaint);
            }
            Choice::Paced(_) => {}
        }
    }
    let is_spaced =
        matches!(choice, Choice::Paced(Mode::Strict | Mode::Burst(_)) | Choice::WarmUp(_));
    if unit == Unit::Bytes && is_spaced {
        let complaint = "this policy spaces single permits, and bytes go in chunks; it is average, \
                         damped=0.25, gcra or pacer for bytes";
        return Err(Failure::argument("--policy", policy, complaint));
    }
    Ok(())
}

fn policy(args: &PaceArgs, rate: Rate, unit: Unit, choice: Choice) -> Result<AnyPolicy, Failure> {
    let catch_up_ns = match args.catch_up.as_deref() {
        None => Some(DEFAULT_CATCH_UP_NS),
        Some("unbounded") => None,
        Some(text) => {
            let parsed = span::parse(text);
            Some(parsed.map_err(|error| Failure::argument("--catch-up", text, error))?)
        }
    };
    Ok(match choice {
        Choice::Paced(mode) => {
            TwoTimeline::new(rate, mode, catch_up_ns.map(Duration::from_nanos)).into()
        }
        Choice::WarmUp(period_ns) => {
            let text = args.policy.as_deref().unwrap_or_default();
            let fail = |error| Failure::argument("--policy", text, error);
            if rate == Rate::UNLIMITED {
                let complaint = "an unlimited rate is warm at once; write a RATE, as in 100/s";
                return Err(Failure::argument("--policy", text, complaint));
            }
            WarmUp::new(rate, Duration::from_nanos(period_ns)).map_err(fail)?.into()
        }
        Choice::Gcra => {
            let text = args.burst.as_deref().unwrap_or_default();
            let fail = |error| Failure::argument("--burst", text, error);
            let burst = match (&args.burst, unit) {
                (Some(text), _) => amount("--burst", text, text, unit)?,
                (None, Unit::Lines) => 1,
                (None, Unit::Bytes) => ten_ms_worth(rate),
            };
            Gcra::new(rate, burst).map_err(fail)?.into()
        }
    })
}

/// Returns the policy with the slow start of the arguments, if they have one.
fn slow(args: &PaceArgs, policy: AnyPolicy) -> Result<AnyPolicy, Failure> {
    let Some(text) = args.slow_start.as_deref() else { return Ok(policy) };
    let fail =
        |complaint: &dyn std::fmt::Display| Failure::argument("--slow-start", text, complaint);
    let period_ns = span::parse(text).map_err(|error| fail(&error))?;
    let slow = SlowStart::new(policy, Duration::from_nanos(period_ns));
    let slow = slow.map_err(|error| match error {
        LimitError::NotTimed => {
            fail(&"a warm-up begins slowly by itself; leave out one of the two")
        }
        error => fail(&error),
    })?;
    Ok(slow.into())
}

/// Parses `N/PERIOD`, or `N per any PERIOD`, as a window.
fn window(text: &str, unit: Unit) -> Result<SlidingLog, Failure> {
    let fail = |complaint: &dyn std::fmt::Display| Failure::argument("--at-most", text, complaint);
    if text.contains(" per any ") && unit == Unit::Lines {
        return text.parse().map_err(|error: PolicyTextError| fail(&error));
    }
    let (permits, period) = text
        .split_once('/')
        .ok_or_else(|| fail(&"not a window; write N/PERIOD, as in \"5/1s\" or \"100/min\""))?;
    let permits = amount("--at-most", text, permits, unit)?;
    let period_ns = span::parse_period(period)
        .map_err(|error| fail(&format_args!("the period after the slash: {error}")))?;
    SlidingLog::try_new(permits, Duration::from_nanos(period_ns)).map_err(|error| fail(&error))
}

/// Parses `value` of the argument `name` as a whole number in the rate's unit.
fn amount(name: &str, text: &str, value: &str, unit: Unit) -> Result<u64, Failure> {
    let amount = Amount::parse(value).map_err(|error| Failure::argument(name, text, error))?;
    match (unit, amount.in_bytes()) {
        (Unit::Bytes, false) => {
            let complaint = "bytes are counted, so this needs a unit, as in \"64KiB\"";
            Err(Failure::argument(name, text, complaint))
        }
        (Unit::Lines, true) => {
            let complaint = "this counts lines, so it is a number without a unit";
            Err(Failure::argument(name, text, complaint))
        }
        _ => amount.whole().map_err(|error| Failure::argument(name, text, error)),
    }
}

fn jobs(args: &PaceArgs) -> Result<Jobs, Failure> {
    let Some(text) = args.jobs.as_deref() else { return Ok(Jobs::AtMost(1)) };
    if args.command.is_empty() {
        let complaint = "nothing to run; write the command behind --, as in \"-- echo {}\"";
        return Err(Failure::argument("--jobs", text, complaint));
    }
    Jobs::parse(text)
}

fn ten_ms_worth(rate: Rate) -> u64 {
    let Some((permits, period_ns)) = rate.fraction() else { return MAX_CHUNK };
    let worth = u128::from(permits).saturating_mul(CHUNK_NS).checked_div(period_ns.into());
    worth.and_then(|worth| u64::try_from(worth).ok()).unwrap_or(MAX_CHUNK).clamp(1, MAX_CHUNK)
}

/// Returns the maximum part of `chunk` that all `policies` can pass at once.
fn largest_chunk(policies: &[AnyPolicy], chunk: u64) -> u64 {
    let limit = Ledger::new(policies, 0);
    let mut chunk = chunk;
    while let Err(error) = limit.peek(0, chunk) {
        chunk = error.max.min(chunk.saturating_sub(1));
    }
    chunk
}
