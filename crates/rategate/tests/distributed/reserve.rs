//! Reservations of a limit that processes share, over a store that may be away.

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rategate::charge::{Charged, Settled};
use rategate::distributed::{Builder, Distributed, Leases, Mode, OnUnavailable};
use rategate::store::{
    EndOutcome, EndReply, MemoryStore, Pending, ReservationEnd, ReservationId, ReserveReply,
    ReserveVerdict, Rule, Store, StoreError, Unavailable,
};
use rategate::{Concurrency, Gcra, ManualClock, SlidingLog};
use rategate_testkit::faulty::{Fate, FaultyStore};
use rategate_testkit::oracle::Grants;

use crate::distributed::fleet::Fleet;
use crate::distributed::wire::{LinkState, Wire};
use crate::distributed::{MS, S};

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
    let unknown = refuses(node(&store, &clock), Duration::ZERO).unwrap();
    assert_eq!(unknown.outcome, EndOutcome::Unknown);
    let exceeds = node(&store, &clock).build().unwrap().reserve(b"k", 101, ID, TTL).wait();
    assert!(matches!(exceeds, Err(StoreError::Exceeds(_))), "{exceeds:?}");
}

/// Permits in flight are held for the reservation's own time, and come back whole.
#[test]
fn permits_in_flight_are_reserved() {
    let clock = ManualClock::stepped();
    let store = memory(&clock);
    let in_flight = Rule::InFlight(Concurrency::new(3), NonZeroU64::MIN);
    let builder = Distributed::builder(Arc::clone(&store)).with_clock(clock.clone());
    let builder = builder.limit("c", in_flight).on_unavailable(OnUnavailable::Deny);
    let node = builder.build().unwrap();
    let held = node.reserve(b"k", 2, ID, TTL).wait().unwrap();
    assert_eq!((held.remaining, held.is_repeated), (1, false));
    let denied = node.reserve(b"k", 2, id(2), TTL).wait().unwrap();
    let retry_after_ns = NonZeroU64::new(TTL.as_nanos().try_into().unwrap());
    assert_eq!(denied.verdict, ReserveVerdict::Denied { retry_after_ns });
    let end = ReservationEnd::Commit { used: Some(1) };
    let ended = node.end(b"k", ID, end).wait().unwrap();
    assert_eq!(ended.outcome, EndOutcome::Committed(Settled::Back { permits: 1 }));
    assert_eq!(ended.remaining, 3);
    let nothing = node.reserve(b"k", 0, id(3), TTL).wait();
    assert_eq!(nothing.unwrap_err(), StoreError::CountsInFlight);
}

/// A log of 1000 permits in an hour, of which nodes borrow up to 200 for 10 s.
fn leased(builder: Builder<Wire>) -> Builder<Wire> {
    let ttl = Duration::from_secs(10);
    let leases = Leases { ttl, max_permits: 200, guard: false, ..Leases::default() };
    let log = SlidingLog::new(1_000, Duration::from_secs(3_600));
    builder.limit("tokens", log).mode(Mode::Leased(leases))
}

fn id(number: u64) -> ReservationId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    ReservationId(bytes)
}

fn poll<A>(pending: &mut Pending<A>) -> Poll<Result<A, StoreError>> {
    Pin::new(pending).poll(&mut Context::from_waker(Waker::noop()))
}

impl Fleet {
    fn reserved(&mut self, node: usize, number: u64, permits: u64, ttl: Duration) -> ReserveReply {
        let pending = self.nodes[node].node.reserve(b"k", permits, id(number), ttl);
        self.replied(pending)
    }

    fn ended(&mut self, node: usize, number: u64, end: ReservationEnd) -> EndReply {
        let pending = self.nodes[node].node.end(b"k", id(number), end);
        self.replied(pending)
    }

    fn replied<A>(&mut self, mut pending: Pending<A>) -> A {
        loop {
            if let Poll::Ready(reply) = poll(&mut pending) {
                return reply.unwrap();
            }
            self.run_to(self.now_ns() + MS);
        }
    }

