//! Blocking for a reply about a deny list on a thread that drives tasks, which debug builds
//! refuse.

use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rategate_redis::client::{Config, RedisStore, Server};
use rategate_redis::denied::Version;
use tokio::task::spawn_blocking;

/// Opens a store that does not answer in a time: the port accepts connections and stays silent.
fn silent(budget: Duration) -> (TcpListener, RedisStore) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = Config::server(Server::tcp("127.0.0.1", port)).budget(budget);
    (listener, RedisStore::open(config).unwrap())
}

/// Returns `true` if `call` panics with a message that names the mistake.
fn refuses<T>(call: impl FnOnce() -> T) -> bool {
    let Err(payload) = catch_unwind(AssertUnwindSafe(call)) else { return false };
    let message = payload.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap();
    assert!(message.contains("Cannot block the current thread from within a runtime"), "{message}");
    true
}

#[tokio::test]
async fn a_thread_that_drives_tasks_may_not_wait_for_a_list() {
    // No error comes meanwhile, which would be returned without blocking.
    let (_listener, patient) = silent(Duration::from_secs(600));
    let fetch = || patient.fetch_denied(b"list", Version::NONE);
    assert!(refuses(|| fetch().wait()));
    assert!(refuses(|| fetch().wait_for(Duration::from_millis(50))));
    // A zero wait does not block.
    assert!(fetch().wait_for(Duration::ZERO).is_none());
    let (_listener, store) = silent(Duration::from_millis(50));
    assert!(store.fetch_denied(b"list", Version::NONE).await.is_err());
    let store = Arc::new(store);
    let waited = spawn_blocking(move || store.fetch_denied(b"list", Version::NONE).wait());
    assert!(waited.await.unwrap().is_err());
}
