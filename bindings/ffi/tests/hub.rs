//! Hubs: which ends are delivered to a loop, in which order, and what comes back.

#![allow(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "a test may panic")]

use std::iter::from_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rategate::wait::QueueBounds;
use rategate::{AcquireError, Grant, ManualClock};
use rategate_ffi::{
    Begun, Capacity, Clock, Ended, Hub, KeyRef, Keyed, Limiter, Policies, Taken, WaitId,
};

const SECOND: Duration = Duration::from_secs(1);

/// A loop with a clock that the test moves.
struct Loop {
    clock: ManualClock,
    hub: Hub,
    notified: Arc<AtomicUsize>,
}

impl Loop {
    fn new() -> Self {
        let notified = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&notified);
        let hub = Hub::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        Self { clock: ManualClock::stepped(), hub, notified }
    }

    fn limiter(&self, text: &str) -> Limiter {
        Limiter::new(&text.parse().unwrap(), Clock::Manual(self.clock.clone()))
    }

    fn keyed(&self, text: &str, capacity: Capacity) -> Keyed {
        let policies: Policies = text.parse().unwrap();
        Keyed::new(
            *policies.policies().first().unwrap(),
            capacity,
            Clock::Manual(self.clock.clone()),
        )
    }

    fn begin(&self, limiter: &Limiter) -> WaitId {
        match self.hub.begin(limiter, 1, None).unwrap() {
            Begun::Waits(id) => id,
            Begun::Taken(grant) => panic!("{grant:?}"),
        }
    }

    /// Runs the callers on the list, once the loop was notified. Returns those that were granted.
    fn granted(&self) -> Vec<WaitId> {
        if self.notified.swap(0, Ordering::SeqCst) == 0 {
            assert!(self.hub.next().is_none(), "without a notification");
        }
        from_fn(|| self.hub.next()).map(|ended| ended.end.map(|_| ended.wait).unwrap()).collect()
    }

    /// Returns the callers on the list, which a loop wakes and which then run.
    fn woken(&self) -> Vec<WaitId> {
        self.notified.store(0, Ordering::SeqCst);
        let mut woken = Vec::new();
        self.hub.wake(|id| woken.push(id));
        woken
    }

    fn runs(&self, id: WaitId) -> bool {
        self.hub.collect(id).is_some_and(|end| end.is_ok())
    }
}

/// Returns the permits of a wait that does not hold an estimate.
fn grant_of(taken: Taken) -> Grant {
    match taken {
        Taken::Granted(grant) => grant,
        Taken::Held(held) => panic!("{held:?}"),
    }
}

#[test]
fn permits_that_are_free_need_no_wait() {
    let at = Loop::new();
    let limiter = at.limiter("2/s");
    for _ in 0..2 {
        assert!(matches!(at.hub.begin(&limiter, 1, None), Ok(Begun::Taken(_))));
    }
    assert_eq!(at.hub.waiting(), 0);
    at.begin(&limiter);
    assert_eq!((at.hub.waiting(), limiter.waiting()), (1, Ok(1)));
}

#[test]
fn waits_end_at_their_instants_in_order() {
    for text in ["1/s", "1 per any second", "1/s; 100 per any minute"] {
        let at = Loop::new();
        let limiter = at.limiter(text);
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let ids = [(); 3].map(|()| at.begin(&limiter));
        for id in ids {
            at.clock.advance(Duration::from_nanos(999_999_999));
            assert_eq!(at.granted(), [], "{text}");
            at.clock.advance(Duration::from_nanos(1));
            assert_eq!(at.granted(), [id], "{text}");
        }
        assert_eq!((at.hub.waiting(), limiter.waiting()), (0, Ok(0)));
    }
}

/// All that end together notify once, and the next drain delivers all.
#[test]
fn one_notification_is_enough() {
    let at = Loop::new();
    let limiter = at.limiter("3 per any second");
    assert!(limiter.try_acquire(3).unwrap().is_granted());
    let ids = [(); 3].map(|()| at.begin(&limiter));
    at.clock.advance(SECOND);
    assert_eq!(at.notified.load(Ordering::SeqCst), 1);
    assert_eq!(at.granted(), ids);
}

/// A hub may be dropped before it is drained, and what notifies its loop is dropped with it.
#[test]
fn a_hub_with_ends_on_its_list_is_dropped_whole() {
    let at = Loop::new();
    let limiter = at.limiter("1/s");
    assert!(limiter.try_acquire(1).unwrap().is_granted());
    at.begin(&limiter);
    at.clock.advance(SECOND);
    let Loop { hub, notified, .. } = at;
    assert_eq!(notified.load(Ordering::SeqCst), 1);
    drop(hub);
    assert_eq!(Arc::strong_count(&notified), 1);
}

