//! The tables of the native format that are rules.

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

/// A configuration of rategate: where the service listens, and its rules.
///
/// Its tables are read one by one; this is what the schema says of them together.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, title = "rategate")]
#[expect(dead_code, reason = "it is there for the schema alone")]
pub(crate) struct FileTable {
    /// Where the service listens, and how.
    pub(crate) server: Option<ServerTable>,
    /// What HTTP answers carry.
    pub(crate) http: Option<HttpTable>,
    /// What Envoy's protocol does.
    pub(crate) grpc: Option<GrpcTable>,
    /// Where the counters are that several processes share.
    pub(crate) store: Option<StoreTable>,
    /// Where counters are kept over a restart.
    pub(crate) snapshot: Option<SnapshotTable>,
    /// Limits that come with calls.
    pub(crate) inline: Option<InlineTable>,
    /// What is logged.
    pub(crate) log: Option<LogTable>,
    /// Which decisions have a span, and who receives those.
    pub(crate) tracing: Option<TracingTable>,
    /// How many keys there may be.
    pub(crate) keys: Option<KeysTable>,
    /// The rules.
    #[schemars(default)]
    pub(crate) rule: Vec<RuleTable>,
}

/// Which calls are limited, by what, and what becomes of those over the limit.
// What it needs is optional here, so that a rule without it is checked for its other faults, too.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleTable {
    /// By what it is known in requests, metrics and header fields: up to 128 characters of printable ASCII without `"` and `\`. Unique.
    #[schemars(with = "String")]
    pub(crate) name: Option<At<String>>,
    /// What answers of Envoy's protocol call the limit: the rule's name if not said otherwise; "" for nothing.
    pub(crate) envoy_name: Option<At<String>>,
    /// The domain of Envoy's requests that it belongs to: "default" if not said otherwise, and the rule's name if it has no `match`.
    pub(crate) domain: Option<At<String>>,
    /// What a call must consist of, in order: keys with a counter for each value, and values. Without it there is one counter.
    #[serde(rename = "match", default)]
    pub(crate) entries: Vec<At<EntryTable>>,
    /// What is allowed: "100/min", "1000/10s", "unlimited", "never", { permits, unit, multiplier }, or a number for the algorithm "concurrency".
    #[schemars(with = "LimitText")]
    pub(crate) limit: Option<At<LimitText>>,
    /// How the limit is kept: "gcra" if not said otherwise.
    pub(crate) algorithm: Option<Algorithm>,
    /// How many permits can be taken at once after silence: as many as the limit's period has if not said otherwise. Only for "gcra".
    pub(crate) burst: Option<At<u64>>,
    /// Other limits for certain values. Each is a rule of its own by the name of "rule/tier".
    #[serde(default)]
    pub(crate) tiers: Vec<At<TierTable>>,
    /// Limits at certain times of the week, of which the first that fits is in force.
    #[serde(default)]
    pub(crate) schedule: Vec<At<ScheduleTable>>,
    /// Whether it is enforced: "all" if not said otherwise; "shadow" only counts; "12.5%" is for so many of the keys, always the same ones.
    pub(crate) enforce: Option<Text<Enforcement>>,
    /// Whether it is a quota: a call is over only if all quotas that it has to pass are.
    #[serde(default)]
    pub(crate) quota: bool,
    /// Names of rules that are neither asked nor counted where this one matches too.
    #[serde(default)]
    pub(crate) replaces: Vec<At<String>>,
    /// Accepted for the sake of Envoy's format, and of no effect: no metric tells a value.
    #[serde(default)]
    pub(crate) detailed_metric: bool,
    /// Where its counters are: "here" if not said otherwise; "exact" decides each call in the store, "leased" borrows permits from it.
    pub(crate) store: Option<At<PlaceText>>,
    /// For how long permits are borrowed, for "leased": 100ms if not said otherwise. For the algorithm "concurrency", for how long a permit is held unless it is renewed: 1min if not said otherwise.
    pub(crate) lease: Option<At<Text<Duration>>>,
    /// What is answered while the store is gone: "local" keeps the limit in this process alone, "deny", "admit". "local" if not said otherwise.
    pub(crate) when_gone: Option<At<WhenGoneText>>,
    /// The most keys it keeps in memory.
    pub(crate) keys: Option<NonZeroUsize>,
}

