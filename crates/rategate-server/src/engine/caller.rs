//! The span of a trace in which a caller sent its request, from W3C's `traceparent`.

use http::{HeaderMap, HeaderName};
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{SpanContext, TraceContextExt as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;

/// Returns the context of a request whose header fields state the span of its caller.
pub(crate) fn caller(headers: &HeaderMap) -> Option<Context> {
    let fields = Fields(headers);
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &fields);
    context.has_active_span().then_some(context)
}

/// Returns the span of the caller whose request this thread decides.
pub(super) fn current() -> Option<SpanContext> {
    Context::map_current(|context| {
        context.has_active_span().then(|| context.span().span_context().clone())
    })
}

struct Fields<'a>(&'a HeaderMap);

impl Extractor for Fields<'_> {
    /// Returns the value of a field. Of two, neither is known to be the caller's.
    fn get(&self, name: &str) -> Option<&str> {
        let mut values = self.0.get_all(name).into_iter();
        let value = values.next()?.to_str().ok()?;
        values.next().is_none().then_some(value)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn read(fields: &[&'static str]) -> Option<(String, bool)> {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append("traceparent", HeaderValue::from_static(field));
        }
        let _within = caller(&headers).map(Context::attach);
        current().map(|span| (span.span_id().to_string(), span.is_sampled()))
    }

    #[test]
    fn the_span_of_a_caller_is_the_one_that_it_states() {
        let own = || "00f067aa0ba902b7".to_owned();
        assert_eq!(read(&[SAMPLED]), Some((own(), true)));
        let other = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-02";
        assert_eq!(read(&[other]), Some((own(), false)));
        for none in [&[][..], &[SAMPLED, SAMPLED], &["00-0-0-01"], &["none"]] {
            assert_eq!(read(none), None, "{none:?}");
        }
    }
}
