//! The tables of the native format, and the JSON Schema that is derived from them.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny};

use super::calendar::WrittenCalendar;
use super::limit::{Algorithm, Written};
use super::settings::Settings;
use super::text::{Grammar, Text, percent};
use crate::rule::{DAYS, Enforcement, Look, OnUnavailable, Over, Unit, Weight};

/// Returns the JSON Schema of the native format, for editors that complete and check TOML.
#[must_use]
pub fn schema() -> String {
    // TOML has no null, and text for what serde writes as a table.
    let without_odd_defaults = RecursiveTransform(|schema: &mut Schema| {
        if schema.get("default").is_some_and(|default| default.is_null() || default.is_object()) {
            schema.remove("default");
        }
    });
    let settings = SchemaSettings::default().with_transform(without_odd_defaults);
    let schema = settings.into_generator().into_root_schema_for::<Settings>();
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

/// A rule: the calls that it limits, the limit, and the handling of those over it.
// Required keys are optional here, so that a rule without them is checked for its other problems
// too.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleTable {
    /// The unique name of the rule in requests, metrics and header fields:
    /// up to 128 characters of printable ASCII without `"` and `\`.
    #[schemars(with = "String")]
    pub(crate) name: Option<String>,
    /// The name of the limit in answers of Envoy's protocol, "" for none. Default: the rule's
    /// name.
    pub(crate) envoy_name: Option<String>,
    /// The domain of Envoy's requests that the rule belongs to.
    /// Default: "default", and the rule's name if it has no `match`.
    pub(crate) domain: Option<String>,
    /// The entries of a call, in order: keys with a counter for each value, or keys with values.
    /// Without it there is one counter.
    #[serde(rename = "match", default)]
    pub(crate) entries: Vec<Text<EntryTable>>,
    /// The limit: "100/min", "1000/10s", "unlimited", "never", { permits, unit, multiplier },
    /// { permits, per, zone, anchor, every } for the algorithm "calendar",
    /// or a number for the algorithm "concurrency". Required, unless there are `limits`.
    pub(crate) limit: Option<Text<Written>>,
    /// Several limits in place of one. A call takes from all of them or from none. Each is a
    /// separate rule with the name "rule/limit".
    #[serde(default)]
    pub(crate) limits: Vec<DimensionTable>,
    /// The names of rules over some of the entries, such as those of a team and of its
    /// organization. A call takes from them in the same step.
    #[serde(default)]
    pub(crate) also: Vec<String>,
    /// The amount that a call counts: its "permits", one of "requests" for each call, or the
    /// "money" that its usage costs. Default: "permits", and "money" for a rule with prices.
    pub(crate) counts: Option<CountsText>,
    /// The weights of the units of a call's usage, whose sum it counts: { input = 1, cached =
    /// "0.1" }. The sum is rounded up once.
    pub(crate) weights: Option<BTreeMap<String, Text<Weight>>>,
    /// The prices of the units by model, as "15/1M" for 15 in a million units. What they cost is
    /// counted in millionths of the unit of money. The model "*" stands for all others.
    pub(crate) prices: Option<BTreeMap<String, BTreeMap<String, Text<Price>>>>,
    /// The algorithm that enforces the limit. Default: "gcra".
    pub(crate) algorithm: Option<Algorithm>,
    /// The maximum number of permits at once after silence, for "gcra" only.
    /// Default: the permits of the limit's period.
    pub(crate) burst: Option<u64>,
    /// The effect of a call that does not fit: "refuse" counts nothing, "charge" counts it although
    /// it is denied. Default: "refuse", and "charge" for "counted-window".
    pub(crate) over: Option<Over>,
    /// The condition on which a call for 0 permits passes: "debt", that the limit is not exceeded;
    /// "room", that one permit would fit. Default: "debt".
    pub(crate) look: Option<Look>,
    /// The end of a debt of permits charged beyond the limit: "forget" ends it with its window or
    /// log, "carry" lets later windows pay it. Default: "carry" for "gcra", else "forget".
    pub(crate) debt: Option<DebtEnd>,
    /// The longest time that calls have to wait for a debt that is carried. More is forgiven.
    pub(crate) most_debt: Option<Text<Duration>>,
    /// Other limits for certain values. Each is a separate rule with the name "rule/tier".
    #[serde(default)]
    pub(crate) tiers: Vec<TierTable>,
    /// Limits at certain times of the week. The first that applies is in force.
    #[serde(default)]
    pub(crate) schedule: Vec<ScheduleTable>,
    /// The extent to which the rule is enforced: "all"; "shadow" only counts; "soft" counts too,
    /// and tells clients what is over. Default: "all".
    pub(crate) enforce: Option<Text<Enforcement>>,
    /// The time of a reservation that states none. Default: 60s, or
    /// `max_ttl` if that is less.
    pub(crate) ttl: Option<Text<Duration>>,
    /// The maximum time of a reservation, 24h at most. Default: 10min.
    pub(crate) max_ttl: Option<Text<Duration>>,
    /// The share of the limit, as "50%", that one reservation holds at most. An estimate beyond it
    /// is cut to it, and what was used beyond it is charged. Default: all of it.
    pub(crate) max_held: Option<Text<Threshold>>,
    /// Make the rule a quota: a call is over only if all of its quotas are.
    #[serde(default)]
    pub(crate) quota: bool,
    /// The names of rules that are neither decided nor counted where this rule matches too.
    #[serde(default)]
    pub(crate) replaces: Vec<String>,
    /// Values that replies in Envoy's protocol carry, by `dynamic_metadata` of `[grpc]`, if the
    /// rule does not deny the call.
    // They are read from the tree.
    #[serde(rename = "metadata")]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    #[expect(clippy::zero_sized_map_values, reason = "a mapping, of which nothing is used")]
    pub(crate) _metadata: Option<BTreeMap<String, IgnoredAny>>,
    /// Accepted for compatibility with Envoy's format, without effect: no metric shows a value.
    #[serde(default)]
    pub(crate) detailed_metric: bool,
    /// The location of its counters: "here"; "exact" decides each call in the store,
    /// "leased" leases permits from it. Default: "here".
    pub(crate) store: Option<PlaceText>,
    /// The length of a lease, for "leased". Default: 100ms.
    /// For "concurrency", the time that a permit is held unless it is renewed. Default: 1min.
    pub(crate) lease: Option<Text<Duration>>,
    /// The decision while the store is unavailable: "deny", "admit",
    /// or "local", which enforces the limit in this process alone. Default: "local".
    pub(crate) on_unavailable: Option<OnUnavailable>,
    /// The maximum number of keys in memory.
    pub(crate) keys: Option<NonZeroUsize>,
}

