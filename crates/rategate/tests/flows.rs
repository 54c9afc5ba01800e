//! Streams, sinks and asynchronous bytes that pass a limiter, on virtual time.

use std::collections::VecDeque;
use std::error::Error;
use std::io;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::sink::Sink;
use futures_util::stream::{self, FusedStream, Stream};
use futures_util::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, SinkExt, StreamExt};
use rategate::adapter::{AdapterError, SinkError};
use rategate::adapter::{AsyncByteLimited, RateLimitedSink};
use rategate::policy::{DampingShift, Mode};
use rategate::{
    AcquireError, AsyncLimiter, Clock as _, Concurrency, Gcra, ManualClock, RateLimitedStreamExt,
    SlidingLog, TwoTimeline,
};
use rategate_testkit::ns;

use rategate_testkit::executor::{Task, play};
use rategate_testkit::oracle::Grants;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

type Log = AsyncLimiter<ManualClock>;

fn log(permits: u64) -> (Log, ManualClock) {
    let clock = ManualClock::stepped();
    (
        AsyncLimiter::with_clock(SlidingLog::new(permits, Duration::from_nanos(S)), clock.clone()),
        clock,
    )
}

fn poll<T>(act: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    act(&mut Context::from_waker(Waker::noop()))
}

fn chunk(bytes: u64) -> NonZeroU64 {
    NonZeroU64::new(bytes).unwrap()
}

/// Returns the most that passed in any window of a second.
fn fullest(passed: &[(u64, u64)]) -> u64 {
    Grants(passed.to_vec()).fullest_window(S).0
}

/// A stream that is ready, pending or failed as its script says, and pending after it.
#[derive(Debug, Default)]
struct Scripted {
    script: VecDeque<Poll<io::Result<usize>>>,
    max_bytes: Vec<usize>,
}

impl Scripted {
    fn new(script: impl IntoIterator<Item = Poll<io::Result<usize>>>) -> Self {
        Self { script: script.into_iter().collect(), max_bytes: Vec::new() }
    }

    fn step(&mut self, max_bytes: usize) -> Poll<io::Result<usize>> {
        self.max_bytes.push(max_bytes);
        self.script.pop_front().unwrap_or(Poll::Pending).map_ok(|bytes| bytes.min(max_bytes))
    }
}

impl AsyncRead for Scripted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.step(buffer.len())
    }
}

impl AsyncWrite for Scripted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.step(bytes.len())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A sink that records what it has sent, and when.
#[derive(Clone)]
struct Noted(ManualClock, Arc<Mutex<Vec<(u64, u64)>>>);

impl Noted {
    fn new(clock: &ManualClock) -> Self {
        Self(clock.clone(), Arc::default())
    }

    fn items(&self) -> Vec<(u64, u64)> {
        self.1.lock().unwrap().clone()
    }
}

impl Sink<u64> for Noted {
    type Error = io::Error;

    fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn start_send(self: Pin<&mut Self>, item: u64) -> io::Result<()> {
        if item == 13 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.1.lock().unwrap().push((self.0.now_ns(), item));
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Items pass in order, each for its cost, and never more in a window than the limit allows.
#[test]
fn items_come_in_order_under_the_ceiling() {
    let (limiter, clock) = log(7);
    let mut pulled = stream::iter(0..100_u64).rate_limited_by(&limiter, |item| item % 5);
    let at = clock.clone();
    let mut tasks = vec![Task::new(async move {
        let mut seen = Vec::new();
        while let Some(item) = pulled.next().await {
            seen.push((at.now_ns(), item.unwrap()));
        }
        seen
    })];
    play(&clock, &mut tasks, 100 * S);
    let seen = tasks[0].result.take().unwrap();
    assert!(seen.iter().map(|&(_, item)| item).eq(0..100));
    let costs: Vec<_> = seen.iter().map(|&(at_ns, item)| (at_ns, item % 5)).collect();
    assert_eq!(fullest(&costs), 7);
    assert_eq!(seen[99].0 / S, windows_of(7, &costs), "none of the rate is lost");
}

/// Returns the number of full windows before the last item, if each holds what fits in order.
fn windows_of(permits: u64, costs: &[(u64, u64)]) -> u64 {
    let (mut windows, mut used) = (0, 0);
    for (_, cost) in costs {
        if used + cost > permits {
            (windows, used) = (windows + 1, 0);
        }
        used += cost;
    }
    windows
}

/// A stream without an item takes no permit, and neither does its end.
#[test]
fn no_permit_is_taken_before_there_is_an_item() {
    let (limiter, _) = log(2);
    let mut empty = stream::pending::<u64>().rate_limited(&limiter);
    assert!(poll(|context| empty.poll_next_unpin(context)).is_pending());
    assert_eq!(limiter.limiter().remaining(), Ok(2));
    let mut one = stream::iter([1]).rate_limited(&limiter);
    assert_eq!(one.size_hint(), (1, Some(1)));
    assert_eq!(poll(|context| one.poll_next_unpin(context)), Poll::Ready(Some(Ok(1))));
    assert!(!one.is_terminated());
    for _ in 0..2 {
        assert_eq!(poll(|context| one.poll_next_unpin(context)), Poll::Ready(None));
    }
    assert!(one.is_terminated());
    assert_eq!(limiter.limiter().remaining(), Ok(1));
}

/// A dropped `next` loses neither the item nor the waiter slot. A dropped stream frees its slot
/// for the next waiter, and its parts still hold the item.
#[test]
fn a_dropped_wait_loses_nothing() {
    let (limiter, clock) = log(1);
    limiter.limiter().acquire(1).unwrap();
    let mut pulled = stream::iter([1, 2, 3]).rate_limited(&limiter);
    for _ in 0..3 {
        let mut next = Box::pin(pulled.next());
        assert!(poll(|context| next.as_mut().poll(context)).is_pending());
    }
    assert_eq!(limiter.limiter().waiting(), Ok(1));
    assert_eq!(pulled.size_hint(), (1, Some(3)));
    let mut behind = vec![Task::new(limiter.acquire(1))];
    let (held, rest) = pulled.into_parts();
    assert_eq!((held, limiter.limiter().waiting()), (Some(1), Ok(1)));
    assert!(rest.size_hint() == (2, Some(2)));
    play(&clock, &mut behind, 9 * S);
    assert_eq!(ns(behind[0].result.take().unwrap().unwrap().released_at()), S);
}

/// A stream that is dropped after its grant and before its poll returns the permit.
#[test]
fn an_unpolled_grant_is_returned() {
    let clock = ManualClock::stepped();
    let limiter = AsyncLimiter::with_clock(Concurrency::new(1), clock);
    limiter.limiter().acquire(1).unwrap();
    let mut pulled = stream::iter([1]).rate_limited(&limiter);
    assert!(poll(|context| pulled.poll_next_unpin(context)).is_pending());
    let mut sent = RateLimitedSink::new(Slot::default(), &limiter);
    sent.start_send_unpin(5).unwrap();
    assert!(poll(|context| sent.poll_ready_unpin(context)).is_pending());
    let mut bytes = AsyncByteLimited::new(&b"abc"[..], &limiter);
    assert!(poll(|context| Pin::new(&mut bytes).poll_read(context, &mut [0])).is_pending());
    let mut last = Task::new(limiter.acquire(1));
    limiter.limiter().release(1).unwrap();
    drop(pulled);
    assert_eq!(sent.into_parts().0, Some(5));
    drop(bytes);
    last.run();
    assert!(last.result.unwrap().is_ok());
}

/// Closing ends a stream with the reason, once, and an item that can never pass fails at once.
#[test]
fn a_stream_ends_with_its_limiter() {
    let (limiter, _) = log(2);
    let mut pulled = stream::iter(["ab", "abc", "a"]).rate_limited_by(&limiter, |s| s.len() as u64);
    assert_eq!(poll(|context| pulled.poll_next_unpin(context)), Poll::Ready(Some(Ok("ab"))));
    let refused = poll(|context| pulled.poll_next_unpin(context));
    assert!(matches!(refused, Poll::Ready(Some(Err(AcquireError::ExceedsCapacity(_))))));
    assert_eq!(poll(|context| pulled.poll_next_unpin(context)), Poll::Ready(None));
    assert_eq!((pulled.size_hint(), pulled.into_parts().0), ((0, Some(0)), Some("abc")));

    let mut waiting = stream::iter([1, 2]).rate_limited(&limiter);
    let mut task = Task::new(async move { (waiting.next().await, waiting.next().await) });
    assert!(task.result.is_none());
    limiter.close();
    task.run();
    assert_eq!(task.result, Some((Some(Err(AcquireError::Closed)), None)));
}

/// A sink takes exactly the cost of each item, in order, under the ceiling; flushing waits for
/// the last item.
#[test]
fn a_sink_sends_in_order_under_the_ceiling() {
    let (limiter, clock) = log(9);
    let noted = Noted::new(&clock);
    let mut sent = RateLimitedSink::by(noted.clone(), &limiter, |item| item % 4);
    let mut tasks = vec![Task::new(async move {
        let items = (0..60).filter(|&item| item != 13).map(Ok);
        sent.send_all(&mut stream::iter(items)).await
    })];
    play(&clock, &mut tasks, 100 * S);
    assert!(tasks[0].result.take().unwrap().is_ok());
    let items = noted.items();
    assert!(items.iter().map(|&(_, item)| item).eq((0..60).filter(|&item| item != 13)));
    let costs: Vec<_> = items.iter().map(|&(at_ns, item)| (at_ns, item % 4)).collect();
    assert_eq!(fullest(&costs), 9);
    assert_eq!(items[58].0 / S, windows_of(9, &costs), "none of the rate is lost");
}

/// A sink that is ready but unused, or whose inner sink is full, takes no permit.
#[test]
fn a_sink_takes_nothing_without_item_and_capacity() {
    let (limiter, _) = log(2);
    let (mut full, mut slot) = limited_slot(&limiter);
    assert!(poll(|context| full.poll_ready_unpin(context)).is_ready());
    assert_eq!(limiter.limiter().remaining(), Ok(2), "ready, and nothing sent");
    full.start_send_unpin(1).unwrap();
    assert!(poll(|context| full.poll_ready_unpin(context)).is_ready());
    full.start_send_unpin(2).unwrap();
    assert_eq!(full.start_send_unpin(3), Err(SinkError::NotReady));
    assert!(poll(|context| full.poll_ready_unpin(context)).is_pending());
    assert_eq!(limiter.limiter().remaining(), Ok(1), "the inner sink is full");
    assert_eq!(slot.pop(), Some(1));
    assert!(poll(|context| full.poll_flush_unpin(context)).is_ready());
    assert_eq!((slot.pop(), limiter.limiter().remaining()), (Some(2), Ok(0)));
}

/// A sink that holds one item.
#[derive(Clone, Default)]
struct Slot(Arc<Mutex<Option<u64>>>);

impl Slot {
    fn pop(&mut self) -> Option<u64> {
        self.0.lock().unwrap().take()
    }
}

impl Sink<u64> for Slot {
    type Error = AcquireError;

    fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        if self.0.lock().unwrap().is_some() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn start_send(self: Pin<&mut Self>, item: u64) -> Result<(), Self::Error> {
        assert!(self.0.lock().unwrap().replace(item).is_none(), "sent before it was ready");
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }
}

type LimitedSlot = RateLimitedSink<Slot, u64, ManualClock>;

fn limited_slot(limiter: &Log) -> (LimitedSlot, Slot) {
    let slot = Slot::default();
    (RateLimitedSink::new(slot.clone(), limiter), slot)
}

/// A sink that keeps its items until it is flushed.
struct BufferingSink(Noted, Vec<u64>);

impl Sink<u64> for BufferingSink {
    type Error = io::Error;

    fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn start_send(mut self: Pin<&mut Self>, item: u64) -> io::Result<()> {
        self.1.push(item);
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self(noted, kept) = &mut *self;
        Poll::Ready(kept.drain(..).try_for_each(|item| Pin::new(&mut *noted).start_send(item)))
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

/// An item is flushed when it is granted, although the inner sink would keep it for the next. If
/// that fails, the next item leaves the wait queue.
#[test]
fn what_was_granted_is_flushed_while_the_next_waits() {
    let (limiter, clock) = log(1);
    let noted = Noted::new(&clock);
    let mut sent = RateLimitedSink::new(BufferingSink(noted.clone(), Vec::new()), &limiter);
    let mut tasks = vec![Task::new(async move {
        let mut items = stream::iter([1, 2, 3].map(Ok));
        sent.send_all(&mut items).await
    })];
    play(&clock, &mut tasks, 9 * S);
    assert!(tasks[0].result.take().unwrap().is_ok());
    assert_eq!(noted.items(), [(0, 1), (S, 2), (2 * S, 3)]);

    clock.advance(Duration::from_nanos(S));
    let mut sent = RateLimitedSink::new(BufferingSink(noted, Vec::new()), &limiter);
    let mut task = Task::new(async {
        sent.feed(13).await.unwrap();
        sent.feed(14).await.unwrap();
        sent.feed(15).await
    });
    assert!(matches!(task.result.take(), Some(Err(SinkError::Inner(_)))));
    assert_eq!(limiter.limiter().waiting(), Ok(0));
    drop(task);
    assert_eq!(sent.into_parts().0, Some(14));
}

/// Errors of the sink and of the limiter keep their types, and an item that did not pass stays.
#[test]
fn a_sink_tells_who_failed() {
    let (limiter, clock) = log(2);
    let mut inbox = RateLimitedSink::new(Noted::new(&clock), &limiter);
    let mut send = Box::pin(inbox.send(13));
    let Poll::Ready(Err(SinkError::Inner(error))) = poll(|context| send.as_mut().poll(context))
    else {
        panic!("thirteen is refused")
    };
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    drop(send);
    assert!(
        poll(|context| inbox.poll_ready_unpin(context)).is_ready(),
        "the failed item is dropped"
    );
    limiter.limiter().acquire(1).unwrap();
    let mut task = Task::new(async move { (inbox.send(4).await.unwrap_err(), inbox) });
    assert!(task.result.is_none());
    limiter.close();
    task.run();
    let (error, mut inbox) = task.result.unwrap();
    assert!(matches!(error, SinkError::Limiter(AcquireError::Closed)));
    assert!(error.source().unwrap().is::<AcquireError>());
    assert!(poll(|context| inbox.poll_close_unpin(context)).is_ready());
    assert_eq!(inbox.into_parts().0, Some(4));
}

/// Closing a sink first sends the item that waits.
#[test]
fn closing_a_sink_waits_for_its_item() {
    let (limiter, clock) = log(1);
    limiter.limiter().acquire(1).unwrap();
    let noted = Noted::new(&clock);
    let mut sent = RateLimitedSink::new(noted.clone(), &limiter);
    sent.start_send_unpin(1).unwrap();
    let mut tasks = vec![Task::new(async move { sent.close().await })];
    assert_eq!(noted.items(), []);
    play(&clock, &mut tasks, 9 * S);
    assert!(tasks[0].result.take().unwrap().is_ok());
    assert_eq!(noted.items(), [(S, 1)]);
}

/// Permits of bytes that did not move are refunded: after a short call, an error, the end, and
/// when the peer is not ready.
#[test]
fn only_bytes_that_moved_are_paid_for() {
    let (limiter, _) = log(100);
    let failed = || Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionReset)));
    let script = [Poll::Ready(Ok(3)), Poll::Pending, failed(), Poll::Ready(Ok(7)), failed()];
    let mut bytes = AsyncByteLimited::new(Scripted::new(script), &limiter);
    let mut buffer = [0; 60];
    let mut left = Vec::new();
    for _ in 0..3 {
        let _ = poll(|context| Pin::new(&mut bytes).poll_read(context, &mut buffer));
        left.push(limiter.limiter().remaining().unwrap());
    }
    for _ in 0..3 {
        let _ = poll(|context| Pin::new(&mut bytes).poll_write(context, &buffer));
        left.push(limiter.limiter().remaining().unwrap());
    }
    assert_eq!(left, [97, 97, 97, 90, 90, 90]);
    assert!(
        bytes.get_ref().max_bytes.iter().all(|&max_bytes| max_bytes == 60),
        "each call got all permits that were taken"
    );
}

/// A call of no bytes goes straight through, even while no permit is left.
#[test]
fn calls_of_no_bytes_cost_nothing() {
    let (limiter, _) = log(1);
    limiter.limiter().acquire(1).unwrap();
    let script = [Poll::Ready(Ok(0)), Poll::Ready(Ok(0))];
    let mut bytes = AsyncByteLimited::new(Scripted::new(script), &limiter);
    assert!(poll(|context| Pin::new(&mut bytes).poll_read(context, &mut [])).is_ready());
    assert!(poll(|context| Pin::new(&mut bytes).poll_write(context, &[])).is_ready());
    assert_eq!((&bytes.get_ref().max_bytes[..], limiter.limiter().waiting()), (&[0, 0][..], Ok(0)));
}

/// Every byte passes in order, under the ceiling of bytes in any window, with a buffer larger
/// than the limit, by two streams that share it.
#[test]
fn bytes_arrive_in_order_under_the_ceiling() {
    let (limiter, clock) = log(100);
    let text: Vec<u8> = (0..950_u32).map(|byte| u8::try_from(byte % 251).unwrap()).collect();
    let moved = Mutex::new(Vec::new());
    let mut tasks: Vec<_> = (0..2)
        .map(|_| {
            let (limiter, clock, moved, text) = (&limiter, &clock, &moved, &text);
            Task::new(async move {
                let mut slow = AsyncByteLimited::new(&text[..], limiter);
                let (mut seen, mut large) = (Vec::new(), [0; 200]);
                loop {
                    let bytes = slow.read(&mut large).await.unwrap();
                    seen.extend_from_slice(&large[..bytes]);
                    moved.lock().unwrap().push((clock.now_ns(), bytes as u64));
                    if bytes == 0 {
                        return seen == *text;
                    }
                }
            })
        })
        .collect();
    play(&clock, &mut tasks, 100 * S);
    assert!(tasks.iter().all(|task| task.result == Some(true)));
    drop(tasks);
    let moved = moved.into_inner().unwrap();
    assert!((95..=100).contains(&fullest(&moved)), "{}", fullest(&moved));
    assert!((18..=20).contains(&(clock.now_ns() / S)), "{}", clock.now_ns());

    let (limiter, clock) = log(100);
    let mut slow = AsyncByteLimited::new(Vec::new(), &limiter).with_chunk(chunk(10));
    let mut tasks = vec![Task::new(async {
        slow.write_all(&text).await.unwrap();
        slow.close().await.unwrap();
    })];
    play(&clock, &mut tasks, 100 * S);
    assert!(tasks[0].result.is_some());
    drop(tasks);
    assert_eq!((slow.into_inner() == text, clock.now_ns() / S), (true, 9));
}

/// A reader whose peer is silent holds no permits, and reads on once data arrives.
#[test]
fn a_silent_peer_holds_no_permits() {
    let (limiter, clock) = log(10);
    let mut bytes =
        AsyncByteLimited::new(Scripted::new([Poll::Pending, Poll::Ready(Ok(4))]), &limiter);
    assert!(poll(|context| Pin::new(&mut bytes).poll_read(context, &mut [0; 10])).is_pending());
    assert_eq!((limiter.limiter().remaining(), limiter.limiter().waiting()), (Ok(10), Ok(0)));
    limiter.limiter().acquire(10).unwrap();
    let mut tasks = vec![Task::new(async move { bytes.read(&mut [0; 10]).await })];
    play(&clock, &mut tasks, 9 * S);
    assert_eq!(tasks[0].result.take().unwrap().unwrap(), 4);
    assert_eq!((clock.now_ns(), limiter.limiter().remaining()), (S, Ok(6)));
}

/// A call with a smaller buffer than the waiting one moves no more than that buffer holds.
#[test]
fn a_later_call_may_bring_another_buffer() {
    let (limiter, clock) = log(10);
    for (then, moves) in [(4, 4), (10, 8), (0, 0)] {
        limiter.limiter().acquire(10).unwrap_or_else(|_| panic!("open"));
        let mut bytes = AsyncByteLimited::new(&[7; 100][..], &limiter);
        assert!(poll(|context| Pin::new(&mut bytes).poll_read(context, &mut [0; 8])).is_pending());
        clock.advance(Duration::from_nanos(S));
        let mut buffer = vec![0; then];
        let read = poll(|context| Pin::new(&mut bytes).poll_read(context, &mut buffer));
        assert!(matches!(read, Poll::Ready(Ok(bytes)) if bytes == moves), "{read:?}");
        drop(bytes);
        assert_eq!(limiter.limiter().remaining(), Ok(10 - moves as u64));
        clock.advance(Duration::from_nanos(S));
    }
}

/// A wait for more than a new limit can ever pass becomes a wait for less.
#[test]
fn a_smaller_limit_makes_smaller_chunks() {
    let (limiter, clock) = log(100);
    limiter.limiter().acquire(100).unwrap();
    let mut bytes = AsyncByteLimited::new(&[7; 100][..], &limiter);
    let mut tasks = vec![Task::new(async move {
        let first = bytes.read(&mut [0; 80]).await.unwrap();
        (first, bytes.read(&mut [0; 80]).await.unwrap())
    })];
    limiter.limiter().reconfigure(SlidingLog::new(32, Duration::from_nanos(S))).unwrap();
    play(&clock, &mut tasks, 9 * S);
    assert_eq!(tasks[0].result, Some((2, 2)));

    // This wait is for more than the next call's buffer.
    limiter.limiter().acquire(28).unwrap_or_else(|_| panic!("open"));
    let mut bytes = AsyncByteLimited::new(&[7; 100][..], &limiter);
    assert!(poll(|context| Pin::new(&mut bytes).poll_read(context, &mut [0; 30])).is_pending());
    limiter.limiter().reconfigure(SlidingLog::new(20, Duration::from_nanos(S))).unwrap();
    clock.advance(Duration::from_nanos(S));
    let read = poll(|context| Pin::new(&mut bytes).poll_read(context, &mut [0; 20]));
    assert!(matches!(read, Poll::Ready(Ok(20))), "{read:?}");
}

/// A closed limiter is an error with its source, for waiters too, and no byte moves. Flushing and
/// closing still pass.
#[test]
fn a_closed_limiter_moves_no_byte() {
    let (limiter, _) = log(10);
    limiter.limiter().acquire(10).unwrap();
    let mut bytes = AsyncByteLimited::new(Scripted::default(), &limiter);
    let mut task = Task::new(async move { (bytes.write(&[1; 5]).await.unwrap_err(), bytes) });
    assert!(task.result.is_none());
    limiter.close();
    assert!(task.is_woken());
    task.run();
    let (error, mut bytes) = task.result.unwrap();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    let reason = error.get_ref().and_then(|inner| inner.downcast_ref::<AdapterError>()).unwrap();
    assert_eq!(reason.reason(), AcquireError::Closed);
    assert!(reason.source().unwrap().is::<AcquireError>());
    assert!(poll(|context| Pin::new(&mut bytes).poll_read(context, &mut [0])).is_ready());
    assert!(poll(|context| Pin::new(&mut bytes).poll_flush(context)).is_ready());
    assert!(poll(|context| Pin::new(&mut bytes).poll_close(context)).is_ready());
    assert!(bytes.into_inner().max_bytes.is_empty());
}

/// A read and a write have a waiter slot each; closing the stream frees only that of the write.
#[test]
fn closing_a_stream_leaves_the_queue() {
    let clock = ManualClock::stepped();
    let bucket = Gcra::new("10/s".parse().unwrap(), 10).unwrap();
    let limiter = AsyncLimiter::with_clock(bucket, clock);
    limiter.limiter().acquire(10).unwrap();
    let mut bytes = AsyncByteLimited::new(Scripted::default(), &limiter);
    assert!(poll(|context| Pin::new(&mut bytes).poll_read(context, &mut [0; 5])).is_pending());
    assert!(poll(|context| Pin::new(&mut bytes).poll_write(context, &[0; 5])).is_pending());
    assert_eq!(limiter.limiter().waiting(), Ok(2));
    assert!(poll(|context| Pin::new(&mut bytes).poll_close(context)).is_ready());
    assert_eq!(limiter.limiter().waiting(), Ok(1));
    drop(bytes);
    assert_eq!(limiter.limiter().waiting(), Ok(0));
}

/// A silent peer costs what the limit cannot refund: nothing, except on damped schedules.
#[test]
fn a_silent_peer_costs_a_chunk_of_a_damped_schedule() {
    let damped = Mode::Damped { shift: DampingShift::from_ratio(0.25).unwrap() };
    for (mode, left) in [(Mode::Average, 10..=10), (damped, 0..=5)] {
        let clock = ManualClock::stepped();
        let schedule =
            TwoTimeline::new("10/s".parse().unwrap(), mode, Some(Duration::from_nanos(S)));
        let limiter = AsyncLimiter::with_clock(schedule, clock.clone());
        limiter.limiter().acquire(1).unwrap();
        clock.advance(Duration::from_nanos(S));
        assert_eq!(limiter.limiter().remaining(), Ok(10));
        let mut bytes = AsyncByteLimited::new(Scripted::default(), &limiter);
        assert!(poll(|context| Pin::new(&mut bytes).poll_read(context, &mut [0; 5])).is_pending());
        assert!(left.contains(&limiter.limiter().remaining().unwrap()), "{mode:?}");
    }
}

#[cfg(feature = "tokio")]
mod under_tokio {
    use std::mem::MaybeUninit;

