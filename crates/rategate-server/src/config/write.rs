//! Writing of rules as a file of the native format, for imports.

use std::fmt::Write as _;

use rategate::AnyPolicy;
use rategate_core::span;
use toml::Value as Toml;

use super::limit::{Algorithm, Written};
use crate::rule::{
    CounterLocation, DisplayLimit, Enforcement, Entry, HELD_NS, Limit, OnUnavailable, Rule,
    RuleSet, Unit, Value,
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
    text.push_str("[[rule]]\n");
    let mut put = |key: &str, value: &str| {
        // Writing to memory does not fail.
        let _ = writeln!(text, "{key} = {value}");
    };
    put("name", &quoted(&rule.name));
    if rule.envoy_name != rule.name {
        put("envoy_name", &quoted(&rule.envoy_name));
    }
    put("domain", &quoted(&rule.domain));
    if !rule.entries.is_empty() {
        put("match", &list(rule.entries.iter().map(entry)));
    }
    put("limit", &limit);
    if algorithm != Algorithm::Gcra {
        put("algorithm", &quoted(algorithm.name()));
    }
    if let Some(burst) = burst {
        put("burst", &burst.to_string());
    }
    match rule.enforcement {
        Enforcement::All => {}
        Enforcement::Shadow => put("enforce", "\"shadow\""),
        Enforcement::Share(share) => {
            put("enforce", &quoted(&format!("{:.2}%", f64::from(share) / 100.0)));
        }
    }
    if rule.quota {
        put("quota", "true");
    }
    if !rule.replaces.is_empty() {
        put("replaces", &list(rule.replaces.iter().map(|name| quoted(name))));
    }
    if rule.detailed_metric {
        put("detailed_metric", "true");
    }
    match rule.location {
        CounterLocation::Here => {}
        CounterLocation::StoreExact => put("store", "\"exact\""),
        CounterLocation::StoreLeased { lease_ns } => {
            put("store", "\"leased\"");
            put("lease", &quoted(&span::Text(lease_ns).to_string()));
        }
    }
    if algorithm == Algorithm::Concurrency && rule.held_ns != HELD_NS {
        put("lease", &quoted(&span::Text(rule.held_ns).to_string()));
    }
    match rule.on_unavailable {
        OnUnavailable::Local => {}
        OnUnavailable::Deny => put("on_unavailable", "\"deny\""),
        OnUnavailable::Admit => put("on_unavailable", "\"admit\""),
    }
    if let Some(keys) = rule.max_keys {
        put("keys", &keys.to_string());
    }
    for (scheduled, (_, limit, burst)) in schedule {
        text.push_str("[[rule.schedule]]\n");
        let mut put = |key: &str, value: &str| {
            let _ = writeln!(text, "{key} = {value}");
        };
        let (from, to) = scheduled.times();
        put("days", &list(scheduled.days().map(quoted)));
        put("from", &quoted(&from));
        put("to", &quoted(&to));
        put("zone", &quoted(&scheduled.zone));
        put("limit", &limit);
        if let Some(burst) = burst {
            put("burst", &burst.to_string());
        }
    }
    text.push('\n');
    Ok(())
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
            format!(
                "{{ key = {key}, values = {} }}",
                list(values.iter().map(|value| quoted(value)))
            )
        }
        Value::Pattern { text, shared } => {
            let shared = if *shared { ", shared = true" } else { "" };
            format!("{{ key = {key}, value = {}{shared} }}", quoted(text))
        }
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

fn quoted(text: &str) -> String {
    Toml::String(text.to_owned()).to_string()
}
