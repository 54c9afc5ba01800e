//! The files that come with the service, and the import of other formats.

use std::path::{Path, PathBuf};

use rategate_server::config::{load, load_text, schema};

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
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
fn the_digest_is_of_the_text() {
    let hash = |text: &str| load_text("a.toml", text).unwrap().hash;
    assert_eq!(hash("# a"), hash("# a"));
    assert_ne!(hash("# a"), hash("# b"));
    assert_eq!(load_text("a.toml", "# a").unwrap().rules.hash, hash("# a"));
}
