//! Rules by their names.

use rategate_server::serve::Running;

use super::client::{Client, Reply, command, serve_text, text};

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
    serve_text(rules)
}

#[test]
fn an_answer_has_all_its_names_in_their_order() {
    const NAMES: &str = "rule allowed verdict permits limit remaining debt retry_after_ms \
                         reset_after_ms";
    let running = shop();
    let mut client = Client::to(&running);
    let names: Vec<Reply> = NAMES.split(' ').map(text).collect();
    let Reply::List(all) = client.ask("RATEGATE.CHECK api 3 ann /") else { panic!("a list") };
    assert_eq!(all.iter().step_by(2).cloned().collect::<Vec<_>>(), names);
    assert!(matches!(client.ask("HELLO 3"), Reply::Map(_)));
    let Reply::Map(pairs) = client.ask("RATEGATE.CHECK api 1 ann /") else { panic!("a map") };
    assert_eq!(pairs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), names);
    assert_eq!((&pairs[0].1, &pairs[1].1), (&text("api"), &Reply::Truth(true)));
}

#[test]
fn permits_are_taken_peeked_refunded_and_reset() {
    let running = shop();
    let mut client = Client::to(&running);
    let granted = client.ask("RATEGATE.CHECK api 3 bob /");
    let reset = granted.named("reset_after_ms").int();
    assert!((HOUR_MS - 60_000..=HOUR_MS + 4_000).contains(&reset), "{reset}");
    let denied = client.ask("RATEGATE.PEEK api 2 bob /");
    assert!(denied.named("retry_after_ms").int() > HOUR_MS - 60_000);
    client.play(
        "
        RATEGATE.CHECK api 3 ann /
            => {allowed: 1, verdict: granted, permits: 3, limit: 4, remaining: 1, retry_after_ms: -1}
        // A peek takes nothing, and says so.
        RATEGATE.PEEK api 1 ann / => {allowed: 1, verdict: granted, permits: 0, remaining: 1}
        RATEGATE.PEEK api 2 ann / => {allowed: 0, verdict: denied, permits: 0, remaining: 1}
        RATEGATE.CHECK api 2 ann / => {allowed: 0, verdict: denied, permits: 0, remaining: 1}
        RATEGATE.CHECK api 5 ann / => {allowed: 0, remaining: 1, retry_after_ms: -1}
        // The values are those of the entries, in their order.
        RATEGATE.PEEK api 1 / ann => {remaining: 4}
        RATEGATE.REFUND api 2 ann / => {allowed: 1, verdict: refunded, permits: 2, remaining: 3}
        RATEGATE.REFUND api 9 ann / => {allowed: 1, verdict: refunded, permits: 1, remaining: 4}
        RATEGATE.CHECK api 4 ann / => {allowed: 1, remaining: 0}
        RATEGATE.RESET api ann / => {allowed: 1, verdict: reset, permits: 0, remaining: 4}
        // What is not enforced or counts nothing says so.
        RATEGATE.CHECK shadow 2 => {allowed: 1, verdict: granted, permits: 2, remaining: 0}
        RATEGATE.CHECK shadow 1 => {allowed: 1, verdict: shadowed, permits: 0, remaining: 0}
        RATEGATE.CHECK open 7 => {allowed: 1, verdict: unlimited}
        RATEGATE.CHECK shut 1 => {allowed: 0, verdict: denied}
        RATEGATE.EXPLAIN plan => {rule: plan, domain: shop, limit: 10000 per month}
        RATEGATE.EXPLAIN plan => {enforcement: soft, place: here, ttl: 5s, max_ttl: 3600s}
        RATEGATE.EXPLAIN plan
            => {max_held: 12.50%, entries: [plan=free|trial, path=/files/*, where=eu, user]}
        RATEGATE.EXPLAIN shadow => {limit: 2 per hour, enforcement: shadow}
        RATEGATE.EXPLAIN open => {limit: unlimited, enforcement: all}
        RATEGATE.EXPLAIN shut => {limit: nothing, ttl: 60s, max_ttl: 600s, max_held: 100%}
        ",
    );
    let plan = client.ask("RATEGATE.EXPLAIN plan");
    let Reply::Bulk(written) = plan.named("written") else { panic!("{plan:?}") };
    assert!(written.starts_with(b"rules.toml:23:"), "{}", String::from_utf8_lossy(written));
}

#[test]
fn an_invalid_command_about_a_rule_is_an_error() {
    let running = shop();
    let mut client = Client::to(&running);
    let none = "there is no rule `{}`; known: `api`, `shadow`, `open`, `shut`, `plan`";
    let number = "permits is not an integer or out of range: '{}'; write a whole number from 0 to \
                  18446744073709551615";
    let words = "wrong number of arguments for 'rategate.check' command; write RATEGATE.CHECK \
                 [once|-] rule permits [value ...]"
        .to_owned();
    let values = "rule `api` needs 2 values, and 1 is given";
    let of = |text: &str, word: &str| text.replace("{}", word);
    for (command, error) in [
        // Names are not compared on the decision path: an unknown rule comes with the first known.
        ("CHECK none 1", of(none, "none")),
        ("PEEK shadwo 1", of(none, "shadwo")),
        ("REFUND shadwo 1", of(none, "shadwo")),
        ("RESET shadwo", of(none, "shadwo")),
        ("EXPLAIN shadwo", of(none, "shadwo")),
        ("LEASE TAKE * shadwo 1", of(none, "shadwo")),
        // An id as the name of a rule.
        (
            "REFUND 0123456789abcdef0123456789abcdef 1 a",
            of(none, "0123456789abcdef0123456789abcdef"),
        ),
        ("CHECK api -1 ann /", of(number, "-1")),
        ("CHECK 0123456789abcdef0123456789abcdef api x ann", of(number, "x")),
        ("CHARGE - api x ann", of(number, "x")),
        ("CHECK api y x ann", of(number, "y")),
        ("CHECK api 1 ann", values.to_owned()),
        ("RESET api ann", values.to_owned()),
        ("CHECK api", words.clone()),
        // The number is missing, be the first word an id or a rule's name.
        ("CHECK 0123456789abcdef0123456789abcdef api", words.clone()),
        ("CHARGE - api", words.replace("check", "charge").replace("CHECK", "CHARGE")),
    ] {
        client.check(&format!("RATEGATE.{command}"), &format!("-ERR {error}"));
    }
    client.send(&command(&[&b"RATEGATE.PEEK"[..], b"\xff", b"1"]));
    assert_eq!(client.read().error(), "ERR a rule's name is text in UTF-8");
}
