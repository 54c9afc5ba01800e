//! Limits of several processes in a forked child, beside which no other test may run.

#![cfg(unix)]
#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "tests may panic")]

use std::time::Duration;

use rategate_ffi::{
    Leases, Mode, OnUnavailable, Replies, Reply, Shared, SharedConfig, SharedDecision,
};
use rategate_testkit::forked::in_child;
use rategate_testkit::redis::{Brand, Server};

fn shared(server: &Server, mode: Mode) -> Shared {
    let config = SharedConfig {
        url: format!("redis://127.0.0.1:{}", server.port()),
        prefix: None,
        name: Some("fork".to_owned()),
        mode,
        when_gone: OnUnavailable::Deny,
        has_quarantine: false,
        budget: Duration::from_secs(3),
    };
    Shared::new(&"1/h burst 8".parse().unwrap(), &config).unwrap()
}

fn takes(limit: &Shared, tries: usize) -> usize {
    (0..tries).filter(|_| limit.decide_blocking(b"k", 1).unwrap().is_granted()).count()
}

#[test]
fn a_forked_child_connects_anew_and_waits_in_lines_of_its_own() {
    let server = Server::start(Brand::Redis);
    let limit = shared(&server, Mode::Exact);
    assert_eq!(takes(&limit, 3), 3);
    in_child(|| {
        assert_eq!(takes(&limit, 3), 3);
        assert_eq!(limit.counts().store.granted, 3, "its own calls");
    });
    assert_eq!(takes(&limit, 3), 2);
}

#[test]
fn a_forked_child_has_none_of_the_permits_that_its_parent_has_borrowed() {
    let server = Server::start(Brand::Redis);
    let leases = Leases { ttl: Duration::from_secs(60), max_permits: 8, ..Leases::default() };
    let limit = shared(&server, Mode::Leased(leases));
    // Calls that follow each other make the parent borrow ahead.
    let own = takes(&limit, 4);
    assert_eq!(own, 4);
    let left = match limit.decide_blocking(b"k", 1).unwrap() {
        SharedDecision::Granted(grant) => grant.remaining.unwrap_or(0),
        denied @ SharedDecision::Denied(_) => panic!("{denied:?}"),
    };
    in_child(|| {
        let passed = takes(&limit, 20);
        assert!(passed + 5 <= 8, "{passed} of the child and {left} of the parent's lease");
    });
}

#[test]
fn a_list_of_calls_is_of_the_process_that_made_it() {
    let server = Server::start(Brand::Redis);
    let limit = shared(&server, Mode::Exact);
    let replies = Replies::new(|| ());
    let Reply::Later(later) = limit.acquire(b"k", 1, None) else { panic!("at once") };
    assert!(replies.begin(later).unwrap().is_err());
    in_child(|| {
        let Reply::Later(later) = limit.acquire(b"k", 1, None) else { panic!("at once") };
        assert!(replies.begin(later).is_none());
        assert_eq!(replies.waiting(), 0);
        replies.drain(|_, _| panic!("a call of the parent"));
    });
    assert_eq!(replies.waiting(), 1);
}
