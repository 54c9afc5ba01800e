//! Metrics for Prometheus, in its text format. Names of rules are labels, for a bounded number of
//! rules; keys never are.
//!
//! The writer is our own: a counter of a library is found by a hash of its labels at each call,
//! and cannot be dropped with its rule. Decision 0036 has more.

use std::fmt::Write as _;
use std::sync::Arc;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use super::record::Record;
use super::status::{Protocol, ServerStatus, Store};
use super::tally::{Kind, Sum};
use super::view::View;
use super::waits::ENDS_MS;
use super::{Observe, summary};
use crate::engine::KeeperStats;
use crate::net::RefusalReason;
use crate::rule::Rule;

/// The values of the label `outcome`; near grants count as granted too.
const OUTCOMES: [(&str, &[Kind]); 7] = [
    ("granted", &[Kind::Far, Kind::Near]),
    ("denied", &[Kind::Denied]),
    ("shadow_denied", &[Kind::Shadow]),
    ("unreachable_admitted", &[Kind::UnavailableAdmitted]),
    ("unreachable_denied", &[Kind::UnavailableDenied]),
    ("uncounted", &[Kind::Free]),
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
    let mut text = Text(String::with_capacity(16 * 1_024));
    let records: Vec<(Arc<Record>, Sum)> = observe
        .records()
        .into_iter()
        .map(|record| {
            let sum = record.tally.sum();
            (record, sum)
        })
        .collect();
    decisions(&mut text, &records);
    waits(&mut text, &records);
    usages(&mut text, &records, view);
    service(&mut text, observe.status());
    snapshot(&mut text, observe.status());
    names(&mut text, &records);
    configuration(&mut text, observe.status(), view);
    metrics::with_local_recorder(&library.recorder, || view.publish());
    let Text(mut text) = text;
    text.push_str(&library.handle.render());
    text
}

/// A function that reads a figure of an outcome.
type Figure = fn(&Sum, Kind) -> u64;

fn decisions(text: &mut Text, records: &[(Arc<Record>, Sum)]) {
    let all = |sum: &Sum, kinds: &[Kind], of: Figure| {
        kinds.iter().fold(0_u64, |all, &kind| all.wrapping_add(of(sum, kind)))
    };
    let figures: [(&str, &str, Figure); 2] = [
        ("rategate_decisions_total", "Decided items by outcome", Sum::calls),
        ("rategate_decided_permits_total", "Permits of decided items", Sum::permits),
    ];
    for (name, what, of) in figures {
        text.metric(name, "counter", what);
        for (record, sum) in records {
            for (outcome, kinds) in OUTCOMES {
                let labels = [("rule", &*record.name), ("outcome", outcome)];
                text.line(name, &labels, all(sum, kinds, of));
            }
        }
    }
    let name = "rategate_near_limit_total";
    text.metric(name, "counter", "Granted items that left less than a tenth of the limit");
    for (record, sum) in records {
        text.line(name, &[("rule", &record.name)], sum.calls(Kind::Near));
    }
}

fn waits(text: &mut Text, records: &[(Arc<Record>, Sum)]) {
    let name = "rategate_retry_after_seconds";
    text.metric(name, "histogram", "Waits of denied items; those that never fit are in +Inf only");
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
            text.line(
                &format!("{name}_bucket"),
                &[("rule", &record.name), ("le", &le)],
                cumulative,
            );
        }
        text.value(&format!("{name}_sum"), &[("rule", &record.name)], &millis(sum.waits_ms));
        text.line(&format!("{name}_count"), &[("rule", &record.name)], cumulative);
    }
}

fn usages(text: &mut Text, records: &[(Arc<Record>, Sum)], view: &dyn View) {
    let usages: Vec<_> = records
        .iter()
        .filter_map(|(record, _)| Some((&record.name, view.taken(&record.name)?)))
        .collect();
    text.metric("rategate_rule_keys", "gauge", "Keys of a rule that are in use");
    for (name, taken) in &usages {
        text.line(
            "rategate_rule_keys",
            &[("rule", name)],
            u64::try_from(taken.keys).unwrap_or(u64::MAX),
        );
    }
    let name = "rategate_rule_overflows_total";
    text.metric(name, "counter", "New keys that found a rule's table full");
    for (rule, taken) in &usages {
        text.line(name, &[("rule", rule)], taken.overflows);
    }
}

fn names(text: &mut Text, records: &[(Arc<Record>, Sum)]) {
    let name = "rategate_rule_info";
    text.metric(
        name,
        "gauge",
        "Always 1; the name of a rule in answers to Envoy, where it differs",
    );
    for (record, _) in records {
        let rule = record.rule.load();
        if let Some(given) = rule.as_deref().and_then(Rule::given) {
            text.line(name, &[("rule", &record.name), ("envoy_name", given)], 1);
        }
    }
}

