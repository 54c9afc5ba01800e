//! The items of `POST /v1/check`: permits of one counter each.

use serde::Deserialize;

use super::inline_limit::inline;
use super::invalid::Invalid;
use super::values::{Descriptor, Key, MAX_VALUES, Pairs, Value, given};
use crate::engine::Inline;

/// Permits of one counter.
#[derive(Debug)]
pub(super) struct CheckItem {
    pub(super) counter: Counter,
    /// Absent if the request leaves them out.
    pub(super) written: Option<u64>,
    /// The units that were used, in place of permits.
    pub(super) usage: Option<UsageOf>,
}

/// The usage of a call: the number of each unit, and the model.
#[derive(Debug)]
pub(super) struct UsageOf {
    pub(super) counts: Vec<(String, u64)>,
    pub(super) model: Option<String>,
}

/// The address of a counter.
#[derive(Debug)]
pub(super) enum Counter {
    /// The counter of a rule.
    Rule { name: String, key: Option<Key> },
    /// The counter of the rule that fits a descriptor best.
    Descriptor { domain: String, entries: Vec<(String, Value)> },
    /// The counter of a limit that the caller supplies.
    Inline { limit: Inline, key: Value },
}

impl CheckItem {
    /// Returns the number of permits, of which one is the default.
    pub(super) fn permits(&self) -> u64 {
        self.written.unwrap_or(u64::from(self.usage.is_none()))
    }
}

/// An item as written.
#[derive(Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenItem {
    pub(super) rule: Option<String>,
    pub(super) domain: Option<String>,
    pub(super) descriptor: Option<Descriptor>,
    pub(super) limit: Option<String>,
    pub(super) burst: Option<u64>,
    pub(super) key: Option<Key>,
    #[serde(default, deserialize_with = "given")]
    pub(super) permits: Option<u64>,
    #[serde(default, deserialize_with = "given")]
    pub(super) usage: Option<Pairs<u64>>,
    pub(super) model: Option<String>,
}

impl WrittenItem {
    /// Checks that the members make one item, of a verb that accepts a usage or does not.
    pub(super) fn checked(self, pointer: &str, has_usage: bool) -> Result<CheckItem, Invalid> {
        let Self { rule, domain, descriptor, limit, burst, key, permits, usage, model } = self;
        let refusal = match (&usage, &model) {
            (Some(_), _) if !has_usage => {
                Some("only for takes, peeks, charges, refunds, reserves, commits")
            }
            (Some(_), _) if permits.is_some() => Some("`permits` or `usage`, not both"),
            (Some(_), _) if limit.is_some() => Some("it is for rules with weights or prices"),
            (Some(counts), _) if counts.0.is_empty() => Some(
                "it names no unit; write those that were used, as {\"input\": 120}, or `permits`",
            ),
            _ => None,
        };
        if let Some(detail) = refusal {
            return Err(Invalid::at(format!("{pointer}/usage"), detail));
        }
        let usage = match (usage, model) {
            (Some(Pairs(counts)), model) => Some(UsageOf { counts, model }),
            (None, None) => None,
            (None, Some(_)) => {
                return Err(Invalid::at(format!("{pointer}/model"), "it belongs to a `usage`"));
            }
        };
        let counter = match (rule, domain, descriptor, limit, burst, key) {
            (Some(name), None, None, None, None, key) => Counter::Rule { name, key },
            (None, Some(domain), Some(descriptor), None, None, None) => {
                let entries = Vec::from(descriptor);
                if domain.is_empty() || !(1..=MAX_VALUES).contains(&entries.len()) {
                    let detail = "a descriptor has a domain, and 1 to 32 entries";
                    return Err(Invalid::at(pointer, detail));
                }
                Counter::Descriptor { domain, entries }
            }
            (None, None, None, Some(limit), burst, Some(key)) => {
                let Key::One(key) = key else {
                    let detail = "an inline limit has one key: a text, or {\"base64\": a text}";
                    return Err(Invalid::at(format!("{pointer}/key"), detail));
                };
                let at = |member: &str| format!("{pointer}/{member}");
                let limit = inline(&limit, burst, at)?;
                Counter::Inline { limit, key }
            }
            (None, None, Some(_), None, None, None) => {
                let detail = "`domain` is missing beside `descriptor`: the domain of the rule, \
                              \"default\" if the rule gives none";
                return Err(Invalid::at(pointer, detail));
            }
            (None, Some(_), None, None, None, None) => {
                let detail = "`descriptor` is missing beside `domain`: an object like \
                              {\"user\": \"42\"}";
                return Err(Invalid::at(pointer, detail));
            }
            _ => {
                let detail = "an item has `rule` and `key`, or `domain` and `descriptor`, or \
                              `limit` and `key` and perhaps `burst`, and no others of these";
                return Err(Invalid::at(pointer, detail));
            }
        };
        Ok(CheckItem { counter, written: permits, usage })
    }
}
