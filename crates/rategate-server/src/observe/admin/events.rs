//! Streams of events, one per second.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::State;
use axum::response::IntoResponse;
use axum::response::sse::{Event, Sse};
use futures_util::stream::{StreamExt as _, unfold};
use http::Uri;
use tokio::time::{MissedTickBehavior, interval};

use super::Shared;
use super::shapes::Overview;
use crate::protocol::http::{Refused, parameter};

/// The number of events after which a stream ends; clients then reconnect.
const MAX_EVENTS: usize = 3_600;

/// Answers `GET /v1/events` with the figures of each second.
pub(super) async fn call(
    State(shared): State<Arc<Shared>>,
    address: Uri,
) -> Result<impl IntoResponse, Refused> {
    let rule = parameter(&address, "rule");
    if let Some(rule) = &rule {
        shared.record(rule)?;
    }
    let permit = Arc::clone(&shared.streams).try_acquire_owned().map_err(|_| Refused::Busy)?;
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let events = unfold((ticks, shared, permit), move |(mut ticks, shared, permit)| {
        let rule = rule.clone();
        async move {
            ticks.tick().await;
            if shared.is_closing.load(Ordering::Relaxed) {
                return None;
            }
            let record = rule.and_then(|rule| shared.observe.record(&rule));
            let overview = Overview::of(&shared.observe, &*shared.view, record.as_deref(), false);
            Some((Event::default().json_data(overview), (ticks, shared, permit)))
        }
    });
    // Prevents proxies from holding events back.
    Ok(([("x-accel-buffering", "no")], Sse::new(events.take(MAX_EVENTS))))
}
