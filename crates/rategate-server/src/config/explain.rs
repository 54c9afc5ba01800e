//! Explanations of the rule that a request comes under, and of the effect of its limit.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use rategate::AnyPolicy;
use rategate_core::span;

use super::limit::Algorithm;
use crate::engine::Compiled;
use crate::nearest::nearest;
use crate::rule::{
    CounterLocation, Counts, DisplayLimit, Enforcement, HoldBounds, Limit, Rule, threshold,
};

/// The maximum number of rules without a match that are printed. The rest is counted.
const MAX_LISTED: usize = 20;
/// The windows for which ceilings are printed: a second, a minute, an hour, a day.
const WINDOWS_NS: [(&str, u64); 4] = [
    ("second", 1_000_000_000),
    ("minute", 60_000_000_000),
    ("hour", 3_600_000_000_000),
    ("day", DAY_NS),
];
const DAY_NS: u64 = 86_400_000_000_000;

/// The rule that a descriptor comes under, and the reasons why the others of its domain do not
/// match.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The first matching rule.
    pub rule: Option<Arc<Rule>>,
    /// Further rules for the same descriptor, which the request comes under too.
    pub also: Vec<Arc<Rule>>,
    /// All other rules of the domain, with the reasons.
    pub others: Vec<(Arc<Rule>, String)>,
    /// `true` if the domain exists.
    pub is_domain: bool,
    /// A sentence about an unknown domain or key, with the most similar existing name.
    pub hint: Option<String>,
}

/// Returns the rule that the descriptor comes under, with the reasons for the others.
#[must_use]
pub fn explain(rules: &Compiled, domain: &str, entries: &[(&str, &str)]) -> Explanation {
    let matcher = rules.matcher();
    let bytes: Vec<_> =
        entries.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect();
    let all = matcher.find_all(domain.as_bytes(), &bytes);
    let mut all = all.iter().filter_map(|index| matcher.rules().get(*index)).cloned();
    let (found, also) = (all.next(), all.collect::<Vec<_>>());
    let of_domain = || matcher.rules().iter().filter(|rule| *rule.domain == *domain);
    let applies = |rule: &Rule| found.iter().chain(&also).any(|applied| applied.name == rule.name);
    let others = of_domain().filter(|rule| !applies(rule));
    let others = others.map(|rule| (Arc::clone(rule), mismatch(rule, entries, found.as_ref())));
    let (others, is_domain) = (others.collect(), of_domain().next().is_some());
    let keys = entries.iter().map(|(key, _)| *key);
    let hint = found
        .is_none()
        .then(|| hint(matcher.rules().iter().map(|rule| &**rule), domain, keys))
        .flatten();
    Explanation { others, is_domain, rule: found, also, hint }
}

/// The maximum number of rules, and of their domains and keys, that an unknown name is compared
/// with.
const MAX_RULES: usize = 1_000;
const MAX_KNOWN: usize = 100;
/// The maximum number of unknown keys that are compared. Clients may send any number, which must
/// cost the service nothing.
const MAX_UNKNOWN: usize = 8;

/// Returns a sentence about the unknown domain, or else the first unknown key, that resembles an
/// existing one.
pub(crate) fn hint<'a, 'b>(
    rules: impl Iterator<Item = &'a Rule>,
    domain: &str,
    keys: impl Iterator<Item = &'b str>,
) -> Option<String> {
    let (mut domains, mut known) = (BTreeSet::new(), BTreeSet::new());
    for rule in rules.take(MAX_RULES) {
        domains.insert(&*rule.domain);
        if *rule.domain == *domain {
            known.extend(rule.entries.iter().map(|entry| &*entry.key));
        }
    }
    let nearest =
        |word, known: &BTreeSet<&'a str>| nearest(word, known.iter().copied().take(MAX_KNOWN));
    if !domains.contains(domain) {
        let meant = nearest(domain, &domains)?;
        return Some(format!(
            "no rule is of the domain `{}`; did you mean `{meant}`?",
            domain.escape_debug()
        ));
    }
    keys.filter(|key| !known.contains(key)).take(MAX_UNKNOWN).find_map(|key| {
        let meant = nearest(key, &known)?;
        Some(format!(
            "no rule of the domain has the key `{}`; did you mean `{meant}`?",
            key.escape_debug()
        ))
    })
}