/// One of several limits of a rule.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DimensionTable {
    /// The name of the limit. The name of its rule is "rule/limit".
    #[schemars(with = "String")]
    pub(crate) name: Option<String>,
    /// The limit.
    #[schemars(with = "Text<Written>")]
    pub(crate) limit: Option<Text<Written>>,
    /// The algorithm that enforces the limit. Default: that of the rule.
    pub(crate) algorithm: Option<Algorithm>,
    /// The maximum number of permits at once after silence, for "gcra" only.
    pub(crate) burst: Option<u64>,
    /// The amount that a call counts in this limit. Default: "permits".
    pub(crate) counts: Option<CountsText>,
    /// The weights of the units of a call's usage. Default: those of the rule.
    pub(crate) weights: Option<BTreeMap<String, Text<Weight>>>,
    /// The effect of a call that does not fit. Default: that of the rule.
    pub(crate) over: Option<Over>,
    /// The end of a debt. Default: that of the rule.
    pub(crate) debt: Option<DebtEnd>,
    /// The longest time that calls have to wait for a debt. Default: that of the rule.
    pub(crate) most_debt: Option<Text<Duration>>,
    /// The extent to which the limit is enforced. Default: that of the rule.
    pub(crate) enforce: Option<Text<Enforcement>>,
    /// The time of a reservation that states none. Default: that of the rule.
    pub(crate) ttl: Option<Text<Duration>>,
    /// The maximum time of a reservation, 24h at most. Default: that of
    /// the rule.
    pub(crate) max_ttl: Option<Text<Duration>>,
    /// The share of the limit, as "50%", that one reservation holds at most. An estimate beyond it
    /// is cut to it, and what was used beyond it is charged. Default: that of
    /// the rule.
    pub(crate) max_held: Option<Text<Threshold>>,
    /// Limits at certain times of the week.
    #[serde(default)]
    pub(crate) schedule: Vec<ScheduleTable>,
}

