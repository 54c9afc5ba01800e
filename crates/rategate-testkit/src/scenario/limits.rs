//! `[limit]` tables: each policy with its keys and defaults.

use std::time::Duration;

use rategate_core::adaptive::{Adaptation, AdaptiveConcurrency, AdaptiveRate, Bounds, Method};
use rategate_core::any_policy::{AnyPolicy, AnyTimed};
use rategate_core::backfill_pool::BackfillPool;
use rategate_core::commit_log::CommitLog;
use rategate_core::compensation::DampingShift;
use rategate_core::concurrency::Concurrency;
use rategate_core::error::LimitError;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::pacer::{self, Pacer};
use rategate_core::rate::Rate;
use rategate_core::ratio::Ratio;
use rategate_core::share::Share;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::slow_start::SlowStart;
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::warm_up::WarmUp;
use toml::de::DeTable;

use super::ScenarioError;
use super::fields::{Field, Fields, Source};

/// The policies, each with the keys that it takes besides `policy`.
const POLICIES: [(&str, &[&str]); 11] = [
    ("gcra", &["rate", "burst", SLOW, SLOW_FROM]),
    ("sliding-log", &["permits", "period", "guard", "resolution", SLOW, SLOW_FROM]),
    ("fixed-window", &["permits", "period", "anchor", SLOW, SLOW_FROM]),
    ("pacer", &["rate", "min_sleep", "catch_up", SLOW, SLOW_FROM]),
    ("two-timeline", &["rate", "mode", "catch_up", SLOW, SLOW_FROM]),
    ("warm-up", &["rate", "period", "cold_factor", "max_request"]),
    ("backfill-pool", &["pool", "burst_ratio", "rate", SLOW, SLOW_FROM]),
    ("concurrency", &["permits"]),
    ("commit-log", &["permits", "period", "guard"]),
    (ADAPTIVE, &["floor", "first", "ceiling", "method", "seed"]),
    (ADAPTIVE_RATE, &["floor", "ceiling", "burst"]),
];
/// The keys of a slow start.
pub(super) const SLOW: &str = "slow_start";
pub(super) const SLOW_FROM: &str = "slow_start_from";
pub(super) const ADAPTIVE: &str = "adaptive";
pub(super) const ADAPTIVE_RATE: &str = "adaptive-rate";

/// The name of a table that is in no file: its caller may have written an object of another
/// language.
const BARE: &str = "the limit";

/// The limit at first of `adaptive`, within its bounds.
const DEFAULT_FIRST: u32 = 20;
pub(super) const METHODS: [(&str, Method); 2] = [("knee", Method::Knee), ("aimd", Method::Aimd)];

/// Reads one limit from the body of a `[limit]` table, such as `policy = "gcra"` and
/// `rate = "5/s"` on two lines.
///
/// # Errors
///
/// Returns [`ScenarioError`], as for a whole file. Its message names no file.
pub fn policy_from(body: &str) -> Result<AnyPolicy, ScenarioError> {
    let source = Source(body);
    let table = DeTable::parse(body).map_err(|error| {
        source
            .error(&error.span().unwrap_or_default(), error.message().lines().next().unwrap_or(""))
    })?;
    LimitTable::default().changed(Fields::root(source, BARE, table.get_ref()))?.build()
}

/// The keys of one limit: those of the file, with the changes of later `set` steps.
#[derive(Clone, Default)]
pub(super) struct LimitTable {
    policy: Option<&'static str>,
    rate: Option<Rate>,
    burst: Option<u64>,
    permits: Option<u64>,
    period: Option<u64>,
    guard: Option<u64>,
    resolution: Option<u64>,
    anchor: Option<Anchor>,
    min_sleep: Option<u64>,
    catch_up: CatchUp,
    mode: Option<Mode>,
    pool: Option<u64>,
    burst_ratio: Option<Ratio>,
    cold_factor: Option<Ratio>,
    max_request: Option<u64>,
    slow_start: Option<u64>,
    slow_start_from: Option<Share>,
    floor: Option<u32>,
    first: Option<u32>,
    ceiling: Option<u32>,
    method: Method,
    seed: u32,
    floor_rate: Option<Rate>,
    ceiling_rate: Option<Rate>,
    /// The error position, and the name in front, if the keys make no limit together.
    blame: Option<ScenarioError>,
}

