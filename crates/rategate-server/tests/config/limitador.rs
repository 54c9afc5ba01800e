//! Limitador's format: the rules that files load to, and what entries cannot express.

use std::time::Duration;

use rategate::FixedWindow;
use rategate::policy::Anchor;
use rategate_server::config::{ConfigError, Loaded, explain, load_text, to_toml};
use rategate_server::rule::{DisplayLimit, Entry, Limit, Over, Unit, Value};

/// The file of the guide.
const SAMPLE: &str = r#"
- namespace: example.org
  max_value: 10
  seconds: 60
  conditions:
    - "descriptors[0].req_method == 'GET'"
  variables:
    - descriptors[0].user_id
- id: daily
  namespace: example.org
  max_value: 1000
  seconds: 86400
  name: per user and day
  conditions: []
  variables:
    - descriptors[1]['user.id']
"#;

fn load_ok(text: &str) -> Loaded {
    load_text("limits.yaml", text).unwrap_or_else(|error| panic!("{}", error.report()))
}

fn invalid(text: &str) -> ConfigError {
    load_text("limits.yaml", text).map(|_| panic!("accepted: {text}")).unwrap_err()
}

#[test]
fn a_file_of_limits_becomes_rules() {
    let loaded = load_ok(SAMPLE);
    let [first, second] = &loaded.rules.rules[..] else { panic!("{:?}", loaded.rules) };
    // A domain with a dot has a digest in the names of its rules.
    assert!(first.name.starts_with("example.org.req_method=GET.user_id~"), "{}", first.name);
    assert!(first.name.ends_with("@60s") && second.name.ends_with("@86400s#1"));
    assert_eq!((&*first.domain, &*first.envoy_name), ("example.org", ""));
    let method = Entry { key: "req_method".into(), value: Value::Exact("GET".into()) };
    let user = Entry { key: "user_id".into(), value: Value::Any };
    assert_eq!((&first.entries[..], first.descriptor), (&[method, user][..], Some(0)));
    let window = FixedWindow::new(10, Duration::from_secs(60), Anchor::Epoch);
    assert_eq!((first.limit, first.over), (Limit::Policy(window.into()), Over::Refuse));
    assert_eq!(
        first.display_limit,
        DisplayLimit { permits: 10, multiplier: 1, unit: Unit::Minute }
    );
    assert_eq!((&*second.envoy_name, second.descriptor), ("per user and day", Some(1)));
    assert_eq!(&*second.entries[0].key, "user.id");
    assert_eq!(second.display_limit.to_string(), "1000 per day");
    // The order of expressions has no meaning, and neither has the number.
    let other = SAMPLE.replace("max_value: 10\n", "max_value: 11\n");
    assert_eq!(load_ok(&other).rules.rules[0].name, first.name);
    let plain = "[{ namespace: shop, max_value: 5, seconds: 90, conditions: \
                 [\"descriptors[0].b == '2'\", \"'1' == descriptors[0].a\"] }]";
    let rule = &load_ok(plain).rules.rules[0];
    assert_eq!(&*rule.name, "shop.a=1.b=2@90s");
    assert_eq!(rule.display_limit.to_string(), "5 per 90 seconds");
}

#[test]
fn files_load_back_from_the_native_format() {
    let before = load_ok(SAMPLE);
    let toml = to_toml(&before.rules).unwrap();
    let after = load_text("rules.toml", &toml).unwrap_or_else(|e| panic!("{}", e.report()));
    for (one, other) in before.rules.rules.iter().zip(&after.rules.rules) {
        let origin = one.origin.clone();
        assert_eq!(*one, rategate_server::rule::Rule { origin, ..other.clone() }, "{toml}");
    }
    assert!(toml.contains("descriptor = 1\n"), "{toml}");
}

#[test]
fn an_explanation_names_the_entries_among_others() {
    let loaded = load_ok(SAMPLE);
    let text =
        |entries: &[(&str, &str)]| explain(&loaded.rules, "example.org", entries).to_string();
    let found = text(&[("x", "1"), ("user_id", "u"), ("req_method", "GET")]);
    assert!(found.contains("among the entries of descriptor 0"), "{found}");
    assert!(found.contains("it is for descriptor 1 of a call"), "{found}");
    let other = text(&[("user_id", "u")]);
    assert!(other.contains("the call has no entry `req_method`"), "{other}");
    let other = text(&[("user_id", "u"), ("req_method", "PUT")]);
    assert!(other.contains("its `req_method` is `GET`, and the call's is `PUT`"), "{other}");
}