    /// Returns the permits that the store would still grant.
    fn left_at_store(&mut self) -> u64 {
        let pending = self.nodes[0].node.reserve(b"k", 0, id(0), TTL);
        self.replied(pending).remaining
    }

    /// Lets a node borrow permits for reservations of 40 each, of which three are used. Returns the
    /// units that it has then.
    fn warm_up(&mut self, node: usize, first: u64) -> u64 {
        for number in first..first + 3 {
            self.reserved(node, number, 40, TTL);
            self.ended(node, number, used(40));
        }
        self.run_to(self.now_ns() + 20 * MS);
        self.units(node, first + 3)
    }

    /// Returns the units that a node has, which a reservation that ends at once tells.
    fn units(&mut self, node: usize, number: u64) -> u64 {
        let units = self.at_once(node, number, 1).remaining + 1;
        assert_eq!(self.ended(node, number, ReservationEnd::Cancel).remaining, units);
        units
    }

    /// Reserves permits that the node has.
    fn at_once(&mut self, node: usize, number: u64, permits: u64) -> ReserveReply {
        let mut pending = self.nodes[node].node.reserve(b"k", permits, id(number), TTL);
        let Poll::Ready(Ok(reply)) = poll(&mut pending) else { panic!("a round trip") };
        reply
    }
}

/// An estimate that fits the borrowed permits is held and ended without a request, and as exactly
/// as elsewhere.
#[test]
fn a_node_holds_in_borrowed_permits() {
    let mut fleet = Fleet::new(1);
    let (node, other) = (fleet.join(leased), fleet.join(leased));
    let units = fleet.warm_up(node, 100);
    assert!(units >= 80, "{units} units");
    let now_ns = fleet.now_ns();
    let short = Duration::from_secs(1);
    let held = fleet.reserved(node, 1, 60, short);
    let ends_in_ns = NonZeroU64::new(S).unwrap();
    assert_eq!((held.verdict, held.is_repeated), (ReserveVerdict::Held { ends_in_ns }, false));
    assert_eq!(held.remaining, units - 60);
    assert!(fleet.reserved(node, 1, 60, short).is_repeated);
    let others = fleet.reserved(node, 1, 61, short).verdict;
    assert_eq!(others, ReserveVerdict::OtherPermits { permits: 60 });
    let ended = fleet.ended(node, 1, used(10));
    assert_eq!(ended.outcome, EndOutcome::Committed(Settled::Back { permits: 50 }));
    assert_eq!((ended.remaining, ended.is_repeated), (units - 10, false));
    let again = fleet.ended(node, 1, used(60));
    assert_eq!((again.outcome, again.is_repeated), (ended.outcome, true));
    assert_eq!(fleet.reserved(node, 1, 60, short).verdict, ReserveVerdict::Ended);
    // A shortfall comes out of the borrowed permits too.
    fleet.reserved(node, 2, 10, short);
    let ended = fleet.ended(node, 2, used(15));
    let owed = EndOutcome::Committed(Settled::Owed { permits: 5, forgiven: 0 });
    assert_eq!((ended.outcome, ended.remaining), (owed, units - 25));
    assert_eq!(fleet.now_ns(), now_ns, "no time has passed");
    // Of another node it is unknown.
    assert_eq!(fleet.ended(other, 2, used(15)).outcome, EndOutcome::Unknown);
}

/// A local reservation ends at its instant, and a late commit is charged whole.
#[test]
fn what_a_node_holds_ends_by_itself() {
    let mut fleet = Fleet::new(2);
    let node = fleet.join(leased);
    fleet.warm_up(node, 100);
    fleet.reserved(node, 1, 60, Duration::from_millis(200));
    fleet.run_to(fleet.now_ns() + 199 * MS);
    let units = fleet.units(node, 2);
    fleet.run_to(fleet.now_ns() + MS);
    assert_eq!(fleet.units(node, 3), units + 60);
    let late = fleet.ended(node, 1, used(70));
    let charged = Charged { booked: 70, forgiven: 0, debt: 0 };
    assert_eq!(late.outcome, EndOutcome::Late(charged));
    assert!(fleet.ended(node, 1, used(70)).is_repeated);
    // What is not used returns to the store, and the use is counted once.
    fleet.run_to(fleet.now_ns() + 40 * S);
    assert_eq!(fleet.left_at_store(), 1_000 - 120 - 70);
}