/// The permits of a caller count from when it runs, however late its loop is: no window of the
/// callers' own instants is shorter.
#[test]
fn permits_count_from_when_their_caller_runs() {
    let at = Loop::new();
    let limiter = at.limiter("2 per any second");
    assert!(limiter.try_acquire(2).unwrap().is_granted());
    let ids = [(); 4].map(|()| at.begin(&limiter));
    at.clock.advance(SECOND);
    assert_eq!(at.woken(), ids[..2]);
    let mut starts = Vec::new();
    for id in &ids[..2] {
        at.clock.advance(Duration::from_millis(3));
        let grant = grant_of(at.hub.collect(*id).unwrap().unwrap());
        assert_eq!(grant.released_at(), at.clock.now());
        starts.push(at.clock.now());
    }
    for (id, start) in ids[2..].iter().zip(starts) {
        at.clock.set(start + Duration::from_nanos(999_999_999));
        assert_eq!(at.woken(), []);
        at.clock.set(start + SECOND);
        assert_eq!(at.woken(), [*id]);
        assert!(at.runs(*id));
    }
}

/// Free permits are taken when the caller runs, too.
#[test]
fn a_caller_that_goes_on_later_takes_what_is_free_then() {
    for text in ["2 per any second", "2/s", "2 per any second; 9/min"] {
        let at = Loop::new();
        let limiter = at.limiter(text);
        let ids = [(); 3].map(|()| match at.hub.begin_later(&limiter, 1, None).unwrap() {
            Begun::Waits(id) => id,
            Begun::Taken(grant) => panic!("{grant:?}"),
        });
        assert_eq!((limiter.waiting(), limiter.remaining()), (Ok(3), Ok(0)), "{text}");
        assert!(!limiter.try_acquire(1).unwrap().is_granted());
        at.clock.advance(Duration::from_millis(7));
        for id in &ids[..2] {
            let ended = at.hub.next().unwrap();
            let end = (ended.wait, grant_of(ended.end.unwrap()).released_at());
            assert_eq!(end, (*id, at.clock.now()), "{text}");
        }
        assert!(at.hub.next().is_none());
        assert_eq!(at.notified.load(Ordering::SeqCst), 0, "the loop looks anyway");
        at.clock.advance(SECOND);
        assert_eq!(at.granted(), [ids[2]], "{text}");
        assert!(matches!(at.hub.begin_later(&limiter, 0, None), Ok(Begun::Taken(_))));
    }
}

/// A call that is granted at once goes on behind those whose callers have not gone on; not behind
/// those of another limiter.
#[test]
fn no_caller_goes_on_before_an_earlier_one() {
    let at = Loop::new();
    let (limiter, other) = (at.limiter("1/s burst 3"), at.limiter("1/s burst 3"));
    assert!(limiter.try_acquire(3).unwrap().is_granted());
    let first = at.begin(&limiter);
    // The loop is busy: a second becomes free, and a third.
    at.clock.advance(3 * SECOND);
    assert!(limiter.has_untaken());
    let second = at.begin(&limiter);
    assert!(matches!(at.hub.begin(&other, 1, None), Ok(Begun::Taken(_))));
    assert_eq!(at.woken(), [first, second]);
    let third = at.begin(&limiter);
    assert!(at.runs(first));
    assert!(limiter.has_untaken());
    assert!(at.runs(second));
    assert!(!at.runs(second), "once");
    assert_eq!(at.woken(), [third]);
    assert!(at.runs(third));
    assert!(!limiter.has_untaken());
    at.clock.advance(SECOND);
    assert!(matches!(at.hub.begin(&limiter, 1, None), Ok(Begun::Taken(_))));
}

/// A table makes a limiter for each handle of a key, and all of one key are one to a loop: also
/// those that two keys have of the limit that the new keys of a full table share.
#[test]
fn no_caller_goes_on_before_an_earlier_one_by_another_handle_of_its_key() {
    let at = Loop::new();
    let full = at.keyed("1/s burst 3", Capacity { max_keys: 1, ..Capacity::default() });
    let table = at.keyed("1/s burst 3", Capacity::default());
    for (table, keys) in [(&table, [1, 1]), (&full, [1, 2])] {
        assert!(table.try_acquire(KeyRef::Number(0), 3).unwrap().is_granted());
        let [one, same] = keys.map(|key| table.limiter(KeyRef::Number(key)).unwrap());
        assert!(one.try_acquire(3).unwrap().is_granted());
        let first = at.begin(&one);
        at.clock.advance(3 * SECOND);
        // The count is kept by waits, too.
        drop(one);
        assert!(same.has_untaken());
        assert_eq!(same.take_at_once(1), Ok(None));
        let second = at.begin(&same);
        assert_eq!(at.granted(), [first, second]);
        assert!(!same.has_untaken());
        assert!(same.take_at_once(1).unwrap().is_some());
    }
    let [one, other] = [3, 4].map(|key| table.limiter(KeyRef::Number(key)).unwrap());
    assert!(one.try_acquire(3).unwrap().is_granted());
    at.begin(&one);
    at.clock.advance(SECOND);
    assert!(one.has_untaken() && !other.has_untaken());
}

