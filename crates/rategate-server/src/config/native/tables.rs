//! The tables of the native format for rules.

use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use super::server::{
    GrpcTable, HttpTable, InlineTable, KeysTable, LogTable, ServerTable, SnapshotTable, StoreTable,
    TracingTable,
};
use super::text::{At, Grammar, Text};
use crate::config::limit::{Algorithm, Written};
use crate::rule::{Enforcement, Unit};

/// A configuration of rategate: the settings of the service, and its rules.
// The tables are read one by one; this struct exists for the schema.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, title = "rategate")]
#[expect(dead_code, reason = "it is there for the schema alone")]
pub(crate) struct FileTable {
    /// The listeners of the service and its limits.
    pub(crate) server: Option<ServerTable>,
    /// The header fields of HTTP answers, and the accepted host names.
    pub(crate) http: Option<HttpTable>,
    /// The behaviour of Envoy's protocol.
    pub(crate) grpc: Option<GrpcTable>,
    /// The store of counters that several processes share.
    pub(crate) store: Option<StoreTable>,
    /// The file in which counters survive a restart.
    pub(crate) snapshot: Option<SnapshotTable>,
    /// Inline limits, which come with calls.
    pub(crate) inline: Option<InlineTable>,
    /// The log.
    pub(crate) log: Option<LogTable>,
    /// Spans of decisions.
    pub(crate) tracing: Option<TracingTable>,
    /// The capacity for keys.
    pub(crate) keys: Option<KeysTable>,
    /// The rules.
    #[schemars(default)]
    pub(crate) rule: Vec<RuleTable>,
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
    pub(crate) name: Option<At<String>>,
    /// The name of the limit in answers of Envoy's protocol, "" for none. Default: the rule's
    /// name.
    pub(crate) envoy_name: Option<At<String>>,
    /// The domain of Envoy's requests that the rule belongs to.
    /// Default: "default", and the rule's name if it has no `match`.
    pub(crate) domain: Option<At<String>>,
    /// The entries of a call, in order: keys with a counter for each value, or keys with values.
    /// Without it there is one counter.
    #[serde(rename = "match", default)]
    pub(crate) entries: Vec<At<EntryTable>>,
    /// The limit: "100/min", "1000/10s", "unlimited", "never", { permits, unit, multiplier },
    /// or a number for the algorithm "concurrency".
    #[schemars(with = "LimitText")]
    pub(crate) limit: Option<At<LimitText>>,
    /// The algorithm that enforces the limit. Default: "gcra".
    pub(crate) algorithm: Option<Algorithm>,
    /// The maximum number of permits at once after silence, for "gcra" only.
    /// Default: the permits of the limit's period.
    pub(crate) burst: Option<At<u64>>,
    /// Other limits for certain values. Each is a separate rule with the name "rule/tier".
    #[serde(default)]
    pub(crate) tiers: Vec<At<TierTable>>,
    /// Limits at certain times of the week. The first that applies is in force.
    #[serde(default)]
    pub(crate) schedule: Vec<At<ScheduleTable>>,
    /// The extent to which the rule is enforced: "all"; "shadow" only counts;
    /// "12.5%" for that share of the keys, always the same ones. Default: "all".
    pub(crate) enforce: Option<Text<Enforcement>>,
    /// Make the rule a quota: a call is over only if all of its quotas are.
    #[serde(default)]
    pub(crate) quota: bool,
    /// The names of rules that are neither decided nor counted where this rule matches too.
    #[serde(default)]
    pub(crate) replaces: Vec<At<String>>,
    /// Accepted for compatibility with Envoy's format, without effect: no metric shows a value.
    #[serde(default)]
    pub(crate) detailed_metric: bool,
    /// The location of its counters: "here"; "exact" decides each call in the store,
    /// "leased" leases permits from it. Default: "here".
    pub(crate) store: Option<At<PlaceText>>,
    /// The length of a lease, for "leased". Default: 100ms.
    /// For "concurrency", the time that a permit is held unless it is renewed. Default: 1min.
    pub(crate) lease: Option<At<Text<Duration>>>,
    /// The decision while the store is unavailable: "deny", "admit",
    /// or "local", which enforces the limit in this process alone. Default: "local".
    pub(crate) on_unavailable: Option<At<OnUnavailableText>>,
    /// The maximum number of keys in memory.
    pub(crate) keys: Option<NonZeroUsize>,
}