/// A hold that outlives its lease returns to the store when it ends.
#[test]
fn an_estimate_that_outlives_its_lease_returns_to_the_store() {
    let mut fleet = Fleet::new(3);
    let node = fleet.join(leased);
    fleet.warm_up(node, 100);
    fleet.at_once(node, 1, 60);
    fleet.run_to(fleet.now_ns() + 20 * S);
    assert_eq!(fleet.left_at_store(), 1_000 - 180, "the lease is over, the hold is not");
    let ended = fleet.ended(node, 1, used(20));
    assert_eq!(ended.outcome, EndOutcome::Committed(Settled::Back { permits: 40 }));
    fleet.run_to(fleet.now_ns() + S);
    assert_eq!(fleet.left_at_store(), 1_000 - 140);
    // What a node held when it died stays used, as its other units do.
    let units = fleet.warm_up(node, 200);
    fleet.at_once(node, 2, 60);
    let survivor = fleet.join(leased) - 1;
    fleet.kill(node);
    fleet.run_to(fleet.now_ns() + 60 * S);
    assert_eq!(fleet.left_at_store(), 1_000 - 140 - 120 - units);
    assert_eq!(fleet.ended(survivor, 2, used(60)).outcome, EndOutcome::Unknown);
}

/// An estimate that the store was asked to hold is not held in borrowed permits too, if its reply
/// was lost.
#[test]
fn an_estimate_that_the_store_may_hold_is_held_once() {
    let mut fleet = Fleet::new(5);
    let node = fleet.join(leased);
    fleet.nodes[node].wire.set(LinkState::RepliesLost);
    let mut unheard = fleet.nodes[node].node.reserve(b"k", 30, id(1), TTL);
    fleet.run_to(fleet.now_ns() + 25 * MS);
    assert!(matches!(poll(&mut unheard), Poll::Ready(Err(StoreError::Unavailable(_)))));
    fleet.nodes[node].wire.set(LinkState::Open { max_delay_ns: MS });
    assert!(fleet.warm_up(node, 100) >= 30);
    let held = fleet.reserved(node, 1, 30, TTL);
    assert!(held.is_repeated && matches!(held.verdict, ReserveVerdict::Held { .. }), "{held:?}");
    let ended = fleet.ended(node, 1, used(10));
    assert_eq!(ended.outcome, EndOutcome::Committed(Settled::Back { permits: 20 }));
    fleet.run_to(fleet.now_ns() + 40 * S);
    assert_eq!(fleet.left_at_store(), 1_000 - 120 - 10);
    // What it has denied may be held here.
    let denied = fleet.reserved(node, 2, 900, TTL);
    assert!(matches!(denied.verdict, ReserveVerdict::Denied { .. }), "{denied:?}");
    fleet.warm_up(node, 200);
    assert!(!fleet.at_once(node, 2, 30).is_repeated);
}

