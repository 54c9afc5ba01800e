//! Metrics for Prometheus. Names of rules are labels, for a bounded number of rules; keys never
//! are.
//!
//! Each scrape collects the figures from where they are counted, so that those of a rule go with
//! it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use prometheus_client::collector::Collector;
pub(super) use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;
use prometheus_client::encoding::prometheus_text::encode;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeMetric as _, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType::{self, Counter, Gauge, Histogram};
use prometheus_client::registry::Registry;

use super::Observe;
use super::record::Record;
use super::status::{Protocol, ServerStatus, Store};
use super::tally::{Kind, OUTCOMES, Sum, WAITS_MS};
use super::view::View;
use crate::engine::{KeeperStats, ReservationCounts};
use crate::net::RefusalReason;
use crate::rule::{Enforcement, Rule};

/// Returns all metrics as text.
pub(super) fn render(observe: &Arc<Observe>, view: &Arc<dyn View>) -> String {
    let mut registry = Registry::default();
    let figures = Figures { observe: Arc::clone(observe), view: Arc::clone(view) };
    registry.register_collector(Box::new(figures));
    let mut text = String::with_capacity(16 * 1_024);
    // Writing to a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Figures {
    observe: Arc<Observe>,
    view: Arc<dyn View>,
}

impl Collector for Figures {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self { observe, view } = self;
        let (out, status) = (&mut Writer(encoder), observe.status());
        let records = observe.records();
        decisions(out, &records)?;
        waits(out, &records)?;
        tables(out, &records, &**view)?;
        reservations(out, &records, &view.reservations())?;
        service(out, status)?;
        snapshot(out, status)?;
        names(out, &records)?;
        configuration(out, status, &**view)
    }
}

fn decisions(out: &mut Writer<'_>, records: &[Arc<Record>]) -> fmt::Result {
    let sums: Vec<_> = records.iter().map(|record| (&*record.name, record.tally.sum())).collect();
    let by_outcome = |of: fn(&Sum, Kind) -> u64| {
        sums.iter().flat_map(move |(rule, sum)| {
            let row =
                move |(kind, outcome)| ([("rule", *rule), ("outcome", outcome)], of(sum, kind));
            OUTCOMES.into_iter().map(row)
        })
    };
    let by_rule = |of: fn(&Sum, Kind) -> u64, kind| {
        sums.iter().map(move |(rule, sum)| (*rule, of(sum, kind)))
    };
    let what = "Decided items by outcome";
    out.metric(Counter, "rategate_decisions", what, by_outcome(Sum::items))?;
    let what = "Permits of decided items";
    out.metric(Counter, "rategate_decided_permits", what, by_outcome(Sum::permits))?;
    let what = "Charges, and takes that charge, that left their limit exceeded";
    let over = by_rule(Sum::items, Kind::ChargedOver);
    out.each(Counter, "rategate_charged_over", what, "rule", over)?;
    let what = "Granted items that left less than a tenth of the limit";
    out.each(Counter, "rategate_near_limit", what, "rule", by_rule(Sum::items, Kind::Near))?;
    let what = "Permits of debts that were forgiven, since a debt has a bound";
    out.each(Counter, "rategate_forgiven", what, "rule", by_rule(Sum::permits, Kind::Forgiven))
}

fn waits(out: &mut Writer<'_>, records: &[Arc<Record>]) -> fmt::Result {
    let what = "Waits of denied items; those that never fit are in +Inf only";
    let mut metric = out.begin(Histogram, "rategate_retry_after_seconds", what)?;
    let seconds = |ms| Duration::from_millis(ms).as_secs_f64();
    for record in records {
        let (waits, sum_ms) = record.tally.waits();
        let count = waits.iter().fold(0, |count: u64, wait| count.wrapping_add(*wait));
        let ends = WAITS_MS.into_iter().map(seconds);
        let buckets: Vec<_> = ends.zip(waits).collect();
        let labels = [("rule", &*record.name)];
        metric.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
            seconds(sum_ms),
            count,
            &buckets,
            None,
        )?;
    }
    Ok(())
}

fn tables(out: &mut Writer<'_>, records: &[Arc<Record>], view: &dyn View) -> fmt::Result {
    let taken = |record: &Arc<Record>| Some((Arc::clone(&record.name), view.taken(&record.name)?));
    let taken: Vec<_> = records.iter().filter_map(taken).collect();
    let keys =
        taken.iter().map(|(rule, taken)| (&**rule, u64::try_from(taken.keys).unwrap_or(u64::MAX)));
    out.each(Gauge, "rategate_rule_keys", "Keys of a rule that are in use", "rule", keys)?;
    let what = "New keys that found a rule's table full";
    let overflows = taken.iter().map(|(rule, taken)| (&**rule, taken.overflows));
    out.each(Counter, "rategate_rule_overflows", what, "rule", overflows)
}

