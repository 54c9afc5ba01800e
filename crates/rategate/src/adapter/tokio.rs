//! Tokio's readers and writers, with a rate.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::async_bytes::{AsyncByteLimited, Direction};
use crate::clock::Clock;

impl<T, C> AsyncRead for AsyncByteLimited<T, C>
where
    T: AsyncRead + Unpin,
    C: Clock,
{
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let wanted = buffer.remaining();
        let moved = self.get_mut().poll_pass(
            Direction::In,
            wanted,
            context,
            |inner, context, max_bytes| {
                // Bytes that were not initialized are set to zero: without `unsafe` this is the
                // cost of a part of the buffer. Initialized bytes are not touched.
                let mut unfilled = ReadBuf::new(buffer.initialize_unfilled_to(max_bytes));
                let read = inner.poll_read(context, &mut unfilled);
                let bytes = unfilled.filled().len();
                if matches!(read, Poll::Ready(Ok(()))) {
                    buffer.advance(bytes);
                }
                read.map_ok(|()| bytes)
            },
        );
        moved.map_ok(drop)
    }
}

impl<T, C> AsyncWrite for AsyncByteLimited<T, C>
where
    T: AsyncWrite + Unpin,
    C: Clock,
{
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_pass(
            Direction::Out,
            bytes.len(),
            context,
            |inner, context, max_bytes| {
                inner.poll_write(context, bytes.get(..max_bytes).unwrap_or_default())
            },
        )
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().inner().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.end_writes();
        this.inner().poll_shutdown(context)
    }
}
