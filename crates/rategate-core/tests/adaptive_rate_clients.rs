//! Clients that find the rate of a server which refuses what is too much, on simulated time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::common::{MS, S, end, granted};
use fastrand::Rng;
use rategate_core::adaptive::{AdaptiveRate, Outcome};
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::rate::Rate;
use rategate_core::verdict::{Grant, Verdict};

/// A server that refuses what is over its rate, and has clients that call as often as they may.
struct World {
    clients: Vec<Ledger>,
    server: Ledger,
    random: Rng,
    /// The next events: a call of a client, or the end of one.
    next: BinaryHeap<Reverse<(u64, usize, bool)>>,
    calls: Vec<(u64, Grant, Outcome)>,
}

/// The calls of each client that were served in a span, and the number that was refused.
#[derive(Debug, Default)]
struct Seen {
    served: Vec<f64>,
    refused: f64,
}

impl World {
    fn new(clients: usize, seed: u64) -> Self {
        let policy = AdaptiveRate::new(Rate::per_second(1), Rate::per_second(1_000));
        let mut random = Rng::with_seed(seed);
        let begins = (0..clients).map(|client| Reverse((random.u64(..S), client, true)));
        let next = begins.collect();
        let clients = (0..clients).map(|_| Ledger::new(policy, 0)).collect();
        let server = Ledger::new(Gcra::per_second(100).burst(20), 0);
        Self { clients, server, random, next, calls: Vec::new() }
    }

    /// Lets the clients call until an instant.
    fn run(&mut self, until_ns: u64) -> Seen {
        let mut seen = Seen { served: vec![0.0; self.clients.len()], ..Seen::default() };
        while let Some(&Reverse((now_ns, which, is_call))) = self.next.peek() {
            if now_ns >= until_ns {
                break;
            }
            self.next.pop();
            if !is_call {
                let (_, grant, outcome) = self.calls[which];
                let client = usize::try_from(self.calls[which].0).unwrap();
                end(&mut self.clients[client], now_ns, &grant, outcome);
                continue;
            }
            match self.clients[which].try_acquire(now_ns, 1).unwrap() {
                Verdict::Denied(denial) => {
                    let again_ns = now_ns + denial.retry_after_ns.unwrap().get();
                    self.next.push(Reverse((again_ns, which, true)));
                }
                Verdict::Granted(grant) => {
                    let outcome = if granted(self.server.try_acquire(now_ns, 1)).is_some() {
                        seen.served[which] += 1.0;
                        Outcome::Served
                    } else {
                        seen.refused += 1.0;
                        Outcome::Dropped
                    };
                    let end_ns = now_ns + self.random.u64(10 * MS..60 * MS);
                    self.next.push(Reverse((end_ns, self.calls.len(), false)));
                    self.calls.push((u64::try_from(which).unwrap(), grant, outcome));
                    self.next.push(Reverse((now_ns + 1, which, true)));
                }
            }
        }
        seen
    }
}

impl Seen {
    fn all(&self) -> f64 {
        self.served.iter().sum()
    }

    /// Returns which part of all calls was refused.
    fn refused(&self) -> f64 {
        self.refused / (self.all() + self.refused)
    }

    /// Returns how equal the clients' shares are: 1 if they are, by Jain's index.
    fn fairness(&self) -> f64 {
        let squares: f64 = self.served.iter().map(|served| served * served).sum();
        self.all() * self.all() / (f64::from(u32::try_from(self.served.len()).unwrap()) * squares)
    }
}

const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;

/// Returns what is seen in two minutes, after 20 s to settle, for each seed.
fn settled(clients: usize) -> Vec<Seen> {
    let seen = SEEDS.map(|seed| {
        let mut world = World::new(clients, seed);
        world.run(20 * S);
        world.run(140 * S)
    });
    seen.collect()
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// One client uses 97 % of a rate that it does not know, at most one of 200 calls is refused, and
/// four share it at 1.5 %.
#[test]
fn clients_find_the_rate_and_share_it() {
    for (clients, refused) in [(1, 0.005), (4, 0.015)] {
        let all = settled(clients);
        let part = median(all.iter().map(|seen| seen.all() / 12_000.0).collect());
        assert!(part >= 0.97, "{clients} clients use {part} of the rate");
        for seen in &all {
            assert!(seen.refused() <= refused, "{clients} clients: {} refused", seen.refused());
            assert!(seen.fairness() >= 0.97, "{clients} clients: {:?}", seen.served);
        }
    }
}

/// From 30/s to 100/s: returns which part of the first 40 s after the change is used.
fn used_after_a_rise() -> f64 {
    let of_seeds = SEEDS.map(|seed| {
        let mut world = World::new(1, seed);
        world.server = Ledger::new(Gcra::per_second(30).burst(6), 0);
        world.run(60 * S);
        world.server = Ledger::new(Gcra::per_second(100).burst(20), 60 * S);
        world.run(100 * S).all() / 4_000.0
    });
    median(of_seeds.collect())
}

#[test]
fn a_rate_that_rises_is_followed() {
    let part = used_after_a_rise();
    assert!(part >= 0.84, "{part}");
}
