//! Futures that rarely wake, such as the drain or a timer, polled only when they have.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// A future that is polled only after it has woken its task, not whenever the task runs for
/// another reason.
#[derive(Debug)]
pub(crate) struct WakeGate<'a, F> {
    future: Pin<&'a mut F>,
    state: Arc<GateState>,
    /// The waker that the inner future receives.
    gate_waker: Waker,
    /// The waker of the task that last polled.
    task: Option<Waker>,
}

#[derive(Debug)]
struct GateState {
    is_woken: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl<'a, F: Future> WakeGate<'a, F> {
    pub(crate) fn new(future: Pin<&'a mut F>) -> Self {
        let state = Arc::new(GateState { is_woken: AtomicBool::new(true), task: Mutex::new(None) });
        let gate_waker = Waker::from(Arc::clone(&state));
        Self { future, state, gate_waker, task: None }
    }

    /// Returns the future for a change. It is polled again afterwards.
    pub(crate) fn as_mut(&mut self) -> Pin<&mut F> {
        self.state.is_woken.store(true, Ordering::Release);
        self.future.as_mut()
    }

    /// Returns the future.
    pub(crate) fn get(&self) -> &F {
        &self.future
    }
}

impl<F: Future> Future for WakeGate<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        if !this.task.as_ref().is_some_and(|task| task.will_wake(context.waker())) {
            this.task = Some(context.waker().clone());
            let mut task = this.state.task.lock().unwrap_or_else(PoisonError::into_inner);
            task.clone_from(&this.task);
            this.state.is_woken.store(true, Ordering::Release);
        }
        if !this.state.is_woken.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        // Cleared before the poll, so that a wake-up during the poll counts.
        this.state.is_woken.store(false, Ordering::Release);
        this.future.as_mut().poll(&mut Context::from_waker(&this.gate_waker))
    }
}

impl Wake for GateState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The future is polled once per wake-up, per task that starts to wait for it, and after each
    /// change. A wake-up wakes the task that polled last.
    #[test]
    fn it_is_polled_after_it_has_woken_its_task() {
        let (mut polls, mut seen) = (0, None);
        let future = poll_fn(|context: &mut Context<'_>| {
            polls += 1;
            seen = Some(context.waker().clone());
            if polls < 5 { Poll::Pending } else { Poll::Ready(polls) }
        });
        let mut future = pin!(future);
        let mut wake_gate = WakeGate::new(future.as_mut());
        let (one, other) = (Arc::<Count>::default(), Arc::<Count>::default());
        let wakers = [&one, &other].map(|count| Waker::from(Arc::clone(count)));
        let poll = |wake_gate: &mut WakeGate<'_, _>, task: usize, times: usize| {
            (0..times).find_map(|_| {
                let polled =
                    Pin::new(&mut *wake_gate).poll(&mut Context::from_waker(&wakers[task]));
                if let Poll::Ready(polls) = polled { Some(polls) } else { None }
            })
        };
        assert_eq!(poll(&mut wake_gate, 0, 9), None);
        wake_gate.gate_waker.wake_by_ref();
        assert_eq!(one.0.load(Ordering::Relaxed), 1);
        assert_eq!(poll(&mut wake_gate, 0, 9), None);
        // Another task: the future has to learn its waker.
        assert_eq!(poll(&mut wake_gate, 1, 9), None);
        wake_gate.gate_waker.wake_by_ref();
        assert_eq!([&one, &other].map(|count| count.0.load(Ordering::Relaxed)), [1, 1]);
        assert_eq!(poll(&mut wake_gate, 1, 9), None);
        #[expect(
            clippy::let_underscore_future,
            reason = "taken to be changed, not to be waited for"
        )]
        let _ = wake_gate.as_mut();
        assert_eq!(poll(&mut wake_gate, 1, 1), Some(5));
    }
}
