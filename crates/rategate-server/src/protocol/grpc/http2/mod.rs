//! Connections that carry only gRPC.
//!
//! A decision takes a fraction of the time that a general HTTP library spends on carrying it.
//! Connections of the gRPC listener are therefore read and written here: whole frames from one
//! buffer, replies into another, and one read and one write for all calls that arrived together.
//! No call needs a task, a channel or a map of fields. See decision 0035 for the figures.

mod connection;
mod fields;
mod stream;

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rategate_protocol::http2::{Reason, put_ping};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{sleep_until, timeout};

use self::connection::Connection;
use super::Rls;
use super::health::State;
use super::service::changed;
use crate::net::{Attempts, Drain, Peer, Protocol, WakeGate, YieldOnce};
use crate::protocol::rls::Decide;

/// The silence after which a peer is sent a ping.
const SILENCE: Duration = Duration::from_secs(60);
/// The number of bytes of one read.
const READ: usize = 16 << 10;
/// The longest time that a peer may take to read the replies.
const TO_READ: Duration = Duration::from_secs(10);
/// The longest time for a peer to learn of a connection's end, and then to close it.
const LINGER: Duration = Duration::from_secs(2);
/// The maximum number of bytes that are read and discarded after the last reply.
const MAX_DISCARDED: usize = 1 << 20;

impl<D: Decide + Send + Sync + 'static> Rls<D> {
    /// Serves HTTP/2 on a connection until its peer ends it, or until `drain` ends it and all
    /// calls have their replies.
    ///
    /// A peer that sends nothing for a minute is sent a ping, and has another minute to confirm
    /// it. The connection ends if the peer does not read its replies for 10 s. It also ends if the
    /// peer begins a frame or a head and does not complete it within
    /// [`max_wait`](super::Settings::max_wait).
    ///
    /// `token_required` is `true` if every call has to show the token.
    pub async fn serve<S>(&self, stream: S, token_required: bool, drain: impl Future<Output = ()>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.speak(stream, token_required, Attempts::default(), drain).await;
    }

    async fn speak<S>(
        &self,
        stream: S,
        token_required: bool,
        attempts: Attempts,
        drain: impl Future<Output = ()>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut stream = stream;
        let (mut input, mut out) = (BytesMut::with_capacity(READ), BytesMut::with_capacity(READ));
        let started = Instant::now();
        let mut connection =
            Connection::new(self.clone(), token_required, attempts.clone(), started, &mut out);
        let drain = pin!(drain);
        let mut drain = WakeGate::new(drain);
        let mut needed = 0_usize;
        let max_wait = self.inner.settings.max_wait;
        let mut quiet = SilenceDetector { until: started.checked_add(max_wait), is_pinged: false };
        let mut begun = InputDeadline { until: None, max: max_wait };
        // The time at which a draining connection is closed, even if its peer has not confirmed
        // the end.
        let mut closed_at = None;
        let timer = pin!(sleep_until(quiet.until.unwrap_or(started).into()));
        let mut timer = WakeGate::new(timer);
        let mut is_draining = false;
        let mut news = pin!(pending_news(None));
        let mut is_watched = false;
        let mut yield_once = YieldOnce::default();
        loop {
            if !out.is_empty() {
                if !write(&mut stream, &mut out, &mut yield_once).await {
                    return;
                }
                if connection.resume_all(&mut out) {
                    continue;
                }
            }
            if connection.is_over() {
                return end(&mut stream, &mut out).await;
            }
            if connection.is_watched() != is_watched {
                is_watched = !is_watched;
                let serving = is_watched.then(|| self.inner.health.subscribe());
                news.set(pending_news(serving));
                connection.send_all_news(&mut out);
                if !out.is_empty() {
                    continue;
                }
            }
            let others = [quiet.until, begun.until, closed_at];
            let wake = connection.deadline(Instant::now).into_iter();
            let wake = wake.chain(others.into_iter().flatten()).min();
            if let Some(wake) = wake
                && timer.get().deadline() > wake.into()
            {
                timer.as_mut().reset(wake.into());
            }
            if input.capacity().saturating_sub(input.len()) < needed.max(READ / 4) {
                input.reserve(needed.max(READ));
            }
            tokio::select! {
                biased;
                read = stream.read_buf(&mut input) => {
                    if !matches!(read, Ok(1..)) {
                        return;
                    }
                    quiet.record_activity();
                    let before = input.len();
                    match connection.receive(&mut input, &mut out) {
                        Ok(more) => needed = more,
                        Err(reason) => {
                            return break_off(&mut stream, &mut out, &mut connection, reason).await;
                        }
                    }
                    let within = connection.is_within_a_head();
                    begun.seen(input.len() < before && !within, !input.is_empty() || within);
                }
                () = poll_fn(|context| connection.poll_later(context, &mut out)) => {}
                () = &mut news => {
                    news.set(pending_news(Some(self.inner.health.subscribe())));
                    connection.send_all_news(&mut out);
                }
                () = &mut drain, if !is_draining => {
                    is_draining = true;
                    connection.drain(&mut out);
                    closed_at = Instant::now().checked_add(LINGER);
                }
                () = &mut timer => {
                    let now = Instant::now();
                    if let Err(reason) = connection.late(now, &mut out) {
                        return break_off(&mut stream, &mut out, &mut connection, reason).await;
                    }
                    let is_late = begun.until.is_some_and(|until| until <= now);
                    if is_late || !quiet.advance(now, connection.is_greeted(), &mut out) {
                        connection.give_up(Reason::NoError, &mut out);
                        return end(&mut stream, &mut out).await;
                    }
                    if closed_at.is_some_and(|at| at <= now) {
                        closed_at = None;
                        connection.close(&mut out);
                    }
                    timer.as_mut().reset(quiet.until.unwrap_or(now).into());
                }
            }
        }
    }
}

