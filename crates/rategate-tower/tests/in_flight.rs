//! Limits of requests in flight: permits return when the response has ended, however it ends.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{pending, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::Bytes;
use axum::{Router, routing::get};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use rategate::adaptive::{Adaptation, Bounds, Method, Outcome};
use rategate::keyed::{Capacity, Hashing, Overflow};
use rategate::{
    AdaptiveConcurrency, AdaptiveRate, AllOf, AnyPolicy, Clock, CommitLog, Concurrency, Gcra,
    Keyed, Limiter, ManualClock, Rate, Share,
};
use rategate_tower::key::{self, Key};
use rategate_tower::{RateLimitLayer, ResponseBody};
use tokio::net::TcpListener;
use tower::{Layer, Service, service_fn};

/// A body of these frames.
#[derive(Debug, Default)]
struct Frames(VecDeque<Result<Frame<Bytes>, Broken>>);

#[derive(Debug)]
struct Broken;

impl Body for Frames {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        Poll::Ready(self.0.pop_front())
    }
}

fn frame() -> Frame<Bytes> {
    Frame::data(Bytes::from_static(b"part"))
}

type Answer = Response<ResponseBody<Frames>>;

fn now() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn request(path: &str) -> Request<()> {
    Request::get(path).body(()).unwrap()
}

/// Sends a request, answered at once with a body of two frames, the second of which may fail.
fn send_to(layer: &RateLimitLayer, path: &str, breaks: bool) -> Answer {
    let within = service_fn(move |_: Request<()>| {
        let frames = [Ok(frame()), if breaks { Err(Broken) } else { Ok(frame()) }];
        ready(Ok::<_, Infallible>(Response::new(Frames(frames.into()))))
    });
    match pin!(layer.layer(within).call(request(path))).poll(&mut now()) {
        Poll::Ready(Ok(answer)) => answer,
        Poll::Pending => panic!("nothing may wait"),
    }
}

fn send(layer: &RateLimitLayer) -> Answer {
    send_to(layer, "/", false)
}

fn status(layer: &RateLimitLayer) -> u16 {
    send(layer).status().as_u16()
}

/// Reads one frame of the body.
fn read(answer: &mut Answer) -> Option<Result<Frame<Bytes>, Broken>> {
    match pin!(answer.body_mut()).poll_frame(&mut now()) {
        Poll::Ready(frame) => frame,
        Poll::Pending => panic!("the frames are there"),
    }
}

fn limiter(permits: u64) -> Limiter {
    Limiter::new(Concurrency::new(permits))
}

#[test]
fn requests_one_after_another_are_never_refused() {
    let limiter = limiter(2);
    let layer = RateLimitLayer::new(limiter.clone());
    assert_eq!([(); 20].map(|()| status(&layer)), [200; 20]);
    assert_eq!(limiter.remaining(), Ok(2));
}

#[test]
fn a_permit_is_held_until_the_body_has_ended() {
    let layer = RateLimitLayer::new(limiter(1));
    let mut answer = send(&layer);
    assert_eq!(status(&layer), 429, "the head alone is no end");
    assert!(read(&mut answer).unwrap().is_ok() && read(&mut answer).unwrap().is_ok());
    assert_eq!(status(&layer), 429, "nor is the last frame, before it is known to be the last");
    assert!(read(&mut answer).is_none());
    assert_eq!(status(&layer), 200);
    assert_eq!(answer.status(), 200, "read, and not dropped yet");
}

#[test]
fn a_body_that_fails_or_is_dropped_has_ended() {
    let limiter = limiter(1);
    let layer = RateLimitLayer::new(limiter.clone());
    let mut answer = send_to(&layer, "/", true);
    assert!(read(&mut answer).unwrap().is_ok() && read(&mut answer).unwrap().is_err());
    assert_eq!(limiter.remaining(), Ok(1));
    let mut answer = send(&layer);
    assert!(read(&mut answer).unwrap().is_ok());
    assert_eq!(limiter.remaining(), Ok(0));
    drop(answer);
    assert_eq!(limiter.remaining(), Ok(1));
}

#[test]
fn a_service_that_fails_and_a_client_that_leaves_have_ended() {
    let limiter = limiter(1);
    let layer = RateLimitLayer::new(limiter.clone());
    let failing = service_fn(|_: Request<()>| ready(Err::<Response<Frames>, _>(Broken)));
    let mut response = Box::pin(layer.layer(failing).call(request("/")));
    assert!(matches!(response.as_mut().poll(&mut now()), Poll::Ready(Err(Broken))));
    assert_eq!(limiter.remaining(), Ok(1), "while the future is still there");

    let hanging = service_fn(|_: Request<()>| pending::<Result<Response<Frames>, Infallible>>());
    let mut response = Box::pin(layer.layer(hanging).call(request("/")));
    assert!(response.as_mut().poll(&mut now()).is_pending());
    assert_eq!(limiter.remaining(), Ok(0));
    drop(response);
    assert_eq!(limiter.remaining(), Ok(1));
}

