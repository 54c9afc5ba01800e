//! The shipped dashboard and alerts: well-formed, with metrics and labels that the service really
//! has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rategate_server::engine::{DEFAULT_TTL, Item, KeeperStats, Target, UniqueId};
use serde_json::Value;

use crate::engine::common::now;
use crate::observe::common::{Bench, rules};
use crate::observe::metrics::scrape;

fn shipped(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging/observability");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// Returns the metrics, with the values of each of their labels.
fn exported() -> BTreeMap<String, BTreeMap<String, BTreeSet<String>>> {
    let mut exported: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    let bench = Bench::new(rules());
    bench.observe.status().snapshot_is(KeeperStats::default());
    bench.observe.status().control_plane(true);
    // A rule that has reserved has figures of reservations.
    let target = Target::Rule { name: "per-address", values: &[b"a"] };
    now(bench.engine.reserve(UniqueId([1; 16]), DEFAULT_TTL, &[Item::of(target, 1)])).unwrap();
    for series in scrape(&bench).into_keys() {
        let (name, labels) = series.trim_end_matches('}').split_once('{').unwrap_or((&series, ""));
        let known = exported.entry(name.to_owned()).or_default();
        for (label, value) in labels.split(',').filter_map(|label| label.split_once('=')) {
            let value = value.trim_matches('"').to_owned();
            known.entry(label.to_owned()).or_default().insert(value);
        }
    }
    exported
}

/// Checks every metric of an expression, and its label selectors, against the service.
fn check(expression: &str, found: &mut BTreeSet<String>) {
    let exported = exported();
    let open = expression.matches(['(', '{', '[']).count();
    assert_eq!(open, expression.matches([')', '}', ']']).count(), "{expression}");
    let mut rest = expression;
    while let Some(at) = rest.find("rategate_") {
        let text = &rest[at..];
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        let (name, after) = text.split_at(end);
        let labels =
            exported.get(name).unwrap_or_else(|| panic!("{name} is no metric: {expression}"));
        found.insert(name.to_owned());
        if let Some(selected) = after.strip_prefix('{') {
            let selected = &selected[..selected.find('}').unwrap()];
            for fragment in selected.split(',') {
                let (label, value) = fragment.split_once('=').unwrap();
                let values = &labels.get(label).unwrap_or_else(|| panic!("{label}: {expression}"));
                let text = value.trim_start_matches('~').trim_matches('"');
                let fits = |wanted: &str| match wanted.strip_suffix(".*") {
                    Some(lead) => values.iter().any(|value| value.starts_with(lead)),
                    None => wanted.starts_with('$') || values.contains(wanted),
                };
                assert!(text.split('|').all(fits), "{fragment}: {expression}");
            }
        }
        rest = after;
    }
}

/// Checks that the labels a sum keeps are labels of its metric, or of the scrape itself.
fn check_by(expression: &str) {
    let known: BTreeSet<&str> =
        ["rule", "le", "outcome", "protocol", "reason", "hash", "state", "instance"].into();
    for fragment in expression.split("by (").skip(1) {
        let labels = &fragment[..fragment.find(')').unwrap()];
        assert!(labels.split(',').all(|label| known.contains(label.trim())), "{expression}");
    }
}

#[test]
fn the_dashboard_asks_for_what_is_there() {
    let dashboard: Value = serde_json::from_str(&shipped("grafana-dashboard.json")).unwrap();
    let (mut ids, mut found) = (BTreeSet::new(), BTreeSet::new());
    let mut taken: BTreeSet<(u64, u64)> = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "an id twice");
        assert!(
            !panel["title"].as_str().unwrap().is_empty()
                && !panel["description"].as_str().unwrap().is_empty()
        );
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "every panel has a unit");
        let position = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(position("x") + position("w") <= 24);
        for x in position("x")..position("x") + position("w") {
            for y in position("y")..position("y") + position("h") {
                assert!(taken.insert((x, y)), "panels overlap at {x}, {y}");
            }
        }
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            check(expression, &mut found);
            check_by(expression);
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        check(variable["definition"].as_str().unwrap_or_default(), &mut found);
    }
    assert!(found.len() >= 10, "{found:?}");
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 36 && dashboard["uid"] == "rategate");
}

#[test]
fn alerts_ask_for_what_is_there() {
    let file: Value = serde_saphyr::from_str(&shipped("prometheus-rules.yml")).unwrap();
    let (mut names, mut found) = (BTreeSet::new(), BTreeSet::new());
    for group in file["groups"].as_array().unwrap() {
        for alert in group["rules"].as_array().unwrap() {
            let known = ["alert", "expr", "for", "labels", "annotations"];
            assert!(
                alert.as_object().unwrap().keys().all(|key| known.contains(&key.as_str())),
                "{alert}"
            );
            assert!(names.insert(alert["alert"].as_str().unwrap().to_owned()));
            let wait = alert["for"].as_str().unwrap();
            assert!(wait[..wait.len() - 1].parse::<u64>().is_ok() && wait.ends_with(['m', 'h']));
            let severity = alert["labels"]["severity"].as_str().unwrap();
            assert!(["info", "warning", "critical"].contains(&severity));
            let expression = alert["expr"].as_str().unwrap();
            check(expression, &mut found);
            check_by(expression);
            for text in ["summary", "description"] {
                let text = alert["annotations"][text].as_str().unwrap();
                assert_eq!(text.matches("{{").count(), text.matches("}}").count());
                for label in text.split("$labels.").skip(1) {
                    let label = label.split([' ', '}']).next().unwrap();
                    assert!(expression.contains(label), "{label} is not kept by {expression}");
                }
            }
        }
    }
    // Prometheus' own check, where it is installed.
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging/observability");
    let mut check = std::process::Command::new("promtool");
    let check = check.args(["check", "rules"]).arg(folder.join("prometheus-rules.yml")).output();
    assert!(check.is_err() || check.is_ok_and(|check| check.status.success()));
    assert!(names.contains("RategateConfigRefused") && names.contains("RategateKeyCapacity"));
    assert!(names.contains("RategateTokenMissing") && names.contains("RategateCallsRefused"));
    assert!(found.contains("rategate_calls_refused_total"), "{found:?}");
    // Failing saves are detected by their count, and by their age where no result arrives at all.
    assert!(names.contains("RategateSnapshotFails") && names.contains("RategateSnapshotOld"));
    let saves = ["rategate_snapshot_saves_total", "rategate_snapshot_saved_timestamp_seconds"];
    assert!(saves.iter().all(|name| found.contains(*name)), "{found:?}");
}
