//! A call in progress.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use rategate_protocol::grpc::Status;
use rategate_protocol::http2::{Window, Windows};

use super::fields::Unpacked;
use crate::net::{Attempt, TokenShown};
use crate::protocol::grpc::head::Method;
use crate::protocol::grpc::health::Watcher;
use crate::protocol::grpc::quota::QuotaSession;

/// A stream whose call has begun.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    pub(super) method: Method,
    /// The token that the head shows.
    pub(super) token: TokenShown,
    /// The attempt with the token, unless it needs none.
    pub(super) attempt: Option<Attempt>,
    /// The head, while the call waits for the pause of its token.
    pub(super) hold: Option<Box<Unpacked>>,
    #[cfg(feature = "otlp")]
    pub(super) span: Option<crate::engine::CallerSpan>,
    /// The received bytes, if not all arrived at once.
    pub(super) bytes: BytesMut,
    /// The number of received bytes that still count in the connection's window.
    pub(super) held: u32,
    /// The number of bytes still to come, if the caller has stated a length.
    pub(super) bytes_expected: Option<u64>,
    /// `true` once the caller has ended its data.
    pub(super) is_ended: bool,
    /// `true` once the reply has begun.
    pub(super) is_answered: bool,
    pub(super) watcher: Option<Watcher>,
    /// The session of a stream of assignments.
    pub(super) quota: QuotaSession,
    /// `true` while a store decides the call.
    pub(super) awaits_store: bool,
    /// The data that the windows do not allow yet.
    pub(super) blocked: Bytes,
    /// The status that ends the call after that.
    pub(super) end: Option<Status>,
    /// The windows of data to send and to receive.
    pub(super) send: Window,
    pub(super) receive: Window,
    /// The longest duration of the call, and its deadline.
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
            bytes_expected: None,
            is_ended: false,
            is_answered: false,
            watcher: None,
            quota: QuotaSession::default(),
            awaits_store: false,
            blocked: Bytes::new(),
            end: None,
            send: windows.of_a_stream(),
            receive: Window::new(windows.first_receive),
            wait,
            until: None,
        }
    }

    /// Returns `true` for a call of many messages; for a watch, once its reply has begun.
    pub(super) fn is_streaming(&self) -> bool {
        self.watcher.is_some() || self.method.is_conversation()
    }

    /// Records that the call is not refused because of its token.
    pub(super) fn passed(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            let _ = attempt.end(None);
        }
    }

    /// Counts received bytes; `is_all` marks the last. Returns `true` if they match the stated
    /// length.
    pub(super) fn received(&mut self, bytes: usize, is_all: bool) -> bool {
        let Some(bytes_expected) = self.bytes_expected else { return true };
        let left = u64::try_from(bytes).ok().and_then(|bytes| bytes_expected.checked_sub(bytes));
        self.bytes_expected = left;
        left.is_some_and(|left| left == 0 || !is_all)
    }

    /// Returns `true` if the call waits for its caller or for a store, and not for news.
    pub(super) const fn is_timed(&self) -> bool {
        self.watcher.is_none()
    }
}
