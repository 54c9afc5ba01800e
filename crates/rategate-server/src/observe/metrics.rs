//! Metrics for Prometheus, in its text format. Names of rules are labels, for a bounded number of
//! rules; keys never are.
//!
//! The writer is our own: a counter of a library is found by a hash of its labels at each call,
//! and cannot be dropped with its rule.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use super::hold_tally::{ENDS, HoldFigures, OUTCOMES as OUTCOMES_OF_HOLDS};
use super::record::Record;
use super::status::{Protocol, ServerStatus, Store};
use super::tally::{Kind, Sum};
use super::view::{Taken, View};
use super::waits::ENDS_MS;
use super::{Observe, summary};
use crate::engine::{KeeperStats, ReservationCounts};
use crate::net::RefusalReason;
use crate::rule::Rule;

/// The values of the label `outcome`; near grants count as granted too.
const OUTCOMES: [(&str, &[Kind]); 8] = [
    ("granted", &[Kind::Far, Kind::Near]),
    ("denied", &[Kind::Denied]),
    ("shadow_denied", &[Kind::Shadow]),
    ("unreachable_admitted", &[Kind::UnavailableAdmitted]),
    ("unreachable_denied", &[Kind::UnavailableDenied]),
    ("uncounted", &[Kind::Free]),
    ("charged", &[Kind::Charged, Kind::ChargedOver]),
    ("refunded", &[Kind::Refunded]),
];

/// A recorder for the library's metrics. It is not installed globally, so that two servers in a
/// process do not mix their figures.
pub(super) struct Library {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
}

impl Library {
    pub(super) fn new() -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, rategate::stats::describe);
        Self { recorder, handle }
    }
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library").finish_non_exhaustive()
    }
}

/// Returns all metrics as text.
pub(super) fn render(observe: &Observe, view: &dyn View, library: &Library) -> String {
    let mut text = Text { text: String::with_capacity(16 * 1_024), name: "" };
    let with_sum = |record: Arc<Record>| {
        let sum = record.tally.sum();
        (record, sum)
    };
    let records: Vec<_> = observe.records().into_iter().map(with_sum).collect();
    decisions(&mut text, &records);
    waits(&mut text, &records);
    usages(&mut text, &records, view);
    reservations(&mut text, &records, &view.reservations());
    estimates(&mut text, &records);
    service(&mut text, observe.status());
    snapshot(&mut text, observe.status());
    names(&mut text, &records);
    configuration(&mut text, observe.status(), view);
    metrics::with_local_recorder(&library.recorder, || view.publish());
    text.text.push_str(&library.handle.render());
    text.text
}

/// A function that reads a figure of an outcome.
type Figure = fn(&Sum, Kind) -> u128;

fn decisions(text: &mut Text, records: &[(Arc<Record>, Sum)]) {
    let figures: [(&str, &str, Figure); 2] = [
        ("rategate_decisions_total", "Decided items by outcome", |sum, kind| {
            sum.calls(kind).into()
        }),
        ("rategate_decided_permits_total", "Permits of decided items", Sum::permits),
    ];
    for (name, what, of) in figures {
        text.metric(name, "counter", what);
        for (record, sum) in records {
            for (outcome, kinds) in OUTCOMES {
                let all = kinds.iter().fold(0_u128, |all, &kind| all.saturating_add(of(sum, kind)));
                text.line(&[("rule", &record.name), ("outcome", outcome)], all);
            }
        }
    }
    let what = "Charges, and takes that charge, that left their limit exceeded";
    text.metric("rategate_charged_over_total", "counter", what);
    let over =
        |record: &Record, sum: &Sum| sum.calls(Kind::ChargedOver).wrapping_add(record.taken_over());
    text.each("rule", records.iter().map(|(record, sum)| (&*record.name, over(record, sum))));
    let what = "Granted items that left less than a tenth of the limit";
    text.metric("rategate_near_limit_total", "counter", what);
    text.each("rule", records.iter().map(|(record, sum)| (&*record.name, sum.calls(Kind::Near))));
}

