//! A limit per client in a bounded table, in virtual time.

use std::collections::HashSet;
use std::convert::Infallible;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};
use rategate::keyed::{Capacity, Hashing, Overflow};
use rategate::policy::{Anchor, Ledger};
use rategate::{AnyPolicy, FixedWindow, Gcra, Keyed, ManualClock, SlidingLog};
use rategate_tower::headers::{Dialect, Headers, QuotaPolicy};
use rategate_tower::key::{self, Key};
use rategate_tower::{RateLimitLayer, Reason};
use tower::{Layer, Service, service_fn};

const S: u64 = 1_000_000_000;

fn bucket() -> Gcra {
    Gcra::new("1/s".parse().unwrap(), 2).unwrap()
}

/// Returns a layer for which the path names the client.
fn layer(keyed: &Keyed<Key, ManualClock>) -> RateLimitLayer
where
    Ledger: Send,
{
    RateLimitLayer::keyed(keyed.clone(), key::path())
}

fn key(client: u32) -> Key {
    Key::of(format!("/{client}").as_str())
}

/// Sends one request of a client, which is answered without waiting. The inner service replies
/// `status`.
fn answer(layer: &RateLimitLayer, client: u32, status: u16) -> (u16, HeaderMap) {
    let mut service = layer.layer(service_fn(|_: Request<()>| {
        ready(Ok::<_, Infallible>(Response::builder().status(status).body(String::new()).unwrap()))
    }));
    let response = service.call(Request::get(format!("/{client}")).body(()).unwrap());
    match pin!(response).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(response)) => (response.status().as_u16(), response.headers().clone()),
        Poll::Pending => panic!("a request must not wait"),
    }
}

fn ask(layer: &RateLimitLayer, client: u32) -> u16 {
    answer(layer, client, 200).0
}

#[test]
fn each_key_has_its_own_limit() {
    let keyed = Keyed::with_clock(bucket(), Capacity::default(), ManualClock::new());
    let layer = layer(&keyed);
    for client in 0..100 {
        assert_eq!([(); 3].map(|()| ask(&layer, client)), [200, 200, 429]);
    }
    assert_eq!(keyed.len(), 100);
    assert_eq!(keyed.remaining(&key(7)), Ok(0), "the table accepts an equal key");
    assert_eq!(keyed.remaining(&key(100)), Ok(2));
}

#[test]
fn a_live_key_outlives_any_flood() {
    let clock = ManualClock::new();
    let capacity = Capacity::for_keys(4).or_else(Overflow::Refuse);
    let keyed = Keyed::with_clock(bucket(), capacity, clock.clone());
    let layer = layer(&keyed);
    for _ in 0..2 {
        assert_eq!(ask(&layer, 0), 200);
    }
    let passed = (1..10_000).filter(|&client| ask(&layer, client) == 200).count();
    assert_eq!((passed, keyed.len()), (3, 4));
    assert_eq!(ask(&layer, 0), 429, "its limit is what it was");
    assert_eq!(ask(&layer, 10_000), 503);
    assert_eq!(keyed.overflows(), 10_000 - 4 + 1);

    // A bucket's slot is free one nanosecond after the bucket is full.
    clock.advance(Duration::from_nanos(S));
    assert_eq!(ask(&layer, 10_001), 503);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(ask(&layer, 10_001), 200, "the keys with one request have recovered");
    assert_eq!(ask(&layer, 0), 200, "one permit has returned");
    assert_eq!(ask(&layer, 0), 429, "and no more");
}

#[test]
fn new_keys_in_a_full_table_share_one_limit() {
    let keyed = Keyed::with_clock(bucket(), Capacity::for_keys(4), ManualClock::new());
    let layer = layer(&keyed);
    let passed = (0..1000).filter(|&client| ask(&layer, client) == 200).count();
    assert_eq!(passed, 4 + 2, "one each, and a burst for all the others");
    assert_eq!(keyed.len(), 4);
}

#[test]
fn new_keys_in_a_full_table_pass_where_configured() {
    let capacity = Capacity::for_keys(4).or_else(Overflow::Admit);
    let keyed = Keyed::with_clock(bucket(), capacity, ManualClock::new());
    let layer = layer(&keyed);
    assert!((0..1000).all(|client| ask(&layer, client) == 200));
    assert!((996..1000).all(|client| [(); 5].map(|()| ask(&layer, client)) == [200; 5]));
    assert_eq!([(); 2].map(|()| ask(&layer, 0)), [200, 429], "a key with a slot has its own limit");
}