/// A service that panics, when called or when polled, has ended.
#[test]
fn a_service_that_panics_has_ended() {
    let limiter = limiter(1);
    let layer = RateLimitLayer::new(limiter.clone());
    let called =
        service_fn(|_: Request<()>| -> std::future::Ready<Result<Response<Frames>, Infallible>> {
            panic!("as it is called")
        });
    let answering = service_fn(|_: Request<()>| {
        poll_fn(|_| -> Poll<Result<Response<Frames>, Infallible>> { panic!("as it answers") })
    });
    let outcome = catch_unwind(AssertUnwindSafe(|| drop(layer.layer(called).call(request("/")))));
    assert!(outcome.is_err());
    assert_eq!(limiter.remaining(), Ok(1));
    let mut response = Box::pin(layer.layer(answering).call(request("/")));
    let outcome = catch_unwind(AssertUnwindSafe(|| response.as_mut().poll(&mut now()).is_ready()));
    assert!(outcome.is_err());
    drop(response);
    assert_eq!(limiter.remaining(), Ok(1));
}

/// A request that does not count is in flight all the same until it has ended.
#[test]
fn a_refund_frees_no_permit_before_the_end() {
    let limiter = limiter(1);
    let layer = RateLimitLayer::new(limiter.clone()).refund_when(|head| head.status == 200);
    let answer = send(&layer);
    assert_eq!((limiter.remaining(), status(&layer)), (Ok(0), 429));
    drop(answer);
    assert_eq!((limiter.remaining(), status(&layer)), (Ok(1), 200));
}

/// An upgraded connection is no longer a request: the body of a 101 is empty, and its end counts.
#[test]
fn an_upgrade_ends_with_its_empty_body() {
    let limiter = limiter(1);
    let layer = RateLimitLayer::new(limiter.clone());
    let within = service_fn(|_: Request<()>| {
        let mut answer = Response::new(Frames::default());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        ready(Ok::<_, Infallible>(answer))
    });
    let Poll::Ready(Ok(mut answer)) = pin!(layer.layer(within).call(request("/"))).poll(&mut now())
    else {
        panic!("it answers at once")
    };
    assert_eq!((answer.status().as_u16(), limiter.remaining()), (101, Ok(0)));
    assert!(read(&mut answer).is_none());
    assert_eq!(limiter.remaining(), Ok(1), "though the connection goes on");
}

#[test]
fn each_client_has_its_own_in_flight() {
    let capacity = Capacity::for_keys(1_000);
    let keyed = Keyed::with_capacity(Concurrency::new(1), capacity);
    let layer = RateLimitLayer::keyed(keyed.clone(), key::path());
    let of = |path: &str| send_to(&layer, path, false);
    let (first, second) = (of("/1"), of("/2"));
    assert_eq!([first.status(), second.status(), of("/1").status()], [200, 200, 429]);
    drop(first);
    assert_eq!([of("/1").status(), of("/2").status()], [200, 429]);
    drop(second);
    assert_eq!(keyed.remaining(&Key::of("/1")), Ok(1));
    for client in 0..5_000 {
        assert_eq!(of(&format!("/{client}")).status(), 200, "client {client}");
    }
}

/// Clients of a full table share a limit. Their permits return to it, even after they have a limit
/// of their own.
#[test]
fn what_is_shared_in_a_full_table_comes_back() {
    let clock = ManualClock::new();
    let capacity = Capacity::for_keys(1).or_else(Overflow::Share);
    let policy = Concurrency::new(1);
    let keyed = Keyed::with_hashing(policy, capacity, Hashing::FloodSafe, clock);
    let layer = RateLimitLayer::keyed(keyed.clone(), key::path());
    let of = |path: &str| send_to(&layer, path, false);
    for _ in 0..3 {
        let own: Vec<Answer> = (0..64).map(|n| of(&format!("/own/{n}"))).collect();
        let shared = of("/late");
        drop(own);
        let again = of("/late");
        drop((shared, again));
    }
    let answers: Vec<Answer> = (0..64).map(|n| of(&format!("/end/{n}"))).collect();
    assert!(answers.iter().any(|answer| answer.status() == 429), "the table is full");
    drop(answers);
    assert_eq!(of("/late").status(), 200);
    assert_eq!(of("/last").status(), 200);
}

