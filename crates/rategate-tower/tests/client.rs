//! Paced clients of limited services, in virtual time.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::ready;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use rategate::{
    AcquireError, AdaptiveRate, Clock, Concurrency, Gcra, Limiter, ManualClock, Rate, SlidingLog,
    TokioClock,
};
use rategate_tower::RateLimitLayer;
use rategate_tower::client::{Pace, PaceError, PaceLayer, Tokens};
use rategate_tower::headers::{Headers, QuotaPolicy};
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceExt, service_fn};

const S: u64 = 1_000_000_000;

type Server = BoxCloneService<Request<Body>, Response<Body>, Infallible>;

/// Returns a layer that waits by advancing the clock, and whose holds end when the server says.
fn layer(clock: &ManualClock) -> PaceLayer {
    spreading(clock).jitter(Duration::ZERO)
}

/// Returns a layer that waits by advancing the clock, with the default jitter.
fn spreading(clock: &ManualClock) -> PaceLayer {
    let sleep_clock = clock.clone();
    PaceLayer::new(move |time: Duration| {
        sleep_clock.advance(Duration::from_nanos(u64::try_from(time.as_nanos()).unwrap()));
        ready(())
    })
    .clock(clock.clone())
}

/// Returns a server that replies from a script, and then always with a plain 200. Records its
/// request times.
fn scripted(
    clock: &ManualClock,
    script: &[(u16, &[(&str, &str)])],
) -> (Server, Arc<Mutex<Vec<u64>>>) {
    let sent_ns = Arc::new(Mutex::new(Vec::new()));
    let (notes, clock) = (Arc::clone(&sent_ns), clock.clone());
    let answers: Vec<Response<()>> = script
        .iter()
        .rev()
        .map(|(status, fields)| {
            let mut response = Response::builder().status(*status);
            for (name, value) in *fields {
                response = response.header(*name, *value);
            }
            response.body(()).unwrap()
        })
        .collect();
    let answers = Arc::new(Mutex::new(answers));
    let server = service_fn(move |_: Request<Body>| {
        notes.lock().unwrap().push(clock.now_ns());
        let answer = answers.lock().unwrap().pop().unwrap_or_default();
        ready(Ok::<_, Infallible>(answer.map(|()| Body::empty())))
    });
    (BoxCloneService::new(server), sent_ns)
}

async fn send(client: &Pace<Server>) -> Result<StatusCode, PaceError<Infallible>> {
    let response = client.clone().oneshot(Request::new(Body::empty())).await?;
    Ok(response.status())
}

#[tokio::test]
async fn all_clones_hold_until_the_instant_that_the_server_names() {
    let clock = ManualClock::new();
    let layer = layer(&clock);
    let (server, sent_ns) = scripted(&clock, &[(200, &[]), (429, &[("retry-after", "7")])]);
    let (one, other) = (layer.layer(server.clone()), layer.clone().layer(server));
    assert_eq!(send(&one).await.unwrap(), 200);
    assert_eq!(send(&one).await.unwrap(), 429, "the caller sees what came");
    assert_eq!(send(&other).await.unwrap(), 200);
    assert_eq!(*sent_ns.lock().unwrap(), [0, 0, 7 * S]);
}

