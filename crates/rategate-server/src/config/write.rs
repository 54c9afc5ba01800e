//! Writing of rules as a file of the native format, for imports.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use rategate::AnyPolicy;
use rategate_core::span;
use toml::Value as Toml;

use super::calendar;
use super::limit::{Algorithm, Extra, Written};
use super::metadata;
use crate::rule::{
    CounterLocation, Counts, DisplayLimit, Enforcement, Entry, HELD_NS, HoldBounds, Limit, Look,
    OnUnavailable, Over, Prices, Rule, RuleSet, Scheduled, Unit, Value, Weight, Weights, threshold,
};

/// The error of a rule that the native format cannot express.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule `{rule}` has {what}, which the native format does not")]
pub struct ExportError {
    /// The name of the rule.
    pub rule: String,
    /// The property that cannot be expressed.
    pub what: &'static str,
}

/// Returns a file of the native format that loads to these rules, except for their positions.
///
/// # Errors
///
/// Returns [`ExportError`] for a limit of a kind that no configuration creates.
pub fn to_toml(rules: &RuleSet) -> Result<String, ExportError> {
    let mut text = String::new();
    let name_of = |rule: &Rule| rule.dimension.as_ref().map(|limit| Arc::clone(&limit.of));
    let mut rest = rules.rules.as_slice();
    while let Some(rule) = rest.first() {
        // The limits of a rule follow each other.
        let is_beside = |other: &&Rule| rule.dimension.is_some() && name_of(other) == name_of(rule);
        let count = rest.iter().take_while(is_beside).count().max(1);
        let (rules, after) = rest.split_at_checked(count).unwrap_or((rest, &[]));
        if rule.dimension.is_some() {
            write_table(&mut text, "rule", common_keys(rule, rules)?);
            for rule in rules {
                write_limit(&mut text, rule)?;
            }
        } else {
            write_rule(&mut text, rule)?;
        }
        text.push('\n');
        rest = after;
    }
    Ok(text)
}

/// The keys of a table with their values, of which some are left out.
type Keys = Vec<(&'static str, Option<String>)>;

/// The numbers of a limit, and of those at certain times.
struct Numbers<'r> {
    algorithm: Algorithm,
    limit: String,
    extra: Extra,
    schedule: Vec<(&'r Scheduled, String, Extra)>,
}

fn numbers(rule: &Rule) -> Result<Numbers<'_>, ExportError> {
    let (algorithm, limit, extra) = limit_of(rule, &rule.limit, rule.display_limit)?;
    let mut schedule = Vec::new();
    for scheduled in &rule.schedule {
        schedule.push((scheduled, limit_of(rule, &scheduled.limit, scheduled.display_limit)?));
    }
    // A rule has one algorithm for all its limits; those that count nothing have none.
    let of_schedule = schedule.iter().map(|(_, (algorithm, ..))| *algorithm);
    let mut algorithms = std::iter::once(algorithm).chain(of_schedule).flatten();
    let algorithm = algorithms.next().unwrap_or(Algorithm::Gcra);
    if algorithms.any(|other| other != algorithm) {
        return Err(ExportError { rule: rule.name.to_string(), what: "several algorithms" });
    }
    let schedule = schedule.into_iter().map(|(of, (_, limit, extra))| (of, limit, extra));
    Ok(Numbers { algorithm, limit, extra, schedule: schedule.collect() })
}

/// Writes a rule of one limit.
fn write_rule(text: &mut String, rule: &Rule) -> Result<(), ExportError> {
    let numbers = numbers(rule)?;
    let mut keys = common_keys(rule, std::slice::from_ref(rule))?;
    let is_held = numbers.algorithm == Algorithm::Concurrency && rule.held_ns != HELD_NS;
    if is_held {
        keys.push(("lease", Some(lease(rule.held_ns))));
    }
    keys.extend(limit_keys(rule, &numbers));
    write_table(text, "rule", keys);
    write_schedule(text, "rule.schedule", &numbers);
    Ok(())
}

/// Writes one of several limits.
fn write_limit(text: &mut String, rule: &Rule) -> Result<(), ExportError> {
    let numbers = numbers(rule)?;
    let name = rule.dimension.as_ref().map(|limit| quoted(&limit.name));
    let mut keys = vec![("name", name)];
    keys.extend(limit_keys(rule, &numbers));
    write_table(text, "rule.limits", keys);
    write_schedule(text, "rule.limits.schedule", &numbers);
    Ok(())
}

