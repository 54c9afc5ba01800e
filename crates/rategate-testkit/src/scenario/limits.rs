//! `[limit]` tables: each policy with its keys and defaults, read and written.

use std::fmt::Write as _;
use std::time::Duration;

use rategate_core::adaptive::{Adaptation, AdaptiveConcurrency, AdaptiveRate, Bounds, Method};
use rategate_core::any_policy::AnyPolicy;
use rategate_core::backfill_pool::BackfillPool;
use rategate_core::commit_log::CommitLog;
use rategate_core::concurrency::Concurrency;
use rategate_core::error::LimitError;
use rategate_core::fixed_window::{Anchor, FixedWindow, Windows};
use rategate_core::gcra::Gcra;
use rategate_core::rate::Rate;
use rategate_core::ratio::Ratio;
use rategate_core::share::Share;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::slow_start::SlowStart;
use rategate_core::span;
use rategate_core::two_timeline::{
    DEFAULT_CATCH_UP_NS, DEFAULT_MIN_SLEEP_NS, DampingShift, Mode, TwoTimeline,
};
use rategate_core::warm_up::WarmUp;
use serde::de::Deserializer;
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use toml::ser::ValueSerializer;

use super::table::{Ns, Table, Text, number, text};
use super::{ScenarioError, one};

/// The limit at first of `adaptive`, within its bounds.
const DEFAULT_FIRST: u32 = 20;

/// Reads one limit from the body of a `[limit]` table, such as `policy = "gcra"` and
/// `rate = "5/s"` on two lines.
///
/// # Errors
///
/// Returns [`ScenarioError`], as for a whole file. Its message names no file.
pub fn policy_from(body: &str) -> Result<AnyPolicy, ScenarioError> {
    LimitTable::new(Table::parse(body)?)?.build()
}

/// Writes a policy as the body of a `[limit]` table, one key on each line, in ASCII.
/// [`policy_from`] reads the same policy back.
///
/// Returns `None` for what no table describes: calendars, schedules that ramp, and
/// ratios without a decimal form, such as 4/3.
///
/// ```
/// use rategate_core::gcra::Gcra;
/// use rategate_testkit::scenario::{policy_body, policy_from};
///
/// let policy = Gcra::per_second(5).burst(3).into();
/// let body = policy_body(&policy).unwrap_or_default();
/// assert!(body.starts_with("policy = \"gcra\"\n") && body.contains("rate = \"5/s\""));
/// assert_eq!(policy_from(&body), Ok(policy));
/// ```
#[must_use]
pub fn policy_body(policy: &AnyPolicy) -> Option<String> {
    let (inner, slow) = match policy {
        AnyPolicy::SlowStart(slow) => (slow.policy(), Some(slow)),
        policy => (*policy, None),
    };
    let body = serde_json::to_value(Body::of(&inner)?).ok()?;
    let (name, keys) = body.as_object()?.iter().next()?;
    let mut text = format!("policy = \"{name}\"");
    for (key, value) in keys.as_object()?.iter().filter(|(_, value)| !value.is_null()) {
        let mut shown = String::new();
        value.serialize(ValueSerializer::new(&mut shown)).ok()?;
        // A string takes whatever is written.
        let _ = write!(text, "\n{key} = {shown}");
    }
    if let Some(slow) = slow {
        let (period, first) = (Ns(slow.period_ns()), slow.first_share());
        let _ = write!(text, "\nslow_start = \"{period}\"\nslow_start_from = \"{first}\"");
    }
    (policy_from(&text).as_ref() == Ok(policy)).then_some(text)
}

/// The table of one limit: that of the file, with the changes of later `set` steps.
#[derive(Clone)]
pub(super) struct LimitTable<'t> {
    policy: String,
    table: Table<'t>,
}

impl<'t> LimitTable<'t> {
    pub(super) fn new(table: Table<'t>) -> Result<Self, ScenarioError> {
        Ok(Self { policy: table.need("policy")?, table })
    }

    /// Returns this limit with some keys of `set` instead of its own.
    fn changed(&self, set: &Table<'t>, is_meant: impl Fn(&str) -> bool) -> Self {
        Self { policy: self.policy.clone(), table: self.table.changed(set, is_meant) }
    }

    /// Returns `true` if the policy has a key of `set`, with whatever value.
    fn has(&self, set: &Table<'t>, key: &str) -> bool {
        let changed = self.changed(set, |other| other == key).build();
        !changed.is_err_and(|error| error.message.starts_with("unknown key"))
    }