/// A loop that is busy for longer than the grace period, whose waiters have lost their permits to
/// each other: callers go on in order all the same, and none of the rate is lost besides. So do
/// those by several handles of one key.
#[test]
fn callers_of_a_loop_that_was_busy_for_long_go_on_in_order() {
    // By a loop that runs callers as it looks, and by one that wakes them first.
    let by_next = |at: &Loop| at.granted();
    let by_wake = |at: &Loop| {
        let mut granted = Vec::new();
        while let woken = at.woken()
            && !woken.is_empty()
        {
            granted.extend(woken.into_iter().filter(|id| at.runs(*id)));
        }
        granted
    };
    let runs: [fn(&Loop) -> Vec<WaitId>; 2] = [by_next, by_wake];
    for (run, is_of_a_key) in runs.into_iter().flat_map(|run| [(run, false), (run, true)]) {
        let at = Loop::new();
        let limiter = at.limiter("10/s burst 1");
        let table = at.keyed("10/s burst 1", Capacity::default());
        let handle = || {
            let of_key = is_of_a_key.then(|| table.limiter(KeyRef::Text("ann")).unwrap());
            of_key.unwrap_or_else(|| limiter.clone())
        };
        assert!(handle().try_acquire(1).unwrap().is_granted());
        let ids: Vec<_> = (0..20).map(|_| at.begin(&handle())).collect();
        for _ in 0..77 {
            at.clock.advance(Duration::from_millis(25));
        }
        // One that comes now, when the permits are free again, is behind them.
        let last = at.begin(&handle());
        let mut order = run(&at);
        // A caller that leaves now has the place that it was left with.
        assert!(at.hub.cancel(ids[19]));
        for _ in 0..40 {
            at.clock.advance(Duration::from_millis(100));
            order.extend(run(&at));
        }
        assert_eq!(order, [&ids[..19], &[last]].concat(), "{is_of_a_key}");
        assert_eq!((handle().waiting(), at.hub.waiting()), (Ok(0), 0));
        assert!(!handle().has_untaken());
    }
}

#[test]
fn a_cancelled_wait_gives_way_and_leaves_nothing() {
    let at = Loop::new();
    let limiter = at.limiter("1/s");
    assert!(limiter.try_acquire(1).unwrap().is_granted());
    let [first, second, third] = [(); 3].map(|()| at.begin(&limiter));
    assert!(at.hub.cancel(first));
    assert!(!at.hub.cancel(first));
    at.clock.advance(SECOND);
    // The second is due, and is cancelled before it is delivered: the third moves up.
    assert!(at.hub.cancel(second));
    assert_eq!(at.granted(), [third]);
    assert!(!at.hub.cancel(third));
    assert_eq!((at.hub.waiting(), limiter.waiting()), (0, Ok(0)));
    assert!(!limiter.has_untaken());
}

/// A caller that leaves after it was woken and before it runs makes way.
#[test]
fn a_woken_caller_that_leaves_takes_nothing() {
    for text in ["1/s burst 2", "2 per any second"] {
        let at = Loop::new();
        let limiter = at.limiter(text);
        assert!(limiter.try_acquire(2).unwrap().is_granted());
        let [first, second] = [(); 2].map(|()| at.begin(&limiter));
        at.clock.advance(2 * SECOND);
        assert_eq!(at.woken(), [first, second]);
        let before = limiter.remaining().unwrap();
        assert!(at.hub.cancel(first));
        assert_eq!(limiter.remaining(), Ok(before + 1), "{text}");
        assert!(at.runs(second));
        assert!(!at.hub.cancel(second));
        assert_eq!(limiter.remaining(), Ok(before + 1), "{text}");
    }
}