/// Returns the keys that limits of one rule share.
fn common_keys(rule: &Rule, limits: &[Rule]) -> Result<Keys, ExportError> {
    let (store, lease_ns) = match rule.location {
        CounterLocation::Here => (None, None),
        CounterLocation::StoreExact => (Some("exact"), None),
        CounterLocation::StoreLeased { lease_ns } => (Some("leased"), Some(lease_ns)),
    };
    let on_unavailable = match rule.on_unavailable {
        OnUnavailable::Local => None,
        OnUnavailable::Deny => Some("deny"),
        OnUnavailable::Admit => Some("admit"),
    };
    let metadata = rule.metadata.as_ref().map(|metadata| {
        let what = "a null in its metadata";
        metadata::to_toml(metadata).ok_or(ExportError { rule: rule.name.to_string(), what })
    });
    let metadata = metadata.transpose()?;
    let flag = |is_set: bool| is_set.then(|| "true".to_owned());
    let name = rule.dimension.as_ref().map_or(&rule.name, |limit| &limit.of);
    let prices = limits.iter().find_map(|limit| match &limit.counts {
        Counts::Money(prices) => Some(prices_text(prices)),
        _ => None,
    });
    Ok(vec![
        ("name", Some(quoted(name))),
        ("envoy_name", (rule.envoy_name != rule.name).then(|| quoted(&rule.envoy_name))),
        ("domain", Some(quoted(&rule.domain))),
        ("match", list(rule.entries.iter().map(entry))),
        ("look", (rule.look == Look::Room).then(|| quoted("room"))),
        ("also", list(rule.also.iter().map(|name| quoted(name)))),
        ("prices", prices),
        ("quota", flag(rule.quota)),
        ("replaces", list(rule.replaces.iter().map(|name| quoted(name)))),
        ("metadata", metadata.map(|metadata| metadata.to_string())),
        ("detailed_metric", flag(rule.detailed_metric)),
        ("store", store.map(quoted)),
        ("lease", lease_ns.map(lease)),
        ("on_unavailable", on_unavailable.map(quoted)),
        ("keys", rule.max_keys.map(|keys| keys.to_string())),
    ])
}

/// Returns the keys of one limit.
fn limit_keys(rule: &Rule, numbers: &Numbers<'_>) -> Keys {
    let Numbers { algorithm, limit, extra, .. } = numbers;
    let enforce = match rule.enforcement {
        Enforcement::All => None,
        Enforcement::Shadow => Some("shadow".to_owned()),
        Enforcement::Soft => Some("soft".to_owned()),
    };
    let holds = rule.hold_bounds;
    let default_ttl = HoldBounds::DEFAULT.ttl.min(holds.max_ttl);
    let (counts, weights) = match &rule.counts {
        Counts::Permits => (None, None),
        Counts::Requests => (Some("requests"), None),
        Counts::Money(_) => (Some("money"), None),
        Counts::Usage(weights) => (None, Some(weights_text(weights, Weight::to_string))),
    };
    vec![
        ("limit", Some(limit.clone())),
        ("algorithm", (*algorithm != Algorithm::Gcra).then(|| quoted(algorithm.name()))),
        ("burst", extra.burst.map(|burst| burst.to_string())),
        ("counts", counts.map(quoted)),
        ("weights", weights),
        ("over", (rule.over == Over::Charge).then(|| quoted("charge"))),
        ("debt", rule.debt.is_carried().then(|| quoted("carry"))),
        ("most_debt", (rule.debt.max_ns() < u64::MAX).then(|| lease(rule.debt.max_ns()))),
        ("enforce", enforce.as_deref().map(quoted)),
        ("ttl", (holds.ttl != default_ttl).then(|| duration(holds.ttl))),
        (
            "max_ttl",
            (holds.max_ttl != HoldBounds::DEFAULT.max_ttl).then(|| duration(holds.max_ttl)),
        ),
        ("max_held", holds.max_held.map(|share| quoted(&threshold(share)))),
    ]
}

fn weights_text(weights: &Weights, text: impl Fn(&Weight) -> String) -> String {
    let keys = weights
        .iter()
        .map(|(unit, weight)| format!("{} = {}", quoted(unit), quoted(&text(&weight))));
    format!("{{ {} }}", keys.collect::<Vec<_>>().join(", "))
}

fn prices_text(prices: &Prices) -> String {
    let models = prices.iter().map(|(model, weights)| {
        format!("{} = {}", quoted(model), weights_text(weights, |weight| weight.price_text()))
    });
    format!("{{ {} }}", models.collect::<Vec<_>>().join(", "))
}

fn write_schedule(text: &mut String, name: &str, numbers: &Numbers<'_>) {
    for (scheduled, limit, extra) in &numbers.schedule {
        let (from, to) = scheduled.times();
        let keys = [
            ("days", list(scheduled.days().map(quoted))),
            ("from", Some(quoted(&from))),
            ("to", Some(quoted(&to))),
            ("zone", Some(quoted(&scheduled.zone))),
            ("limit", Some(limit.clone())),
            ("burst", extra.burst.map(|burst| burst.to_string())),
        ];
        write_table(text, name, keys);
    }
}

