//! Spans of sampled decisions, sent to a receiver by OTLP. Only these files name `opentelemetry`.
//!
//! A decision is sampled before it is made. Without a span, it costs a check of its caller's span
//! and a random number. With one, it adds a [`Note`](note::Note) to a queue, and another thread
//! does the rest: identifiers, attributes, sending. When the queue is full, spans are dropped and
//! counted; no decision waits.

mod note;
mod post;
mod queue;

use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::mpsc;

use self::note::Note;
pub(super) use self::queue::Counts;
use self::queue::Queue;
use super::{Observe, Protocol};
use crate::config::settings::{Sample, Tracing};
use crate::engine::{CallerSpan, Span, Tracer};

/// Spans on their way to a receiver.
#[derive(Debug)]
pub struct Spans {
    sample: Sample,
    notes: mpsc::Sender<Note>,
    observe: Arc<Observe>,
    queue: Queue,
}

/// The tracer of a protocol.
#[derive(Debug)]
struct ProtocolTracer {
    protocol: Protocol,
    sample: Sample,
    notes: mpsc::Sender<Note>,
    observe: Arc<Observe>,
}

impl Spans {
    /// Starts recording spans. Returns `None` if there is no receiver.
    ///
    /// # Errors
    ///
    /// Returns an error if the environment's settings of OTLP cannot be used, or the thread
    /// cannot be created.
    pub fn start(tracing: &Tracing, observe: &Arc<Observe>) -> Result<Option<Self>, String> {
        let Some(receiver) = &tracing.otlp else { return Ok(None) };
        let exporter = post::exporter(receiver, &tracing.service)?;
        let (notes, waiting) = mpsc::channel(queue::MAX_QUEUED);
        let queue = Queue::start(waiting, exporter, observe);
        Ok(Some(Self {
            sample: tracing.sample,
            notes,
            observe: Arc::clone(observe),
            queue: queue.map_err(|error| error.to_string())?,
        }))
    }

    /// Returns the tracer of a protocol.
    #[must_use]
    pub fn of(&self, protocol: Protocol) -> Arc<dyn Tracer> {
        Arc::new(ProtocolTracer {
            protocol,
            sample: self.sample,
            notes: self.notes.clone(),
            observe: Arc::clone(&self.observe),
        })
    }

    /// Stops recording, and sends the spans that remain, as many as possible in a short time.
    pub fn end(self) {
        self.queue.end();
    }
}

impl Tracer for ProtocolTracer {
    #[inline]
    fn samples(&self, caller: Option<&CallerSpan>) -> bool {
        let is_sampled = match caller {
            Some(caller) => caller.is_sampled,
            None => is_drawn(self.sample),
        };
        is_sampled && self.has_capacity()
    }

    fn ended(&self, span: &Span<'_>) {
        if self.notes.try_send(Note::of(self.protocol, span, SystemTime::now())).is_err() {
            self.observe.status().spans().dropped();
        }
    }
}

impl ProtocolTracer {
    /// Returns `true` if one more span fits in the queue. If not, it is counted as dropped before
    /// it is created.
    #[cold]
    fn has_capacity(&self) -> bool {
        let has_capacity = self.notes.capacity() > 0;
        if !has_capacity {
            self.observe.status().spans().dropped();
        }
        has_capacity
    }
}

/// Draws a share of decisions, each independently, where callers send no trace context.
#[inline]
fn is_drawn(sample: Sample) -> bool {
    fastrand::u32(..Sample::ALL.of_a_million()) < sample.of_a_million()
}

#[cfg(test)]
mod tests {
    use super::{Sample, is_drawn};

    #[test]
    fn as_many_are_sampled_as_configured() {
        let sampled = |sample: u32, of: u32| -> u32 {
            let sample = Sample::new(sample).unwrap();
            (0..of).map(|_| u32::from(is_drawn(sample))).sum()
        };
        assert_eq!(sampled(0, 100_000), 0);
        assert_eq!(sampled(1_000_000, 100_000), 100_000);
        // Six standard deviations of 10 000 are 570.
        let tenth = sampled(100_000, 100_000);
        assert!((9_400..10_600).contains(&tenth), "{tenth}");
        let few = sampled(1_000, 1_000_000);
        assert!((800..1_200).contains(&few), "{few}");
    }

    #[test]
    fn threads_sample_independently() {
        let half = Sample::new(500_000).unwrap();
        let sequence = move || -> Vec<bool> { (0..64).map(|_| is_drawn(half)).collect() };
        let here = sequence();
        let there = std::thread::spawn(sequence).join().unwrap();
        assert_ne!(here, there);
        assert_ne!(here, sequence());
    }
}
