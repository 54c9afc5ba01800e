//! The signals that a service handles.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

use super::supervisor::Order;

/// The streams of the signals that a service handles.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    pub(super) fn watch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal, and returns its order. Never returns if signals are not watched.
    pub(super) async fn next(watched: &mut Option<Self>) -> Order {
        let Some(signals) = watched else { return std::future::pending().await };
        tokio::select! {
            _ = signals.terminate.recv() => Order::Drain,
            _ = signals.interrupt.recv() => Order::Drain,
            _ = signals.hangup.recv() => Order::Reload,
        }
    }

    pub(super) async fn end(watched: &mut Option<Self>) {
        while matches!(Self::next(watched).await, Order::Reload) {}
    }
}