/// Writes the keys of a table that have a value.
fn write_table<'k>(
    text: &mut String,
    name: &str,
    keys: impl IntoIterator<Item = (&'k str, Option<String>)>,
) {
    // Writing to memory does not fail.
    let _ = writeln!(text, "[[{name}]]");
    for (key, value) in keys {
        let _ = value.map(|value| writeln!(text, "{key} = {value}"));
    }
}

/// Returns the algorithm, if it has one, and the limit and its further numbers that read back as
/// the same.
fn limit_of(
    rule: &Rule,
    limit: &Limit,
    display_limit: DisplayLimit,
) -> Result<(Option<Algorithm>, String, Extra), ExportError> {
    let none = Extra::default();
    let export_error = |what| ExportError { rule: rule.name.to_string(), what };
    let policy = match limit {
        Limit::Unlimited => return Ok((None, quoted("unlimited"), none)),
        Limit::Exempt => return Ok((None, quoted("exempt"), none)),
        Limit::Nothing => return Ok((None, display_limit_text(display_limit), none)),
        Limit::Policy(policy) => Some(*policy),
        Limit::Counted(window) => window.granting(),
    };
    let of_policy = policy.as_ref().and_then(Algorithm::of);
    let (algorithm, extra) = match (of_policy, policy) {
        _ if matches!(limit, Limit::Counted(_)) => (Algorithm::CountedWindow, none),
        (Some((algorithm @ Algorithm::Concurrency, permits, _)), _) => {
            return Ok((Some(algorithm), permits.to_string(), none));
        }
        (_, Some(AnyPolicy::FixedWindow(window))) if window.calendar().is_some() => {
            let limit = calendar::to_toml(&window).ok_or_else(|| export_error("a calendar"))?;
            return Ok((Some(Algorithm::Calendar), limit, none));
        }
        (_, Some(AnyPolicy::Gcra(bucket))) => {
            (Algorithm::Gcra, Extra { burst: Some(bucket.burst_size().get()) })
        }
        (Some((algorithm, ..)), _) => (algorithm, none),
        (None, _) => return Err(export_error("an algorithm")),
    };
    let DisplayLimit { permits, multiplier, unit } = display_limit;
    let short = match unit {
        Unit::Second => Some("s"),
        Unit::Minute => Some("min"),
        Unit::Hour => Some("h"),
        Unit::Day => Some("d"),
        Unit::Week | Unit::Month | Unit::Year => None,
    };
    let short = short.map(|unit| match multiplier {
        1 => format!("{permits}/{unit}"),
        many => format!("{permits}/{many}{unit}"),
    });
    let exact = of_policy.map(|(_, permits, period_ns)| format!("{permits}/{period_ns}ns"));
    let of_text = |text: String| (quoted(&text), Written::parse(&text));
    let table = Written::per_unit(permits, multiplier, unit);
    // The plainest first.
    let texts = short.map(of_text).into_iter().chain([(display_limit_text(display_limit), table)]);
    for (text, written) in texts.chain(exact.map(of_text)) {
        for extra in [Extra { burst: None }, extra] {
            let built = written.clone().and_then(|written| written.build(algorithm, extra));
            if built.is_ok_and(|built| built == (*limit, display_limit)) {
                return Ok((Some(algorithm), text, extra));
            }
        }
    }
    Err(export_error("a limit"))
}

fn display_limit_text(display_limit: DisplayLimit) -> String {
    let DisplayLimit { permits, multiplier, unit } = display_limit;
    let unit = unit.name();
    match multiplier {
        1 => format!("{{ permits = {permits}, unit = \"{unit}\" }}"),
        many => format!("{{ permits = {permits}, unit = \"{unit}\", multiplier = {many} }}"),
    }
}

fn entry(entry: &Entry) -> String {
    let key = quoted(&entry.key);
    match &entry.value {
        Value::Any => key,
        Value::Exact(value) => format!("{{ key = {key}, value = {} }}", quoted(value)),
        Value::OneOf(values) => {
            let values = list(values.iter().map(|value| quoted(value))).unwrap_or_default();
            format!("{{ key = {key}, values = {values} }}")
        }
        Value::Pattern { text, shared } => {
            let shared = if *shared { ", shared = true" } else { "" };
            format!("{{ key = {key}, value = {}{shared} }}", quoted(text))
        }
    }
}

/// Returns a list, unless it is empty.
fn list(items: impl Iterator<Item = String>) -> Option<String> {
    let items = items.collect::<Vec<_>>();
    (!items.is_empty()).then(|| format!("[{}]", items.join(", ")))
}

fn lease(ns: u64) -> String {
    quoted(&span::Text(ns).to_string())
}

fn duration(duration: Duration) -> String {
    lease(span::whole_ns(duration))
}

fn quoted(text: &str) -> String {
    Toml::String(text.to_owned()).to_string()
}