/// Charges wait while the store is away, merged by key, and each is booked once when it is back.
#[test]
fn charges_wait_for_the_store() {
    for link in [LinkState::Refused, LinkState::RequestsLost, LinkState::RepliesLost] {
        let mut fleet = Fleet::new(4);
        let node = fleet.join(leased);
        let units = fleet.warm_up(node, 100);
        for number in 1..=20 {
            fleet.at_once(node, number, 1);
        }
        fleet.nodes[node].wire.set(link);
        // The first exceeds what is borrowed by 97, and its fate is not known.
        let ended = fleet.ended(node, 1, used(units - 19 + 97));
        assert!(matches!(ended.outcome, EndOutcome::Committed(Settled::Owed { .. })));
        fleet.run_to(fleet.now_ns() + 100 * MS);
        assert_eq!(fleet.nodes[node].node.counts().waiting_charges, 97);
        for number in 2..=12 {
            fleet.ended(node, number, used(8));
        }
        fleet.run_to(fleet.now_ns() + 2 * S);
        let counts = fleet.nodes[node].node.counts();
        assert_eq!((counts.waiting_charges, counts.dropped_charges), (97 + 11 * 7, 0));
        fleet.nodes[node].wire.set(LinkState::Open { max_delay_ns: MS });
        fleet.run_to(fleet.now_ns() + 40 * S);
        let counts = fleet.nodes[node].node.counts();
        assert_eq!((counts.waiting_charges, counts.dropped_charges), (0, 0));
        // All units were used but those of the eight reservations that have ended by themselves.
        let used = 120 + (units - 8) + 97 + 11 * 7;
        // A debit whose reply was lost ages out with its window, later.
        let lost = if link == LinkState::RepliesLost { 200 } else { 0 };
        assert_eq!(fleet.left_at_store(), 1_000 - used - lost, "{link:?}");
    }
}

/// A charge that the store may have booked is not sent again once the store may have forgotten its
/// id: it is dropped, and counted. What was never sent waits.
#[test]
fn a_charge_without_a_reply_is_dropped_before_it_could_count_twice() {
    let mut fleet = Fleet::new(4);
    let node = fleet.join(leased);
    let units = fleet.warm_up(node, 100);
    fleet.at_once(node, 1, 1);
    fleet.at_once(node, 2, 1);
    fleet.nodes[node].wire.set(LinkState::RepliesLost);
    fleet.ended(node, 1, used(units - 1 + 97));
    fleet.run_to(fleet.now_ns() + 10 * MS);
    fleet.ended(node, 2, used(1 + 30));
    fleet.run_to(fleet.now_ns() + 500 * S);
    let counts = fleet.nodes[node].node.counts();
    assert_eq!((counts.waiting_charges, counts.dropped_charges), (127, 0));
    fleet.run_to(fleet.now_ns() + 60 * S);
    let counts = fleet.nodes[node].node.counts();
    assert_eq!((counts.waiting_charges, counts.dropped_charges), (30, 97));
    fleet.nodes[node].wire.set(LinkState::Open { max_delay_ns: MS });
    fleet.run_to(fleet.now_ns() + 60 * S);
    let counts = fleet.nodes[node].node.counts();
    assert_eq!((counts.waiting_charges, counts.dropped_charges), (0, 97));
    // Each was booked once. A debit whose reply was lost ages out with its window, later.
    assert_eq!(fleet.left_at_store(), 1_000 - 120 - units - 127 - 200);
}

/// A quarantined store holds nothing on which a node may act.
#[test]
fn a_store_that_may_have_lost_grants_holds_nothing() {
    let clock = ManualClock::stepped();
    let store = memory(&clock);
    let node = node(&store, &clock).with_quarantine().build().unwrap();
    let refused = node.reserve(b"k", 10, ID, TTL).wait().unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable(Unavailable::Unable(_))), "{refused:?}");
    // The limit remembers for 100 s.
    clock.advance(Duration::from_secs(100));
    let reply = node.reserve(b"k", 10, ReservationId([8; 16]), TTL).wait().unwrap();
    assert!(matches!(reply.verdict, ReserveVerdict::Held { .. }), "{reply:?}");
}

/// A reservation of which the node waits to hear, or has heard.
struct Call {
    node: usize,
    id: u64,
    permits: u64,
    actual: u64,
    ends_ns: u64,
    held_ns: Option<u64>,
    reserving: Option<Pending<ReserveReply>>,
    ending: Option<Pending<EndReply>>,
}

