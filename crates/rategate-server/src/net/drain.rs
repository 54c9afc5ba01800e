//! The end, in order: no new connections, no new requests, all answers; then no connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// Tells connections that the end has begun. Clones tell the same.
#[derive(Clone, Debug)]
pub struct Drain {
    begun: Arc<AtomicBool>,
    told: watch::Receiver<()>,
    /// Whoever has one is still at work.
    _working: Arc<()>,
}

/// Begins the end, and waits for it.
#[derive(Debug)]
pub struct Drainer {
    begun: Arc<AtomicBool>,
    tell: watch::Sender<()>,
    working: Arc<()>,
}

impl Drainer {
    /// Nothing has ended.
    #[must_use]
    pub fn new() -> Self {
        Self { begun: Arc::default(), tell: watch::Sender::new(()), working: Arc::default() }
    }

    /// What a connection, or somebody who accepts them, is given.
    #[must_use]
    pub fn drain(&self) -> Drain {
        Drain {
            begun: Arc::clone(&self.begun),
            told: self.tell.subscribe(),
            _working: Arc::clone(&self.working),
        }
    }

    /// Begins the end. Once is enough.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Release);
        self.tell.send_replace(());
    }

    /// Whether it has begun.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// How many connections, and accepting tasks, are left.
    #[must_use]
    pub fn left(&self) -> usize {
        Arc::strong_count(&self.working).saturating_sub(1)
    }

    /// Waits until all have ended.
    pub async fn all_gone(&self) {
        // The last one to go takes its receiver with it.
        while self.left() > 0 {
            tokio::select! {
                () = self.tell.closed() => return,
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
    /// Whether the end has begun: then finish what has arrived, answer it, and close.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Waits until it begins.
    pub async fn begun(&self) {
        let mut told = self.told.clone();
        while !self.is_begun() {
            if told.changed().await.is_err() {
                return;
            }
        }
    }
}
