//! The signals that a service handles.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// The streams of the signals that a service handles.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

/// The action that a signal requests.
pub(super) enum SignalAction {
    End,
    Reload,
}

impl Signals {
    pub(super) fn watch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal. Never returns if signals are not watched.
    pub(super) async fn next(watched: &mut Option<Self>) -> SignalAction {
        let Some(signals) = watched else { return std::future::pending().await };
        tokio::select! {
            _ = signals.terminate.recv() => SignalAction::End,
            _ = signals.interrupt.recv() => SignalAction::End,
            _ = signals.hangup.recv() => SignalAction::Reload,
        }
    }

    pub(super) async fn end(watched: &mut Option<Self>) {
        while matches!(Self::next(watched).await, SignalAction::Reload) {}
    }
}
