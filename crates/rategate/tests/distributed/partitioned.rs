//! Partitions, whose shares never exceed the total while nodes come and go.

use std::time::Duration;

use rategate::distributed::{Builder, DecidedBy, Mode, OnUnavailable, PartitionConfig};
use rategate::policy::Anchor;
use rategate::store::Rule;
use rategate::{FixedWindow, Gcra, SlidingLog};

use crate::distributed::fleet::Fleet;
use crate::distributed::wire::{LinkState, Wire};
use crate::distributed::{MS, S};

const BEAT_NS: u64 = 200 * MS;

fn shared(rule: Rule) -> impl Fn(Builder<Wire>) -> Builder<Wire> {
    move |builder| {
        builder.limit("limit", rule).mode(Mode::Partitioned(PartitionConfig {
            heartbeat: Duration::from_nanos(BEAT_NS),
            ..PartitionConfig::default()
        }))
    }
}

fn rules() -> [Rule; 3] {
    [
        SlidingLog::new(103, Duration::from_nanos(100 * MS)).into(),
        Gcra::new("1000/s".parse().unwrap(), 103).unwrap().into(),
        FixedWindow::new(103, Duration::from_nanos(100 * MS), Anchor::Epoch).into(),
    ]
}

/// Plays nodes that call all the time; they join, leave, are killed, and lose their store for a
/// while.
fn comings_and_goings(seed: u64, rule: Rule) -> Fleet {
    let mut fleet = Fleet::new(seed);
    for _ in 0..4 {
        fleet.join(shared(rule));
    }
    fleet.run_to(fleet.now_ns() + 10 * MS);
    for _ in 0..8_000 {
        let count = u64::try_from(fleet.nodes.len()).unwrap();
        let node = usize::try_from(fleet.random.u64(..count)).unwrap();
        fleet.call(node, b"key", 1);
        match fleet.random.u64(..1_500) {
            0 if count > 2 => fleet.kill(node),
            1 if count > 2 => drop(fleet.nodes.remove(node)),
            2 | 3 if count < 7 => {
                fleet.join(shared(rule));
            }
            4 => fleet.nodes[node].wire.set(LinkState::RequestsLost),
            5 => fleet.nodes[node].wire.set(LinkState::RepliesLost),
            6..20 => fleet.nodes[node].wire.set(LinkState::Open { max_delay_ns: 10 * MS }),
            _ => {}
        }
        let pause_ns = fleet.random.u64(..MS);
        fleet.run_to(fleet.now_ns() + pause_ns);
    }
    assert!(fleet.grants.iter().any(|grant| grant.by == DecidedBy::Share));
    fleet
}

/// X3.7: shares never exceed the total while members join and leave.
#[test]
fn partitions_never_exceed_the_limit() {
    for seed in 0..8 {
        for rule in rules() {
            let fleet = comings_and_goings(seed, rule);
            let by_share = |by| by == DecidedBy::Share;
            match rule {
                Rule::Bucket(_) => {
                    for window_ns in [0, MS, 20 * MS, 100 * MS, 300 * MS, S] {
                        let max_granted = fleet.max_in(window_ns + 1, by_share);
                        let ceiling = 103 + window_ns / MS;
                        assert!(
                            max_granted <= ceiling,
                            "seed {seed}: {max_granted} in {window_ns} ns"
                        );
                    }
                }
                Rule::Window(_) => {
                    let mut used = std::collections::BTreeMap::<u64, u64>::new();
                    for grant in fleet.grants.iter().filter(|grant| by_share(grant.by)) {
                        *used.entry(grant.at_ns / (100 * MS)).or_default() += grant.permits;
                    }
                    let max_granted = used.values().max().copied().unwrap();
                    assert!(max_granted <= 103, "seed {seed}: {max_granted}");
                }
                _ => {
                    let max_granted = fleet.max_in(100 * MS, by_share);
                    assert!(max_granted <= 103, "seed {seed}: {max_granted}");
                }
            }
        }
    }
}