/// A bound on catching up, as far as the file gives one.
#[derive(Clone, Copy, Default)]
enum CatchUp {
    #[default]
    Unsaid,
    Unbounded,
    AtMost(u64),
}

impl CatchUp {
    const fn or(self, default_ns: Option<u64>) -> Option<u64> {
        match self {
            Self::Unsaid => default_ns,
            Self::Unbounded => None,
            Self::AtMost(ns) => Some(ns),
        }
    }
}

impl LimitTable {
    /// Returns `true` if a `set` with these keys applies to this limit.
    pub(super) fn takes(&self, fields: &mut Fields<'_>) -> Result<bool, ScenarioError> {
        if let Some(policy) = fields.get("policy") {
            return Ok(Some(policy.text()?) == self.policy);
        }
        Ok(fields.keys().any(|key| self.keys().contains(&key)))
    }

    /// Returns this limit with the keys of `fields` instead of its own. Keys that only other
    /// policies have are refused, unless `fields` ignores them.
    pub(super) fn changed(mut self, mut fields: Fields<'_>) -> Result<Self, ScenarioError> {
        match fields.get("policy") {
            None if self.policy.is_some() => {}
            None => {
                return Err(fields.error(format!("{} needs a policy: {}", fields.name(), names())));
            }
            Some(field) => {
                let known = POLICIES.iter().find(|(name, _)| field.text() == Ok(*name));
                let Some((name, _)) = known else {
                    let text = field.text()?;
                    let names = names();
                    return Err(field.error(format!("\"{text}\" is not a policy; use {names}")));
                };
                if self.policy.is_some_and(|policy| policy != *name) {
                    return Err(field.error(LimitError::OtherPolicy));
                }
                self.policy = Some(name);
            }
        }
        for key in self.keys() {
            if let Some(field) = fields.get(key) {
                self.set(key, &field)?;
            }
        }
        self.blame = Some(fields.error(if fields.name() == BARE { "" } else { "[limit] " }));
        fields.finish()?;
        Ok(self)
    }

