//! Debug builds panic if a thread that drives tasks of a runtime would block.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rategate::distributed::Distributed;
use rategate::pace::Throttle;
use rategate::store::MemoryStore;
use rategate::{
    AcquireError, AsyncLimiter, Gcra, Limiter, ManualClock, Rate, SystemClock, TokioClock,
};
use rategate_testkit::faulty::{Fate, FaultyStore};
use tokio::runtime::Handle;
use tokio::task::{block_in_place, spawn_blocking};

/// Returns a limiter of one permit each 200 ms, with none left.
fn used_up() -> Limiter {
    let limiter = Limiter::new(bucket());
    limiter.acquire(1).unwrap();
    limiter
}

fn bucket() -> Gcra {
    Gcra::new("5/s".parse().unwrap(), 1).unwrap()
}

/// Returns `true` if `call` panics with a message that names the error.
fn refuses<T>(call: impl FnOnce() -> T) -> bool {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(_) => false,
        Err(payload) => {
            let message = payload.downcast_ref::<String>().map(String::as_str);
            let message = message.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap();
            assert!(
                message.contains("Cannot block the current thread from within a runtime"),
                "{message}"
            );
            true
        }
    }
}

/// Tries every way to block: a wait for a permit, a reservation, a throttle's sleep, a store's
/// reply.
fn all_refuse() {
    assert!(refuses(|| used_up().acquire(1)));
    assert!(refuses(|| used_up().acquire_within(1, Duration::from_secs(1))));
    assert!(refuses(|| used_up().permit(1)));
    assert!(refuses(|| used_up().reserve(1).unwrap().wait()));
    let rate: Rate = "100/s".parse().unwrap();
    let mut throttle = Throttle::new(rate, SystemClock::new()).with_min_sleep(Duration::ZERO);
    assert!(refuses(move || throttle.wait()));
    let clock = TokioClock::new(Handle::current());
    let limiter = Limiter::with_clock(bucket(), clock);
    limiter.acquire(1).unwrap();
    assert!(refuses(|| limiter.acquire(1)));
    let store = FaultyStore::new(Arc::new(MemoryStore::new()), SystemClock::new(), 1_000_000_000);
    store.set_usual(Fate::Slow { there_ns: 20_000_000, back_ns: 0 });
    let limiter = Distributed::builder(Arc::new(store)).limit("t", bucket()).build().unwrap();
    assert!(refuses(|| limiter.try_acquire(b"k", 1).wait()));
}

#[tokio::test]
async fn a_thread_that_drives_tasks_may_not_block() {
    all_refuse();
    tokio::spawn(async { all_refuse() }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nor_may_a_worker() {
    tokio::spawn(async { all_refuse() }).await.unwrap();
}

/// Calls that need not wait do not block, even if they could.
#[tokio::test]
async fn what_is_there_can_be_taken() {
    assert!(Limiter::new(bucket()).acquire(1).is_ok());
    let virtual_time = Limiter::with_clock(bucket(), ManualClock::new());
    assert!(virtual_time.acquire(1).is_ok() && virtual_time.acquire(1).is_ok());
    let late = used_up().acquire_within(1, Duration::ZERO);
    assert!(matches!(late, Err(AcquireError::TooLong(_))), "{late:?}");
    let limiter =
        Distributed::builder(Arc::new(MemoryStore::new())).limit("t", bucket()).build().unwrap();
    assert!(limiter.try_acquire(b"k", 1).wait().unwrap().is_granted());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_that_are_made_for_it_may() {
    assert!(spawn_blocking(|| used_up().acquire(1)).await.unwrap().is_ok());
    tokio::spawn(async {
        assert!(block_in_place(|| used_up().acquire(1)).is_ok());
        assert!(AsyncLimiter::from(used_up()).acquire(1).await.is_ok());
    })
    .await
    .unwrap();
}