/// Clients that share a limit receive its status.
#[test]
fn new_keys_in_a_full_table_see_the_shared_limit() {
    let clock = ManualClock::new();
    let keyed = Keyed::with_clock(bucket(), Capacity::for_keys(1), clock.clone());
    let reported =
        Headers::only(QuotaPolicy::new("p", 2, Duration::from_secs(2)).unwrap(), Dialect::Current);
    let layer = layer(&keyed).headers(reported).cost(|head| match head.method.as_str() {
        "GET" => 1,
        _ => 2,
    });
    let quota_status = |client| {
        let (status, headers) = answer(&layer, client, 200);
        (status, headers["ratelimit"].to_str().unwrap().to_owned())
    };
    assert_eq!(quota_status(0), (200, r#""p";r=1;t=1"#.to_owned()));
    assert_eq!(quota_status(1), (200, r#""p";r=1;t=1"#.to_owned()));
    assert_eq!(quota_status(2), (200, r#""p";r=0;t=1"#.to_owned()));
    assert_eq!(quota_status(3), (429, r#""p";r=0;t=1"#.to_owned()));
    assert_eq!(keyed.overflows(), 3, "one for each request");
    assert_eq!(keyed.remaining(&key(0)), Ok(1));
    assert_eq!(keyed.remaining(&key(3)), Ok(0));
    clock.advance(Duration::from_nanos(S + 1));
    assert_eq!(keyed.remaining(&key(3)), Ok(2), "there is a slot for the next key");
}

/// Refunds return to the limit that was charged, also for clients that share a limit.
#[test]
fn new_keys_in_a_full_table_are_refunded() {
    let clock = ManualClock::new();
    let keyed = Keyed::with_clock(bucket(), Capacity::for_keys(1), clock.clone());
    let layer = layer(&keyed).refund_when(|head| head.status.is_success());
    assert_eq!(answer(&layer, 0, 401).0, 401);
    assert!((1..100).all(|client| ask(&layer, client) == 200));
    assert_eq!([1, 2, 3].map(|client| answer(&layer, client, 401).0), [401, 401, 429]);
    assert_eq!(keyed.remaining(&key(0)), Ok(1));
}

#[test]
fn other_policies_come_to_rest_too() {
    fn rests(policy: impl Into<AnyPolicy>) -> bool {
        let clock = ManualClock::new();
        let capacity = Capacity::for_keys(1).or_else(Overflow::Refuse);
        let keyed = Keyed::with_clock(policy, capacity, clock.clone());
        let layer = layer(&keyed);
        assert_eq!(ask(&layer, 1), 200);
        clock.advance(Duration::from_nanos(S - 1));
        assert_eq!(ask(&layer, 2), 503);
        clock.advance(Duration::from_nanos(2));
        ask(&layer, 2) == 200
    }
    assert!(rests(SlidingLog::new(5, Duration::from_nanos(S))));
    assert!(rests(SlidingLog::new(5, Duration::from_nanos(S)).compact()));
    assert!(rests(FixedWindow::new(5, Duration::from_nanos(S), Anchor::Epoch)));
    assert!(rests(Gcra::new("1/s".parse().unwrap(), 5).unwrap()));
}

/// Tiers are assigned by keys that are known before the table is.
#[test]
fn clients_of_several_tiers_have_limits_of_their_own() {
    let paid = HashSet::from([key(1)]);
    let policies =
        [1, 3].map(|permits| SlidingLog::new(permits, Duration::from_nanos(S)).compact());
    let tier_of = move |client: &Key| match () {
        () if *client == key(9) => 9,
        () => usize::from(paid.contains(client)),
    };
    let clock = ManualClock::new();
    let keyed =
        Keyed::with_tiers(policies, tier_of, Capacity::default(), Hashing::FloodSafe, clock)
            .unwrap();
    let seen = Arc::new(AtomicUsize::new(0));
    let noted = Arc::clone(&seen);
    let layer = layer(&keyed).answer(move |refusal, _| {
        noted.fetch_add(usize::from(refusal.reason() == Reason::NoSuchTier), Ordering::Relaxed);
        let mut response = Response::new(refusal.detail().to_owned());
        *response.status_mut() = refusal.status();
        response
    });
    assert_eq!([(); 4].map(|()| ask(&layer, 0)), [200, 429, 429, 429]);
    assert_eq!([(); 4].map(|()| ask(&layer, 1)), [200, 200, 200, 429]);
    assert_eq!(ask(&layer, 9), StatusCode::INTERNAL_SERVER_ERROR.as_u16());
    assert_eq!(seen.load(Ordering::Relaxed), 1);

    keyed.reconfigure_tier(0, SlidingLog::new(2, Duration::from_nanos(S)).compact()).unwrap();
    assert_eq!([(); 2].map(|()| ask(&layer, 0)), [200, 429], "a live change");
}

/// Threads on few keys and a table that evicts constantly: no key ever has a second limit next to
/// its first.
#[test]
fn a_key_that_comes_and_goes_has_one_limit_at_a_time() {
    fn never_two(policy: impl Into<AnyPolicy>) {
        const LIMIT: usize = 3;
        let clock = ManualClock::new();
        let capacity = Capacity::for_keys(8).or_else(Overflow::Refuse);
        let keyed = Keyed::with_clock(policy, capacity, clock.clone());
        let layer = layer(&keyed);
        for _ in 0..200 {
            let passed: usize = std::thread::scope(|scope| {
                let passed = || (0..8).filter(|_| ask(&layer, 7) == 200).count();
                let threads = [(); 4].map(|()| scope.spawn(passed));
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!(passed, LIMIT);
            // The key has recovered: the next round finds it, or a new one.
            clock.advance(Duration::from_nanos(S));
            let _ = ask(&layer, 8);
            clock.advance(Duration::from_nanos(S));
        }
    }
    never_two(SlidingLog::new(3, Duration::from_nanos(S)));
    never_two(Gcra::new("3/s".parse().unwrap(), 3).unwrap());
}