#[test]
fn requests_wait_for_the_end_of_others() {
    let layer = RateLimitLayer::new(limiter(1)).wait_within(Duration::from_secs(60));
    let keyed = Keyed::new(Concurrency::new(1));
    let keyed = RateLimitLayer::keyed(keyed, key::path()).wait_within(Duration::from_secs(60));
    for layer in [layer, keyed] {
        let within = service_fn(|_: Request<()>| {
            ready(Ok::<_, Infallible>(Response::new(Frames::default())))
        });
        let mut service = layer.layer(within);
        let first = send(&layer);
        let mut waiting = Box::pin(service.call(request("/")));
        assert!(waiting.as_mut().poll(&mut now()).is_pending());
        let mut abandoned = Box::pin(service.call(request("/")));
        assert!(abandoned.as_mut().poll(&mut now()).is_pending());
        drop((abandoned, first));
        let Poll::Ready(Ok(second)) = waiting.as_mut().poll(&mut now()) else { panic!("waits") };
        assert_eq!(second.status(), 200);
        let mut third = Box::pin(service.call(request("/")));
        assert!(third.as_mut().poll(&mut now()).is_pending(), "one that waited holds it too");
        drop(second);
        assert!(third.as_mut().poll(&mut now()).is_ready());
    }
}

/// The head of the response determines which requests count. Permits of others return at the end
/// of the body, without an effect.
#[test]
fn what_does_not_count_comes_back_at_the_end() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock(CommitLog::new(1, Duration::from_micros(1)), clock.clone());
    let layer = RateLimitLayer::new(limiter.clone()).refund_when(|head| head.status == 200);
    let answer = send(&layer);
    assert_eq!(limiter.remaining(), Ok(0));
    drop(answer);
    assert_eq!(limiter.remaining(), Ok(1), "no effect, so nothing cools");

    let layer = RateLimitLayer::new(limiter.clone());
    drop(send(&layer));
    assert_eq!((limiter.remaining(), clock.now_ns()), (Ok(0), 0), "its effect cools");
}

/// The limit may be chosen at run time.
#[test]
fn limits_of_any_policy_are_held_if_they_count_what_is_in_flight() {
    let bucket = AnyPolicy::from(Gcra::new("1/h".parse().unwrap(), 5).unwrap());
    let oven = AnyPolicy::from(Concurrency::new(1));
    let both = Limiter::new(AllOf::new([oven, bucket]));
    held(&RateLimitLayer::new(both.clone()), &both);
    let any = Limiter::new(bucket);
    let layer = RateLimitLayer::new(any.clone());
    let held_open = send(&layer);
    assert_eq!((any.remaining(), status(&layer)), (Ok(4), 200), "nothing is in flight");
    drop(held_open);
    let any = Limiter::new(oven);
    held(&RateLimitLayer::new(any.clone()), &any);
}

/// Checks that one request is in flight, and that its permit is free when its response has ended.
fn held(layer: &RateLimitLayer, limiter: &Limiter) {
    let held_open = send(layer);
    assert_eq!((held_open.status().as_u16(), status(layer)), (200, 429));
    drop(held_open);
    assert_eq!(limiter.remaining(), Ok(1));
}

#[tokio::test]
async fn a_server_is_limited_by_what_it_works_on() {
    let limiter = limiter(2);
    let layer = RateLimitLayer::new(limiter.clone());
    let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let client = reqwest::Client::new();
    for _ in 0..20 {
        let answer = client.get(&url).send().await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), answer.text().await.unwrap().as_str()),
            (200, "hello")
        );
    }
    server.abort();
}

/// A rate that follows refusals falls with each response that is one, here to its floor.
#[test]
fn responses_say_how_much_the_service_takes() {
    let [floor, ceiling] = [10, 64].map(Rate::per_second);
    for (status, rate) in [(200, 64), (503, 10), (404, 64), (429, 10)] {
        let clock = ManualClock::new();
        let policy = AdaptiveRate::new(floor, ceiling).burst(5);
        let limiter = Limiter::with_clock(policy, clock.clone());
        let layer = RateLimitLayer::new(limiter.clone());
        let within = service_fn(move |_: Request<()>| {
            let answer = Response::builder().status(status).body(Frames::default()).unwrap();
            ready(Ok::<_, Infallible>(answer))
        });
        match pin!(layer.layer(within).call(request("/"))).poll(&mut now()) {
            Poll::Ready(answer) => drop(answer.unwrap()),
            Poll::Pending => panic!("nothing may wait"),
        }
        clock.advance(Duration::from_secs(1));
        while limiter.try_acquire(1).unwrap().granted().is_some() {}
        let wait = limiter.peek(1).unwrap();
        let expected = Duration::from_nanos(1_000_000_000_u64.div_ceil(rate));
        assert_eq!(wait, Some(expected), "{status}");
    }
}

