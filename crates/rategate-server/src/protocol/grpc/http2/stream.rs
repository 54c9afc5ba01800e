//! A call on its way.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::fields::Unpacked;
use super::windows::{Window, Windows};
use crate::net::{Attempt, TokenShown};
use crate::protocol::grpc::head::Method;
use crate::protocol::grpc::health::Watcher;
use crate::protocol::grpc::status::Status;

/// A stream whose call has begun.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    pub(super) method: Method,
    /// The token as its head shows it.
    pub(super) token: TokenShown,
    /// What it makes of the token, unless that makes no difference.
    pub(super) attempt: Option<Attempt>,
    /// What its head says, while it waits before anything is made of it.
    pub(super) hold: Option<Box<Unpacked>>,
    /// In which span its caller asks.
    #[cfg(feature = "otlp")]
    pub(super) span: Option<crate::engine::CallerSpan>,
    /// The bytes that have come, if not all came at once.
    pub(super) bytes: BytesMut,
    /// How much of what came counts as ours still, for the connection's window.
    pub(super) held: u32,
    /// How much is still to come, if the caller has said how much there is.
    pub(super) to_come: Option<u64>,
    /// Whether the caller has said all.
    pub(super) is_ended: bool,
    /// Whether the answer has begun.
    pub(super) is_answered: bool,
    pub(super) watcher: Option<Watcher>,
    /// Whether a store is asked for it.
    pub(super) is_asked: bool,
    /// What is to be sent, and has no room in a window.
    pub(super) blocked: Bytes,
    /// How it ends after that.
    pub(super) end: Option<Status>,
    /// What may be sent, and what may come.
    pub(super) send: Window,
    pub(super) come: Window,
    /// How long it may take, and when that is over.
    pub(super) wait: Duration,
    pub(super) until: Option<Instant>,
}

impl Stream {
    pub(super) fn new(id: u32, method: Method, wait: Duration, windows: &Windows) -> Self {
        Self {
            id,
            method,
            token: TokenShown::Nothing,
            attempt: None,
            hold: None,
            #[cfg(feature = "otlp")]
            span: None,
            bytes: BytesMut::new(),
            held: 0,
            to_come: None,
            is_ended: false,
            is_answered: false,
            watcher: None,
            is_asked: false,
            blocked: Bytes::new(),
            end: None,
            send: windows.of_a_stream(),
            come: Window::new(windows.first_come),
            wait,
            until: None,
        }
    }

    /// Whether it is a call of many messages, which has begun to be answered if it is a watch.
    pub(super) fn is_lasting(&self) -> bool {
        self.watcher.is_some() || self.method == Method::Reflect
    }

    /// Its call is not refused for the token that it shows.
    pub(super) fn passed(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            let _ = attempt.end(None);
        }
    }

    /// So much more has come, and that is all or not. Whether it is as much as was said before.
    pub(super) fn came(&mut self, bytes: usize, is_all: bool) -> bool {
        let Some(to_come) = self.to_come else { return true };
        let left = u64::try_from(bytes).ok().and_then(|bytes| to_come.checked_sub(bytes));
        self.to_come = left;
        left.is_some_and(|left| left == 0 || !is_all)
    }

    /// Whether it waits for its caller, or for a store, and not for news.
    pub(super) const fn is_timed(&self) -> bool {
        self.watcher.is_none()
    }
}
