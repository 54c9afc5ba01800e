//! Operations of an open loop for tasks.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::open_loop::{DueOperation, OpenLoop, Release};
use crate::clock::Clock;
use crate::clock::wait::Sleep;

impl<I: Iterator<Item = u64>, C: Clock> OpenLoop<I, C> {
    /// Waits in a task until the next operation is due. `None` once the load is over, or the loop
    /// closed.
    ///
    /// The call gets its operation at the first poll. If the future is dropped before the release,
    /// the operation goes to the next call, and counts as late from its due instant on.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rategate::ManualClock;
    /// use rategate::pace::OpenLoop;
    /// use rategate::pace::shape::Load;
    ///
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     loop {
    /// #         if let std::task::Poll::Ready(done) = future.as_mut().poll(&mut context) {
    /// #             return done;
    /// #         }
    /// #     }
    /// # }
    /// # block_on(async {
    /// let load: Load = "constant:4/s@1s".parse()?;
    /// let requests = OpenLoop::with_clock(load.into_operations(), ManualClock::new());
    /// while let Some(release) = requests.wait_async().await {
    ///     println!("request {} at {:?}", release.number(), release.released_at());
    /// }
    /// assert_eq!(requests.now(), Duration::from_secs(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub const fn wait_async(&self) -> Released<'_, I, C> {
        Released { open_loop: self, claimed: None, sleep: None, id: None }
    }
}

/// The future of [`OpenLoop::wait_async`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Released<'a, I: Iterator<Item = u64>, C: Clock> {
    open_loop: &'a OpenLoop<I, C>,
    /// The operation that waits for its due instant.
    claimed: Option<DueOperation>,
    sleep: Option<Sleep>,
    /// The id under which it is woken when the loop is closed.
    id: Option<u64>,
}

impl<I: Iterator<Item = u64>, C: Clock> Future for Released<'_, I, C> {
    type Output = Option<Release>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let open_loop = self.open_loop;
        let Some(operation) = self.claimed.or_else(|| open_loop.claim()) else {
            return Poll::Ready(None);
        };
        self.claimed = Some(operation);
        let waker = context.waker().clone();
        self.id = Some(open_loop.listeners().listen(self.id, waker));
        loop {
            if open_loop.is_closed() {
                return Poll::Ready(None);
            }
            if open_loop.clock().now_ns() >= operation.due_ns {
                self.claimed = None;
                return Poll::Ready(Some(open_loop.release(operation)));
            }
            let sleep = || open_loop.clock().sleep_until(operation.due_ns);
            ready!(self.sleep.get_or_insert_with(sleep).as_mut().poll(context));
            self.sleep = None;
        }
    }
}

impl<I: Iterator<Item = u64>, C: Clock> Drop for Released<'_, I, C> {
    fn drop(&mut self) {
        if let Some(operation) = self.claimed.take() {
            self.open_loop.put_back(operation);
        }
        if let Some(id) = self.id {
            self.open_loop.listeners().leave(id);
        }
    }
}

impl<I: Iterator<Item = u64>, C: Clock> fmt::Debug for Released<'_, I, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Released").field("claimed", &self.claimed).finish_non_exhaustive()
    }
}