/// Another limit for certain values.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TierTable {
    /// The name of the tier. The name of its rule is "rule/tier".
    #[schemars(with = "String")]
    pub(crate) name: Option<At<String>>,
    /// The key of the entry that has the values. Default: the only entry without a value.
    pub(crate) key: Option<At<String>>,
    /// The values, with a counter each.
    pub(crate) values: Option<At<Vec<String>>>,
    /// A pattern for the values instead, where each `*` stands for any number of characters.
    pub(crate) pattern: Option<At<String>>,
    /// The limit.
    #[schemars(with = "LimitText")]
    pub(crate) limit: Option<At<LimitText>>,
    /// The maximum number of permits at once after silence.
    pub(crate) burst: Option<At<u64>>,
    /// Limits at certain times of the week.
    #[serde(default)]
    pub(crate) schedule: Vec<At<ScheduleTable>>,
    /// The maximum number of keys in memory.
    pub(crate) keys: Option<NonZeroUsize>,
}

/// A limit at certain times of the week.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduleTable {
    /// The days: "mon" to "sun", or a range as in "mon-fri". Default: all.
    pub(crate) days: Option<At<Vec<Text<Days>>>>,
    /// The time of the day at which it begins, as in "09:00" or "09:30:15". Default: "00:00".
    pub(crate) from: Option<Text<TimeOfDay>>,
    /// The time of the day at which it ends; on the next day if not after `from`. Default: "24:00".
    pub(crate) to: Option<Text<TimeOfDay>>,
    /// The name of the time zone in the IANA database, as in "Europe/Berlin". Default: "UTC".
    pub(crate) zone: Option<At<String>>,
    /// The limit at these times.
    #[schemars(with = "LimitText")]
    pub(crate) limit: Option<At<LimitText>>,
    /// The maximum number of permits at once after silence.
    pub(crate) burst: Option<At<u64>>,
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

/// The decision while the store is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnUnavailableText {
    /// Every call is denied.
    Deny,
    /// Every call is admitted.
    Admit,
    /// This process enforces the limit alone.
    Local,
}

/// An entry: a key, or a key with a value, a pattern or values.
#[derive(Debug)]
pub(crate) struct EntryTable {
    pub(crate) key: String,
    pub(crate) value: Option<String>,
    pub(crate) values: Option<Vec<String>>,
    pub(crate) shared: bool,
}

/// An entry with more than its key.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FullEntry {
    /// The key.
    key: String,
    /// The value, or a pattern where each `*` stands for any number of characters.
    /// Without `value` and `values` every value matches, with a counter each.
    value: Option<String>,
    /// The values, with a counter each.
    values: Option<Vec<String>>,
    /// Share one counter among all values that match the pattern.
    #[serde(default)]
    shared: bool,
}

impl<'de> Deserialize<'de> for EntryTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entry;
        impl<'de> Visitor<'de> for Entry {
            type Value = EntryTable;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an entry: a key like \"user\", or { key, value }")
            }

            fn visit_str<E: de::Error>(self, key: &str) -> Result<EntryTable, E> {
                Ok(EntryTable { key: key.to_owned(), value: None, values: None, shared: false })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<EntryTable, A::Error> {
                let FullEntry { key, value, values, shared } =
                    FullEntry::deserialize(MapAccessDeserializer::new(map))?;
                Ok(EntryTable { key, value, values, shared })
            }
        }
        deserializer.deserialize_any(Entry)
    }
}

