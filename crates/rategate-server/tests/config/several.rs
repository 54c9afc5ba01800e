//! Rules with several limits, weights and prices, and rules that take from others.

use rategate::charge::Debt;
use rategate_server::config::{explain, load_text, to_toml};
use rategate_server::engine::Compiled;
use rategate_server::rule::{
    CostError, Counts, Dimension, Enforcement, Origin, Over, Rule, RuleSet, Usage,
};

const TEXT: &str = r#"
[[rule]]
name = "tokens"
domain = "llm"
match = ["org", "user"]
algorithm = "fixed-window"
weights = { input = 1, cached = "0.1", output = 6 }
prices."small".input = "3/1M"
prices."small".output = "15/1M"
prices."*".output = "0.25/1k"
over = "charge"
also = ["org"]
quota = true

[[rule.limits]]
name = "rpm"
limit = "60/min"
algorithm = "gcra"
burst = 5
counts = "requests"
over = "refuse"

[[rule.limits]]
name = "tpm"
limit = "100000/min"
debt = "carry"
most_debt = "10min"
enforce = "shadow"
[[rule.limits.schedule]]
days = ["sat-sun"]
limit = "50000/min"

[[rule.limits]]
name = "usd"
limit = "20000000/d"
counts = "money"

[[rule]]
name = "org"
domain = "llm"
match = ["org"]
limit = "1000/min"
weights = { input = 1, cached = "0.1", output = 6 }

[[rule]]
name = "calls"
limit = "10/s"
counts = "requests"

[[rule]]
name = "spend"
limit = "100/d"
prices.m.input = "1/3"
enforce = "soft"
"#;

fn rules(text: &str) -> Vec<Rule> {
    let loaded = load_text("rules.toml", text).unwrap_or_else(|error| panic!("{}", error.report()));
    loaded.rules.rules.clone()
}

#[test]
fn a_rule_with_several_limits_is_several_rules() {
    let all = rules(TEXT);
    let names: Vec<&str> = all.iter().map(|rule| &*rule.name).collect();
    assert_eq!(names, ["tokens/rpm", "tokens/tpm", "tokens/usd", "org", "calls", "spend"]);
    let [rpm, tpm, usd, org, calls, spend] = all.as_slice() else { panic!("six") };
    for limit in [rpm, tpm, usd] {
        assert_eq!((&*limit.domain, limit.entries.len(), limit.quota), ("llm", 2, true));
        assert_eq!(limit.also, ["org".into()]);
        assert_eq!(limit.dimension.as_ref().unwrap().of, "tokens".into());
        assert_eq!(limit.envoy_name, limit.name);
    }
    let name = "rpm".into();
    assert_eq!(rpm.dimension, Some(Dimension { of: "tokens".into(), name }));
    assert_eq!((rpm.over, tpm.over), (Over::Refuse, Over::Charge));
    assert_eq!((rpm.debt, tpm.debt.is_carried()), (Debt::FORGOTTEN, true));
    assert_eq!((rpm.enforcement, tpm.enforcement), (Enforcement::All, Enforcement::Shadow));
    assert_eq!((rpm.schedule.len(), tpm.schedule.len()), (0, 1));
    assert_eq!(spend.enforcement, Enforcement::Soft);
    assert_eq!((&rpm.counts, &calls.counts), (&Counts::Requests, &Counts::Requests));
    assert_eq!(tpm.counts, org.counts);
    assert_eq!(rpm.origin.to_string(), "rules.toml:16:8");
    let counts = [("input", 1_000), ("output", 100)];
    let usage = |model| Usage { counts: &counts, model: Some(model) };
    assert_eq!(tpm.counts.amount(0, Some(&usage("any")), false), Ok(1_600));
    assert_eq!(usd.counts.amount(0, Some(&usage("small")), false), Ok(4_500));
    let model = usage("other");
    let error = usd.counts.amount(0, Some(&model), false).unwrap_err();
    assert!(matches!(error, CostError::UnknownUnit { .. }), "{error}");
    let third = Usage { counts: &[("input", 1)], model: Some("m") };
    assert_eq!(spend.counts.amount(0, Some(&third), true), Ok(333_334), "1/3 of a million");
}

#[test]
fn what_is_written_reads_back_as_the_same() {
    let plain = |rules: Vec<Rule>| {
        rules.into_iter().map(|rule| Rule { origin: Origin::default(), ..rule }).collect::<Vec<_>>()
    };
    let all = rules(TEXT);
    let text = to_toml(&RuleSet { rules: all.clone(), hash: "".into() }).unwrap();
    assert_eq!(plain(rules(&text)), plain(all), "{text}");
}