/// Returns the reason why a rule was not found.
fn mismatch(rule: &Rule, entries: &[(&str, &str)], found: Option<&Arc<Rule>>) -> String {
    for (nth, (entry, (key, value))) in rule.entries.iter().zip(entries).enumerate() {
        let nth = nth.saturating_add(1);
        if *entry.key != **key {
            return format!("its entry {nth} is `{}`, and the call's is `{key}`", entry.key);
        }
        if !entry.value.fits(value.as_bytes()) {
            return format!("its `{key}` is {}, and the call's is `{value}`", entry.value);
        }
    }
    let (wanted, given) = (rule.entries.len(), entries.len());
    if wanted != given {
        return format!("it is for descriptors of {wanted} entries, and the call's has {given}");
    }
    match found {
        Some(found) => format!("it matches, but `{}` is more specific", found.name),
        None => "it matches, but a more specific value selects another branch".to_owned(),
    }
}

/// Returns the maximum number of permits that a limit grants in any window of `window_ns`. `None`
/// if there is no maximum.
#[must_use]
pub fn ceiling(limit: &Limit, window_ns: u64) -> Option<u128> {
    let wide = u128::from(window_ns);
    let policy = match limit {
        Limit::Unlimited | Limit::Exempt => return None,
        Limit::Nothing => return Some(0),
        Limit::Policy(policy) => *policy,
        Limit::Counted(window) => match window.granting() {
            Some(policy) => policy,
            None => return Some(0),
        },
    };
    let (algorithm, permits, period_ns) = Algorithm::of(&policy)?;
    let (permits, period_ns) = (u128::from(permits), u128::from(period_ns.max(1)));
    let periods = wide.div_ceil(period_ns);
    Some(match (algorithm, policy) {
        (_, AnyPolicy::Gcra(bucket)) => {
            let earned = wide.saturating_mul(permits).div_ceil(period_ns);
            earned.saturating_add(bucket.burst_size().get().into()).saturating_sub(1)
        }
        (Algorithm::Concurrency, _) => return None,
        (Algorithm::Calendar, AnyPolicy::FixedWindow(window)) => {
            // A week that a zone shortened by a day has six. A day can be short, where a zone
            // skipped most of it, and lie between two others.
            let is_of_days = window.calendar().is_some_and(|it| it.text().starts_with("day "));
            let (at_least_ns, more) = if is_of_days { (DAY_NS, 2) } else { (6 * DAY_NS, 1) };
            let windows = wide.div_ceil(at_least_ns.into()).saturating_add(more);
            windows.saturating_mul(permits)
        }
        (_, AnyPolicy::FixedWindow(_)) => periods.saturating_add(1).saturating_mul(permits),
        _ => periods.saturating_mul(permits),
    })
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rule) = &self.rule {
            write_rule(f, rule)?;
        } else {
            let domain = if self.is_domain { "" } else { " is of this domain" };
            writeln!(f, "no rule{domain}: the call passes, and nothing is counted")?;
        }
        if let Some(hint) = &self.hint {
            writeln!(f, "{hint}")?;
        }
        for rule in &self.also {
            f.write_str("\nas well:\n")?;
            write_rule(f, rule)?;
        }
        if !self.others.is_empty() {
            f.write_str("\nnot matched:\n")?;
        }
        for (rule, why) in self.others.iter().take(MAX_LISTED) {
            let given = rule.given().map(|given| format!(" ({})", given.escape_debug()));
            writeln!(f, "  {}{}: {why}", rule.name, given.unwrap_or_default())?;
        }
        match self.others.len().saturating_sub(MAX_LISTED) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}

