//! Requests that wait for their start, in virtual time.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use rategate::keyed::{Capacity, Overflow};
use rategate::wait::QueueBounds;
use rategate::{Clock, Gcra, Keyed, Limiter, ManualClock, SlidingLog};
use rategate_testkit::ns;
use rategate_tower::key::{self, Key};
use rategate_tower::{RateLimitLayer, ResponseBody};
use tower::{Layer, Service};

const MS: u64 = 1_000_000;

/// A service that records the time and path of each call. It panics if it was not ready.
struct Within {
    clock: ManualClock,
    sent: SentRequests,
    is_ready: bool,
}

type SentRequests = Arc<Mutex<Vec<(String, u64)>>>;

/// A clone has to become ready by itself.
impl Clone for Within {
    fn clone(&self) -> Self {
        Self { clock: self.clock.clone(), sent: Arc::clone(&self.sent), is_ready: false }
    }
}

impl Service<Request<Body>> for Within {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called without having been ready");
        let path = request.uri().path().to_owned();
        self.sent.lock().unwrap().push((path, self.clock.now_ns() / MS));
        ready(Ok(Response::new(Body::empty())))
    }
}

type Answer = Response<ResponseBody<Body>>;
type Pending = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

/// A server on a stepped clock.
struct Server {
    clock: ManualClock,
    layer: RateLimitLayer,
    sent: SentRequests,
}

impl Server {
    fn new(clock: &ManualClock, layer: RateLimitLayer) -> Self {
        Self { clock: clock.clone(), layer, sent: SentRequests::default() }
    }

    /// Sends a request on its own connection, polled once.
    fn send(&self, path: &str) -> (Pending, Option<Answer>) {
        let sent = Arc::clone(&self.sent);
        let within = Within { clock: self.clock.clone(), sent, is_ready: false };
        let mut service = self.layer.layer(within);
        let mut context = Context::from_waker(Waker::noop());
        assert!(service.poll_ready(&mut context).is_ready());
        let request = Request::get(path).body(Body::empty()).unwrap();
        let mut pending: Pending = Box::pin(service.call(request));
        let answer = poll(&mut pending);
        (pending, answer)
    }

    fn sent(&self) -> Vec<(String, u64)> {
        std::mem::take(&mut self.sent.lock().unwrap())
    }
}

fn poll(pending: &mut Pending) -> Option<Answer> {
    match pending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer.unwrap()),
        Poll::Pending => None,
    }
}

/// Returns the status and the `Retry-After` field.
fn status(answer: Option<Answer>) -> (u16, Option<String>) {
    let answer = answer.unwrap();
    let retry_after = answer
        .headers()
        .get("retry-after")
        .map(|retry_after| retry_after.to_str().unwrap().to_owned());
    (answer.status().as_u16(), retry_after)
}

fn at(path: &str, ms: u64) -> (String, u64) {
    (path.to_owned(), ms)
}

/// Returns a limiter of ten permits per second, one at a time.
fn limiter(clock: &ManualClock) -> Limiter<ManualClock> {
    Limiter::with_clock(Gcra::new("10/s".parse().unwrap(), 1).unwrap(), clock.clone())
}

fn server(max_wait_ms: u64) -> (Server, Limiter<ManualClock>) {
    let clock = ManualClock::stepped();
    let limiter = limiter(&clock);
    let max_wait = Duration::from_millis(max_wait_ms);
    let layer = RateLimitLayer::new(limiter.clone()).wait_within(max_wait);
    (Server::new(&clock, layer), limiter)
}

#[test]
fn requests_pass_in_the_order_of_asking_and_at_their_instants() {
    let (server, _) = server(300);
    let mut waiting: Vec<_> = ["/0", "/1", "/2", "/3"].map(|path| server.send(path)).into();
    assert_eq!(server.sent(), [at("/0", 0)]);
    assert_eq!(status(waiting.remove(0).1), (200, None));

    // Its start would be at 400 ms.
    let late = server.send("/4");
    assert_eq!(status(late.1), (429, Some("1".to_owned())));

    while server.clock.step().is_some() {
        waiting.retain_mut(|(pending, _)| poll(pending).is_none());
    }
    assert_eq!(server.sent(), [at("/1", 100), at("/2", 200), at("/3", 300)]);
    assert!(waiting.is_empty());
}