/// S3.15, X3.7: the shares are the total over the nodes, and no remainder is dropped.
#[test]
fn the_remainder_is_shared_out_too() {
    let mut fleet = Fleet::new(1);
    for _ in 0..4 {
        fleet.join(shared(rules()[0]));
    }
    fleet.run_to(fleet.now_ns() + 3 * BEAT_NS);
    let mut shares: Vec<u64> =
        fleet.nodes.iter().map(|member| member.node.share().unwrap()).collect();
    shares.sort_unstable();
    assert_eq!(shares, [25, 26, 26, 26]);
}

/// The first node has the whole total at once, since no other node had it before.
#[test]
fn a_single_node_has_the_whole_limit() {
    for rule in rules() {
        let mut fleet = Fleet::new(2);
        let node = fleet.join(shared(rule));
        for _ in 0..200 {
            fleet.call(node, b"key", 1);
        }
        fleet.run_to(fleet.now_ns() + 10 * MS);
        assert_eq!((fleet.grants.len(), fleet.denials.len()), (103, 97), "{rule:?}");
    }
}

/// After a member is killed, the others have and use the whole total within two heartbeats.
#[test]
fn survivors_have_everything_within_two_heartbeats() {
    let mut fleet = Fleet::new(3);
    for _ in 0..4 {
        fleet.join(shared(rules()[1]));
    }
    let all = |fleet: &Fleet| -> u64 {
        fleet.nodes.iter().map(|member| member.node.share().unwrap()).sum()
    };
    fleet.run_to(fleet.now_ns() + 5 * BEAT_NS);
    assert_eq!(all(&fleet), 103);
    fleet.kill(2);
    assert!(all(&fleet) < 80);
    let killed_ns = fleet.now_ns();
    fleet.run_to(killed_ns + 2 * BEAT_NS);
    assert_eq!(all(&fleet), 103, "two beats after");
    // A new member takes the share of the killed one.
    fleet.join(shared(rules()[1]));
    fleet.run_to(fleet.now_ns() + 3 * BEAT_NS);
    assert_eq!(all(&fleet), 103);
    assert!(fleet.nodes.iter().all(|member| member.node.share().unwrap() >= 25));
}

/// A member that leaves says so, and its share is free at once.
#[test]
fn a_leaving_node_returns_its_share() {
    let mut fleet = Fleet::new(5);
    for _ in 0..3 {
        fleet.join(shared(rules()[1]));
    }
    // Half a heartbeat, so that no message of this member is under way.
    fleet.run_to(fleet.now_ns() + 11 * BEAT_NS / 2);
    let left_node = fleet.nodes.remove(0);
    drop(left_node.node);
    fleet.run_to(fleet.now_ns() + MS);
    left_node.wire.deliver_due();
    fleet.run_to(fleet.now_ns() + BEAT_NS * 8 / 10);
    let shares: u64 = fleet.nodes.iter().map(|member| member.node.share().unwrap()).sum();
    assert_eq!(shares, 103);
}

/// A share that has expired is replaced by the configured fallback.
#[test]
fn a_share_lapses_without_the_store() {
    let mut fleet = Fleet::new(4);
    let node =
        fleet.join(|builder| shared(rules()[0])(builder).on_unavailable(OnUnavailable::Admit));
    fleet.run_to(fleet.now_ns() + 10 * MS);
    fleet.set_all(LinkState::RequestsLost);
    let lost_ns = fleet.now_ns();
    for _ in 0..800 {
        fleet.call(node, b"key", 1);
        fleet.run_to(fleet.now_ns() + MS);
    }
    let first = fleet.grants.iter().find(|grant| grant.by == DecidedBy::Fallback).unwrap();
    let after_ms = (first.at_ns - lost_ns) / MS;
    assert!((80..=310).contains(&after_ms), "{after_ms} ms");
    fleet.set_all(LinkState::Open { max_delay_ns: MS });
    fleet.run_to(fleet.now_ns() + S);
    fleet.call(node, b"key", 1);
    fleet.run_to(fleet.now_ns() + MS);
    assert_eq!(fleet.grants.last().unwrap().by, DecidedBy::Share);
}
