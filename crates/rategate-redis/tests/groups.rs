//! Groups in a store share a total as the core's do, heartbeat by heartbeat.

use crate::common::store::Store;
use crate::common::value;
use fastrand::Rng;
use rategate_core::node::{Group, Heartbeat};
use rategate_redis::group;
use rategate_redis::key::KeySpace;

const NOW_US: u64 = 1_790_000_000_000_000;

#[test]
fn a_group_in_a_store_is_the_cores() {
    let keys = KeySpace::new("t").unwrap();
    for mut store in Store::each() {
        let (mut grown, mut shrunk, mut stale, mut expired) = (0, 0, 0, 0);
        for seed in 1..=25_u64 {
            let mut random = Rng::with_seed(seed);
            let name = format!("group {seed}");
            let (mut group, mut now_us) = (Group::new(), NOW_US);
            let mut shares = [0_u64; 12];
            // All members of a group use one memory.
            let memory_ns = [0, 1_000_000, 30_000_000][random.usize(..3)];
            let members = random.usize(1..=11);
            for step in 0..120 {
                now_us += match random.u64(..12) {
                    0 => 60_000 + random.u64(..60_000),
                    1..=3 => 0,
                    _ => random.u64(..9_000),
                };
                let at_us = if random.u64(..15) == 0 { now_us - 5_000 } else { now_us };
                let index = random.usize(..members);
                let heartbeat = Heartbeat {
                    member: [(index * 23) as u8; 16],
                    total: [10, 10, 10, 7, 1, 0, 1 << 50][random.usize(..7)],
                    at_least: if random.u64(..3) == 0 { random.u64(..12) } else { 0 },
                    length_ns: [0, 1, 9_000, 9_001, 20_000, 20_000][random.usize(..6)] * 1_000,
                    memory_ns,
                };
                if group.may_be_evicted(at_us * 1_000, memory_ns) && step > 0 {
                    expired += 1;
                }
                let expected = group.heartbeat(at_us * 1_000, &heartbeat);
                let value = store.send(group::heartbeat(&keys, name.as_bytes(), &heartbeat), at_us);
                let decoded = group::read(&value).unwrap();
                let seen = decoded.content;
                let about = format!("seed {seed}, step {step}: {heartbeat:?}");
                assert_eq!(seen, expected, "{about}");
                assert_eq!(decoded.now_us, at_us);
                let gained = seen.permits.saturating_sub(shares[index]);
                grown += u64::from(gained > 0);
                stale += u64::from(seen.fresh < gained);
                shrunk += u64::from(seen.permits < shares[index]);
                shares[index] = seen.permits;
            }
        }
        assert!(grown > 100 && shrunk > 100 && stale > 50 && expired > 20);
    }
}

#[test]
fn a_group_ends_with_its_memory_and_is_bounded() {
    let keys = KeySpace::new("t").unwrap();
    for store in Store::each() {
        let mut client = store.server.client();
        let heartbeat = |number: u64, length_ns| {
            let mut member = [0; 16];
            member[..8].copy_from_slice(&number.to_be_bytes());
            let heartbeat =
                Heartbeat { member, total: 10, at_least: 0, length_ns, memory_ns: 2_000_000_000 };
            group::heartbeat(&keys, b"g", &heartbeat).fcall(rategate_redis::library::Library::LIVE)
        };
        let share = group::read(&value(&client.ok(&heartbeat(0, 1_000_000_000)))).unwrap().content;
        assert_eq!((share.permits, share.fresh, share.members), (10, 10, 1));
        let left_ms = client.ok(&["PTTL", "t:1r{g}#members"]).int();
        assert!((1..=3_002).contains(&left_ms), "{left_ms}");
        for number in 1..64 {
            client.push(&heartbeat(number, 60_000_000_000));
        }
        client.flush();
        for _ in 1..64 {
            assert!(group::read(&value(&client.read())).is_ok());
        }
        let share = group::read(&value(&client.ok(&heartbeat(0, 0)))).unwrap().content;
        assert_eq!((share.permits, share.members), (0, 63));
    }
}