/// A client that follows a refusal may join the queue, though not pass at once.
#[test]
fn retry_after_is_when_the_queue_is_short_enough() {
    let clock = ManualClock::stepped();
    let policy = Gcra::new("1/2s".parse().unwrap(), 1).unwrap();
    let limiter = Limiter::with_clock(policy, clock.clone());
    let layer = RateLimitLayer::new(limiter).wait_within(Duration::from_secs(3));
    let server = Server::new(&clock, layer);
    let _waiters = ["/0", "/1"].map(|path| server.send(path));
    // Its start would be after 4 s, one more than it may wait.
    assert_eq!(status(server.send("/2").1), (429, Some("1".to_owned())));
    clock.advance(Duration::from_nanos(1000 * MS - 1));
    assert_eq!(status(server.send("/2").1), (429, Some("1".to_owned())));
    clock.advance(Duration::from_nanos(1));
    let (_pending, answer) = server.send("/2");
    assert!(answer.is_none(), "it waits");
}

#[test]
fn a_dropped_request_leaves_the_queue() {
    let (server, limiter) = server(300);
    let mut line: Vec<_> = ["/0", "/1", "/2", "/3"].map(|path| server.send(path)).into();
    assert_eq!(limiter.waiting(), Ok(3));
    drop(line.remove(1));
    assert_eq!(limiter.waiting(), Ok(2));
    line.push(server.send("/4"));
    while server.clock.step().is_some() {
        line.retain_mut(|(pending, answer)| answer.is_none() && poll(pending).is_none());
    }
    let expected = [at("/0", 0), at("/2", 100), at("/3", 200), at("/4", 300)];
    assert_eq!(server.sent(), expected);
}

#[test]
fn a_full_queue_and_a_closed_limiter_are_503() {
    let (server, limiter) = server(10_000);
    limiter.bound_queue(QueueBounds::new(1)).unwrap();
    let _passed = server.send("/0");
    let (mut waiting, none) = server.send("/1");
    assert!(none.is_none());
    assert_eq!(status(server.send("/2").1), (503, None));
    limiter.close();
    assert_eq!(status(poll(&mut waiting)), (503, None));
    assert_eq!(server.sent(), [at("/0", 0)]);
}

#[test]
fn without_a_wait_time_requests_do_not_wait() {
    let (server, limiter) = server(0);
    assert_eq!(status(server.send("/0").1), (200, None));
    assert_eq!(status(server.send("/1").1), (429, Some("1".to_owned())));
    assert_eq!(limiter.waiting(), Ok(0));
}

/// A table for one key: a key with a waiting request is not evicted, even if the request was not
/// yet polled.
#[test]
fn a_key_with_waiters_stays_in_the_table() {
    let clock = ManualClock::stepped();
    let capacity = Capacity::for_keys(1).or_else(Overflow::Refuse);
    let policy = SlidingLog::new(1, Duration::from_nanos(100 * MS));
    let keyed = Keyed::with_clock(policy, capacity, clock.clone());
    let layer = RateLimitLayer::keyed(keyed.clone(), key::path());
    let server = Server::new(&clock, layer.wait_within(Duration::from_secs(1)));
    assert_eq!(status(server.send("/a").1), (200, None));

    let sent = Arc::clone(&server.sent);
    let within = Within { clock: clock.clone(), sent, is_ready: true };
    let mut service = server.layer.layer(within);
    let mut not_polled: Pending =
        Box::pin(service.call(Request::get("/a").body(Body::empty()).unwrap()));
    clock.advance(Duration::from_secs(1));
    assert_eq!(status(server.send("/b").1), (503, None), "there is no slot for another key");
    assert_eq!(status(poll(&mut not_polled)), (200, None));
    drop(not_polled);

    clock.advance(Duration::from_millis(100));
    assert_eq!(status(server.send("/b").1), (200, None), "at rest");
    assert_eq!(keyed.len(), 1);
}

