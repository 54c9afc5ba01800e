//! Spans of what is decided, where the service is built with them.

use std::sync::Arc;

#[cfg(feature = "otlp")]
pub(super) use crate::observe::Spans;

use super::StartError;
use crate::config::settings::Tracing;
use crate::observe::Observe;

/// What nobody has who cannot send spans.
#[cfg(not(feature = "otlp"))]
pub(super) type Spans = std::convert::Infallible;

/// Who takes the spans, if anybody is to.
#[cfg(feature = "otlp")]
pub(super) fn spans(
    tracing: &Tracing,
    observe: &Arc<Observe>,
) -> Result<Option<Spans>, StartError> {
    Spans::start(tracing, observe).map_err(StartError::Tracing)
}

/// Nobody; a receiver is refused, and not passed over.
#[cfg(not(feature = "otlp"))]
pub(super) fn spans(tracing: &Tracing, _: &Arc<Observe>) -> Result<Option<Spans>, StartError> {
    match tracing.otlp {
        None => Ok(None),
        Some(_) => Err(StartError::Tracing("this rategate is built without OTLP".to_owned())),
    }
}
