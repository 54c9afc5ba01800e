//! A server that cannot distinguish its clients reports that, and does not put them all under one
//! limit.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::routing::get;
use axum::{Router, body::Body};
use http::Request;
use http_body_util::BodyExt;
use rategate::deny::DenyList;
use rategate::{Keyed, Limiter, SlidingLog};
use rategate_tower::key::{self, Field, KeySource, Trust};
use rategate_tower::{OnMissingKey, RateLimitLayer};
use tower::ServiceExt;

const MINUTE: u64 = 60_000_000_000;

fn peer() -> key::Peer {
    key::peer(|info: &ConnectInfo<SocketAddr>| info.0.ip())
}

fn layer(source: impl KeySource + 'static) -> RateLimitLayer {
    RateLimitLayer::keyed(Keyed::new(SlidingLog::new(1, Duration::from_nanos(MINUTE))), source)
}

/// Returns the status and the body of a request without an extension.
async fn ask(layer: &RateLimitLayer) -> (u16, String) {
    ask_as(layer, Request::get("/")).await
}

async fn ask_as(layer: &RateLimitLayer, request: http::request::Builder) -> (u16, String) {
    let app = Router::new().route("/", get(|| async { "within" })).layer(layer.clone());
    let answer = app.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// The captured log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_missing_extension_is_a_500_and_one_error_in_the_log() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let layer = layer(peer());
    let guard = tracing::subscriber::set_default(subscriber);
    for _ in 0..3 {
        let (status, body) = ask(&layer).await;
        assert_eq!(status, 500, "{body}");
        assert!(body.contains("not set up to tell its clients apart"), "{body}");
    }
    drop(guard);
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(log.matches("ERROR").count(), 1, "{log}");
    for word in ["ConnectInfo<", "into_make_service_with_connect_info", "RateLimitLayer::missing"] {
        assert!(log.contains(word), "{word}: {log}");
    }
}

#[derive(Clone)]
struct UserId(u32);

/// The server has to add any extension, such as that of authentication, like the address.
#[tokio::test]
async fn any_missing_extension_is_a_500() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let layer = layer(key::extension(|user: &UserId| user.0));
    let guard = tracing::subscriber::set_default(subscriber);
    assert_eq!([ask(&layer).await.0, ask(&layer).await.0], [500, 500]);
    drop(guard);
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(log.matches("UserId`").count(), 1, "{log}");
    let request = |user| Request::get("/").extension(UserId(user));
    assert_eq!(ask_as(&layer, request(1)).await.0, 200);
    assert_eq!(ask_as(&layer, request(2)).await.0, 200, "another user");
    let share = layer.missing(OnMissingKey::Share);
    assert_eq!([ask(&share).await.0, ask(&share).await.0], [200, 429]);
}

#[tokio::test]
async fn a_composite_source_without_its_extension_is_a_500() {
    let behind = |trust| key::client(peer(), Field::XForwardedFor, trust);
    let networks = behind(Trust::Networks(vec!["10.0.0.0/8".parse().unwrap()]));
    assert_eq!(ask(&layer(networks)).await.0, 500);
    assert_eq!(ask(&layer((key::method(), peer()))).await.0, 500);
    assert_eq!(ask(&layer((peer(), key::method(), key::path()))).await.0, 500);
    assert_eq!(ask(&layer(vec![peer()])).await.0, 500);
    let boxed: Box<dyn KeySource> = Box::new(peer());
    assert_eq!(ask(&layer(boxed)).await.0, 500);
    // A trusted proxy has named the client, so the peer need not be known.
    let hops = layer(behind(Trust::Hops(1)));
    let request = || Request::get("/").header("x-forwarded-for", "192.0.2.1");
    assert_eq!(ask_as(&hops, request()).await.0, 200);
    assert_eq!(ask_as(&hops, request()).await.0, 429);
}

/// A deny list by the peer's address does not silently lose its effect.
#[tokio::test]
async fn a_deny_list_without_its_extension_is_a_500() {
    let limiter = Limiter::new(SlidingLog::new(100, Duration::from_nanos(MINUTE)));
    let layer = RateLimitLayer::new(limiter).deny(DenyList::new(10), peer());
    assert_eq!(ask(&layer).await.0, 500);
    for (missing, status) in
        [(OnMissingKey::Refuse, 400), (OnMissingKey::Share, 200), (OnMissingKey::Pass, 200)]
    {
        let layer = layer.clone().missing(missing);
        assert_eq!(ask(&layer).await.0, status, "{missing:?}");
    }
}

#[tokio::test]
async fn the_configured_on_missing_key_is_applied() {
    let of = |missing| layer(peer()).missing(missing);
    let share = of(OnMissingKey::Share);
    assert_eq!([ask(&share).await.0, ask(&share).await.0], [200, 429]);
    assert_eq!(ask(&of(OnMissingKey::Refuse)).await.0, 400);
    let pass = of(OnMissingKey::Pass);
    assert_eq!([ask(&pass).await.0, ask(&pass).await.0], [200, 200]);
}

/// A key that the client leaves out is not the server's mistake. Nor is an extension without an
/// address, as on a Unix socket.
#[tokio::test]
async fn clients_without_a_key_share_a_limit() {
    let header = layer(key::header("x-api-key".parse().unwrap()));
    assert_eq!([ask(&header).await.0, ask(&header).await.0], [200, 429]);
    let unix = layer(key::peer(|address: &Option<IpAddr>| *address));
    let request = || Request::get("/").extension(None::<IpAddr>);
    let answers = [ask_as(&unix, request()).await.0, ask_as(&unix, request()).await.0];
    assert_eq!(answers, [200, 429]);
}
