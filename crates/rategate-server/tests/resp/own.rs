//! Rules by their names.

use rategate_server::config::load_text;
use rategate_server::serve::Running;

use super::client::{Client, Reply, serve_rules, text};

const HOUR_MS: i64 = 3_600_000;

/// Returns a limit for each user and path, a shadow rule, two that count nothing, and one with
/// every setting.
fn shop() -> Running {
    let rules = r#"
        [[rule]]
        name = "api"
        match = ["user", "path"]
        limit = "4/h"
        algorithm = "sliding-log"

        [[rule]]
        name = "shadow"
        limit = "2/h"
        algorithm = "sliding-log"
        enforce = "shadow"

        [[rule]]
        name = "open"
        limit = "unlimited"

        [[rule]]
        name = "shut"
        limit = "never"

        [[rule]]
        name = "plan"
        domain = "shop"
        match = [
            { key = "plan", values = ["free", "trial"] },
            { key = "path", value = "/files/*", shared = true },
            { key = "where", value = "eu" },
            "user",
        ]
        limit = { permits = 10_000, unit = "month" }
        algorithm = "fixed-window"
        enforce = "soft"
        ttl = "5s"
        max_ttl = "1h"
        max_held = "12.5%"
    "#;
    serve_rules(load_text("rules.toml", rules).unwrap().rules.set().as_ref().clone(), |_| ())
}

/// Returns `allowed`, `permits`, `limit` and `remaining` of a RESP2 reply, and its verdict.
fn reported(answer: &Reply) -> ([i64; 4], Reply) {
    let numbers = ["allowed", "permits", "limit", "remaining"].map(|name| answer.named(name).int());
    (numbers, answer.named("verdict").clone())
}

#[test]
fn an_answer_has_all_its_names_in_their_order() {
    let running = shop();
    let mut client = Client::to(&running);
    let names = [
        "rule",
        "allowed",
        "verdict",
        "permits",
        "limit",
        "remaining",
        "debt",
        "retry_after_ms",
        "reset_after_ms",
    ];
    let Reply::List(all) = client.ask("RATEGATE.CHECK api 3 ann /") else { panic!("a list") };
    assert_eq!(all.iter().step_by(2).cloned().collect::<Vec<_>>(), names.map(text));
    let three = client.ask("HELLO 3");
    assert!(matches!(three, Reply::Map(_)));
    let Reply::Map(pairs) = client.ask("RATEGATE.CHECK api 1 ann /") else { panic!("a map") };
    assert_eq!(pairs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), names.map(text));
    assert_eq!((&pairs[0].1, &pairs[1].1), (&text("api"), &Reply::Truth(true)));
}

#[test]
fn permits_are_taken_peeked_refunded_and_reset() {
    let running = shop();
    let mut client = Client::to(&running);
    let mut ask = |words: &str| client.ask(words);
    let granted = ask("RATEGATE.CHECK api 3 ann /");
    assert_eq!(reported(&granted), ([1, 3, 4, 1], text("granted")));
    assert_eq!(granted.named("retry_after_ms").int(), -1);
    let reset = granted.named("reset_after_ms").int();
    assert!((HOUR_MS - 60_000..=HOUR_MS + 4_000).contains(&reset), "{reset}");
    // A peek takes nothing, and says so.
    assert_eq!(reported(&ask("RATEGATE.PEEK api 1 ann /")), ([1, 0, 4, 1], text("granted")));
    let denied = ask("RATEGATE.PEEK api 2 ann /");
    assert_eq!(reported(&denied), ([0, 0, 4, 1], text("denied")));
    assert!(denied.named("retry_after_ms").int() > HOUR_MS - 60_000);
    assert_eq!(reported(&ask("RATEGATE.CHECK api 2 ann /")), ([0, 0, 4, 1], text("denied")));
    let never = ask("RATEGATE.CHECK api 5 ann /");
    assert_eq!((reported(&never).0, never.named("retry_after_ms").int()), ([0, 0, 4, 1], -1));
    // The values are those of the entries, in their order.
    assert_eq!(reported(&ask("RATEGATE.PEEK api 1 / ann")).0[3], 4);
    assert_eq!(reported(&ask("RATEGATE.REFUND api 2 ann /")), ([1, 2, 4, 3], text("refunded")));
    assert_eq!(reported(&ask("RATEGATE.REFUND api 9 ann /")), ([1, 1, 4, 4], text("refunded")));
    assert_eq!(reported(&ask("RATEGATE.CHECK api 4 ann /")).0, [1, 4, 4, 0]);
    assert_eq!(reported(&ask("RATEGATE.RESET api ann /")), ([1, 0, 4, 4], text("reset")));
    assert_eq!(reported(&ask("RATEGATE.PEEK api 4 ann /")), ([1, 0, 4, 4], text("granted")));
}

#[test]
fn what_is_not_enforced_or_counts_nothing_says_so() {
    let running = shop();
    let mut client = Client::to(&running);
    assert_eq!(reported(&client.ask("RATEGATE.CHECK shadow 2")), ([1, 2, 2, 0], text("granted")));
    let over = client.ask("RATEGATE.CHECK shadow 1");
    assert_eq!(reported(&over), ([1, 0, 2, 0], text("shadowed")));
    assert!(over.named("retry_after_ms").int() > 0);
    assert_eq!(client.ask("RATEGATE.CHECK open 7").named("verdict"), &text("unlimited"));
    let shut = client.ask("RATEGATE.CHECK shut 1");
    assert_eq!((shut.named("allowed"), shut.named("verdict")), (&Reply::Int(0), &text("denied")));
}