#[tokio::test]
async fn what_remains_is_spread_until_the_reset() {
    let clock = ManualClock::new();
    let fields: &[(&str, &str)] = &[("ratelimit", r#""p";r=3;t=8"#)];
    let (server, sent_ns) = scripted(&clock, &[(200, fields)]);
    let client = layer(&clock).layer(server.clone());
    for _ in 0..6 {
        assert_eq!(send(&client).await.unwrap(), 200);
    }
    // Three in the eight seconds. After that nothing is known.
    assert_eq!(*sent_ns.lock().unwrap(), [0, 2 * S, 4 * S, 6 * S, 8 * S, 8 * S]);

    let clock = ManualClock::new();
    let (server, sent_ns) = scripted(&clock, &[(200, fields)]);
    let client = layer(&clock).without_spreading().layer(server);
    for _ in 0..3 {
        assert_eq!(send(&client).await.unwrap(), 200);
    }
    assert_eq!(*sent_ns.lock().unwrap(), [0, 0, 0]);
}

/// A server that says nothing of its limit: the client finds it, and few of its requests are
/// refused.
#[tokio::test]
async fn an_unknown_rate_is_found() {
    let clock = ManualClock::new();
    let hidden = Limiter::with_clock(Gcra::per_second(100).burst(20), clock.clone());
    let counts = Arc::new(Mutex::new([0_u64; 2]));
    let seen = Arc::clone(&counts);
    let server = service_fn(move |_: Request<Body>| {
        let passes = hidden.try_acquire(1).unwrap().granted().is_some();
        seen.lock().unwrap()[usize::from(passes)] += 1;
        let status = if passes { 200 } else { 429 };
        ready(Ok::<_, Infallible>(Response::builder().status(status).body(Body::empty()).unwrap()))
    });
    let [floor, ceiling] = [1, 500].map(Rate::per_second);
    let policy = AdaptiveRate::new(floor, ceiling);
    let limiter = Limiter::with_clock(policy, clock.clone());
    let client = layer(&clock).limiter(limiter).layer(BoxCloneService::new(server));
    let until = async |end_ns: u64| {
        while clock.now_ns() < end_ns {
            let _ = send(&client).await.unwrap();
        }
    };
    until(20 * S).await;
    *counts.lock().unwrap() = [0; 2];
    until(120 * S).await;
    let [refused, passed] = *counts.lock().unwrap();
    assert!(passed * 1000 >= 970 * 10_000, "{passed} of 10000");
    assert!(refused * 200 <= passed, "{refused} refused");
}

/// The permit of a limit on requests in flight comes back with the response, and if there is none.
#[tokio::test]
async fn permits_in_flight_come_back() {
    let clock = ManualClock::new();
    let (server, _) = scripted(&clock, &[(429, &[("retry-after", "1")])]);
    let limiter = Limiter::with_clock(Concurrency::new(1), clock.clone());
    let layer = layer(&clock).limiter(limiter.clone());
    let client = layer.layer(server);
    for _ in 0..3 {
        send(&client).await.unwrap();
        assert_eq!(limiter.remaining(), Ok(1));
    }
    let never = service_fn(|_: Request<Body>| std::future::pending::<Result<_, Infallible>>());
    let stuck = layer.layer(BoxCloneService::new(never));
    let mut call = Box::pin(send(&stuck));
    assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(limiter.remaining(), Ok(0));
    drop(call);
    assert_eq!(limiter.remaining(), Ok(1));
}

/// Returns when fifty clients come back that were refused for 25 s in the same instant.
async fn come_back(layer: impl Fn(&ManualClock) -> PaceLayer) -> Vec<u64> {
    let mut starts = Vec::new();
    for _ in 0..50 {
        let clock = ManualClock::new();
        let (server, sent_ns) = scripted(&clock, &[(429, &[("retry-after", "25")])]);
        let client = layer(&clock).layer(server);
        assert_eq!(send(&client).await.unwrap(), 429);
        assert_eq!(send(&client).await.unwrap(), 200);
        starts.extend(sent_ns.lock().unwrap().get(1));
    }
    starts.sort_unstable();
    starts
}

/// Clients that were refused together come back over the jitter, by default a fifth of the hold,
/// and none too soon.
#[tokio::test]
async fn a_jitter_spreads_clients_after_a_hold() {
    let twice = |clock: &ManualClock| spreading(clock).jitter(Duration::from_secs(10));
    for (starts, max_ns) in [(come_back(spreading).await, 5 * S), (come_back(twice).await, 10 * S)]
    {
        assert!(starts[0] >= 25 * S && starts[49] <= 25 * S + max_ns, "{starts:?}");
        assert!(starts[49] - starts[0] > max_ns / 2, "{starts:?}");
    }
    assert_eq!(come_back(layer).await, [25 * S; 50]);
}

/// A thousand requests that wait for the end of a hold then come at the limiter's rate. Their
/// process comes back half a minute late at most.
#[tokio::test(start_paused = true)]
async fn a_crowd_comes_back_at_the_rate_of_the_limiter() {
    let begun = tokio::time::Instant::now();
    let sent = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&sent);
    let server = service_fn(move |_: Request<Body>| {
        let mut sent = notes.lock().unwrap();
        sent.push(begun.elapsed());
        let mut response = Response::new(Body::empty());
        if sent.len() == 1 {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            response.headers_mut().insert("retry-after", 600.into());
        }
        ready(Ok::<_, Infallible>(response))
    });
    let clock = TokioClock::current();
    let limiter = Limiter::with_clock(Gcra::per_second(100), clock.clone());
    let layer = PaceLayer::new(tokio::time::sleep).clock(clock).limiter(limiter);
    let client = layer.layer(BoxCloneService::new(server));
    assert_eq!(send(&client).await.unwrap(), 429);
    let mut crowd = tokio::task::JoinSet::new();
    for _ in 0..1_000 {
        let client = client.clone();
        let request = Request::new(Body::empty());
        crowd.spawn(async move { client.oneshot(request).await.unwrap().status() });
    }
    assert!(crowd.join_all().await.iter().all(StatusCode::is_success));
    let sent = sent.lock().unwrap();
    assert!((600..=630).contains(&sent[1].as_secs()), "{:?}", sent[1]);
    assert!(sent[1_000] < sent[1] + Duration::from_secs(11), "{:?}", sent[1_000]);
    // The timers of the runtime are in milliseconds.
    let closest = sent.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).min();
    assert!(closest >= Some(Duration::from_millis(9)), "{closest:?}");
    let second = Duration::from_secs(1);
    let fullest = (1..=1_000).map(|at| sent[at..].partition_point(|it| *it < sent[at] + second));
    assert!(fullest.max() <= Some(100), "at most a second's permits");
}

