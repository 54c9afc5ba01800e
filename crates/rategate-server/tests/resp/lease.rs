//! Permits in flight over connections that come and go.

use std::time::{Duration, Instant};

use rategate_server::config::load_text;
use rategate_server::serve::Running;

use super::client::{Client, PATIENCE, Reply, serve_rules, text};

/// Two `ovens` at a time for each site, held for a minute; one `brief` one, held for a moment.
fn bakery() -> Running {
    let rules = r#"
        [[rule]]
        name = "ovens"
        match = ["site"]
        limit = 2
        algorithm = "concurrency"

        [[rule]]
        name = "brief"
        limit = 1
        algorithm = "concurrency"
        lease = "50ms"

        [[rule]]
        name = "rate"
        limit = "1/s"
    "#;
    serve_rules(load_text("rules.toml", rules).unwrap().rules.set().as_ref().clone(), |_| ())
}

fn name_of(taken: &Reply) -> String {
    match taken.named("lease") {
        Reply::Bulk(name) => String::from_utf8(name.clone()).unwrap(),
        other => panic!("no lease: {other:?}"),
    }
}

#[test]
fn a_lease_is_taken_renewed_and_released() {
    let running = bakery();
    let mut client = Client::to(&running);
    let taken = client.ask("RATEGATE.LEASE TAKE * ovens 2 a");
    let names = ["rule", "allowed", "verdict", "permits", "limit", "remaining"];
    let values = [text("ovens"), Reply::Int(1), text("granted"), Reply::Int(2), Reply::Int(2)];
    for (name, value) in names.iter().zip(values.iter().chain([&Reply::Int(0)])) {
        assert_eq!(taken.named(name), value, "{name}");
    }
    assert_eq!(taken.named("ends_after_ms"), &Reply::Int(60_000));
    let name = name_of(&taken);
    assert!(name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    let denied = client.ask("rategate.lease take * ovens 1 a");
    assert_eq!(denied.named("verdict"), &text("denied"));
    assert_eq!(
        (denied.named("lease"), denied.named("ends_after_ms")),
        (&Reply::Null, &Reply::Null)
    );
    // Another site has its own ovens.
    assert_eq!(client.ask("RATEGATE.LEASE TAKE * ovens 1 b").named("allowed"), &Reply::Int(1));
    let renewed = client.ask(&format!("RATEGATE.LEASE RENEW {name} ovens 2 a"));
    assert_eq!((name_of(&renewed), renewed.named("permits")), (name.clone(), &Reply::Int(2)));
    let release = format!("RATEGATE.LEASE RELEASE {} ovens 2 a", name.to_uppercase());
    for back in [2, 0] {
        let released = client.ask(&release);
        assert_eq!(released.named("verdict"), &text("refunded"));
        assert_eq!(
            (released.named("permits"), released.named("lease")),
            (&Reply::Int(back), &Reply::Null)
        );
    }
    let ended = client.ask(&format!("RATEGATE.LEASE RENEW {name} ovens 2 a"));
    assert_eq!((ended.named("allowed"), ended.named("lease")), (&Reply::Int(0), &Reply::Null));
    assert_eq!(client.ask("RATEGATE.PEEK ovens 2 a").named("remaining"), &Reply::Int(2));
}

/// The permits of a disconnected client are not lost: their time ends.
#[test]
fn a_dead_client_holds_nothing_up_for_long() {
    let running = bakery();
    let mut client = Client::to(&running);
    let mut dying = Client::to(&running);
    let started = Instant::now();
    assert_eq!(dying.ask("RATEGATE.LEASE TAKE * brief 1").named("allowed"), &Reply::Int(1));
    drop(dying);
    let mut denials = 0;
    while client.ask("RATEGATE.LEASE TAKE * brief 1").named("allowed") == &Reply::Int(0) {
        denials += 1;
        assert!(started.elapsed() < PATIENCE, "after {denials} denials");
    }
    assert!(started.elapsed() >= Duration::from_millis(50), "no sooner than its end");
}

/// A client that lost the answer repeats the request with its own name.
#[test]
fn a_name_of_ones_own_takes_once() {
    let running = bakery();
    let mut client = Client::to(&running);
    client.ask("HELLO 3");
    let take = "RATEGATE.LEASE TAKE 00112233445566778899aabbccddeeff ovens 1 a";
    for _ in 0..3 {
        let taken = client.ask(take);
        assert_eq!(taken.named("allowed"), &Reply::Truth(true));
        assert_eq!(name_of(&taken), "00112233445566778899aabbccddeeff");
        assert_eq!(taken.named("remaining"), &Reply::Int(1));
    }
}

#[test]
fn what_is_no_lease_is_an_error_of_redis_style() {
    let running = bakery();
    let mut client = Client::to(&running);
    let name = "0".repeat(32);
    let table = [
        (
            "RATEGATE.LEASE",
            "ERR wrong number of arguments for 'rategate.lease' command; write RATEGATE.LEASE \
             TAKE|RENEW|RELEASE name rule permits [value ...]",
        ),
        (
            "RATEGATE.LEASE BREAK * ovens 1 a",
            "ERR unknown subcommand 'BREAK'. Try RATEGATE.LEASE HELP.",
        ),
        ("RATEGATE.LEASE HELP me", "ERR unknown subcommand 'HELP'. Try RATEGATE.LEASE HELP."),
        (
            "RATEGATE.LEASE take * ovens",
            "ERR wrong number of arguments for 'rategate.lease|take' command; write RATEGATE.LEASE \
             TAKE name|* rule permits [value ...]",
        ),
        (
            "RATEGATE.LEASE TAKE x ovens 1 a",
            "ERR the name is 'x'; a lease's name is 32 hexadecimal digits, or * to take a new one",
        ),
        (
            "RATEGATE.LEASE RENEW * ovens 1 a",
            "ERR the name is '*'; a lease's name is 32 hexadecimal digits",
        ),
        (
            "RATEGATE.LEASE TAKE * ovens -1 a",
            "ERR permits is not an integer or out of range: '-1'; write a whole number from 0 to \
             18446744073709551615",
        ),
        (
            "RATEGATE.LEASE TAKE * ovens 0 a",
            "ERR rule `ovens` holds at least 1 permit, as it is in a store or counts permits in flight, and 0 are stated",
        ),
        ("RATEGATE.LEASE TAKE * ovens 1", "ERR rule `ovens` needs 1 value, and 0 are given"),
        (
            "RATEGATE.LEASE TAKE * none 1",
            "ERR there is no rule `none`; known: `ovens`, `brief`, `rate`",
        ),
        (
            "RATEGATE.LEASE TAKE * rate 1",
            "ERR rule `rate` has no leases: those are of rules with the algorithm \"concurrency\"",
        ),
    ];
    for (words, error) in table {
        assert_eq!(client.ask(words).error(), error, "{words}");
    }
    // More than the limit: never, and no error.
    let never = client.ask(&format!("RATEGATE.LEASE TAKE {name} ovens 3 a"));
    assert_eq!(
        (never.named("allowed"), never.named("retry_after_ms")),
        (&Reply::Int(0), &Reply::Int(-1))
    );
    let Reply::List(help) = client.ask("RATEGATE.LEASE HELP") else { panic!("a list") };
    assert_eq!(help[1], Reply::Simple("TAKE <name>|* <rule> <permits> [<value> ...]".into()));
    let Reply::List(about) = client.ask("COMMAND INFO rategate.lease") else { panic!("a list") };
    let Reply::List(about) = &about[0] else { panic!("{about:?}") };
    assert_eq!(about[..2], [text("rategate.lease"), Reply::Int(-2)]);
}
