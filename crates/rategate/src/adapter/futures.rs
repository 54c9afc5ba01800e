//! The readers and writers of the futures crates, with a rate.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};

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
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let wanted = buffer.len();
        self.get_mut().poll_pass(Direction::In, wanted, context, |inner, context, max_bytes| {
            inner.poll_read(context, buffer.get_mut(..max_bytes).unwrap_or_default())
        })
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

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.end_writes();
        this.inner().poll_close(context)
    }
}