/// With its cost, a request waits for the tokens that it takes.
#[tokio::test]
async fn requests_wait_for_their_tokens() {
    let fields: &[(&str, &str)] = &[
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-limit-tokens", "1000"),
        ("x-ratelimit-remaining-tokens", "400"),
        ("x-ratelimit-reset-tokens", "1m0s"),
    ];
    for (knows_tokens, expected_s) in [(true, 10), (false, 0)] {
        let clock = ManualClock::new();
        let (server, sent_ns) = scripted(&clock, &[(200, fields)]);
        let mut layer = layer(&clock).without_spreading();
        if knows_tokens {
            layer = layer.cost(|head| head.extensions.get::<Tokens>().copied().unwrap_or_default());
        }
        let client = layer.layer(server);
        for input in [0, 500] {
            let mut request = Request::new(Body::empty());
            request.extensions_mut().insert(Tokens { input, output: 0 });
            client.clone().oneshot(request).await.unwrap();
        }
        assert_eq!(*sent_ns.lock().unwrap(), [0, expected_s * S]);
    }
}

/// A request without a response counts, and one that the limiter refused does not.
#[tokio::test]
async fn requests_without_a_response_count() {
    let clock = ManualClock::new();
    let count = Arc::new(Mutex::new(0));
    let notes = Arc::clone(&count);
    // The first response reports that three remain, and the second request has none.
    let server = service_fn(move |_: Request<Body>| {
        let mut count = notes.lock().unwrap();
        *count += 1;
        let response = match *count {
            1 => Response::builder().header("ratelimit", r#""x";r=3;t=60"#),
            _ => Response::builder(),
        };
        ready(if *count == 2 { Err("lost") } else { Ok(response.body(Body::empty()).unwrap()) })
    });
    let limiter = Limiter::with_clock(SlidingLog::new(2, Duration::from_nanos(S)), clock.clone());
    let layer = layer(&clock).without_spreading().max_wait(Duration::ZERO).limiter(limiter);
    let client = layer.layer(server);
    let send = || async { client.clone().oneshot(Request::new(Body::empty())).await };
    assert!(send().await.is_ok());
    assert_eq!(send().await.unwrap_err(), PaceError::Client("lost"));
    for _ in 0..9 {
        assert!(matches!(send().await, Err(PaceError::TooLong { wait }) if wait.as_secs() < 2));
    }
    clock.advance(Duration::from_secs(1));
    assert!(send().await.is_ok() && send().await.is_ok());
    clock.advance(Duration::from_secs(1));
    assert_eq!(send().await.unwrap_err(), PaceError::TooLong { wait: Duration::from_secs(58) });
    assert_eq!(*count.lock().unwrap(), 4);
}

#[tokio::test]
async fn absurd_holds_are_cut() {
    let clock = ManualClock::new();
    let forever: &[(&str, &str)] = &[("retry-after", "31536000000")];
    let (server, sent_ns) = scripted(&clock, &[(429, forever), (503, forever)]);
    let client = layer(&clock).max_hold(Duration::from_secs(10)).layer(server);
    for _ in 0..3 {
        let _ = send(&client).await.unwrap();
    }
    assert_eq!(*sent_ns.lock().unwrap(), [0, 10 * S, 20 * S]);
}

#[tokio::test]
async fn a_wait_over_the_maximum_fails_at_once() {
    let clock = ManualClock::new();
    let (server, sent_ns) = scripted(&clock, &[(429, &[("retry-after", "60")])]);
    let limiter =
        Limiter::with_clock(SlidingLog::new(2, Duration::from_nanos(9 * S)), clock.clone());
    let layer = layer(&clock).max_wait(Duration::from_secs(5)).limiter(limiter.clone());
    let client = layer.layer(server);
    assert_eq!(send(&client).await.unwrap(), 429);
    let wait = Duration::from_secs(60);
    assert_eq!(send(&client).await.unwrap_err(), PaceError::TooLong { wait });
    assert_eq!((clock.now_ns(), limiter.remaining()), (0, Ok(1)), "and has taken nothing");

    clock.set(Duration::from_secs(60));
    assert_eq!(send(&client).await.unwrap(), 200);
    assert_eq!(send(&client).await.unwrap(), 200);
    let wait = Duration::from_secs(9);
    assert_eq!(send(&client).await.unwrap_err(), PaceError::TooLong { wait });
    limiter.close();
    assert_eq!(send(&client).await.unwrap_err(), PaceError::Limiter(AcquireError::Closed));
    assert_eq!(sent_ns.lock().unwrap().len(), 3);
}

/// The bound counts waiting requests: one that leaves frees its slot, and requests that need not
/// wait are not counted.
#[tokio::test]
async fn no_more_requests_wait_than_may() {
    let clock = ManualClock::new();
    let (server, sent_ns) = scripted(&clock, &[(429, &[("retry-after", "60")])]);
    let layer = PaceLayer::new(|_| std::future::pending()).clock(clock.clone()).bound_queue(2);
    let layer = layer.jitter(Duration::ZERO);
    let client = layer.layer(server);
    assert_eq!(send(&client).await.unwrap(), 429);
    let (mut one, mut other) = (Box::pin(send(&client)), Box::pin(send(&client)));
    assert_eq!([at_once(one.as_mut()), at_once(other.as_mut())], [None, None]);
    assert_eq!(send(&client).await, Err(PaceError::QueueFull));
    drop(one);
    let mut third = Box::pin(send(&client));
    assert_eq!(at_once(third.as_mut()), None);
    assert_eq!(send(&client).await, Err(PaceError::QueueFull));
    drop((other, third));
    clock.set(Duration::from_secs(60));
    for _ in 0..5 {
        assert_eq!(send(&client).await.unwrap(), 200);
    }
    assert_eq!(sent_ns.lock().unwrap().len(), 6);
}

/// Returns the output of a future if one poll completes it.
fn at_once<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn the_clients_own_limit_holds_whatever_the_server_says() {
    let clock = ManualClock::new();
    let (server, sent_ns) = scripted(&clock, &[(200, &[]), (429, &[("retry-after", "2")])]);
    let limiter = Limiter::with_clock(Gcra::new("2/s".parse().unwrap(), 1).unwrap(), clock.clone());
    let client = layer(&clock).limiter(limiter).layer(server);
    for _ in 0..5 {
        let _ = send(&client).await.unwrap();
    }
    let halves: Vec<u64> = sent_ns.lock().unwrap().iter().map(|ns| ns / (S / 2)).collect();
    assert_eq!(halves, [0, 1, 5, 6, 7]);
}

/// Client and server are both ours: a client that follows the hints is refused only when it could
/// not know.
#[tokio::test]
async fn a_client_that_learns_is_not_refused() {
    let clock = ManualClock::new();
    let quota = QuotaPolicy::new("p", 10, Duration::from_secs(5)).unwrap();
    let limiter =
        Limiter::with_clock(SlidingLog::new(10, Duration::from_nanos(5 * S)), clock.clone());
    let limit = RateLimitLayer::new(limiter).headers(Headers::new(quota));
    let within =
        service_fn(|_: Request<Body>| ready(Ok::<_, Infallible>(Response::new(Body::empty()))));
    let server = limit.layer(within).map_response(|response| response.map(Body::new));
    let client = layer(&clock).layer(BoxCloneService::new(server));
    for _ in 0..200 {
        assert_eq!(send(&client).await.unwrap(), 200);
    }
    let fair_s = 200 / 2;
    assert!(clock.now_ns() <= 2 * fair_s * S, "{} s", clock.now_ns() / S);
}

/// A request that is dropped while it waits has taken nothing from the limiter.
#[tokio::test]
async fn an_abandoned_wait_takes_its_start_back() {
    let clock = ManualClock::stepped();
    let (server, _) = scripted(&clock, &[]);
    let limiter = Limiter::with_clock(SlidingLog::new(1, Duration::from_nanos(S)), clock.clone());
    let layer = PaceLayer::new(|_| std::future::pending()).clock(clock.clone());
    let client = layer.limiter(limiter.clone()).layer(server);
    assert_eq!(send(&client).await.unwrap(), 200);
    for _ in 0..10 {
        let mut waiting = Box::pin(send(&client));
        assert_eq!(at_once(waiting.as_mut()), None);
    }
    assert_eq!(limiter.peek(1).unwrap(), Some(Duration::from_secs(1)));
}

/// One response cannot hold many requests for longer than to its reset, nor requests that come
/// after they have left.
#[tokio::test]
async fn one_header_holds_a_crowd_until_its_reset() {
    let clock = ManualClock::stepped();
    let fields: &[(&str, &str)] = &[("ratelimit", r#""x";r=1;t=3600"#)];
    let (server, sent_ns) = scripted(&clock, &[(200, fields)]);
    let slept = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&slept);
    let layer = PaceLayer::new(move |time: Duration| {
        notes.lock().unwrap().push(time);
        std::future::pending()
    });
    let client = layer.clock(clock.clone()).layer(server);
    assert_eq!(send(&client).await.unwrap(), 200);
    let mut crowd = Vec::new();
    for _ in 0..100 {
        let mut waiting = Box::pin(send(&client));
        assert_eq!(at_once(waiting.as_mut()), None);
        crowd.push(waiting);
    }
    assert_eq!(slept.lock().unwrap().iter().max(), Some(&Duration::from_secs(3600)));

    // The requests are dropped, the oldest first.
    crowd.into_iter().for_each(drop);
    let mut waiting = Box::pin(send(&client));
    assert_eq!(at_once(waiting.as_mut()), None);
    assert_eq!(slept.lock().unwrap().last(), Some(&Duration::from_secs(1800)));
    assert_eq!(sent_ns.lock().unwrap().len(), 1);
}

/// A request after the reset finds no other one that still sleeps.
#[tokio::test]
async fn those_that_slept_until_the_reset_are_sent_then() {
    let clock = ManualClock::stepped();
    let fields: &[(&str, &str)] = &[("ratelimit", r#""x";r=1;t=60"#)];
    let (server, sent_ns) = scripted(&clock, &[(200, fields)]);
    let sleep_clock = clock.clone();
    let layer = PaceLayer::new(move |time: Duration| {
        let (clock, until_ns) =
            (sleep_clock.clone(), sleep_clock.now_ns() + u64::try_from(time.as_nanos()).unwrap());
        std::future::poll_fn(move |_| {
            let is_over = clock.now_ns() >= until_ns;
            if is_over { Poll::Ready(()) } else { Poll::Pending }
        })
    });
    let client = layer.clock(clock.clone()).layer(server);
    assert_eq!(send(&client).await.unwrap(), 200);
    let mut crowd: VecDeque<_> = (0..5).map(|_| Box::pin(send(&client))).collect();
    for (at_s, sent) in [(0, 0), (29, 0), (30, 1), (59, 1), (60, 5)] {
        clock.set(Duration::from_secs(at_s));
        for _ in 0..crowd.len() {
            let mut waiting = crowd.pop_front().unwrap();
            if at_once(waiting.as_mut()).is_none() {
                crowd.push_back(waiting);
            }
        }
        assert_eq!(sent_ns.lock().unwrap().len(), 1 + sent, "at {at_s} s");
    }
    assert_eq!(send(&client).await.unwrap(), 200);
}

/// Many tasks in real time: the limiter's ceiling holds for the requests sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_share_one_pace() {
    let clock = rategate::MonotonicClock::new();
    let starts = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&starts);
    let server = service_fn(move |_: Request<Body>| {
        notes.lock().unwrap().push(clock.now_ns());
        ready(Ok::<_, Infallible>(Response::new(Body::empty())))
    });
    let limiter = Limiter::with_clock(Gcra::new("500/s".parse().unwrap(), 1).unwrap(), clock);
    let client =
        PaceLayer::new(tokio::time::sleep).limiter(limiter).layer(BoxCloneService::new(server));
    let began_ns = clock.now_ns();
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move {
                for _ in 0..5 {
                    let ready = client.ready().await.unwrap();
                    let _ = ready.call(Request::new(Body::empty())).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let starts = starts.lock().unwrap();
    assert_eq!(starts.len(), 100);
    assert!(clock.now_ns() - began_ns >= 99 * S / 500, "a hundred at 500/s");
}
