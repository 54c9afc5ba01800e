//! Names of limits in Envoy's format: they depend only on the descriptors, so that a reload finds
//! their counters.

use rategate::ManualClock;
use rategate_server::config::{load, load_text};
use rategate_server::engine::{
    Decided, Engine, EngineSettings, Item, Loaded as Outcome, Request, Target, Verb,
};

/// Returns a file of Envoy's format with a named limit of 10 per hour for each address.
fn file(domain: &str, name: &str) -> String {
    format!(
        "domain: {domain}\ndescriptors:\n- {{key: remote_address, rate_limit: {{name: {name}, \
         unit: hour, requests_per_unit: 10}}}}\n"
    )
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

#[test]
fn long_paths_are_cut_and_stay_distinct() {
    let key = "k".repeat(500);
    let long = |end: &str| {
        let limit = "rate_limit: {unit: day, requests_per_unit: 1}";
        let text = format!("domain: d\ndescriptors: [{{key: {key}, value: {end}, {limit}}}]");
        super::loaded("a.yaml", &text).rules.rules[0].name.clone()
    };
    assert_eq!(long("a").len(), rategate_server::config::MAX_NAME_BYTES);
    assert_ne!(long("a"), long("b"));
    assert_eq!(long("a"), long("a"));
}
