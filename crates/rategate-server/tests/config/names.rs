//! Names of limits in Envoy's format: they depend only on the descriptors, so that a reload finds
//! their counters.

use std::sync::Arc;

use rategate::ManualClock;
use rategate_server::config::{Loaded, explain, load, load_text, to_toml};
use rategate_server::engine::{
    Decided, Engine, EngineSettings, Item, Loaded as Outcome, Request, Target, Verb,
};

use crate::config::busy;

/// Returns a file of Envoy's format with a named limit of 10 per hour for each address.
fn file(domain: &str, name: &str) -> String {
    format!(
        "domain: {domain}\ndescriptors:\n- {{key: remote_address, rate_limit: {{name: {name}, \
         unit: hour, requests_per_unit: 10}}}}\n"
    )
}

fn text(name: &str, text: &str) -> Loaded {
    load_text(name, text).unwrap_or_else(|error| panic!("{}", error.report()))
}

fn names(loaded: &Loaded) -> Vec<String> {
    loaded.rules.rules.iter().map(|rule| rule.name.to_string()).collect()
}

/// A service whose files are in a folder.
struct Scene {
    folder: tempfile::TempDir,
    engine: Engine<ManualClock>,
}

impl Scene {
    fn new(files: &[(&str, &str)]) -> Self {
        let engine = Engine::new(ManualClock::new(), EngineSettings::default());
        let scene = Self { folder: tempfile::tempdir().unwrap(), engine };
        for (name, text) in files {
            scene.write(name, text);
        }
        scene.reload();
        scene
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn reload(&self) -> Outcome {
        let loaded = load(self.folder.path()).unwrap_or_else(|error| panic!("{}", error.report()));
        self.engine.load_compiled(&loaded.rules).unwrap()
    }

    /// Returns the permits left for the address after taking some.
    fn left(&self, domain: &str, permits: u64) -> u64 {
        let entries: [(&[u8], &[u8]); 1] = [(b"remote_address", b"10.0.0.1")];
        let target = Target::Descriptor { domain, entries: &entries, limit: None };
        let items = [Item::of(target, permits)];
        let request = Request { verb: Verb::Take, items: &items, counts_denied: false };
        match self.engine.decide(&request) {
            Decided::Now(answer) => answer.unwrap().results[0].remaining.unwrap(),
            Decided::Later(_) => unreachable!("all counters are here"),
        }
    }
}

/// The first file's rules and their counters stay, whatever another file contains.
#[test]
fn no_other_file_changes_what_a_rule_is_called() {
    let scene = Scene::new(&[("m.yaml", &file("edge", "per_ip"))]);
    assert_eq!(scene.left("edge", 7), 3);
    let steps = [
        ("z.yaml", file("other", "per_ip")),
        ("a.yaml", file("first", "per_ip")),
        ("z.yaml", file("other", "renamed")),
        ("b.toml", "[[rule]]\nname = \"per_ip\"\nlimit = \"1/s\"\n".to_owned()),
        ("z.yaml", file("edge.remote_address", "per_ip")),
        // The given name does not identify a limit.
        ("m.yaml", file("edge", "by_address")),
    ];
    for (name, text) in &steps {
        scene.write(name, text);
        let outcome = scene.reload();
        let is_kept = outcome.kept.iter().any(|name| &**name == "edge.remote_address");
        assert!(is_kept, "{name}: {outcome:?}");
        assert_eq!(scene.left("edge", 0), 3, "{name}");
    }
    for name in ["a.yaml", "b.toml", "z.yaml"] {
        std::fs::remove_file(scene.folder.path().join(name)).unwrap();
        let outcome = scene.reload();
        assert!(outcome.added.is_empty() && outcome.restarted.is_empty(), "{name}: {outcome:?}");
        assert_eq!(scene.left("edge", 0), 3, "{name}");
    }
}

/// A similar limit in the same file changes nothing either.
#[test]
fn no_other_limit_changes_what_a_rule_is_called() {
    let one = "- {key: a_b, value: c, rate_limit: {name: n, unit: day, requests_per_unit: 1}}\n";
    let others = [
        "- {key: a, value: b_c, rate_limit: {name: n, unit: day, requests_per_unit: 1}}\n",
        "- {key: a_b=c, rate_limit: {name: n, unit: day, requests_per_unit: 1}}\n",
        "- {key: a, value: b.c, rate_limit: {unit: day, requests_per_unit: 1}}\n",
        "- {key: a, value: b, descriptors: [{key: c, rate_limit: {unit: day, \
         requests_per_unit: 1}}]}\n",
    ];
    let file =
        |limits: &[&str]| text("d.yaml", &format!("domain: d\ndescriptors:\n{}", limits.concat()));
    let mut all = others.to_vec();
    all.insert(2, one);
    let together = names(&file(&all));
    assert_eq!(together[2], "d.a_b=c");
    for (limit, name) in all.iter().zip(&together) {
        assert_eq!(names(&file(&[limit])), [name.as_str()], "alone or not");
    }
    all.reverse();
    let mut reversed = names(&file(&all));
    reversed.reverse();
    assert_eq!(reversed, together, "in any order");
}

#[test]
fn names_do_not_depend_on_the_order_of_files() {
    let texts = [file("edge", "per_ip"), file("other", "per_ip"), file("a.b", "per_ip")];
    let sorted = |order: [&str; 3]| {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in order.iter().zip(&texts) {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let loaded = load(folder.path()).unwrap();
        let mut names = names(&loaded);
        names.sort();
        names
    };
    let expected = sorted(["1.yaml", "2.yaml", "3.yaml"]);
    assert!(expected.iter().any(|name| name == "edge.remote_address"), "{expected:?}");
    assert_eq!(sorted(["3.yaml", "2.yaml", "1.yaml"]), expected);
    assert_eq!(sorted(["2.yaml", "3.yaml", "1.yaml"]), expected);
}

/// A chosen name that equals another file's name changes neither: the chosen one is reported.
#[test]
fn a_chosen_name_gives_way() {
    for native in ["a.toml", "z.toml"] {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
        };
        write("m.yaml", &file("edge", "per_ip"));
        write(native, "[[rule]]\nname = \"edge.remote_address\"\nlimit = \"1/s\"\n");
        let error = load(folder.path()).unwrap_err();
        let reported = error.to_string();
        let [problem] = error.problems() else { panic!("{reported}") };
        assert_eq!((problem.line(), problem.column()), (Some(2), Some(8)), "{reported}");
        assert!(
            reported.contains(&format!("{native}:2:8")) && reported.contains("m.yaml:3:3"),
            "{reported}"
        );
    }
}

/// Within its domain, a limit is replaced by its given name.
#[test]
fn what_is_replaced_is_named_as_it_was_given() {
    let limits = "- {key: a, rate_limit: {name: n, unit: day, requests_per_unit: 1}}\n\
                  - {key: b, rate_limit: {name: n, unit: day, requests_per_unit: 1}}\n\
                  - {key: c, rate_limit: {name: \"no\\n\
                  name\", unit: day, requests_per_unit: 1, replaces: [{name: n}]}}\n";
    let folder = tempfile::tempdir().unwrap();
    for domain in ["d", "e"] {
        let text = format!("domain: {domain}\ndescriptors:\n{limits}");
        std::fs::write(folder.path().join(format!("{domain}.yaml")), text).unwrap();
    }
    let loaded = load(folder.path()).unwrap();
    assert_eq!(names(&loaded), ["d.a", "d.b", "d.c", "e.a", "e.b", "e.c"]);
    let replaced = |nth: usize| loaded.rules.rules[nth].replaces.clone();
    assert_eq!(replaced(2), ["d.a", "d.b"].map(Arc::from));
    assert_eq!(replaced(5), ["e.a", "e.b"].map(Arc::from));
}

/// Explanations show both names, and an import keeps the counters.
#[test]
fn both_names_are_shown_and_imported() {
    let before = text("m.yaml", &file("edge", "per_ip"));
    let reported = explain(&before.rules, "edge", &[("remote_address", "x")]).to_string();
    assert!(reported.contains("rule:      edge.remote_address\nto envoy:  per_ip\n"), "{reported}");
    let reported = explain(&before.rules, "edge", &[("else", "x")]).to_string();
    assert!(reported.contains("  edge.remote_address (per_ip): its entry 1"), "{reported}");
    let toml = to_toml(&before.rules).unwrap();
    assert!(toml.contains("name = \"edge.remote_address\"\nenvoy_name = \"per_ip\"\n"), "{toml}");
    let after = text("m.toml", &toml);
    let scene = Scene::new(&[("m.yaml", &file("edge", "per_ip"))]);
    assert_eq!(scene.left("edge", 7), 3);
    let outcome = scene.engine.load_compiled(&after.rules).unwrap();
    assert_eq!(outcome.kept, [Arc::from("edge.remote_address")]);
    assert_eq!(scene.left("edge", 0), 3);
}

/// An unknown domain or key is reported with a suggestion.
#[test]
fn what_was_probably_meant_is_explained() {
    let loaded = text("m.yaml", &file("edge", "per_ip"));
    let reported =
        |domain: &str, key: &str| explain(&loaded.rules, domain, &[(key, "x")]).to_string();
    let domain = reported("egde", "remote_address");
    assert!(domain.contains("no rule is of the domain `egde`; did you mean `edge`?"), "{domain}");
    let key = reported("edge", "remote_addres");
    assert!(key.contains("has the key `remote_addres`; did you mean `remote_address`?"), "{key}");
    let other = reported("edge", "user");
    assert!(!other.contains("did you mean"), "{other}");
}

/// A call may have any number of unknown keys: the first eight are compared, with at most a
/// hundred known ones.
#[test]
fn unknown_keys_are_no_work_without_end() {
    let mut rules = String::new();
    for nth in 0..500 {
        let key = format!("{}{nth:03}", "k".repeat(40));
        rules += &format!("[[rule]]\nname = \"r{nth}\"\nmatch = [\"{key}\"]\nlimit = \"1/s\"\n");
    }
    let loaded = text("r.toml", &rules);
    let unknown: Vec<String> =
        (0..2_000).map(|nth| format!("{}{nth:04}", "u".repeat(38))).collect();
    let mut keys: Vec<_> = unknown.iter().map(|key| (key.as_str(), "x")).collect();
    let near = "k".repeat(40) + "0x1";
    let reported = |keys: &[(&str, &str)]| busy(|| explain(&loaded.rules, "default", keys).hint);
    keys.insert(8, (&near, "x"));
    let (none, took) = reported(&keys);
    assert_eq!(none, None);
    keys.swap(7, 8);
    let (hint, again) = reported(&keys);
    let hint = hint.unwrap();
    assert!(hint.contains("did you mean `k"), "{hint}");
    assert!(took + again < std::time::Duration::from_secs(2), "{took:?} and {again:?}");
}

#[test]
fn a_name_is_a_string_of_structured_fields_without_escapes() {
    let is_name = |name: &str| {
        let name = toml::Value::String(name.to_owned());
        load_text("a.toml", &format!("[[rule]]\nname = {name}\nlimit = \"1/s\"")).is_ok()
    };
    for name in ["a", "api/gold", "edge.plan_free.user", "a b", "~", &"x".repeat(128)] {
        assert!(is_name(name), "{name}");
    }
    for name in ["", " a", "a ", "a\"b", "a\\b", "a\nb", "ä", "\u{7f}", &"x".repeat(129)] {
        assert!(!is_name(name), "{name}");
    }
}

type Path<'a> = [(&'a str, Option<&'a str>)];

/// Returns the descriptor of a path in Envoy's format, which JSON is too.
fn descriptor(path: &Path<'_>) -> serde_json::Value {
    let [(key, value), rest @ ..] = path else { panic!("an empty path") };
    let mut one = serde_json::json!({ "key": key });
    if let Some(value) = value {
        one["value"] = serde_json::json!(value);
    }
    if rest.is_empty() {
        one["rate_limit"] = serde_json::json!({ "unit": "day", "requests_per_unit": 1 });
    } else {
        one["descriptors"] = serde_json::json!([descriptor(rest)]);
    }
    one
}

fn name_of(domain: &str, path: &Path<'_>) -> String {
    let file = serde_json::json!({ "domain": domain, "descriptors": [descriptor(path)] });
    names(&text("a.yaml", &file.to_string())).remove(0)
}

#[test]
fn a_path_becomes_a_name() {
    let path = [("plan", Some("free")), ("user", None)];
    assert_eq!(name_of("edge", &path), "edge.plan=free.user");
    let address = [("remote_address", Some("50.0.0.5"))];
    assert_eq!(name_of("edge", &address), "edge.remote_address=50.0.0.5");
    assert_eq!(name_of("edge", &[("path", Some("/a=b/*"))]), "edge.path=/a=b/*");
    let odd = name_of("edge", &[("pläne", Some("a\"b\n"))]);
    assert!(odd.starts_with("edge.pl_ne=a_b_~") && odd.is_ascii(), "{odd}");
}

#[test]
fn long_paths_are_cut_and_stay_distinct() {
    let key = "k".repeat(500);
    let long = |end: &str| name_of("d", &[(&key, Some(end))]);
    assert_eq!(long("a").len(), rategate_server::config::MAX_NAME_BYTES);
    assert_ne!(long("a"), long("b"));
    assert_eq!(long("a"), long("a"));
}
