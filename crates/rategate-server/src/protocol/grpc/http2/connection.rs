//! A connection of HTTP/2 without IO: bytes that came in, bytes that are to be sent out.
//!
//! What it does without: it is never a client, pushes nothing, has no priorities, and packs no fields of its own. What it takes care
//! of: every frame has a bound before there is memory for it, and whatever makes work without asking for a decision
//! has a budget that decisions fill.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};

use super::hpack::{Decoder, Unpacking};
use super::stream::Stream;
use super::wire::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, MOST_FRAME, PING,
    PREFACE, PRIORITY, PUSH_PROMISE, RST_STREAM, Reason, SETTINGS, WINDOW_UPDATE, WITH_PRIORITY,
    put_answer, put_end, put_frame, put_goaway, put_ping, put_refusal, put_reset, put_settings,
    put_window,
};
use crate::engine::Answer;
use crate::net::Access;
use crate::protocol::grpc::head::{Method, Refusal};
use crate::protocol::grpc::service::next;
use crate::protocol::grpc::status::{Code, Status};
use crate::protocol::grpc::{Rls, Unary, frame};
use crate::protocol::rls::{Asked, Decide};

/// How many bytes of all streams may be on their way here, if the longest message is no longer.
const WINDOW: u32 = 1 << 20;
/// Answers about services are made until so many bytes wait to be written, and then when these have been.
const MOST_UNWRITTEN: usize = 64 << 10;
/// The window that a connection has at first.
const FIRST_WINDOW: u32 = 65_535;
/// A window is never larger.
const MOST_WINDOW: i64 = 0x7fff_ffff;
/// What can be done that asks for no decision: frames that are about the connection, streams given up, refused ones.
const BUDGET: u32 = 1024;
/// What a decision adds to that. So does each second, by one: whoever says that he is there now and then may do so for ever.
const EARNED: u32 = 16;
/// Giving up a stream costs so much: hardly more of them than of decisions.
const RESET: u32 = 12;

type Later = Pin<Box<dyn Future<Output = Result<Answer, Asked>> + Send>>;

/// How far the end of a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Not,
    /// The other end is told of it, and may not know yet.
    Told,
    /// No more calls begin: what the other end says of later ones means nothing.
    Known,
}

pub(super) struct Connection<D> {
    rls: Rls<D>,
    decoder: Decoder,
    streams: Vec<Stream>,
    later: Vec<(u32, Later)>,
    /// A head that goes on in the next frame: its stream, whether that is all of the call, and what has come of it.
    head: Option<(u32, bool, Vec<u8>)>,
    is_greeted: bool,
    /// Whether answers wait for others to be written.
    is_held_back: bool,
    ending: Ending,
    last: u32,
    may_send: i64,
    first_send: i64,
    /// How many bytes may come, of how many at most, how many of these have been used up since the other end was told, and how large each
    /// stream's share is.
    may_come: i64,
    window: u32,
    used: u32,
    first_come: u32,
    budget: u32,
    /// When time last added to the budget.
    filled: Instant,
}