    pub(super) fn keys(&self) -> &'static [&'static str] {
        let known = POLICIES.iter().find(|(name, _)| Some(*name) == self.policy);
        known.map_or(&[], |(_, keys)| keys)
    }

    fn set(&mut self, key: &str, field: &Field<'_>) -> Result<(), ScenarioError> {
        match key {
            "rate" => self.rate = Some(field.parse()?),
            "burst" => self.burst = Some(field.count()?),
            "permits" => self.permits = Some(field.count()?),
            "period" => self.period = Some(field.duration()?),
            "guard" => self.guard = Some(field.duration()?),
            "resolution" => self.resolution = Some(field.duration()?),
            "anchor" => self.anchor = Some(anchor(field)?),
            "min_sleep" => self.min_sleep = Some(field.duration()?),
            "catch_up" if field.text() == Ok("unbounded") => self.catch_up = CatchUp::Unbounded,
            "catch_up" => self.catch_up = CatchUp::AtMost(field.duration()?),
            "mode" => self.mode = Some(mode(field)?),
            "pool" => self.pool = Some(field.count()?),
            "cold_factor" => self.cold_factor = Some(ratio(field)?),
            SLOW => self.slow_start = Some(field.duration()?),
            SLOW_FROM => self.slow_start_from = Some(share(field)?),
            "max_request" => self.max_request = Some(field.count()?),
            "floor" if self.is_a_rate() => self.floor_rate = Some(field.parse()?),
            "ceiling" if self.is_a_rate() => self.ceiling_rate = Some(field.parse()?),
            "floor" => self.floor = Some(field.count_u32()?),
            "first" => self.first = Some(field.count_u32()?),
            "ceiling" => self.ceiling = Some(field.count_u32()?),
            "method" => self.method = field.one_of(&METHODS)?,
            "seed" => self.seed = field.count_u32()?,
            _ => self.burst_ratio = Some(ratio(field)?),
        }
        Ok(())
    }

    fn is_a_rate(&self) -> bool {
        self.policy == Some(ADAPTIVE_RATE)
    }

    /// Builds the limit from its keys.
    pub(super) fn build(&self) -> Result<AnyPolicy, ScenarioError> {
        let policy = self.policy.unwrap_or_default();
        let blame = |message: String| {
            let (line, place) =
                self.blame.as_ref().map_or((None, ""), |error| (error.line, &error.message));
            ScenarioError { line, message: format!("{place}{policy}: {message}") }
        };
        let refused = |error: LimitError| blame(error.to_string());
        let missing = |key: &str, example: &str| blame(format!("needs `{key}`, as in {example}"));
        let rate = || self.rate.ok_or_else(|| missing("rate", "rate = \"5/s\""));
        let permits = || self.permits.ok_or_else(|| missing("permits", "permits = 5"));
        let period = || self.period.ok_or_else(|| missing("period", "period = \"1s\""));
        let limit: AnyPolicy = match policy {
            "gcra" => Gcra::new(rate()?, self.burst.unwrap_or(1)).map_err(refused)?.into(),
            "sliding-log" => {
                let log = SlidingLog::try_new(permits()?, Duration::from_nanos(period()?))
                    .map_err(refused)?;
                let log = log
                    .with_guard(Duration::from_nanos(self.guard.unwrap_or(0)))
                    .map_err(refused)?;
                log.with_resolution(Duration::from_nanos(self.resolution.unwrap_or(1)))
                    .map_err(refused)?
                    .into()
            }
            "fixed-window" => {
                let anchor = self.anchor.unwrap_or_default();
                FixedWindow::try_new(permits()?, Duration::from_nanos(period()?), anchor)
                    .map_err(refused)?
                    .into()
            }
            "pacer" => {
                let min_sleep_ns = self.min_sleep.unwrap_or(pacer::DEFAULT_MIN_SLEEP_NS);
                let catch_up_ns = self.catch_up.or(Some(pacer::DEFAULT_CATCH_UP_NS));
                Pacer::new(
                    rate()?,
                    Duration::from_nanos(min_sleep_ns),
                    catch_up_ns.map(Duration::from_nanos),
                )
                .into()
            }
            "two-timeline" => {
                let mode = self.mode.unwrap_or(Mode::Average);
                TwoTimeline::new(rate()?, mode, self.catch_up.or(None).map(Duration::from_nanos))
                    .into()
            }
            "warm-up" => {
                let warm_up = WarmUp::new(rate()?, Duration::from_nanos(period()?));
                let warm_up = warm_up.map_err(refused)?;
                let warm_up = match self.cold_factor {
                    Some(factor) => warm_up.with_cold_factor(factor).map_err(refused)?,
                    None => warm_up,
                };
                warm_up.with_max_request(self.max_request.unwrap_or(1)).map_err(refused)?.into()
            }
            "backfill-pool" => {
                let pool = self.pool.ok_or_else(|| missing("pool", "pool = 1000"))?;
                let ratio = self.burst_ratio.unwrap_or(Ratio::ONE);
                BackfillPool::new(pool, ratio, self.rate).map_err(refused)?.into()
            }
            "commit-log" => {
                let log = CommitLog::try_new(permits()?, Duration::from_nanos(period()?))
                    .map_err(refused)?;
                log.with_guard(Duration::from_nanos(self.guard.unwrap_or(0)))
                    .map_err(refused)?
                    .into()
            }
            ADAPTIVE => {
                let missing = || missing("ceiling", "ceiling = 200");
                let (floor, ceiling) = (self.floor.unwrap_or(1), self.ceiling.ok_or_else(missing)?);
                // Bounds that contradict each other are refused as they are.
                let first = self.first.unwrap_or_else(|| DEFAULT_FIRST.min(ceiling).max(floor));
                let bounds = Bounds::try_new(floor, first, ceiling).map_err(refused)?;
                let adaptation = Adaptation::new(bounds).with_method(self.method);
                AdaptiveConcurrency::following(adaptation.with_seed(self.seed)).into()
            }
            ADAPTIVE_RATE => {
                let floor = self.floor_rate.ok_or_else(|| missing("floor", "floor = \"1/s\""))?;
                let missing = || missing("ceiling", "ceiling = \"100/s\"");
                let ceiling = self.ceiling_rate.ok_or_else(missing)?;
                let limit = AdaptiveRate::try_new(floor, ceiling).map_err(refused)?;
                match self.burst {
                    Some(0) => return Err(refused(LimitError::ZeroPermits)),
                    burst => limit.burst(burst.unwrap_or(1)).into(),
                }
            }
            _ => Concurrency::try_new(permits()?).map_err(refused)?.into(),
        };
        match (self.slow_start, self.slow_start_from) {
            (None, None) => Ok(limit),
            (None, Some(_)) => Err(missing(SLOW, "slow_start = \"30s\"")),
            (Some(period_ns), first) => {
                let limit = AnyTimed::try_from(limit).map_err(refused)?;
                let slow = SlowStart::new(limit, Duration::from_nanos(period_ns));
                let slow = slow.map_err(refused)?;
                Ok(first.map_or(slow, |share| slow.with_first_share(share)).into())
            }
        }
    }
}

