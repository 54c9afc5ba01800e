//! Bounded reading of request bodies.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use super::refused::Refused;

/// The longest time that a body may take.
pub(crate) const WITHIN: Duration = Duration::from_secs(5);

/// Reads a body of at most `max_bytes` bytes, and waits at most `within` for it. A body that
/// declares a greater length is refused before anything is read.
///
/// # Errors
///
/// [`Refused::TooLong`], [`Refused::TooSlow`], [`Refused::BrokenOff`].
pub(crate) async fn read(body: Body, max_bytes: usize, within: Duration) -> Result<Bytes, Refused> {
    if usize::try_from(body.size_hint().lower()).map_or(true, |length| length > max_bytes) {
        return Err(Refused::TooLong(max_bytes));
    }
    let read = Limited::new(body, max_bytes).collect();
    match tokio::time::timeout(within, read).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Refused::TooLong(max_bytes)),
        Ok(Err(_)) => Err(Refused::BrokenOff),
        Err(_) => Err(Refused::TooSlow),
    }
}
