//! Names of clients and hints of responses, as bytes and texts of other languages have them.

#![allow(clippy::unwrap_used, reason = "tests: a panic is how they fail")]

use std::time::{Duration, SystemTime};

use rategate::adaptive::Outcome;
use rategate_ffi::http::{
    ClientNames, ClientNamesError, MAX_HOLD, Pacing, Tokens, Trust, hints, outcome,
    trusted_networks,
};

const NO_GROUPS: [u8; 2] = [32, 64];

#[test]
fn a_peer_is_named_by_its_network_or_by_its_own_text() {
    let names = ClientNames::of_peers(NO_GROUPS).unwrap();
    let table = [
        (Some("192.0.2.1"), Some("192.0.2.1")),
        (Some("::ffff:192.0.2.1"), Some("192.0.2.1")),
        (Some("2001:db8:1:2::7"), Some("2001:db8:1:2::/64")),
        (Some("fe80::1%eth0"), Some("fe80::/64")),
        (Some("testclient"), Some("testclient")),
        (Some(""), None),
        (None, None),
    ];
    for (peer, expected) in table {
        let lines = [b"6.6.6.6".as_slice()];
        assert_eq!(names.name(peer, lines).as_deref(), expected, "{peer:?}");
    }
}

#[test]
fn a_client_is_named_as_far_as_proxies_are_trusted() {
    let networks = trusted_networks(["10.0.0.0/8"]).unwrap();
    let inside = ClientNames::behind(networks, "X-Forwarded-For", NO_GROUPS).unwrap();
    let lines: [&[u8]; 2] = [b"6.6.6.6", b"192.0.2.1, 10.0.0.9"];
    assert_eq!(inside.field(), "x-forwarded-for");
    assert_eq!(inside.name(Some("10.0.0.7"), lines).unwrap(), "192.0.2.1");
    assert_eq!(inside.name(Some("192.0.2.9"), lines).unwrap(), "192.0.2.9");
    assert_eq!(inside.name(None, lines), None);

    let hops = ClientNames::behind(Trust::Hops(1), "forwarded", NO_GROUPS).unwrap();
    let lines = [b"for=_hidden".as_slice()];
    assert_eq!(hops.name(Some("10.0.0.7"), lines).unwrap(), "_hidden@10.0.0.7");
    assert_eq!(hops.name(None, lines).unwrap(), "_hidden");
    assert_eq!(hops.name(Some("socket"), []).unwrap(), "socket");
    assert_eq!(hops.name(Some("10.0.0.7"), [b"for=\"\n".as_slice()]).unwrap(), "10.0.0.7");
}

#[test]
fn what_cannot_name_clients_is_refused() {
    let error = ClientNames::of_peers([33, 64]).unwrap_err();
    assert_eq!(error.to_string(), "a group of IPv4 addresses has 0 to 32 bits, not 33");
    let error = ClientNames::behind(Trust::Hops(1), "x real ip", NO_GROUPS).unwrap_err();
    assert_eq!(error, ClientNamesError::Field("x real ip".into()));
    let error = trusted_networks(["10.0.0.1/8"]).unwrap_err().to_string();
    assert!(error.contains("write its first address") && error.ends_with("given \"10.0.0.1/8\""));
}

#[test]
fn hints_are_read_of_any_bytes() {
    let of = |status, fields: &[(&[u8], &[u8])]| {
        hints(status, fields.iter().copied(), SystemTime::now(), MAX_HOLD)
    };
    assert_eq!(of(429, &[(b"Retry-After", b"7")]).hold, Duration::from_secs(7));
    let read = of(200, &[(b"RateLimit", b"\"default\";r=50;t=30"), (b"\xff", b"\n")]);
    assert_eq!(read.limits.first().map(|limit| limit.remaining), Some(50));
    assert_eq!(of(0, &[(b"retry-after", b"\x80\xff")]).hold, Duration::ZERO);
}

#[test]
fn refusals_are_dropped_requests() {
    let outcome_of = |status, fields: &[(&[u8], &[u8])]| {
        outcome(status, &hints(status, fields.iter().copied(), SystemTime::now(), MAX_HOLD))
    };
    let holds: &[(&[u8], &[u8])] = &[(b"retry-after", b"7")];
    for status in [429, 503, 529] {
        assert_eq!(outcome_of(status, &[]), Outcome::Dropped, "{status}");
    }
    for status in [0, 200, 403, 404, 500] {
        assert_eq!(outcome_of(status, &[]), Outcome::Served, "{status}");
    }
    assert_eq!(outcome_of(403, holds), Outcome::Dropped);
    assert_eq!(outcome_of(200, holds), Outcome::Served);
}

/// The line of paced requests moves up when one of them is dropped.
#[test]
fn a_request_that_is_given_up_leaves_no_gap() {
    let pacing = Pacing::new().jitter(Duration::ZERO).bound_queue(2);
    let join = || pacing.join(Tokens::default());
    let mut sent = join().unwrap();
    assert!(sent.start(0).is_ok() && sent.send(0));
    let fields = [(b"retry-after".as_slice(), b"3".as_slice())];
    let held = hints(503, fields, SystemTime::now(), MAX_HOLD);
    assert_eq!(sent.follow(0, &held), Some(Duration::from_secs(3)));
    assert_eq!(sent.follow(0, &held), None, "a response is followed once");
    let (first, mut second) = (join().unwrap(), join().unwrap());
    assert!(join().is_none());
    assert_eq!(second.start(1), Err(3_000_000_000));
    assert!(!second.send(1), "it has not started");
    drop(first);
    assert!(join().is_some());
    assert_eq!(second.start(3_000_000_000), Ok(()));
}
