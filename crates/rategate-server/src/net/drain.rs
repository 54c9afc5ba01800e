//! Orderly shutdown: new connections are refused first, then new requests; all replies are sent
//! before the connections end.

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The receiving end of the shutdown signal. Clones receive the same signal.
#[derive(Clone, Debug)]
pub struct Drain {
    begun: CancellationToken,
    /// Keeps the drainer's count of working connections and tasks.
    _working: TaskTrackerToken,
}

/// The sending end of the shutdown signal, which also waits for all receivers to end.
#[derive(Debug, Default)]
pub struct Drainer {
    begun: CancellationToken,
    working: TaskTracker,
}

impl Drainer {
    /// Creates a drainer whose shutdown has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the receiving end for a connection or an accepting task.
    #[must_use]
    pub fn drain(&self) -> Drain {
        Drain { begun: self.begun.clone(), _working: self.working.token() }
    }

    /// Begins the shutdown. Further calls have no effect.
    pub fn begin(&self) {
        self.begun.cancel();
    }

    /// Returns the number of connections and accepting tasks that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.working.len()
    }

    /// Waits until all connections and accepting tasks have ended.
    pub async fn all_closed(&self) {
        self.working.close();
        self.working.wait().await;
    }
}

/// Begins the shutdown: nothing could begin it any more.
impl Drop for Drainer {
    fn drop(&mut self) {
        self.begin();
    }
}

impl Drain {
    /// Waits until the shutdown begins. Connections then finish the requests that have arrived,
    /// reply, and close.
    pub async fn begun(&self) {
        self.begun.cancelled().await;
    }
}
