//! Credits of windows in the native format.

use rategate::AnyPolicy;
use rategate_server::config::{ceiling, explain, load_text, to_toml};
use rategate_server::rule::{Limit, Rule};

fn rules(text: &str) -> Vec<Rule> {
    let loaded = load_text("rules.toml", text).unwrap_or_else(|error| panic!("{}", error.report()));
    loaded.rules.rules.clone()
}

fn text(algorithm: &str, limit: &str, more: &str) -> String {
    format!("[[rule]]\nname = \"r\"\nalgorithm = \"{algorithm}\"\nlimit = {limit}\n{more}")
}

fn problems(text: &str) -> String {
    load_text("rules.toml", text).map(|_| panic!("accepted: {text}")).unwrap_err().report()
}

/// Returns the permits and the credits of a limit.
fn numbers(limit: &Limit) -> (u64, u64) {
    match limit {
        Limit::Policy(AnyPolicy::FixedWindow(window)) => (window.permits(), window.credits()),
        Limit::Policy(AnyPolicy::Calendar(calendar)) => (calendar.permits(), calendar.credits()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn credits_are_a_share_or_a_number() {
    let month = r#"{ permits = 2_000_000, per = "month", zone = "America/New_York" }"#;
    for (algorithm, limit, credits, expected) in [
        ("fixed-window", "\"100/min\"", "\"20%\"", (100, 20)),
        ("fixed-window", "\"100/min\"", "20", (100, 20)),
        ("fixed-window", "\"100/min\"", "\"100%\"", (100, 100)),
        ("fixed-window", "\"100/min\"", "100", (100, 100)),
        ("fixed-window", "\"7/min\"", "\"99.99%\"", (7, 6)),
        ("fixed-window", "\"9/min\"", "\"12.5%\"", (9, 1)),
        ("calendar", month, "\"0.01%\"", (2_000_000, 200)),
        ("calendar", month, "123_456", (2_000_000, 123_456)),
    ] {
        let written = text(algorithm, limit, &format!("credits = {credits}\n"));
        let rule = &rules(&written)[0];
        assert_eq!(numbers(&rule.limit), expected, "{written}");
        assert_eq!(rule.display_limit.permits, expected.0, "the limit stays what it is");
        let toml = to_toml(&load_text("rules.toml", &written).unwrap().rules).unwrap();
        assert!(toml.contains(&format!("credits = {}\n", expected.1)), "{toml}");
        assert_eq!(rules(&toml)[0].limit, rule.limit, "{toml}");
    }
    let none = text("fixed-window", "\"100/min\"", "");
    assert_eq!(numbers(&rules(&none)[0].limit), (100, 0));
    assert!(!to_toml(&load_text("rules.toml", &none).unwrap().rules).unwrap().contains("credits"));
}

#[test]
fn tiers_and_schedules_have_those_of_the_rule() {
    let all = rules(&text(
        "fixed-window",
        "\"100/min\"",
        r#"
        match = ["user"]
        credits = "20%"
        [[rule.schedule]]
        from = "22:00"
        limit = "50/min"
        [[rule.schedule]]
        from = "20:00"
        limit = "unlimited"
        [[rule.tiers]]
        name = "gold"
        values = ["ann"]
        limit = "1000/min"
        [[rule.tiers]]
        name = "iron"
        values = ["bob"]
        limit = "10/min"
        credits = 1
        [[rule.tiers.schedule]]
        from = "22:00"
        limit = "5/min"
        [[rule.tiers]]
        name = "none"
        values = ["eve"]
        limit = "never"
        "#,
    ));
    let by_name = |name: &str| all.iter().find(|rule| &*rule.name == name).unwrap();
    assert_eq!(numbers(&by_name("r").limit), (100, 20));
    assert_eq!(numbers(&by_name("r").schedule[0].limit), (50, 10));
    assert_eq!(by_name("r").schedule[1].limit, Limit::Unlimited);
    assert_eq!(numbers(&by_name("r/gold").limit), (1000, 200));
    assert_eq!(numbers(&by_name("r/iron").limit), (10, 1));
    assert_eq!(numbers(&by_name("r/iron").schedule[0].limit), (5, 1));
    assert_eq!(by_name("r/none").limit, Limit::Nothing);
    let several = rules(
        r#"
        [[rule]]
        name = "r"
        match = ["user"]
        algorithm = "fixed-window"
        limits = [
            { name = "rpm", limit = "60/min", credits = "10%" },
            { name = "tpm", limit = "90000/min" },
        ]
        "#,
    );
    let credits: Vec<_> = several.iter().map(|rule| numbers(&rule.limit)).collect();
    assert_eq!(credits, [(60, 6), (90_000, 0)]);
}

#[test]
fn what_is_no_credit_is_refused_with_what_would_be_right() {
    let window = |credits: &str| {
        problems(&text("fixed-window", "\"100/min\"", &format!("credits = {credits}\n")))
    };
    for (credits, expected) in [
        ("\"0%\"", "credits of 0% are none; leave the key out"),
        ("0", "credits of 0 are none; leave the key out"),
        ("\"100.01%\"", "is not a share that a window can leave"),
        ("\"200%\"", "from \"0.01%\" to \"100%\""),
        ("101", "101 permits of credits are more than a window has; a limit of 100 leaves at most"),
        ("-5", "-5 is no number of permits"),
        ("\"some\"", "\"some\" is not a share"),
        ("\"20\"", "is not a share"),
        ("\"0.001%\"", "at most two decimals"),
        ("true", "a share of the limit, or a number of permits"),
        ("0.2", "a share of the limit, or a number of permits"),
    ] {
        let report = window(credits);
        assert!(report.contains(expected), "{credits}: {report}");
        assert!(report.contains("credits"), "{report}");
    }
    let little = problems(&text("fixed-window", "\"3/min\"", "credits = \"20%\"\n"));
    assert!(little.contains("this share of 3 permits is less than one"), "{little}");
    for algorithm in ["gcra", "sliding-log", "compact-log", "counted-window", "concurrency"] {
        let limit = if algorithm == "concurrency" { "5" } else { "\"5/min\"" };
        let report = problems(&text(algorithm, limit, "credits = 1\n"));
        let expected = "credits belong to the algorithms \"fixed-window\" and \"calendar\"";
        assert!(report.contains(expected) && report.contains(algorithm), "{report}");
    }
    for limit in ["unlimited", "never", "exempt"] {
        let report = problems(&text("fixed-window", &format!("\"{limit}\""), "credits = 1\n"));
        assert!(report.contains("credits without windows that leave any"), "{report}");
    }
    let both = problems(
        "[[rule]]\nname = \"r\"\nalgorithm = \"fixed-window\"\ncredits = 5\n\
         limits = [{ name = \"a\", limit = \"9/min\" }]\n",
    );
    assert!(both.contains("it belongs to each of the `limits`"), "{both}");
}

/// Any k windows have k N and the credits, and a window of another phase touches one more.
#[test]
fn the_ceilings_say_what_the_credits_add() {
    const MINUTE: u64 = 60_000_000_000;
    let rule = &rules(&text("fixed-window", "\"100/min\"", "credits = \"20%\"\n"))[0];
    assert_eq!(ceiling(&rule.limit, MINUTE), Some(220));
    assert_eq!(ceiling(&rule.limit, 10 * MINUTE), Some(1_120));
    let month = r#"{ permits = 1000, per = "month" }"#;
    let quota = &rules(&text("calendar", month, ""))[0];
    let more = &rules(&text("calendar", month, "credits = 7\n"))[0];
    let with = ceiling(&more.limit, MINUTE).unwrap();
    assert_eq!(with, ceiling(&quota.limit, MINUTE).unwrap() + 7);
    let loaded =
        load_text("rules.toml", &text("fixed-window", "\"100/min\"", "credits = 20\n")).unwrap();
    let why = explain(&loaded.rules, "r", &[]).to_string();
    let expected = "100 per minute (fixed-window, and up to 20 that the last ones left)";
    assert!(why.contains(expected) && why.contains("220 in any minute"), "{why}");
}
