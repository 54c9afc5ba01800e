//! The layer around a service, in virtual time.

use std::convert::Infallible;
use std::future::ready;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use rategate::keyed::{Capacity, Overflow};
use rategate::{Gcra, Keyed, Limiter, ManualClock, SlidingLog};
use rategate_testkit::ns;
use rategate_tower::headers::{Dialect, Headers, QuotaPolicy};
use rategate_tower::{Form, OnMissingKey, RateLimitLayer, key};
use tower::{Layer, ServiceExt, service_fn};

const S: u64 = 1_000_000_000;

type Live = Limiter<ManualClock>;

fn log(permits: u64, clock: &ManualClock) -> Live {
    Limiter::with_clock(SlidingLog::new(permits, Duration::from_nanos(S)), clock.clone())
}

fn bucket(rate: &str, burst: u64, clock: &ManualClock) -> Live {
    let policy = Gcra::new(rate.parse().unwrap(), burst).unwrap();
    Limiter::with_clock(policy, clock.clone())
}

/// A response with its body read.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    headers: http::HeaderMap,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn retry_after(&self) -> u64 {
        self.header("retry-after").unwrap().parse().unwrap()
    }
}

/// Sends one request, through its own service made of a clone of the layer, like a server that
/// makes a service per connection.
async fn send(layer: &RateLimitLayer, request: Request<Body>) -> Answer {
    let within = service_fn(|_: Request<Body>| {
        ready(Ok::<_, Infallible>(Response::new(Body::from("within"))))
    });
    let service = layer.clone().layer(within);
    let response = service.clone().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    Answer { status: head.status, headers: head.headers, body }
}

fn get() -> Request<Body> {
    Request::get("/").body(Body::empty()).unwrap()
}

async fn statuses(layer: &RateLimitLayer, requests: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..requests {
        statuses.push(send(layer, get()).await.status.as_u16());
    }
    statuses
}

#[tokio::test]
async fn all_services_of_all_clones_share_one_limit() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::new(log(3, &clock));
    assert_eq!(statuses(&layer, 5).await, [200, 200, 200, 429, 429]);
    assert!(send(&layer, get()).await.body.contains("quota-exceeded"));
    clock.advance(Duration::from_nanos(S));
    let answer = send(&layer, get()).await;
    assert_eq!((answer.status.as_u16(), answer.body.as_str()), (200, "within"));
    assert!(answer.headers.is_empty(), "{:?}", answer.headers);
}

/// A client that waits for the stated time passes, and one that waits a second less does not. The
/// limiter's own wait, in nanoseconds, never exceeds the stated time.
#[tokio::test]
async fn retry_after_is_enough_and_a_second_less_is_not() {
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..300 {
        let clock = ManualClock::new();
        let (burst, period_s) = (random.u64(1..=5), random.u64(1..=400));
        let limiter = bucket(&format!("{}/{period_s}s", random.u64(1..=9)), burst, &clock);
        let layer = RateLimitLayer::new(limiter.clone());
        let mut passed = 0;
        let retry_after_s = loop {
            let answer = send(&layer, get()).await;
            if answer.status == 429 {
                break answer.retry_after();
            }
            passed += 1;
            assert!(passed < 10_000, "nothing is limited");
            clock.advance(Duration::from_nanos(random.u64(..S)));
        };
        assert!(retry_after_s >= 1);
        let exact = limiter.peek(1).unwrap().unwrap();
        assert!(
            exact <= Duration::from_secs(retry_after_s)
                && exact > Duration::from_secs(retry_after_s - 1)
        );

        clock.advance(Duration::from_nanos((retry_after_s - 1) * S));
        assert_eq!(send(&layer, get()).await.status, 429, "a second early");
        clock.advance(Duration::from_nanos(S));
        assert_eq!(send(&layer, get()).await.status, 200, "after the stated time");
    }
}

