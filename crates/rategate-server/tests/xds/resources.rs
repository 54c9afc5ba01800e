//! Resources of a control plane, compared with the same rules in Envoy's YAML.

use prost::Message;
use prost_types::value::Kind;
use prost_types::{Any, ListValue, Struct, Value};
use rategate_server::config::{ConfigError, ReceivedRules, load_resources, load_text};
use rategate_server::rule::{Origin, Rule};

use super::stub::{TYPE, hourly, limits};
use super::xds_messages::{TheirConfig, TheirDescriptor, TheirPolicy, TheirReplace};

fn load(configs: &[TheirConfig], are_merged: bool) -> Result<ReceivedRules, ConfigError> {
    let any =
        |config: &TheirConfig| Any { type_url: TYPE.to_owned(), value: config.encode_to_vec() };
    let resources: Vec<_> = configs.iter().map(any).collect();
    load_resources(&resources, are_merged)
}

/// Returns the rules without their positions.
fn rules(rules: &[Rule]) -> Vec<Rule> {
    rules.iter().map(|rule| Rule { origin: Origin::default(), ..rule.clone() }).collect()
}

fn refused(descriptor: TheirDescriptor) -> String {
    let config =
        TheirConfig { domain: "d".to_owned(), descriptors: vec![descriptor], ..Default::default() };
    load(&[config], false).unwrap_err().to_string()
}

