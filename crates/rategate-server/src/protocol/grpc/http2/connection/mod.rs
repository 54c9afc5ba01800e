//! An HTTP/2 connection without IO: received bytes in, bytes to send out.
//!
//! It is never a client, pushes nothing, ignores priorities, and compresses none of its own
//! fields. Every frame is bounded before memory is reserved for it. Frames that cause work without
//! requesting a decision are charged to a [budget](crate::protocol::budget) that decisions refill.
//!
//! This module splits bytes into frames and dispatches them. The submodules handle heads
//! (`heads`), messages and their decisions (`calls`), calls delayed after wrong tokens (`delayed`),
//! calls of many messages (`streaming`), flow control (`sending`), the set of streams (`streams`),
//! and the ends of calls and connections (`ending`).

mod calls;
mod delayed;
mod ending;
mod heads;
mod sending;
mod streaming;
mod streams;
#[cfg(test)]
mod tests;

use std::time::Instant;

use bytes::{Buf, BytesMut};
use rategate_protocol::http2::Decoder;
use rategate_protocol::http2::Windows;
use rategate_protocol::http2::{
    ACK, CONTINUATION, DATA, Frame, GOAWAY, HEADERS, PING, PREFACE, PRIORITY, PUSH_PROMISE,
    RST_STREAM, Reason, SETTINGS, WINDOW_UPDATE, put_frame, put_settings,
};

use self::ending::Ending;
use self::heads::Begun;
use self::streams::Cut;
use super::fields::CallFields;
use super::stream::Stream;
use crate::net::{Attempts, RefusalReason};
use crate::protocol::budget::Budget;
use crate::protocol::grpc::Rls;
use crate::protocol::rls::{Decide, LaterAnswer};

/// The progress of the peer's preface (RFC 9113, section 3.4): first a text, then its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Greeting {
    Awaited,
    Begun,
    Whole,
}

pub(super) struct Connection<D> {
    rls: Rls<D>,
    decoder: Decoder<CallFields>,
    /// `true` if every call has to show the token.
    token_required: bool,
    streams: Vec<Stream>,
    /// The highest number of a stream that has begun.
    last: u32,
    cut: Cut,
    /// The decisions that wait for stores, each with its stream.
    later: Vec<(u32, LaterAnswer)>,
    /// A head that continues in the next frame.
    head: Option<Begun>,
    greeting: Greeting,
    /// `true` if replies wait until others are written.
    is_held_back: bool,
    ending: Ending,
    windows: Windows,
    budget: Budget,
    attempts: Attempts,
}