#[tokio::test]
async fn each_client_has_its_own_limit_and_its_own_headers() {
    let clock = ManualClock::new();
    let policy = SlidingLog::new(2, Duration::from_nanos(60 * S));
    let keyed = Keyed::with_clock(policy, Capacity::default(), clock.clone());
    let quota = QuotaPolicy::new("per client", 2, Duration::from_secs(60)).unwrap();
    let layer = RateLimitLayer::keyed(keyed.clone(), key::peer(|address: &IpAddr| *address))
        .headers(Headers::new(quota).and(Dialect::Legacy));
    let from = |address: &str| {
        let mut request = get();
        request.extensions_mut().insert(address.parse::<IpAddr>().unwrap());
        request
    };

    let first = send(&layer, from("192.0.2.1")).await;
    assert_eq!(first.status, 200);
    assert_eq!(first.header("ratelimit-policy"), Some(r#""per client";q=2;w=60"#));
    assert_eq!(first.header("ratelimit"), Some(r#""per client";r=1;t=60"#));

    clock.advance(Duration::from_nanos(S / 2));
    let second = send(&layer, from("192.0.2.1")).await;
    assert_eq!(second.header("ratelimit"), Some(r#""per client";r=0;t=60"#));
    let refused = send(&layer, from("192.0.2.1")).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), Some("60"));
    assert_eq!(refused.header("ratelimit"), Some(r#""per client";r=0;t=60"#));
    assert_eq!(refused.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert_eq!(
        refused.body,
        concat!(
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
            r#""title":"Quota Exceeded","status":429,"detail":"The limit is reached.","#,
            r#""retry_after":60,"retry_after_ms":59500,"violated-policies":["per client"]}"#
        )
    );

    assert_eq!(send(&layer, from("192.0.2.2")).await.status, 200);
    assert_eq!(send(&layer, from("2001:db8::1")).await.status, 200);
    assert_eq!(send(&layer, from("2001:db8::2")).await.status, 200, "the same /64");
    assert_eq!(send(&layer, from("2001:db8::3")).await.status, 429);
    assert_eq!(keyed.len(), 3);
}

#[tokio::test]
async fn requests_cost_what_is_configured() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::new(log(5, &clock))
        .cost(|head| head.uri.path().trim_start_matches('/').parse().unwrap_or(1));
    let cost = |cost: u64| Request::get(format!("/{cost}")).body(Body::empty()).unwrap();

    assert_eq!(send(&layer, cost(4)).await.status, 200);
    assert_eq!(send(&layer, cost(2)).await.status, 429);
    assert_eq!(send(&layer, cost(1)).await.status, 200);
    assert_eq!(send(&layer, cost(0)).await.status, 200, "nothing is always to be had");
    let never = send(&layer, cost(6)).await;
    assert_eq!(never.status, 400);
    assert_eq!(never.header("retry-after"), None, "no time would help");
    assert_eq!(send(&layer, cost(u64::MAX)).await.status, 400);
    clock.advance(Duration::from_nanos(S));
    assert_eq!(send(&layer, cost(5)).await.status, 200, "the refused have taken nothing");
}

#[tokio::test]
async fn a_request_without_a_key_is_treated_as_chosen() {
    let clock = ManualClock::new();
    let of = |missing| {
        let keyed = Keyed::with_clock(
            SlidingLog::new(1, Duration::from_nanos(S)),
            Capacity::default(),
            clock.clone(),
        );
        let source = key::header("x-api-key".parse().unwrap());
        (keyed.clone(), RateLimitLayer::keyed(keyed, source).missing(missing))
    };
    let (_, share) = of(OnMissingKey::Share);
    assert_eq!(statuses(&share, 3).await, [200, 429, 429]);
    let with_key = Request::get("/").header("x-api-key", "a").body(Body::empty()).unwrap();
    assert_eq!(send(&share, with_key).await.status, 200);

    let (keyed, refuse) = of(OnMissingKey::Refuse);
    assert_eq!(statuses(&refuse, 2).await, [400, 400]);
    let (_, pass) = of(OnMissingKey::Pass);
    assert_eq!(statuses(&pass, 3).await, [200, 200, 200]);
    assert!(keyed.is_empty());
}

/// An outer layer is charged even if an inner one refuses. The limit per client is therefore the
/// outer one, and refunds what the shared limit has refused.
#[tokio::test]
async fn two_layers_share_as_the_docs_say() {
    let clock = ManualClock::new();
    let log = |permits| SlidingLog::new(permits, Duration::from_nanos(S));
    let of = |for_all, for_each| {
        let keyed = Keyed::with_clock(log(for_each), Capacity::default(), clock.clone());
        let for_each = RateLimitLayer::keyed(keyed.clone(), key::path());
        (RateLimitLayer::new(Limiter::with_clock(log(for_all), clock.clone())), for_each, keyed)
    };
    let within = service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(""))));
    let paths = ["/a", "/a", "/a", "/b"];
    let request = |path| Request::get(path).body(()).unwrap();

    let (for_all, for_each, _) = of(3, 1);
    let outside = for_all.layer(for_each.layer(within));
    let mut statuses = Vec::new();
    for path in paths {
        statuses.push(outside.clone().oneshot(request(path)).await.unwrap().status().as_u16());
    }
    assert_eq!(statuses, [200, 429, 429, 429], "one client has used up what is for all");

    let (for_all, for_each, _) = of(3, 1);
    let inside = for_each.layer(for_all.layer(within));
    let mut statuses = Vec::new();
    for path in paths {
        statuses.push(inside.clone().oneshot(request(path)).await.unwrap().status().as_u16());
    }
    assert_eq!(statuses, [200, 429, 429, 200]);

    let (for_all, for_each, keyed) = of(1, 2);
    let for_each = for_each.refund_when(|head| head.status == 429);
    let inside = for_each.layer(for_all.layer(within));
    for (path, status, left) in [("/a", 200, 1), ("/b", 429, 2), ("/b", 429, 2)] {
        assert_eq!(inside.clone().oneshot(request(path)).await.unwrap().status(), status);
        assert_eq!(keyed.remaining(&key::Key::of(path)), Ok(left), "{path}");
    }
}

#[tokio::test]
async fn what_costs_nothing_takes_no_place_in_the_table() {
    let keyed = Keyed::new(SlidingLog::new(1, Duration::from_nanos(S)));
    let layer = RateLimitLayer::keyed(keyed.clone(), key::path()).cost(|_| 0);
    assert_eq!(statuses(&layer, 3).await, [200, 200, 200]);
    assert!(keyed.is_empty());
}

#[tokio::test]
async fn a_full_table_and_a_closed_limiter_are_503() {
    let clock = ManualClock::new();
    let capacity = Capacity::for_keys(1).or_else(Overflow::Refuse);
    let keyed =
        Keyed::with_clock(SlidingLog::new(1, Duration::from_nanos(S)), capacity, clock.clone());
    let layer = RateLimitLayer::keyed(keyed, key::path());
    let at = |path: &str| Request::get(path).body(Body::empty()).unwrap();
    assert_eq!(send(&layer, at("/a")).await.status, 200);
    let refused = send(&layer, at("/b")).await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (503, None));

    let limiter = log(1, &clock);
    let layer = RateLimitLayer::new(limiter.clone());
    limiter.close();
    assert_eq!(send(&layer, get()).await.status, 503);
}

#[tokio::test]
async fn answers_of_other_forms_have_the_same_headers() {
    let clock = ManualClock::new();
    let quota = QuotaPolicy::new("p", 1, Duration::from_secs(1)).unwrap();
    let layer = RateLimitLayer::new(log(1, &clock)).headers(Headers::new(quota));
    let grpc = layer.clone().form(Form::Grpc);
    let own = layer.clone().answer(|refusal, head| {
        let mut response = Response::new(format!("{} {:?}", head.uri, refusal.policy()));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert("retry-after", "17".parse().unwrap());
        response
    });
    assert_eq!(send(&layer, get()).await.status, 200);

    let refused = send(&grpc, get()).await;
    assert_eq!((refused.status.as_u16(), refused.header("grpc-status")), (200, Some("8")));
    assert_eq!(refused.header("grpc-retry-pushback-ms"), Some("1000"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.header("ratelimit"), Some(r#""p";r=0;t=1"#));
    assert_eq!(refused.body, "");

    let refused = send(&own, get()).await;
    assert_eq!((refused.status.as_u16(), refused.body.as_str()), (503, r#"/ Some("p")"#));
    assert_eq!(refused.header("retry-after"), Some("17"), "what is there stays");
    assert_eq!(refused.header("ratelimit"), Some(r#""p";r=0;t=1"#));
}

/// Key and cost functions that panic: only that request fails.
#[tokio::test]
async fn a_panic_stops_no_other_request_and_takes_nothing() {
    let clock = ManualClock::new();
    let keyed = Keyed::with_clock(
        SlidingLog::new(2, Duration::from_nanos(S)),
        Capacity::default(),
        clock.clone(),
    );
    let source = key::by(|head| {
        assert!(head.uri.path() != "/key", "a key that panics");
        Some("all")
    });
    let layer = RateLimitLayer::keyed(keyed, source).cost(|head| {
        assert!(head.uri.path() != "/cost", "a cost that panics");
        1
    });
    for path in ["/key", "/cost"].repeat(20) {
        let layer = layer.clone();
        let request = Request::get(path).body(Body::empty()).unwrap();
        let task = tokio::spawn(async move { send(&layer, request).await });
        assert!(task.await.unwrap_err().is_panic());
    }
    assert_eq!(statuses(&layer, 3).await, [200, 200, 429]);
}

/// Tasks on several threads, a running clock, and an oracle over the requests that reached the
/// inner service.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_window_holds_more_than_the_limit() {
    const LIMIT: usize = 25;
    const PERIOD_NS: u64 = 20_000_000;
    let limiter = Limiter::new(SlidingLog::new(25, Duration::from_nanos(PERIOD_NS)));
    let layer = RateLimitLayer::new(limiter.clone());
    let refused = Arc::new(AtomicU64::new(0));
    let starts = Arc::new(std::sync::Mutex::new(Vec::new()));
    let until_ns = ns(limiter.now()) + 200_000_000;
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let (limiter, layer) = (limiter.clone(), layer.clone());
            let (refused, starts) = (Arc::clone(&refused), Arc::clone(&starts));
            tokio::spawn(async move {
                while ns(limiter.now()) < until_ns {
                    let before_ns = ns(limiter.now());
                    match send(&layer, get()).await.status.as_u16() {
                        200 => starts.lock().unwrap().push((before_ns, ns(limiter.now()))),
                        _ => drop(refused.fetch_add(1, Ordering::Relaxed)),
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    // A start lies between the two readings around it, so only requests certainly within a window
    // count. They began after the window's first request ended, and ended before the window did.
    let starts = starts.lock().unwrap().clone();
    for &(first_ns, _) in &starts {
        let within = |&&(from, to): &&(u64, u64)| from >= first_ns && to < first_ns + PERIOD_NS;
        assert!(starts.iter().filter(within).count() <= LIMIT);
    }
    assert!(starts.len() >= LIMIT * 3, "and it is used: {}", starts.len());
    assert!(refused.load(Ordering::Relaxed) > 0);
}

/// An inner service that panics has used its permit, and nothing else is lost.
#[tokio::test]
async fn a_panic_within_leaves_the_limit_as_it_is() {
    async fn broken(_: Request<Body>) -> Result<Response<Body>, Infallible> {
        panic!("the service within")
    }
    let clock = ManualClock::new();
    let layer = RateLimitLayer::new(log(2, &clock));
    let service = layer.layer(service_fn(broken));
    let task = tokio::spawn(async move { service.oneshot(get()).await.is_ok() });
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(statuses(&layer, 2).await, [200, 429]);
}

/// Only responses that count cost anything: here failures, of which two may occur per second.
#[tokio::test]
async fn refunded_permits_are_available_again() {
    let clock = ManualClock::stepped();
    let keyed = Keyed::with_clock(
        SlidingLog::new(2, Duration::from_nanos(S)),
        Capacity::default(),
        clock.clone(),
    );
    for layer in [
        RateLimitLayer::new(log(2, &clock)),
        RateLimitLayer::keyed(keyed, key::constant("all")),
        RateLimitLayer::new(log(2, &clock)).wait_within(Duration::from_nanos(1)),
    ] {
        let layer = layer.refund_when(|head| head.status.is_success());
        let service = layer.layer(service_fn(|request: Request<Body>| {
            let mut response = Response::new(Body::empty());
            if request.uri().path() == "/fails" {
                *response.status_mut() = StatusCode::UNAUTHORIZED;
            }
            ready(Ok::<_, Infallible>(response))
        }));
        let send = |path: &str| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let service = service.clone();
            async move { service.oneshot(request).await.unwrap().status() }
        };
        for _ in 0..10 {
            assert_eq!(send("/").await, StatusCode::OK);
        }
        for _ in 0..2 {
            assert_eq!(send("/fails").await, StatusCode::UNAUTHORIZED);
        }
        assert_eq!(send("/").await, StatusCode::TOO_MANY_REQUESTS);
    }
}