fn service(text: &mut Text, status: &ServerStatus) {
    let connections = Protocol::ALL.map(|protocol| (protocol.name(), status.connections(protocol)));
    text.metric("rategate_connections", "gauge", "Open connections");
    for (protocol, (open, _, _)) in connections {
        text.line("rategate_connections", &[("protocol", protocol)], open);
    }
    text.metric("rategate_connections_accepted_total", "counter", "Connections that were accepted");
    for (protocol, (_, accepted, _)) in connections {
        text.line("rategate_connections_accepted_total", &[("protocol", protocol)], accepted);
    }
    text.metric("rategate_connections_refused_total", "counter", "Connections that were refused");
    for (protocol, (_, _, refused)) in connections {
        text.line("rategate_connections_refused_total", &[("protocol", protocol)], refused);
    }
    let name = "rategate_calls_refused_total";
    text.metric(name, "counter", "Calls that were refused before anything was decided");
    for protocol in Protocol::ALL {
        for reason in RefusalReason::ALL {
            let labels = [("protocol", protocol.name()), ("reason", reason.name())];
            text.line(name, &labels, status.refusals().count(protocol, reason));
        }
    }
    let (sites, hosts) = status.foreign_requests();
    let name = "rategate_http_foreign_requests_total";
    text.metric(name, "counter", "Browser requests that were refused, by reason");
    text.line(name, &[("why", "other_site")], sites);
    text.line(name, &[("why", "other_host")], hosts);
    text.metric("rategate_store_health", "gauge", "1 for the state that the store is in");
    for store in [Store::None, Store::Well, Store::Quarantined, Store::Unavailable] {
        let is_it = u64::from(store == status.store());
        text.line("rategate_store_health", &[("state", store.name())], is_it);
    }
    #[cfg(feature = "otlp")]
    {
        text.metric("rategate_spans_total", "counter", "Spans of decisions by outcome");
        for (outcome, count) in status.spans().read() {
            text.line("rategate_spans_total", &[("outcome", outcome)], count);
        }
    }
    text.metric("rategate_build_info", "gauge", "Always 1; the version of the service");
    text.line("rategate_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
}

fn snapshot(text: &mut Text, status: &ServerStatus) {
    let Some(KeeperStats { saved, failed, keys, bytes, saved_at_ns }) = status.snapshot() else {
        return;
    };
    let name = "rategate_snapshot_saves_total";
    text.metric(name, "counter", "Saves of the counters by outcome");
    text.line(name, &[("outcome", "saved")], saved);
    text.line(name, &[("outcome", "failed")], failed);
    let name = "rategate_snapshot_saved_timestamp_seconds";
    text.metric(name, "gauge", "When counters were last saved; 0 before that");
    text.line(name, &[], saved_at_ns.div_euclid(1_000_000_000));
    text.metric("rategate_snapshot_keys", "gauge", "Keys in the last file of counters");
    text.line("rategate_snapshot_keys", &[], keys);
    text.metric("rategate_snapshot_bytes", "gauge", "Bytes of the last file of counters");
    text.line("rategate_snapshot_bytes", &[], bytes);
}

fn configuration(text: &mut Text, status: &ServerStatus, view: &dyn View) {
    let rules = view.rules();
    let what = "1 if the newest configuration was refused and an older one is in force";
    text.metric("rategate_config_reload_failed", "gauge", what);
    text.line("rategate_config_reload_failed", &[], u64::from(status.config_failed()));
    let (loaded, refused) = status.loads();
    text.metric("rategate_config_loads_total", "counter", "Configurations loaded and refused");
    text.line("rategate_config_loads_total", &[("outcome", "loaded")], loaded);
    text.line("rategate_config_loads_total", &[("outcome", "refused")], refused);
    text.metric(
        "rategate_config_loaded_timestamp_seconds",
        "gauge",
        "When the configuration in force was loaded",
    );
    text.line("rategate_config_loaded_timestamp_seconds", &[], status.loaded_at_s());
    let what = "1 if the newest certificates were refused and older ones are in use";
    text.metric("rategate_tls_reload_failed", "gauge", what);
    let is_refused = status.certificate_error().is_some();
    text.line("rategate_tls_reload_failed", &[], u64::from(is_refused));
    let (loaded, refused) = status.certificate_loads();
    text.metric("rategate_tls_loads_total", "counter", "Certificates read again, and refused");
    text.line("rategate_tls_loads_total", &[("outcome", "loaded")], loaded);
    text.line("rategate_tls_loads_total", &[("outcome", "refused")], refused);
    text.metric("rategate_config_info", "gauge", "Always 1; the digest of the rules in force");
    let hash = rules.as_ref().map(|rules| Arc::clone(&rules.hash)).unwrap_or_default();
    text.line("rategate_config_info", &[("hash", &hash)], 1);
    text.metric("rategate_config_rules", "gauge", "Rules in force, by whether they are enforced");
    for (enforcement, count) in summary::by_enforcement(rules.as_deref()) {
        text.line("rategate_config_rules", &[("enforcement", enforcement)], count);
    }
}

/// Formats thousandths as a decimal, exactly.
fn millis(value: u64) -> String {
    let (whole, fraction) =
        (value.checked_div(1_000).unwrap_or(0), value.checked_rem(1_000).unwrap_or(0));
    let text = format!("{whole}.{fraction:03}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

struct Text(String);

impl Text {
    fn metric(&mut self, name: &str, kind: &str, what: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP {name} {what}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.value(name, labels, &value.to_string());
    }

    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: &str) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            self.0.push(if at == 0 { '{' } else { ',' });
            self.0.push_str(label);
            self.0.push_str("=\"");
            for character in text.chars() {
                match character {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    other => self.0.push(other),
                }
            }
            self.0.push('"');
        }
        self.0.push_str(if labels.is_empty() { " " } else { "} " });
        self.0.push_str(value);
        self.0.push('\n');
    }
}