    /// Builds the limit from its keys.
    pub(super) fn build(&self) -> Result<AnyPolicy, ScenarioError> {
        let Self { policy, table } = self;
        let read = ["policy", "slow_start", "slow_start_from"];
        let body: Body = table.read_as("policy", policy, &read)?;
        let refused = |error: LimitError| table.error(format_args!("{policy}: {error}"));
        let limit = body.build().map_err(refused)?;
        let first: Option<Percent> = table.get("slow_start_from")?;
        let Some(Ns(period_ns)) = table.get("slow_start")? else {
            return match first {
                None => Ok(limit),
                Some(_) => Err(table.error("needs the key `slow_start`")),
            };
        };
        let slow = SlowStart::new(limit, Duration::from_nanos(period_ns)).map_err(refused)?;
        Ok(first.map_or(slow, |Percent(share)| slow.with_first_share(share)).into())
    }
}

pub(super) fn build_all(tables: &[LimitTable<'_>]) -> Result<Vec<AnyPolicy>, ScenarioError> {
    tables.iter().map(LimitTable::build).collect()
}

/// Copies the keys of a `set` into the limits that have them.
pub(super) fn change<'t>(
    limits: &mut [LimitTable<'t>],
    set: &Table<'t>,
) -> Result<(), ScenarioError> {
    let policy: Option<String> = set.get("policy")?;
    let is_meant = |limit: &LimitTable<'_>| policy.as_ref().is_none_or(|it| *it == limit.policy);
    if let [only] = limits {
        let new = if is_meant(only) {
            only.changed(set, |_| true)
        } else {
            // Another policy has all its keys from here.
            LimitTable::new(set.clone())?
        };
        let follows = new.build()?.can_follow(&only.build()?);
        *only = new;
        return follows.map_err(|error| set.error_at("policy", error));
    }
    let is_unknown = |key: &&String| !limits.iter().any(|limit| limit.has(set, key));
    if let Some(key) = set.names().iter().find(is_unknown) {
        return Err(set.error_at(key, "is a key of no limit here"));
    }
    let mut is_taken = false;
    for limit in limits.iter_mut().filter(|limit| is_meant(limit)) {
        let changed = limit.changed(set, |key| limit.has(set, key));
        is_taken |= policy.is_some() || set.names().iter().any(|key| limit.has(set, key));
        changed.build()?;
        *limit = changed;
    }
    if is_taken { Ok(()) } else { Err(set.error("changes none of the limits")) }
}

/// The keys of a policy, besides `policy` and those of a slow start.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Body {
    Gcra {
        rate: Text<Rate>,
        #[serde(default = "one")]
        burst: u64,
    },
    SlidingLog {
        permits: u64,
        period: Ns,
        #[serde(default)]
        guard: Ns,
        #[serde(default = "shortest")]
        resolution: Ns,
    },
    FixedWindow {
        permits: u64,
        period: Ns,
        #[serde(with = "AnchorWord", default)]
        anchor: Anchor,
    },
    Pacer {
        rate: Text<Rate>,
        min_sleep: Option<Ns>,
        catch_up: Option<CatchUp>,
    },
    TwoTimeline {
        rate: Text<Rate>,
        #[serde(default)]
        mode: ModeWord,
        catch_up: Option<CatchUp>,
    },
    WarmUp {
        rate: Text<Rate>,
        period: Ns,
        cold_factor: Option<Decimal>,
        #[serde(default = "one")]
        max_request: u64,
    },
    BackfillPool {
        pool: u64,
        burst_ratio: Option<Decimal>,
        rate: Option<Text<Rate>>,
    },
    Concurrency {
        permits: u64,
    },
    CommitLog {
        permits: u64,
        period: Ns,
        #[serde(default)]
        guard: Ns,
    },
    Adaptive {
        floor: Option<u32>,
        first: Option<u32>,
        ceiling: u32,
        #[serde(default)]
        method: MethodWord,
        #[serde(default)]
        seed: u32,
    },
    AdaptiveRate {
        floor: Text<Rate>,
        ceiling: Text<Rate>,
        #[serde(default = "one")]
        burst: u64,
    },
}

