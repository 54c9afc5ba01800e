//! Connections that carry nothing but gRPC.
//!
//! A decision takes a fraction of what a general library of HTTP spends on carrying it. So the connections of the listener that is
//! for gRPC alone are read and written here: whole frames out of one buffer, answers into another, one read and one
//! write for all calls that came together, and no task, no channel and no map of fields for each. See decision 0035 for the figures.

mod connection;
mod hpack;
mod huffman;
mod stream;
mod wire;

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{sleep_until, timeout};

use self::connection::{Connection, SILENCE};
use self::wire::{Reason, put_ping};
use super::Rls;
use super::service::changed;
use crate::net::{Drain, Peer, Protocol, Seldom, Turn};
use crate::protocol::rls::Decide;

/// How much is read at once.
const READ: usize = 16 << 10;
/// How long whoever asks may take to read the answers.
const TO_READ: Duration = Duration::from_secs(10);

impl<D: Decide + Send + Sync + 'static> Rls<D> {
    /// Speaks HTTP/2 on a connection, until its peer ends it, or `drain` does and all calls have their answers.
    ///
    /// A peer that sends nothing for a minute is asked whether it is there, and has another to say so. One that does not read its
    /// answers for 10 s is left alone.
    ///
    /// `token_required` is whether every call has to show the token.
    pub async fn serve<S>(&self, stream: S, token_required: bool, drain: impl Future<Output = ()>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut stream = stream;
        let (mut input, mut out) = (BytesMut::with_capacity(READ), BytesMut::with_capacity(READ));
        let mut connection =
            Connection::new(self.clone(), self.access(token_required).cloned(), &mut out);
        let drain = pin!(drain);
        let mut drain = Seldom::new(drain);
        let mut needed = 0_usize;
        let started = Instant::now();
        let mut quiet =
            Quiet { until: started.checked_add(self.inner.settings.most_wait), is_asked: false };
        let timer = pin!(sleep_until(quiet.until.unwrap_or(started).into()));
        let mut timer = Seldom::new(timer);
        let mut is_draining = false;
        let mut news = pin!(pending_news(None));
        let mut is_watched = false;
        let mut turn = Turn::default();
        loop {
            if !out.is_empty() {
                poll_fn(|context| turn.poll(context)).await;
                match timeout(TO_READ, stream.write_all_buf(&mut out)).await {
                    Ok(Ok(())) => {}
                    _ => return,
                }
                if out.capacity() > READ.saturating_mul(8) {
                    out = BytesMut::with_capacity(READ);
                }
            }
            if connection.is_over() {
                let _ = timeout(TO_READ, stream.shutdown()).await;
                return;
            }
            if connection.is_watched() != is_watched {
                is_watched = !is_watched;
                let serving = is_watched.then(|| self.inner.health.subscribe());
                news.set(pending_news(serving));
                connection.tell_all(&mut out);
                if !out.is_empty() {
                    continue;
                }
            }
            let wake = connection.deadline(Instant::now).into_iter().chain(quiet.until).min();
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
                    quiet.heard();
                    match connection.receive(&mut input, &mut out) {
                        Ok(more) => needed = more,
                        Err(reason) => {
                            connection.give_up(reason, &mut out);
                            let _ = timeout(TO_READ, stream.write_all_buf(&mut out)).await;
                            let _ = timeout(TO_READ, stream.shutdown()).await;
                            return;
                        }
                    }
                }
                () = poll_fn(|context| connection.poll_later(context, &mut out)) => {}
                () = &mut news => {
                    news.set(pending_news(Some(self.inner.health.subscribe())));
                    connection.tell_all(&mut out);
                }
                () = &mut drain, if !is_draining => {
                    is_draining = true;
                    connection.drain(&mut out);
                }
                () = &mut timer => {
                    let now = Instant::now();
                    connection.late(now, &mut out);
                    if !quiet.go_on(now, connection.is_greeted(), &mut out) {
                        connection.give_up(Reason::NoError, &mut out);
                        let _ = timeout(TO_READ, stream.write_all_buf(&mut out)).await;
                        return;
                    }
                    timer.as_mut().reset(quiet.until.unwrap_or(now).into());
                }
            }
        }
    }
}

/// The settings and a `GOAWAY` that asks to be calm: what a connection is told that finds no room.
const NO_ROOM: &[u8] = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0b";

impl<D: Decide + Send + Sync + 'static> Protocol for Rls<D> {
    async fn serve<S>(self, stream: S, peer: Peer, drain: Drain)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Self::serve(&self, stream, peer.token_required, drain.begun()).await;
    }

    fn no_room(&self) -> &'static [u8] {
        NO_ROOM
    }
}

/// Ends with the next news of the service's health; never, if nobody watches.
async fn pending_news(serving: Option<tokio::sync::watch::Receiver<bool>>) {
    match serving {
        Some(serving) => changed(serving).await,
        None => pending().await,
    }
}

/// Whether anybody is there.
struct Quiet {
    /// When it is time to ask.
    until: Option<Instant>,
    is_asked: bool,
}

impl Quiet {
    /// Nobody has to be asked for a while. The timer is left as it is: it comes once a minute at most.
    fn heard(&mut self) {
        self.is_asked = false;
        self.until = None;
    }

    /// The time is over. Whether there is hope.
    fn go_on(&mut self, now: Instant, is_greeted: bool, out: &mut BytesMut) -> bool {
        match self.until {
            _ if !is_greeted => return false,
            // Something came since.
            None => {}
            Some(until) if until > now => return true,
            Some(_) if self.is_asked => return false,
            Some(_) => {
                self.is_asked = true;
                put_ping(out);
            }
        }
        self.until = now.checked_add(SILENCE);
        true
    }
}
