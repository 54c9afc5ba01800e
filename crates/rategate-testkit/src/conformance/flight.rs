//! Permits in flight, held under a name until they are released or their lease ends, compared with
//! a plain list.

use fastrand::Rng;
use rategate::charge::{Charged, Debt, Settled};
use rategate::store::{
    EndOutcome, LeaseId, ReservationEnd, ReservationId, ReserveVerdict, Rule, Verdict,
};

use super::Arena;
use super::cases::{self, NOW_US, bucket};
use super::client::{StoreClient, denied, granted, wait_us};

const LENGTH_US: u64 = 50_000;

fn in_flight(permits: u64) -> Rule {
    cases::in_flight(permits, LENGTH_US * 1_000)
}

/// Runs all checks of this module.
pub fn suite(arena: &impl Arena) {
    for (max_permits, seed) in [(1, 1), (3, 2), (10, 3), (1_000, 4)] {
        random_holders(arena, max_permits, seed);
    }
    a_repetition_takes_nothing(arena);
    a_hold_that_another_limit_denies_holds_nothing(arena);
    a_reservation_and_a_lease_of_one_name_are_two(arena);
}

/// Checks that neither ends what the other holds.
pub fn a_reservation_and_a_lease_of_one_name_are_two<A: Arena>(arena: &A) {
    arena.set_now_us(NOW_US);
    let client = StoreClient::new(&arena.store(), &[("f", in_flight(3))], "two");
    let (lease, id) = (name(7), ReservationId(name(7).0));
    granted(client.hold(1, lease).unwrap());
    let held = client.reserve(1, id, LENGTH_US * 4).unwrap();
    assert!(matches!(held.verdict, ReserveVerdict::Held { .. }), "{held:?}");
    assert_eq!(client.remaining(), 1);
    assert_eq!(client.release(1, lease).unwrap(), 1);
    assert_eq!(client.remaining(), 2, "the reservation lasts");
    granted(client.hold(1, lease).unwrap());
    let end = ReservationEnd::Commit { used: Some(9) };
    let ended = client.end(id, end, Debt::FORGOTTEN).unwrap();
    assert_eq!(ended.outcome, EndOutcome::Committed(Settled::Even), "nothing is charged");
    assert_eq!(client.remaining(), 2, "the lease lasts");
    // A reservation has a time of its own.
    assert!(!client.reserve(1, ReservationId([5; 16]), LENGTH_US * 4).unwrap().is_repeated);
    arena.set_now_us(NOW_US + LENGTH_US * 4 - 1);
    assert_eq!(client.remaining(), 2);
    arena.set_now_us(NOW_US + LENGTH_US * 4);
    assert_eq!(client.remaining(), 3);
    let ended = client.end(ReservationId([5; 16]), end, Debt::FORGOTTEN).unwrap();
    assert_eq!(ended.outcome, EndOutcome::Late(Charged::default()));
}

