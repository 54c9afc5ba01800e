//! Wrappers that pass a limiter: tasks of a dispatcher, items, and bytes.

use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::sync::Arc;

use rategate::adapter::ByteLimited;
use rategate::pace::Dispatcher;
use rategate::pace::SubmitError;
use rategate::{Limiter, RateLimitedExt};
use rategate_testkit::stopwatch::{Stopwatch, log, log_of, race};

use crate::stopwatch::by_threads;

/// The bytes of one step, of which a window has as many as the log has permits.
const CHUNK: u64 = 512;

const fn chunk() -> NonZeroU64 {
    NonZeroU64::new(CHUNK).unwrap()
}

/// An endless stream that records the bytes that pass.
struct Tap(Arc<Stopwatch>);

impl Tap {
    fn pass(&self, bytes: usize) -> usize {
        self.0.passed(u64::try_from(bytes).unwrap());
        bytes
    }
}

impl Read for Tap {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.pass(buffer.len()))
    }
}

impl Write for Tap {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.pass(bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn tasks_of_a_dispatcher() {
    race(1, |watch| {
        let dispatcher = Dispatcher::new(Limiter::new(log()), 64).unwrap();
        while watch.runs() {
            let notes = Arc::clone(watch);
            match dispatcher.submit(move |grant| notes.took(&grant)) {
                Err(SubmitError::QueueFull(_)) => {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
                submitted => submitted.unwrap(),
            }
        }
        dispatcher.abort().unwrap();
    });
}

#[test]
fn items_of_iterators() {
    race(1, |watch| {
        let limiter = Limiter::new(log());
        let items = |_| (0_u64..).rate_limited(&limiter);
        by_threads(watch, 8, items, |items| {
            items.next().unwrap().unwrap();
            watch.passed(1);
        });
    });
}

#[test]
fn bytes_that_are_read_and_written() {
    race(CHUNK, |watch| {
        let limiter = Limiter::new(log_of(CHUNK));
        let streams = |_| ByteLimited::new(Tap(Arc::clone(watch)), &limiter).with_chunk(chunk());
        by_threads(watch, 6, streams, |stream| {
            // The buffer is larger than a chunk, but smaller than two.
            let mut buffer = [0; 700];
            assert!(stream.read(&mut buffer).unwrap() > 0);
            assert!(stream.write(&buffer[..300]).unwrap() > 0);
        });
    });
}

#[cfg(feature = "rayon")]
#[test]
fn actions_of_parallel_iterators() {
    use rategate::RateLimitedParallelExt;
    use rayon::prelude::*;

    let pool = rayon::ThreadPoolBuilder::new().num_threads(8).build().unwrap();
    race(1, |watch| {
        let limiter = Limiter::new(log());
        pool.install(|| {
            let actions = (0..140_u64).into_par_iter();
            let actions = actions.rate_limited_map(&limiter, |_, grant| watch.took(&grant));
            actions.collect::<Result<Vec<()>, _>>().unwrap();
        });
    });
}

#[cfg(all(feature = "futures", feature = "tokio"))]
mod polled {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use futures_util::{SinkExt, StreamExt, sink, stream};
    use rategate::adapter::{AsyncByteLimited, RateLimitedSink};
    use rategate::{AsyncLimiter, RateLimitedStreamExt};

    use super::*;
    use crate::stopwatch::by_tasks;

    #[test]
    fn items_of_streams() {
        race(1, |watch| {
            let limiter = AsyncLimiter::new(log());
            by_tasks(watch, 12, |watch| {
                let mut items = stream::iter(0_u64..).rate_limited(&limiter);
                async move {
                    while watch.runs() {
                        items.next().await.unwrap().unwrap();
                        watch.passed(1);
                    }
                }
            });
        });
    }

    #[test]
    fn items_of_sinks() {
        race(1, |watch| {
            let limiter = AsyncLimiter::new(log());
            by_tasks(watch, 12, |watch| {
                let notes = Arc::clone(&watch);
                // A start is recorded as the inner sink receives the item.
                let inner = sink::drain().with_flat_map(move |item: u64| {
                    notes.passed(1);
                    stream::iter([Ok(item)])
                });
                let mut gated = RateLimitedSink::new(inner, &limiter);
                async move {
                    while watch.runs() {
                        gated.send(7).await.unwrap();
                    }
                }
            });
        });
    }

    impl tokio::io::AsyncRead for Tap {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut tokio::io::ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let bytes = self.pass(buffer.remaining());
            buffer.put_slice(&vec![0; bytes]);
            Poll::Ready(Ok(()))
        }
    }

    impl tokio::io::AsyncWrite for Tap {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(self.pass(bytes.len())))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl futures_util::AsyncRead for Tap {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut [u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(self.pass(buffer.len())))
        }
    }

    impl futures_util::AsyncWrite for Tap {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(self.pass(bytes.len())))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn bytes_of_tokio() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};

        race(CHUNK, |watch| {
            let limiter = AsyncLimiter::new(log_of(CHUNK));
            by_tasks(watch, 8, |watch| {
                let gated = AsyncByteLimited::new(Tap(Arc::clone(&watch)), &limiter);
                let mut gated = gated.with_chunk(chunk());
                async move {
                    let mut buffer = [0; 700];
                    while watch.runs() {
                        assert!(gated.read(&mut buffer).await.unwrap() > 0);
                        assert!(gated.write(&buffer[..300]).await.unwrap() > 0);
                    }
                }
            });
        });
    }

    #[test]
    fn bytes_of_futures() {
        use futures_util::{AsyncReadExt, AsyncWriteExt};

        race(CHUNK, |watch| {
            let limiter = AsyncLimiter::new(log_of(CHUNK));
            by_tasks(watch, 8, |watch| {
                let gated = AsyncByteLimited::new(Tap(Arc::clone(&watch)), &limiter);
                let mut gated = gated.with_chunk(chunk());
                async move {
                    let mut buffer = [0; 700];
                    while watch.runs() {
                        assert!(gated.read(&mut buffer).await.unwrap() > 0);
                        assert!(gated.write(&buffer[..300]).await.unwrap() > 0);
                    }
                }
            });
        });
    }
}