/// Writes all output after other tasks have run, and flushes any TLS session. Returns `true` if
/// the peer took it in time.
async fn write<S: AsyncWrite + Unpin>(
    stream: &mut S,
    out: &mut BytesMut,
    yield_once: &mut YieldOnce,
) -> bool {
    poll_fn(|context| yield_once.poll(context)).await;
    let written = timeout(TO_READ, async {
        stream.write_all_buf(out).await?;
        stream.flush().await
    });
    let is_written = matches!(written.await, Ok(Ok(())));
    if out.capacity() > READ.saturating_mul(8) {
        *out = BytesMut::with_capacity(READ);
    }
    is_written
}

/// Ends a connection after a fatal error.
async fn break_off<S: AsyncRead + AsyncWrite + Unpin, D: Decide + Send + Sync + 'static>(
    stream: &mut S,
    out: &mut BytesMut,
    connection: &mut Connection<D>,
    reason: Reason,
) {
    connection.count_end(reason);
    connection.give_up(reason, out);
    end(stream, out).await;
}

/// Writes the last frames, and waits for the peer to close. A system that closes a connection with
/// unread bytes revokes what it has sent, including the last replies.
async fn end<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, out: &mut BytesMut) {
    let farewell = async {
        stream.write_all_buf(out).await?;
        stream.shutdown().await
    };
    if !matches!(timeout(TO_READ, farewell).await, Ok(Ok(()))) {
        return;
    }
    let discard = async {
        let mut scratch = [0; 4096];
        let mut discarded = 0_usize;
        while let Ok(read @ 1..) = stream.read(&mut scratch).await {
            discarded = discarded.saturating_add(read);
            if discarded >= MAX_DISCARDED {
                return;
            }
        }
    };
    let _ = timeout(LINGER, discard).await;
}

/// The settings and a `GOAWAY` with `ENHANCE_YOUR_CALM`, for a connection over the caps.
const CAPACITY_REJECTION: &[u8] = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00\
    \x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0b";

impl<D: Decide + Send + Sync + 'static> Protocol for Rls<D> {
    async fn serve<S>(self, stream: S, peer: Peer, drain: Drain)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.speak(stream, peer.token_required, peer.attempts, drain.begun()).await;
    }

    fn capacity_rejection(&self) -> &'static [u8] {
        CAPACITY_REJECTION
    }
}

/// Waits for the next change of the service's health. Never ends if there are no watchers.
async fn pending_news(serving: Option<tokio::sync::watch::Receiver<State>>) {
    match serving {
        Some(serving) => changed(serving).await,
        None => pending().await,
    }
}

/// The deadline of an incomplete frame or head.
struct InputDeadline {
    /// The time by which it has to be complete, if there is one.
    until: Option<Instant>,
    max: Duration,
}

impl InputDeadline {
    /// Records input. `has_completed` is `true` if it completed the previous item, `is_begun` if it
    /// began another.
    fn seen(&mut self, has_completed: bool, is_begun: bool) {
        if has_completed {
            self.until = None;
        }
        if is_begun && self.until.is_none() {
            self.until = Instant::now().checked_add(self.max);
        }
    }
}

/// The detection of silent peers.
struct SilenceDetector {
    /// The time of the next ping, or of the connection's end.
    until: Option<Instant>,
    is_pinged: bool,
}

impl SilenceDetector {
    /// Records input. The timer is left unchanged, as it fires at most once a minute.
    fn record_activity(&mut self) {
        self.is_pinged = false;
        self.until = None;
    }

    /// Handles the timer. Returns `false` if the connection should end.
    fn advance(&mut self, now: Instant, is_greeted: bool, out: &mut BytesMut) -> bool {
        match self.until {
            _ if !is_greeted => return false,
            // Input has arrived since.
            None => {}
            Some(until) if until > now => return true,
            Some(_) if self.is_pinged => return false,
            Some(_) => {
                self.is_pinged = true;
                put_ping(out);
            }
        }
        self.until = now.checked_add(SILENCE);
        true
    }
}