fn write_rule(f: &mut fmt::Formatter<'_>, rule: &Rule) -> fmt::Result {
    writeln!(f, "rule:      {}", rule.name)?;
    if let Some(given) = rule.given() {
        writeln!(f, "to envoy:  {}", given.escape_debug())?;
    }
    writeln!(f, "written:   {}", rule.origin)?;
    if let Some(limit) = &rule.dimension {
        writeln!(f, "limit of:  {}, with all its others", limit.of)?;
    }
    let entries: Vec<_> =
        rule.entries.iter().map(|entry| format!("`{}` is {}", entry.key, entry.value)).collect();
    writeln!(f, "matches:   {}", entries.join(", "))?;
    let varying: Vec<_> = rule
        .entries
        .iter()
        .filter(|entry| entry.value.varies())
        .map(|entry| format!("`{}`", entry.key))
        .collect();
    match varying.as_slice() {
        [] => f.write_str("counters:  one\n")?,
        keys => writeln!(f, "counters:  one for each {}", keys.join(" and "))?,
    }
    write_limit(f, "limit:    ", &rule.limit, rule.display_limit)?;
    for scheduled in &rule.schedule {
        let names: Vec<_> = scheduled.days().collect();
        let (from, to) = scheduled.times();
        writeln!(f, "at times:  {} from {from} to {to} in {}", names.join(" "), scheduled.zone)?;
        write_limit(f, "  limit:  ", &scheduled.limit, scheduled.display_limit)?;
    }
    match &rule.counts {
        Counts::Permits => {}
        Counts::Requests => f.write_str("counts:    one for each call\n")?,
        Counts::Usage(weights) => {
            let all: Vec<_> =
                weights.iter().map(|(unit, weight)| format!("{weight} for each {unit}")).collect();
            writeln!(f, "counts:    {}", all.join(", "))?;
        }
        Counts::Money(prices) => {
            let models: Vec<_> = prices.iter().map(|(model, _)| &**model).collect();
            writeln!(f, "counts:    millionths of money, by the prices of {}", models.join(", "))?;
        }
    }
    if !rule.also.is_empty() {
        writeln!(f, "takes too: {}", rule.also.join(", "))?;
    }
    match rule.enforcement {
        Enforcement::All => {}
        Enforcement::Shadow => f.write_str("enforced:  never (shadow: counted only)\n")?,
        Enforcement::Soft => f.write_str("enforced:  never (soft: clients are told)\n")?,
    }
    let HoldBounds { ttl, max_ttl, max_held } = rule.hold_bounds;
    if rule.hold_bounds != HoldBounds::DEFAULT {
        let [ttl, max_ttl] = [ttl, max_ttl].map(|time| span::Text(span::whole_ns(time)));
        write!(f, "reserves:  for {ttl} unless a call states a time, {max_ttl} at most")?;
        match max_held {
            Some(share) => writeln!(f, ", of {} of the limit", threshold(share))?,
            None => f.write_str("\n")?,
        }
    }
    if rule.quota {
        f.write_str("quota:     a call is over only if all its quotas are\n")?;
    }
    if !rule.replaces.is_empty() {
        writeln!(f, "replaces:  {}", rule.replaces.join(", "))?;
    }
    if rule.limit.counts_in_flight() {
        writeln!(f, "held:      for {} unless it is renewed", span::Text(rule.held_ns))?;
    }
    match rule.location {
        CounterLocation::Here => Ok(()),
        CounterLocation::StoreExact => {
            f.write_str("kept:      in the store, which decides each call\n")
        }
        CounterLocation::StoreLeased { lease_ns } => {
            writeln!(f, "kept:      in the store, and leased from it for {}", span::Text(lease_ns))
        }
    }
}

/// Writes the limit, and its ceilings in standard windows.
fn write_limit(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    limit: &Limit,
    display_limit: DisplayLimit,
) -> fmt::Result {
    let kind = match limit {
        Limit::Unlimited => return writeln!(f, "{name} none, everything passes"),
        Limit::Exempt => return writeln!(f, "{name} none, everything passes as without a rule"),
        Limit::Nothing => return writeln!(f, "{name} nothing passes"),
        Limit::Counted(window) if window.permits() == 0 => {
            return writeln!(f, "{name} nothing passes");
        }
        Limit::Policy(AnyPolicy::Concurrency(concurrency)) => {
            return writeln!(f, "{name} {} at a time", concurrency.permits());
        }
        Limit::Policy(AnyPolicy::Gcra(bucket)) => format!("gcra, {} at once", bucket.burst_size()),
        Limit::Policy(policy) => {
            let known =
                Algorithm::of(policy).map_or("a policy of its own", |(known, ..)| known.name());
            limit.calendar().map_or_else(
                || known.to_owned(),
                |calendar| format!("{known}: {}", calendar.text()),
            )
        }
        Limit::Counted(_) => "counted-window: what is denied counts too".to_owned(),
    };
    writeln!(f, "{name} {display_limit} ({kind})")?;
    f.write_str("at most:  ")?;
    for (nth, (window, window_ns)) in WINDOWS_NS.into_iter().enumerate() {
        let Some(max) = ceiling(limit, window_ns) else { continue };
        let comma = if nth == 0 { "" } else { "," };
        write!(f, "{comma} {max} in any {window}")?;
    }
    f.write_str("\n")
}