const YAML: &str = "
domain: edge
descriptors:
  - key: plan
    value: free
    descriptors:
      - key: user
        shadow_mode: true
        detailed_metric: true
        rate_limit:
          name: per_user
          unit: week
          requests_per_unit: 4294967295
          replaces: [{name: all}]
      - key: path
        value: /a/*
        quota_mode: true
        rate_limit: {unit: second, requests_per_unit: 0}
  - key: all
    rate_limit: {name: all, unlimited: true}
  - key: day
    metadata: {name: day, price: 1.5, tags: [a, null, true], more: {deep: 1}}
    rate_limit: {unit: day, requests_per_unit: 1}
  - {key: month, rate_limit: {unit: month, requests_per_unit: 1}}
  - {key: year, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: minute, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 1}}
";

fn one(key: &str, unit: i32) -> TheirDescriptor {
    let policy = TheirPolicy { unit, requests_per_unit: 1, ..TheirPolicy::default() };
    TheirDescriptor { key: key.to_owned(), rate_limit: Some(policy), ..Default::default() }
}

fn fields(fields: Vec<(&str, Option<Kind>)>) -> Struct {
    let fields = fields.into_iter().map(|(name, kind)| (name.to_owned(), Value { kind }));
    Struct { fields: fields.collect() }
}

fn text(text: &str) -> Kind {
    Kind::StringValue(text.to_owned())
}

fn same_as_yaml() -> TheirConfig {
    let values = [Some(text("a")), None, Some(Kind::BoolValue(true))];
    let tags = ListValue { values: values.map(|kind| Value { kind }).to_vec() };
    let deep = fields(vec![("deep", Some(Kind::NumberValue(1.0)))]);
    let metadata = fields(vec![
        ("name", Some(text("day"))),
        ("price", Some(Kind::NumberValue(1.5))),
        ("tags", Some(Kind::ListValue(tags))),
        ("more", Some(Kind::StructValue(deep))),
    ]);
    let user = TheirDescriptor {
        key: "user".to_owned(),
        shadow_mode: true,
        detailed_metric: true,
        rate_limit: Some(TheirPolicy {
            unit: 7,
            requests_per_unit: u32::MAX,
            name: "per_user".to_owned(),
            replaces: vec![TheirReplace { name: "all".to_owned() }],
            ..TheirPolicy::default()
        }),
        ..TheirDescriptor::default()
    };
    let path = TheirDescriptor {
        key: "path".to_owned(),
        value: "/a/*".to_owned(),
        quota_mode: true,
        rate_limit: Some(TheirPolicy { unit: 1, ..TheirPolicy::default() }),
        ..TheirDescriptor::default()
    };
    let plan = TheirDescriptor {
        key: "plan".to_owned(),
        value: "free".to_owned(),
        descriptors: vec![user, path],
        ..TheirDescriptor::default()
    };
    let all = TheirPolicy { name: "all".to_owned(), unlimited: true, ..TheirPolicy::default() };
    let all = TheirDescriptor { rate_limit: Some(all), ..one("all", 0) };
    let day = TheirDescriptor { metadata: Some(metadata), ..one("day", 4) };
    let units = [("month", 5), ("year", 6), ("minute", 2), ("hour", 3)];
    let units = units.into_iter().map(|(key, unit)| one(key, unit));
    TheirConfig {
        name: "any".to_owned(),
        domain: "edge".to_owned(),
        descriptors: [plan, all, day].into_iter().chain(units).collect(),
    }
}

#[test]
fn a_resource_has_the_rules_of_the_same_file() {
    let file = load_text("edge.yaml", YAML).unwrap();
    let resource = load(&[same_as_yaml()], false).unwrap();
    assert_eq!(rules(&file.rules.rules), rules(&resource.rules.rules));
    assert_eq!(file.rules.rules.len(), 8);
    assert!(file.rules.rules[1].quota && file.rules.rules[3].metadata.is_some());
    let origins = resource.rules.rules.iter().map(|rule| rule.origin.to_string());
    let expected = ["[0].descriptors[0]", "[0].descriptors[1]", "[1]", "[2]", "[3]"];
    let expected = expected.map(|path| format!("any: descriptors{path}"));
    assert_eq!(origins.take(5).collect::<Vec<_>>(), expected);
}

#[test]
fn the_order_of_resources_has_no_meaning() {
    let [a, b, c] = ["a", "b", "c"].map(|domain| limits(domain, &[("user", 10)]));
    let one = load(&[a.clone(), b.clone(), c.clone()], false).unwrap();
    let other = load(&[c, a.clone(), b.clone()], false).unwrap();
    assert_eq!(one.rules.rules, other.rules.rules);
    assert_eq!(one.rules.hash, other.rules.hash);
    assert_ne!(one.rules.hash, load(&[a, b], false).unwrap().rules.hash);
}

#[test]
fn domains_are_merged_where_configured() {
    let (one, other) = (limits("d", &[("user", 1)]), limits("d", &[("path", 2)]));
    let error = load(&[one.clone(), other.clone()], false).unwrap_err();
    assert!(error.to_string().contains("duplicate domain \"d\""), "{error}");
    assert_eq!(load(&[one, other], true).unwrap().rules.rules.len(), 2);
}

#[test]
fn a_fault_has_the_name_of_its_resource_and_a_path() {
    let of = |policy: TheirPolicy| TheirDescriptor { rate_limit: Some(policy), ..one("a", 1) };
    let replaces = vec![TheirReplace { name: "x".to_owned() }, TheirReplace::default()];
    let below = TheirDescriptor {
        key: "b".to_owned(),
        descriptors: vec![one("", 1)],
        ..Default::default()
    };
    for (descriptor, expected) in [
        (one("", 1), "d: descriptors[0]: empty key"),
        (one("a", 0), "d: descriptors[0].rate_limit: no unit, and not unlimited"),
        (one("a", 9), "d: descriptors[0].rate_limit.unit: "),
        (one("a*", 1), "d: descriptors[0].key: a * in a key"),
        (below, "d: descriptors[0].descriptors[0]: empty key"),
        (
            of(TheirPolicy { unlimited: true, ..hourly(1) }),
            "d: descriptors[0].rate_limit.unit: a unit on an unlimited descriptor",
        ),
        (
            of(TheirPolicy { replaces, ..hourly(1) }),
            "d: descriptors[0].rate_limit.replaces[1]: empty name of a replaced limit",
        ),
    ] {
        let error = refused(descriptor);
        assert!(error.starts_with(expected), "{error}, not {expected}");
    }
    let twice = TheirConfig {
        name: "r".to_owned(),
        domain: "d".to_owned(),
        descriptors: vec![one("a", 1), one("a", 2)],
    };
    let error = load(&[twice], false).unwrap_err().to_string();
    assert!(error.starts_with("r: descriptors[1]: duplicate composite key"), "{error}");
    assert!(error.contains("which is also at r: descriptors[0]"), "{error}");
}

/// Trees of the greatest depth are read within the stack of any thread, and deeper ones refused.
#[test]
fn descriptors_nest_as_deep_as_the_bound() {
    let nested = |depth: usize| {
        let within = |inner: TheirDescriptor, _| TheirDescriptor {
            key: "k".to_owned(),
            descriptors: vec![inner],
            ..TheirDescriptor::default()
        };
        let descriptors = vec![(1..depth).fold(one("k", 1), within)];
        TheirConfig { domain: "d".to_owned(), descriptors, ..TheirConfig::default() }
    };
    assert_eq!(load(&[nested(32)], false).unwrap().rules.rules[0].entries.len(), 32);
    let error = load(&[nested(33)], false).unwrap_err().to_string();
    assert!(error.contains("nested deeper than 32 levels"), "{error}");
}

#[test]
fn items_of_all_resources_are_counted_together() {
    let half = |domain: &str| {
        let descriptor =
            |nth: u32| TheirDescriptor { key: format!("k{nth}"), ..TheirDescriptor::default() };
        let descriptors = (0..50_001).map(descriptor).collect();
        TheirConfig { domain: domain.to_owned(), descriptors, ..TheirConfig::default() }
    };
    let error = load(&[half("a"), half("b")], false).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "resources[1]: descriptors[49999]: there are too many descriptors and replaced names"
        ),
        "{error}"
    );
}

#[test]
fn rules_in_files_are_refused_beside_a_control_plane() {
    let xds = "[xds]\nserver = \"h:1\"\n";
    assert!(load_text("a.toml", xds).is_ok());
    let error = load_text("a.toml", &format!("{xds}[[rule]]\nname = \"a\"\nlimit = \"1/s\"\n"));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("a.toml:4:") && error.contains("a rule in a file"), "{error}");
}

#[test]
fn settings_of_a_control_plane_have_to_agree() {
    for (text, expected) in [
        ("server = \"h\"", "is no host and port like"),
        ("server = \"h:0\"", "is no host and port like"),
        ("server = \"a b:1\"", "is no host and port like"),
        ("node = \"n\"", "the key `server` is missing"),
        ("server = \"h:1\"\nnode = \"\"", "a node has a name of 1 to 256 bytes"),
        ("server = \"h:1\"\nbackoff = \"2min\"", "the longest wait is shorter than the first"),
        ("server = \"h:1\"\ntls = { cert = \"c\" }", "needs the authority"),
        ("server = \"h:1\"\ntls = { ca = \"a\", cert = \"c\" }", "xds.tls.key is missing"),
        ("server = \"h:1\"\ntls = { ca = \"a\", key = \"c\" }", "xds.tls.cert is missing"),
        ("server = \"h:1\"\ntls = { ca = \"a\", name = \"a b\" }", "is neither a host nor an"),
    ] {
        let error = load_text("a.toml", &format!("[xds]\n{text}\n")).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let xds = load_text("a.toml", "[xds]\nserver = \"[::1]:18000\"\n").unwrap().settings.xds;
    let xds = xds.unwrap();
    assert_eq!((xds.server.to_string().as_str(), xds.node.as_str()), ("[::1]:18000", "default"));
    let waits = [xds.connect_retry, xds.backoff, xds.max_backoff].map(|wait| wait.as_secs());
    assert_eq!((waits, xds.max_message_bytes), ([3, 10, 60], 4 << 20));
    assert!(!xds.force_start && xds.tls.is_none());
}
