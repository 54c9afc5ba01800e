//! The queue of spans, and the thread that sends them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry_sdk::trace::{RandomIdGenerator, SpanExporter};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::Observe;
use super::note::Note;

/// The capacity of the queue. Further spans are dropped.
pub(super) const MAX_QUEUED: usize = 2_048;
/// The maximum number of spans in a batch.
const MAX_BATCH: usize = 512;
/// The time that the first span of a batch waits for others.
const GATHERING: Duration = Duration::from_secs(1);
/// The maximum time for the remaining spans at the end.
const ENDING: Duration = Duration::from_secs(2);

/// The counts of spans by outcome.
#[derive(Debug, Default)]
pub(in crate::observe) struct Counts {
    sent: AtomicU64,
    dropped: AtomicU64,
    lost: AtomicU64,
}

/// The sending thread. If it is dropped, it sends the remaining spans, and no thread waits for
/// it.
#[derive(Debug)]
pub(super) struct Queue {
    closing: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

/// The state of the sending thread.
struct Sender<E> {
    noted: mpsc::Receiver<Note>,
    /// The next batch.
    notes: Vec<Note>,
    /// The number of spans that are being sent.
    in_flight: usize,
    exporter: E,
    observe: Arc<Observe>,
    ids: RandomIdGenerator,
    scope: InstrumentationScope,
    is_failing: bool,
}

impl Queue {
    pub(super) fn start<E: SpanExporter + 'static>(
        noted: mpsc::Receiver<Note>,
        exporter: E,
        observe: &Arc<Observe>,
    ) -> io::Result<Self> {
        let (closing, closes) = watch::channel(false);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let scope = InstrumentationScope::builder(env!("CARGO_PKG_NAME"))
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        let mut sender = Sender {
            noted,
            notes: Vec::with_capacity(MAX_BATCH),
            in_flight: 0,
            exporter,
            observe: Arc::clone(observe),
            ids: RandomIdGenerator::default(),
            scope,
            is_failing: false,
        };
        let thread = thread::Builder::new().name("spans".to_owned()).spawn(move || {
            runtime.block_on(sender.run(closes));
            // A name lookup that is under way is not waited for.
            runtime.shutdown_background();
        })?;
        Ok(Self { closing, thread })
    }

    /// Stops recording, sends the remaining spans, and waits a limited time for that.
    pub(super) fn end(self) {
        self.closing.send_replace(true);
        // A panic of the thread has been reported already.
        let _ = self.thread.join();
    }
}

impl<E: SpanExporter> Sender<E> {
    async fn run(&mut self, mut closes: watch::Receiver<bool>) {
        let mut closing = closes.clone();
        let is_late = async {
            let _ = closing.wait_for(|is_closing| *is_closing).await;
            sleep(ENDING).await;
        };
        let is_late = tokio::select! {
            () = self.send_all(&mut closes) => false,
            () = is_late => true,
        };
        if is_late {
            let left = self.noted.len().saturating_add(self.notes.len());
            self.observe.status().spans().lost(left.saturating_add(self.in_flight));
        }
    }

    /// Sends all spans until no more can come.
    async fn send_all(&mut self, closes: &mut watch::Receiver<bool>) {
        while self.receive(closes).await > 0 {
            let until = after(GATHERING);
            while self.notes.len() < MAX_BATCH {
                match timeout_at(until, self.receive(closes)).await {
                    Ok(0) | Err(_) => break,
                    Ok(_) => {}
                }
            }
            self.send().await;
        }
    }

    /// Returns the number of spans received: 0 once no more can come.
    async fn receive(&mut self, closes: &mut watch::Receiver<bool>) -> usize {
        let capacity = MAX_BATCH.saturating_sub(self.notes.len());
        tokio::select! {
            biased;
            count = self.noted.recv_many(&mut self.notes, capacity) => return count,
            _ = closes.wait_for(|is_closing| *is_closing) => self.noted.close(),
        }
        self.noted.recv_many(&mut self.notes, capacity).await
    }

    async fn send(&mut self) {
        let spans: Vec<_> =
            self.notes.drain(..).map(|note| note.span(&self.ids, &self.scope)).collect();
        let count = spans.len();
        self.in_flight = count;
        let sent = self.exporter.export(spans).await;
        self.in_flight = 0;
        let counts = self.observe.status().spans();
        match &sent {
            Ok(()) => counts.sent(count),
            Err(_) => counts.lost(count),
        }
        // Logged when failures begin and when they end, however long they last.
        match (std::mem::replace(&mut self.is_failing, sent.is_err()), sent) {
            (false, Err(error)) => tracing::warn!(%error, "spans cannot be sent, and are lost"),
            (true, Ok(())) => tracing::info!("spans are sent again"),
            _ => {}
        }
    }
}

impl Counts {
    /// Returns the counts of spans: sent, dropped from a full queue, and lost because they could
    /// not be sent.
    pub(in crate::observe) fn read(&self) -> [(&'static str, u64); 3] {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [("sent", of(&self.sent)), ("dropped", of(&self.dropped)), ("lost", of(&self.lost))]
    }

    pub(super) fn dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    fn sent(&self, count: usize) {
        self.sent.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn lost(&self, count: usize) {
        self.lost.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now)
}