/// Problems have the line and column of the first byte that entries cannot express.
#[test]
fn what_entries_cannot_express_is_reported_where_it_is() {
    let file = |expressions: &str| {
        format!("- namespace: n\n  max_value: 1\n  seconds: 1\n{expressions}\n")
    };
    for (expressions, at, message) in [
        (
            "  conditions: [\"descriptors[0].m != 'GET'\"]",
            (4, 34),
            "[0].conditions[0]: \"descriptors[0].m != 'GET'\": only == compares here",
        ),
        (
            "  conditions:\n  - descriptors[0].a == 'b'\n  - descriptors[0].m.startsWith('G')",
            (6, 21),
            "[0].conditions[1]: \"descriptors[0].m.startsWith('G')\": only == compares here",
        ),
        (
            "  conditions: [\"req_method == 'GET'\"]",
            (4, 17),
            "[0].conditions[0]: \"req_method == 'GET'\": an entry like descriptors[0].user_id is \
             needed here",
        ),
        (
            "  conditions: [\"descriptors[0].m == 'a*'\"]",
            (4, 39),
            "[0].conditions[0]: \"descriptors[0].m == 'a*'\": a * in a value is a pattern here, \
             not a character",
        ),
        (
            "  variables: [user_id]",
            (4, 15),
            "[0].variables[0]: \"user_id\": an entry like descriptors[0].user_id is needed here",
        ),
        (
            "  variables: [\"descriptors[64].a\"]",
            (4, 15),
            "[0].variables[0]: the last descriptor of a call is 63",
        ),
        (
            "  variables: [\"descriptors[0]['']\"]",
            (4, 15),
            "[0].variables[0]: an entry's key is empty",
        ),
        (
            "  variables: [\"descriptors[0].a\", \"descriptors[1].b\"]",
            (4, 35),
            "[0]: the expressions of a limit are about one descriptor, and another is about \
             descriptors[0]",
        ),
    ] {
        let text = file(expressions);
        let error = invalid(&text);
        let [problem] = error.problems() else { panic!("{}", error.report()) };
        assert_eq!(problem.message(), message);
        assert_eq!((problem.line().unwrap(), problem.column().unwrap()), at, "{}", error.report());
        let has_help = problem.help_text().is_some();
        assert!(
            has_help || message.contains("key is empty") || message.contains("63"),
            "{message}"
        );
    }
}

#[test]
fn keys_that_are_missing_or_unknown_are_reported() {
    for (text, message) in [
        ("- max_value: 1\n  seconds: 1", "[0]: no namespace"),
        ("- namespace: n\n  seconds: 1", "[0]: no max_value"),
        ("- namespace: n\n  max_value: 1", "[0]: no seconds"),
        ("- namespace: n\n  max_value: 1\n  seconds: 0", "[0].seconds: a window is at least"),
        (
            "- namespace: n\n  max_value: 1\n  seconds: 1\n  policy: x",
            "[0]: unknown key \"policy\"",
        ),
        ("- namespace: n\n  max_value: -1\n  seconds: 1", "[0].max_value: "),
        ("- 7", "[0]: a limit is a mapping, and this is a whole number"),
    ] {
        let error = invalid(text);
        let [problem] = error.problems() else { panic!("{}", error.report()) };
        assert!(problem.message().starts_with(message), "{}", problem.message());
        assert!(problem.line().is_some());
    }
    let twice = "- { namespace: n, max_value: 1, seconds: 1, variables: [\"descriptors[0].a\"] }\n";
    let error = invalid(&twice.repeat(2)).report();
    assert!(error.contains("\"n.a@1s\" is also that of the rule at limits.yaml:1:"), "{error}");
    assert_eq!(load_ok("[]\n").rules.rules.len(), 0, "a file without limits");
    // 0 denies everything, as there.
    let nothing = "- { namespace: n, max_value: 0, seconds: 1 }\n";
    assert_eq!(load_ok(nothing).rules.rules[0].limit, Limit::Nothing);
}

#[test]
fn a_domain_has_a_maximum_of_limits() {
    let limits = |count: usize| -> String {
        let limit = |nth| format!("- {{ namespace: n, max_value: 1, seconds: {nth} }}\n");
        (1..=count).map(limit).collect()
    };
    assert_eq!(load_ok(&limits(1024)).rules.rules.len(), 1024);
    let error = invalid(&limits(1025)).to_string();
    assert!(error.contains("domain `n` has more than 1024 rules"), "{error}");
}
