//! The keys that bound the reservations of a rule: `ttl`, `max_ttl` and `max_held`.

use std::time::Duration;

use rategate_core::span;

use super::rules::Reader;
use super::tables::{DimensionTable, RuleTable, Threshold};
use super::text::Text;
use crate::rule::HoldBounds;

/// The keys as they are written.
#[derive(Clone, Copy)]
pub(super) struct HoldKeys<'t> {
    pub(super) ttl: Option<&'t Text<Duration>>,
    pub(super) max_ttl: Option<&'t Text<Duration>>,
    pub(super) max_held: Option<&'t Text<Threshold>>,
}

impl<'t> HoldKeys<'t> {
    pub(super) const fn of_rule(table: &'t RuleTable) -> Self {
        let RuleTable { ttl, max_ttl, max_held, .. } = table;
        Self { ttl: ttl.as_ref(), max_ttl: max_ttl.as_ref(), max_held: max_held.as_ref() }
    }

    pub(super) const fn of_limit(table: &'t DimensionTable) -> Self {
        let DimensionTable { ttl, max_ttl, max_held, .. } = table;
        Self { ttl: ttl.as_ref(), max_ttl: max_ttl.as_ref(), max_held: max_held.as_ref() }
    }

    /// Returns these keys, and those of `other` in the place of absent ones.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            ttl: self.ttl.or(other.ttl),
            max_ttl: self.max_ttl.or(other.max_ttl),
            max_held: self.max_held.or(other.max_held),
        }
    }
}

impl Reader<'_> {
    /// Reads the bounds on reservations.
    pub(super) fn hold_bounds(&mut self, keys: HoldKeys<'_>) -> HoldBounds {
        let HoldKeys { ttl, max_ttl, max_held } = keys;
        let default = HoldBounds::DEFAULT;
        let longest = max_ttl.map_or(default.max_ttl, |text| text.0);
        if longest > HoldBounds::MAX_TTL {
            self.complain("max_ttl", "a reservation lasts at most 24h");
        }
        let ttl = ttl.map(|text| text.0);
        if ttl.is_some_and(|ttl| ttl > HoldBounds::MAX_TTL) {
            self.complain("ttl", "a reservation lasts at most 24h");
        } else if ttl.is_some_and(|ttl| ttl > longest) && !self.node.is_reported("max_ttl") {
            let bound = span::Text(span::whole_ns(longest));
            let of = if max_ttl.is_some() { "" } else { " unless the rule states another" };
            let message = format!("it is longer than `max_ttl`, which is {bound}{of}");
            self.suggest(
                "ttl",
                message,
                "write a shorter one, or a longer max_ttl, of 24h at most",
            );
        }
        HoldBounds {
            ttl: ttl.unwrap_or(default.ttl.min(longest)),
            max_ttl: longest,
            max_held: max_held.map(|text| text.0.0),
        }
    }
}