impl<D: Decide + Send + Sync + 'static> Connection<D> {
    pub(super) fn new(
        rls: Rls<D>,
        access: Option<Access>,
        now: Instant,
        out: &mut BytesMut,
    ) -> Self {
        let settings = &rls.inner.settings;
        let message = settings.most_message.saturating_add(frame::PREFIX);
        let first_come = u32::try_from(message).unwrap_or(u32::MAX);
        let first_come = first_come.clamp(FIRST_WINDOW, 0x7fff_ffff);
        let window = first_come.max(WINDOW);
        put_settings(out, settings.most_streams, first_come, settings.most_head);
        put_window(out, 0, window.saturating_sub(FIRST_WINDOW));
        Self {
            rls,
            decoder: Decoder::new(access),
            streams: Vec::new(),
            later: Vec::new(),
            head: None,
            is_greeted: false,
            is_held_back: false,
            ending: Ending::Not,
            last: 0,
            may_send: i64::from(FIRST_WINDOW),
            first_send: i64::from(FIRST_WINDOW),
            may_come: i64::from(window),
            window,
            used: 0,
            first_come,
            budget: BUDGET,
            filled: now,
        }
    }

    /// Takes in what came, as far as it is whole frames, and says how many bytes the next one needs.
    pub(super) fn receive(
        &mut self,
        input: &mut BytesMut,
        out: &mut BytesMut,
    ) -> Result<usize, Reason> {
        if !self.is_greeted {
            let length = input.len().min(PREFACE.len());
            if input.get(..length) != PREFACE.get(..length) {
                return Err(Reason::Protocol);
            }
            if length < PREFACE.len() {
                return Ok(PREFACE.len());
            }
            input.advance(length);
            self.is_greeted = true;
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
        self.credit_much(out);
        Ok(needed)
    }

    fn frame(&mut self, frame: &Frame<'_>, out: &mut BytesMut) -> Result<(), Reason> {
        if self.head.is_some() != (frame.kind == CONTINUATION) {
            return Err(Reason::Protocol);
        }
        match frame.kind {
            DATA => self.data(frame, out),
            HEADERS => self.headers(frame, out),
            CONTINUATION => self.continuation(frame, out),
            WINDOW_UPDATE => self.window(frame, out),
            RST_STREAM => self.reset(frame),
            SETTINGS => self.settings(frame, out),
            PING => self.ping(frame, out),
            PUSH_PROMISE => Err(Reason::Protocol),
            GOAWAY if frame.stream != 0 => Err(Reason::Protocol),
            PRIORITY if frame.stream == 0 => Err(Reason::Protocol),
            // Priorities, farewells, and whatever else there is may be ignored, but not for ever.
            _ => self.spend(1),
        }
    }

    fn ping(&mut self, frame: &Frame<'_>, out: &mut BytesMut) -> Result<(), Reason> {
        self.spend(1)?;
        match (frame.stream, frame.payload.len()) {
            (0, 8) => {}
            (0, _) => return Err(Reason::FrameSize),
            _ => return Err(Reason::Protocol),
        }
        if !frame.has(ACK) {
            put_frame(out, PING, ACK, 0, 8);
            out.extend_from_slice(frame.payload);
        } else if self.ending == Ending::Told {
            // Whatever was sent before the farewell came has come.
            self.close(out);
        }
        Ok(())
    }

    /// What asks for no decision is paid for.
    fn spend(&mut self, cost: u32) -> Result<(), Reason> {
        self.budget = self.budget.checked_sub(cost).ok_or(Reason::EnhanceYourCalm)?;
        Ok(())
    }

    fn earn(&mut self) {
        self.budget = self.budget.saturating_add(EARNED).min(BUDGET);
    }

    fn headers(&mut self, frame: &Frame<'_>, out: &mut BytesMut) -> Result<(), Reason> {
        let mut block = frame.unpadded()?;
        if frame.has(WITH_PRIORITY) {
            block = block.get(5..).ok_or(Reason::FrameSize)?;
        }
        if frame.stream.is_multiple_of(2) {
            return Err(Reason::Protocol);
        }
        if frame.has(END_HEADERS) {
            return self.begin(frame.stream, frame.has(END_STREAM), block, out);
        }
        self.spend(1)?;
        self.head = Some((frame.stream, frame.has(END_STREAM), block.to_vec()));
        Ok(())
    }

    fn continuation(&mut self, frame: &Frame<'_>, out: &mut BytesMut) -> Result<(), Reason> {
        self.spend(1)?;
        let Some((stream, is_ended, mut block)) = self.head.take() else {
            return Err(Reason::Protocol);
        };
        if frame.stream != stream {
            return Err(Reason::Protocol);
        }
        // Packed, a head is no longer than unpacked, but for the changes of the table's size.
        if block.len().saturating_add(frame.payload.len()) > self.rls.inner.settings.most_head {
            return Err(Reason::EnhanceYourCalm);
        }
        block.extend_from_slice(frame.payload);
        if frame.has(END_HEADERS) {
            return self.begin(stream, is_ended, &block, out);
        }
        self.head = Some((stream, is_ended, block));
        Ok(())
    }

    /// A head is whole: a call begins, or fields at its end come.
    fn begin(
        &mut self,
        id: u32,
        is_ended: bool,
        block: &[u8],
        out: &mut BytesMut,
    ) -> Result<(), Reason> {
        let settings = self.rls.inner.settings;
        let unpacked = self.decoder.decode(block, settings.most_head);
        let unpacked = unpacked.map_err(|error| match error {
            Unpacking::Compression => Reason::Compression,
            Unpacking::TooMuch => Reason::EnhanceYourCalm,
        })?;
        if id > self.last && self.ending == Ending::Known {
            return Ok(());
        }
        if id <= self.last {
            self.spend(1)?;
            return match self.find(id) {
                Some(index) if is_ended => self.end(index, &[], out),
                Some(_) => Err(Reason::Protocol),
                None => Ok(()),
            };
        }
        self.last = id;
        if self.streams.len() >= usize::try_from(settings.most_streams).unwrap_or(usize::MAX) {
            self.spend(RESET)?;
            put_reset(out, id, Reason::RefusedStream);
            return Ok(());
        }
        if !unpacked.is_whole {
            self.spend(RESET)?;
            put_reset(out, id, Reason::Protocol);
            return Ok(());
        }
        match unpacked.head.call() {
            Ok((method, timeout)) => {
                let most = settings.most_wait;
                let wait = timeout.map_or(most, |timeout| timeout.min(most));
                let come = i64::from(self.first_come);
                let stream = Stream::new(id, method, wait, self.first_send, come);
                #[cfg(feature = "otlp")]
                let stream = Stream { span: unpacked.head.span, ..stream };
                self.streams.push(stream);
                if is_ended {
                    self.end(self.streams.len().saturating_sub(1), &[], out)?;
                }
                Ok(())
            }
            Err(refusal) => {
                put_refusal(out, id, &refusal);
                if !is_ended {
                    put_reset(out, id, Reason::NoError);
                }
                Ok(())
            }
        }
    }

    fn data(&mut self, frame: &Frame<'_>, out: &mut BytesMut) -> Result<(), Reason> {
        if frame.stream == 0 || self.is_to_come(frame.stream) {
            return Err(Reason::Protocol);
        }
        let length = u32::try_from(frame.payload.len()).unwrap_or(u32::MAX);
        self.may_come = self.may_come.saturating_sub(i64::from(length));
        if self.may_come < 0 {
            return Err(Reason::FlowControl);
        }
        let data = frame.unpadded()?;
        let is_ended = frame.has(END_STREAM);
        if data.is_empty() && !is_ended {
            self.spend(1)?;
        }
        let Some(index) = self.find(frame.stream) else {
            // It came too late, for a call that has its answer.
            self.spend(u32::from(!is_ended))?;
            self.used = self.used.saturating_add(length);
            return Ok(());
        };
        let Some(stream) = self.streams.get_mut(index) else { return Ok(()) };
        stream.may_come = stream.may_come.saturating_sub(i64::from(length));
        if stream.is_ended {
            return Err(Reason::StreamClosed);
        }
        if stream.may_come < 0 {
            return Err(Reason::FlowControl);
        }
        stream.held = stream.held.saturating_add(length);
        if is_ended {
            return self.end(index, data, out);
        }
        stream.bytes.extend_from_slice(data);
        if stream.method == Method::Reflect {
            self.reflect(index, out);
            return Ok(());
        }
        if self.used > 0 {
            // A message that comes in parts may be as long as all that may come.
            self.credit(out);
        }
        let Some(stream) = self.streams.get(index) else { return Ok(()) };
        let most = self.rls.inner.settings.most_message;
        let judged = match frame::length(&stream.bytes, most) {
            Ok(Some(whole)) if stream.bytes.len() > whole => {
                Err(Status::new(Code::Internal, "there is more than one message"))
            }
            Ok(_) => Ok(()),
            Err(status) => Err(status),
        };
        if let Err(status) = judged {
            self.fail(index, status, out);
        }
        Ok(())
    }

    /// The caller has said all. `rest` is what came last.
    fn end(&mut self, index: usize, rest: &[u8], out: &mut BytesMut) -> Result<(), Reason> {
        let Some(stream) = self.streams.get_mut(index) else { return Ok(()) };
        if std::mem::replace(&mut stream.is_ended, true) {
            return Err(Reason::StreamClosed);
        }
        if stream.method == Method::Reflect {
            stream.bytes.extend_from_slice(rest);
            self.reflect(index, out);
            return Ok(());
        }
        let gathered;
        let bytes = if stream.bytes.is_empty() {
            rest
        } else {
            stream.bytes.extend_from_slice(rest);
            gathered = std::mem::take(&mut stream.bytes);
            &gathered
        };
        let (id, method) = (stream.id, stream.method);
        #[cfg(feature = "otlp")]
        let _within = stream.span.map(crate::engine::CallerSpan::enter);
        let message = match frame::only(bytes, self.rls.inner.settings.most_message) {
            Ok(message) => message,
            Err(status) => {
                self.fail(index, status, out);
                return Ok(());
            }
        };
        if method == Method::Watch {
            self.watch(index, message, out);
            return Ok(());
        }
        let start = out.len();
        put_answer(out, id);
        let data = self.begin_data(index, out);
        match self.rls.unary(method, message, out) {
            Ok(()) => {
                self.earn();
                self.send(index, data, out);
            }
            Err(Unary::Failed(status)) => {
                out.truncate(start);
                self.fail(index, status, out);
            }
            Err(Unary::Later(decided)) => {
                out.truncate(start);
                // The decision is under way, whether or not the caller waits for it.
                self.earn();
                if let Some(stream) = self.streams.get_mut(index) {
                    stream.is_asked = true;
                }
                let later = async move { Ok(decided.answer().await?) };
                self.later.push((id, Box::pin(later)));
            }
        }
        Ok(())
    }

    /// Room for the head of a frame of data. Its place is where the frame begins.
    fn begin_data(&mut self, index: usize, out: &mut BytesMut) -> usize {
        let at = out.len();
        if let Some(stream) = self.streams.get_mut(index) {
            stream.is_answered = true;
            put_frame(out, DATA, 0, stream.id, 0);
        }
        at
    }

    /// Sends what was written as the data of a call of one message, which ends so.
    fn send(&mut self, index: usize, frame_at: usize, out: &mut BytesMut) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        let data_at = frame_at.saturating_add(super::wire::HEAD);
        let length = out.len().saturating_sub(data_at);
        let wide = i64::try_from(length).unwrap_or(i64::MAX);
        if wide <= self.may_send.min(stream.may_send) && length <= MOST_FRAME {
            self.may_send = self.may_send.saturating_sub(wide);
            let [_, a, b, c] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
            if let Some(place) = out.get_mut(frame_at..frame_at.saturating_add(3)) {
                place.copy_from_slice(&[a, b, c]);
            }
            put_end(out, stream.id, &Status::OK);
            self.forget(index);
            return;
        }
        stream.blocked = Bytes::copy_from_slice(out.get(data_at..).unwrap_or_default());
        stream.end = Some(Status::OK);
        out.truncate(frame_at);
        self.pump(index, out);
    }

    /// Sends what was blocked, as far as it may; then the end, if there is one. Whether the stream is gone then.
    fn pump(&mut self, index: usize, out: &mut BytesMut) -> bool {
        let Some(stream) = self.streams.get_mut(index) else { return false };
        while !stream.blocked.is_empty() {
            let may = self.may_send.min(stream.may_send);
            let may = usize::try_from(may).unwrap_or(0).min(MOST_FRAME);
            if may == 0 {
                return false;
            }
            let part = stream.blocked.split_to(may.min(stream.blocked.len()));
            put_frame(out, DATA, 0, stream.id, part.len());
            out.extend_from_slice(&part);
            let sent = i64::try_from(part.len()).unwrap_or(i64::MAX);
            stream.may_send = stream.may_send.saturating_sub(sent);
            self.may_send = self.may_send.saturating_sub(sent);
        }
        let Some(status) = stream.end.take() else { return false };
        put_end(out, stream.id, &status);
        if !stream.is_ended {
            put_reset(out, stream.id, Reason::NoError);
        }
        self.forget(index);
        true
    }

    /// Ends a call without a message, or without another.
    fn fail(&mut self, index: usize, status: Status, out: &mut BytesMut) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        if stream.is_answered && (stream.watcher.is_some() || stream.method == Method::Reflect) {
            stream.end = Some(status);
            self.pump(index, out);
            return;
        }
        put_refusal(out, stream.id, &Refusal::Grpc(status));
        if !stream.is_ended {
            put_reset(out, stream.id, Reason::NoError);
        }
        self.forget(index);
    }

    /// A stream has ended: what it held may come anew.
    fn forget(&mut self, index: usize) {
        if index < self.streams.len() {
            let stream = self.streams.swap_remove(index);
            self.used = self.used.saturating_add(stream.held);
            if stream.is_asked {
                self.later.retain(|(id, _)| *id != stream.id);
            }
        }
    }

    fn watch(&mut self, index: usize, message: &[u8], out: &mut BytesMut) {
        match self.rls.inner.health.watch(message) {
            Ok(watcher) => {
                if let Some(stream) = self.streams.get_mut(index) {
                    (stream.watcher, stream.until) = (Some(watcher), None);
                    stream.is_answered = true;
                    put_answer(out, stream.id);
                }
                self.tell(index, out);
            }
            Err(status) => self.fail(index, status, out),
        }
    }

    /// Tells whoever watches the news, when the last ones have been sent.
    fn tell(&mut self, index: usize, out: &mut BytesMut) {
        if let Some(stream) = self.streams.get_mut(index)
            && stream.blocked.is_empty()
            && let Some(news) =
                stream.watcher.as_mut().and_then(super::super::health::Watcher::news)
        {
            stream.blocked = news;
            self.pump(index, out);
        }
    }

    /// Answers questions about services, each when the last answer has been sent.
    fn reflect(&mut self, index: usize, out: &mut BytesMut) {
        let most = self.rls.inner.settings.most_message;
        loop {
            let Some(stream) = self.streams.get_mut(index) else { return };
            if !stream.blocked.is_empty() || stream.end.is_some() {
                return;
            }
            if out.len() >= MOST_UNWRITTEN {
                self.is_held_back = true;
                return;
            }
            match next(&mut stream.bytes, most) {
                Ok(Some(answer)) => {
                    // As much may come again as is not kept any more.
                    let kept = u32::try_from(stream.bytes.len()).unwrap_or(u32::MAX);
                    let freed = stream.held.saturating_sub(kept);
                    stream.held = kept;
                    stream.may_come = stream.may_come.saturating_add(i64::from(freed));
                    stream.until = None;
                    stream.blocked = answer;
                    let id = stream.id;
                    if !std::mem::replace(&mut stream.is_answered, true) {
                        put_answer(out, id);
                    }
                    if freed > 0 && !stream.is_ended {
                        put_window(out, id, freed);
                    }
                    self.used = self.used.saturating_add(freed);
                    self.pump(index, out);
                }
                Ok(None) if stream.is_ended => {
                    let status = if stream.bytes.is_empty() {
                        Status::OK
                    } else {
                        Status::new(Code::Internal, "the call ends within a message")
                    };
                    return self.fail(index, status, out);
                }
                Ok(None) => return,
                Err(status) => return self.fail(index, status, out),
            }
        }
    }

    fn window(&mut self, frame: &Frame<'_>, out: &mut BytesMut) -> Result<(), Reason> {
        let more = i64::from(frame.number()? & 0x7fff_ffff);
        self.spend(1)?;
        if more == 0 {
            return Err(Reason::Protocol);
        }
        if frame.stream == 0 {
            self.may_send = self.may_send.saturating_add(more);
            if self.may_send > MOST_WINDOW {
                return Err(Reason::FlowControl);
            }
            self.pump_all(out);
            return Ok(());
        }
        let Some(index) = self.find(frame.stream) else {
            return if self.is_to_come(frame.stream) { Err(Reason::Protocol) } else { Ok(()) };
        };
        if let Some(stream) = self.streams.get_mut(index) {
            stream.may_send = stream.may_send.saturating_add(more);
            if stream.may_send > MOST_WINDOW {
                return Err(Reason::FlowControl);
            }
        }
        self.go_on(index, out);
        Ok(())
    }

    /// Sends what has room now. Whether the stream is still there.
    fn go_on(&mut self, index: usize, out: &mut BytesMut) -> bool {
        if self.pump(index, out) {
            return false;
        }
        let before = self.streams.len();
        match self.streams.get(index) {
            Some(stream) if stream.watcher.is_some() => self.tell(index, out),
            Some(stream) if stream.method == Method::Reflect => self.reflect(index, out),
            _ => {}
        }
        self.streams.len() == before
    }

    fn pump_all(&mut self, out: &mut BytesMut) {
        let mut index = 0_usize;
        while index < self.streams.len() {
            if out.len() >= MOST_UNWRITTEN {
                self.is_held_back = true;
                return;
            }
            // Where one is gone, another has its place.
            if self.go_on(index, out) {
                index = index.saturating_add(1);
            }
        }
    }

    /// All has been written: what was held back goes on. Whether there was anything.
    pub(super) fn go_on_with_all(&mut self, out: &mut BytesMut) -> bool {
        let is_held_back = std::mem::take(&mut self.is_held_back);
        if is_held_back {
            self.pump_all(out);
        }
        is_held_back
    }

    /// Whether nothing has been said of a stream that might be.
    fn is_to_come(&self, stream: u32) -> bool {
        stream > self.last && self.ending != Ending::Known
    }

    fn reset(&mut self, frame: &Frame<'_>) -> Result<(), Reason> {
        frame.number()?;
        if frame.stream == 0 || self.is_to_come(frame.stream) {
            return Err(Reason::Protocol);
        }
        self.spend(RESET)?;
        if let Some(index) = self.find(frame.stream) {
            self.forget(index);
        }
        Ok(())
    }

    fn settings(&mut self, frame: &Frame<'_>, out: &mut BytesMut) -> Result<(), Reason> {
        self.spend(1)?;
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
        let mut first = self.first_send;
        for &[name, kind, a, b, c, d] in settings {
            let value = u32::from_be_bytes([a, b, c, d]);
            match u16::from_be_bytes([name, kind]) {
                2 if value > 1 => return Err(Reason::Protocol),
                4 if value > 0x7fff_ffff => return Err(Reason::FlowControl),
                4 => first = i64::from(value),
                5 if !(16_384..=0x00ff_ffff).contains(&value) => return Err(Reason::Protocol),
                _ => {}
            }
        }
        // All windows once, however often a frame says how large they are.
        self.change_windows(first)?;
        put_frame(out, SETTINGS, ACK, 0, 0);
        self.pump_all(out);
        Ok(())
    }

    fn change_windows(&mut self, first: i64) -> Result<(), Reason> {
        let more = first.saturating_sub(self.first_send);
        self.first_send = first;
        for stream in &mut self.streams {
            stream.may_send = stream.may_send.saturating_add(more);
            if stream.may_send > MOST_WINDOW {
                return Err(Reason::FlowControl);
            }
        }
        Ok(())
    }

    /// Lets as much come again as has been used up, if that is worth a frame.
    fn credit_much(&mut self, out: &mut BytesMut) {
        if self.used >= self.window / 2 {
            self.credit(out);
        }
    }

    fn credit(&mut self, out: &mut BytesMut) {
        put_window(out, 0, self.used);
        self.may_come = self.may_come.saturating_add(i64::from(self.used));
        self.used = 0;
    }

    fn find(&self, id: u32) -> Option<usize> {
        self.streams.iter().rposition(|stream| stream.id == id)
    }

    /// Streams that are not done have a deadline from now on. The first of all deadlines.
    pub(super) fn deadline(&mut self, now: impl FnOnce() -> Instant) -> Option<Instant> {
        if self.streams.iter().any(|stream| stream.is_timed() && stream.until.is_none()) {
            let now = now();
            for stream in &mut self.streams {
                if stream.is_timed() && stream.until.is_none() {
                    stream.until = now.checked_add(stream.wait);
                }
            }
        }
        self.streams.iter().filter_map(|stream| stream.until).min()
    }

    /// Ends what took too long. Has to be called at least once in a while: the budget grows with time.
    pub(super) fn late(&mut self, now: Instant, out: &mut BytesMut) {
        let seconds = now.saturating_duration_since(self.filled).as_secs();
        if seconds > 0 {
            self.filled = now;
            let more = u32::try_from(seconds).unwrap_or(u32::MAX);
            self.budget = self.budget.saturating_add(more).min(BUDGET);
        }
        while let Some(index) =
            self.streams.iter().position(|stream| stream.until.is_some_and(|until| until <= now))
        {
            let Some(stream) = self.streams.get_mut(index) else { return };
            stream.until = None;
            if stream.is_answered {
                // It is the caller who does not take the answer.
                put_reset(out, stream.id, Reason::Cancel);
                self.forget(index);
            } else {
                self.fail(index, Status::late(), out);
            }
        }
        self.credit_much(out);
    }

    /// Waits for stores and for news, and writes what they bring. Never ready otherwise.
    pub(super) fn poll_later(&mut self, context: &mut Context<'_>, out: &mut BytesMut) -> Poll<()> {
        let mut poll = Poll::Pending;
        let mut at = 0_usize;
        while let Some((id, later)) = self.later.get_mut(at) {
            let id = *id;
            let Poll::Ready(answer) = later.as_mut().poll(context) else {
                at = at.saturating_add(1);
                continue;
            };
            drop(self.later.swap_remove(at));
            self.answer(id, answer, out);
            poll = Poll::Ready(());
        }
        poll
    }

    fn answer(&mut self, id: u32, answer: Result<Answer, Asked>, out: &mut BytesMut) {
        let Some(index) = self.find(id) else { return };
        if let Some(stream) = self.streams.get_mut(index) {
            stream.is_asked = false;
        }
        match answer {
            Ok(answer) => {
                put_answer(out, id);
                let data = self.begin_data(index, out);
                self.rls.write(&answer, out);
                self.send(index, data, out);
            }
            Err(asked) => self.fail(index, asked.into(), out),
        }
        self.credit_much(out);
    }

    /// Whoever watches is told the news.
    pub(super) fn tell_all(&mut self, out: &mut BytesMut) {
        for index in 0..self.streams.len() {
            self.tell(index, out);
        }
    }

    pub(super) fn is_watched(&self) -> bool {
        self.streams.iter().any(|stream| stream.watcher.is_some())
    }

    pub(super) const fn is_greeted(&self) -> bool {
        self.is_greeted
    }

    /// Whether a head has begun, and not ended.
    pub(super) const fn is_within_a_head(&self) -> bool {
        self.head.is_some()
    }

    /// Soon no more calls begin: those that are on their way do, until the other end is known to have heard of it, by its
    /// answer to a ping. Whoever watches is told, and then that it is over.
    pub(super) fn drain(&mut self, out: &mut BytesMut) {
        if self.ending != Ending::Not {
            return;
        }
        self.ending = Ending::Told;
        put_goaway(out, 0x7fff_ffff, Reason::NoError);
        put_ping(out);
        self.end_news(out);
    }

    /// No more calls begin; those that there are go on.
    pub(super) fn close(&mut self, out: &mut BytesMut) {
        if self.ending != Ending::Known {
            self.ending = Ending::Known;
            put_goaway(out, self.last, Reason::NoError);
            self.end_news(out);
        }
    }

    /// Ends what would never end by itself.
    fn end_news(&mut self, out: &mut BytesMut) {
        self.tell_all(out);
        while let Some(index) = self.streams.iter().position(|stream| {
            (stream.watcher.is_some() || stream.method == Method::Reflect) && stream.end.is_none()
        }) {
            self.fail(index, Status::new(Code::Unavailable, "the server is going away"), out);
        }
    }

    /// Whether nothing is left to do after a drain.
    pub(super) fn is_over(&self) -> bool {
        self.ending == Ending::Known && self.streams.is_empty()
    }

    /// The last that is said when something is wrong with the connection.
    pub(super) fn give_up(&self, reason: Reason, out: &mut BytesMut) {
        put_goaway(out, self.last, reason);
    }
}

