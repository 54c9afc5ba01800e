//! Loops and iterators behind a gate, compared with the ideal tables.

use std::cell::Cell;
use std::time::Duration;

use rategate::Clock as _;
use rategate::error::LimitError;
use rategate::{AcquireError, Gcra, Limiter, ManualClock, Rate, RateLimitedExt, SlidingLog};
use rategate_testkit::ns;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
const SECOND: Duration = Duration::from_secs(1);

/// S4.9, S4.10, X4.1: ten actions of 250 ms at 2/s start at the ideal instants, and without a
/// limit all take 2500 ms.
#[test]
fn a_loop_starts_at_the_ideal_instants() {
    for (permits, ideal, end_ms) in [
        (2, [0, 250, 1_000, 1_250, 2_000, 2_250, 3_000, 3_250, 4_000, 4_250], 4_500),
        (100, [0, 250, 500, 750, 1_000, 1_250, 1_500, 1_750, 2_000, 2_250], 2_500),
    ] {
        let clock = ManualClock::new();
        let gate =
            Limiter::with_clock(SlidingLog::new(permits, Duration::from_nanos(S)), clock.clone());
        let starts = [(); 10].map(|()| {
            let start_ns = ns(gate.acquire(1).unwrap().released_at());
            clock.advance(Duration::from_millis(250));
            start_ns / MS
        });
        assert_eq!(starts, ideal);
        assert_eq!(clock.now_ns(), end_ms * MS);
    }
}

/// S4.11: twenty items at 5/s come out at 0, 1000, 2000 and 3000 ms, five each, by a gate of the
/// iterator's own or a shared one. S4.7: senseless limits are refused.
#[test]
fn items_come_out_five_a_second() {
    let ideal: Vec<u64> = (0..20).map(|item| item / 5 * 1_000).collect();
    let clock = ManualClock::new();
    let own = (0..20).limit_rate_on(5, SECOND, clock.clone()).unwrap();
    let at: Vec<u64> = own.map(|item| item.map(|_| clock.now_ns() / MS).unwrap()).collect();
    assert_eq!(at, ideal);

    let clock = ManualClock::new();
    let gate = Limiter::with_clock(SlidingLog::new(5, Duration::from_nanos(S)), clock.clone());
    let halves = (0..10).rate_limited(&gate).chain((10..20).rate_limited(&gate));
    let at: Vec<u64> = halves.map(|item| item.map(|_| clock.now_ns() / MS).unwrap()).collect();
    assert_eq!(at, ideal);

    assert_eq!((0..1).limit_rate(0, SECOND).err(), Some(LimitError::ZeroPermits));
    assert_eq!((0..1).limit_rate(1, Duration::ZERO).err(), Some(LimitError::ZeroPeriod));
    assert_eq!((0..1).limit_rate(1, Duration::MAX).err(), Some(LimitError::PeriodTooLong));
}

/// S4.11: no item is pulled or charged ahead, and the end of the sequence costs no permit.
#[test]
fn a_gate_is_lazy() {
    let clock = ManualClock::new();
    let gate = Limiter::with_clock(SlidingLog::new(5, Duration::from_nanos(S)), clock);
    let pulled = Cell::new(0);
    let mut items = (0..3).inspect(|_| pulled.set(pulled.get() + 1)).rate_limited(&gate);
    assert_eq!((pulled.get(), gate.remaining()), (0, Ok(5)));
    assert_eq!(items.size_hint(), (1, Some(3)));
    assert_eq!(items.next(), Some(Ok(0)));
    assert_eq!((pulled.get(), gate.remaining()), (1, Ok(4)));
    assert_eq!(items.by_ref().count(), 2);
    assert_eq!((items.next(), items.size_hint()), (None, (0, Some(0))));
    assert_eq!(gate.remaining(), Ok(2));
}

/// S4.12: a chunk of fifty is delayed for 9 s while it is pulled, and then runs at one instant. A
/// gate of the action keeps the limit.
#[test]
fn gate_the_action_not_the_enumeration() {
    let clock = ManualClock::new();
    let gate = Limiter::with_clock(SlidingLog::new(5, Duration::from_nanos(S)), clock.clone());
    let chunk: Vec<u32> = (0..50).rate_limited(&gate).map(Result::unwrap).collect();
    assert_eq!(clock.now_ns(), 9 * S, "exactly 9 s to the fiftieth");
    let actions: Vec<u64> = chunk.iter().map(|_| clock.now_ns()).collect();
    assert_eq!(actions, [9 * S; 50], "and fifty actions at once");

    let clock = ManualClock::new();
    let gate = Limiter::with_clock(SlidingLog::new(5, Duration::from_nanos(S)), clock);
    let actions: Vec<u64> =
        chunk.iter().map(|_| ns(gate.acquire(1).unwrap().released_at())).collect();
    let ideal: Vec<u64> = (0..50).map(|action| action / 5 * S).collect();
    assert_eq!(actions, ideal);
}

/// X4.6: a closed gate reports it once, and keeps the item that was under way.
#[test]
fn a_closed_gate_ends_the_sequence_and_loses_no_item() {
    let gate = Limiter::with_clock(SlidingLog::new(5, Duration::from_nanos(S)), ManualClock::new());
    let mut items = (0..4).rate_limited(&gate);
    assert_eq!(items.next(), Some(Ok(0)));
    gate.close();
    assert_eq!(items.next(), Some(Err(AcquireError::Closed)));
    assert_eq!(items.next(), None);
    let (held, rest) = items.into_parts();
    assert_eq!((held, rest.collect::<Vec<_>>()), (Some(1), vec![2, 3]));

    let never = Limiter::with_clock(Gcra::new(Rate::NEVER, 1).unwrap(), ManualClock::new());
    let mut items = (0..3).rate_limited(&never);
    assert_eq!(items.next(), Some(Err(AcquireError::TimeCannotHelp)));
    let (held, rest) = items.into_parts();
    assert_eq!((held, rest.collect::<Vec<_>>()), (Some(0), vec![1, 2]), "any error keeps the item");
}
