//! The JSON forms of answers. Every number has its unit in its name; counts are items unless they
//! name permits.

use serde::Serialize;

use super::super::denials::Denial;
use super::super::record::Record;
use super::super::series::Second;
use super::super::status::{Protocol, ServerStatus};
use super::super::tally::WAITS_MS;
use super::super::top_keys::Ranking;
use super::super::view::View;
use super::super::{Observe, summary};
use crate::rule::{Enforcement, OnUnavailable, Rule, RuleSet, Value};

/// The number of seconds of a rule in an event, so that a late event leaves no gap.
const FEW_SECONDS: usize = 10;

/// The figures of all rules, and the status of the service.
#[derive(Debug, Serialize)]
pub(super) struct Overview {
    /// The time in Unix seconds.
    pub(super) now_s: u64,
    pub(super) service: Service,
    pub(super) rules: Vec<Live>,
    /// The details of the requested rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<Detail>,
}

/// The status of the service.
#[derive(Debug, Serialize)]
pub(super) struct Service {
    version: &'static str,
    /// The digest of the configuration. `None` while none is loaded.
    config_hash: Option<String>,
    config_loaded_at_s: u64,
    config_failed: bool,
    config_error: Option<Box<str>>,
    /// The reason why the newest certificates are not in use.
    tls_error: Option<Box<str>>,
    store: &'static str,
    connections: Vec<Connections>,
    reservations: Reservations,
}

/// The reservations of this process.
#[derive(Debug, Serialize)]
struct Reservations {
    /// Those whose permits are held now.
    open: u64,
    /// Those whose id is known, open or ended.
    known: u64,
}

#[derive(Debug, Serialize)]
struct Connections {
    protocol: &'static str,
    open: u64,
    refused: u64,
}

/// The current figures of a rule.
#[derive(Debug, Serialize)]
pub(super) struct Live {
    name: String,
    /// The given name in Envoy's format and in answers to Envoy, where it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    envoy_name: Option<String>,
    /// The limit, in words.
    limit: String,
    per_key: bool,
    enforcement: Enforcement,
    /// A sentence about its last minute.
    sentence: String,
    /// The algorithm that decides.
    kind: &'static str,
    keys: Option<usize>,
    /// The permits in flight, of a rule that counts them in one counter of this process.
    in_flight: Option<u64>,
    overflows: Option<u64>,
    /// The newest complete second.
    second: Second,
    /// The newest sixty seconds.
    minute: Second,
}

/// The details of a rule.
#[derive(Debug, Serialize)]
pub(super) struct Detail {
    pub(super) name: String,
    /// The rule as configured. `None` for a record of several rules.
    rule: Option<Written>,
    top: Tops,
    waits: Waits,
    /// The last denials, the newest first.
    denials: Vec<Denial>,
    /// The rule's last quarter of an hour; in an event, its last seconds.
    series: Curve,
}

/// The figures of a quarter of an hour, second by second, the oldest first.
#[derive(Debug, Default, Serialize)]
pub(super) struct Curve {
    from_s: u64,
    requested_permits: Vec<u64>,
    granted_permits: Vec<u64>,
    passed: Vec<u64>,
    denied: Vec<u64>,
    shadow_denied: Vec<u64>,
    near: Vec<u64>,
}

/// The keys with the most permits and denials.
#[derive(Debug, Serialize)]
pub(super) struct Tops {
    /// The Unix second since which they are counted.
    since_s: u64,
    /// The sampling: one item in this many is counted, with that weight.
    one_in: u64,
    /// The ranking by granted permits.
    used: Ranking,
    /// The ranking by denied items.
    denied: Ranking,
}

/// The waits of items that were denied in the last one to two minutes.
#[derive(Debug, Serialize)]
struct Waits {
    /// Upper ends of the buckets. The last two counts are of longer waits, and of items that
    /// never fit.
    ends_ms: &'static [u64],
    counts: Vec<u64>,
}

/// A rule as it is configured.
#[derive(Debug, Serialize)]
pub(super) struct Written {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    envoy_name: Option<String>,
    domain: String,
    /// The keys and values of the descriptors that it matches.
    entries: Vec<Entry>,
    /// The limit, in words.
    limit: String,
    algorithm: &'static str,
    permits: u64,
    period_ms: u64,
    burst: Option<u64>,
    enforcement: Enforcement,
    quota: bool,
    replaces: Vec<String>,
    place: &'static str,
    on_store_unavailable: OnUnavailable,
    scheduled: usize,
    max_keys: Option<usize>,
    #[serde(rename = "written_at")]
    origin: String,
}

#[derive(Debug, Serialize)]
struct Entry {
    key: String,
    /// The value; `*` for every value.
    value: String,
    varies: bool,
}

/// All rules as they are configured.
#[derive(Debug, Serialize)]
pub(super) struct Config {
    hash: Option<String>,
    loaded_at_s: u64,
    failed: bool,
    error: Option<Box<str>>,
    rules: Vec<Written>,
}

impl Overview {
    /// Returns the current figures, with the details of a rule. Its curve is complete if
    /// `with_curve`, and otherwise has the last `FEW_SECONDS` only.
    pub(super) fn of(
        observe: &Observe,
        view: &dyn View,
        rule: Option<&Record>,
        with_curve: bool,
    ) -> Self {
        let rules = observe.records().iter().map(|record| Live::of(record, view)).collect();
        let seconds = if with_curve { usize::MAX } else { FEW_SECONDS };
        let detail = rule.map(|record| Detail::of(record, seconds));
        let now_s = super::super::seconds(view.now_ns());
        Self { now_s, service: Service::of(observe.status(), view), rules, detail }
    }
}

