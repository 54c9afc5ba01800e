//! Permits in flight over connections that come and go.

use std::time::{Duration, Instant};

use rategate_server::serve::Running;

use super::client::{Client, PATIENCE, Reply, serve_text};

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
    serve_text(rules)
}

#[test]
fn a_lease_is_taken_renewed_and_released() {
    let running = bakery();
    for version in [2, 3] {
        let mut client = Client::to(&running);
        client.ask(&format!("HELLO {version}"));
        // A client that lost the answer repeats the request with its own name.
        client.play(
            "
            RATEGATE.LEASE TAKE $1 ovens 2 a
                => {rule: ovens, allowed: 1, verdict: granted, permits: 2, limit: 2, remaining: 0}
            RATEGATE.LEASE TAKE $1 ovens 2 a => {allowed: 1, lease: $1, ends_after_ms: _}
            rategate.lease take * ovens 1 a
                => {verdict: denied, allowed: 0, lease: null, ends_after_ms: null}
            // Another site has its own ovens.
            RATEGATE.LEASE TAKE $2 ovens 1 b => {allowed: 1}
            RATEGATE.LEASE RELEASE $2 ovens 1 b => {permits: 1}
            RATEGATE.LEASE RENEW $1 ovens 2 a => {lease: $1, permits: 2}
            RATEGATE.LEASE RELEASE $1 ovens 2 a => {verdict: refunded, permits: 2, lease: null}
            RATEGATE.LEASE RELEASE $1 ovens 2 a => {verdict: refunded, permits: 0, lease: null}
            RATEGATE.LEASE RENEW $1 ovens 2 a => {allowed: 0, lease: null}
            RATEGATE.PEEK ovens 2 a => {remaining: 2}
            // More than the limit: never, and no error.
            RATEGATE.LEASE TAKE $1 ovens 3 a => {allowed: 0, retry_after_ms: -1}
            ",
        );
    }
    let drawn = Client::to(&running).ask("RATEGATE.LEASE TAKE * ovens 2 a");
    let Reply::Bulk(name) = drawn.named("lease") else { panic!("no lease: {drawn:?}") };
    assert!(name.len() == 32 && name.iter().all(u8::is_ascii_hexdigit), "{name:?}");
    assert_eq!(drawn.named("ends_after_ms"), &Reply::Int(60_000));
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

#[test]
fn what_is_no_lease_is_an_error_of_redis_style() {
    let running = bakery();
    Client::to(&running).play(
        "
        RATEGATE.LEASE => -ERR wrong number of arguments for 'rategate.lease' command; write
            .. RATEGATE.LEASE TAKE|RENEW|RELEASE name rule permits [value ...]
        RATEGATE.LEASE BREAK * ovens 1 a
            => -ERR unknown subcommand 'BREAK'. Try RATEGATE.LEASE HELP.
        RATEGATE.LEASE HELP me => -ERR unknown subcommand 'HELP'. Try RATEGATE.LEASE HELP.
        RATEGATE.LEASE take * ovens
            => -ERR wrong number of arguments for 'rategate.lease|take' command...
        RATEGATE.LEASE TAKE x ovens 1 a
            => -ERR the name is 'x'; a lease's name is 32 hexadecimal digits, or * to take a new one
        RATEGATE.LEASE RENEW * ovens 1 a
            => -ERR the name is '*'; a lease's name is 32 hexadecimal digits
        RATEGATE.LEASE TAKE * ovens -1 a
            => -ERR permits is not an integer or out of range: '-1'; write a whole number...
        RATEGATE.LEASE TAKE * ovens 0 a => -ERR rule `ovens` holds at least 1 permit, as it is...
        RATEGATE.LEASE TAKE * ovens 1 => -ERR rule `ovens` needs 1 value, and 0 are given
        RATEGATE.LEASE TAKE * none 1
            => -ERR there is no rule `none`; known: `ovens`, `brief`, `rate`
        RATEGATE.LEASE TAKE * rate 1
            => -ERR rule `rate` has no leases: those are of rules with the algorithm
            .. \"concurrency\"
        ",
    );
    let Reply::List(help) = Client::to(&running).ask("RATEGATE.LEASE HELP") else { panic!() };
    assert_eq!(help[1], Reply::Simple("TAKE <name>|* <rule> <permits> [<value> ...]".into()));
}