fn waits(text: &mut Text, records: &[(Arc<Record>, Sum)]) {
    let what = "Waits of denied items; those that never fit are in +Inf only";
    text.metric("rategate_retry_after_seconds", "histogram", what);
    for (record, sum) in records {
        let mut cumulative = 0_u64;
        let ends = ENDS_MS.iter().map(Some).chain([None, None]);
        let mut ends = ends.zip(sum.waits).peekable();
        while let Some((end, count)) = ends.next() {
            cumulative = cumulative.wrapping_add(count);
            let le = match end {
                Some(&end) => millis(end),
                None if ends.peek().is_none() => "+Inf".to_owned(),
                None => continue,
            };
            let labels = [("rule", &*record.name), ("le", &le)];
            text.value("_bucket", &labels, &cumulative.to_string());
        }
        text.value("_sum", &[("rule", &record.name)], &millis(sum.waits_ms));
        text.value("_count", &[("rule", &record.name)], &cumulative.to_string());
    }
}

fn usages(text: &mut Text, records: &[(Arc<Record>, Sum)], view: &dyn View) {
    let usage = |(record, _): &'_ (Arc<Record>, Sum)| {
        Some((Arc::clone(&record.name), view.taken(&record.name)?))
    };
    let usages: Vec<_> = records.iter().filter_map(usage).collect();
    text.metric("rategate_rule_keys", "gauge", "Keys of a rule that are in use");
    let keys = |taken: &Taken| u64::try_from(taken.keys).unwrap_or(u64::MAX);
    text.each("rule", usages.iter().map(|(rule, taken)| (&**rule, keys(taken))));
    text.metric(
        "rategate_rule_overflows_total",
        "counter",
        "New keys that found a rule's table full",
    );
    text.each("rule", usages.iter().map(|(rule, taken)| (&**rule, taken.overflows)));
}

fn reservations(text: &mut Text, records: &[(Arc<Record>, Sum)], counts: &ReservationCounts) {
    let ReservationCounts { open, known, repeated, unknown, unavailable, .. } = *counts;
    let what = "Operations on reservations by outcome, of each of their rules if they are of any";
    text.metric("rategate_reservations_total", "counter", what);
    for (rule, figures) in holds(records) {
        for ((_, outcome), count) in OUTCOMES_OF_HOLDS.iter().zip(figures.outcomes) {
            text.line(&[("rule", rule), ("outcome", outcome)], count);
        }
    }
    let others = [("repeated", repeated), ("unknown", unknown), ("unavailable", unavailable)];
    text.each("outcome", others);
    let what = "Ends of reservations whose id is unknown";
    text.metric("rategate_unknown_ids_total", "counter", what);
    text.line(&[], unknown);
    text.metric("rategate_reservations", "gauge", "Reservations that last, or are remembered");
    text.each("state", [("open", open), ("ended", known.saturating_sub(open))]);
    let what = "Permits of counters in this process that reservations hold";
    text.metric("rategate_held_permits", "gauge", what);
    text.each("rule", holds(records).map(|(rule, figures)| (rule, figures.held)));
    let what = "Permits of debts that were forgiven, since a debt has a bound";
    text.metric("rategate_forgiven_total", "counter", what);
    text.each("rule", records.iter().map(|(record, _)| (&*record.name, record.forgiven())));
}

/// Returns the figures of reservations, of each rule that has had any.
fn holds(records: &[(Arc<Record>, Sum)]) -> impl Iterator<Item = (&str, HoldFigures)> {
    let figures = records.iter().map(|(record, _)| (&*record.name, record.holds()));
    figures.filter(|(_, figures)| *figures != HoldFigures::default())
}