#[test]
fn permits_in_flight_come_back_from_a_caller_that_leaves() {
    let at = Loop::new();
    let policy = rategate::AnyPolicy::from(rategate::Concurrency::new(1));
    let limiter = Limiter::new(&policy.into(), Clock::Manual(at.clock.clone()));
    assert!(matches!(at.hub.begin(&limiter, 1, None), Ok(Begun::Taken(_))));
    let [first, second] = [(); 2].map(|()| at.begin(&limiter));
    assert_eq!(at.woken(), []);
    assert_eq!(limiter.release(1), Ok(true));
    assert_eq!(at.woken(), [first]);
    assert!(at.hub.cancel(first));
    assert_eq!(at.granted(), [second]);
}

#[test]
fn a_start_past_the_timeout_is_refused_at_once() {
    let at = Loop::new();
    let limiter = at.limiter("1/s");
    assert!(limiter.try_acquire(1).unwrap().is_granted());
    let half = Some(Duration::from_millis(500));
    let Err(AcquireError::TooLong(late)) = at.hub.begin(&limiter, 1, half) else { panic!() };
    assert_eq!(late.retry_after(), Duration::from_millis(500));
    assert!(matches!(at.hub.begin(&limiter, 1, Some(SECOND)), Ok(Begun::Waits(_))));
    assert!(matches!(at.hub.begin(&limiter, 2, None), Err(AcquireError::ExceedsCapacity(_))));
    limiter.bound_queue(QueueBounds::new(1)).unwrap();
    assert!(matches!(at.hub.begin(&limiter, 1, None), Err(AcquireError::QueueFull)));
    assert_eq!(at.hub.waiting(), 1);
}

/// A call that is refused, or takes nothing, leaves the earlier waits to be notified of.
#[test]
fn a_call_that_does_not_wait_hides_no_end() {
    let at = Loop::new();
    let limiter = at.limiter("1/s");
    assert!(limiter.try_acquire(1).unwrap().is_granted());
    for permits in [2, 0] {
        let Begun::Waits(waits) = at.hub.begin_later(&limiter, 1, None).unwrap() else { panic!() };
        assert!(at.hub.next().is_none());
        let begun = at.hub.begin_later(&limiter, permits, None);
        assert!(!matches!(begun, Ok(Begun::Waits(_))), "{begun:?}");
        at.clock.advance(SECOND);
        assert_eq!(at.granted(), [waits]);
    }
}

#[test]
fn closing_ends_all_waits() {
    let at = Loop::new();
    let limiter = at.limiter("1/h");
    assert!(limiter.try_acquire(1).unwrap().is_granted());
    let ids = [(); 2].map(|()| at.begin(&limiter));
    limiter.close();
    assert_eq!(at.woken(), ids);
    for id in ids {
        assert!(matches!(at.hub.collect(id), Some(Err(AcquireError::Closed))));
    }
    assert_eq!(at.hub.waiting(), 0);
    assert!(!limiter.has_untaken());
    assert!(matches!(at.hub.begin(&limiter, 1, None), Err(AcquireError::Closed)));
}

#[test]
fn a_dropped_hub_withdraws_its_waits() {
    let (at, beside) = (Loop::new(), Loop::new());
    let limiter = Limiter::new(&"1/s".parse().unwrap(), Clock::Manual(beside.clock.clone()));
    assert!(limiter.try_acquire(1).unwrap().is_granted());
    let _left = at.begin(&limiter);
    let stays = beside.begin(&limiter);
    drop(at);
    assert_eq!(limiter.waiting(), Ok(1));
    beside.clock.advance(SECOND);
    assert_eq!(beside.granted(), [stays]);
}

/// Two loops and four threads share one line, and together never exceed the limit.
#[cfg(unix)]
#[test]
fn loops_and_threads_share_one_line() {
    use rategate_ffi::Signal;

    const EACH: usize = 60;
    let limiter = Limiter::new(&"1000/s burst 1".parse().unwrap(), Clock::real());
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..EACH).for_each(|_| assert!(limiter.acquire(1, None).is_ok())));
        }
        for _ in 0..2 {
            scope.spawn(|| {
                let signal = Arc::new(Signal::new().unwrap());
                let raise = Arc::clone(&signal);
                let hub = Hub::new(move || raise.raise());
                let mut left: Vec<_> = (0..EACH)
                    .filter_map(|_| match hub.begin(&limiter, 1, None).unwrap() {
                        Begun::Waits(id) => Some(id),
                        Begun::Taken(_) => None,
                    })
                    .collect();
                left.reverse();
                while !left.is_empty() {
                    signal.wait().unwrap();
                    signal.lower();
                    while let Some(Ended { wait: id, end, .. }) = hub.next() {
                        let grant = grant_of(end.unwrap());
                        assert!(grant.released_at() >= grant.promised_at());
                        assert_eq!(Some(id), left.pop(), "in order");
                    }
                }
            });
        }
    });
    assert!(begin.elapsed() >= Duration::from_millis(6 * 60 - 1));
    assert_eq!(limiter.waiting(), Ok(0));
    assert!(!limiter.has_untaken());
}