fn name(number: u64) -> LeaseId {
    let mut id = [0x5a; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    LeaseId(id)
}

/// The plain list of holders, each with its permits and the end of its lease.
#[derive(Debug, Default)]
struct Holders(Vec<(u64, u64, u64)>);

impl Holders {
    fn held(&self) -> u64 {
        self.0.iter().map(|(_, permits, _)| permits).sum()
    }

    /// Returns the end of the lease at which the permits fit.
    fn free_at_us(&self, permits: u64, max_permits: u64) -> u64 {
        let mut ends: Vec<(u64, u64)> = self.0.iter().map(|&(_, held, end)| (end, held)).collect();
        ends.sort_unstable();
        let mut held = self.held();
        for (end_us, freed) in ends {
            held -= freed;
            if held + permits <= max_permits {
                return end_us;
            }
        }
        panic!("{permits} never fit under {max_permits}")
    }
}

/// Compares random holders with a plain list.
pub fn random_holders<A: Arena>(arena: &A, max_permits: u64, seed: u64) {
    let mut now_us = NOW_US;
    arena.set_now_us(now_us);
    let client = StoreClient::new(&arena.store(), &[("f", in_flight(max_permits))], "k");
    let (mut random, mut holders, mut next) = (Rng::with_seed(seed), Holders::default(), 0);
    let (mut denials, mut ended) = (0, 0);
    for step in 0..1_500 {
        let mut below = |bound: u64| random.u64(..bound);
        // Now and then time moves to the exact end of a lease.
        let to_end_us = holders.0.iter().map(|(_, _, end_us)| end_us - now_us).min().unwrap_or(0);
        let steps_us = [0, 0, 1, to_end_us, below(LENGTH_US / 3), below(LENGTH_US)];
        now_us += steps_us[below(6) as usize];
        arena.set_now_us(now_us);
        holders.0.retain(|&(_, _, end_us)| end_us > now_us);
        let about = format!("{max_permits} in flight, step {step} at {now_us} us: {holders:?}");
        let known = holders.0.len() as u64;
        match below(6) {
            // One holder exists, the other never did.
            0 if known > 0 => {
                let (number, permits, _) = holders.0.swap_remove(below(known) as usize);
                assert_eq!(client.release(permits, name(number)).unwrap(), 1, "{about}");
                assert_eq!(client.release(permits, name(number)).unwrap(), 0, "{about}: twice");
                ended += 1;
            }
            1 if known > 0 => {
                let index = below(known) as usize;
                let (number, permits, _) = holders.0[index];
                assert_eq!(client.renew(permits, name(number)).unwrap(), 1, "{about}");
                holders.0[index].2 = now_us + LENGTH_US;
            }
            2 => {
                let unknown = name(u64::MAX - below(9));
                assert_eq!(client.renew(1, unknown).unwrap(), 0, "{about}");
                assert_eq!(client.release(1, unknown).unwrap(), 0, "{about}");
            }
            3 if known > 0 => {
                let index = below(known) as usize;
                let (number, permits, _) = holders.0[index];
                let again = granted(client.hold(permits, name(number)).unwrap());
                let seen = (again.permits, again.remaining);
                assert_eq!(seen, (permits, max_permits - holders.held()), "{about}: again");
                holders.0[index].2 = now_us + LENGTH_US;
            }
            _ => {
                next += 1;
                let few = 1 + below(max_permits);
                let permits = 1 + below(few);
                match client.hold(permits, name(next)).unwrap() {
                    Verdict::Granted(grant) => {
                        holders.0.push((next, permits, now_us + LENGTH_US));
                        assert_eq!(grant.remaining + holders.held(), max_permits, "{about}");
                    }
                    Verdict::Denied(denial) => {
                        assert!(holders.held() + permits > max_permits, "{about}: {permits} fit");
                        let free_in_us = holders.free_at_us(permits, max_permits) - now_us;
                        let seen = (wait_us(denial), denial.remaining);
                        let expected = (Some(free_in_us), max_permits - holders.held());
                        assert_eq!(seen, expected, "{about}: {permits}");
                        denials += 1;
                    }
                }
            }
        }
    }
    assert!(denials > 20 && ended > 20, "{denials} {ended}");
}

/// Checks that a repeated request under one name takes nothing, and extends the lease to its full
/// length.
pub fn a_repetition_takes_nothing<A: Arena>(arena: &A) {
    arena.set_now_us(NOW_US);
    let store = arena.store();
    let bucket = bucket("1/s", 9);
    let both = StoreClient::new(&store, &[("b", bucket), ("f", in_flight(2))], "k");
    let single = StoreClient::new(&store, &[("b", bucket)], "k");
    assert!(!granted(both.hold(2, name(1)).unwrap()).is_repeated);
    for _ in 0..5 {
        let again = granted(both.hold(2, name(1)).unwrap());
        assert_eq!((again.permits, again.is_repeated), (2, true));
    }
    assert_eq!(single.remaining(), 7);
    arena.set_now_us(NOW_US + LENGTH_US - 1);
    assert_eq!(granted(both.hold(2, name(1)).unwrap()).remaining, 0);
    // After its lease has ended, it is another grant.
    arena.set_now_us(NOW_US + 2 * LENGTH_US - 2);
    assert_eq!(wait_us(denied(both.hold(1, name(2)).unwrap())), Some(1));
    arena.set_now_us(NOW_US + 2 * LENGTH_US - 1);
    assert_eq!(both.renew(2, name(1)).unwrap(), 0, "it is over");
    granted(both.hold(2, name(1)).unwrap());
    assert_eq!(single.remaining(), 5);
    assert_eq!(both.reset().unwrap(), 2);
    assert_eq!(both.release(2, name(1)).unwrap(), 0, "a reset has ended it");
}

/// Checks that a request takes nothing in flight if another limit of the plan denies it.
pub fn a_hold_that_another_limit_denies_holds_nothing<A: Arena>(arena: &A) {
    arena.set_now_us(NOW_US);
    let store = arena.store();
    let bucket = bucket("10/s", 2);
    let both = StoreClient::new(&store, &[("b", bucket), ("f", in_flight(5))], "k");
    let flight = StoreClient::new(&store, &[("f", in_flight(5))], "k");
    granted(both.hold(2, name(1)).unwrap());
    assert_eq!(wait_us(denied(both.hold(1, name(2)).unwrap())), Some(100_000));
    assert_eq!(granted(flight.hold(3, name(3)).unwrap()).remaining, 0);
    assert_eq!(both.release(1, name(2)).unwrap(), 0, "it never held");
    // The wait is the maximum over the limits: those in flight have only 50 ms left.
    assert_eq!(wait_us(denied(both.hold(2, name(4)).unwrap())), Some(200_000));
    assert_eq!(wait_us(denied(flight.hold(1, name(4)).unwrap())), Some(LENGTH_US));
}