impl Service {
    fn of(status: &ServerStatus, view: &dyn View) -> Self {
        let connections = Protocol::ALL.map(|protocol| {
            let (open, _, refused) = status.connections(protocol);
            Connections { protocol: protocol.name(), open, refused }
        });
        let counts = view.reservations();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            config_hash: view.rules().map(|rules| rules.hash.to_string()),
            config_loaded_at_s: status.loaded_at_s(),
            config_failed: status.reload_error().is_some(),
            config_error: status.reload_error(),
            tls_error: status.certificate_error(),
            store: status.store().name(),
            connections: connections.into(),
            reservations: Reservations { open: counts.open, known: counts.known },
        }
    }
}

impl Live {
    fn of(record: &Record, view: &dyn View) -> Self {
        let rule = record.rule.load_full();
        let (second, minute) = {
            let series = record.series();
            (series.newest(), series.newest_sum(60))
        };
        let taken = view.taken(&record.name);
        Self {
            name: record.name.to_string(),
            envoy_name: rule.as_deref().and_then(Rule::given).map(str::to_owned),
            limit: rule
                .as_deref()
                .map_or_else(|| "limits of several kinds".to_owned(), summary::of_rule),
            per_key: rule.as_deref().is_none_or(|rule| rule.values_counted() > 0),
            enforcement: rule.as_deref().map_or(Enforcement::All, |rule| rule.enforcement),
            sentence: record.sentence().to_string(),
            kind: rule.as_deref().map_or("several", |rule| rule.limit.algorithm()),
            keys: taken.map(|taken| taken.keys),
            in_flight: view.in_flight(&record.name),
            overflows: taken.map(|taken| taken.overflows),
            second,
            minute,
        }
    }
}

impl Detail {
    fn of(record: &Record, seconds: usize) -> Self {
        let waits = Waits { ends_ms: &WAITS_MS, counts: record.recent_waits().to_vec() };
        Self {
            name: record.name.to_string(),
            rule: record.rule.load_full().as_deref().map(Written::of),
            top: Tops::of(record, 10),
            waits,
            denials: record.denials.all().into_iter().rev().collect(),
            series: Curve::of(record, seconds),
        }
    }
}

impl Tops {
    pub(super) fn of(record: &Record, max: usize) -> Self {
        let (since_s, ranks) = record.top_keys.read();
        let (mut used, mut denied) = (ranks.used(), ranks.denied());
        used.ranked.truncate(max);
        denied.ranked.truncate(max);
        Self { since_s, one_in: record.top_keys.every(), used, denied }
    }
}

impl Curve {
    /// Returns the curve of the newest `max` seconds.
    fn of(record: &Record, max: usize) -> Self {
        let series = record.series();
        let (from_s, seconds) = series.newest_of(max);
        let mut curve = Self { from_s, ..Self::default() };
        for second in seconds {
            curve.requested_permits.push(second.requested);
            curve.granted_permits.push(second.granted);
            curve.passed.push(second.passed_calls);
            curve.denied.push(second.denied_calls);
            curve.shadow_denied.push(second.shadow_calls);
            curve.near.push(second.near_calls);
        }
        curve
    }
}

impl Config {
    pub(super) fn of(rules: Option<&RuleSet>, status: &ServerStatus) -> Self {
        Self {
            hash: rules.map(|rules| rules.hash.to_string()),
            loaded_at_s: status.loaded_at_s(),
            failed: status.reload_error().is_some(),
            error: status.reload_error(),
            rules: rules
                .map_or_else(Vec::new, |rules| rules.rules.iter().map(Written::of).collect()),
        }
    }
}

impl Written {
    pub(super) fn of(rule: &Rule) -> Self {
        use rategate::AnyPolicy;
        let burst = match rule.limit {
            crate::rule::Limit::Policy(AnyPolicy::Gcra(bucket)) => Some(bucket.burst_size().get()),
            _ => None,
        };
        let entry = |entry: &crate::rule::Entry| Entry {
            key: entry.key.to_string(),
            value: match &entry.value {
                Value::Any => "*".to_owned(),
                Value::Exact(text) | Value::Pattern { text, .. } => text.to_string(),
                Value::OneOf(values) => format!("one of {}", values.len()),
            },
            varies: entry.value.varies(),
        };
        let period_ms = rule
            .display_limit
            .unit
            .seconds()
            .saturating_mul(rule.display_limit.multiplier)
            .saturating_mul(1_000);
        Self {
            name: rule.name.to_string(),
            envoy_name: rule.given().map(str::to_owned),
            domain: rule.domain.to_string(),
            entries: rule.entries.iter().map(entry).collect(),
            limit: summary::of_rule(rule),
            algorithm: rule.limit.algorithm(),
            permits: rule.display_limit.permits,
            period_ms,
            burst,
            enforcement: rule.enforcement,
            quota: rule.quota,
            replaces: rule.replaces.iter().map(ToString::to_string).collect(),
            place: summary::location(rule),
            on_store_unavailable: rule.on_unavailable,
            scheduled: rule.schedule.len(),
            max_keys: rule.max_keys,
            origin: rule.origin.to_string(),
        }
    }
}