/// The first looks a moment before the start of both, and the second a moment after it.
#[test]
fn a_start_between_the_looks_of_two_callers_is_the_firsts() {
    let at = Loop::new();
    let limiter = at.limiter("2 per any second");
    assert!(limiter.try_acquire(2).unwrap().is_granted());
    let [first, second] = [(); 2].map(|()| at.begin(&limiter));
    assert!(!at.runs(first));
    at.clock.advance(SECOND);
    assert_eq!(at.woken(), [first, second]);
    assert!(!at.runs(second));
    assert!(at.notified.load(Ordering::SeqCst) > 0);
    assert_eq!(at.woken(), [first, second]);
    assert!(at.runs(first) && at.runs(second));
    assert_eq!(limiter.waiting(), Ok(0));
}

#[test]
fn a_caller_that_never_looks_holds_up_a_later_one_for_a_turn() {
    let at = Loop::new();
    let limiter = at.limiter("2 per any second");
    assert!(limiter.try_acquire(2).unwrap().is_granted());
    let [first, second] = [(); 2].map(|()| at.begin(&limiter));
    at.clock.advance(SECOND);
    assert_eq!(at.woken(), [first, second]);
    assert!(!at.runs(second));
    assert_eq!(at.woken(), [first, second]);
    assert!(at.runs(second) && at.runs(first));
}

/// The thread that ends waits and that of the loop put callers on the list, in any order; callers
/// go on in theirs.
#[cfg(unix)]
#[test]
fn callers_go_on_in_order_whichever_thread_wakes_them() {
    use rategate_ffi::Signal;

    let by_wake = |hub: &Hub| {
        let mut woken = Vec::new();
        hub.wake(|id| woken.push(id));
        woken.retain(|id| hub.collect(*id).is_some());
        woken
    };
    let by_next = |hub: &Hub| from_fn(|| hub.next()).map(|ended| ended.wait).collect();
    let runs: [fn(&Hub) -> Vec<WaitId>; 2] = [by_next, by_wake];
    for run in runs.repeat(75) {
        let limiter = Limiter::new(&"3 per any 1ms".parse().unwrap(), Clock::real());
        let signal = Arc::new(Signal::new().unwrap());
        let raise = Arc::clone(&signal);
        let hub = Hub::new(move || raise.raise());
        let mut ids = Vec::new();
        while ids.len() < 40 {
            if let Begun::Waits(id) = hub.begin(&limiter, 1, None).unwrap() {
                ids.push(id);
            }
        }
        let mut order = Vec::new();
        while order.len() < ids.len() {
            signal.wait().unwrap();
            signal.lower();
            order.extend(run(&hub));
        }
        assert_eq!(order, ids);
    }
}

/// A hold begins as its caller runs, at its place in line, and comes back to the callers behind it.
#[test]
fn callers_wait_to_hold_what_they_will_use() {
    let at = Loop::new();
    let limiter = at.limiter("10/s");
    let first = limiter.try_hold(8, SECOND * 60).unwrap().unwrap();
    let begin = |permits, timeout| {
        at.hub.begin_hold(&limiter, permits, SECOND * 5, timeout).map(|begun| match begun {
            Begun::Waits(id) => id,
            Begun::Taken(taken) => panic!("{taken:?}"),
        })
    };
    let (second, third) = (begin(6, None).unwrap(), begin(4, None).unwrap());
    assert!(matches!(begin(1, Some(Duration::ZERO)), Err(AcquireError::TooLong(_))));
    first.commit(3).unwrap();
    at.clock.advance(Duration::from_millis(7));
    let held = |id| match at.hub.collect(id) {
        Some(Ok(Taken::Held(held))) => Some(held),
        None => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(at.woken(), [second]);
    let of_second = held(second).unwrap();
    assert_eq!(of_second.ends_at(), Duration::from_millis(5_007));
    assert!(held(third).is_none(), "1.07 are left");
    of_second.commit(2).unwrap();
    assert_eq!(at.woken(), [third]);
    held(third).unwrap().cancel();
    assert_eq!((limiter.remaining(), at.hub.waiting()), (Ok(5), 0));
    assert!(at.hub.cancel(begin(6, None).unwrap()));
    assert_eq!(limiter.remaining(), Ok(5));
}