fn estimates(text: &mut Text, records: &[(Arc<Record>, Sum)]) {
    let what = "Differences of what reservations held and what was used";
    text.metric("rategate_estimate_error_permits", "histogram", what);
    for (rule, figures) in holds(records) {
        let mut cumulative = 0_u64;
        let ends = ENDS.iter().map(u64::to_string).chain(["+Inf".to_owned()]);
        for (end, count) in ends.zip(figures.errors) {
            cumulative = cumulative.wrapping_add(count);
            text.value("_bucket", &[("rule", rule), ("le", &end)], &cumulative.to_string());
        }
        text.value("_sum", &[("rule", rule)], &figures.errors_sum.to_string());
        text.value("_count", &[("rule", rule)], &cumulative.to_string());
    }
}

fn names(text: &mut Text, records: &[(Arc<Record>, Sum)]) {
    let what = "Always 1; the name of a rule in answers to Envoy, where it differs";
    text.metric("rategate_rule_info", "gauge", what);
    for (record, _) in records {
        let rule = record.rule.load();
        if let Some(given) = rule.as_deref().and_then(Rule::given) {
            text.line(&[("rule", &record.name), ("envoy_name", given)], 1_u64);
        }
    }
}

fn service(text: &mut Text, status: &ServerStatus) {
    let connections = Protocol::ALL.map(|protocol| (protocol.name(), status.connections(protocol)));
    text.metric("rategate_connections", "gauge", "Open connections");
    text.each("protocol", connections.map(|(protocol, (open, ..))| (protocol, open)));
    text.metric("rategate_connections_accepted_total", "counter", "Connections that were accepted");
    text.each("protocol", connections.map(|(protocol, (_, accepted, _))| (protocol, accepted)));
    text.metric("rategate_connections_refused_total", "counter", "Connections that were refused");
    text.each("protocol", connections.map(|(protocol, (.., refused))| (protocol, refused)));
    let what = "Calls that were refused before anything was decided";
    text.metric("rategate_calls_refused_total", "counter", what);
    for protocol in Protocol::ALL {
        for reason in RefusalReason::ALL {
            let labels = [("protocol", protocol.name()), ("reason", reason.name())];
            text.line(&labels, status.refusals().count(protocol, reason));
        }
    }
    text.metric("rategate_unmatched_total", "counter", "Items that came under no rule");
    let unmatched = |protocol| status.unmatched(protocol).load(Ordering::Relaxed);
    text.each("protocol", Protocol::ALL.map(|protocol| (protocol.name(), unmatched(protocol))));
    let what = "Calls whose entries state an operation, while `[grpc] verbs` is off";
    text.metric("rategate_ignored_verbs_total", "counter", what);
    let ignored = |protocol| status.ignored_verbs(protocol).load(Ordering::Relaxed);
    let of_envoy = [Protocol::Http, Protocol::Grpc];
    text.each("protocol", of_envoy.map(|protocol| (protocol.name(), ignored(protocol))));
    let (sites, hosts) = status.foreign_requests();
    let what = "Browser requests that were refused, by reason";
    text.metric("rategate_http_foreign_requests_total", "counter", what);
    text.each("why", [("other_site", sites), ("other_host", hosts)]);
    text.metric("rategate_store_health", "gauge", "1 for the state that the store is in");
    let stores = [Store::None, Store::Healthy, Store::Quarantined, Store::Unavailable];
    text.each("state", stores.map(|store| (store.name(), u64::from(store == status.store()))));
    text.metric("rategate_build_info", "gauge", "Always 1; the version of the service");
    text.line(&[("version", env!("CARGO_PKG_VERSION"))], 1_u64);
}