/// The amount that a call counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CountsText {
    /// Its permits, or the cost of its usage by weights.
    Permits,
    /// One for each call.
    Requests,
    /// The cost of its usage by prices, in millionths of the unit of money.
    Money,
}

/// A price of units, as a weight in millionths of the unit of money.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Price(pub(crate) Weight);

impl Grammar for Weight {
    const WHAT: &'static str = "a weight: a whole number, or one with decimals as text";
    const EXAMPLES: &'static [&'static str] = &["0.1", "1.25"];

    fn read(text: &str) -> Result<Self, String> {
        Self::of_decimal(text).ok_or_else(|| {
            format!("{text:?} is not a weight; write one like \"0.1\", with at most 12 decimals")
        })
    }

    fn of_number(number: i64) -> Option<Result<Self, String>> {
        let number = u64::try_from(number).ok().and_then(|number| Self::new(number, 1));
        Some(number.ok_or_else(|| "a weight is never negative".to_owned()))
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "integer", "minimum": 0 },
            { "type": "string", "description": Self::WHAT, "examples": Self::EXAMPLES },
        ] })
    }
}

impl Grammar for Price {
    const WHAT: &'static str = "a price of a number of units";
    const EXAMPLES: &'static [&'static str] = &["15/1M", "0.25/1M"];

    fn read(text: &str) -> Result<Self, String> {
        Weight::of_price(text).map(Self).ok_or_else(|| {
            format!("{text:?} is not a price; write one like \"15/1M\": 15 for a million units")
        })
    }
}

/// The end of a debt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DebtEnd {
    /// With its window, or as its permits leave the log.
    Forget,
    /// As later windows pay it.
    Carry,
}

/// Another limit for certain values.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TierTable {
    /// The name of the tier. The name of its rule is "rule/tier".
    #[schemars(with = "String")]
    pub(crate) name: Option<String>,
    /// The key of the entry that has the values. Default: the only entry without a value.
    pub(crate) key: Option<String>,
    /// The values, with a counter each.
    pub(crate) values: Option<Vec<String>>,
    /// A pattern for the values instead, where each `*` stands for any number of characters.
    pub(crate) pattern: Option<String>,
    /// The limit.
    #[schemars(with = "Text<Written>")]
    pub(crate) limit: Option<Text<Written>>,
    /// The maximum number of permits at once after silence.
    pub(crate) burst: Option<u64>,
    /// Limits at certain times of the week.
    #[serde(default)]
    pub(crate) schedule: Vec<ScheduleTable>,
    /// The maximum number of keys in memory.
    pub(crate) keys: Option<NonZeroUsize>,
}

