//! Spans of sampled decisions, sent to a receiver by the SDK of OpenTelemetry. Only these files
//! name it, and `engine/{caller,traced}` for the spans of callers.
//!
//! A decision is sampled before it is made. Without a span, it costs a check of its caller's span
//! and a random number. With one, it adds a span to the SDK's queue, whose thread sends it. When
//! the queue is full, spans are dropped, and the log says so; no decision waits.

mod span;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::KeyValue;
use opentelemetry::trace::SpanContext;
use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanProcessor as _};

use super::Protocol;
use crate::config::settings::{Sample, Tracing};
use crate::engine::{Span, Tracer};

/// The maximum time of a batch, from the lookup of the receiver's name to its answer.
const WITHIN: Duration = Duration::from_secs(5);
/// The maximum time for the remaining spans at the end.
const ENDING: Duration = Duration::from_secs(2);

/// Spans on their way to a receiver.
#[derive(Debug)]
pub struct Spans {
    sample: Sample,
    processor: Arc<BatchSpanProcessor>,
}

/// The tracer of a protocol.
#[derive(Debug)]
struct ProtocolTracer {
    protocol: Protocol,
    sample: Sample,
    processor: Arc<BatchSpanProcessor>,
}

impl Spans {
    /// Starts recording spans. Returns `None` if there is no receiver. Spans have the header fields
    /// of `OTEL_EXPORTER_OTLP_HEADERS` and the attributes of `OTEL_RESOURCE_ATTRIBUTES`.
    ///
    /// # Errors
    ///
    /// Returns an error if the environment's settings of OTLP cannot be used.
    pub fn start(tracing: &Tracing) -> Result<Option<Self>, String> {
        let Some(receiver) = &tracing.otlp else { return Ok(None) };
        // A batch that fails is lost: nothing is sent twice.
        let exporter = SpanExporter::builder()
            .with_http()
            .with_endpoint(receiver.to_string())
            .with_timeout(WITHIN)
            .with_retry_policy(RetryPolicy::disabled())
            .build()
            .map_err(|error| error.to_string())?;
        let mut processor = BatchSpanProcessor::builder(exporter).build();
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let resource = Resource::builder().with_service_name(tracing.service.clone());
        processor.set_resource(&resource.with_attribute(version).build());
        Ok(Some(Self { sample: tracing.sample, processor: Arc::new(processor) }))
    }

    /// Returns the tracer of a protocol.
    #[must_use]
    pub fn of(&self, protocol: Protocol) -> Arc<dyn Tracer> {
        let processor = Arc::clone(&self.processor);
        Arc::new(ProtocolTracer { protocol, sample: self.sample, processor })
    }

    /// Sends the spans that remain, as many as possible in a short time.
    pub fn end(self) {
        if let Err(error) = self.processor.shutdown_with_timeout(ENDING) {
            tracing::warn!(%error, "not all spans were sent");
        }
    }
}

impl Tracer for ProtocolTracer {
    #[inline]
    fn samples(&self, caller: Option<&SpanContext>) -> bool {
        caller.map_or_else(|| is_drawn(self.sample), SpanContext::is_sampled)
    }

    fn ended(&self, span: &Span<'_>) {
        self.processor.on_end(span::data(self.protocol, span, SystemTime::now()));
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
}
