//! Threads that serve connections. A connection never leaves its thread, so a decision wakes no
//! other one.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Threads with an event loop each. Dropping them ends the threads and all that runs on them.
#[derive(Debug)]
pub struct Workers {
    all: Spread,
    /// Dropping the senders ends the threads.
    stops: Vec<oneshot::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Worker {
    handle: Handle,
    connections: AtomicUsize,
}

/// The workers, for the assignment of connections.
#[derive(Clone, Debug)]
pub(crate) struct Spread(Arc<[Arc<Worker>]>);

/// A count of one connection of a worker, which ends on drop.
struct Counted(Arc<Worker>);

impl Workers {
    /// Starts `threads` threads, at least one.
    ///
    /// # Errors
    ///
    /// The system's error if it has no more threads or descriptors.
    pub fn start(threads: usize) -> io::Result<Self> {
        let mut workers = Vec::new();
        let mut stops = Vec::new();
        let mut joins = Vec::new();
        for number in 0..threads.max(1) {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (stop, stopped) = oneshot::channel::<()>();
            let handle = runtime.handle().clone();
            workers.push(Arc::new(Worker { handle, connections: AtomicUsize::new(0) }));
            let named = thread::Builder::new().name(format!("worker-{number}"));
            joins.push(named.spawn(move || {
                // An error means that the sender is dropped, which is a stop, too.
                let _ = runtime.block_on(stopped);
            })?);
            stops.push(stop);
        }
        Ok(Self { all: Spread(workers.into()), stops, threads: joins })
    }

    /// Returns the number of threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.all.0.len()
    }

    pub(crate) fn spread(&self) -> Spread {
        self.all.clone()
    }

    /// Ends all threads, and waits for them.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stops.clear();
        for thread in self.threads.drain(..) {
            // The panic has been reported already.
            let _ = thread.join();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.end();
    }
}

impl Spread {
    /// Runs the future that `make` returns on the thread with the fewest connections. `make` runs
    /// there, too.
    pub(crate) fn spawn<F>(&self, make: impl FnOnce() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send,
    {
        let load = |worker: &&Arc<Worker>| worker.connections.load(Ordering::Relaxed);
        let Some(worker) = self.0.iter().min_by_key(load) else { return };
        worker.connections.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(Arc::clone(worker));
        worker.handle.spawn(async move {
            let _counted = counted;
            pin!(make()).await;
        });
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
