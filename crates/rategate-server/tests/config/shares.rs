//! The key `shares` of an entry: parts of a limit on permits in flight, by its value.

use std::collections::BTreeMap;

use rategate::Share;
use rategate_server::config::{explain, load_text, to_toml};
use rategate_server::engine::Compiled;
use rategate_server::rule::{Rule, RuleSet, Shares, Value};

const RULE: &str = "[[rule]]\nname = \"a\"\nalgorithm = \"concurrency\"\nlimit = 200\n";

fn load(text: &str) -> Result<Vec<Rule>, String> {
    let loaded = load_text("a.toml", text).map_err(|error| error.report().clone())?;
    Ok(loaded.rules.rules.clone())
}

/// Returns the rule with an entry of these shares, on line 5.
fn with(shares: &str) -> String {
    format!("{RULE}match = [\"user\", {{ key = \"priority\", shares = {shares} }}]\n")
}

fn shares(named: &[(&str, u8)]) -> Value {
    let share = |&(value, percent): &(&str, u8)| (value.into(), Share::percent(percent));
    Value::Shares(Shares::new(named.iter().map(share).collect::<BTreeMap<_, _>>()))
}

#[test]
fn each_value_has_its_share_and_others_have_the_rest() {
    let rules = load(&with(r#"{ crawler = "60%", batch = "30%", "*" = "90%" }"#)).unwrap();
    let rule = &rules[0];
    assert_eq!(rule.entries[1].value, shares(&[("batch", 30), ("crawler", 60), ("*", 90)]));
    let of = |value: &str| rule.shares().unwrap().of(value.as_bytes()).to_string();
    let all = ["batch", "crawler", "*", "", "crawle", "crawlers", "Batch"].map(of);
    assert_eq!(all, ["30%", "60%", "90%", "90%", "90%", "90%", "90%"]);
    let whole = load(&with(r#"{ batch = "30%" }"#)).unwrap();
    assert_eq!(whole[0].entries[1].value, shares(&[("batch", 30), ("*", 100)]), "by default");
    assert_eq!((rule.values_needed(), rule.values_counted()), (2, 1));
}

#[test]
fn nonsense_is_refused_with_its_line() {
    let right = r#"{ batch = "30%" }"#;
    let many: Vec<String> = (0..65).map(|nth| format!("v{nth} = \"1%\"")).collect();
    let store = "[store]\nurl = \"redis://127.0.0.1\"\n";
    for (text, at, problem) in [
        (with("{}"), "5:", "no shares; write shares = { batch = \"30%\" }"),
        (with(r#"{ batch = "0%" }"#), "5:", "from \"1%\" to \"100%\""),
        (with(r#"{ batch = "101%" }"#), "5:", "from \"1%\" to \"100%\""),
        (with(r#"{ batch = "2.5%" }"#), "5:", "\"2.5%\" is no share"),
        (with("{ batch = 30 }"), "5:", "a share of a limit on permits in flight"),
        (with("\"30%\""), "5:", "shares"),
        (with(r#"{ "b*" = "30%" }"#), "5:", "is no pattern here"),
        (with(&format!("{{ {} }}", many.join(", "))), "5:", "at most 64 values have a share"),
        (
            format!("{RULE}match = [{{ key = \"p\", value = \"x\", shares = {right} }}]"),
            "5:",
            "leave out `value` and `values`",
        ),
        (
            format!("{RULE}match = [{{ key = \"p\", values = [\"x\"], shares = {right} }}]"),
            "5:",
            "leave out `value` and `values`",
        ),
        (
            format!("{RULE}match = [{{ key = \"p\", shared = true, shares = {right} }}]"),
            "5:",
            "leave out `shared`",
        ),
        (
            format!(
                "{RULE}match = [\n{{ key = \"p\", shares = {right} }},\n\
                 {{ key = \"q\", shares = {right} }}]"
            ),
            "7:",
            "only one entry of a rule has shares",
        ),
        (format!("{}store = \"exact\"\n{store}", with(right)), "5:", "leave out `store`"),
        (
            with(right).replace("algorithm = \"concurrency\"\nlimit = 200", "\nlimit = \"5/s\""),
            "5:",
            "write algorithm = \"concurrency\"",
        ),
        (with(right).replace("200", "\"unlimited\""), "5:", "write a number of permits"),
        (with(right).replace("200", "\"never\""), "5:", "write a number of permits"),
        (
            with(right).replace("limit = 200", "limits = [{ name = \"x\", limit = 5 }]"),
            "5:",
            "write a rule of its own",
        ),
        (
            format!(
                "{}tiers = [{{ name = \"t\", key = \"priority\", values = [\"x\"], limit = 5 }}]",
                with(right)
            ),
            "6:",
            "an entry with shares has no tiers",
        ),
    ] {
        let report = load(&text).expect_err(&text);
        let line = report.contains(&format!("a.toml:{at}"));
        assert!(report.contains(problem) && line, "{text}: {report}");
    }
}

#[test]
fn tiers_and_adaptive_limits_have_them_too() {
    let tiers = "tiers = [{ name = \"t\", values = [\"x\"], limit = 5 }]";
    let rules = load(&format!("{}{tiers}", with(r#"{ batch = "30%" }"#))).unwrap();
    assert_eq!(
        (&*rules[0].name, rules[0].entries[1].value.clone()),
        ("a/t", shares(&[("batch", 30)]))
    );
    load(&format!("{}adaptive = {{ floor = 5 }}", with(r#"{ batch = "30%" }"#))).unwrap();
}

#[test]
fn they_are_written_and_explained() {
    let rules = load(&with(r#"{ crawler = "60%", "a b" = "1%", "*" = "90%" }"#)).unwrap();
    let text = to_toml(&RuleSet { rules: rules.clone(), hash: "".into() }).unwrap();
    let again = load_text("b.toml", &text).unwrap().rules.rules.clone();
    assert_eq!(again[0].entries, rules[0].entries, "{text}");
    let odd = load(&with(r#"{ "a\nb\"c" = "1%", "'" = "2%", "" = "3%" }"#)).unwrap();
    let text = to_toml(&RuleSet { rules: odd.clone(), hash: "".into() }).unwrap();
    let again = load(&text).unwrap_or_else(|report| panic!("{text}: {report}"));
    assert_eq!(again[0].entries, odd[0].entries, "{text}");
    let explained = |rules: Vec<Rule>| {
        let compiled = Compiled::new(RuleSet { rules, hash: "".into() }).unwrap();
        explain(&compiled, "default", &[("user", "u"), ("priority", "x")]).to_string()
    };
    let text = explained(rules);
    assert!(
        text.contains("shares:    `a b` 1% (2), `crawler` 60% (120), others 90% (180)\n"),
        "{text}"
    );
    assert!(text.contains("`priority` is any value, all together, with a share each"), "{text}");
    assert!(text.contains("counters:  one for each `user`\n"), "{text}");
    let adaptive = format!("{}adaptive = {{}}", with(r#"{ crawler = "60%" }"#));
    let text = explained(load(&adaptive).unwrap());
    assert!(text.contains("shares:    `crawler` 60%, others 100%\n"), "{text}");
}
