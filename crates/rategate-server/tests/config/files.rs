//! The files that come with the service, and the import of other formats.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rategate_server::config::{explain, load, load_text, schema, to_toml};
use rategate_server::rule::{Origin, RuleSet};

use crate::config::busy;

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns the rules without their positions.
fn rules_without_origin(rules: &RuleSet) -> Vec<rategate_server::rule::Rule> {
    let strip_origin = |rule: &rategate_server::rule::Rule| {
        let mut rule = rule.clone();
        rule.origin = Origin::default();
        rule
    };
    rules.rules.iter().map(strip_origin).collect()
}

#[test]
fn the_schema_in_the_repository_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema/rategate.schema.json");
    if std::env::var_os("RATEGATE_WRITE_SCHEMA").is_some() {
        std::fs::write(&path, schema()).unwrap();
    }
    let checked_in = std::fs::read_to_string(&path).unwrap();
    assert!(checked_in == schema(), "write it anew: rategate config schema > {}", path.display());
    let schema: serde_json::Value = serde_json::from_str(&checked_in).unwrap();
    let keys: Vec<_> = schema["properties"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys.len(), 11, "{keys:?}");
    assert_eq!(schema["additionalProperties"], false);
    for key in keys.iter().filter(|key| *key != "rule") {
        assert!(
            load_text("a.toml", &format!("[{key}]\nno_such_key = 1"))
                .unwrap_err()
                .to_string()
                .contains("no_such_key")
        );
    }
}

#[test]
fn the_sample_configuration_loads() {
    let loaded =
        load(&root("packaging/rategate.toml")).unwrap_or_else(|error| panic!("{}", error.report()));
    assert!(!loaded.rules.rules.is_empty() && loaded.warnings.is_empty());
}

/// Every configuration in any guide loads, `Cargo.toml`s aside.
#[test]
fn the_configurations_of_the_guides_load() {
    let mut blocks = 0;
    for entry in std::fs::read_dir(root("docs/guides")).unwrap() {
        let path = entry.unwrap().path();
        let is_guide = path.extension().is_some_and(|extension| extension == "md");
        let guide = if is_guide { std::fs::read_to_string(&path).unwrap() } else { continue };
        for block in guide.split("```toml\n").skip(1) {
            let text = block.split("```").next().unwrap();
            let can_load = cfg!(feature = "otlp") || !text.contains("otlp");
            if !text.starts_with("[dependencies]") && can_load {
                let name = path.display();
                load_text("guide.toml", text)
                    .unwrap_or_else(|error| panic!("{name}: {}", error.report()));
                blocks += 1;
            }
        }
    }
    assert!(blocks >= 9, "{blocks}");
}