/// How long nothing may come before somebody is asked for.
pub(super) const SILENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use bytes::BytesMut;

    use super::{BUDGET, Connection, Reason};
    use crate::engine::{Decided, Fault, Request};
    use crate::net::Access;
    use crate::protocol::grpc::{Health, Rls, Settings};
    use crate::protocol::rls::Decide;

    struct Nobody;

    impl Decide for Nobody {
        fn decide(&self, _: &Request<'_>) -> Decided {
            Decided::Now(Err(Fault::NotLoaded))
        }
    }

    #[test]
    fn who_only_says_that_he_is_there_may_stay() {
        let rls = Rls::new(Nobody, Access::default(), Health::new(true), Settings::default());
        let (mut now, mut out) = (Instant::now(), BytesMut::new());
        let mut connection = Connection::new(rls, None, now, &mut out);
        let mut input = BytesMut::from(&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..]);
        connection.receive(&mut input, &mut out).unwrap();
        let ping = b"\x00\x00\x08\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00";
        let mut pings = |connection: &mut Connection<Nobody>, many| {
            input.extend_from_slice(&ping.repeat(many));
            out.clear();
            connection.receive(&mut input, &mut out)
        };
        // Each 10 s for a day, and looked at once a minute.
        for _ in 0..24 * 60 {
            pings(&mut connection, 6).unwrap();
            now += Duration::from_mins(1);
            connection.late(now, &mut BytesMut::new());
        }
        // Time adds no more than there was at first.
        let many = usize::try_from(BUDGET).unwrap();
        pings(&mut connection, many).unwrap();
        assert_eq!(pings(&mut connection, 1), Err(Reason::EnhanceYourCalm));
    }
}