/// Plays callers that reserve and commit over a bad network. Returns what they used within their
/// estimates, at the instants at which they began.
fn reservations(seed: u64, is_guarded: bool) -> Vec<(u64, u64)> {
    let mut fleet = Fleet::new(seed);
    let leases = Leases {
        ttl: Duration::from_millis(50),
        max_permits: 20,
        guard: is_guarded,
        ..Leases::default()
    };
    for _ in 0..4 {
        let log = SlidingLog::new(100, Duration::from_millis(400));
        fleet.join(|builder| builder.limit("limit", log).mode(Mode::Leased(leases)));
    }
    let (mut calls, mut effects) = (Vec::<Call>::new(), Vec::new());
    let (mut local, mut late) = (0, 0);
    for number in 0..3_000 {
        let node = fleet.random.usize(..4);
        if fleet.random.u64(..200) == 0 {
            let link_state = match fleet.random.u64(..8) {
                0 => LinkState::RequestsLost,
                1 => LinkState::RepliesLost,
                2 => LinkState::Refused,
                _ => LinkState::Open { max_delay_ns: 8 * MS },
            };
            fleet.nodes[node].wire.set(link_state);
        }
        let permits = fleet.random.u64(1..9);
        let ttl = Duration::from_millis(fleet.random.u64(10..200));
        let reserving = Some(fleet.nodes[node].node.reserve(b"k", permits, id(number), ttl));
        let actual = fleet.random.u64(..permits * 2);
        calls.push(Call {
            node,
            id: number,
            permits,
            actual,
            ends_ns: 0,
            held_ns: None,
            reserving,
            ending: None,
        });
        let now_ns = fleet.now_ns();
        calls.retain_mut(|call| {
            if let Some(reserving) = &mut call.reserving {
                match poll(reserving) {
                    Poll::Pending => return true,
                    Poll::Ready(Ok(ReserveReply {
                        verdict: ReserveVerdict::Held { .. }, ..
                    })) => {
                        local += u64::from(call.id == number);
                        call.reserving = None;
                        call.held_ns = Some(now_ns);
                        call.ends_ns = now_ns + fleet.random.u64(..100 * MS);
                    }
                    // It is not begun, or its caller gives up.
                    Poll::Ready(_) => return false,
                }
            }
            if call.ends_ns > now_ns {
                return true;
            }
            let node = &fleet.nodes[call.node].node;
            let end = ReservationEnd::Commit { used: Some(call.actual) };
            let ending = call.ending.get_or_insert_with(|| node.end(b"k", id(call.id), end));
            match poll(ending) {
                Poll::Pending => true,
                Poll::Ready(Err(_)) => {
                    call.ending = None;
                    call.ends_ns = now_ns + 10 * MS;
                    true
                }
                Poll::Ready(Ok(EndReply { outcome: EndOutcome::Committed(_), .. })) => {
                    effects.push((call.held_ns.unwrap(), call.actual.min(call.permits)));
                    false
                }
                Poll::Ready(Ok(EndReply { outcome, .. })) => {
                    assert!(matches!(outcome, EndOutcome::Late(_)), "{outcome:?}");
                    late += 1;
                    false
                }
            }
        });
        let pause_ns = fleet.random.u64(..4 * MS);
        fleet.run_to(fleet.now_ns() + pause_ns);
    }
    let enough = local > 100 && late > 20 && effects.len() > 200;
    assert!(enough, "{local} held at once, {late} late, {} effects", effects.len());
    effects
}

/// Use within the estimates exceeds the limit by what nodes have borrowed at most, and by
/// nothing with a guard. A reply is up to 20 ms old.
#[test]
fn estimates_keep_the_bound_of_leases() {
    for seed in 0..3 {
        let (max, _) = Grants(reservations(seed, false)).fullest_window(380 * MS);
        assert!((60..=100 + 4 * 20).contains(&max), "seed {seed}: {max}");
        let (max, _) = Grants(reservations(seed, true)).fullest_window(400 * MS);
        assert!((40..=100).contains(&max), "seed {seed}, with a guard: {max}");
    }
}
