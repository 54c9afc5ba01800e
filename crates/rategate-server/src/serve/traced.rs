//! Spans of what is decided, where the service is built with them; and if not, no receiver that would wait in vain.

#[cfg(feature = "otlp")]
use std::sync::Arc;

use super::StartError;
use crate::config::settings::Tracing;
#[cfg(feature = "otlp")]
use crate::observe::{Observe, Spans};

/// Who takes the spans, if there is a receiver.
#[cfg(feature = "otlp")]
pub(super) fn spans(
    tracing: &Tracing,
    observe: &Arc<Observe>,
) -> Result<Option<Spans>, StartError> {
    Spans::start(tracing, observe).map_err(StartError::Tracing)
}

/// Refuses a receiver. A configuration with one is refused before; settings may come from elsewhere.
#[cfg(not(feature = "otlp"))]
pub(super) fn refuse(tracing: &Tracing) -> Result<(), StartError> {
    match tracing.otlp {
        None => Ok(()),
        Some(_) => Err(StartError::Tracing("this rategate is built without OTLP".to_owned())),
    }
}
