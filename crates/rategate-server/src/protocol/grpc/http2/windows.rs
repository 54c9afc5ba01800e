//! How many bytes of data may be on their way (RFC 9113, section 5.2): on each stream, and on all of them together.

use bytes::BytesMut;

use super::wire::{Reason, put_window};
use crate::protocol::grpc::frame;

/// What a connection may send at first, and each stream, until the other end says otherwise.
const FIRST: u32 = 65_535;
/// A window is never larger.
const MOST: u32 = 0x7fff_ffff;
/// How many bytes of all streams may be on their way here, if the longest message is no longer.
const HERE: u32 = 1 << 20;

/// How many bytes one end may send yet. The other end can take back what it gave: then it is less than nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window(i64);

impl Window {
    pub(super) fn new(bytes: u32) -> Self {
        Self(i64::from(bytes))
    }

    /// So many bytes more may be sent.
    pub(super) fn widen(&mut self, more: i64) -> Result<(), Reason> {
        self.0 = self.0.saturating_add(more);
        if self.0 > i64::from(MOST) { Err(Reason::FlowControl) } else { Ok(()) }
    }

    pub(super) fn room(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// So many bytes were sent, for which there was room.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// So many bytes came. It is an error if there was no room for them.
    pub(super) fn came(&mut self, bytes: usize) -> Result<(), Reason> {
        self.sent(bytes);
        if self.0 < 0 { Err(Reason::FlowControl) } else { Ok(()) }
    }
}

/// The windows of a connection as a whole. Its streams have their own besides.
#[derive(Debug)]
pub(super) struct Windows {
    /// What may be sent to the other end.
    pub(super) send: Window,
    /// What each stream that begins may be sent.
    first_send: u32,
    /// What may come.
    come: Window,
    /// What each stream that begins may bring.
    pub(super) first_come: u32,
    /// How much may come at most.
    most: u32,
    /// How many bytes that came have been used up since the other end was told.
    used: u32,
}

impl Windows {
    /// Room for messages of so many bytes each, with the other end's windows as they are before it has said anything.
    pub(super) fn new(most_message: usize) -> Self {
        let message = most_message.saturating_add(frame::PREFIX);
        let first_come = u32::try_from(message).unwrap_or(u32::MAX).clamp(FIRST, MOST);
        let most = first_come.max(HERE);
        Self {
            send: Window::new(FIRST),
            first_send: FIRST,
            come: Window::new(most),
            first_come,
            most,
            used: 0,
        }
    }

    /// Tells the other end how much may come. What a stream may bring is one of the settings.
    pub(super) fn put(&self, out: &mut BytesMut) {
        put_window(out, 0, self.most.saturating_sub(FIRST));
    }

    /// What a stream that begins now may be sent.
    pub(super) fn of_a_stream(&self) -> Window {
        Window::new(self.first_send)
    }

    /// The other end says what a stream may be sent at first. How much more that is than it said before.
    pub(super) fn change_first(&mut self, first: u32) -> i64 {
        i64::from(first).saturating_sub(i64::from(std::mem::replace(&mut self.first_send, first)))
    }

    pub(super) fn came(&mut self, bytes: usize) -> Result<(), Reason> {
        self.come.came(bytes)
    }

    /// Nobody holds so many bytes any more of what came.
    pub(super) fn free(&mut self, bytes: u32) {
        self.used = self.used.saturating_add(bytes);
    }

    /// Lets as much come again as has been used up, if that is worth a frame.
    pub(super) fn credit_much(&mut self, out: &mut BytesMut) {
        if self.used >= self.most / 2 {
            self.credit(out);
        }
    }

    /// Lets as much come again as has been used up.
    pub(super) fn credit(&mut self, out: &mut BytesMut) {
        let used = std::mem::take(&mut self.used);
        if used > 0 {
            put_window(out, 0, used);
            self.come.0 = self.come.0.saturating_add(i64::from(used));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_an_end_on_both_sides() {
        let mut window = Window::new(10);
        window.came(10).unwrap();
        assert_eq!(window.came(1), Err(Reason::FlowControl));
        assert_eq!(window.room(), 0, "less than nothing is no room");
        window.widen(i64::from(MOST) + 1).unwrap();
        assert_eq!(window.widen(1), Err(Reason::FlowControl));
    }

    #[test]
    fn what_came_may_come_again_once_it_is_used_up() {
        let (mut windows, mut out) = (Windows::new(1000), BytesMut::new());
        let half = HERE / 2;
        for _ in 0..10 {
            windows.came(usize::try_from(half).unwrap()).unwrap();
            windows.free(half - 1);
            windows.credit_much(&mut out);
            assert!(out.is_empty(), "not worth a frame yet");
            windows.free(1);
            windows.credit_much(&mut out);
            assert_eq!(out.split().get(9..), Some(&half.to_be_bytes()[..]));
        }
        assert_eq!(windows.came(usize::try_from(HERE).unwrap() + 1), Err(Reason::FlowControl));
    }
}
