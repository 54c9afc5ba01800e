//! Limits that several processes share, in front of a service.

#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/shared_limit.rs"]
mod shared_limit;

use std::convert::Infallible;
use std::future::ready;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Request, Response};
use rategate::distributed::{Distributed, OnUnavailable};
use rategate::store::{MemoryStore, Rule, Store};
use rategate::{Concurrency, Gcra, ManualClock, SlidingLog};
use rategate_redis::client::RedisStore;
use rategate_testkit::faulty::{Fate, FaultyStore};
use rategate_testkit::redis::{Brand, Server};
use rategate_tower::headers::{Headers, QuotaPolicy};
use rategate_tower::key::{self, MAX_CLIENT_NAME_BYTES, NameSource};
use rategate_tower::{OnMissingKey, RateLimitLayer, ResponseBody};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tower::{Layer, Service as _, ServiceExt, service_fn};

const MINUTE: u64 = 60_000_000_000;

/// Longer than any delay of a busy machine.
const BUDGET: Duration = Duration::from_secs(3);

fn limiter<S: Store>(store: &Arc<S>, rule: impl Into<Rule>) -> Distributed<S> {
    let builder = Distributed::builder(Arc::clone(store)).limit("t", rule);
    builder.with_budget(BUDGET).build().unwrap()
}

fn user() -> key::Header {
    key::header("x-user".parse().unwrap())
}

/// Sends one request of a user, answered by the layer or with this status.
async fn ask(layer: &RateLimitLayer, user: &str, status: u16) -> Response<ResponseBody<String>> {
    let within = service_fn(move |_: Request<()>| {
        let answer = Response::builder().status(status).body("within".to_owned());
        ready(Ok::<_, Infallible>(answer.unwrap()))
    });
    let request = Request::get("/").header("x-user", user).body(()).unwrap();
    layer.layer(within).oneshot(request).await.unwrap()
}

async fn status(layer: &RateLimitLayer, user: &str) -> u16 {
    ask(layer, user, 200).await.status().as_u16()
}

#[tokio::test]
async fn processes_with_one_store_have_one_limit() {
    let store = Arc::new(MemoryStore::new());
    let layer = || {
        RateLimitLayer::distributed(
            limiter(&store, SlidingLog::new(3, Duration::from_nanos(MINUTE))),
            user(),
        )
    };
    let (one, other) = (layer(), layer());
    let mut passed = Vec::new();
    for _ in 0..2 {
        passed.extend([status(&one, "a").await, status(&other, "a").await]);
    }
    assert_eq!(passed, [200, 200, 200, 429]);
    assert_eq!(status(&one, "b").await, 200, "another client has a limit of its own");
    let refused = ask(&one, "a", 200).await;
    let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
}

#[tokio::test]
async fn costs_refunds_and_headers_are_as_for_other_limits() {
    let limiter =
        limiter(&Arc::new(MemoryStore::new()), SlidingLog::new(5, Duration::from_nanos(MINUTE)));
    let quota = QuotaPolicy::new("t", 5, Duration::from_secs(60)).unwrap();
    let layer = RateLimitLayer::distributed(limiter, user())
        .cost(|head| head.headers["x-user"].len().try_into().unwrap())
        .headers(Headers::new(quota))
        .refund_when(|head| head.status == 204);
    let response = ask(&layer, "aaa", 200).await;
    assert_eq!(response.headers()["ratelimit"], r#""t";r=2"#);
    assert_eq!(ask(&layer, "bbbb", 204).await.status(), 204);
    assert_eq!(ask(&layer, "bbbb", 200).await.status(), 200, "what was refunded can be used");
    let denied = ask(&layer, "aaa", 200).await;
    assert_eq!(denied.status(), 429);
    assert!(denied.headers()["ratelimit"].to_str().unwrap().starts_with(r#""t";r=2;t="#));
    assert_eq!(ask(&layer, "too many", 200).await.status(), 400);
}

#[tokio::test]
async fn a_request_waits_for_a_permit_of_the_store() {
    let limiter =
        limiter(&Arc::new(MemoryStore::new()), Gcra::new("20/s".parse().unwrap(), 1).unwrap());
    let layer =
        RateLimitLayer::distributed(limiter, user()).wait_within(Duration::from_millis(500));
    let from = std::time::Instant::now();
    for _ in 0..3 {
        assert_eq!(status(&layer, "a").await, 200);
    }
    assert!(from.elapsed() >= Duration::from_millis(100));
}

/// A client that leaves before its request is polled has taken nothing, even if the store has
/// replied.
#[tokio::test]
async fn a_request_dropped_before_its_first_poll_takes_nothing() {
    let store = Arc::new(MemoryStore::new());
    let in_flight = Rule::InFlight(Concurrency::new(1), NonZeroU64::new(MINUTE).unwrap());
    let bucket = Gcra::new("1/h".parse().unwrap(), 1).unwrap();
    for rule in [in_flight, bucket.into()] {
        let layer = RateLimitLayer::distributed(limiter(&store, rule), user());
        let within = service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(""))));
        let request = Request::get("/").header("x-user", "a").body(()).unwrap();
        drop(layer.layer(within).call(request));
        assert_eq!(status(&layer, "a").await, 200, "{rule:?}");
    }
}

