//! Writing of rules as a file of the native format, for imports.

use std::fmt::Write as _;

use rategate::AnyPolicy;
use rategate_core::span;
use toml::Value as Toml;

use super::calendar;
use super::limit::{Algorithm, Written};
use super::metadata;
use crate::rule::{
    CounterLocation, DisplayLimit, Enforcement, Entry, HELD_NS, Limit, Look, OnUnavailable, Over,
    Rule, RuleSet, Unit, Value,
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
    for rule in &rules.rules {
        write_rule(&mut text, rule)?;
    }
    Ok(text)
}

fn write_rule(text: &mut String, rule: &Rule) -> Result<(), ExportError> {
    let (algorithm, limit, burst) = limit_of(rule, &rule.limit, rule.display_limit)?;
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
    let (store, lease_ns) = match rule.location {
        CounterLocation::Here => (None, None),
        CounterLocation::StoreExact => (Some("exact"), None),
        CounterLocation::StoreLeased { lease_ns } => (Some("leased"), Some(lease_ns)),
    };
    let is_held = algorithm == Algorithm::Concurrency && rule.held_ns != HELD_NS;
    let on_unavailable = match rule.on_unavailable {
        OnUnavailable::Local => None,
        OnUnavailable::Deny => Some("deny"),
        OnUnavailable::Admit => Some("admit"),
    };
    let enforce = match rule.enforcement {
        Enforcement::All => None,
        Enforcement::Shadow => Some("shadow".to_owned()),
        Enforcement::Share(share) => Some(format!("{:.2}%", f64::from(share) / 100.0)),
    };
    let metadata = rule.metadata.as_ref().map(|metadata| {
        let what = "a null in its metadata";
        metadata::to_toml(metadata).ok_or(ExportError { rule: rule.name.to_string(), what })
    });
    let metadata = metadata.transpose()?;
    let flag = |is_set: bool| is_set.then(|| "true".to_owned());
    let keys = [
        ("name", Some(quoted(&rule.name))),
        ("envoy_name", (rule.envoy_name != rule.name).then(|| quoted(&rule.envoy_name))),
        ("domain", Some(quoted(&rule.domain))),
        ("match", list(rule.entries.iter().map(entry))),
        ("descriptor", rule.descriptor.map(|nth| nth.to_string())),
        ("limit", Some(limit)),
        ("algorithm", (algorithm != Algorithm::Gcra).then(|| quoted(algorithm.name()))),
        ("burst", burst.map(|burst| burst.to_string())),
        ("over", (rule.over == Over::Charge).then(|| quoted("charge"))),
        ("look", (rule.look == Look::Room).then(|| quoted("room"))),
        ("debt", rule.debt.is_carried().then(|| quoted("carry"))),
        ("most_debt", (rule.debt.max_ns() < u64::MAX).then(|| lease(rule.debt.max_ns()))),
        ("enforce", enforce.as_deref().map(quoted)),
        ("quota", flag(rule.quota)),
        ("replaces", list(rule.replaces.iter().map(|name| quoted(name)))),
        ("metadata", metadata.map(|metadata| metadata.to_string())),
        ("detailed_metric", flag(rule.detailed_metric)),
        ("store", store.map(quoted)),
        ("lease", lease_ns.or(is_held.then_some(rule.held_ns)).map(lease)),
        ("on_unavailable", on_unavailable.map(quoted)),
        ("keys", rule.max_keys.map(|keys| keys.to_string())),
    ];
    write_table(text, "rule", keys);
    for (scheduled, (_, limit, burst)) in schedule {
        let (from, to) = scheduled.times();
        let keys = [
            ("days", list(scheduled.days().map(quoted))),
            ("from", Some(quoted(&from))),
            ("to", Some(quoted(&to))),
            ("zone", Some(quoted(&scheduled.zone))),
            ("limit", Some(limit)),
            ("burst", burst.map(|burst| burst.to_string())),
        ];
        write_table(text, "rule.schedule", keys);
    }
    text.push('\n');
    Ok(())
}

/// Writes the keys of a table that have a value.
fn write_table<const N: usize>(text: &mut String, name: &str, keys: [(&str, Option<String>); N]) {
    // Writing to memory does not fail.
    let _ = writeln!(text, "[[{name}]]");
    for (key, value) in keys {
        let _ = value.map(|value| writeln!(text, "{key} = {value}"));
    }
}

/// Returns the algorithm, if it has one, and the limit and burst as text that reads back as the
/// same.
fn limit_of(
    rule: &Rule,
    limit: &Limit,
    display_limit: DisplayLimit,
) -> Result<(Option<Algorithm>, String, Option<u64>), ExportError> {
    let export_error = |what| ExportError { rule: rule.name.to_string(), what };
    let policy = match limit {
        Limit::Unlimited => return Ok((None, quoted("unlimited"), None)),
        Limit::Exempt => return Ok((None, quoted("exempt"), None)),
        Limit::Nothing => return Ok((None, display_limit_text(display_limit), None)),
        Limit::Policy(policy) => Some(*policy),
        Limit::Counted(window) => window.granting(),
    };
    let of_policy = policy.as_ref().and_then(Algorithm::of);
    let (algorithm, burst) = match (of_policy, policy) {
        _ if matches!(limit, Limit::Counted(_)) => (Algorithm::CountedWindow, None),
        (Some((algorithm @ Algorithm::Concurrency, permits, _)), _) => {
            return Ok((Some(algorithm), permits.to_string(), None));
        }
        (_, Some(AnyPolicy::Calendar(policy))) => {
            let limit = calendar::to_toml(&policy).ok_or_else(|| export_error("a calendar"))?;
            return Ok((Some(Algorithm::Calendar), limit, None));
        }
        (_, Some(AnyPolicy::Gcra(bucket))) => (Algorithm::Gcra, Some(bucket.burst_size().get())),
        (Some((algorithm, ..)), _) => (algorithm, None),
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
        for burst in [None, burst] {
            let built = written.clone().and_then(|written| written.build(algorithm, burst));
            if built.is_ok_and(|built| built == (*limit, display_limit)) {
                return Ok((Some(algorithm), text, burst));
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

fn quoted(text: &str) -> String {
    Toml::String(text.to_owned()).to_string()
}
