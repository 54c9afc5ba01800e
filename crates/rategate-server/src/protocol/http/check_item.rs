//! The items of `POST /v1/check`: permits of one counter each.

use serde::Deserialize;

use super::inline_limit::inline;
use super::invalid::Invalid;
use super::json::{Descriptor, Key, Numbers, Pairs, Text, Value, Whole, given};
use crate::engine::Inline;

/// Permits of one counter.
#[derive(Debug)]
pub(super) struct CheckItem<'a> {
    pub(super) counter: Counter<'a>,
    /// Absent if the request leaves them out.
    pub(super) written: Option<u64>,
    /// The maximum number of permits to hold, of which `permits` is the minimum.
    pub(super) at_most: Option<u64>,
    /// The units that were used, in place of permits.
    pub(super) usage: Option<UsageOf<'a>>,
}

/// The usage of a call: the number of each unit, and the model.
#[derive(Debug)]
pub(super) struct UsageOf<'a> {
    pub(super) counts: Numbers<'a>,
    pub(super) model: Option<Text<'a>>,
}

/// The address of a counter.
#[derive(Debug)]
pub(super) enum Counter<'a> {
    /// The counter of a rule.
    Rule { name: Text<'a>, key: Option<Key<'a>> },
    /// The counter of the rule that fits a descriptor best.
    Descriptor { domain: Text<'a>, entries: Pairs<'a> },
    /// The counter of a limit that the caller supplies.
    Inline { limit: Inline, key: Value<'a> },
}

impl CheckItem<'_> {
    /// Returns the number of permits, of which one is the default.
    pub(super) fn permits(&self) -> u64 {
        self.written.unwrap_or(u64::from(self.usage.is_none()))
    }
}

/// An item as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenItem<'a> {
    #[serde(borrow)]
    pub(super) rule: Option<Text<'a>>,
    pub(super) domain: Option<Text<'a>>,
    pub(super) descriptor: Option<Descriptor<'a>>,
    pub(super) limit: Option<Text<'a>>,
    pub(super) burst: Option<Whole>,
    pub(super) key: Option<Key<'a>>,
    #[serde(default, deserialize_with = "given")]
    pub(super) permits: Option<Whole>,
    #[serde(default, deserialize_with = "given")]
    pub(super) at_most: Option<Whole>,
    #[serde(default, deserialize_with = "given")]
    pub(super) usage: Option<Numbers<'a>>,
    pub(super) model: Option<Text<'a>>,
}

/// The members that a verb accepts.
#[derive(Clone, Copy)]
pub(super) struct Uses {
    pub(super) usage: bool,
    pub(super) at_most: bool,
}

impl<'a> WrittenItem<'a> {
    /// Returns `true` if the request leaves out all members.
    pub(super) const fn is_empty(&self) -> bool {
        let Self { rule, domain, descriptor, limit, burst, key, permits, at_most, usage, model } =
            self;
        rule.is_none()
            && domain.is_none()
            && descriptor.is_none()
            && limit.is_none()
            && burst.is_none()
            && key.is_none()
            && permits.is_none()
            && at_most.is_none()
            && usage.is_none()
            && model.is_none()
    }

    /// Checks that the members make one item.
    pub(super) fn checked(self, pointer: &str, uses: Uses) -> Result<CheckItem<'a>, Invalid> {
        let Self { rule, domain, descriptor, limit, burst, key, permits, at_most, usage, model } =
            self;
        if at_most.is_some() && (usage.is_some() || !uses.at_most) {
            let detail = if uses.at_most {
                "a range of permits, and a `usage` has one cost; write one without the other"
            } else {
                "only for the verb `reserve`"
            };
            return Err(Invalid::at(format!("{pointer}/at_most"), detail));
        }
        let refusal = match (&usage, &model) {
            (Some(_), _) if !uses.usage => {
                Some("only for takes without `at_most`, peeks, charges, refunds, reserves, commits")
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
            (Some(counts), model) => Some(UsageOf { counts, model }),
            (None, None) => None,
            (None, Some(_)) => {
                return Err(Invalid::at(format!("{pointer}/model"), "it belongs to a `usage`"));
            }
        };
        let written = permits.map(|permits| permits.0);
        let counter = match (rule, domain, descriptor, limit, burst, key) {
            (Some(name), None, None, None, None, key) => Counter::Rule { name, key },
            (None, Some(domain), Some(descriptor), None, None, None) => {
                if domain.0.is_empty() || descriptor.0.is_empty() {
                    return Err(Invalid::at(pointer, "an empty domain or descriptor"));
                }
                Counter::Descriptor { domain, entries: descriptor.0 }
            }
            (None, None, None, Some(limit), burst, Some(key)) => {
                let Key::One(key) = key else {
                    let detail = "an inline limit has one key: a text, or {\"base64\": a text}";
                    return Err(Invalid::at(format!("{pointer}/key"), detail));
                };
                let at = |member: &str| format!("{pointer}/{member}");
                let limit = inline(&limit.0, burst.map(|burst| burst.0), at)?;
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
                              `limit`, `burst` and `key`, and no others of these";
                return Err(Invalid::at(pointer, detail));
            }
        };
        Ok(CheckItem { counter, written, at_most: at_most.map(|most| most.0), usage })
    }
}