impl JsonSchema for EntryTable {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Entry".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let full = generator.subschema_for::<FullEntry>();
        json_schema!({ "anyOf": [
            { "type": "string", "description": "A key, with a counter for each value." },
            full,
        ] })
    }
}

/// A limit: a rate as text, a number, or a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitText(pub(crate) Written);

/// A number of permits in each period.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FullLimit {
    /// The number of permits.
    permits: u64,
    /// The unit of the period: "second", "minute", "hour", "day", "week",
    /// "month" of 30 days, "year" of 365.
    #[schemars(with = "String")]
    unit: Text<Unit>,
    /// The number of units in the period. Default: 1.
    multiplier: Option<u64>,
}

impl<'de> Deserialize<'de> for LimitText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LimitVisitor;
        impl<'de> Visitor<'de> for LimitVisitor {
            type Value = LimitText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rate like \"100/min\", a number, or { permits, unit, multiplier }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<LimitText, E> {
                Written::parse(text).map(LimitText).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<LimitText, E> {
                match u64::try_from(number) {
                    Ok(number) => Ok(LimitText(Written::AtOnce(number))),
                    Err(_) => Err(E::custom("a limit is never negative")),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LimitText, A::Error> {
                let FullLimit { permits, unit, multiplier } =
                    FullLimit::deserialize(MapAccessDeserializer::new(map))?;
                let written = Written::per_unit(permits, multiplier.unwrap_or(1), unit.0);
                written.map(LimitText).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(LimitVisitor)
    }
}

impl JsonSchema for LimitText {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Limit".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let full = generator.subschema_for::<FullLimit>();
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
            full,
        ] })
    }
}

/// Days of the week, Monday first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Days(pub(crate) [bool; 7]);

impl Grammar for Days {
    const WHAT: &'static str = "a day, or from one to another";
    const EXAMPLES: &'static [&'static str] = &["mon", "mon-fri", "sat-sun"];

    fn read(text: &str) -> Result<Self, String> {
        const NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
        let day = |text: &str| {
            let found = NAMES.iter().position(|name| *name == text);
            found.ok_or_else(|| {
                format!("{text:?} is no day; it is one of mon tue wed thu fri sat sun")
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
        let invalid = || format!("{text:?} is no time of the day; write \"09:00\" or \"09:00:30\"");
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

impl Grammar for Unit {
    const WHAT: &'static str = "a unit of time";
    const EXAMPLES: &'static [&'static str] =
        &["second", "minute", "hour", "day", "week", "month", "year"];

    fn read(text: &str) -> Result<Self, String> {
        crate::config::unit(text).ok_or_else(|| {
            format!("no unit {text:?}; it is one of second minute hour day week month year")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_times() {
        let days = |text: &str| Days::read(text).map(|days| days.0.map(u8::from));
        assert_eq!(days("mon-fri"), Ok([1, 1, 1, 1, 1, 0, 0]));
        assert_eq!(days("sat-mon"), Ok([1, 0, 0, 0, 0, 1, 1]));
        assert_eq!(days("wed"), Ok([0, 0, 1, 0, 0, 0, 0]));
        assert!(days("monday").is_err() && days("mon-").is_err() && days("").is_err());
        assert_eq!(TimeOfDay::read("09:30"), Ok(TimeOfDay(34_200)));
        assert_eq!(TimeOfDay::read("23:59:59"), Ok(TimeOfDay(86_399)));
        assert_eq!(TimeOfDay::read("24:00"), Ok(TimeOfDay(86_400)));
        for invalid in [
            "",
            "9:00",
            "24:01",
            "25:00",
            "12:60",
            "12",
            "12:00:60",
            "12:00:00:00",
            "1a:00",
            "+9:00",
        ] {
            assert!(TimeOfDay::read(invalid).is_err(), "{invalid}");
        }
    }
}
