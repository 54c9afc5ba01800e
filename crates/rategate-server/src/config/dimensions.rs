//! Rules with several limits, and what a call counts in each.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::hold_bounds::HoldKeys;
use super::limit::{Algorithm, Extra};
use super::naming;
use super::node::Node;
use super::rules::{Charging, KnownAlgorithm, NO_NAME, Reader};
use super::source::SourceLocation;
use super::tables::{CountsText, DimensionTable, Price, RuleTable};
use super::text::Text;
use crate::rule::{Counts, Dimension, Prices, Rule, Weight, Weights};

/// The maximum number of units with a weight, and of models with prices.
const MAX_UNITS: usize = 64;
const MAX_MODELS: usize = 1_000;
/// The message about a table without units.
const NO_UNITS: &str = "it is empty; give at least one unit, as in output = 6";

/// The weights of a table.
type WeightsTable = BTreeMap<String, Text<Weight>>;

/// The prices of a table by model.
type PricesTable = BTreeMap<String, BTreeMap<String, Text<Price>>>;

impl Reader<'_> {
    /// Returns the rules of a rule's limits. One without a name is reported and left out.
    pub(super) fn dimensions(
        &mut self,
        table: &RuleTable,
        algorithm: KnownAlgorithm,
        rule: &Rule,
    ) -> Vec<(SourceLocation, Rule)> {
        if table.limits.is_empty() {
            return Vec::new();
        }
        let of_each = "it belongs to each of the `limits`";
        let misplaced = [
            ("limit", table.limit.is_some(), "`limit` or `limits`, not both"),
            ("burst", table.burst.is_some(), of_each),
            ("schedule", !table.schedule.is_empty(), of_each),
            ("counts", table.counts.is_some(), of_each),
            ("tiers", !table.tiers.is_empty(), "a rule with `limits` has no tiers"),
        ];
        for (key, is_there, message) in misplaced {
            if is_there {
                self.complain(key, message);
            }
        }
        let tables = self.node.elements("limits");
        let mut limits = Vec::new();
        for (limit, node) in table.limits.iter().zip(tables) {
            let mut reader = Reader { node, path: None, all: self.all };
            limits.extend(reader.dimension(table, algorithm, limit, rule));
        }
        if self.is_right("weights") && table.weights.as_ref().is_some_and(BTreeMap::is_empty) {
            self.complain("weights", NO_UNITS);
        }
        let uses = |is: fn(&Counts) -> bool| limits.iter().any(|(_, rule)| is(&rule.counts));
        let has_weights = table.weights.as_ref().is_some_and(|weights| !weights.is_empty());
        let is_unused = [
            ("weights", has_weights, uses(|counts| matches!(counts, Counts::Usage(_)))),
            ("prices", table.prices.is_some(), uses(|counts| matches!(counts, Counts::Money(_)))),
        ];
        for (key, is_there, is_used) in is_unused {
            // Where a limit has no name, it may be the one.
            if is_there && !is_used && limits.len() == table.limits.len() {
                self.complain(key, "none of the `limits` counts by it");
            }
        }
        limits
    }

    fn dimension(
        &mut self,
        table: &RuleTable,
        algorithm: KnownAlgorithm,
        limit: &DimensionTable,
        rule: &Rule,
    ) -> Option<(SourceLocation, Rule)> {
        let own = limit.algorithm.or(algorithm);
        let algorithm = own.filter(|_| !self.node.is_reported("algorithm"));
        if algorithm == Some(Algorithm::Concurrency) {
            let message =
                "permits in flight have a rule of their own, which `also` adds or an item names";
            self.complain("algorithm", message);
        }
        let extra = Extra { burst: limit.burst };
        let (numbers, display_limit) = self.limit(limit.limit.as_ref(), algorithm, extra);
        let here = self.is_here(table.store);
        if algorithm == Some(Algorithm::Calendar) && here == Some(false) {
            self.complain("algorithm", "a store keeps no calendars; leave out the rule's `store`");
        }
        let charging = Charging {
            over: limit.over.or(table.over),
            debt: limit.debt.or(table.debt),
            most_debt: limit.most_debt.as_ref().or(table.most_debt.as_ref()),
        };
        let (over, debt) = self.charges(charging, table.store, algorithm);
        let schedule = self.schedule(&limit.schedule, algorithm, here);
        let weights = (limit.weights.as_ref(), table.weights.as_ref());
        let counts = self.counts(limit.counts, weights, table.prices.as_ref(), false);
        let hold_keys = HoldKeys::of_limit(limit).or(HoldKeys::of_rule(table));
        let hold_bounds = self.hold_bounds(hold_keys);
        let name = self.dimension_name(limit.name.as_deref(), rule)?;
        let location = self.location("name");
        let full: Arc<str> = format!("{}/{name}", rule.name).into();
        let envoy_name = table.envoy_name.as_ref().map_or(&full, |_| &rule.envoy_name);
        let limit = Rule {
            envoy_name: Arc::clone(envoy_name),
            dimension: Some(Dimension { of: Arc::clone(&rule.name), name: name.into() }),
            name: full,
            counts,
            limit: numbers,
            display_limit,
            over,
            debt,
            enforcement: limit.enforce.as_ref().map_or(rule.enforcement, |text| text.0),
            schedule,
            hold_bounds,
            origin: location.origin(),
            ..rule.clone()
        };
        Some((location, limit))
    }

    fn dimension_name<'t>(&mut self, name: Option<&'t str>, rule: &Rule) -> Option<&'t str> {
        let Some(name) = name else {
            self.miss("name", NO_NAME, "");
            return None;
        };
        if name.is_empty() {
            self.complain("name", "a limit needs a name");
        }
        if name.is_empty() || rule.name.is_empty() {
            return None;
        }
        let full = format!("{}/{name}", rule.name);
        if let Err(complaint) = naming::check(&full) {
            self.complain("name", format!("the limit's name would be {full:?}: {complaint}"));
        }
        Some(name)
    }

    /// Reads what a call counts. Weights are the limit's own, or those of its rule. Prices decide
    /// without a word where they are `own`.
    pub(super) fn counts(
        &mut self,
        counts: Option<CountsText>,
        (own, of_rule): (Option<&WeightsTable>, Option<&WeightsTable>),
        prices: Option<&PricesTable>,
        own_prices: bool,
    ) -> Counts {
        if own.is_some() && matches!(counts, Some(CountsText::Requests | CountsText::Money)) {
            self.complain("weights", "they weigh permits, and this limit counts none");
        }
        if own_prices && own.is_some() && prices.is_some() {
            self.complain("prices", "weights or prices, not both");
        }
        let is_priced = own_prices && counts.is_none() && prices.is_some();
        match counts {
            Some(CountsText::Requests) => Counts::Requests,
            Some(CountsText::Money) if prices.is_none() => {
                let help = "write prices.\"model\".input = \"3/1M\"";
                self.suggest("counts", "the rule has no prices", help);
                Counts::Permits
            }
            Some(CountsText::Money) => self.money(prices),
            _ if is_priced => self.money(prices),
            _ => {
                let Some(weights) = own.or(of_rule) else { return Counts::Permits };
                let weights = weights.iter().map(|(unit, weight)| (unit.as_str(), weight.0));
                self.weights("weights", weights).map_or(Counts::Permits, Counts::Usage)
            }
        }
    }

    fn money(&mut self, prices: Option<&PricesTable>) -> Counts {
        let mut known = BTreeMap::new();
        let prices = prices.into_iter().flatten();
        for (model, prices) in prices {
            if known.len() >= MAX_MODELS {
                self.complain("prices", format!("at most {MAX_MODELS} models have prices"));
                break;
            }
            let prices = prices.iter().map(|(unit, price)| (unit.as_str(), price.0.0));
            if let Some(weights) = self.weights("prices", prices) {
                let weights = Arc::unwrap_or_clone(weights);
                known.insert(Arc::from(model.as_str()), weights);
            }
        }
        if let Some(prices) = Prices::new(known) {
            return Counts::Money(Arc::new(prices));
        }
        if self.is_right("prices") {
            self.complain("prices", "no prices; write prices.\"model\".input = \"3/1M\"");
        }
        Counts::Permits
    }

    /// Returns `true` if a key is there, and no problem with it was reported.
    fn is_right(&self, key: &str) -> bool {
        self.node.child(key).is_some_and(Node::is_right)
    }

    fn weights<'t>(
        &mut self,
        key: &str,
        weights: impl ExactSizeIterator<Item = (&'t str, Weight)>,
    ) -> Option<Arc<Weights>> {
        let complaint = match weights.len() {
            // That of a rule with several limits is checked there.
            0 if !self.is_right(key) => return None,
            0 => NO_UNITS.to_owned(),
            1..=MAX_UNITS => {
                let weights = Weights::new(weights.map(|(unit, weight)| (unit.into(), weight)));
                match weights {
                    Some(weights) => return Some(Arc::new(weights)),
                    None => "their common denominator exceeds 64 bits; write fewer decimals".into(),
                }
            }
            _ => format!("at most {MAX_UNITS} units have a weight"),
        };
        self.complain(key, complaint);
        None
    }
}