    use rategate::TokioClock;
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf, duplex};
    use tokio::runtime::Handle;
    use tokio::time::{Duration, Instant, timeout};

    use super::*;

    /// A reader that fills a byte, if the buffer has capacity, and then fails.
    struct FailingReader;

    impl AsyncRead for FailingReader {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            buffer.put_slice(b"x".get(..buffer.remaining()).unwrap_or(b"x"));
            Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
        }
    }

    /// Both directions pass one limit, on tokio's paused clock, with a peer that is not always
    /// ready.
    #[tokio::test(start_paused = true)]
    async fn bytes_go_both_ways() {
        let bucket = Gcra::new("1000/s".parse().unwrap(), 100).unwrap();
        let limiter = AsyncLimiter::with_clock(bucket, TokioClock::new(Handle::current()));
        let (near, far) = duplex(64);
        let near = AsyncByteLimited::new(near, &limiter).with_chunk(chunk(10));
        let (mut near_in, mut near_out) = tokio::io::split(near);
        let (mut far_in, mut far_out) = tokio::io::split(far);
        let text: Vec<u8> = (0..1_050_u32).map(|byte| u8::try_from(byte % 251).unwrap()).collect();
        let from = Instant::now();
        let (there, back) = (text.clone(), text.clone());
        let write = tokio::spawn(async move {
            near_out.write_all(&there).await.unwrap();
            near_out.shutdown().await.unwrap();
        });
        let answer = tokio::spawn(async move { far_out.write_all(&back).await.unwrap() });
        let received = tokio::spawn(async move {
            let mut received = Vec::new();
            far_in.read_to_end(&mut received).await.unwrap();
            received
        });
        let mut read = vec![0; text.len()];
        near_in.read_exact(&mut read).await.unwrap();
        write.await.unwrap();
        answer.await.unwrap();
        assert!(received.await.unwrap() == text && read == text);
        let elapsed_ms = from.elapsed().as_millis();
        assert!((2_000..2_100).contains(&elapsed_ms), "{elapsed_ms} ms");
    }

    /// A read that a timeout ends loses no byte, and keeps its waiter slot.
    #[tokio::test(start_paused = true)]
    async fn a_timeout_loses_no_byte() {
        let bucket = Gcra::new("1/s".parse().unwrap(), 2).unwrap();
        let limiter = AsyncLimiter::with_clock(bucket, TokioClock::new(Handle::current()));
        let mut slow = AsyncByteLimited::new(&b"abcd"[..], &limiter).with_chunk(chunk(2));
        let mut seen = Vec::new();
        for _ in 0..20 {
            let mut buffer = [0; 2];
            if let Ok(read) = timeout(Duration::from_millis(300), slow.read(&mut buffer)).await {
                seen.extend_from_slice(&buffer[..read.unwrap()]);
            }
        }
        assert_eq!(seen, b"abcd");
    }

    /// Bytes are appended to those in the buffer, which need not be initialized, and there are no
    /// more of them than were granted.
    #[tokio::test]
    async fn a_buffer_is_filled_from_where_it_is() {
        let (limiter, _) = log(100);
        let mut bytes = AsyncByteLimited::new(&b"abcdefgh"[..], &limiter).with_chunk(chunk(3));
        let mut capacity = [MaybeUninit::uninit(); 10];
        let mut buffer = ReadBuf::uninit(&mut capacity);
        buffer.put_slice(b"__");
        assert!(poll(|context| Pin::new(&mut bytes).poll_read(context, &mut buffer)).is_ready());
        assert_eq!(buffer.filled(), b"__abc");
        assert!(poll(|context| Pin::new(&mut bytes).poll_read(context, &mut buffer)).is_ready());
        assert_eq!(buffer.filled(), b"__abcdef");
        buffer.put_slice(b"..");
        assert!(poll(|context| Pin::new(&mut bytes).poll_read(context, &mut buffer)).is_ready());
        assert_eq!((buffer.filled(), limiter.limiter().remaining()), (&b"__abcdef.."[..], Ok(94)));
        let mut bytes = AsyncByteLimited::new(FailingReader, &limiter);
        let read = poll(|context| Pin::new(&mut bytes).poll_read(context, &mut buffer));
        assert!(matches!(read, Poll::Ready(Err(_))));
        assert_eq!((buffer.filled().len(), limiter.limiter().remaining()), (10, Ok(94)), "full");
        buffer.clear();
        let read = poll(|context| Pin::new(&mut bytes).poll_read(context, &mut buffer));
        assert!(matches!(read, Poll::Ready(Err(_))));
        assert_eq!((buffer.filled().len(), limiter.limiter().remaining()), (0, Ok(94)));
        limiter.close();
        let error = bytes.read(&mut [0; 4]).await.unwrap_err();
        assert!(error.get_ref().unwrap().is::<AdapterError>());
    }
}
