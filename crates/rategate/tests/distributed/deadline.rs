//! Callers keep their deadlines by themselves, even if a store never replies.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rategate::distributed::{
    Builder, DecidedBy, Decision, DecisionFuture, Distributed, Leases, Mode,
};
use rategate::store::{Callback, MemoryStore, PlanError, Rule, Store, StoreRequest};
use rategate::{Clock, Gcra};

use crate::distributed::MS;
use crate::distributed::fleet::Fleet;

/// A store that never replies.
#[derive(Default)]
struct Silent {
    plans: MemoryStore,
    unanswered: Mutex<Vec<Callback>>,
}

impl Store for Silent {
    type Plan = <MemoryStore as Store>::Plan;

    fn plan(&self, rules: &[(&str, Rule)]) -> Result<Self::Plan, PlanError> {
        self.plans.plan(rules)
    }

    fn submit(&self, _: StoreRequest<Self::Plan>, callback: Callback) {
        self.unanswered.lock().unwrap().push(callback);
    }
}

/// A waker that counts its calls and unparks a thread.
struct Woken(AtomicU64, Thread);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        self.1.unpark();
    }
}

fn woken() -> Arc<Woken> {
    Arc::new(Woken(AtomicU64::new(0), thread::current()))
}

fn modes() -> [Mode; 2] {
    let leases =
        Leases { ttl: Duration::from_nanos(100 * MS), max_permits: 20, ..Leases::default() };
    [Mode::Exact, Mode::Leased(leases)]
}

fn limited<T: Store, C: Clock + Clone + 'static>(builder: Builder<T, C>) -> Builder<T, C> {
    builder.limit("calls", Gcra::new("100/s".parse().unwrap(), 10).unwrap())
}

/// Runs a future as an executor does, polling whenever it is woken.
fn run(deciding: DecisionFuture) -> Decision {
    let (woken, mut deciding) = (woken(), pin!(deciding));
    let waker = Waker::from(woken);
    loop {
        match deciding.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(decision) => return decision.unwrap(),
            Poll::Pending => thread::park(),
        }
    }
}

/// A store that never replies delays threads and tasks by the budget, in real time and in each
/// mode, and the limiter has no thread of its own.
#[test]
fn a_silent_store_blocks_no_call() {
    for mode in modes() {
        for decide in [run, |deciding: DecisionFuture| deciding.wait().unwrap()] {
            let (sender, received) = mpsc::channel();
            thread::spawn(move || {
                let builder = limited(Distributed::builder(Arc::new(Silent::default())));
                let limiter = builder.mode(mode).unattended().build().unwrap();
                let begun = Instant::now();
                let decision = decide(limiter.try_acquire(b"key", 1));
                sender.send((decision, begun.elapsed())).unwrap();
            });
            let (decision, took) = received.recv_timeout(Duration::from_secs(20)).unwrap();
            assert_eq!(
                (decision.is_granted(), decision.by()),
                (false, DecidedBy::Fallback),
                "{mode:?}"
            );
            let Decision::Denied(denial) = decision else { panic!("{mode:?}") };
            assert!(denial.retry_after.is_some(), "{mode:?}");
            assert!(took >= Duration::from_millis(25), "{mode:?}: {took:?}");
        }
    }
}

/// Tasks are woken to the nanosecond, on a manual clock: after the budget and a quarter of it.
#[test]
fn each_task_is_woken_at_its_deadline() {
    for mode in modes() {
        let mut fleet = Fleet::new(1);
        let node = fleet.join(|builder| limited(builder).mode(mode));
        let begun_ns = fleet.now_ns();
        let (first, second) = (woken(), woken());
        let poll = |deciding: &mut std::pin::Pin<Box<DecisionFuture>>, woken: &Arc<Woken>| {
            let waker = Waker::from(Arc::clone(woken));
            deciding.as_mut().poll(&mut Context::from_waker(&waker))
        };
        let mut one = Box::pin(fleet.nodes[node].node.try_acquire(b"key", 1));
        assert!(poll(&mut one, &first).is_pending());
        fleet.clock.set(Duration::from_nanos(begun_ns + 10 * MS));
        let mut two = Box::pin(fleet.nodes[node].node.try_acquire(b"key", 1));
        // A call that is decided before leaves the next one its deadline.
        let mut dropped = Box::pin(fleet.nodes[node].node.try_acquire(b"key", 1));
        assert!(poll(&mut dropped, &first).is_pending() && poll(&mut two, &second).is_pending());
        drop(dropped);
        let count = |woken: &Arc<Woken>| woken.0.load(Ordering::SeqCst);
        for (at_ns, woken) in [(25 * MS - 1, [0, 0]), (25 * MS, [1, 0]), (35 * MS - 1, [1, 0])] {
            fleet.clock.set(Duration::from_nanos(begun_ns + at_ns));
            assert_eq!([count(&first), count(&second)], woken, "{mode:?} at {at_ns}");
        }
        assert!(poll(&mut two, &second).is_pending());
        fleet.clock.set(Duration::from_nanos(begun_ns + 35 * MS));
        assert_eq!([count(&first), count(&second)], [1, 1], "{mode:?}");
        for mut deciding in [one, two] {
            let Poll::Ready(decision) = poll(&mut deciding, &first) else { panic!("{mode:?}") };
            assert_eq!(decision.unwrap().by(), DecidedBy::Fallback, "{mode:?}");
        }
    }
}

/// Returns the number of threads of this process with this name, where the system reports it.
fn threads_named(name: &str) -> Option<usize> {
    let threads = std::fs::read_dir("/proc/self/task").ok()?;
    let names = threads.filter_map(|thread| {
        let name = std::fs::read_to_string(thread.ok()?.path().join("comm")).ok()?;
        Some(name.trim().to_owned())
    });
    Some(names.filter(|found| found == name).count())
}

/// The thread of a limiter ends with its last clone.
#[test]
fn a_limiter_that_is_dropped_leaves_no_thread() {
    let threads = || threads_named("rategate-rounds");
    let Some(before) = threads() else { return };
    let soon = |is_so: &dyn Fn(usize) -> bool, mode: Mode| {
        let begun = Instant::now();
        while !is_so(threads().unwrap()) {
            assert!(begun.elapsed() < Duration::from_secs(8), "{mode:?}: {:?}", threads());
            thread::sleep(Duration::from_millis(2));
        }
    };
    for mode in modes() {
        let limiter = limited(Distributed::builder(Arc::new(MemoryStore::new())));
        let limiter = limiter.mode(mode).build().unwrap();
        let clone = limiter.clone();
        drop(limiter);
        soon(&|now| now == before + usize::from(mode != Mode::Exact), mode);
        drop(clone);
        soon(&|now| now == before, mode);
    }
}
