//! A real server on a free port of this machine, with many connections.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::map_request;
use axum::routing::get;
use http::request::Parts;
use rategate::keyed::Capacity;
use rategate::{Clock, Keyed, Limiter, MonotonicClock, SlidingLog};
use rategate_tower::RateLimitLayer;
use rategate_tower::headers::{Headers, QuotaPolicy};
use rategate_tower::key::{self, Field, Trust};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const MS: u64 = 1_000_000;

/// A request that reached the inner service. It passed the limit between the two readings.
#[derive(Clone, Debug)]
struct Seen {
    before_ns: u64,
    after_ns: u64,
    peer: SocketAddr,
    forwarded: String,
}

type Log = Arc<Mutex<Vec<Seen>>>;

/// The time at which a request reached the layer.
#[derive(Clone, Copy)]
struct Before(u64);

/// Serves behind `layer` until the test's runtime ends.
async fn serve(layer: RateLimitLayer, clock: MonotonicClock) -> (String, Log) {
    let log = Log::default();
    let notes = Arc::clone(&log);
    let note = move |head: &Parts| {
        let Before(before_ns) = *head.extensions.get().unwrap();
        let ConnectInfo(peer) = *head.extensions.get().unwrap();
        let forwarded = head.headers.get("x-forwarded-for").map(|it| it.to_str().unwrap());
        let forwarded = forwarded.unwrap_or_default().to_owned();
        let seen = Seen { before_ns, after_ns: clock.now_ns(), peer, forwarded };
        notes.lock().unwrap().push(seen);
    };
    let handler = move |request: Request| {
        note(&request.into_parts().0);
        async { "within" }
    };
    let stamp = move |mut request: Request| {
        request.extensions_mut().insert(Before(clock.now_ns()));
        async move { request }
    };
    let app = Router::new().route("/", get(handler)).layer(layer).layer(map_request(stamp));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    (url, log)
}

/// Returns the largest number of requests that certainly passed within one window. They reached
/// the layer after the window's first request had passed, and passed before the window ended.
fn fullest(log: &[Seen], window_ns: u64) -> usize {
    let windows = log.iter().map(|first| {
        let is_within = |seen: &&Seen| {
            let starts_with = seen.before_ns == first.before_ns && seen.peer == first.peer;
            let is_later = seen.before_ns >= first.after_ns;
            starts_with || is_later && seen.after_ns < first.before_ns + window_ns
        };
        log.iter().filter(is_within).count()
    });
    windows.max().unwrap_or(0)
}

/// Returns the `Retry-After` of a refusal, or `None` for a response that passed.
fn retry_after(response: &reqwest::Response) -> Option<u64> {
    let header = response.headers().get("retry-after");
    match response.status().as_u16() {
        200 => assert_eq!(header, None),
        429 => return Some(header.unwrap().to_str().unwrap().parse().unwrap()),
        other => panic!("status {other}"),
    }
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_limit_holds_over_all_connections() {
    const CONNECTIONS: usize = 24;
    const LIMIT: usize = 20;
    const WINDOW_NS: u64 = 100 * MS;
    let clock = MonotonicClock::new();
    let limiter = Limiter::with_clock(SlidingLog::new(20, Duration::from_nanos(WINDOW_NS)), clock);
    let (url, log) = serve(RateLimitLayer::new(limiter), clock).await;

    // Each client has its own pool, and so a connection.
    let clients: Vec<_> = (0..CONNECTIONS).map(|_| reqwest::Client::new()).collect();
    let until_ns = clock.now_ns() + 10 * WINDOW_NS;
    let mut tasks = JoinSet::new();
    for client in clients {
        let url = url.clone();
        tasks.spawn(async move {
            let (mut passed, mut refused) = (0_usize, 0_usize);
            while clock.now_ns() < until_ns && passed + refused < 5000 {
                let response = client.get(&url).send().await.unwrap();
                match retry_after(&response) {
                    None => passed += 1,
                    Some(seconds) => {
                        assert_eq!(seconds, 1, "what is left of 100 ms, rounded up");
                        refused += 1;
                    }
                }
                assert!(!response.bytes().await.unwrap().is_empty());
            }
            (passed, refused)
        });
    }
    let counts = tasks.join_all().await;
    let passed: usize = counts.iter().map(|(passed, _)| passed).sum();
    let refused: usize = counts.iter().map(|(_, refused)| refused).sum();

    let log = log.lock().unwrap();
    let peers: HashSet<SocketAddr> = log.iter().map(|seen| seen.peer).collect();
    println!("{passed} passed and {refused} refused on {} connections", peers.len());
    assert_eq!(log.len(), passed, "a refused request does not reach the service");
    assert!(fullest(&log, WINDOW_NS) <= LIMIT, "{} in a window", fullest(&log, WINDOW_NS));
    // A loose bound, so that a busy machine does not matter: three of ten windows.
    assert!(passed >= 3 * LIMIT, "and the limit is used: {passed}");
    assert!(refused > 0, "there was more to do than the limit lets through");
    assert!(peers.len() > 1, "more than one connection was served");
}

/// Clients behind a proxy, each with its own limit, forge a new origin in each request. They send
/// until they are refused, wait for the stated time, and pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_client_that_obeys_a_refusal_passes() {
    const CLIENTS: u8 = 12;
    const LIMIT: usize = 5;
    const WINDOW_NS: u64 = 1200 * MS;
    let clock = MonotonicClock::new();
    let policy = SlidingLog::new(5, Duration::from_nanos(WINDOW_NS));
    let keyed = Keyed::with_clock(policy, Capacity::default(), clock);
    let peer = key::peer(|info: &ConnectInfo<SocketAddr>| info.0.ip());
    let proxies = Trust::Networks(vec!["127.0.0.0/8".parse().unwrap()]);
    let quota = QuotaPolicy::new("client", 5, Duration::from_nanos(WINDOW_NS)).unwrap();
    let source = key::client(peer, Field::XForwardedFor, proxies);
    let layer = RateLimitLayer::keyed(keyed.clone(), source).headers(Headers::new(quota));
    let (url, log) = serve(layer, clock).await;

    let mut tasks = JoinSet::new();
    for number in 1..=CLIENTS {
        let url = url.clone();
        tasks.spawn(async move {
            let client = reqwest::Client::new();
            let mut nonce = 0_u8;
            let mut send = async || {
                nonce += 1;
                let from = format!("6.6.{nonce}.{number}, 192.0.2.{number}");
                let request = client.get(&url).header("x-forwarded-for", from);
                let response = request.send().await.unwrap();
                assert!(response.headers().contains_key("ratelimit"));
                retry_after(&response)
            };
            for _ in 0..2 {
                let mut passed = 0;
                let seconds = loop {
                    match send().await {
                        Some(seconds) => break seconds,
                        None => passed += 1,
                    }
                    assert!(passed < 50, "client {number} is not limited");
                };
                assert!((1..=2).contains(&seconds), "{seconds} s of a window of 1.2 s");
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                assert_eq!(send().await, None, "client {number} waited for {seconds} s, as stated");
            }
        });
    }
    tasks.join_all().await;

    let log = log.lock().unwrap();
    for number in 1..=CLIENTS {
        let client = format!(", 192.0.2.{number}");
        let own = log.iter().filter(|seen| seen.forwarded.ends_with(&client));
        let own: Vec<Seen> = own.cloned().collect();
        assert!(own.len() > LIMIT, "{}", own.len());
        assert!(fullest(&own, WINDOW_NS) <= LIMIT);
    }
    assert_eq!(keyed.len(), usize::from(CLIENTS), "what clients make up is no key");
}