/// Another limit for certain values.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TierTable {
    /// The rule's name is "rule/tier".
    #[schemars(with = "String")]
    pub(crate) name: Option<At<String>>,
    /// Of which entry the values are. If not said, of the only one that has none of its own.
    pub(crate) key: Option<At<String>>,
    /// These values, with a counter each.
    pub(crate) values: Option<At<Vec<String>>>,
    /// Or the values like this, where each `*` stands for any number of characters.
    pub(crate) pattern: Option<At<String>>,
    /// What is allowed.
    #[schemars(with = "LimitText")]
    pub(crate) limit: Option<At<LimitText>>,
    /// How many permits can be taken at once after silence.
    pub(crate) burst: Option<At<u64>>,
    /// Limits at certain times of the week.
    #[serde(default)]
    pub(crate) schedule: Vec<At<ScheduleTable>>,
    /// The most keys it keeps in memory.
    pub(crate) keys: Option<NonZeroUsize>,
}

/// A limit at certain times of the week.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduleTable {
    /// On which days: "mon" to "sun", or from one to another as in "mon-fri". All if not said otherwise.
    pub(crate) days: Option<At<Vec<Text<Days>>>>,
    /// From this time of the day, as in "09:00" or "09:30:15". From its start if not said otherwise.
    pub(crate) from: Option<Text<TimeOfDay>>,
    /// Until before this one; if it is not after `from`, that of the next day. "24:00" if not said otherwise.
    pub(crate) to: Option<Text<TimeOfDay>>,
    /// The time zone's name in the IANA database, as in "Europe/Berlin": "UTC" if not said otherwise.
    pub(crate) zone: Option<At<String>>,
    /// What is allowed then.
    #[schemars(with = "LimitText")]
    pub(crate) limit: Option<At<LimitText>>,
    /// How many permits can be taken at once after silence.
    pub(crate) burst: Option<At<u64>>,
}

/// Where counters are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PlaceText {
    /// In this process.
    Here,
    /// In the store: each call is decided there.
    Exact,
    /// In the store, from which permits are borrowed ahead.
    Leased,
}

/// What is answered while the store is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WhenGoneText {
    /// Everything is denied.
    Deny,
    /// Everything is admitted.
    Admit,
    /// The limit is kept by this process alone.
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
    /// Its key.
    key: String,
    /// The value, or a pattern: each `*` stands for any number of characters. If neither is said, every value, with a counter each.
    value: Option<String>,
    /// These values, with a counter each.
    values: Option<Vec<String>>,
    /// Whether all values that match the pattern share one counter.
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
        json_schema!({ "anyOf": [{ "type": "string", "description": "A key, with a counter for each value." }, full] })
    }
}

/// What is allowed: a rate as text, a number, or a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitText(pub(crate) Written);

/// So many in each so many of a unit.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FullLimit {
    /// So many.
    permits: u64,
    /// In each unit: "second", "minute", "hour", "day", "week", "month" of 30 days, "year" of 365.
    #[schemars(with = "String")]
    unit: Text<Unit>,
    /// Or in each so many of them.
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
            { "type": "integer", "minimum": 1, "description": "So many at a time." },
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

/// A time of the day in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeOfDay(pub(crate) u32);

impl Grammar for TimeOfDay {
    const WHAT: &'static str = "a time of the day";
    const EXAMPLES: &'static [&'static str] = &["09:00", "17:30", "24:00"];

    fn read(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no time of the day; write \"09:00\" or \"09:00:30\"");
        let mut parts = text.split(':');
        let mut part = |most: u32| {
            let part = parts.next()?;
            let is_plain = part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
            part.parse().ok().filter(|number| is_plain && *number <= most)
        };
        let (hours, minutes) = (part(24).ok_or_else(wrong)?, part(59).ok_or_else(wrong)?);
        let seconds = if text.len() > 5 { part(59).ok_or_else(wrong)? } else { 0 };
        let of_day =
            u32::saturating_mul(hours, 3600).saturating_add(u32::saturating_mul(minutes, 60));
        let of_day = of_day.saturating_add(seconds);
        if parts.next().is_some() || of_day > 86_400 {
            return Err(wrong());
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
        for wrong in [
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
            assert!(TimeOfDay::read(wrong).is_err(), "{wrong}");
        }
    }
}