/// A response that takes longer than a lease is in flight until its body has ended.
#[tokio::test]
async fn a_long_response_keeps_its_lease() {
    let store = Arc::new(MemoryStore::new());
    let lease = Duration::from_millis(200);
    let lease_ns = NonZeroU64::new(200_000_000).unwrap();
    let rule = Rule::InFlight(Concurrency::new(1), lease_ns);
    let layer = RateLimitLayer::distributed(limiter(&store, rule), user());
    let held_open = ask(&layer, "a", 200).await;
    for _ in 0..4 {
        tokio::time::sleep(lease / 2).await;
        assert_eq!(status(&layer, "a").await, 429, "its body is there");
    }
    drop(held_open);
    assert_eq!(status(&layer, "a").await, 200);
}

/// Requests in flight are held in the store until their responses have ended.
#[tokio::test]
async fn what_is_in_flight_is_one_number_for_all() {
    let store = Arc::new(MemoryStore::new());
    let rule = || Rule::InFlight(Concurrency::new(2), NonZeroU64::new(MINUTE).unwrap());
    let layer = || RateLimitLayer::distributed(limiter(&store, rule()), user());
    let (one, other) = (layer(), layer());
    let held_open = [ask(&one, "a", 200).await, ask(&other, "a", 200).await];
    assert_eq!(held_open.each_ref().map(|answer| answer.status().as_u16()), [200, 200]);
    assert_eq!([status(&one, "a").await, status(&one, "b").await], [429, 200]);
    drop(held_open);
    for _ in 0..5 {
        assert_eq!(status(&one, "a").await, 200);
    }
}

#[tokio::test]
async fn without_the_store_the_fallback_applies() {
    for (on_unavailable, expected) in [(OnUnavailable::Deny, 503), (OnUnavailable::Admit, 200)] {
        let clock = ManualClock::new();
        let store = FaultyStore::new(Arc::new(MemoryStore::new()), clock, 1_000_000);
        store.set_usual(Fate::Unreachable);
        let limiter = Distributed::builder(Arc::new(store))
            .limit("t", SlidingLog::new(3, Duration::from_nanos(MINUTE)))
            .on_unavailable(on_unavailable)
            .build()
            .unwrap();
        let layer = RateLimitLayer::distributed(limiter, user());
        let answer = ask(&layer, "a", 200).await;
        assert_eq!(answer.status(), expected, "{on_unavailable:?}");
    }
}

#[test]
fn names_are_the_same_in_every_process_and_apart_from_each_other() {
    let head = |address: &str, path: &str| {
        let request = Request::get(path).extension(address.parse::<std::net::IpAddr>().unwrap());
        request.header("x-user", "u").body(()).unwrap().into_parts().0
    };
    let peer = || key::peer(|address: &std::net::IpAddr| *address);
    let name = |source: &dyn NameSource, address: &str, path: &str| {
        String::from_utf8(source.name(&head(address, path)).unwrap()).unwrap()
    };
    assert_eq!(name(&peer(), "192.0.2.1", "/"), "192.0.2.1");
    assert_eq!(name(&peer(), "2001:db8:1:2:3::4", "/"), "2001:db8:1:2::/64");
    assert_eq!(name(&(peer(), key::path()), "192.0.2.1", "/a"), "9:192.0.2.1,2:/a,");
    assert_eq!(name(&vec![key::path(), key::path()], "::1", "/a"), "2:/a,2:/a,");
    let route = key::extension(|address: &std::net::IpAddr| address.to_string());
    assert_eq!(name(&route, "192.0.2.1", "/"), "192.0.2.1");
    let host = key::by(|head| Some(head.uri.path().to_owned()));
    assert_eq!(name(&(host, user(), key::method()), "::1", "/p"), "2:/p,1:u,3:GET,");
    let trust = key::Trust::Hops(1);
    let client = key::client(peer(), key::Field::XForwardedFor, trust);
    assert_eq!(name(&client, "192.0.2.1", "/"), "192.0.2.1");
}