#[test]
fn a_rule_is_explained_as_it_is_in_force() {
    let running = shop();
    let mut client = Client::to(&running);
    let plan = client.ask("RATEGATE.EXPLAIN plan");
    for (name, value) in [
        ("rule", "plan"),
        ("domain", "shop"),
        ("limit", "10000 per month"),
        ("enforcement", "soft"),
        ("place", "here"),
        ("ttl", "5s"),
        ("max_ttl", "3600s"),
        ("max_held", "12.50%"),
    ] {
        assert_eq!(plan.named(name), &text(value), "{name}");
    }
    let entries = ["plan=free|trial", "path=/files/*", "where=eu", "user"];
    assert_eq!(plan.named("entries"), &Reply::List(entries.map(text).to_vec()));
    let Reply::Bulk(written) = plan.named("written") else { panic!("{plan:?}") };
    assert!(written.starts_with(b"rules.toml:23:"), "{}", String::from_utf8_lossy(written));
    for (rule, limit, enforcement) in [
        ("shadow", "2 per hour", "shadow"),
        ("open", "unlimited", "all"),
        ("shut", "nothing", "all"),
    ] {
        let explained = client.ask(&format!("RATEGATE.EXPLAIN {rule}"));
        assert_eq!(explained.named("limit"), &text(limit));
        assert_eq!(explained.named("enforcement"), &text(enforcement));
        let defaults = ["ttl", "max_ttl", "max_held"].map(|name| explained.named(name));
        assert_eq!(defaults, ["60s", "600s", "100%"].map(text).each_ref());
    }
}

#[test]
fn an_invalid_command_about_a_rule_is_an_error() {
    let running = shop();
    let mut client = Client::to(&running);
    let none = "ERR there is no rule `none`; known: `api`, `shadow`, `open`, `shut`, `plan`";
    for (words, error) in [
        ("RATEGATE.CHECK none 1", none),
        ("RATEGATE.EXPLAIN none", none),
        (
            "RATEGATE.CHECK api -1 ann /",
            "ERR permits is not an integer or out of range: '-1'; write a whole number from 0 to \
             18446744073709551615",
        ),
        (
            "RATEGATE.CHECK 00000000000000000000000000000001 api x ann",
            "ERR permits is not an integer or out of range: 'x'; write a whole number from 0 to \
             18446744073709551615",
        ),
        (
            "RATEGATE.CHARGE - api x ann",
            "ERR permits is not an integer or out of range: 'x'; write a whole number from 0 to \
             18446744073709551615",
        ),
        (
            "RATEGATE.CHECK api y x ann",
            "ERR permits is not an integer or out of range: 'y'; write a whole number from 0 to \
             18446744073709551615",
        ),
        // An id as the name of a rule.
        (
            "RATEGATE.REFUND 00000000000000000000000000000001 1 ann",
            "ERR there is no rule `00000000000000000000000000000001`; known: `api`, `shadow`, \
             `open`, `shut`, `plan`",
        ),
        ("RATEGATE.CHECK api 1 ann", "ERR rule `api` needs 2 values, and 1 is given"),
        ("RATEGATE.RESET api ann", "ERR rule `api` needs 2 values, and 1 is given"),
        (
            "RATEGATE.CHECK api",
            "ERR wrong number of arguments for 'rategate.check' command; write RATEGATE.CHECK \
             [once|-] rule permits [value ...]",
        ),
        // The number is missing, be the first word an id or a rule's name.
        (
            "RATEGATE.CHECK 00000000000000000000000000000001 api",
            "ERR wrong number of arguments for 'rategate.check' command; write RATEGATE.CHECK \
             [once|-] rule permits [value ...]",
        ),
        (
            "RATEGATE.CHARGE - api",
            "ERR wrong number of arguments for 'rategate.charge' command; write RATEGATE.CHARGE \
             [once|-] rule permits [value ...]",
        ),
    ] {
        assert_eq!(client.ask(words).error(), error, "{words}");
    }
    client.send(&super::client::command(&[&b"RATEGATE.PEEK"[..], b"\xff", b"1"]));
    assert_eq!(client.read().error(), "ERR a rule's name is text in UTF-8");
}

/// Each verb reports an unknown rule with the first that are known: names are not compared on the
/// decision path.
#[test]
fn a_misspelt_rule_is_reported() {
    let running = shop();
    let mut client = Client::to(&running);
    for words in [
        "RATEGATE.CHECK shadwo 1",
        "RATEGATE.PEEK shadwo 1",
        "RATEGATE.REFUND shadwo 1",
        "RATEGATE.RESET shadwo",
        "RATEGATE.EXPLAIN shadwo",
        "RATEGATE.LEASE TAKE * shadwo 1",
    ] {
        let reported = client.ask(words);
        let error = "ERR there is no rule `shadwo`; known: `api`, `shadow`, `open`, `shut`, `plan`";
        assert_eq!(reported.error(), error, "{words}");
    }
}