fn reservations(
    out: &mut Writer<'_>,
    records: &[Arc<Record>],
    counts: &ReservationCounts,
) -> fmt::Result {
    let ReservationCounts { open, known, repeated, unknown, unavailable } = *counts;
    let holds: Vec<_> =
        records.iter().filter_map(|record| Some((&*record.name, record.holds.get()?))).collect();
    let what = "Operations on reservations by outcome, of each of their rules if they are of any";
    let mut metric = out.begin(Counter, "rategate_reservations", what)?;
    for (rule, holds) in &holds {
        for (outcome, count) in holds.operations() {
            row(&mut metric, Counter, [("rule", *rule), ("outcome", outcome)], count)?;
        }
    }
    for (outcome, count) in
        [("repeated", repeated), ("unknown", unknown), ("unavailable", unavailable)]
    {
        row(&mut metric, Counter, [("outcome", outcome)], count)?;
    }
    let what = "Ends of reservations whose id is unknown";
    out.one(Counter, "rategate_unknown_ids", what, unknown)?;
    let what = "Reservations that last, or are remembered";
    let states = [("open", open), ("ended", known.saturating_sub(open))];
    out.each(Gauge, "rategate_reservations", what, "state", states)?;
    let what = "Permits of counters in this process that reservations hold";
    let held = holds.iter().map(|(rule, holds)| (*rule, holds.held()));
    out.each(Gauge, "rategate_held_permits", what, "rule", held)?;
    let what = "Differences of what reservations held and what was used";
    let mut metric = out.begin(Histogram, "rategate_estimate_error_permits", what)?;
    for (rule, holds) in &holds {
        holds.errors.encode(metric.encode_family(&[("rule", *rule)])?)?;
    }
    Ok(())
}

fn names(out: &mut Writer<'_>, records: &[Arc<Record>]) -> fmt::Result {
    let what = "Always 1; the name of a rule in answers to Envoy, where it differs";
    let mut metric = out.begin(Gauge, "rategate_rule_info", what)?;
    for record in records {
        if let Some(given) = record.rule.load().as_deref().and_then(Rule::given) {
            row(&mut metric, Gauge, [("rule", &*record.name), ("envoy_name", given)], 1)?;
        }
    }
    Ok(())
}

fn service(out: &mut Writer<'_>, status: &ServerStatus) -> fmt::Result {
    let by_protocol = |of: &dyn Fn(Protocol) -> u64| {
        Protocol::ALL.map(|protocol| (protocol.name(), of(protocol)))
    };
    let open = by_protocol(&|protocol| status.connections(protocol).0);
    out.each(Gauge, "rategate_connections", "Open connections", "protocol", open)?;
    let accepted = by_protocol(&|protocol| status.connections(protocol).1);
    let what = "Connections that were accepted";
    out.each(Counter, "rategate_connections_accepted", what, "protocol", accepted)?;
    let refused = by_protocol(&|protocol| status.connections(protocol).2);
    let what = "Connections that were refused";
    out.each(Counter, "rategate_connections_refused", what, "protocol", refused)?;
    let calls = Protocol::ALL.into_iter().flat_map(|protocol| {
        RefusalReason::ALL.into_iter().map(move |reason| {
            let labels = [("protocol", protocol.name()), ("reason", reason.name())];
            (labels, status.refusals().count(protocol, reason))
        })
    });
    let what = "Calls that were refused before anything was decided";
    out.metric(Counter, "rategate_calls_refused", what, calls)?;
    let unmatched = by_protocol(&|protocol| status.unmatched(protocol).load(Ordering::Relaxed));
    let what = "Items that came under no rule";
    out.each(Counter, "rategate_unmatched", what, "protocol", unmatched)?;
    let ignored = |protocol| status.ignored_verbs(protocol).load(Ordering::Relaxed);
    let of_envoy = [Protocol::Http, Protocol::Grpc];
    let ignored = of_envoy.map(|protocol| (protocol.name(), ignored(protocol)));
    let what = "Calls whose entries state an operation, while `[grpc] verbs` is off";
    out.each(Counter, "rategate_ignored_verbs", what, "protocol", ignored)?;
    let (sites, hosts) = status.foreign_requests();
    let what = "Browser requests that were refused, by reason";
    let foreign = [("other_site", sites), ("other_host", hosts)];
    out.each(Counter, "rategate_http_foreign_requests", what, "why", foreign)?;
    let stores = [Store::None, Store::Healthy, Store::Quarantined, Store::Unavailable];
    let stores = stores.map(|store| (store.name(), u64::from(store == status.store())));
    let what = "1 for the state that the store is in";
    out.each(Gauge, "rategate_store_health", what, "state", stores)?;
    let what = "Always 1; the version of the service";
    out.each(Gauge, "rategate_build_info", what, "version", [(env!("CARGO_PKG_VERSION"), 1)])
}

