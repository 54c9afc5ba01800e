//! Reservations of a limit that processes share, over a store that may be away.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use rategate::charge::Settled;
use rategate::distributed::{Builder, Distributed, Mode, PartitionConfig};
use rategate::store::{
    EndOutcome, MemoryStore, ReservationEnd, ReservationId, ReserveVerdict, Rule, Store,
    StoreError, Unavailable,
};
use rategate::{Concurrency, Gcra, ManualClock};
use rategate_testkit::faulty::{Fate, FaultyStore};

type Memory = MemoryStore<ManualClock>;

const TTL: Duration = Duration::from_secs(30);
const ID: ReservationId = ReservationId([7; 16]);

fn memory(clock: &ManualClock) -> Arc<Memory> {
    Arc::new(MemoryStore::with_clock(clock.clone()))
}

fn node<S: Store>(store: &Arc<S>, clock: &ManualClock) -> Builder<S, ManualClock> {
    let builder = Distributed::builder(Arc::clone(store)).with_clock(clock.clone()).unattended();
    builder.limit("tokens", Gcra::per_second(1).burst(100))
}

const fn used(permits: u64) -> ReservationEnd {
    ReservationEnd::Commit { used: Some(permits) }
}

/// One node holds, another one respects it, and a third one may end it.
#[test]
fn all_nodes_see_what_is_held() {
    let clock = ManualClock::stepped();
    let store = memory(&clock);
    let nodes: Vec<_> = (0..3).map(|_| node(&store, &clock).build().unwrap()).collect();
    let reply = nodes[0].reserve(b"k", 80, ID, TTL).wait().unwrap();
    let ends_in_ns = NonZeroU64::new(30_000_000_000).unwrap();
    assert_eq!((reply.verdict, reply.remaining), (ReserveVerdict::Held { ends_in_ns }, 20));
    assert!(!nodes[1].try_acquire(b"k", 21).wait().unwrap().is_granted());
    let reply = nodes[2].end(b"k", ID, used(30)).wait().unwrap();
    assert_eq!(reply.outcome, EndOutcome::Committed(Settled::Back { permits: 50 }));
    assert!(nodes[1].try_acquire(b"k", 70).wait().unwrap().is_granted());
}

/// Whatever is lost on the way, an operation that is sent until it is heard counts once. The
/// fallback and the circuit breaker play no part.
#[test]
fn what_is_sent_again_counts_once() {
    let clock = ManualClock::stepped();
    let memory = memory(&clock);
    let store = Arc::new(FaultyStore::new(Arc::clone(&memory), clock.clone(), 20_000_000));
    let node = node(&store, &clock).build().unwrap();
    let late = Err(StoreError::Unavailable(Unavailable::Late));
    let lost = [Fate::RequestLost, Fate::ReplyLost, Fate::ReplyLost];
    let waits = || clock.advance(Duration::from_millis(20));
    for _ in 0..3 {
        store.script(lost);
        for _ in lost {
            let pending = node.reserve(b"k", 80, ID, TTL);
            waits();
            assert_eq!(pending.wait(), late);
        }
    }
    let reply = node.reserve(b"k", 80, ID, TTL).wait().unwrap();
    assert!(reply.is_repeated && matches!(reply.verdict, ReserveVerdict::Held { .. }));
    assert_eq!(reply.remaining, 20);
    store.script(lost);
    for _ in lost {
        let pending = node.end(b"k", ID, used(90));
        waits();
        assert_eq!(pending.wait().unwrap_err(), StoreError::Unavailable(Unavailable::Late));
    }
    let reply = node.end(b"k", ID, used(90)).wait().unwrap();
    let owed = EndOutcome::Committed(Settled::Owed { permits: 10, forgiven: 0 });
    assert_eq!((reply.outcome, reply.is_repeated, reply.remaining), (owed, true, 10));
    let Some(Err(StoreError::Unavailable(_))) = ({
        store.set_usual(Fate::Unreachable);
        Some(node.reserve(b"k", 1, ReservationId([8; 16]), TTL).wait())
    }) else {
        panic!("decided without the store")
    };
    assert_eq!(node.counts(), rategate::distributed::Counts::default(), "no decision was made");
}

/// No permits are held in any state, and leave nothing that could end.
#[test]
fn no_permits_leave_no_trace() {
    let clock = ManualClock::stepped();
    let store = memory(&clock);
    let node = node(&store, &clock).build().unwrap();
    let charged = node.charge(b"k", NonZeroU64::new(140).unwrap()).wait().unwrap();
    assert_eq!(charged.charged.debt, 40);
    let reply = node.reserve(b"k", 0, ID, TTL).wait().unwrap();
    assert!(matches!(reply.verdict, ReserveVerdict::Held { .. }) && !reply.is_repeated);
    assert_eq!((reply.debt, reply.remaining), (40, 0), "the numbers of now");
    assert_eq!(node.end(b"k", ID, used(5)).wait().unwrap().outcome, EndOutcome::Unknown);
    assert_eq!(node.charge(b"k", NonZeroU64::MIN).wait().unwrap().charged.debt, 41);
    let fresh = node.reserve(b"fresh", 0, ID, TTL).wait().unwrap();
    assert_eq!((fresh.remaining, store.keys()), (100, 1));
}

#[test]
fn limits_that_hold_nothing_say_so() {
    let clock = ManualClock::stepped();
    let store = memory(&clock);
    let refuses = |builder: Builder<Memory, ManualClock>, ttl| {
        let node = builder.build().unwrap();
        for permits in [0, 1] {
            let refused = node.reserve(b"k", permits, ID, ttl).wait().unwrap_err();
            assert!(matches!(refused, StoreError::InvalidRequest(_)), "{refused:?}");
        }
        node.end(b"k", ID, ReservationEnd::Cancel).wait()
    };
    let is_refused = |reply| matches!(reply, Err(StoreError::InvalidRequest(_)));
    let in_flight = Rule::InFlight(Concurrency::new(3), NonZeroU64::MIN);
    assert!(is_refused(refuses(node(&store, &clock).limit("c", in_flight), TTL)));
    let shares = Mode::Partitioned(PartitionConfig::default());
    assert!(is_refused(refuses(node(&store, &clock).mode(shares), TTL)));
    let unknown = refuses(node(&store, &clock), Duration::ZERO).unwrap();
    assert_eq!(unknown.outcome, EndOutcome::Unknown);
    let exceeds = node(&store, &clock).build().unwrap().reserve(b"k", 101, ID, TTL).wait();
    assert!(matches!(exceeds, Err(StoreError::Exceeds(_))), "{exceeds:?}");
}