/// A user-defined source may be expensive, or have side effects.
#[tokio::test]
async fn a_source_is_called_once_per_request() {
    let limiter =
        limiter(&Arc::new(MemoryStore::new()), SlidingLog::new(1, Duration::from_nanos(MINUTE)));
    let calls = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&calls);
    let source = key::by(move |head| {
        counts.fetch_add(1, Ordering::Relaxed);
        Some(head.headers["x-user"].as_bytes().to_vec())
    });
    let layer = RateLimitLayer::distributed(limiter, source);
    for (user, expected) in [("a", 200), ("a", 429), ("", 200), ("", 429)] {
        assert_eq!(status(&layer, user).await, expected, "{user:?}");
        assert_eq!(calls.swap(0, Ordering::Relaxed), 1, "{user:?}");
    }
}

/// Names over the maximum length share a limit, like requests without a name.
#[tokio::test]
async fn a_name_has_a_bound() {
    let limiter =
        limiter(&Arc::new(MemoryStore::new()), SlidingLog::new(1, Duration::from_nanos(MINUTE)));
    let layer = RateLimitLayer::distributed(limiter, user());
    let long = |letter: &str, more| letter.repeat(MAX_CLIENT_NAME_BYTES + more);
    assert_eq!(
        [status(&layer, &long("a", 0)).await, status(&layer, &long("b", 0)).await],
        [200; 2]
    );
    let longer = [status(&layer, &long("a", 1)).await, status(&layer, &long("b", 1)).await];
    assert_eq!(longer, [200, 429]);
}

/// The setting for requests without a key also applies to invalid names, none of which gets a
/// limit of its own.
#[tokio::test]
async fn a_name_that_is_none_is_treated_as_chosen() {
    let of = |missing: Option<OnMissingKey>| {
        let limiter = limiter(
            &Arc::new(MemoryStore::new()),
            SlidingLog::new(1, Duration::from_nanos(MINUTE)),
        );
        let layer = RateLimitLayer::distributed(limiter, user());
        missing.map_or(layer.clone(), |missing| layer.missing(missing))
    };
    let long = "a".repeat(MAX_CLIENT_NAME_BYTES + 1);
    let table = [
        (Some(OnMissingKey::Refuse), [400, 400, 400]),
        (Some(OnMissingKey::Pass), [200, 200, 200]),
        (Some(OnMissingKey::Share), [200, 429, 429]),
        (None, [200, 429, 429]),
    ];
    for (missing, expected) in table {
        let layer = of(missing);
        let statuses =
            [status(&layer, "").await, status(&layer, &long).await, status(&layer, "").await];
        assert_eq!(statuses, expected, "{missing:?}");
        assert_eq!([status(&layer, "a").await, status(&layer, "a").await], [200, 429]);
    }
}

/// Runs the example as two servers with one store, each with its own connections.
async fn two_servers<S: Store>(store: impl Fn() -> S) -> (usize, usize) {
    let mut urls = Vec::new();
    let mut ends = Vec::new();
    for _ in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        urls.push(format!("http://{}/", listener.local_addr().unwrap()));
        let (end, ended) = oneshot::channel::<()>();
        ends.push(end);
        let store = store();
        tokio::task::spawn(async move {
            let end = async { drop(ended.await) };
            shared_limit::run(listener, store, end).await.map_err(|error| error.to_string())
        });
    }
    let client = reqwest::Client::new();
    let mut counts = (0, 0);
    for number in 0..60 {
        let url = urls.get(number % 2).unwrap();
        match client.get(url).send().await.unwrap().status().as_u16() {
            200 => counts.0 += 1,
            429 => counts.1 += 1,
            other => panic!("status {other}"),
        }
    }
    counts
}

#[tokio::test]
async fn servers_share_a_limit_in_redis() {
    for brand in Brand::installed() {
        let server = Server::start(brand);
        let address = SocketAddr::from(([127, 0, 0, 1], server.port()));
        let open = || -> RedisStore { shared_limit::redis(address).unwrap() };
        let from = std::time::Instant::now();
        let (passed, refused) = two_servers(open).await;
        // 20 in any second: once more per second that it took.
        let max_passed = 20 * (1 + usize::try_from(from.elapsed().as_secs()).unwrap() + 1);
        assert!(
            (20..=max_passed).contains(&passed) && refused > 0,
            "{passed} passed, {refused} refused"
        );
    }
}