impl<D: Decide + Send + Sync + 'static> Connection<D> {
    pub(super) fn new(
        rls: Rls<D>,
        token_required: bool,
        attempts: Attempts,
        now: Instant,
        out: &mut BytesMut,
    ) -> Self {
        let settings = &rls.inner.settings;
        let windows = Windows::new(settings.max_message_bytes);
        put_settings(out, settings.max_streams, windows.first_receive, settings.max_head_bytes);
        windows.put(out);
        Self {
            decoder: Decoder::new(CallFields(rls.inner.access.clone())),
            rls,
            token_required,
            streams: Vec::new(),
            last: 0,
            cut: Cut::default(),
            later: Vec::new(),
            head: None,
            greeting: Greeting::Awaited,
            is_held_back: false,
            ending: Ending::Not,
            windows,
            budget: Budget::new(now),
            attempts,
        }
    }

    /// Counts a refused call, if there is a reason.
    fn refused(&self, reason: Option<RefusalReason>) {
        if let Some(reason) = reason {
            self.attempts.refused(reason);
        }
    }

    /// Counts the end of the connection for this reason.
    pub(super) fn count_end(&self, reason: Reason) {
        let is_too_much = reason == Reason::EnhanceYourCalm;
        let refusal = if is_too_much { RefusalReason::TooMuch } else { RefusalReason::Malformed };
        self.attempts.refused(refusal);
    }

    /// Processes the input up to its last complete frame. Returns the number of bytes that the
    /// next frame needs.
    pub(super) fn receive(
        &mut self,
        input: &mut BytesMut,
        out: &mut BytesMut,
    ) -> Result<usize, Reason> {
        if self.greeting == Greeting::Awaited {
            let length = input.len().min(PREFACE.len());
            if input.get(..length) != PREFACE.get(..length) {
                return Err(Reason::Protocol);
            }
            if length < PREFACE.len() {
                return Ok(PREFACE.len());
            }
            input.advance(length);
            self.greeting = Greeting::Begun;
        }
        let mut at = 0_usize;
        let needed = loop {
            match Frame::first(input.get(at..).unwrap_or_default())? {
                Ok(frame) => {
                    self.frame(&frame, out)?;
                    at = at.saturating_add(frame.length());
                }
                Err(needed) => break needed,
            }
        };
        input.advance(at);
        self.windows.credit_much(out);
        Ok(needed)
    }

    pub(super) const fn is_greeted(&self) -> bool {
        matches!(self.greeting, Greeting::Whole)
    }

    fn frame(&mut self, frame: &Frame<'_>, out: &mut BytesMut) -> Result<(), Reason> {
        if self.head.is_some() != (frame.kind == CONTINUATION) {
            return Err(Reason::Protocol);
        }
        if self.greeting != Greeting::Whole {
            if frame.kind != SETTINGS || frame.has(ACK) {
                return Err(Reason::Protocol);
            }
            self.greeting = Greeting::Whole;
        }
        match frame.kind {
            DATA => self.data(frame, out),
            HEADERS => self.headers(frame, out),
            CONTINUATION => self.continuation(frame, out),
            WINDOW_UPDATE => self.window(frame, out),
            RST_STREAM => self.reset(frame),
            SETTINGS => self.settings(frame, out),
            PING => self.ping(frame, out),
            PRIORITY => self.priority(frame),
            PUSH_PROMISE => Err(Reason::Protocol),
            GOAWAY if frame.stream != 0 => Err(Reason::Protocol),
            GOAWAY if frame.payload.len() < 8 => Err(Reason::FrameSize),
            // GOAWAY and unknown frames are ignored, but charged.
            _ => Ok(self.budget.spend(1)?),
        }
    }

    fn settings(&mut self, frame: &Frame<'_>, out: &mut BytesMut) -> Result<(), Reason> {
        self.budget.spend(1)?;
        let (settings, rest) = frame.payload.as_chunks::<6>();
        if frame.stream != 0 {
            return Err(Reason::Protocol);
        }
        if !rest.is_empty() || (frame.has(ACK) && !settings.is_empty()) {
            return Err(Reason::FrameSize);
        }
        if frame.has(ACK) {
            return Ok(());
        }
        let mut first = None;
        for &[name, kind, a, b, c, d] in settings {
            let value = u32::from_be_bytes([a, b, c, d]);
            match u16::from_be_bytes([name, kind]) {
                2 if value > 1 => return Err(Reason::Protocol),
                4 if value > 0x7fff_ffff => return Err(Reason::FlowControl),
                4 => first = Some(value),
                5 if !(16_384..=0x00ff_ffff).contains(&value) => return Err(Reason::Protocol),
                _ => {}
            }
        }
        // The last value of a frame is applied once, however often the frame repeats the setting.
        if let Some(first) = first {
            self.change_windows(first)?;
        }
        put_frame(out, SETTINGS, ACK, 0, 0);
        self.pump_all(out);
        Ok(())
    }

    /// Checks a priority frame, which otherwise is ignored.
    fn priority(&mut self, frame: &Frame<'_>) -> Result<(), Reason> {
        self.budget.spend(1)?;
        match <[u8; 5]>::try_from(frame.payload) {
            _ if frame.stream == 0 => Err(Reason::Protocol),
            Ok(priority) if frame.depends_on_itself(priority) => Err(Reason::Protocol),
            Ok(_) => Ok(()),
            Err(_) => Err(Reason::FrameSize),
        }
    }

    fn ping(&mut self, frame: &Frame<'_>, out: &mut BytesMut) -> Result<(), Reason> {
        self.budget.spend(1)?;
        match (frame.stream, frame.payload.len()) {
            (0, 8) => {}
            (0, _) => return Err(Reason::FrameSize),
            _ => return Err(Reason::Protocol),
        }
        if !frame.has(ACK) {
            put_frame(out, PING, ACK, 0, 8);
            out.extend_from_slice(frame.payload);
        } else if self.ending == Ending::Announced {
            // All frames sent before the peer received the GOAWAY have arrived.
            self.close(out);
        }
        Ok(())
    }
}
