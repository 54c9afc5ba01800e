//! Limits of several processes, over a real server: the order of waiters, errors, and waits that
//! are given up.

#![cfg(unix)]
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests: a panic is how they fail"
)]

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use rategate_ffi::{
    Code, Later, Leases, Mode, OnUnavailable, Policies, Replies, Reply, Shared, SharedConfig,
    SharedDecision, SharedError,
};
use rategate_testkit::redis::{Brand, Server};

/// Longer than any delay of a busy machine.
const BUDGET: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(30);

type Ended = Result<SharedDecision, SharedError>;

fn config(server: &Server) -> SharedConfig {
    SharedConfig {
        url: format!("redis://127.0.0.1:{}", server.port()),
        prefix: None,
        name: None,
        mode: Mode::Exact,
        when_gone: OnUnavailable::Deny,
        has_quarantine: false,
        budget: BUDGET,
    }
}

fn shared(server: &Server, limit: &str) -> Shared {
    Shared::new(&limit.parse().unwrap(), &config(server)).unwrap()
}

/// An event loop: calls, and the ids of those that have ended, in order.
struct Loop {
    replies: Replies<Ended>,
    notified: Arc<AtomicUsize>,
    /// Calls that had their replies as they began: the thread was stopped before its first look.
    at_once: RefCell<Vec<(u64, Ended)>>,
}

impl Loop {
    fn new() -> Self {
        let notified = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&notified);
        let replies = Replies::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        Self { replies, notified, at_once: RefCell::default() }
    }

    fn begin(&self, reply: Reply) -> u64 {
        let Reply::Later(later) = reply else { panic!("{reply:?}") };
        match self.replies.begin(later).unwrap() {
            Err(id) => id,
            Ok(end) => {
                let mut at_once = self.at_once.borrow_mut();
                let id = u64::MAX - u64::try_from(at_once.len()).unwrap();
                at_once.push((id, end));
                id
            }
        }
    }

    /// Runs until so many callers wait for the key `k`; none may have ended.
    fn until_waiting(&self, limit: &Shared, callers: usize) {
        let until = Instant::now() + LONG;
        while limit.waiting(b"k") < callers {
            assert!(Instant::now() < until);
            self.replies.drain(|id, end| panic!("{id}: {end:?}"));
        }
    }

    /// Runs until so many calls have ended.
    fn ended(&self, calls: usize) -> Vec<(u64, Ended)> {
        let (mut ended, until) = (self.at_once.take(), Instant::now() + LONG);
        while ended.len() < calls {
            assert!(Instant::now() < until, "{ended:?}");
            if self.notified.swap(0, Ordering::SeqCst) == 0 {
                thread::yield_now();
                continue;
            }
            self.replies.drain(|id, end| ended.push((id, end)));
        }
        ended
    }
}

fn is_granted(ended: &Ended) -> bool {
    ended.as_ref().is_ok_and(SharedDecision::is_granted)
}

/// A reply that comes once another thread has it.
#[derive(Clone, Default)]
struct Coming(Arc<Mutex<(Option<u32>, Option<Waker>)>>);

impl Coming {
    fn comes(&self, reply: u32) {
        let mut state = self.0.lock().unwrap();
        state.0 = Some(reply);
        state.1.take().unwrap().wake();
    }

    fn later(&self) -> Later<u32> {
        let own = self.clone();
        Box::pin(poll_fn(move |context| {
            let mut state = own.0.lock().unwrap();
            state.1 = Some(context.waker().clone());
            state.0.map_or(Poll::Pending, Poll::Ready)
        }))
    }
}

#[test]
fn replies_taken_one_by_one_come_in_order_and_notify_once() {
    let notified = Arc::new(AtomicUsize::new(0));
    let coming: Vec<Coming> = (0..5).map(|_| Coming::default()).collect();
    let count = Arc::clone(&notified);
    let replies = Replies::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let ids: Vec<u64> =
        coming.iter().map(|coming| replies.begin(coming.later()).unwrap().unwrap_err()).collect();
    assert_eq!(replies.next(), None);
    coming[1].comes(10);
    coming[2].comes(20);
    coming[0].comes(0);
    assert!(replies.cancel(ids[2]));
    assert_eq!(replies.next(), Some((ids[1], 10)));
    // It comes while the loop looks.
    coming[3].comes(30);
    assert_eq!(replies.next(), Some((ids[0], 0)));
    assert_eq!(replies.next(), Some((ids[3], 30)));
    assert_eq!((replies.next(), notified.load(Ordering::SeqCst)), (None, 1));
    coming[4].comes(40);
    assert_eq!(notified.load(Ordering::SeqCst), 2);
    assert_eq!(replies.next(), Some((ids[4], 40)));
    assert_eq!((replies.next(), replies.waiting()), (None, 0));
}

