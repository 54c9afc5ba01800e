//! Supervision of a driver, which runs in a thread or as a task.
//!
//! A task that panics counts as failed, and a driver that panics is started again.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;

use super::config::Config;
use super::dial::Dialer;
use super::driver::Driver;
use super::poll_self_waking::poll_self_waking;
use super::shared::Shared;
use crate::key::KeySpace;

/// The pause before a driver that panicked is started again.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts the thread of a driver. The thread ends when the store is closed.
pub(crate) fn start(
    shared: Arc<Shared>,
    config: Arc<Config>,
    keys: KeySpace,
    dialer: Dialer,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let body = move || {
        let _closes = Closes(Arc::clone(&shared));
        supervise(&shared, || {
            let driver = Driver::new(&shared, &config, &keys, &dialer);
            runtime.block_on(poll_self_waking(driver.run()));
        });
        // A pending name lookup must not hold the thread.
        runtime.shutdown_background();
    };
    thread::Builder::new().name("rategate-redis".to_owned()).spawn(body).map(|_| ())
}

/// Starts the driver as a task of a runtime, until the store is closed or the runtime ends.
pub(crate) fn start_in(
    runtime: &Handle,
    shared: Arc<Shared>,
    config: Arc<Config>,
    keys: KeySpace,
    dialer: Dialer,
) {
    runtime.spawn(async move {
        let _closes = Closes(Arc::clone(&shared));
        let drive = || poll_self_waking(Driver::new(&shared, &config, &keys, &dialer).run());
        while caught(&shared, drive()).await.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
    });
}

/// Closes the queue however the driver ends, so that no request waits for it.
struct Closes(Arc<Shared>);

impl Drop for Closes {
    fn drop(&mut self) {
        self.0.close();
        self.0.take(&mut Vec::new(), false);
    }
}

/// Runs work to its end, or returns the message of its panic.
pub(crate) async fn caught<T>(shared: &Shared, work: impl Future<Output = T>) -> Result<T, String> {
    let mut work = pin!(work);
    // The values owned by the work are dropped. The shared ones are counters and a queue, whole
    // at any instant.
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        polled.map_or_else(
            |panic| {
                shared.stats.panics.one();
                Poll::Ready(Err(panic_message(panic.as_ref())))
            },
            |polled| polled.map(Ok),
        )
    })
    .await
}

/// Runs a driver until it returns. One that panics is started again after a pause, with a new
/// state.
fn supervise(shared: &Arc<Shared>, mut drive: impl FnMut()) {
    while catch_unwind(AssertUnwindSafe(&mut drive)).is_err() {
        shared.stats.panics.one();
        thread::sleep(PAUSE);
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use rategate::store::{StoreError, StoreRequest, Unavailable};

    use super::*;
    use crate::client::item::Item;
    use crate::plan::Plan;

    fn item(shared: &Arc<Shared>, sender: &mpsc::Sender<StoreError>) -> Item {
        let gcra = rategate_core::gcra::Gcra::new("1/s".parse().unwrap(), 1).unwrap();
        let plan = Arc::new(Plan::of_rules(&[("a", gcra.into())]).unwrap());
        let sender = sender.clone();
        let callback =
            move |answer: Result<_, StoreError>| sender.send(answer.unwrap_err()).unwrap();
        let request = StoreRequest::Reset { plan, key: Arc::from(&b"k"[..]) };
        Item::new(shared, request, Box::new(callback), Duration::ZERO)
    }

    /// All requests of the first driver are answered, and the second one has the queue.
    #[test]
    fn a_driver_that_panics_starts_again_and_strands_no_caller() {
        let shared = Arc::new(Shared::new(8));
        let (sender, receiver) = mpsc::channel();
        let mut runs = 0;
        shared.submit(item(&shared, &sender));
        supervise(&shared, || {
            runs += 1;
            let mut items = Vec::new();
            assert!(shared.take(&mut items, false));
            assert_eq!(items.len(), 1);
            if runs == 1 {
                shared.submit(item(&shared, &sender));
                panic!("the first driver");
            }
        });
        assert!(matches!(
            receiver.recv().unwrap(),
            StoreError::Unavailable(Unavailable::Broken(_))
        ));
        assert_eq!(receiver.recv().unwrap(), StoreError::Closed);
        assert_eq!((runs, shared.open(), shared.stats.read(0).panics), (2, 0, 1));
    }

    #[test]
    fn a_panicking_task_fails_with_its_message() {
        let shared = Arc::new(Shared::new(8));
        let (sender, receiver) = mpsc::channel();
        let held = item(&shared, &sender);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ended = runtime.block_on(caught(&shared, async move {
            let _held = held;
            tokio::task::yield_now().await;
            assert_eq!(1, 2, "words");
        }));
        assert!(ended.unwrap_err().contains("words"));
        assert!(matches!(
            receiver.recv().unwrap(),
            StoreError::Unavailable(Unavailable::Broken(_))
        ));
        assert_eq!(shared.stats.read(0).panics, 1);
        assert_eq!(runtime.block_on(caught(&shared, async { 7 })), Ok(7));
    }
}