fn snapshot(text: &mut Text, status: &ServerStatus) {
    let Some(KeeperStats { saved, failed, keys, bytes, saved_at_ns }) = status.snapshot() else {
        return;
    };
    text.metric("rategate_snapshot_saves_total", "counter", "Saves of the counters by outcome");
    text.each("outcome", [("saved", saved), ("failed", failed)]);
    let what = "When counters were last saved; 0 before that";
    text.metric("rategate_snapshot_saved_timestamp_seconds", "gauge", what);
    text.line(&[], saved_at_ns.div_euclid(1_000_000_000));
    text.metric("rategate_snapshot_keys", "gauge", "Keys in the last file of counters");
    text.line(&[], keys);
    text.metric("rategate_snapshot_bytes", "gauge", "Bytes of the last file of counters");
    text.line(&[], bytes);
}

fn configuration(text: &mut Text, status: &ServerStatus, view: &dyn View) {
    let rules = view.rules();
    let what = "1 if the newest configuration was refused and an older one is in force";
    text.metric("rategate_config_reload_failed", "gauge", what);
    text.line(&[], u64::from(status.config_failed()));
    let (loaded, refused) = status.loads();
    text.metric("rategate_config_loads_total", "counter", "Configurations loaded and refused");
    text.each("outcome", [("loaded", loaded), ("refused", refused)]);
    let what = "When the configuration in force was loaded";
    text.metric("rategate_config_loaded_timestamp_seconds", "gauge", what);
    text.line(&[], status.loaded_at_s());
    let what = "1 if the newest certificates were refused and older ones are in use";
    text.metric("rategate_tls_reload_failed", "gauge", what);
    text.line(&[], u64::from(status.certificate_error().is_some()));
    let (loaded, refused) = status.certificate_loads();
    text.metric("rategate_tls_loads_total", "counter", "Certificates read again, and refused");
    text.each("outcome", [("loaded", loaded), ("refused", refused)]);
    if let Some((is_connected, [accepted, refused])) = status.updates() {
        text.metric("rategate_xds_connected", "gauge", "1 if the control plane's stream is open");
        text.line(&[], u64::from(is_connected));
        let what = "Configurations of the control plane by outcome";
        text.metric("rategate_xds_updates_total", "counter", what);
        text.each("outcome", [("accepted", accepted), ("refused", refused)]);
    }
    text.metric("rategate_config_info", "gauge", "Always 1; the digest of the rules in force");
    let hash = rules.as_ref().map(|rules| Arc::clone(&rules.hash)).unwrap_or_default();
    text.line(&[("hash", &hash)], 1_u64);
    text.metric("rategate_config_rules", "gauge", "Rules in force, by whether they are enforced");
    text.each("enforcement", summary::by_enforcement(rules.as_deref()));
}

/// Formats thousandths as a decimal, exactly.
fn millis(value: impl Into<u128>) -> String {
    let digits = format!("{:04}", value.into());
    let (whole, fraction) = digits.split_at(digits.len().saturating_sub(3));
    format!("{whole}.{fraction}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Metrics as text, and the name of the last one.
struct Text {
    text: String,
    name: &'static str,
}

impl Text {
    /// Begins a metric, whose values follow.
    fn metric(&mut self, name: &'static str, kind: &str, what: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "# HELP {name} {what}\n# TYPE {name} {kind}");
        self.name = name;
    }

    /// Writes a value for each value of one label.
    fn each<'a, N: Into<u128>>(
        &mut self,
        label: &str,
        values: impl IntoIterator<Item = (&'a str, N)>,
    ) {
        for (of, value) in values {
            self.line(&[(label, of)], value);
        }
    }

    fn line(&mut self, labels: &[(&str, &str)], value: impl Into<u128>) {
        self.value("", labels, &value.into().to_string());
    }

    fn value(&mut self, suffix: &str, labels: &[(&str, &str)], value: &str) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        for (at, (label, text)) in labels.iter().enumerate() {
            self.text.push(if at == 0 { '{' } else { ',' });
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{label}=\"{text}\"");
        }
        self.text.push_str(if labels.is_empty() { " " } else { "} " });
        self.text.push_str(value);
        self.text.push('\n');
    }
}