#[test]
fn callers_of_a_key_pass_in_the_order_of_their_calls() {
    let server = Server::start(Brand::Redis);
    // Fast enough that permits are earned while the first requests of all are under way.
    let limit = shared(&server, "2000/s burst 2");
    let at = Loop::new();
    let ids: Vec<u64> = (0..60).map(|_| at.begin(limit.acquire(b"k", 1, None))).collect();
    let ended = at.ended(60);
    assert!(ended.iter().all(|(_, end)| is_granted(end)));
    assert_eq!(ended.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids);
    assert_eq!(limit.waiting(b"k"), 0);
}

#[test]
fn waiters_cost_a_request_or_two_each_whatever_their_number() {
    let server = Server::start(Brand::Redis);
    let limit = shared(&server, "200/s burst 1");
    assert!(limit.decide_blocking(b"k", 1).unwrap().is_granted());
    let at = Loop::new();
    let ids: Vec<u64> = (0..50).map(|_| at.begin(limit.acquire(b"k", 1, None))).collect();
    assert_eq!(at.ended(50).iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids);
    let calls = limit.counts().store;
    assert_eq!(calls.granted, 51);
    // The first request of each, and one more where the next came too soon.
    assert!(calls.denied <= 2 * 50, "{calls:?}");
}

#[test]
fn permits_that_come_back_pass_as_many_calls() {
    let server = Server::start(Brand::Redis);
    let limit = shared(&server, "1/h burst 20");
    let SharedDecision::Granted(all) = limit.decide_blocking(b"k", 20).unwrap() else {
        panic!("denied")
    };
    limit.refund(b"k", 20, all).unwrap();
    let until = Instant::now() + LONG;
    while limit.peek(b"k", 20).wait().unwrap().remaining() != Some(20) {
        assert!(Instant::now() < until);
    }
    let at = Loop::new();
    for _ in 0..20 {
        at.begin(limit.acquire(b"k", 1, None));
    }
    assert!(at.ended(20).iter().all(|(_, end)| is_granted(end)));
}

#[test]
fn a_wait_that_is_given_up_leaves_the_line_and_those_behind_move_up() {
    let server = Server::start(Brand::Redis);
    let limit = shared(&server, "10/s burst 1");
    assert!(limit.decide_blocking(b"k", 1).unwrap().is_granted());
    let at = Loop::new();
    let ids: Vec<u64> = (0..4).map(|_| at.begin(limit.acquire(b"k", 1, None))).collect();
    at.until_waiting(&limit, 4);
    at.notified.store(0, Ordering::SeqCst);
    // The first, which sleeps for all, and another.
    assert!(at.replies.cancel(ids[0]) && at.replies.cancel(ids[2]));
    assert!(!at.replies.cancel(ids[0]), "it has ended");
    at.replies.drain(|id, end| panic!("{id}: {end:?}"));
    at.notified.fetch_add(1, Ordering::SeqCst);
    let ended: Vec<u64> = at.ended(2).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ended, [ids[1], ids[3]]);
    assert_eq!((limit.waiting(b"k"), at.replies.waiting()), (0, 0));
}

#[test]
fn a_call_given_up_before_its_reply_takes_nothing() {
    let server = Server::start(Brand::Redis);
    let limit = shared(&server, "1/h burst 5");
    let at = Loop::new();
    let id = at.begin(limit.acquire(b"k", 5, None));
    assert!(at.replies.cancel(id));
    let until = Instant::now() + LONG;
    while limit.peek(b"k", 1).wait().unwrap().remaining() != Some(5) {
        assert!(Instant::now() < until, "its permits do not come back");
    }
}

