//! Immediate polling of work that wakes itself.
//!
//! The parts of a driver wake each other: a round that writes wakes its connection's carrier, and
//! a reply wakes its round. A runtime takes such a wake for a yield: it queues the task again,
//! and wakes another of its threads to look for it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// The maximum number of polls before control returns to the runtime.
const MAX_POLLS: u8 = 32;

const IDLE: u8 = 0;
const POLLED: u8 = 1;
const WOKEN: u8 = 2;

/// A waker that wakes the task, unless the task is being polled and will be polled once more.
#[derive(Default)]
struct SelfWakeWaker {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Wake for SelfWakeWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let (order, state) = (Ordering::AcqRel, &self.state);
        // A wake and the end of a poll are ordered: either the end finds the wake, or the wake
        // finds no poll under way.
        if state.compare_exchange(POLLED, WOKEN, order, Ordering::Acquire) == Err(IDLE) {
            self.task.wake();
        }
    }
}

/// Runs the work, and polls it again whenever it has woken itself.
pub(crate) async fn poll_self_waking<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let own = Arc::new(SelfWakeWaker::default());
    let waker = Waker::from(Arc::clone(&own));
    poll_fn(|context| {
        own.task.register(context.waker());
        for _ in 0..MAX_POLLS {
            own.state.store(POLLED, Ordering::Release);
            if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Poll::Ready(done);
            }
            let ends =
                own.state.compare_exchange(POLLED, IDLE, Ordering::AcqRel, Ordering::Acquire);
            if ends.is_ok() {
                return Poll::Pending;
            }
        }
        own.state.store(IDLE, Ordering::Release);
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::task::ready;
    use std::thread;

    use super::*;

    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Wakes itself `times` times, and is polled once more for each.
    fn wakes_itself(times: u32) -> impl Future<Output = u32> {
        let mut polls = 1..;
        poll_fn(move |context| {
            let polls = polls.next().unwrap_or(times);
            if polls <= times {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(polls)
        })
    }

    #[test]
    fn a_self_wake_does_not_reach_the_runtime() {
        let count = Arc::new(Count(AtomicU32::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let mut work = pin!(poll_self_waking(wakes_itself(5)));
        assert_eq!(work.as_mut().poll(&mut context), Poll::Ready(6));
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
        // Work that never rests returns control to the runtime.
        let mut work = pin!(poll_self_waking(wakes_itself(100)));
        assert!(work.as_mut().poll(&mut context).is_pending());
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }

    /// Wakes come from another thread at any instant of a poll, and none is lost.
    #[test]
    fn no_wake_of_others_is_lost() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        let producer = thread::spawn(move || {
            for number in 0..20_000_u32 {
                sender.blocking_send(number).unwrap();
            }
        });
        let mut expected = 0..20_000_u32;
        runtime.block_on(poll_self_waking(poll_fn(|context| {
            while let Some(number) = ready!(receiver.poll_recv(context)) {
                assert_eq!(Some(number), expected.next());
            }
            Poll::Ready(())
        })));
        producer.join().unwrap();
        assert_eq!(expected.next(), None);
    }
}