/// More requests wait than the limit lets through at once, and none is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_wait_all_pass() {
    const CONNECTIONS: usize = 24;
    const WINDOW_NS: u64 = 50 * MS;
    let clock = MonotonicClock::new();
    let limiter = Limiter::with_clock(SlidingLog::new(12, Duration::from_nanos(WINDOW_NS)), clock);
    let layer = RateLimitLayer::new(limiter).wait_within(Duration::from_secs(60));
    let (url, log) = serve(layer, clock).await;

    let began_ns = clock.now_ns();
    let mut tasks = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (client, url) = (reqwest::Client::new(), url.clone());
        tasks.spawn(async move {
            for _ in 0..5 {
                let response = client.get(&url).send().await.unwrap();
                assert_eq!(retry_after(&response), None);
                assert_eq!(response.bytes().await.unwrap(), "within");
            }
        });
    }
    tasks.join_all().await;
    let took_ns = clock.now_ns() - began_ns;
    assert!(took_ns >= 9 * WINDOW_NS, "a hundred and twenty take ten windows: {took_ns} ns");

    // At any instant, no more requests have reached the service than the limit allows.
    let mut passed_ns: Vec<u64> = log.lock().unwrap().iter().map(|seen| seen.after_ns).collect();
    passed_ns.sort_unstable();
    assert_eq!(passed_ns.len(), 5 * CONNECTIONS);
    for (windows, group) in (0..).zip(passed_ns.chunks(12)) {
        assert!(group[0] - began_ns >= windows * WINDOW_NS, "window {windows}");
    }
}

/// A request whose client disconnects while it waits leaves the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_disconnects_leaves_the_queue() {
    let clock = MonotonicClock::new();
    let limiter = Limiter::with_clock(SlidingLog::new(1, Duration::from_nanos(60_000 * MS)), clock);
    let layer = RateLimitLayer::new(limiter.clone()).wait_within(Duration::from_secs(600));
    let (url, log) = serve(layer, clock).await;
    let get = async || reqwest::Client::new().get(&url).send().await;
    assert_eq!(retry_after(&get().await.unwrap()), None);

    // Returns once `count` requests wait.
    let waiting = async |count: u32| {
        while limiter.waiting().unwrap() != count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let churn = async {
        tokio::select! {
            _ = get() => panic!("the limit is reached"),
            () = waiting(1) => {}
        }
        waiting(0).await;
    };
    tokio::time::timeout(Duration::from_secs(30), churn).await.unwrap();
    assert_eq!(log.lock().unwrap().len(), 1);
}