#[test]
fn the_explanation_names_each_limit_and_what_it_counts() {
    let set = RuleSet { rules: rules(TEXT), hash: "".into() };
    let compiled = Compiled::new(set).unwrap();
    let text = explain(&compiled, "llm", &[("org", "o"), ("user", "u")]).to_string();
    for part in [
        "rule:      tokens/rpm",
        "limit of:  tokens, with all its others",
        "counts:    one for each call",
        "counts:    0.1 for each cached, 1 for each input, 6 for each output",
        "counts:    millionths of money, by the prices of *, small",
        "takes too: org",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}

/// Checks the message and the position of the only problem of a text.
fn fault(text: &str, position: (usize, usize), message: &str) {
    let error = load_text("rules.toml", text).map(|_| panic!("accepted: {text}")).unwrap_err();
    let [problem] = error.problems() else { panic!("{}\n{text}", error.report()) };
    let at = (problem.line().unwrap(), problem.column().unwrap());
    let whole = format!("{} {}", problem.message(), problem.help_text().unwrap_or(""));
    assert!(at == position && whole.contains(message), "{at:?} {whole}\n{text}");
}

#[test]
fn wrong_limits_are_reported_where_they_are() {
    let one = |limits: &str| format!("[[rule]]\nname = \"r\"\n{limits}\n");
    let limit = "{ name = \"a\", limit = \"1/s\" }";
    fault(&one(&format!("limit = \"1/s\"\nlimits = [{limit}]")), (3, 9), "not both");
    fault(&one(&format!("limits = [{limit}]\nburst = 2")), (4, 9), "each of the `limits`");
    fault(&one(&format!("limits = [{limit}, {limit}]")), (3, 51), "the name \"r/a\" is also");
    fault(&one("limits = [{ limit = \"1/s\" }]"), (3, 11), "no name");
    fault(&one("limits = [{ name = \"a\" }]"), (3, 11), "no limit");
    fault(&one("limits = [{ name = \"a\", limit = \"1\" }]"), (3, 33), "");
    fault(&one("limits = [{ name = \"ä\", limit = \"1/s\" }]"), (3, 20), "printable ASCII");
    let held = "limits = [{ name = \"a\", limit = 2, algorithm = \"concurrency\" }]";
    fault(&one(held), (3, 48), "permits in flight have a rule of their own");
    fault(&one("limits = [{ name = \"a\", limit = \"1/s\", keys = 3 }]"), (3, 40), "keys");
    let requests = "limits = [{ name = \"a\", limit = \"1/s\", counts = \"requests\" }]";
    fault(&one(&format!("{requests}\nweights = {{ a = 1 }}")), (4, 11), "none of the");
    fault(&one(&format!("limits = [{limit}]\nweights = {{}}")), (4, 11), "it is empty");
    let money = "limits = [{ name = \"a\", limit = \"1/s\", counts = \"money\" }]";
    fault(&one(money), (3, 49), "the rule has no prices");
    let nine: Vec<String> =
        (0..9).map(|nth| format!("{{ name = \"l{nth}\", limit = \"1/s\" }}")).collect();
    let nine = one(&format!("limits = [{}]", nine.join(",\n")));
    fault(&nine, (11, 10), "at most 8 rules are for the same calls");
    let tiers = "[[rule.tiers]]\nname = \"t\"\nvalues = [\"x\"]\nlimit = \"1/s\"";
    let tiers = format!("match = [\"u\"]\nlimits = [{limit}]\n{tiers}");
    fault(&one(&tiers), (5, 1), "has no tiers");
    let twice = format!("{}{}", one(&format!("limits = [{limit}]")), one("limit = \"1/s\""));
    fault(&twice, (3, 20), "the name \"r\" is also");
}

#[test]
fn wrong_weights_are_reported_where_they_are() {
    let one = |keys: &str| format!("[[rule]]\nname = \"r\"\nlimit = \"1/s\"\n{keys}\n");
    fault(&one("weights = { a = 0.5 }"), (4, 17), "a weight");
    fault(&one("weights = { a = \"x\" }"), (4, 17), "is not a weight");
    fault(&one("weights = { a = -1 }"), (4, 17), "never negative");
    fault(&one("weights = {}"), (4, 11), "it is empty");
    let fine = "weights = { a = \"0.000000000001\", b = \"99999999.9\" }";
    fault(&one(fine), (4, 11), "write fewer decimals");
    fault(&one("weights = { a = 1 }\ncounts = \"requests\""), (4, 11), "counts none");
    fault(&one("prices.m.a = \"15\""), (4, 14), "is not a price");
    fault(&one("prices.m.a = \"1/1M\"\nweights = { a = 1 }"), (4, 1), "not both");
    fault(&one("counts = \"money\""), (4, 10), "no prices");
    fault(&one("counts = \"tokens\""), (4, 10), "");
    let held =
        "[[rule]]\nname = \"r\"\nlimit = 2\nalgorithm = \"concurrency\"\ncounts = \"requests\"";
    fault(held, (5, 10), "permits in flight");
}

#[test]
fn wrong_relations_are_reported_where_they_are() {
    let two = |also: &str, rest: &str| {
        format!(
            "[[rule]]\nname = \"user\"\nmatch = [\"org\", \"user\"]\nlimit = \"1/s\"\nalso = \
             [{also}]\n[[rule]]\nname = \"org\"\ndomain = \"o\"\nlimit = \"1/s\"\n{rest}\n"
        )
    };
    let org = "match = [\"org\"]";
    assert_eq!(rules(&two("\"org\"", org)).len(), 2);
    fault(&two("\"orgs\"", org), (5, 9), "did you mean \"org\"?");
    fault(&two("\"org\", \"user\"", org), (5, 16), "takes from itself");
    fault(&two("\"org\"", "match = [\"team\"]"), (5, 9), "counts by `team`");
    let acme = "match = [{ key = \"org\", value = \"acme\" }]";
    fault(&two("\"org\"", acme), (5, 9), "not of every call");
    assert_eq!(
        rules(&two("\"org\"", "match = [{ key = \"org\", value = \"*\", shared = true }]")).len(),
        2
    );
    let circle = two("\"org\"", "match = [\"org\"]\nalso = [\"user\"]");
    let error = load_text("rules.toml", &circle).map(|_| panic!("accepted")).unwrap_err();
    let problems: Vec<_> =
        error.problems().iter().map(|it| (it.line().unwrap(), it.message())).collect();
    let message = |name| format!("through {name:?} the rule takes from itself");
    assert_eq!(problems, [(5, &*message("org")), (11, &*message("user"))]);
}