/// Every block of the guide loads, and its tables name every key.
#[test]
fn the_guide_is_true() {
    let guide = std::fs::read_to_string(root("docs/guides/configuration.md")).unwrap();
    let mut blocks = 0;
    for (start, name) in [("```toml\n", "guide.toml"), ("```yaml\n", "guide.yaml")] {
        for block in guide.split(start).skip(1) {
            let text = block.split("```").next().unwrap();
            load_text(name, text).unwrap_or_else(|error| panic!("{}", error.report()));
            blocks += 1;
        }
    }
    assert!(blocks >= 5, "{blocks}");
    let schema: serde_json::Value = serde_json::from_str(&schema()).unwrap();
    let mut keys = Vec::new();
    collect(&schema, &mut keys);
    keys.extend(
        [
            "unit_multiplier",
            "requests_per_unit",
            "share_threshold",
            "value_to_metric",
            "shadow_mode",
            "quota_mode",
        ]
        .map(str::to_owned),
    );
    let missing: Vec<_> = keys.iter().filter(|key| !guide.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let keys = rategate_server::config::keys();
    let missing: Vec<_> =
        keys.filter(|key| !guide.contains(&rategate_server::config::variable(key))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Collects the names of all properties in a schema.
fn collect(schema: &serde_json::Value, keys: &mut Vec<String>) {
    match schema {
        serde_json::Value::Object(map) => {
            if let Some(properties) = map.get("properties").and_then(|all| all.as_object()) {
                keys.extend(properties.keys().cloned());
            }
            map.values().for_each(|value| collect(value, keys));
        }
        serde_json::Value::Array(all) => all.iter().for_each(|value| collect(value, keys)),
        _ => {}
    }
}

#[test]
fn what_is_imported_loads_to_the_same() {
    let units = ["second", "minute", "hour", "day", "week", "month", "year"];
    let mut yaml = "domain: \"odd \\\"domain\\\"\"\ndescriptors:\n".to_owned();
    for (nth, unit) in units.iter().enumerate() {
        for (count, rest) in [
            (0, ""),
            (1, ""),
            (7, ", unit_multiplier: 3"),
            (60, ", algorithm: gcra"),
            (60, ", algorithm: gcra, burst: 5"),
            (5, ", algorithm: sliding-log"),
            (9, ", algorithm: compact-log"),
        ] {
            let _ = writeln!(
                yaml,
                "- {{key: 'k{nth}', value: '{count}{rest}', shadow_mode: {}, quota_mode: {}, \
                 detailed_metric: {}, rate_limit: {{unit: {unit}, \
                 requests_per_unit: {count}{rest}}}}}",
                nth % 2 == 0,
                nth % 3 == 0,
                nth % 5 == 0
            );
        }
    }
    yaml += "- key: a\n  value: \"q\\\"u\\\\o\\nte*\"\n  share_threshold: true\n  \
             rate_limit: {name: one, unit: day, requests_per_unit: 3, \
             replaces: [{name: two}]}\n  descriptors:\n  \
             - {key: ü, rate_limit: {name: two, unlimited: true}}\n  \
             - {key: w, value: '*', rate_limit: {unit: day, requests_per_unit: 4294967295}}\n  \
             - {key: leaf}\n";
    let before = load_text("a.yaml", &yaml).unwrap_or_else(|error| panic!("{}", error.report()));
    let toml = to_toml(&before.rules).unwrap();
    let after =
        load_text("a.toml", &toml).unwrap_or_else(|error| panic!("{}\n{toml}", error.report()));
    for (one, other) in
        rules_without_origin(&before.rules).iter().zip(rules_without_origin(&after.rules))
    {
        assert_eq!(*one, other);
    }
    assert_eq!(before.rules.rules.len(), after.rules.rules.len());
}

#[test]
fn native_rules_are_written_as_they_were_read() {
    let text = "[store]\nurl = \"redis://h\"\n[[rule]]\nname = \"a\"\n\
                match = [\"u\", { key = \"v\", values = [\"x\", \"y*\"] }]\nlimit = \"0.3/s\"\n\
                burst = 7\nenforce = \"soft\"\nstore = \"leased\"\nlease = \"1500ms\"\n\
                on_unavailable = \"admit\"\nkeys = 9\n[[rule]]\nname = \"e\"\nlimit = \"2/s\"\n\
                [[rule.schedule]]\ndays = [\"sat-mon\"]\nfrom = \"22:00\"\nto = \"06:30:15\"\n\
                zone = \"Asia/Tokyo\"\nlimit = \"5/250ms\"\n[[rule]]\nname = \"b\"\nlimit = 4\n\
                algorithm = \"concurrency\"\nstore = \"exact\"\nlease = \"1500ms\"\n[[rule]]\n\
                name = \"d\"\nlimit = 4\nalgorithm = \"concurrency\"\n[[rule]]\nname = \"c\"\n\
                limit = \"5/250ms\"\nalgorithm = \"fixed-window\"\n";
    let before = load_text("a.toml", text).unwrap();
    let again = format!("[store]\nurl = \"redis://h\"\n{}", to_toml(&before.rules).unwrap());
    let after =
        load_text("a.toml", &again).unwrap_or_else(|error| panic!("{}\n{again}", error.report()));
    assert_eq!(rules_without_origin(&before.rules), rules_without_origin(&after.rules));
}

#[test]
fn why_a_rule_is_not_matched() {
    let yaml = "domain: d\ndescriptors:\n- {key: a, rate_limit: {name: any, unit: day, \
                requests_per_unit: 1}}\n- {key: a, value: x, descriptors: [{key: b, \
                rate_limit: {name: below, unit: day, requests_per_unit: 1}}]}\n\
                - {key: a, value: y*, rate_limit: {name: like, unit: day, requests_per_unit: 1}}\n";
    let rules = load_text("a.yaml", yaml).unwrap().rules;
    let explained = |entries: &[(&str, &str)]| {
        let explanation = explain(&rules, "d", entries);
        (explanation.rule.as_ref().map(|rule| rule.name.to_string()), explanation.to_string())
    };
    let (found, text) = explained(&[("a", "yes")]);
    assert_eq!(found.as_deref(), Some("d.a=y*"));
    assert!(text.contains("d.a (any): it matches, but `d.a=y*` is more specific"), "{text}");
    let (found, text) = explained(&[("a", "x")]);
    assert_eq!(found, None, "the more specific value leads elsewhere, as in Envoy's service");
    assert!(
        text.contains("d.a (any): it matches, but a more specific value")
            && text.contains("d.a=y* (like): its `a` is"),
        "{text}"
    );
    let (_, text) = explained(&[("c", "x")]);
    assert!(text.contains("d.a (any): its entry 1 is `a`, and the call's is `c`"), "{text}");
    assert!(explain(&rules, "e", &[]).to_string().contains("no rule is of this domain"));
}

#[test]
fn many_rules_load_soon() {
    let native = |count: usize| {
        let rule = |nth| {
            format!(
                "[[rule]]\nname = \"rule-{nth}\"\n\
                 match = [{{ key = \"plan\", value = \"p{nth}\" }}, \"user\"]\n\
                 limit = \"100/min\"\n"
            )
        };
        (0..count).map(rule).collect::<String>()
    };
    let envoy = |count: usize| {
        let rule = |nth| {
            format!(
                "- {{key: plan, value: p{nth}, descriptors: [{{key: user, \
                 rate_limit: {{unit: minute, requests_per_unit: 100}}}}]}}\n"
            )
        };
        format!("domain: d\ndescriptors:\n{}", (0..count).map(rule).collect::<String>())
    };
    // As many as a release build loads in a moment; fewer without optimization.
    let count = if cfg!(debug_assertions) { 1_000 } else { 10_000 };
    for (name, text) in [("a.toml", native(count)), ("a.yaml", envoy(count))] {
        let (loaded, took) = busy(|| load_text(name, &text).unwrap());
        println!("{count} rules of {name} in {took:?}");
        assert_eq!(loaded.rules.rules.len(), count);
        assert!(took < Duration::from_secs(5), "{name}: {took:?}");
    }
}

#[test]
fn what_is_no_text_or_too_long_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let invalid = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        load(&path).unwrap_err().to_string()
    };
    assert!(
        invalid("a.toml", b"# a\nx = \"\xff\"").contains("a.toml:2:6: a byte that is not UTF-8")
    );
    assert!(invalid("b.toml", b" \n").contains("empty"));
    assert!(invalid("c.txt", b"x").contains("neither .toml nor .yaml"));
    let long = std::fs::File::create(folder.path().join("d.toml")).unwrap();
    long.set_len((16 << 20) + 1).unwrap();
    assert!(load(&folder.path().join("d.toml")).unwrap_err().to_string().contains("16 MiB"));
    let none = tempfile::tempdir().unwrap();
    assert!(load(none.path()).unwrap_err().to_string().contains("no file"));
    assert!(load(&none.path().join("x.toml")).unwrap_err().to_string().contains("cannot be read"));
}
