//! A total partitioned among members that join, leave and fall silent: their shares never exceed
//! it.

use fastrand::Rng;
use rategate::store::{Heartbeat, HeartbeatReply, StoreRequest};

use super::Arena;
use super::client::StoreClient;
use super::laws;
use super::traffic::NOW_US;

const LENGTH_US: u64 = 300_000;
const MEMORY_US: u64 = 1_000_000;

/// Runs all checks of this module.
pub fn suite(arena: &impl Arena) {
    for seed in 0..6 {
        shares_are_never_more_than_the_total(arena, seed);
    }
    unassigned_permits_are_fresh(arena);
    groups_are_apart(arena);
}

fn heartbeat<A: Arena>(
    client: &StoreClient<A::Store>,
    member: u8,
    total: u64,
    length_us: u64,
) -> HeartbeatReply {
    let heartbeat = Heartbeat {
        member: [member; 16],
        total,
        at_least: 0,
        length_ns: length_us * 1_000,
        memory_ns: MEMORY_US * 1_000,
    };
    heartbeat_in::<A>(client, "group", heartbeat)
}

fn heartbeat_in<A: Arena>(
    client: &StoreClient<A::Store>,
    group: &str,
    heartbeat: Heartbeat,
) -> HeartbeatReply {
    let group = group.as_bytes().into();
    client.submit(StoreRequest::Heartbeat { group, heartbeat }).unwrap().share().unwrap()
}

fn any_client<A: Arena>(arena: &A) -> StoreClient<A::Store> {
    arena.set_now_us(NOW_US);
    StoreClient::new(&arena.store(), &[("any", laws::log(1))], "any")
}

/// Checks that shares never exceed the total while members join, leave and lose replies.
///
/// The sum counts what members may believe to have. Once membership is stable, the shares are the
/// total, evenly.
pub fn shares_are_never_more_than_the_total<A: Arena>(arena: &A, seed: u64) {
    let client = any_client(arena);
    let mut random = Rng::with_seed(seed);
    let (mut now_us, total) = (NOW_US, [100, 7, 1, 1_000_003, 12, 3][seed as usize % 6]);
    // The share that each member has received, and the instant until which it may use it.
    let mut held = [(0_u64, 0_u64); 6];
    let sum = |held: &[(u64, u64); 6], now_us: u64| {
        held.iter().filter(|held| held.1 > now_us).map(|held| held.0).sum::<u64>()
    };
    for step in 0..600 {
        let mut below = |bound: u64| random.u64(..bound);
        now_us += below(LENGTH_US / 4);
        arena.set_now_us(now_us);
        let member = below(6) as usize;
        let leaves = below(12) == 0;
        let length_us = if leaves { 0 } else { LENGTH_US };
        let name = u8::try_from(member).unwrap();
        if leaves {
            held[member] = (0, 0);
        }
        let share = heartbeat::<A>(&client, name, total, length_us);
        assert!(share.permits <= total && share.fresh <= share.permits, "{share:?}");
        assert!(share.changes_in_ns.is_none_or(|ns| ns.get() <= LENGTH_US * 1_000));
        if leaves {
            assert_eq!(share.permits, 0, "a member that has left has no share");
        } else if below(5) > 0 {
            held[member] = (share.permits, now_us + LENGTH_US);
        }
        let sum = sum(&held, now_us);
        assert!(sum <= total, "seed {seed}, step {step}: {sum} of {total}: {held:?}");
    }
    // Five of them go on, one after another, for a few lengths.
    for _ in 0..5 * 4 {
        for (member, held) in held.iter_mut().enumerate().take(5) {
            now_us += LENGTH_US / 15;
            arena.set_now_us(now_us);
            let share = heartbeat::<A>(&client, u8::try_from(member).unwrap(), total, LENGTH_US);
            *held = (share.permits, now_us + LENGTH_US);
        }
    }
    let even: Vec<u64> = (0..5).map(|index| total / 5 + u64::from(index < total % 5)).collect();
    let mut shares: Vec<u64> = held[..5].iter().map(|held| held.0).collect();
    shares.sort_unstable_by_key(|&share| std::cmp::Reverse(share));
    assert_eq!(shares, even, "seed {seed}: membership is stable");
}

/// Checks that the first member has a fresh share, while a share that a member has just left is
/// not fresh until its memory has passed.
pub fn unassigned_permits_are_fresh<A: Arena>(arena: &A) {
    let client = any_client(arena);
    let at = |us: u64| arena.set_now_us(NOW_US + us);
    let first = heartbeat::<A>(&client, 1, 10, LENGTH_US);
    assert_eq!((first.permits, first.fresh, first.members), (10, 10, 1));
    at(1_000);
    let second = heartbeat::<A>(&client, 2, 10, LENGTH_US);
    assert_eq!((second.permits, second.members), (0, 2), "the first has it all");
    at(2_000);
    assert_eq!(heartbeat::<A>(&client, 1, 10, 0).permits, 0);
    at(3_000);
    let second = heartbeat::<A>(&client, 2, 10, LENGTH_US);
    assert_eq!((second.permits, second.fresh, second.members), (10, 0, 1));
    at(4_000);
    heartbeat::<A>(&client, 2, 10, 0);
    at(4_000 + MEMORY_US - 1);
    let third = heartbeat::<A>(&client, 3, 10, LENGTH_US);
    assert_eq!((third.permits, third.fresh), (10, 0), "a microsecond too soon");
    heartbeat::<A>(&client, 3, 10, 0);
    at(4_000 + 2 * MEMORY_US);
    assert_eq!(heartbeat::<A>(&client, 4, 10, LENGTH_US).fresh, 10);
}

/// Checks that groups have totals of their own.
pub fn groups_are_apart<A: Arena>(arena: &A) {
    let client = any_client(arena);
    for (name, group) in (7..).zip(["one", "other", ""]) {
        let heartbeat = Heartbeat {
            member: [name; 16],
            total: 5,
            at_least: 0,
            length_ns: LENGTH_US * 1_000,
            memory_ns: MEMORY_US * 1_000,
        };
        assert_eq!(heartbeat_in::<A>(&client, group, heartbeat).permits, 5, "{group}");
    }
}
