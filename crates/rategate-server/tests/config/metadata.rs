//! The metadata of rules, in both formats.

use rategate_server::config::{ConfigError, load_text, to_toml};
use rategate_server::rule::Rule;
use rategate_server::rule::{FiniteNumber, Metadata, MetadataValue};

/// Returns the rule of a descriptor with metadata.
fn yaml(metadata: &str) -> Result<Rule, ConfigError> {
    let text = format!(
        "domain: d\ndescriptors:\n- key: a\n  rate_limit: {{unit: day, requests_per_unit: 1}}\n  \
         metadata: {metadata}\n"
    );
    load_text("a.yaml", &text).map(|loaded| loaded.rules.rules[0].clone())
}

fn toml(metadata: &str) -> Result<Rule, ConfigError> {
    let text = format!("[[rule]]\nname = \"a\"\nlimit = \"1/s\"\nmetadata = {metadata}\n");
    load_text("a.toml", &text).map(|loaded| loaded.rules.rules[0].clone())
}

fn map<const N: usize>(fields: [(&str, MetadataValue); N]) -> Metadata {
    Metadata(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
}

fn number(number: f64) -> MetadataValue {
    MetadataValue::Number(FiniteNumber::new(number).unwrap())
}

#[test]
fn each_kind_of_value_is_kept() {
    let text = "{t: word, q: '1', b: true, n: -3, f: 0.5, e: 1e3, big: 18446744073709551616, z: ~, \
                l: [1, [a], {}], m: {inner: {deep: x}}, 7: seven}";
    let list = vec![
        number(1.0),
        MetadataValue::List(vec![MetadataValue::text("a")]),
        MetadataValue::Map(Metadata::default()),
    ];
    let inner = MetadataValue::Map(map([("deep", MetadataValue::text("x"))]));
    let expected = map([
        ("t", MetadataValue::text("word")),
        ("q", MetadataValue::text("1")),
        ("b", MetadataValue::Bool(true)),
        ("n", number(-3.0)),
        ("f", number(0.5)),
        ("e", number(1000.0)),
        ("big", number(18_446_744_073_709_551_616.0)),
        ("z", MetadataValue::Null),
        ("l", MetadataValue::List(list)),
        ("m", MetadataValue::Map(map([("inner", inner)]))),
        ("7", MetadataValue::text("seven")),
    ]);
    assert_eq!(yaml(text).unwrap().metadata.as_deref(), Some(&expected));
    for none in ["", "{}", "~"] {
        assert_eq!(yaml(none).unwrap().metadata, None, "{none:?}");
    }
    let rule = toml("{ t = 'word', n = 5, f = 1_0.5, l = [true, { k = -1 }] }").unwrap();
    let list = vec![MetadataValue::Bool(true), MetadataValue::Map(map([("k", number(-1.0))]))];
    let expected = map([
        ("t", MetadataValue::text("word")),
        ("n", number(5.0)),
        ("f", number(10.5)),
        ("l", MetadataValue::List(list)),
    ]);
    assert_eq!(rule.metadata.as_deref(), Some(&expected));
}

/// A message, a path in YAML, and the position of the value.
#[test]
fn what_cannot_be_kept_is_refused_with_its_place() {
    let nested = |levels: usize| format!("{}1{}", "{k: ".repeat(levels), "}".repeat(levels));
    for (text, path, message, column) in [
        ("[1]", "metadata", "wrong type: a list, not a mapping", 13),
        (&nested(17), "metadata", "nested deeper than 16 levels", 13),
        (&format!("{{a: {}}}", "x".repeat(16 << 10)), "metadata", "at most 16384 are accepted", 13),
    ] {
        let error = yaml(text).unwrap_err();
        let [problem] = error.problems() else { panic!("{error}") };
        let reported = problem.message();
        assert!(reported.starts_with(&format!("descriptors[0].{path}: ")), "{reported}");
        assert!(reported.contains(message), "{reported}");
        assert_eq!((problem.line(), problem.column()), (Some(5), Some(column)), "{reported}");
    }
    assert!(yaml(&nested(16)).is_ok());
    for number in ["{a: {b: [1, .nan]}}", "{a: -.inf}"] {
        let error = yaml(number).unwrap_err().to_string();
        assert!(error.starts_with("a.yaml:5:") && error.contains("non-finite"), "{error}");
    }
    for (text, message) in
        [("{ a = inf }", "not finite"), ("{ a = 2026-01-01 }", "a date"), ("5", "not a table")]
    {
        let error = toml(text).unwrap_err().to_string();
        assert!(error.contains(message) && error.contains("a.toml:4:"), "{error}");
    }
}

#[test]
fn an_import_keeps_metadata_and_refuses_what_toml_has_not() {
    let text = "domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: day, requests_per_unit: 1}\n  \
                metadata: {\"a b\": [1, 2.5, 1e300, \"x\\\"y\"], m: {n: {}, t: true}, e: []}\n";
    let before = load_text("a.yaml", text).unwrap();
    let written = to_toml(&before.rules).unwrap();
    let after = load_text("a.toml", &written).unwrap_or_else(|error| panic!("{}", error.report()));
    let metadata = |rules: &[Rule]| rules[0].metadata.clone().unwrap();
    assert_eq!(metadata(&before.rules.rules), metadata(&after.rules.rules), "{written}");
    let null = load_text("a.yaml", &text.replace("e: []", "e: ~")).unwrap();
    let refused = to_toml(&null.rules).unwrap_err().to_string();
    assert_eq!(refused, "rule `d.a` has a null in its metadata, which the native format does not");
}

/// The tiers of a rule have its metadata.
#[test]
fn tiers_have_the_metadata_of_their_rule() {
    let text = "[[rule]]\nname = \"a\"\nmatch = [\"plan\"]\nlimit = \"1/s\"\n\
                metadata = { team = \"x\" }\n[[rule.tiers]]\nname = \"t\"\nvalues = [\"free\"]\n\
                limit = \"2/s\"\n";
    let rules = load_text("a.toml", text).unwrap().rules;
    let expected = map([("team", MetadataValue::text("x"))]);
    assert!(rules.rules.len() == 2);
    assert!(rules.rules.iter().all(|rule| rule.metadata.as_deref() == Some(&expected)));
}
