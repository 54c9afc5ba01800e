//! Output of a connection: writing replies.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rategate::Clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::Connection;

impl<S, C> Connection<S, C>
where
    S: AsyncRead + AsyncWrite + Unpin,
    C: Clock + Clone + 'static,
{
    pub(super) fn has_unwritten(&self) -> bool {
        self.is_unflushed || self.written < self.output.len()
    }

    /// Writes replies, all of them or as many as the peer takes.
    pub(super) fn write(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<io::Result<()>> {
        while let Some(rest) = self.output.get(self.written..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                // A stream that takes no bytes will not take any later.
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written = self.written.saturating_add(count),
            }
            (self.last, self.is_unflushed) = (now, true);
        }
        (self.output, self.written) = (Vec::new(), 0);
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        (self.is_unflushed, self.last) = (false, now);
        Poll::Ready(Ok(()))
    }
}
