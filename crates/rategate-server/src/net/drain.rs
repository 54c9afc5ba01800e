//! Orderly shutdown: new connections are refused first, then new requests; all replies are sent
//! before the connections end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// The receiving end of the shutdown signal. Clones receive the same signal.
#[derive(Clone, Debug)]
pub struct Drain {
    begun: Arc<AtomicBool>,
    receiver: watch::Receiver<()>,
    /// Keeps the drainer's count of working connections and tasks.
    _working: Arc<()>,
}

/// The sending end of the shutdown signal, which also waits for all receivers to end.
#[derive(Debug)]
pub struct Drainer {
    begun: Arc<AtomicBool>,
    sender: watch::Sender<()>,
    working: Arc<()>,
}

impl Drainer {
    /// Creates a drainer whose shutdown has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self { begun: Arc::default(), sender: watch::Sender::new(()), working: Arc::default() }
    }

    /// Returns the receiving end for a connection or an accepting task.
    #[must_use]
    pub fn drain(&self) -> Drain {
        Drain {
            begun: Arc::clone(&self.begun),
            receiver: self.sender.subscribe(),
            _working: Arc::clone(&self.working),
        }
    }

    /// Begins the shutdown. Further calls have no effect.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Release);
        self.sender.send_replace(());
    }

    /// Returns `true` if the shutdown has begun.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Returns the number of connections and accepting tasks that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        Arc::strong_count(&self.working).saturating_sub(1)
    }

    /// Waits until all connections and accepting tasks have ended.
    pub async fn all_closed(&self) {
        // The last `Drain` that is dropped drops its receiver, too.
        while self.left() > 0 {
            tokio::select! {
                () = self.sender.closed() => return,
                () = tokio::time::sleep(std::time::Duration::from_millis(50)) => {}
            }
        }
    }
}

impl Default for Drainer {
    fn default() -> Self {
        Self::new()
    }
}

impl Drain {
    /// Returns `true` if the shutdown has begun. Connections then finish the requests that have
    /// arrived, reply, and close.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Waits until the shutdown begins.
    pub async fn begun(&self) {
        let mut receiver = self.receiver.clone();
        while !self.is_begun() {
            if receiver.changed().await.is_err() {
                return;
            }
        }
    }
}