/// A limit at certain times of the week.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduleTable {
    /// The days: "mon" to "sun", or a range as in "mon-fri". Default: all.
    pub(crate) days: Option<Vec<Text<Days>>>,
    /// The time of the day at which it begins, as in "09:00" or "09:30:15". Default: "00:00".
    pub(crate) from: Option<Text<TimeOfDay>>,
    /// The time of the day at which it ends; on the next day if not after `from`. Default: "24:00".
    pub(crate) to: Option<Text<TimeOfDay>>,
    /// The name of the time zone in the IANA database, as in "Europe/Berlin". Default: "UTC".
    pub(crate) zone: Option<String>,
    /// The limit at these times.
    #[schemars(with = "Text<Written>")]
    pub(crate) limit: Option<Text<Written>>,
    /// The maximum number of permits at once after silence.
    pub(crate) burst: Option<u64>,
}

/// The location of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PlaceText {
    /// In this process.
    Here,
    /// In the store: each call is decided there.
    Exact,
    /// In the store, from which permits are leased ahead.
    Leased,
}

/// An entry: a key, or a key with a value, a pattern or values.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EntryTable {
    /// The key.
    pub(crate) key: String,
    /// The value, or a pattern where each `*` stands for any number of characters.
    /// Without `value` and `values` every value matches, with a counter each.
    pub(crate) value: Option<String>,
    /// The values, with a counter each.
    pub(crate) values: Option<Vec<String>>,
    /// Share one counter among all values that match the pattern.
    #[serde(default)]
    pub(crate) shared: bool,
}

impl Grammar for EntryTable {
    const WHAT: &'static str = "an entry: a key like \"user\", or { key, value }";

    fn read(key: &str) -> Result<Self, String> {
        Ok(Self { key: key.to_owned(), ..Self::default() })
    }

    fn of_table<'de, D: Deserializer<'de>>(table: D) -> Result<Self, D::Error> {
        Self::deserialize(table)
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "string", "description": "A key, with a counter for each value." },
            generator.subschema_for::<Self>(),
        ] })
    }
}

/// A number of permits in each period, or in each window of a calendar.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LimitTable {
    /// The number of permits.
    permits: u64,
    /// The unit of the period, which is always as long: a month has 30 days.
    unit: Option<Unit>,
    /// The number of units in the period. Default: 1.
    multiplier: Option<u64>,
    /// The window of a calendar: "day", "week", "month", "quarter" or "year".
    per: Option<String>,
    /// The name of the calendar's time zone in the IANA database, as in "Europe/Berlin".
    /// Default: "UTC".
    zone: Option<String>,
    /// The local time from which the calendar's windows are counted, as in "2026-01-31T00:00".
    /// Default: midnight; weeks start on Monday, quarters with January.
    anchor: Option<String>,
    /// The number of units in a window of the calendar. Default: 1.
    every: Option<u32>,
}

impl LimitTable {
    fn read(&self) -> Result<Written, String> {
        let Self { permits, unit, multiplier, per, zone, anchor, every } = self;
        let of_calendar = zone.is_some() || anchor.is_some() || every.is_some();
        match (per, unit) {
            (Some(per), None) if multiplier.is_none() => {
                let (zone, anchor) = (zone.as_deref(), anchor.as_deref());
                WrittenCalendar { per, zone, anchor, every: *every }.limit(*permits)
            }
            (Some(_), None) => Err("a calendar has `every`, and no `multiplier`".to_owned()),
            (Some(_), Some(_)) => Err("`unit` or `per`, not both".to_owned()),
            (None, Some(unit)) if !of_calendar => {
                Written::per_unit(*permits, multiplier.unwrap_or(1), *unit)
            }
            (None, Some(_)) => {
                Err("`zone`, `anchor` and `every` are of a calendar: write `per`, not `unit`"
                    .into())
            }
            (None, None) => Err("no `unit`, and no `per`".to_owned()),
        }
    }
}

/// The grammar of a limit: a rate as text, a number, or a table.
impl Grammar for Written {
    const WHAT: &'static str = "a rate like \"100/min\", a number, { permits, unit, multiplier }, or { permits, per, zone }";

    fn read(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }

    fn of_number(number: i64) -> Option<Result<Self, String>> {
        let number = u64::try_from(number).map(Self::AtOnce);
        Some(number.map_err(|_| "a limit is never negative".to_owned()))
    }

