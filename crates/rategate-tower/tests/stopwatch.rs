//! Waiting requests and paced clients keep the bound of docs/theory.md, section 10.1, by a clock
//! that the inner service reads.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use rategate::{Keyed, Limiter};
use rategate_testkit::stopwatch::{Stopwatch, log, race};
use rategate_tower::RateLimitLayer;
use rategate_tower::client::PaceLayer;
use rategate_tower::key::{self, Key};
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceExt, service_fn};

const LONG: Duration = Duration::from_secs(30);

type Within = BoxCloneService<Request<Body>, Response<Body>, Infallible>;

/// Returns a service that records when it is called.
fn within(watch: &Arc<Stopwatch>) -> Within {
    let watch = Arc::clone(watch);
    BoxCloneService::new(service_fn(move |_: Request<Body>| {
        watch.passed(1);
        ready(Ok(Response::new(Body::empty())))
    }))
}

/// Lets 24 tasks send requests as long as the watch runs.
fn send<S, B>(watch: &Arc<Stopwatch>, service: &S)
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: std::fmt::Debug,
    B: Send,
{
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.unwrap();
    let tasks: Vec<_> = (0..24)
        .map(|_| {
            let (watch, service) = (Arc::clone(watch), service.clone());
            runtime.spawn(async move {
                while watch.runs() {
                    let request = Request::new(Body::empty());
                    let response = service.clone().oneshot(request).await.unwrap();
                    assert_eq!(response.status(), StatusCode::OK);
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn requests_that_wait_keep_the_bound() {
    race(1, |watch| {
        let layer = RateLimitLayer::new(Limiter::new(log())).wait_within(LONG);
        send(watch, &layer.layer(within(watch)));
    });
}

#[test]
fn requests_of_a_key_that_wait_keep_the_bound() {
    race(1, |watch| {
        let table: Keyed<Key> = Keyed::new(log());
        let layer = RateLimitLayer::keyed(table, key::path()).wait_within(LONG);
        send(watch, &layer.layer(within(watch)));
    });
}

#[test]
fn clients_that_pace_themselves_keep_the_bound() {
    race(1, |watch| {
        let layer = PaceLayer::new(tokio::time::sleep).limiter(Limiter::new(log()));
        send(watch, &layer.layer(within(watch)));
    });
}