fn names() -> String {
    let names = POLICIES.map(|(name, _)| name);
    format!("one of {}", names.join(", "))
}

fn anchor(field: &Field<'_>) -> Result<Anchor, ScenarioError> {
    field.one_of(&[("epoch", Anchor::Epoch), ("first-call", Anchor::FirstCall)])
}

fn share(field: &Field<'_>) -> Result<Share, ScenarioError> {
    let text = field.text()?;
    let percent = text.strip_suffix('%').and_then(|percent| percent.parse().ok());
    let share = percent.and_then(|percent| Share::try_percent(percent).ok());
    share.ok_or_else(|| field.error(format!("is \"{text}\"; it is from \"1%\" to \"100%\"")))
}

fn ratio(field: &Field<'_>) -> Result<Ratio, ScenarioError> {
    let text = field.decimal()?;
    text.parse().map_err(|error| field.error(format!("{text}: {error}")))
}

fn mode(field: &Field<'_>) -> Result<Mode, ScenarioError> {
    const RIGHT: &str = "\"average\", \"strict\", { damped = 0.25 } or { burst = 1.5 }";
    if !field.is_table() {
        return match field.text() {
            Ok("average") => Ok(Mode::Average),
            Ok("strict") => Ok(Mode::Strict),
            Ok(other) => Err(field.error(format!("is \"{other}\"; it is {RIGHT}"))),
            Err(_) => Err(field.error(format!("it is {RIGHT}"))),
        };
    }
    let mut fields = field.table("mode")?;
    let mode = match (fields.get("damped"), fields.get("burst")) {
        (Some(damped), None) => {
            let text = damped.decimal()?;
            let value = text.parse().map_err(|_| damped.error(format!("{text} is no number")))?;
            let shift = DampingShift::from_ratio(value);
            Mode::Damped { shift: shift.map_err(|error| damped.error(format!("{text}: {error}")))? }
        }
        (None, Some(burst)) => Mode::Burst(ratio(&burst)?),
        _ => return Err(field.error(format!("it is {RIGHT}"))),
    };
    fields.finish()?;
    Ok(mode)
}