#[test]
fn a_timeout_ends_a_wait_at_once_if_it_is_known_and_behind_others_when_it_is_over() {
    let server = Server::start(Brand::Redis);
    let limit = shared(&server, "1/h burst 1");
    assert!(limit.decide_blocking(b"k", 1).unwrap().is_granted());
    let error = limit.acquire(b"k", 1, Some(Duration::from_secs(60))).wait().unwrap_err();
    let SharedError::TooLong { retry_after: Some(wait) } = error else { panic!("{error:?}") };
    assert!(wait > Duration::from_secs(3_590) && error.code() == Code::TooLong);
    let at = Loop::new();
    at.begin(limit.acquire(b"k", 1, None));
    at.until_waiting(&limit, 1);
    let behind = limit.acquire(b"k", 1, Some(Duration::from_millis(50))).wait();
    assert!(matches!(behind, Err(SharedError::TooLong { retry_after: None })), "{behind:?}");
    assert_eq!(limit.waiting(b"k"), 1);
}

#[test]
fn more_than_ever_pass_together_is_refused_before_the_line() {
    let server = Server::start(Brand::Redis);
    let limit = shared(&server, "1/h burst 1");
    assert!(limit.decide_blocking(b"k", 1).unwrap().is_granted());
    let at = Loop::new();
    at.begin(limit.acquire(b"k", 1, None));
    at.until_waiting(&limit, 1);
    let Reply::Now(Err(error)) = limit.acquire(b"k", 2, None) else { panic!("it waits") };
    assert_eq!(error.code(), Code::Never);
}

#[test]
fn a_reply_that_is_there_is_delivered_behind_those_that_came_before() {
    let replies = Replies::new(|| {});
    let (give, mut given) = (Arc::new(Mutex::new((false, None::<Waker>))), Vec::new());
    let earlier = {
        let give = Arc::clone(&give);
        poll_fn(move |context| {
            let mut give = give.lock().unwrap();
            give.1 = Some(context.waker().clone());
            if give.0 { Poll::Ready("earlier") } else { Poll::Pending }
        })
    };
    assert_eq!(replies.begin(Box::pin(earlier)), Some(Err(1)));
    assert_eq!(replies.begin(Box::pin(async { "at once" })), Some(Ok("at once")));
    give.lock().unwrap().0 = true;
    let waker = give.lock().unwrap().1.take();
    waker.unwrap().wake();
    assert_eq!(replies.begin(Box::pin(async { "later" })), Some(Err(3)));
    replies.drain(|id, reply| given.push((id, reply)));
    assert_eq!(given, [(1, "earlier"), (3, "later")]);
    assert_eq!(replies.waiting(), 0);
}

/// The later call is granted what was earned after the earlier one had been denied.
#[test]
fn a_grant_goes_to_the_earlier_caller_that_was_denied() {
    let server = Server::start(Brand::Redis);
    let limit = shared(&server, "2/s burst 1");
    let at = Loop::new();
    let until = Instant::now() + LONG;
    for key in 0_u64.. {
        assert!(Instant::now() < until, "the loop has seen each denial as the call began");
        let key = key.to_be_bytes();
        assert!(limit.decide_blocking(&key, 1).unwrap().is_granted());
        let earlier = at.begin(limit.acquire(&key, 1, None));
        while limit.peek(&key, 1).wait().unwrap().remaining() < Some(1) {
            assert!(Instant::now() < until);
        }
        // No line yet: the loop has not seen the denial. Where the thread was stopped between its
        // call and its first look at it, it has, and the later call stands behind.
        let is_unseen = limit.waiting(&key) == 0;
        let later = at.begin(limit.acquire(&key, 1, None));
        let ended: Vec<u64> = at.ended(2).into_iter().map(|(id, _)| id).collect();
        assert_eq!(ended, [earlier, later]);
        if is_unseen {
            break;
        }
    }
}

#[test]
fn policies_that_a_store_does_not_know_are_named() {
    let server = Server::start(Brand::Redis);
    for table in [
        "policy = \"concurrency\"\npermits = 3\n",
        "policy = \"pacer\"\nrate = \"1/s\"\nmin_sleep = \"1ms\"\n",
    ] {
        let Ok(policies) = Policies::from_table(table) else { panic!("{table}") };
        let error = Shared::new(&policies, &config(&server)).unwrap_err();
        assert!(matches!(error, SharedError::Policy(_)), "{error:?}");
        assert!(error.to_string().contains("it knows gcra"), "{error}");
        assert_eq!(error.code(), Code::Invalid);
    }
}