impl Body {
    fn build(self) -> Result<AnyPolicy, LimitError> {
        let time = |Ns(ns)| Duration::from_nanos(ns);
        Ok(match self {
            Self::Gcra { rate, burst } => Gcra::new(rate.0, burst)?.into(),
            Self::SlidingLog { permits, period, guard, resolution } => {
                let log = SlidingLog::try_new(permits, time(period))?.with_guard(time(guard))?;
                log.with_resolution(time(resolution))?.into()
            }
            Self::FixedWindow { permits, period, anchor } => {
                FixedWindow::try_new(permits, time(period), anchor)?.into()
            }
            Self::Pacer { rate, min_sleep, catch_up } => {
                let Ns(min_sleep_ns) = min_sleep.unwrap_or(Ns(DEFAULT_MIN_SLEEP_NS));
                let catch_up = catch_up.unwrap_or(CatchUp(Some(Ns(DEFAULT_CATCH_UP_NS))));
                let mode = Mode::Batched { min_sleep_ns };
                TwoTimeline::new(rate.0, mode, catch_up.0.map(time)).into()
            }
            Self::TwoTimeline { rate, mode, catch_up } => {
                let catch_up = catch_up.and_then(|CatchUp(at_most)| at_most);
                TwoTimeline::new(rate.0, mode.into(), catch_up.map(time)).into()
            }
            Self::WarmUp { rate, period, cold_factor, max_request } => {
                let mut warm_up = WarmUp::new(rate.0, time(period))?;
                if let Some(Decimal(factor)) = cold_factor {
                    warm_up = warm_up.with_cold_factor(factor)?;
                }
                warm_up.with_max_request(max_request)?.into()
            }
            Self::BackfillPool { pool, burst_ratio, rate } => {
                let ratio = burst_ratio.map_or(Ratio::ONE, |Decimal(ratio)| ratio);
                BackfillPool::new(pool, ratio, rate.map(|Text(rate)| rate))?.into()
            }
            Self::Concurrency { permits } => Concurrency::try_new(permits)?.into(),
            Self::CommitLog { permits, period, guard } => {
                CommitLog::try_new(permits, time(period))?.with_guard(time(guard))?.into()
            }
            Self::Adaptive { floor, first, ceiling, method, seed } => {
                let floor = floor.unwrap_or(1);
                // Bounds that contradict each other are refused as they are.
                let first = first.unwrap_or_else(|| DEFAULT_FIRST.min(ceiling).max(floor));
                let adaptation = Adaptation::new(Bounds::try_new(floor, first, ceiling)?);
                let method = match method {
                    MethodWord::Knee => Method::Knee,
                    MethodWord::Aimd => Method::Aimd,
                };
                let adaptation = adaptation.with_method(method).with_seed(seed);
                AdaptiveConcurrency::following(adaptation).into()
            }
            Self::AdaptiveRate { burst: 0, .. } => return Err(LimitError::ZeroPermits),
            Self::AdaptiveRate { floor, ceiling, burst } => {
                AdaptiveRate::try_new(floor.0, ceiling.0)?.burst(burst).into()
            }
        })
    }