/// A limit that follows measurements learns from each response, and from a service that fails; a
/// client that leaves teaches nothing.
#[test]
fn responses_say_how_busy_the_service_is() {
    let adaptation = Adaptation::new(Bounds::new(1, 10, 50)).with_method(Method::Aimd);
    let limiter = Limiter::new(AdaptiveConcurrency::following(adaptation));
    let limit = || limiter.max_in_flight().unwrap().unwrap();
    let answered = |layer: &RateLimitLayer, status: u16| {
        let within = service_fn(move |_: Request<()>| {
            let answer = Response::builder().status(status).body(Frames::default()).unwrap();
            ready(Ok::<_, Infallible>(answer))
        });
        let mut service = layer.layer(within);
        // Half of the limit is in flight, so that one more is found to do no harm.
        let others = (0..limit() / 2).map(|_| limiter.try_permit(1).unwrap().unwrap());
        let others: Vec<_> = others.collect();
        match pin!(service.call(request("/"))).poll(&mut now()) {
            Poll::Ready(answer) => drop(answer.unwrap()),
            Poll::Pending => panic!("nothing may wait"),
        }
        drop(others);
        limit()
    };
    let layer = RateLimitLayer::new(limiter.clone());
    assert_eq!([200, 404, 500].map(|status| answered(&layer, status)), [11, 12, 13]);
    assert_eq!([429, 503, 504, 529].map(|status| answered(&layer, status)), [11, 9, 8, 7]);
    let classified = layer.clone().classify(|head| match head.status.as_u16() {
        500 => Outcome::Dropped,
        404 => Outcome::Ignored,
        _ => Outcome::Served,
    });
    assert_eq!([503, 404, 500].map(|status| answered(&classified, status)), [8, 8, 7]);
    let refunded = layer.clone().refund_when(|head| head.status.as_u16() == 503);
    assert_eq!(answered(&refunded, 503), 7);

    let failing = service_fn(|_: Request<()>| ready(Err::<Response<Frames>, _>(Broken)));
    let response = pin!(layer.layer(failing).call(request("/"))).poll(&mut now());
    assert!(matches!(response, Poll::Ready(Err(Broken))));
    assert_eq!(limit(), 6);
    let unanswered = service_fn(|_: Request<()>| pending::<Result<Response<Frames>, Broken>>());
    let mut response = Box::pin(layer.layer(unanswered).call(request("/")));
    assert!(response.as_mut().poll(&mut now()).is_pending());
    drop(response);
    assert_eq!((limit(), limiter.remaining()), (6, Ok(1)));
}

/// A path says its share in percent: `/50`.
fn share_of_path(head: &http::request::Parts) -> Share {
    Share::percent(head.uri.path().trim_start_matches('/').parse().unwrap_or(100))
}

/// Requests of a smaller share are refused first, and at once, while those of the whole limit wait.
#[test]
fn a_smaller_share_is_full_before_the_limit() {
    let keyed = Keyed::new(Concurrency::new(4));
    let source = key::header("x-user".parse().unwrap());
    let layers = [
        RateLimitLayer::new(limiter(4)),
        RateLimitLayer::new(Limiter::new(AnyPolicy::from(Concurrency::new(4)))),
        RateLimitLayer::keyed(keyed, source),
    ];
    for layer in layers {
        let layer = layer.share(share_of_path).wait_within(Duration::from_secs(3_600));
        let mut held = vec![send_to(&layer, "/50", false), send_to(&layer, "/", false)];
        assert_eq!(send_to(&layer, "/50", false).status(), 429, "two of two");
        held.push(send_to(&layer, "/75", false));
        assert_eq!(send_to(&layer, "/75", false).status(), 429, "three of three");
        held.push(send_to(&layer, "/", false));
        assert!(held.iter().all(|answer| answer.status() == 200));
        // It waits, and has the next permit.
        let within = service_fn(|_: Request<()>| {
            ready(Ok::<_, Infallible>(Response::new(Frames(VecDeque::new()))))
        });
        let mut service = layer.layer(within);
        let mut waiting = pin!(service.call(request("/")));
        assert!(waiting.as_mut().poll(&mut now()).is_pending());
        assert_eq!(send_to(&layer, "/75", false).status(), 429);
        held.pop();
        assert!(waiting.as_mut().poll(&mut now()).is_ready());
    }
}

/// A limit without shares refuses who has one, loudly, and takes nothing.
#[test]
fn a_limit_without_shares_says_so() {
    let keyed = Keyed::new(Gcra::per_hour(10).burst(10));
    let source = key::header("x-user".parse().unwrap());
    let limiter = Limiter::new(AnyPolicy::from(Gcra::per_hour(10).burst(10)));
    let layers = [RateLimitLayer::new(limiter.clone()), RateLimitLayer::keyed(keyed, source)];
    for layer in layers {
        let layer = layer.share(share_of_path);
        assert_eq!(send_to(&layer, "/50", false).status(), 500);
        assert_eq!(send_to(&layer, "/", false).status(), 200);
    }
    assert_eq!(limiter.remaining(), Ok(9));
}