/// The permits of a request that waited are refunded by the table, once no request holds the key's
/// limiter.
#[test]
fn what_was_waited_for_may_come_back() {
    let clock = ManualClock::stepped();
    let policy = SlidingLog::new(1, Duration::from_nanos(100 * MS));
    let keyed = Keyed::with_clock(policy, Capacity::default(), clock.clone());
    let layer = RateLimitLayer::keyed(keyed.clone(), key::path());
    let layer = layer.wait_within(Duration::from_secs(1)).refund_when(|_| true);
    let server = Server::new(&clock, layer);
    assert!(keyed.try_acquire(&Key::of("/a"), 1).unwrap().is_granted());
    let (mut pending, answer) = server.send("/a");
    assert!(answer.is_none());
    clock.advance(Duration::from_millis(100));
    assert_eq!(keyed.remaining(&Key::of("/a")), Ok(0), "it is the request's");
    assert_eq!(status(poll(&mut pending)), (200, None));
    assert_eq!(server.sent(), [at("/a", 100)]);
    assert_eq!(keyed.remaining(&Key::of("/a")), Ok(1), "and has come back");
}

/// Only keys with waiting requests take two kilobytes, and their number is bounded.
#[test]
fn waiting_keys_are_bounded_by_the_capacity() {
    let clock = ManualClock::stepped();
    let capacity = Capacity { max_bytes: 5000, ..Capacity::default() };
    let policy = Gcra::new("10/s".parse().unwrap(), 1).unwrap();
    let keyed = Keyed::with_clock(policy, capacity, clock.clone());
    let layer = RateLimitLayer::keyed(keyed.clone(), key::path());
    let server = Server::new(&clock, layer.wait_within(Duration::from_secs(1)));
    let bytes = keyed.bytes();
    for path in ["/a", "/b", "/c"] {
        assert_eq!(status(server.send(path).1), (200, None));
    }
    assert_eq!(keyed.bytes(), bytes);
    let mut waiting: Vec<_> = ["/a", "/b", "/b"].map(|path| server.send(path)).into();
    assert_eq!(
        status(server.send("/c").1),
        (503, None),
        "there is no memory for another waiting key"
    );
    assert_eq!(status(server.send("/d").1), (200, None), "that need not wait");
    assert!(keyed.bytes() >= bytes + 4096);

    let passed = [at("/a", 0), at("/b", 0), at("/c", 0), at("/d", 0)];
    assert_eq!(server.sent(), passed);
    while server.clock.step().is_some() {
        waiting.retain_mut(|(pending, answer)| answer.is_none() && poll(pending).is_none());
    }
    let passed = [at("/a", 100), at("/b", 100), at("/b", 200)];
    assert_eq!(server.sent(), passed);
    drop(waiting);
    assert!(keyed.bytes() < bytes + 4096, "a key without waiters is small again");
    clock.advance(Duration::from_secs(1));
    assert_eq!(status(server.send("/c").1), (200, None));
    let (pending, answer) = server.send("/c");
    assert!(answer.is_none(), "it waits");
    let waiting = keyed.bytes();
    drop(pending);
    assert!(keyed.bytes() + 1800 <= waiting, "and so is a key whose waiter has left");
}

/// A real runtime, with the clock's own timer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_end_on_any_runtime() {
    let limiter = Limiter::new(SlidingLog::new(5, Duration::from_nanos(20 * MS)));
    let layer = RateLimitLayer::new(limiter.clone()).wait_within(Duration::from_secs(20));
    let within = tower::service_fn(|_: Request<Body>| {
        ready(Ok::<_, Infallible>(Response::new(Body::empty())))
    });
    let began_ns = ns(limiter.now());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let service = layer.layer(within);
        tasks.spawn(tower::ServiceExt::oneshot(service, Request::new(Body::empty())));
    }
    for answer in tasks.join_all().await {
        assert_eq!(answer.unwrap().status(), 200);
    }
    assert!(ns(limiter.now()) - began_ns >= 9 * 20 * MS, "fifty take ten windows");
}