    fn of_table<'de, D: Deserializer<'de>>(table: D) -> Result<Self, D::Error> {
        let table = LimitTable::deserialize(table)?;
        if table.unit.is_none() && table.per.is_none() {
            return Err(de::Error::missing_field("unit"));
        }
        table.read().map_err(de::Error::custom)
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            {
                "type": "string",
                "description": "A rate, \"unlimited\" or \"never\".",
                "examples": ["100/min", "1000/10s", "unlimited", "never"],
            },
            {
                "type": "integer",
                "minimum": 1,
                "description": "At most this many permits in flight at a time.",
            },
            generator.subschema_for::<LimitTable>(),
        ] })
    }
}

/// The grammar of the extent to which a rule is enforced.
impl Grammar for Enforcement {
    const WHAT: &'static str = "\"all\", \"shadow\" or \"soft\"";
    const EXAMPLES: &'static [&'static str] = &["all", "shadow", "soft"];

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            "shadow" => Ok(Self::Shadow),
            "soft" => Ok(Self::Soft),
            _ => Err(format!("{text:?} is no extent; it is \"all\", \"shadow\" or \"soft\"")),
        }
    }
}

/// A share of a limit, of 10 000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Threshold(pub(crate) u16);

impl Grammar for Threshold {
    const WHAT: &'static str = "a share of the limit";
    const EXAMPLES: &'static [&'static str] = &["80%", "99.5%"];

    fn read(text: &str) -> Result<Self, String> {
        let share = percent(text, 2).and_then(|share| u16::try_from(share).ok());
        share.filter(|share| (1..=10_000).contains(share)).map(Self).ok_or_else(|| {
            format!(
                "{text:?} is no share of the limit: it is from \"0.01%\" to \"100%\" with at \
                     most two decimals"
            )
        })
    }
}

/// Days of the week, Monday first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Days(pub(crate) [bool; 7]);

impl Grammar for Days {
    const WHAT: &'static str = "a day, or from one to another";
    const EXAMPLES: &'static [&'static str] = &["mon", "mon-fri", "sat-sun"];

    fn read(text: &str) -> Result<Self, String> {
        let day = |text: &str| {
            let found = DAYS.iter().position(|name| *name == text);
            found.ok_or_else(|| {
                format!("{text:?} is not a day; use one of mon tue wed thu fri sat sun")
            })
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (day(first)?, day(last)?);
        let mut days = [false; 7];
        for (nth, is_in) in days.iter_mut().enumerate() {
            // "sat-mon" goes over the week's end.
            *is_in = if first <= last {
                (first..=last).contains(&nth)
            } else {
                nth >= first || nth <= last
            };
        }
        Ok(Self(days))
    }
}

/// A time of the day, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeOfDay(pub(crate) u32);

impl Grammar for TimeOfDay {
    const WHAT: &'static str = "a time of the day";
    const EXAMPLES: &'static [&'static str] = &["09:00", "17:30", "24:00"];

    fn read(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?} is not a time of day; write \"09:00\" or \"09:00:30\"");
        let mut fields = text.split(':');
        let mut field = |max: u32| {
            let field = fields.next()?;
            let is_plain = field.len() == 2 && field.bytes().all(|b| b.is_ascii_digit());
            field.parse().ok().filter(|number| is_plain && *number <= max)
        };
        let (hours, minutes) = (field(24).ok_or_else(invalid)?, field(59).ok_or_else(invalid)?);
        let seconds = if text.len() > 5 { field(59).ok_or_else(invalid)? } else { 0 };
        let of_day =
            u32::saturating_mul(hours, 3600).saturating_add(u32::saturating_mul(minutes, 60));
        let of_day = of_day.saturating_add(seconds);
        if fields.next().is_some() || of_day > 86_400 {
            return Err(invalid());
        }
        Ok(Self(of_day))
    }
}
