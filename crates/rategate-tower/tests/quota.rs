//! The quota policy that clients receive, before and after the limit is reconfigured.

use std::convert::Infallible;
use std::future::ready;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use rategate::keyed::{Capacity, Hashing};
use rategate::policy::Anchor;
use rategate::{
    AllOf, AnyPolicy, BackfillPool, CommitLog, Concurrency, FixedWindow, Gcra, Keyed, Limiter,
    ManualClock, SlidingLog, SlowStart, WarmUp,
};
use rategate_tower::headers::{Dialect, Headers, QuotaPolicy};
use rategate_tower::{RateLimitLayer, key};
use tower::{Layer, Service, service_fn};

const S: u64 = 1_000_000_000;

fn given() -> Headers {
    let policy = QuotaPolicy::new("api", 7, Duration::from_secs(70)).unwrap();
    Headers::new(policy).and(Dialect::Legacy)
}

/// Returns the header fields that a client at this path receives.
fn headers_for(layer: &RateLimitLayer, path: &str) -> HeaderMap {
    let within =
        service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(String::new()))));
    let response = layer.layer(within).call(Request::get(path).body(()).unwrap());
    match pin!(response).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(response)) => response.headers().clone(),
        Poll::Pending => panic!("nothing may wait"),
    }
}

/// Returns the policy field, and the limit in the legacy dialect.
fn policy(layer: &RateLimitLayer, path: &str) -> (String, String) {
    let headers = headers_for(layer, path);
    let value = |name| headers.get(name).unwrap().to_str().unwrap().to_owned();
    (value("ratelimit-policy"), value("x-ratelimit-limit"))
}

fn expected(quota: u64, window_s: u64) -> (String, String) {
    (format!("\"api\";q={quota};w={window_s}"), quota.to_string())
}

fn gcra(rate: &str, burst: u64) -> Gcra {
    Gcra::new(rate.parse().unwrap(), burst).unwrap()
}

#[test]
fn the_given_policy_is_sent_until_the_limit_changes() {
    let limiter = Limiter::with_clock(gcra("10/s", 20), ManualClock::new());
    let layer = RateLimitLayer::new(limiter.clone()).headers(given());
    assert_eq!(policy(&layer, "/"), expected(7, 70), "as it was written");
    limiter.reconfigure(gcra("3/s", 50)).unwrap();
    // 50 thirds of a second, rounded up.
    assert_eq!(policy(&layer, "/"), expected(50, 17));
    assert_eq!(policy(&layer.clone(), "/"), expected(50, 17));
    limiter.reconfigure(gcra("2/s", 1)).unwrap();
    assert_eq!(policy(&layer, "/"), expected(1, 1));
    assert_eq!(policy(&layer, "/"), expected(1, 1), "a refusal reports it, too");
    assert_eq!(headers_for(&layer, "/").get("retry-after").unwrap(), "1");
}

/// A layer made after a change accounts for it.
#[test]
fn a_policy_that_is_given_later_is_right_again() {
    let limiter = Limiter::new(gcra("10/s", 20));
    limiter.reconfigure(gcra("1/s", 5)).unwrap();
    let layer = RateLimitLayer::new(limiter).headers(given());
    assert_eq!(policy(&layer, "/"), expected(7, 70));
}

#[test]
fn every_kind_of_limit_has_its_own_numbers() {
    let warm_up = WarmUp::new("2/s".parse().unwrap(), Duration::from_secs(60)).unwrap();
    let slow = SlowStart::new(gcra("1/s", 9), Duration::from_secs(60)).unwrap();
    let table: [(AnyPolicy, (String, String)); 7] = [
        (gcra("1/s", 9).into(), expected(9, 9)),
        (SlidingLog::new(4, Duration::from_nanos(60 * S)).into(), expected(4, 60)),
        (SlidingLog::new(5, Duration::from_nanos(30 * S)).compact().into(), expected(5, 30)),
        (
            FixedWindow::new(6, Duration::from_nanos(3_600 * S), Anchor::Epoch).into(),
            expected(6, 3_600),
        ),
        (warm_up.with_max_request(10).unwrap().into(), expected(10, 5)),
        // Those that hold once the slow start is over.
        (slow.into(), expected(9, 9)),
        // This policy has no such numbers.
        (BackfillPool::new(9, "1".parse().unwrap(), None).unwrap().into(), expected(7, 70)),
    ];
    let limiter = Limiter::new(AnyPolicy::from(gcra("1/s", 1)));
    let layer = RateLimitLayer::new(limiter.clone()).headers(given());
    for (changed, expected) in table {
        limiter.reconfigure(changed).unwrap();
        assert_eq!(policy(&layer, "/"), expected, "{changed:?}");
    }
    let in_flight: [(AnyPolicy, AnyPolicy, (String, String)); 2] = [
        // Permits in flight have no window, so the configured one stays.
        (Concurrency::new(1).into(), Concurrency::new(3).into(), expected(3, 70)),
        (
            CommitLog::new(1, Duration::from_nanos(2 * S)).into(),
            CommitLog::new(8, Duration::from_nanos(2 * S)).into(),
            expected(8, 2),
        ),
    ];
    for (first, changed, expected) in in_flight {
        let limiter = Limiter::new(first);
        let layer = RateLimitLayer::new(limiter.clone()).headers(given());
        limiter.reconfigure(changed).unwrap();
        assert_eq!(policy(&layer, "/"), expected, "{changed:?}");
    }
    let all =
        [AnyPolicy::from(gcra("1/s", 9)), SlidingLog::new(4, Duration::from_nanos(60 * S)).into()];
    let both = Limiter::new(AllOf::new(all));
    let layer = RateLimitLayer::new(both.clone()).headers(given());
    both.reconfigure(AllOf::new(all)).unwrap();
    assert_eq!(policy(&layer, "/"), expected(4, 60), "the one with the fewest");
}

#[test]
fn each_tier_of_a_table_gets_its_own_policy() {
    let tiers = [gcra("1/s", 5), gcra("1/s", 50)];
    let paid = key::Key::of("/paid");
    let tier_of = move |key: &key::Key| usize::from(*key == paid);
    let capacity = Capacity::for_keys(100);
    let clock = ManualClock::new();
    let keyed = Keyed::with_tiers(tiers, tier_of, capacity, Hashing::FloodSafe, clock).unwrap();
    let layer = RateLimitLayer::keyed(keyed.clone(), key::path()).headers(given());
    assert_eq!(policy(&layer, "/paid"), expected(7, 70));
    keyed.reconfigure_tier(1, gcra("10/s", 100)).unwrap();
    assert_eq!(policy(&layer, "/paid"), expected(100, 10));
    assert_eq!(policy(&layer, "/free"), expected(5, 5));
    keyed.reconfigure(gcra("1/s", 6)).unwrap();
    assert_eq!(policy(&layer, "/free"), expected(6, 6));
    assert_eq!(policy(&layer, "/paid"), expected(100, 10));
}