    /// Returns the keys of a policy, if a table can have them.
    fn of(policy: &AnyPolicy) -> Option<Self> {
        Some(match policy {
            AnyPolicy::Gcra(bucket) => {
                Self::Gcra { rate: Text(bucket.rate()), burst: bucket.burst_size().get() }
            }
            AnyPolicy::SlidingLog(log) => Self::SlidingLog {
                permits: log.permits(),
                period: Ns(log.held_for_ns().saturating_sub(log.guard_ns())),
                guard: Ns(log.guard_ns()),
                resolution: Ns(log.resolution_ns()),
            },
            AnyPolicy::FixedWindow(window) => match window.windows() {
                Windows::Even { period_ns, anchor } => Self::FixedWindow {
                    permits: window.permits(),
                    period: Ns(period_ns.get()),
                    anchor,
                },
                Windows::Of(_) => return None,
            },
            AnyPolicy::TwoTimeline(timelines) => {
                let rate = Text(timelines.rate());
                let catch_up = Some(CatchUp(timelines.catch_up_ns().map(Ns)));
                match timelines.mode() {
                    Mode::Batched { min_sleep_ns } => {
                        Self::Pacer { rate, min_sleep: Some(Ns(min_sleep_ns)), catch_up }
                    }
                    mode => Self::TwoTimeline { rate, mode: ModeWord::of(mode)?, catch_up },
                }
            }
            AnyPolicy::WarmUp(warm_up) => Self::WarmUp {
                rate: Text(warm_up.rate()),
                period: Ns(warm_up.period_ns()),
                cold_factor: Some(Decimal(warm_up.cold_factor())),
                max_request: warm_up.max_request(),
            },
            AnyPolicy::BackfillPool(pool) => Self::BackfillPool {
                pool: pool.pool(),
                burst_ratio: Some(Decimal(pool.burst_ratio())),
                rate: pool.rate().map(Text),
            },
            AnyPolicy::Concurrency(in_flight) => Self::Concurrency { permits: in_flight.permits() },
            AnyPolicy::CommitLog(log) => Self::CommitLog {
                permits: log.permits(),
                period: Ns(log.cools_for_ns().saturating_sub(log.guard_ns())),
                guard: Ns(log.guard_ns()),
            },
            AnyPolicy::AdaptiveConcurrency(adaptive) => {
                let (adaptation, bounds) = (adaptive.adaptation(), adaptive.adaptation().bounds());
                Self::Adaptive {
                    floor: Some(bounds.floor()),
                    first: Some(bounds.first()),
                    ceiling: bounds.ceiling(),
                    method: match adaptation.method() {
                        Method::Knee => MethodWord::Knee,
                        Method::Aimd => MethodWord::Aimd,
                        _ => return None,
                    },
                    seed: adaptation.seed(),
                }
            }
            AnyPolicy::AdaptiveRate(adaptive) => Self::AdaptiveRate {
                floor: Text(adaptive.floor()),
                ceiling: Text(adaptive.ceiling()),
                burst: adaptive.burst_size().get(),
            },
            _ => return None,
        })
    }
}

const fn shortest() -> Ns {
    Ns(1)
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "Anchor", rename_all = "kebab-case")]
enum AnchorWord {
    Epoch,
    FirstCall,
}

#[derive(Clone, Copy, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum MethodWord {
    #[default]
    Knee,
    Aimd,
}

/// The mode of two timelines.
#[derive(Clone, Copy, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum ModeWord {
    #[default]
    Average,
    Strict,
    Damped(Damping),
    Burst(Decimal),
}

impl ModeWord {
    const fn of(mode: Mode) -> Option<Self> {
        Some(match mode {
            Mode::Average => Self::Average,
            Mode::Strict => Self::Strict,
            Mode::Damped { shift } => Self::Damped(Damping(shift)),
            Mode::Burst(ratio) => Self::Burst(Decimal(ratio)),
            _ => return None,
        })
    }
}

impl From<ModeWord> for Mode {
    fn from(word: ModeWord) -> Self {
        match word {
            ModeWord::Average => Self::Average,
            ModeWord::Strict => Self::Strict,
            ModeWord::Damped(Damping(shift)) => Self::Damped { shift },
            ModeWord::Burst(Decimal(ratio)) => Self::Burst(ratio),
        }
    }
}

/// A bound on catching up, or `"unbounded"`.
#[derive(Clone, Copy)]
struct CatchUp(Option<Ns>);

impl<'de> Deserialize<'de> for CatchUp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, |text| match text {
            "unbounded" => Ok(Self(None)),
            text => span::parse(text).map(|ns| Self(Some(Ns(ns)))),
        })
    }
}

impl Serialize for CatchUp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(at_most) => serializer.collect_str(at_most),
            None => serializer.serialize_str("unbounded"),
        }
    }
}

/// A ratio as a decimal. What has none reads as another ratio.
#[derive(Clone, Copy)]
struct Decimal(Ratio);

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number(deserializer, |number| number.to_string().parse()).map(Self)
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (numerator, denominator) = (self.0.numerator().get(), self.0.denominator().get());
        serializer.serialize_f64(numerator as f64 / denominator as f64)
    }
}

/// The damping of a schedule: a power of two, which a float has exactly.
#[derive(Clone, Copy)]
struct Damping(DampingShift);

impl<'de> Deserialize<'de> for Damping {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number(deserializer, DampingShift::from_ratio).map(Self)
    }
}

impl Serialize for Damping {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(0.5_f64.powi(self.0.get().cast_signed()))
    }
}

/// A share, as in `"25%"`.
struct Percent(Share);

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, |text| {
            let percent = text.strip_suffix('%').and_then(|percent| percent.parse().ok());
            let share = percent.and_then(|percent| Share::try_percent(percent).ok());
            share.map(Self).ok_or("it is from \"1%\" to \"100%\"")
        })
    }
}
