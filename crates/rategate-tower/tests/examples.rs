//! The examples, run against each other.

use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/reqwest_client.rs"]
mod reqwest_client;

/// Forty requests at 20 per second: a client that follows the hints is never refused.
#[tokio::test]
async fn the_client_of_the_example_is_never_refused_by_its_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let server = async {
        let end = async { drop(stopped.await) };
        reqwest_client::axum_server::run(listener, end).await.unwrap();
    };
    let client = async {
        let counts = reqwest_client::run(&url).await.unwrap();
        stop.send(()).unwrap();
        counts
    };
    let both = async { tokio::join!(server, client) };
    let ((), counts) = timeout(Duration::from_secs(30), both).await.unwrap();
    assert_eq!(counts, (40, 0));
}
