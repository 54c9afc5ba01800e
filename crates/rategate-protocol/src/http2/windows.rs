//! Flow control (RFC 9113, section 5.2): the bytes of data that may be in flight per stream and
//! per connection.

use bytes::BytesMut;

use super::frame::{Reason, put_window};
use crate::grpc::PREFIX;

/// The initial window of a connection and of each stream, until the peer changes it.
const FIRST: u32 = 65_535;
/// The maximum size of a window.
const MAX_WINDOW: u32 = 0x7fff_ffff;
/// The receive window of a connection, unless the longest message exceeds it.
const HERE: u32 = 1 << 20;

/// The number of bytes that one end may still send. The peer can shrink its windows, so the number
/// may be negative.
#[derive(Clone, Copy, Debug)]
pub struct Window(i64);

impl Window {
    /// Creates a window.
    #[must_use]
    pub fn new(bytes: u32) -> Self {
        Self(i64::from(bytes))
    }

    /// Widens the window by `more` bytes.
    ///
    /// # Errors
    ///
    /// [`Reason::FlowControl`] for a window that is larger than the protocol allows.
    pub fn widen(&mut self, more: i64) -> Result<(), Reason> {
        self.0 = self.0.saturating_add(more);
        if self.0 > i64::from(MAX_WINDOW) { Err(Reason::FlowControl) } else { Ok(()) }
    }

    /// Returns the number of bytes that may be sent now.
    #[must_use]
    pub fn available(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// Uses `bytes` of the window for sent data, which fits.
    pub fn sent(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Uses `bytes` of the window for received data.
    ///
    /// # Errors
    ///
    /// [`Reason::FlowControl`] if they do not fit.
    pub fn received(&mut self, bytes: usize) -> Result<(), Reason> {
        self.sent(bytes);
        if self.0 < 0 { Err(Reason::FlowControl) } else { Ok(()) }
    }
}

/// The windows of a connection as a whole. Its streams have their own windows.
#[derive(Debug)]
pub struct Windows {
    /// The window of data to send.
    pub send: Window,
    /// The initial send window of each new stream.
    first_send: u32,
    /// The window of data to receive.
    receive: Window,
    /// The initial receive window of each new stream.
    pub first_receive: u32,
    /// The maximum of the receive window.
    max: u32,
    /// The number of received bytes that were freed since the last window update.
    used: u32,
}

impl Windows {
    /// Creates windows for messages of up to `max_message_bytes` bytes. The peer's windows have
    /// their defaults.
    #[must_use]
    pub fn new(max_message_bytes: usize) -> Self {
        let message = max_message_bytes.saturating_add(PREFIX);
        let first_receive = u32::try_from(message).unwrap_or(u32::MAX).clamp(FIRST, MAX_WINDOW);
        let max = first_receive.max(HERE);
        Self {
            send: Window::new(FIRST),
            first_send: FIRST,
            receive: Window::new(max),
            first_receive,
            max,
            used: 0,
        }
    }

    /// Writes the initial window update of the connection. The window of streams is part of the
    /// settings.
    pub fn put(&self, out: &mut BytesMut) {
        put_window(out, 0, self.max.saturating_sub(FIRST));
    }

    /// Returns the send window of a new stream.
    #[must_use]
    pub fn of_a_stream(&self) -> Window {
        Window::new(self.first_send)
    }

    /// Changes the initial send window of streams. Returns its increase.
    pub fn change_first(&mut self, first: u32) -> i64 {
        i64::from(first).saturating_sub(i64::from(std::mem::replace(&mut self.first_send, first)))
    }

    /// Uses `bytes` of the connection's window for received data.
    ///
    /// # Errors
    ///
    /// [`Reason::FlowControl`] if they do not fit.
    pub fn received(&mut self, bytes: usize) -> Result<(), Reason> {
        self.receive.received(bytes)
    }

    /// Frees `bytes` received bytes, which are no longer buffered.
    pub fn free(&mut self, bytes: u32) {
        self.used = self.used.saturating_add(bytes);
    }

    /// Reopens the receive window by the freed bytes, if that is worth a frame.
    pub fn credit_much(&mut self, out: &mut BytesMut) {
        if self.used >= self.max / 2 {
            self.credit(out);
        }
    }

    /// Reopens the receive window by the freed bytes.
    pub fn credit(&mut self, out: &mut BytesMut) {
        let used = std::mem::take(&mut self.used);
        if used > 0 {
            put_window(out, 0, used);
            self.receive.0 = self.receive.0.saturating_add(i64::from(used));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_an_end_on_both_sides() {
        let mut window = Window::new(10);
        window.received(10).unwrap();
        assert_eq!(window.received(1), Err(Reason::FlowControl));
        assert_eq!(window.available(), 0, "a negative window allows nothing");
        window.widen(i64::from(MAX_WINDOW) + 1).unwrap();
        assert_eq!(window.widen(1), Err(Reason::FlowControl));
    }

    #[test]
    fn what_came_may_come_again_once_it_is_used_up() {
        let (mut windows, mut out) = (Windows::new(1000), BytesMut::new());
        let half = HERE / 2;
        for _ in 0..10 {
            windows.received(usize::try_from(half).unwrap()).unwrap();
            windows.free(half - 1);
            windows.credit_much(&mut out);
            assert!(out.is_empty(), "not worth a frame yet");
            windows.free(1);
            windows.credit_much(&mut out);
            assert_eq!(out.split().get(9..), Some(&half.to_be_bytes()[..]));
        }
        assert_eq!(windows.received(usize::try_from(HERE).unwrap() + 1), Err(Reason::FlowControl));
    }
}