fn snapshot(out: &mut Writer<'_>, status: &ServerStatus) -> fmt::Result {
    let Some(KeeperStats { saved, failed, keys, bytes, saved_at_ns }) = status.snapshot() else {
        return Ok(());
    };
    let what = "Saves of the counters by outcome";
    let saves = [("saved", saved), ("failed", failed)];
    out.each(Counter, "rategate_snapshot_saves", what, "outcome", saves)?;
    let what = "When counters were last saved; 0 before that";
    let saved_at_s = super::seconds(saved_at_ns);
    out.one(Gauge, "rategate_snapshot_saved_timestamp_seconds", what, saved_at_s)?;
    out.one(Gauge, "rategate_snapshot_keys", "Keys in the last file of counters", keys)?;
    out.one(Gauge, "rategate_snapshot_bytes", "Bytes of the last file of counters", bytes)
}

fn configuration(out: &mut Writer<'_>, status: &ServerStatus, view: &dyn View) -> fmt::Result {
    let what = "1 if the newest configuration was refused and an older one is in force";
    out.one(Gauge, "rategate_config_reload_failed", what, status.reload_error().is_some().into())?;
    let loads = |(loaded, refused)| [("loaded", loaded), ("refused", refused)];
    let what = "Configurations loaded and refused";
    out.each(Counter, "rategate_config_loads", what, "outcome", loads(status.loads()))?;
    let what = "When the configuration in force was loaded";
    out.one(Gauge, "rategate_config_loaded_timestamp_seconds", what, status.loaded_at_s())?;
    let what = "1 if the newest certificates were refused and older ones are in use";
    let has_failed = status.certificate_error().is_some();
    out.one(Gauge, "rategate_tls_reload_failed", what, has_failed.into())?;
    let what = "Certificates read again, and refused";
    out.each(Counter, "rategate_tls_loads", what, "outcome", loads(status.certificate_loads()))?;
    if let Some((is_connected, (accepted, refused))) = status.updates() {
        let what = "1 if the control plane's stream is open";
        out.one(Gauge, "rategate_xds_connected", what, is_connected.into())?;
        let what = "Configurations of the control plane by outcome";
        let updates = [("accepted", accepted), ("refused", refused)];
        out.each(Counter, "rategate_xds_updates", what, "outcome", updates)?;
    }
    let rules = view.rules();
    let hash = rules.as_ref().map_or("", |rules| &*rules.hash);
    let what = "Always 1; the digest of the rules in force";
    out.each(Gauge, "rategate_config_info", what, "hash", [(hash, 1)])?;
    let what = "Rules in force, by whether they are enforced";
    let kinds =
        [("all", Enforcement::All), ("shadow", Enforcement::Shadow), ("soft", Enforcement::Soft)];
    let rules = rules.as_ref().map_or(&[][..], |rules| &rules.rules);
    let rules = kinds.map(|(name, kind)| {
        let count = rules.iter().filter(|rule| rule.enforcement == kind).count();
        (name, u64::try_from(count).unwrap_or(u64::MAX))
    });
    out.each(Gauge, "rategate_config_rules", what, "enforcement", rules)
}

/// A writer of whole metrics, each with its rows.
struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    /// Begins a metric. The name of a counter is without its `_total`.
    fn begin<'s>(
        &'s mut self,
        kind: MetricType,
        name: &'s str,
        what: &str,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.0.encode_descriptor(name, what, None, kind)
    }

    /// Writes a counter or a gauge, of which each value has its labels.
    fn metric<'a, const N: usize>(
        &mut self,
        kind: MetricType,
        name: &str,
        what: &str,
        rows: impl IntoIterator<Item = ([(&'a str, &'a str); N], u64)>,
    ) -> fmt::Result {
        let mut metric = self.begin(kind, name, what)?;
        rows.into_iter().try_for_each(|(labels, value)| row(&mut metric, kind, labels, value))
    }

    /// Writes a counter or a gauge, with a value for each value of one label.
    fn each<'a>(
        &mut self,
        kind: MetricType,
        name: &str,
        what: &str,
        label: &'a str,
        values: impl IntoIterator<Item = (&'a str, u64)>,
    ) -> fmt::Result {
        let rows = values.into_iter().map(|(of, value)| ([(label, of)], value));
        self.metric(kind, name, what, rows)
    }

    /// Writes a counter or a gauge of one value.
    fn one(&mut self, kind: MetricType, name: &str, what: &str, value: u64) -> fmt::Result {
        self.metric(kind, name, what, [([], value)])
    }
}

fn row<const N: usize>(
    metric: &mut MetricEncoder<'_>,
    kind: MetricType,
    labels: [(&str, &str); N],
    value: u64,
) -> fmt::Result {
    let mut row = metric.encode_family(&labels)?;
    match kind {
        Counter => row.encode_counter::<NoLabelSet, _, u64>(&value, None),
        _ => row.encode_gauge(&value),
    }
}