/// Leases hand out what was borrowed without a wait, and then wait in the same line.
#[test]
fn borrowed_permits_are_there_at_once() {
    let server = Server::start(Brand::Redis);
    let leases = Leases { ttl: LONG, max_permits: 8, ..Leases::default() };
    let config = SharedConfig { mode: Mode::Leased(leases), ..config(&server) };
    let limit = Shared::new(&"1/h burst 16".parse().unwrap(), &config).unwrap();
    let at_once =
        (0..16).filter(|_| matches!(limit.acquire(b"k", 1, None), Reply::Now(Ok(_)))).count();
    assert!(at_once <= 16);
    let granted = (0..16).filter(|_| limit.decide_blocking(b"k", 1).unwrap().is_granted()).count();
    let counts = limit.counts();
    assert!(granted > 0 && counts.lease.granted > 0, "{counts:?}");
    assert!(counts.lease.granted + counts.store.granted <= 16, "{counts:?}");
}

#[test]
fn labels_of_limits_are_their_texts_and_long_ones_differ() {
    let server = Server::start(Brand::Redis);
    let long = ["1/h burst 5; 100/day burst 70", "1/h burst 5; 100/day burst 71"];
    for limit in long {
        assert!(shared(&server, limit).decide_blocking(b"k", 1).unwrap().is_granted());
    }
    let keys = server.client().ok(&["KEYS", "*"]).list_text();
    assert!(keys.iter().any(|key| key.contains(":1-h-burst-5")), "{keys:?}");
    // One state of the limit that both have, one of each that they have not, and the marker.
    assert_eq!(keys.len(), 4, "{keys:?}");
}

/// Before that the store may have granted all of the part, and no limit has decided.
#[test]
fn a_wait_for_a_part_that_has_not_begun_is_unavailable_and_over_the_part_it_is_too_long() {
    let nodes = std::num::NonZeroU32::new(2).unwrap();
    let shared = |limit: &str| {
        let config = SharedConfig {
            url: "redis://127.0.0.1:1".to_owned(),
            prefix: None,
            name: None,
            mode: Mode::Exact,
            when_gone: OnUnavailable::Local { nodes },
            has_quarantine: false,
            budget: Duration::from_millis(50),
        };
        Shared::new(&limit.parse().unwrap(), &config).unwrap()
    };
    let hourly = shared("2 per any 1h");
    let end = hourly.acquire(b"k", 1, Some(Duration::ZERO)).wait();
    let Err(SharedError::Unavailable { retry_after: Some(wait), .. }) = end else {
        panic!("{end:?}")
    };
    assert!(wait > Duration::from_secs(3_500), "{wait:?}");
    let soon = shared("2 per any 200ms");
    let begin = Instant::now();
    assert!(soon.acquire(b"k", 1, Some(LONG)).wait().is_ok());
    assert!(begin.elapsed() >= Duration::from_millis(200));
    loop {
        match soon.acquire(b"k", 1, Some(Duration::ZERO)).wait() {
            Ok(_) => {}
            Err(SharedError::TooLong { .. }) => break,
            end => panic!("{end:?}"),
        }
    }
}

#[test]
fn limits_without_a_name_count_together_where_store_and_text_are_equal() {
    let shared = |url: &str, limit: &str, name: Option<&str>, prefix: Option<&str>| {
        let config = SharedConfig {
            url: url.to_owned(),
            prefix: prefix.map(str::to_owned),
            name: name.map(str::to_owned),
            mode: Mode::Exact,
            when_gone: OnUnavailable::Deny,
            has_quarantine: false,
            budget: BUDGET,
        };
        Shared::new(&limit.parse().unwrap(), &config).unwrap()
    };
    let (url, limit) = ("redis://127.0.0.1:1", "10/s; 50/min");
    let first = shared(url, limit, None, None);
    for (other_url, other, name, prefix, is_one) in [
        (url, limit, None, None, true),
        // One that is unlike is enough to differ, and one that is alike to count together.
        ("redis://:password@127.0.0.1:1/0", "50 per minute", None, None, true),
        (url, "10/s burst 3", None, None, false),
        (url, limit, Some("a"), None, false),
        (url, limit, None, Some("a"), false),
        ("redis://127.0.0.1:2", limit, None, None, false),
        ("redis://127.0.0.1:1/1", limit, None, None, false),
    ] {
        let other = shared(other_url, other, name, prefix);
        assert_eq!(first.counts_with(&other), is_one, "{other_url} {other:?}");
        assert_eq!(other.counts_with(&first), is_one);
    }
    let named = [(); 2].map(|()| shared(url, limit, Some("a"), None));
    assert!(!named[0].counts_with(&named[1]), "that is what the name says");
}
